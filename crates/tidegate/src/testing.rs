//! What the tests of several modules need: a small cluster without sockets.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use tidegate_core::admission::AdmissionConfig;
use tidegate_core::culprits::Confidence;
use tidegate_core::director::Director;
use tidegate_core::load::{LoadTable, NodeLoad, Rung};
use tidegate_core::policy::PolicyConfig;
use tidegate_core::time::Timestamp;
use tidegate_core::topology::{Capacity, ClusterSpec, Group, NodeId, NodeSpec, SiteId, SiteSpec};
use tidegate_culprits::names::ClassNames;
use tidegate_proxy::{DelayExperiments, LoadReports, Shared, Stats, Throttling};
use tidegate_remote::udp::key_file::Master;

use crate::admin::plane::{Plane, Window};
use crate::driver::{Driver, DriverParts};
use crate::events::EventLog;
use crate::key_file;
use crate::otlp::Exporter;
use crate::output::Output;
use crate::overrides_file::OverridesFile;
use tidegate_culprits::live::{Asks, Finding, Findings};

/// Now, for all that is shown: ages in golden files do not change.
pub(crate) fn now() -> Timestamp {
    Timestamp::from_millis(100_000)
}

/// Where the key files are that examples and tests name. Tests that run side by side share them, so they
/// are written once.
pub(crate) fn key_folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let name = format!("tidegate-keys-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let master = Master::random().unwrap();
        let files = [
            ("master.key", master.to_line()),
            ("n1.key", master.derive("n1").to_line()),
            ("n2.key", master.derive("n2").to_line()),
        ];
        for (name, text) in files {
            // An earlier process may have had our number.
            std::fs::remove_file(folder.join(name)).ok();
            key_file::create(&folder.join(name), &text).unwrap();
        }
        folder
    })
}

/// Two sites: `shop` with n1 and n2, `blog` with n3.
pub(crate) fn cluster() -> ClusterSpec {
    let site = |name: &str, host: &str| SiteSpec {
        name: name.into(),
        hosts: vec![host.into()],
        paths: Vec::new(),
        policy: PolicyConfig::default(),
        admission: AdmissionConfig::default(),
        health: Default::default(),
    };
    let node = |number: u8, site| NodeSpec {
        name: format!("n{number}"),
        address: ([10, 0, 0, number], 80).into(),
        site: SiteId(site),
        weight: 1.0,
        capacity: Capacity::default(),
    };
    ClusterSpec {
        sites: vec![site("shop", "shop.example"), site("blog", "*")],
        nodes: vec![node(1, 0), node(2, 0), node(3, 1)],
        groups: vec![Group {
            name: "database".into(),
            limit: 40,
            members: vec![(SiteId(0), 3.0), (SiteId(1), 1.0)],
            nodes: (0..3).map(NodeId).collect(),
        }],
        front_ends: 1,
    }
}

/// A running driver of the test cluster.
pub(crate) fn driver() -> (Driver, Arc<Shared>) {
    let director = Director::new(cluster(), 1);
    let table = Arc::new(LoadTable::new(3, 2).grouped(&cluster().groups));
    let shared = Arc::new(Shared {
        load_reports: Arc::new(LoadReports::new(Arc::clone(&table))),
        table,
        topology: Arc::new(ArcSwap::new(director.topology())),
        room_freed: Arc::default(),
        wake_up: Arc::default(),
        news: Arc::default(),
        throttles: Arc::new(Throttling::new(100)),
        delay_experiments: Arc::new(DelayExperiments::new(100)),
        stats: Arc::new(Stats::new(1, 2, 3)),
    });
    let driver = Driver::spawn(DriverParts {
        director,
        shared: Arc::clone(&shared),
        reads: Arc::default(),
        probes: tokio::sync::mpsc::channel(1).0,
        output: Output {
            json: false,
            quiet: false,
            log: None,
        },
        clock: tidegate_remote::clock::now,
    });
    (driver.unwrap(), shared)
}

/// One was asked, and another was not.
fn found() -> Findings {
    let finding = |class: &str, share, flagged| Finding {
        class: class.into(),
        pattern: Some(class.into()),
        resource: "shop cpu".into(),
        share,
        cost_seconds: 0.125,
        cost_error: 0.25,
        evidence: [12.0, 9.0, 3.0],
        in_progress: 2.0,
        flagged,
        suspected: None,
        presumed: None,
    };
    let since = now() - Duration::from_secs(8);
    Findings {
        all: vec![
            finding("shop GET /search?q", 0.5, Some((Confidence::Strong, since))),
            finding("shop GET /a", 0.02, None),
        ],
        experiment: None,
        overflows: 0,
        evaluations: 3,
        evaluated: Duration::from_millis(15),
    }
}

/// A front-end of which n1's load is fresh, n2's is stale and n3's was never read.
pub(crate) fn plane() -> (Driver, Arc<Plane>) {
    let (driver, shared) = driver();
    let load = |age_ms, runnable| NodeLoad {
        observed_at: now() - Duration::from_millis(age_ms),
        capacity: 2.0,
        runnable,
        utilization: 0.75,
        memory: 0.5,
        one_way: 0.000_1,
        rung: Rung::Agent,
        interval: Duration::from_millis(1),
        ..NodeLoad::UNKNOWN
    };
    shared.table.store(NodeId(0), &load(2, 3.0));
    shared.table.store(NodeId(1), &load(10_000, 0.0));
    let plane = Plane {
        traces: Exporter::begin(tokio::sync::mpsc::channel(1).1, None, Output::QUIET),
        clock: now,
        started: now() - Duration::from_secs(60),
        listeners: Arc::new(ArcSwap::from_pointee(vec![([127, 0, 0, 1], 8080).into()])),
        sites: Arc::new(ArcSwap::from_pointee(cluster().sites)),
        cluster: None,
        sources: Arc::default(),
        certificates: Arc::default(),
        window: Mutex::new(Window::new(
            now() - Duration::from_secs(5),
            shared.stats.snapshot(),
        )),
        shared,
        reads: Arc::default(),
        checks: Arc::default(),
        names: ClassNames::default(),
        overrides_file: OverridesFile::new(None),
        resources: Arc::default(),
        culprits: Some(Asks::with(found())),
        overrides: driver.overrides(),
        driver: driver.stats(),
        moves: None,
        upgrades: crate::upgrade::desk(0).0,
        is_succeeded: AtomicBool::new(false),
        output: Output::QUIET.keeping(EventLog::of_process()),
        draining: AtomicBool::new(false),
    };
    (driver, Arc::new(plane))
}

/// A runtime of one thread.
pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}
