//! The ground that all families stand on: many small classes, a few elephants.
//!
//! ```text
//! classes    10 to 80, Zipf 0.6 to 1.2, 20 to 1000 requests a second together
//! small ones 40 % never ask the database, the others log-normal around 0.1 ms of it
//! elephants  1 to 3, 10 to 1000 times as dear, 7 to 60 % of the database's capacity together
//! ```

use tidegate_core::prng::Prng;

use super::site::{Class, Comes, Noise, Site, Traffic};
use crate::model::normal;

/// What a family may change before its site is drawn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) classes: (usize, usize),
    /// Requests a second, of small ones.
    pub(super) rate: (f64, f64),
    pub(super) elephants: (usize, usize),
    /// Part of the database's capacity of all elephants together.
    pub(super) share: (f64, f64),
    /// Cost of an elephant's request, seconds.
    pub(super) cost: (f64, f64),
    /// Part of the capacity of all small ones together, if it is set.
    pub(super) small: Option<(f64, f64)>,
    pub(super) db_cores: Option<f64>,
    pub(super) noise: Option<Noise>,
    pub(super) seconds: f64,
    pub(super) onset: f64,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            classes: (10, 80),
            rate: (40.0, 1000.0),
            elephants: (1, 3),
            share: (0.1, 0.6),
            cost: (0.001, 0.1),
            small: None,
            db_cores: None,
            noise: None,
            seconds: 30.0,
            onset: 0.0,
        }
    }
}

/// A number in between, each as likely.
pub(super) fn between(prng: &mut Prng, (from, to): (f64, f64)) -> f64 {
    from + (to - from) * prng.unit()
}

/// A number in between, each order of magnitude as likely.
pub(super) fn log_between(prng: &mut Prng, (from, to): (f64, f64)) -> f64 {
    (between(prng, (from.ln(), to.ln()))).exp()
}

/// A whole number in between, ends included.
pub(super) fn whole(prng: &mut Prng, (from, to): (usize, usize)) -> usize {
    from + prng.below(to - from + 1)
}

fn noise(prng: &mut Prng) -> Noise {
    match prng.below(3) {
        0 => Noise::Exponential,
        1 => Noise::LogNormal(0.6),
        _ => Noise::Uniform,
    }
}

/// A class that does nothing for the database yet.
pub(super) fn plain(prng: &mut Prng, rate: f64, noise_of: Option<Noise>) -> Class {
    Class {
        comes: Comes::Rate(rate),
        noise: noise_of.unwrap_or_else(|| noise(prng)),
        web: log_between(prng, (0.0003, 0.002)),
        wait_before: 0.0,
        wait_after: if prng.unit() < 0.4 {
            log_between(prng, (0.003, 0.06))
        } else {
            0.0
        },
        paced: 0.0,
        db: 0.0,
        rounds: 1,
        parallel: 1,
        disk: 0.0,
        behind: None,
        client: 0.0,
        onset: None,
    }
}

/// A site and the places of its elephants: the last ones.
pub(super) fn site(plan: &Plan, prng: &mut Prng) -> (Site, Vec<u16>) {
    let db_cores = plan
        .db_cores
        .unwrap_or_else(|| [1.0, 2.0, 4.0][prng.below(3)]);
    let small = whole(prng, plan.classes);
    let rate = log_between(prng, plan.rate);
    let mut classes = small_ones(plan, prng, small, rate, db_cores);
    let many = whole(prng, plan.elephants);
    let shares = split(prng, many, plan.share);
    let mut elephants = Vec::new();
    for share in shares {
        elephants.push(classes.len() as u16);
        classes.push(elephant(plan, prng, share * db_cores, rate));
    }
    let web: f64 = classes.iter().map(|class| class.web * rate_of(class)).sum();
    let site = Site {
        classes,
        traffic: Traffic::Even,
        steady: elephants.clone(),
        background: Vec::new(),
        web_cores: (2.0 * web).ceil().max(4.0),
        db_cores,
        db_usable: 1.0,
        pool: None,
        in_flight_max: 2000,
        warm_up: None,
        skew: 0.0,
        lost: 0.0,
        seconds: plan.seconds,
        onset: plan.onset,
        all_tiers: false,
    };
    (site, elephants)
}

/// Requests a second, on the average, of a class that comes at random.
pub(super) fn rate_of(class: &Class) -> f64 {
    match class.comes {
        Comes::Rate(rate) => rate,
        Comes::Every { period, .. } => period.recip(),
        Comes::With { .. } | Comes::Twin { .. } => 0.0,
    }
}

fn small_ones(plan: &Plan, prng: &mut Prng, many: usize, rate: f64, cores: f64) -> Vec<Class> {
    let exponent = between(prng, (0.6, 1.2));
    let weights: Vec<_> = (1..=many)
        .map(|rank| (rank as f64).powf(-exponent))
        .collect();
    let sum: f64 = weights.iter().sum();
    let mut classes: Vec<_> = weights
        .iter()
        .map(|weight| {
            let mut class = plain(prng, rate * weight / sum, plan.noise);
            if prng.unit() >= 0.4 {
                class.db = 1e-4 * (0.7 * normal(prng)).exp();
            }
            if prng.unit() < 0.15 {
                class.disk = 2e-4 * (0.5 * normal(prng)).exp();
            }
            class
        })
        .collect();
    // Small ones leave room for elephants, and a disk that all wait for would be another story.
    let used: f64 = classes
        .iter()
        .map(|class| class.db * rate_of(class))
        .sum::<f64>()
        / cores;
    let wanted = match plan.small {
        Some(range) => between(prng, range),
        None => used.min(0.25),
    };
    let disk: f64 = classes
        .iter()
        .map(|class| class.disk * rate_of(class))
        .sum();
    for class in &mut classes {
        class.db *= wanted / used.max(1e-9);
        class.disk *= (0.3 / disk.max(1e-9)).min(1.0);
    }
    classes
}

/// An elephant that uses so many cores.
fn elephant(plan: &Plan, prng: &mut Prng, cores: f64, rate: f64) -> Class {
    let cost = log_between(prng, plan.cost).max(cores / (0.3 * rate));
    let mut class = plain(prng, cores / cost, plan.noise);
    class.db = cost;
    class
}

/// Shares of elephants: none below 7 % of the capacity, all together as the range says.
fn split(prng: &mut Prng, many: usize, range: (f64, f64)) -> Vec<f64> {
    if many == 0 {
        return Vec::new();
    }
    let least = 0.07;
    let all = between(prng, range).max(least * many as f64);
    let parts: Vec<_> = (0..many).map(|_| 0.2 + prng.unit()).collect();
    let sum: f64 = parts.iter().sum();
    let free = all - least * many as f64;
    parts.iter().map(|part| least + free * part / sum).collect()
}
