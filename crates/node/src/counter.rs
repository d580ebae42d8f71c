//! Counters that never fall, and integrals of what is only seen from time to time.

use tidegate_core::time::Timestamp;

/// Follows a kernel counter upwards. Where the kernel's falls (a CPU or an interface went, a
/// group was made anew, idle time was corrected), this one stands still and goes on from there.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counter {
    seen: Option<u64>,
    total: u64,
    started: bool,
}

impl Counter {
    /// Takes the kernel's count in; returns ours. The first count is taken as it is.
    pub(crate) fn follow(&mut self, raw: u64) -> u64 {
        match self.seen {
            Some(seen) => self.total = self.total.saturating_add(raw.saturating_sub(seen)),
            None if !self.started => self.total = raw,
            None => {}
        }
        self.seen = Some(raw);
        self.started = true;
        self.total
    }

    /// The same; returns by how much ours has grown, once there is a count to compare with.
    pub(crate) fn grow(&mut self, raw: u64) -> Option<u64> {
        let before = self.seen.map(|_| self.total);
        let total = self.follow(raw);
        before.map(|before| total - before)
    }

    /// The next count comes from another source: it only sets the base line.
    pub(crate) fn change_source(&mut self) {
        self.seen = None;
    }

    /// Adds what grew elsewhere.
    pub(crate) fn add(&mut self, growth: u64) -> u64 {
        self.started = true;
        self.total = self.total.saturating_add(growth);
        self.total
    }

    /// Whether anything was counted yet.
    pub(crate) fn started(&self) -> bool {
        self.started
    }

    /// Our count.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }
}

/// The integral over time of a length that is sampled: between two samples it is taken to have
/// changed evenly.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Integral {
    last: Option<(Timestamp, u64)>,
    total: u64,
}

impl Integral {
    /// Takes the length at `now` in; returns the integral, length·ns.
    pub(crate) fn sample(&mut self, now: Timestamp, length: u64) -> u64 {
        if let Some((at, before)) = self.last {
            let elapsed = u128::from(now.nanos().saturating_sub(at.nanos()));
            let area = (u128::from(before) + u128::from(length)) * elapsed / 2;
            self.total = self
                .total
                .saturating_add(u64::try_from(area).unwrap_or(u64::MAX));
        }
        self.last = Some((now, length));
        self.total
    }

    /// The same; returns by how much it has grown.
    pub(crate) fn grow(&mut self, now: Timestamp, length: u64) -> u64 {
        let before = self.total;
        self.sample(now, length) - before
    }

    /// Forgets the last sample: nothing is known of the time until the next one.
    pub(crate) fn interrupt(&mut self) {
        self.last = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_never_falls() {
        let mut counter = Counter::default();
        let seen = [100, 150, 20, 30, u64::MAX, 0, 5].map(|raw| counter.follow(raw));
        assert_eq!(seen[..4], [100, 150, 150, 160]);
        assert!(seen.is_sorted());
    }

    #[test]
    fn another_source_goes_on_from_the_same_total() {
        let mut counter = Counter::default();
        counter.follow(100);
        counter.change_source();
        assert_eq!(counter.follow(7_000), 100);
        assert_eq!(counter.follow(7_005), 105);
        assert_eq!(counter.grow(7_008), Some(3));
        counter.change_source();
        assert_eq!(counter.grow(9), None);
        assert_eq!(counter.grow(10), Some(1));
    }

    #[test]
    fn an_integral_is_the_area_below() {
        let mut integral = Integral::default();
        assert_eq!(integral.sample(Timestamp::from_nanos(10), 4), 0);
        assert_eq!(integral.sample(Timestamp::from_nanos(20), 4), 40);
        assert_eq!(integral.sample(Timestamp::from_nanos(30), 0), 60);
        assert_eq!(integral.grow(Timestamp::from_nanos(40), 2), 10);
        integral.interrupt();
        assert_eq!(integral.sample(Timestamp::from_nanos(90), 100), 70);
        // Time that runs back adds nothing, and the largest length does not overflow.
        assert_eq!(integral.sample(Timestamp::from_nanos(80), 100), 70);
        assert_eq!(
            integral.sample(Timestamp::from_nanos(1 << 40), u64::MAX),
            u64::MAX
        );
    }
}
