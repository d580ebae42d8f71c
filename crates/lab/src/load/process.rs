//! The generator as a process of its own: in another namespace, on another CPU, and out of the
//! way of the experiment. The plan goes in as JSON, the result comes out as JSON.
//!
//! The child asks for precedence over what it shares a CPU with, since clients are other machines
//! in truth: in an open loop real-time priority, else a low nice value. (A closed loop is never late,
//! and at real-time priority could keep servers from answering.) Without the right to either it
//! runs like the others. It says how late it was.
//!
//! The child is killed if it is not done well after the plan's end, and when a [`Running`] is
//! dropped. The maker of the command sees to it that the child does not outlive the lab.

use std::io::{self, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use rustix::process::setpriority_process;
use tidegate_remote::realtime::try_fifo;

use crate::cluster::{ClusterError, Place, lab};

use super::generator;
use super::plan::{LoadPlan, Pacing, Stream};
use super::result::LoadResult;
use super::traces::TraceError;

/// What the child may take beyond the plan's length and time-out: to start, to draw four million
/// arrivals, to write its result.
const SPARE: Duration = Duration::from_secs(60);
/// The child's real-time priority: before readers and agents that share its CPU.
const PRIORITY: u8 = 20;
/// The child's nice value where real-time priority is refused: about ten times the weight of an ordinary process.
const NICE: i32 = -10;
/// Of a plan or a result, as JSON.
const BYTES_MAX: u64 = 256 << 20;
/// Of what the child says on stderr.
const STDERR_MAX: u64 = 4096;

/// No result.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The plan cannot be carried out.
    #[error("load plan: {0}")]
    Plan(String),
    /// A trace is there and cannot be used.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The lab's own program is not where it should be.
    #[error(transparent)]
    Program(#[from] ClusterError),
    /// Sockets, timers or the clock failed.
    #[error("load generator: {0}")]
    Runtime(#[source] io::Error),
    /// The child could not be started or talked to.
    #[error("load generator {command}: {source}")]
    Child {
        /// As started.
        command: String,
        /// Why.
        source: io::Error,
    },
    /// The child ended without a result.
    #[error("load generator {command}: expected a result, but it ended with {status}: {stderr}")]
    Ended {
        /// As started.
        command: String,
        /// How it ended.
        status: ExitStatus,
        /// What it said.
        stderr: String,
    },
    /// The child did not end.
    #[error("load generator {command}: not done {after:?} after its start")]
    Late {
        /// As started.
        command: String,
        /// How long it was given.
        after: Duration,
    },
    /// Plan or result are not JSON of the expected form.
    #[error("load generator: {what}: {source}")]
    Json {
        /// Plan or result.
        what: &'static str,
        /// Where it goes wrong.
        source: serde_json::Error,
    },
}

/// Runs the plan in this process, and returns when it is done.
///
/// # Errors
/// See [`LoadError`].
pub fn run_here(plan: &LoadPlan) -> Result<LoadResult, LoadError> {
    generator::run(plan)
}

/// Runs the plan in a child in this place, and returns when it is done.
///
/// # Errors
/// See [`LoadError`].
pub fn run(place: &Place, plan: &LoadPlan) -> Result<LoadResult, LoadError> {
    start_in(place, plan)?.wait()
}

/// Starts the plan in a child in this place. The child dies with the thread that starts it, see
/// [`Place::command`].
///
/// # Errors
/// See [`LoadError`].
pub fn start_in(place: &Place, plan: &LoadPlan) -> Result<Running, LoadError> {
    let mut command = place.command(lab()?);
    command.arg("load");
    start(command, plan)
}

/// Runs the plan in a child: `command` is `tidegate-lab load`, wherever it shall run.
///
/// # Errors
/// See [`LoadError`].
pub fn run_command(command: Command, plan: &LoadPlan) -> Result<LoadResult, LoadError> {
    start(command, plan)?.wait()
}

/// The child's side: reads a plan, runs it and writes the result.
///
/// # Errors
/// See [`LoadError`].
pub fn answer(input: impl Read, mut output: impl Write) -> Result<(), LoadError> {
    let plan: LoadPlan =
        serde_json::from_reader(input.take(BYTES_MAX)).map_err(json("the plan"))?;
    let closed = |stream: &Stream| matches!(stream.pacing, Pacing::Closed { .. });
    if plan.streams.iter().any(closed) || try_fifo(PRIORITY).is_err() {
        // Not every user may; what comes of it is in the result (`late`).
        setpriority_process(None, NICE).ok();
    }
    let result = generator::run(&plan)?;
    serde_json::to_writer(&mut output, &result).map_err(json("the result"))?;
    output.flush().map_err(LoadError::Runtime)
}

/// A load that a child applies.
#[derive(Debug)]
pub struct Running {
    child: Child,
    command: String,
    after: Duration,
    output: Receiver<io::Result<(Vec<u8>, String)>>,
}

/// Starts the plan in a child, see [`run_command`].
///
/// # Errors
/// See [`LoadError`].
pub fn start(mut command: Command, plan: &LoadPlan) -> Result<Running, LoadError> {
    plan.check().map_err(LoadError::Plan)?;
    let name = command.get_program().to_string_lossy().into_owned();
    let failed = |source| LoadError::Child {
        command: name.clone(),
        source,
    };
    let plan_json = serde_json::to_vec(plan).map_err(json("the plan"))?;
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (done, output) = channel();
    let running = Running {
        child,
        command: name,
        after: plan.total() + plan.timeout + SPARE,
        output,
    };
    let (Some(mut stdin), Some(stdout), Some(stderr)) = pipes else {
        return Err(running.failed(io::ErrorKind::BrokenPipe.into()));
    };
    if let Err(error) = stdin.write_all(&plan_json)
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        return Err(running.failed(error)); // a broken pipe: the child says why
    }
    drop(stdin);
    let read = std::thread::Builder::new().name("load-result".to_owned());
    let read = read.spawn(move || {
        // Nothing listens any more if the load was given up.
        done.send(collect(stdout, stderr)).ok();
    });
    match read {
        Ok(_detached) => Ok(running), // it ends when the child does
        Err(error) => Err(running.failed(error)),
    }
}

/// What the child wrote until it closed its outputs. It writes little to stderr, and before or
/// instead of a result: one pipe after the other does not block it.
fn collect(stdout: impl Read, mut stderr: impl Read) -> io::Result<(Vec<u8>, String)> {
    let mut result = Vec::new();
    stdout.take(BYTES_MAX).read_to_end(&mut result)?;
    let mut said = Vec::new();
    stderr.by_ref().take(STDERR_MAX).read_to_end(&mut said)?;
    Ok((result, String::from_utf8_lossy(&said).trim().to_owned()))
}

impl Running {
    /// Waits for its end.
    ///
    /// # Errors
    /// See [`LoadError`].
    pub fn wait(mut self) -> Result<LoadResult, LoadError> {
        let (result, stderr) = match self.output.recv_timeout(self.after) {
            Ok(Ok(output)) => output,
            Ok(Err(error)) => return Err(self.failed(error)),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                return Err(LoadError::Late {
                    command: self.command.clone(),
                    after: self.after,
                });
            }
        };
        let status = match self.child.wait() {
            Ok(status) => status,
            Err(error) => return Err(self.failed(error)),
        };
        if !status.success() {
            return Err(LoadError::Ended {
                command: self.command.clone(),
                status,
                stderr,
            });
        }
        serde_json::from_slice(&result).map_err(json("the result"))
    }

    fn failed(&self, source: io::Error) -> LoadError {
        LoadError::Child {
            command: self.command.clone(),
            source,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Fails if it has ended, which is what is wanted.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn json(what: &'static str) -> impl Fn(serde_json::Error) -> LoadError {
    move |source| LoadError::Json { what, source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{Arrivals, Pacing, Requests, Stream};

    fn plan() -> LoadPlan {
        LoadPlan {
            targets: vec!["127.0.0.1:9".parse().unwrap()],
            streams: vec![Stream {
                site: "shop".to_owned(),
                pacing: Pacing::Open {
                    rate: 10.0,
                    arrivals: Arrivals::Poisson,
                },
                requests: Requests::Single {
                    path: "/".to_owned(),
                },
                header: None,
            }],
            ..LoadPlan::default()
        }
    }

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_child_that_fails_tells_why() {
        let error = run_command(shell("echo no file left >&2; exit 3"), &plan()).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("no file left") && text.contains('3'),
            "{text}"
        );
        let error = run_command(shell("cat"), &plan()).unwrap_err();
        assert!(matches!(error, LoadError::Json { .. }), "{error}");
        let error = run_command(Command::new("/nonexistent"), &plan()).unwrap_err();
        assert!(matches!(error, LoadError::Child { .. }), "{error}");
    }

    #[test]
    fn a_load_that_is_given_up_is_killed() {
        let running = start(shell("exec sleep 600"), &plan()).unwrap();
        let id = running.child.id();
        drop(running); // returns when the child is gone
        let left = std::path::Path::new("/proc").join(id.to_string());
        assert!(!left.exists());
    }

    #[test]
    fn a_plan_that_cannot_be_starts_nobody() {
        let plan = LoadPlan {
            targets: Vec::new(),
            ..plan()
        };
        let refused = run_command(Command::new("/nonexistent"), &plan).unwrap_err();
        assert!(matches!(refused, LoadError::Plan(_)), "{refused}");
    }
}
