//! The command line: what can be asked for, and who does it.

mod commands;
pub(crate) mod culprits;
mod key;
mod show;
pub(crate) mod simulate;
mod throttle;

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use serde_json::json;
use tidegate_core::load::Rung;
use tidegate_core::units::parse_duration;
use tidegate_node::{LISTEN_DEFAULT, RUNGS, Scope};
use tidegate_remote::udp::Network;

use crate::config::{ConfigError, parse_rung, parse_scope};
use crate::output::Output;

/// A load-aware front tier for clusters of web servers.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version = env!("TIDEGATE_VERSION"), max_term_width = 100)]
struct Cli {
    /// Write JSON for programs instead of text for people.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve: listen for HTTP and send each request where there is room.
    Run {
        #[command(flatten)]
        file: FileArgs,
        /// Share ports with a tidegate of the same user that runs already: to replace it without a gap.
        #[arg(long)]
        reuse_port: bool,
    },
    /// Stand beside a server: sample its kernel and publish its load.
    Agent(Box<AgentCommand>),
    /// Make the keys with which front-ends read the nodes' loads.
    Key(key::KeyArgs),
    /// Show it all on one machine: two sites on emulated nodes, load, and the live page.
    Demo(DemoArgs),
    /// Say what is wrong with a configuration file.
    Check(FileArgs),
    /// Print a configuration with every default.
    Config(FileArgs),
    /// Show sites and nodes of a running front-end.
    Status {
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Say why a node gets the requests that it gets, how a site chooses, what slows a class.
    Why {
        /// A node, a site, or a throttled class like `GET /search/*`.
        name: String,
        /// Show at most so many of a site's nodes: those with most of its requests.
        #[arg(long, value_name = "N", default_value_t = 10)]
        top: usize,
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Send a node no new requests; those in flight end by themselves.
    Drain(OrderArgs),
    /// Send a node requests again.
    Ready(OrderArgs),
    /// Take a node out of service.
    Maint(OrderArgs),
    /// Slow a class of requests down, which still complete; or list who is slowed.
    Throttle(Box<throttle::ThrottleArgs>),
    /// Let a class of requests go as fast as it may.
    Release {
        /// The class, as it was throttled.
        class: String,
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Play policies against modelled clusters in virtual time.
    Simulate(simulate::SimulateArgs),
    /// Tell which requests load which resource: of a running front-end, or from access logs and sysstat.
    Culprits(Box<culprits::CulpritsArgs>),
    /// Print a script that completes commands in a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
}

/// A configuration file, with or without `-c` before it.
#[derive(Clone, Debug, Args)]
pub(crate) struct FileArgs {
    /// The configuration file.
    #[arg(value_name = "FILE", required_unless_present = "config")]
    file: Option<PathBuf>,
    /// The same, as an option.
    #[arg(short, long, value_name = "FILE", conflicts_with = "file")]
    config: Option<PathBuf>,
}

impl FileArgs {
    /// The file.
    pub(crate) fn path(&self) -> &Path {
        let path = self.file.as_deref().or(self.config.as_deref());
        // One of the two is required.
        path.unwrap_or(Path::new(""))
    }
}

/// How to reach a running front-end.
#[derive(Debug, Args)]
struct AdminArgs {
    /// Take address and token from the front-end's configuration file.
    #[arg(short, long, value_name = "FILE", conflicts_with = "admin")]
    config: Option<PathBuf>,
    /// The admin address, with or without `http://` before it [default: 127.0.0.1:9900].
    #[arg(long, value_name = "ADDRESS", value_parser = admin_address)]
    admin: Option<SocketAddr>,
    /// File with the admin token; TIDEGATE_TOKEN in the environment holds the token itself.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct OrderArgs {
    /// The node.
    node: String,
    #[command(flatten)]
    admin: AdminArgs,
}

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
    /// Time between two samples [default: 1ms].
    #[arg(long, value_name = "DURATION", value_parser = duration)]
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

/// Options of `tidegate demo`.
#[derive(Clone, Debug, Args)]
pub(crate) struct DemoArgs {
    /// End after about so many seconds; fewer than ten tell little.
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub(crate) seconds: u32,
    /// Another seed gives other arrivals and antagonists.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Show one class of requests that costs everybody: it is found, and slowed down at a click.
    #[arg(long)]
    pub(crate) elephant: bool,
    /// Port of the live page; 0 is any free one.
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub(crate) port: u16,
}

/// Why a command did not do what it was asked for.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The configuration is bad.
    Config(ConfigError),
    /// The command line asks for something that makes no sense.
    Usage(String),
    /// It was tried and failed.
    Failed(String),
    /// The same, and its result was printed: it says why.
    Told,
    /// The result could not be written.
    Output(io::Error),
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

/// Exit code: it was tried and failed.
const EXIT_FAILED: u8 = 1;
/// Exit code: bad usage or configuration.
const EXIT_USAGE: u8 = 2;

/// Runs the command of the process's arguments.
pub(crate) fn main() -> ExitCode {
    let cli = Cli::parse();
    let output = Output {
        json: cli.json,
        quiet: false,
    };
    match commands::run(cli.command, output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(output),
    }
}

impl Failure {
    fn report(self, output: Output) -> ExitCode {
        match self {
            Self::Config(error) => {
                let problems = json!({ "ok": false, "problems": error.reports() });
                output.detailed_error(&error.render(output.colour()), &problems);
                EXIT_USAGE.into()
            }
            Self::Usage(text) => {
                output.error(&text);
                EXIT_USAGE.into()
            }
            Self::Failed(text) => {
                output.error(&text);
                EXIT_FAILED.into()
            }
            Self::Told => EXIT_FAILED.into(),
            // Whoever read the result has seen enough of it.
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
            Self::Output(error) => {
                output.error(&format!("cannot write the result: {error}"));
                EXIT_FAILED.into()
            }
        }
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|error| error.to_string())
}

/// Help and errors list the names.
fn agent_rung() -> impl TypedValueParser<Value = Rung> {
    let names = PossibleValuesParser::new(RUNGS.map(Rung::label));
    names.try_map(|name| parse_rung(&name).ok_or("no such rung"))
}

/// An address as a browser has it, or bare; a name is looked up.
fn admin_address(text: &str) -> Result<SocketAddr, String> {
    if text.starts_with("https://") {
        return Err("the admin interface speaks plain HTTP: write http://, or nothing".into());
    }
    let bare = text.strip_prefix("http://").unwrap_or(text);
    let bare = bare.strip_suffix('/').unwrap_or(bare);
    let found = bare.to_socket_addrs().map(|mut found| found.next());
    match found {
        Ok(Some(address)) => Ok(address),
        Ok(None) | Err(_) => Err("an address and a port are needed, like 127.0.0.1:9900".into()),
    }
}

fn scope(text: &str) -> Result<Scope, String> {
    parse_scope(text).map_err(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_admin_address_is_taken_as_a_browser_shows_it() {
        for text in [
            "127.0.0.1:9900",
            "http://127.0.0.1:9900",
            "http://127.0.0.1:9900/",
        ] {
            let address = admin_address(text).unwrap();
            assert_eq!(address, "127.0.0.1:9900".parse().unwrap(), "{text}");
        }
        let six = admin_address("http://[::1]:9900/").unwrap();
        assert_eq!(six, "[::1]:9900".parse().unwrap());
        for text in [
            "",
            "http://",
            "127.0.0.1",
            "https://127.0.0.1:9900",
            "a/b:1",
        ] {
            assert!(admin_address(text).is_err(), "{text}");
        }
    }

    #[test]
    fn every_command_that_reads_a_file_takes_it_both_ways() {
        for command in ["run", "check", "config", "agent"] {
            for arguments in [&["f.toml"][..], &["-c", "f.toml"], &["--config", "f.toml"]] {
                let mut all = vec!["tidegate", command];
                all.extend(arguments);
                let cli = Cli::try_parse_from(all).unwrap();
                let path = if let Command::Agent(agent) = &cli.command {
                    agent.args.settings()
                } else if let Command::Run { file, .. }
                | Command::Check(file)
                | Command::Config(file) = &cli.command
                {
                    Some(file.path())
                } else {
                    None
                };
                assert_eq!(path, Some(Path::new("f.toml")), "{command} {arguments:?}");
            }
            let none = Cli::try_parse_from(["tidegate", command]);
            assert!(none.is_err(), "{command}");
            let both = Cli::try_parse_from(["tidegate", command, "f.toml", "-c", "g.toml"]);
            assert!(both.is_err(), "{command}");
        }
    }

    #[test]
    fn a_negative_rate_is_left_to_the_check_that_names_the_range() {
        let wanted = ["tidegate", "throttle", "GET /a", "--rate", "-1"];
        assert!(Cli::try_parse_from(wanted).is_ok());
    }

    #[test]
    fn a_wrong_rung_is_answered_with_all_that_there_are() {
        let wrong = ["tidegate", "agent", "--key-file", "k", "--rung", "xdp"];
        let why = Cli::try_parse_from(wrong).unwrap_err().to_string();
        for rung in RUNGS {
            assert!(why.contains(rung.label()), "{why}");
        }
    }
}
