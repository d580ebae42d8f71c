//! The command line: what can be asked for, and the module that does it.

mod commands;
mod events;
mod key;
mod man;
mod moves;
mod node;
mod quick;
mod show;
mod throttle;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

use crate::agent::AgentCommand;
use crate::client::AdminArgs;
use crate::culprits::command::CulpritsArgs;
use crate::demo::DemoArgs;
use crate::doctor::DoctorArgs;
use crate::output::Output;
use crate::simulate::SimulateArgs;
use crate::steer::SteerArgs;
use crate::top::TopArgs;
use crate::upgrade::successor;
use events::EventsArgs;
use quick::SourceArgs;

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
        source: Box<SourceArgs>,
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
    /// Say what could go wrong on this machine, and what to do about it; changes nothing.
    Doctor(DoctorArgs),
    /// Print a configuration with every default.
    Config(Box<SourceArgs>),
    /// Have a running front-end read its configuration file again and put it in force.
    Reload {
        /// Only say what that would do.
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Show sites and nodes of a running front-end.
    Status {
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Watch sites, nodes, loads and the last requests of a running front-end; `?` explains the keys.
    Top(TopArgs),
    /// Show what happened at a running front-end, and what operators ordered, the newest last.
    Events(EventsArgs),
    /// Say why a node gets the requests that it gets, how a site chooses, what slows a class, what became of a request.
    Why {
        /// A node, a site, a throttled class like `GET /search/*`, or a request's id from the access log.
        name: String,
        /// Show at most so many of a site's nodes: those with most of its requests.
        #[arg(long, value_name = "N", default_value_t = 10)]
        top: usize,
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Send a node no new requests; those in flight end by themselves.
    Drain(OverrideArgs),
    /// Send a node requests again.
    Ready(OverrideArgs),
    /// Take a node out of service.
    Maint(OverrideArgs),
    /// Add, change and remove nodes of a running front-end.
    Node(node::NodeArgs),
    /// Have a node serve another site.
    Move(moves::MoveArgs),
    /// Show which nodes have moved between sites and what each site is in need of, or keep load from moving any.
    Moves(moves::MovesArgs),
    /// Slow a class of requests down, which still complete; or list what is slowed.
    Throttle(Box<throttle::ThrottleArgs>),
    /// Let a class of requests go as fast as it may.
    Release {
        /// The class, as it was throttled.
        class: String,
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Have a new process take a front-end's place, without a client noticing: after its program was replaced.
    Upgrade {
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Have the weights of another balancer follow the loads of its servers.
    Steer(SteerArgs),
    /// Play policies against modelled clusters in virtual time.
    Simulate(SimulateArgs),
    /// Tell which requests load which resource: of a running front-end, or from access logs and sysstat.
    Culprits(Box<CulpritsArgs>),
    /// Print a script that completes commands in a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Print the manual page, or write the pages of all commands and of the configuration file.
    Man(man::ManArgs),
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

#[derive(Debug, Args)]
struct OverrideArgs {
    /// The node.
    node: String,
    #[command(flatten)]
    admin: AdminArgs,
}

/// Runs the command of the process's arguments.
pub(crate) fn main() -> ExitCode {
    successor::attend();
    let cli = Cli::parse();
    let output = Output {
        json: cli.json,
        quiet: false,
        log: None,
    };
    match commands::run(cli.command, output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            successor::fail(&failure.text());
            failure.report(output)
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_node::RUNGS;

    use super::*;

    #[test]
    fn every_command_that_reads_a_file_takes_it_both_ways() {
        for command in ["run", "check", "config", "agent"] {
            for arguments in [&["f.toml"][..], &["-c", "f.toml"], &["--config", "f.toml"]] {
                let mut all = vec!["tidegate", command];
                all.extend(arguments);
                let cli = Cli::try_parse_from(all).unwrap();
                let path = if let Command::Agent(agent) = &cli.command {
                    agent.args.settings()
                } else if let Command::Run { source, .. } | Command::Config(source) = &cli.command {
                    source.path()
                } else if let Command::Check(file) = &cli.command {
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
    fn a_front_end_has_a_file_or_addresses_and_not_both() {
        let parses = |arguments: &str| {
            let all = format!("tidegate run {arguments}");
            Cli::try_parse_from(all.split(' ')).is_ok()
        };
        assert!(parses(
            "--listen 127.0.0.1:8080 --to 10.0.0.1:80 --to web:80"
        ));
        assert!(!parses("--listen 127.0.0.1:8080"));
        assert!(!parses("--to 10.0.0.1:80"));
        assert!(!parses("--listen 8080 --to 10.0.0.1:80"));
        assert!(!parses("f.toml --listen 127.0.0.1:8080 --to 10.0.0.1:80"));
        assert!(!parses(
            "-c f.toml --listen 127.0.0.1:8080 --to 10.0.0.1:80"
        ));
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
