//! What `tidegate simulate --json` prints. Scripts rely on it.

use serde::Serialize;
use tidegate_core::policy::PolicyKind;
use tidegate_sim::matrix::comparison::{Comparison, Loss, PairTally, Row};
use tidegate_sim::matrix::score::{By, Score};

/// To a thousandth: more is noise.
pub(super) fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// What one policy came to in one scenario.
#[derive(Debug, Serialize)]
pub(super) struct ScoreModel {
    name: &'static str,
    p50_ms: f64,
    p99_ms: f64,
    p99_min_ms: f64,
    p99_max_ms: f64,
    p999_ms: f64,
    mean_ms: f64,
    offered: u64,
    completed: u64,
    failed: u64,
    rejected: u64,
    herding: f64,
    least_share: f64,
    load_age_p99_ms: f64,
}

impl ScoreModel {
    pub(super) fn new(name: &'static str, score: &Score) -> Self {
        Self {
            name,
            p50_ms: rounded(score.p50_ms),
            p99_ms: rounded(score.p99_ms),
            p99_min_ms: rounded(score.p99_range_ms.0),
            p99_max_ms: rounded(score.p99_range_ms.1),
            p999_ms: rounded(score.p999_ms),
            mean_ms: rounded(score.mean_ms),
            offered: score.offered,
            completed: score.completed,
            failed: score.failed,
            rejected: score.rejected,
            herding: rounded(score.herding),
            least_share: rounded(score.least_share),
            load_age_p99_ms: rounded(score.load_age_p99_ms),
        }
    }
}

/// One scenario under some policies.
#[derive(Debug, Serialize)]
pub(super) struct SingleModel {
    pub(super) scenario: String,
    pub(super) seed: u64,
    pub(super) requests: u32,
    pub(super) policies: Vec<ScoreModel>,
    pub(super) oracle: Option<ScoreModel>,
    /// What the scenario expects of `auto` and did not come true.
    pub(super) unmet: Vec<String>,
    pub(super) speed: Speed,
}

/// How fast the simulator was.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Speed {
    pub(super) seconds: f64,
    pub(super) threads: usize,
    pub(super) events: u64,
    pub(super) events_per_second: f64,
}

impl Speed {
    pub(super) fn new(seconds: f64, threads: usize, events: u64) -> Self {
        Self {
            seconds: rounded(seconds),
            threads,
            events,
            events_per_second: (events as f64 / seconds.max(1e-9)).round(),
        }
    }

    pub(super) fn text(&self) -> String {
        format!(
            "{} events in {:.1} s on {} threads: {:.2} million events/s",
            self.events,
            self.seconds,
            self.threads,
            self.events_per_second / 1e6
        )
    }
}

/// The standard matrix.
#[derive(Debug, Serialize)]
pub(super) struct CompareModel {
    seeds: u32,
    scenarios: Vec<RowModel>,
    against: Vec<TallyModel>,
    losses: Vec<LossModel>,
    /// Geometric mean of the p99 of `auto` over the oracle's.
    p99_to_oracle: Option<f64>,
    unmet: Vec<String>,
    speed: Speed,
}

#[derive(Debug, Serialize)]
struct RowModel {
    name: String,
    family: String,
    half: &'static str,
    policies: Vec<ScoreModel>,
    oracle: Option<ScoreModel>,
}

#[derive(Debug, Serialize)]
struct TallyModel {
    policy: &'static str,
    wins: u32,
    ties: u32,
    losses: u32,
    p99_ratio: Option<f64>,
}

#[derive(Debug, Serialize)]
struct LossModel {
    scenario: String,
    half: &'static str,
    to: &'static str,
    /// Own p99 over the other's; nothing if errors decided.
    p99_ratio: Option<f64>,
    /// Own share of missed requests less the other's; nothing if p99 decided.
    missed_more: Option<f64>,
    p99_to_oracle: Option<f64>,
}

impl CompareModel {
    pub(super) fn new(
        comparison: &Comparison,
        judged: PolicyKind,
        seeds: u32,
        unmet: Vec<String>,
        speed: Speed,
    ) -> Self {
        let row = |row: &Row| {
            let scores = comparison.policies.iter().zip(&row.scores);
            RowModel {
                name: row.name.clone(),
                family: row.family.clone(),
                half: row.half.label(),
                policies: scores
                    .map(|(kind, score)| ScoreModel::new(kind.name(), score))
                    .collect(),
                oracle: row.oracle.as_ref().map(|it| ScoreModel::new("oracle", it)),
            }
        };
        Self {
            seeds,
            scenarios: comparison.rows.iter().map(row).collect(),
            against: comparison.tallies(judged).iter().map(tally).collect(),
            losses: comparison.losses(judged).iter().map(loss).collect(),
            p99_to_oracle: comparison.oracle_ratio(judged).map(rounded),
            unmet,
            speed,
        }
    }
}

fn tally(tally: &PairTally) -> TallyModel {
    TallyModel {
        policy: tally.against.name(),
        wins: tally.wins,
        ties: tally.ties,
        losses: tally.losses,
        p99_ratio: tally.p99_ratio.map(rounded),
    }
}

fn loss(loss: &Loss) -> LossModel {
    let (ratio, missed) = match loss.by {
        By::Ratio(ratio) => (Some(rounded(ratio)), None),
        By::Missed(missed) => (None, Some(missed)),
    };
    LossModel {
        scenario: loss.scenario.clone(),
        half: loss.half.label(),
        to: loss.to.name(),
        p99_ratio: ratio,
        missed_more: missed,
        p99_to_oracle: loss.to_oracle.map(rounded),
    }
}
