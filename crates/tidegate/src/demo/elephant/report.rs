//! What came of it: the table for people, the object for programs.

use std::fmt::Write;
use std::time::Duration;

use serde::Serialize;
use tidegate_culprits::table;

use super::super::visitors::{Book, Sum};
use super::shop::{HEAVY, OTHERS};
use super::{Named, Throttled};

/// What a change is given to settle before a phase is measured.
pub(super) const SETTLE: Duration = Duration::from_secs(2);

/// Requests that are sent so late (p99) tell more of the machine than of the site.
const LATE_MAX_MS: f64 = 20.0;

/// Columns of the table: the phase, then requests of all other classes and of the heavy one.
const COLUMNS: [&str; 10] = [
    "phase",
    "s",
    "others_done",
    "others_lost",
    "others_req/s",
    "others_p50 ms",
    "others_p99 ms",
    "heavy_done",
    "heavy_lost",
    "heavy_p50 ms",
];

/// The object that `--json` prints. Scripts rely on it. Times count from the first heavy request.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    pub(super) mode: &'static str,
    pub(super) nodes: usize,
    pub(super) cpus: f64,
    /// Requests per second without the heavy class, and of it.
    pub(super) offered_rps: f64,
    pub(super) elephant_rps: f64,
    /// When a class was named first; null: none was.
    pub(super) named_after_seconds: Option<f64>,
    pub(super) class: Option<String>,
    pub(super) resource: Option<String>,
    /// Whether that class is the heavy one.
    pub(super) right: bool,
    /// As the discovery says it, when it is named.
    pub(super) confidence: Option<&'static str>,
    pub(super) share: Option<f64>,
    pub(super) cost_ms: Option<f64>,
    /// The cost that was shown last before it was throttled.
    pub(super) last_cost_ms: Option<f64>,
    /// What a heavy request wants on the average.
    pub(super) true_cost_ms: f64,
    /// Classes that were named and are not heavy, at any time.
    pub(super) wrong: Vec<String>,
    pub(super) throttle: Option<ThrottleSummary>,
    pub(super) phases: Vec<Phase>,
    /// Heavy requests that had no answer yet at the end.
    pub(super) elephants_waiting: u64,
}

/// How the class was slowed.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ThrottleSummary {
    /// In words.
    limits: String,
    /// `demo`, or `operator` for a click.
    by: &'static str,
    after_seconds: f64,
}

/// One phase; requests count that ended in it, from two seconds after its begin on.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Phase {
    name: &'static str,
    /// Measured.
    seconds: f64,
    /// How late 99 of 100 requests were sent at most: what this machine itself adds.
    late_p99_ms: Option<f64>,
    others: Requests,
    elephants: Requests,
}

/// Requests of a phase.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Requests {
    completed: u64,
    /// Answered with an error.
    refused: u64,
    /// Not answered.
    failed: u64,
    throughput_rps: f64,
    p50_ms: Option<f64>,
    p99_ms: Option<f64>,
}

impl Requests {
    /// Answered with an error, or not at all.
    fn lost(&self) -> u64 {
        self.refused + self.failed
    }
}

impl From<Sum> for Requests {
    fn from(sum: Sum) -> Self {
        Self {
            completed: sum.completed,
            refused: sum.refused,
            failed: sum.failed,
            throughput_rps: rounded(sum.per_second),
            p50_ms: sum.p50_ms.map(rounded),
            p99_ms: sum.p99_ms.map(rounded),
        }
    }
}

impl Phase {
    /// From one moment to another; none if nothing of it is left to measure.
    pub(super) fn of(
        name: &'static str,
        book: &Book,
        from: Duration,
        to: Duration,
    ) -> Option<Self> {
        let from = from + SETTLE;
        (from < to).then(|| Self {
            name,
            seconds: rounded((to - from).as_secs_f64()),
            late_p99_ms: book.late_ms(from, to).map(rounded),
            others: book.sum(OTHERS, from, to).into(),
            elephants: book.sum(HEAVY, from, to).into(),
        })
    }

    /// Its cells, below [`COLUMNS`].
    fn row(&self) -> Vec<String> {
        let (others, heavy) = (&self.others, &self.elephants);
        vec![
            self.name.to_owned(),
            format!("{:.1}", self.seconds),
            others.completed.to_string(),
            others.lost().to_string(),
            format!("{:.0}", others.throughput_rps),
            ms(others.p50_ms),
            ms(others.p99_ms),
            heavy.completed.to_string(),
            heavy.lost().to_string(),
            ms(heavy.p50_ms),
        ]
    }
}

impl ThrottleSummary {
    pub(super) fn new(throttled: &Throttled, injected: Duration) -> Self {
        Self {
            limits: throttled.limits.clone(),
            by: if throttled.by_demo {
                "demo"
            } else {
                "operator"
            },
            after_seconds: seconds_since(throttled.at, injected),
        }
    }
}

impl Summary {
    /// What was named.
    pub(super) fn name(&mut self, named: &Named, injected: Duration) {
        self.named_after_seconds = Some(seconds_since(named.at, injected));
        self.class = Some(named.class.clone());
        self.resource = Some(named.resource.clone());
        self.right = named.right;
        self.confidence = Some(named.confidence);
        self.share = Some(rounded(named.share));
        self.cost_ms = Some(rounded(named.cost_ms));
    }

    /// For people.
    pub(super) fn table(&self) -> String {
        let mut rows = table::header(&COLUMNS);
        rows.extend(self.phases.iter().map(Phase::row));
        let mut text = table::numbers(&rows);
        text.push('\n');
        text.push_str(&self.verdict());
        text
    }

    fn verdict(&self) -> String {
        let mut text = match (&self.class, self.named_after_seconds) {
            (Some(class), Some(seconds)) => format!(
                "named after {seconds:.1} s: {class}, which {}; a request costs {:.0} ms, told were {}.",
                if self.right {
                    "is the heavy class"
                } else {
                    "is NOT the heavy class"
                },
                self.true_cost_ms,
                self.costs(),
            ),
            (Some(_) | None, _) => "nobody was named.".to_owned(),
        };
        if !self.wrong.is_empty() {
            write!(text, " Named without reason: {}.", self.wrong.join(", ")).ok();
        }
        if let (Some(crowded), Some(calm)) = (self.p99("elephant"), self.p99("throttled")) {
            let change = match crowded > calm {
                true => format!("{:.1} times below", crowded / calm.max(1e-9)),
                false => "not below the".into(),
            };
            write!(
                text,
                "\nall others: p99 of {calm:.0} ms with the class throttled, {change} {crowded:.0} ms"
            )
            .ok();
        }
        if let Some(quiet) = self.p99("quiet") {
            write!(text, "; {quiet:.0} ms without it").ok();
        }
        text.push('.');
        text.push_str(&self.elephants());
        let late = self.phases.iter().filter_map(|it| it.late_p99_ms);
        let late = late.fold(0.0, f64::max);
        if late > LATE_MAX_MS {
            write!(
                text,
                "\nThis machine was a bottleneck itself: requests were sent up to {late:.0} ms late (p99), so \
                 latencies are partly its own."
            )
            .ok();
        }
        text
    }

    /// The costs that were shown, of which the first rests on little.
    fn costs(&self) -> String {
        let first = self.cost_ms.unwrap_or_default();
        match self.last_cost_ms {
            Some(last) => format!("{first:.0} ms at first and {last:.0} ms at last"),
            None => format!("{first:.0} ms"),
        }
    }

    /// What became of the heavy requests: those that come faster than the throttle lets them on wait ever longer.
    fn elephants(&self) -> String {
        let waiting = self.elephants_waiting;
        let throttled = self.phases.iter().find(|it| it.name == "throttled");
        let Some(throttled) = throttled else {
            return format!(" {waiting} heavy requests had no answer yet at the end.");
        };
        let (came, done) = (self.elephant_rps, throttled.elephants.throughput_rps);
        let mut text = format!(
            "\nheavy class: {came:.1} a second came and {done:.1} were completed, a few at a time"
        );
        if waiting > 0 {
            let why = match came > done {
                true => ": more come than the throttle lets on, so that queue grows",
                false => "",
            };
            write!(text, "; {waiting} still waited when the demo ended{why}").ok();
        }
        text.push('.');
        text
    }

    /// p99 of others in a phase.
    fn p99(&self, phase: &str) -> Option<f64> {
        let phase = self.phases.iter().find(|it| it.name == phase)?;
        phase.others.p99_ms
    }
}

/// A latency, or that there is none.
pub(super) fn ms(value: Option<f64>) -> String {
    value.map_or("-".into(), |value| format!("{value:.1}"))
}

fn seconds_since(at: Duration, injected: Duration) -> f64 {
    rounded(at.saturating_sub(injected).as_secs_f64())
}

/// To a thousandth: more was not measured.
pub(super) fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(name: &'static str, p99_ms: f64) -> Phase {
        let sum = Sum {
            completed: 1000,
            per_second: 500.0,
            p50_ms: Some(5.0),
            p99_ms: Some(p99_ms),
            ..Sum::default()
        };
        Phase {
            name,
            seconds: 10.0,
            late_p99_ms: Some(1.0),
            others: sum.into(),
            elephants: Sum::default().into(),
        }
    }

    #[test]
    fn the_verdict_says_who_it_was_and_what_it_brought() {
        let mut summary = Summary {
            mode: "elephant",
            nodes: 4,
            cpus: 8.0,
            offered_rps: 500.0,
            elephant_rps: 20.0,
            named_after_seconds: None,
            class: None,
            resource: None,
            right: false,
            confidence: None,
            share: None,
            cost_ms: None,
            last_cost_ms: None,
            true_cost_ms: 200.0,
            wrong: Vec::new(),
            throttle: None,
            phases: vec![phase("quiet", 20.0), phase("elephant", 300.0)],
            elephants_waiting: 7,
        };
        assert!(summary.table().contains("nobody was named."));
        let named = Named {
            at: Duration::from_millis(24_500),
            class: "GET /report/{date}".into(),
            pattern: "GET /report/{date}?".into(),
            resource: "shop cpu".into(),
            right: true,
            confidence: "strong",
            share: 0.52,
            cost_ms: 210.0,
        };
        summary.name(&named, Duration::from_secs(15));
        let table = summary.table();
        assert!(
            table.contains("7 heavy requests had no answer yet"),
            "{table}"
        );
        summary.phases.push(phase("throttled", 30.0));
        summary.last_cost_ms = Some(180.0);
        let table = summary.table();
        assert!(
            table.contains("20.0 a second came and 0.0 were completed"),
            "{table}"
        );
        assert!(
            table.contains("7 still waited when the demo ended: more come"),
            "{table}"
        );
        assert!(table.contains("costs 200 ms, told were 210 ms at first and 180 ms at last"));
        let rows = table.lines().take_while(|line| !line.is_empty());
        for line in rows {
            assert!(line.chars().count() < 80, "{line}");
        }
        assert!(table.contains("named after 9.5 s: GET /report/{date}, which is the heavy class"));
        assert!(table.contains("10.0 times below 300 ms"), "{table}");
        assert!(!table.contains("bottleneck"));
        summary.phases[1].late_p99_ms = Some(50.0);
        assert!(summary.table().contains("sent up to 50 ms late"));
        let value = serde_json::to_value(&summary).unwrap();
        assert_eq!(value["named_after_seconds"], 9.5);
        assert_eq!(value["phases"][2]["others"]["p99_ms"], 30.0);
    }
}
