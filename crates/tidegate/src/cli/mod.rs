//! The command line: what can be asked for, and who does it.

mod commands;
mod show;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use serde_json::json;

use crate::config::ConfigError;
use crate::output::Output;

/// A load-aware front tier for clusters of web servers.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, max_term_width = 100)]
struct Cli {
    /// Write JSON for programs instead of text for people.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Say what is wrong with a configuration file.
    Check {
        /// The configuration file.
        file: PathBuf,
    },
    /// Print a configuration with every default.
    Config {
        /// The configuration file.
        file: PathBuf,
    },
    /// Show sites and nodes of a running front-end.
    Status {
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Say why a node gets the requests that it gets, or how a site chooses.
    Why {
        /// A node or a site.
        name: String,
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Send a node no new requests; those in flight end by themselves.
    Drain(OrderArgs),
    /// Send a node requests again.
    Ready(OrderArgs),
    /// Take a node out of service.
    Maint(OrderArgs),
    /// Print a script that completes commands in a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
}

/// How to reach a running front-end.
#[derive(Debug, Args)]
struct AdminArgs {
    /// Take address and token from the front-end's configuration file.
    #[arg(short, long, value_name = "FILE", conflicts_with = "admin")]
    config: Option<PathBuf>,
    /// The admin address [default: 127.0.0.1:9900].
    #[arg(long, value_name = "ADDRESS")]
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

/// Why a command did not do what it was asked for.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The configuration is bad.
    Config(ConfigError),
    /// The command line asks for something that makes no sense.
    Usage(String),
    /// It was tried and failed.
    Failed(String),
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
    let output = Output { json: cli.json };
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
                output.error(&error.render(output.colour()), Some(problems));
                EXIT_USAGE.into()
            }
            Self::Usage(text) => {
                output.error(&format!("error: {text}"), None);
                EXIT_USAGE.into()
            }
            Self::Failed(text) => {
                output.error(&format!("error: {text}"), None);
                EXIT_FAILED.into()
            }
            // Whoever read the result has seen enough of it.
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
            Self::Output(error) => {
                output.error(&format!("error: cannot write the result: {error}"), None);
                EXIT_FAILED.into()
            }
        }
    }
}
