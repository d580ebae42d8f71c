//! Classes of requests: which requests are alike, and what they are called.
//!
//! ```text
//! request ── Pattern (first match) ──────────────────────────> class of the configuration
//!         └─ Shape (one URL) ── PathTree (merge beyond K) ──> Leaf ── ClassTable (200 heaviest) ──> ClassId
//! ```
//!
//! Raw URLs have numbers, names and keys in them, and so each would be a class of its own. Here
//! they fold by themselves, in one pass and in bounded memory, whatever clients send. An operator
//! names classes with patterns where the folding does not please.
//!
//! It does not know bodies, headers or cookies, and nothing of the meaning of a path. It gives
//! no access and routes nothing: `/a/../b` is three segments and not `/b`.

#[cfg(test)]
mod class_pattern_tests;
mod escape;
mod fold;
mod heavy;
mod pattern;
mod selector;
mod shape;
mod table;
#[cfg(test)]
mod tests;
mod tree;
mod words;

pub(crate) use escape::escaped;
pub use fold::{Folder, Place};
pub use pattern::{PATTERNS_MAX, Pattern, PatternError};
pub(crate) use selector::{Level, Selector, SelectorError, query_of};
pub(crate) use shape::pattern_of;
pub use shape::{SEGMENT_BYTES_MAX, SEGMENTS_MAX, Shape};
pub use table::{Change, ClassId, ClassTable, NAMED_MAX, SLOTS};
pub use tree::{Leaf, PathTree, TreeConfig};
pub use words::Words;

/// What of a request is folded, bytes: its method and the beginning of its target.
pub const WORDS_BYTES_MAX: usize = 160;

/// What is folded of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The site's name; empty if there is only one.
    pub site: &'a str,
    /// As the client sent it; empty if it is not known.
    pub method: &'a str,
    /// The request target, in any of its forms.
    pub target: &'a str,
}

impl<'a> Request<'a> {
    /// The same with as much of the target as is folded.
    #[must_use]
    pub fn cut(self) -> Self {
        let mut end =
            (WORDS_BYTES_MAX - self.method.len().min(WORDS_BYTES_MAX / 2)).min(self.target.len());
        while !self.target.is_char_boundary(end) {
            end -= 1;
        }
        Self {
            target: &self.target[..end],
            ..self
        }
    }
}

/// How much a class has: what decides which names are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Weight {
    /// Requests.
    pub requests: f64,
    /// Their time in progress, seconds.
    pub seconds: f64,
}

impl Weight {
    /// A request that comes in: its time is not known yet.
    pub const ARRIVAL: Self = Self {
        requests: 1.0,
        seconds: 0.0,
    };

    /// The time of a request that was counted when it came in.
    pub const fn time(seconds: f64) -> Self {
        Self {
            requests: 0.0,
            seconds,
        }
    }

    /// A whole request.
    pub const fn finished(seconds: f64) -> Self {
        Self {
            requests: 1.0,
            seconds,
        }
    }

    fn add(&mut self, other: Self) {
        self.requests += other.requests;
        self.seconds += other.seconds;
    }

    fn scale(&mut self, factor: f64) {
        self.requests *= factor;
        self.seconds *= factor;
    }

    /// The larger one of both shares of `all`, in 0 to 1.
    fn share(self, all: Self) -> f64 {
        let part = |own: f64, all: f64| if all > 0.0 { own / all } else { 0.0 };
        part(self.requests, all.requests).max(part(self.seconds, all.seconds))
    }
}
