//! Settings of the data plane at its start. Plain values with defaults; parsing a file belongs
//! elsewhere.

pub(crate) mod listener;
pub(crate) mod log_fields;
pub(crate) mod requests;
pub(crate) mod route;
pub(crate) mod site;
pub(crate) mod sticky;

use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use http::HeaderName;
use tidegate_core::source_limits::SourceRate;
use tidegate_core::time::Timestamp;

use crate::sockets::Ports;
pub use crate::wire::trace::TraceSampling;
use listener::ListenerConfig;
use log_fields::LogFields;
use site::SiteConfig;

/// Limits; each has a named refusal.
///
/// With the defaults the dearest connection there can be holds about 145 KiB (both bodies stuck behind a
/// head of 16 KiB), so all of them together less than a gibibyte; an idle one holds 20 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Client connections, over all workers; one more is answered 503 and closed.
    pub connections: usize,
    /// Upgraded connections and those that ask for it, over all workers; one more is answered 503.
    pub tunnels: usize,
    /// Refused connections that are kept until the client has read its answer, per worker; one more is
    /// answered too, and the oldest is closed.
    pub lingering: usize,
    /// Bytes of a request head, and of a response head: 431, 502. At least 8 KiB.
    pub head_bytes: usize,
    /// Header fields of a request, and of a response: 431, 502. Up to 100 cost nothing.
    pub fields: usize,
    /// Bytes of a request target: 414.
    pub uri_bytes: usize,
    /// Bytes of a request body: 413. None: no limit.
    pub body_bytes: Option<u64>,
    /// Bytes per second of a body that a client sends (408) or reads (cut), in the long run: `body_idle` is free,
    /// and what is faster earns that time again. Zero: no limit.
    pub body_rate: u64,
    /// The same of a request of a throttled class, with `throttled_idle`: a slower one lends its place to the next.
    /// Zero: only standing still counts.
    pub throttled_rate: u64,
    /// Bytes that are buffered per connection and direction. At least 8 KiB.
    pub buffer_bytes: usize,
    /// Idle upstream connections per node and worker.
    pub pool_per_node: usize,
    /// Nodes that a request may be tried at, the first included.
    pub tries: u32,
    /// Bytes of a request's body that are held until its node has begun, where nodes say whether they have (HTTP/2). Zero: such a
    /// request is sent once.
    pub replay_bytes: usize,
    /// What one source may take; those whose claims are believed may take all.
    pub per_source: SourceLimits,
}

/// What one source may take, over all workers: an IPv4 address, or the first 64 bits of an IPv6 address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceLimits {
    /// Connections; one more is answered 429 and closed. None: no limit.
    pub connections: Option<u32>,
    /// Requests; one more is answered 429. None: no limit.
    pub rate: Option<SourceRate>,
}

/// So many header fields hyper reads without memory of their own.
pub(crate) const FIELDS: usize = 100;

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 7000,
            tunnels: 4096,
            lingering: 1024,
            head_bytes: 16 << 10,
            fields: FIELDS,
            uri_bytes: 8 << 10,
            body_bytes: None,
            body_rate: 250,
            throttled_rate: 16 << 10,
            buffer_bytes: 16 << 10,
            pool_per_node: 128,
            tries: 3,
            replay_bytes: 128 << 10,
            per_source: SourceLimits::default(),
        }
    }
}

/// Time-outs. All but `connect` are kept to within [`TICK`](crate::TICK), never early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// From the first byte of a request head to its end: 408. Also from accept to the first
    /// byte, which is closed without an answer.
    pub client_head: Duration,
    /// Between two requests of one client connection; closed without an answer.
    pub client_idle: Duration,
    /// For a connection to a node: 504.
    pub connect: Duration,
    /// From the end of the request to the response head: 504.
    pub response_head: Duration,
    /// How long a node may take to ask for a body that the client holds back (`Expect`); then the
    /// client is asked anyhow: the node may not know the rule (RFC 9110 §10.1.1).
    pub expect_continue: Duration,
    /// For a body that stands still, in either direction.
    pub body_idle: Duration,
    /// For a request of a throttled class that stands still for its client: then it lends its place to the next, and
    /// takes one again before its node does more for it.
    pub throttled_idle: Duration,
    /// For a request's body in all: 408.
    pub request_body: Option<Duration>,
    /// For a response's body in all: cut.
    pub response_body: Option<Duration>,
    /// For a request in all, from its head to the last byte of its answer, waits included: 504 before the answer's
    /// head, and cut behind it. A tunnel has no such end.
    pub total: Option<Duration>,
    /// For a tunnel that carries nothing in either direction.
    pub tunnel_idle: Duration,
    /// For requests that a node has when it is taken out of the cluster; then they are cut off.
    pub leaving: Duration,
    /// For an idle upstream connection in the pool.
    pub upstream_idle: Duration,
    /// A TCP connection without a sign of life is probed after this time, and closed when probes stay
    /// unanswered for as long again. To within seconds.
    pub keepalive: Duration,
    /// How long a refused client may take to read its answer.
    pub linger: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            client_head: Duration::from_secs(10),
            client_idle: Duration::from_secs(60),
            connect: Duration::from_secs(2),
            response_head: Duration::from_secs(60),
            expect_continue: Duration::from_secs(1),
            body_idle: Duration::from_secs(60),
            throttled_idle: Duration::from_secs(2),
            request_body: None,
            response_body: None,
            total: None,
            tunnel_idle: Duration::from_secs(3600),
            leaving: Duration::from_secs(30),
            upstream_idle: Duration::from_secs(30),
            keepalive: Duration::from_secs(60),
            linger: Duration::from_secs(1),
        }
    }
}

/// A range of addresses: `10.0.0.0/8`, `::1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

impl Network {
    /// Whether the address is in the range. An IPv4 address mapped into IPv6 counts as itself.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(ours), IpAddr::V4(theirs)) => {
                let shift = 32 - u32::from(self.prefix.min(32));
                let differ = ours.to_bits() ^ theirs.to_bits();
                differ.checked_shr(shift).unwrap_or(0) == 0
            }
            (IpAddr::V6(ours), IpAddr::V6(theirs)) => {
                let shift = 128 - u32::from(self.prefix.min(128));
                let differ = ours.to_bits() ^ theirs.to_bits();
                differ.checked_shr(shift).unwrap_or(0) == 0
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

/// Not a range of addresses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no address and no range of addresses like 10.0.0.0/8")]
pub struct NetworkError(String);

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || NetworkError(text.to_owned());
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| error())?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            Some(prefix) => prefix.parse().map_err(|_| error())?,
            None => longest,
        };
        if prefix > longest {
            return Err(error());
        }
        Ok(Self { address, prefix })
    }
}

/// What nodes learn about the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardedConfig {
    /// Send `X-Forwarded-For`, `-Proto` and `-Host`.
    pub x_forwarded: bool,
    /// Send `Forwarded` (RFC 7239).
    pub forwarded: bool,
    /// Clients whose own claims are believed: theirs are appended to. Claims of all others are
    /// replaced.
    pub trusted: Vec<Network>,
    /// Names that go on although they end here otherwise, see [`ends_unless_kept`](crate::ends_unless_kept).
    pub keep: Vec<HeaderName>,
    /// Pass on fields whose names many servers take for one that is set or ends here, since they do not
    /// tell `_` or `.` from `-`: `X_Forwarded_For`, `Transfer_Encoding`.
    pub underscores: bool,
    /// Our name in `Via` (RFC 9110 §7.6.3). None by default: a `Via` makes nginx, for one, send
    /// uncompressed answers by default.
    pub via: Option<String>,
    /// How often traces that are made here are recorded; none: none are made.
    pub traceparent: Option<TraceSampling>,
}

impl ForwardedConfig {
    /// Whether fields of this name go on in any case.
    pub(crate) fn keeps(&self, name: &str) -> bool {
        self.keep.iter().any(|kept| kept.as_str() == name)
    }
}

impl Default for ForwardedConfig {
    fn default() -> Self {
        Self {
            x_forwarded: true,
            forwarded: false,
            trusted: Vec::new(),
            keep: Vec::new(),
            underscores: false,
            via: None,
            traceparent: None,
        }
    }
}

/// The form of an access log line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// No access log.
    #[default]
    Off,
    /// One JSON object per line.
    Json,
    /// The combined log format, with our own fields behind it as key=value.
    Combined,
}

impl LogFormat {
    /// Every format with its name.
    pub const ALL: &'static [(Self, &'static str)] = &[
        (Self::Off, "off"),
        (Self::Json, "json"),
        (Self::Combined, "combined"),
    ];
}

/// Where the access log goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LogTarget {
    /// Standard output.
    #[default]
    Stdout,
    /// A file, appended to.
    File(PathBuf),
    /// systemd's journal, whose socket this is.
    Journal(PathBuf),
}

/// The access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// Its form.
    pub format: LogFormat,
    /// Its fields, where it is JSON.
    pub fields: LogFields,
    /// Its place.
    pub target: LogTarget,
    /// How many of the last requests each worker remembers for `why`; 0: none.
    pub recent: usize,
    /// Give each answer its request's id in `x-tidegate-request`.
    pub id_header: bool,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            format: LogFormat::default(),
            fields: LogFields::default(),
            target: LogTarget::default(),
            recent: 256,
            id_header: false,
        }
    }
}

/// Which requests are traced, for an exporter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceConfig {
    /// Requests of recorded traces are.
    pub exported: bool,
    /// With their queries, in which secrets may be.
    pub query: bool,
    /// So many a second at most, over all workers.
    pub per_second: u32,
}

/// The data plane's configuration.
#[derive(Clone, Debug)]
pub struct ProxyConfig {
    /// Sockets to listen on; each worker opens its own (`SO_REUSEPORT`).
    pub listeners: Vec<ListenerConfig>,
    /// How the listening sockets come by their ports.
    pub ports: Ports,
    /// Worker threads, at least one.
    pub workers: usize,
    /// Seeds the pickers: worker w draws from `seed + w`.
    pub seed: u64,
    /// Limits.
    pub limits: Limits,
    /// Time-outs.
    pub timeouts: Timeouts,
    /// Settings of each site, in the order of the topology; those that are missing have the
    /// defaults.
    pub sites: Vec<SiteConfig>,
    /// What nodes learn about the client.
    pub forwarded: ForwardedConfig,
    /// The access log.
    pub log: LogConfig,
    /// Which requests are traced.
    pub traces: TraceConfig,
    /// Tell clients in `x-tidegate-node` which node answered: for debugging.
    pub node_header: bool,
    /// Room for events of requests, per worker, until they are drained ([`crate::Proxy::observed`]);
    /// zero: they are not wanted.
    pub events: usize,
    /// The process's one monotonic clock.
    pub clock: fn() -> Timestamp,
    /// What each thread does first: it may give privileges away. If it fails, there is no data plane.
    pub thread_start: fn(ProxyThread) -> std::io::Result<()>,
    /// Gives memory that the calling thread has freed back to the system, where its allocator has to be asked for it.
    pub give_back_memory: fn(),
}

/// The threads of a data plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyThread {
    /// Serves requests.
    Worker,
    /// Writes the access log.
    Log,
    /// Puts a filter at listening sockets when the data plane drains, and does nothing else.
    Closer,
}

impl ProxyConfig {
    /// The defaults, on this clock, listening nowhere.
    pub fn new(clock: fn() -> Timestamp) -> Self {
        Self {
            listeners: Vec::new(),
            ports: Ports::default(),
            workers: 1,
            seed: 0,
            limits: Limits::default(),
            timeouts: Timeouts::default(),
            sites: Vec::new(),
            forwarded: ForwardedConfig::default(),
            log: LogConfig::default(),
            traces: TraceConfig::default(),
            node_header: false,
            events: 0,
            clock,
            thread_start: |_| Ok(()),
            give_back_memory: || (),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_knows_its_own() {
        let cases = [
            ("10.0.0.0/8", "10.255.1.2", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.0.0.0/8", "::ffff:10.1.2.3", true),
            ("127.0.0.1", "127.0.0.1", true),
            ("127.0.0.1", "127.0.0.2", false),
            ("0.0.0.0/0", "203.0.113.9", true),
            ("0.0.0.0/0", "2001:db8::1", false),
            ("2001:db8::/32", "2001:db8:1::1", true),
            ("2001:db8::/32", "2001:db9::1", false),
            ("::/0", "::1", true),
        ];
        for (network, address, inside) in cases {
            let network: Network = network.parse().unwrap();
            assert_eq!(
                network.contains(address.parse().unwrap()),
                inside,
                "{network:?} {address}"
            );
        }
        for wrong in [
            "",
            "10.0.0.0/33",
            "10.0.0.0/x",
            "ten",
            "::/129",
            "10.0.0.0/-1",
        ] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
    }
}
