//! The report's shape, as `docs/api.md` describes it and the page reads it.
//!
//! Times are Unix seconds, durations carry their unit in the name, what is not known is null.
//! Lists have limits: [`CLASSES_MAX`] and those below it.

use serde::{Deserialize, Serialize};

/// Most classes.
pub const CLASSES_MAX: usize = 200;
/// Most resources.
pub const RESOURCES_MAX: usize = 16;
/// Most steps of a resource's series.
pub const STEPS_MAX: usize = 600;
/// Most points of a scatter.
pub const SCATTER_MAX: usize = 300;
/// Most rows of the heat map: steps of time.
pub const ROWS_MAX: usize = 120;
/// Most steps of what was used before.
pub const PAST_STEPS_MAX: usize = 90;
/// Most notes.
pub const NOTES_MAX: usize = 50;

/// Where the data come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// A running front-end.
    Live,
    /// Files.
    Offline,
}

/// `GET /api/culprits`, and what `tidegate culprits --json` prints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Where the data come from.
    pub mode: Mode,
    /// Start of what is shown.
    pub from: f64,
    /// Its end.
    pub to: f64,
    /// Requests that ended in it.
    pub requests: u64,
    /// Sentences for people: what was read, what is doubtful.
    pub notes: Vec<String>,
    /// At most [`RESOURCES_MAX`].
    pub resources: Vec<Resource>,
    /// At most [`CLASSES_MAX`]; the accused ones first, then those with the most time in progress.
    pub classes: Vec<Class>,
    /// Durations over time; null without requests.
    pub heatmap: Option<Heatmap>,
    /// What was used before, of resources whose verdicts are known; empty of recordings.
    #[serde(default)]
    pub past: Vec<Past>,
}

/// What was used of a resource over the last 15 minutes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Past {
    /// The resource.
    pub resource: String,
    /// Length of a step.
    pub step_seconds: f64,
    /// Start of the first step.
    pub t0: f64,
    /// Mean use over the window of the last verdicts in each step, in units of the capacity then; at most
    /// [`PAST_STEPS_MAX`].
    pub used: Vec<Option<f64>>,
    /// What classes used of it; those with the greatest part at any time first.
    pub parts: Vec<Part>,
}

/// A resource.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Resource {
    /// Its name.
    pub name: String,
    /// The node that it belongs to.
    pub node: Option<String>,
    /// How much of it there is; of a rate, which has no capacity, the most that was seen.
    pub capacity: f64,
    /// `cores`, `busy` or `per second`.
    pub unit: String,
    /// Length of a step.
    pub step_seconds: f64,
    /// Start of the first step.
    pub t0: f64,
    /// Mean use by step, in units of the capacity.
    pub used: Vec<Option<f64>>,
    /// What accused classes are estimated to use, by step.
    pub parts: Vec<Part>,
    /// Length of the window that verdicts rest on; null if there are none.
    pub verdict_seconds: Option<f64>,
    /// What verdicts rest on besides that: `not yet` (too little was seen), `before the start` or `seen`; null of
    /// recordings and rates.
    #[serde(default)]
    pub basis: Option<String>,
    /// Part of it in which the resource was full.
    pub saturated_share: Option<f64>,
    /// When verdicts were given.
    pub evaluated_at: Option<f64>,
}

/// A part of a resource's use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Whose.
    pub class: String,
    /// By step, in units of the capacity.
    pub used: Vec<Option<f64>>,
}

/// A class of requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Class {
    /// Its name.
    pub name: String,
    /// What an override of its requests, and of no others, calls it; null where there can be none.
    #[serde(default)]
    pub pattern: Option<String>,
    /// Requests that ended.
    pub requests: u64,
    /// The same per second.
    pub per_second: Option<f64>,
    /// Mean number in progress; null if no duration is known.
    pub in_progress: Option<f64>,
    /// The median duration.
    pub p50_ms: Option<f64>,
    /// Of ten, one lasts longer.
    pub p90_ms: Option<f64>,
    /// Of a hundred, one lasts longer.
    pub p99_ms: Option<f64>,
    /// The longest.
    pub max_ms: Option<f64>,
    /// What slows it.
    pub throttle: Option<Throttle>,
    /// One for each resource of the report.
    pub pairs: Vec<Pair>,
}

/// What slows a class, in a few words.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Throttle {
    /// The class that the override names.
    pub class: String,
    /// Like `concurrency 2`.
    pub limits: String,
    /// What set it.
    pub by: String,
    /// Since when.
    pub since: Option<f64>,
    /// Until when; null means until it is released.
    pub until: Option<f64>,
    /// Requests that were held.
    pub held: Option<u64>,
    /// For how long all together.
    pub held_ms: Option<f64>,
    /// Requests at servers.
    pub in_flight: Option<u64>,
    /// Requests that wait.
    pub waiting: Option<u64>,
}

/// A class and a resource.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    /// The resource.
    pub resource: String,
    /// Part of its capacity that the class uses.
    pub share: Option<f64>,
    /// Of the resource, per request.
    pub cost_ms: Option<f64>,
    /// Half width of its 95 % interval, as a part of it.
    pub cost_error: Option<f64>,
    /// What a request costs at least.
    #[serde(default)]
    pub cost_low_ms: Option<f64>,
    /// And at the most: more than the error says where the resource was full or the class throttled.
    #[serde(default)]
    pub cost_high_ms: Option<f64>,
    /// Whether such a bound makes the range, and no mere error.
    #[serde(default)]
    pub cost_bounded: bool,
    /// The least cost that would have been named; null where none was looked for.
    #[serde(default)]
    pub least_cost_ms: Option<f64>,
    /// Its cost over the mean cost of a request.
    pub lift: Option<f64>,
    /// How well it predicts the use in blocks that it was not fitted to.
    pub t: Option<f64>,
    /// How far its fit stands out from those at wrong times.
    pub z: Option<f64>,
    /// Its fit over the best at a wrong time.
    pub rm: Option<f64>,
    /// One-sided p of t.
    pub p: Option<f64>,
    /// The same, for as many classes and resources as there are.
    pub p_adjusted: Option<f64>,
    /// Requests that ended per second against use.
    pub pearson_r: Option<f64>,
    /// Its two-sided p.
    pub pearson_p: Option<f64>,
    /// How sure it is that the class is a culprit; null: it is not accused.
    pub confidence: Option<String>,
    /// Whether the verdict rests on durations alone: the class may be merely slow, and share and cost are at most
    /// so great.
    #[serde(default)]
    pub doubtful: bool,
    /// Classes that it cannot be distinguished from.
    pub ambiguous_with: Vec<String>,
    /// Since when it is accused.
    pub named_at: Option<f64>,
    /// Shifts in time, and how well the class fits there.
    pub shift_ms: Vec<f64>,
    /// As many as `shift_ms` has.
    pub shift_r: Vec<Option<f64>>,
    /// Requests in progress and use of the resource, by step; at most [`SCATTER_MAX`].
    pub scatter: Vec<[f64; 2]>,
}

/// Durations over time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Heatmap {
    /// Start of the first row.
    pub t0: f64,
    /// Length of a row.
    pub step_seconds: f64,
    /// Bounds of buckets; there is one more below, and one above.
    pub edges_ms: Vec<f64>,
    /// By class; the last one is what has no cell of its own.
    pub cells: Vec<Cell>,
}

/// Durations of one class over time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Whose.
    pub class: String,
    /// Requests that ended, by row and bucket.
    pub counts: Vec<Vec<u64>>,
}
