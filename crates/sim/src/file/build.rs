//! From tables whose keys and types are right to a [`ScenarioFile`]: ranges, and what belongs
//! together.

use std::ops::Range;
use std::time::Duration;

use tidegate_core::admission::{AdmissionConfig, AdmissionKind, Priority, StaticLimits};
use tidegate_core::topology::{AdminState, NodeId};
use toml::Spanned;

use super::check::{Checked, maybe_time_within, maybe_within, time_within, within};
use super::error::FileError;
use super::nodes;
use super::tables::{
    AdmissionTable, BurstsTable, DemandTable, ExpectTable, FaultName, FaultTable, FileTable,
    FrontEndsTable, LeaveTable, NetworkTable, Shape, SiteTable, Time,
};
use super::{HOUR, ScenarioFile};
use crate::model::{Arrivals, Demand};
use crate::scenario::{
    Expect, Fault, FaultKind, FrontEnds, Io, Leave, Network, NodeOverride, Scenario, SiteModel,
};

/// Bounds: beyond them a run would not end, or not fit into memory.
const REQUESTS_MAX: u32 = 100_000_000;
const FRONT_ENDS_MAX: u32 = 1000;
const SITES_MAX: usize = 100;
const LOAD_MAX: f64 = 10.0;
/// Requests of the short run whose exact result is kept, unless the file says otherwise.
const GOLDEN_REQUESTS: u32 = 200;
/// A fault without an end lasts so many times as long as requests are expected to come.
const RUNS_UNTIL_END: u32 = 10;
/// Most outages of a flapping node.
const OUTAGES_MAX: f64 = 1e6;
const MICROSECOND: Duration = Duration::from_micros(1);

pub(super) fn build(file: FileTable) -> Checked<ScenarioFile> {
    let name = file.name.get_ref().trim();
    if name.is_empty() {
        return Err(FileError::new(
            file.name.span(),
            "the name is empty",
            "a name is needed",
        ));
    }
    let sites = sites(&file.site)?;
    let nodes = nodes::build(&file.nodes, sites.len())?;
    let count = nodes.len();
    let requests = within(&file.requests, "requests", 1..=REQUESTS_MAX)?;
    let golden = maybe_within(
        file.golden_requests.as_ref(),
        "golden_requests",
        1..=requests,
    )?;
    let warm_up = maybe_within(file.warm_up.as_ref(), "warm_up", 0.0..=0.9)?;
    let mut scenario = Scenario {
        seed: file.seed,
        nodes,
        sites,
        front_ends: front_ends(&file.front_ends)?,
        network: network(&file.network)?,
        requests,
        warm_up: warm_up.unwrap_or(Scenario::new(1, 1, 1.0).warm_up),
        overrides: Vec::new(),
        leaves: leaves(&file.leave, count)?,
        faults: Vec::new(),
        expect: expect(&file.expect),
        series: None,
    };
    let end = scenario.length().saturating_mul(RUNS_UNTIL_END);
    scenario.faults = faults(&file.fault, count, end)?;
    for join in &file.join {
        for node in node_ids(&join.nodes, count)? {
            scenario = scenario.joins(node, join.at.0);
        }
    }
    for change in &file.r#override {
        let state = state(&change.state)?;
        let overrides = node_ids(&change.nodes, count)?;
        let at = change.at.0;
        let overrides = overrides
            .into_iter()
            .map(|node| NodeOverride { at, node, state });
        scenario.overrides.extend(overrides);
    }
    Ok(ScenarioFile {
        name: name.to_owned(),
        description: file.description,
        source: file.source,
        family: file.family,
        half: file.half,
        guessed: file.guessed,
        golden_requests: golden.unwrap_or(GOLDEN_REQUESTS.min(requests)),
        scenario,
    })
}

fn front_ends(table: &FrontEndsTable) -> Checked<FrontEnds> {
    Ok(FrontEnds {
        count: within(&table.count, "count", 1..=FRONT_ENDS_MAX)?,
        subset: maybe_within(table.subset.as_ref(), "subset", 1..=nodes::COUNT_MAX)?,
        tick: maybe_time_within(table.tick.as_ref(), "tick", 100 * MICROSECOND..=HOUR)?
            .unwrap_or(Duration::from_millis(1)),
        timeout: maybe_time_within(table.timeout.as_ref(), "timeout", MICROSECOND..=HOUR)?,
        words: table.words.unwrap_or(true),
        in_turn: false,
    })
}

fn network(table: &NetworkTable) -> Checked<Network> {
    let delay = maybe_time_within(table.delay.as_ref(), "delay", MICROSECOND..=HOUR)?;
    Ok(Network {
        delay: delay.unwrap_or(100 * MICROSECOND),
        jitter: table.jitter.0,
    })
}

fn sites(tables: &Spanned<Vec<SiteTable>>) -> Checked<Vec<SiteModel>> {
    let count = tables.get_ref().len();
    if !(1..=SITES_MAX).contains(&count) {
        return Err(FileError::new(
            tables.span(),
            format!("there must be 1 to {SITES_MAX} sites"),
            format!("there are {count}"),
        ));
    }
    tables.get_ref().iter().map(site).collect()
}

/// The shares of the priorities, the highest first.
fn shares(table: &Spanned<Vec<f64>>) -> Checked<Vec<f64>> {
    let shares = table.get_ref();
    let known = (1..=Priority::COUNT).contains(&shares.len());
    if known && shares.iter().all(|share| *share > 0.0 && share.is_finite()) {
        return Ok(shares.clone());
    }
    Err(FileError::new(
        table.span(),
        format!(
            "`priorities` must be 1 to {} shares above zero",
            Priority::COUNT
        ),
        "of the requests, the highest priority first",
    ))
}

fn admission(table: &AdmissionTable, priorities: usize) -> Checked<AdmissionConfig> {
    let mode = table.mode.get_ref();
    let kinds = AdmissionKind::ALL.iter();
    let kinds = kinds.filter(|(kind, _)| *kind != AdmissionKind::Static);
    let Some((kind, _)) = kinds.clone().find(|(_, name)| name == mode) else {
        let names: Vec<_> = kinds.map(|(_, name)| *name).collect();
        return Err(FileError::new(
            table.mode.span(),
            format!("unknown admission mode `{mode}`"),
            format!("one of: {}", names.join(", ")),
        ));
    };
    let usual = AdmissionConfig::new(*kind);
    let slo = maybe_time_within(table.slo.as_ref(), "slo", MICROSECOND..=HOUR)?;
    let queue = maybe_within(table.queue.as_ref(), "queue", 0..=1_000_000)?;
    let connections = table.connections.as_ref();
    let connections = maybe_within(connections, "connections", 1..=1_000_000)?;
    if kind.needs_connections() && connections.is_none() {
        return Err(missing(table.mode.span(), "connections"));
    }
    Ok(AdmissionConfig {
        slo: slo.unwrap_or(usual.slo),
        queue: queue.unwrap_or(usual.queue),
        priorities: priorities.max(1) as u8,
        limits: StaticLimits {
            connections,
            ..StaticLimits::default()
        },
        ..usual
    })
}

fn site(table: &SiteTable) -> Checked<SiteModel> {
    let mut site = SiteModel::new(within(&table.load, "load", 0.001..=LOAD_MAX)?);
    let mean = table.mean_demand.as_ref();
    if let Some(mean) = maybe_time_within(mean, "mean_demand", MICROSECOND..=HOUR)? {
        site.mean_demand = mean;
    }
    if let Some(table) = &table.demand {
        site.demand = demand(table)?;
    }
    if let Some(table) = &table.bursts {
        site.arrivals = bursts(table)?;
    }
    if let Some(io) = &table.io {
        let shape = io.shape.as_ref().map(demand).transpose()?;
        site.io = Some(Io {
            mean: time_within(&io.mean, "mean", MICROSECOND..=HOUR)?,
            shape: shape.unwrap_or(Demand::Exponential),
        });
    }
    if let Some(time) = maybe_time_within(
        table.slow_start.as_ref(),
        "slow_start",
        Duration::ZERO..=HOUR,
    )? {
        site.slow_start = time;
    }
    if let Some(priorities) = &table.priorities {
        site.priorities = shares(priorities)?;
    }
    if let Some(table) = &table.admission {
        site.admission = admission(table, site.priorities.len())?;
    }
    Ok(site)
}

fn bursts(table: &BurstsTable) -> Checked<Arrivals> {
    let share = within(&table.share, "share", 0.001..=0.999)?;
    Ok(Arrivals::Bursts {
        peak: within(&table.peak, "peak", 1.0..=1.0 / share)?,
        share,
        length: time_within(&table.length, "length", MICROSECOND..=HOUR)?,
    })
}

fn demand(table: &Spanned<DemandTable>) -> Checked<Demand> {
    let at = table.span();
    let table = table.get_ref();
    let given = [
        ("cv", &table.cv),
        ("share", &table.share),
        ("ratio", &table.ratio),
        ("tail", &table.tail),
        ("spread", &table.spread),
    ];
    let wanted: &[&str] = match table.shape {
        Shape::Fixed | Shape::Exponential => &[],
        Shape::LogNormal => &["cv"],
        Shape::Bimodal => &["share", "ratio"],
        Shape::Pareto => &["tail", "spread"],
    };
    for (name, value) in given {
        let wants = wanted.contains(&name);
        match value {
            Some(value) if !wants => {
                return Err(FileError::new(
                    value.span(),
                    format!("this shape has no `{name}`"),
                    "leave it out",
                ));
            }
            None if wants => return Err(missing(at, name)),
            _ => {}
        }
    }
    let number = |value: &Option<Spanned<f64>>, name, least, most| match value {
        Some(value) => within(value, name, least..=most),
        None => Err(missing(at.clone(), name)),
    };
    Ok(match table.shape {
        Shape::Fixed => Demand::Fixed,
        Shape::Exponential => Demand::Exponential,
        Shape::LogNormal => Demand::LogNormal {
            cv: number(&table.cv, "cv", 0.01, 100.0)?,
        },
        Shape::Bimodal => Demand::Bimodal {
            share: number(&table.share, "share", 0.0, 1.0)?,
            ratio: number(&table.ratio, "ratio", 1.0, 1e6)?,
        },
        Shape::Pareto => Demand::Pareto {
            tail: number(&table.tail, "tail", 0.1, 10.0)?,
            spread: number(&table.spread, "spread", 1.0, 1e9)?,
        },
    })
}

fn missing(at: Range<usize>, name: &str) -> FileError {
    FileError::new(
        at,
        format!("`{name}` is missing"),
        format!("this needs `{name}`"),
    )
}

fn node_ids(numbers: &Spanned<Vec<u32>>, count: usize) -> Checked<Vec<NodeId>> {
    let known = |number: &&u32| (**number as usize) < count;
    if let Some(unknown) = numbers.get_ref().iter().find(|number| !known(number)) {
        return Err(FileError::new(
            numbers.span(),
            format!("there is no node {unknown}"),
            format!("nodes are numbered from 0 to {}", count.saturating_sub(1)),
        ));
    }
    Ok(numbers.get_ref().iter().copied().map(NodeId).collect())
}

fn state(name: &Spanned<String>) -> Checked<AdminState> {
    let found = AdminState::ALL
        .iter()
        .find(|(_, label)| label == name.get_ref());
    found.map(|(state, _)| *state).ok_or_else(|| {
        let names: Vec<_> = AdminState::ALL.iter().map(|(_, label)| *label).collect();
        FileError::new(
            name.span(),
            format!("unknown state `{}`", name.get_ref()),
            format!("one of: {}", names.join(", ")),
        )
    })
}

fn leaves(tables: &[Spanned<LeaveTable>], count: usize) -> Checked<Vec<Leave>> {
    let mut leaves: Vec<Leave> = Vec::new();
    for table in tables {
        let (at, table) = (table.span(), table.get_ref());
        let Time(from) = *table.from.get_ref();
        let to = time_within(&table.to, "to", from + MICROSECOND..=24 * HOUR)?;
        for node in node_ids(&table.nodes, count)? {
            let overlaps = |other: &Leave| other.node == node && other.from < to && from < other.to;
            if leaves.iter().any(overlaps) {
                let message = format!("node {} leaves while it is gone", node.0);
                return Err(FileError::new(at, message, "the later one"));
            }
            leaves.push(Leave { node, from, to });
        }
    }
    Ok(leaves)
}

fn faults(tables: &[Spanned<FaultTable>], count: usize, end: Duration) -> Checked<Vec<Fault>> {
    let mut faults: Vec<Fault> = Vec::new();
    for table in tables {
        for fault in fault(table, count, end)? {
            let overlaps = |other: &&Fault| {
                other.node == fault.node && other.from < fault.to && fault.from < other.to
            };
            if faults.iter().any(|other| overlaps(&other)) {
                return Err(FileError::new(
                    table.span(),
                    format!("two faults of node {} overlap", fault.node.0),
                    "the later one",
                ));
            }
            faults.push(fault);
        }
    }
    Ok(faults)
}

fn fault(table: &Spanned<FaultTable>, count: usize, end: Duration) -> Checked<Vec<Fault>> {
    let at = table.span();
    let table = table.get_ref();
    let Time(from) = *table.from.get_ref();
    let to = match &table.to {
        Some(to) => time_within(to, "to", from + MICROSECOND..=24 * HOUR)?,
        None => end.max(from + MICROSECOND),
    };
    let period = maybe_time_within(table.period.as_ref(), "period", MICROSECOND..=HOUR)?;
    let down = maybe_within(table.down.as_ref(), "down", 0.001..=0.999)?;
    let kind = match (table.kind, period, down) {
        (FaultName::Dead, None, None) => FaultKind::Dead,
        (FaultName::Paused, None, None) => FaultKind::Paused,
        (FaultName::Failing, None, None) => FaultKind::Failing,
        (FaultName::Breaking, None, None) => FaultKind::Breaking,
        (FaultName::Flapping, Some(period), Some(down)) => FaultKind::Flapping { period, down },
        (FaultName::Flapping, None, _) => return Err(missing(at, "period")),
        (FaultName::Flapping, _, None) => return Err(missing(at, "down")),
        (FaultName::Dead | FaultName::Paused | FaultName::Failing | FaultName::Breaking, _, _) => {
            return Err(FileError::new(
                at,
                "only `flapping` has `period` and `down`",
                "leave them out",
            ));
        }
    };
    if let (FaultKind::Flapping { period, .. }, Some(at)) = (kind, &table.period)
        && (to - from).as_secs_f64() / period.as_secs_f64() > OUTAGES_MAX
    {
        return Err(FileError::new(
            at.span(),
            format!("more than {OUTAGES_MAX} outages"),
            "too short",
        ));
    }
    let nodes = node_ids(&table.nodes, count)?;
    let fault = |node| Fault {
        node,
        kind,
        from,
        to,
    };
    Ok(nodes.into_iter().map(fault).collect())
}

fn expect(table: &ExpectTable) -> Expect {
    Expect {
        least_share: table.least_share,
        herding: table.herding,
        failed: table.failed,
    }
}
