//! `tidegate steer`: weights of a balancer that is not Tidegate's follow the loads of its servers, as agents give them.
//!
//! ```text
//! agents ─────> Loads ─────────> Book ────> set server b/s weight N
//!                                 ^
//!                                 ├──────── show servers state                each --interval
//!                                 v
//! front-end ──> FrontEndWord ──> Drains ──> set server b/s state drain|ready  with --drain
//! agents, show stat ───────────> Limits ──> set maxconn server b/s N          with --maxconn
//! ```
//!
//! What is set is put back at the end, on SIGTERM, SIGINT and SIGHUP; what others have set is left alone.

mod book;
mod changes;
mod drains;
mod front_end;
mod hand;
mod limits;
mod loads;
mod runtime_api;
mod servers;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde::Serialize;
use tidegate_core::units::parse_duration;
use tidegate_remote::clock;
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::config::{Config, FrontEnd};
use crate::failure::Failure;
use crate::output::Output;
use crate::signals::Stop;
use book::Book;
use changes::{DrainState, MaxConn, Weight};
use drains::Drains;
use front_end::FrontEndWord;
use hand::{Hand, Steered};
use limits::{Limits, ServerCount};
use loads::Loads;
use runtime_api::{NoAnswer, RuntimeApi};
use servers::{LastProcess, Process, ServerState};

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
    /// Also steer servers whose weight is not the configured one when this begins, and with --drain make those ready that are drained then.
    #[arg(long)]
    take_over: bool,
    /// Also drain servers whose nodes the front-end at the file's `[admin]` address sends nothing: those that are drained there,
    /// ejected, or on their way to another site.
    #[arg(long)]
    drain: bool,
    /// Also set `maxconn`: as many connections as a server can use by its load, and no more than it is configured with. What is
    /// above it waits at HAProxy, for `timeout queue`.
    #[arg(long)]
    maxconn: bool,
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
    /// Times that a server was drained.
    drained: u64,
    /// Times that a `maxconn` was set.
    limited: u64,
    /// Configured weights and `maxconn` that were put back, and servers that were made ready, at the end.
    restored: u64,
    /// Why others were not.
    not_restored: Vec<String>,
}

/// Steers until it is asked to stop.
pub(crate) fn run(args: &SteerArgs, output: Output) -> Result<(), Failure> {
    let Balancer::Haproxy(args) = &args.balancer;
    let config = Config::load(&args.config)?;
    let word = FrontEndWord::new(config.admin, &args.config);
    let front_end = config.front_end.ok_or_else(|| {
        let file = args.config.display();
        Failure::Usage(format!(
            "{file} has no [[site]] and [[node]]: it is an agent's"
        ))
    })?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let word = args.drain.then_some(word);
    runtime.block_on(steer(args, &front_end, word, output))
}

async fn steer(
    args: &HaproxyArgs,
    front_end: &FrontEnd,
    word: Option<FrontEndWord>,
    output: Output,
) -> Result<(), Failure> {
    let mut stop = Stop::with_terminal()?;
    let loads = Loads::start(front_end, args.interval);
    let mut steering = Steering {
        loads: loads.map_err(|error| Failure::Failed(error.to_string()))?,
        hand: Hand {
            api: RuntimeApi::new(&args.socket),
            dry_run: args.dry_run,
            output,
        },
        backend: args.backend.clone(),
        process: LastProcess::default(),
        weights: Steered::new(Book::new(args.take_over)),
        word,
        states: Steered::new(Drains::new(args.take_over)),
        limits: args.maxconn.then(|| Steered::new(Limits::default())),
        is_silent: false,
        turns: 0,
        output,
    };
    if !steering.begin(&mut stop, args.interval).await? {
        return steering.end().await;
    }
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
    hand: Hand,
    backend: Option<String>,
    process: LastProcess,
    weights: Steered<Weight, Book>,
    /// The front-end whose nodes are followed, if one is.
    word: Option<FrontEndWord>,
    states: Steered<DrainState, Drains>,
    /// Limits, if they are set.
    limits: Option<Steered<MaxConn, Limits>>,
    /// HAProxy did not answer, and that was said.
    is_silent: bool,
    /// Turns in which it answered.
    turns: u64,
    output: Output,
}

impl Steering {
    /// Waits until HAProxy answers, and looks: what is wrong from the start ends the command. False: it is asked to stop before.
    async fn begin(&mut self, stop: &mut Stop, every: Duration) -> Result<bool, Failure> {
        let servers = loop {
            match self.servers().await {
                Ok(servers) => break servers,
                Err(NoAnswer::Wrong(why)) => return Err(Failure::Failed(why)),
                Err(NoAnswer::Silent(why)) => self.silent(&why),
            }
            tokio::select! {
                () = stop.wait() => return Ok(false),
                () = sleep(every) => {}
            }
        };
        self.answers();
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
        Ok(true)
    }

    async fn servers(&self) -> Result<Vec<ServerState>, NoAnswer> {
        let command = match &self.backend {
            Some(backend) => format!("show servers state {backend}"),
            None => "show servers state".into(),
        };
        let answer = self.hand.api.ask(&command).await?;
        servers::parse(&answer).map_err(|why| NoAnswer::Wrong(format!("`{command}`: {why}")))
    }

    async fn turn(&mut self) {
        for (name, text) in self.loads.events() {
            self.output.event(name, &text);
        }
        if let Err(why) = self.take_turn().await {
            self.silent(&why.to_string());
        }
    }

    async fn take_turn(&mut self) -> Result<(), NoAnswer> {
        if let Some(word) = &mut self.word
            && let Some((name, text)) = word.ask(clock::now()).await
        {
            self.output.event(name, &text);
        }
        let servers = self.servers().await?;
        self.answers();
        self.turns += 1;
        if self.word.is_some() || self.limits.is_some() {
            self.follow_process().await?;
        }
        if let Some(out) = self.word.as_ref().and_then(FrontEndWord::out) {
            let plan = self.states.keeper.plan(&servers, out);
            self.hand.carry_out(plan, &mut self.states).await?;
        }
        let demands = self.loads.demands();
        if let Some(limits) = &mut self.limits {
            let counts = counts(&self.hand.api).await?;
            let plan = limits
                .keeper
                .plan(&counts, &servers, &demands, clock::now());
            self.hand.carry_out(plan, limits).await?;
        }
        let plan = self.weights.keeper.plan(&servers, &demands);
        self.hand.carry_out(plan, &mut self.weights).await
    }

    /// A process that was started anew has forgotten states and limits. Asked behind the states and before the limits: those of the
    /// process before are not taken for the configured ones of this one.
    async fn follow_process(&mut self) -> Result<(), NoAnswer> {
        let process = Process::parse(&self.hand.api.ask("show info").await?);
        if self.process.is_new(process.map_err(NoAnswer::Wrong)?) {
            self.states.keeper.forget();
            if let Some(limits) = &mut self.limits {
                limits.keeper.forget();
            }
        }
        Ok(())
    }

    fn answers(&mut self) {
        if std::mem::take(&mut self.is_silent) {
            self.output.event("answers", "HAProxy answers");
        }
    }

    fn silent(&mut self, why: &str) {
        if !std::mem::replace(&mut self.is_silent, true) {
            let text = format!("HAProxy does not answer, it is asked again: {why}");
            self.output.event("no_answer", &text);
        }
    }

    /// Puts the configured weights and limits back, makes ready what was drained, and says what could not be.
    async fn end(self) -> Result<(), Failure> {
        let mut report = Report {
            turns: self.turns,
            set: self.weights.set,
            drained: self.states.set,
            limited: self.limits.as_ref().map_or(0, |it| it.set),
            ..Report::default()
        };
        if !self.hand.dry_run {
            self.put_back(&mut report).await;
        }
        let mut text = format!(
            "stopped after {} turns, {} weights set",
            report.turns, report.set
        );
        for (count, what) in [(report.drained, "drains"), (report.limited, "limits set")] {
            if count > 0 {
                text.push_str(&format!(", {count} {what}"));
            }
        }
        text.push_str(&format!(", {} put back", report.restored));
        for why in &report.not_restored {
            text.push_str(&format!("\n  not put back: {why}"));
        }
        self.output.result(&text, &report)?;
        match report.not_restored.is_empty() {
            true => Ok(()),
            false => Err(Failure::Told),
        }
    }

    async fn put_back(&self, report: &mut Report) {
        let mut done = Vec::new();
        match self.servers().await {
            Err(_) if report.set + report.drained == 0 => {}
            Err(why) => report.not_restored.push(why.to_string()),
            Ok(servers) => {
                let weights = self.weights.keeper.restore(&servers);
                done.push(self.hand.put_back(&weights).await);
                let states = self.states.keeper.restore(&servers);
                done.push(self.hand.put_back(&states).await);
            }
        }
        if let Some(limits) = self.limits.as_ref().filter(|it| it.set > 0) {
            match counts(&self.hand.api).await {
                Err(why) => report.not_restored.push(why.to_string()),
                Ok(counts) => {
                    let limits = limits.keeper.restore(&counts);
                    done.push(self.hand.put_back(&limits).await);
                }
            }
        }
        for (restored, not_restored) in done {
            report.restored += restored;
            report.not_restored.extend(not_restored);
        }
    }
}

/// What HAProxy counts of its servers.
async fn counts(api: &RuntimeApi) -> Result<Vec<ServerCount>, NoAnswer> {
    limits::parse(&api.ask(limits::SHOW_STAT).await?).map_err(NoAnswer::Wrong)
}
