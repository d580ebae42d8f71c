//! A name in DNS: the addresses of A and AAAA records, or the services of SRV records (RFC 2782).
//!
//! The name is asked for again when the shortest TTL of its records is over, after `interval` at the latest and
//! [`AGAIN_MIN`] at the earliest. A name that does not exist or has no such records is a failure. So is one of which a kind
//! of address is answered with an error that has had addresses before: half of an answer would be taken for nodes that
//! went. A kind that never had any may be in error for ever, as where a resolver knows nothing of AAAA.
//!
//! Of SRV records those of the lowest priority number count. A weight of w there is w / 100 here, and 1 if all are 0.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hickory_resolver::config::{NameServerConfig, ResolveHosts, ResolverConfig};
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::op::Query;
use hickory_resolver::proto::rr::rdata::SRV;
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use hickory_resolver::{Hosts, TokioResolver};

use crate::source::{Answer, Found, SourceError};

/// Shortest time between two questions, whatever the TTL.
const AGAIN_MIN: Duration = Duration::from_secs(1);
/// Most targets of SRV records that are looked up.
const TARGETS_MAX: usize = 1000;
/// Tries of one question.
const TRIES: usize = 2;

/// Which records are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// A and AAAA: addresses, all with this port.
    Address {
        /// The port.
        port: u16,
    },
    /// SRV: names, each with port and weight.
    Service,
}

/// A name in DNS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsConfig {
    /// The name.
    pub name: String,
    /// Its records.
    pub records: RecordKind,
    /// Resolvers to ask; none: those of `/etc/resolv.conf`.
    pub servers: Vec<SocketAddr>,
    /// Longest time between two questions.
    pub interval: Duration,
    /// Time for one answer.
    pub timeout: Duration,
}

impl fmt::Display for DnsConfig {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.records {
            RecordKind::Address { port } => write!(out, "dns {}, port {port}", self.name),
            RecordKind::Service => write!(out, "dns {}", self.name),
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct DnsSource {
    config: DnsConfig,
    resolver: Option<TokioResolver>,
    kinds: AddressKinds,
}

/// Which kinds of address there have been.
#[derive(Clone, Copy, Debug, Default)]
struct AddressKinds {
    a: bool,
    aaaa: bool,
}

/// Records, and how long they hold.
#[derive(Debug)]
struct Records<T> {
    records: Vec<T>,
    ttl: u32,
}

impl DnsSource {
    pub(crate) fn new(config: DnsConfig) -> Self {
        Self {
            config,
            resolver: None,
            kinds: AddressKinds::default(),
        }
    }

    pub(crate) async fn ask(&mut self) -> Result<Answer, SourceError> {
        if let Some(nodes) = hosts_file(&self.config) {
            let again = self.config.interval;
            return Ok(Answer {
                nodes,
                ending: Vec::new(),
                again,
            });
        }
        // `/etc/resolv.conf` may be there later than this process.
        let resolver = match self.resolver.take() {
            Some(resolver) => resolver,
            None => resolver(&self.config)?,
        };
        let resolver = self.resolver.insert(resolver);
        let limit = self.config.timeout;
        let found =
            tokio::time::timeout(limit, nodes(&self.config, resolver, &mut self.kinds)).await;
        let found = found.map_err(|_| SourceError::TimedOut(limit));
        if !matches!(found, Ok(Ok(_))) {
            // The next question reads the configuration again and opens its own sockets.
            self.resolver = None;
        }
        let found = found??;
        let ttl = Duration::from_secs(u64::from(found.ttl));
        Ok(Answer {
            nodes: found.records,
            ending: Vec::new(),
            again: ttl.max(AGAIN_MIN).min(self.config.interval),
        })
    }
}

/// The addresses that `/etc/hosts` has: then no server is asked, as by the system's own resolver.
fn hosts_file(config: &DnsConfig) -> Option<Vec<Found>> {
    let RecordKind::Address { port } = config.records else {
        return None;
    };
    if !config.servers.is_empty() {
        return None;
    }
    let hosts = Hosts::from_system().ok()?;
    let name = Name::from_utf8(&config.name).ok()?;
    let of_kind = |kind| hosts.lookup_static_host(&Query::query(name.clone(), kind));
    let found = [RecordType::A, RecordType::AAAA].map(of_kind);
    let records = found.iter().flatten().flat_map(Lookup::answers);
    let nodes = records.filter_map(|record| record.data.ip_addr());
    let nodes: Vec<_> = nodes
        .map(|ip| node(SocketAddr::new(ip, port), 1.0))
        .collect();
    (!nodes.is_empty()).then_some(nodes)
}

fn resolver(config: &DnsConfig) -> Result<TokioResolver, SourceError> {
    let provider = TokioRuntimeProvider::default();
    let mut builder = if config.servers.is_empty() {
        TokioResolver::builder(provider)
            .map_err(|error| SourceError::unreachable(format!("/etc/resolv.conf: {error}")))?
    } else {
        let servers = config.servers.iter().map(|address| {
            let mut server = NameServerConfig::udp_and_tcp(address.ip());
            for connection in &mut server.connections {
                connection.port = address.port();
            }
            server
        });
        let servers = ResolverConfig::from_name_servers(servers.collect());
        TokioResolver::builder_with_config(servers, provider)
    };
    let options = builder.options_mut();
    // How long an answer holds is this source's business.
    options.cache_size = 0;
    options.attempts = TRIES;
    options.timeout = config.timeout / (TRIES as u32 + 1);
    options.case_randomization = true;
    if !config.servers.is_empty() {
        options.use_hosts_file = ResolveHosts::Never;
    }
    builder.build().map_err(SourceError::unreachable)
}

async fn nodes(
    config: &DnsConfig,
    resolver: &TokioResolver,
    kinds: &mut AddressKinds,
) -> Result<Records<Found>, SourceError> {
    match config.records {
        RecordKind::Address { port } => {
            let found = addresses(resolver, &config.name, kinds).await?;
            let node = |ip| node(SocketAddr::new(ip, port), 1.0);
            Ok(Records {
                records: found.records.into_iter().map(node).collect(),
                ttl: found.ttl,
            })
        }
        RecordKind::Service => services(config, resolver, kinds).await,
    }
}

fn node(address: SocketAddr, weight: f32) -> Found {
    Found {
        name: None,
        address,
        weight: Some(weight),
    }
}

/// The addresses of a name, of both kinds.
async fn addresses(
    resolver: &TokioResolver,
    name: &str,
    kinds: &mut AddressKinds,
) -> Result<Records<IpAddr>, SourceError> {
    let ip = |data: &RData| data.ip_addr();
    let a = lookup(resolver, name, RecordType::A, ip).await;
    let aaaa = lookup(resolver, name, RecordType::AAAA, ip).await;
    let is_some = |found: &Result<Records<IpAddr>, _>| {
        (found.as_ref()).is_ok_and(|found| !found.records.is_empty())
    };
    let (has_a, has_aaaa) = (is_some(&a), is_some(&aaaa));
    let found = match (a, aaaa) {
        (Ok(mut found), Ok(other)) => {
            found.records.extend(other.records);
            found.ttl = found.ttl.min(other.ttl);
            found
        }
        (Ok(found), Err(_)) if has_a && !kinds.aaaa => found,
        (Err(_), Ok(found)) if has_aaaa && !kinds.a => found,
        (Err(error), _) | (_, Err(error)) => return Err(error),
    };
    kinds.a |= has_a;
    kinds.aaaa |= has_aaaa;
    match found.records.is_empty() {
        true => Err(SourceError::Nothing(format!("{name} has no address"))),
        false => Ok(found),
    }
}

async fn services(
    config: &DnsConfig,
    resolver: &TokioResolver,
    kinds: &mut AddressKinds,
) -> Result<Records<Found>, SourceError> {
    let service = |data: &RData| {
        let RData::SRV(service) = data else {
            return None;
        };
        Some(service.clone())
    };
    let found = lookup(resolver, &config.name, RecordType::SRV, service).await?;
    let services = first_choice(found.records);
    if services.is_empty() {
        let name = &config.name;
        let message = format!("{name} has no SRV record; with `port` its addresses are asked for");
        return Err(SourceError::Nothing(message));
    }
    let no_weights = services.iter().all(|it| it.weight == 0);
    let mut all = Records {
        records: Vec::new(),
        ttl: found.ttl,
    };
    // Services may share a target.
    let mut targets: BTreeMap<String, Vec<IpAddr>> = BTreeMap::new();
    for service in services {
        let weight = match service.weight {
            _ if no_weights => 1.0,
            weight => f32::from(weight.max(1)) / 100.0,
        };
        let target = service.target.to_utf8();
        if !targets.contains_key(&target) {
            let found = addresses(resolver, &target, kinds).await?;
            all.ttl = all.ttl.min(found.ttl);
            targets.insert(target.clone(), found.records);
        }
        let address = |ip: &IpAddr| SocketAddr::new(*ip, service.port);
        let nodes = targets[&target].iter().map(address);
        all.records.extend(nodes.map(|it| node(it, weight)));
    }
    Ok(all)
}

/// The services of the lowest priority number. A target `.` says that there is none.
fn first_choice(mut services: Vec<SRV>) -> Vec<SRV> {
    services.retain(|it| !it.target.is_root());
    let first = services.iter().map(|it| it.priority).min();
    services.retain(|it| Some(it.priority) == first);
    services.truncate(TARGETS_MAX);
    services
}

/// The records of one kind; none where the name has others only, or does not exist.
async fn lookup<T>(
    resolver: &TokioResolver,
    name: &str,
    kind: RecordType,
    pick: impl Fn(&RData) -> Option<T>,
) -> Result<Records<T>, SourceError> {
    let answer = match resolver.lookup(name, kind).await {
        Ok(answer) => answer,
        Err(error) if error.is_no_records_found() && is_negative(&error) => {
            return Ok(Records {
                records: Vec::new(),
                ttl: u32::MAX,
            });
        }
        Err(error) => return Err(SourceError::unreachable(format!("{name} {kind}: {error}"))),
    };
    let ttl = |record: &Record| record.ttl;
    Ok(Records {
        ttl: answer.answers().iter().map(ttl).min().unwrap_or(0),
        records: answer
            .answers()
            .iter()
            .filter_map(|it| pick(&it.data))
            .collect(),
    })
}

/// Whether the answer is that there is nothing, rather than an error of the server.
fn is_negative(error: &NetError) -> bool {
    use hickory_resolver::net::{DnsError, NoRecords};
    use hickory_resolver::proto::op::ResponseCode;
    matches!(
        error,
        NetError::Dns(DnsError::NoRecordsFound(NoRecords {
            response_code: ResponseCode::NoError | ResponseCode::NXDomain,
            ..
        }))
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::net::UdpSocket;

    use super::*;

    const A: u16 = 1;
    const AAAA: u16 = 28;
    const SERVICE: u16 = 33;

    const OK: u8 = 0;
    const SERVER_FAILURE: u8 = 2;
    const NO_SUCH_NAME: u8 = 3;

    /// What a server answers to a question.
    struct Reply {
        code: u8,
        /// Type, TTL and data of each record.
        records: Vec<(u16, u32, Vec<u8>)>,
    }

    fn reply(code: u8, records: Vec<(u16, u32, Vec<u8>)>) -> Reply {
        Reply { code, records }
    }

    /// The question's name in small letters, and its type.
    fn question(packet: &[u8]) -> (String, u16) {
        let mut at = 12;
        let mut labels = Vec::new();
        while packet[at] != 0 {
            let end = at + 1 + usize::from(packet[at]);
            labels.push(String::from_utf8_lossy(&packet[at + 1..end]).to_lowercase());
            at = end;
        }
        let kind = u16::from_be_bytes([packet[at + 1], packet[at + 2]]);
        (labels.join("."), kind)
    }

    fn encoded(name: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        for label in name.split('.').filter(|it| !it.is_empty()) {
            bytes.push(label.len() as u8);
            bytes.extend_from_slice(label.as_bytes());
        }
        bytes.push(0);
        bytes
    }

    fn service(priority: u16, weight: u16, port: u16, target: &str) -> (u16, u32, Vec<u8>) {
        let mut data = Vec::new();
        for number in [priority, weight, port] {
            data.extend_from_slice(&number.to_be_bytes());
        }
        data.extend_from_slice(&encoded(target));
        (SERVICE, 60, data)
    }

    fn packet(asked: &[u8], reply: &Reply) -> Vec<u8> {
        let name = encoded(&question(asked).0).len();
        let mut bytes = asked[..12 + name + 4].to_vec();
        bytes[2..4].copy_from_slice(&[0x81, 0x80 | reply.code]);
        bytes[4..12].copy_from_slice(&[0, 1, 0, reply.records.len() as u8, 0, 0, 0, 0]);
        for (kind, ttl, data) in &reply.records {
            bytes.extend_from_slice(&[0xc0, 12]);
            bytes.extend_from_slice(&kind.to_be_bytes());
            bytes.extend_from_slice(&[0, 1]);
            bytes.extend_from_slice(&ttl.to_be_bytes());
            bytes.extend_from_slice(&(data.len() as u16).to_be_bytes());
            bytes.extend_from_slice(data);
        }
        bytes
    }

    /// A source whose server answers each packet so.
    async fn source(
        records: RecordKind,
        answer: impl Fn(&[u8]) -> Option<Vec<u8>> + Send + 'static,
    ) -> DnsSource {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let server = socket.local_addr().unwrap();
        tokio::spawn(async move {
            let mut buffer = [0; 2048];
            while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
                if let Some(answer) = answer(&buffer[..length]) {
                    socket.send_to(&answer, from).await.ok();
                }
            }
        });
        DnsSource::new(DnsConfig {
            name: "shop.test.".into(),
            records,
            servers: vec![server],
            interval: Duration::from_secs(30),
            timeout: Duration::from_secs(2),
        })
    }

    /// What comes of a server that answers questions so.
    async fn asked(
        records: RecordKind,
        answer: impl Fn(&str, u16) -> Reply + Send + 'static,
    ) -> Result<Answer, String> {
        let answer = move |asked: &[u8]| {
            let (name, kind) = question(asked);
            Some(packet(asked, &answer(&name, kind)))
        };
        let mut source = source(records, answer).await;
        source.ask().await.map_err(|error| error.to_string())
    }

    fn shown(answer: &Answer) -> Vec<String> {
        let nodes = answer.nodes.iter();
        let mut shown: Vec<_> = nodes
            .map(|it| format!("{} {}", it.address, it.weight.unwrap_or(1.0)))
            .collect();
        shown.sort();
        shown
    }

    const ADDRESS: RecordKind = RecordKind::Address { port: 80 };

    fn address(host: u8, ttl: u32) -> (u16, u32, Vec<u8>) {
        (A, ttl, vec![10, 0, 0, host])
    }

    #[tokio::test]
    async fn addresses_of_both_kinds_are_nodes_until_the_shortest_time_is_over() {
        let answer = asked(ADDRESS, |_, kind| match kind {
            A => reply(OK, vec![address(1, 20), address(2, 7)]),
            AAAA => reply(OK, vec![(AAAA, 9, vec![0xfd; 16])]),
            _ => reply(SERVER_FAILURE, vec![]),
        });
        let answer = answer.await.unwrap();
        let six = "[fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd]:80 1";
        assert_eq!(shown(&answer), ["10.0.0.1:80 1", "10.0.0.2:80 1", six]);
        assert_eq!(answer.again, Duration::from_secs(7));
    }

    #[tokio::test]
    async fn a_time_of_nothing_and_one_of_years_are_bounded() {
        for (ttl, seconds) in [(0, 1), (u32::MAX >> 1, 30)] {
            let answer = asked(ADDRESS, move |_, kind| match kind {
                A => reply(OK, vec![address(1, ttl)]),
                _ => reply(OK, vec![]),
            });
            let again = answer.await.unwrap().again;
            assert_eq!(again, Duration::from_secs(seconds), "{ttl}");
        }
    }

    #[tokio::test]
    async fn half_of_an_answer_is_a_failure_once_there_was_a_whole_one() {
        let fails = Arc::new(AtomicBool::new(true));
        let now = Arc::clone(&fails);
        let answer = move |asked: &[u8]| {
            let reply = match question(asked).1 {
                A => reply(OK, vec![address(1, 60)]),
                _ if now.load(Ordering::Relaxed) => reply(SERVER_FAILURE, vec![]),
                _ => reply(OK, vec![(AAAA, 60, vec![0xfd; 16])]),
            };
            Some(packet(asked, &reply))
        };
        let mut source = source(ADDRESS, answer).await;
        // A resolver that knows nothing of the other kind.
        assert_eq!(source.ask().await.unwrap().nodes.len(), 1);
        fails.store(false, Ordering::Relaxed);
        assert_eq!(source.ask().await.unwrap().nodes.len(), 2);
        fails.store(true, Ordering::Relaxed);
        source.ask().await.unwrap_err();
    }

    #[tokio::test]
    async fn an_answer_without_an_address_is_a_failure() {
        for code in [OK, NO_SUCH_NAME] {
            let none = asked(ADDRESS, move |_, _| reply(code, vec![])).await;
            assert_eq!(none.unwrap_err(), "shop.test. has no address");
        }
        let failed = asked(ADDRESS, |_, _| reply(SERVER_FAILURE, vec![])).await;
        failed.unwrap_err();
    }

    #[tokio::test]
    async fn services_of_the_lowest_priority_number_count_with_port_and_weight() {
        let answer = asked(RecordKind::Service, |name, kind| match (name, kind) {
            ("shop.test", SERVICE) => reply(
                OK,
                vec![
                    service(1, 50, 8001, "a.test"),
                    service(1, 0, 8002, "a.test"),
                    service(1, 200, 8001, "b.test"),
                    service(2, 1, 9, "spare.test"),
                    service(1, 1, 9, "."),
                ],
            ),
            ("a.test", A) => reply(OK, vec![address(1, 5)]),
            ("b.test", A) => reply(OK, vec![address(2, 60)]),
            _ => reply(OK, vec![]),
        });
        let answer = answer.await.unwrap();
        let wanted = ["10.0.0.1:8001 0.5", "10.0.0.1:8002 0.01", "10.0.0.2:8001 2"];
        assert_eq!(shown(&answer), wanted);
        assert_eq!(answer.again, Duration::from_secs(5));
    }

    #[tokio::test]
    async fn a_service_whose_target_does_not_answer_fails_the_whole() {
        let answer = asked(RecordKind::Service, |name, kind| match (name, kind) {
            ("shop.test", SERVICE) => reply(
                OK,
                vec![service(1, 1, 80, "a.test"), service(1, 1, 80, "gone.test")],
            ),
            ("a.test", A) => reply(OK, vec![address(1, 5)]),
            ("gone.test", _) => reply(NO_SUCH_NAME, vec![]),
            _ => reply(OK, vec![]),
        });
        assert_eq!(answer.await.unwrap_err(), "gone.test. has no address");
        let none = asked(RecordKind::Service, |_, _| {
            reply(OK, vec![service(1, 1, 80, ".")])
        });
        assert_eq!(
            none.await.unwrap_err(),
            "shop.test. has no SRV record; with `port` its addresses are asked for"
        );
    }

    #[tokio::test]
    async fn what_is_no_answer_is_a_failure_in_time_and_no_panic() {
        type Answering = fn(&[u8]) -> Option<Vec<u8>>;
        let replies: [Answering; 7] = [
            |_| None,
            |_| Some(Vec::new()),
            |_| Some(vec![0xff; 600]),
            |asked| Some(asked[..asked.len().min(13)].to_vec()),
            // Another number than that of the question.
            |asked| {
                let mut bytes = packet(asked, &reply(OK, vec![address(1, 9)]));
                bytes[0] ^= 1;
                Some(bytes)
            },
            // A name that points at itself.
            |asked| {
                let mut bytes = packet(asked, &reply(OK, vec![address(1, 9)]));
                let end = bytes.len() - 16;
                bytes[end] = 0xc0;
                bytes[end + 1] = end as u8;
                Some(bytes)
            },
            // More records than there are.
            |asked| {
                let mut bytes = packet(asked, &reply(OK, vec![address(1, 9)]));
                bytes[6..8].copy_from_slice(&[0xff, 0xff]);
                Some(bytes)
            },
        ];
        for (number, answer) in replies.into_iter().enumerate() {
            let mut source = source(ADDRESS, answer).await;
            source.config.timeout = Duration::from_millis(150);
            assert!(source.ask().await.is_err(), "{number}");
        }
    }

    #[tokio::test]
    async fn a_name_of_the_hosts_file_needs_no_server() {
        let mut source = DnsSource::new(DnsConfig {
            name: "localhost".into(),
            records: ADDRESS,
            servers: Vec::new(),
            interval: Duration::from_secs(30),
            timeout: Duration::from_secs(2),
        });
        let answer = source.ask().await.unwrap();
        assert!(shown(&answer).contains(&"127.0.0.1:80 1".to_owned()));
    }

    #[tokio::test]
    async fn records_of_other_kinds_and_names_are_no_nodes() {
        let answer = asked(ADDRESS, |_, kind| match kind {
            // A text where an address is asked for.
            A => reply(OK, vec![(16, 60, b"\x05hello".to_vec()), address(1, 60)]),
            _ => reply(OK, vec![]),
        });
        assert_eq!(shown(&answer.await.unwrap()), ["10.0.0.1:80 1"]);
    }
}
