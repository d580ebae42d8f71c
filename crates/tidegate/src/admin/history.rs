//! `GET /api/history`: what happened at sites and nodes, second by second, and how it is taken down.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::StatusCode;
use tidegate_core::topology::{AdminState, Health, Node, NodeId, SiteId, Topology};
use tidegate_culprits::live::front_end::KeptFile as _;
use tidegate_proxy::{SiteSnapshot, Snapshot};
use tidegate_remote::clock;

use super::api::{self, Answer};
use super::certificates;
use super::headline;
use super::plane::{NodeCounters, Plane};
use super::query::Query;
use super::status::SERVER_ERRORS;
use crate::config::state_folder::HISTORY;
use crate::history::spells::{Spells, Wrong};
use crate::history::{Counted, History, NodeSample, Place, SiteSample, Step};
use crate::models::Level;
use crate::state::{StateFile, StateFolder};

/// Steps that are shown unless more or fewer are asked for.
const LAST: u64 = 90;
/// Certificates are looked at in so many seconds once.
const CERTIFICATES_EVERY: u64 = 10;
/// Between two writes of the file.
const KEPT_EVERY: Duration = Duration::from_secs(300);
/// How long the last write may take.
const LAST_WRITE: Duration = Duration::from_secs(1);
/// Between two tries to have the folder.
const ASKED_EVERY: Duration = Duration::from_secs(5);
/// Largest file, bytes.
const HISTORY_BYTES_MAX: usize = 32 << 20;

/// What happened, and the counters at the last look.
#[derive(Debug)]
pub(super) struct Recorder {
    history: History,
    spells: Spells,
    /// What was said of certificates that end.
    ending: BTreeSet<(Vec<String>, Level)>,
    before: Arc<Snapshot>,
    nodes_before: NodeCounters,
}

impl Recorder {
    /// One that begins with these counters.
    pub(super) fn new(before: Arc<Snapshot>) -> Self {
        Self {
            history: History::default(),
            spells: Spells::default(),
            ending: BTreeSet::new(),
            before,
            nodes_before: Arc::default(),
        }
    }
}

/// Where the history is kept over a restart: read once the folder is this process's, written each [`KEPT_EVERY`] and at the end.
#[derive(Debug)]
struct HistoryFile {
    file: StateFile,
    is_read: bool,
    has_ended: bool,
}

impl HistoryFile {
    /// Reads what another process wrote, and writes what is known by now.
    fn keep(&mut self, plane: &Plane, last: bool) {
        if !self.has_ended && self.file.take().is_ok() {
            self.read_and_write(plane);
        }
        if last {
            self.has_ended = true;
            self.file.give_up();
        }
    }

    fn read_and_write(&mut self, plane: &Plane) {
        let path = self.file.path().display().to_string();
        let say = |why: &str| {
            let text = format!("{path}: {why}");
            plane.output.event("history", &text);
        };
        if !std::mem::replace(&mut self.is_read, true) {
            let read = self.file.read(HISTORY_BYTES_MAX);
            let recalled = read.and_then(|read| {
                let Some(text) = read else { return Ok(()) };
                let now = clock::unix().as_secs();
                plane.with_history(|history| history.recall(&text, now))
            });
            if let Err(why) = recalled {
                say(&format!(
                    "the history before this process is not shown: {why}"
                ));
            }
        }
        let written = plane.with_history(|history| history.written());
        if let Err(why) = written.and_then(|text| self.file.write(&text)) {
            say(&why);
        }
    }
}

/// Keeps the history in its file, if there is a folder for it.
#[derive(Clone, Debug)]
pub(crate) struct HistoryKeeper(Option<Arc<Mutex<HistoryFile>>>);

impl HistoryKeeper {
    /// In this folder. What is wrong with that is said where nodes' costs are kept.
    pub(crate) fn new(folder: Option<&StateFolder>) -> Self {
        let file = folder.map(|folder| HistoryFile {
            file: StateFile::new(folder, HISTORY),
            is_read: false,
            has_ended: false,
        });
        Self(file.map(Mutex::new).map(Arc::new))
    }

    /// Reads and writes, until the task is dropped.
    pub(crate) async fn run(self, plane: Arc<Plane>) {
        let Some(file) = &self.0 else { return };
        loop {
            keep(&plane, file, false).await;
            let is_read = lock(file).is_read;
            // A timer, not a wait for anything but, at first, for the process before this one to give up the folder.
            tokio::time::sleep(if is_read { KEPT_EVERY } else { ASKED_EVERY }).await;
        }
    }

    /// Writes for the last time, and gives the folder up. A disk that does not answer holds up nothing for long.
    pub(crate) async fn end(&self, plane: &Arc<Plane>) {
        let Some(file) = &self.0 else { return };
        let last = keep(plane, file, true);
        if tokio::time::timeout(LAST_WRITE, last).await.is_err() {
            let text = "the last write of the history has not ended and is not waited for";
            plane.output.event("history", text);
        }
    }
}

async fn keep(plane: &Arc<Plane>, file: &Arc<Mutex<HistoryFile>>, last: bool) {
    let (plane, file) = (Arc::clone(plane), Arc::clone(file));
    let kept = tokio::task::spawn_blocking(move || lock(&file).keep(&plane, last));
    // What made it panic stands on standard error.
    kept.await.unwrap_or_default();
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Until the wall clock's next second.
pub(super) fn until_next_second() -> Duration {
    let part = Duration::from_nanos(clock::unix().subsec_nanos().into());
    Duration::from_secs(1) - part
}

impl Plane {
    /// Takes down what happened since the last time, as that of the second of the wall clock that has just ended.
    pub(super) fn record_second(&self) {
        let second = clock::unix().as_secs().saturating_sub(1);
        self.record(second);
    }

    pub(super) fn record(&self, second: u64) {
        if second.is_multiple_of(CERTIFICATES_EVERY) {
            self.look_at_certificates();
        }
        let now = Arc::new(self.shared.stats.snapshot());
        let nodes_now = self.node_counters();
        let topology = self.shared.topology.load();
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let recorder = &mut window.recorder;
        let before = std::mem::replace(&mut recorder.before, Arc::clone(&now));
        let nodes_before = std::mem::replace(&mut recorder.nodes_before, nodes_now);
        let none = SiteSnapshot::default();
        let sites: Vec<_> = topology
            .served()
            .filter_map(|(id, site)| {
                let counted = Counted {
                    then: before.sites.get(id.index()).unwrap_or(&none),
                    now: now.sites.get(id.index())?,
                    answered_errors: answered_errors(&topology, id, &before, &now),
                };
                Some((site.name.as_str(), SiteSample::between(counted)))
            })
            .collect();
        for (site, sample) in &sites {
            (recorder.spells).take(second, site, sample, |event, about, text| {
                self.output.event_about(event, about, text);
            });
        }
        let is_there = |name: &str| sites.iter().any(|(site, _)| *site == name);
        recorder.spells.retain(is_there);
        let members = topology.members().map(|(id, node)| {
            let site = topology.site(node.site).name.as_str();
            (
                node.name.as_str(),
                site,
                self.node_sample(id, node, &nodes_before),
            )
        });
        recorder.history.record(second, sites, members);
    }

    /// Says once of each certificate of the file that it is about to end, and once that it has.
    fn look_at_certificates(&self) {
        let given = certificates::given(self).into_iter();
        let wrong = given.filter_map(|it| Some((headline::given_certificate(&it)?, it.names)));
        let wrong: Vec<_> = wrong.collect();
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let now: BTreeSet<_> = (wrong.iter())
            .map(|(it, names)| (names.clone(), it.level))
            .collect();
        let before = std::mem::replace(&mut window.recorder.ending, now);
        drop(window);
        for (problem, names) in wrong {
            if !before.contains(&(names, problem.level)) {
                self.output.event("certificate_ending", &problem.text);
            }
        }
    }

    fn with_history<T>(&self, work: impl FnOnce(&mut History) -> T) -> T {
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        work(&mut window.recorder.history)
    }

    /// How long requests of a site have been going wrong so; none if they do not.
    pub(super) fn spell_seconds(&self, site: &str, wrong: Wrong) -> Option<f64> {
        let window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let since = window.recorder.spells.since(site, wrong)?;
        Some(clock::unix().as_secs().saturating_sub(since) as f64)
    }

    fn node_sample(&self, id: NodeId, node: &Node, before: &NodeCounters) -> NodeSample {
        let last = self.shared.table.last(id);
        let is_fresh = (self.clock)().since(last.observed_at) <= last.freshness();
        let load = Some(&last).filter(|_| is_fresh);
        NodeSample::new(load, self.cpu_since(before, id), place(node))
    }
}

/// Whether a node gets requests; what an operator or its agent wants comes before experience.
fn place(node: &Node) -> Place {
    if [node.admin, node.agent.state] != [AdminState::Ready; 2] {
        Place::Drained
    } else if node.withheld {
        Place::Moving
    } else if node.health == Health::Ejected {
        Place::Out
    } else {
        Place::In
    }
}

/// Answers of a site's nodes with a server error.
fn answered_errors(topology: &Topology, site: SiteId, then: &Snapshot, now: &Snapshot) -> u64 {
    let of_node = |node: &NodeId| {
        let errors = |all: &Snapshot| {
            let node = all.nodes.get(node.index());
            node.map_or(0, |it| it.status_classes[SERVER_ERRORS])
        };
        errors(now).saturating_sub(errors(then))
    };
    topology.site(site).nodes.iter().map(of_node).sum()
}

/// The answer to `?step=10&last=90&site=shop`.
pub(super) fn answer(plane: &Plane, query: Option<&str>) -> Answer {
    let wanted = match Wanted::parsed(query) {
        Ok(wanted) => wanted,
        Err(why) => return api::error(StatusCode::BAD_REQUEST, &why),
    };
    let window = plane.window.lock().unwrap_or_else(PoisonError::into_inner);
    let history = &window.recorder.history;
    if let Some(site) = &wanted.site
        && !history.knows_site(site)
        && plane.shared.topology.load().site_named(site).is_none()
    {
        return api::unknown("site", site);
    }
    let shown = history.show(wanted.step, wanted.last, wanted.site.as_deref());
    drop(window);
    api::json(StatusCode::OK, &shown)
}

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    step: Step,
    last: usize,
    site: Option<String>,
}

impl Wanted {
    fn parsed(query: Option<&str>) -> Result<Self, String> {
        let query = Query::parsed(query, &["step", "last", "site"])?;
        let step = query.number("step", 10, 1..=10)?;
        let step = Step::of(step).ok_or("`step` is 1 or 10 seconds")?;
        let last = query.number("last", LAST, 1..=step.most() as u64)?;
        Ok(Self {
            step,
            last: last as usize,
            site: query.text("site"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn a_question_is_understood_or_its_fault_named() {
        let parsed = |query| Wanted::parsed(Some(query));
        let wanted = |step, last, site: Option<&str>| Wanted {
            step,
            last,
            site: site.map(str::to_owned),
        };
        assert_eq!(parsed(""), Ok(wanted(Step::TenSeconds, 90, None)));
        let all = "step=1&last=900&site=a%20b";
        assert_eq!(parsed(all), Ok(wanted(Step::Second, 900, Some("a b"))));
        for (query, why) in [
            ("step=5", "`step` is 1 or 10 seconds"),
            ("step=x", "`step` is a whole number, 1 to 10"),
            ("last=0", "`last` is a whole number, 1 to 2160"),
            ("step=1&last=901", "`last` is a whole number, 1 to 900"),
            (
                "from=1",
                "only `step`, `last`, `site` may be asked for here",
            ),
        ] {
            assert_eq!(parsed(query), Err(why.to_owned()), "{query}");
        }
    }

    #[test]
    fn a_second_is_taken_down_with_loads_and_states() {
        let (_driver, plane) = testing::plane();
        plane.record(1000);
        plane.record(1001);
        let window = plane.window.lock().unwrap();
        let shown = window.recorder.history.show(Step::Second, 2, None);
        let sites: Vec<_> = shown.sites.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(sites, ["blog", "shop"]);
        assert_eq!(shown.sites[1].requests_per_second, [Some(0.0); 2]);
        // Three tasks share n1's two CPUs, of which a quarter is idle; n2's load is old, n3's was never read.
        let loads: Vec<_> = shown
            .nodes
            .iter()
            .map(|it| (&*it.site, &*it.load))
            .collect();
        assert_eq!(loads, [("shop", "77"), ("shop", ".."), ("blog", "..")]);
    }
}
