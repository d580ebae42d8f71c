//! A set of files: which one is asked for, how large it is and what it costs.
//!
//! The k-th most popular of n files is asked for with probability k^-alpha / sum(i^-alpha)
//! (Zipf-1999). Sizes and costs belong to the file, not to the request: a file
//! that is asked for twice is twice the same work, as it is on a server. Popularity and size are
//! independent.

use tidegate_core::prng::Prng;
use tidegate_sim::model::Demand;

use super::plan::{Size, Spread};

/// Draws files by popularity: a table of n cumulated shares, and a binary search.
#[derive(Clone, Debug)]
pub(super) struct Zipf {
    cumulated: Vec<f64>,
}

impl Zipf {
    pub(super) fn new(alpha: f64, files: u32) -> Self {
        let mut sum = 0.0;
        let cumulate = |rank: u32| {
            sum += f64::from(rank).powf(-alpha);
            sum
        };
        Self {
            cumulated: (1..=files.max(1)).map(cumulate).collect(),
        }
    }

    /// A file, from 0 for the most popular.
    pub(super) fn draw(&self, prng: &mut Prng) -> u32 {
        let whole = self.cumulated.last().copied().unwrap_or(1.0);
        let wanted = prng.unit() * whole;
        let index = self.cumulated.partition_point(|sum| *sum <= wanted);
        index.min(self.cumulated.len() - 1) as u32
    }
}

/// So many draws of files by popularity, from 0 for the most popular: the same for the same seed.
pub fn zipf_files(alpha: f64, files: u32, draws: usize, seed: u64) -> Vec<u32> {
    let (zipf, mut prng) = (Zipf::new(alpha, files), Prng::new(seed));
    (0..draws).map(|_| zipf.draw(&mut prng)).collect()
}

/// What belongs to a file, not to the request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Trait {
    Size,
    Cost,
}

/// The size or cost of a file: the same for the same seed whenever it is asked for.
pub(super) fn of_file(size: Size, which: Trait, file: u32, seed: u64) -> u64 {
    if size.spread == Spread::Fixed {
        return size.mean as u64;
    }
    let which = match which {
        Trait::Size => 1,
        Trait::Cost => 2,
    };
    let mixed = Prng::new(seed ^ (which << 32) ^ u64::from(file)).bits();
    draw(size, &mut Prng::new(mixed))
}

/// A random amount.
pub(super) fn draw(size: Size, prng: &mut Prng) -> u64 {
    demand(size.spread).draw(size.mean, prng) as u64
}

fn demand(spread: Spread) -> Demand {
    match spread {
        Spread::Fixed => Demand::Fixed,
        Spread::Exponential => Demand::Exponential,
        Spread::LogNormal { cv } => Demand::LogNormal { cv },
        Spread::Bimodal { share, ratio } => Demand::Bimodal { share, ratio },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn popularity_falls_as_the_exponent_says() {
        for alpha in [0.1, 0.5, 0.9] {
            let zipf = Zipf::new(alpha, 1000);
            let mut prng = Prng::new(7);
            let mut counts = vec![0_u32; 1000];
            for _ in 0..400_000 {
                counts[zipf.draw(&mut prng) as usize] += 1;
            }
            // The first ten against the ten around rank 500, by the sums of their shares.
            let share =
                |ranks: std::ops::Range<u32>| ranks.map(|k| f64::from(k).powf(-alpha)).sum::<f64>();
            let wanted = share(1..11) / share(496..506);
            let head: u32 = counts[..10].iter().sum();
            let middle: u32 = counts[495..505].iter().sum();
            let found = f64::from(head) / f64::from(middle);
            assert!(
                (found / wanted - 1.0).abs() < 0.1,
                "alpha {alpha}: {found} against {wanted}"
            );
        }
    }

    #[test]
    fn a_file_has_one_size_and_a_set_the_mean_asked_for() {
        let size = Size {
            mean: 2600.0,
            spread: Spread::LogNormal { cv: 2.0 },
        };
        let of = |file| of_file(size, Trait::Size, file, 3);
        assert_eq!(of(17), of(17));
        assert_ne!(of(17), of_file(size, Trait::Cost, 17, 3));
        let mean = (0..50_000).map(|file| of(file) as f64).sum::<f64>() / 50_000.0;
        assert!((mean / 2600.0 - 1.0).abs() < 0.05, "{mean}");
    }
}
