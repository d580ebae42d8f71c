//! What else runs at a node, and how much less its crowd counts for that.
//!
//! ```text
//! m      = mean of n - R over a second             tasks that are no requests; R: requests in flight in the records
//!          mean of n - M * own over 5 s            where records count no requests, M front-ends
//! x0     = max(1, (m + 1) / C)                     slowdown by them alone; m below 0 counts as 0
//! relief = (x0 / least x0 of the site)^(-0.4 w)    times the learned cost; 1 at a node without a fresh run queue;
//!                                                  w: what records are worth on average (`learn`)
//! ```
//!
//! Why: a request that goes to a node slows what is there: among neighbours these for the most part, among
//! requests alone the site's own. Under processor sharing with m tasks that stay, and requests that want a part u of
//! the CPU, k = (m + 1) u / (1 - u) requests are there, so the times of all requests together grow with one more by
//! (m + 1) / (1 - u)^2 = (k + m + 1)^2 / (m + 1): in slowdowns x^2 / x0. The mean is least where that is the same at all
//! nodes, or x * x0^-0.5; the request's own time alone is x. So the exponent is 0 for each by itself, and 0.5 for all
//! together.
//!
//! 0.4 and not 0.5: with 2 of 8 nodes loaded (`tidegate_sim::lab`) p99 is 12 % higher with 0.5 and 3 % with 0.4, elsewhere
//! level; the mean is 2 to 4 % lower with 0.5. Without it 4 of 8 served 13 % fewer requests, 6 of 8 13 %, and fewer than
//! policies that read only how much of the CPU is used.
//!
//! Why means over seconds: what relieves must not follow the requests. With this moment's n - R a node that a herd has
//! just filled would look like one with neighbours, where a front-end does not see the others' requests. What stays that
//! long is relieved; what comes for milliseconds is not.
//!
//! Why w: a record that is worth nothing says of each node what is true of the mean node. A loaded node would be relieved of a crowd
//! that its score does not contain, and get all requests: with records of 50 ms that were taken to be worth nothing, half as
//! many were served.
//!
//! Failure case: where records count no requests, m is known to about two tasks by a front-end with few
//! own requests, and above zero on average at nodes without neighbours (m below 0 counts as 0), the same at all of them. Requests
//! that wait for IO are in R and not in n and hide as many neighbours: less relief, down to none. Front-ends that are
//! not known of (M too low) make their requests neighbours: nodes' crowds differ less, by the exponent.
//! Source: the first step of policy improvement for parallel queues (Krishnan-1990), with this module's own cost.

use crate::load::NodeLoad;

/// Seconds that a mean is over where the records count requests.
const COUNTED_SECONDS: f64 = 1.0;
/// The same where own requests stand for all.
const BLIND_SECONDS: f64 = 5.0;
/// See the module.
const EXPONENT: f64 = 0.4;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Neighbours {
    /// m: below zero where more requests are counted than tasks.
    tasks: f64,
    known: bool,
}

impl Neighbours {
    /// Time has passed; what is known of the node now, and the requests that all front-ends have there by own ones.
    pub(super) fn on_tick(&mut self, load: Option<&NodeLoad>, by_own: f64, seconds: f64) {
        let measured = |value: f32| (value.is_finite() && value >= 0.0).then(|| f64::from(value));
        // What is worked out from a used share is no run queue.
        let load = load.filter(|load| !load.rung.is_mean());
        let runnable = load.and_then(|load| measured(load.runnable));
        self.known = runnable.is_some();
        let Some(runnable) = runnable else { return };
        let counted = load.and_then(|load| measured(load.in_flight));
        let (requests, over) = match counted {
            Some(counted) => (counted, COUNTED_SECONDS),
            None => (by_own, BLIND_SECONDS),
        };
        let keep = (-seconds.max(0.0) / over).exp();
        self.tasks = self.tasks * keep + (runnable - requests) * (1.0 - keep);
    }

    /// x0 at a node of so many CPUs; nothing if its run queue is not known.
    pub(super) fn slowdown(&self, capacity: f64) -> Option<f64> {
        self.known
            .then(|| ((self.tasks.max(0.0) + 1.0) / capacity).max(1.0))
    }
}

/// The relief of a node with this x0, beside the site's least, where records are worth so much.
pub(super) fn relief(slowdown: Option<f64>, least: f64, worth: f64) -> f64 {
    slowdown.map_or(1.0, |slowdown| {
        (slowdown / least).max(1.0).powf(-EXPONENT * worth)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Rung;

    fn load(runnable: f32, in_flight: f32) -> NodeLoad {
        NodeLoad {
            rung: Rung::AgentRealtime,
            runnable,
            in_flight,
            ..NodeLoad::UNKNOWN
        }
    }

    /// What is known after so many seconds of the same, a tick each 10 ms.
    fn after(seconds: u32, load: Option<&NodeLoad>, by_own: f64) -> Neighbours {
        let mut neighbours = Neighbours::default();
        for _ in 0..seconds * 100 {
            neighbours.on_tick(load, by_own, 0.01);
        }
        neighbours
    }

    #[test]
    fn tasks_that_are_no_requests_relieve_a_node() {
        let loaded = after(20, Some(&load(11.0, 3.0)), 0.0);
        let free = after(20, Some(&load(3.0, 3.0)), 0.0);
        let (loaded, free) = (loaded.slowdown(0.1), free.slowdown(0.1));
        assert!((loaded.unwrap() - 90.0).abs() < 0.1, "{loaded:?}");
        assert_eq!(free, Some(10.0));
        let relieved = relief(loaded, 10.0, 1.0);
        assert!((relieved - 9f64.powf(-0.4)).abs() < 1e-3, "{relieved}");
        assert_eq!(relief(free, 10.0, 1.0), 1.0);
        let half = relief(loaded, 10.0, 0.5);
        assert!((half * half - relieved).abs() < 1e-3, "{half}");
        assert_eq!(
            relief(loaded, 10.0, 0.0),
            1.0,
            "nothing is known of the crowd"
        );
    }

    #[test]
    fn own_requests_stand_for_all_where_records_count_none() {
        let load = load(11.0, f32::NAN);
        let slowdown = after(60, Some(&load), 3.0).slowdown(1.0);
        assert!((slowdown.unwrap() - 9.0).abs() < 0.01, "{slowdown:?}");
    }

    #[test]
    fn below_one_task_a_cpu_neighbours_slow_nothing() {
        let slowdown = after(20, Some(&load(3.0, 0.0)), 0.0).slowdown(4.0);
        assert_eq!(slowdown, Some(1.0));
    }

    #[test]
    fn requests_that_wait_for_io_are_no_neighbours() {
        let slowdown = after(20, Some(&load(2.0, 30.0)), 0.0).slowdown(1.0);
        assert_eq!(slowdown, Some(1.0));
    }

    #[test]
    fn what_comes_for_milliseconds_relieves_next_to_nothing() {
        let mut neighbours = after(20, Some(&load(3.0, 3.0)), 0.0);
        for _ in 0..5 {
            neighbours.on_tick(Some(&load(103.0, 3.0)), 0.0, 0.001);
        }
        let slowdown = neighbours.slowdown(1.0).unwrap();
        assert!(slowdown < 1.6, "{slowdown}");
    }

    #[test]
    fn nothing_is_known_without_a_run_queue() {
        let unknown = [None, Some(load(f32::NAN, 3.0)), Some(load(-1.0, 3.0))];
        let reported = NodeLoad {
            rung: Rung::Snmp,
            ..load(50.0, f32::NAN)
        };
        for load in unknown.into_iter().chain([Some(reported)]) {
            let slowdown = after(1, load.as_ref(), 0.0).slowdown(1.0);
            assert_eq!(
                (slowdown, relief(slowdown, 1.0, 1.0)),
                (None, 1.0),
                "{load:?}"
            );
        }
    }

    #[test]
    fn a_lie_is_worth_less_than_it_costs() {
        // A node that claims to be busy is relieved of less than its claim adds to its score.
        let score = |runnable: f32| {
            let slowdown = after(20, Some(&load(runnable, 0.0)), 0.0).slowdown(1.0);
            f64::from(runnable + 1.0) * relief(slowdown, 1.0, 1.0)
        };
        assert!(score(1e6) > score(100.0) && score(100.0) > score(10.0));
    }
}
