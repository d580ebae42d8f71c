//! Where a process of the cluster runs: its namespace, its control group and its CPU.
//!
//! A command of a place is wrapped, each step by the system's own tool:
//!
//! ```text
//! setpriv --pdeathsig KILL   dies with the lab
//! nsenter --net=…            the place's network; `ip netns exec` would hide the cgroups
//! taskset -c N               the place's CPU
//! sh -c '…' joins the control groups and becomes the program
//! ```
//!
//! The shell first checks that its parent is still the lab: if the lab was killed before
//! `setpriv` had asked for the signal, it would never be sent.

use std::ffi::OsStr;
use std::fs::File;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::ClusterError;
use super::group::Group;
use super::network::Namespace;
use super::sweep::MARK;

/// Joins the groups whose files stand before `--`, and runs what stands behind.
const JOIN: &str = "[ \"$PPID\" = \"$0\" ] || exit 125; \
    while [ \"$1\" != -- ]; do echo $$ > \"$1\" || exit 125; shift; done; \
    shift; exec \"$@\"";

/// See the module.
#[derive(Clone, Debug)]
pub struct Place {
    pub(super) mark: String,
    pub(super) namespace: Option<Namespace>,
    pub(super) group: Option<Arc<Group>>,
    pub(super) cpu: Option<u32>,
    pub(super) address: IpAddr,
}

impl Place {
    /// A command that runs the program here. More arguments may be added to it; what it starts
    /// dies with the thread that spawns it.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]);
        if let Some(namespace) = &self.namespace {
            command
                .arg("nsenter")
                .arg(format!("--net={}", namespace.path().display()))
                .arg("--");
        }
        if let Some(cpu) = self.cpu {
            command.args(["taskset", "-c", &cpu.to_string()]);
        }
        command.args(["sh", "-c", JOIN, &std::process::id().to_string()]);
        command.args(self.group.iter().flat_map(|group| group.doors()));
        command.arg("--").arg(program);
        command.env(MARK, &self.mark);
        command
    }

    /// Does something on a thread of its own whose sockets are those of this place.
    pub fn inside<T: Send>(&self, act: impl FnOnce() -> T + Send) -> Result<T, ClusterError> {
        let enter = || -> Result<(), ClusterError> {
            let Some(namespace) = &self.namespace else {
                return Ok(());
            };
            let path = namespace.path();
            let file = File::open(&path).map_err(ClusterError::file("open", &path))?;
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
                .map_err(|error| ClusterError::file("enter", path)(error.into()))
        };
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| enter().map(|()| act()));
            match thread.join() {
                Ok(done) => done,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    /// CPU time of everything that ran in this place; zero where that is not counted.
    pub fn cpu_time(&self) -> Duration {
        let used = self.group.as_ref().and_then(|group| group.cpu_time().ok());
        used.unwrap_or_default()
    }

    /// Processes that run here; none where that is not known.
    pub fn processes(&self) -> Vec<u32> {
        let group = self.group.as_ref();
        group.map(|group| group.members()).unwrap_or_default()
    }

    /// Gives everything here together this share of one CPU at most, or lifts the limit.
    pub fn limit(&self, share: Option<f64>) -> Result<(), ClusterError> {
        match &self.group {
            Some(group) => group.limit(share),
            None => Err(ClusterError::Loopback("a CPU quota")),
        }
    }

    /// Limits the memory of everything here together; whether this machine can.
    pub(super) fn limit_memory(&self, bytes: u64) -> Result<bool, ClusterError> {
        match &self.group {
            Some(group) => group.limit_memory(bytes),
            None => Ok(false),
        }
    }

    /// Where what runs here is reached.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// The path of its control group, as an agent's scope.
    pub(crate) fn scope(&self) -> Option<String> {
        self.group.as_ref().map(|group| group.scope())
    }
}
