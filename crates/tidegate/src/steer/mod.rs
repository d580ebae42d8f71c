//! `tidegate steer`: weights of a balancer that is not Tidegate's follow the loads of its servers, as agents give them.
//!
//! ```text
//! agents ──> Loads ──> Book ──> set server b/s weight N
//!                       ^
//!                       └────── show servers state        each --interval
//! ```
//!
//! What is set is put back at the end, on SIGTERM, SIGINT and SIGHUP; what others have set is left alone. States of servers are HAProxy's
//! and the operator's: nothing here drains one or makes it ready.

mod book;
mod loads;
mod runtime_api;
mod servers;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde::Serialize;
use tidegate_core::units::parse_duration;
use tidegate_remote::clock;
use tokio::time::{MissedTickBehavior, interval};

use crate::config::{Config, FrontEnd};
use crate::failure::Failure;
use crate::output::Output;
use crate::signals::Stop;
use book::{Book, Change};
use loads::Loads;
use runtime_api::RuntimeApi;
use servers::ServerState;

/// Between two looks at the loads: forty in the time constant of a mean.
const SAMPLE_EVERY: Duration = Duration::from_millis(50);
/// Shortest and longest `--interval`.
const INTERVALS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(60);

/// `tidegate steer`.
#[derive(Debug, Args)]
pub(crate) struct SteerArgs {
    #[command(subcommand)]
    balancer: Balancer,
}

/// What is steered.
#[derive(Debug, Subcommand)]
enum Balancer {
    /// A running HAProxy, by its runtime API; puts the configured weights back at its end.
    Haproxy(HaproxyArgs),
}

#[derive(Debug, Args)]
struct HaproxyArgs {
    /// A front-end's configuration file, whose nodes HAProxy's servers are.
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// Where HAProxy takes commands: `stats socket PATH level admin` in its configuration.
    #[arg(long, value_name = "PATH")]
    socket: PathBuf,
    /// Steer this backend alone.
    #[arg(long, value_name = "NAME")]
    backend: Option<String>,
    /// Time between two turns.
    #[arg(long, value_name = "DURATION", default_value = "500ms", value_parser = parse_interval)]
    interval: Duration,
    /// Also steer servers whose weight is not the configured one when this begins.
    #[arg(long)]
    take_over: bool,
    /// Only say what would be set.
    #[arg(long)]
    dry_run: bool,
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    let parsed = parse_duration(text).map_err(|error| error.to_string())?;
    match INTERVALS.contains(&parsed) {
        true => Ok(parsed),
        false => Err("from 100ms to 1m".into()),
    }
}

/// What `--json` tells at the end.
#[derive(Debug, Default, Serialize)]
struct Report {
    /// Turns in which HAProxy answered.
    turns: u64,
    /// Weights that were set.
    set: u64,
    /// Servers that have their configured weights again.
    restored: u64,
    /// Why others have not.
    not_restored: Vec<String>,
}

/// Steers until it is asked to stop.
pub(crate) fn run(args: &SteerArgs, output: Output) -> Result<(), Failure> {
    let Balancer::Haproxy(args) = &args.balancer;
    let config = Config::load(&args.config)?;
    let front_end = config.front_end.ok_or_else(|| {
        let file = args.config.display();
        Failure::Usage(format!(
            "{file} has no [[site]] and [[node]]: it is an agent's"
        ))
    })?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(steer(args, &front_end, output))
}

async fn steer(args: &HaproxyArgs, front_end: &FrontEnd, output: Output) -> Result<(), Failure> {
    let mut stop = Stop::with_terminal()?;
    let loads = Loads::start(front_end, args.interval);
    let mut steering = Steering {
        loads: loads.map_err(|error| Failure::Failed(error.to_string()))?,
        api: RuntimeApi::new(&args.socket),
        backend: args.backend.clone(),
        book: Book::new(args.take_over),
        dry_run: args.dry_run,
        shown: Vec::new(),
        is_silent: false,
        report: Report::default(),
        output,
    };
    steering.begin().await?;
    let (mut sample, mut turn) = (interval(SAMPLE_EVERY), interval(args.interval));
    turn.set_missed_tick_behavior(MissedTickBehavior::Delay);
    sample.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // What is read first is known by the second turn.
    turn.tick().await;
    loop {
        tokio::select! {
            () = stop.wait() => break,
            _ = sample.tick() => steering.loads.sample(clock::now()),
            _ = turn.tick() => steering.turn().await,
        }
    }
    steering.end().await
}

struct Steering {
    loads: Loads,
    api: RuntimeApi,
    backend: Option<String>,
    book: Book,
    dry_run: bool,
    /// What a dry run has shown.
    shown: Vec<Change>,
    /// HAProxy did not answer, and that was said.
    is_silent: bool,
    report: Report,
    output: Output,
}

impl Steering {
    /// Looks once, so that what is wrong from the start ends the command.
    async fn begin(&self) -> Result<(), Failure> {
        let servers = self.servers().await.map_err(Failure::Failed)?;
        if let (Some(backend), true) = (&self.backend, servers.is_empty()) {
            return Err(Failure::Failed(format!(
                "HAProxy has no backend `{backend}` with servers"
            )));
        }
        let demands = self.loads.demands();
        let is_node = |it: &&ServerState| it.address.is_some_and(|it| demands.contains_key(&it));
        let nodes = servers.iter().filter(is_node);
        let nodes: Vec<_> = nodes
            .map(|it| format!("{}/{}", it.backend, it.server))
            .collect();
        if nodes.is_empty() {
            let all = servers.iter().filter_map(|it| it.address);
            let all: Vec<_> = all.take(10).map(|it| it.to_string()).collect();
            return Err(Failure::Failed(format!(
                "no server of HAProxy is a node of the configuration; expected the same addresses, HAProxy has: {}",
                all.join(", ")
            )));
        }
        let text = format!("servers that are nodes: {}", nodes.join(", "));
        self.output.event("started", &text);
        Ok(())
    }

    async fn servers(&self) -> Result<Vec<ServerState>, String> {
        let command = match &self.backend {
            Some(backend) => format!("show servers state {backend}"),
            None => "show servers state".into(),
        };
        let answer = self.api.ask(&command).await?;
        servers::parse(&answer).map_err(|why| format!("`{command}`: {why}"))
    }

    async fn turn(&mut self) {
        for (name, text) in self.loads.events() {
            self.output.event(name, &text);
        }
        let servers = match self.servers().await {
            Ok(servers) => servers,
            Err(why) => return self.silent(&why),
        };
        if std::mem::take(&mut self.is_silent) {
            self.output.event("answers_again", "HAProxy answers again");
        }
        self.report.turns += 1;
        let plan = self.book.plan(&servers, &self.loads.demands());
        for (name, text) in &plan.events {
            self.output.event(name, text);
        }
        if self.dry_run {
            return self.show(plan.changes);
        }
        let mut done = Vec::new();
        for change in plan.changes {
            match self.set(&change).await {
                Err(why) => return self.silent(&why),
                Ok(None) => {
                    self.report.set += 1;
                    self.book.on_set(&change);
                    done.push(change);
                }
                Ok(Some(why)) => {
                    self.book.on_refused(&change);
                    let Change {
                        backend, server, ..
                    } = &change;
                    let text = format!("{backend}/{server} is left alone: HAProxy says: {why}");
                    self.output.event("refused", &text);
                }
            }
        }
        if !done.is_empty() {
            self.output.event("weights", &described(&done));
        }
    }

    async fn set(&self, change: &Change) -> Result<Option<String>, String> {
        let Change {
            backend,
            server,
            to,
            ..
        } = change;
        self.api.set_weight(backend, server, *to).await
    }

    fn silent(&mut self, why: &str) {
        if !std::mem::replace(&mut self.is_silent, true) {
            let text = format!("HAProxy does not answer, it is asked again: {why}");
            self.output.event("no_answer", &text);
        }
    }

    /// Says what would be set, if that is something else than before.
    fn show(&mut self, changes: Vec<Change>) {
        if !is_alike(&changes, &self.shown) {
            let text = match changes.is_empty() {
                true => "nothing would be set".into(),
                false => format!("would set {}", described(&changes)),
            };
            self.output.event("would_set", &text);
            self.shown = changes;
        }
    }

    /// Puts the configured weights back, and says what could not be.
    async fn end(mut self) -> Result<(), Failure> {
        match self.servers().await {
            Err(_) if self.report.set == 0 => {}
            Err(why) => self.report.not_restored.push(why),
            Ok(servers) => {
                for change in self.book.restore(&servers) {
                    let said = self.set(&change).await;
                    match said.unwrap_or_else(Some) {
                        None => self.report.restored += 1,
                        Some(why) => {
                            let Change {
                                backend, server, ..
                            } = change;
                            let text = format!("{backend}/{server}: {why}");
                            self.report.not_restored.push(text);
                        }
                    }
                }
            }
        }
        let Report {
            turns,
            set,
            restored,
            not_restored,
        } = &self.report;
        let mut text =
            format!("stopped after {turns} turns, {set} weights set, {restored} put back");
        for why in not_restored {
            text.push_str(&format!("\n  not put back: {why}"));
        }
        self.output.result(&text, &self.report)?;
        match not_restored.is_empty() {
            true => Ok(()),
            false => Err(Failure::Told),
        }
    }
}

/// Whether two dry turns differ by what hovers alone.
fn is_alike(one: &[Change], other: &[Change]) -> bool {
    let alike = |(one, other): (&Change, &Change)| {
        let near = one.to.abs_diff(other.to) * 16 <= other.to;
        near && (&one.backend, &one.server) == (&other.backend, &other.server)
    };
    one.len() == other.len() && one.iter().zip(other).all(alike)
}

fn described(changes: &[Change]) -> String {
    let one = |it: &Change| format!("{}/{} {} to {}", it.backend, it.server, it.from, it.to);
    changes.iter().map(one).collect::<Vec<_>>().join(", ")
}
