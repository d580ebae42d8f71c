//! The cluster that a running front-end serves: what its configuration file says, and what other sources announce.
//! Each change is worked out here, checked, and then handed to the driver as one [`ClusterChange`].
//!
//! ```text
//! file ────────── reload ──┐
//!                          ├─ Wanted ── between(before, after) ──> driver ──> Topology, reader
//! other sources ─ announce ┘      │
//!                                 └──> settings of sites, throttles
//! ```
//!
//! All or nothing: a file with an error changes nothing. What operators have set at run time stays: nodes that drain,
//! throttles. Changes come one after the other, and one that has begun is carried out even if its asker leaves.

mod access_log;
mod first;
mod listeners;
mod node_file;
mod operators;
mod plan;
pub(crate) mod requests;
mod unseen;
mod wanted;
pub(crate) mod watch;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use tidegate_core::moves::numbering::MovableNode;
use tidegate_core::throttle::SetBy;
use tidegate_core::topology::discovered::Announced;
use tidegate_core::topology::{ClusterChange, Edit, SiteSpec};
use tidegate_culprits::live::Asks;
use tidegate_proxy::{ListenerSetter, LogConfig, LogReopener, RequestSetter, Shared, SiteSetter};
use tidegate_remote::clock;
use tokio::sync::{Mutex, Semaphore, watch as channel};
use tokio::time::timeout;

use crate::acme::Certificates;
use crate::config::file::{ConfigFile, ReloadName, TimeoutsFile};
use crate::config::throttle::Throttled;
use crate::config::{Config, ConfigError, FrontEnd, Movable, NodeRead, NodeSource, Secrets};
use crate::driver::{ChangeFailure, Overrides};
use crate::models::{AddedNode, LeftOutStatus, MovedNodes, Reloaded};
use crate::otlp::Exporter;
use crate::output::Output;
use crate::resources::Resources;
use crate::state::StateFolder;
use crate::upgrade::Desk;
use node_file::NodeFile;
pub(crate) use operators::NodeEdit;
use plan::Plan;
use requests::{held_max, request_config, share_open_files};
use unseen::unseen;
pub(crate) use wanted::OtherNodes;
use wanted::{Wanted, Weighed, WholeCluster, gone};

/// Longest time to read the file and those that it names.
pub(crate) const READ_MAX: Duration = Duration::from_secs(10);

/// Sites as the configuration has them, by [`SiteId`](tidegate_core::topology::SiteId); the topology does not keep their hosts.
pub(crate) type Specs = Arc<ArcSwap<Vec<SiteSpec>>>;

/// Why a configuration is not in force.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReloadError {
    /// There is none to be read again.
    #[error("this front-end has all from its command line: there is no file to read again")]
    NoFile,
    /// It has errors.
    #[error("{}", .0.render(false).trim_start_matches("error: "))]
    Config(ConfigError),
    /// It is not a front-end's.
    #[error("the file has no [[listener]], [[site]] and [[node]] any more")]
    NoFrontEnd,
    /// The cluster cannot be changed so.
    #[error(transparent)]
    Change(#[from] ChangeFailure),
    /// The disk does not answer.
    #[error(
        "the file, or one that it names, was not read within {READ_MAX:?}: its disk does not answer"
    )]
    Unread,
    /// An operator cannot have a node so.
    #[error("{0}")]
    Node(String),
    /// It is for another process or front-end to change that.
    #[error("{0}")]
    Elsewhere(String),
    /// It broke off; the log says why.
    #[error("the change broke off: see the log")]
    Broken,
}

impl ReloadError {
    /// Whether nothing is wrong with the file: the same may succeed later, or elsewhere.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(
            self,
            Self::Unread
                | Self::Broken
                | Self::Elsewhere(_)
                | Self::Change(ChangeFailure::Override(_))
        )
    }
}

/// What became of reloads, for the metrics.
#[derive(Debug)]
pub(crate) struct ReloadStats {
    /// Those that were carried out.
    pub(crate) done: AtomicU64,
    /// Those that were refused.
    pub(crate) failed: AtomicU64,
    /// Whether the last one was carried out; true before the first.
    pub(crate) last_done: AtomicBool,
}

impl Default for ReloadStats {
    fn default() -> Self {
        Self {
            done: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            last_done: AtomicBool::new(true),
        }
    }
}

/// What a front-end began with, or goes on with.
#[derive(Debug)]
pub(crate) struct Begun {
    /// Of the file, if it has one.
    path: Option<PathBuf>,
    file: ConfigFile,
    secrets: Secrets,
    wanted: Wanted,
    others: OtherNodes,
    node_file: NodeFile,
    log: LogConfig,
}

impl Begun {
    /// Of the configuration that it begins with.
    pub(crate) fn of(path: Option<&Path>, config: &Config, front_end: &FrontEnd) -> Self {
        Self {
            path: path.map(Path::to_owned),
            wanted: Wanted::of(&config.file, front_end),
            file: config.file.clone(),
            secrets: config.secrets.clone(),
            others: OtherNodes::default(),
            node_file: NodeFile::default(),
            log: front_end.log.clone(),
        }
    }

    /// What operators add is kept in this folder.
    pub(crate) fn keep_in(&mut self, folder: Option<&StateFolder>) {
        self.node_file = NodeFile::new(folder);
    }

    /// Asks sources that have not answered yet.
    async fn ask_new_sources(&mut self) {
        let known = &self.others.announced;
        let sources = self.wanted.sources.iter();
        let new = sources.filter(|it| !known.contains_key(&it.config.name));
        let answers = first::answers(new.cloned().collect()).await;
        self.others.announced.extend(answers);
    }

    fn whole(&self) -> WholeCluster {
        self.wanted.with(&self.others)
    }

    /// Where more nodes come from.
    pub(crate) fn sources(&self) -> &[NodeSource] {
        &self.wanted.sources
    }

    /// Sites that take part in moves, and nodes that can be moved.
    fn movable(&self) -> Movable {
        Movable::of(&self.file)
    }

    /// The same, and how each of these nodes is read.
    pub(crate) fn movable_reads(&self) -> (Movable, BTreeMap<String, NodeRead>) {
        let movable = self.movable();
        let read = |node: &MovableNode| {
            let read = self.wanted.reads.get(&node.name)?;
            Some((node.name.clone(), read.clone()))
        };
        let reads = movable.nodes.iter().filter_map(read).collect();
        (movable, reads)
    }

    /// With the nodes of others, which the front-end that is to start has then. Those that operators have added are the
    /// ones of the process that it succeeds, or else those that are kept.
    pub(crate) fn add(
        &mut self,
        others: OtherNodes,
        (handed_over, moved): (Option<Vec<AddedNode>>, MovedNodes),
        front_end: &mut FrontEnd,
        output: Output,
    ) {
        let mut others = others;
        let kept = self.node_file.load(output);
        others.added = handed_over.unwrap_or(kept);
        others.moved = self.movable().kept(moved);
        let WholeCluster { wanted, .. } = self.wanted.with(&others);
        self.others = others;
        let nodes = wanted.cluster.nodes.iter();
        let reads = nodes.map(|node| wanted.reads[&node.name].clone());
        front_end.reads = reads.collect();
        front_end.cluster = wanted.cluster;
    }
}

impl Begun {
    /// Says which nodes stay where a former process has moved them, now that none is moved any more.
    pub(crate) fn say_moved(&self, output: Output) {
        let moved = self.others.moved.iter();
        let named: Vec<_> = moved
            .map(|(node, site)| format!("{node} at {site}"))
            .collect();
        if named.is_empty() {
            return;
        }
        let text = format!(
            "nodes are not moved any more ([reconfigure] `enabled`), and stay where they were moved: {}",
            named.join(", ")
        );
        output.event("moved_stay", &text);
    }
}

/// How a front-end ends that is asked to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DrainTimes {
    /// From the signal until nothing new is accepted.
    pub(crate) delay: Duration,
    /// From then on until what is in flight is cut off.
    pub(crate) drain: Duration,
}

impl DrainTimes {
    /// Those of a file.
    pub(crate) fn of(timeouts: &TimeoutsFile) -> Self {
        Self {
            delay: timeouts.drain_delay.value,
            drain: timeouts.drain.value,
        }
    }
}

/// What it changes, in a running front-end.
#[derive(Clone, Debug)]
pub(crate) struct Reach {
    /// The driver's ear.
    pub(crate) driver: Overrides,
    /// Topology and throttles.
    pub(crate) shared: Arc<Shared>,
    /// Settings of sites.
    pub(crate) sites: SiteSetter,
    /// What requests are served by.
    pub(crate) requests: RequestSetter,
    /// Where clients connect.
    pub(crate) listeners: ListenerSetter,
    /// Certificates that come by themselves.
    pub(crate) certificates: Arc<Certificates>,
    /// Where the access log goes.
    pub(crate) log: LogReopener,
    /// Where traces go.
    pub(crate) traces: Option<Arc<Exporter>>,
    /// Sites as views show them.
    pub(crate) specs: Specs,
    /// Nodes that are resources alone.
    pub(crate) resources: Arc<Resources>,
    /// A reload waits for an upgrade that is under way.
    pub(crate) upgrades: Desk,
    /// What watches for culprits; none if that is switched off.
    pub(crate) culprits: Option<Asks>,
    /// Where it is said what was done.
    pub(crate) output: Output,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct LiveCluster {
    path: Option<PathBuf>,
    is_watched: bool,
    reach: Reach,
    /// The file that this process began with: what only a new one takes over is as there.
    started: ConfigFile,
    stats: ReloadStats,
    /// To read the file.
    turn: Arc<Semaphore>,
    node_file: NodeFile,
    /// What is in force.
    state: Mutex<Begun>,
    /// The nodes of operators in it.
    added: Arc<ArcSwap<Vec<AddedNode>>>,
    /// The nodes in it that serve another site than the file says.
    moved: Arc<ArcSwap<MovedNodes>>,
    /// Weights of operators in it.
    weights: ArcSwap<BTreeMap<String, Weighed>>,
    /// The nodes that cannot come in.
    left_out: ArcSwap<Vec<LeftOutStatus>>,
    sources: channel::Sender<Vec<NodeSource>>,
    /// The other front-ends, once a reload has said which.
    peers: channel::Sender<Vec<SocketAddr>>,
    drain_times: ArcSwap<DrainTimes>,
}

impl LiveCluster {
    /// A cluster that is as it began.
    pub(crate) fn new(begun: Begun, reach: Reach) -> Self {
        let whole = begun.whole();
        for text in whole.newly_left_out(None) {
            reach.output.event("node_left_out", &text);
        }
        let mut begun = begun;
        Self {
            sources: channel::Sender::new(begun.wanted.sources.clone()),
            peers: channel::Sender::new(Vec::new()),
            drain_times: ArcSwap::from_pointee(DrainTimes::of(&begun.file.timeouts)),
            started: begun.file.clone(),
            path: begun.path.clone(),
            is_watched: begun.file.process.reload.value == ReloadName::Watch,
            reach,
            stats: ReloadStats::default(),
            turn: Arc::new(Semaphore::new(1)),
            node_file: std::mem::take(&mut begun.node_file),
            added: Arc::new(ArcSwap::from_pointee(begun.others.added.clone())),
            moved: Arc::new(ArcSwap::from_pointee(begun.others.moved.clone())),
            weights: ArcSwap::default(),
            left_out: ArcSwap::from_pointee(whole.left_out()),
            state: Mutex::new(begun),
        }
    }

    /// Whether the file is to be watched. That itself changes with a restart only.
    pub(crate) fn is_watched(&self) -> bool {
        self.is_watched
    }

    /// What became of reloads.
    pub(crate) fn stats(&self) -> &ReloadStats {
        &self.stats
    }

    /// How the front-end ends when it is asked to now.
    pub(crate) fn drain_times(&self) -> DrainTimes {
        **self.drain_times.load()
    }

    /// Where more nodes come from, as that changes.
    pub(crate) fn sources(&self) -> channel::Receiver<Vec<NodeSource>> {
        self.sources.subscribe()
    }

    /// The other front-ends that requests are exchanged with, as reloads change that.
    pub(crate) fn peers(&self) -> channel::Receiver<Vec<SocketAddr>> {
        self.peers.subscribe()
    }

    /// The nodes that others than the file announce, and that cannot come in now.
    pub(crate) fn left_out(&self) -> Vec<LeftOutStatus> {
        self.left_out.load().to_vec()
    }

    /// The file that is read again, if there is one.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Reads the file again and puts it in force; a dry run only says what that would do.
    ///
    /// # Errors
    /// Nothing was changed then.
    pub(crate) async fn reload(self: &Arc<Self>, dry_run: bool) -> Result<Reloaded, ReloadError> {
        let own = Arc::clone(self);
        let work = tokio::spawn(async move {
            let done = own.in_turn(dry_run).await;
            if !dry_run {
                own.say(&done);
            }
            done
        });
        work.await.unwrap_or(Err(ReloadError::Broken))
    }

    /// These are the nodes that a source knows of from now on. Those of a source that the configuration has no more are
    /// forgotten.
    ///
    /// # Errors
    /// The cluster is not changed then.
    pub(crate) async fn announce(
        self: &Arc<Self>,
        source: String,
        nodes: Vec<Announced>,
    ) -> Result<(), ReloadError> {
        self.change_others(move |others, _| {
            others.announced.insert(source, nodes);
            Ok(())
        })
        .await
    }

    /// Sites that take part in moves, and nodes that can be moved; those of these that have moved; how each is read.
    pub(crate) async fn movable(&self) -> (Movable, MovedNodes, BTreeMap<String, NodeRead>) {
        let state = self.state.lock().await;
        let (movable, reads) = state.movable_reads();
        (movable, state.others.moved.clone(), reads)
    }

    /// The nodes that serve another site than the file says, as that changes.
    pub(crate) fn moved_now(&self) -> Arc<ArcSwap<MovedNodes>> {
        Arc::clone(&self.moved)
    }

    /// These nodes serve these sites from now on, whatever the file says. What kept requests from them is over.
    ///
    /// # Errors
    /// The cluster is not changed then.
    pub(crate) async fn assign(self: &Arc<Self>, sites: MovedNodes) -> Result<(), ReloadError> {
        let released = sites.keys().cloned().map(Edit::ReleaseNode).collect();
        let edit = move |others: &mut OtherNodes, wanted: &Wanted| {
            others.moved.extend(sites);
            // A node that is back follows the file again.
            others.moved.retain(|node, site| !wanted.serves(node, site));
            Ok(())
        };
        self.change_others_and(edit, released).await
    }

    /// The same, of nodes whose sites this process alone knows: its successor takes over what it knew as the upgrade began.
    ///
    /// # Errors
    /// An upgrade is under way, or the cluster is not changed.
    pub(crate) async fn assign_alone(
        self: &Arc<Self>,
        sites: MovedNodes,
    ) -> Result<(), ReloadError> {
        let change = self.reach.upgrades.change_now();
        let change = change.map_err(ReloadError::Elsewhere)?;
        let done = self.assign(sites).await;
        drop(change);
        done
    }

    /// A node on its way between sites gets no requests from now on; or it gets them again.
    ///
    /// # Errors
    /// The cluster is not changed then.
    pub(crate) async fn withhold(
        self: &Arc<Self>,
        node: String,
        withheld: bool,
    ) -> Result<(), ReloadError> {
        let edit = match withheld {
            true => Edit::WithholdNode(node),
            false => Edit::ReleaseNode(node),
        };
        self.change_others_and(|_, _| Ok(()), vec![edit]).await
    }

    /// Changes what is known besides the file.
    ///
    /// # Errors
    /// The cluster is not changed then.
    async fn change_others<T: Send + 'static>(
        self: &Arc<Self>,
        edit: impl FnOnce(&mut OtherNodes, &Wanted) -> Result<T, ReloadError> + Send + 'static,
    ) -> Result<T, ReloadError> {
        self.change_others_and(edit, Vec::new()).await
    }

    /// The same, and then these edits, as one change.
    ///
    /// # Errors
    /// The cluster is not changed then.
    async fn change_others_and<T: Send + 'static>(
        self: &Arc<Self>,
        edit: impl FnOnce(&mut OtherNodes, &Wanted) -> Result<T, ReloadError> + Send + 'static,
        then: Vec<Edit>,
    ) -> Result<T, ReloadError> {
        let own = Arc::clone(self);
        let work = tokio::spawn(async move {
            let mut state = own.state.lock().await;
            let mut others = state.others.clone();
            let edited = edit(&mut others, &state.wanted)?;
            others.prune(&state.wanted);
            let (before, after) = (state.whole(), state.wanted.with(&others));
            own.change(&before.wanted, &after.wanted, then).await?;
            own.say_left_out(&before, &after);
            own.added.store(Arc::new(others.added.clone()));
            own.moved.store(Arc::new(others.moved.clone()));
            own.weights.store(Arc::new(others.weights.clone()));
            state.others = others;
            Ok(edited)
        });
        work.await.unwrap_or(Err(ReloadError::Broken))
    }

    /// No upgrade begins meanwhile, and one that is under way is waited for: its process has read the file before.
    async fn in_turn(&self, dry_run: bool) -> Result<Reloaded, ReloadError> {
        if dry_run {
            return self.read_and_apply(true).await;
        }
        let change = self.reach.upgrades.change().await;
        let change = change.map_err(ReloadError::Elsewhere)?;
        let done = self.read_and_apply(false).await;
        drop(change);
        done
    }

    async fn read_and_apply(&self, dry_run: bool) -> Result<Reloaded, ReloadError> {
        let path = self.path.clone().ok_or(ReloadError::NoFile)?;
        let mut state = self.state.lock().await;
        let secrets = state.secrets.clone();
        let config = timeout(READ_MAX, self.read(path, secrets)).await;
        let config = config.unwrap_or(Err(ReloadError::Unread))?;
        let mut front_end = config.front_end.ok_or(ReloadError::NoFrontEnd)?;
        let few_files = share_open_files(&mut front_end);
        let mut next = Begun {
            path: self.path.clone(),
            wanted: Wanted::of(&config.file, &front_end),
            file: config.file,
            secrets: config.secrets,
            others: state.others.clone(),
            node_file: NodeFile::default(),
            log: front_end.log.clone(),
        };
        next.others.prune(&next.wanted);
        next.others.moved = next.movable().kept(next.others.moved);
        let wanted = &next.wanted;
        let moved = &mut next.others.moved;
        moved.retain(|node, site| !wanted.serves(node, site));
        let mut reloaded = self.planned(&state, &next, config.notes);
        reloaded.notes.extend(few_files);
        let place = next.file.log.file.place();
        let log = access_log::open(&state.log, &next.log, dry_run).await;
        let log = log.map_err(|why| {
            ReloadError::Config(config.source.error(access_log::problem(place, &why)))
        })?;
        let wanted = front_end.listeners.clone();
        if dry_run {
            let taken = listeners::check(&self.reach.listeners, &wanted, &next.file);
            let error = taken.map(|why| ReloadError::Config(config.source.error(why)));
            return error.map_or(Ok(reloaded), Err);
        }
        let keepalive = front_end.timeouts.tcp_keepalive.value;
        let certificates = &self.reach.certificates;
        let acme = certificates
            .prepared(front_end.acme.take(), self.reach.output)
            .await;
        let listeners = listeners::open(&self.reach.listeners, wanted, keepalive, &next.file).await;
        let listeners = listeners.map_err(|why| ReloadError::Config(config.source.error(why)))?;
        next.ask_new_sources().await;
        let (before, after) = (state.whole(), next.whole());
        let undone = self
            .change(&before.wanted, &after.wanted, Vec::new())
            .await?;
        reloaded.notes.extend(undone);
        access_log::follow(&self.reach.log, log, &next.log);
        if let Some(traces) = &self.reach.traces {
            traces.set(front_end.traces.otlp.take());
        }
        self.serve_by(&front_end);
        let changed = self.reach.listeners.set(listeners);
        certificates.follow(acme);
        listeners::say(&changed, self.reach.output);
        reloaded.notes.extend(listeners::shown_anew(&changed));
        let drain_times = DrainTimes::of(&next.file.timeouts);
        self.drain_times.store(Arc::new(drain_times));
        let (were, are) = (&before.wanted.throttles, &after.wanted.throttles);
        reloaded.notes.extend(self.throttle(were, are));
        reloaded.applied = true;
        self.say_left_out(&before, &after);
        self.sources.send_replace(next.wanted.sources.clone());
        self.weights.store(Arc::new(next.others.weights.clone()));
        *state = next;
        Ok(reloaded)
    }

    /// What a reload is to do, and what is worth knowing besides.
    fn planned(&self, state: &Begun, next: &Begun, notes: Vec<String>) -> Reloaded {
        let changes = Plan::between(&state.file, &next.file).changes;
        let Plan {
            upgrade, restart, ..
        } = Plan::between(&self.started, &next.file);
        let mut notes = notes;
        notes.extend(next.secrets.unread.iter().map(|path| {
            let path = path.display();
            format!("{path} cannot be read any more by this process: what it held before goes on")
        }));
        notes.extend(unseen(state, next));
        Reloaded {
            applied: false,
            changes,
            upgrade,
            restart,
            notes,
        }
    }

    /// One thread reads at a time. One whose disk does not answer stays behind, and the next waits for it.
    async fn read(&self, path: PathBuf, secrets: Secrets) -> Result<Config, ReloadError> {
        let turn = Arc::clone(&self.turn).acquire_owned().await;
        let turn = turn.map_err(|_| ReloadError::Broken)?;
        let read = tokio::task::spawn_blocking(move || {
            let config = Config::load_again(&path, secrets);
            drop(turn);
            config
        });
        let config = read.await.map_err(|_| ReloadError::Broken)?;
        config.map_err(ReloadError::Config)
    }

    /// Makes the one of the other, and then these edits; what was not done as wanted, in sentences.
    async fn change(
        &self,
        before: &Wanted,
        after: &Wanted,
        then: Vec<Edit>,
    ) -> Result<Vec<String>, ReloadError> {
        let mut change = ClusterChange::between(&before.cluster, &after.cluster);
        change.edits.extend(then);
        let reach = &self.reach;
        let topology = reach.shared.topology.load_full();
        // Before its first request comes, a new site's settings are there; those of a site that goes last as long as its requests.
        let kept = |of: &Wanted| of.by_place(&topology, |_, config| Some(config.clone()));
        let (mut settings, were) = (kept(after), kept(before));
        for (config, was) in settings.iter_mut().zip(were) {
            *config = config.take().or(was);
        }
        let settings = settings.into_iter().map(Option::unwrap_or_default);
        reach.sites.set(settings.collect());
        let changed = reach.driver.change(change, after.wanted_reads()).await;
        let changed = changed.inspect_err(|_| {
            let settings = before.by_place(&topology, |_, config| config.clone());
            reach.sites.set(settings);
        })?;
        let specs = after.by_place(&changed.topology, |spec, _| Some(spec.clone()));
        let unserved = specs.into_iter().zip(&changed.topology.sites);
        let specs = unserved.map(|(spec, site)| spec.unwrap_or_else(|| gone(site)));
        reach.specs.store(Arc::new(specs.collect()));
        let interval = after.wanted_reads().interval;
        let followed = reach.resources.follow(&after.resources, interval);
        let unread = followed.err().map(|error| error.to_string());
        let unread = changed.unread.into_iter().chain(unread);
        Ok(unread
            .map(|why| format!("loads are read as before: {why}"))
            .collect())
    }

    /// Requests are served by this from their next one on, and discovery does what it says.
    fn serve_by(&self, front_end: &FrontEnd) {
        let config = request_config(front_end);
        let Reach {
            requests,
            shared,
            culprits,
            ..
        } = &self.reach;
        let held_max = held_max(&config.limits);
        shared.throttles.set_held_max(held_max);
        shared.delay_experiments.set_delayed_max(held_max / 2);
        requests.set(config);
        if let (Some(asks), Some(wanted)) = (culprits, &front_end.culprits) {
            asks.set_actions(wanted.actions);
            asks.set_peers(wanted.peers.clone());
            self.peers.send_replace(wanted.peers.clone());
        }
    }

    /// Throttles as the file wants it, but for what operators have set: theirs is the later word.
    fn throttle(&self, before: &[Throttled], after: &[Throttled]) -> Vec<String> {
        let throttles = &self.reach.shared.throttles;
        let now = clock::now();
        let mut notes = Vec::new();
        let is_ours = |class: &Throttled| {
            let all = throttles.all();
            let set = all.iter().find(|it| it.pattern == class.class);
            set.is_none_or(|it| it.set_by == SetBy::Config)
        };
        for gone in before {
            if after.iter().all(|it| it.class != gone.class) && is_ours(gone) {
                throttles.release(gone.class.name(), now);
            }
        }
        for wanted in after.iter().filter(|it| !before.contains(it)) {
            if !is_ours(wanted) {
                notes.push(format!(
                    "{}: stays throttled as an operator has set it",
                    wanted.class
                ));
                continue;
            }
            let Throttled { class, limits } = wanted.clone();
            if let Err(why) = throttles.set(class, limits, SetBy::Config, None, now) {
                notes.push(format!("{}: not throttled: {why}", wanted.class));
            }
        }
        notes
    }

    fn say_left_out(&self, before: &WholeCluster, after: &WholeCluster) {
        for text in after.newly_left_out(Some(before)) {
            self.reach.output.event("node_left_out", &text);
        }
        self.left_out.store(Arc::new(after.left_out()));
    }

    fn say(&self, done: &Result<Reloaded, ReloadError>) {
        let (stats, output) = (&self.stats, self.reach.output);
        stats.last_done.store(done.is_ok(), Ordering::Relaxed);
        match done {
            Ok(reloaded) => {
                stats.done.fetch_add(1, Ordering::Relaxed);
                for line in &reloaded.changes {
                    output.event("changed", &line.to_string());
                }
                for line in &reloaded.upgrade {
                    let text = format!("{line}: needs an upgrade (`tidegate upgrade`)");
                    output.event("upgrade_needed", &text);
                }
                for line in &reloaded.restart {
                    output.event("restart_needed", &format!("{line}: needs a restart"));
                }
                for note in &reloaded.notes {
                    output.event("note", &format!("note: {note}"));
                }
                let text = format!(
                    "the configuration is in force; changes: {}, and {} that need an upgrade, {} that need a restart",
                    reloaded.changes.len(),
                    reloaded.upgrade.len(),
                    reloaded.restart.len()
                );
                output.event("reloaded", &text);
            }
            Err(error) => {
                stats.failed.fetch_add(1, Ordering::Relaxed);
                let text = format!("the configuration stays as it was: {error}");
                output.event("reload_failed", &text);
            }
        }
    }
}
