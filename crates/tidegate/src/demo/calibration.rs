//! How much load this machine can emulate: demands are stretched, and requests made as much rarer, until
//! what a demo costs is well below what there is.
//!
//! ```text
//! stretch = max(rate * each / (45 % of the CPUs - idle),  overhead / (30 % of a demand))    in [1, 10]
//! each      CPU time of a request here, beyond what nodes and front-ends take when idle
//! overhead  time that 99 of 100 requests do not exceed outside the nodes
//! ```
//!
//! Failure case: a machine that is too slow for the greatest stretch. The load relative to the emulated
//! CPUs stays the same in any case.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tidegate_remote::clock;

use super::LOOK;
use super::open_loop::OpenLoop;
use super::visitors::{Visit, Visitors};

/// Idle time, and time under load, of which the first part is not measured.
pub(super) const IDLE: Duration = Duration::from_millis(300);
pub(super) const LOADED: Duration = Duration::from_millis(1300);
pub(super) const WARM_UP: Duration = Duration::from_millis(300);
/// Stretch of the load that is measured.
pub(super) const STRETCH: f64 = 4.0;
/// Share of the machine's CPUs that a demo may use.
const CPU_SHARE: f64 = 0.45;
/// Time that a request may spend outside the nodes (p99), relative to the demand that shall be seen.
const OVERHEAD_SHARE: f64 = 0.3;
/// Beyond this the machine is too slow, and the report says so.
const STRETCH_MAX: f64 = 10.0;

/// What the load cost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cost {
    /// CPUs that are used when nothing is sent.
    pub(super) idle: f64,
    /// CPUs that were used under load.
    pub(super) loaded: f64,
    /// For so long.
    pub(super) elapsed: Duration,
    /// Requests in that time.
    pub(super) sent: u64,
    /// Time outside the nodes, p99.
    pub(super) overhead: Duration,
}

impl Cost {
    /// What these visits cost, and front-ends and nodes when nothing is sent.
    pub(super) async fn measure<V: Visit>(
        visits: Vec<V>,
        front_ends: &[SocketAddr],
    ) -> io::Result<Self> {
        let (begin, before) = (clock::now(), cpu_time());
        tokio::time::sleep(IDLE).await;
        let idle = (cpu_time() - before).as_secs_f64() / clock::now().seconds_since(begin);
        let (begin, before) = (clock::now(), cpu_time());
        let visitors = Arc::new(Visitors::new(visits, begin));
        let mut requests = OpenLoop::start(Arc::clone(&visitors), front_ends, begin)?;
        while !requests.is_done() {
            tokio::time::sleep(LOOK).await;
        }
        let elapsed = clock::now().since(begin);
        let loaded = (cpu_time() - before).as_secs_f64() / elapsed.as_secs_f64();
        requests.end();
        let book = visitors.book();
        Ok(Self {
            idle,
            loaded,
            elapsed,
            sent: book.sent(),
            overhead: book.overhead(WARM_UP),
        })
    }

    /// CPU time of a request, seconds.
    fn each(&self) -> f64 {
        let beyond_idle = (self.loaded - self.idle).max(0.0) * self.elapsed.as_secs_f64();
        beyond_idle / self.sent.max(1) as f64
    }

    /// How much a load of so many requests per second is to be stretched, if latencies that come of such a
    /// demand shall be seen.
    pub(super) fn stretch(&self, rate: f64, demand: Duration, cpus: f64) -> f64 {
        let by_cpu = rate * self.each() / (CPU_SHARE * cpus - self.idle).max(1e-3);
        let by_overhead = self.overhead.as_secs_f64() / OVERHEAD_SHARE / demand.as_secs_f64();
        by_cpu.max(by_overhead).clamp(1.0, STRETCH_MAX)
    }

    /// For people, if the load was stretched.
    pub(super) fn describe(&self, stretch: f64, cpus: f64) -> Option<String> {
        (stretch > 1.0).then(|| {
            format!(
                "machine: {cpus:.0} CPUs, {:.0} us of CPU a request and {:.0} % all the time, {:.1} ms \
                 outside the nodes (p99): demands are stretched {stretch:.1} times and \
                 requests made as much rarer, so that the machine is not the bottleneck",
                self.each() * 1e6,
                self.idle / cpus * 100.0,
                self.overhead.as_secs_f64() * 1e3,
            )
        })
    }
}

/// CPU time of this process so far.
pub(super) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(
        time.tv_sec.try_into().unwrap_or(0),
        time.tv_nsec.try_into().unwrap_or(0),
    )
}

/// CPUs of this machine.
pub(super) fn cpus() -> f64 {
    available_parallelism().map_or(1.0, |cpus| cpus.get() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_machine_gets_less_and_a_fast_one_all() {
        let ms = Duration::from_millis;
        let cost = Cost {
            idle: 0.1,
            loaded: 0.3,
            elapsed: ms(1000),
            sent: 500,
            overhead: ms(1),
        };
        // 400 us a request, 0.8 CPUs are there for it.
        assert_eq!(cost.stretch(1000.0, ms(10), 2.0), 1.0);
        assert!((cost.stretch(4000.0, ms(10), 2.0) - 2.0).abs() < 1e-9);
        let late = Cost {
            overhead: ms(9),
            ..cost
        };
        assert!((late.stretch(1000.0, ms(10), 2.0) - 3.0).abs() < 1e-9);
        assert_eq!(cost.stretch(1e9, ms(10), 2.0), STRETCH_MAX);
        assert!(cost.describe(1.0, 2.0).is_none());
        assert!(
            cost.describe(2.0, 2.0)
                .is_some_and(|it| it.contains("400 us"))
        );
    }
}
