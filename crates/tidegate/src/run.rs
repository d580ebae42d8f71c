//! `tidegate run`: puts a front-end together, and takes it apart when asked to stop.
//!
//! | thread | what |
//! |---|---|
//! | this one | signals, the admin interface, health probes |
//! | up to three more | working out long answers of the admin interface |
//! | `director` | control plane: a tick each millisecond |
//! | `culprits` | which requests load what: a tick each 20 ms |
//! | `state` | writes what was learned of that, each minute |
//! | the reader's | loads of the nodes |
//! | `discovery` | where more nodes come from, if there is a source |
//! | `otlp` | exports traces, if that is wanted |
//! | workers | data plane |
//!
//! SIGTERM and SIGINT drain, in this order: `/readyz` says no; after a delay the admin address is given
//! up, so that a successor can have it, what was learned is kept, and nothing new is accepted; requests in flight end by themselves,
//! and idle connections behind their next answer, until the drain's time-out. A second signal ends at
//! once. SIGUSR2 has a successor take over ([`crate::upgrade`]). SIGUSR1 opens the
//! access log anew after it was renamed. SIGHUP reads the configuration file again ([`crate::reload`]).

mod admin_socket;
mod log_events;
mod parts;
mod reading;
mod settings;
mod watchdog;

use std::convert::Infallible;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwap;
use tidegate_core::director::Director;
use tidegate_core::load::LoadTable;
use tidegate_core::topology::ClusterSpec;
use tidegate_culprits::live::Watch;
use tidegate_proxy::{PortSharing, Ports, Proxy, ProxyError, WorkerFailure};
use tidegate_remote::clock;
use tokio::net::TcpListener;
use tokio::signal::unix::SignalKind;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::acme::Certificates;
use crate::admin::history::HistoryKeeper;
use crate::admin::plane::{Plane, Window};
use crate::admin::{Access, server};
use crate::config::{Admin, Config, Culprits, FrontEnd, WebhookConfig, state_folder};
use crate::culprits::front_end;
use crate::culprits::heard::Heard;
use crate::culprits::peers::Peers;
use crate::discovery::Discovery;
use crate::discovery::book::SourceBook;
use crate::driver::Driver;
use crate::events::EventLog;
use crate::failure::Failure;
use crate::learned::{Gatherer, Keeper, Learned};
use crate::moves;
use crate::otlp::Exporter;
use crate::output::{self, Output};
use crate::overrides_file::OverridesFile;
use crate::peer_auth::{Identity, PeerGate, PeerKey};
use crate::privilege::{self, Kept};
use crate::probe;
use crate::reload::requests::share_open_files;
use crate::reload::{self, Begun, DrainTimes, LiveCluster, Specs};
use crate::signals::{Stop, listen};
use crate::state::StateFolder;
use crate::upgrade::successor::wait_for_loads;
use crate::upgrade::{self, Given, Program, Role, Succession, Successor, Upgrader, notify};
use crate::webhook;

use admin_socket::{AdminSocket, ListenerCopy};
use parts::{apply_overrides, driver_parts, reach, seen, shared, start_proxy, withhold};
use reading::loads;
use settings::{proxy_config, reader_options};

/// How long a port is asked for that another process has: one that was asked to stop is about to give it up.
const PORT_PATIENCE: Duration = Duration::from_secs(2);
/// How long the last answers of the admin interface may take once a successor serves.
const LAST_ANSWERS: Duration = Duration::from_secs(1);
/// How long the last events may take to their webhook.
const LAST_EVENTS: Duration = Duration::from_secs(2);
/// How long the last traces may take.
const LAST_TRACES: Duration = Duration::from_secs(2);
/// Threads that work out answers of the admin interface or open the access log anew, and one that waits for a drain.
const BLOCKING_THREADS_MAX: usize = 3;

/// Runs until it is asked to stop. Without a file everything came from the command line.
pub(crate) fn run(
    config: Config,
    file: Option<&Path>,
    sharing: PortSharing,
    output: Output,
) -> Result<(), Failure> {
    let output = output.keeping(EventLog::of_process());
    let program = Program::of_this_process();
    let given = Given::receive()?;
    let mut config = config;
    let mut front_end = config.front_end.take().ok_or_else(|| {
        Failure::Usage(format!(
            "{} is an agent's: it has no [[listener]], [[site]] and [[node]]",
            file.unwrap_or(Path::new("the configuration")).display()
        ))
    })?;
    let mut begun = Begun::of(file, &config, &front_end);
    let Config {
        admin,
        notes,
        file: written,
        ..
    } = config;
    front_end.ports = Ports {
        sharing,
        patience: PORT_PATIENCE,
    };
    if let Some(text) = share_open_files(&mut front_end) {
        output.event("open_files", &text);
    }
    let folder = state_folder::of(&written.state, file.unwrap_or(Path::new("")));
    let folder = folder.unwrap_or_else(|why| {
        output.event("state", &why);
        None
    });
    let folder = folder.map(StateFolder::new);
    begun.keep_in(folder.as_ref());
    let process = &written.process;
    let kept = Kept::of(&front_end, process.marks.value);
    let starting = kept.starting(&front_end, admin.address.port());
    privilege::settle(process.user.value.as_deref(), starting, output)?;
    let certificates = Arc::<Certificates>::default();
    certificates.begin(front_end.acme.take(), output);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .enable_all()
        .build()
        .map_err(|error| Failure::Failed(format!("cannot start: {error}")))?;
    for note in notes {
        output.event("note", &format!("note: {note}"));
    }
    let start = Start {
        begun: Some(begun),
        sources: Arc::default(),
        certificates,
        kept,
        given,
        learned: Learned::default(),
        folder,
        withheld: Vec::new(),
    };
    let ended = runtime.block_on(serve(admin, front_end, start, program, output));
    // A drain that a second signal cut short is not waited for.
    runtime.shutdown_background();
    ended
}

/// With what a front-end starts, besides what it serves.
pub(crate) struct Start {
    /// What can be reloaded; none: it stays as it is.
    pub(crate) begun: Option<Begun>,
    /// What is known of sources of nodes.
    pub(crate) sources: Arc<SourceBook>,
    /// Those that come by themselves.
    pub(crate) certificates: Arc<Certificates>,
    /// What its threads may do.
    pub(crate) kept: Kept,
    /// What a former process or the service manager gives.
    pub(crate) given: Given,
    /// What a process before this one has learned.
    pub(crate) learned: Learned,
    /// Where files are kept over a restart.
    pub(crate) folder: Option<StateFolder>,
    /// Nodes on their way between sites: they get no requests yet.
    pub(crate) withheld: Vec<String>,
}

impl Start {
    /// With nothing.
    pub(crate) fn plain() -> Self {
        Self {
            begun: None,
            sources: Arc::default(),
            certificates: Arc::default(),
            kept: Kept::All,
            given: Given::default(),
            learned: Learned::default(),
            folder: None,
            withheld: Vec::new(),
        }
    }

    /// A director that goes on from what was learned, with nodes that are on their way between sites.
    fn director(
        &mut self,
        cluster: ClusterSpec,
        seed: u64,
        table: &LoadTable,
        output: Output,
    ) -> Result<Director, Failure> {
        let mut director = Director::new(cluster, seed);
        withhold(&mut director, table, std::mem::take(&mut self.withheld))?;
        self.learned.begin(&mut director, table, output);
        Ok(director)
    }
}

/// Why a front-end ends.
enum Ending {
    /// It is asked to.
    Asked,
    /// Its successor serves.
    Succeeded(Successor),
    /// It was to be a successor, and the former process goes on.
    Withdrawn,
}

async fn serve(
    admin: Admin,
    mut front_end: FrontEnd,
    mut start: Start,
    program: std::io::Result<Program>,
    output: Output,
) -> Result<(), Failure> {
    // Signals first: one that comes while we start is not lost.
    let mut stop = Stop::new()?;
    let mut hang_up = listen(SignalKind::hangup())?;
    let mut reopen = listen(SignalKind::user_defined1())?;
    let inherited = start.given.sockets.take(Role::Admin, admin.address);
    let operators = AdminSocket::open(admin.address, inherited, front_end.ports)?;
    // From here on nothing waits for the reader of our events.
    output::run_in_background();
    let at_start = DrainTimes::of(&front_end.timeouts);
    let (peers, access) = exchange(&admin, front_end.culprits.as_ref())?;
    let (upgrades, is_successor) = (start.given.upgrades, start.given.is_successor);
    let webhook = front_end.webhook.take().zip(output.log);
    let keeper = Keeper::new(start.folder.as_ref(), front_end.culprits.is_some(), output);
    start.learned = keeper.recall(start.given.learned.as_ref(), start.given.costs.take());
    let discovery = discover(&mut front_end, &mut start, output).await?;
    let mut running = Running::start(front_end, start, output)?;
    running.say(&operators.listener, output);
    running.look_around(peers, output);
    running.send_events(webhook, output);
    running.discover(discovery);
    running.watch_log(output);
    let no_change = (is_successor.then(|| running.plane.upgrades.close())).flatten();
    let plane = Arc::clone(&running.plane);
    let shown = Arc::clone(&plane);
    let AdminSocket { listener, copy, .. } = operators;
    let (open, closed) = mpsc::channel(1);
    let admin = tokio::spawn(server::serve(
        listener,
        move || Arc::clone(&shown),
        access,
        output,
        open,
    ));
    let mut failures = running.proxy.failures();
    let mut upgrader = Upgrader::new(running.upgrades.take(), program, output)?;
    let mut succession = Succession::ready(running.proxy.addresses().to_vec(), no_change, output)?;
    notify::ready();
    watchdog::begin(&plane, is_successor, output);
    let mut ending = loop {
        tokio::select! {
            () = stop.wait() => break Ending::Asked,
            successor = upgrader.succeeded(|| copy.offer(&running, upgrades, output)) => break Ending::Succeeded(successor),
            () = succession.withdrawn() => break Ending::Withdrawn,
            _ = hang_up.recv() => hung_up(&plane),
            _ = reopen.recv() => log_events::reopen(running.proxy.log_reopener(), output),
            Some(failure) = failures.recv() => {
                let WorkerFailure { worker, cause } = failure;
                let text = format!("worker {worker} failed and was replaced; its connections are lost: {cause}");
                output.event("worker_failed", &text);
            }
        }
    };
    if let Ending::Asked = ending {
        ending = upgrader
            .withdraw()
            .await
            .map_or(Ending::Asked, Ending::Succeeded);
    }
    let last = LastSteps {
        running,
        admin,
        copy,
        closed,
        shares_sockets: succession.is_open(),
        times: plane
            .cluster
            .as_ref()
            .map_or(at_start, |it| it.drain_times()),
    };
    last.take(ending, stop, output).await
}

/// Asks the sources of nodes for the first time, so that the first client finds some, and nodes that move where they are.
async fn discover(
    front_end: &mut FrontEnd,
    start: &mut Start,
    output: Output,
) -> Result<Discovery, Failure> {
    let mut discovery = Discovery::new(output);
    if let Some(begun) = &mut start.begun {
        let others = discovery.begin(begun.sources()).await;
        let others = others.map_err(|error| Failure::Failed(format!("cannot start: {error}")))?;
        let (added, mut moved) = (
            start.learned.added.take(),
            std::mem::take(&mut start.learned.moved),
        );
        // A former process has said where nodes are.
        if !start.given.is_successor {
            let (movable, reads) = begun.movable_reads();
            let config = front_end.reconfigure.as_ref();
            let found = moves::nodes_at_start(config, &movable, &reads, output).await;
            moved.extend(found.moved);
            start.withheld = found.withheld;
        }
        begun.add(others, (added, moved), front_end, output);
        if front_end.reconfigure.is_none() {
            begun.say_moved(output);
        }
    }
    start.sources = discovery.book();
    Ok(discovery)
}

/// What a front-end takes apart at its end.
struct LastSteps {
    running: Running,
    admin: JoinHandle<()>,
    copy: ListenerCopy,
    /// Ends with the last connection of an operator.
    closed: mpsc::Receiver<Infallible>,
    /// The process that it was to succeed has its sockets as well.
    shares_sockets: bool,
    times: DrainTimes,
}

impl LastSteps {
    async fn take(self, ending: Ending, mut stop: Stop, output: Output) -> Result<(), Failure> {
        let Self {
            mut running,
            admin,
            copy,
            mut closed,
            shares_sockets,
            times,
        } = self;
        let taken_over = match &ending {
            Ending::Asked if !shares_sockets => Vec::new(),
            Ending::Asked | Ending::Withdrawn => running.proxy.addresses().to_vec(),
            Ending::Succeeded(successor) => successor.taken_over.clone(),
        };
        running.plane.certificates.follow(None);
        let is_succeeded = matches!(ending, Ending::Succeeded(_));
        if let Some(moves) = &running.plane.moves {
            moves.end();
        }
        let mut patience = times.drain;
        if is_succeeded {
            running.plane.is_succeeded.store(true, Ordering::Relaxed);
        } else {
            running.plane.draining.store(true, Ordering::Relaxed);
            notify::stopping();
            if is_told_twice(times.delay, &mut stop, output).await {
                patience = Duration::ZERO;
            }
        }
        // Its address is free before anything else is: connections that are open stay.
        drop(copy);
        admin.abort();
        // It ends as one that was aborted.
        admin.await.unwrap_or_default();
        running.proxy.leave(&taken_over);
        let answered = async {
            if is_succeeded {
                // What asked for the upgrade is answered, whatever else is open.
                tokio::time::timeout(LAST_ANSWERS, closed.recv()).await.ok();
            }
        };
        tokio::join!(answered, end(running, patience, stop, output));
        match ending {
            Ending::Asked | Ending::Succeeded(_) => Ok(()),
            Ending::Withdrawn => Err(Failure::Failed("the former process goes on".into())),
        }
    }
}

/// Lets a load balancer notice that this front-end is to end; whether that is cut short.
async fn is_told_twice(delay: Duration, stop: &mut Stop, output: Output) -> bool {
    if delay.is_zero() {
        return false;
    }
    output.event("stopping", "told to stop: not ready any more");
    tokio::select! {
        () = tokio::time::sleep(delay) => false,
        () = stop.wait() => true,
    }
}

/// The other front-ends, and which may ask this one for what. Front-ends know each other by a secret of their own, or
/// by one that is made from the admin token.
fn exchange(admin: &Admin, culprits: Option<&Culprits>) -> Result<(Peers, Access), Failure> {
    let secret = culprits.and_then(|it| it.peer_token.as_ref());
    let key = secret.or(admin.token.as_ref()).map(PeerKey::derived);
    let no_randomness = |error| Failure::Failed(format!("no randomness: {error}"));
    let identity = Identity::random().map_err(no_randomness)?;
    let heard = Arc::new(Heard::new(identity));
    let peers = culprits.map_or_else(Vec::new, |it| it.peers.clone());
    let peers = Peers::new(peers, key.clone(), heard);
    let gate = key.map(|key| PeerGate::new(key, identity)).transpose();
    let access = Access {
        token: admin.token.clone(),
        read_token: admin.read_token.clone(),
        peers: gate.map_err(no_randomness)?,
        identity: Some(identity),
    };
    Ok((peers, access))
}

/// Lets what is in flight end.
async fn end(running: Running, drain: Duration, mut stop: Stop, output: Output) {
    if let Some(cluster) = &running.plane.cluster {
        cluster.give_up_folder();
    }
    let gatherer = running.gatherer();
    let Running {
        mut proxy,
        driver,
        watch,
        keeper,
        history,
        plane,
        ..
    } = running;
    let traces = Arc::clone(&plane.traces);
    if let Some(watch) = &watch {
        watch.keep();
    }
    keeper.end(&gatherer).await;
    history.end(&plane).await;
    proxy.begin_drain();
    output.event(
        "draining",
        "draining: requests in flight end by themselves; told once more it stops at once",
    );
    let drained =
        tokio::task::spawn_blocking(move || (proxy.drain(drain), traces.end(LAST_TRACES)));
    tokio::select! {
        drained = drained => {
            let (drained, traced) = drained.unwrap_or_default();
            let log = match drained.log_cut {
                true => "; the last lines of the access log were not written in time",
                false => "",
            };
            let traces = if traced { "" } else { "; the last traces were not exported in time" };
            let (finished, cut) = (drained.finished, drained.cut);
            let text = format!("stopped: {finished} requests finished, {cut} cut off{log}{traces}");
            output.event("stopped", &text);
            if let Some(log) = output.log {
                // A webhook that takes none holds up nothing for long.
                tokio::time::timeout(LAST_EVENTS, log.wait_sent()).await.ok();
            }
        }
        () = stop.wait() => output.event("stopped", "stopped at once: told twice"),
    }
    drop(driver);
    drop(watch);
    output::flush();
}

/// Why there is no listening, and what could be done.
fn cannot_listen(what: &str, error: &std::io::Error) -> Failure {
    let hint = if error.kind() == ErrorKind::AddrInUse {
        "; if that is a tidegate to be replaced, --reuse-port shares its ports until it has ended"
    } else {
        ""
    };
    Failure::Failed(format!("cannot listen on {what}: {error}{hint}"))
}

/// Why there is no data plane.
fn proxy_failure(error: &ProxyError) -> Failure {
    match error {
        ProxyError::Listen { address, error } => cannot_listen(&address.to_string(), error),
        ProxyError::Log(_) | ProxyError::Worker(_) | ProxyError::Counters { .. } => {
            Failure::Failed(error.to_string())
        }
    }
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
    /// Where what is learned of nodes is kept.
    pub(crate) keeper: Keeper,
    /// Where the history is kept.
    pub(crate) history: HistoryKeeper,
    /// Upgrades that are asked for; none once something carries them out.
    pub(crate) upgrades: Option<upgrade::Requests>,
}

impl Running {
    /// Starts everything but the admin interface. Needs a runtime around it, for health probes.
    pub(crate) fn start(
        front_end: FrontEnd,
        mut start: Start,
        output: Output,
    ) -> Result<Self, Failure> {
        let proxy_config = proxy_config(&front_end, start.kept);
        let how = (reader_options(&front_end), front_end.pace);
        let (cluster, culprits) = (front_end.cluster, front_end.culprits);
        let (names, throttles) = (front_end.class_names, front_end.throttles);
        let sites = cluster.sites.len();
        let specs: Specs = Arc::new(ArcSwap::from_pointee(cluster.sites.clone()));
        let table = LoadTable::new(cluster.nodes.len(), sites).grouped(&cluster.groups);
        let keeper = Keeper::new(start.folder.as_ref(), culprits.is_some(), output);
        let director = start.director(cluster, proxy_config.seed, &table, output)?;
        let (begun, kept, given, folder) = (start.begun, start.kept, start.given, start.folder);
        let shared = shared(&proxy_config, table, &director, sites);
        let kept_file = OverridesFile::new(front_end.overrides_file);
        apply_overrides(&shared.throttles, throttles, &kept_file, &names, output)?;
        start.learned.throttle(&shared.throttles, &names, output);
        let (reads, resources) = loads(front_end.reads, &front_end.resources, how, &shared)?;
        let (started, (desk, upgrades)) = (clock::now(), upgrade::desk(given.upgrades));
        if given.is_successor {
            wait_for_loads(&shared.table, reads.nodes(), clock::now);
        }
        let mut proxy = start_proxy(proxy_config, &shared, given.sockets, output)?;
        // The threads that follow need none.
        kept.settle()?;
        let traces = Exporter::begin(proxy.traced(), front_end.traces.otlp, output);
        let seen = seen(&mut proxy, &shared, &resources, &mut start.learned);
        let watched = |it| front_end::watch(it, seen, folder.as_ref(), output);
        let watch = culprits.map(watched).transpose()?;
        let (probes, due) = mpsc::channel(probe::WAITING_MAX);
        let parts = driver_parts(director, &shared, &reads, probes, output);
        let driver = Driver::spawn(parts).map_err(|error| Failure::Failed(error.to_string()))?;
        let mut reach = reach(&driver, &proxy, &shared, &specs, &resources, &desk, output);
        reach.culprits = watch.as_ref().map(Watch::asks);
        reach.certificates = Arc::clone(&start.certificates);
        reach.traces = Some(Arc::clone(&traces));
        let checks = probe::start(due, reach.clone());
        let cluster = begun.map(|begun| Arc::new(LiveCluster::new(begun, reach)));
        let moving = front_end.reconfigure.zip(cluster.as_ref());
        let moves = moves::begin(moving, &shared, driver.words_changed(), output);
        let plane = Arc::new(Plane {
            cluster,
            sources: start.sources,
            certificates: start.certificates,
            traces,
            clock: clock::now,
            started,
            listeners: proxy.listener_setter().addresses(),
            sites: specs,
            window: Mutex::new(Window::new(started, shared.stats.snapshot())),
            shared,
            reads,
            checks,
            names,
            overrides_file: kept_file,
            resources,
            culprits: watch.as_ref().map(Watch::asks),
            overrides: driver.overrides(),
            driver: driver.stats(),
            draining: AtomicBool::new(false),
            moves,
            upgrades: desk,
            is_succeeded: AtomicBool::new(false),
            output,
        });
        Ok(Self {
            proxy,
            driver,
            watch,
            plane,
            keeper,
            history: HistoryKeeper::new(folder.as_ref()),
            upgrades: Some(upgrades),
        })
    }

    /// Asks for what is learned of nodes.
    fn gatherer(&self) -> Gatherer {
        Gatherer {
            driver: self.plane.overrides.clone(),
            shared: Arc::clone(&self.plane.shared),
            added: self.plane.cluster.as_ref().map(|it| it.added_now()),
            moved: self.plane.cluster.as_ref().map(|it| it.moved_now()),
            culprits: self.plane.culprits.clone(),
        }
    }

    /// Begins to watch the file, if that is wanted, and to ask the other front-ends what requests they have.
    fn look_around(&self, peers: Peers, output: Output) {
        if let Some(cluster) = self.plane.cluster.as_ref().filter(|it| it.is_watched()) {
            tokio::spawn(reload::watch::run(Arc::clone(cluster)));
        }
        tokio::spawn(Arc::clone(&self.plane.certificates).run(output));
        tokio::spawn(self.keeper.clone().run(self.gatherer()));
        tokio::spawn(self.history.clone().run(Arc::clone(&self.plane)));
        let Some(watch) = &self.watch else { return };
        let changes = self.plane.cluster.as_ref().map(|it| it.peers());
        tokio::spawn(peers.follow(changes, watch.asks(), output, clock::now));
    }

    /// Begins to send events to the operator's server, if there is one.
    fn send_events(&self, webhook: Option<(WebhookConfig, &'static EventLog)>, output: Output) {
        if let Some((config, log)) = webhook {
            tokio::spawn(webhook::run(log, config, output));
        }
    }

    /// Begins to follow the sources of nodes.
    fn discover(&self, discovery: Discovery) {
        if let Some(cluster) = &self.plane.cluster {
            tokio::spawn(discovery.run(Arc::clone(cluster)));
            tokio::spawn(Arc::clone(cluster).follow_folder());
        }
    }

    /// Begins to say when lines of the access log are lost, and when that is over.
    fn watch_log(&self, output: Output) {
        if let Some(health) = self.proxy.log_health() {
            tokio::spawn(log_events::run(health, output));
        }
    }

    /// Says where everything is.
    fn say(&self, admin: &TcpListener, output: Output) {
        for address in self.proxy.addresses().iter() {
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
            let interval = tidegate_core::units::format_duration(reads.shortest());
            let nodes = reads.nodes();
            let often = match reads.is_constant() {
                true => "",
                false => " or as often as is needed",
            };
            let text =
                format!("reading the load of {nodes} nodes every {interval}{often}, at {priority}");
            output.event("reading", &text);
        }
    }
}

/// SIGHUP: the file is read again.
fn hung_up(plane: &Plane) {
    let Some(cluster) = plane.cluster.clone() else {
        return;
    };
    // What comes of it is in the log.
    tokio::spawn(async move {
        let _reloading = notify::Reloading::begin();
        cluster.reload(false).await.ok();
    });
}
