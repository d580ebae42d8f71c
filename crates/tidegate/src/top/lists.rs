//! The smaller tables of a frame. Each is empty where there is nothing to show.

use ratatui::style::{Color, Style};
use ratatui::text::Line;
use tidegate_core::time::Timestamp;

use super::events::Events;
use super::sample::Sample;
use super::table::{Cell, Column, Head, Row, lines, numbers, words};
use super::view::View;
use crate::models::{SiteStatus, ThrottleStatus};
use crate::text::{limits, percent, seconds};

/// Most rows of each table but that of sites.
const ROWS_MAX: usize = 20;

const SITES: &[Column] = &[
    words("site", 0),
    words("policy", 6),
    numbers("nodes", 1),
    numbers("req/s", 0),
    numbers("err/s", 2),
    numbers("refused/s", 3),
    numbers("queued", 4),
    numbers("wait p99", 7),
    numbers("p50", 5),
    numbers("p99", 2),
];
const CULPRITS: &[Column] = &[
    words("culprit", 0),
    words("resource", 0),
    words("confidence", 1),
    numbers("share", 2),
    numbers("cost", 3),
    words("throttled", 4),
];
const THROTTLES: &[Column] = &[
    words("throttled", 0),
    words("limits", 1),
    words("by", 3),
    numbers("in flight", 2),
    numbers("held now", 2),
    numbers("429", 4),
];
const EVENTS: &[Column] = &[numbers("ago", 1), words("change", 0)];
const DECISIONS: &[Column] = &[
    numbers("ago", 1),
    words("site", 6),
    words("node", 0),
    words("request", 0),
    words("status", 2),
    numbers("took", 3),
    numbers("held", 8),
    numbers("load age", 4),
    numbers("in flight", 5),
    numbers("score", 7),
    numbers("of", 9),
];

/// All sites, whatever the view shows: the one that it shows is marked.
pub(super) fn sites(sample: &Sample, view: &View, head: Head) -> Vec<Line<'static>> {
    let rows = sample.status.sites.iter().map(|site| {
        let mark = match view.site.as_deref() {
            Some(name) if name == site.name => "> ",
            Some(_) => "  ",
            None => "",
        };
        site_row(mark, site)
    });
    table(SITES, rows.collect(), head)
}

fn site_row(mark: &str, site: &SiteStatus) -> Row {
    let nodes = format!("{}/{}", site.candidates, site.nodes.len());
    let quantile = |value: Option<f64>| Cell::number(value, &seconds(value));
    let style = match (site.fail_open, site.candidates) {
        (true, _) | (_, 0) => Style::new().fg(Color::Red),
        (false, _) => Style::new(),
    };
    Row {
        cells: vec![
            Cell::words(&format!("{mark}{}", site.name)),
            Cell::words(&site.policy),
            Cell::number(Some(site.candidates.into()), &nodes),
            Cell::rate(site.recent.requests_per_second),
            Cell::rate(site.recent.errors_per_second),
            Cell::rate(site.apart.refused_per_second),
            Cell::count(site.apart.queued),
            quantile(site.apart.queue_wait.p99_seconds),
            quantile(site.recent.latency.p50_seconds),
            quantile(site.recent.latency.p99_seconds),
        ],
        style,
    }
}

/// Classes that are named as culprits.
pub(super) fn culprits(sample: &Sample, head: Head) -> Vec<Line<'static>> {
    let rows = sample.culprits.accused.iter().take(ROWS_MAX).map(|it| {
        let cost = it.pair.cost_ms.map(|ms| ms / 1e3);
        Row {
            cells: vec![
                Cell::words(&it.class),
                Cell::words(&it.pair.resource),
                Cell::words(it.pair.confidence.as_deref().unwrap_or("-")),
                Cell::number(it.pair.share, &percent(it.pair.share)),
                Cell::number(cost, &seconds(cost)),
                Cell::words(it.throttle.as_deref().unwrap_or("-")),
            ],
            style: Style::new().fg(Color::Yellow),
        }
    });
    table(CULPRITS, rows.collect(), head)
}

/// Classes that are slowed.
pub(super) fn throttles(sample: &Sample, head: Head) -> Vec<Line<'static>> {
    let rows = sample.status.throttles.iter().take(ROWS_MAX);
    let row = |it: &ThrottleStatus| Row {
        cells: vec![
            Cell::words(&it.class),
            Cell::words(&limits(it)),
            Cell::words(&it.set_by),
            Cell::count(it.in_flight),
            Cell::count(it.waiting),
            Cell::count(it.rejected),
        ],
        style: Style::new(),
    };
    table(THROTTLES, rows.map(row).collect(), head)
}

/// What has changed.
pub(super) fn events(events: &Events, now: Timestamp, head: Head) -> Vec<Line<'static>> {
    let rows = events.iter().take(ROWS_MAX).map(|event| {
        let ago = now.seconds_since(event.at);
        Row {
            cells: vec![
                Cell::number(Some(ago), &format!("{ago:.0}s")),
                Cell::words(&event.text),
            ],
            style: Style::new(),
        }
    });
    table(EVENTS, rows.collect(), head)
}

/// The last requests.
pub(super) fn decisions(
    sample: &Sample,
    view: &View,
    now: Timestamp,
    head: Head,
) -> Vec<Line<'static>> {
    let since = now.seconds_since(sample.at).max(0.0);
    let shown = sample.decisions.iter().filter(|it| view.shows(&it.site));
    let rows = shown.take(ROWS_MAX).map(|it| {
        let decision = &it.decision;
        let time = |value: Option<f64>| Cell::number(value, &seconds(value));
        let status = match &decision.reason {
            None => decision.status.to_string(),
            Some(reason) => format!("{} {reason}", decision.status),
        };
        let count = |value: Option<u32>| {
            let shown = value.map_or("-".into(), |value| value.to_string());
            Cell::number(value.map(f64::from), &shown)
        };
        let score = decision.score.map_or("-".into(), |it| format!("{it:.2}"));
        Row {
            cells: vec![
                time(Some(decision.seconds_ago + since)),
                Cell::words(&it.site),
                Cell::words(decision.node.as_deref().unwrap_or("-")),
                Cell::words(&decision.path),
                Cell::words(&status),
                time(Some(decision.duration_seconds)),
                time(decision.held_seconds),
                time(decision.load_age_seconds),
                count(decision.in_flight),
                Cell::number(decision.score, &score),
                count(decision.compared),
            ],
            style: match decision.reason {
                Some(_) => Style::new().fg(Color::Yellow),
                None => Style::new(),
            },
        }
    });
    table(DECISIONS, rows.collect(), head)
}

fn table(columns: &[Column], rows: Vec<Row>, head: Head) -> Vec<Line<'static>> {
    match rows.is_empty() {
        true => Vec::new(),
        false => lines(columns, &rows, None, head),
    }
}
