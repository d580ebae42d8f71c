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

mod plan;
pub(crate) mod watch;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use tidegate_core::throttle::SetBy;
use tidegate_core::topology::{
    ClusterChange, ClusterSpec, HealthConfig, NodeSpec, Site, SiteId, SiteSpec, Topology,
};
use tidegate_proxy::{Shared, SiteConfig, SiteSetter};
use tidegate_remote::clock;
use tokio::sync::Mutex;

use crate::config::file::{ConfigFile, ReloadName};
use crate::config::throttle::Throttled;
use crate::config::{Config, ConfigError, FrontEnd, NodeRead, Resource, Secrets, read_interval};
use crate::driver::{ChangeFailure, Overrides};
use crate::models::Reloaded;
use crate::output::Output;
use crate::reads::WantedReads;
use crate::resources::Resources;
use plan::Plan;

/// Sites as the configuration has them, by [`SiteId`]; the topology does not keep their hosts.
pub(crate) type Specs = Arc<ArcSwap<Vec<SiteSpec>>>;

/// What a configuration wants of a cluster.
#[derive(Clone, Debug)]
struct Wanted {
    cluster: ClusterSpec,
    /// By site, in the order of the cluster's.
    sites: Vec<SiteConfig>,
    reads: BTreeMap<String, NodeRead>,
    /// Time between two reads; none: what is affordable.
    interval: Option<Duration>,
    throttles: Vec<Throttled>,
    /// Nodes that serve nothing and are read.
    resources: Vec<Resource>,
}

/// A node that another source than the file knows of.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Announced {
    /// Its name.
    pub(crate) name: String,
    /// Where it serves HTTP.
    pub(crate) address: SocketAddr,
    /// Its site's name.
    pub(crate) site: String,
    /// Its share relative to others.
    pub(crate) weight: f32,
    /// How its load is read.
    pub(crate) read: NodeRead,
}

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
    /// It broke off; the log says why.
    #[error("the reload broke off: see the log")]
    Broken,
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

/// What a front-end began with.
#[derive(Debug)]
pub(crate) struct Begun {
    /// Of the file, if it has one.
    path: Option<PathBuf>,
    file: ConfigFile,
    secrets: Secrets,
    wanted: Wanted,
}

impl Begun {
    /// Of the configuration that it begins with.
    pub(crate) fn of(path: Option<&Path>, config: &Config, front_end: &FrontEnd) -> Self {
        Self {
            path: path.map(Path::to_owned),
            wanted: Wanted::of(&config.file, front_end),
            file: config.file.clone(),
            secrets: config.secrets.clone(),
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
    /// Sites as views show them.
    pub(crate) specs: Specs,
    /// Nodes that are resources alone.
    pub(crate) resources: Arc<Resources>,
    /// Where it is said what was done.
    pub(crate) output: Output,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct LiveCluster {
    path: Option<PathBuf>,
    is_watched: bool,
    reach: Reach,
    stats: ReloadStats,
    state: Mutex<InForce>,
}

/// What is in force.
#[derive(Debug)]
struct InForce {
    begun: Begun,
    /// By source.
    announced: BTreeMap<String, Vec<Announced>>,
}

impl LiveCluster {
    /// A cluster that is as it began.
    pub(crate) fn new(begun: Begun, reach: Reach) -> Self {
        Self {
            path: begun.path.clone(),
            is_watched: begun.file.process.reload.value == ReloadName::Watch,
            reach,
            stats: ReloadStats::default(),
            state: Mutex::new(InForce {
                begun,
                announced: BTreeMap::new(),
            }),
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
            let done = own.read_and_apply(dry_run).await;
            if !dry_run {
                own.say(&done);
            }
            done
        });
        work.await.unwrap_or(Err(ReloadError::Broken))
    }

    /// These are the nodes that a source knows of from now on.
    ///
    /// # Errors
    /// The cluster is not changed then.
    #[expect(dead_code, reason = "sources of nodes come next")]
    pub(crate) async fn announce(
        self: &Arc<Self>,
        source: String,
        nodes: Vec<Announced>,
    ) -> Result<(), ReloadError> {
        let own = Arc::clone(self);
        let work = tokio::spawn(async move {
            let mut state = own.state.lock().await;
            let mut announced = state.announced.clone();
            announced.insert(source, nodes);
            let before = state.begun.wanted.with(&state.announced);
            let after = state.begun.wanted.with(&announced);
            own.change(&before, &after).await?;
            state.announced = announced;
            Ok(())
        });
        work.await.unwrap_or(Err(ReloadError::Broken))
    }

    async fn read_and_apply(&self, dry_run: bool) -> Result<Reloaded, ReloadError> {
        let path = self.path.clone().ok_or(ReloadError::NoFile)?;
        let mut state = self.state.lock().await;
        let secrets = state.begun.secrets.clone();
        // The disk may not answer.
        let read = tokio::task::spawn_blocking(move || Config::load_again(&path, secrets));
        let config = read.await.map_err(|_| ReloadError::Broken)?;
        let config = config.map_err(ReloadError::Config)?;
        let front_end = config.front_end.ok_or(ReloadError::NoFrontEnd)?;
        let next = Begun {
            path: self.path.clone(),
            wanted: Wanted::of(&config.file, &front_end),
            file: config.file,
            secrets: config.secrets,
        };
        let Plan { changes, restart } = Plan::between(&state.begun.file, &next.file);
        let mut notes = config.notes;
        notes.extend(next.secrets.unread.iter().map(|path| {
            let path = path.display();
            format!("{path} cannot be read any more by this process: what it held before goes on")
        }));
        notes.extend(unseen(&state.begun, &next));
        let mut reloaded = Reloaded {
            applied: false,
            changes,
            restart,
            notes,
        };
        if dry_run {
            return Ok(reloaded);
        }
        let before = state.begun.wanted.with(&state.announced);
        let after = next.wanted.with(&state.announced);
        reloaded.notes.extend(self.change(&before, &after).await?);
        reloaded
            .notes
            .extend(self.throttle(&before.throttles, &after.throttles));
        reloaded.applied = true;
        state.begun = next;
        Ok(reloaded)
    }

    /// Makes the one of the other; what was not done as wanted, in sentences.
    async fn change(&self, before: &Wanted, after: &Wanted) -> Result<Vec<String>, ReloadError> {
        let change = ClusterChange::between(&before.cluster, &after.cluster);
        let reach = &self.reach;
        let topology = reach.shared.topology.load_full();
        // Before its first request comes, a new site's settings are there.
        reach
            .sites
            .set(after.by_place(&topology, |_, config| config.clone()));
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

    fn say(&self, done: &Result<Reloaded, ReloadError>) {
        let (stats, output) = (&self.stats, self.reach.output);
        stats.last_done.store(done.is_ok(), Ordering::Relaxed);
        match done {
            Ok(reloaded) => {
                stats.done.fetch_add(1, Ordering::Relaxed);
                for line in &reloaded.changes {
                    output.event("changed", &line.to_string());
                }
                for line in &reloaded.restart {
                    output.event("restart_needed", &format!("{line}: needs a restart"));
                }
                for note in &reloaded.notes {
                    output.event("note", &format!("note: {note}"));
                }
                let text = format!(
                    "the configuration is in force; changes: {}, and {} that need a restart",
                    reloaded.changes.len(),
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

impl Wanted {
    fn of(file: &ConfigFile, front_end: &FrontEnd) -> Self {
        let nodes = front_end.cluster.nodes.iter();
        let reads = nodes
            .map(|node| node.name.clone())
            .zip(front_end.reads.clone());
        Self {
            reads: reads.collect(),
            cluster: front_end.cluster.clone(),
            sites: front_end.sites.clone(),
            interval: file.load.interval.value,
            throttles: front_end.throttles.clone(),
            resources: front_end.resources.clone(),
        }
    }

    /// The same with the nodes of other sources: those whose site there is and whose name no other has.
    fn with(&self, announced: &BTreeMap<String, Vec<Announced>>) -> Self {
        let mut all = self.clone();
        for node in announced.values().flatten() {
            let mut sites = self.cluster.sites.iter();
            let Some(site) = sites.position(|site| site.name == node.site) else {
                continue;
            };
            if all.reads.contains_key(&node.name) {
                continue;
            }
            all.reads.insert(node.name.clone(), node.read.clone());
            all.cluster.nodes.push(NodeSpec {
                name: node.name.clone(),
                address: node.address,
                site: SiteId(site as u32),
                weight: node.weight,
            });
        }
        all
    }

    fn wanted_reads(&self) -> WantedReads {
        let reads: Vec<_> = self.reads.values().cloned().collect();
        WantedReads {
            nodes: self.reads.clone(),
            interval: read_interval(&reads, self.interval),
        }
    }

    /// What there is of each site, in the places that a topology gives them; new ones come behind those that it has.
    fn by_place<T: Default>(
        &self,
        topology: &Topology,
        of: impl Fn(&SiteSpec, &SiteConfig) -> T,
    ) -> Vec<T> {
        let mut all: Vec<T> = topology.sites.iter().map(|_| T::default()).collect();
        let usual = SiteConfig::default();
        for (index, spec) in self.cluster.sites.iter().enumerate() {
            let value = of(spec, self.sites.get(index).unwrap_or(&usual));
            match topology.sites.iter().position(|it| it.name == spec.name) {
                Some(place) => all[place] = value,
                None => all.push(value),
            }
        }
        all
    }
}

/// A site that is served no more.
fn gone(site: &Site) -> SiteSpec {
    SiteSpec {
        name: site.name.clone(),
        hosts: Vec::new(),
        paths: Vec::new(),
        policy: site.policy,
        admission: site.admission,
        health: HealthConfig::clone(&site.health),
    }
}

/// What changes without a change in the file: files that it names have other contents.
fn unseen(before: &Begun, after: &Begun) -> Vec<String> {
    let reads = after.wanted.reads.iter();
    let keys = reads.filter(|(name, read)| {
        let was = before.wanted.reads.get(*name);
        was.is_some_and(|was| other_keys(was, read))
    });
    let keys = keys.count();
    let keys = (keys > 0).then(|| format!("{keys} nodes have other keys"));
    let mut sites = after.wanted.cluster.sites.iter().zip(&after.wanted.sites);
    let bodies = sites.by_ref().filter(|(site, config)| {
        let mut was = before.wanted.cluster.sites.iter().zip(&before.wanted.sites);
        let was = was.find(|(it, _)| it.name == site.name);
        was.is_some_and(|(_, was)| was.answers.body != config.answers.body)
    });
    let bodies =
        bodies.map(|(site, _)| format!("site {} has another body for refusals", site.name));
    keys.into_iter().chain(bodies).collect()
}

fn other_keys(before: &NodeRead, after: &NodeRead) -> bool {
    match (before, after) {
        (NodeRead::Udp { keys: before, .. }, NodeRead::Udp { keys: after, .. }) => before != after,
        _ => false,
    }
}
