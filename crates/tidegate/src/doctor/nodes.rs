//! Which nodes and agents answer: a connection to where a node serves HTTP, closed at once, and one read of its load.
//! Nothing is asked of the server behind the connection.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use tidegate_core::load::Rung;
use tidegate_core::record::LINES_MAX;
use tidegate_remote::shm::ShmRegion;
use tidegate_remote::udp::{UdpOptions, UdpRegion};
use tidegate_remote::{Region, RegionError};

use super::{Diagnosis, at_once, reported};
use crate::config::{FrontEnd, MovesEngine, NodeRead};

/// Longest wait for a connection.
const CONNECT: Duration = Duration::from_secs(1);
/// Longest waits for a load, one for each try.
const READ: UdpOptions = UdpOptions {
    wait: Duration::from_millis(300),
    tries: 3,
};
/// What the home of moves' words is called here.
const HOME: &str = "the home of moves";

/// A node to ask.
#[derive(Clone, Copy, Debug)]
struct Asked<'a> {
    name: &'a str,
    /// Where it serves HTTP; none for a resource, which serves none.
    address: Option<SocketAddr>,
    read: &'a NodeRead,
}

/// A load that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Answer {
    rung: Rung,
    took: Duration,
}

/// Asks all.
pub(super) fn examine(front_end: &FrontEnd) -> Vec<Diagnosis> {
    let nodes = front_end.cluster.nodes.iter().zip(&front_end.reads);
    let nodes = nodes.map(|(node, read)| Asked {
        name: &node.name,
        address: Some(node.address),
        read,
    });
    let resources = front_end.resources.iter().map(|it| Asked {
        name: &it.name,
        address: None,
        read: &it.read,
    });
    let home = home(front_end).map(|read| Asked {
        name: HOME,
        address: None,
        read,
    });
    let all: Vec<_> = nodes.chain(resources).chain(home).collect();
    at_once(&all, ask)
}

/// The region that keeps the words of moves, if it is none of the nodes'.
fn home(front_end: &FrontEnd) -> Option<&NodeRead> {
    let Some(MovesEngine::Region(read)) = front_end.reconfigure.as_ref().map(|it| &it.engine)
    else {
        return None;
    };
    (!front_end.reads.contains(read)).then_some(read)
}

fn ask(node: &Asked<'_>) -> Vec<Diagnosis> {
    let serves = node.address.map(|address| {
        let connected = TcpStream::connect_timeout(&address, CONNECT);
        of_server(node.name, address, connected.map(drop))
    });
    let loads = match node.read {
        // They come with requests: the running front-end alone sees them.
        NodeRead::None | NodeRead::Responses { .. } => None,
        NodeRead::Reported(source) => Some(reported::ask(node.name, source)),
        NodeRead::Udp { address, keys } => {
            let read = match keys.first() {
                Some(key) => UdpRegion::connect(*address, key.clone(), READ),
                None => return serves.into_iter().collect(),
            };
            let read = read.and_then(|mut region| read_load(&mut region));
            Some(of_load(node.name, &address.to_string(), read))
        }
        NodeRead::Shm { path } => {
            let read = read_load(&mut ShmRegion::new(path));
            Some(of_load(node.name, &path.display().to_string(), read))
        }
    };
    serves.into_iter().chain(loads).collect()
}

fn read_load(region: &mut dyn Region) -> Result<Answer, RegionError> {
    let read = region.read(LINES_MAX)?;
    let record = read.record()?;
    Ok(Answer {
        rung: Rung::from_number(record.rung),
        took: read.received_at.since(read.sent_at),
    })
}

fn of_server(name: &str, address: SocketAddr, connected: std::io::Result<()>) -> Diagnosis {
    const CHECK: &str = "node";
    match connected {
        Ok(()) => Diagnosis::ok(CHECK, format!("{name} takes connections at {address}")),
        Err(why) => Diagnosis::warn(
            CHECK,
            format!("{name} takes no connection at {address}: {why}"),
            "start the server there, open the port to this host, or correct `address` in [[node]]",
        ),
    }
}

fn of_load(name: &str, place: &str, read: Result<Answer, RegionError>) -> Diagnosis {
    const CHECK: &str = "agent";
    let why = match read {
        Ok(Answer { rung, took }) => {
            let ms = took.as_secs_f64() * 1000.0;
            let text = format!(
                "the load of {name} is read at {place} within {ms:.2} ms ({})",
                rung.label()
            );
            return Diagnosis::ok(CHECK, text);
        }
        Err(why) => why,
    };
    let remedy = match &why {
        RegionError::WrongKey { .. } => {
            "give its agent the key that `tidegate key derive` makes of this front-end's master for its name"
        }
        RegionError::Untrusted { .. } => {
            "run agent and front-end as the same user, or the agent as root"
        }
        RegionError::Absent | RegionError::NotRegion(_) => {
            "start the agent there with the same name for the shared memory"
        }
        RegionError::Torn
        | RegionError::Timeout { .. }
        | RegionError::Refused(_)
        | RegionError::Restarted
        | RegionError::Record(_)
        | RegionError::Foreign { .. }
        | RegionError::Owned(_)
        | RegionError::Io { .. } => {
            "start the agent there, with a key that is made for its name, of this version, and open UDP port 9901 to this \
             host; until then own requests and latencies decide"
        }
    };
    Diagnosis::warn(
        CHECK,
        format!("the load of {name} is not known: {place}: {why}"),
        remedy,
    )
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn an_agent_that_answers_is_named_with_its_rung() {
        let answer = Answer {
            rung: Rung::XdpGeneric,
            took: Duration::from_micros(250),
        };
        let found = of_load("n1", "10.0.0.1:9901", Ok(answer));
        assert_eq!(found.level, Level::Ok);
        assert_eq!(
            found.text,
            "the load of n1 is read at 10.0.0.1:9901 within 0.25 ms (xdp_generic)"
        );
    }

    #[test]
    fn a_wrong_key_has_another_remedy_than_silence() {
        let wrong = of_load("n1", "x", Err(RegionError::WrongKey { forged: 3 }));
        let silent = of_load("n1", "x", Err(RegionError::Timeout { tries: 3 }));
        assert_eq!((wrong.level, silent.level), (Level::Warn, Level::Warn));
        assert!(wrong.remedy.unwrap().contains("key derive"));
        assert!(silent.remedy.unwrap().contains("9901"));
    }

    #[test]
    fn a_closed_port_is_no_server() {
        let address = ([127, 0, 0, 1], 1).into();
        let asked = Asked {
            name: "n1",
            address: Some(address),
            read: &NodeRead::None,
        };
        let found = ask(&asked);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].level, Level::Warn);
        assert!(found[0].text.contains("127.0.0.1:1"), "{found:?}");
    }
}
