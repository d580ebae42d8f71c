//! Which nodes and agents answer: a connection to where a node serves HTTP, closed at once, and one read of its load.
//! Nothing is asked of the server behind the connection.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use tidegate_core::load::Rung;
use tidegate_core::record::LINES_MAX;
use tidegate_remote::rdma::{RdmaOptions, RdmaRegion};
use tidegate_remote::shm::ShmRegion;
use tidegate_remote::udp::{UdpOptions, UdpRegion};
use tidegate_remote::{Region, RegionError};

use super::{Diagnosis, at_once, reported};
use crate::config::{FrontEnd, MovesEngine, NodeRead, UseRdma};

/// Longest wait for a connection.
const CONNECT: Duration = Duration::from_secs(1);
/// Longest waits for a load, one for each try.
const READ: UdpOptions = UdpOptions {
    wait: Duration::from_millis(300),
    tries: 3,
};
/// Longest wait for a card.
const CARD: RdmaOptions = RdmaOptions {
    wait: Duration::from_millis(300),
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
    /// Whether the node's words come the same way.
    has_words: bool,
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
    let mut one_sided = None;
    let loads = match node.read {
        // They come with requests: the running front-end alone sees them.
        NodeRead::None | NodeRead::Responses { .. } => None,
        NodeRead::Reported(source) => Some(reported::ask(node.name, source)),
        NodeRead::Udp {
            address,
            keys,
            rdma,
        } => {
            let Some(key) = keys.first() else {
                return serves.into_iter().collect();
            };
            let connect = || UdpRegion::connect(*address, key.clone(), READ);
            let read = connect().and_then(|mut region| read_load(&mut region));
            if read.is_ok() && *rdma != UseRdma::Never {
                let read = connect().and_then(|wire| read_load(&mut RdmaRegion::new(wire, CARD)));
                one_sided = of_rdma(node.name, *rdma, read);
            }
            Some(of_load(node.name, &address.to_string(), read))
        }
        NodeRead::Shm { path } => {
            let read = read_load(&mut ShmRegion::new(path));
            Some(of_load(node.name, &path.display().to_string(), read))
        }
    };
    serves.into_iter().chain(loads).chain(one_sided).collect()
}

fn read_load(region: &mut dyn Region) -> Result<Answer, RegionError> {
    let read = region.read(LINES_MAX)?;
    let record = read.record()?;
    Ok(Answer {
        rung: Rung::from_number(record.rung),
        took: read.received_at.since(read.sent_at),
        has_words: read.first_word.is_some(),
    })
}

/// Whether a load is read over RDMA; nothing where that may be and this host cannot do it.
fn of_rdma(name: &str, rdma: UseRdma, read: Result<Answer, RegionError>) -> Option<Diagnosis> {
    const CHECK: &str = "rdma";
    let why = match read {
        Ok(Answer {
            took, has_words, ..
        }) => {
            let ms = took.as_secs_f64() * 1000.0;
            let words = match has_words {
                true => "so are its words changed",
                false => "its words are changed over UDP",
            };
            let text = format!("the load of {name} is read over RDMA within {ms:.2} ms; {words}");
            return Some(Diagnosis::ok(CHECK, text));
        }
        Err(why) => why,
    };
    let text = format!("the load of {name} is read over UDP and not over RDMA: {why}");
    match rdma {
        UseRdma::Wanted => Some(Diagnosis::warn(
            CHECK,
            text,
            "`rdma = true` in [agent] there, and a device here and there that reach each other: docs/rdma.md",
        )),
        UseRdma::IfAny if matches!(why, RegionError::NoDevice(_)) => None,
        UseRdma::IfAny | UseRdma::Never => Some(Diagnosis::ok(CHECK, text)),
    }
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
        Ok(Answer { rung, took, .. }) => {
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
        | RegionError::NoDevice(_)
        | RegionError::Peer(_)
        | RegionError::Io { .. } => {
            "start the agent there, with a key that is made for its name, of this version, and open its UDP port to this \
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
            has_words: true,
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
        assert!(silent.remedy.unwrap().contains("open its UDP port"));
    }

    #[test]
    fn why_a_load_is_not_read_over_rdma_is_said_where_it_is_worth_a_word() {
        let lacking = || Err(RegionError::NoDevice("none".into()));
        let refused = || Err(RegionError::Refused(tidegate_remote::Refusal::NoDevice));
        assert_eq!(of_rdma("n1", UseRdma::IfAny, lacking()), None);
        let level = |rdma, read| of_rdma("n1", rdma, read).unwrap().level;
        assert_eq!(level(UseRdma::IfAny, refused()), Level::Ok);
        assert_eq!(level(UseRdma::Wanted, refused()), Level::Warn);
        assert_eq!(level(UseRdma::Wanted, lacking()), Level::Warn);
    }

    #[test]
    fn how_words_are_changed_is_said_where_a_load_is_read_over_rdma() {
        let said = |has_words| {
            let answer = Answer {
                rung: Rung::Rdma,
                took: Duration::from_micros(250),
                has_words,
            };
            of_rdma("n1", UseRdma::IfAny, Ok(answer)).unwrap().text
        };
        let read = "the load of n1 is read over RDMA within 0.25 ms";
        assert_eq!(said(true), format!("{read}; so are its words changed"));
        assert_eq!(
            said(false),
            format!("{read}; its words are changed over UDP")
        );
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
