//! The workers: threads that take requests from a bounded queue and do their work.

use std::collections::VecDeque;
use std::fs::File;
use std::hint::black_box;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tidegate_core::prng::Prng;
use tidegate_remote::clock;
use tokio::sync::oneshot;

use super::Work;

/// Numbers drawn between two looks at the clock: about a microsecond.
const DRAWS: u32 = 500;
/// Memory is written to once in so many bytes, the smallest page there is.
const PAGE_BYTES: usize = 4096;

/// Why a request was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Undone {
    #[error("the queue is full")]
    Full,
    #[error("no file descriptor is free")]
    Files,
}

/// A request that waits for a worker.
#[derive(Debug)]
struct Waiting {
    work: Work,
    done: oneshot::Sender<Result<(), Undone>>,
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<VecDeque<Waiting>>,
    wake: Condvar,
    longest: usize,
}

/// See the module. The threads end with the process.
#[derive(Clone, Debug)]
pub(super) struct Workers(Arc<Shared>);

impl Workers {
    /// So many workers, and room for so many that wait.
    pub(super) fn start(workers: u32, longest: usize) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            queue: Mutex::new(VecDeque::new()),
            wake: Condvar::new(),
            longest,
        });
        for number in 0..workers {
            let shared = Arc::clone(&shared);
            let thread = std::thread::Builder::new().name(format!("worker-{number}"));
            thread.spawn(move || shared.run())?;
        }
        Ok(Self(shared))
    }

    /// Does the work and tells when it is done.
    pub(super) async fn run(&self, work: Work) -> Result<(), Undone> {
        let (done, end) = oneshot::channel();
        {
            let mut queue = self.0.lock();
            if queue.len() >= self.0.longest {
                return Err(Undone::Full);
            }
            queue.push_back(Waiting { work, done });
        }
        self.0.wake.notify_one();
        // A worker that panicked has said so.
        end.await.unwrap_or(Err(Undone::Full))
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Waiting>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        loop {
            let Waiting { work, done } = self.next();
            // Whoever hung up while it waited costs a server nothing either.
            if !done.is_closed() {
                done.send(perform(&work)).ok();
            }
        }
    }

    fn next(&self) -> Waiting {
        let mut queue = self.lock();
        loop {
            if let Some(waiting) = queue.pop_front() {
                return waiting;
            }
            let woken = self.wake.wait(queue);
            queue = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Memory and files first: what they cost is part of the CPU time asked for.
fn perform(work: &Work) -> Result<(), Undone> {
    let begin = cpu_time();
    let memory = touch(work.memory);
    let open = |_| File::open("/dev/null");
    let files: Result<Vec<_>, _> = (0..work.fds).map(open).collect();
    if files.is_err() {
        return Err(Undone::Files);
    }
    if !work.sleep.is_zero() {
        burn(begin + work.cpu / 2);
        clock::sleep_until(clock::now() + work.sleep);
    }
    burn(begin + work.cpu);
    drop((black_box(memory), files));
    Ok(())
}

/// Memory that the kernel has really given.
fn touch(bytes: u64) -> Vec<u8> {
    let mut memory = vec![0; usize::try_from(bytes).unwrap_or(0)];
    for byte in memory.iter_mut().step_by(PAGE_BYTES) {
        *byte = 1;
    }
    black_box(memory)
}

/// Computes until the thread's CPU clock shows this.
pub(crate) fn burn(until: Duration) {
    let mut prng = Prng::new(1);
    while cpu_time() < until {
        for _ in 0..DRAWS {
            black_box(prng.bits());
        }
    }
}

/// CPU time of the calling thread.
pub(crate) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    // The kernel never gives a negative time.
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap()
    }

    #[test]
    fn a_request_costs_the_cpu_time_that_it_asks_for_and_hardly_more() {
        let work = Work {
            cpu: Duration::from_millis(20),
            memory: 1 << 20,
            fds: 3,
            sleep: Duration::from_millis(1),
            ..Work::default()
        };
        let used = std::thread::spawn(move || {
            let begin = cpu_time();
            perform(&work).unwrap();
            cpu_time() - begin
        });
        let used = used.join().unwrap();
        assert!(used >= work.cpu, "{used:?}");
        // CPU time, not wall-clock time: other processes do not count.
        assert!(used < work.cpu + Duration::from_millis(2), "{used:?}");
    }

    #[test]
    fn no_more_wait_than_there_is_room_for() {
        let workers = Workers::start(1, 0).unwrap();
        let refused = runtime().block_on(workers.run(Work::default()));
        assert_eq!(refused, Err(Undone::Full));
        let workers = Workers::start(2, 10).unwrap();
        for _ in 0..100 {
            assert_eq!(runtime().block_on(workers.run(Work::default())), Ok(()));
        }
    }

    #[test]
    fn whoever_hangs_up_is_not_worked_for() {
        let workers = Workers::start(1, 10).unwrap();
        let long = Work {
            cpu: Duration::from_secs(60),
            ..Work::default()
        };
        let gone = {
            let (done, _) = oneshot::channel();
            Waiting { work: long, done }
        };
        workers.0.lock().push_back(gone);
        // The one behind it would never have its turn.
        assert_eq!(runtime().block_on(workers.run(Work::default())), Ok(()));
    }
}
