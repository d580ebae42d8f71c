//! Children that do not outlive the process that started them, also where that is killed.
//!
//! ```text
//! child, before exec   a signal for when its parent ends: SIGKILL;  its parent is still the one that forked, or it goes no further
//! ```
//!
//! Inputs: a command that is to be started. Failure case: Linux means the end of the thread that started the child, so that
//! thread waits for it. What the child has started itself stays, and a program that gains rights as it begins (set-user-ID,
//! file capabilities) stays as well. Source: prctl(2), `PR_SET_PDEATHSIG`.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::io::Errno;
use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

/// Has the command's process killed when the thread that starts it ends.
pub fn end_with_parent(command: &mut Command) {
    let parent = getpid();
    let before_exec = move || -> io::Result<()> {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // A parent that ended before that has sent nothing.
        match getppid() == Some(parent) {
            true => Ok(()),
            false => Err(Errno::SRCH.into()),
        }
    };
    // SAFETY: it runs in the child between fork and exec, where nothing may lock or allocate: it makes two system calls,
    // and an error of the system's allocates nothing.
    unsafe {
        command.pre_exec(before_exec);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::{Child, Stdio};
    use std::sync::mpsc;

    use super::*;

    /// Waits for its input to end, which is the test's own end at the latest.
    fn waits() -> Command {
        let mut command = Command::new("/bin/cat");
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        command
    }

    #[test]
    fn a_child_ends_with_the_thread_that_started_it() {
        let started = std::thread::spawn(|| {
            let mut command = waits();
            end_with_parent(&mut command);
            command.spawn().unwrap()
        });
        let mut child: Child = started.join().unwrap();
        // Its input stays open.
        let input = child.stdin.take();
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        drop(input);
    }

    #[test]
    fn while_that_thread_waits_the_child_ends_by_itself() {
        let (sender, receiver) = mpsc::channel();
        let waiting = std::thread::spawn(move || {
            let mut command = waits();
            end_with_parent(&mut command);
            let mut child = command.spawn().unwrap();
            sender.send(child.stdin.take().unwrap()).unwrap();
            child.wait().unwrap()
        });
        drop(receiver.recv().unwrap());
        assert_eq!(waiting.join().unwrap().code(), Some(0));
    }
}
