//! Latencies of a window, for their quantiles: a histogram in steps of a sixteenth of an octave.
//!
//! ```text
//! step     16 log2(latency / 1 us), from 0 to 431 (2 minutes)
//! quantile the middle of the step in which it lies: 2.2 % off at most
//! ```

/// Steps of an octave, and octaves from a microsecond on.
const STEPS: f64 = 16.0;
const OCTAVES: usize = 27;
const LEAST: f64 = 1e-6;

/// See the module.
#[derive(Debug)]
pub(super) struct Latencies {
    counts: [u32; STEPS as usize * OCTAVES],
    count: u32,
}

impl Latencies {
    /// None.
    pub(super) const NONE: Self = Self {
        counts: [0; STEPS as usize * OCTAVES],
        count: 0,
    };

    /// Adds one, seconds.
    pub(super) fn add(&mut self, latency: f64) {
        // Whatever is no number lands at an end.
        let step = ((latency / LEAST).log2() * STEPS) as usize;
        let step = step.min(self.counts.len() - 1);
        self.counts[step] = self.counts[step].saturating_add(1);
        self.count = self.count.saturating_add(1);
    }

    /// How many.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// The quantile `q`, seconds, and begins anew; nothing of nothing.
    pub(super) fn take_quantile(&mut self, q: f64) -> Option<f64> {
        let rank = (f64::from(self.count) * q).ceil().max(1.0);
        let mut seen = 0.0;
        let found = self.counts.iter().position(|count| {
            seen += f64::from(*count);
            seen >= rank
        });
        self.counts.fill(0);
        self.count = 0;
        found.map(|step| LEAST * ((step as f64 + 0.5) / STEPS).exp2())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_close_and_the_next_window_begins_empty() {
        let mut latencies = Latencies::NONE;
        assert_eq!(latencies.take_quantile(0.9), None);
        for ms in 1..=1000 {
            latencies.add(f64::from(ms) * 1e-3);
        }
        assert_eq!(latencies.count(), 1000);
        let p90 = latencies.take_quantile(0.9).unwrap();
        assert!((p90 / 0.9 - 1.0).abs() < 0.03, "{p90}");
        assert_eq!((latencies.count(), latencies.take_quantile(0.9)), (0, None));
    }

    #[test]
    fn nothing_is_too_short_or_too_long() {
        let mut latencies = Latencies::NONE;
        for odd in [0.0, -1.0, f64::NAN, 1e-9, 1e9, f64::INFINITY] {
            latencies.add(odd);
        }
        assert_eq!(latencies.count(), 6);
        assert!(latencies.take_quantile(1.0).unwrap() > 100.0);
    }
}
