//! The workers: threads that take requests from a bounded queue and do their work.
//!
//! Like the processes of a prefork server they come when they are needed, up to a limit, and
//! go when they were idle for a while. The one that was idle for the shortest time gets the
//! next request, so that few are there when few are needed: every thread of a node costs its
//! agent a look.

use std::collections::VecDeque;
use std::fs::File;
use std::hint::black_box;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
/// A worker that was idle for so long goes.
const IDLE_MAX: Duration = Duration::from_secs(1);

/// Why a request was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Undone {
    #[error("the queue is full")]
    Full,
    #[error("no file descriptor is free")]
    Files,
    #[error("no thread can be started")]
    Threads,
}

/// A request that waits for a worker.
#[derive(Debug)]
struct Waiting {
    work: Work,
    done: oneshot::Sender<Result<(), Undone>>,
}

/// An idle worker: its number, and the way to it.
#[derive(Debug)]
struct Idle {
    number: u64,
    wake: SyncSender<Waiting>,
}

#[derive(Debug, Default)]
struct WorkerPoolState {
    /// The last one has been idle for the shortest time.
    idle: Vec<Idle>,
    queue: VecDeque<Waiting>,
    workers: usize,
    started: u64,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<WorkerPoolState>,
    most: usize,
    longest: usize,
}

/// See the module. The threads end with the process.
#[derive(Clone, Debug)]
pub(super) struct Workers(Arc<Shared>);

impl Workers {
    /// At most so many workers, and room for so many requests that wait for one.
    pub(super) fn new(most: u32, longest: usize) -> Self {
        Self(Arc::new(Shared {
            state: Mutex::default(),
            most: most as usize,
            longest,
        }))
    }

    /// Does the work and tells when it is done.
    pub(super) async fn run(&self, work: Work) -> Result<(), Undone> {
        let (done, end) = oneshot::channel();
        self.hand_over(Waiting { work, done })?;
        // A worker that panicked has said so.
        end.await.unwrap_or(Err(Undone::Threads))
    }

    /// To an idle worker, else to a new one, else into the queue.
    fn hand_over(&self, mut waiting: Waiting) -> Result<(), Undone> {
        let mut state = self.0.lock();
        while let Some(idle) = state.idle.pop() {
            match idle.wake.try_send(waiting) {
                Ok(()) => return Ok(()),
                // Only a worker that panicked is not there any more.
                Err(error) => waiting = back(error),
            }
        }
        if state.workers < self.0.most {
            let number = state.started;
            let shared = Arc::clone(&self.0);
            let thread = std::thread::Builder::new().name(format!("worker-{number}"));
            thread
                .spawn(move || shared.run(number, waiting))
                .map_err(|_| Undone::Threads)?;
            state.workers += 1;
            state.started += 1;
            return Ok(());
        }
        if state.queue.len() >= self.0.longest {
            return Err(Undone::Full);
        }
        state.queue.push_back(waiting);
        Ok(())
    }
}

fn back(error: std::sync::mpsc::TrySendError<Waiting>) -> Waiting {
    use std::sync::mpsc::TrySendError::{Disconnected, Full};
    let (Full(waiting) | Disconnected(waiting)) = error;
    waiting
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, WorkerPoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A worker's life, from its first request on.
    fn run(&self, number: u64, first: Waiting) {
        let mut next = Some(first);
        while let Some(Waiting { work, done }) = next {
            // A client that hung up while it waited costs a server nothing either.
            if !done.is_closed() {
                done.send(perform(&work)).ok();
            }
            next = self.next(number);
        }
    }

    /// The next request; none if there was none for long, and then the worker is counted out.
    fn next(&self, number: u64) -> Option<Waiting> {
        let (wake, woken) = sync_channel(1);
        {
            let mut state = self.lock();
            if let Some(waiting) = state.queue.pop_front() {
                return Some(waiting);
            }
            state.idle.push(Idle { number, wake });
        }
        match woken.recv_timeout(IDLE_MAX) {
            Ok(waiting) => return Some(waiting),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
        }
        let mut state = self.lock();
        let before = state.idle.len();
        state.idle.retain(|idle| idle.number != number);
        if state.idle.len() == before {
            // A client was quicker than the time-out: the request is there already.
            drop(state);
            return woken.recv().ok();
        }
        state.workers -= 1;
        None
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
        let none = Workers::new(0, 0);
        let refused = runtime().block_on(none.run(Work::default()));
        assert_eq!(refused, Err(Undone::Full));
        let (done, _end) = oneshot::channel();
        let queue = Workers::new(0, 1);
        let waiting = |done| Waiting {
            work: Work::default(),
            done,
        };
        assert_eq!(queue.hand_over(waiting(done)), Ok(()));
        let (done, _end) = oneshot::channel();
        assert_eq!(queue.hand_over(waiting(done)), Err(Undone::Full));
    }

    #[test]
    fn there_are_as_many_workers_as_were_needed_at_once() {
        let workers = Workers::new(3, 1000);
        let run = async |requests: usize| {
            let mut all = tokio::task::JoinSet::new();
            for _ in 0..requests {
                let workers = workers.clone();
                let work = Work {
                    sleep: Duration::from_millis(1),
                    ..Work::default()
                };
                all.spawn(async move { workers.run(work).await });
            }
            all.join_all().await
        };
        runtime().block_on(async {
            // One after the other: the first worker takes them all, unless it is still on its
            // way back when the next one comes.
            for _ in 0..20 {
                assert_eq!(run(1).await, [Ok(())]);
            }
            assert!(workers.0.lock().started <= 2);
            assert!(run(100).await.iter().all(Result::is_ok));
        });
        assert!(workers.0.lock().workers <= 3);
    }

    #[test]
    fn whoever_hangs_up_is_not_worked_for() {
        let workers = Workers::new(1, 10);
        let work = Work {
            cpu: Duration::from_secs(60),
            ..Work::default()
        };
        let (done, _) = oneshot::channel();
        workers.hand_over(Waiting { work, done }).unwrap();
        // The one behind it would never have its turn.
        assert_eq!(runtime().block_on(workers.run(Work::default())), Ok(()));
    }
}
