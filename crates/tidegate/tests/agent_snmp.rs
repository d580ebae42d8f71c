//! The agent behind a stock `snmpd`: `snmpwalk` and `snmptable` read what it measures, and an `snmpd` that ends and comes back
//! finds it again.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends where something is missing"
)]

mod support;

use std::path::Path;
use std::process::{Command, Stdio};

use support::greedy::Greedy;
use support::snmpd::{MIBS, Snmpd, master};
use support::{
    Process, eventually, folder, free_address, free_port, is_installed, master_key, node_key,
    tidegate,
};

const ROOT: &str = ".1.3.6.1.4.1.8072.9999.9999.84";
fn agent(folder: &Path) -> Process {
    agent_with(folder, "")
}

fn agent_with(folder: &Path, more: &str) -> Process {
    let key = node_key(&master_key(folder), "n1");
    let text = format!(
        "[agent]\nlisten = \"{}\"\nkey_file = \"{}\"\ninterval = \"20ms\"\nrealtime = false\nrungs = [\"agent\"]\n\
         {more}\n[agent.snmp]\nagentx = \"{}\"\n",
        free_address(),
        key.display(),
        master(folder).display()
    );
    let file = folder.join("agent.toml");
    std::fs::write(&file, text).unwrap();
    let log = std::fs::File::create(folder.join("agent.log")).unwrap();
    let mut command = tidegate();
    command
        .arg("agent")
        .arg(&file)
        .stdout(Stdio::null())
        .stderr(log);
    Process::start(&mut command)
}

/// The values of a walk by their names below the root.
fn walked(snmpd: &Snmpd, program: &str) -> Vec<(String, String)> {
    let text = snmpd.ask(program, &[ROOT]).unwrap_or_default();
    let pair = |line: &str| {
        let (name, value) = line.split_once(" = ")?;
        Some((name.strip_prefix(ROOT)?.to_owned(), value.to_owned()))
    };
    text.lines().filter_map(pair).collect()
}

#[test]
fn snmpwalk_reads_the_record_and_finds_it_again_after_snmpd() {
    if !Snmpd::is_installed() || !is_installed("snmpwalk") {
        return;
    }
    let folder = folder("agent-snmp");
    // The agent comes first and finds nothing.
    let _agent = agent(&folder);
    let log = || std::fs::read_to_string(folder.join("agent.log")).unwrap();
    eventually("it says so", || {
        log().contains("no values for the snmpd at").then_some(())
    });
    let mut snmpd = Snmpd::start_master(&folder, "");
    let is_there = |snmpd: &Snmpd| {
        let all = walked(snmpd, "snmpwalk");
        all.iter()
            .any(|(name, _)| name == ".1.1.2.0")
            .then_some(all)
    };
    let all = eventually("values", || is_there(&snmpd));
    let value = |name: &str| {
        let found = all.iter().find(|(own, _)| own == name);
        found
            .unwrap_or_else(|| panic!("{name} in {all:?}"))
            .1
            .clone()
    };
    assert_eq!(value(".1.1.1.0"), "STRING: \"n1\"");
    let percent = value(".1.1.3.0")
        .trim_start_matches("INTEGER: ")
        .parse::<u32>()
        .unwrap();
    assert!((1..=100).contains(&percent), "{percent}");
    let memory = value(".1.2.136.0")
        .trim_start_matches("Counter64: ")
        .parse::<u64>()
        .unwrap();
    assert!(memory > 1 << 20, "{memory}");
    assert!(
        value(".1.3.1.2.1").starts_with("Gauge32: "),
        "the first CPU"
    );
    // The same names, however they are asked for.
    let names =
        |all: Vec<(String, String)>| all.into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    assert_eq!(names(walked(&snmpd, "snmpbulkwalk")), names(all));
    let set = Command::new("snmpset")
        .args([
            "-v2c",
            "-cpublic",
            "-t1",
            "-r0",
            "-On",
            "-m",
            "",
            &format!("127.0.0.1:{}", snmpd.port),
        ])
        .args([&format!("{ROOT}.1.1.3.0"), "i", "5"])
        .output()
        .unwrap();
    assert!(!set.status.success(), "nothing can be set");

    snmpd.stop();
    eventually("it is missed", || {
        log().matches("no values for").nth(1).map(|_| ())
    });
    snmpd.revive();
    eventually("values again", || is_there(&snmpd));
    assert_eq!(
        log().matches("registered with the snmpd").count(),
        2,
        "{}",
        log()
    );
}

#[test]
fn traps_say_that_a_soft_limit_is_crossed_and_that_it_is_so_no_more() {
    if !Snmpd::is_installed() || !is_installed("snmptrapd") {
        return;
    }
    let folder = folder("agent-snmp-trap");
    let port = free_port();
    std::fs::write(folder.join("snmptrapd.conf"), "disableAuthorization yes\n").unwrap();
    let mut command = Command::new("/usr/sbin/snmptrapd");
    command
        .args(["-f", "-On", "-m", "", "-Lf"])
        .arg(folder.join("traps"));
    command
        .args(["-C", "-c"])
        .arg(folder.join("snmptrapd.conf"));
    command.arg("-p").arg(folder.join("snmptrapd.pid"));
    command.arg(format!("udp:127.0.0.1:{port}"));
    let _receiver = Process::start(command.stdout(Stdio::null()).stderr(Stdio::null()));
    let snmpd = Snmpd::start_master(&folder, &format!("trap2sink 127.0.0.1:{port} public"));
    let mut greedy = Greedy::start(&folder);
    let _agent = agent_with(&folder, &greedy.watch());
    let traps = || std::fs::read_to_string(folder.join("traps")).unwrap_or_default();
    let has = |number: u32, text: &str| {
        let name = format!("OID: {ROOT}.0.{number}");
        let all = traps();
        all.lines()
            .any(|it| it.contains(&name) && it.contains(text))
            .then_some(())
    };
    eventually("a trap", || has(1, "file descriptors is used"));
    greedy.free();
    eventually("another one", || has(2, "\"n1\""));
    // Ten samples later there is none more.
    let before = walked(&snmpd, "snmpwalk");
    let clock = |all: &[(String, String)]| {
        let found = all.iter().find(|(name, _)| name == ".1.2.24.0").unwrap();
        found
            .1
            .trim_start_matches("Counter64: ")
            .parse::<u64>()
            .unwrap()
    };
    eventually("a second later", || {
        (clock(&walked(&snmpd, "snmpwalk")) > clock(&before) + 1_000_000_000).then_some(())
    });
    let all = traps();
    for number in [1, 2] {
        let name = format!("OID: {ROOT}.0.{number}");
        assert_eq!(all.matches(&name).count(), 1, "{all}");
    }
}

#[test]
fn snmptable_knows_the_mib() {
    if !Snmpd::is_installed() || !is_installed("snmptable") {
        return;
    }
    if !Path::new(MIBS).exists() {
        println!("SKIPPED: no base MIBs: `npm ci` in contrib/snmp fetches them");
        return;
    }
    let folder = folder("agent-snmp-table");
    let snmpd = Snmpd::start_master(&folder, "");
    let _agent = agent(&folder);
    let options = ["-mTIDEGATE-MIB", "-CB", "TIDEGATE-MIB::tidegateCpuTable"];
    let table = eventually("a table", || {
        let text = snmpd.ask("snmptable", &options)?;
        text.contains("tidegateCpuRunnableTime").then_some(text)
    });
    let columns = |line: &str| {
        line.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let lines: Vec<_> = table
        .lines()
        .map(columns)
        .filter(|it| !it.is_empty())
        .collect();
    let head = lines
        .iter()
        .find(|it| it[0] == "tidegateCpuNumber")
        .unwrap();
    assert!(
        lines
            .iter()
            .any(|it| it[0] == "0" && it.len() >= head.len()),
        "{table}"
    );
    let memory = snmpd.ask(
        "snmpget",
        &["-mTIDEGATE-MIB", "TIDEGATE-MIB::tidegateMemoryTotal.0"],
    );
    assert!(memory.unwrap().contains("bytes"));
}
