//! What a front-end is put before: where it listens, and which servers each site has.
//!
//! Plain data, so that a configuration is a pure function of it. What it does not know: how the
//! servers came to be, and which front-end will stand before them.

use std::fmt::{Arguments, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::cluster::KeyAt;

use super::certificate::Certificate;

/// Everything that a configuration file is made of.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Where clients connect.
    pub listen: SocketAddr,
    /// Where the front-end's own interface listens, if it has one.
    pub admin: SocketAddr,
    /// Folder for configuration, logs and temporary files; absolute, and of this front-end alone.
    pub folder: PathBuf,
    /// The sites, by `Host`; the only one of a single site serves all hosts.
    pub sites: Vec<Site>,
    /// Nodes that serve nothing and are read, by those that do.
    pub resources: Vec<Server>,
    /// Front-ends that stand before the same servers, this one included.
    pub front_ends: u32,
    /// Where clients connect by TLS, if they may.
    pub secure: Option<Secure>,
    /// Whether servers are spoken to by HTTP/2, from the first byte.
    pub servers_http2: bool,
    /// Most requests a second of one source.
    pub per_source: Option<u32>,
}

/// A listener with TLS, beside the one without.
#[derive(Clone, Debug)]
pub struct Secure {
    /// Where.
    pub listen: SocketAddr,
    /// What clients are shown.
    pub certificate: Certificate,
}

/// A hosted web site.
#[derive(Clone, Debug)]
pub struct Site {
    /// Its name, which is also its host.
    pub name: String,
    /// Its servers.
    pub servers: Vec<Server>,
    /// Where more of them come from while it runs.
    pub discovered: Option<Discovered>,
}

/// Where servers come from while a front-end runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Discovered {
    /// A watched file.
    File(PathBuf),
    /// The addresses of a name, [`Discovered::NAME`].
    Dns {
        /// The name server that is asked.
        server: SocketAddr,
        /// Of all servers.
        port: u16,
    },
    /// The endpoints of a service in Kubernetes, [`Discovered::SERVICE`].
    Kubernetes {
        /// The API server, without TLS.
        server: SocketAddr,
        /// The file with the token.
        token: PathBuf,
    },
    /// The instances of a service in Consul, [`Discovered::SERVICE`].
    Consul {
        /// The agent that is asked.
        server: SocketAddr,
    },
}

impl Discovered {
    /// The name that is asked for.
    pub const NAME: &str = "shop.lab";
    /// The service that is asked for.
    pub const SERVICE: &str = "shop";
}

impl Site {
    /// A site with these servers and no others.
    #[must_use]
    pub fn of(name: &str, servers: Vec<Server>) -> Self {
        Self {
            name: name.into(),
            servers,
            discovered: None,
        }
    }
}

/// A server of one site.
#[derive(Clone, Debug)]
pub struct Server {
    /// Unique among the servers of all sites.
    pub name: String,
    /// Where it serves HTTP.
    pub address: SocketAddr,
    /// How its load is read, by those that read it.
    pub load: Load,
    /// Where it answers HAProxy's agent check, if it does.
    pub agent_check: Option<SocketAddr>,
}

/// How a server's load is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Load {
    /// Not at all.
    #[default]
    None,
    /// From its agent, over UDP.
    Udp {
        /// Where the agent answers.
        address: SocketAddr,
        /// The agent's key.
        key: KeyAt,
    },
    /// From memory that the agent shares.
    Shm {
        /// The file that it publishes in.
        path: PathBuf,
    },
    /// From a stock `snmpd`.
    Snmp {
        /// Where that answers.
        address: SocketAddr,
        /// The file with the community.
        community: PathBuf,
        /// Between two reads.
        period: Duration,
    },
}

/// Time that every front-end gives an idle client connection: longer than any run.
pub(super) const IDLE: Duration = Duration::from_secs(60);

impl Layout {
    /// Whether one site serves every host.
    #[must_use]
    pub fn single(&self) -> bool {
        self.sites.len() == 1
    }
}

/// Appends a line to a configuration file.
pub(super) fn push(text: &mut String, line: Arguments<'_>) {
    // Writing into a string cannot fail.
    writeln!(text, "{line}").unwrap_or_default();
}

#[cfg(test)]
pub(super) mod sample {
    //! The layout that the golden configurations are made of.

    use std::path::Path;

    use super::*;

    pub(in crate::front) fn layout() -> Layout {
        let server = |name: &str, last: u8, load| Server {
            name: name.into(),
            address: SocketAddr::from(([10, 77, 0, last], 8000)),
            load,
            agent_check: Some(SocketAddr::from(([10, 77, 0, last], 9902))),
        };
        let udp = Load::Udp {
            address: SocketAddr::from(([10, 77, 0, 11], 9901)),
            key: KeyAt {
                node: "n1".into(),
                file: "/run/lab/n1.key".into(),
            },
        };
        let shm = Load::Shm {
            path: "/dev/shm/n2".into(),
        };
        Layout {
            listen: SocketAddr::from(([10, 77, 0, 1], 8080)),
            admin: SocketAddr::from(([127, 0, 0, 1], 9900)),
            folder: "/run/lab".into(),
            sites: vec![
                Site::of(
                    "shop",
                    vec![server("shop-n1", 11, udp), server("shop-n2", 12, shm)],
                ),
                Site::of("blog", vec![server("blog-n1", 11, Load::None)]),
            ],
            resources: Vec::new(),
            front_ends: 2,
            secure: None,
            servers_http2: false,
            per_source: None,
        }
    }

    /// The single one with a listener with TLS, and servers that speak HTTP/2.
    pub(in crate::front) fn secure() -> Layout {
        Layout {
            secure: Some(Secure {
                listen: SocketAddr::from(([10, 77, 0, 1], 8443)),
                certificate: Certificate::in_folder(Path::new("/run/lab")),
            }),
            servers_http2: true,
            per_source: Some(200),
            ..single()
        }
    }

    /// The same with its first site only.
    pub(in crate::front) fn single() -> Layout {
        let mut layout = layout();
        layout.sites.truncate(1);
        layout
    }
}
