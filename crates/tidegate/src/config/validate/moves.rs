//! Where the words of moves are, and with which keys they are reached.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use tidegate_core::units::format_duration;
use tidegate_discover::{ServerError, ServerUrl};
use tidegate_remote::udp::Key;
use tidegate_remote::udp::key_file::{KeyFile, Master, is_name};

use super::super::file::ConfigFile;
use super::super::problem::Problem;
use super::super::reconfigure::{EngineName, EtcdHomeConfig, Movable, MovesEngine};
use super::super::{NodeRead, UseRdma};
use super::Checker;
use super::read::derived;

/// A node whose word is not read for 250 ms counts as silent.
const INTERVAL_MAX: Duration = Duration::from_millis(100);
/// Nodes that an error names.
const NAMED_MAX: usize = 5;
/// Most endpoints of an etcd cluster.
const ENDPOINTS_MAX: usize = 9;
/// What keys in etcd begin with.
const PREFIX: &str = "tidegate";
/// Longest of them.
const PREFIX_MAX: usize = 64;
/// How a home over UDP is written.
const UDP: &str = "udp://";

impl Checker<'_> {
    /// Where the words of moves are; all that is wrong with that is among the problems.
    pub(super) fn moves_engine(
        &mut self,
        file: &ConfigFile,
        reads: &BTreeMap<&str, &NodeRead>,
        shared: Option<&[Master]>,
    ) -> Option<MovesEngine> {
        let table = &file.reconfigure;
        if !table.enabled.value {
            return None;
        }
        self.keys_fit_the_engine(file);
        match table.engine.value {
            EngineName::Memory => Some(MovesEngine::Memory),
            EngineName::Region => {
                self.all_have_words(file, reads);
                self.home(file, reads, shared).map(MovesEngine::Region)
            }
            EngineName::Etcd => {
                self.all_have_words(file, reads);
                self.etcd(file).map(MovesEngine::Etcd)
            }
        }
    }

    /// Keys that mean nothing with this engine are mistakes.
    fn keys_fit_the_engine(&mut self, file: &ConfigFile) {
        let table = &file.reconfigure;
        let engine = table.engine.value;
        let (region, etcd) = (engine == EngineName::Region, engine == EngineName::Etcd);
        let keys = [
            ("home", &table.home.at, region || etcd),
            ("home_key_name", &table.home_key_name.at, region),
            ("home_key_file", &table.home_key_file.at, region),
            ("home_prefix", &table.home_prefix.at, etcd),
            ("home_ca_file", &table.home_ca_file.at, etcd),
        ];
        for (name, at, fits) in keys {
            if let (Some(at), false) = (at, fits) {
                let message = format!("engine `{}` has no `{name}`", engine.label());
                self.problem(at.clone(), message, "means nothing here");
            }
        }
    }

    fn etcd(&mut self, file: &ConfigFile) -> Option<EtcdHomeConfig> {
        let table = &file.reconfigure;
        let Some(home) = &table.home.value else {
            let message = "engine `etcd` needs a `home`";
            let problem = Problem::new(table.engine.place(), message, "where are the words?");
            let help = "`home = \"http://HOST:2379\"`, the same cluster for all front-ends";
            self.problems.push(problem.help(help));
            return None;
        };
        let mut endpoints = Vec::new();
        for text in home.split(',').map(str::trim) {
            match text.parse() {
                Ok(server) => endpoints.push(server),
                Err(error) => {
                    let error: ServerError = error;
                    self.problem(table.home.place(), format!("`{text}`: {error}"), "here");
                    return None;
                }
            }
        }
        if endpoints.len() > ENDPOINTS_MAX {
            let message = format!("{} endpoints, at most {ENDPOINTS_MAX}", endpoints.len());
            self.problem(table.home.place(), message, "here");
        }
        if endpoints.iter().any(ServerUrl::is_tls) && table.home_ca_file.value.is_none() {
            let message = "https needs the certificates that have signed the server's";
            let problem = Problem::new(table.home.place(), message, "here");
            self.problems.push(problem.help("set `home_ca_file`"));
        }
        let prefix = table.home_prefix.value.clone();
        let prefix = prefix.unwrap_or_else(|| PREFIX.to_owned());
        let is_letter = |it: u8| it.is_ascii_alphanumeric() || b"._-/".contains(&it);
        if prefix.is_empty() || prefix.len() > PREFIX_MAX || !prefix.bytes().all(is_letter) {
            let message = format!("`{prefix}` is no beginning of keys");
            let label = format!("1 to {PREFIX_MAX} letters, digits, `.`, `_`, `-` and `/`");
            self.problem(table.home_prefix.place(), message, label);
        }
        let ca_file = (table.home_ca_file.value.as_ref()).map(|path| self.path(path));
        Some(EtcdHomeConfig {
            endpoints,
            prefix,
            ca_file,
        })
    }

    /// A node's word is in its region, and comes with its load.
    fn all_have_words(&mut self, file: &ConfigFile, reads: &BTreeMap<&str, &NodeRead>) {
        let interval = &file.load.interval;
        if interval.value.is_some_and(|it| it > INTERVAL_MAX) {
            let message = format!(
                "words of nodes come with their loads, at least each {}",
                format_duration(INTERVAL_MAX)
            );
            self.problem(interval.place(), message, "too rare for moves");
        }
        let nodes = Movable::of(file).nodes.into_iter();
        let unread: Vec<_> = nodes
            .filter(|node| {
                reads
                    .get(node.name.as_str())
                    .is_some_and(|it| !it.has_region())
            })
            .map(|node| format!("`{}`", node.name))
            .collect();
        if unread.is_empty() {
            return;
        }
        let more = match unread.len().saturating_sub(NAMED_MAX) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let named = unread[..unread.len().min(NAMED_MAX)].join(", ");
        let message = format!(
            "the load of {named}{more} is not read from an agent of ours, and a node's word is in the memory that it is read from"
        );
        let at = file.reconfigure.engine.place();
        let problem = Problem::new(at, message, "needs a word of each node that can be moved");
        let help = "give these nodes `load`, or take `nodes` from their site";
        self.problems.push(problem.help(help));
    }

    fn home(
        &mut self,
        file: &ConfigFile,
        reads: &BTreeMap<&str, &NodeRead>,
        shared: Option<&[Master]>,
    ) -> Option<NodeRead> {
        let table = &file.reconfigure;
        let Some(home) = &table.home.value else {
            let problem = Problem::new(
                table.engine.place(),
                "engine `region` needs a `home`",
                "where are the words?",
            );
            let help = "`home = \"udp://ADDRESS:PORT\"` of any agent, the same for all front-ends";
            self.problems.push(problem.help(help));
            return None;
        };
        if home.starts_with('/') {
            let path = self.path(home.as_ref());
            return Some(NodeRead::Shm { path });
        }
        let address = home.strip_prefix(UDP).map(str::parse::<SocketAddr>);
        let Some(Ok(address)) = address else {
            let message = format!("`{home}` is no home of words");
            let label = "expected `udp://ADDRESS:PORT` or an absolute path of shared memory";
            self.problem(table.home.place(), message, label);
            return None;
        };
        let keys = self.home_keys(file, address, reads, shared)?;
        Some(NodeRead::Udp {
            address,
            keys,
            rdma: UseRdma::Never,
        })
    }

    /// The keys with which the home is asked: those of the node at that address, or those of its name.
    fn home_keys(
        &mut self,
        file: &ConfigFile,
        home: SocketAddr,
        reads: &BTreeMap<&str, &NodeRead>,
        shared: Option<&[Master]>,
    ) -> Option<Vec<Key>> {
        let table = &file.reconfigure;
        let same = reads.values().find_map(|read| match read {
            NodeRead::Udp { address, keys, .. } if *address == home => Some(keys.clone()),
            NodeRead::Udp { .. }
            | NodeRead::Shm { .. }
            | NodeRead::Reported(_)
            | NodeRead::Responses { .. }
            | NodeRead::None => None,
        });
        let name = match (&table.home_key_name.value, same) {
            (None, Some(keys)) if table.home_key_file.value.is_none() => return Some(keys),
            (Some(name), _) if is_name(name) => name,
            (Some(name), _) => {
                let message = format!("bad name `{name}`");
                self.problem(table.home_key_name.place(), message, "no node's name");
                return None;
            }
            (None, _) => {
                let message = "no name for the key of `home`";
                let problem = Problem::new(table.home.place(), message, "no node's agent");
                self.problems
                    .push(problem.help("set `home_key_name` to the name in that agent's key"));
                return None;
            }
        };
        let keys = match (&table.home_key_file.value, shared) {
            (Some(path), _) => match self.keys(path, table.home_key_file.place(), Ok)? {
                KeyFile::Masters(masters) => derived(&masters, name),
                KeyFile::Nodes(nodes) => nodes,
            },
            (None, Some(masters)) => derived(masters, name),
            (None, None) => {
                let problem = Problem::new(table.home.place(), "no key to ask `home` with", "here");
                self.problems
                    .push(problem.help("set `home_key_file`, or `key_file` in [load]"));
                return None;
            }
        };
        if let Some(other) = keys.iter().find(|key| key.node != *name) {
            let message = format!("this is the key of node `{}`, not of `{name}`", other.node);
            self.problem(table.home_key_file.place(), message, "here");
            return None;
        }
        Some(keys.into_iter().map(|key| key.key).collect())
    }
}
