//! What is drawn at random: service demands and antagonists.
//!
//! Every stream has a generator of its own, made from the run's seed and the stream's name, so
//! that two policies meet the same arrivals, demands and antagonists ("common random
//! numbers"), and one stream's length never shifts another.

use std::time::Duration;

use tidegate_core::prng::Prng;

/// A stream of random numbers of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Arrival times, front-ends and demands of requests of the site with this number.
    Requests(u32),
    /// Antagonists of the node with this number.
    Antagonist(u32),
    /// Choices of the front-end with this number.
    Picker(u32),
    /// Director of the front-end with this number.
    Director(u32),
    /// Which nodes each front-end sees.
    Subsets,
    /// Delays of messages.
    Network,
    /// Bursts of the site with this number.
    Bursts(u32),
}

impl Stream {
    /// The stream's generator in the run of this seed.
    pub fn prng(self, seed: u64) -> Prng {
        let (family, member) = match self {
            Self::Requests(site) => (1, site),
            Self::Antagonist(node) => (2, node),
            Self::Picker(front_end) => (3, front_end),
            Self::Director(front_end) => (4, front_end),
            Self::Subsets => (5, 0),
            Self::Network => (6, 0),
            Self::Bursts(site) => (7, site),
        };
        // Mixed by a generator: neighbouring seeds and members must not be related.
        let mixed = Prng::new(seed).bits() ^ (family << 32) ^ u64::from(member);
        Prng::new(Prng::new(mixed).bits())
    }
}

/// How much CPU time requests want.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Demand {
    /// All the same.
    Fixed,
    /// Exponential.
    Exponential,
    /// Log-normal with this coefficient of variation.
    LogNormal {
        /// Standard deviation over mean.
        cv: f64,
    },
    /// A share of the requests costs so many times what the others do.
    Bimodal {
        /// Share of the costly ones, 0 to 1.
        share: f64,
        /// Their cost relative to the others'.
        ratio: f64,
    },
    /// Bounded Pareto: a heavy tail.
    Pareto {
        /// Tail index: the smaller, the heavier.
        tail: f64,
        /// Largest over smallest.
        spread: f64,
    },
}

impl Demand {
    /// One demand, seconds, of a distribution with this mean.
    pub fn draw(&self, mean: f64, prng: &mut Prng) -> f64 {
        match *self {
            Self::Fixed => mean,
            Self::Exponential => prng.exponential(mean),
            Self::LogNormal { cv } => {
                let variance = (1.0 + cv * cv).ln();
                (mean.ln() - variance / 2.0 + variance.sqrt() * normal(prng)).exp()
            }
            Self::Bimodal { share, ratio } => {
                let small = mean / (1.0 - share + share * ratio);
                if prng.unit() < share {
                    small * ratio
                } else {
                    small
                }
            }
            Self::Pareto { tail, spread } => {
                let shape = BoundedPareto { tail, spread };
                mean / shape.mean() * shape.draw(prng)
            }
        }
    }
}

/// Pareto between 1 and `spread`.
#[derive(Clone, Copy, Debug)]
struct BoundedPareto {
    tail: f64,
    spread: f64,
}

impl BoundedPareto {
    fn draw(self, prng: &mut Prng) -> f64 {
        let cut = self.spread.powf(-self.tail);
        let value = (1.0 - prng.unit() * (1.0 - cut)).powf(-1.0 / self.tail);
        value.min(self.spread)
    }

    fn mean(self) -> f64 {
        let Self { tail, spread } = self;
        let kept = 1.0 - spread.powf(-tail);
        if kept <= 0.0 {
            return 1.0;
        }
        let integral = if (tail - 1.0).abs() < 1e-9 {
            spread.ln()
        } else {
            (1.0 - spread.powf(1.0 - tail)) / (tail - 1.0)
        };
        tail / kept * integral
    }
}

/// When the requests of a site come: the mean rate follows from its load.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Arrivals {
    /// At a constant rate, independently.
    #[default]
    Poisson,
    /// A flash crowd that comes and goes: the rate is higher in bursts and as much lower between
    /// them that the mean stays. Lengths of both are exponential.
    Bursts {
        /// Rate in a burst over the mean rate, at most 1 / share.
        peak: f64,
        /// Share of the time that bursts take, 0 to 1.
        share: f64,
        /// Mean length of a burst.
        length: Duration,
    },
    /// The site's rate, and so many times that from a moment on.
    Step {
        /// Since the start.
        at: Duration,
        /// Rate then over the rate before.
        times: f64,
    },
    /// A closed loop: so many clients, each of which asks again as soon as it has its answer and
    /// has thought it over. The site's load is what comes of that, and not what it says.
    Closed {
        /// How many.
        clients: u32,
        /// Mean time between an answer and the next request, exponential; zero: none.
        think: Duration,
    },
    /// The site's rate, and for a while so many times that.
    Surge {
        /// Since the start.
        at: Duration,
        /// For how long.
        lasts: Duration,
        /// Rate then over the rate before and after.
        times: f64,
    },
}

/// A standard normal variate (Box and Muller).
pub(crate) fn normal(prng: &mut Prng) -> f64 {
    let radius = (-2.0 * (1.0 - prng.unit()).ln()).sqrt();
    radius * (std::f64::consts::TAU * prng.unit()).cos()
}

/// Tasks of others that come and go on a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Antagonist {
    /// Tasks while it is on.
    pub tasks: u32,
    /// Share of the time that it is on, 0 to 1.
    pub duty: f64,
    /// Shortest time on; on-times are bounded Pareto, off-times exponential.
    pub shortest: Duration,
    /// Longest time on.
    pub longest: Duration,
}

/// Tail index of the on-times: many short ones, and most of the time in long ones.
const ON_TAIL: f64 = 1.1;

impl Antagonist {
    /// So many tasks for this share of the time, 50 ms to 5 s at a stretch.
    pub fn new(tasks: u32, duty: f64) -> Self {
        Self {
            tasks,
            duty,
            shortest: Duration::from_millis(50),
            longest: Duration::from_secs(5),
        }
    }

    /// How long it stays on this time.
    pub fn draw_on(&self, prng: &mut Prng) -> Duration {
        let (shortest, shape) = self.shape();
        Duration::from_secs_f64(shortest * shape.draw(prng))
    }

    /// How long it stays away this time.
    pub fn draw_off(&self, prng: &mut Prng) -> Duration {
        let duty = self.duty.clamp(1e-3, 1.0);
        Duration::from_secs_f64(prng.exponential(self.mean_on() * (1.0 - duty) / duty))
    }

    fn mean_on(&self) -> f64 {
        let (shortest, shape) = self.shape();
        shortest * shape.mean()
    }

    fn shape(&self) -> (f64, BoundedPareto) {
        let shortest = self.shortest.as_secs_f64().max(1e-6);
        let spread = (self.longest.as_secs_f64() / shortest).max(1.0);
        let tail = ON_TAIL;
        (shortest, BoundedPareto { tail, spread })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demands_have_the_mean_asked_for() {
        let demands = [
            Demand::Fixed,
            Demand::Exponential,
            Demand::LogNormal { cv: 2.0 },
            Demand::Bimodal {
                share: 0.005,
                ratio: 100.0,
            },
            Demand::Pareto {
                tail: 1.5,
                spread: 1000.0,
            },
            Demand::Pareto {
                tail: 1.0,
                spread: 50.0,
            },
        ];
        for demand in demands {
            let mut prng = Prng::new(5);
            let sum: f64 = (0..200_000).map(|_| demand.draw(0.01, &mut prng)).sum();
            let mean = sum / 200_000.0;
            assert!((mean / 0.01 - 1.0).abs() < 0.03, "{demand:?}: {mean}");
        }
    }

    #[test]
    fn antagonists_are_on_for_their_share_of_the_time_and_within_bounds() {
        let antagonist = Antagonist::new(4, 0.25);
        let mut prng = Prng::new(6);
        let (mut on, mut off) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..100_000 {
            let stretch = antagonist.draw_on(&mut prng);
            assert!(stretch >= antagonist.shortest && stretch <= antagonist.longest);
            on += stretch;
            off += antagonist.draw_off(&mut prng);
        }
        let duty = on.as_secs_f64() / (on + off).as_secs_f64();
        assert!((duty - 0.25).abs() < 0.01, "{duty}");
    }

    #[test]
    fn streams_are_their_own() {
        let first = |stream: Stream, seed| stream.prng(seed).bits();
        assert_eq!(first(Stream::Picker(3), 7), first(Stream::Picker(3), 7));
        assert_ne!(first(Stream::Picker(3), 7), first(Stream::Picker(4), 7));
        assert_ne!(first(Stream::Picker(3), 7), first(Stream::Director(3), 7));
        assert_ne!(first(Stream::Requests(0), 7), first(Stream::Requests(0), 8));
    }
}
