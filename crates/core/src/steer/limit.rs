//! How many connections of a balancer that is not Tidegate's a server can use: `maxconn` of HAProxy.
//!
//! ```text
//! n        the balancer's connections in flight at the server, mean of 2 s
//! r, b, q  run queue, busy CPUs and accept queue of its loads, means of 2 s;  C  its CPUs
//! w        = max(0, r - b) min(1, n / r) + q       connections that wait
//! useful   = n - w
//! target   = useful + max(1, useful / 4), at least C + max(1, C / 4) and 2
//!
//! n > 1.25 useful and n > target:  L += (target - L) / 2, or L = target where there is none yet
//! else if L binds (n >= 0.9 L, or some wait at the balancer):
//!                                  L += max(1, L / 10), or max(1, L / 4) where b < 0.7 C
//! else L stays;  no L without r and b, none above the configured one
//! ```
//!
//! This is the bound of admission (`admission::bound`), from the same records, at the pace of a balancer that is asked and set twice
//! a second. It is taken, and not a limit from latencies, because a record says how many wait and a latency does not. What `bound` has
//! beside it is left out: it needs the times of single requests.
//!
//! Inputs: loads, and counts of the balancer, each turn. Failure case: load that comes within two seconds is followed late, so
//! at first all of it is let in; connections that rest (long polls, WebSockets) count as useful, so the bound grows with them; the
//! tasks of others count in proportion; a server that queues by itself, unseen, has no bound. Source: the admission study,
//! "Specification"; the pace is ours.

/// How much more than useful may be in flight.
const GAMMA: f64 = 1.25;
/// From this part of the limit on it binds.
const BINDS_FROM: f64 = 0.9;
/// The part of the way down that is gone in a turn, and the parts of the limit that are gone up: where the CPUs are busy, and where
/// they have time.
const DOWN: f64 = 0.5;
const UP: f64 = 0.1;
const UP_SPARE: f64 = 0.25;
/// Busy part of the CPUs, 0 to 1, below which they have time.
const CPU_SPARE_SHARE: f64 = 0.7;

/// What a server is at work on, means.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ServerWork {
    /// CPUs.
    pub capacity: f64,
    /// Run queue.
    pub run_queue: f64,
    /// Busy CPUs.
    pub busy: f64,
    /// Accept queue.
    pub accept_queue: f64,
}

/// The balancer's connections of a server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Connections {
    /// In flight, the mean.
    pub in_flight: f64,
    /// Whether some wait at the balancer for this server.
    pub queued: bool,
}

/// The limit of a turn, from that of the turn before; nothing is no limit.
pub fn connection_limit(
    work: &ServerWork,
    connections: &Connections,
    limit: Option<f64>,
) -> Option<f64> {
    let n = connections.in_flight;
    let ours = (n / work.run_queue.max(f64::MIN_POSITIVE)).min(1.0);
    let waiting = (work.run_queue - work.busy).max(0.0) * ours + work.accept_queue;
    let useful = (n - waiting).max(0.0);
    let floor = (work.capacity + f64::max(1.0, (GAMMA - 1.0) * work.capacity)).max(2.0);
    let target = (useful + f64::max(1.0, (GAMMA - 1.0) * useful)).max(floor);
    if n > GAMMA * useful && n > target {
        return Some(limit.map_or(target, |limit| (limit + (target - limit) * DOWN).max(floor)));
    }
    let limit = limit?;
    let binds = connections.queued || n >= BINDS_FROM * limit;
    let up = match work.busy < CPU_SPARE_SHARE * work.capacity {
        true => UP_SPARE,
        false => UP,
    };
    Some(match binds {
        true => limit + f64::max(1.0, up * limit),
        false => limit,
    })
}

#[cfg(test)]
mod tests {
    use super::super::RecentMean;
    use super::*;
    use crate::time::Timestamp;

    /// Four CPUs, and so many requests in flight, each for this part of its time on the run queue.
    fn seen(in_flight: f64, cpu: f64) -> (ServerWork, Connections) {
        let run_queue = in_flight * cpu;
        let work = ServerWork {
            capacity: 4.0,
            run_queue,
            busy: run_queue.min(4.0),
            accept_queue: 0.0,
        };
        let queued = false;
        (work, Connections { in_flight, queued })
    }

    fn limit((work, connections): (ServerWork, Connections), before: Option<f64>) -> Option<f64> {
        connection_limit(&work, &connections, before)
    }

    #[test]
    fn what_waits_for_nothing_has_no_limit() {
        assert_eq!(limit(seen(0.0, 0.0), None), None);
        assert_eq!(limit(seen(4.0, 1.0), None), None);
        assert_eq!(limit(seen(400.0, 0.01), None), None);
    }

    #[test]
    fn what_waits_for_the_cpus_is_held_back_to_a_quarter_more_than_is_of_use() {
        // Of a hundred 4 run.
        assert_eq!(limit(seen(100.0, 1.0), None), Some(5.0));
        // Of a hundred that are elsewhere for half of their time 46 wait: 54 and a quarter of that.
        assert_eq!(limit(seen(100.0, 0.5), None), Some(67.5));
        assert_eq!(limit(seen(100.0, 0.5), Some(80.0)), Some(73.75));
    }

    #[test]
    fn an_accept_queue_is_one_as_well() {
        let (work, connections) = seen(20.0, 0.05);
        let full = ServerWork {
            accept_queue: 16.0,
            ..work
        };
        assert_eq!(limit((full, connections), None), Some(5.0));
    }

    #[test]
    fn a_limit_that_binds_grows_while_hardly_any_wait() {
        assert_eq!(limit(seen(40.0, 0.1), Some(40.0)), Some(44.0));
        assert_eq!(limit(seen(5.0, 0.8), Some(5.0)), Some(6.0));
        // The CPUs have time.
        assert_eq!(limit(seen(40.0, 0.05), Some(40.0)), Some(50.0));
        assert_eq!(limit(seen(20.0, 0.05), Some(40.0)), Some(40.0));
        let (work, connections) = seen(20.0, 0.05);
        let queued = Connections {
            queued: true,
            ..connections
        };
        assert_eq!(limit((work, queued), Some(40.0)), Some(50.0));
    }

    #[test]
    fn a_loop_that_is_closed_comes_to_rest_near_the_knee() {
        // A hundred clients with requests that compute for half of their time: 8 keep four CPUs busy. Turns of half a second, and
        // means that lag behind.
        let (mut means, mut before) = ([RecentMean::default(); 3], None);
        let mut least_most = (f64::INFINITY, 0.0_f64);
        for turn in 1..=240_u64 {
            let in_flight = before.unwrap_or(100.0_f64).min(100.0);
            let runnable = (in_flight / 2.0).max(in_flight - 4.0);
            let at = Timestamp::from_millis(turn * 500);
            let now = [in_flight, runnable, runnable.min(4.0)];
            for (mean, now) in means.iter_mut().zip(now) {
                mean.on_sample(now, at);
            }
            let [in_flight, run_queue, busy] = means.map(|mean| mean.value().unwrap());
            let work = ServerWork {
                capacity: 4.0,
                run_queue,
                busy,
                accept_queue: 0.0,
            };
            let queued = before.is_some_and(|limit| limit < 100.0);
            before = limit((work, Connections { in_flight, queued }), before);
            if let Some(limit) = before.filter(|_| turn > 60) {
                least_most = (least_most.0.min(limit), least_most.1.max(limit));
            }
        }
        let (least, most) = least_most;
        assert!(least > 7.0 && most < 20.0, "{least} to {most}");
    }
}
