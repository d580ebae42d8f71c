//! What a front-end's configuration asks of the machine: open files, privileges, CPUs, and limits of the system.

use tidegate_core::topology::NodeSpec;
use tidegate_proxy::BACKLOG;
use tidegate_remote::privilege::CapabilitySet;

use super::Diagnosis;
use super::kernel::{names, realtime};
use super::machine::{Machine, PortRange, Tracked};
use crate::config::{Config, FrontEnd, NodeRead};
use crate::open_files::{self, Wanted};
use crate::privilege::{Kept, user_number};
use crate::reload::requests::workers;

/// Fewer clients than this at once are hardly meant.
const CONNECTIONS_MIN: usize = 100;
/// A table of connections that is fuller than this has no room for a rush.
const TRACKED_MAX: f64 = 0.8;

/// All of it.
pub(super) fn examine(machine: &Machine, config: &Config, front_end: &FrontEnd) -> Vec<Diagnosis> {
    let process = &config.file.process;
    let kept = Kept::of(front_end, process.marks.value);
    let starting = kept.starting(front_end, config.admin.address.port());
    let mut ports: Vec<_> = front_end
        .listeners
        .iter()
        .map(|it| it.address.port())
        .collect();
    ports.push(config.admin.address.port());
    let connections = front_end.limits.connections.value as usize;
    let nodes = front_end.cluster.nodes.len() + front_end.resources.len();
    let wanted = Wanted {
        limit: machine.open_files,
        workers: workers(&front_end.limits),
        listeners: front_end.listeners.len(),
        nodes,
        connections,
    };
    let is_read = front_end.reads.iter().any(NodeRead::has_region);
    let mut all = vec![files(wanted), low_ports(machine, &ports)];
    all.extend(user(machine, process.user.value.as_deref()));
    all.push(realtime(
        machine,
        front_end.realtime && is_read,
        "the reader of loads",
    ));
    if kept == Kept::Marks {
        all.push(marks(machine, starting));
    }
    all.push(cpus(machine, wanted.workers));
    all.extend(backlog(machine.backlog_max));
    all.extend(
        machine
            .ports
            .map(|it| outgoing(it, connections, &front_end.cluster.nodes)),
    );
    all.extend(machine.tracked.map(|it| tracked(it, connections)));
    all
}

fn files(wanted: Wanted) -> Diagnosis {
    const CHECK: &str = "open files";
    let shares = open_files::shares(wanted);
    let (limit, enough) = (wanted.limit, shares.enough);
    let asked = format!("{} client connections take {enough}", wanted.connections);
    if limit >= enough {
        let text = match limit {
            usize::MAX => format!("no limit; {asked}"),
            _ => format!("{limit} may be open; {asked}"),
        };
        return Diagnosis::ok(CHECK, text);
    }
    let text = format!(
        "{limit} may be open, as far as this shell's processes go; {asked}: at most {} clients are let in",
        shares.connections
    );
    let remedy = format!(
        "LimitNOFILE={enough} in the unit, or `ulimit -Hn {enough}` as root; or fewer `connections` in [limits]"
    );
    match shares.connections < CONNECTIONS_MIN.min(wanted.connections) {
        true => Diagnosis::fail(CHECK, text, remedy),
        false => Diagnosis::warn(CHECK, text, remedy),
    }
}

/// Ports that take a capability.
fn low_ports(machine: &Machine, ports: &[u16]) -> Diagnosis {
    const CHECK: &str = "low ports";
    let first = machine.first_free_port;
    let low: Vec<_> = ports
        .iter()
        .filter(|port| (1..first).contains(*port))
        .map(u16::to_string)
        .collect();
    if low.is_empty() {
        return Diagnosis::ok(CHECK, format!("none below {first} is listened at"));
    }
    let low = low.join(", ");
    if machine.may(CapabilitySet::NET_BIND_SERVICE) {
        return Diagnosis::ok(CHECK, format!("{low}: this user may listen there"));
    }
    Diagnosis::fail(
        CHECK,
        format!("{low}: user {} may not listen below {first}", machine.user),
        "AmbientCapabilities=CAP_NET_BIND_SERVICE in the unit (contrib/systemd/tidegate.service has it), or start as root \
         with `user` in [process]",
    )
}

/// Whether the process can become the user that it is to become.
fn user(machine: &Machine, name: Option<&str>) -> Option<Diagnosis> {
    const CHECK: &str = "user";
    let Some(name) = name else {
        return (machine.user == 0).then(|| {
            Diagnosis::warn(
                CHECK,
                "a front-end that is started as root stays root, without the capabilities that it does not need",
                "`user` in [process]; contrib/systemd/tidegate.service needs none",
            )
        });
    };
    let number = match user_number(Some(name)) {
        Ok(number) => number,
        Err(why) => {
            let remedy = format!("useradd --system {name}, or another `user` in [process]");
            return Some(Diagnosis::fail(CHECK, why.to_string(), remedy));
        }
    };
    let both = CapabilitySet::SETUID | CapabilitySet::SETGID;
    Some(if number == machine.user || machine.may(both) {
        Diagnosis::ok(CHECK, format!("the process becomes {name} ({number})"))
    } else {
        Diagnosis::fail(
            CHECK,
            format!("user {} cannot become {name} ({number})", machine.user),
            format!("start as root or as {name}, or take `user` out of [process]"),
        )
    })
}

fn marks(machine: &Machine, starting: CapabilitySet) -> Diagnosis {
    const CHECK: &str = "marks";
    let wanted = starting & CapabilitySet::NET_ADMIN;
    if machine.may(wanted) {
        return Diagnosis::ok(CHECK, "workers may mark connections");
    }
    Diagnosis::warn(
        CHECK,
        format!(
            "throttled connections are not marked: {} is missing",
            names(wanted)
        ),
        "AmbientCapabilities=CAP_NET_ADMIN in the unit",
    )
}

fn cpus(machine: &Machine, workers: usize) -> Diagnosis {
    const CHECK: &str = "cpus";
    let text = format!("{workers} workers on {} CPUs", machine.cpus);
    match workers <= machine.cpus {
        true => Diagnosis::ok(CHECK, text),
        false => Diagnosis::warn(
            CHECK,
            text + ": they wait for each other",
            "`workers = \"auto\"` in [limits], or more CPUs",
        ),
    }
}

fn backlog(most: Option<u64>) -> Option<Diagnosis> {
    const CHECK: &str = "backlog";
    let most = most?;
    Some(if most >= u64::from(BACKLOG.unsigned_abs()) {
        Diagnosis::ok(CHECK, format!("{most} connections may wait to be accepted"))
    } else {
        Diagnosis::warn(
            CHECK,
            format!(
                "{most} connections may wait to be accepted at a socket, of {BACKLOG} asked for: a rush loses some"
            ),
            format!("sysctl net.core.somaxconn={BACKLOG}"),
        )
    })
}

/// Each connection to a node takes a port of this machine that no other one to the same address has.
fn outgoing(range: PortRange, connections: usize, nodes: &[NodeSpec]) -> Diagnosis {
    const CHECK: &str = "outgoing ports";
    let count = range.count();
    let text = format!(
        "{}-{}: {count} connections to each of {} nodes",
        range.first,
        range.last,
        nodes.len()
    );
    // Requests of all clients may be at one node; those of several are spread over as many addresses.
    if count.saturating_mul(nodes.len()) >= connections {
        return Diagnosis::ok(CHECK, text);
    }
    Diagnosis::warn(
        CHECK,
        format!("{text}, and {connections} clients may have a request at once"),
        "sysctl net.ipv4.ip_local_port_range='1024 65535', or fewer `connections` in [limits]",
    )
}

/// Each client and each request in flight is a connection that the firewall knows.
fn tracked(table: Tracked, connections: usize) -> Diagnosis {
    const CHECK: &str = "conntrack";
    let Tracked { now, most } = table;
    let text = format!("the firewall keeps track of {now} connections, at most of {most}");
    let wanted = 2 * connections as u64;
    if most >= wanted && now as f64 <= TRACKED_MAX * most as f64 {
        return Diagnosis::ok(CHECK, text);
    }
    Diagnosis::warn(
        CHECK,
        text + ": beyond that it drops packets of new ones",
        format!(
            "sysctl net.netfilter.nf_conntrack_max={}, or no tracking of these ports",
            wanted.max(2 * most)
        ),
    )
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::Level;
    use super::*;

    fn config(more: &str) -> Config {
        let text = format!(
            "[[listener]]\naddress = \"127.0.0.1:80\"\n[[site]]\nname = \"a\"\n\
             [[node]]\nname = \"n\"\naddress = \"10.0.0.1:80\"\nsite = \"a\"\n\
             [limits]\nworkers = 4\nconnections = 1000\n{more}"
        );
        Config::parse(&text, "test.toml", Path::new("")).unwrap()
    }

    fn examined(machine: &Machine, more: &str) -> Vec<Diagnosis> {
        let config = config(more);
        examine(machine, &config, config.front_end.as_ref().unwrap())
    }

    /// What is said of a check, by its level; all others are well, but that a test's machine is root's.
    #[track_caller]
    fn level(machine: &Machine, more: &str, check: &str) -> Level {
        let all = examined(machine, more);
        let others = all
            .iter()
            .filter(|it| it.check != check && it.check != "user");
        assert!(others.clone().all(|it| it.level == Level::Ok), "{all:?}");
        all.iter().find(|it| it.check == check).unwrap().level
    }

    fn machine(change: impl FnOnce(&mut Machine)) -> Machine {
        let mut machine = Machine::sound();
        change(&mut machine);
        machine
    }

    #[test]
    fn few_open_files_warn_and_next_to_none_fail() {
        for (limit, wanted) in [
            (1 << 20, Level::Ok),
            (usize::MAX, Level::Ok),
            (2000, Level::Warn),
            (200, Level::Fail),
        ] {
            let machine = machine(|it| it.open_files = limit);
            assert_eq!(level(&machine, "", "open files"), wanted, "{limit}");
        }
    }

    #[test]
    fn a_low_port_takes_a_capability_or_a_lower_first_port() {
        let without = CapabilitySet::all() - CapabilitySet::NET_BIND_SERVICE;
        let bare = machine(|it| it.capabilities = without);
        assert_eq!(level(&bare, "", "low ports"), Level::Fail);
        let open = machine(|it| {
            it.capabilities = without;
            it.first_free_port = 80;
        });
        assert_eq!(level(&open, "", "low ports"), Level::Ok);
    }

    #[test]
    fn a_user_that_the_process_cannot_become_fails() {
        let as_nobody = "[process]\nuser = \"nobody\"\n";
        let root = Machine::sound();
        assert_eq!(level(&root, as_nobody, "user"), Level::Ok);
        assert_eq!(level(&root, "", "user"), Level::Warn);
        let plain = machine(|it| {
            it.user = 1000;
            it.capabilities -= CapabilitySet::SETUID;
        });
        assert_eq!(level(&plain, as_nobody, "user"), Level::Fail);
        let unknown = "[process]\nuser = \"no-such-user-of-tidegate\"\n";
        assert_eq!(level(&root, unknown, "user"), Level::Fail);
        assert!(examined(&plain, "").iter().all(|it| it.check != "user"));
    }

    #[test]
    fn limits_of_the_system_are_held_against_the_configuration() {
        let small = machine(|it| it.backlog_max = Some(128));
        assert_eq!(level(&small, "", "backlog"), Level::Warn);
        let few = machine(|it| it.cpus = 2);
        assert_eq!(level(&few, "", "cpus"), Level::Warn);
        let (first, last) = (60_000, 60_100);
        let narrow = machine(|it| it.ports = Some(PortRange { first, last }));
        assert_eq!(level(&narrow, "", "outgoing ports"), Level::Warn);
        for (now, most, wanted) in [
            (10, 262_144, Level::Ok),
            (10, 1999, Level::Warn),
            (250_000, 262_144, Level::Warn),
        ] {
            let machine = machine(|it| it.tracked = Some(Tracked { now, most }));
            assert_eq!(level(&machine, "", "conntrack"), wanted, "{now} of {most}");
        }
    }

    #[test]
    fn marks_take_a_capability_where_there_are_any() {
        let mark = "[[throttle]]\nclass = \"GET /\"\nmark = 7\n";
        assert_eq!(level(&Machine::sound(), mark, "marks"), Level::Ok);
        let bare = machine(|it| it.capabilities -= CapabilitySet::NET_ADMIN);
        assert_eq!(level(&bare, mark, "marks"), Level::Warn);
    }
}
