//! What came of it: the table for people, the object for programs.

use std::fmt::Write;
use std::time::Duration;

use serde::Serialize;
use tidegate_culprits::table;

use super::super::visitors::{Book, Sum};
use super::crowd::{NODES_EACH, PHASES, SITES, Schedule};
use super::timeline::Timeline;

/// The first part of a run, which is not measured.
const WARM_UP: Duration = Duration::from_secs(1);
/// Requests that are sent so late (p99) tell more of the machine than of the sites.
const LATE_MAX_MS: f64 = 20.0;

const COLUMNS: [&str; 8] = [
    "nodes",
    "phase",
    "shop_req/s",
    "shop_p99 ms",
    "blog_req/s",
    "blog_p99 ms",
    "failed_requests",
    "moves",
];

/// The object that `--json` prints. Scripts rely on it.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    pub(super) mode: &'static str,
    pub(super) nodes: usize,
    pub(super) cpus: f64,
    pub(super) arms: Vec<Arm>,
}

/// The same load, with or without moves.
#[derive(Debug, Serialize)]
pub(super) struct Arm {
    /// `rigid`, `moves`.
    name: &'static str,
    /// Requests that were not answered, or with an error.
    failed: u64,
    /// Requests without an answer 3 s after the last one was sent.
    unanswered: u64,
    phases: Vec<Phase>,
    /// Nodes by site, whenever that has changed.
    timeline: Vec<Change>,
    /// From the crowd's begin to the first node that came; null: none did.
    followed_seconds: Option<f64>,
    /// Whether the blog has as many nodes as in the beginning, or more.
    came_back: bool,
    #[serde(skip)]
    picture: String,
}

/// One phase; requests count that ended in it.
#[derive(Clone, Debug, Serialize)]
struct Phase {
    name: &'static str,
    seconds: f64,
    /// How late 99 of 100 requests were sent at most: what this machine itself adds.
    late_p99_ms: Option<f64>,
    moves: usize,
    sites: Vec<Site>,
}

/// A site in a phase.
#[derive(Clone, Debug, Serialize)]
struct Site {
    site: &'static str,
    completed: u64,
    failed: u64,
    throughput_rps: f64,
    p50_ms: Option<f64>,
    p99_ms: Option<f64>,
}

/// A moment at which sites had another number of nodes.
#[derive(Clone, Copy, Debug, Serialize)]
struct Change {
    seconds: f64,
    shop: usize,
    blog: usize,
}

impl Arm {
    /// What became of a run up to a moment.
    pub(super) fn of(
        moves: bool,
        book: &Book,
        timeline: &Timeline,
        schedule: &Schedule,
        until: Duration,
    ) -> Self {
        let phases = (0..PHASES.len()).filter_map(|phase| {
            let (from, to) = schedule.phase(phase);
            Phase::of(PHASES[phase], book, timeline, (from, to.min(until)))
        });
        let failed: u64 = (0..SITES.len())
            .map(|site| {
                let sum = book.sum(site, Duration::ZERO, Duration::MAX);
                sum.failed + sum.refused
            })
            .sum();
        let changes = timeline.changes().iter();
        let (crowd, end) = schedule.phase(1);
        let followed = timeline.first_change(crowd, end);
        Self {
            name: if moves { "moves" } else { "rigid" },
            failed,
            unanswered: book.under_way.iter().sum(),
            phases: phases.collect(),
            timeline: changes
                .map(|(since, nodes)| Change {
                    seconds: rounded(since.as_secs_f64()),
                    shop: nodes[0],
                    blog: nodes[1],
                })
                .collect(),
            followed_seconds: followed.map(|it| rounded(it.as_secs_f64())),
            came_back: timeline.at(until)[1] >= NODES_EACH,
            picture: timeline.picture(schedule, until.min(schedule.end())),
        }
    }

    fn rows(&self) -> impl Iterator<Item = Vec<String>> {
        self.phases.iter().map(|phase| {
            let mut row = vec![self.name.to_owned(), phase.name.to_owned()];
            for site in &phase.sites {
                row.push(format!("{:.0}", site.throughput_rps));
                row.push(ms(site.p99_ms));
            }
            let failed: u64 = phase.sites.iter().map(|it| it.failed).sum();
            row.extend([failed.to_string(), phase.moves.to_string()]);
            row
        })
    }

    /// p99 of the shop in the crowd.
    fn crowded(&self) -> Option<f64> {
        let phase = self.phases.iter().find(|it| it.name == PHASES[1])?;
        phase.sites[0].p99_ms
    }
}

impl Phase {
    /// From one moment to another; none if nothing of it is there to measure.
    fn of(
        name: &'static str,
        book: &Book,
        timeline: &Timeline,
        (from, to): (Duration, Duration),
    ) -> Option<Self> {
        let measured = from.max(WARM_UP.min(to / 2));
        let changes = timeline.changes().iter().skip(1);
        let moves = changes.filter(|(since, _)| (from..to).contains(since));
        let site = |site: usize| Site::of(SITES[site], book.sum(site, measured, to));
        (measured < to).then(|| Self {
            name,
            seconds: rounded((to - measured).as_secs_f64()),
            late_p99_ms: book.late_ms(measured, to).map(rounded),
            moves: moves.count(),
            sites: (0..SITES.len()).map(site).collect(),
        })
    }
}

impl Site {
    fn of(site: &'static str, sum: Sum) -> Self {
        Self {
            site,
            completed: sum.completed,
            failed: sum.failed + sum.refused,
            throughput_rps: rounded(sum.per_second),
            p50_ms: sum.p50_ms.map(rounded),
            p99_ms: sum.p99_ms.map(rounded),
        }
    }
}

impl Summary {
    /// For people.
    pub(super) fn table(&self) -> String {
        let mut rows = table::header(&COLUMNS);
        rows.extend(self.arms.iter().flat_map(Arm::rows));
        let mut text = table::render(&rows, 2);
        for arm in &self.arms {
            // Writing to a string cannot fail.
            write!(
                text,
                "\nnodes of each site, {}:\n{}\n",
                arm.name, arm.picture
            )
            .ok();
        }
        text + &self.verdict()
    }

    fn verdict(&self) -> String {
        let mut text = String::new();
        let arm = |name: &str| self.arms.iter().find(|it| it.name == name);
        let (rigid, moves) = (arm("rigid"), arm("moves"));
        if let Some(moves) = moves {
            let home = match moves.came_back {
                true => "the blog's came back when it needed them",
                false => "the blog did not have its own back at the end",
            };
            let text = &mut text;
            match moves.followed_seconds {
                Some(after) => write!(
                    text,
                    "\nThe first node came {after:.1} s after the crowd, and {home}."
                ),
                None => write!(text, "\nNo node came to the crowd."),
            }
            .ok();
            let lost = moves.failed + moves.unanswered;
            write!(text, " Requests that failed or had no answer: {lost}.").ok();
        }
        let crowded = |arm: Option<&Arm>| arm.and_then(Arm::crowded);
        if let (Some(rigid), Some(moves)) = (crowded(rigid), crowded(moves)) {
            write!(
                text,
                "\nThe shop's p99 in the crowd: {moves:.0} ms with moves, {rigid:.0} ms where each site keeps its own nodes."
            )
            .ok();
        }
        let phases = self.arms.iter().flat_map(|it| &it.phases);
        let late = phases.filter_map(|it| it.late_p99_ms).fold(0.0, f64::max);
        if late > LATE_MAX_MS {
            write!(
                text,
                "\nThis machine was a bottleneck itself: requests were sent up to {late:.0} ms late (p99), so latencies \
                 are partly its own."
            )
            .ok();
        }
        text
    }
}

/// A latency, or that there is none.
fn ms(value: Option<f64>) -> String {
    value.map_or("-".into(), |value| format!("{value:.0}"))
}

/// To a thousandth: more was not measured.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::super::super::open_loop::ExchangeOutcome;
    use super::super::super::visitors::EndedRequest;
    use super::*;

    /// A request for each site each 10 ms; those for the shop take so long in the crowd.
    fn book(crowded: Duration, schedule: &Schedule) -> Book {
        let (from, to) = schedule.phase(1);
        let mut book = Book::default();
        for step in 0..schedule.end().as_millis() as u64 / 10 {
            let at = Duration::from_millis(step * 10);
            let is_crowded = at >= from && at < to;
            for kind in 0..SITES.len() {
                let latency = match is_crowded && kind == 0 {
                    true => crowded,
                    false => Duration::from_millis(20),
                };
                book.ended.push(EndedRequest {
                    at,
                    latency,
                    kind,
                    outcome: ExchangeOutcome::Answered(10_000),
                });
            }
        }
        book
    }

    #[test]
    fn the_table_has_both_arms_and_fits() {
        let schedule = Schedule::of(Duration::from_secs(60));
        let end = schedule.end();
        let mut timeline = Timeline::default();
        timeline.see(Duration::ZERO, [5, 5]);
        let slow = book(Duration::from_millis(4000), &schedule);
        let rigid = Arm::of(false, &slow, &timeline, &schedule, end);
        assert_eq!((rigid.followed_seconds, rigid.came_back), (None, true));
        timeline.see(Duration::from_millis(4400), [6, 4]);
        timeline.see(Duration::from_millis(17_000), [5, 5]);
        let mut quick = book(Duration::from_millis(80), &schedule);
        let failed = EndedRequest {
            outcome: ExchangeOutcome::Broken,
            ..quick.ended[600]
        };
        quick.ended.push(EndedRequest { at: end, ..failed });
        let moves = Arm::of(true, &quick, &timeline, &schedule, end);
        assert_eq!(moves.followed_seconds, Some(0.4));
        assert_eq!(moves.phases[1].moves, 1);
        let summary = Summary {
            mode: "moves",
            nodes: 10,
            cpus: 20.0,
            arms: vec![rigid, moves],
        };
        let table = summary.table();
        let rows = table.lines().take_while(|line| !line.is_empty());
        assert!(rows.clone().count() >= 8, "{table}");
        assert!(
            rows.clone().all(|line| line.chars().count() < 80),
            "{table}"
        );
        for text in [
            "The first node came 0.4 s after the crowd, and the blog's came back when it needed them.",
            "Requests that failed or had no answer: 1.",
            "The shop's p99 in the crowd: 80 ms with moves, 4000 ms where each site keeps its own nodes.",
        ] {
            assert!(table.contains(text), "{text}: {table}");
        }
    }
}
