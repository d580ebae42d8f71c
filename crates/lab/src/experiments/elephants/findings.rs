//! From what was measured to the paper's figures, verdicts and pictures.

use serde_json::{Value, json};

use crate::results::{Axis, GoalVerdict, Plot};

use super::super::judge::{Table, at_least, at_most, median, ratio};
use super::super::measured::Measured;
use super::super::paper::{beside, own, peers, ranked};
use super::super::plan::Plan;
use super::super::report::{ExperimentFindings, Sketch};
use super::watch::Accounts;
use super::{ADMITTING, AUTOMATIC, BY_HAND, DATABASE_SHARE, STOCK};

/// The paper's gains: 782 over 462 requests/s, 32.7 s over 154.7 s.
const GAIN: f64 = 1.69;
const SHORTER: f64 = 1.0 / 4.7;
/// Its elephants that were still served: 105 964 of 112 521.
const SERVED: f64 = 0.94;
/// What Tidegate finds by itself, over what the operator knows: p95 of all others.
const OTHERS_MAX: f64 = 1.3;
/// Of our cost estimates, percent.
const ERROR_MAX: f64 = 15.0;

pub(super) fn findings(
    plan: &Plan,
    measured: &Measured,
    accounts: &Accounts,
) -> ExperimentFindings {
    let table = &measured.table;
    let verdicts = [BY_HAND, AUTOMATIC]
        .into_iter()
        .flat_map(|arm| verdicts(table, arm));
    let mut verdicts: Vec<_> = verdicts.collect();
    verdicts.extend([AUTOMATIC, ADMITTING].map(|arm| {
        at_most(
            format!("{arm}: others' p95 over {BY_HAND}'s"),
            ratio(table, arm, BY_HAND, "others_p95_ms"),
            OTHERS_MAX,
        )
    }));
    verdicts.push(refused(table, ADMITTING));
    verdicts.extend([STOCK, BY_HAND, AUTOMATIC].map(|arm| {
        at_most(
            format!("{arm}: error of the cost estimates, %"),
            median(table, arm, "cost_error_pct"),
            ERROR_MAX,
        )
    }));
    ExperimentFindings {
        paper: paper(plan, table).into(),
        verdicts,
        notes: notes(table),
        plots: vec![
            Sketch::Course(Plot::Series {
                title: "Share of requests that took longer".into(),
                x: Axis::log("s"),
                y: Axis::log("share"),
                series: accounts.slower.values().cloned().collect(),
                marks: Vec::new(),
            }),
            Sketch::Bars {
                title: "Requests per second".into(),
                groups: vec![
                    ("elephants".into(), "elephants_rps".into()),
                    ("others".into(), "others_rps".into()),
                ],
                y: Axis::from_zero("requests/s"),
            },
        ],
    }
}

/// The paper's goals for an arm.
fn verdicts(table: &Table, arm: &str) -> Vec<Option<GoalVerdict>> {
    let over = |metric: &str| ratio(table, arm, STOCK, metric);
    vec![
        at_least(
            format!("{arm}: requests/s over {STOCK}'s"),
            over("throughput_rps"),
            GAIN,
        ),
        at_most(
            format!("{arm}: longest request over {STOCK}'s"),
            over("longest_ms"),
            SHORTER,
        ),
        at_most(
            format!("{arm}: session time over {STOCK}'s"),
            over("session_s"),
            1.0,
        ),
        at_least(
            format!("{arm}: elephants completed over {STOCK}'s"),
            over("elephants_completed"),
            SERVED,
        ),
        refused(table, arm),
    ]
}

/// That no other request is refused.
fn refused(table: &Table, arm: &str) -> Option<GoalVerdict> {
    at_most(
        format!("{arm}: other requests refused or failed"),
        median(table, arm, "others_refused")
            .zip(median(table, arm, "others_failed"))
            .map(|(refused, failed)| refused + failed),
        0.0,
    )
}

fn paper(plan: &Plan, table: &Table) -> [(String, Value); 5] {
    let (own, peers) = (own(plan, table), peers(plan, table));
    let row = |name: &str, value: &str, metric: &str, greatest| {
        let source = "004, \"Request time distribution results\"";
        let here = ranked(table, &own, metric, greatest);
        let theirs = ranked(table, &peers, metric, greatest);
        (name.to_owned(), beside(json!(value), source, here, theirs))
    };
    [
        row(
            "total requests",
            "756137 stock, 1143264 with admission control",
            "requests_completed",
            true,
        ),
        row(
            "correlated requests",
            "112521 stock, 105964",
            "elephants_completed",
            true,
        ),
        row("requests/s", "462 stock, 782", "throughput_rps", true),
        row("session time, s", "670 stock, 872", "session_s", false),
        row(
            "longest request",
            "154.7 s stock, 32.7 s; here in ms",
            "longest_ms",
            false,
        ),
    ]
}

fn notes(table: &Table) -> Vec<String> {
    let mut notes = vec![
        format!(
            "The database may use {DATABASE_SHARE} of a CPU; db_cpu says how much of a CPU it used. db_accounted_pct is which part of that its \
             backends used for answers, as the answers tell; the rest is of requests that count to other times, and of the \
             database's own processes."
        ),
        "Session times are clients x time / sessions that ended: clients are in one all the time. db_cost_of is the CPU time of the \
         database per answer, ms; pg_stat_statements is in the raw data. longest_ms is over all requests, elephants included."
            .into(),
    ];
    let served = ratio(table, BY_HAND, STOCK, "elephants_mean_ms");
    if let Some(longer) = served {
        notes.push(format!(
            "Elephants take {longer:.2} times as long as in stock on the average: they are as many, and wait before the site instead \
             of in it."
        ));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(metric: &str, value: f64) -> (String, Vec<f64>) {
        (metric.to_owned(), vec![value, value])
    }

    #[test]
    fn the_papers_own_figures_reach_all_goals_but_the_session_time() {
        let arm = |requests: f64, longest: f64, session: f64, elephants: f64| {
            [
                row("throughput_rps", requests),
                row("longest_ms", longest),
                row("session_s", session),
                row("elephants_completed", elephants),
                row("others_refused", 0.0),
                row("others_failed", 0.0),
            ]
            .into_iter()
            .collect()
        };
        let table: Table = [
            (STOCK.to_owned(), arm(462.0, 154_700.0, 670.0, 112_521.0)),
            (BY_HAND.to_owned(), arm(782.0, 32_700.0, 872.0, 105_964.0)),
        ]
        .into();
        let verdicts: Vec<_> = verdicts(&table, BY_HAND).into_iter().flatten().collect();
        let reached: Vec<_> = verdicts.iter().map(|it| it.reached).collect();
        assert_eq!(reached, [true, true, false, true, true], "{verdicts:?}");
        assert!(
            super::verdicts(&table, AUTOMATIC)
                .iter()
                .flatten()
                .next()
                .is_none()
        );
    }
}
