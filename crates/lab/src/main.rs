//! The command line of the lab: what can be asked for, and what does it.

mod output;

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use serde_json::json;
use tidegate_lab::awake::{self, Awake, COMMAND};
use tidegate_lab::cluster::{self, Mode};
use tidegate_lab::experiments::{self, ALL, Experiment, Lab, Part, Scale};
use tidegate_lab::progress::Progress;
use tidegate_lab::{antagonist, front, gather, load, monitor, rdma_points, results, server};

/// A goal that was not reached is a verdict; only what could not be done is a failure.
const FAILED: u8 = 1;
const USAGE: u8 = 2;

/// A cluster in a box, on which every claim is measured.
#[derive(Debug, Parser)]
#[command(name = "tidegate-lab", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run an experiment, or `all` of them one after the other.
    Run(RunArgs),
    /// Show the experiments and how long each takes.
    List {
        /// Write JSON for programs instead of text for people.
        #[arg(long)]
        json: bool,
    },
    /// Make one page of all results in a folder.
    Report {
        /// Where the results are.
        #[arg(long, value_name = "DIR", default_value = "results")]
        out: PathBuf,
    },
    /// Remove what labs left behind that were killed.
    Clean {
        /// Also end labs that still run.
        #[arg(long)]
        all: bool,
    },
    /// Show where two results of one experiment do not agree within their ranges.
    #[command(hide = true)]
    Compare {
        /// One NAME.json.
        one: PathBuf,
        /// The other.
        other: PathBuf,
        /// Widens every range by this percentage of its median.
        #[arg(long, value_name = "PERCENT", default_value_t = 0.0)]
        band: f64,
    },
    /// The test server of a node.
    #[command(hide = true)]
    Serve(server::ServeArgs),
    /// A server of gRPC calls.
    #[command(hide = true)]
    ServeCalls(server::CallsArgs),
    /// A neighbour on a node.
    #[command(hide = true)]
    Antagonist(antagonist::AntagonistArgs),
    /// A load generator: plan on standard input, result on standard output.
    #[command(hide = true)]
    Load,
    /// Clients that mean harm.
    #[command(hide = true)]
    Attack(load::attack::AttackArgs),
    /// An agent for HAProxy's agent check, in a node's control group.
    #[command(hide = true)]
    AgentCheck(front::AgentCheckArgs),
    /// The two-sided way to read load: a daemon that reads the kernel's files for every question.
    #[command(hide = true)]
    Gather(gather::GatherArgs),
    /// The front's half of it: asks such daemons, and publishes what they answer.
    #[command(hide = true)]
    Monitor(monitor::MonitorArgs),
    /// Latencies over RDMA and two-sided, on a machine with a device; a line of JSON for each.
    #[command(hide = true, name = rdma_points::COMMAND)]
    RdmaPoints(rdma_points::PointsArgs),
    /// What they are measured at.
    #[command(hide = true, name = rdma_points::TARGET)]
    RdmaTarget(rdma_points::TargetArgs),
    /// Threads that keep the CPUs awake.
    #[command(hide = true, name = COMMAND)]
    Awake,
}

#[derive(Debug, Args)]
struct RunArgs {
    /// The experiment; `tidegate-lab list` shows all.
    name: String,
    /// Within three minutes: fewer arms, points and seconds.
    #[arg(long)]
    quick: bool,
    /// End with one JSON object on standard output.
    #[arg(long)]
    json: bool,
    /// Where NAME.json, NAME.md and NAME.svg are written.
    #[arg(long, value_name = "DIR", default_value = "results")]
    out: PathBuf,
    /// Only these points, to look at closely: nothing is written.
    #[arg(long = "point", value_name = "LABEL")]
    points: Vec<String>,
    /// Only these arms: nothing is written.
    #[arg(long = "arm", value_name = "NAME")]
    arms: Vec<String>,
    /// How nodes are kept apart; by default as well as this machine can.
    #[arg(long, value_enum)]
    mode: Option<ModeArg>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ModeArg {
    /// Network namespaces and CPU quotas; needs root.
    Namespaces,
    /// Emulated servers on 127.0.0.1.
    Loopback,
}

/// Why a command did not do what it was asked.
#[derive(Debug)]
struct Failure {
    code: u8,
    why: String,
}

impl Failure {
    fn usage(why: String) -> Self {
        Self { code: USAGE, why }
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self {
            code: FAILED,
            why: error.to_string(),
        }
    }
}

fn main() -> ExitCode {
    match dispatch(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::note(&format!("tidegate-lab: {}", failure.why));
            ExitCode::from(failure.code)
        }
    }
}

fn dispatch(command: Command) -> Result<(), Failure> {
    match command {
        Command::Run(args) => run(&args),
        Command::List { json } => list(json),
        Command::Report { out } => report(&out),
        Command::Clean { all } => clean(all),
        Command::Compare { one, other, band } => compare(&one, &other, band),
        Command::Serve(args) => Ok(server::run(&args)?),
        Command::ServeCalls(args) => Ok(server::run_calls(&args)?),
        Command::Antagonist(args) => Ok(antagonist::run(&args)?),
        Command::Load => Ok(load::answer(io::stdin().lock(), io::stdout().lock())?),
        Command::Attack(args) => Ok(load::attack::attack(&args, io::stdout().lock())?),
        Command::AgentCheck(args) => Ok(front::agent_check(&args)?),
        Command::Gather(args) => Ok(gather::run(&args)?),
        Command::Monitor(args) => Ok(monitor::run(&args)?),
        Command::RdmaPoints(args) => Ok(rdma_points::run(&args, io::stdout())?),
        Command::RdmaTarget(args) => Ok(rdma_points::target(&args, io::stdout())?),
        Command::Awake => Ok(awake::stay()?),
    }
}

fn run(args: &RunArgs) -> Result<(), Failure> {
    let chosen: Vec<&Experiment> = match args.name.as_str() {
        "all" => ALL.to_vec(),
        name => vec![experiments::find(name).ok_or_else(|| unknown(name))?],
    };
    let mut summaries = Vec::new();
    let mut failed = Vec::new();
    for experiment in &chosen {
        match one(experiment, args) {
            Ok(summary) => summaries.push(summary),
            // The others may still have a result.
            Err(failure) if chosen.len() > 1 => {
                output::note(&format!("{}: {}", experiment.name, failure.why));
                failed.push(experiment.name);
            }
            Err(failure) => return Err(failure),
        }
    }
    if args.json {
        let one = chosen.len() == 1;
        let value = if one {
            summaries.pop()
        } else {
            Some(json!({ "experiments": summaries }))
        };
        output::result(&value.unwrap_or_default().to_string())?;
    }
    match failed.is_empty() {
        true => Ok(()),
        false => Err(Failure {
            code: FAILED,
            why: format!("no result of {}", failed.join(", ")),
        }),
    }
}

/// Runs it and writes its files; the summary.
fn one(experiment: &Experiment, args: &RunArgs) -> Result<serde_json::Value, Failure> {
    let scale = if args.quick {
        Scale::Quick
    } else {
        Scale::Full
    };
    let lab = Lab {
        scale,
        mode: args.mode.map(|mode| match mode {
            ModeArg::Namespaces => Mode::Namespaces,
            ModeArg::Loopback => Mode::Loopback,
        }),
        part: Part {
            points: args.points.clone(),
            arms: args.arms.clone(),
        },
        progress: Progress::new(experiment.name, (experiment.estimate)(scale)),
        awake: Awake::start(&std::env::current_exe()?),
    };
    let report = (experiment.run)(&lab)?;
    lab.progress.finish();
    if !args.json {
        output::result(&results::markdown(&report))?;
    }
    if !lab.part.is_all() {
        return Ok(report.summary());
    }
    let files = results::write(&report, &args.out)?;
    for file in files {
        output::note(&format!("wrote {}", file.display()));
    }
    Ok(report.summary())
}

fn unknown(name: &str) -> Failure {
    let names: Vec<_> = ALL.iter().map(|experiment| experiment.name).collect();
    Failure::usage(format!(
        "no experiment is called {name}; there are: {}, all",
        names.join(", ")
    ))
}

fn list(as_json: bool) -> Result<(), Failure> {
    if as_json {
        let entry = |it: &&Experiment| {
            json!({
                "name": it.name,
                "about": it.about,
                "source": it.source,
                "needs": it.needs,
                "quick_seconds": (it.estimate)(Scale::Quick).as_secs(),
                "full_seconds": (it.estimate)(Scale::Full).as_secs(),
            })
        };
        let experiments: Vec<_> = ALL.iter().map(entry).collect();
        output::result(&json!({ "experiments": experiments }).to_string())?;
        return Ok(());
    }
    output::result(&format!(
        "{:<18} {:>8} {:>8}  what it asks",
        "experiment", "--quick", "full"
    ))?;
    for it in ALL {
        let [quick, full] = [Scale::Quick, Scale::Full].map(|scale| spoken((it.estimate)(scale)));
        output::result(&format!(
            "{:<18} {quick:>8} {full:>8}  {} ({})",
            it.name, it.about, it.source
        ))?;
    }
    Ok(())
}

/// Minutes and seconds.
fn spoken(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

fn report(out: &Path) -> Result<(), Failure> {
    let page = results::write_index(out)?;
    output::note(&format!("wrote {}", page.display()));
    Ok(())
}

fn compare(one: &Path, other: &Path, band: f64) -> Result<(), Failure> {
    let (one, other) = (results::read(one)?, results::read(other)?);
    let (differences, agree) = results::compare(&one, &other, band / 100.0);
    for difference in &differences {
        output::result(&difference.to_string())?;
    }
    let all = agree + differences.len();
    Ok(output::result(&format!("{agree} of {all} metrics agree"))?)
}

fn clean(all: bool) -> Result<(), Failure> {
    let swept = cluster::clean(all)?;
    for what in &swept.removed {
        output::result(what)?;
    }
    if swept.left.is_empty() {
        output::result("nothing is left")?;
        return Ok(());
    }
    Err(Failure {
        code: FAILED,
        why: format!("cannot remove: {}", swept.left.join("; ")),
    })
}
