//! The command of a hook that outlives its agent, which was killed: the next agent ends it before it begins a hook.
//!
//! ```text
//! a command begins    file := its process group, when that began (clock ticks since the boot), the boot
//! it has ended        the file goes
//! an agent begins     a process of that number, beginning and boot is there -> its group is killed, and waited for
//! ```
//!
//! Inputs: the agent's folder for its state, /proc. Failure case: an agent that is killed between a command's begin and the
//! note of it leaves the command running, as does one without such a folder. What a command that has ended left in the
//! background is left alone. Two agents with one folder: the later one ends a command of the earlier one.
//! Source: proc(5), `stat`: a number of a process comes again, with its beginning it does not.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use super::kept::{KeptError, replace};

/// In the folder.
const NAME: &str = "moves.command";
const MODE: u32 = 0o600;
/// Longest file.
const BYTES_MAX: u64 = 256;
/// How long a command that was killed may take to end.
const ENDS_WITHIN: Timespec = Timespec {
    tv_sec: 2,
    tv_nsec: 0,
};
/// Where /proc/PID/stat has the beginning, behind the name in brackets.
const BEGINNING: usize = 19;

/// The file.
#[derive(Clone, Debug)]
pub(super) struct LeftCommand {
    path: PathBuf,
}

pub(super) fn file(folder: &Path) -> PathBuf {
    folder.join(NAME)
}

/// A process that is no other one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Process {
    pid: i32,
    beginning: u64,
    boot: String,
}

impl LeftCommand {
    /// The file of this folder.
    pub(super) fn of(folder: &Path) -> Self {
        Self { path: file(folder) }
    }

    /// A command has begun that leads its process group.
    pub(super) fn note(&self, pid: Pid) -> std::io::Result<()> {
        let process = Process::of(pid.as_raw_nonzero().get())?;
        replace(&self.path, process.text().as_bytes(), MODE)
    }

    /// It has ended.
    pub(super) fn forget(&self) -> std::io::Result<()> {
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Ends the command of an agent before this one, if one runs; the number of its process group.
    ///
    /// # Errors
    /// The file is not what an agent writes, or the command does not end.
    pub(super) fn end(&self) -> Result<Option<i32>, KeptError> {
        let failed = |error: std::io::Error| KeptError::Io {
            path: self.path.display().to_string(),
            error,
        };
        let Some(left) = self.read()? else {
            return Ok(None);
        };
        let ended = left.end().map_err(failed)?;
        self.forget().map_err(failed)?;
        Ok(ended.then_some(left.pid))
    }

    fn read(&self) -> Result<Option<Process>, KeptError> {
        let path = || self.path.display().to_string();
        let failed = |error| KeptError::Io {
            path: path(),
            error,
        };
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(&self.path);
        let file = match opened {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let mut text = String::new();
        let read = file.take(BYTES_MAX).read_to_string(&mut text);
        read.map_err(failed)?;
        let broken = || KeptError::Broken {
            path: path(),
            line: 1,
            expected: "a process, its beginning and a boot".into(),
        };
        Process::parse(&text).map(Some).ok_or_else(broken)
    }
}

impl Process {
    /// The one that has this number now.
    fn of(pid: i32) -> std::io::Result<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        let beginning = stat
            .rsplit_once(") ")
            .and_then(|(_, rest)| rest.split(' ').nth(BEGINNING)?.parse().ok());
        Ok(Self {
            pid,
            beginning: beginning.ok_or(ErrorKind::InvalidData)?,
            boot: boot.trim().to_owned(),
        })
    }

    fn text(&self) -> String {
        let Self {
            pid,
            beginning,
            boot,
        } = self;
        format!("{pid} {beginning} {boot}\n")
    }

    fn parse(text: &str) -> Option<Self> {
        let mut words = text.strip_suffix('\n')?.split(' ');
        let process = Self {
            // 1 and less is no command's.
            pid: words.next()?.parse().ok().filter(|it| *it > 1)?,
            beginning: words.next()?.parse().ok()?,
            boot: words.next().filter(|it| !it.is_empty())?.to_owned(),
        };
        words.next().is_none().then_some(process)
    }

    /// Kills its group; whether it was there.
    fn end(&self) -> std::io::Result<bool> {
        let pid = Pid::from_raw(self.pid).ok_or(ErrorKind::InvalidData)?;
        // From here on the number is looked at through this process alone.
        let opened = match pidfd_open(pid, PidfdFlags::empty()) {
            Err(Errno::SRCH) => return Ok(false),
            opened => opened?,
        };
        match Self::of(self.pid) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
            Ok(found) if found != *self => return Ok(false),
            Ok(_) => {}
        }
        match kill_process_group(pid, Signal::KILL) {
            Err(Errno::SRCH) => return Ok(false),
            killed => killed?,
        }
        match poll(
            &mut [PollFd::new(&opened, PollFlags::IN)],
            Some(&ENDS_WITHIN),
        )? {
            0 => Err(std::io::Error::other(format!(
                "process group {} of a hook was killed and does not end",
                self.pid
            ))),
            _ => Ok(true),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
    use std::process::{Child, Command};

    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let name = format!("tidegate-left-{name}-{}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            std::fs::create_dir_all(&folder).unwrap();
            Self(folder)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).ok();
        }
    }

    fn command() -> Child {
        let mut command = Command::new("/bin/sleep");
        command.arg("600").process_group(0).spawn().unwrap()
    }

    #[test]
    fn a_command_that_was_left_running_is_ended_once() {
        let folder = Folder::new("ended");
        let file = LeftCommand::of(&folder.0);
        assert_eq!(file.end().unwrap(), None, "nothing was begun");
        let mut child = command();
        file.note(Pid::from_child(&child)).unwrap();
        let ended = LeftCommand::of(&folder.0).end().unwrap();
        assert_eq!(ended, Some(child.id() as i32));
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        assert_eq!(file.end().unwrap(), None);
    }

    #[test]
    fn a_command_that_has_ended_and_another_process_of_its_number_are_left_alone() {
        let folder = Folder::new("other");
        let file = LeftCommand::of(&folder.0);
        let mut child = command();
        file.note(Pid::from_child(&child)).unwrap();
        file.forget().unwrap();
        assert_eq!(file.end().unwrap(), None);
        let own = Process::of(child.id() as i32).unwrap();
        let other = |beginning: u64, boot: &str| Process {
            pid: own.pid,
            beginning,
            boot: boot.into(),
        };
        for other in [
            other(own.beginning + 1, &own.boot),
            other(own.beginning, "another"),
        ] {
            std::fs::write(&file.path, other.text()).unwrap();
            assert_eq!(file.end().unwrap(), None, "{other:?}");
        }
        assert_eq!(child.try_wait().unwrap(), None, "it runs");
        child.kill().unwrap();
        child.wait().unwrap();
        std::fs::write(&file.path, own.text()).unwrap();
        assert_eq!(file.end().unwrap(), None, "it is gone");
    }

    #[test]
    fn a_file_that_no_agent_writes_is_an_error() {
        let folder = Folder::new("broken");
        let file = LeftCommand::of(&folder.0);
        for text in [
            "",
            "12 34 boot",
            "1 34 boot\n",
            "x 34 boot\n",
            "12 34 \n",
            "12 34 boot 5\n",
        ] {
            std::fs::write(&file.path, text).unwrap();
            let error = file.end().unwrap_err().to_string();
            assert!(
                error.contains("moves.command, line 1: expected a process"),
                "{error}"
            );
        }
    }
}
