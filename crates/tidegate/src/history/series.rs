//! Samples by equal steps: the newest so many, each in its place.

use std::collections::VecDeque;

use super::Step;

/// What happened in a step.
pub(crate) trait Sample: Copy + Default {
    /// Takes what happened later in the same step.
    fn absorb(&mut self, later: Self);
}

/// The newest samples of one length of step. A step without a sample has none, not an empty one.
#[derive(Debug)]
pub(crate) struct Ring<T> {
    most: usize,
    /// The last one is that of step `newest`.
    samples: VecDeque<Option<T>>,
    newest: u64,
}

impl<T: Sample> Ring<T> {
    fn new(most: usize) -> Self {
        Self {
            most,
            samples: VecDeque::new(),
            newest: 0,
        }
    }

    /// Takes a sample of a step: what is older than the newest one is added to that, as the clock was set back.
    fn put(&mut self, step: u64, sample: T) {
        if self.samples.is_empty() {
            self.newest = step;
            self.samples.push_back(Some(sample));
            return;
        }
        if step <= self.newest {
            if let Some(last) = self.samples.back_mut() {
                last.get_or_insert_default().absorb(sample);
            }
            return;
        }
        let left_out = (step - self.newest - 1).min(self.most as u64);
        let empty = (0..left_out).map(|_| None);
        for sample in empty.chain([Some(sample)]) {
            if self.samples.len() >= self.most {
                self.samples.pop_front();
            }
            self.samples.push_back(sample);
        }
        self.newest = step;
    }

    /// The newest step.
    pub(super) fn newest(&self) -> u64 {
        self.newest
    }

    /// All of them, the oldest first.
    pub(super) fn samples(&self) -> impl Iterator<Item = &Option<T>> {
        self.samples.iter()
    }

    /// Puts samples before its own, of which the last is that of this step. Its own count where both have one.
    fn recall(&mut self, newest: u64, samples: &[Option<T>]) {
        if self.samples.is_empty() {
            self.newest = newest;
        }
        let first = (self.newest + 1).saturating_sub(self.samples.len() as u64);
        let oldest = (newest + 1).saturating_sub(samples.len() as u64);
        let room = (self.most - self.samples.len()) as u64;
        for step in (oldest.max(first.saturating_sub(room))..first).rev() {
            // A step between the two has no sample.
            let at = usize::try_from(step - oldest).unwrap_or(usize::MAX);
            let sample = samples.get(at).copied().flatten();
            self.samples.push_front(sample);
        }
    }

    /// The sample of a step, if there is one yet, or still.
    pub(crate) fn at(&self, step: u64) -> Option<T> {
        let ago = usize::try_from(self.newest.checked_sub(step)?).ok()?;
        let index = self.samples.len().checked_sub(ago + 1)?;
        *self.samples.get(index)?
    }
}

/// The same samples in steps of both lengths.
#[derive(Debug)]
pub(crate) struct Series<T> {
    seconds: Ring<T>,
    tens: Ring<T>,
}

impl<T: Sample> Default for Series<T> {
    fn default() -> Self {
        Self {
            seconds: Ring::new(Step::Second.most()),
            tens: Ring::new(Step::TenSeconds.most()),
        }
    }
}

impl<T: Sample> Series<T> {
    /// Takes what happened in a second.
    pub(crate) fn put(&mut self, second: u64, sample: T) {
        self.seconds.put(second, sample);
        self.tens.put(second / Step::TenSeconds.seconds(), sample);
    }

    /// Puts what another process recorded, in steps of ten seconds, before its own.
    pub(super) fn recall(&mut self, newest: u64, samples: Vec<Option<T>>) {
        self.tens.recall(newest, &samples);
    }

    /// The newest second.
    pub(crate) fn newest(&self) -> u64 {
        self.seconds.newest
    }

    pub(crate) fn ring(&self, step: Step) -> &Ring<T> {
        match step {
            Step::Second => &self.seconds,
            Step::TenSeconds => &self.tens,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Sample for u32 {
        fn absorb(&mut self, later: Self) {
            *self += later;
        }
    }

    fn all(ring: &Ring<u32>, steps: std::ops::Range<u64>) -> Vec<Option<u32>> {
        steps.map(|step| ring.at(step)).collect()
    }

    #[test]
    fn each_step_has_its_place_and_the_oldest_go() {
        let mut ring = Ring::new(3);
        assert_eq!(ring.at(7), None);
        for step in 7..=10 {
            ring.put(step, step as u32);
        }
        let expected = [None, None, Some(8), Some(9), Some(10), None];
        assert_eq!(all(&ring, 6..12), expected);
    }

    #[test]
    fn steps_without_a_sample_are_empty_however_many_there_are() {
        let mut ring = Ring::new(3);
        ring.put(7, 1);
        ring.put(9, 2);
        assert_eq!(all(&ring, 7..10), [Some(1), None, Some(2)]);
        ring.put(u64::MAX, 3);
        assert_eq!(all(&ring, 7..10), [None; 3]);
        assert_eq!(ring.at(u64::MAX), Some(3));
        assert_eq!(ring.samples.len(), 3);
    }

    #[test]
    fn what_comes_again_is_added_to_the_newest() {
        let mut ring = Ring::new(3);
        ring.put(7, 1);
        ring.put(7, 2);
        ring.put(5, 4);
        assert_eq!(all(&ring, 5..8), [None, None, Some(7)]);
    }

    #[test]
    fn tens_are_the_sums_of_their_seconds() {
        let mut series = Series::default();
        (100..115).for_each(|second| series.put(second, 1));
        assert_eq!(
            all(series.ring(Step::TenSeconds), 10..12),
            [Some(10), Some(5)]
        );
        assert_eq!(series.newest(), 114);
    }
}
