//! A node's load as the test says it, published as an agent does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use tidegate_core::record::{LoadRecord, Sources};
use tidegate_remote::{RegionMemory, clock};

/// Between two records.
const PUBLISHED_EVERY: Duration = Duration::from_millis(2);

/// See the module; it ends with the test.
pub(crate) struct PublishedLoad {
    runnable: Arc<AtomicU32>,
    enough: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl PublishedLoad {
    /// In this region; no task is runnable.
    pub(crate) fn start(memory: Arc<RegionMemory>) -> Self {
        Self::start_with(memory, Sources::NONE)
    }

    /// The same, with the time that the one CPU is busy with them.
    pub(crate) fn start_busy(memory: Arc<RegionMemory>) -> Self {
        Self::start_with(memory, Sources::BUSY_SWITCH)
    }

    fn start_with(memory: Arc<RegionMemory>, more: Sources) -> Self {
        let (runnable, enough) = (Arc::default(), Arc::default());
        let (seen, ends) = (
            Arc::<AtomicU32>::clone(&runnable),
            Arc::<AtomicBool>::clone(&enough),
        );
        let thread = std::thread::spawn(move || {
            let (mut integral, mut busy, mut before) = (0, 0, clock::now());
            while !ends.load(Ordering::Relaxed) {
                let (now, runnable) = (clock::now(), seen.load(Ordering::Relaxed));
                let elapsed = now.since(before).as_nanos() as u64;
                integral += elapsed * u64::from(runnable);
                busy += elapsed * u64::from(runnable.min(1));
                before = now;
                let record = record(now.nanos(), runnable, integral);
                let record = LoadRecord {
                    busy_ns: busy,
                    sources: record.sources.with(more),
                    ..record
                };
                memory.publish(&record, &[]);
                // The beat of an agent.
                std::thread::sleep(PUBLISHED_EVERY);
            }
        });
        Self {
            runnable,
            enough,
            thread: Some(thread),
        }
    }

    /// So many tasks are runnable from now on.
    pub(crate) fn set(&self, runnable: u32) {
        self.runnable.store(runnable, Ordering::Relaxed);
    }
}

impl Drop for PublishedLoad {
    fn drop(&mut self) {
        self.enough.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

fn record(t_ns: u64, runnable: u32, integral: u64) -> LoadRecord {
    LoadRecord {
        generation: 1,
        t_ns,
        interval_ns: PUBLISHED_EVERY.as_nanos() as u64,
        cores_milli: 1000,
        runnable,
        runnable_ns: integral,
        sources: Sources::RUNNABLE.with(Sources::RUNNABLE_INTEGRAL),
        ..LoadRecord::default()
    }
}
