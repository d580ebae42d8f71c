//! What an agent needs for its reports: processes to watch, and the `snmpd` that takes its values.
//!
//! Failure case: a process that is not there yet is a warning although it may start later.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use tidegate_node::{AgentConfig, short_name};

use super::Diagnosis;
use crate::config::{AgentxMaster, Reports};

const WATCH: &str = "watch";
const SNMPD: &str = "snmpd";
/// For a connection to `snmpd` over TCP.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// A process: its name, and the one that started it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Process {
    name: String,
    parent: u32,
}

type Processes = BTreeMap<u32, Process>;

/// All of an agent's.
pub(super) fn examine(agent: &AgentConfig, reports: &Reports) -> Vec<Diagnosis> {
    let watched = agent.watch.iter();
    let running = processes();
    let watched = watched.map(|it| match it.contains('/') {
        true => pid_file(it, std::fs::read_to_string(it), &running),
        false => named(it, &running),
    });
    let master = reports.agentx.as_ref();
    watched.chain(master.map(snmpd)).collect()
}

/// Those of this machine, as far as this user sees them.
fn processes() -> Processes {
    let entries = std::fs::read_dir("/proc").into_iter().flatten();
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let found = numbers.filter_map(|number: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
        Some((number, process(&stat)?))
    });
    found.collect()
}

/// From its `stat`: the name is in parentheses, and may have some in it.
fn process(stat: &str) -> Option<Process> {
    let (before, after) = stat.rsplit_once(')')?;
    let (_, name) = before.split_once('(')?;
    Some(Process {
        name: name.into(),
        parent: after.split_whitespace().nth(1)?.parse().ok()?,
    })
}

fn named(name: &str, running: &Processes) -> Diagnosis {
    let count = running
        .values()
        .filter(|it| it.name == short_name(name))
        .count();
    match count {
        0 => Diagnosis::warn(
            WATCH,
            format!("{name}: no process has this name"),
            "start it, or correct `watch`: `ps -eo comm` shows the names",
        ),
        _ => Diagnosis::ok(WATCH, format!("{name}: {count} of them run")),
    }
}

/// A file that names a process, which has children that nothing watches.
fn pid_file(path: &str, read: std::io::Result<String>, running: &Processes) -> Diagnosis {
    let remedy = "start what writes it, or correct `watch`";
    let text = match read {
        Ok(text) => text,
        Err(error) => return Diagnosis::warn(WATCH, format!("{path}: {error}"), remedy),
    };
    let number = text.trim().parse::<u32>().ok();
    let Some((number, process)) = number.and_then(|it| Some((it, running.get(&it)?))) else {
        return Diagnosis::warn(
            WATCH,
            format!("{path}: it names no process that runs"),
            remedy,
        );
    };
    let is_child = |it: &&Process| it.parent == number && it.name == process.name;
    let children = running.values().filter(is_child).count();
    let name = &process.name;
    match children {
        0 => Diagnosis::ok(WATCH, format!("{path}: {name}, process {number}")),
        _ => Diagnosis::warn(
            WATCH,
            format!(
                "{path}: process {number} alone is watched, and not its {children} processes that serve"
            ),
            format!("`watch = [\"{name}\"]` watches all of that name"),
        ),
    }
}

fn snmpd(master: &AgentxMaster) -> Diagnosis {
    let connected = match master {
        AgentxMaster::Path(path) => UnixStream::connect(path).map(drop),
        AgentxMaster::Address(address) => {
            TcpStream::connect_timeout(address, ANSWER_WITHIN).map(drop)
        }
    };
    let Err(error) = connected else {
        return Diagnosis::ok(SNMPD, format!("{master} takes subagents"));
    };
    let remedy = match (error.kind(), master) {
        (ErrorKind::PermissionDenied, AgentxMaster::Path(path)) => agentx_perms(path),
        _ => "`master agentx` in /etc/snmp/snmpd.conf, and restart snmpd".into(),
    };
    Diagnosis::warn(SNMPD, format!("{master}: {error}"), remedy)
}

fn agentx_perms(path: &Path) -> String {
    format!(
        "`agentXPerms 0660 0550 USER GROUP` in /etc/snmp/snmpd.conf lets a user reach {}",
        path.display()
    )
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    fn running() -> Processes {
        let process = |name: &str, parent| Process {
            name: name.into(),
            parent,
        };
        [
            (7, process("nginx", 1)),
            (8, process("nginx", 7)),
            (9, process("nginx", 7)),
            (10, process("sshd", 1)),
        ]
        .into()
    }

    #[test]
    fn a_process_is_known_by_its_stat() {
        let found = process("42 (a (b) c) S 7 42 42 0 -1").unwrap();
        assert_eq!((found.name.as_str(), found.parent), ("a (b) c", 7));
        for broken in ["", "42 (a", "42 a) S", "42 (a) S x"] {
            assert_eq!(process(broken), None, "{broken}");
        }
        let own = std::process::id();
        assert!(processes().contains_key(&own));
    }

    #[test]
    fn watched_processes_are_there_or_the_remedy_is_said() {
        assert_eq!(named("nginx", &running()).level, Level::Ok);
        assert_eq!(named("nginy", &running()).level, Level::Warn);
        let of = |text: &str| pid_file("/run/p", Ok(text.into()), &running());
        assert_eq!(of("10\n").level, Level::Ok);
        let master = of("7\n");
        assert_eq!(master.level, Level::Warn);
        assert!(master.text.contains("its 2 processes"), "{}", master.text);
        assert_eq!(
            master.remedy.unwrap(),
            "`watch = [\"nginx\"]` watches all of that name"
        );
        for gone in ["11", "", "x"] {
            assert!(
                of(gone).text.ends_with("it names no process that runs"),
                "{gone}"
            );
        }
        let missing = pid_file("/run/p", Err(ErrorKind::NotFound.into()), &running());
        assert_eq!(missing.level, Level::Warn);
    }
}
