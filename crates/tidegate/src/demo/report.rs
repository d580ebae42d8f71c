//! What the demo found: the table for people, the object for programs.

use std::fmt::Write;
use std::time::Duration;

use serde::Serialize;
use tidegate_core::policy::PolicyKind;
use tidegate_culprits::table;
use tidegate_proxy::HistogramSnapshot;

use super::load::LoadTally;

/// Share of the machine's CPUs beyond which the machine may be the bottleneck.
const BUSY_MAX: f64 = 0.8;
/// The same for the time that requests spend outside the nodes, relative to the mean demand.
const OVERHEAD_MAX: f64 = 0.5;

/// One policy in one round.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) policy: PolicyKind,
    pub(super) tally: LoadTally,
    /// How long it was measured.
    pub(super) measured: Duration,
    pub(super) load_age: HistogramSnapshot,
    /// From the first arrival to the last answer.
    pub(super) elapsed: Duration,
    /// Share of all CPUs of the machine that this process used in that time.
    pub(super) busy: f64,
}

/// All runs.
#[derive(Debug)]
pub(super) struct DemoRuns {
    pub(super) nodes: usize,
    pub(super) offered_rps: f64,
    pub(super) mean_demand: Duration,
    pub(super) runs: Vec<Run>,
}

/// The object that `--json` prints. Scripts rely on it.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    mode: &'static str,
    nodes: usize,
    offered_rps: f64,
    policies: Vec<PolicySummary>,
}

/// One policy, all rounds together.
#[derive(Debug, Serialize)]
pub(super) struct PolicySummary {
    name: &'static str,
    completed: u64,
    failed: u64,
    throughput_rps: f64,
    p50_ms: f64,
    p99_ms: f64,
    p999_ms: f64,
    /// Nothing if no decision had a record.
    load_age_p99_ms: Option<f64>,
    #[serde(skip)]
    rounds: u32,
    /// The least and the greatest p99 of a round.
    #[serde(skip)]
    p99_range: (f64, f64),
}

impl DemoRuns {
    /// As the contract has it.
    pub(super) fn summary(&self) -> Summary {
        let mut policies: Vec<PolicySummary> = Vec::new();
        for run in &self.runs {
            let name = run.policy.name();
            if policies.iter().all(|policy| policy.name != name) {
                policies.push(self.policy(run.policy));
            }
        }
        Summary {
            mode: "emulated-nodes",
            nodes: self.nodes,
            offered_rps: rounded(self.offered_rps),
            policies,
        }
    }

    fn policy(&self, policy: PolicyKind) -> PolicySummary {
        let mut all = LoadTally::new();
        let mut load_age = HistogramSnapshot::default();
        let mut measured = Duration::ZERO;
        let mut range = (f64::INFINITY, 0.0f64);
        let mut rounds = 0;
        for run in self.runs.iter().filter(|run| run.policy == policy) {
            all.merge(&run.tally);
            load_age.merge(&run.load_age);
            measured += run.measured;
            rounds += 1;
            let p99 = rounded(run.tally.quantile_ms(0.99));
            range = (range.0.min(p99), range.1.max(p99));
        }
        let age = load_age.quantile_seconds(0.99);
        PolicySummary {
            name: policy.name(),
            completed: all.completed,
            failed: all.failed,
            throughput_rps: rounded(all.in_time as f64 / measured.as_secs_f64().max(1e-9)),
            p50_ms: rounded(all.quantile_ms(0.5)),
            p99_ms: rounded(all.quantile_ms(0.99)),
            p999_ms: rounded(all.quantile_ms(0.999)),
            load_age_p99_ms: age.map(|seconds| rounded(seconds * 1e3)),
            rounds,
            p99_range: range,
        }
    }

    /// For people: the table, what it comes to, and what it was measured on.
    pub(super) fn table(&self) -> String {
        let summary = self.summary();
        let header = [
            "policy", "done", "failed", "req/s", "p50 ms", "p99 ms", "by round", "p99.9", "age ms",
        ];
        let mut rows = vec![header.map(str::to_owned)];
        rows.extend(summary.policies.iter().map(|policy| {
            let (least, most) = policy.p99_range;
            let range = (policy.rounds > 1).then(|| format!("{least:.0}-{most:.0}"));
            let age = policy.load_age_p99_ms.map(|age| format!("{age:.1}"));
            [
                policy.name.to_owned(),
                policy.completed.to_string(),
                policy.failed.to_string(),
                format!("{:.0}", policy.throughput_rps),
                format!("{:.1}", policy.p50_ms),
                format!("{:.1}", policy.p99_ms),
                range.unwrap_or("-".into()),
                format!("{:.1}", policy.p999_ms),
                age.unwrap_or("-".into()),
            ]
        }));
        let mut text = table::numbers(&rows);
        text.push_str("age ms: p99 of the age of the load record at a decision\n\n");
        text.push_str(&summary.verdict());
        text.push_str(&self.machine());
        text
    }

    /// Whether the numbers tell of the policies or of the machine.
    pub(super) fn machine(&self) -> String {
        let (mut busiest, mut most, mut strained) = (0.0f64, 0.0f64, 0);
        for run in &self.runs {
            let overhead_ms = run.tally.overhead_ms();
            busiest = busiest.max(run.busy);
            most = most.max(overhead_ms);
            let share = overhead_ms * 1e-3 / self.mean_demand.as_secs_f64();
            strained += usize::from(run.busy > BUSY_MAX || share > OVERHEAD_MAX);
        }
        let text = format!(
            "This machine: the demo used at most {:.0} % of its CPUs; of a request's latency at \
             most {most:.1} ms (p99) were spent outside the nodes.",
            busiest * 100.0,
        );
        match strained {
            0 => text,
            strained => format!(
                "{text}\nIt was a bottleneck itself in {strained} of {} runs: their latencies are \
                 partly its own.",
                self.runs.len()
            ),
        }
    }
}

impl Summary {
    fn named(&self, kind: PolicyKind) -> Option<&PolicySummary> {
        self.policies
            .iter()
            .find(|policy| policy.name == kind.name())
    }

    fn verdict(&self) -> String {
        let Some(auto) = self
            .named(PolicyKind::Auto)
            .filter(|auto| auto.p99_ms > 0.0)
        else {
            return String::new();
        };
        let mut text = String::new();
        if let Some(round_robin) = self.named(PolicyKind::RoundRobin) {
            let ratio = round_robin.p99_ms / auto.p99_ms;
            text = format!(
                "auto: p99 of {:.1} ms, {ratio:.1} times below round_robin's {:.1} ms.",
                auto.p99_ms, round_robin.p99_ms
            );
        }
        let others = self.policies.iter();
        let others = others.filter(|policy| policy.name != auto.name && policy.completed > 0);
        if let Some(best) = others.min_by(|one, other| one.p99_ms.total_cmp(&other.p99_ms)) {
            let better = (1.0 - auto.p99_ms / best.p99_ms) * 100.0;
            let word = if better >= 0.0 { "below" } else { "above" };
            write!(
                text,
                " {:.0} % {word} the best of the others, {} with {:.1} ms.",
                better.abs(),
                best.name,
                best.p99_ms
            )
            .ok();
        }
        text.push('\n');
        text
    }
}

impl Run {
    /// One line.
    pub(super) fn line(&self) -> String {
        format!(
            "{:<13} p50 {:>6.1}  p99 {:>7.1}  p99.9 {:>7.1} ms  {} done, {} failed",
            self.policy.name(),
            self.tally.quantile_ms(0.5),
            self.tally.quantile_ms(0.99),
            self.tally.quantile_ms(0.999),
            self.tally.completed,
            self.tally.failed
        )
    }
}

/// To a thousandth: more was not measured.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(policy: PolicyKind, micros: u64) -> Run {
        let mut tally = LoadTally::new();
        for _ in 0..100 {
            tally.sent += 1;
            tally.ended += 1;
            tally.completed += 1;
            tally.in_time += 1;
            tally.latencies.saturating_record(micros);
        }
        Run {
            policy,
            tally,
            measured: Duration::from_secs(2),
            load_age: HistogramSnapshot::default(),
            elapsed: Duration::from_secs(3),
            busy: 0.3,
        }
    }

    fn findings() -> DemoRuns {
        DemoRuns {
            nodes: 8,
            offered_rps: 50.0,
            mean_demand: Duration::from_millis(10),
            runs: vec![
                run(PolicyKind::RoundRobin, 400_000),
                run(PolicyKind::LeastRequest, 120_000),
                run(PolicyKind::Auto, 80_000),
                run(PolicyKind::Auto, 100_000),
                run(PolicyKind::LeastRequest, 125_000),
                run(PolicyKind::RoundRobin, 500_000),
            ],
        }
    }

    #[test]
    fn the_object_has_the_contracts_shape() {
        let value = serde_json::to_value(findings().summary()).unwrap();
        assert_eq!(value["nodes"], 8);
        assert_eq!(value["offered_rps"], 50.0);
        assert!(value["mode"].is_string());
        let policies = value["policies"].as_array().unwrap();
        let names: Vec<_> = policies.iter().map(|policy| &policy["name"]).collect();
        assert_eq!(names, ["round_robin", "least_request", "auto"]);
        let mut keys: Vec<_> = policies[2].as_object().unwrap().keys().collect();
        keys.sort();
        let expected = [
            "completed",
            "failed",
            "load_age_p99_ms",
            "name",
            "p50_ms",
            "p999_ms",
            "p99_ms",
            "throughput_rps",
        ];
        assert_eq!(keys, expected);
        assert_eq!(policies[2]["completed"], 200);
        assert_eq!(policies[2]["throughput_rps"], 50.0);
    }

    #[test]
    fn the_verdict_names_both_other_policies() {
        let table = findings().table();
        assert!(table.contains("5.0 times below round_robin"), "{table}");
        assert!(
            table.contains("20 % below the best of the others, least_request"),
            "{table}"
        );
        assert!(!table.contains("bottleneck"), "{table}");
    }

    #[test]
    fn tables_fit_a_terminal_of_eighty_columns() {
        let mut findings = findings();
        for run in &mut findings.runs {
            run.tally.completed = 123_456;
            run.tally.latencies.saturating_record(12_345_600);
        }
        let table = findings.table();
        let rows = table.lines().take_while(|line| !line.is_empty());
        for line in rows.map(str::to_owned).chain([findings.runs[0].line()]) {
            assert!(line.chars().count() < 80, "{line}");
        }
    }

    #[test]
    fn a_machine_that_was_too_busy_says_so() {
        let mut findings = findings();
        findings.runs[0].busy = 0.95;
        for _ in 0..10 {
            findings.runs[1].tally.overheads.saturating_record(50_000);
        }
        assert!(
            findings
                .table()
                .contains("bottleneck itself in 2 of 6 runs")
        );
    }
}
