//! What befalls one of several front-ends, at random.
//!
//! ```text
//! killed     SIGKILL, and a new process                 at any moment: with a lock taken, an answer on its way, …
//! stopped    SIGSTOP for 30 to 800 ms                   longer than a lease (20 ms and more), or than a fence (400 ms)
//! cut off    its host's cable is pulled, 50 to 2000 ms  it has neither its home nor its nodes
//! ```
//!
//! Inputs: a seed. Failure case: the moments are as random as the machine, so another run has others.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tidegate_core::prng::Prng;
use tidegate_remote::clock;

use crate::cluster::{Cluster, Host};
use crate::front::{self, FrontEnd, FrontKind};

use super::super::ExperimentError;
use super::orders::site_targets;

/// Between two faults, on the average and at most.
const CALM_MEAN_S: f64 = 0.2;
const CALM_MAX_S: f64 = 1.0;
const STOPPED_S: (f64, f64) = (0.03, 0.8);
const CUT_OFF_S: (f64, f64) = (0.05, 2.0);

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    Kill,
    Stop(Duration),
    CutOff(Duration),
}

impl Fault {
    fn draw(prng: &mut Prng) -> Self {
        let mut within = |(least, most): (f64, f64)| {
            Duration::from_secs_f64(least + prng.unit() * (most - least))
        };
        let (stopped, cut_off) = (within(STOPPED_S), within(CUT_OFF_S));
        match prng.below(3) {
            0 => Self::Kill,
            1 => Self::Stop(stopped),
            _ => Self::CutOff(cut_off),
        }
    }
}

/// How often what has happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FaultCounts {
    pub(super) killed: u64,
    pub(super) stopped: u64,
    pub(super) cut_off: u64,
}

/// The front-end that has faults, on a host of its own. It dies with the thread that acts on it.
pub(super) struct Victim<'a> {
    cluster: &'a Cluster,
    kind: FrontKind,
    front_ends: u32,
    pub(super) host: Host,
    /// None while it is dead.
    pub(super) front: Option<FrontEnd>,
    prng: Prng,
    pub(super) counts: FaultCounts,
}

/// Where the interface of a front-end is that comes and goes.
#[derive(Debug, Default)]
pub(super) struct AdminAt(Mutex<Option<SocketAddr>>);

impl AdminAt {
    pub(super) fn get(&self) -> Option<SocketAddr> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, admin: Option<SocketAddr>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = admin;
    }
}

impl<'a> Victim<'a> {
    /// Starts one of so many front-ends.
    pub(super) fn start(
        cluster: &'a Cluster,
        kind: &FrontKind,
        front_ends: u32,
        seed: u64,
        admin: &AdminAt,
    ) -> Result<Self, ExperimentError> {
        let mut victim = Self {
            cluster,
            kind: kind.clone(),
            front_ends,
            host: cluster.host()?,
            front: None,
            prng: Prng::new(seed),
            counts: FaultCounts::default(),
        };
        victim.revive(admin)?;
        Ok(victim)
    }

    fn revive(&mut self, admin: &AdminAt) -> Result<(), ExperimentError> {
        let (place, sites) = (self.host.place(), site_targets());
        let front = front::start_one_of(place, &self.kind, &sites, self.cluster, self.front_ends)?;
        admin.set(front.admin);
        self.front = Some(front);
        Ok(())
    }

    /// One fault after the other while it is not enough; it is well when this returns.
    pub(super) fn suffer(
        &mut self,
        admin: &AdminAt,
        mut enough: impl FnMut() -> bool,
    ) -> Result<(), ExperimentError> {
        while !enough() {
            let calm = self.prng.exponential(CALM_MEAN_S).min(CALM_MAX_S);
            pause(Duration::from_secs_f64(calm));
            if let Some(why) = self.front.as_mut().and_then(FrontEnd::ended) {
                return Err(ExperimentError::Unfit(why));
            }
            match (Fault::draw(&mut self.prng), &self.front) {
                (Fault::Kill, _) | (_, None) => {
                    admin.set(None);
                    if let Some(mut front) = self.front.take() {
                        front.kill();
                    }
                    self.revive(admin)?;
                    self.counts.killed += 1;
                }
                (Fault::Stop(length), Some(front)) => {
                    front.stand_still(true);
                    pause(length);
                    front.stand_still(false);
                    self.counts.stopped += 1;
                }
                (Fault::CutOff(length), Some(_)) => {
                    self.host.plug(false)?;
                    pause(length);
                    self.host.plug(true)?;
                    self.counts.cut_off += 1;
                }
            }
        }
        Ok(())
    }
}

fn pause(length: Duration) {
    clock::sleep_until(clock::now() + length);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_comes_in_its_turn_and_lasts_within_its_bounds() {
        let mut prng = Prng::new(1);
        let mut kinds = [0; 3];
        for _ in 0..3000 {
            let (kind, length, bounds) = match Fault::draw(&mut prng) {
                Fault::Kill => (0, None, STOPPED_S),
                Fault::Stop(length) => (1, Some(length), STOPPED_S),
                Fault::CutOff(length) => (2, Some(length), CUT_OFF_S),
            };
            kinds[kind] += 1;
            let within = |it: Duration| (bounds.0..=bounds.1).contains(&it.as_secs_f64());
            assert!(length.is_none_or(within), "{length:?}");
        }
        assert!(kinds.iter().all(|it| (850..1150).contains(it)), "{kinds:?}");
    }
}
