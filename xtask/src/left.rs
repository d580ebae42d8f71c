//! Processes that tests leave behind.
//!
//! One that holds the output of the tests open would have the run wait for it for ever, and whatever
//! starts the run too. So the orphans of all tests become children of this process, and once the tests
//! have ended those that do not end by themselves are named, ended, and a failure.
//!
//! Meanwhile they are reaped as the first process of a system does it: a test that waits until a process is gone
//! would wait in vain for one that has ended and that nothing has reaped.

use std::path::Path;
use std::process::Child;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, set_child_subreaper, wait};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(20);
/// A server whose parent was killed needs a moment to notice it: ten seconds.
const LOOKS: u32 = 500;

/// From here on orphans below this process are its children.
pub(crate) fn adopt() -> Result<(), String> {
    let own = rustix::process::getpid();
    set_child_subreaper(Some(own)).map_err(|error| format!("cannot adopt orphans: {error}"))
}

/// From here on they are not.
pub(crate) fn adopt_no_more() -> Result<(), String> {
    set_child_subreaper(None).map_err(|error| format!("cannot leave orphans alone: {error}"))
}

/// The process of `child`.
pub(crate) fn pid(child: &Child) -> Pid {
    Pid::from_child(child)
}

/// Ends the children of `parent`: their commands.
pub(crate) fn end_children_of(parent: Pid) -> Result<Vec<String>, String> {
    let found = children(Path::new("/proc"), parent)?;
    let end = |(pid, command)| {
        // It may have ended just now.
        kill_process(pid, Signal::KILL).ok();
        command
    };
    Ok(found.into_iter().map(end).collect())
}

/// Waits for the end of the only child that this process has started, and reaps the orphans that end before. Whether it
/// ended well.
pub(crate) fn wait_for(child: &Child) -> Result<bool, String> {
    let own = Pid::from_child(child);
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == own => return Ok(status.exit_status() == Some(0)),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(format!("cannot wait: {error}")),
        }
    }
}

/// Waits until no child is left, then ends those that are: their commands. Call it when all children
/// that this process has started have been waited for.
pub(crate) fn end_all() -> Result<Vec<String>, String> {
    end_after(LOOKS)
}

fn end_after(looks: u32) -> Result<Vec<String>, String> {
    let mut ended = Vec::new();
    // What cannot be killed is not waited for.
    for look in 0..looks + LOOKS {
        // What a killed one leaves behind comes next.
        while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
        let left = children(Path::new("/proc"), rustix::process::getpid())?;
        if left.is_empty() {
            return Ok(ended);
        }
        if look >= looks {
            for (pid, command) in left {
                // It may have ended just now.
                kill_process(pid, Signal::KILL).ok();
                if !ended.contains(&command) {
                    ended.push(command);
                }
            }
        }
        std::thread::park_timeout(LOOK);
    }
    Ok(ended)
}

/// Children of `parent` that have not ended, and their commands.
fn children(proc: &Path, parent: Pid) -> Result<Vec<(Pid, String)>, String> {
    let failed = |error| format!("{}: {error}", proc.display());
    let mut found = Vec::new();
    for entry in proc.read_dir().map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        // Other entries, and processes that are gone, have none.
        let Ok(stat) = std::fs::read_to_string(path.join("stat")) else {
            continue;
        };
        let Some((pid, state, its_parent)) = stat_fields(&stat) else {
            continue;
        };
        if its_parent != parent || state == "Z" {
            continue;
        }
        let command = std::fs::read(path.join("cmdline")).unwrap_or_default();
        let words: Vec<_> = command.split(|byte| *byte == 0).collect();
        let words = String::from_utf8_lossy(&words.join(&b' '))
            .trim()
            .to_owned();
        found.push((pid, format!("{words} (process {})", pid.as_raw_nonzero())));
    }
    Ok(found)
}

/// Process, state and parent of a line like `12 (a (b) c) S 1 …`.
fn stat_fields(stat: &str) -> Option<(Pid, &str, Pid)> {
    let (pid, rest) = stat.split_once(" (")?;
    // The name may have anything in it.
    let mut fields = rest.rsplit_once(')')?.1.split_whitespace();
    let pid = Pid::from_raw(pid.parse().ok()?)?;
    let state = fields.next()?;
    Some((pid, state, Pid::from_raw(fields.next()?.parse().ok()?)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_look_like_the_rest() {
        let fields = stat_fields("12 (a) R 7 (b) S 3 12 12 0 -1").unwrap();
        assert_eq!(fields.0.as_raw_nonzero().get(), 12);
        assert_eq!((fields.1, fields.2.as_raw_nonzero().get()), ("S", 3));
        assert_eq!(
            stat_fields("1 (init) S 0 1 1"),
            None,
            "the first has no parent"
        );
    }

    fn shell(script: &str) -> Child {
        std::process::Command::new("sh")
            .args(["-c", script])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap()
    }

    fn line(child: &mut Child) -> String {
        let mut line = String::new();
        let output = child.stdout.as_mut().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line).unwrap();
        line.trim().to_owned()
    }

    /// A shell's child is a shell until it has become its program.
    fn sleeper(child: &mut Child) -> String {
        let process = line(child);
        let is_asleep = || {
            let command = std::fs::read(format!("/proc/{process}/cmdline"));
            command.is_ok_and(|it| it.starts_with(b"sleep"))
        };
        while !is_asleep() {
            std::thread::park_timeout(LOOK);
        }
        process
    }

    /// One test: what is done about children is done about all of the process.
    #[test]
    fn orphans_are_reaped_while_a_child_runs_and_ended_after_it() {
        adopt().unwrap();
        let mut child = shell("sh -c 'sleep 0.1 & echo $!'; read line; exit 3");
        let orphan = format!("/proc/{}", line(&mut child));
        let input = child.stdin.take();
        let waiter = std::thread::spawn(move || wait_for(&child));
        while Path::new(&orphan).exists() {
            std::thread::park_timeout(LOOK);
        }
        drop(input);
        assert_eq!(waiter.join().unwrap(), Ok(false), "it ended with 3");

        // One that hangs has its child ended, and goes on.
        let mut child = shell("sleep 600 & echo $!; wait $!; exit 4");
        let hung = sleeper(&mut child);
        let ended = end_children_of(pid(&child)).unwrap();
        assert_eq!(ended, [format!("sleep 600 (process {hung})")]);
        assert_eq!(child.wait().unwrap().code(), Some(4));

        let mut child = shell("sleep 600 & echo $!");
        let orphan = sleeper(&mut child);
        assert_eq!(wait_for(&child), Ok(true));
        let ended = end_after(1).unwrap();
        assert_eq!(ended, [format!("sleep 600 (process {orphan})")]);
        // Nothing holds it open.
        let mut rest = String::new();
        let mut output = child.stdout.take().unwrap();
        std::io::Read::read_to_string(&mut output, &mut rest).unwrap();
        assert_eq!(end_after(1), Ok(Vec::new()));
        adopt_no_more().unwrap();
    }
}
