//! The core's only source of randomness: a seed that the caller gives.
//!
//! xoshiro256++ is specified bit for bit, so a seed replays the same choices on
//! every machine and after every update.

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A small, fast, seeded generator. Not for secrets.
#[derive(Clone, Debug)]
pub struct Prng(Xoshiro256PlusPlus);

impl Prng {
    /// A generator that gives the same numbers for the same seed, for ever.
    pub fn new(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// Any 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A uniform number below `bound` (Lemire's multiply; its bias is below 2⁻³² for our bounds).
    ///
    /// # Panics
    /// Debug builds panic on a zero bound: there is no number below zero.
    pub fn below(&mut self, bound: usize) -> usize {
        debug_assert!(bound > 0, "no number is below zero");
        ((u128::from(self.bits()) * bound as u128) >> 64) as usize
    }

    /// A uniform number in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// An exponential variate with the given mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }
}
