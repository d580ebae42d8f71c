//! What is kept of requests and connections: counters, the access log, the last requests, and what the discovery of
//! culprits reads.

pub(crate) mod log;
pub(crate) mod observed;
pub(crate) mod reason;
pub(crate) mod stats;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use crate::config::{LogConfig, LogFormat};
use log::{Line, Logger, Recent, Ring, Tail};
use observed::Observer;
use stats::WorkerStats;

/// Where a worker counts and logs.
pub(crate) struct WorkerRecord {
    stats: Arc<WorkerStats>,
    logger: RefCell<Logger>,
    log_format: LogFormat,
    /// How many of the last requests are kept.
    recent: usize,
    /// The discovery of culprits, if it runs.
    pub(crate) observer: Option<Rc<Observer>>,
}

impl WorkerRecord {
    pub(crate) fn new(
        stats: Arc<WorkerStats>,
        logger: Logger,
        config: &LogConfig,
        observer: Option<Rc<Observer>>,
    ) -> Self {
        let record = Self {
            stats,
            log_format: logger.format(),
            logger: RefCell::new(logger),
            recent: config.recent,
            observer,
        };
        if let Ok(mut kept) = record.stats().recent.lock() {
            *kept = Ring::new(config.recent);
        }
        record
    }

    pub(crate) fn stats(&self) -> &Arc<WorkerStats> {
        &self.stats
    }

    pub(crate) fn log_format(&self) -> LogFormat {
        self.log_format
    }

    pub(crate) fn log(&self, line: &Line, tail: &Tail<'_>) {
        self.logger.borrow_mut().end(line, tail);
    }

    pub(crate) fn flush_log(&self) {
        self.logger.borrow_mut().flush();
    }

    /// Whether the last requests are kept.
    pub(crate) fn keeps_recent(&self) -> bool {
        self.recent > 0
    }

    pub(crate) fn remember(&self, recent: Recent) {
        // Only a reader of `why` ever holds this lock besides us, and only to copy.
        if let Ok(mut ring) = self.stats().recent.lock() {
            ring.push(recent);
        }
    }
}
