//! What the parts of the model do to a run, one at a time.

use std::time::Duration;

use tidegate_core::load::Rung;
use tidegate_core::policy::{PolicyConfig, PolicyKind};
use tidegate_core::topology::{NodeId, SiteId};
use tidegate_sim::chooser::{Chooser, OracleBy};
use tidegate_sim::report::Report;
use tidegate_sim::scenario::{Answer, Fault, FaultKind, Io, Scenario, SiteModel};
use tidegate_sim::world::run;

const MS: Duration = Duration::from_millis(1);

fn ran(scenario: &Scenario, chooser: impl Into<Chooser>) -> Report {
    run(scenario, chooser).unwrap_or_else(|violation| panic!("{violation}"))
}

fn under(scenario: &Scenario, kind: PolicyKind) -> Report {
    ran(scenario, PolicyConfig::new(kind))
}

fn fault(node: u32, kind: FaultKind, from: u32, to: u32) -> Fault {
    Fault {
        node: NodeId(node),
        kind,
        from: MS * from,
        to: MS * to,
    }
}

fn age_ms(report: &Report, q: f64) -> f64 {
    report.load_ages.quantile(q).as_secs_f64() * 1e3
}

#[test]
fn records_are_as_old_as_they_are_read_published_held_up_and_lost() {
    let base = Scenario::new(4, 2, 0.5).requests(2000);
    let fresh = under(&base, PolicyKind::Auto);
    assert!((0.09..=0.11).contains(&age_ms(&fresh, 0.0)));
    assert!((1.0..=1.11).contains(&age_ms(&fresh, 1.0)));
    let aged = base.clone().records(|records| records.age = 20 * MS);
    assert!((20.0..=21.2).contains(&age_ms(&under(&aged, PolicyKind::Auto), 0.5)));
    let published = base.clone().records(|records| records.published = 50 * MS);
    let published = under(&published, PolicyKind::Auto);
    assert!((23.0..=28.0).contains(&age_ms(&published, 0.5)));
    assert!((48.0..=51.2).contains(&age_ms(&published, 1.0)));
    let far = base.clone().records(|records| records.delay = 5 * MS);
    assert!((5.1..=6.2).contains(&age_ms(&under(&far, PolicyKind::Auto), 0.5)));
    // Nine of ten are lost: the newest is ten times as old.
    let lost = base.records(|records| records.loss = 0.9);
    let mean = under(&lost, PolicyKind::Auto).load_ages.mean();
    assert!(
        (8.0..=12.0).contains(&(mean.as_secs_f64() * 1e3)),
        "{mean:?}"
    );
}

#[test]
fn a_user_agent_answers_late_on_a_busy_node_and_the_kernel_does_not() {
    let age = |answer| {
        let scenario = Scenario::new(4, 2, 0.95).requests(4000).records(|records| {
            records.rung = Rung::Agent;
            records.answer = answer;
        });
        age_ms(&under(&scenario, PolicyKind::Auto), 0.99)
    };
    assert!(age(Answer::Kernel) < 1.2);
    assert!(age(Answer::Process { slice: 4 * MS }) > 5.0);
}

#[test]
fn a_full_node_refuses_and_no_request_is_lost_for_it() {
    let scenario = Scenario::new(4, 2, 1.5)
        .requests(4000)
        .nodes(|node| node.limit = Some(10));
    let report = under(&scenario, PolicyKind::RoundRobin);
    // A third is too much.
    let share = report.refused as f64 / report.offered as f64;
    assert!((0.28..=0.42).contains(&share), "{report}");
    assert_eq!(report.failed, report.refused);
    // At most ten share four CPUs: none waits for long.
    assert!(report.latencies.quantile(1.0) < 700 * MS, "{report}");
}

#[test]
fn io_takes_no_cpu_and_its_channels_are_a_queue() {
    let io = Io {
        mean: 40 * MS,
        shape: tidegate_sim::model::Demand::Fixed,
    };
    let scenario = Scenario::new(4, 1, 0.2)
        .requests(4000)
        .sites(|site| site.io = Some(io));
    let free = under(&scenario, PolicyKind::LeastRequest);
    // 80 requests a second and node, each for 40 ms: 3.2 channels are busy.
    let narrow = scenario.clone().nodes(|node| node.io_channels = Some(4));
    let narrow = under(&narrow, PolicyKind::LeastRequest);
    let slow = scenario.nodes(|node| node.io_slowness = 4.0);
    let slow = under(&slow, PolicyKind::LeastRequest);
    let median = |report: &Report| report.latencies.quantile(0.5).as_secs_f64() * 1e3;
    assert!((45.0..=52.0).contains(&median(&free)), "{free}");
    assert!((165.0..=172.0).contains(&median(&slow)), "{slow}");
    assert!(
        narrow.latencies.mean() > free.latencies.mean() + 3 * MS,
        "{narrow}"
    );
}

#[test]
fn a_paused_node_goes_on_with_its_old_work_and_a_time_out_takes_it_away() {
    let mut scenario = Scenario::new(4, 1, 0.3).requests(2000);
    scenario.faults = vec![fault(1, FaultKind::Paused, 300, 900)];
    let patient = under(&scenario, PolicyKind::RoundRobin);
    assert_eq!(patient.completed, 2000);
    assert!(patient.latencies.quantile(1.0) > 550 * MS, "{patient}");
    scenario.front_ends.timeout = Some(100 * MS);
    let hasty = under(&scenario, PolicyKind::RoundRobin);
    // Tried again elsewhere, and the node is ejected after the third.
    assert!(hasty.completed >= 1990, "{hasty}");
    assert!(hasty.latencies.quantile(1.0) < 400 * MS, "{hasty}");
}

#[test]
fn a_dead_node_is_found_out_and_comes_back() {
    let mut scenario = Scenario::new(4, 1, 0.5).requests(4000);
    scenario.faults = vec![fault(2, FaultKind::Dead, 500, 1000)];
    let report = under(&scenario, PolicyKind::RoundRobin);
    assert!(report.failed < 10, "{report}");
    let fair = report.sent.iter().sum::<u64>() / 4;
    assert!(
        report.sent[2] < fair && report.sent[2] > fair / 2,
        "{report}"
    );
}

#[test]
fn a_flapping_node_costs_what_it_must() {
    let mut scenario = Scenario::new(5, 1, 0.5).requests(4000);
    let flapping = FaultKind::Flapping {
        period: 100 * MS,
        down: 0.5,
    };
    scenario.faults = vec![fault(0, flapping, 0, 60_000)];
    let report = under(&scenario, PolicyKind::RoundRobin);
    let fair = report.sent.iter().sum::<u64>() / 5;
    assert!(report.sent[0] < fair * 9 / 10, "{:?}", report.sent);
    assert_eq!(report.failed, 0, "all are tried again elsewhere: {report}");
}

#[test]
fn a_node_that_answers_worse_than_the_others_gets_little() {
    // Four nodes at 0.3, a request takes 20 ms; one breaks bodies off, or says 503 at once.
    let mut scenario = Scenario::new(4, 1, 0.3).mean_demand(20 * MS).requests(6000);
    scenario.warm_up = 0.0;
    for kind in [FaultKind::Breaking, FaultKind::Failing] {
        scenario.faults = vec![fault(0, kind, 0, 600_000)];
        for policy in [PolicyKind::Auto, PolicyKind::LeastRequest] {
            let report = under(&scenario, policy);
            let share = report.sent[0] as f64 / report.offered as f64;
            assert!(share < 0.1, "{kind:?} {}: {share}", policy.name());
        }
    }
}

#[test]
fn sites_have_their_own_nodes_and_loads() {
    let mut scenario = Scenario::new(6, 2, 0.3).requests(6000);
    scenario.sites.push(SiteModel::new(0.9));
    for node in &mut scenario.nodes[4..] {
        node.site = SiteId(1);
    }
    for chooser in [
        PolicyConfig::new(PolicyKind::Auto).into(),
        Chooser::Oracle(OracleBy::RunQueue),
    ] {
        let report = ran(&scenario, chooser);
        let [quiet, busy] = report.sites.as_slice() else {
            panic!("there are two sites");
        };
        // 0.3 of 16 CPUs to 0.9 of 8.
        let ratio = busy.totals.offered as f64 / quiet.totals.offered as f64;
        assert!((1.4..=1.6).contains(&ratio), "{ratio}");
        assert!(busy.latencies.mean() > quiet.latencies.mean());
        let measured = quiet.latencies.count() + busy.latencies.count();
        assert_eq!(measured, report.latencies.count());
    }
}

#[test]
fn the_oracle_is_a_bound_on_equal_nodes() {
    for load in [0.5, 0.9] {
        let scenario = Scenario::new(10, 8, load).requests(10_000);
        let oracle = ran(&scenario, Chooser::Oracle(OracleBy::RunQueue));
        for kind in PolicyKind::ALL {
            let report = under(&scenario, *kind);
            let (mean, bound) = (report.latencies.mean(), oracle.latencies.mean());
            assert!(mean >= bound.mul_f64(0.97), "{}: {report}", kind.name());
        }
    }
}

#[test]
fn a_node_that_joins_gets_its_share_from_then_on() {
    let scenario = Scenario::new(4, 2, 0.5).requests(8000);
    let half = scenario.length() / 2;
    let report = under(&scenario.joins(NodeId(3), half), PolicyKind::Auto);
    let others = report.sent[..3].iter().sum::<u64>() as f64 / 3.0;
    let share = report.sent[3] as f64 / others;
    // Nothing in the first half but the warm-up, an equal share in the second.
    assert!((0.35..=0.6).contains(&share), "{share}");
}

#[test]
fn reports_in_answers_are_probes_where_there_are_no_records() {
    let blind = Scenario::new(10, 1, 0.8).requests(6000).missing(1.0);
    let told = blind.clone().nodes(|node| node.reports = true);
    let mean = |scenario| under(scenario, PolicyKind::PrequalRif).latencies.mean();
    assert!(mean(&told) < mean(&blind).mul_f64(0.9));
}

#[test]
fn what_is_no_scenario_is_said() {
    let mut scenario = Scenario::new(2, 1, 0.5);
    scenario.faults = vec![
        fault(1, FaultKind::Dead, 0, 10),
        fault(1, FaultKind::Paused, 5, 20),
    ];
    let policy = PolicyConfig::new(PolicyKind::Random);
    let broken = run(&scenario, policy).map(|report| report.offered);
    assert!(broken.is_err_and(|violation| violation.what.contains("node 1 overlap")));
}
