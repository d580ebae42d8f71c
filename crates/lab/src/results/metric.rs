//! Names of metrics: `throughput_rps[alpha=0.5 site=shop]` is a quantity and what distinguishes it.
//!
//! Which way is better follows from the quantity's unit; where it does not, nothing is called a
//! loss.

/// A metric's name, taken apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Metric<'a> {
    /// `throughput_rps`.
    pub quantity: &'a str,
    /// `alpha=0.5 site=shop`, or nothing.
    pub label: &'a str,
}

/// Which way a quantity is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// More is.
    More,
    /// Less is.
    Less,
    /// It is a fact, not a merit.
    Neither,
}

/// Endings and whole names of quantities that are better when there is more of them.
const MORE: &[&str] = &[
    "_rps",
    "completed",
    "gain_pct",
    "jain",
    "success_pct",
    "precision_pct",
    "recall_pct",
    "good_pct",
];
/// Of those that are better when there is less. An ending of time or cost counts for all.
const LESS: &[&str] = &[
    "_ms",
    "_us",
    "_ns",
    "failed",
    "refused",
    "errors",
    "variance",
    "_error_pct",
    "idle_pct",
    "over_1s_pct",
    "front_cpu",
    "instructions",
    "cpu_per_request",
    "_over_haproxy",
    "idle_kib",
];

impl<'a> Metric<'a> {
    /// Takes a name apart.
    pub fn of(name: &'a str) -> Self {
        let apart = name.strip_suffix(']').and_then(|it| it.split_once('['));
        let (quantity, label) = apart.unwrap_or((name, ""));
        Self { quantity, label }
    }

    /// The value of a parameter, if the label has it and it is a number.
    pub fn parameter(&self, name: &str) -> Option<f64> {
        self.value(name)?.parse().ok()
    }

    /// The value of a parameter as text.
    pub fn value(&self, name: &str) -> Option<&'a str> {
        let parts = self.label.split([' ', ',']);
        parts
            .filter_map(|it| it.split_once('='))
            .find(|it| it.0 == name)
            .map(|it| it.1)
    }

    /// Which way it is better.
    pub fn better(&self) -> Better {
        let ends = |words: &[&str]| words.iter().any(|it| self.quantity.ends_with(it));
        if ends(MORE) {
            Better::More
        } else if ends(LESS) {
            Better::Less
        } else {
            Better::Neither
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_apart() {
        let metric = Metric::of("throughput_rps[alpha=0.5 site=shop]");
        assert_eq!(
            (metric.quantity, metric.label),
            ("throughput_rps", "alpha=0.5 site=shop")
        );
        assert_eq!(metric.parameter("alpha"), Some(0.5));
        assert_eq!(metric.parameter("site"), None);
        assert_eq!(metric.value("site"), Some("shop"));
        let plain = Metric::of("p99_ms");
        assert_eq!((plain.quantity, plain.label), ("p99_ms", ""));
    }

    #[test]
    fn better_follows_from_the_quantity() {
        let better = |name| Metric::of(name).better();
        assert_eq!(better("throughput_rps[alpha=0.1]"), Better::More);
        assert_eq!(better("p99_ms"), Better::Less);
        assert_eq!(better("failed[load=0.9]"), Better::Less);
        assert_eq!(better("nodes_cpu"), Better::Neither);
    }
}
