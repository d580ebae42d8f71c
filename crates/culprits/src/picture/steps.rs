//! Steps of time: what is shown is cut into equal ones, of a length that people know.

use crate::time::SECOND;

/// Lengths of steps, in tenths of a second.
const LENGTHS: [i64; 20] = [
    1, 2, 5, 10, 20, 50, 100, 150, 200, 300, 600, 1200, 1800, 3000, 6000, 9000, 18_000, 36_000,
    216_000, 864_000,
];

/// Equal steps that cover a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Steps {
    /// Start of the first one, nanoseconds of the Unix epoch; a multiple of the length.
    pub(super) start: i64,
    /// Nanoseconds.
    pub(super) length: i64,
    pub(super) count: usize,
}

impl Steps {
    /// At most so many, none shorter than `least`. Of a time that does not begin with a step the
    /// first part of one is left out if it would be one too many.
    pub(super) fn of((from, to): (i64, i64), most: usize, least: i64) -> Self {
        let needed = ((to - from) / most as i64).max(least);
        let known = LENGTHS.iter().map(|tenths| tenths * SECOND / 10);
        let length = known.clone().find(|length| *length >= needed);
        // Years: whole days.
        let day = 864_000 * SECOND / 10;
        let length = length.unwrap_or_else(|| (needed / day + 1) * day);
        let mut start = from.div_euclid(length) * length;
        let mut count = (to - start + length - 1) / length;
        if count > most as i64 {
            start += length;
            count = most as i64;
        }
        Self {
            start,
            length,
            count: usize::try_from(count).unwrap_or(0).max(1),
        }
    }

    /// In which step a moment lies.
    pub(super) fn place(self, at: i64) -> Option<usize> {
        let place = usize::try_from((at - self.start).div_euclid(self.length)).ok()?;
        (place < self.count).then_some(place)
    }

    pub(super) fn seconds(self) -> f64 {
        self.length as f64 / SECOND as f64
    }

    /// Unix seconds.
    pub(super) fn t0(self) -> f64 {
        self.start as f64 / SECOND as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_is_six_hundred_tenths_and_a_day_has_three_minutes() {
        let at = 1_700_000_000 * SECOND;
        let minute = Steps::of((at, at + 60 * SECOND), 600, SECOND / 10);
        assert_eq!(
            (minute.length, minute.count, minute.start),
            (SECOND / 10, 600, at)
        );
        // It begins within a step, and ends within one.
        let off = SECOND / 20;
        let minute = Steps::of((at + off, at + off + 60 * SECOND), 600, SECOND / 10);
        assert_eq!((minute.count, minute.start), (600, at + SECOND / 10));
        assert_eq!(minute.place(at), None);
        assert_eq!(minute.place(at + 60 * SECOND), Some(599));
        assert_eq!(minute.place(at + 61 * SECOND), None);
        let day = Steps::of((at, at + 86_400 * SECOND), 600, SECOND);
        assert_eq!((day.seconds(), day.count), (180.0, 481));
        let most = Steps::of((at, at + 3 * SECOND), 600, SECOND);
        assert_eq!((most.seconds(), most.count), (1.0, 3));
        let years = Steps::of((0, i64::MAX / 2), 600, SECOND);
        assert!(years.count <= 600 && years.length % (86_400 * SECOND) == 0);
    }
}
