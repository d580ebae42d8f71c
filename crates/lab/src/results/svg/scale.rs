//! From values to places: linear and logarithmic scales with round ticks.

use super::super::number::{show, tick};

/// Ticks that a linear axis has about.
const TICKS: f64 = 6.0;
/// Room above the greatest value, as a share of the extent.
const HEADROOM: f64 = 0.06;

/// Given ticks at most, and how far apart they are at least.
const GIVEN_MAX: usize = 12;
const APART: f64 = 34.0;

/// A scale from values to a stretch of the picture.
#[derive(Clone, Debug)]
pub(super) struct Scale {
    log: bool,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    /// Where ticks are, if not where the scale would put them.
    given: Vec<f64>,
}

impl Scale {
    /// For values of which the finite ones matter (on a log scale, the positive ones), from place
    /// `from` to place `to`. `zero` brings zero into sight, `room` keeps some room at the top.
    pub(super) fn new(
        values: impl Iterator<Item = f64>,
        log: bool,
        zero: bool,
        room: bool,
        (from, to): (f64, f64),
    ) -> Self {
        let usable = values.filter(|it| it.is_finite() && (!log || *it > 0.0));
        let (mut low, mut high) = usable
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), it| {
                (low.min(it), high.max(it))
            });
        if low > high {
            (low, high) = if log { (1.0, 10.0) } else { (0.0, 1.0) };
        }
        if zero && !log {
            (low, high) = (low.min(0.0), high.max(0.0));
        }
        if low == high {
            (low, high) = if log {
                (low / 2.0, high * 2.0)
            } else {
                (low - 0.5, high + 0.5)
            };
        }
        if log && room {
            let step = (high / low).powf(HEADROOM);
            (low, high) = (low / step, high * step);
        } else if room {
            high += (high - low) * HEADROOM;
        }
        Self {
            log,
            low,
            high,
            from,
            to,
            given: Vec::new(),
        }
    }

    /// With ticks at the values themselves, if these are few and far enough apart.
    pub(super) fn with_ticks_at(mut self, values: impl Iterator<Item = f64>) -> Self {
        let mut values: Vec<_> = values.filter(|it| it.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        values.dedup();
        let apart = |pair: &[f64]| self.place(pair[1]) - self.place(pair[0]) >= APART;
        if values.len() <= GIVEN_MAX && values.windows(2).all(apart) {
            self.given = values;
        }
        self
    }

    /// The place of a value, within the picture even if the value is not.
    pub(super) fn place(&self, value: f64) -> f64 {
        let share = if self.log {
            (value.max(f64::MIN_POSITIVE) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.from + (self.to - self.from) * share.clamp(0.0, 1.0)
    }

    /// Where bars begin.
    pub(super) fn ground(&self) -> f64 {
        if self.log {
            self.low
        } else {
            self.low.max(0.0)
        }
    }

    /// Round values with their texts.
    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        if !self.given.is_empty() {
            return (self.given.iter()).map(|it| (*it, show(*it))).collect();
        }
        if self.log {
            self.log_ticks()
        } else {
            self.linear_ticks()
        }
    }

    fn linear_ticks(&self) -> Vec<(f64, String)> {
        let step = round_step((self.high - self.low) / TICKS);
        let first = (self.low / step - 1e-9).ceil() as i64;
        let last = (self.high / step + 1e-9).floor() as i64;
        let value = |number: i64| number as f64 * step;
        (first..=last)
            .map(|number| (value(number), tick(value(number), step)))
            .collect()
    }

    /// Powers of ten, and 2 and 5 times them where there are few.
    fn log_ticks(&self) -> Vec<(f64, String)> {
        let decades = (self.high / self.low).log10();
        let factors: &[f64] = if decades > 3.0 {
            &[1.0]
        } else {
            &[1.0, 2.0, 5.0]
        };
        let (first, last) = (
            self.low.log10().floor() as i32,
            self.high.log10().ceil() as i32,
        );
        let values =
            (first..=last).flat_map(|power| factors.iter().map(move |it| it * 10_f64.powi(power)));
        let seen =
            values.filter(|it| (self.low * (1.0 - 1e-9)..=self.high * (1.0 + 1e-9)).contains(it));
        seen.map(|value| (value, tick(value, 10_f64.powf(value.log10().floor()))))
            .collect()
    }
}

/// The next of 1, 2, 5, 10, 20 …
fn round_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    let factors = [1.0, 2.0, 5.0, 10.0];
    let factor = factors
        .into_iter()
        .find(|factor| factor * power >= least * (1.0 - 1e-9));
    factor.unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scale(values: &[f64], log: bool) -> Scale {
        Scale::new(values.iter().copied(), log, false, false, (0.0, 100.0))
    }

    fn texts(scale: &Scale) -> Vec<String> {
        scale.ticks().into_iter().map(|it| it.1).collect()
    }

    #[test]
    fn ticks_are_round_and_within() {
        assert_eq!(
            texts(&scale(&[0.1, 0.9], false)),
            ["0.2", "0.4", "0.6", "0.8"]
        );
        assert_eq!(
            texts(&scale(&[0.0, 30_000.0], false)).last().unwrap(),
            "30,000"
        );
        assert_eq!(
            texts(&scale(&[1.0, 5000.0], true)),
            ["1", "10", "100", "1000"]
        );
        assert_eq!(texts(&scale(&[20.0, 100.0], true)), ["20", "50", "100"]);
    }

    #[test]
    fn values_have_their_place_and_strange_ones_stay_inside() {
        let linear = scale(&[0.0, 10.0, f64::NAN], false);
        assert_eq!((linear.place(5.0), linear.place(20.0)), (50.0, 100.0));
        let log = scale(&[1.0, 100.0, 0.0], true);
        assert!((log.place(10.0) - 50.0).abs() < 1e-9);
        assert_eq!(log.place(0.0), 0.0);
        assert!(scale(&[], true).place(3.0).is_finite());
        assert!(scale(&[7.0], false).place(7.0).is_finite());
    }
}
