//! Nodes that report their load with their responses, in ORCA's header: in each of its forms it is believed, it ends at the
//! front-end, and others' headers are passed on. And a node whose agent streams such reports.
#![expect(clippy::unwrap_used, reason = "a test ends where something is missing")]

mod support;

use std::io::{BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use support::server::head;
use support::{
    FrontEnd, Process, eventually, folder, free_address, master_key, node_key, tidegate,
};

/// A server that answers each request with its name and these lines in the head.
struct Reporter {
    address: SocketAddr,
    lines: Arc<Mutex<String>>,
}

impl Reporter {
    fn start(name: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let lines = Arc::new(Mutex::new(String::new()));
        let reporter = Self {
            address,
            lines: Arc::clone(&lines),
        };
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let lines = Arc::clone(&lines);
                std::thread::spawn(move || {
                    let mut reader = BufReader::new(stream.try_clone().unwrap());
                    while head(&mut reader).is_some() {
                        let lines = lines.lock().unwrap().clone();
                        let length = name.len();
                        let answer = format!(
                            "HTTP/1.1 200 OK\r\n{lines}content-length: {length}\r\n\r\n{name}"
                        );
                        if stream.write_all(answer.as_bytes()).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        reporter
    }

    fn say(&self, lines: &str) {
        *self.lines.lock().unwrap() = lines.into();
    }
}

/// The first node's load comes with its responses, the other's does not.
fn front_end(folder: &Path, first: &Reporter, other: &Reporter) -> FrontEnd {
    let text = format!(
        "[limits]\nworkers = 1\n[[site]]\nname = \"shop\"\nhosts = [\"*\"]\npolicy = \"round_robin\"\n\
         [[node]]\nname = \"n1\"\naddress = \"{}\"\nsite = \"shop\"\nload = {{ transport = \"orca\", period = \"10s\" }}\n\
         [[node]]\nname = \"n2\"\naddress = \"{}\"\nsite = \"shop\"\n",
        first.address, other.address
    );
    FrontEnd::start(folder, &text)
}

fn first_node(front_end: &FrontEnd) -> Value {
    front_end.api("/api/status")["sites"][0]["nodes"][0].clone()
}

/// Asks until both nodes have answered: which of their heads have a report.
fn have_reports(front_end: &FrontEnd) -> (bool, bool) {
    let (mut first, mut other) = (None, None);
    eventually("both answer", || {
        let answer = front_end.get("a", "/");
        let has_report = answer.head.to_lowercase().contains("endpoint-load-metrics");
        match &*answer.body {
            "n1" => first = Some(has_report),
            _ => other = Some(has_report),
        }
        first.zip(other)
    })
}

#[test]
fn a_report_in_any_form_is_the_nodes_load_and_ends_at_the_front_end() {
    let folder = folder("load-orca");
    let (first, other) = (Reporter::start("n1"), Reporter::start("n2"));
    let front_end = front_end(&folder, &first, &other);
    have_reports(&front_end);
    let silent = first_node(&front_end);
    assert_eq!(silent["rung"], "none");
    assert_eq!(
        silent["reads"]["last_error"],
        "no response has had a load report yet"
    );
    other.say("endpoint-load-metrics: TEXT cpu_utilization=0.1\r\n");
    for (lines, cpu) in [
        (
            "endpoint-load-metrics: TEXT cpu_utilization=0.125,mem_utilization=0.25\r\n",
            0.125,
        ),
        (
            "Endpoint-Load-Metrics: JSON {\"cpuUtilization\": 0.25, \"named_metrics\": {\"rif\": 3}}\r\n",
            0.25,
        ),
        ("endpoint-load-metrics: BIN CQAAAAAAAOA/\r\n", 0.5),
        ("endpoint-load-metrics-bin: CQAAAAAAAOg/\r\n", 0.75),
    ] {
        first.say(lines);
        assert_eq!(have_reports(&front_end), (false, true), "{lines}");
        let node = first_node(&front_end);
        assert_eq!(node["load"]["cpu"], cpu, "{lines}");
        assert_eq!(
            (&node["rung"], &node["load"]["fresh"]),
            (&"orca".into(), &true.into())
        );
        assert_eq!(
            node["load"]["memory"], 0.25,
            "what was said before is known yet"
        );
    }
    assert_eq!(first_node(&front_end)["load"]["in_flight"], 3.0);
    let why = front_end.api("/api/why/n1").to_string();
    assert!(why.contains("its load is known by orca"), "{why}");
    first.say("endpoint-load-metrics: BIN !\r\n");
    assert_eq!(have_reports(&front_end), (false, true));
    let node = first_node(&front_end);
    assert!(node["reads"]["implausible"].as_u64() > Some(0), "{node}");
    assert_eq!(node["load"]["cpu"], 0.75, "it changes nothing");
}

#[test]
fn each_number_has_an_age_of_its_own() {
    let folder = folder("load-orca-ages");
    let (first, other) = (Reporter::start("n1"), Reporter::start("n2"));
    let front_end = front_end(&folder, &first, &other);
    first.say("endpoint-load-metrics: TEXT cpu_utilization=0.5,mem_utilization=0.25\r\n");
    have_reports(&front_end);
    first.say("endpoint-load-metrics: TEXT cpu_utilization=0.75\r\n");
    have_reports(&front_end);
    let why = front_end.api("/api/why/n1");
    let metric = |name: &str| {
        let all = why["metrics"].as_array().unwrap();
        all.iter().find(|it| it["name"] == name).unwrap()
    };
    let (cpu, memory) = (metric("cpu"), metric("memory"));
    assert_eq!(
        (&cpu["value"], &memory["value"]),
        (&0.75.into(), &0.25.into())
    );
    for known in [cpu, memory] {
        assert_eq!(
            (&known["source"], &known["believed"]),
            (&"orca".into(), &true.into())
        );
    }
    let age = |metric: &Value| metric["age_seconds"].as_f64().unwrap();
    assert!(age(memory) > age(cpu), "{why}");
    assert_eq!(
        age(metric("runnable")),
        age(cpu),
        "it is expected from the used share"
    );
    let files = metric("files");
    assert_eq!(
        (&files["value"], &files["source"]),
        (&Value::Null, &"none".into())
    );
    assert_eq!(
        (&files["age_seconds"], &files["believed"]),
        (&Value::Null, &false.into())
    );
}

#[test]
fn what_a_node_reports_counts_at_its_soft_limits() {
    let folder = folder("load-orca-soft-limit");
    let (first, other) = (Reporter::start("n1"), Reporter::start("n2"));
    first.say("endpoint-load-metrics: TEXT cpu_utilization=0.1,utilization.files=0.95\r\n");
    let front_end = front_end(&folder, &first, &other);
    have_reports(&front_end);
    let node = eventually("it is at its limit", || {
        Some(first_node(&front_end)).filter(|node| node["health"] == "ejected")
    });
    assert_eq!(node["soft_limit"]["resource"], "files");
    let notes = node["trouble"]["notes"].to_string();
    assert!(notes.contains("after a minute without reports"), "{notes}");
    assert_eq!(front_end.get("a", "/").body, "n2");
}

#[test]
fn hostile_reports_change_nothing_and_hold_no_response_up() {
    let folder = folder("load-orca-hostile");
    let (first, other) = (Reporter::start("n1"), Reporter::start("n2"));
    first.say("endpoint-load-metrics: TEXT cpu_utilization=0.5,named_metrics.rif=2\r\n");
    let front_end = front_end(&folder, &first, &other);
    have_reports(&front_end);
    let many_keys = |count| {
        (0..count)
            .map(|key| format!("k{key}=1,"))
            .collect::<String>()
    };
    let (few, many) = (many_keys(500), many_keys(1000));
    let deep = format!("JSON {}1", "{\"a\":".repeat(600));
    for value in [
        "TEXT cpu_utilization=NaN,named_metrics.rif=inf",
        "TEXT cpu_utilization=-0.5,named_metrics.rif=-1",
        "TEXT named_metrics.rif=1e300,mem_utilization=1e-400000",
        "JSON {\"cpu_utilization\": \"0.9\", \"named_metrics\": [0.9]}",
        "BIN /////////////////////w==",
        &few,
        &many,
        &deep,
    ] {
        first.say(&format!("endpoint-load-metrics: {value}\r\n"));
        assert_eq!(have_reports(&front_end), (false, false), "{value}");
        let load = first_node(&front_end)["load"].clone();
        let known = (load["cpu"].as_f64(), load["in_flight"].as_f64());
        assert_eq!(known, (Some(0.5), Some(2.0)), "{value}");
    }
    first.say("endpoint-load-metrics: TEXT cpu_utilization=7,mem_utilization=1.5\r\n");
    have_reports(&front_end);
    let load = first_node(&front_end)["load"].clone();
    assert_eq!(
        (&load["cpu"], &load["memory"]),
        (&1.0.into(), &1.0.into()),
        "all of it is used"
    );
}

#[test]
fn a_header_without_an_end_is_refused_and_the_node_is_asked_again() {
    let folder = folder("load-orca-endless");
    let (first, other) = (Reporter::start("n1"), Reporter::start("n2"));
    let front_end = front_end(&folder, &first, &other);
    first.say(&format!(
        "endpoint-load-metrics: TEXT {}\r\n",
        "k=1,".repeat(100_000)
    ));
    eventually("it is refused", || {
        (front_end.get("a", "/").status == 502).then_some(())
    });
    assert_eq!(first_node(&front_end)["reads"]["reads"], 0);
    first.say("endpoint-load-metrics: TEXT cpu_utilization=0.5\r\n");
    eventually("its load is known", || {
        front_end.get("a", "/");
        (first_node(&front_end)["load"]["cpu"] == 0.5).then_some(())
    });
}

/// An agent that streams its load.
fn agent(folder: &Path, key: &Path, orca: SocketAddr) -> Process {
    let mut agent = tidegate();
    agent.arg("agent").arg("--key-file").arg(key);
    agent.args(["--listen", &free_address().to_string()]);
    agent.args(["--orca", &orca.to_string()]);
    let log = std::fs::File::create(folder.join("agent.log")).unwrap();
    Process::start(agent.stdout(Stdio::null()).stderr(log))
}

#[test]
fn a_stream_of_reports_is_the_nodes_load_and_is_opened_again() {
    let folder = folder("load-orca-stream");
    let key = node_key(&master_key(&folder), "n1");
    let server = Reporter::start("n1");
    let orca = free_address();
    let text = format!(
        "[limits]\nworkers = 1\n[[site]]\nname = \"shop\"\nhosts = [\"*\"]\n\
         [[node]]\nname = \"n1\"\naddress = \"{}\"\nsite = \"shop\"\n\
         load = {{ transport = \"orca\", address = \"{orca}\", period = \"100ms\" }}\n",
        server.address
    );
    let front_end = FrontEnd::start(&folder, &text);
    let said = |node: &Value| node["reads"]["last_error"].as_str().map(str::to_owned);
    let absent = eventually("nothing streams there", || said(&first_node(&front_end)));
    assert_eq!(absent, "refused: nothing listens at the address");
    for _ in 0..2 {
        let agent = agent(&folder, &key, orca);
        let node = eventually("its load is known", || {
            let node = first_node(&front_end);
            let is_known = node["rung"] == "orca" && node["load"]["memory"].is_f64();
            is_known.then_some(node)
        });
        assert_eq!(said(&node), None);
        let why = front_end.api("/api/why/n1").to_string();
        assert!(why.contains("its load is known by orca"), "{why}");
        let memory = node["load"]["memory"].as_f64().unwrap();
        assert!((0.001..1.0).contains(&memory), "{node}");
        drop(agent);
        eventually("it is missed", || said(&first_node(&front_end)));
        eventually("its load is not believed any more", || {
            (first_node(&front_end)["rung"] == "none").then_some(())
        });
    }
    server.say("endpoint-load-metrics: TEXT cpu_utilization=0.1\r\n");
    let answer = front_end.get("a", "/");
    assert!(
        answer.head.contains("endpoint-load-metrics"),
        "it is not ours"
    );
}
