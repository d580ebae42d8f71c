//! `tidegate doctor` on this machine, whatever that is: which checks there are, and what a port that is taken comes to.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Output;

use serde_json::Value;
use support::{Agent, FrontEnd, eventually, folder, free_address, master_key, node_key, tidegate};

fn doctor(folder: &Path, listener: SocketAddr, node: SocketAddr, more: &[&str]) -> Output {
    let file = folder.join("tidegate.toml");
    let text = format!(
        "[admin]\naddress = \"{}\"\n[[listener]]\naddress = \"{listener}\"\n\
         [limits]\nconnections = 100\nworkers = 1\n[[site]]\nname = \"a\"\n\
         [[node]]\nname = \"n1\"\naddress = \"{node}\"\nsite = \"a\"\n",
        free_address()
    );
    std::fs::write(&file, text).unwrap();
    let mut command = tidegate();
    command.args(["doctor", "-c"]).arg(&file).args(more);
    command.output().unwrap()
}

fn of<'a>(value: &'a Value, check: &str) -> Vec<&'a Value> {
    let all = value["checks"].as_array().unwrap().iter();
    all.filter(|it| it["check"] == check).collect()
}

#[test]
fn a_port_that_is_taken_fails_with_a_remedy_and_the_rest_is_examined() {
    let folder = folder("doctor");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let here = taken.local_addr().unwrap();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let ran = doctor(&folder, here, server.local_addr().unwrap(), &["--json"]);
    assert_eq!(ran.status.code(), Some(1), "{ran:?}");
    let value: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(value["ok"], false);
    let ports = of(&value, "port");
    assert_eq!(ports.len(), 2, "{value}");
    assert_eq!(ports[0]["level"], "fail", "{value}");
    assert!(ports[0]["remedy"].is_string());
    assert_eq!(ports[1]["level"], "ok", "{value}");
    assert_eq!(of(&value, "node")[0]["level"], "ok", "{value}");
    for check in [
        "configuration",
        "open files",
        "low ports",
        "cpus",
        "access log",
    ] {
        assert_eq!(of(&value, check).len(), 1, "{check}: {value}");
    }
    // Nothing was changed: the port is still the other's, and there is no file but the configuration.
    assert_eq!(taken.local_addr().unwrap(), here);
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
}

/// The ports of a front-end that runs are its own, and no reason to stop it.
#[test]
fn the_ports_of_the_front_end_of_this_file_are_fine() {
    let folder = folder("doctor-running");
    let node = TcpListener::bind("127.0.0.1:0").unwrap();
    let cluster = format!(
        "[limits]\nconnections = 100\nworkers = 1\n[[site]]\nname = \"a\"\n\
         [[node]]\nname = \"n1\"\naddress = \"{}\"\nsite = \"a\"\n",
        node.local_addr().unwrap()
    );
    let front_end = FrontEnd::start(&folder, &cluster);
    let file = folder.join("tidegate.toml");
    let examined = |file: &Path| {
        let mut command = tidegate();
        command.args(["doctor", "--json", "-c"]).arg(file);
        let ran = command.output().unwrap();
        let value: Value = serde_json::from_slice(&ran.stdout).unwrap();
        let ports = of(&value, "port").into_iter();
        let ports = ports.map(|it| {
            let text = |key: &str| it[key].as_str().unwrap().to_owned();
            (text("level"), text("text"))
        });
        (ran.status.code(), ports.collect::<Vec<_>>())
    };
    let (code, ports) = examined(&file);
    let own = |what: &str, address: SocketAddr| {
        let text = format!("{what} {address}: the front-end of this file has it, and runs");
        ("ok".to_owned(), text)
    };
    assert_eq!(
        ports,
        [
            own("listener", front_end.address),
            own("admin", front_end.admin)
        ]
    );
    assert_eq!(code, Some(0));
    // By another name it is the same file; a copy is another one.
    let (soft, copy) = (folder.join("soft.toml"), folder.join("copy.toml"));
    std::os::unix::fs::symlink(&file, &soft).unwrap();
    assert_eq!(examined(&soft).1, ports);
    std::fs::copy(&file, &copy).unwrap();
    let (_, others) = examined(&copy);
    assert!(
        others
            .iter()
            .all(|(level, text)| level == "warn" && text.contains("a tidegate has it")),
        "{others:?}"
    );
}

#[test]
fn the_text_has_a_line_for_each_check_and_says_what_does_not_answer() {
    let folder = folder("doctor-text");
    let ran = doctor(&folder, free_address(), free_address(), &[]);
    let text = String::from_utf8(ran.stdout).unwrap();
    assert_eq!(ran.status.code(), Some(0), "{text}");
    assert!(text.contains("n1 takes no connection at"), "{text}");
    assert!(text.contains("remedy: start the server there"), "{text}");
    assert!(text.trim_end().ends_with("0 failed"), "{text}");
}

#[test]
fn without_a_file_the_machine_alone_is_examined() {
    let ran = tidegate().args(["doctor", "--json"]).output().unwrap();
    let value: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert!(!of(&value, "kernel").is_empty(), "{value}");
    assert!(of(&value, "port").is_empty(), "{value}");
}

#[test]
fn the_agents_own_port_is_its_own_while_it_runs() {
    let folder = folder("doctor-agent");
    let agent = Agent::start(&node_key(&master_key(&folder), "n1"));
    let file = folder.join(format!("agent-{}.toml", agent.address.port()));
    let port = |file: &Path| {
        let mut command = tidegate();
        let ran = command.args(["doctor", "--json", "-c"]).arg(file).output();
        let value: Value = serde_json::from_slice(&ran.unwrap().stdout).unwrap();
        let [port] = of(&value, "port")[..] else {
            panic!("{value}");
        };
        let level = port["level"].as_str().unwrap().to_owned();
        (level, port["text"].as_str().unwrap().to_owned())
    };
    let text = format!(
        "agent {}: the agent of this file has it, and runs",
        agent.address
    );
    let expected = ("ok".to_owned(), text);
    eventually("it listens", || (port(&file) == expected).then_some(()));
    // Another file with the same address is another agent's.
    let other = folder.join("other.toml");
    std::fs::copy(&file, &other).unwrap();
    let (level, text) = port(&other);
    assert!(
        level == "warn" && text.contains("a tidegate has it"),
        "{text}"
    );
}

#[test]
fn what_an_agent_reports_of_and_where_is_examined() {
    let folder = folder("doctor-reports");
    let key = node_key(&master_key(&folder), "n1");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let (metrics, check) = (taken.local_addr().unwrap(), free_address());
    let (own, missing) = (std::process::id(), folder.join("missing.pid"));
    let pid_file = folder.join("own.pid");
    std::fs::write(&pid_file, format!("{own}\n")).unwrap();
    let file = folder.join("agent.toml");
    let text = format!(
        "[agent]\nkey_file = {:?}\nlisten = \"{}\"\n\
         watch = [{pid_file:?}, {missing:?}, \"no-such-server\"]\n\
         [agent.metrics]\nlisten = \"{metrics}\"\n[agent.agent_check]\nlisten = \"{check}\"\n\
         [agent.snmp]\nagentx = {:?}\n",
        key,
        free_address(),
        folder.join("master"),
    );
    std::fs::write(&file, text).unwrap();
    let mut command = tidegate();
    let ran = command.args(["doctor", "--json", "-c"]).arg(&file).output();
    let value: Value = serde_json::from_slice(&ran.unwrap().stdout).unwrap();
    let levels = |check: &str| {
        let all = of(&value, check).into_iter();
        all.map(|it| it["level"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(levels("port"), ["ok", "ok", "fail"], "{value}");
    assert_eq!(levels("watch"), ["ok", "warn", "warn"], "{value}");
    assert_eq!(levels("snmpd"), ["warn"], "{value}");
    assert!(
        of(&value, "snmpd")[0]["remedy"]
            .as_str()
            .unwrap()
            .contains("master agentx")
    );
}

#[test]
fn each_endpoint_of_an_etcd_that_keeps_words_is_asked() {
    let folder = folder("doctor-etcd");
    let closed = [free_address(), free_address()];
    let home = closed.map(|it| format!("http://{it}")).join(", ");
    let site = |name: &str| {
        format!("[[site]]\nname = \"{name}\"\nhosts = [\"{name}\"]\nnodes = {{ min = 1 }}\n")
    };
    let node = |site: &str| {
        format!(
            "[[node]]\nname = \"{site}-1\"\naddress = \"127.0.0.1:1\"\nsite = \"{site}\"\n\
             load = {{ transport = \"shm\", path = \"/dev/shm/tidegate-doctor-none\" }}\n"
        )
    };
    let mut text = format!(
        "[admin]\naddress = \"{}\"\n[[listener]]\naddress = \"{}\"\n[reconfigure]\nenabled = true\nengine = \"etcd\"\nhome = \"{home}\"\n",
        free_address(),
        free_address()
    );
    for name in ["a", "b"] {
        text.push_str(&(site(name) + &node(name)));
    }
    let file = folder.join("tidegate.toml");
    std::fs::write(&file, text).unwrap();
    let mut command = tidegate();
    let ran = command.args(["doctor", "--json", "-c"]).arg(&file).output();
    let value: Value = serde_json::from_slice(&ran.unwrap().stdout).unwrap();
    let found = of(&value, "etcd");
    assert_eq!(found.len(), 2, "{value}");
    for (found, address) in found.iter().zip(closed) {
        let text = found["text"].as_str().unwrap();
        let expected = format!("http://{address} does not answer for the words of moves: ");
        assert!(
            found["level"] == "warn" && text.starts_with(&expected),
            "{text}"
        );
    }
}

/// A front-end's file, what its sites and nodes are added to; the result of its examination.
fn examined(folder: &Path, cluster: &str) -> Value {
    let text = format!(
        "[admin]\naddress = \"{}\"\n[[listener]]\naddress = \"{}\"\n[limits]\nconnections = 100\nworkers = 1\n{cluster}",
        free_address(),
        free_address()
    );
    let file = folder.join("tidegate.toml");
    std::fs::write(&file, text).unwrap();
    let mut command = tidegate();
    let ran = command.args(["doctor", "--json", "-c"]).arg(&file).output();
    serde_json::from_slice(&ran.unwrap().stdout).unwrap()
}

/// What is said of a check: level and text.
fn said(value: &Value, check: &str) -> Vec<(String, String)> {
    let text = |it: &Value, key: &str| it[key].as_str().unwrap().to_owned();
    let all = of(value, check).into_iter();
    all.map(|it| (text(it, "level"), text(it, "text")))
        .collect()
}

#[test]
fn each_node_is_asked_as_its_sites_check_asks() {
    let folder = folder("doctor-checks");
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let store = server.local_addr().unwrap();
    // Ends with the test's process.
    std::thread::spawn(move || {
        for stream in server.incoming() {
            let (mut stream, mut asked) = (stream.unwrap(), [0; 6]);
            // A connection that asks nothing is closed at once: whether one is taken is looked at as well.
            if stream.read_exact(&mut asked).is_ok() && asked == *b"PING\r\n" {
                stream.write_all(b"+PONG\r\n").ok();
            }
        }
    });
    let closed = free_address();
    let site = |name: &str, address: SocketAddr, check: &str| {
        format!(
            "[[site]]\nname = \"{name}\"\nhosts = [\"{name}\"]\n[site.check]\ntimeout = \"30s\"\nport = {}\n{check}\n\
             [[node]]\nname = \"{name}-1\"\naddress = \"{address}\"\nsite = \"{name}\"\n",
            address.port()
        )
    };
    let ping = "kind = \"tcp\"\nsend = \"PING\\r\\n\"\nexpect = ";
    let cluster = [
        site("well", store, &format!("{ping}\"+PONG\"")),
        site("unwell", store, &format!("{ping}\"+READY\"")),
        site("names", closed, "kind = \"dns\"\nname = \"web.test\""),
        site(
            "jobs",
            closed,
            "kind = \"exec\"\ncommand = [\"/bin/sh\", \"-c\", \"exit 3\"]",
        )
        .replace(&format!("port = {}\n", closed.port()), ""),
    ];
    let value = examined(&folder, &cluster.concat());
    let found = said(&value, "check");
    let expected = [
        (
            "ok",
            format!("well-1 of site well (tcp at {store}) passes within "),
        ),
        (
            "warn",
            format!(
                "unwell-1 of site unwell (tcp at {store}) fails: the answer had not what is wanted"
            ),
        ),
        (
            "warn",
            format!("names-1 of site names (dns at {closed}) fails: nothing listens at the port"),
        ),
        (
            "warn",
            "jobs-1 of site jobs (exec) fails: the exit code was 3".into(),
        ),
    ];
    assert_eq!(found.len(), expected.len(), "{value}");
    for ((level, text), (wanted, begins)) in found.iter().zip(expected) {
        assert!(
            level == wanted && text.starts_with(&begins),
            "{level} {text}"
        );
    }
}

#[test]
fn a_node_without_an_agent_of_ours_is_asked_for_its_load() {
    let folder = folder("doctor-snmp");
    // It answers nothing.
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let at = silent.local_addr().unwrap();
    let community = folder.join("community");
    std::fs::write(&community, "public\n").unwrap();
    std::fs::set_permissions(&community, std::fs::Permissions::from_mode(0o600)).unwrap();
    let cluster = format!(
        "[[site]]\nname = \"a\"\n[[node]]\nname = \"n1\"\naddress = \"127.0.0.1:1\"\nsite = \"a\"\n\
         load = {{ transport = \"snmp\", address = \"{at}\", community_file = \"community\" }}\n"
    );
    let text = format!(
        "the load of n1 is not known: snmp at {at}: no answer in time: does an agent of SNMP listen there, and does it know \
         our community and address?"
    );
    let value = examined(&folder, &cluster);
    assert_eq!(said(&value, "load"), [("warn".to_owned(), text)], "{value}");
}
