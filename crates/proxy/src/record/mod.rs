//! What is kept of requests and connections: counters, the access log, the last requests, traces, and what the discovery of
//! culprits reads.

pub(crate) mod hedged;
pub(crate) mod id;
pub(crate) mod log;
pub(crate) mod mirrored;
pub(crate) mod observed;
pub(crate) mod reason;
pub(crate) mod stats;
pub(crate) mod traced;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use id::RequestIds;
use log::{Line, Logger, Recent, Ring, Tail};
use observed::Observer;
use stats::WorkerStats;
use tidegate_core::time::Timestamp;
use traced::{TraceSink, TracedRequest};

use crate::config::log_fields::LogFields;

/// Where a worker counts and logs.
pub(crate) struct WorkerRecord {
    stats: Arc<WorkerStats>,
    logger: RefCell<Logger>,
    traces: RefCell<TraceSink>,
    /// By what its requests are known.
    pub(crate) ids: RequestIds,
    /// The discovery of culprits, if it runs.
    pub(crate) observer: Option<Rc<Observer>>,
}

impl WorkerRecord {
    pub(crate) fn new(
        stats: Arc<WorkerStats>,
        (logger, traces, ids): (Logger, TraceSink, RequestIds),
        recent: usize,
        observer: Option<Rc<Observer>>,
    ) -> Self {
        let record = Self {
            stats,
            logger: RefCell::new(logger),
            traces: RefCell::new(traces),
            ids,
            observer,
        };
        if let Ok(mut kept) = record.stats().recent.lock() {
            *kept = Ring::new(recent);
        }
        if let Ok(mut kept) = record.stats().wrong.lock() {
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

    /// Hands over what is to be written and exported.
    pub(crate) fn flush(&self) {
        self.logger.borrow_mut().flush();
        self.traces.borrow_mut().flush();
    }

    /// Whether one more request may be traced in this second, of so many.
    pub(crate) fn may_trace(&self, now: Timestamp, most: u32) -> bool {
        self.traces.borrow().takes(now, most)
    }

    /// A request that is traced has ended.
    pub(crate) fn trace(&self, request: TracedRequest) {
        self.traces.borrow_mut().push(request);
    }

    /// So many of the last requests are kept from now on.
    pub(crate) fn keep_recent(&self, recent: usize) {
        if let Ok(mut kept) = self.stats().recent.lock() {
            kept.resize(recent);
        }
        if let Ok(mut kept) = self.stats().wrong.lock() {
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
            if place.is_wrong() {
                self.remember_wrong(*place);
            }
        }
    }

    /// One that was refused or failed is kept apart as well, or good ones would push it out.
    #[cold]
    fn remember_wrong(&self, recent: Recent) {
        if let Ok(mut ring) = self.stats().wrong.lock() {
            ring.push(recent);
        }
    }
}
