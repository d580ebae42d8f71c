//! `tidegate steer`: weights of a balancer that is not Tidegate's follow the loads of its servers, as agents give them.
//!
//! ```text
//! agents ─────> Loads ─────────> Book ────> set server b/s weight N
//!                                 ^
//!                                 ├──────── show servers state                each --interval
//!                                 v
//! front-end ──> FrontEndWord ──> Drains ──> set server b/s state drain|ready  with --drain
//! ```
//!
//! What is set is put back at the end, on SIGTERM, SIGINT and SIGHUP; what others have set is left alone.

mod book;
mod drains;
mod front_end;
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
use book::{Book, Change};
use drains::{DrainPlan, Drains, StateChange};
use front_end::FrontEndWord;
use loads::Loads;
use runtime_api::{NoAnswer, RuntimeApi};
use servers::{Process, ServerState};

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
    /// Configured weights that were put back, and servers that were made ready, at the end.
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
        api: RuntimeApi::new(&args.socket),
        backend: args.backend.clone(),
        book: Book::new(args.take_over),
        word,
        drains: Drains::new(args.take_over),
        dry_run: args.dry_run,
        shown: Vec::new(),
        shown_states: Vec::new(),
        is_silent: false,
        report: Report::default(),
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
    api: RuntimeApi,
    backend: Option<String>,
    book: Book,
    /// The front-end whose nodes are followed, if one is.
    word: Option<FrontEndWord>,
    drains: Drains,
    dry_run: bool,
    /// What a dry run has shown.
    shown: Vec<Change>,
    shown_states: Vec<StateChange>,
    /// HAProxy did not answer, and that was said.
    is_silent: bool,
    report: Report,
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
        let answer = self.api.ask(&command).await?;
        servers::parse(&answer).map_err(|why| NoAnswer::Wrong(format!("`{command}`: {why}")))
    }

    async fn turn(&mut self) {
        for (name, text) in self.loads.events() {
            self.output.event(name, &text);
        }
        let servers = match self.servers().await {
            Ok(servers) => servers,
            Err(why) => return self.silent(&why.to_string()),
        };
        self.answers();
        self.report.turns += 1;
        if let Err(why) = self.drain(&servers).await {
            return self.silent(&why.to_string());
        }
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
                Err(why) => return self.silent(&why.to_string()),
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

    /// Follows the front-end's word, if it is to be followed.
    async fn drain(&mut self, servers: &[ServerState]) -> Result<(), NoAnswer> {
        let Some(word) = &mut self.word else {
            return Ok(());
        };
        if let Some((name, text)) = word.ask(clock::now()).await {
            self.output.event(name, &text);
        }
        let Some(out) = word.out() else {
            return Ok(());
        };
        // Behind the states that are compared with what was set: a process that has forgotten them is another one by now.
        let process = Process::parse(&self.api.ask("show info").await?);
        self.drains.on_process(process.map_err(NoAnswer::Wrong)?);
        let plan = self.drains.plan(servers, out);
        if self.dry_run {
            self.show_states(plan);
            return Ok(());
        }
        for (name, text) in plan.events {
            self.output.event(name, &text);
        }
        for change in plan.changes {
            match self.api.set_state(&change).await? {
                None => {
                    self.report.drained += u64::from(change.drain);
                    self.drains.on_set(&change);
                }
                Some(why) => {
                    self.drains.on_refused(&change);
                    let StateChange {
                        backend, server, ..
                    } = change;
                    let text = format!("{backend}/{server} is left alone: HAProxy says: {why}");
                    self.output.event("refused", &text);
                }
            }
        }
        Ok(())
    }

    /// Says which states would be set, if that is something else than before.
    fn show_states(&mut self, plan: DrainPlan) {
        if plan.changes != self.shown_states {
            let one = |it: &StateChange| {
                let what = if it.drain { "drain" } else { "make ready" };
                format!("{what} {}/{}", it.backend, it.server)
            };
            let all: Vec<_> = plan.changes.iter().map(one).collect();
            let text = match all.is_empty() {
                true => "nothing would be drained".into(),
                false => format!("would {}", all.join(", ")),
            };
            self.output.event("would_drain", &text);
            self.shown_states = plan.changes;
        }
    }

    async fn set(&self, change: &Change) -> Result<Option<String>, NoAnswer> {
        let Change {
            backend,
            server,
            to,
            ..
        } = change;
        self.api.set_weight(backend, server, *to).await
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

    fn note_restored(
        &mut self,
        backend: &str,
        server: &str,
        said: Result<Option<String>, NoAnswer>,
    ) {
        match said.unwrap_or_else(|why| Some(why.to_string())) {
            None => self.report.restored += 1,
            Some(why) => {
                let text = format!("{backend}/{server}: {why}");
                self.report.not_restored.push(text);
            }
        }
    }

    /// Puts the configured weights back, makes ready what was drained, and says what could not be.
    async fn end(mut self) -> Result<(), Failure> {
        match self.servers().await {
            Err(_) if self.report.set + self.report.drained == 0 => {}
            Err(why) => self.report.not_restored.push(why.to_string()),
            Ok(servers) => {
                for change in self.book.restore(&servers) {
                    let said = self.set(&change).await;
                    self.note_restored(&change.backend, &change.server, said);
                }
                for change in self.drains.restore(&servers) {
                    let said = self.api.set_state(&change).await;
                    self.note_restored(&change.backend, &change.server, said);
                }
            }
        }
        let Report {
            turns,
            set,
            drained,
            restored,
            not_restored,
        } = &self.report;
        let mut text = format!("stopped after {turns} turns, {set} weights set");
        if *drained > 0 {
            text.push_str(&format!(", {drained} drains"));
        }
        text.push_str(&format!(", {restored} put back"));
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
