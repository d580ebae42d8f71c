//! Service checks: each node is asked once as its site's checks ask it, by the same code as in a front-end.
//!
//! Failure case: a firewall that lets this host's front-end through may stop another user's process, and the other way round. A program of
//! `exec` is not run for a front-end that runs as another user.

use std::net::SocketAddr;
use std::time::Duration;

use tidegate_core::topology::{CheckConfig, CheckRequest, CheckResult};
use tidegate_remote::clock;

use super::{Diagnosis, at_once, runtime};
use crate::check;
use crate::config::{Config, FrontEnd};
use crate::driver::wrong;
use crate::privilege::user_number;

const CHECK: &str = "service check";

/// A node, and how it is checked.
#[derive(Clone, Copy, Debug)]
struct Asked<'a> {
    node: &'a str,
    site: &'a str,
    address: SocketAddr,
    check: &'a CheckConfig,
}

/// How a check went; none of it if this machine could not ask.
type Answer = (Option<CheckResult>, Duration);

/// Asks all; nothing where no site has a check.
pub(super) fn examine(config: &Config, front_end: &FrontEnd) -> Vec<Diagnosis> {
    let cluster = &front_end.cluster;
    let all = cluster.nodes.iter().flat_map(|node| {
        let site = cluster.sites.get(node.site.index());
        site.into_iter().flat_map(move |site| {
            site.health.checks.iter().map(move |check| {
                let mut address = node.address;
                address.set_port(check.port.unwrap_or(address.port()));
                Asked {
                    node: &node.name,
                    site: &site.name,
                    address,
                    check,
                }
            })
        })
    });
    let user = config.file.process.user.value.as_deref();
    // Where that user is not known another line says so.
    let is_own_user = user_number(user).is_ok_and(|it| it == rustix::process::geteuid().as_raw());
    let all: Vec<_> = all.collect();
    at_once(&all, |asked| vec![ask(asked, is_own_user)])
}

fn ask(asked: &Asked<'_>, is_own_user: bool) -> Diagnosis {
    let runs_program = matches!(asked.check.request, CheckRequest::Exec(_));
    if runs_program && !is_own_user {
        return Diagnosis::warn(
            CHECK,
            format!(
                "{}: its program was not run, since the front-end runs as another user",
                said(asked)
            ),
            "run `tidegate doctor` as `user` of [process]",
        );
    }
    let begun = clock::now();
    let Asked { node, site, .. } = *asked;
    let answer = check::once(asked.address, (node, site), asked.check);
    let answer = runtime().map(|runtime| runtime.block_on(answer));
    of_answer(asked, (answer.unwrap_or(None), clock::now().since(begun)))
}

/// The node, and how it is asked.
fn said(asked: &Asked<'_>) -> String {
    let kind = kind(&asked.check.request);
    match asked.check.request {
        CheckRequest::Exec(_) => format!("{} of site {} ({kind})", asked.node, asked.site),
        CheckRequest::Tcp(_)
        | CheckRequest::Udp(_)
        | CheckRequest::Dns(_)
        | CheckRequest::Ftp(_)
        | CheckRequest::Nfs(_)
        | CheckRequest::Smb
        | CheckRequest::Http(_) => format!(
            "{} of site {} ({kind} at {})",
            asked.node, asked.site, asked.address
        ),
    }
}

/// Its name in configurations.
fn kind(request: &CheckRequest) -> &'static str {
    match request {
        CheckRequest::Tcp(_) => "tcp",
        CheckRequest::Udp(_) => "udp",
        CheckRequest::Dns(_) => "dns",
        CheckRequest::Ftp(_) => "ftp",
        CheckRequest::Nfs(_) => "nfs",
        CheckRequest::Smb => "smb",
        CheckRequest::Exec(_) => "exec",
        CheckRequest::Http(_) => "http",
    }
}

fn of_answer(asked: &Asked<'_>, (result, took): Answer) -> Diagnosis {
    let what = said(asked);
    match result {
        Some(CheckResult::Passed) => {
            let ms = took.as_secs_f64() * 1000.0;
            Diagnosis::ok(CHECK, format!("{what} passes within {ms:.1} ms"))
        }
        Some(CheckResult::Failed(failure)) => Diagnosis::warn(
            CHECK,
            format!("{what} fails: {}", wrong(failure)),
            "mend the service there, open its port to this host, or correct [site.check]: a front-end gives such a node no requests",
        ),
        None => Diagnosis::warn(
            CHECK,
            format!("{what} could not be asked by this machine"),
            "let this user have more open files and processes",
        ),
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::topology::{BytesCheck, CheckFailure};

    use super::super::Level;
    use super::*;

    fn config(request: CheckRequest) -> CheckConfig {
        CheckConfig {
            label: "tcp".into(),
            request,
            port: None,
            interval: Duration::from_secs(1),
            timeout: Duration::from_secs(60),
            rise: 2,
            fall: 3,
        }
    }

    fn asked(check: &CheckConfig) -> Asked<'_> {
        Asked {
            node: "n1",
            site: "shop",
            address: ([10, 0, 0, 1], 6379).into(),
            check,
        }
    }

    #[test]
    fn what_came_of_a_check_is_said_in_words() {
        let check = config(CheckRequest::Tcp(BytesCheck::default()));
        let of = |result| of_answer(&asked(&check), (result, Duration::from_micros(1500)));
        let passes = of(Some(CheckResult::Passed));
        assert_eq!(passes.level, Level::Ok);
        assert_eq!(
            passes.text,
            "n1 of site shop (tcp at 10.0.0.1:6379) passes within 1.5 ms"
        );
        let fails = of(Some(CheckResult::Failed(CheckFailure::Answer)));
        assert_eq!(fails.level, Level::Warn);
        assert!(
            fails
                .text
                .ends_with(" fails: the answer had not what is wanted"),
            "{}",
            fails.text
        );
        assert_eq!(of(None).level, Level::Warn);
    }

    #[test]
    fn a_program_is_not_run_as_another_user() {
        let check = config(CheckRequest::Exec(vec!["/bin/true".into()]));
        let other = ask(&asked(&check), false);
        assert_eq!(other.level, Level::Warn);
        assert!(
            other
                .text
                .contains("n1 of site shop (exec): its program was not run")
        );
        assert_eq!(ask(&asked(&check), true).level, Level::Ok);
    }
}
