//! `exec`: a program of this machine, run without a shell by the user of the front-end or the agent; exit code 0 says that the node is well.
//!
//! The program gets `PATH` and what it is asked of in `TIDEGATE_SITE`, `TIDEGATE_NODE`, `TIDEGATE_ADDRESS` and `TIDEGATE_PORT`,
//! as far as they are known, and no more; what it writes is thrown away. At the time-out it is killed with all processes of its group.
//!
//! Before each run the program is judged as when the configuration was read: others than root and this user cannot change it.
//!
//! Failure case: a program that was taken away, or that others can change now, fails the check; that this machine has no process or memory left for it says
//! nothing of the node.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use tidegate_core::time::Timestamp;
use tidegate_core::topology::CheckFailure;
use tidegate_node::{CommandEnd, check_program, run_command};
use tidegate_remote::clock;

use super::{Target, Unwell};

/// Ends the program when its result is wanted no more.
struct StopWhenDropped(Arc<AtomicBool>);

impl Drop for StopWhenDropped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

pub(super) async fn ask(
    target: &Target<'_>,
    command: &[String],
    within: Duration,
) -> Result<(), Unwell> {
    let stop = Arc::new(AtomicBool::new(false));
    let _stop = StopWhenDropped(Arc::clone(&stop));
    let (command, environment) = (command.to_vec(), environment(target));
    let deadline = clock::now() + within;
    let run = move || run(&command, &environment, deadline, &stop);
    let ended = tokio::task::spawn_blocking(run).await;
    ended.map_err(|_| Unwell::Unasked)?
}

fn run(
    command: &[String],
    environment: &[(&str, String)],
    deadline: Timestamp,
    stop: &AtomicBool,
) -> Result<(), Unwell> {
    let program = Path::new(command.first().map_or("", String::as_str));
    if program.exists() && check_program(program).is_err() {
        return Err(CheckFailure::NotTrusted.into());
    }
    match run_command(command, environment, deadline, stop) {
        Ok(end) => judge(&end),
        Err(error) if is_of_program(&error) => Err(CheckFailure::NotStarted.into()),
        Err(_) => Err(Unwell::Unasked),
    }
}

fn environment(target: &Target<'_>) -> Vec<(&'static str, String)> {
    let port = Some(target.address.port()).filter(|it| *it != 0);
    let all = [
        ("TIDEGATE_SITE", target.site.map(str::to_owned)),
        ("TIDEGATE_NODE", Some(target.node.to_owned())),
        ("TIDEGATE_ADDRESS", Some(target.address.ip().to_string())),
        ("TIDEGATE_PORT", port.map(|it| it.to_string())),
    ];
    let known = all
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)));
    known.collect()
}

/// Whether it is the program that is to blame, or the machine.
fn is_of_program(error: &std::io::Error) -> bool {
    let of_program = [Errno::NOENT, Errno::ACCESS, Errno::PERM, Errno::NOEXEC];
    Errno::from_io_error(error).is_some_and(|it| of_program.contains(&it))
}

fn judge(end: &CommandEnd) -> Result<(), Unwell> {
    Err(match end {
        CommandEnd::Exit(0) => return Ok(()),
        CommandEnd::Exit(code) => CheckFailure::Code("exit code", (*code).into()).into(),
        CommandEnd::Signal(signal) => {
            CheckFailure::Code("signal that ended it", signal.unsigned_abs()).into()
        }
        CommandEnd::TimedOut => CheckFailure::Timeout.into(),
        CommandEnd::Stopped | CommandEnd::NotStarted(_) => Unwell::Unasked,
    })
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;
    use std::process::Command;

    use super::*;
    use crate::testing;

    fn ask_of(command: &[&str], within: Duration) -> Result<(), Unwell> {
        let target = Target {
            address: ([10, 0, 0, 11], 8080).into(),
            node: "n1",
            site: Some("shop"),
            tls: None,
            http2: false,
            proxy: None,
        };
        let command: Vec<_> = command.iter().map(ToString::to_string).collect();
        testing::runtime().block_on(ask(&target, &command, within))
    }

    fn shell(script: &str) -> Result<(), Unwell> {
        ask_of(&["/bin/sh", "-c", script], Duration::from_secs(60))
    }

    fn failed(failure: CheckFailure) -> Result<(), Unwell> {
        Err(failure.into())
    }

    #[test]
    fn the_exit_code_decides() {
        assert_eq!(shell("exit 0"), Ok(()));
        assert_eq!(shell("exit 2"), failed(CheckFailure::Code("exit code", 2)));
        let killed = CheckFailure::Code("signal that ended it", 9);
        assert_eq!(shell("kill -9 $$"), failed(killed));
        assert_eq!(
            shell("yes | head -c 10000000"),
            Ok(()),
            "output is thrown away"
        );
    }

    #[test]
    fn the_program_learns_whom_it_is_asked_of_and_nothing_else() {
        let is = "[ $TIDEGATE_SITE/$TIDEGATE_NODE/$TIDEGATE_ADDRESS/$TIDEGATE_PORT = shop/n1/10.0.0.11/8080 ]";
        assert_eq!(shell(is), Ok(()));
        assert_eq!(shell("[ -z \"$HOME$CARGO\" ]"), Ok(()));
    }

    #[test]
    fn a_program_that_hangs_is_killed_and_one_that_is_not_there_fails() {
        let hangs = ask_of(&["/bin/sleep", "600"], Duration::from_millis(50));
        assert_eq!(hangs, failed(CheckFailure::Timeout));
        let absent = ask_of(&["/no/such/program"], Duration::from_secs(60));
        assert_eq!(absent, failed(CheckFailure::NotStarted));
    }

    #[test]
    fn a_program_that_others_can_change_meanwhile_is_not_run() {
        let folder = std::env::temp_dir().join(format!("tidegate-trusted-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let program = folder.join("well");
        let run = |text: &str, mode| {
            // Written by another process: a child of another test's would have the open file as well, for a moment.
            let script = format!("echo '{text}' > {}", program.display());
            let written = Command::new("/bin/sh").args(["-c", &script]).status();
            assert!(written.unwrap().success());
            std::fs::set_permissions(&program, Permissions::from_mode(mode)).unwrap();
            ask_of(&[program.to_str().unwrap()], Duration::from_secs(60))
        };
        assert_eq!(run("#!/bin/true", 0o755), Ok(()));
        assert_eq!(run("#!/bin/true", 0o757), failed(CheckFailure::NotTrusted));
        assert_eq!(run("#!/bin/true", 0o755), Ok(()));
        assert_eq!(run("neither", 0o755), failed(CheckFailure::NotStarted));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_check_that_is_given_up_ends_its_program() {
        let folder = std::env::temp_dir().join(format!("tidegate-exec-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let note = folder.join("process");
        let script = format!(
            "echo $$ > {0}.new; mv {0}.new {0}; exec sleep 600",
            note.display()
        );
        let command = ["/bin/sh", "-c", &script].map(str::to_owned);
        let target = Target {
            address: ([10, 0, 0, 11], 8080).into(),
            node: "n1",
            site: Some("shop"),
            tls: None,
            http2: false,
            proxy: None,
        };
        testing::runtime().block_on(async {
            let begun = async {
                while !note.exists() {
                    tokio::task::yield_now().await;
                }
            };
            tokio::select! {
                ended = ask(&target, &command, Duration::from_secs(60)) => panic!("{ended:?}"),
                () = begun => {}
            }
        });
        let process = std::fs::read_to_string(&note).unwrap();
        let process = Path::new("/proc").join(process.trim());
        while process.exists() {
            std::thread::yield_now();
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
