//! Checks: each node is asked once as its site's checks ask it, and each service of this host once as its agent's checks do, by
//! the same code as in a front-end or an agent.
//!
//! Failure case: a firewall that lets this host's front-end through may stop another user's process, and the other way round. A program of
//! `exec` is not run for a front-end or an agent that runs as another user.

use std::net::SocketAddr;
use std::time::Duration;

use tidegate_core::topology::{CheckConfig, CheckRequest, CheckResult};
use tidegate_node::AgentConfig;
use tidegate_proxy::{NodeTls, ProxyVersion};
use tidegate_remote::clock;

use super::{Diagnosis, at_once, runtime};
use crate::check::{self, Target};
use crate::config::{Config, FrontEnd};
use crate::driver::wrong;
use crate::privilege::user_number;

const CHECK: &str = "check";
const SERVICE_CHECK: &str = "service check";

/// What is asked, and how.
#[derive(Clone, Copy, Debug)]
struct Asked<'a> {
    /// Of the agent's own host, if it is not asked for a site.
    node: &'a str,
    site: Option<&'a str>,
    address: SocketAddr,
    check: &'a CheckConfig,
    /// How TLS is spoken with the site's nodes, if it is.
    tls: Option<&'a NodeTls>,
    /// Whether HTTP/2 is spoken with them.
    http2: bool,
    /// The header of the PROXY protocol that connections to them begin with, if they do with one.
    proxy: Option<ProxyVersion>,
}

/// How a check went; none of it if this machine could not ask.
type Answer = (Option<CheckResult>, Duration);

/// Asks all nodes; nothing where no site has a check.
pub(super) fn of_sites(config: &Config, front_end: &FrontEnd) -> Vec<Diagnosis> {
    let cluster = &front_end.cluster;
    let all = cluster.nodes.iter().flat_map(|node| {
        let site = cluster.sites.get(node.site.index());
        let config = front_end.sites.get(node.site.index());
        let tls = config.and_then(|it| it.node_tls.as_deref());
        let http2 = config.is_some_and(|it| it.node_http2);
        let proxy = config.and_then(|it| it.node_proxy_protocol);
        site.into_iter().flat_map(move |site| {
            site.health.checks.iter().map(move |check| {
                let mut address = node.address;
                address.set_port(check.port.unwrap_or(address.port()));
                Asked {
                    node: &node.name,
                    site: Some(&site.name),
                    address,
                    check,
                    tls: tls.filter(|_| check.tls),
                    http2: http2 && check.port.is_none(),
                    proxy: proxy.filter(|_| check.port.is_none()),
                }
            })
        })
    });
    ask_all(config, &all.collect::<Vec<_>>())
}

/// Asks all services of this host; nothing where its agent has no checks.
pub(super) fn of_agent(config: &Config, agent: &AgentConfig) -> Vec<Diagnosis> {
    let node = agent.keys.first().map_or("", |key| &key.node);
    let all = config.service_checks.iter().map(|check| Asked {
        node,
        site: None,
        address: check.address,
        check: &check.config,
        tls: None,
        http2: false,
        proxy: None,
    });
    ask_all(config, &all.collect::<Vec<_>>())
}

fn ask_all(config: &Config, all: &[Asked<'_>]) -> Vec<Diagnosis> {
    let user = config.file.process.user.value.as_deref();
    // Where that user is not known another line says so.
    let is_own_user = user_number(user).is_ok_and(|it| it == rustix::process::geteuid().as_raw());
    at_once(all, |asked| vec![ask(asked, is_own_user)])
}

fn ask(asked: &Asked<'_>, is_own_user: bool) -> Diagnosis {
    let runs_program = matches!(asked.check.request, CheckRequest::Exec(_));
    if runs_program && !is_own_user {
        let runs = match asked.site {
            Some(_) => "the front-end runs",
            None => "the agent runs",
        };
        return Diagnosis::warn(
            asked.title(),
            format!(
                "{}: its program was not run, since {runs} as another user",
                asked.said()
            ),
            "run `tidegate doctor` as `user` of [process]",
        );
    }
    let begun = clock::now();
    let target = Target {
        address: asked.address,
        node: asked.node,
        site: asked.site,
        tls: asked.tls,
        http2: asked.http2,
        proxy: asked.proxy,
    };
    let answer = check::check(&target, asked.check);
    let answer = runtime().map(|runtime| runtime.block_on(answer));
    of_answer(asked, (answer.unwrap_or(None), clock::now().since(begun)))
}

impl Asked<'_> {
    fn title(&self) -> &'static str {
        match self.site {
            Some(_) => CHECK,
            None => SERVICE_CHECK,
        }
    }

    /// The node or the service, and how it is asked.
    fn said(&self) -> String {
        let what = match self.site {
            Some(site) => format!("{} of site {site}", self.node),
            None => format!("`{}`", self.check.label),
        };
        let kind = kind(&self.check.request);
        match self.check.request {
            CheckRequest::Exec(_) => format!("{what} ({kind})"),
            CheckRequest::Tcp(_)
            | CheckRequest::Udp(_)
            | CheckRequest::Dns(_)
            | CheckRequest::Ftp(_)
            | CheckRequest::Nfs(_)
            | CheckRequest::Smb
            | CheckRequest::Http(_)
            | CheckRequest::Grpc(_) => format!("{what} ({kind} at {})", self.address),
        }
    }

    /// What helps where it fails.
    fn remedy(&self) -> &'static str {
        match self.site {
            Some(_) => {
                "mend the service there, open its port to this host, or correct [site.check]: a front-end gives such a node no requests"
            }
            None => {
                "mend the service, or correct [[agent.check]]: front-ends give this node no requests"
            }
        }
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
        CheckRequest::Grpc(_) => "grpc",
    }
}

fn of_answer(asked: &Asked<'_>, (result, took): Answer) -> Diagnosis {
    let (title, what) = (asked.title(), asked.said());
    match result {
        Some(CheckResult::Passed) => {
            let ms = took.as_secs_f64() * 1000.0;
            Diagnosis::ok(title, format!("{what} passes within {ms:.1} ms"))
        }
        Some(CheckResult::Failed(failure)) => Diagnosis::warn(
            title,
            format!("{what} fails: {}", wrong(failure)),
            asked.remedy(),
        ),
        None => Diagnosis::warn(
            title,
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
            tls: false,
            interval: Duration::from_secs(1),
            timeout: Duration::from_secs(60),
            rise: 2,
            fall: 3,
        }
    }

    fn asked(check: &CheckConfig) -> Asked<'_> {
        Asked {
            node: "n1",
            site: Some("shop"),
            address: ([10, 0, 0, 1], 6379).into(),
            check,
            tls: None,
            http2: false,
            proxy: None,
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
        let service = Asked {
            site: None,
            ..asked(&check)
        };
        let fails = (
            Some(CheckResult::Failed(CheckFailure::Answer)),
            Duration::ZERO,
        );
        let fails = of_answer(&service, fails);
        assert_eq!(fails.check, "service check");
        assert_eq!(
            fails.text,
            "`tcp` (tcp at 10.0.0.1:6379) fails: the answer had not what is wanted"
        );
        assert!(fails.remedy.unwrap().contains("[[agent.check]]"));
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
