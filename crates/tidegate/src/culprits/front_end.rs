//! What discovery is given of this front-end.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::culprits::RequestEvent;
use tidegate_core::culprits::delay_experiment::Assignment;
use tidegate_core::load::{Counters, NodeLoad};
use tidegate_core::throttle::{ClassPattern, SetBy, SetError, Throttle, ThrottleLimits};
use tidegate_core::time::Timestamp;
use tidegate_culprits::live::front_end::{
    Assignments, Clocks, DelayExperiments, EventLog, KeptFile, RequestEvents, ResourceNode,
    ResourceNodes, ResourceSet, Throttles, UnreadNode,
};
use tidegate_culprits::live::{HandedOver, LEARNED_FILE, Settings, Watch, WatchParts};
use tidegate_proxy::{Observed, Shared};
use tidegate_remote::clock;

use crate::config::Culprits;
use crate::failure::Failure;
use crate::models::ReadStatus;
use crate::output::Output;
use crate::resources::Resources;
use crate::state::{StateFile, StateFolder};

/// What is watched.
pub(crate) struct WatchedParts {
    /// What workers say of requests.
    pub(crate) observed: Observed,
    /// Topology, loads, throttles.
    pub(crate) shared: Arc<Shared>,
    /// Nodes that are resources alone.
    pub(crate) resources: Arc<Resources>,
    /// What a former process knew.
    pub(crate) handed_over: HandedOver,
}

/// Begins to watch for culprits. What is learned is kept in the folder, if there is one.
///
/// # Errors
/// There is no thread for it.
pub(crate) fn watch(
    config: Culprits,
    seen: WatchedParts,
    folder: Option<&StateFolder>,
    output: Output,
) -> Result<Watch, Failure> {
    let WatchedParts {
        observed,
        shared,
        resources,
        handed_over,
    } = seen;
    let kept = |folder| -> Box<dyn KeptFile> { Box::new(StateFile::new(folder, LEARNED_FILE)) };
    let watch = Watch::spawn(WatchParts {
        events: Box::new(Events(observed)),
        topology: Arc::clone(&shared.topology),
        table: Arc::clone(&shared.table),
        resources,
        throttles: Box::new(Gates(Arc::clone(&shared))),
        delay_experiments: Box::new(Gates(Arc::clone(&shared))),
        settings: Settings {
            actions: config.actions,
            patterns: config.patterns,
            peers: config.peers,
        },
        kept: folder.map(kept),
        handed_over,
        log: Arc::new(output),
        clocks: Clocks {
            now: clock::now,
            unix: clock::unix,
        },
    });
    watch.map_err(|error| Failure::Failed(error.to_string()))
}

/// What the proxy's workers say of requests.
#[derive(Debug)]
struct Events(Observed);

impl RequestEvents for Events {
    fn drain(&mut self, take: &mut dyn FnMut(RequestEvent)) -> bool {
        self.0.drain(take)
    }
}

/// The proxy's throttles and delay experiments.
#[derive(Debug)]
struct Gates(Arc<Shared>);

impl Throttles for Gates {
    fn all(&self) -> Vec<Throttle> {
        self.0.throttles.all()
    }

    fn set(
        &self,
        pattern: ClassPattern,
        limits: ThrottleLimits,
        set_by: SetBy,
        now: Timestamp,
    ) -> Result<(), SetError> {
        self.0.throttles.set(pattern, limits, set_by, None, now)
    }

    fn release(&self, name: &str, now: Timestamp) -> Option<Throttle> {
        self.0.throttles.release(name, now)
    }
}

impl DelayExperiments for Gates {
    fn begin(
        &self,
        pattern: ClassPattern,
        delay: Duration,
        until: Timestamp,
    ) -> Result<Box<dyn Assignments>, String> {
        let begun = self.0.delay_experiments.begin(pattern, delay, until);
        let assignments = begun.map_err(|error| error.to_string())?;
        Ok(Box::new(Assigned(assignments)))
    }
}

/// A delay experiment of the proxy's.
#[derive(Debug)]
struct Assigned(tidegate_proxy::Assignments);

impl Assignments for Assigned {
    fn take(&mut self) -> Vec<Assignment> {
        self.0.take().collect()
    }
}

impl EventLog for Output {
    fn event(&self, event: &str, text: &str) {
        (*self).event(event, text);
    }
}

impl ResourceNodes for Resources {
    fn nodes(&self) -> Arc<ResourceSet> {
        self.set()
    }

    fn counters(&self, place: u32) -> Option<Counters> {
        self.counters(place)
    }

    fn unread(&self) -> Vec<UnreadNode> {
        self.all().into_iter().filter_map(unread).collect()
    }
}

/// The node, if its load is not read.
fn unread((node, _, reads): (ResourceNode, NodeLoad, Option<ReadStatus>)) -> Option<UnreadNode> {
    let why = match reads {
        Some(ReadStatus {
            last_error: Some(why),
            ..
        }) => why,
        Some(ReadStatus { reads: 0, .. }) | None => "no read was answered yet".into(),
        Some(_) => return None,
    };
    Some(UnreadNode {
        name: node.name,
        address: node.address,
        why,
    })
}
