//! The access log: a worker writes lines into its own batch, a batch goes through a bounded
//! channel to one writer thread. A worker never waits: when the channel is full the batch is
//! dropped and its lines are counted, as are those that the file refuses.
//!
//! The fields of JSON are in `config/log_fields.rs`; the combined format has them behind its own as key=value.

mod fields;
mod file;
mod format;
mod journal;
mod ring;
mod writer;

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError};

use http::HeaderMap;
use http::header::{HOST, REFERER, USER_AGENT};
use tidegate_core::picker::Why;

pub use file::check_log_file;
pub use journal::{Entry, Journal, Priority};
pub use ring::Recent;
pub(crate) use ring::Ring;
pub(crate) use writer::{Batch, Writer};
pub use writer::{LogHealth, LogReopener, OpenedLog};

use crate::config::LogFormat;
use crate::config::log_fields::LogFields;
use crate::record::hedged::Hedged;
use crate::record::id::RequestId;
use crate::record::reason::Reason;
use crate::record::stats::Stats;
use crate::wire::trace::trace_of;

/// A batch goes to the writer when it is this long, or at the next flush.
const BATCH_BYTES: usize = 32 << 10;
/// A field that the client chose is cut to this many bytes.
const FIELD_BYTES_MAX: usize = 2048;

/// The part of a line that is known with the request head. Kept by the exchange, and reused.
#[derive(Debug, Default)]
pub(crate) struct Line {
    /// Its form, whatever that of the next one is.
    format: LogFormat,
    bytes: Vec<u8>,
    /// Where what is known at the end belongs; of JSON, where the answer's fields begin.
    gap: usize,
}

/// What a line says of the request head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head<'a> {
    /// Nanoseconds of the Unix epoch.
    pub(crate) unix_nanos: u64,
    pub(crate) client: &'a str,
    pub(crate) method: &'a str,
    pub(crate) target: &'a str,
    pub(crate) version: http::Version,
    pub(crate) headers: &'a HeaderMap,
}

/// What a line says of the end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tail<'a> {
    pub(crate) id: RequestId,
    pub(crate) status: u16,
    pub(crate) bytes: u64,
    pub(crate) bytes_in: u64,
    pub(crate) duration_us: u64,
    pub(crate) queue_us: u64,
    pub(crate) upstream_us: Option<u64>,
    pub(crate) site: Option<&'a str>,
    pub(crate) node: Option<&'a str>,
    pub(crate) tries: u32,
    pub(crate) retry_denied: bool,
    pub(crate) hedged: Option<Hedged>,
    pub(crate) why: Option<Why>,
    pub(crate) throttle: Option<&'a str>,
    pub(crate) held_us: Option<u64>,
    pub(crate) experiment_us: Option<u64>,
    pub(crate) reason: Option<Reason>,
}

impl Line {
    /// Begins a line, of these fields if it is JSON.
    pub(crate) fn begin(&mut self, format: LogFormat, fields: &LogFields, head: &Head<'_>) {
        self.format = format;
        self.bytes.clear();
        match format {
            LogFormat::Off => {}
            LogFormat::Json => {
                fields.begin(&mut self.bytes, head);
                self.gap = self.bytes.len();
            }
            LogFormat::Combined => {
                format::combined_head(&mut self.bytes, head);
                self.gap = self.bytes.len();
                format::combined_middle(&mut self.bytes, head);
            }
        }
    }

    /// The request has none.
    pub(crate) fn skip(&mut self) {
        self.format = LogFormat::Off;
    }

    /// Whether the request has one.
    pub(crate) fn has_begun(&self) -> bool {
        self.format != LogFormat::Off
    }

    /// The head of the answer is known, as the client gets it. Only the last one counts.
    pub(crate) fn answer(&mut self, fields: &LogFields, headers: &HeaderMap) {
        if self.format == LogFormat::Json && fields.are_of_response() {
            self.bytes.truncate(self.gap);
            fields.answer(&mut self.bytes, headers);
        }
    }

    fn end(&self, fields: &LogFields, tail: &Tail<'_>, out: &mut Vec<u8>) {
        match self.format {
            LogFormat::Off => {}
            LogFormat::Json => {
                let (head, answer) = self.bytes.split_at(self.gap);
                fields.end(head, answer, tail, out);
            }
            LogFormat::Combined => {
                let (head, middle) = self.bytes.split_at(self.gap);
                out.extend_from_slice(head);
                format::combined_result(out, tail);
                out.extend_from_slice(middle);
                format::combined_tail(out, tail);
            }
        }
    }
}

impl<'a> Head<'a> {
    fn field(&self, name: http::HeaderName) -> Option<&'a [u8]> {
        let value = self.headers.get(name)?.as_bytes();
        Some(&value[..value.len().min(FIELD_BYTES_MAX)])
    }

    fn host(&self) -> Option<&'a [u8]> {
        self.field(HOST)
    }

    fn referer(&self) -> Option<&'a [u8]> {
        self.field(REFERER)
    }

    fn user_agent(&self) -> Option<&'a [u8]> {
        self.field(USER_AGENT)
    }

    fn trace(&self) -> Option<&'a str> {
        trace_of(self.headers)
    }

    fn target(&self) -> &'a [u8] {
        let target = self.target.as_bytes();
        &target[..target.len().min(FIELD_BYTES_MAX)]
    }

    fn version(&self) -> &'static str {
        match self.version {
            http::Version::HTTP_10 => "1.0",
            http::Version::HTTP_2 => "2.0",
            _ => "1.1",
        }
    }
}

/// A worker's end of the log.
#[derive(Debug)]
pub(crate) struct Logger {
    batch: Batch,
    sender: Option<SyncSender<Batch>>,
    stats: Arc<Stats>,
    worker: usize,
}

impl Logger {
    pub(crate) fn new(sender: Option<SyncSender<Batch>>, stats: Arc<Stats>, worker: usize) -> Self {
        Self {
            batch: Batch::default(),
            sender,
            stats,
            worker,
        }
    }

    /// Ends a line.
    pub(crate) fn end(&mut self, line: &Line, fields: &LogFields, tail: &Tail<'_>) {
        if self.sender.is_none() {
            return;
        }
        line.end(fields, tail, &mut self.batch.bytes);
        self.batch.lines += 1;
        if self.batch.bytes.len() >= BATCH_BYTES {
            self.flush();
        }
    }

    /// Hands the batch over to the writer, or drops it.
    pub(crate) fn flush(&mut self) {
        let Some(sender) = &self.sender else { return };
        if self.batch.lines == 0 {
            return;
        }
        let lines = self.batch.lines;
        match sender.try_send(std::mem::take(&mut self.batch)) {
            Ok(()) => {
                self.batch.bytes.reserve(BATCH_BYTES + BATCH_BYTES / 4);
            }
            Err(TrySendError::Full(mut dropped) | TrySendError::Disconnected(mut dropped)) => {
                self.stats.worker(self.worker).log_drops.add(lines);
                dropped.bytes.clear();
                dropped.lines = 0;
                self.batch = dropped;
            }
        }
    }
}

impl Drop for Logger {
    fn drop(&mut self) {
        self.flush();
    }
}

#[cfg(test)]
mod tests;
