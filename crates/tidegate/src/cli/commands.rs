//! What each command does.

use std::path::Path;
use std::time::Duration;

use clap::CommandFactory;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::json;

use super::events;
use super::key;
use super::man;
use super::moves;
use super::node;
use super::quick::SourceArgs;
use super::show;
use super::throttle;
use super::{Cli, Command, OverrideArgs};
use crate::agent;
use crate::client::{AdminArgs, TIMEOUT};
use crate::config::{Config, FrontEnd, NodeSource, print};
use crate::culprits;
use crate::demo;
use crate::discovery;
use crate::doctor::{self, acme_note, log_note, rdma_notes, state_note};
use crate::failure::Failure;
use crate::models::{Overridden, Reloaded, Status, Upgraded, Why};
use crate::output::Output;
use crate::reload::READ_MAX;
use tidegate_discover::Naming;
use tidegate_proxy::PortSharing;

/// Longest wait for a new process that is to take over.
const UPGRADE_TIMEOUT: Duration = Duration::from_secs(60);

/// Does it.
pub(super) fn run(command: Command, output: Output) -> Result<(), Failure> {
    match command {
        Command::Run { source, reuse_port } => run_front_end(&source, reuse_port, output),
        Command::Agent(command) => agent::command(*command, output),
        Command::Key(args) => key::run(args, output),
        Command::Demo(args) => demo::run(&args, output),
        Command::Check(file) => check(file.path(), output),
        Command::Doctor(args) => doctor::run(&args, output),
        Command::Config(source) => effective(&source, output),
        Command::Reload { dry_run, admin } => reload(dry_run, &admin, output),
        Command::Status { admin } => status(&admin, output),
        Command::Top(args) => crate::top::run(&args, output),
        Command::Events(args) => events::run(&args, output),
        Command::Why { name, top, admin } => why(&name, top, &admin, output),
        Command::Drain(order) => override_node(&order, "drain", output),
        Command::Ready(order) => override_node(&order, "ready", output),
        Command::Maint(order) => override_node(&order, "maint", output),
        Command::Node(args) => node::run(args, output),
        Command::Move(args) => moves::order(args, output),
        Command::Moves(args) => moves::show(&args, output),
        Command::Throttle(args) => throttle::throttle(&args, output),
        Command::Release { class, admin } => throttle::release(class, &admin, output),
        Command::Upgrade { admin } => upgrade(&admin, output),
        Command::Steer(args) => crate::steer::run(&args, output),
        Command::Simulate(args) => crate::simulate::run(&args, output),
        Command::Culprits(args) => culprits::command::run(&args, output),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "tidegate", &mut script);
            Ok(output.raw(&String::from_utf8_lossy(&script))?)
        }
        Command::Man(args) => man::run(&args, Cli::command(), output),
    }
}

fn run_front_end(source: &SourceArgs, reuse_port: bool, output: Output) -> Result<(), Failure> {
    let config = source.load()?;
    let sharing = match reuse_port {
        true => PortSharing::Others,
        false => PortSharing::Own,
    };
    crate::run::run(config, source.path(), sharing, output)
}

/// A number of things.
fn counted(number: usize, thing: &str) -> String {
    match number {
        1 => format!("1 {thing}"),
        _ => format!("{number} {thing}s"),
    }
}

/// The nodes that a file names, and its sources of more of them.
fn members(front_end: &FrontEnd) -> (usize, usize) {
    let is_one = |it: &&NodeSource| matches!(it.config.naming, Naming::Single(_));
    let hosted = front_end.sources.iter().filter(is_one).count();
    let nodes = front_end.cluster.nodes.len() + hosted;
    (nodes, front_end.sources.len() - hosted)
}

fn check(file: &Path, output: Output) -> Result<(), Failure> {
    let config = Config::load(file)?;
    agent::check_kept_folder(&config, config.file.process.user.value.as_deref())?;
    let sites = (config.front_end.as_ref()).map_or(0, |it| it.cluster.sites.len());
    let (nodes, sources) = config.front_end.as_ref().map_or((0, 0), members);
    let agent = config.agent.is_some();
    let found = match sources {
        0 => String::new(),
        _ => format!(", and more from {}", counted(sources, "source")),
    };
    let front_end = format!(
        "a front-end of {} and {}{found}",
        counted(sites, "site"),
        counted(nodes, "node")
    );
    let what = match (&config.front_end, agent) {
        (Some(_), true) => format!("{front_end}, and an agent"),
        (Some(_), false) => front_end,
        (None, _) => "an agent".into(),
    };
    let mut notes = config.notes.clone();
    notes.extend(config.front_end.iter().flat_map(discovery::notes));
    notes.extend(state_note(&config, file));
    notes.extend(acme_note(&config, file));
    notes.extend(log_note(&config)?);
    notes.extend(rdma_notes(&config));
    let value = json!({
        "ok": true, "sites": sites, "nodes": nodes, "sources": sources, "agent": agent, "notes": notes
    });
    let mut text = format!("{}: ok, {what}", file.display());
    for note in notes {
        text.push_str(&format!("\nnote: {note}"));
    }
    Ok(output.result(&text, &value)?)
}

fn effective(source: &SourceArgs, output: Output) -> Result<(), Failure> {
    let config = source.load()?;
    let text = print::print(&config.file);
    // The same text for programs: no second way to write a configuration.
    let value: toml::Table = text
        .parse()
        .map_err(|error| Failure::Failed(format!("cannot read the own output: {error}")))?;
    Ok(output.result(&text, &value)?)
}

fn reload(dry_run: bool, args: &AdminArgs, output: Output) -> Result<(), Failure> {
    let path = match dry_run {
        true => "/api/reload?dry_run",
        false => "/api/reload",
    };
    let client = args.client()?.patient(READ_MAX + TIMEOUT);
    let reloaded: Reloaded = client.post(path).map_err(Failure::Failed)?;
    Ok(output.result(&show::reloaded(&reloaded), &reloaded)?)
}

fn status(args: &AdminArgs, output: Output) -> Result<(), Failure> {
    let status: Status = args.client()?.get("/api/status").map_err(Failure::Failed)?;
    Ok(output.result(&show::status(&status), &status)?)
}

fn why(name: &str, top: usize, args: &AdminArgs, output: Output) -> Result<(), Failure> {
    // A class begins its path with a slash; no other name has one.
    let path = match name.contains(" /") {
        true => format!("/api/why/{}", utf8_percent_encode(name, NON_ALPHANUMERIC)),
        false => format!("/api/why/{}", segment(name)?),
    };
    let why: Why = args.client()?.get(&path).map_err(Failure::Failed)?;
    Ok(output.result(&show::why(&why, top), &why)?)
}

fn override_node(order: &OverrideArgs, state: &str, output: Output) -> Result<(), Failure> {
    let path = format!("/api/nodes/{}/{state}", segment(&order.node)?);
    let done: Overridden = order.admin.client()?.post(&path).map_err(Failure::Failed)?;
    let mut text = match (done.state.as_str(), done.in_flight) {
        ("ready", _) | (_, 0) => format!("{}: {}", done.node, done.state),
        (state, in_flight) => format!("{}: {state}, {in_flight} requests in flight", done.node),
    };
    if let Some(warning) = &done.warning {
        text.push_str(&format!("\nwarning: {warning}"));
    }
    Ok(output.result(&text, &done)?)
}

fn upgrade(args: &AdminArgs, output: Output) -> Result<(), Failure> {
    let client = args.client()?.patient(UPGRADE_TIMEOUT);
    let done: Upgraded = client.post("/api/upgrade").map_err(Failure::Failed)?;
    let text = format!("process {} has taken over", done.process);
    Ok(output.result(&text, &done)?)
}

/// A name as a segment of a path: names that no site or node can have are refused here.
pub(super) fn segment(name: &str) -> Result<&str, Failure> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if !name.is_empty() && name.bytes().all(fits) {
        Ok(name)
    } else {
        Err(Failure::Usage(format!(
            "`{name}` is no name of a site or node"
        )))
    }
}
