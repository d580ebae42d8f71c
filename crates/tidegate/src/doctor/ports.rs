//! Addresses to listen on: whether another process has them, and whether they are this machine's. The kernel's tables
//! are read; no socket is bound to a port. The front-end that runs with the file that is examined is asked which it has; the agent
//! that runs with it is known by its command line.

use std::ffi::OsStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;

use tidegate_node::AgentConfig;

use super::Diagnosis;
use crate::client::{Client, NamedBy};
use crate::config::address::overlap;
use crate::config::own_files::is_one;
use crate::config::{Config, FrontEnd, Reports};
use crate::models::Status;

/// A TCP socket that listens, in the kernel's tables.
const LISTENS: &str = "0A";
/// What a front-end and an agent are called.
const OWN_NAME: &str = "tidegate";

/// What all this is called.
const CHECK: &str = "port";
/// How long the front-end that runs may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// A socket that has an address.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Socket {
    address: SocketAddr,
    inode: u64,
}

/// Addresses that sockets of this machine have already.
#[derive(Clone, Debug, Default)]
pub(super) struct Taken(Vec<Socket>);

/// The process that has a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Owner {
    name: String,
    process: u32,
}

impl Taken {
    /// Where TCP is listened to.
    pub(super) fn tcp() -> Self {
        Self::listed(&["/proc/net/tcp", "/proc/net/tcp6"], Some(LISTENS))
    }

    /// Where UDP comes in.
    pub(super) fn udp() -> Self {
        Self::listed(&["/proc/net/udp", "/proc/net/udp6"], None)
    }

    fn listed(files: &[&str], state: Option<&str>) -> Self {
        let sockets = files.iter().flat_map(|file| {
            let text = std::fs::read_to_string(file).unwrap_or_default();
            parse(&text, state)
        });
        Self(sockets.collect())
    }

    /// The socket that stands in the way of one at this address.
    fn at(&self, wanted: SocketAddr) -> Option<&Socket> {
        self.0.iter().find(|it| overlap(it.address, wanted))
    }
}

/// Sockets of a table, those in this state alone.
fn parse(table: &str, state: Option<&str>) -> Vec<Socket> {
    let lines = table.lines().skip(1);
    let socket = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        if state.is_some_and(|state| words.get(3) != Some(&state)) {
            return None;
        }
        Some(Socket {
            address: address(words.get(1)?)?,
            inode: words.get(9)?.parse().ok()?,
        })
    };
    lines.filter_map(socket).collect()
}

/// An address as the kernel writes it: 32-bit words of the host's byte order in hexadecimal, and the port.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| {
        let word = u32::from_str_radix(ip.get(at..at + 8)?, 16).ok()?;
        Some(word.to_ne_bytes())
    };
    let ip = match ip.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let mut bytes = [0; 16];
            for (index, part) in bytes.chunks_exact_mut(4).enumerate() {
                part.copy_from_slice(&word(8 * index)?);
            }
            IpAddr::V6(Ipv6Addr::from(bytes))
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip.to_canonical(), port))
}

/// The process that has a socket, as far as this user can see it.
fn owner(inode: u64) -> Option<Owner> {
    let wanted = format!("socket:[{inode}]");
    let entries = std::fs::read_dir("/proc").ok()?;
    let processes = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let has =
        |process: &u32| {
            let files = std::fs::read_dir(format!("/proc/{process}/fd"));
            files.into_iter().flatten().flatten().any(|file| {
                std::fs::read_link(file.path()).is_ok_and(|it| it == Path::new(&wanted))
            })
        };
    let process = processes.into_iter().find(has)?;
    let name = std::fs::read_to_string(format!("/proc/{process}/comm")).ok()?;
    Some(Owner {
        name: name.trim().to_owned(),
        process,
    })
}

/// Whether a socket could have an address of this machine: tried with another port, of UDP.
fn is_local(ip: IpAddr) -> bool {
    UdpSocket::bind((ip, 0)).is_ok()
}

/// An address that a front-end listens on, and what for.
#[derive(Clone, Debug)]
pub(super) struct Listening {
    what: &'static str,
    address: SocketAddr,
}

/// The front-end of the file that is examined, while it runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Running {
    /// Where it listens.
    addresses: Vec<SocketAddr>,
}

impl Running {
    /// Asks whatever has the admin address; none, if that is not the front-end of this file.
    pub(super) fn ask(taken: &Taken, config: &Config, file: &Path) -> Option<Self> {
        let admin = config.admin.address;
        taken.at(admin)?;
        let client = Client {
            address: admin,
            named_by: NamedBy::File(file.to_owned()),
            token: config.admin.token.clone(),
            patience: ANSWER_WITHIN,
        };
        let status: Status = client.get("/api/status").ok()?;
        let own = status.configuration.as_deref().map(Path::new)?;
        let listeners = status.listeners.iter();
        let listeners = listeners.filter_map(|it| it.parse().ok());
        is_one(own, file).then(|| Self {
            addresses: listeners.chain([admin]).collect(),
        })
    }
}

/// Where a front-end listens.
pub(super) fn wanted(config: &Config, front_end: &FrontEnd) -> Vec<Listening> {
    let listeners = front_end.listeners.iter().map(|it| Listening {
        what: "listener",
        address: it.address,
    });
    let admin = Listening {
        what: "admin",
        address: config.admin.address,
    };
    listeners.chain([admin]).collect()
}

/// Whether each can be had, or the front-end that runs has it.
pub(super) fn examine(
    taken: &Taken,
    wanted: &[Listening],
    running: Option<&Running>,
) -> Vec<Diagnosis> {
    let each = wanted.iter();
    each.map(|it| {
        let Listening { what, address } = it;
        let socket = taken.at(*address);
        if socket.is_some() && running.is_some_and(|it| it.addresses.contains(address)) {
            let text = format!("{what} {address}: the front-end of this file has it, and runs");
            return Diagnosis::ok(CHECK, text);
        }
        let by = socket.map(|it| owner(it.inode));
        of_address(it, is_local(address.ip()), by)
    })
    .collect()
}

/// Whether the addresses of an agent and of its reports can be had, or the agent that runs with its file has them.
pub(super) fn of_agent(agent: &AgentConfig, reports: &Reports, file: &Path) -> Vec<Diagnosis> {
    let listening = |what, address| Listening { what, address };
    let check = reports
        .agent_check
        .map(|it| listening("agent check", it.listen));
    let metrics = reports.metrics.map(|it| listening("agent metrics", it));
    let orca = reports.orca.map(|it| listening("agent ORCA", it.listen));
    let own = of_one_agent(&Taken::udp(), listening("agent", agent.listen), file);
    let tcp = Taken::tcp();
    let reports = [check, metrics, orca].into_iter().flatten();
    let all = reports.flat_map(|it| of_one_agent(&tcp, it, file));
    own.into_iter().chain(all).collect()
}

fn of_one_agent(taken: &Taken, wanted: Listening, file: &Path) -> Vec<Diagnosis> {
    let Listening { what, address } = wanted;
    let owner = taken.at(address).and_then(|it| owner(it.inode));
    if owner.is_some_and(|it| it.name == OWN_NAME && is_agent_of(it.process, file)) {
        let text = format!("{what} {address}: the agent of this file has it, and runs");
        return vec![Diagnosis::ok(CHECK, text)];
    }
    examine(taken, &[wanted], None)
}

/// Whether a process was started as `tidegate agent` with this file.
fn is_agent_of(process: u32, file: &Path) -> bool {
    let folder = Path::new("/proc").join(process.to_string());
    let line = std::fs::read(folder.join("cmdline")).unwrap_or_default();
    let words: Vec<_> = line.split(|it| *it == 0).map(OsStr::from_bytes).collect();
    // Where it was started; its files are named from there.
    let from = folder.join("cwd");
    let is_agent = words.iter().any(|it| *it == "agent");
    is_agent && words.iter().any(|it| is_one(&from.join(it), file))
}

/// What is to be said of an address, given what has it: some process, or one that this user does not see.
fn of_address(wanted: &Listening, is_local: bool, by: Option<Option<Owner>>) -> Diagnosis {
    let Listening { what, address } = wanted;
    if !is_local {
        return Diagnosis::fail(
            CHECK,
            format!("{what} {address}: this machine has no such address"),
            "an address that `ip address` shows, or 0.0.0.0 or [::] for all of them",
        );
    }
    let Some(by) = by else {
        return Diagnosis::ok(CHECK, format!("{what} {address} is free"));
    };
    match by {
        Some(Owner { name, process }) if name == OWN_NAME => Diagnosis::warn(
            CHECK,
            format!("{what} {address}: a tidegate has it (process {process})"),
            "to replace it, start the new one with --reuse-port (docs/restart.md); or stop it first",
        ),
        Some(Owner { name, process }) => Diagnosis::fail(
            CHECK,
            format!("{what} {address}: {name} has it (process {process})"),
            "stop that process, or give another port",
        ),
        None => Diagnosis::fail(
            CHECK,
            format!("{what} {address}: another process has it"),
            format!(
                "`ss -lnp 'sport = :{}'` as root names it; stop it, or give another port",
                address.port()
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    /// As the kernel of a machine with the lower byte first writes it.
    const TCP: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
        \x20  0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 11 1 0\n\
        \x20  1: 00000000:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 12 1 0\n\
        \x20  2: 0100007F:9C40 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     0        0 13 1 0\n";
    const TCP6: &str = "  sl  local_address remote_address st tx_queue rx_queue tr tm->when retrnsmt uid timeout inode\n\
        \x20  0: 00000000000000000000000001000000:0016 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 21 1 0\n";

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn the_kernels_tables_are_understood() {
        let sockets = parse(TCP, Some(LISTENS));
        let found: Vec<_> = sockets.iter().map(|it| (it.address, it.inode)).collect();
        assert_eq!(found, [(at("127.0.0.1:8080"), 11), (at("0.0.0.0:80"), 12)]);
        assert_eq!(parse(TCP, None).len(), 3);
        assert_eq!(parse(TCP6, Some(LISTENS))[0].address, at("[::1]:22"));
        assert_eq!(parse("broken\nlines\n 0: x y\n", None), []);
    }

    #[test]
    fn what_has_an_address_is_named_with_what_to_do() {
        let wanted = Listening {
            what: "listener",
            address: at("127.0.0.1:80"),
        };
        let owner = |name: &str| {
            Some(Some(Owner {
                name: name.into(),
                process: 7,
            }))
        };
        assert_eq!(of_address(&wanted, true, None).level, Level::Ok);
        assert_eq!(of_address(&wanted, false, None).level, Level::Fail);
        let nginx = of_address(&wanted, true, owner("nginx"));
        assert_eq!(nginx.level, Level::Fail);
        assert!(nginx.text.contains("nginx") && nginx.text.contains("process 7"));
        let own = of_address(&wanted, true, owner("tidegate"));
        assert_eq!(own.level, Level::Warn);
        assert!(own.remedy.unwrap().contains("--reuse-port"));
        let unseen = of_address(&wanted, true, Some(None));
        assert!(unseen.remedy.unwrap().contains("sport = :80"));
    }
}
