//! One running agent, and the programs of operators that ask it: a stock HAProxy by its agent check, a scraper over HTTP, a
//! client of ORCA over HTTP/2, and clients that mean no good.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends where something is missing"
)]

mod support;

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::process::Stdio;

use support::greedy::Greedy;
use support::haproxy::Haproxy;
use support::orca::{OrcaClient, OrcaLoadReport};
use support::{
    Process, ask, eventually, folder, free_address, is_installed, master_key, node_key, tidegate,
};

/// An agent that reports. Memory alone weighs: it hardly changes.
struct Reporter {
    agent_check: SocketAddr,
    metrics: SocketAddr,
    orca: SocketAddr,
    _process: Process,
}

impl Reporter {
    fn start(folder: &Path) -> Self {
        Self::start_with(folder, "")
    }

    fn start_with(folder: &Path, more: &str) -> Self {
        let key = node_key(&master_key(folder), "n1");
        let (listen, agent_check, metrics) = (free_address(), free_address(), free_address());
        let orca = free_address();
        let text = format!(
            "[agent]\nlisten = \"{listen}\"\nkey_file = \"{}\"\ninterval = \"20ms\"\nrealtime = false\nrungs = [\"agent\"]\n\
             {more}\n[agent.agent_check]\nlisten = \"{agent_check}\"\nweights = {{ cpu = 0, memory = 1, files = 0 }}\n\
             [agent.metrics]\nlisten = \"{metrics}\"\n[agent.orca]\nlisten = \"{orca}\"\nbytes_per_request = \"1B\"\n",
            key.display()
        );
        let file = folder.join("agent.toml");
        std::fs::write(&file, text).unwrap();
        let mut command = tidegate();
        command.arg("agent").arg(&file);
        let log = std::fs::File::create(folder.join("agent.log")).unwrap();
        let process = Process::start(command.stdout(Stdio::null()).stderr(log));
        eventually("the agent reports", || {
            TcpStream::connect(metrics).ok()?;
            TcpStream::connect(orca).ok()?;
            TcpStream::connect(agent_check).ok()
        });
        Self {
            agent_check,
            metrics,
            orca,
            _process: process,
        }
    }

    /// The answer to a question.
    fn say(&self, question: &str) -> String {
        let mut stream = TcpStream::connect(self.agent_check).unwrap();
        stream.write_all(question.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// NN of `up NN%`.
    fn percent(&self) -> Option<f64> {
        let answer = self.say("");
        let number = answer.strip_prefix("up ")?.strip_suffix("%\n")?;
        Some(number.parse().unwrap())
    }

    fn metric(&self, name: &str) -> Option<f64> {
        let body = ask(self.metrics, "/metrics")?.body;
        let line = body
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line?.parse().ok()
    }
}

/// A stock HAProxy whose servers have an agent check each: name, and what the agent is sent.
fn haproxy(folder: &Path, agent: SocketAddr, servers: &[(&str, &str)]) -> Haproxy {
    let line = |(name, sends): &(&str, &str)| {
        let sends = match sends.is_empty() {
            true => String::new(),
            false => format!(" agent-send \"{sends}\\n\""),
        };
        format!(
            "server {name} {} weight 100 maxconn 50 agent-check agent-addr {} agent-port {} agent-inter 500ms{sends}",
            free_address(),
            agent.ip(),
            agent.port()
        )
    };
    let lines: Vec<_> = servers.iter().map(line).collect();
    Haproxy::start(folder, &lines)
}

#[test]
fn a_stock_haproxy_weighs_a_server_by_its_agent() {
    if !is_installed("haproxy") {
        return;
    }
    let folder = folder("agent-reports-haproxy");
    let agent = Reporter::start(&folder);
    let servers = [("plain", ""), ("limited", "shop/limited maxconn=200")];
    let haproxy = haproxy(&folder, agent.agent_check, &servers);
    for (server, _) in servers {
        let weight = eventually("the agent was asked", || {
            let status = haproxy.stat(server, "agent_status");
            let weight: f64 = haproxy.stat(server, "weight").parse().unwrap();
            (status == "L7OK" && weight < 100.0).then_some(weight)
        });
        let percent = agent.percent().unwrap();
        assert!((percent - weight).abs() < 10.0, "{percent} {weight}");
    }
    let free = agent.percent().unwrap() / 100.0;
    let most: f64 = haproxy.stat("limited", "slim").parse().unwrap();
    assert!((most / 200.0 - free).abs() < 0.1, "{most} {free}");
    assert_eq!(haproxy.stat("plain", "slim"), "50");
}

#[test]
fn a_soft_limit_is_said_to_a_stock_haproxy() {
    if !is_installed("haproxy") {
        return;
    }
    let folder = folder("agent-reports-limit");
    let mut greedy = Greedy::start(&folder);
    let agent = Reporter::start_with(&folder, &greedy.watch());
    let servers = [("least", ""), ("out", "at_limit=down")];
    let haproxy = haproxy(&folder, agent.agent_check, &servers);
    let is = |server, weight: &str, status: &str| {
        let is_so =
            haproxy.stat(server, "weight") == weight && haproxy.stat(server, "status") == status;
        is_so.then_some(())
    };
    eventually("one gets next to nothing", || is("least", "1", "no check"));
    eventually("the other one is out", || {
        haproxy
            .stat("out", "status")
            .starts_with("DOWN")
            .then_some(())
    });
    assert_eq!(agent.say(""), "up 1%\n");
    let said = agent.say("at_limit=down\n");
    assert!(
        said.starts_with("down #9") && said.contains("% of its file descriptors is used"),
        "{said}"
    );
    let log = || std::fs::read_to_string(folder.join("agent.log")).unwrap();
    assert!(
        log().contains("file descriptors is used, and 90 % is its soft limit"),
        "{}",
        log()
    );

    greedy.free();
    eventually("both are back", || {
        let weight: u32 = haproxy.stat("least", "weight").parse().unwrap();
        (weight > 1 && !haproxy.stat("out", "status").starts_with("DOWN")).then_some(())
    });
    eventually("the agent says so", || {
        log().contains("over no soft limit any more").then_some(())
    });
}

#[test]
fn the_record_is_there_as_metrics() {
    let folder = folder("agent-reports-metrics");
    let agent = Reporter::start(&folder);
    let used = eventually("two samples", || {
        agent.metric("tidegate_agent_cpu_used_ratio")?;
        agent.metric("tidegate_agent_memory_used_ratio")
    });
    let percent = agent.percent().unwrap();
    assert!(
        (100.0 * (1.0 - used) - percent).abs() < 10.0,
        "{used} {percent}"
    );
    assert!(agent.metric("tidegate_agent_memory_total_bytes").unwrap() > 1e6);
    let clock = agent.metric("tidegate_agent_clock_seconds_total").unwrap();
    eventually("the next sample", || {
        (agent.metric("tidegate_agent_clock_seconds_total")? > clock).then_some(())
    });
}

/// Ten milliseconds, as an `OrcaLoadReportRequest`: less than the agent gives.
const SOON: [u8; 7] = [0x0a, 5, 0x10, 0x80, 0xad, 0xe2, 0x04];

#[test]
fn a_client_of_orca_gets_reports_until_it_goes() {
    let folder = folder("agent-reports-orca");
    let agent = Reporter::start(&folder);
    let client = OrcaClient::connect(agent.orca).unwrap();
    let mut reports = client.ask(&SOON);
    let report = eventually("the load is known", || {
        let report = reports.next();
        (report.cpu_utilization > 0.0).then_some(report)
    });
    let memory = agent.metric("tidegate_agent_memory_used_ratio").unwrap();
    assert!((report.mem_utilization - memory).abs() < 0.1, "{report:?}");
    assert!(report.application_utilization >= report.cpu_utilization);
    assert!(report.utilization["files"] > 0.0, "{report:?}");
    let told = OrcaLoadReport {
        cpu_utilization: report.cpu_utilization,
        mem_utilization: report.mem_utilization,
        rps_fractional: report.rps_fractional,
        utilization: report.utilization.clone(),
        application_utilization: report.application_utilization,
        ..OrcaLoadReport::default()
    };
    assert_eq!(report, told);
    // Another stream of the same connection, and this one goes on.
    client.ask(&[]).next();
    reports.next();
}

#[test]
fn orca_is_refused_in_the_words_of_grpc() {
    let folder = folder("agent-reports-orca-refusals");
    let agent = Reporter::start(&folder);
    let client = OrcaClient::connect(agent.orca).unwrap();
    let grpc = "application/grpc";
    for (path, kind, body, status, code) in [
        (
            support::orca::PATH,
            grpc,
            &b"\0\0\0\0\x01\x0a"[..],
            200,
            Some("3"),
        ),
        (support::orca::PATH, grpc, b"", 200, Some("3")),
        (support::orca::PATH, grpc, b"\x01\0\0\0\0", 200, Some("12")),
        (
            "/grpc.health.v1.Health/Check",
            grpc,
            b"\0\0\0\0\0",
            200,
            Some("12"),
        ),
        (support::orca::PATH, "application/json", b"{}", 415, None),
    ] {
        let refusal = client.refusal(path, kind, body);
        assert_eq!(
            refusal,
            (status, code.map(str::to_owned)),
            "{path} {kind} {body:?}"
        );
    }
    client.ask(&SOON).next();
}

#[test]
fn a_soft_limit_is_in_orca_reports() {
    let folder = folder("agent-reports-orca-limit");
    let mut greedy = Greedy::start(&folder);
    let agent = Reporter::start_with(&folder, &greedy.watch());
    let client = OrcaClient::connect(agent.orca).unwrap();
    let mut reports = client.ask(&SOON);
    eventually("the limit is crossed", || {
        (reports.next().application_utilization >= 100.0).then_some(())
    });
    greedy.free();
    eventually("it is crossed no more", || {
        (reports.next().application_utilization < 100.0).then_some(())
    });
}

#[test]
fn clients_that_mean_no_good_cost_their_own_connection_only() {
    let folder = folder("agent-reports-hostile");
    let agent = Reporter::start(&folder);
    // More than there are seats, at all doors.
    let crowd: Vec<_> = [agent.agent_check, agent.metrics, agent.orca]
        .into_iter()
        .flat_map(|address| (0..80).map(move |_| TcpStream::connect(address).unwrap()))
        .collect();
    for (index, mut stream) in crowd.iter().enumerate() {
        let noise = vec![(index * 37) as u8; index * 31];
        // It may have been closed already.
        stream.write_all(&noise).ok();
    }
    // Those of agent checks have an end by themselves.
    eventually("an answer", || agent.percent());
    drop(crowd);
    eventually("metrics", || agent.metric("tidegate_agent_on_cpu"));
    eventually("a report", || {
        OrcaClient::connect(agent.orca)?.ask(&SOON).try_next()
    });
    let long = "x".repeat(5000);
    assert!(agent.say(&long).starts_with("up "));
    let mut half = TcpStream::connect(agent.agent_check).unwrap();
    half.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    half.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("%\n"), "{answer}");
}

/// More than there are seats, each of which would be closed after seconds.
#[test]
fn connections_that_say_nothing_give_way_to_those_that_ask() {
    let folder = folder("agent-reports-silent");
    let agent = Reporter::start(&folder);
    let first = OrcaClient::connect(agent.orca).unwrap();
    let mut reports = first.ask(&SOON);
    reports.next();
    let mut silent = Vec::new();
    for round in 0..3 {
        for address in [agent.agent_check, agent.metrics, agent.orca] {
            silent.extend((0..80).map(|_| TcpStream::connect(address).unwrap()));
        }
        let body = ask(agent.metrics, "/metrics").map(|it| it.body);
        let body = body.unwrap_or_else(|| panic!("no metrics in round {round}"));
        assert!(body.contains("tidegate_agent_"), "{body}");
        let next = OrcaClient::connect(agent.orca).unwrap();
        next.ask(&SOON).next();
        // A question is waited for, for a moment: those that ask nothing have an answer then.
        eventually("an answer", || agent.percent());
        // A stream keeps its seat.
        reports.next();
    }
}

#[test]
fn other_networks_are_not_answered() {
    let folder = folder("agent-reports-allow");
    let agent = Reporter::start_with(&folder, "allow = [\"10.9.8.0/24\"]");
    let mut answer = String::new();
    let mut stream = TcpStream::connect(agent.agent_check).unwrap();
    // Closed, or reset.
    stream.read_to_string(&mut answer).ok();
    assert_eq!(answer, "");
    assert!(ask(agent.metrics, "/metrics").is_none_or(|it| it.body.is_empty()));
    let reports = OrcaClient::connect(agent.orca).map(|it| it.ask(&SOON).try_next());
    assert!(reports.flatten().is_none());
}
