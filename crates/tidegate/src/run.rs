//! `tidegate run`: puts a front-end together, and takes it apart when told to stop.
//!
//! | thread | what |
//! |---|---|
//! | this one | signals, the admin interface, health probes |
//! | up to three more | working out long answers of the admin interface |
//! | `director` | control plane: a tick each millisecond |
//! | `culprits` | which requests load what: a tick each 20 ms |
//! | the reader's | loads of the nodes |
//! | workers | data plane |
//!
//! SIGTERM and SIGINT drain: `/readyz` says no, nothing new is accepted, requests in flight end
//! by themselves until the drain's time-out; a second signal ends at once. SIGUSR1 opens the
//! access log anew after it was renamed. SIGHUP checks the configuration file and says what it
//! finds; to take it over the process must be restarted in this version.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::available_parallelism;

use arc_swap::ArcSwap;
use tidegate_core::director::Director;
use tidegate_core::load::LoadTable;
use tidegate_core::route::Routes;
use tidegate_core::throttle::SetBy;
use tidegate_proxy::{
    Dithering, Limits, ListenerConfig, Proxy, ProxyConfig, Shared, Stats, Throttling, Timeouts,
};
use tidegate_remote::clock;
use tidegate_remote::reader::ReaderOptions;
use tokio::net::TcpListener;
use tokio::signal::unix::SignalKind;
use tokio::sync::mpsc;

use crate::admin::plane::{Plane, Window};
use crate::admin::server::{self, Access};
use crate::cli::Failure;
use crate::client::Client;
use crate::config::file::{LimitsFile, TimeoutsFile};
use crate::config::throttle::Throttled;
use crate::config::values::Auto;
use crate::config::{Admin, Config, Culprits, FrontEnd, Token};
use crate::culprits::live::{Watch, WatchParts, peers};
use crate::driver::{Driver, DriverParts};
use crate::orders_file::OrdersFile;
use crate::output::{self, Output};
use crate::probe;
use crate::reads::Reads;
use crate::resources::Resources;
use crate::signals::{Stop, listen};

/// Room for events of requests, per worker: half a second of 16 000 requests a second.
const EVENTS: usize = 16_384;
/// Threads that work out answers of the admin interface, and one that waits for a drain.
const BLOCKING_THREADS_MAX: usize = 3;

/// Runs until it is told to stop.
pub(crate) fn run(config: Config, file: &Path, output: Output) -> Result<(), Failure> {
    let Config {
        admin,
        front_end,
        notes,
        ..
    } = config;
    let front_end = front_end.ok_or_else(|| {
        Failure::Usage(format!(
            "{} is an agent's: it has no [[listener]], [[site]] and [[node]]",
            file.display()
        ))
    })?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .enable_all()
        .build()
        .map_err(|error| Failure::Failed(format!("cannot start: {error}")))?;
    for note in notes {
        output.event("note", &format!("note: {note}"));
    }
    let ended = runtime.block_on(serve(admin, front_end, file, output));
    // A drain that a second signal cut short is not waited for.
    runtime.shutdown_background();
    ended
}

async fn serve(
    admin: Admin,
    front_end: FrontEnd,
    file: &Path,
    output: Output,
) -> Result<(), Failure> {
    // Signals first: one that comes while we start is not lost.
    let mut stop = Stop::new()?;
    let mut hang_up = listen(SignalKind::hangup())?;
    let mut reopen = listen(SignalKind::user_defined1())?;
    let listener = server::bind(admin.address).await.map_err(|error| {
        Failure::Failed(format!(
            "cannot listen on the admin address {}: {error}",
            admin.address
        ))
    })?;
    // From here on nobody waits for whoever reads our events.
    output::run_in_background();
    let drain = front_end.timeouts.drain.value;
    let peers = front_end.culprits.as_ref().map(|it| it.peers.clone());
    let running = Running::start(front_end, output)?;
    running.say(&listener, output);
    running.ask_peers(peers.unwrap_or_default(), admin.token.as_ref());
    let access = Access { token: admin.token };
    let plane = Arc::clone(&running.plane);
    let shown = Arc::clone(&plane);
    tokio::spawn(server::serve(listener, move || Arc::clone(&shown), access));
    loop {
        tokio::select! {
            () = stop.wait() => break,
            _ = hang_up.recv() => recheck(file, output),
            _ = reopen.recv() => {
                running.proxy.reopen_log();
                output.event("log_reopened", "access log: opened anew");
            }
        }
    }
    plane.draining.store(true, Ordering::Relaxed);
    let Running {
        mut proxy,
        driver,
        watch,
        ..
    } = running;
    proxy.begin_drain();
    output.event("draining", "draining: requests in flight end by themselves");
    let drained = tokio::task::spawn_blocking(move || proxy.drain(drain));
    tokio::select! {
        drained = drained => {
            let drained = drained.unwrap_or_default();
            let text = format!("stopped: {} requests finished, {} cut off", drained.finished, drained.cut);
            output.event("stopped", &text);
        }
        () = stop.wait() => output.event("stopped", "stopped at once: told twice"),
    }
    drop(driver);
    drop(watch);
    output::flush();
    Ok(())
}

/// A running front-end.
pub(crate) struct Running {
    /// The data plane.
    pub(crate) proxy: Proxy,
    /// The control plane.
    pub(crate) driver: Driver,
    /// Watches for culprits; none if that is switched off.
    pub(crate) watch: Option<Watch>,
    /// What the admin interface looks at.
    pub(crate) plane: Arc<Plane>,
}

impl Running {
    /// Starts everything but the admin interface. Needs a runtime around it, for health probes.
    pub(crate) fn start(front_end: FrontEnd, output: Output) -> Result<Self, Failure> {
        let failed = |error: &dyn std::fmt::Display| Failure::Failed(error.to_string());
        let proxy_config = proxy_config(&front_end);
        let options = reader_options(&front_end);
        let FrontEnd {
            cluster,
            routes,
            reads,
            resources,
            throttles,
            orders_file,
            culprits,
            ..
        } = front_end;
        let (sites, nodes) = (cluster.sites.len(), cluster.nodes.len());
        let front_ends = cluster.front_ends;
        let specs = cluster.sites.clone();
        let table = LoadTable::new(nodes, sites).grouped(&cluster.groups);
        let director = Director::new(cluster, proxy_config.seed);
        let shared = shared(&proxy_config, table, &director, routes, sites);
        let orders_file = OrdersFile::new(orders_file);
        give_orders(&shared.throttles, throttles, &orders_file, output)?;
        let reads = Reads::start(&reads, options, &shared.table);
        let reads = Arc::new(reads.map_err(|error| failed(&error))?);
        let resources = Resources::start(&resources, options).map_err(|error| failed(&error))?;
        let resources = Arc::new(resources);
        let started = clock::now();
        let window = Window::new(started, shared.stats.snapshot());
        let proxy = Proxy::start(proxy_config, Arc::clone(&shared));
        let mut proxy = proxy.map_err(|error| failed(&error))?;
        let watching = |culprits| watch(culprits, &mut proxy, &shared, &resources, output);
        let watch = culprits.map(watching).transpose()?;
        let (probes, asked) = mpsc::channel(probe::WAITING_MAX);
        let driver = Driver::spawn(DriverParts {
            director,
            shared: Arc::clone(&shared),
            reads: Arc::clone(&reads),
            front_ends,
            probes,
            output,
            clock: clock::now,
        });
        let driver = driver.map_err(|error| failed(&error))?;
        let prober = probe::run(asked, Arc::clone(&shared), specs.clone(), driver.orders());
        tokio::spawn(prober);
        let plane = Arc::new(Plane {
            clock: clock::now,
            started,
            listeners: proxy.addresses().to_vec(),
            sites: specs,
            shared,
            reads,
            orders_file,
            resources,
            culprits: watch.as_ref().map(Watch::asks),
            orders: driver.orders(),
            driver: driver.stats(),
            draining: AtomicBool::new(false),
            window: Mutex::new(window),
        });
        Ok(Self {
            proxy,
            driver,
            watch,
            plane,
        })
    }

    /// Begins to ask the other front-ends what requests they have.
    fn ask_peers(&self, peers: Vec<SocketAddr>, token: Option<&Token>) {
        let Some(watch) = &self.watch else { return };
        for address in peers {
            let token = token.cloned();
            let client = Client { address, token };
            tokio::spawn(peers::run(client, watch.asks(), clock::now));
        }
    }

    /// Says where everything is.
    fn say(&self, admin: &TcpListener, output: Output) {
        for address in self.proxy.addresses() {
            output.event("listening", &format!("listening on {address}"));
        }
        if let Ok(address) = admin.local_addr() {
            output.event(
                "admin",
                &format!("page, API and metrics at http://{address}/"),
            );
        }
        let reads = &self.plane.reads;
        if let Some(realtime) = reads.realtime() {
            let priority = match realtime {
                Ok(()) => "real-time priority".to_owned(),
                Err(why) => format!("normal priority: {why}"),
            };
            let interval = tidegate_core::units::format_duration(reads.interval());
            let nodes = reads.nodes();
            let text = format!("reading the load of {nodes} nodes every {interval}, at {priority}");
            output.event("reading", &text);
        }
    }
}

/// What the data plane shares with everybody else.
fn shared(
    config: &ProxyConfig,
    table: LoadTable,
    director: &Director,
    routes: Routes,
    sites: usize,
) -> Arc<Shared> {
    let nodes = table.nodes();
    Arc::new(Shared {
        table: Arc::new(table),
        topology: ArcSwap::new(director.topology()),
        routes: ArcSwap::new(Arc::new(routes)),
        room: tokio::sync::Notify::new(),
        throttles: Throttling::new(held_max(config)),
        dithering: Arc::new(Dithering::new(held_max(config) / 2)),
        stats: Arc::new(Stats::new(config.workers, sites, nodes)),
    })
}

/// Begins to watch for culprits.
fn watch(
    config: Culprits,
    proxy: &mut Proxy,
    shared: &Arc<Shared>,
    resources: &Arc<Resources>,
    output: Output,
) -> Result<Watch, Failure> {
    let topology = shared.topology.load();
    let parts = WatchParts {
        observed: proxy.observed(),
        shared: Arc::clone(shared),
        resources: Arc::clone(resources),
        sites: topology.sites.iter().map(|it| it.name.clone()).collect(),
        config,
        output,
        clock: clock::now,
    };
    Watch::spawn(parts).map_err(|error| Failure::Failed(error.to_string()))
}

/// Throttles the classes of the configuration, and then as operators have ordered before: theirs is the
/// later word.
fn give_orders(
    throttling: &Throttling,
    configured: Vec<Throttled>,
    kept: &OrdersFile,
    output: Output,
) -> Result<(), Failure> {
    let now = clock::now();
    for Throttled { class, order } in configured {
        let set = throttling.set(class, order, SetBy::Config, None, now);
        set.map_err(|error| Failure::Usage(format!("[[throttle]]: {error}")))?;
    }
    for text in kept.load(throttling, now) {
        output.event("orders", &text);
    }
    Ok(())
}

/// SIGHUP: the file is looked at, and not taken over.
fn recheck(file: &Path, output: Output) {
    match Config::load(file) {
        Ok(_) => output.event(
            "checked",
            &format!("{} is sound; restart to take it over", file.display()),
        ),
        Err(error) => output.event("broken", &error.render(output.colour())),
    }
}

fn reader_options(front_end: &FrontEnd) -> ReaderOptions {
    ReaderOptions {
        interval: front_end.interval,
        timeout: front_end.timeout,
        realtime: front_end.realtime,
    }
}

fn proxy_config(front_end: &FrontEnd) -> ProxyConfig {
    let limits = &front_end.limits;
    let workers = match limits.workers.value {
        Auto::Auto => available_parallelism().map_or(1, usize::from),
        Auto::Set(workers) => workers as usize,
    };
    ProxyConfig {
        listeners: front_end
            .listeners
            .iter()
            .map(|address| ListenerConfig { address: *address })
            .collect(),
        workers,
        seed: front_end.seed.unwrap_or_else(seed),
        limits: proxy_limits(limits, workers),
        timeouts: proxy_timeouts(&front_end.timeouts),
        sites: front_end.sites.clone(),
        forwarded: front_end.forwarded.clone(),
        log: front_end.log.clone(),
        node_header: front_end.node_header,
        events: front_end.culprits.as_ref().map_or(0, |_| EVENTS),
        clock: clock::now,
    }
}

/// Most requests that throttles hold. Each has a connection: half of them stay for all others, and of
/// those a causal test has half at most.
fn held_max(config: &ProxyConfig) -> usize {
    config.limits.connections * config.workers / 2
}

fn proxy_limits(limits: &LimitsFile, workers: usize) -> Limits {
    // Rounded up: a limit below the number of workers still lets each have one.
    let share = |all: u32| (all as usize).div_ceil(workers);
    Limits {
        connections: share(limits.connections.value),
        tunnels: share(limits.tunnels.value),
        head_bytes: limits.head.bytes(),
        uri_bytes: limits.uri.bytes(),
        body_bytes: limits.body.value.map(|size| size.0),
        buffer_bytes: limits.buffer.bytes(),
        pool_per_node: limits.pool_per_node.value as usize,
        tries: limits.tries.value,
        ..Limits::default()
    }
}

fn proxy_timeouts(timeouts: &TimeoutsFile) -> Timeouts {
    Timeouts {
        client_head: timeouts.client_head.value,
        client_idle: timeouts.client_idle.value,
        connect: timeouts.connect.value,
        response_head: timeouts.response_head.value,
        body_idle: timeouts.body_idle.value,
        tunnel_idle: timeouts.tunnel_idle.value,
        upstream_idle: timeouts.upstream_idle.value,
        ..Timeouts::default()
    }
}

/// A number that differs between front-ends: the standard library keys its hashers from the
/// system's randomness.
fn seed() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use tidegate_core::retry_budget::RetryConfig;
    use tidegate_proxy::{AnswerConfig, ClassConfig};

    use super::*;
    use crate::config::file::{ConfigFile, defaults};

    /// The file's defaults are the data plane's own: whoever changes one sees the other.
    #[test]
    fn defaults_are_those_of_the_data_plane() {
        let file: ConfigFile = defaults();
        let limits = proxy_limits(&file.limits, 1);
        let own = Limits::default();
        assert_eq!(
            limits,
            Limits {
                connections: limits.connections,
                ..own
            }
        );
        assert_eq!(proxy_timeouts(&file.timeouts), Timeouts::default());
        let text = "[[listener]]\naddress = \"127.0.0.1:8080\"\n[[site]]\nname = \"a\"\n\
                    [[node]]\nname = \"n\"\naddress = \"10.0.0.1:80\"\nsite = \"a\"\n";
        let config = Config::parse(text, "test.toml", Path::new("")).unwrap();
        let site = &config.front_end.unwrap().sites[0];
        assert_eq!(site.answers, AnswerConfig::default());
        assert_eq!(site.classes, ClassConfig::default());
        assert_eq!(site.retry, RetryConfig::default());
        assert_eq!(site.sessions, None);
    }

    #[test]
    fn a_limit_is_shared_among_the_workers() {
        let file: ConfigFile = defaults();
        let limits = proxy_limits(&file.limits, 3);
        assert_eq!(limits.connections, 6667);
    }
}
