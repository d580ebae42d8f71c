//! Weights for a balancer that is not Tidegate's, from the loads of its servers.
//!
//! ```text
//! d  demand for CPU: max(used share, run queue / CPUs), 4 at most; its mean with a time constant of 2 s
//! m  mean of d over the servers whose load is known
//! f  = ((m + 0.1) / (d + 0.1))^2, from 0.1 to 10;  1 where the load is not known;  0.01 at a soft limit
//! w  = 256 * base * f / max(base * f), rounded, 1 at least, where base is the weight that the balancer was configured
//!      with; 0 if that is 0
//! ```
//!
//! Where nothing is known of any server, each has its base. A weight stays as it is while the new one is within 1/16 of it: what hovers is left in peace.
//!
//! Inputs: loads of servers that are fresh when they are seen. Weights act on the demand that they are made from, so the
//! exponent and the time constant are such that the loop is stable with a delay of a second: a share of the demand that moves
//! comes back with a gain of about 1. The 0.1 keeps what is idle from mattering: of two servers that have nearly nothing to do
//! none is the better one.
//!
//! Failure case: used shares do not become equal, only more so: a server of which a neighbour takes half is left with 0.36 of the
//! requests instead of the 0.25 that would make them equal, when both are full. A load that changes within the
//! time constant is followed too late. Source: the form is SLBL-ARPN's, weights from used shares; the rest is ours.

mod limit;

use std::time::Duration;

pub use limit::{Connections, ServerWork, connection_limit};

use crate::director::SoftLimitWatch;
use crate::load::NodeLoad;
use crate::time::Timestamp;
use crate::topology::{Crossing, SoftLimits};

/// The greatest weight: HAProxy's.
pub const WEIGHT_MAX: u32 = 256;
const TAU_S: f64 = 2.0;
const DEMAND_MAX: f64 = 4.0;
const IDLE: f64 = 0.1;
const EXPONENT: i32 = 2;
const FACTORS: std::ops::RangeInclusive<f64> = 0.1..=10.0;
const FACTOR_AT_LIMIT: f64 = 0.01;
/// A change by less than this part of a weight is none.
const HOLD: u32 = 16;
/// After so long without a load nothing is known.
const KNOWN_FOR: Duration = Duration::from_secs(3);

/// A mean with a time constant of 2 s.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecentMean {
    value: Option<f64>,
    /// When the last sample was made.
    at: Timestamp,
}

impl RecentMean {
    /// The mean; nothing before the first sample.
    pub fn value(&self) -> Option<f64> {
        self.value
    }

    /// Takes a sample in. What is no number is none; after 3 s without one nothing is known.
    pub fn on_sample(&mut self, sample: f64, now: Timestamp) {
        let before = self.value.filter(|_| now.since(self.at) <= KNOWN_FOR);
        if !sample.is_finite() || sample < 0.0 {
            self.value = before;
            return;
        }
        let elapsed = now.seconds_since(self.at).max(0.0);
        self.value = Some(match before {
            None => sample,
            Some(mean) => mean + (sample - mean) * (1.0 - (-elapsed / TAU_S).exp()),
        });
        self.at = now;
    }
}

/// What is known of one server.
#[derive(Debug, Default)]
pub struct ServerDemand {
    demand: RecentMean,
    run_queue: RecentMean,
    busy: RecentMean,
    accept_queue: RecentMean,
    capacity: f64,
    limits: SoftLimitWatch,
}

impl ServerDemand {
    /// Takes a load in, if there is a fresh one. `delay`: until a weight that is set now shows in a load.
    pub fn on_load(
        &mut self,
        limits: &SoftLimits,
        load: Option<&NodeLoad>,
        delay: Duration,
        now: Timestamp,
    ) {
        self.limits.on_load(limits, load, delay, now);
        let unknown = NodeLoad {
            accept_queue: f32::NAN,
            ..NodeLoad::UNKNOWN
        };
        let load = load.unwrap_or(&unknown);
        if load.capacity.is_finite() {
            self.capacity = load.capacity.into();
        }
        self.demand.on_sample(demand(load), now);
        self.run_queue.on_sample(load.run_queue.into(), now);
        let busy = load.utilization * load.capacity;
        self.busy.on_sample(busy.into(), now);
        self.accept_queue.on_sample(load.accept_queue.into(), now);
    }

    /// The mean demand, if it is known.
    pub fn mean(&self) -> Option<f64> {
        self.demand.value()
    }

    /// What it is at work on, if CPUs, run queue and CPU time are known.
    pub fn work(&self) -> Option<ServerWork> {
        Some(ServerWork {
            run_queue: self.run_queue.value()?,
            busy: self.busy.value()?,
            accept_queue: self.accept_queue.value().unwrap_or(0.0),
            capacity: self.capacity,
        })
    }

    /// How it came over a soft limit, if it is over one.
    pub fn crossing(&self) -> Option<Crossing> {
        self.limits.crossing()
    }
}

/// NaN where it is not known.
fn demand(load: &NodeLoad) -> f64 {
    // `max` of a number and NaN is the number.
    let wanted = f64::from(load.utilization.max(load.run_queue / load.capacity));
    match wanted.is_finite() {
        true => wanted.min(DEMAND_MAX),
        false => f64::NAN,
    }
}

/// A server, as its weight is made.
#[derive(Clone, Copy, Debug)]
pub struct SteeredServer {
    /// The weight that the balancer was configured with.
    pub base: u32,
    /// The weight that it has.
    pub weight: u32,
    /// Mean demand, if it is known.
    pub demand: Option<f64>,
    /// Whether it is over a soft limit.
    pub at_limit: bool,
}

/// The weights that these servers, among which requests are divided, are to have, in their order.
pub fn weights(servers: &[SteeredServer]) -> Vec<u32> {
    let known: Vec<_> = servers.iter().filter_map(|it| it.demand).collect();
    if known.is_empty() && servers.iter().all(|it| !it.at_limit) {
        return servers.iter().map(|it| it.base.min(WEIGHT_MAX)).collect();
    }
    let mean = known.iter().sum::<f64>() / known.len().max(1) as f64;
    let wanted: Vec<_> = servers
        .iter()
        .map(|server| f64::from(server.base) * factor(server, mean))
        .collect();
    let most = wanted.iter().copied().fold(0.0, f64::max);
    servers
        .iter()
        .zip(wanted)
        .map(|(server, wanted)| {
            if server.base == 0 {
                return 0;
            }
            let weight = (f64::from(WEIGHT_MAX) * wanted / most).round() as u32;
            let weight = weight.clamp(1, WEIGHT_MAX);
            match weight.abs_diff(server.weight) * HOLD <= server.weight {
                true => server.weight,
                false => weight,
            }
        })
        .collect()
}

fn factor(server: &SteeredServer, mean: f64) -> f64 {
    if server.at_limit {
        return FACTOR_AT_LIMIT;
    }
    let ratio = server
        .demand
        .map_or(1.0, |demand| (mean + IDLE) / (demand + IDLE));
    ratio.powi(EXPONENT).clamp(*FACTORS.start(), *FACTORS.end())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(base: u32, demand: impl Into<Option<f64>>) -> SteeredServer {
        SteeredServer {
            base,
            weight: 0,
            demand: demand.into(),
            at_limit: false,
        }
    }

    #[test]
    fn the_busier_a_server_the_less_it_weighs() {
        assert_eq!(weights(&[server(1, 0.5), server(1, 0.5)]), [256, 256]);
        assert_eq!(weights(&[server(1, 0.1), server(1, 0.3)]), [256, 64]);
        assert_eq!(weights(&[server(200, 0.5), server(100, 0.5)]), [256, 128]);
        assert_eq!(weights(&[server(1, 0.0), server(1, 4.0)]), [256, 7]);
        assert_eq!(weights(&[]), [0; 0]);
    }

    #[test]
    fn what_is_not_known_weighs_as_the_mean_of_the_others() {
        let [low, high, unknown] = [server(1, 0.1), server(1, 0.3), server(1, None)];
        assert_eq!(weights(&[low, high, unknown]), [256, 64, 114]);
        assert_eq!(weights(&[unknown, server(7, None)]), [1, 7]);
    }

    #[test]
    fn a_soft_limit_leaves_a_server_hardly_anything_and_all_together_everything() {
        let over = SteeredServer {
            at_limit: true,
            ..server(1, 0.1)
        };
        assert_eq!(weights(&[over, server(1, 0.1)]), [3, 256]);
        assert_eq!(weights(&[over, over]), [256, 256]);
    }

    #[test]
    fn a_weight_of_zero_is_an_order() {
        assert_eq!(weights(&[server(0, 0.1), server(1, 0.9)]), [0, 256]);
        assert_eq!(weights(&[server(0, None)]), [0]);
    }

    #[test]
    fn what_hovers_is_left_in_peace() {
        let has = |weight, demand| SteeredServer {
            weight,
            ..server(1, demand)
        };
        assert_eq!(weights(&[has(256, 0.5), has(250, 0.5)]), [256, 250]);
        assert_eq!(weights(&[has(256, 0.5), has(200, 0.5)]), [256, 256]);
    }

    fn load(utilization: f32, run_queue: f32) -> NodeLoad {
        NodeLoad {
            capacity: 2.0,
            utilization,
            run_queue,
            ..NodeLoad::UNKNOWN
        }
    }

    #[test]
    fn demand_is_a_mean_that_ends_with_the_loads() {
        let mut server = ServerDemand::default();
        let at = Timestamp::from_millis;
        let mut on = |load: Option<&NodeLoad>, now| {
            server.on_load(&SoftLimits::NONE, load, Duration::ZERO, at(now));
            server.mean()
        };
        assert_eq!(on(None, 1_000), None);
        assert_eq!(on(Some(&NodeLoad::UNKNOWN), 1_000), None);
        assert_eq!(on(Some(&load(0.5, f32::NAN)), 1_000), Some(0.5));
        // A queue of three on two CPUs, for 2 s: it is nearer by 1 - 1/e.
        let mean = on(Some(&load(1.0, 3.0)), 3_000).unwrap();
        assert!((mean - 1.132).abs() < 1e-3, "{mean}");
        assert_eq!(on(None, 6_000), Some(mean));
        assert_eq!(on(None, 6_001), None);
        assert_eq!(on(Some(&load(1.0, 1e9)), 6_002), Some(4.0));
    }

    #[test]
    fn work_is_known_where_cpus_run_queue_and_cpu_time_are() {
        let mut server = ServerDemand::default();
        let mut on = |load: NodeLoad, now| {
            let now = Timestamp::from_millis(now);
            server.on_load(&SoftLimits::NONE, Some(&load), Duration::ZERO, now);
            server.work()
        };
        assert_eq!(on(load(0.5, f32::NAN), 1_000), None);
        let full = NodeLoad {
            accept_queue: 7.0,
            ..load(0.5, 3.0)
        };
        let work = ServerWork {
            capacity: 2.0,
            run_queue: 3.0,
            busy: 1.0,
            accept_queue: 7.0,
        };
        // By then what came first is forgotten.
        assert_eq!(on(full, 9_000), Some(work));
        assert_eq!(on(load(f32::NAN, 3.0), 20_000), None);
    }

    #[test]
    fn a_busy_neighbour_moves_requests_once_and_for_all() {
        // Two servers of one CPU each; requests want one together, and a neighbour half of the first.
        let mut demands = [ServerDemand::default(), ServerDemand::default()];
        let mut current = [256, 256];
        let mut changes = 0;
        for tick in 0..1200_u64 {
            let now = Timestamp::from_millis(1_000 + tick * 50);
            let whole = f64::from(current[0] + current[1]);
            for (index, demand) in demands.iter_mut().enumerate() {
                let neighbour = if index == 0 { 0.5 } else { 0.0 };
                let used = neighbour + f64::from(current[index]) / whole;
                let load = load(used as f32, f32::NAN);
                demand.on_load(&SoftLimits::NONE, Some(&load), Duration::ZERO, now);
            }
            if tick.is_multiple_of(10) {
                let servers = [0, 1].map(|index| SteeredServer {
                    base: 1,
                    weight: current[index],
                    demand: demands[index].mean(),
                    at_limit: false,
                });
                let next = weights(&servers);
                changes += usize::from(next != current);
                current.copy_from_slice(&next);
            }
        }
        let share = f64::from(current[0]) / f64::from(current[0] + current[1]);
        assert!((0.33..0.39).contains(&share), "{share}");
        assert!(changes <= 10, "{changes} changes in a minute");
    }
}
