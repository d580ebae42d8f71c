//! Samples for tests.

use std::collections::BTreeMap;

use tidegate_core::time::Timestamp;

use super::sample::{Accused, AccusedPair, Culprits, Sample, SiteDecision};
use crate::models::{
    Apart, Decision, Headline, Level, LimitsModel, LoadStatus, NodeStatus, Quantiles, ReaderStatus,
    Recent, Requests, ResourceStatus, SiteStatus, Status, ThrottleStatus, Trouble,
};

/// Both are known.
fn quantiles(p50: f64, p99: f64) -> Quantiles {
    Quantiles {
        p50_seconds: Some(p50),
        p99_seconds: Some(p99),
    }
}

fn recent(requests: f64, errors: f64) -> Recent {
    Recent {
        seconds: 5.0,
        requests_per_second: requests,
        errors_per_second: errors,
        latency: quantiles(0.004, 0.0215),
    }
}

fn load(fresh: bool) -> LoadStatus {
    LoadStatus {
        fresh,
        age_seconds: if fresh { 0.0012 } else { 7.5 },
        capacity: Some(4.0),
        runnable: Some(3.0),
        cpu: Some(0.9),
        recent_cpu: Some(0.62),
        counts_cpu: true,
        memory: Some(0.31),
        files: None,
        in_flight: Some(9.0),
        softirqs: None,
        one_way_seconds: 0.0001,
    }
}

fn node(name: &str, load: Option<LoadStatus>) -> NodeStatus {
    let is_known = load.as_ref().is_some_and(|load| load.fresh);
    NodeStatus {
        name: name.into(),
        address: "10.0.0.1:80".into(),
        state: "ready".into(),
        health: "up".into(),
        trouble: Trouble::default(),
        candidate: true,
        moving: false,
        moves_to: None,
        slow_start: None,
        soft_limit: None,
        checks: Vec::new(),
        services: None,
        agent: None,
        weight: 1.0,
        rung: if is_known { "xdp_native" } else { "none" }.into(),
        load,
        reads: None,
        in_flight: 7,
        responses: BTreeMap::from([
            ("2xx".into(), 10_000),
            ("5xx".into(), 3),
            ("failed".into(), 1),
        ]),
        share: Some(0.5),
        recent: recent(250.5, 1.5),
    }
}

fn site(name: &str, policy: &str, nodes: Vec<NodeStatus>) -> SiteStatus {
    SiteStatus {
        name: name.into(),
        policy: policy.into(),
        hosts: vec!["*".into()],
        paths: Vec::new(),
        candidates: nodes.len() as u32,
        fail_open: false,
        recent: recent(501.0, 1.5),
        refusing_seconds: None,
        failing_seconds: None,
        refused: BTreeMap::new(),
        errors: BTreeMap::new(),
        apart: Apart {
            queued: 3,
            queue_wait: quantiles(0.051, 0.311),
            refused_per_second: 12.34,
            ..Apart::default()
        },
        grown: Vec::new(),
        nodes,
    }
}

fn throttle() -> ThrottleStatus {
    let limits = LimitsModel {
        concurrency: Some(2),
        ..LimitsModel::default()
    };
    ThrottleStatus {
        class: "GET /search/*".into(),
        limits,
        set_by: "operator".into(),
        seconds_ago: 60.0,
        seconds_left: None,
        in_flight: 2,
        lent: 0,
        waiting: 4,
        arrived: 100,
        passed: 96,
        held: 50,
        rejected: 5,
        left: 0,
        delayed_seconds: 12.0,
        paced_bytes: 0,
        paced_seconds: 0.0,
    }
}

/// Two sites: `shop` with n1, and n2 that fails; `blog` with n3, whose load is not known.
pub(super) fn status() -> Status {
    let mut n2 = node("n2", Some(load(false)));
    n2.health = "failing".into();
    n2.share = None;
    let mut n3 = node("n3", None);
    n3.recent = Recent::default();
    Status {
        version: "0.1.0".into(),
        uptime_seconds: 185.0,
        ready: true,
        draining: false,
        headline: Headline {
            level: Level::Warn,
            text: "1 of 2 nodes of shop is out: n2 (failures, 12 s)".into(),
            others: Vec::new(),
        },
        listeners: vec!["127.0.0.1:8080".into()],
        configuration: None,
        front_ends: 2,
        topology_version: 4,
        reader: ReaderStatus {
            nodes: 3,
            interval_seconds: 0.001,
            shortest_interval_seconds: 0.001,
            realtime: Some(true),
            note: None,
        },
        requests: Requests {
            received: 31_012,
            completed: 30_000,
            failed: 3,
            rejected: BTreeMap::from([("overload".into(), 1000)]),
            cancelled: 1,
            in_flight: 8,
            retries: 2,
        },
        connections: 40,
        connections_evicted: 0,
        connections_refused: BTreeMap::new(),
        connections_refused_per_second: BTreeMap::new(),
        refused: BTreeMap::new(),
        accept_paused: 0,
        recent: recent(751.5, 3.0),
        load_age: quantiles(0.001, 0.002),
        sites: vec![
            site("shop", "auto", vec![node("n1", Some(load(true))), n2]),
            site("blog", "least_request", vec![n3]),
        ],
        leaving: Vec::new(),
        left_out: Vec::new(),
        certificates: Vec::new(),
        given_certificates: Vec::new(),
        webhook_error: None,
        sources: Vec::new(),
        throttles: vec![throttle()],
        resources: vec![ResourceStatus {
            name: "db".into(),
            address: "10.0.0.9".into(),
            rung: "agent".into(),
            load: Some(load(true)),
            reads: None,
        }],
    }
}

fn decision(path: &str, node: Option<&str>, seconds_ago: f64) -> SiteDecision {
    SiteDecision {
        site: "shop".into(),
        decision: Decision {
            id: "0-7fe1".into(),
            trace_id: None,
            sentence: String::new(),
            method: "GET".into(),
            site: Some("shop".into()),
            seconds_ago,
            path: path.into(),
            status: if node.is_some() { 200 } else { 503 },
            node: node.map(str::to_owned),
            tries: 1,
            compared: node.map(|_| 2),
            score: node.map(|_| 1.25),
            load_age_seconds: node.map(|_| 0.0009),
            in_flight: node.map(|_| 3),
            sticky: None,
            throttle: None,
            held_seconds: None,
            experiment_seconds: None,
            duration_seconds: 0.0042,
            reason: node.is_none().then(|| "overload".into()),
        },
    }
}

/// What the front-end says at this moment.
pub(super) fn sample(at: Timestamp) -> Sample {
    let pair = AccusedPair {
        resource: "db cpu".into(),
        share: Some(0.71),
        cost_ms: Some(42.0),
        confidence: Some("high".into()),
    };
    let accused = Accused {
        class: "GET /search/*".into(),
        throttle: Some("concurrency 2".into()),
        pair,
    };
    Sample {
        at,
        status: status(),
        decisions: vec![
            decision("/cart", Some("n1"), 0.02),
            decision("/search/shoes", None, 0.4),
        ],
        culprits: Culprits {
            asked: Some(at),
            accused: vec![accused],
        },
    }
}

/// The same two seconds later, with further answers.
pub(super) fn two_samples() -> (Sample, Sample) {
    let before = sample(Timestamp::from_millis(100_000));
    let mut now = sample(Timestamp::from_millis(102_000));
    now.status.uptime_seconds += 2.0;
    now.status.requests.completed += 1500;
    now.status.requests.rejected.insert("overload".into(), 1030);
    let responses = &mut now.status.sites[0].nodes[0].responses;
    responses.insert("2xx".into(), 10_596);
    responses.insert("5xx".into(), 6);
    responses.insert("failed".into(), 2);
    (before, now)
}
