//! The `[[nodes]]` tables: groups of like nodes, and how their load is read.

use std::time::Duration;

use tidegate_core::load::Rung;
use tidegate_core::topology::SiteId;
use toml::Spanned;

use super::HOUR;
use super::check::{Checked, maybe_time_within, maybe_within, time_within, within};
use super::error::FileError;
use super::tables::{
    AntagonistTable, NodesTable, OrFalse, RecordsTable, ScopeName, Spread, WarmingTable,
};
use crate::model::Antagonist;
use crate::processor::Overload;
use crate::scenario::{Answer, NodeModel, Records, Scope, Warming};

/// Most nodes of a scenario.
pub(super) const COUNT_MAX: u32 = 100_000;
const CORES_MAX: f64 = 1024.0;
const SPEED_MAX: f64 = 1000.0;
const INTERVAL_MIN: Duration = Duration::from_micros(100);
const MICROSECOND: Duration = Duration::from_micros(1);

/// The nodes of all groups, one after the other.
pub(super) fn build(
    groups: &Spanned<Vec<Spanned<NodesTable>>>,
    sites: usize,
) -> Checked<Vec<NodeModel>> {
    let mut nodes = Vec::new();
    for table in groups.get_ref() {
        group(table.get_ref(), sites, &mut nodes)?;
        if nodes.len() > COUNT_MAX as usize {
            return Err(FileError::new(
                table.span(),
                format!("there are more than {COUNT_MAX} nodes"),
                "with this group",
            ));
        }
    }
    let served = |site: usize| nodes.iter().any(|node| node.site.index() == site);
    if let Some(site) = (0..sites).find(|site| !served(*site)) {
        return Err(FileError::new(
            groups.span(),
            format!("site {site} has no nodes"),
            "a group with `site` is missing",
        ));
    }
    Ok(nodes)
}

fn group(table: &NodesTable, sites: usize, nodes: &mut Vec<NodeModel>) -> Checked<()> {
    let count = within(&table.count, "count", 1..=COUNT_MAX)?;
    let site = match &table.site {
        Some(site) => within(site, "site", 0..=(sites.saturating_sub(1) as u32))?,
        None => 0,
    };
    let model = NodeModel {
        kernel: None,
        site: SiteId(site),
        cores: 1.0,
        speed: 1.0,
        allocation: maybe_within(table.allocation.as_ref(), "allocation", 0.001..=CORES_MAX)?,
        weight: maybe_within(table.weight.as_ref(), "weight", 0.001..=1000.0)?.unwrap_or(1.0),
        host: None,
        cold: None,
        warming: table.warming.as_ref().map(warming).transpose()?,
        antagonist: table.antagonist.as_ref().map(antagonist).transpose()?,
        io_channels: maybe_within(table.io_channels.as_ref(), "io_channels", 1..=1_000_000)?,
        io_slowness: maybe_within(table.io_slowness.as_ref(), "io_slowness", 0.001..=SPEED_MAX)?
            .unwrap_or(1.0),
        limit: maybe_within(table.limit.as_ref(), "limit", 1..=1_000_000)?,
        files: None,
        workers: maybe_within(table.workers.as_ref(), "workers", 1..=1_000_000)?,
        overload: Overload {
            per_task: maybe_within(table.crowd_cost.as_ref(), "crowd_cost", 0.0..=1.0)?
                .unwrap_or(0.0),
        },
        records: match &table.records {
            None => Some(Records::default()),
            Some(OrFalse::No) => None,
            Some(OrFalse::Table(table)) => Some(records(table)?),
        },
        reports: table.reports,
    };
    let cores = spread(&table.cores, "cores", CORES_MAX)?;
    let speed = match &table.speed {
        Some(speed) => spread(speed, "speed", SPEED_MAX)?,
        None => Spread::ONE,
    };
    nodes.extend((0..count).map(|index| NodeModel {
        cores: cores.at(index, count),
        speed: speed.at(index, count),
        ..model.clone()
    }));
    Ok(())
}

fn spread(value: &Spanned<Spread>, name: &str, most: f64) -> Checked<Spread> {
    let range = 0.001..=most;
    let Spread { first, last } = *value.get_ref();
    if range.contains(&first) && range.contains(&last) {
        return Ok(*value.get_ref());
    }
    Err(FileError::new(
        value.span(),
        format!("`{name}` must be from {} to {}", range.start(), range.end()),
        "out of range",
    ))
}

fn antagonist(table: &AntagonistTable) -> Checked<Antagonist> {
    let usual = Antagonist::new(
        within(&table.tasks, "tasks", 1..=100_000)?,
        within(&table.duty, "duty", 0.001..=1.0)?,
    );
    let times = MICROSECOND..=HOUR;
    let shortest = maybe_time_within(table.shortest.as_ref(), "shortest", times)?;
    let shortest = shortest.unwrap_or(usual.shortest);
    let longest = match &table.longest {
        Some(longest) => time_within(longest, "longest", shortest..=HOUR)?,
        None => usual.longest.max(shortest),
    };
    Ok(Antagonist {
        shortest,
        longest,
        ..usual
    })
}

fn warming(table: &WarmingTable) -> Checked<Warming> {
    Ok(Warming {
        times: within(&table.times, "times", 1.0..=1000.0)?,
        requests: within(&table.requests, "requests", 1.0..=1e9)?,
    })
}

fn records(table: &RecordsTable) -> Checked<Records> {
    let usual = Records::default();
    let interval = maybe_time_within(table.interval.as_ref(), "interval", INTERVAL_MIN..=HOUR)?;
    let slice = maybe_time_within(table.process.as_ref(), "process", MICROSECOND..=HOUR)?;
    Ok(Records {
        rung: table.rung.as_ref().map_or(Ok(usual.rung), rung)?,
        interval: interval.unwrap_or(usual.interval),
        published: table.published.0,
        age: table.age.0,
        delay: table.delay.0,
        loss: maybe_within(table.loss.as_ref(), "loss", 0.0..=1.0)?.unwrap_or(usual.loss),
        in_flight: table.in_flight.unwrap_or(usual.in_flight),
        scope: match table.scope {
            None | Some(ScopeName::Host) => Scope::Host,
            Some(ScopeName::Requests) => Scope::Requests,
        },
        answer: slice.map_or(Answer::Kernel, |slice| Answer::Process { slice }),
    })
}

fn rung(name: &Spanned<String>) -> Checked<Rung> {
    let found = Rung::ALL.iter().find(|(_, label)| label == name.get_ref());
    found.map(|(rung, _)| *rung).ok_or_else(|| {
        let names: Vec<_> = Rung::ALL.iter().map(|(_, label)| *label).collect();
        FileError::new(
            name.span(),
            format!("unknown rung `{}`", name.get_ref()),
            format!("one of: {}", names.join(", ")),
        )
    })
}
