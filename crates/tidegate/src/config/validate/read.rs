//! How each node is read, and with which keys.

use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};

use tidegate_proxy::StickySecret;
use tidegate_remote::udp::Key;
use tidegate_remote::udp::key_file::{KeyFile, KeyFileError, Master, NodeKey, is_name};
use tidegate_reported::Secret;

use super::super::file::{AGENT_PORT, NodeFile, NodeLoadFile, SiteFile, TransportName};
use super::super::problem::Problem;
use super::super::reported::orca_read;
use super::super::sticky;
use super::super::{NodeRead, UseRdma};
use super::Checker;
use crate::{key_file, secret_file};

impl Checker<'_> {
    /// What a file holds, if it is of use there.
    pub(super) fn keys<T>(
        &mut self,
        path: &Path,
        at: Range<usize>,
        wanted: impl Fn(KeyFile) -> Result<T, KeyFileError>,
    ) -> Option<T> {
        let loaded = self.key_file(self.path(path));
        let keys = loaded.and_then(|file| wanted(file).map_err(|error| error.to_string()));
        keys.map_err(|reason| {
            self.problem(at, format!("cannot use this key file: {reason}"), "here");
        })
        .ok()
    }

    /// What a site's sessions' cookies are made with; none if nothing is named, or that is of no use.
    pub(super) fn sticky_secrets(&mut self, site: &SiteFile) -> Option<Vec<StickySecret>> {
        let key_file = site.sticky.value.as_ref().map(|it| &it.key_file);
        let named = key_file.and_then(|it| Some((it.value.as_ref()?, it.place())));
        let Some((path, at)) = named else {
            return Some(Vec::new());
        };
        let masters = self.keys(path, at, KeyFile::masters)?;
        Some(sticky::secrets(&masters))
    }

    fn key_file(&mut self, path: PathBuf) -> Result<KeyFile, String> {
        if let Some(known) = self.keys.get(&path) {
            return known.clone();
        }
        let mut loaded = key_file::read(&path);
        if loaded.is_err()
            && let Some(before) = self.before.keys.get(&path)
            && secret_file::is_denied(&path)
        {
            self.unread.push(path.clone());
            loaded = Ok(before.clone());
        }
        self.keys.entry(path).or_insert(loaded).clone()
    }

    /// What is in a file for its owner alone.
    pub(in super::super) fn secret_text(
        &mut self,
        path: PathBuf,
        most: usize,
    ) -> Result<Secret, String> {
        let mut read = secret_file::read(&path, most).map(Secret::new);
        if read.is_err()
            && let Some(before) = self.before.texts.get(&path)
            && secret_file::is_denied(&path)
        {
            self.unread.push(path.clone());
            read = Ok(before.clone());
        }
        let read = read?;
        self.texts.insert(path, read.clone());
        Ok(read)
    }

    /// How a node at this address is read.
    pub(super) fn read_at(
        &mut self,
        node: &NodeFile,
        at: SocketAddr,
        shared: Option<&[Master]>,
        shared_set: bool,
    ) -> Option<NodeRead> {
        let load = &node.load;
        let own = self.keys_of(node, shared);
        let has_key = load.key_file.is_some() || shared_set;
        self.read_keys_fit(load);
        let udp = |rdma| {
            let address = load.address.value;
            let usual = SocketAddr::new(at.ip(), AGENT_PORT);
            Some(NodeRead::Udp {
                address: address.unwrap_or(usual),
                keys: own?,
                rdma,
            })
        };
        match load.transport.value {
            TransportName::None => Some(NodeRead::None),
            TransportName::Auto if has_key => udp(UseRdma::IfAny),
            TransportName::Auto => Some(NodeRead::None),
            TransportName::Udp if has_key => udp(UseRdma::Never),
            TransportName::Rdma if has_key => udp(UseRdma::Wanted),
            TransportName::Udp | TransportName::Rdma => {
                let over = load.transport.value.label().to_uppercase();
                self.problems.push(
                    Problem::new(
                        load.transport.place(),
                        format!("no key to read node `{}` over {over}", node.name.value),
                        "needs a key",
                    )
                    .help("set `key_file` in [load], or here"),
                );
                None
            }
            TransportName::Snmp => self.snmp_read(load, at.ip()),
            TransportName::AgentCheck => self.agent_check_read(load),
            TransportName::Orca => Some(orca_read(load)),
            TransportName::Shm => {
                let path = load.path.value.as_ref().map(|path| self.path(path));
                if path.is_none() {
                    let message = format!("no file to read node `{}` from", node.name.value);
                    self.problem(load.transport.place(), message, "needs `path`");
                }
                path.map(|path| NodeRead::Shm { path })
            }
        }
    }

    /// The keys with which a node is read, if there are any: the first is used.
    fn keys_of(&mut self, node: &NodeFile, shared: Option<&[Master]>) -> Option<Vec<Key>> {
        let load = &node.load;
        let name = load.key_name.value.as_ref().unwrap_or(&node.name.value);
        if let (Some(at), false) = (&load.key_name.at, is_name(name)) {
            let message = format!("bad name `{name}`");
            self.problem(at.clone(), message, "no node's name");
            return None;
        }
        let keys = match &load.key_file.value {
            None => derived(shared?, name),
            Some(path) => match self.keys(path, load.key_file.place(), Ok)? {
                KeyFile::Masters(masters) => derived(&masters, name),
                KeyFile::Nodes(nodes) => nodes,
            },
        };
        if let Some(other) = keys.iter().find(|key| key.node != *name) {
            let message = format!("this is the key of node `{}`, not of `{name}`", other.node);
            let help = format!(
                "if they share an agent, set `key_name = \"{}\"` here",
                other.node
            );
            let problem = Problem::new(load.key_file.place(), message, "here");
            self.problems.push(problem.help(help));
            return None;
        }
        Some(keys.into_iter().map(|key| key.key).collect())
    }

    /// Keys that mean nothing with this transport are mistakes.
    fn read_keys_fit(&mut self, load: &NodeLoadFile) {
        let transport = load.transport.value;
        let udp = matches!(
            transport,
            TransportName::Udp | TransportName::Rdma | TransportName::Auto
        );
        let shm = transport == TransportName::Shm;
        let has_address = udp
            || matches!(
                transport,
                TransportName::Snmp | TransportName::AgentCheck | TransportName::Orca
            );
        let keys = [
            ("address", load.address.at.clone(), has_address),
            ("key_file", load.key_file.at.clone(), udp),
            ("key_name", load.key_name.at.clone(), udp),
            ("path", load.path.at.clone(), shm),
        ];
        for (name, at, fits) in keys.into_iter().chain(Self::reported_keys(load)) {
            if let (Some(at), false) = (at, fits) {
                let message = format!("transport `{}` has no `{name}`", transport.label());
                self.problem(at, message, "means nothing here");
            }
        }
    }
}

/// A node's key under each master.
pub(super) fn derived(masters: &[Master], node: &str) -> Vec<NodeKey> {
    masters.iter().map(|master| master.derive(node)).collect()
}
