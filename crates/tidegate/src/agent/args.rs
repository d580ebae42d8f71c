//! Arguments of `tidegate agent`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use tidegate_core::load::Rung;
use tidegate_core::units::parse_duration;
use tidegate_node::{LISTEN_DEFAULT, RUNGS, Scope};
use tidegate_remote::udp::Network;

use crate::config::{AgentxMaster, parse_rung, parse_scope};

/// `tidegate agent`, or one of its commands.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct AgentCommand {
    #[command(subcommand)]
    pub(crate) action: Option<AgentAction>,
    #[command(flatten)]
    pub(crate) args: AgentArgs,
}

/// An agent without a process.
#[derive(Debug, Subcommand)]
pub(crate) enum AgentAction {
    /// Put programs into the kernel that answer from then on, and leave no process behind.
    Install(Box<AgentArgs>),
    /// Take them out again.
    Uninstall {
        /// The port at which they answer.
        #[arg(long, default_value_t = LISTEN_DEFAULT.port())]
        port: u16,
    },
    /// Say what is installed and what it has done.
    Show {
        /// The port at which it answers.
        #[arg(long, default_value_t = LISTEN_DEFAULT.port())]
        port: u16,
    },
}

/// Options of `tidegate agent`; each overrides the configuration file.
#[derive(Debug, Args)]
pub(crate) struct AgentArgs {
    /// Take the settings from the agent's table of this file.
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// The same, as an option.
    #[arg(short, long, value_name = "FILE", conflicts_with = "file")]
    pub(crate) config: Option<PathBuf>,
    /// Where front-ends ask, over UDP [default: 0.0.0.0:9901].
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<SocketAddr>,
    /// File with this node's key, as `tidegate key derive` gives it.
    #[arg(long, value_name = "FILE", required_unless_present_any = ["config", "file"])]
    pub(crate) key_file: Option<PathBuf>,
    /// Shortest time between two samples [default: 1ms].
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) interval: Option<Duration>,
    /// Also publish in shared memory under this name, for front-ends on this host.
    #[arg(long, value_name = "NAME")]
    pub(crate) shm: Option<PathBuf>,
    /// `host`, or the path of the cgroup to measure [default: host].
    #[arg(long, value_parser = scope)]
    pub(crate) scope: Option<Scope>,
    /// A process (name or pid file) whose open files are held against its limit; repeatable.
    #[arg(long, value_name = "PROCESS")]
    pub(crate) watch: Vec<String>,
    /// Stay at normal priority.
    #[arg(long)]
    pub(crate) no_realtime: bool,
    /// Try only these ways to answer reads, best first; repeatable.
    #[arg(long = "rung", value_name = "RUNG", value_parser = agent_rung())]
    pub(crate) rungs: Vec<Rung>,
    /// Listen only to these networks; repeatable.
    #[arg(long, value_name = "NETWORK")]
    pub(crate) allow: Vec<Network>,
    /// Become this user, by name or number, with its own group alone; only root can.
    #[arg(long, value_name = "USER")]
    pub(crate) user: Option<String>,
    /// Answer HAProxy's agent check here, over TCP.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) agent_check: Option<SocketAddr>,
    /// Serve the load record as metrics here, over HTTP, at `/metrics`.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) metrics: Option<SocketAddr>,
    /// Stream the load as ORCA reports here, to Envoy and clients of gRPC, over HTTP/2.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) orca: Option<SocketAddr>,
    /// Serve the load record to the host's `snmpd`, which listens for subagents here: a Unix socket, or `tcp:ADDRESS`.
    #[arg(long, value_name = "MASTER")]
    pub(crate) agentx: Option<AgentxMaster>,
    /// The other end of a virtual cable (veth) has an XDP program, so native answers arrive.
    #[arg(long)]
    pub(crate) veth_native: bool,
}

impl AgentArgs {
    /// The file with the agent's table.
    pub(crate) fn settings(&self) -> Option<&Path> {
        self.file.as_deref().or(self.config.as_deref())
    }
}

/// Help and errors list the names.
fn agent_rung() -> impl TypedValueParser<Value = Rung> {
    let names = PossibleValuesParser::new(RUNGS.map(Rung::label));
    names.try_map(|name| parse_rung(&name).ok_or("no such rung"))
}

fn scope(text: &str) -> Result<Scope, String> {
    parse_scope(text).map_err(str::to_owned)
}
