//! RDMA: the library, the devices, what they may lock in memory, and the rights to open them. `docs/rdma.md` says what it takes.

use std::path::PathBuf;

use rustix::fs::{Access, access};
use rustix::process::{Resource, getrlimit};
use tidegate_node::{AgentConfig, rdma_address};
use tidegate_remote::RegionError;
use tidegate_remote::privilege::CapabilitySet;
use tidegate_remote::rdma::{RdmaDevice, RdmaDeviceFound, RdmaDeviceReport};

use super::machine::Machine;
use super::{Diagnosis, Level};
use crate::config::{Config, FrontEnd};

const CHECK: &str = "rdma";
/// Memory that a node's queue pair locks: what a card of mlx5 takes, rounded up.
const LOCKED_BY_NODE: u64 = 64 * 1024;
/// And a front-end's, which is smaller, with its buffer.
const LOCKED_BY_FRONT_END: u64 = 16 * 1024;
/// Where devices are opened.
const FOLDER: &str = "/dev/infiniband";

/// What the system says.
#[derive(Debug)]
struct Facts {
    devices: Result<Vec<RdmaDeviceFound>, RegionError>,
    /// Bytes that may be locked; none: as many as there are.
    locked_max: Option<u64>,
    may_lock: bool,
    /// Files of devices that this user may not open.
    closed: Vec<PathBuf>,
}

impl Facts {
    fn of_system(machine: &Machine) -> Self {
        let files = std::fs::read_dir(FOLDER).into_iter().flatten().flatten();
        let verbs = files.map(|it| it.path()).filter(|path| {
            let name = path.file_name().and_then(|it| it.to_str());
            name.is_some_and(|it| it.starts_with("uverbs"))
        });
        let wanted = Access::READ_OK | Access::WRITE_OK;
        Self {
            devices: RdmaDevice::survey(),
            locked_max: getrlimit(Resource::Memlock).current,
            may_lock: machine.may(CapabilitySet::IPC_LOCK),
            closed: verbs.filter(|path| access(path, wanted).is_err()).collect(),
        }
    }
}

/// Examines what this host has; `agent` and `front_end`: what may use it.
pub(super) fn examine(
    machine: &Machine,
    agent: Option<&AgentConfig>,
    front_end: Option<&FrontEnd>,
) -> Vec<Diagnosis> {
    let served = agent.and_then(|it| it.rdma).unwrap_or_default();
    let asked = front_end.map_or(0, |it| {
        it.reads.iter().filter(|read| read.wants_rdma()).count()
    });
    let mut all = of(&Facts::of_system(machine), &Pairs { served, asked });
    let is_none = |it: &Diagnosis| it.level != Level::Ok;
    // Where there is none at all that is said already.
    if !all.iter().any(is_none)
        && let Some(why) = agent.and_then(lacking)
    {
        all.push(Diagnosis::warn(
            CHECK,
            format!("`rdma` in [agent]: {why}"),
            "let `listen` be an address of the card, or 0.0.0.0",
        ));
    }
    all
}

/// Why an agent that is to serve RDMA cannot.
fn lacking(agent: &AgentConfig) -> Option<RegionError> {
    agent.rdma?;
    RdmaDevice::open(rdma_address(agent.listen)).err()
}

/// That RDMA is asked for which this host does not have, for `tidegate check`.
pub(crate) fn notes(config: &Config) -> Vec<String> {
    let reads = config.front_end.iter().flat_map(|it| &it.reads);
    let nodes = reads.filter(|read| read.wants_rdma()).count();
    let of_agent = config.agent.as_ref().and_then(lacking);
    let of_agent =
        of_agent.map(|why| format!("`rdma` in [agent]: {why}; the agent serves UDP alone"));
    let of_nodes = (nodes > 0).then(|| RdmaDevice::open(None).err()).flatten();
    let of_nodes = of_nodes
        .map(|why| format!("transport `rdma`: {why}; nodes are read over UDP, {nodes} of them"));
    of_agent.into_iter().chain(of_nodes).collect()
}

/// Queue pairs that are asked for.
#[derive(Clone, Copy, Debug, Default)]
struct Pairs {
    /// By front-ends of this host's agent.
    served: usize,
    /// By this front-end of nodes.
    asked: usize,
}

/// What stands in the way of these.
fn of(facts: &Facts, pairs: &Pairs) -> Vec<Diagnosis> {
    let devices = match &facts.devices {
        Ok(devices) if !devices.is_empty() => devices,
        Ok(_) => return vec![none("the kernel knows no RDMA device", pairs)],
        Err(why) => return vec![none(&why.to_string(), pairs)],
    };
    let mut all: Vec<_> = devices
        .iter()
        .flat_map(|RdmaDeviceFound { name, report }| match report {
            Ok(device) => of_device(device),
            Err(why) => vec![Diagnosis::warn(
                CHECK,
                format!("{name} cannot be opened: {why}"),
                "let this user open /dev/infiniband/uverbs*; under systemd PrivateDevices=no, see docs/rdma.md",
            )],
        })
        .collect();
    for file in &facts.closed {
        all.push(Diagnosis::warn(
            CHECK,
            format!("{} is closed to this user", file.display()),
            "mode 0666, as the udev rules of rdma-core set it, or a group of this user's",
        ));
    }
    all.extend(locked(facts, pairs));
    all
}

fn none(why: &str, pairs: &Pairs) -> Diagnosis {
    match pairs.served + pairs.asked {
        0 => Diagnosis::ok(CHECK, format!("{why}; loads are read over UDP")),
        _ => Diagnosis::warn(
            CHECK,
            format!("{why}: loads are read over UDP, though RDMA is asked for"),
            "docs/rdma.md says what it takes; or leave `rdma` and `transport = \"rdma\"` out",
        ),
    }
}

fn of_device(device: &RdmaDeviceReport) -> Vec<Diagnosis> {
    let kind = match device.in_software {
        true => "in software, by the kernel's CPUs",
        false => "a card",
    };
    let atomics = if device.has_atomics { "" } else { "no " };
    let what = format!(
        "{} ({kind}, {atomics}atomics, {} queue pairs)",
        device.name, device.queue_pairs_max
    );
    let ports = device.ports.iter().map(|port| {
        let fabric = if port.is_infiniband { " on InfiniBand" } else { "" };
        let place = format!("{what}: port {}{fabric}, MTU {}", port.port, port.mtu);
        let addresses: Vec<_> = port.addresses.iter().map(ToString::to_string).collect();
        match (port.is_active, addresses.as_slice()) {
            (false, _) => Diagnosis::warn(
                CHECK,
                format!("{place}, is not active"),
                "`rdma link show` says in which state it is; plug it in, and set its interface up",
            ),
            (true, []) => Diagnosis::warn(
                CHECK,
                format!("{place}, has no IP address"),
                match port.is_infiniband {
                    true => "load ib_ipoib and give its interface (ib0) an IP address, by which agent and front-end find the port",
                    false => "give its interface an IP address",
                },
            ),
            (true, some) => Diagnosis::ok(CHECK, format!("{place}, {}", some.join(", "))),
        }
    });
    ports.collect()
}

fn locked(facts: &Facts, pairs: &Pairs) -> Option<Diagnosis> {
    let limit = facts.locked_max.filter(|_| !facts.may_lock)?;
    let Pairs { served, asked } = *pairs;
    let needed = served as u64 * LOCKED_BY_NODE + asked as u64 * LOCKED_BY_FRONT_END;
    let text = format!(
        "{} KiB may be locked in memory by a process of this shell (ulimit -l; a unit has its own LimitMEMLOCK); {} queue pairs take up to {} KiB",
        limit / 1024,
        served + asked,
        needed / 1024
    );
    Some(match limit >= needed {
        true => Diagnosis::ok(CHECK, text),
        false => Diagnosis::warn(
            CHECK,
            text,
            "`LimitMEMLOCK=infinity` in the unit, or CAP_IPC_LOCK",
        ),
    })
}

#[cfg(test)]
mod tests {
    use tidegate_remote::rdma::RdmaPortReport;

    use super::*;

    fn serving(served: usize) -> Pairs {
        Pairs { served, asked: 0 }
    }

    fn facts() -> Facts {
        let device = RdmaDeviceReport {
            name: "mlx5_0".to_owned(),
            in_software: false,
            has_atomics: true,
            queue_pairs_max: 131_072,
            ports: vec![RdmaPortReport {
                port: 1,
                is_active: true,
                mtu: 4096,
                is_infiniband: false,
                addresses: vec![[10, 0, 0, 1].into()],
            }],
        };
        Facts {
            devices: Ok(vec![RdmaDeviceFound {
                name: device.name.clone(),
                report: Ok(device),
            }]),
            locked_max: None,
            may_lock: false,
            closed: Vec::new(),
        }
    }

    fn change(change: impl Fn(&mut RdmaDeviceReport)) -> Facts {
        let mut facts = facts();
        if let Ok(devices) = &mut facts.devices
            && let Ok(device) = &mut devices[0].report
        {
            change(device);
        }
        facts
    }

    #[test]
    fn a_device_is_shown_with_its_port_and_its_address() {
        let all = of(&facts(), &serving(1));
        assert_eq!(all.len(), 1, "{all:?}");
        assert_eq!(all[0].level, Level::Ok);
        assert_eq!(
            all[0].text,
            "mlx5_0 (a card, atomics, 131072 queue pairs): port 1, MTU 4096, 10.0.0.1"
        );
    }

    #[test]
    fn a_port_on_infiniband_is_shown_as_such_and_needs_an_interface_for_ip() {
        let fabric = change(|it| it.ports[0].is_infiniband = true);
        let said = &of(&fabric, &serving(1))[0].text;
        assert!(
            said.ends_with("port 1 on InfiniBand, MTU 4096, 10.0.0.1"),
            "{said}"
        );
        let bare = change(|it| {
            it.ports[0].is_infiniband = true;
            it.ports[0].addresses.clear();
        });
        let found = &of(&bare, &serving(1))[0];
        assert_eq!(found.level, Level::Warn);
        assert!(found.remedy.as_ref().unwrap().contains("ib_ipoib"));
    }

    #[test]
    fn what_stands_in_the_way_has_a_remedy() {
        let down = change(|it| it.ports[0].is_active = false);
        let bare = change(|it| it.ports[0].addresses.clear());
        let narrow = Facts {
            locked_max: Some(1024 * 1024),
            ..facts()
        };
        let closed = Facts {
            closed: vec!["/dev/infiniband/uverbs0".into()],
            ..facts()
        };
        for (facts, said) in [
            (down, "is not active"),
            (bare, "has no IP address"),
            (narrow, "1024 KiB may be locked"),
            (closed, "is closed to this user"),
        ] {
            let all = of(&facts, &serving(256));
            let found = all.iter().find(|it| it.text.contains(said)).unwrap();
            assert_eq!(found.level, Level::Warn, "{found:?}");
            assert!(found.remedy.is_some());
        }
        let privileged = Facts {
            locked_max: Some(0),
            may_lock: true,
            ..facts()
        };
        assert_eq!(of(&privileged, &serving(256)).len(), 1);
    }

    #[test]
    fn a_host_without_a_device_is_well_unless_rdma_is_asked_for() {
        let facts = Facts {
            devices: Err(RegionError::NoDevice("libibverbs.so.1 is missing".into())),
            ..facts()
        };
        assert_eq!(of(&facts, &serving(0))[0].level, Level::Ok);
        let asked = &of(&facts, &serving(1))[0];
        assert_eq!(asked.level, Level::Warn);
        assert!(
            asked.text.contains("libibverbs.so.1 is missing"),
            "{asked:?}"
        );
    }
}
