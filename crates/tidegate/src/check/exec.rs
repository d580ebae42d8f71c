//! `exec`: a program of this machine, run without a shell by the user of the front-end or the agent; exit code 0 says that the node is well.
//!
//! The program gets `PATH` and what it is asked of in `TIDEGATE_SITE`, `TIDEGATE_NODE`, `TIDEGATE_ADDRESS` and `TIDEGATE_PORT`,
//! as far as they are known, and no more; what it writes is thrown away. At the time-out it is killed with all processes of its group.
//!
//! Failure case: a program that was taken away fails the check; that this machine has no process or memory left for it says
//! nothing of the node.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidegate_core::topology::CheckFailure;
use tidegate_node::{CommandEnd, run_command};
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
    let run = move || run_command(&command, &environment, deadline, &stop);
    let ended = tokio::task::spawn_blocking(run).await;
    match ended.map_err(|_| Unwell::Unasked)? {
        Ok(end) => judge(&end),
        Err(error) if is_absent(error.kind()) => Err(CheckFailure::NotStarted.into()),
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
fn is_absent(kind: ErrorKind) -> bool {
    [ErrorKind::NotFound, ErrorKind::PermissionDenied].contains(&kind)
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
    use super::*;
    use crate::testing;

    fn run(command: &[&str], within: Duration) -> Result<(), Unwell> {
        let target = Target {
            address: ([10, 0, 0, 11], 8080).into(),
            node: "n1",
            site: Some("shop"),
        };
        let command: Vec<_> = command.iter().map(ToString::to_string).collect();
        testing::runtime().block_on(ask(&target, &command, within))
    }

    fn shell(script: &str) -> Result<(), Unwell> {
        run(&["/bin/sh", "-c", script], Duration::from_secs(60))
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
        let hangs = run(&["/bin/sleep", "600"], Duration::from_millis(50));
        assert_eq!(hangs, failed(CheckFailure::Timeout));
        let absent = run(&["/no/such/program"], Duration::from_secs(60));
        assert_eq!(absent, failed(CheckFailure::NotStarted));
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
        let process = std::path::Path::new("/proc").join(process.trim());
        while process.exists() {
            std::thread::yield_now();
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
