//! Fewer wake-ups while much is in vain.
//!
//! A thread that is woken by every datagram of a flood spends several times what it takes to throw the datagram away.
//! One that rests for a moment finds many at once.

use std::time::Duration;

use tidegate_core::time::Timestamp;

use super::rate::{Window, per_window};

/// Of what may be looked at, this part in vain is a flood.
const FLOOD_PARTS: u32 = 20;
/// For how long it is taken for one.
const FLOOD_FOR: Duration = Duration::from_millis(100);
/// The rest between two batches. Front-ends wait for their answers so much longer, and several times that at most.
const REST: Duration = Duration::from_micros(500);

/// See the module.
pub(in super::super) struct Pace {
    limit: u32,
    vain: Window,
    flood_until: Timestamp,
}

impl Pace {
    /// For so many datagrams a second in all.
    pub(in super::super) fn new(per_second: u32) -> Self {
        Self {
            limit: per_window(per_second) / FLOOD_PARTS,
            vain: Window::default(),
            flood_until: Timestamp::ZERO,
        }
    }

    /// Notes datagrams that were thrown away, or answered in vain; says until when to rest if no more have come.
    pub(in super::super) fn note(&mut self, vain: u32, now: Timestamp) -> Option<Timestamp> {
        if !self.vain.take(vain, self.limit, now) {
            self.flood_until = now + FLOOD_FOR;
        }
        (now < self.flood_until).then(|| now + REST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_rests_between_batches_while_it_is_flooded_and_at_once_no_more() {
        let at = Timestamp::from_millis;
        let mut pace = Pace::new(200_000);
        // 100 of the 2000 in 10 ms.
        for ms in (1000..1100).step_by(10) {
            assert_eq!(pace.note(100, at(ms)), None);
        }
        assert_eq!(pace.note(1, at(1091)), Some(at(1091) + REST));
        assert_eq!(pace.note(0, at(1190)), Some(at(1190) + REST));
        assert_eq!(pace.note(100, at(1191)), None);
    }
}
