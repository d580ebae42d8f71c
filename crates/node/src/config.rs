//! What an agent is told.

use std::path::PathBuf;
use std::time::Duration;

/// The default publication interval. Paper 000 used 50 ms.
pub const INTERVAL_DEFAULT: Duration = Duration::from_millis(1);

/// What the record covers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// The whole machine.
    #[default]
    Host,
    /// A control group, by its path as `/proc/PID/cgroup` shows it or by a directory below a
    /// mounted hierarchy.
    Cgroup(PathBuf),
}

/// What is sampled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SamplerConfig {
    /// The publication interval, as the record will say.
    pub interval: Duration,
    /// What the record covers.
    pub scope: Scope,
    /// Processes whose open files are held against their limits: names as in
    /// `/proc/PID/comm`, or paths of pid files (anything with a slash).
    pub watch: Vec<String>,
    /// Where `/proc` and `/sys` are found; "/" but for tests.
    pub root: PathBuf,
}

impl Default for SamplerConfig {
    fn default() -> Self {
        Self {
            interval: INTERVAL_DEFAULT,
            scope: Scope::Host,
            watch: Vec::new(),
            root: "/".into(),
        }
    }
}
