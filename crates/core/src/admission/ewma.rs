//! A mean that forgets: exponentially weighted over time, whatever the intervals.
//!
//! ```text
//! m += (x - m) * (1 - e^(-dt / tau))     x held for dt
//! ```

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ewma {
    tau: f64,
    value: Option<f64>,
}

impl Ewma {
    /// With this time constant, seconds.
    pub(super) const fn new(tau: f64) -> Self {
        Self { tau, value: None }
    }

    /// This was the value for so many seconds. What is no number is not taken in.
    pub(super) fn add(&mut self, value: f64, dt: f64) {
        if !value.is_finite() || dt < 0.0 {
            return;
        }
        self.value = Some(match self.value {
            None => value,
            Some(mean) => mean + (value - mean) * weight(dt, self.tau),
        });
    }

    /// The mean; zero before the first value.
    pub(super) fn value(&self) -> f64 {
        self.value.unwrap_or(0.0)
    }
}

/// The part of the way that is gone in `dt` with a time constant of `tau`.
pub(super) fn weight(dt: f64, tau: f64) -> f64 {
    1.0 - (-dt / tau).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_short_steps_are_one_long_one() {
        let (mut short, mut long) = (Ewma::new(0.1), Ewma::new(0.1));
        short.add(0.0, 1.0);
        long.add(0.0, 1.0);
        (0..100).for_each(|_| short.add(1.0, 0.001));
        long.add(1.0, 0.1);
        assert!((short.value() - long.value()).abs() < 1e-9);
        assert!((long.value() - 0.632).abs() < 1e-3);
        long.add(f64::NAN, 0.1);
        assert!(long.value().is_finite());
    }
}
