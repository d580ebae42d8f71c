//! A proxy with one worker and nothing else, whose instructions `cargo xtask instructions` counts.
//!
//! `bench_proxy LISTEN BACKEND…`, for instance `bench_proxy 127.0.0.1:8080 127.0.0.2:8001`.
//! Prints where it listens and ends when its standard input does. With `REFUSE` in its environment
//! it refuses everything: the first request after its head, all later connections unread. With `CERTIFICATE`, the file of a
//! certificate and its key, it speaks TLS.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use arc_swap::ArcSwap;
use tidegate_core::admission::{AdmissionConfig, AdmissionKind, StaticLimits};
use tidegate_core::director::Director;
use tidegate_core::load::LoadTable;
use tidegate_core::policy::{PolicyConfig, PolicyKind};
use tidegate_core::time::{Timestamp, nanos};
use tidegate_core::topology::{Capacity, ClusterSpec, NodeSpec, SiteId, SiteSpec};
use tidegate_proxy::{
    Certificate, DelayExperiments, ListenerConfig, LoadReports, Proxy, ProxyConfig, ServerTls,
    Shared, Stats, Throttling, TlsConfig, TlsVersion,
};

// What the binary uses; the measure is of both.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[expect(
    clippy::disallowed_methods,
    reason = "the clock that the proxy is given here"
)]
fn clock() -> Timestamp {
    static START: OnceLock<Instant> = OnceLock::new();
    let start = START.get_or_init(Instant::now);
    Timestamp::from_nanos(nanos(start.elapsed()) + 1)
}

/// A clock that stands still: what was refused a moment ago is refused for ever.
fn standing_clock() -> Timestamp {
    Timestamp::from_nanos(1)
}

fn admission(refuses: bool) -> AdmissionConfig {
    if !refuses {
        return AdmissionConfig::default();
    }
    AdmissionConfig {
        limits: StaticLimits {
            connections: Some(0),
            ..StaticLimits::default()
        },
        ..AdmissionConfig::new(AdmissionKind::Static)
    }
}

fn cluster(nodes: &[SocketAddr], policy: PolicyKind, refuses: bool) -> ClusterSpec {
    let node = |(index, address): (usize, &SocketAddr)| NodeSpec {
        name: format!("n{index}"),
        address: *address,
        site: SiteId(0),
        weight: 1.0,
        capacity: Capacity::default(),
    };
    ClusterSpec {
        sites: vec![SiteSpec {
            name: "bench".into(),
            hosts: vec!["*".into()],
            paths: Vec::new(),
            policy: PolicyConfig::new(policy),
            admission: admission(refuses),
            health: Default::default(),
        }],
        nodes: nodes.iter().enumerate().map(node).collect(),
        groups: Vec::new(),
        front_ends: 1,
    }
}

/// The listener, with TLS if there is a certificate for it.
fn listener(address: SocketAddr) -> Result<ListenerConfig, Box<dyn std::error::Error>> {
    let mut listener = ListenerConfig::plain(address);
    if let Some(file) = std::env::var_os("CERTIFICATE") {
        let pem = std::fs::read(file)?;
        let tls = TlsConfig {
            certificates: vec![Certificate::from_pem(&pem, &pem, None)?],
            issued: Vec::new(),
            challenges: None,
            minimum: TlsVersion::Tls12,
            clients: None,
            protocols: vec!["h2", "http/1.1"],
        };
        listener.plan.tls = Some(Arc::new(ServerTls::new(tls)?));
    }
    Ok(listener)
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let mut addresses = Vec::new();
    for argument in std::env::args().skip(1) {
        addresses.push(argument.parse::<SocketAddr>()?);
    }
    let [listen, nodes @ ..] = addresses.as_slice() else {
        return Err("usage: bench_proxy LISTEN BACKEND…".into());
    };
    let policy = std::env::var("POLICY").unwrap_or_else(|_| "auto".into());
    let policy = PolicyKind::named(&policy).ok_or("no such policy")?;
    let refuses = std::env::var_os("REFUSE").is_some();
    let spec = cluster(nodes, policy, refuses);
    let mut director = Director::new(spec, 1);
    let table = Arc::new(LoadTable::new(nodes.len(), 1));
    let shared = Arc::new(Shared {
        load_reports: Arc::new(LoadReports::new(Arc::clone(&table))),
        table,
        topology: Arc::new(ArcSwap::new(director.topology())),
        room_freed: Arc::default(),
        wake_up: Arc::default(),
        news: Arc::default(),
        throttles: Arc::new(Throttling::new(1000)),
        delay_experiments: Arc::new(DelayExperiments::new(1000)),
        stats: Arc::new(Stats::new(1, 1, nodes.len())),
    });
    let mut config = ProxyConfig::new(if refuses { standing_clock } else { clock });
    config.listeners.push(listener(*listen)?);
    // Discovery's rings get requests, as in a front-end; they are not read, so there is room for all.
    config.events = 1 << 16;
    let proxy = Proxy::start(config, Arc::clone(&shared))?;
    #[expect(
        clippy::print_stdout,
        reason = "whoever measures must know where to ask"
    )]
    for address in proxy.addresses().iter() {
        println!("listening on {address}");
    }
    // The director's terms once: no control thread disturbs the count of instructions.
    director.handle_tick(&shared.table, clock());
    // Ends when its input does.
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            #[expect(clippy::print_stderr, reason = "an example's one place to speak")]
            {
                eprintln!("bench_proxy: {error}");
            }
            ExitCode::FAILURE
        }
    }
}
