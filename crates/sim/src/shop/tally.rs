//! What became of requests, by class and by when they came.

use std::time::Duration;

use tidegate_core::time::Timestamp;

/// What a run gave.
#[derive(Clone, Debug)]
pub struct ShopRun {
    start: Timestamp,
    /// By class.
    requests: Vec<Vec<EndedRequest>>,
    /// What `automatic` did, and when, seconds after the start.
    pub said: Vec<(f64, String)>,
}

/// A request, in seconds.
#[derive(Clone, Copy, Debug)]
struct EndedRequest {
    /// After the start.
    came_at: f64,
    /// How long it took; none: it was refused.
    took: Option<f64>,
}

/// Of some classes over some time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClassSummary {
    /// Requests that were answered.
    pub answered: usize,
    /// Those that were refused.
    pub refused: usize,
    /// Mean and 95 of 100, milliseconds, waiting at the front-end included.
    pub mean_ms: f64,
    /// See there.
    pub p95_ms: f64,
}

impl ShopRun {
    pub(super) fn new(start: Timestamp, classes: usize) -> Self {
        Self {
            start,
            requests: vec![Vec::new(); classes],
            said: Vec::new(),
        }
    }

    pub(super) fn say(&mut self, said: Vec<(Timestamp, String)>) {
        let at = |at: Timestamp| at.seconds_since(self.start);
        self.said = said
            .into_iter()
            .map(|(when, text)| (at(when), text))
            .collect();
    }

    pub(super) fn add(&mut self, class: usize, arrived: Timestamp, took: Option<Duration>) {
        self.requests[class].push(EndedRequest {
            came_at: arrived.seconds_since(self.start),
            took: took.map(|it| it.as_secs_f64()),
        });
    }

    /// Of requests of these classes that came between these seconds.
    pub fn over(&self, classes: &[usize], from: f64, to: f64) -> ClassSummary {
        let of = classes.iter().flat_map(|class| &self.requests[*class]);
        let within: Vec<_> = of.filter(|it| (from..to).contains(&it.came_at)).collect();
        let mut took: Vec<f64> = within.iter().filter_map(|it| it.took).collect();
        took.sort_by(f64::total_cmp);
        let many = took.len();
        let at = |q: usize| took.get((many.max(1) - 1) * q / 100).copied();
        ClassSummary {
            answered: many,
            refused: within.len() - many,
            mean_ms: took.iter().sum::<f64>() / many.max(1) as f64 * 1e3,
            p95_ms: at(95).unwrap_or_default() * 1e3,
        }
    }
}
