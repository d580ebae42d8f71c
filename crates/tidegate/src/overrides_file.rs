//! The file in which throttles that operators set at run time are kept over a restart.
//!
//! Only theirs: those of the configuration come from there, and what is found out is found out again.
//! Times in it are of the Unix epoch, since the process's own clock ends with it. The file is replaced
//! as a whole, so a crash leaves the old or the new one.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_core::throttle::{SetBy, Throttle};
use tidegate_core::time::Timestamp;
use tidegate_culprits::names::ClassNames;
use tidegate_proxy::Throttling;
use tidegate_remote::clock;

use crate::models::LimitsModel;
use crate::replace::replace;

/// Largest file, bytes: as many throttles as there may be, with the longest classes.
const BYTES_MAX: u64 = 1 << 20;

/// See the module.
#[derive(Debug)]
pub(crate) struct OverridesFile {
    path: Option<PathBuf>,
    /// What writes.
    writing: Mutex<()>,
}

/// What is in it.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    throttles: Vec<KeptThrottle>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeptThrottle {
    class: String,
    limits: LimitsModel,
    /// When it ends, in seconds of the Unix epoch.
    until: Option<f64>,
}

impl OverridesFile {
    /// Nothing is kept without a path.
    pub(crate) fn new(path: Option<PathBuf>) -> Self {
        Self {
            path,
            writing: Mutex::new(()),
        }
    }

    /// Whether there is one.
    pub(crate) fn is_set(&self) -> bool {
        self.path.is_some()
    }

    /// Sets the kept overrides again; what could not be given, in sentences.
    pub(crate) fn load(
        &self,
        throttling: &Throttling,
        names: &ClassNames,
        now: Timestamp,
    ) -> Vec<String> {
        let Some(path) = &self.path else {
            return Vec::new();
        };
        let kept = match read(path) {
            Ok(kept) => kept,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Vec::new(),
            Err(error) => {
                // What is in there may still be of use, and the next override replaces it.
                let aside = path.with_extension("broken");
                let moved = std::fs::rename(path, &aside).is_ok();
                let path = if moved { &aside } else { path };
                return vec![format!(
                    "{}: overrides are not set again: {error}",
                    path.display()
                )];
            }
        };
        let today = unix_seconds();
        let again = kept.throttles.iter().filter_map(|kept| {
            let left = kept.until.map(|until| until - today);
            if left.is_some_and(|left| left <= 0.0) {
                return None;
            }
            let until =
                left.map(|left| now + Duration::try_from_secs_f64(left).unwrap_or_default());
            let class = names.pattern(&kept.class);
            let class = class.map_err(|error| error.to_string());
            let given = class.and_then(|it| kept.limits.give(throttling, it, until, now));
            given
                .err()
                .map(|why| format!("{}: not throttled again: {why}", kept.class))
        });
        again.collect()
    }

    /// Keeps what operators have set.
    ///
    /// # Errors
    /// The file cannot be written; the overrides are in force all the same.
    pub(crate) fn save(&self, throttling: &Throttling, now: Timestamp) -> Result<(), String> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        // What comes later writes what is set then.
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let throttles = throttling.all();
        let own = throttles.iter().filter(|it| it.set_by == SetBy::Operator);
        let kept = Kept {
            throttles: own.map(|it| kept(it, now)).collect(),
        };
        write(path, &kept).map_err(|error| format!("cannot write {}: {error}", path.display()))
    }
}

fn kept(throttle: &Throttle, now: Timestamp) -> KeptThrottle {
    let until = throttle.until;
    KeptThrottle {
        class: throttle.pattern.name().into(),
        limits: LimitsModel::of(&throttle.limits),
        until: until.map(|until| unix_seconds() + until.seconds_since(now)),
    }
}

fn unix_seconds() -> f64 {
    clock::unix().as_secs_f64()
}

fn read(path: &Path) -> io::Result<Kept> {
    let size = std::fs::metadata(path)?.len();
    if size > BYTES_MAX {
        let text = format!("larger than {BYTES_MAX} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    Ok(serde_json::from_slice(&std::fs::read(path)?)?)
}

fn write(path: &Path, kept: &Kept) -> io::Result<()> {
    let mut text = serde_json::to_vec_pretty(kept)?;
    text.push(b'\n');
    replace(path, &text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let name = format!("tidegate-overrides-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(1000 * seconds)
    }

    #[test]
    fn what_operators_set_is_set_again() {
        let folder = folder("again");
        let file = OverridesFile::new(Some(folder.join("overrides.json")));
        let before = Throttling::new(10);
        let limits = LimitsModel {
            concurrency: Some(2),
            queue_seconds: Some(1.5),
            ..LimitsModel::default()
        };
        limits
            .give(&before, "GET /a".parse().unwrap(), None, at(1))
            .unwrap();
        let hour = Some(at(3601));
        limits
            .give(&before, "shop GET /b/*".parse().unwrap(), hour, at(1))
            .unwrap();
        limits
            .give(&before, "GET /over".parse().unwrap(), Some(at(1)), at(1))
            .unwrap();
        let class = "GET /config".parse().unwrap();
        let configured = limits.checked().unwrap();
        before
            .set(class, configured, SetBy::Config, None, at(1))
            .unwrap();
        file.save(&before, at(1)).unwrap();
        let after = Throttling::new(10);
        assert_eq!(
            file.load(&after, &ClassNames::default(), at(50)),
            Vec::<String>::new()
        );
        let names = |throttling: &Throttling| {
            let all = throttling.all().into_iter();
            all.map(|it| it.pattern.name().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(names(&after), ["GET /a", "shop GET /b/*"]);
        let all = after.all();
        assert_eq!(
            (all[0].limits, all[0].until),
            (before.all()[0].limits, None)
        );
        let left = all[1].until.unwrap().seconds_since(at(50));
        assert!((3590.0..3600.1).contains(&left), "{left}");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_broken_file_is_put_aside_and_said() {
        let folder = folder("broken");
        let path = folder.join("overrides.json");
        let file = OverridesFile::new(Some(path.clone()));
        let throttling = Throttling::new(10);
        assert!(
            file.load(&throttling, &ClassNames::default(), at(1))
                .is_empty(),
            "no file is no overrides"
        );
        std::fs::write(&path, "{ \"throttles\": [1] }").unwrap();
        let said = file.load(&throttling, &ClassNames::default(), at(1));
        assert!(
            said[0].contains("overrides.broken: overrides are not set again"),
            "{said:?}"
        );
        assert!(folder.join("overrides.broken").exists() && !path.exists());
        let bad = r#"{"throttles":[{"class":"nonsense","limits":{"concurrency":1},"until":null}]}"#;
        std::fs::write(&path, bad).unwrap();
        let said = file.load(&throttling, &ClassNames::default(), at(1));
        assert!(
            said[0].starts_with("nonsense: not throttled again: "),
            "{said:?}"
        );
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_file_that_cannot_be_written_is_said() {
        let file = OverridesFile::new(Some("/dev/null/overrides.json".into()));
        let error = file.save(&Throttling::new(10), at(1)).unwrap_err();
        assert!(
            error.starts_with("cannot write /dev/null/overrides.json: "),
            "{error}"
        );
        let none = OverridesFile::new(None);
        assert_eq!(none.save(&Throttling::new(10), at(1)), Ok(()));
    }
}
