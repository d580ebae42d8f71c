//! One command of a hook: an argument list without a shell, in a process group of its own, with a deadline and bounded output.
//!
//! Failure case: what a command leaves running in the background when it ends well is left alone; when the command runs out of
//! time, its whole group is killed. When this process is killed, a check's command is killed, and what that has started stays.

use std::io::{ErrorKind, PipeReader, Read as _};
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, Signal, kill_process_group, pidfd_open};
use tidegate_core::time::Timestamp;
use tidegate_remote::child::{Child, Lifetime};
use tidegate_remote::clock;

use super::left::LeftCommand;

/// Most of a command's output that is kept; the rest is read and thrown away.
const OUTPUT_BYTES_MAX: usize = 4096;
/// Most reads of output at once: what writes without end does not outrun the deadline.
const READS_MAX: usize = 256;
/// Between two looks at whether the agent ends.
const LOOK: Duration = Duration::from_millis(100);
/// Where programs look for others.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandEnd {
    /// By itself, with this code.
    Exit(u8),
    /// By a signal.
    Signal(i32),
    /// It was killed as its time was over.
    TimedOut,
    /// It was killed as its result is wanted no more.
    Stopped,
    /// It did not begin.
    NotStarted(String),
}

/// A command that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EndedCommand {
    pub(super) end: CommandEnd,
    /// What it wrote, as far as it is kept.
    pub(super) output: String,
}

/// Until when a command may run, and where it is noted that it does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits<'a> {
    pub(super) deadline: Timestamp,
    /// The agent ends.
    pub(super) stop: &'a AtomicBool,
    /// For an agent after this one; none: nothing is kept.
    pub(super) left: Option<&'a LeftCommand>,
}

/// Runs a command that is no hook's to its end, in its process group: by itself, at the deadline, once `stop` is set, or as this
/// process is killed. What it writes is thrown away.
pub fn run_command(
    arguments: &[String],
    environment: &[(&str, String)],
    deadline: Timestamp,
    stop: &AtomicBool,
) -> std::io::Result<CommandEnd> {
    let (child, output) = start(arguments, environment, Lifetime::Parents)?;
    let running = Running {
        child,
        output: Some(output),
        kept: Vec::new(),
    };
    let limits = Limits {
        deadline,
        stop,
        left: None,
    };
    Ok(running.noted(limits).end)
}

/// Runs a command to its end.
pub(super) fn run(
    arguments: &[String],
    environment: &[(&str, String)],
    limits: Limits<'_>,
) -> EndedCommand {
    let not_started = |error: std::io::Error| EndedCommand {
        end: CommandEnd::NotStarted(error.to_string()),
        output: String::new(),
    };
    // A hook's is ended by the next agent, with all of its group.
    match start(arguments, environment, Lifetime::Own) {
        Ok((child, output)) => Running {
            child,
            output: Some(output),
            kept: Vec::new(),
        }
        .noted(limits),
        Err(error) => not_started(error),
    }
}

fn start(
    arguments: &[String],
    environment: &[(&str, String)],
    lifetime: Lifetime,
) -> std::io::Result<(Child, PipeReader)> {
    let (reader, writer) = std::io::pipe()?;
    rustix::io::ioctl_fionbio(&reader, true)?;
    let given = environment
        .iter()
        .map(|(name, value)| (*name, value.as_str()));
    let all: Vec<_> = given.chain([("PATH", PATH)]).collect();
    Ok((Child::start(arguments, &all, writer, lifetime)?, reader))
}

struct Running {
    child: Child,
    /// None once all writers have closed it.
    output: Option<PipeReader>,
    kept: Vec<u8>,
}

impl Running {
    /// Waits for the end, and what runs is noted as long. A command that cannot be noted is ended at once.
    fn noted(mut self, limits: Limits<'_>) -> EndedCommand {
        let Some(left) = limits.left else {
            return self.wait(limits);
        };
        if let Err(error) = left.note(self.child.pid()) {
            let why = format!("cannot note that it runs: {error}");
            return EndedCommand {
                end: self.kill(CommandEnd::NotStarted(why)),
                output: String::new(),
            };
        }
        let ended = self.wait(limits);
        // A note that stays names a process that is gone.
        left.forget().ok();
        ended
    }

    fn wait(mut self, limits: Limits<'_>) -> EndedCommand {
        let end = self.end(limits);
        self.read();
        let output = String::from_utf8_lossy(&self.kept).trim_end().to_owned();
        EndedCommand { end, output }
    }

    fn end(&mut self, limits: Limits<'_>) -> CommandEnd {
        // Without one the command is looked at ten times a second.
        let ended = pidfd_open(self.child.pid(), PidfdFlags::empty()).ok();
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return end_of(status),
                Ok(None) => {}
                Err(error) => return self.kill(CommandEnd::NotStarted(error.to_string())),
            }
            let left = limits.deadline.since(clock::now());
            if left.is_zero() {
                return self.kill(CommandEnd::TimedOut);
            }
            if limits.stop.load(Ordering::Acquire) {
                return self.kill(CommandEnd::Stopped);
            }
            let wait = left.min(LOOK);
            let wait = Timespec {
                tv_sec: wait.as_secs() as i64,
                tv_nsec: i64::from(wait.subsec_nanos()),
            };
            let mut waited = Vec::with_capacity(2);
            waited.extend(ended.iter().map(|fd| PollFd::new(fd, PollFlags::IN)));
            waited.extend(self.output.iter().map(|fd| PollFd::new(fd, PollFlags::IN)));
            // A signal in between is another turn.
            poll(&mut waited, Some(&wait)).ok();
            drop(waited);
            self.read();
        }
    }

    /// Takes what was written so far.
    fn read(&mut self) {
        let mut buffer = [0; 1024];
        for _ in 0..READS_MAX {
            let Some(output) = &mut self.output else {
                return;
            };
            match output.read(&mut buffer) {
                Ok(0) => self.output = None,
                Ok(length) => {
                    let room = OUTPUT_BYTES_MAX - self.kept.len();
                    self.kept.extend_from_slice(&buffer[..length.min(room)]);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => self.output = None,
            }
        }
    }

    fn kill(&mut self, end: CommandEnd) -> CommandEnd {
        // It may have ended by now.
        kill_process_group(self.child.pid(), Signal::KILL).ok();
        self.child.wait().ok();
        end
    }
}

fn end_of(status: ExitStatus) -> CommandEnd {
    use std::os::unix::process::ExitStatusExt as _;
    match status.code() {
        Some(code) => CommandEnd::Exit(u8::try_from(code).unwrap_or(u8::MAX)),
        None => CommandEnd::Signal(status.signal().unwrap_or_default()),
    }
}

impl CommandEnd {
    /// Whether it ended well.
    pub(super) fn is_well(&self) -> bool {
        *self == Self::Exit(0)
    }

    /// Its exit code, if it has one.
    pub(super) fn exit_code(&self) -> Option<u8> {
        match self {
            Self::Exit(code) => Some(*code),
            Self::Signal(_) | Self::TimedOut | Self::Stopped | Self::NotStarted(_) => None,
        }
    }

    /// In words, after the command's name.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Exit(code) => format!("ended with exit code {code}"),
            Self::Signal(signal) => format!("was ended by signal {signal}"),
            Self::TimedOut => "was killed: the hook's time is over".into(),
            Self::Stopped => "was killed: the agent ends".into(),
            Self::NotStarted(why) => format!("did not start: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(text: &str, within: Duration) -> EndedCommand {
        let arguments = ["/bin/sh", "-c", text].map(str::to_owned);
        let stop = AtomicBool::new(false);
        let limits = Limits {
            deadline: clock::now() + within,
            stop: &stop,
            left: None,
        };
        run(&arguments, &[("TIDEGATE_SITE", "shop".into())], limits)
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn exit_code_and_output_are_kept_and_the_environment_is_ours_alone() {
        let ended = shell("echo to $TIDEGATE_SITE $HOME; echo no >&2; exit 3", LONG);
        assert_eq!(ended.end, CommandEnd::Exit(3));
        assert_eq!(ended.output, "to shop\nno");
        assert_eq!(shell("kill -9 $$", LONG).end, CommandEnd::Signal(9));
        let stop = AtomicBool::new(false);
        let limits = Limits {
            deadline: clock::now() + LONG,
            stop: &stop,
            left: None,
        };
        let none = run(&["/no/such".to_owned()], &[], limits);
        assert!(matches!(none.end, CommandEnd::NotStarted(_)), "{none:?}");
    }

    #[test]
    fn output_is_bounded_and_does_not_hold_a_command_up() {
        let ended = shell("yes 0123456789 | head -c 1000000; exit 0", LONG);
        assert_eq!(
            (ended.end, ended.output.len()),
            (CommandEnd::Exit(0), OUTPUT_BYTES_MAX)
        );
    }

    #[test]
    fn a_command_that_takes_too_long_is_killed_with_all_that_it_has_started() {
        let ended = shell("sleep 600 & echo $!; sleep 600", Duration::from_millis(300));
        assert_eq!(ended.end, CommandEnd::TimedOut);
        let stat = format!("/proc/{}/stat", ended.output);
        // It stays as a zombie where nothing above the shell waits for it.
        let runs = || std::fs::read_to_string(&stat).is_ok_and(|it| !it.contains(") Z "));
        while runs() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_command_is_noted_while_it_runs_and_one_that_cannot_be_does_not_run() {
        let folder = std::env::temp_dir().join(format!("tidegate-noted-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let stop = AtomicBool::new(false);
        let noted = |folder: &std::path::Path, text: &str| {
            let left = LeftCommand::of(folder);
            let limits = Limits {
                deadline: clock::now() + LONG,
                stop: &stop,
                left: Some(&left),
            };
            run(&["/bin/sh", "-c", text].map(str::to_owned), &[], limits)
        };
        let note = folder.join("moves.command");
        // The note follows the beginning: the command waits for it.
        let waits = format!(
            "while [ ! -s {0} ]; do sleep 0.01; done; echo $$; cat {0}",
            note.display()
        );
        let ended = noted(&folder, &waits);
        let (own, noted_as) = ended.output.split_once('\n').unwrap();
        assert_eq!(noted_as.split(' ').next(), Some(own), "{ended:?}");
        assert!(!note.exists());
        let ended = noted(&folder.join("none"), "sleep 600");
        assert!(
            matches!(&ended.end, CommandEnd::NotStarted(why) if why.starts_with("cannot note that it runs")),
            "{ended:?}"
        );
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn an_agent_that_ends_kills_its_command() {
        let stop = AtomicBool::new(true);
        let limits = Limits {
            deadline: clock::now() + LONG,
            stop: &stop,
            left: None,
        };
        let arguments = ["/bin/sleep", "600"].map(str::to_owned);
        assert_eq!(run(&arguments, &[], limits).end, CommandEnd::Stopped);
    }
}
