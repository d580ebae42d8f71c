//! What requests are served by, whatever their site. It changes while the data plane runs.

use super::log_fields::LogFields;
use super::{ForwardedConfig, Limits, LogFormat, Timeouts, TraceConfig};

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestConfig {
    /// Limits.
    pub limits: Limits,
    /// Time-outs.
    pub timeouts: Timeouts,
    /// What nodes learn about the client.
    pub forwarded: ForwardedConfig,
    /// Tell clients in `x-tidegate-node` which node answered: for debugging.
    pub node_header: bool,
    /// The form of the access log's lines.
    pub log: LogFormat,
    /// Their fields, where they are JSON.
    pub log_fields: LogFields,
    /// How many of the last requests each worker remembers for `why`; 0: none.
    pub recent: usize,
    /// Give each answer its request's id in `x-tidegate-request`.
    pub id_header: bool,
    /// Which of them are traced.
    pub traces: TraceConfig,
}

impl RequestConfig {
    /// Whether something is to be done with each answer's head.
    pub(crate) fn looks_at_answers(&self) -> bool {
        let logged = self.log == LogFormat::Json && self.log_fields.are_of_response();
        self.node_header || self.id_header || logged
    }

    /// Whether something is to be done with the trace that a request belongs to.
    pub(crate) fn looks_at_traces(&self) -> bool {
        self.forwarded.traceparent.is_some() || self.traces.exported
    }
}
