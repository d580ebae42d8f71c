//! What is kept of requests and connections: counters, the access log, the last requests, and what the discovery of
//! culprits reads.

pub(crate) mod hedged;
pub(crate) mod log;
pub(crate) mod mirrored;
pub(crate) mod observed;
pub(crate) mod reason;
pub(crate) mod stats;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use log::{Line, Logger, Recent, Ring, Tail};
use observed::Observer;
use stats::WorkerStats;

use crate::config::log_fields::LogFields;

/// Where a worker counts and logs.
pub(crate) struct WorkerRecord {
    stats: Arc<WorkerStats>,
    logger: RefCell<Logger>,
    /// The discovery of culprits, if it runs.
    pub(crate) observer: Option<Rc<Observer>>,
}

impl WorkerRecord {
    pub(crate) fn new(
        stats: Arc<WorkerStats>,
        logger: Logger,
        recent: usize,
        observer: Option<Rc<Observer>>,
    ) -> Self {
        let record = Self {
            stats,
            logger: RefCell::new(logger),
            observer,
        };
        if let Ok(mut kept) = record.stats().recent.lock() {
            *kept = Ring::new(recent);
        }
        record
    }

    pub(crate) fn stats(&self) -> &Arc<WorkerStats> {
        &self.stats
    }

    pub(crate) fn log(&self, line: &Line, fields: &LogFields, tail: &Tail<'_>) {
        self.logger.borrow_mut().end(line, fields, tail);
    }

    pub(crate) fn flush_log(&self) {
        self.logger.borrow_mut().flush();
    }

    /// So many of the last requests are kept from now on.
    pub(crate) fn keep_recent(&self, recent: usize) {
        if let Ok(mut kept) = self.stats().recent.lock() {
            kept.resize(recent);
        }
    }

    /// Keeps a request that is written where it is kept.
    #[inline]
    pub(crate) fn remember(&self, write: impl FnOnce(&mut Recent)) {
        // Only a reader of `why` ever holds this lock besides us, and only to copy.
        if let Ok(mut ring) = self.stats().recent.lock()
            && let Some(place) = ring.next_place()
        {
            write(place);
        }
    }
}
