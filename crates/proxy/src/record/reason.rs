//! Why a request did not end with its node's own answer: one closed list for the answer to the
//! client, the access log and the counters.

use http::StatusCode;
use tidegate_core::admission::RejectReason;
use tidegate_core::picker::Outcome;

use crate::tls::NodeTlsFailure;
use crate::wire::chunks::ChunkError;

/// How a request ended, for the books: requests in = completed + failed + rejected + cancelled
/// + in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The node's answer went to the client whole.
    Completed,
    /// The node, or the way to it, failed.
    Failed,
    /// It was refused: by a rule, a limit, or because it was malformed.
    Rejected,
    /// The client went away or stood still, or a drain ran out of time.
    Cancelled,
}

impl Ending {
    /// Every ending with its label.
    pub const ALL: &'static [(Self, &'static str)] = &[
        (Self::Completed, "completed"),
        (Self::Failed, "failed"),
        (Self::Rejected, "rejected"),
        (Self::Cancelled, "cancelled"),
    ];

    /// Its label.
    pub const fn label(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

macro_rules! reasons {
    ($( $reason:ident = $label:literal, $status:literal, $ending:ident, $what:literal; )*) => {
        /// The reasons. The label stands in the header `x-tidegate-reason`, the log and the
        /// metrics.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Reason { $( #[doc = $what] $reason, )* }

        impl Reason {
            /// Every reason.
            pub const ALL: &'static [Self] = &[$(Self::$reason),*];

            /// Its label.
            pub const fn label(self) -> &'static str {
                match self { $( Self::$reason => $label, )* }
            }

            /// The status of the answer, if an answer can still be given and the site has no other.
            pub const fn status_code(self) -> u16 {
                match self { $( Self::$reason => $status, )* }
            }

            /// What it is to the books.
            pub const fn ending(self) -> Ending {
                match self { $( Self::$reason => Ending::$ending, )* }
            }

            /// What it means, in a line.
            pub const fn what(self) -> &'static str {
                match self { $( Self::$reason => $what, )* }
            }
        }
    };
}

reasons! {
    NoSite = "no_site", 404, Rejected, "no site serves this host and path";
    NoNode = "no_node", 503, Rejected, "the site has no node that may take requests";
    Overload = "overload", 503, Rejected, "an admission limit was reached";
    QueueFull = "queue_full", 503, Rejected, "too many wait, of its priority or of higher ones";
    QueueTimeout = "queue_timeout", 503, Rejected, "it waited for room as long as there was sense in it";
    Throttled = "throttled", 429, Rejected, "a throttle held it for as long as its limits let requests wait";
    ThrottleFull = "throttle_full", 429, Rejected, "throttles hold as many requests as they may";
    SourceConnections = "source_connections", 429, Rejected, "as many connections of this client's address are open as may be";
    SourceRate = "source_rate", 429, Rejected, "more requests come from this client's address than may";
    BadRequest = "bad_request", 400, Rejected, "the request head is malformed";
    Tls = "tls", 400, Rejected, "the client speaks TLS, and this listener plain HTTP";
    PlainHttp = "plain_http", 400, Rejected, "the client speaks plain HTTP, and this listener TLS: the URL begins with https://";
    ProxyProtocol = "proxy_protocol", 400, Rejected, "the connection does not begin with a PROXY header, or its sender is none of the listener's balancers";
    Misdirected = "misdirected", 421, Rejected, "a host that the certificate of this connection is not for";
    MissingHost = "missing_host", 400, Rejected, "HTTP/1.1 without a Host header";
    DuplicateHost = "duplicate_host", 400, Rejected, "more than one Host header";
    BadHost = "bad_host", 400, Rejected, "a Host header that is no host";
    BadTarget = "bad_target", 400, Rejected, "a request target that is no path and no URL of a web-site";
    BadConnection = "bad_connection", 400, Rejected, "a Connection header that cannot be read";
    LengthAndEncoding = "length_and_encoding", 400, Rejected, "both Content-Length and Transfer-Encoding";
    BadEncoding = "bad_encoding", 400, Rejected, "a Transfer-Encoding other than chunked";
    BadChunk = "bad_chunk", 400, Rejected, "a request body whose chunks are malformed";
    MethodRefused = "method_refused", 405, Rejected, "CONNECT or TRACE";
    BodyTooLarge = "body_too_large", 413, Rejected, "a request body, its Content-Length, or a chunk's size or extension, above the limit";
    UriTooLong = "uri_too_long", 414, Rejected, "a request target above the limit";
    HeadTooLarge = "head_too_large", 431, Rejected, "a request head, or a body's trailers, above the limit";
    HeadTimeout = "head_timeout", 408, Rejected, "the request head did not come in time";
    BodyTimeout = "body_timeout", 408, Cancelled, "the client stopped sending its request body";
    BodyCut = "body_cut", 400, Cancelled, "the client ended or left in the middle of its request body";
    TooManyConnections = "too_many_connections", 503, Rejected, "as many client connections are open as may be";
    TooManyTunnels = "too_many_tunnels", 503, Rejected, "as many tunnels are open as may be";
    ConnectFailed = "connect_failed", 502, Failed, "the node refused the connection";
    ConnectTimeout = "connect_timeout", 504, Failed, "the node did not accept the connection, or shake hands, in time";
    NodeTls = "node_tls", 502, Failed, "there is no TLS with the node: it speaks none, none that both know, or refuses our certificate";
    NodeCertificate = "node_certificate", 502, Failed, "the node's certificate is of no authority that is believed, or not for servers";
    NodeCertificateName = "node_certificate_name", 502, Failed, "the node's certificate has another name";
    NodeCertificateExpired = "node_certificate_expired", 502, Failed, "the node's certificate is not valid now";
    NodePin = "node_pin", 502, Failed, "the node's certificate has a key that is not pinned";
    OutOfSockets = "out_of_sockets", 503, Failed, "this machine has no socket or port left for a connection to the node";
    Reset = "reset", 502, Failed, "the node closed the connection before its answer";
    BadResponse = "bad_response", 502, Failed, "the node's answer is malformed";
    ResponseTimeout = "response_timeout", 504, Failed, "the node's answer did not begin in time";
    ResponseBroken = "response_broken", 502, Failed, "the node broke off in the middle of its answer";
    ResponseStalled = "response_stalled", 504, Failed, "the node stood still in the middle of its answer";
    TotalTimeout = "total_timeout", 504, Failed, "the request took longer in all than it may, waits included";
    BodySlow = "body_slow", 408, Cancelled, "the request body came too slowly, or took too long in all";
    AnswerSlow = "answer_slow", 499, Cancelled, "the client read the answer too slowly, or it took too long in all";
    ClientGone = "client_gone", 499, Cancelled, "the client left before the end";
    LeftStalled = "left_stalled", 499, Failed, "the client left while the node stood still in the middle of its answer";
    ClientStalled = "client_stalled", 499, Cancelled, "the client stopped reading the answer";
    TunnelIdle = "tunnel_idle", 101, Cancelled, "a tunnel carried nothing for too long";
    WorkerFailed = "worker_failed", 503, Failed, "the worker of its connection failed and was replaced";
    Drained = "drained", 503, Cancelled, "the proxy was stopped before the end";
}

impl Reason {
    /// Reasons for which a connection is refused before a byte of it is read.
    pub const UNREAD: [Self; 2] = [Self::Overload, Self::TooManyConnections];

    /// How many reasons there are.
    pub const COUNT: usize = Self::ALL.len();

    /// The status of the answer.
    pub(crate) fn status(self) -> StatusCode {
        StatusCode::from_u16(self.status_code()).unwrap_or(StatusCode::BAD_GATEWAY)
    }

    /// What it says of the node; nothing if it is not the node's doing.
    pub(crate) const fn outcome(self) -> Option<Outcome> {
        let unreachable = matches!(
            self,
            Self::ConnectFailed
                | Self::ConnectTimeout
                | Self::NodeTls
                | Self::NodeCertificate
                | Self::NodeCertificateName
                | Self::NodeCertificateExpired
                | Self::NodePin
        );
        if unreachable {
            return Some(Outcome::Unreachable);
        }
        // The same request may have the same answer at every node.
        if matches!(self, Self::BadResponse) {
            return Some(Outcome::ServerError);
        }
        let broken = matches!(
            self,
            Self::Reset
                | Self::ResponseTimeout
                | Self::ResponseBroken
                | Self::ResponseStalled
                | Self::LeftStalled
        );
        if broken { Some(Outcome::Broken) } else { None }
    }

    /// Whether admission found no room for the request.
    pub(crate) const fn is_for_lack_of_room(self) -> bool {
        matches!(self, Self::Overload | Self::QueueFull | Self::QueueTimeout)
    }

    /// Its place in [`Reason::ALL`].
    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

impl From<ChunkError> for Reason {
    fn from(error: ChunkError) -> Self {
        match error {
            ChunkError::Malformed => Self::BadChunk,
            ChunkError::LineTooLong => Self::BodyTooLarge,
            ChunkError::TrailersTooLarge => Self::HeadTooLarge,
        }
    }
}

impl From<NodeTlsFailure> for Reason {
    fn from(failure: NodeTlsFailure) -> Self {
        match failure {
            NodeTlsFailure::Untrusted => Self::NodeCertificate,
            NodeTlsFailure::Name => Self::NodeCertificateName,
            NodeTlsFailure::Expired => Self::NodeCertificateExpired,
            NodeTlsFailure::Pin => Self::NodePin,
            NodeTlsFailure::Handshake => Self::NodeTls,
        }
    }
}

impl From<RejectReason> for Reason {
    fn from(reason: RejectReason) -> Self {
        match reason {
            RejectReason::NoSite => Self::NoSite,
            RejectReason::NoNode => Self::NoNode,
            RejectReason::Overload => Self::Overload,
            RejectReason::QueueFull => Self::QueueFull,
            RejectReason::QueueTimeout => Self::QueueTimeout,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_different_and_statuses_exist() {
        for (index, reason) in Reason::ALL.iter().enumerate() {
            assert_eq!(reason.index(), index);
            assert_eq!(reason.status().as_u16(), reason.status_code());
            let twins = Reason::ALL.iter().filter(|it| it.label() == reason.label());
            assert_eq!(twins.count(), 1, "{}", reason.label());
        }
    }

    #[test]
    fn whatever_fails_but_for_this_machine_says_something_of_the_node() {
        for reason in Reason::ALL {
            // Of the time in all a part may have been the client's, or that of others before it.
            let ours = [
                Reason::OutOfSockets,
                Reason::WorkerFailed,
                Reason::TotalTimeout,
            ]
            .contains(reason);
            let failed = reason.ending() == Ending::Failed && !ours;
            assert_eq!(reason.outcome().is_some(), failed, "{}", reason.label());
        }
    }

    #[test]
    fn the_cores_reasons_keep_their_labels() {
        for reason in RejectReason::ALL {
            assert_eq!(Reason::from(*reason).label(), reason.label());
        }
    }
}
