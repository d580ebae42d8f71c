//! The load as heartbeats of Apache's `mod_heartbeat`, which `mod_heartmonitor` hears and `mod_lbmethod_heartbeat` balances by.
//!
//! ```text
//! v=1&ready=N&busy=M        N + M = 100 * CPUs
//! N = 100 * CPUs * (1 - d), 1 at least; 1 at a soft limit or while a service fails;   d = max(used share, run queue / CPUs), 1 at most
//! ```
//!
//! In Apache's own words N are workers that are free and M those that are not. Its balancer draws a server with a chance in
//! proportion to N, so that of two that are equally busy the one with more CPUs gets more. Inputs: a [`NodeLoad`] whose
//! means look back on seconds. Failure case: nothing is said while the load is not known, and Apache sends nothing
//! to a server that it has not heard for ten seconds. Source: the documentation and source of Apache 2.4, `mod_heartbeat`.

use tidegate_core::load::NodeLoad;

/// Of each CPU.
const PLACES: f32 = 100.0;
/// The most that is said: CPUs of any machine.
const CPUS_MAX: f32 = 100_000.0;

/// A datagram; nothing if the load is not known. `crossed`: a soft limit is, or a service fails.
pub fn datagram(load: &NodeLoad, crossed: bool) -> Option<String> {
    // `max` of a number and NaN is the number.
    let demand = load.utilization.max(load.run_queue / load.capacity);
    if !demand.is_finite() || !load.capacity.is_finite() {
        return None;
    }
    let all = (PLACES * load.capacity.clamp(0.01, CPUS_MAX)).round();
    let free = (all * (1.0 - demand.clamp(0.0, 1.0))).round().max(1.0);
    let free = if crossed { 1.0 } else { free };
    Some(format!("v=1&ready={free}&busy={}", all - free))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(capacity: f32, utilization: f32, run_queue: f32) -> Option<String> {
        let load = NodeLoad {
            capacity,
            utilization,
            run_queue,
            ..NodeLoad::UNKNOWN
        };
        datagram(&load, false)
    }

    #[test]
    fn what_is_free_of_all_cpus_is_ready() {
        for (load, text) in [
            ((2.0, 0.25, f32::NAN), "v=1&ready=150&busy=50"),
            ((2.0, 0.0, 0.0), "v=1&ready=200&busy=0"),
            ((4.0, 0.5, 3.0), "v=1&ready=100&busy=300"),
            ((1.0, 1.0, 9.0), "v=1&ready=1&busy=99"),
            ((0.001, 0.0, 0.0), "v=1&ready=1&busy=0"),
            ((1e30, 0.5, 0.0), "v=1&ready=5000000&busy=5000000"),
        ] {
            assert_eq!(said(load.0, load.1, load.2).as_deref(), Some(text));
        }
    }

    #[test]
    fn nothing_is_said_of_what_is_not_known() {
        assert_eq!(said(f32::NAN, 0.5, 0.0), None);
        assert_eq!(said(2.0, f32::NAN, f32::NAN), None);
    }

    #[test]
    fn at_a_soft_limit_one_place_is_ready() {
        let load = NodeLoad {
            capacity: 2.0,
            utilization: 0.1,
            ..NodeLoad::UNKNOWN
        };
        let said = datagram(&load, true);
        assert_eq!(said.as_deref(), Some("v=1&ready=1&busy=199"));
    }
}
