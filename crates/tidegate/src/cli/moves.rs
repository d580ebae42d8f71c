//! `tidegate move` and `tidegate moves`: nodes that go to another site.

use std::time::Duration;

use clap::{Args, ValueEnum};
use tidegate_core::moves::words::NODES_MAX;
use tidegate_remote::clock;

use crate::client::{AdminArgs, Client};
use crate::failure::Failure;
use crate::moves::models::{
    FreezeRequest, HeldBackNode, MoveDone, MoveRecord, MoveRequest, MoveUnderWay, MovesSite,
    MovesStatus, WaitingNode,
};
use crate::output::Output;

/// So many nodes, or more, are as many as there are.
const NO_CEILING: u32 = NODES_MAX as u32;

/// Between two looks at a move that is under way.
const LOOK: Duration = Duration::from_millis(100);

/// `tidegate move`.
#[derive(Debug, Args)]
pub(super) struct MoveArgs {
    /// The node.
    node: String,
    /// The site that it is to serve.
    site: String,
    /// Only say whether it may.
    #[arg(long)]
    dry_run: bool,
    /// Also if its site has fewer nodes than its `min` then.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    admin: AdminArgs,
}

/// `tidegate moves`.
#[derive(Debug, Args)]
pub(super) struct MovesArgs {
    /// `pause` keeps load from moving nodes until `resume`; operators still can. `freeze` lets a site neither get nor give a
    /// node, at any front-end, until `thaw`.
    order: Option<MovesOrder>,
    /// The site to freeze or thaw.
    #[arg(required_if_eq_any([("order", "freeze"), ("order", "thaw")]))]
    site: Option<String>,
    #[command(flatten)]
    admin: AdminArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum MovesOrder {
    /// Load moves nothing.
    Pause,
    /// It does again.
    Resume,
    /// A site neither gets nor gives a node.
    Freeze,
    /// It does again.
    Thaw,
}

/// Moves a node.
pub(super) fn order(args: MoveArgs, output: Output) -> Result<(), Failure> {
    let MoveArgs {
        node,
        site,
        dry_run,
        force,
        admin,
    } = args;
    let request = MoveRequest {
        node,
        site,
        dry_run,
        force,
    };
    let client = admin.client()?;
    let done = client.post_json("/api/moves", &request);
    let done: MoveDone = done.map_err(Failure::Failed)?;
    let done = match done.number.filter(|_| done.under_way) {
        Some(number) => await_end(&client, number, done)?,
        None => done,
    };
    let verb = match done.moved {
        true => "moved",
        false => "can move",
    };
    let mut text = format!("{verb}: {} from {} to {}", done.node, done.from, done.to);
    if let Some(warning) = &done.warning {
        text.push_str(&format!("\nwarning: {warning}"));
    }
    Ok(output.result(&text, &done)?)
}

/// Looks until a move is over.
fn await_end(client: &Client, number: u64, done: MoveDone) -> Result<MoveDone, Failure> {
    loop {
        let status: MovesStatus = client.get("/api/moves").map_err(Failure::Failed)?;
        let over = status.moves.iter().find(|it| it.number == number);
        match over.map(|it| it.failed.clone()) {
            Some(Some(why)) => return Err(Failure::Failed(why)),
            Some(None) => {
                return Ok(MoveDone {
                    moved: true,
                    under_way: false,
                    ..done
                });
            }
            None if status.under_way.iter().any(|it| it.number == number) => {
                clock::sleep_until(clock::now() + LOOK);
            }
            None => {
                let text = "the front-end does not know of that move any more: see its log";
                return Err(Failure::Failed(text.into()));
            }
        }
    }
}

/// Shows what is known of moves, after an order if one is given.
pub(super) fn show(args: &MovesArgs, output: Output) -> Result<(), Failure> {
    let client = args.admin.client()?;
    let site = args.site.clone().map(|site| FreezeRequest { site });
    let status: Result<MovesStatus, String> = match (args.order, &site) {
        (None, None) => client.get("/api/moves"),
        (Some(MovesOrder::Pause), None) => client.post("/api/moves/pause"),
        (Some(MovesOrder::Resume), None) => client.post("/api/moves/resume"),
        (Some(MovesOrder::Freeze), Some(site)) => client.post_json("/api/moves/freeze", site),
        (Some(MovesOrder::Thaw), Some(site)) => client.post_json("/api/moves/thaw", site),
        _ => Err("`freeze` and `thaw` need a site, and nothing else takes one".into()),
    };
    let status = status.map_err(Failure::Failed)?;
    Ok(output.result(&text(&status), &status)?)
}

fn text(status: &MovesStatus) -> String {
    let mut lines = Vec::new();
    if status.paused {
        lines.push("load moves no node: paused by an operator".to_owned());
    } else if status.dry_run {
        lines.push("load moves no node: a dry run".to_owned());
    }
    if let Some(trouble) = &status.trouble {
        lines.push(trouble.clone());
    }
    lines.extend(status.sites.iter().map(site));
    let unfollowed = status.unfollowed.iter();
    lines.extend(unfollowed.map(|it| format!("{} is not moved: {}", it.node, it.why)));
    lines.extend(status.waiting.iter().map(WaitingNode::text));
    lines.extend(status.held_back.iter().map(HeldBackNode::text));
    lines.extend(status.under_way.iter().map(under_way));
    if status.moves.is_empty() && status.under_way.is_empty() {
        lines.push("no node has moved".into());
    }
    lines.extend(status.moves.iter().map(moved));
    lines.join("\n")
}

fn site(shown: &MovesSite) -> String {
    let MovesSite {
        site,
        nodes,
        min,
        max,
        frozen,
        verdict,
        ..
    } = shown;
    let frozen = match frozen {
        true => ", frozen by an operator",
        false => "",
    };
    let pressure = shown
        .pressure
        .map_or(String::new(), |it| format!(", {it:.1} tasks per CPU"));
    let bounds = match *max >= NO_CEILING {
        true => format!("at least {min}"),
        false => format!("{min} to {max}"),
    };
    format!("{site}: {nodes} nodes ({bounds}){pressure}{frozen}; {verdict}")
}

fn under_way(shown: &MoveUnderWay) -> String {
    let MoveUnderWay {
        node,
        from,
        to,
        cause,
        state,
        seconds,
        in_flight,
        connections,
        ..
    } = shown;
    let connections = connections.map_or(String::new(), |it| format!(", {it} connections"));
    format!(
        "under way: {node}: {from} -> {to} ({cause}), {state} for {seconds:.1} s, {in_flight} requests there{connections}"
    )
}

fn moved(record: &MoveRecord) -> String {
    let MoveRecord {
        at,
        node,
        from,
        to,
        cause,
        ..
    } = record;
    let other = match record.own {
        true => "",
        false => ", made elsewhere",
    };
    let failed = record.failed.as_ref();
    let failed = failed.map_or(String::new(), |why| format!("; not carried through: {why}"));
    let pressure = record.pressure.zip(record.expected);
    let pressure = pressure.map_or(String::new(), |(before, after)| {
        format!(", {before:.1} tasks per CPU, {after:.1} expected")
    });
    format!("{at}  {node}: {from} -> {to} ({cause}{pressure}{other}){failed}")
}
