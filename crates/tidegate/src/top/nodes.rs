//! The table of nodes: those of sites, those that leave, those that are only read.

use ratatui::style::{Color, Modifier, Style};

use super::sample::Sample;
use super::table::{Cell, Column, Row, numbers, words};
use super::view::View;
use crate::models::{LoadStatus, NodeStatus};
use crate::text::{percent, queue, seconds, state};

/// Shortest time between two samples that a rate is made of.
const RATE_SECONDS_MIN: f64 = 0.05;

/// The columns of the table.
pub(super) const COLUMNS: &[Column] = &[
    words("node", 0),
    words("site", 5),
    words("state", 0),
    words("read by", 9),
    numbers("load age", 7),
    numbers("queue", 3),
    numbers("cpu", 2),
    numbers("mem", 11),
    numbers("in flight", 4),
    numbers("share", 6),
    numbers("req/s", 0),
    numbers("err/s", 1),
    numbers("p50", 8),
    numbers("p99", 4),
    numbers("failed", 10),
];

/// Where each stands among them.
const RUNG: usize = 3;
const AGE: usize = 4;
const QUEUE: usize = 5;
const CPU: usize = 6;
const MEMORY: usize = 7;
const IN_FLIGHT: usize = 8;
const SHARE: usize = 9;
const ANSWERS: usize = 10;
const ERRORS: usize = 11;
const P50: usize = 12;
const P99: usize = 13;
const FAILED: usize = 14;

/// Answers and failures per second.
#[derive(Clone, Copy, Debug)]
struct Rates {
    answers: f64,
    errors: f64,
}

/// A row for each node that the view shows.
pub(super) fn rows(previous: Option<&Sample>, current: &Sample, view: &View) -> Vec<Row> {
    let mut rows = Vec::new();
    for site in current
        .status
        .sites
        .iter()
        .filter(|it| view.shows(&it.name))
    {
        rows.extend(site.nodes.iter().map(|node| {
            let before = previous.and_then(|it| node_before(it, &site.name, &node.name));
            let passed = previous.map(|it| current.at.seconds_since(it.at));
            node_row(&site.name, node, rates(before, node, passed))
        }));
    }
    if view.site.is_none() {
        rows.extend(current.status.leaving.iter().map(|it| {
            let mut cells = empty(&it.name, "", "leaving");
            cells[IN_FLIGHT] = Cell::count(it.in_flight);
            row(cells)
        }));
        rows.extend(current.status.resources.iter().map(|it| {
            let is_read = it.load.as_ref().is_some_and(|load| load.fresh);
            let mut cells = empty(&it.name, "", if is_read { "read" } else { "not read" });
            cells[RUNG] = Cell::words(&it.rung);
            load(&mut cells, it.load.as_ref());
            row(cells)
        }));
    }
    rows
}

/// The node as it was: place by place it is mostly where it was, but need not be.
fn node_before<'a>(sample: &'a Sample, site: &str, node: &str) -> Option<&'a NodeStatus> {
    let site = sample.status.sites.iter().find(|it| it.name == site)?;
    site.nodes.iter().find(|it| it.name == node)
}

/// Of the time between the samples, where both know the node's counters; else of the front-end's last seconds.
fn rates(before: Option<&NodeStatus>, now: &NodeStatus, passed: Option<f64>) -> Rates {
    let recent = Rates {
        answers: now.recent.requests_per_second,
        errors: now.recent.errors_per_second,
    };
    let (Some(before), Some(passed)) = (before, passed) else {
        return recent;
    };
    let of = |node: &NodeStatus, keys: &dyn Fn(&str) -> bool| -> u64 {
        let counts = node.responses.iter().filter(|(key, _)| keys(key));
        counts.fold(0, |sum, (_, count)| sum.saturating_add(*count))
    };
    let more = |keys: &dyn Fn(&str) -> bool| of(now, keys).checked_sub(of(before, keys));
    let is_error = |key: &str| matches!(key, "5xx" | "failed");
    match (more(&|_| true), more(&is_error)) {
        (Some(answers), Some(errors)) if passed >= RATE_SECONDS_MIN => Rates {
            answers: answers as f64 / passed,
            errors: errors as f64 / passed,
        },
        // Another process counts from zero.
        _ => recent,
    }
}

fn node_row(site: &str, node: &NodeStatus, rates: Rates) -> Row {
    let mut cells = empty(&node.name, site, state(node));
    cells[RUNG] = Cell::words(&node.rung);
    load(&mut cells, node.load.as_ref());
    let runnable = node.load.as_ref().filter(|it| it.fresh);
    let runnable = runnable.and_then(|it| it.runnable);
    cells[QUEUE] = Cell::number(runnable, &queue(node));
    cells[IN_FLIGHT] = Cell::count(node.in_flight);
    cells[SHARE] = Cell::number(node.share, &percent(node.share));
    cells[ANSWERS] = Cell::rate(rates.answers);
    cells[ERRORS] = Cell::rate(rates.errors);
    let latency = &node.recent.latency;
    cells[P50] = Cell::number(latency.p50_seconds, &seconds(latency.p50_seconds));
    cells[P99] = Cell::number(latency.p99_seconds, &seconds(latency.p99_seconds));
    cells[FAILED] = Cell::count(node.responses.get("failed").copied().unwrap_or(0));
    Row {
        cells,
        style: style(node),
    }
}

/// A row in which nothing is known but these.
fn empty(name: &str, site: &str, state: &str) -> Vec<Cell> {
    let unknown = || Cell::number(None, "-");
    let mut cells = vec![Cell::words(name), Cell::words(site), Cell::words(state)];
    cells.resize_with(COLUMNS.len(), unknown);
    cells[RUNG] = Cell::words("-");
    cells
}

fn row(cells: Vec<Cell>) -> Row {
    Row {
        cells,
        style: Style::new(),
    }
}

/// Age, and what is known while the load is young enough to be believed.
fn load(cells: &mut [Cell], load: Option<&LoadStatus>) {
    let age = load.map(|load| load.age_seconds);
    cells[AGE] = Cell::number(age, &seconds(age));
    let fresh = load.filter(|load| load.fresh);
    let (cpu, memory) = (
        fresh.and_then(LoadStatus::shown_cpu),
        fresh.and_then(|load| load.memory),
    );
    cells[CPU] = Cell::number(cpu, &percent(cpu));
    cells[MEMORY] = Cell::number(memory, &percent(memory));
}

fn style(node: &NodeStatus) -> Style {
    match state(node) {
        "ejected" => Style::new().fg(Color::Red).add_modifier(Modifier::BOLD),
        "failing" => Style::new().fg(Color::Yellow),
        "starting" | "moving" | "draining" | "switching" => Style::new().fg(Color::Cyan),
        "drain" | "maint" => Style::new().fg(Color::Blue),
        _ => Style::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;

    #[test]
    fn rates_are_of_the_time_between_two_samples() {
        let (before, now) = fixture::two_samples();
        let rates_of = |before: &Sample| {
            let node = &now.status.sites[0].nodes[0];
            let passed = now.at.seconds_since(before.at);
            let before = node_before(before, "shop", "n1");
            let rates = rates(before, node, Some(passed));
            (rates.answers, rates.errors)
        };
        assert_eq!(rates_of(&before), (300.0, 2.0));
        let mut younger = before.clone();
        let counts = &mut younger.status.sites[0].nodes[0].responses;
        counts.insert("2xx".into(), u64::MAX);
        assert_eq!(rates_of(&younger), (250.5, 1.5));
        let mut same = before;
        same.at = now.at;
        assert_eq!(rates_of(&same), (250.5, 1.5));
    }
}
