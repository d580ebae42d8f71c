//! So many datagrams a second, counted in short windows.

use std::time::Duration;

use tidegate_core::time::Timestamp;

/// Over this time rates are limited.
pub(in super::super) const RATE_WINDOW: Duration = Duration::from_millis(10);

/// What a rate comes to in a window; at least one.
pub(super) fn per_window(per_second: u32) -> u32 {
    let windows = 1000 / RATE_WINDOW.as_millis() as u32;
    (per_second / windows).max(1)
}

/// Counts datagrams in windows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Window {
    since: Timestamp,
    seen: u32,
}

impl Window {
    /// Counts so many more; whether all of its time are within the limit.
    pub(super) fn take(&mut self, datagrams: u32, limit: u32, now: Timestamp) -> bool {
        if now.since(self.since) >= RATE_WINDOW {
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
        now.since(self.since) >= RATE_WINDOW || self.seen < limit
    }

    fn end(&self) -> Timestamp {
        self.since + RATE_WINDOW
    }
}

/// So many datagrams in a window, then a rest until it ends.
pub(in super::super) struct RateLimit {
    per_window: u32,
    window: Window,
}

impl RateLimit {
    pub(in super::super) fn new(per_second: u32) -> Self {
        Self {
            per_window: per_window(per_second),
            window: Window::default(),
        }
    }

    /// Notes datagrams; says until when to rest, if they are too many.
    pub(in super::super) fn note(&mut self, datagrams: u32, now: Timestamp) -> Option<Timestamp> {
        let within = self.window.take(datagrams, self.per_window, now);
        (!within).then(|| self.window.end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_given_a_rest_until_the_window_ends() {
        let at = Timestamp::from_millis;
        let mut limit = RateLimit::new(10_000);
        assert_eq!(limit.note(100, at(1000)), None);
        assert_eq!(limit.note(1, at(1005)), Some(at(1010)));
        assert_eq!(limit.note(100, at(1010)), None);
        assert_eq!(per_window(0), 1);
    }
}
