//! So many datagrams a second, counted in short windows.

use std::time::Duration;

use tidegate_core::time::Timestamp;

/// Over this time rates are limited.
pub(in super::super) const RATE_WINDOW: Duration = Duration::from_millis(RATE_WINDOW_MS);
const RATE_WINDOW_MS: u64 = 10;
/// Windows of which what was not used may come at once.
const BURST_WINDOWS: u32 = 10;

/// What a rate comes to in a window; at least one.
pub(super) fn per_window(per_second: u32) -> u32 {
    let windows = 1000 / RATE_WINDOW.as_millis() as u32;
    (per_second / windows).max(1)
}

/// Counts datagrams in windows of so many milliseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Window<const MS: u64 = RATE_WINDOW_MS> {
    since: Timestamp,
    seen: u32,
}

impl<const MS: u64> Window<MS> {
    const LENGTH: Duration = Duration::from_millis(MS);

    /// Counts so many more; whether all of its time are within the limit.
    pub(super) fn take(&mut self, datagrams: u32, limit: u32, now: Timestamp) -> bool {
        if now.since(self.since) >= Self::LENGTH {
            *self = Self {
                since: now,
                seen: 0,
            };
        }
        self.seen = self.seen.saturating_add(datagrams);
        self.seen <= limit
    }

    /// Whether the next one would be within the limit.
    pub(super) fn has_room(&self, limit: u32, now: Timestamp) -> bool {
        now.since(self.since) >= Self::LENGTH || self.seen < limit
    }
}

/// So many datagrams a second, then a rest until the window ends. What windows of before have left may come in a burst.
pub(in super::super) struct RateLimit {
    per_window: u32,
    since: Timestamp,
    left: u32,
}

impl RateLimit {
    pub(in super::super) fn new(per_second: u32) -> Self {
        let per_window = per_window(per_second);
        Self {
            per_window,
            since: Timestamp::ZERO,
            left: per_window.saturating_mul(BURST_WINDOWS),
        }
    }

    /// Notes datagrams; says until when to rest, if they are too many.
    pub(in super::super) fn note(&mut self, datagrams: u32, now: Timestamp) -> Option<Timestamp> {
        let passed = (now.since(self.since).as_millis() / RATE_WINDOW.as_millis()) as u64;
        if passed >= u64::from(BURST_WINDOWS) {
            self.left = self.per_window.saturating_mul(BURST_WINDOWS);
            self.since = now;
        } else {
            let windows = passed as u32;
            let more = self.per_window.saturating_mul(windows);
            let most = self.per_window.saturating_mul(BURST_WINDOWS);
            self.left = self.left.saturating_add(more).min(most);
            self.since = self.since + RATE_WINDOW * windows;
        }
        let within = datagrams <= self.left;
        self.left = self.left.saturating_sub(datagrams);
        (!within).then(|| self.since + RATE_WINDOW)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_given_a_rest_until_the_window_ends() {
        let at = Timestamp::from_millis;
        let mut limit = RateLimit::new(10_000);
        assert_eq!(limit.note(1000, at(1000)), None);
        assert_eq!(limit.note(1, at(1005)), Some(at(1010)));
        for ms in (1010..2000).step_by(10) {
            assert_eq!(limit.note(100, at(ms)), None);
            assert_eq!(limit.note(1, at(ms + 9)), Some(at(ms + 10)));
        }
        assert_eq!(per_window(0), 1);
    }

    #[test]
    fn what_was_not_used_may_come_at_once_and_no_more_than_that_of_ten_windows() {
        let at = Timestamp::from_millis;
        let mut limit = RateLimit::new(10_000);
        assert_eq!(limit.note(1000, at(1000)), None);
        assert_eq!(limit.note(300, at(1030)), None);
        assert_eq!(limit.note(1, at(1039)), Some(at(1040)));
        assert_eq!(limit.note(1000, at(9000)), None);
        assert_eq!(limit.note(1, at(9009)), Some(at(9010)));
        // Nothing is owed for what was too much.
        assert_eq!(limit.note(5000, at(9010)), Some(at(9020)));
        assert_eq!(limit.note(100, at(9020)), None);
        // However great the rate.
        assert_eq!(RateLimit::new(u32::MAX).note(400_000_000, at(1000)), None);
        // Windows that began late are no shorter.
        let mut late = RateLimit::new(10_000);
        assert_eq!(late.note(1000, at(1000)), None);
        assert_eq!(late.note(100, at(1019)), None);
        assert_eq!(late.note(100, at(1020)), None);
    }
}
