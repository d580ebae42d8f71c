//! The parts of a running front-end, each made of those before it.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tidegate_core::director::Director;
use tidegate_core::load::LoadTable;
use tidegate_core::throttle::SetBy;
use tidegate_core::topology::{ClusterChange, Edit};
use tidegate_culprits::names::ClassNames;
use tidegate_proxy::{
    DelayExperiments, LoadReports, Proxy, ProxyConfig, Shared, Stats, Throttling,
};
use tidegate_remote::clock;
use tokio::sync::mpsc;

use super::proxy_failure;
use crate::config::throttle::Throttled;
use crate::culprits::front_end;
use crate::driver::{Ask, Driver, DriverParts};
use crate::failure::Failure;
use crate::learned::Learned;
use crate::output::Output;
use crate::overrides_file::OverridesFile;
use crate::reads::Reads;
use crate::reload::requests::held_max;
use crate::reload::{Reach, Specs};
use crate::resources::Resources;
use crate::upgrade::{Desk, GivenSockets, Role};

/// Keeps requests from these nodes from the first one on.
pub(super) fn withhold(
    director: &mut Director,
    table: &LoadTable,
    nodes: Vec<String>,
) -> Result<(), Failure> {
    let edits = nodes.into_iter().map(Edit::WithholdNode).collect();
    let changed = director.handle_change(&ClusterChange { edits }, table);
    changed.map_err(|error| Failure::Failed(format!("cannot start: {error}")))
}

/// Starts the data plane, with the sockets that are given for its listeners.
pub(super) fn start_proxy(
    config: ProxyConfig,
    shared: &Arc<Shared>,
    mut given: GivenSockets,
    output: Output,
) -> Result<Proxy, Failure> {
    let listeners = config.listeners.iter();
    let adopted = listeners.map(|it| given.take(Role::Listener, it.address));
    let adopted = adopted.collect();
    given.close_rest(output);
    let proxy = Proxy::start_with(config, Arc::clone(shared), adopted);
    proxy.map_err(|error| proxy_failure(&error))
}

/// What discovery of culprits looks at.
pub(super) fn seen(
    proxy: &mut Proxy,
    shared: &Arc<Shared>,
    resources: &Arc<Resources>,
    learned: &mut Learned,
) -> front_end::WatchedParts {
    front_end::WatchedParts {
        handed_over: learned.for_discovery(),
        observed: proxy.observed(),
        shared: Arc::clone(shared),
        resources: Arc::clone(resources),
    }
}

/// What the driver works on.
pub(super) fn driver_parts(
    director: Director,
    shared: &Arc<Shared>,
    reads: &Arc<Reads>,
    probes: mpsc::Sender<Ask>,
    output: Output,
) -> DriverParts {
    DriverParts {
        director,
        shared: Arc::clone(shared),
        reads: Arc::clone(reads),
        probes,
        output,
        clock: clock::now,
    }
}

/// What a change of the cluster reaches.
pub(super) fn reach(
    driver: &Driver,
    proxy: &Proxy,
    shared: &Arc<Shared>,
    specs: &Specs,
    resources: &Arc<Resources>,
    upgrades: &Desk,
    output: Output,
) -> Reach {
    Reach {
        driver: driver.overrides(),
        shared: Arc::clone(shared),
        sites: proxy.site_setter(),
        requests: proxy.request_setter(),
        log: proxy.log_reopener(),
        listeners: proxy.listener_setter(),
        certificates: Arc::default(),
        traces: None,
        specs: Arc::clone(specs),
        resources: Arc::clone(resources),
        upgrades: upgrades.clone(),
        culprits: None,
        output,
    }
}

/// What the data plane shares with all else.
pub(super) fn shared(
    config: &ProxyConfig,
    table: LoadTable,
    director: &Director,
    sites: usize,
) -> Arc<Shared> {
    let nodes = table.nodes();
    let table = Arc::new(table);
    Arc::new(Shared {
        load_reports: Arc::new(LoadReports::new(Arc::clone(&table))),
        table,
        topology: Arc::new(ArcSwap::new(director.topology())),
        room_freed: Arc::default(),
        wake_up: Arc::default(),
        news: Arc::default(),
        throttles: Arc::new(Throttling::new(held_max(&config.limits))),
        delay_experiments: Arc::new(DelayExperiments::new(held_max(&config.limits) / 2)),
        stats: Arc::new(Stats::new(config.workers, sites, nodes)),
    })
}

/// Throttles the classes of the configuration, and then as operators have set before: theirs is the
/// later word.
pub(super) fn apply_overrides(
    throttling: &Throttling,
    configured: Vec<Throttled>,
    kept: &OverridesFile,
    names: &ClassNames,
    output: Output,
) -> Result<(), Failure> {
    let now = clock::now();
    for Throttled { class, limits } in configured {
        let set = throttling.set(class, limits, SetBy::Config, None, now);
        set.map_err(|error| Failure::Usage(format!("[[throttle]]: {error}")))?;
    }
    for text in kept.load(throttling, names, now) {
        output.event("overrides", &text);
    }
    Ok(())
}
