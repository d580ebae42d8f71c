//! Moves of nodes between sites: the tables, what they mean, and what is wrong with them.

use std::path::PathBuf;
use std::time::Duration;

use tidegate_core::moves::choice::MoveChoice;
use tidegate_core::moves::evidence::{FLAP_BUDGET_MAX, History, SENSITIVITY};
use tidegate_core::moves::numbering::{Constitution, MovableNode, NumberingError, SiteRules};
use tidegate_core::moves::words::NODES_MAX;
use tidegate_core::policy::{PolicyKind, Signal};
use tidegate_core::units::format_duration;
use tidegate_discover::ServerUrl;
use toml::de::DeValue;

use super::NodeRead;
use super::file::{ConfigFile, SiteFile};
use super::problem::{Problem, Problems};
use super::setting::{At, Encoded, Raw, Setting, names, quoted, table};
use crate::models::MovedNodes;

/// S.
const SENSITIVITY_MIN: Duration = Duration::from_millis(1);
const SENSITIVITY_MAX: Duration = Duration::from_secs(10);
/// Tasks per CPU.
const HIGH_MIN: f64 = 0.1;
const HIGH_MAX: f64 = 1000.0;
const COUNT_MAX: u32 = NODES_MAX as u32;
/// A node is drained after 1.25 s without a request, so less would take back each move.
const DRAIN_MIN: Duration = Duration::from_secs(2);
const DRAIN_MAX: Duration = Duration::from_secs(3600);
const HOOK_MIN: Duration = Duration::from_secs(1);
const HOOK_MAX: Duration = Duration::from_secs(3600);
const WARM_UP: Duration = Duration::from_secs(2);
const WARM_UP_MAX: Duration = Duration::from_secs(3600);

table! {
    /// Moves nodes between the sites that have `nodes`, as their load wants it ([moves.md](moves.md)). Its nodes must be able to
    /// serve each of those sites, and their load must be read.
    pub(crate) struct ReconfigureFile {
        /// Whether nodes are moved, by load or by `tidegate move`.
        enabled: bool = false;
        /// Say which moves would be made by load, and make none; operators can.
        dry_run: bool = false;
        /// Where the words are by which front-ends agree: `memory` is the process of the only front-end; `region` is memory of an agent,
        /// and of the nodes; `etcd` is an etcd cluster, and memory of the nodes.
        engine: EngineName = EngineName::Memory;
        /// Where the words are kept that are no node's, the same for all front-ends. region: the agent, as `udp://ADDRESS:PORT`, or the path
        /// of its shared memory on this host. etcd: its endpoints, as `http://HOST:2379` or `https://HOST:2379`, with commas
        /// between them.
        home: Option<String> = None;
        /// region: the name in that agent's key, where its address is no node's.
        home_key_name: Option<String> = None;
        /// region: file with that agent's key, or with masters other than those of `[load]`. Relative to this file.
        home_key_file: Option<PathBuf> = None;
        /// etcd: what its keys begin with, one for each cluster of front-ends; not set: `tidegate`.
        home_prefix: Option<String> = None;
        /// etcd: certificates, in PEM, of which one has signed those of https endpoints. Relative to this file.
        home_ca_file: Option<PathBuf> = None;
        /// Of front-ends that differ in sites, nodes, `min`, `max` or `priority`, those with the greater number move nodes, and the others
        /// none: count it up with such a change.
        serial: u32 = 1, in 1..=u32::MAX;
        /// Time between two looks at the load: S of Reconfiguration-2004.
        sensitivity: Duration = SENSITIVITY, in SENSITIVITY_MIN..=SENSITIVITY_MAX;
        /// How long a site must be in need before a node comes: T of Reconfiguration-2004. `auto`: until the wait has cost as much as
        /// a move does.
        history: AutoSetting = AutoSetting(None);
        /// A site is in need from so many runnable tasks and waiting requests per CPU on.
        high: f64 = 2.0;
        /// Which node is moved.
        choice: ChoiceName = ChoiceName::Gain;
        /// How long a node that moves may take to end the requests of its former site; if they take longer, it stays there. `none`: it
        /// serves the other site at once, and ends them beside. Several front-ends, or a `hook`: only nodes move whose agent has
        /// `[agent.moves]`, as it counts the connections of all of them.
        drain: PeriodSetting = PeriodSetting(None);
        /// How long the hook may take that a node's agent runs before the node serves its new site, undoing it included: set it to
        /// twice the greatest `timeout` of `[[agent.moves.site]]`. `none`: nodes serve each site as they are. Needs `drain`, and
        /// engine `region` or `etcd`.
        hook: PeriodSetting = PeriodSetting(None);
        /// Most moves of a site in a minute.
        moves_max: u32 = 10, in 1..=FLAP_BUDGET_MAX as u32;
        /// How long a node that has moved takes to get its full share of its new site's requests, like `slow_start` of a site;
        /// the longer of both counts. `0s`: it has it at once. `auto`: so it is at sites whose policy sees how nodes fare, since it
        /// leaves a cold one alone by itself; 2 s at the others.
        warm_up: AutoSetting = AutoSetting(None);
    }
}

table! {
    /// How many nodes a site keeps and takes when nodes move; not set: its nodes stay, and none comes.
    pub(crate) struct SiteNodesFile {
        /// It gives none away of its last so many.
        min: u32 = 1, in 1..=COUNT_MAX;
        /// It takes no more than so many; not set: as many as there are.
        max: Option<u32> = None, in Some(1)..=Some(COUNT_MAX);
        /// Its rank among sites, 0 the highest: it gives none to a site of a lower one.
        priority: u32 = 0, in 0..=255;
    }
}

names! {
    /// Where the words of moves are.
    pub(crate) enum EngineName as "engine" {
        /// In the process of the only front-end.
        Memory = "memory",
        /// In the region of an agent, and in those of nodes.
        Region = "region",
        /// In etcd, and in the regions of nodes.
        Etcd = "etcd",
    }
}

names! {
    /// Which node is moved.
    pub(crate) enum ChoiceName as "choice" {
        /// The one after which the worse off of both sites is best off, if that is a gain.
        Gain = "gain",
        /// The one with the least load of any other site, as in Reconfiguration-2004.
        LeastLoaded = "least_loaded",
    }
}

/// A time that may be left to the front-end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AutoSetting(Option<Duration>);

impl Setting for AutoSetting {
    fn kind() -> String {
        format!("\"auto\" or {}", Duration::kind())
    }

    fn decode(raw: &Raw<'_>, problems: &mut Problems) -> Option<Self> {
        if matches!(raw.get_ref(), DeValue::String(text) if text == "auto") {
            return Some(Self(None));
        }
        let time = Duration::decode(raw, problems)?;
        Some(Self(Some(time)))
    }

    fn encode(&self) -> Encoded {
        match self.0 {
            None => quoted("auto"),
            Some(time) => time.encode(),
        }
    }
}

/// How long something may take that may also not be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PeriodSetting(Option<Duration>);

impl Setting for PeriodSetting {
    fn kind() -> String {
        format!("\"none\" or {}", Duration::kind())
    }

    fn decode(raw: &Raw<'_>, problems: &mut Problems) -> Option<Self> {
        if matches!(raw.get_ref(), DeValue::String(text) if text == "none") {
            return Some(Self(None));
        }
        let drain = Duration::decode(raw, problems)?;
        Some(Self(Some(drain)))
    }

    fn encode(&self) -> Encoded {
        match self.0 {
            None => quoted("none"),
            Some(drain) => drain.encode(),
        }
    }
}

/// Where the words of moves are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MovesEngine {
    /// In this process.
    Memory,
    /// In regions; a home's is reached so.
    Region(NodeRead),
    /// In etcd, and in the regions of nodes.
    Etcd(EtcdHomeConfig),
}

/// A home in etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EtcdHomeConfig {
    /// Where it answers.
    pub(crate) endpoints: Vec<ServerUrl>,
    /// What its keys begin with.
    pub(crate) prefix: String,
    /// Certificates for https.
    pub(crate) ca_file: Option<PathBuf>,
}

impl MovesEngine {
    /// As the file has it.
    pub(crate) fn label(&self) -> &'static str {
        match self {
            Self::Memory => EngineName::Memory.label(),
            Self::Region(_) => EngineName::Region.label(),
            Self::Etcd(_) => EngineName::Etcd.label(),
        }
    }
}

/// How nodes are moved.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Reconfigure {
    /// Where the words are.
    pub(crate) engine: MovesEngine,
    /// Front-ends that may move nodes.
    pub(crate) front_ends: u32,
    /// Whether load moves none.
    pub(crate) dry_run: bool,
    /// S.
    pub(crate) sensitivity: Duration,
    /// T.
    pub(crate) history: History,
    /// See there.
    pub(crate) high: f64,
    /// See there.
    pub(crate) choice: MoveChoice,
    /// Most moves of a site in a minute.
    pub(crate) moves_max: usize,
    /// How long a node that has moved takes to get its full share, at the site where it takes longest.
    pub(crate) warm_up: Duration,
    /// How long a node may take to end its old site's requests; none: it serves both sites until they have ended.
    pub(crate) drain: Option<Duration>,
    /// How long an agent's hook may take; none: there is none.
    pub(crate) hook: Option<Duration>,
}

impl Reconfigure {
    /// Whether agents must say when a node is drained: requests of this front-end alone do not.
    pub(crate) fn needs_agents(&self) -> bool {
        let is_shared = self.engine != MovesEngine::Memory;
        is_shared && self.drain.is_some() && (self.hook.is_some() || self.front_ends > 1)
    }
}

/// Sites that take part in moves, and nodes that can be moved, as the file has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Movable {
    /// The sites.
    pub(crate) sites: Vec<SiteRules>,
    /// The nodes.
    pub(crate) nodes: Vec<MovableNode>,
    /// Which of two configurations is the later one.
    pub(crate) serial: u32,
}

impl Movable {
    /// Those of a file.
    pub(crate) fn of(file: &ConfigFile) -> Self {
        let rules = |site: &At<SiteFile>| {
            let nodes = site.nodes.value.as_ref()?;
            Some(SiteRules {
                name: site.name.value.clone(),
                floor: narrow(nodes.min.value),
                ceiling: narrow(nodes.max.value.unwrap_or(COUNT_MAX)),
                priority: u8::try_from(nodes.priority.value).unwrap_or(u8::MAX),
            })
        };
        let sites: Vec<_> = file.site.iter().filter_map(rules).collect();
        let takes_part = |site: &String| sites.iter().any(|it| it.name == *site);
        let nodes = file.servers().filter_map(|node| {
            let home = node.site.value.clone().filter(|it| takes_part(it))?;
            let name = node.name.value.clone();
            Some(MovableNode { name, home })
        });
        Self {
            nodes: nodes.collect(),
            sites,
            serial: file.reconfigure.serial.value,
        }
    }

    /// Those of these nodes that can be where they are said to be.
    pub(crate) fn kept(&self, moved: MovedNodes) -> MovedNodes {
        let is_known = |node: &String, site: &String| {
            self.nodes.iter().any(|it| it.name == *node)
                && self.sites.iter().any(|it| it.name == *site)
        };
        let moved = moved.into_iter();
        moved.filter(|(node, site)| is_known(node, site)).collect()
    }

    /// What front-ends have in common. Whether nodes drain, and are set up, is part of it.
    ///
    /// # Errors
    /// Too many of either, or a floor above its ceiling.
    pub(crate) fn constitution(
        &self,
        drain: bool,
        hook: bool,
    ) -> Result<Constitution, NumberingError> {
        let made = Constitution::new(self.sites.clone(), self.nodes.clone(), drain, self.serial)?;
        Ok(match hook {
            true => made.with_hook(),
            false => made,
        })
    }
}

fn narrow(count: u32) -> u16 {
    u16::try_from(count).unwrap_or(u16::MAX)
}

/// How long nodes that have moved to a site take to warm up: none does if none is moved.
pub(super) fn warm_up(table: &ReconfigureFile, policy: PolicyKind) -> Duration {
    // One that is slow keeps its requests, and gets no more.
    let sees_nodes = policy.signals().contains(&Signal::InFlight);
    match (table.enabled.value, table.warm_up.value.0) {
        (false, _) => Duration::ZERO,
        (true, Some(time)) => time,
        (true, None) if sees_nodes => Duration::ZERO,
        (true, None) => WARM_UP,
    }
}

/// How nodes are moved, if they are; all that is wrong is among the problems.
pub(super) fn reconfigure(
    file: &ConfigFile,
    engine: Option<MovesEngine>,
    problems: &mut Problems,
) -> Option<Reconfigure> {
    let table = &file.reconfigure;
    if !table.enabled.value {
        return None;
    }
    if !(HIGH_MIN..=HIGH_MAX).contains(&table.high.value) {
        let message = format!("`high` must be from {HIGH_MIN} to {HIGH_MAX}");
        problems.push(Problem::new(
            table.high.place(),
            message,
            "tasks per CPU of a site",
        ));
    }
    let drain = table.drain.value.0;
    if drain.is_some_and(|it| !(DRAIN_MIN..=DRAIN_MAX).contains(&it)) {
        let (least, most) = (format_duration(DRAIN_MIN), format_duration(DRAIN_MAX));
        let message = format!("`drain` must be \"none\", or from {least} to {most}");
        let label = "a node is drained after 1.25 s without a request";
        problems.push(Problem::new(table.drain.place(), message, label));
    }
    check_hook(table, problems);
    if table.warm_up.value.0.is_some_and(|it| it > WARM_UP_MAX) {
        let most = format_duration(WARM_UP_MAX);
        let message = format!("`warm_up` must be \"auto\", or {most} at most");
        let label = "until then a node has not its full share";
        problems.push(Problem::new(table.warm_up.place(), message, label));
    }
    let taking_part = file.site.value.iter().filter(|it| it.nodes.value.is_some());
    let warm_ups = taking_part.map(|it| warm_up(table, it.policy.value.0.kind));
    let warm_up = warm_ups.max().unwrap_or_default();
    let front_ends = &file.cluster.front_ends;
    if front_ends.value > 1 && table.engine.value == EngineName::Memory {
        let message = "front-ends agree on moves by words that all of them reach";
        let problem = Problem::new(table.enabled.place(), message, "each would move by itself");
        let problem = problem.help("set `engine = \"region\"` or \"etcd\", and a `home`");
        problems.push(problem.context(front_ends.place(), "there are more"));
    }
    let movable = Movable::of(file);
    if movable.sites.len() < 2 {
        let message = "nodes move between two sites at least";
        let label = format!("{} sites have `nodes`", movable.sites.len());
        let problem = Problem::new(table.enabled.place(), message, label);
        problems.push(problem.help("give `nodes = { min = 1 }` to each site that takes part"));
    }
    if let Err(error) = movable.constitution(drain.is_some(), false) {
        problems.push(Problem::new(
            table.enabled.place(),
            error.to_string(),
            "no node can be moved so",
        ));
    }
    Some(Reconfigure {
        engine: engine?,
        front_ends: front_ends.value,
        dry_run: table.dry_run.value,
        sensitivity: table.sensitivity.value,
        history: table.history.value.0.map_or(History::Auto, History::Fixed),
        high: table.high.value,
        choice: match table.choice.value {
            ChoiceName::Gain => MoveChoice::BestOff,
            ChoiceName::LeastLoaded => MoveChoice::LeastLoaded,
        },
        moves_max: table.moves_max.value as usize,
        warm_up,
        drain: table.drain.value.0,
        hook: table.hook.value.0,
    })
}

fn check_hook(table: &ReconfigureFile, problems: &mut Problems) {
    let Some(hook) = table.hook.value.0 else {
        return;
    };
    let at = table.hook.place();
    if !(HOOK_MIN..=HOOK_MAX).contains(&hook) {
        let (least, most) = (format_duration(HOOK_MIN), format_duration(HOOK_MAX));
        let message = format!("`hook` must be \"none\", or from {least} to {most}");
        problems.push(Problem::new(at.clone(), message, "out of range"));
    }
    if table.drain.value.0.is_none() {
        let message = "a node is set up for another site once it has ended the requests of its own";
        let problem = Problem::new(at.clone(), message, "needs `drain`");
        problems.push(problem.help("set `drain = \"5s\"`"));
    }
    if table.engine.value == EngineName::Memory {
        let message = "agents see the words of `engine = \"region\"` and \"etcd\" only";
        let problem = Problem::new(at, message, "the engine is `memory`");
        problems
            .push(problem.help("set `engine = \"region\"` and a `home`, also for one front-end"));
    }
}
