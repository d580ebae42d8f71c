//! A tier of servers that share their processors equally, in steps of a millisecond.
//!
//! ```text
//! in each step every job gets min(1 ms, what is left of cores x 1 ms / jobs), twice over
//! ```
//!
//! Coarser than `processor`, which is exact to the nanosecond, for two reasons: how much each used
//! within a window is what labels are made of, and a hundred simulated hours must cost a minute.
//!
//! A tier may take in only so many jobs at once; others wait in order of arrival, as for a slot of a
//! pool of connections.

use std::collections::VecDeque;

/// Length of a step, seconds.
pub(super) const STEP: f64 = 0.001;
/// Work that is as good as done, seconds.
const DONE: f64 = 1e-9;

/// A piece of work.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    /// The caller's number for whose it is.
    pub(super) task: u32,
    /// Whose use it counts as; none for what no request asked for.
    pub(super) class: Option<u16>,
    /// Work left, seconds.
    pub(super) left: f64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Tier {
    pub(super) cores: f64,
    slots: usize,
    jobs: Vec<Job>,
    waiting: VecDeque<Job>,
    /// Busy seconds so far.
    pub(super) busy: f64,
}

impl Tier {
    pub(super) fn new(cores: f64, slots: Option<usize>) -> Self {
        Self {
            cores,
            slots: slots.unwrap_or(usize::MAX),
            jobs: Vec::new(),
            waiting: VecDeque::new(),
            busy: 0.0,
        }
    }

    pub(super) fn arrive(&mut self, job: Job) {
        match self.jobs.len() < self.slots {
            true => self.jobs.push(job),
            false => self.waiting.push_back(job),
        }
    }

    /// A millisecond passes. `used` has each class's use so far added to; tasks that are done are
    /// put into `done`.
    pub(super) fn step(&mut self, used: &mut [f64], done: &mut Vec<u32>) {
        if self.jobs.is_empty() {
            return;
        }
        let mut left = self.cores * STEP;
        let mut given = 0.0;
        for _ in 0..2 {
            let open = self.jobs.iter().filter(|job| job.left > DONE).count();
            if open == 0 || left <= DONE {
                break;
            }
            let most = (left / open as f64).min(STEP - given);
            given += most;
            for job in &mut self.jobs {
                let work = job.left.min(most);
                job.left -= work;
                left -= work;
                if let Some(used) = job.class.and_then(|class| used.get_mut(usize::from(class))) {
                    *used += work;
                }
            }
        }
        self.busy += self.cores * STEP - left;
        let mut place = 0;
        while place < self.jobs.len() {
            if self.jobs[place].left <= DONE {
                done.push(self.jobs.swap_remove(place).task);
            } else {
                place += 1;
            }
        }
        while self.jobs.len() < self.slots {
            let Some(job) = self.waiting.pop_front() else {
                break;
            };
            self.jobs.push(job);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(task: u32, left: f64) -> Job {
        Job {
            task,
            class: Some(task as u16),
            left,
        }
    }

    #[test]
    fn work_is_shared_and_conserved() {
        let mut tier = Tier::new(2.0, None);
        (0..3).for_each(|task| tier.arrive(job(task, 0.01 * f64::from(task + 1))));
        let (mut used, mut done) = ([0.0; 3], Vec::new());
        for _ in 0..40 {
            tier.step(&mut used, &mut done);
        }
        assert_eq!(done, [0, 1, 2]);
        assert!((tier.busy - 0.06).abs() < 1e-9, "{}", tier.busy);
        assert!((used[2] - 0.03).abs() < 1e-9);
    }

    #[test]
    fn a_pool_makes_others_wait() {
        let mut tier = Tier::new(1.0, Some(1));
        (0..2).for_each(|task| tier.arrive(job(task, 0.005)));
        let (mut used, mut done) = ([0.0; 2], Vec::new());
        (0..5).for_each(|_| tier.step(&mut used, &mut done));
        assert_eq!((done.as_slice(), used[1]), (&[0][..], 0.0));
    }
}
