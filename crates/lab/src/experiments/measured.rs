//! What runs have measured: a table of arms and metrics, and everything raw.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::load::LoadResult;

use super::judge::{Table, pool};
use super::plan::Plan;
use super::runner::{Run, RunHook};
use super::usage::Usage;

/// Least share of the nodes' CPU that throughput is corrected for.
const GIVEN_MIN: f64 = 0.1;

/// Everything that was measured.
#[derive(Debug, Default)]
pub struct Measured {
    /// Arm, metric, value of each round.
    pub table: Table,
    /// How nodes were kept apart.
    pub mode: String,
    /// What was emulated and how.
    pub emulated: Vec<String>,
    /// What the reader of the report should know.
    pub notes: Vec<String>,
    /// Every run with its whole result.
    pub raw: Vec<Value>,
}

impl Measured {
    /// Adds a round's value of a metric.
    pub(super) fn record(&mut self, arm: &str, metric: &str, value: f64) {
        let table = self.table.entry(arm.into()).or_default();
        table.entry(metric.into()).or_default().push(value);
    }

    /// Adds a quantity's mean over all points of the plan, under a label of its own.
    pub(super) fn pool(&mut self, plan: &Plan, quantity: &str, label: &str) {
        let points = plan.stages.iter().flat_map(|stage| &stage.points);
        let each: Vec<_> = points.map(|it| labelled(quantity, &it.label)).collect();
        pool(&mut self.table, &each, &labelled(quantity, label));
    }
    /// Adds what a run has measured, and what was seen meanwhile.
    pub(super) fn take(
        &mut self,
        run: &Run<'_>,
        result: &LoadResult,
        usage: &Usage,
        hook: &mut dyn RunHook,
    ) {
        let total = result.total();
        // Clients in a closed loop wait while the nodes' CPU is away: that time is no arm's fault.
        let given = match run.point.is_closed() {
            true => (1.0 - usage.stolen_from_nodes).max(GIVEN_MIN),
            false => 1.0,
        };
        // Where nothing completed there is no time: zero would be the best of all.
        let known = |time_ms: f64| match total.completed {
            0 => f64::NAN,
            _some => time_ms,
        };
        let mut metrics: Vec<(String, f64)> = vec![
            ("throughput_rps".into(), total.throughput_rps / given),
            ("mean_ms".into(), known(total.mean_ms)),
            ("p50_ms".into(), known(total.p50_ms)),
            ("p99_ms".into(), known(total.p99_ms)),
            ("failed".into(), (total.failed + total.refused) as f64),
            ("nodes_cpu".into(), usage.nodes),
            ("front_cpu".into(), usage.front),
            ("front_waits".into(), usage.front_waits),
            ("others_cpu".into(), usage.others),
            ("stolen_cpu".into(), usage.stolen),
        ];
        let sites: BTreeSet<_> = result.streams.iter().map(|it| &it.site).collect();
        if sites.len() > 1 {
            let streams = result.streams.iter();
            metrics.extend(streams.map(|it| {
                (
                    format!("site_throughput_rps:{}", it.site),
                    it.throughput_rps / given,
                )
            }));
        }
        metrics.extend(hook.metrics(run, result));
        let arm = self.table.entry(run.arm.name.clone()).or_default();
        for (name, value) in &metrics {
            arm.entry(labelled(name, &run.point.label))
                .or_default()
                .push(*value);
        }
        self.raw.push(json!({
            "arm": run.arm.name,
            "point": run.point.label,
            "round": run.round,
            "metrics": metrics.into_iter().collect::<BTreeMap<_, _>>(),
            "result": result,
            "watched": hook.raw(),
        }));
    }
}

/// A metric's whole name: `p99_ms`, `p99_ms[load=0.9]`, `site_throughput_rps[alpha=0.1 site=shop]`.
#[must_use]
pub(super) fn labelled(metric: &str, label: &str) -> String {
    match (metric.split_once(':'), label) {
        (None, "") => metric.into(),
        (None, label) => format!("{metric}[{label}]"),
        (Some((metric, site)), "") => format!("{metric}[site={site}]"),
        (Some((metric, site)), label) => format!("{metric}[{label} site={site}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_put_behind_the_metric() {
        assert_eq!(labelled("p99_ms", ""), "p99_ms");
        assert_eq!(labelled("p99_ms", "load=0.9"), "p99_ms[load=0.9]");
        assert_eq!(
            labelled("rps:shop", "alpha=0.1"),
            "rps[alpha=0.1 site=shop]"
        );
        assert_eq!(labelled("rps:shop", ""), "rps[site=shop]");
    }
}
