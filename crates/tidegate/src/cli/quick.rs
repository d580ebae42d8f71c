//! A front-end without a file: `tidegate run --listen 127.0.0.1:8080 --to 10.0.0.11:80 --to web.internal:80`, or the
//! file that stands for it.
//!
//! Everything else has its default: one site for all hosts, the policy `auto`, the page at the admin address. A host
//! name is looked up again when its TTL is over; each address that it has is a node.

use std::fmt::Write as _;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};

use clap::Args;
use toml::Value;

use crate::config::Config;
use crate::config::address::NodeAddress;
use crate::failure::Failure;

/// What the text of such a front-end is called in messages.
const NAME: &str = "the command line";
/// The site that is served.
const SITE: &str = "all";
/// Letters of a host name that a name begins with.
const HOST_LETTERS: usize = 50;

/// A configuration: a file, or a front-end in a few words.
#[derive(Clone, Debug, Args)]
pub(crate) struct SourceArgs {
    /// The configuration file.
    #[arg(value_name = "FILE", required_unless_present_any = ["config", "to"])]
    file: Option<PathBuf>,
    /// The same, as an option.
    #[arg(short, long, value_name = "FILE", conflicts_with = "file")]
    config: Option<PathBuf>,
    /// Without a file: listen here, as `0.0.0.0:80`. As often as wanted.
    #[arg(long, value_name = "ADDRESS", requires = "to", conflicts_with_all = ["file", "config"])]
    listen: Vec<SocketAddr>,
    /// Without a file: a server to send requests to, as `10.0.0.11:80` or `web.internal:80`. As often as wanted.
    #[arg(long, value_name = "HOST:PORT", requires = "listen", conflicts_with_all = ["file", "config"])]
    to: Vec<String>,
    /// Without a file: page, API and metrics are here.
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["file", "config"], default_value = "127.0.0.1:9900")]
    admin: SocketAddr,
}

impl SourceArgs {
    /// The file, if there is one.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.file.as_deref().or(self.config.as_deref())
    }

    /// What is configured.
    pub(super) fn load(&self) -> Result<Config, Failure> {
        match self.path() {
            Some(path) => Ok(Config::load(path)?),
            None => {
                let text = text(self.admin, &self.listen, &self.servers()?);
                Ok(Config::parse(&text, NAME, Path::new(""))?)
            }
        }
    }

    /// All servers, each once, in their order. A name that leads nowhere is a mistake here.
    fn servers(&self) -> Result<Vec<NodeAddress>, Failure> {
        let mut servers = Vec::new();
        for text in &self.to {
            let usage = |why: &dyn ToString| {
                let why = why.to_string();
                Failure::Usage(format!(
                    "--to {text}: {why}; expected HOST:PORT, like 10.0.0.11:80"
                ))
            };
            let server = NodeAddress::parse(text);
            let server = server.ok_or_else(|| usage(&"not an address with a port"))?;
            text.to_socket_addrs().map_err(|error| usage(&error))?;
            if !servers.contains(&server) {
                servers.push(server);
            }
        }
        Ok(servers)
    }
}

/// The configuration as a file would have it.
fn text(admin: SocketAddr, listen: &[SocketAddr], servers: &[NodeAddress]) -> String {
    let mut text = format!("[admin]\naddress = \"{admin}\"\n");
    let mut table = |name: &str, keys: &[(&str, Value)]| {
        // A string takes whatever is written to it.
        writeln!(text, "[[{name}]]").ok();
        for (key, value) in keys {
            writeln!(text, "{key} = {value}").ok();
        }
    };
    let string = |value: &dyn ToString| Value::String(value.to_string());
    for address in listen {
        table("listener", &[("address", string(address))]);
    }
    let hosts = Value::Array(vec![string(&"*")]);
    table("site", &[("name", string(&SITE)), ("hosts", hosts)]);
    for server in servers {
        let name = name(server);
        match server {
            NodeAddress::At(address) => {
                let keys = [
                    ("name", string(&name)),
                    ("address", string(address)),
                    ("site", string(&SITE)),
                ];
                table("node", &keys);
            }
            NodeAddress::Host { host, port } => {
                let keys = [
                    ("name", string(&name)),
                    ("site", string(&SITE)),
                    ("dns", string(host)),
                    ("port", Value::Integer((*port).into())),
                ];
                table("discover", &keys);
            }
        }
    }
    text
}

/// A name: the address in letters that names have, and no more of them.
fn name(server: &NodeAddress) -> String {
    let host = match server {
        NodeAddress::At(address) => address.ip().to_string().replace(':', "-"),
        NodeAddress::Host { host, .. } => host[..host.len().min(HOST_LETTERS)].to_owned(),
    };
    format!("{host}_{}", server.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_front_end_in_a_few_words_is_one_for_all_hosts() {
        let listen = [
            "127.0.0.1:8080".parse().unwrap(),
            "[::1]:8080".parse().unwrap(),
        ];
        let servers = ["10.0.0.11:80", "[fd00::1]:80", "web.internal:80"];
        let servers = servers.map(|text| NodeAddress::parse(text).unwrap());
        let admin = "127.0.0.1:1".parse().unwrap();
        let config = Config::parse(&text(admin, &listen, &servers), NAME, Path::new("")).unwrap();
        let front_end = config.front_end.unwrap();
        assert_eq!(config.admin.address, admin);
        let at: Vec<_> = front_end.listeners.iter().map(|it| it.address).collect();
        assert_eq!(at, listen);
        assert_eq!(front_end.cluster.sites[0].hosts, ["*"]);
        let nodes = front_end.cluster.nodes.iter();
        let nodes: Vec<_> = nodes.map(|it| (it.name.as_str(), it.address)).collect();
        let at = |place: usize| servers[place].fixed().unwrap();
        assert_eq!(nodes, [("10.0.0.11_80", at(0)), ("fd00--1_80", at(1))]);
        let source = &front_end.sources[0];
        assert_eq!(source.config.name, "web.internal_80");
        assert_eq!(source.config.kind.to_string(), "dns web.internal, port 80");
    }
}
