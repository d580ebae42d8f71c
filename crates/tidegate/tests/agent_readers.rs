//! One running agent, and all that docs/integrations.md has read one, at once: `snmpwalk` of a stock `snmpd`, HAProxy, Envoy,
//! Prometheus and our own front-end, by the record, by ORCA and by SNMP. A watched process is at its soft limit, and then it is not:
//! each reader sees both. Readers that are not installed are skipped by name, and the others run.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test ends where something is missing, and says what it skips"
)]

mod support;

use std::fs::File;
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use support::greedy::Greedy;
use support::haproxy::Haproxy;
use support::orca::{OrcaClient, OrcaLoadReport, OrcaReports};
use support::snmpd::{Snmpd, master};
use support::{
    FrontEnd, Process, ask, eventually, folder, free_address, master_key, node_key, program,
    tidegate,
};

/// The agent, where each kind of reader finds it.
struct Agent {
    folder: PathBuf,
    master_key: PathBuf,
    record: SocketAddr,
    agent_check: SocketAddr,
    metrics: SocketAddr,
    orca: SocketAddr,
    /// Takes the agent as a subagent; nothing if it is not installed.
    snmpd: Option<Snmpd>,
    _process: Process,
}

impl Agent {
    /// One that watches a process.
    fn start(folder: &Path, watch: &str) -> Self {
        let master_key = master_key(folder);
        let [record, agent_check, metrics, orca] = [(); 4].map(|()| free_address());
        let text = format!(
            "[agent]\nlisten = \"{record}\"\nkey_file = \"{}\"\ninterval = \"20ms\"\nrealtime = false\nrungs = [\"agent\"]\n\
             {watch}\n[agent.agent_check]\nlisten = \"{agent_check}\"\n[agent.metrics]\nlisten = \"{metrics}\"\n\
             [agent.orca]\nlisten = \"{orca}\"\nbytes_per_request = \"1B\"\n[agent.snmp]\nagentx = \"{}\"\n",
            node_key(&master_key, "n1").display(),
            master(folder).display()
        );
        let file = folder.join("agent.toml");
        std::fs::write(&file, text).unwrap();
        let is_there = ["snmpd", "snmpget", "snmpwalk"]
            .iter()
            .all(|it| program(it).is_some());
        let snmpd = is_there.then(|| Snmpd::start_master(folder, ""));
        let mut command = tidegate();
        command.arg("agent").arg(&file);
        Self {
            folder: folder.into(),
            master_key,
            record,
            agent_check,
            metrics,
            orca,
            snmpd,
            _process: Process::start(quiet(&mut command, folder, "agent.log")),
        }
    }
}

/// With what it says in a file.
fn quiet<'a>(command: &'a mut Command, folder: &Path, log: &str) -> &'a mut Command {
    let log = File::create(folder.join(log)).unwrap();
    command.stdout(log.try_clone().unwrap()).stderr(log)
}

/// A program that reads the agent.
trait Reader {
    /// Whether the node is at its soft limit, as this reader sees it now; nothing while it has not seen the node.
    fn sees_limit(&mut self) -> Option<bool>;
}

/// A reader that runs, or the name of what is not installed.
type Started<'a> = Result<Box<dyn Reader + 'a>, &'static str>;

/// `snmpwalk`, by the stock `snmpd` whose subagent the agent is.
struct Walk<'a>(&'a Snmpd);

impl<'a> Walk<'a> {
    const ROOT: &'static str = ".1.3.6.1.4.1.8072.9999.9999.84.1.1";

    fn start(agent: &'a Agent) -> Started<'a> {
        let snmpd = agent.snmpd.as_ref().ok_or("snmpd")?;
        Ok(Box::new(Self(snmpd)))
    }
}

impl Reader for Walk<'_> {
    fn sees_limit(&mut self) -> Option<bool> {
        let all = self.0.ask("snmpwalk", &[Self::ROOT])?;
        let value = |place: u32| {
            let name = format!("{}.{place}.0 = ", Self::ROOT);
            all.lines().find_map(|line| line.strip_prefix(&name))
        };
        let files: u32 = value(4)?.strip_prefix("INTEGER: ")?.parse().ok()?;
        let crossing = value(6)?.contains("file descriptors");
        // The limit is left a second after the descriptors are there again.
        (crossing == (files >= 90)).then_some(crossing)
    }
}

/// A stock HAProxy, by its agent check.
impl Reader for Haproxy {
    fn sees_limit(&mut self) -> Option<bool> {
        let asked = self.stat("n1", "agent_status") == "L7OK";
        asked.then(|| self.weight("n1") == 1)
    }
}

fn start_haproxy(agent: &Agent) -> Started<'_> {
    program("haproxy").ok_or("haproxy")?;
    let line = format!(
        "server n1 {} weight 100 agent-check agent-addr {} agent-port {} agent-inter 100ms",
        free_address(),
        agent.agent_check.ip(),
        agent.agent_check.port()
    );
    Ok(Box::new(Haproxy::start(&agent.folder, &[line])))
}

/// A stock Prometheus that scrapes the metrics.
struct Prometheus {
    address: SocketAddr,
    _process: Process,
}

impl Prometheus {
    fn start(agent: &Agent) -> Started<'_> {
        let program = program("prometheus").ok_or("prometheus")?;
        let (folder, address) = (&agent.folder, free_address());
        let text = format!(
            "global:\n  scrape_interval: 200ms\n  scrape_timeout: 200ms\nscrape_configs:\n- job_name: agents\n  \
             static_configs:\n  - targets: [\"{}\"]\n",
            agent.metrics
        );
        let file = folder.join("prometheus.yml");
        std::fs::write(&file, text).unwrap();
        let mut command = Command::new(program);
        command.arg(format!("--config.file={}", file.display()));
        let data = folder.join("prometheus");
        command.arg(format!("--storage.tsdb.path={}", data.display()));
        command.arg(format!("--web.listen-address={address}"));
        Ok(Box::new(Self {
            address,
            _process: Process::start(quiet(&mut command, folder, "prometheus.log")),
        }))
    }

    /// The last value that was scraped.
    fn value(&self, name: &str) -> Option<f64> {
        let answer = ask(self.address, &format!("/api/v1/query?query={name}"))?;
        let answer: Value = serde_json::from_str(&answer.body).ok()?;
        let value = answer["data"]["result"].get(0)?["value"].get(1)?.as_str()?;
        value.parse().ok()
    }
}

impl Reader for Prometheus {
    fn sees_limit(&mut self) -> Option<bool> {
        let scraped = self.value("up")? == 1.0;
        let files = self.value("tidegate_agent_files_used_ratio")?;
        scraped.then_some(files >= 0.9)
    }
}

/// Envoy, which weighs a server by reports that it asks for at a port of their own: of docs/integrations.md.
struct Envoy<'a> {
    admin: SocketAddr,
    /// What Envoy hears, for us.
    reports: OrcaReports<'a>,
    /// Bytes that leave the host by an interface: without traffic a server has no rate, and no weight. Nothing if there is no
    /// such interface.
    traffic: Option<UdpSocket>,
    _process: Process,
}

/// Nothing answers there, and a datagram that lives for one hop does not get there.
const NOWHERE: &str = "198.51.100.1:9";

impl<'a> Envoy<'a> {
    fn start(agent: &'a Agent, client: &'a OrcaClient) -> Started<'a> {
        let program = envoy().ok_or("envoy")?;
        let (folder, admin, server) = (&agent.folder, free_address(), free_address());
        let file = folder.join("envoy.yaml");
        std::fs::write(&file, configuration(admin, server, agent.orca)).unwrap();
        let mut command = Command::new(program);
        command.arg("-c").arg(&file);
        command.args(["--concurrency", "1", "--disable-hot-restart"]);
        let traffic = UdpSocket::bind("0.0.0.0:0").unwrap();
        traffic.set_ttl(1).unwrap();
        let traffic = Some(traffic).filter(|it| it.send_to(&[0], NOWHERE).is_ok());
        if traffic.is_none() {
            println!("SKIPPED Envoy's weights: no route that leaves this host");
        }
        Ok(Box::new(Self {
            admin,
            reports: client.ask(&[]),
            traffic,
            _process: Process::start(quiet(&mut command, folder, "envoy.log")),
        }))
    }

    /// A number of a line of an admin page that begins so.
    fn number(&self, page: &str, start: &str) -> Option<f64> {
        let body = ask(self.admin, page)?.body;
        let line = body.lines().find_map(|line| line.strip_prefix(start));
        line?.trim().parse().ok()
    }
}

/// Where `scripts/setup.sh lab` puts it, or where `ENVOY_BIN` says.
fn envoy() -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent();
    let fetched = target.map(|it| it.join("lab-tools/envoy"));
    let named = std::env::var_os("ENVOY_BIN").map(PathBuf::from);
    let places = named.into_iter().chain(fetched);
    let mut there = places.filter(|it| it.is_file());
    there.next().or_else(|| program("envoy"))
}

fn configuration(admin: SocketAddr, server: SocketAddr, orca: SocketAddr) -> String {
    let address = |it: SocketAddr| {
        format!(
            "address: {{ socket_address: {{ address: {}, port_value: {} }} }}",
            it.ip(),
            it.port()
        )
    };
    format!(
        "admin: {{ {} }}
static_resources:
  clusters:
  - name: shop
    type: STATIC
    load_assignment:
      cluster_name: shop
      endpoints:
      - lb_endpoints:
        - endpoint: {{ {} }}
    load_balancing_policy:
      policies:
        - typed_extension_config:
            name: envoy.load_balancing_policies.client_side_weighted_round_robin
            typed_config:
              \"@type\": type.googleapis.com/envoy.extensions.load_balancing_policies.client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin
              enable_oob_load_report: true
              oob_reporting_period: 0.1s
              oob_reporting_config: {{ port_value: {} }}
              blackout_period: 0s
              weight_update_period: 0.1s
",
        address(admin),
        address(server),
        orca.port()
    )
}

/// The weight of a server, as both weighted round robins have it.
fn weight(report: &OrcaLoadReport) -> f64 {
    report.rps_fractional / report.application_utilization
}

impl Reader for Envoy<'_> {
    fn sees_limit(&mut self) -> Option<bool> {
        let report = self.reports.next();
        let stats = "/stats?filter=lb_orca_oob";
        let received = self.number(stats, "cluster.shop.lb_orca_oob.reports_received:")?;
        if received < 2.0 {
            return None;
        }
        let at_limit = report.application_utilization >= 100.0;
        let Some(traffic) = &self.traffic else {
            return Some(at_limit);
        };
        traffic.send_to(&[0; 1000], NOWHERE).ok()?;
        let clusters = ask(self.admin, "/clusters")?.body;
        let weights = clusters
            .lines()
            .filter_map(|it| it.split_once("::weight::"));
        let weights: Vec<_> = weights.filter(|it| it.0.starts_with("shop::")).collect();
        let has: f64 = weights.first()?.1.parse().ok()?;
        // At the limit it is a hundredth; traffic alone does not change it so within the two seconds of a mean.
        let wanted = weight(&report);
        (has > 1.0 && has > wanted / 5.0 && has < wanted * 5.0).then_some(at_limit)
    }
}

/// One of our own front-end's nodes.
struct Node<'a> {
    front_end: &'a FrontEnd,
    index: usize,
    rung: &'static str,
}

impl Reader for Node<'_> {
    fn sees_limit(&mut self) -> Option<bool> {
        let node = &self.front_end.api("/api/status")["sites"][self.index]["nodes"][0];
        let files = node["load"]["files"].as_f64()?;
        let crossed = node["soft_limit"]["resource"] == "files";
        (node["rung"] == self.rung && crossed == (files >= 0.9)).then_some(crossed)
    }
}

/// A front-end that reads the same agent as three nodes: its record, its stream of ORCA's reports, and what the `snmpd` has of it.
fn front_end(agent: &Agent) -> FrontEnd {
    let mut text = format!(
        "[limits]\nworkers = 1\n[load]\nrealtime = false\nkey_file = \"{}\"\n",
        agent.master_key.display()
    );
    let by_record = format!("address = \"{}\"", agent.record);
    let by_orca = format!(
        "transport = \"orca\", address = \"{}\", period = \"100ms\"",
        agent.orca
    );
    let mut nodes = vec![("n1", by_record), ("n2", by_orca)];
    if let Some(snmpd) = &agent.snmpd {
        let community = agent.folder.join("community");
        let mut options = File::options();
        let file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&community);
        std::io::Write::write_all(&mut file.unwrap(), b"public\n").unwrap();
        let by_snmp = format!(
            "transport = \"snmp\", address = \"127.0.0.1:{}\", community_file = \"{}\"",
            snmpd.port,
            community.display()
        );
        nodes.push(("n3", by_snmp));
    }
    for (name, load) in nodes {
        text.push_str(&format!(
            "[[site]]\nname = \"site-{name}\"\nhosts = [\"{name}.example\"]\n[[node]]\nname = \"{name}\"\n\
             address = \"{}\"\nsite = \"site-{name}\"\nload = {{ {load} }}\n",
            free_address()
        ));
    }
    FrontEnd::start(&agent.folder, &text)
}

#[test]
fn all_readers_read_one_agent_at_once() {
    let folder = folder("agent-readers");
    let mut greedy = Greedy::start(&folder);
    let agent = Agent::start(&folder, &greedy.watch());
    let client = eventually("reports", || OrcaClient::connect(agent.orca));
    let front_end = front_end(&agent);
    let node = |index, rung| -> Box<dyn Reader + '_> {
        Box::new(Node {
            front_end: &front_end,
            index,
            rung,
        })
    };
    let by_snmp = agent.snmpd.as_ref().map(|_| node(2, "snmp"));
    let all = [
        ("snmpwalk", Walk::start(&agent)),
        ("HAProxy", start_haproxy(&agent)),
        ("Envoy", Envoy::start(&agent, &client)),
        ("Prometheus", Prometheus::start(&agent)),
        ("a front-end, by the record", Ok(node(0, "agent"))),
        ("a front-end, by ORCA", Ok(node(1, "orca"))),
        ("a front-end, by SNMP", by_snmp.ok_or("snmpd")),
    ];
    let mut readers = Vec::new();
    for (name, started) in all {
        match started {
            Ok(reader) => readers.push((name, reader)),
            Err(program) => println!("SKIPPED {name}: {program} is not installed"),
        }
    }
    for at_limit in [true, false] {
        for (name, reader) in &mut readers {
            let seen = || (reader.sees_limit() == Some(at_limit)).then_some(());
            eventually(&format!("{name} sees at_limit = {at_limit}"), seen);
        }
        if at_limit {
            greedy.free();
        }
    }
}
