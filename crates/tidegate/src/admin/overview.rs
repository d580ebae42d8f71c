//! `GET /api/overview`: the status without what is not looked at each second.
//!
//! A thousand nodes take less than 100 KiB. What is left out of a node, its address first, is in `GET /api/why/NODE`.

use tidegate_remote::clock;

use super::plane::Plane;
use super::status::{Detail, in_detail};
use crate::models::{
    LoadStatus, NodeStatus, Overview, OverviewNode, OverviewRecent, OverviewSite, Recent, Short,
    SiteStatus,
};
use crate::text::state;

/// Most notes on nodes, and most characters of one.
const NOTES_MAX: usize = 20;
const NOTE_MAX: usize = 200;

/// See the module.
pub(super) fn overview(plane: &Plane) -> Overview {
    let status = in_detail(plane, Detail::Shown);
    let requests = &status.requests;
    let errors = status.sites.iter().flat_map(|it| it.errors.values());
    let errors = digits(errors.sum());
    let mut notes = 0;
    Overview {
        at_seconds: (clock::unix().as_secs_f64() * 1e3).round() / 1e3,
        newest_event: plane.output.log.map_or(0, |log| log.newest()),
        recent: OverviewRecent {
            errors_per_second: errors,
            ..recent(&status.recent)
        },
        load_age_p99_seconds: short(status.load_age.p99_seconds),
        in_flight: requests.in_flight,
        connections: status.connections,
        completed: requests.completed,
        failed: requests.failed,
        rejected: requests.rejected.values().sum(),
        cancelled: requests.cancelled,
        sites: (status.sites.into_iter())
            .map(|it| site(it, &mut notes))
            .collect(),
        version: status.version,
        uptime_seconds: status.uptime_seconds,
        ready: status.ready,
        draining: status.draining,
        headline: status.headline,
        listeners: status.listeners,
        front_ends: status.front_ends,
        topology_version: status.topology_version,
        reader: status.reader,
    }
}

fn recent(of: &Recent) -> OverviewRecent {
    OverviewRecent {
        requests_per_second: digits(of.requests_per_second),
        errors_per_second: digits(of.errors_per_second),
        p50_seconds: short(of.latency.p50_seconds),
        p99_seconds: short(of.latency.p99_seconds),
    }
}

fn site(site: SiteStatus, notes: &mut usize) -> OverviewSite {
    let short_all = |rates: std::collections::BTreeMap<String, f64>| {
        let each = rates.into_iter();
        each.map(|(label, rate)| (label, digits(rate))).collect()
    };
    let nodes = site.nodes.iter().map(|it| {
        let mut node = node(it);
        *notes += usize::from(node.14.is_some());
        node.14 = node.14.filter(|_| *notes <= NOTES_MAX);
        node
    });
    OverviewSite {
        nodes: nodes.collect(),
        recent: OverviewRecent {
            // Refusals are not among them.
            errors_per_second: digits(site.errors.values().sum()),
            ..recent(&site.recent)
        },
        queued: site.apart.queued,
        queue_wait_p99_seconds: short(site.apart.queue_wait.p99_seconds),
        refused: short_all(site.refused),
        errors: short_all(site.errors),
        name: site.name,
        policy: site.policy,
        hosts: site.hosts,
        paths: site.paths,
        candidates: site.candidates,
        fail_open: site.fail_open,
        grown: site.grown,
    }
}

fn node(node: &NodeStatus) -> OverviewNode {
    let load = node.load.as_ref();
    let fresh = load.filter(|it| it.fresh);
    let notes = node.trouble.notes.join("; ");
    let of = |number: Option<f64>| short(number).map(Short);
    OverviewNode(
        node.name.clone(),
        state(node).to_owned(),
        node.rung.clone(),
        of(fresh.and_then(|it| it.runnable)),
        of(fresh.and_then(|it| it.capacity)),
        of(fresh.and_then(LoadStatus::shown_cpu)),
        of(load.map(|it| it.age_seconds)),
        node.in_flight,
        of(node.share),
        Short(digits(node.recent.requests_per_second)),
        of(node.recent.latency.p50_seconds),
        of(node.recent.latency.p99_seconds),
        Short(digits(node.recent.errors_per_second)),
        Short(digits(node.weight.into())),
        (!notes.is_empty()).then(|| notes.chars().take(NOTE_MAX).collect()),
    )
}

fn short(number: Option<f64>) -> Option<f64> {
    number.map(digits)
}

/// A number with three digits.
fn digits(number: f64) -> f64 {
    if number == 0.0 || !number.is_finite() {
        return 0.0;
    }
    let power = 10f64.powi(2 - number.abs().log10().floor() as i32);
    let rounded = (number * power).round() / power;
    // Nine places are enough for seconds, and make the shortest text.
    (rounded * 1e9).round() / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn numbers_have_three_digits() {
        for (number, wanted) in [
            (0.0, "0.0"),
            (f64::NAN, "0.0"),
            (12_345.6, "12300.0"),
            (0.012_345, "0.0123"),
            (999.6, "1000.0"),
            (0.000_001_234_5, "0.00000123"),
            (-1.2345, "-1.23"),
        ] {
            assert_eq!(
                format!("{:?}", digits(number)).replace("1.23e-6", "0.00000123"),
                wanted
            );
        }
    }

    #[test]
    fn a_node_is_a_list_of_what_is_looked_at() {
        let (_driver, plane) = testing::plane();
        let overview = overview(&plane);
        let [shop, blog] = overview.sites.as_slice() else {
            panic!("two sites");
        };
        let [n1, n2] = shop.nodes.as_slice() else {
            panic!("two nodes");
        };
        assert_eq!((n1.0.as_str(), n1.1.as_str()), ("n1", "up"));
        let some = |number| Some(Short(number));
        assert_eq!((n1.3, n1.4, n1.5), (some(3.0), some(2.0), some(0.75)));
        assert_eq!((n2.3, n2.4, n2.5), (None, None, None));
        assert!(n2.6.is_some_and(|age| age.0 > 9.0));
        assert_eq!(blog.nodes[0].6, None);
    }

    /// The page asks for this each second: 100 KiB.
    #[test]
    fn a_thousand_nodes_are_no_hundred_kilobytes() {
        let (_driver, plane) = testing::plane();
        let mut overview = overview(&plane);
        let site = &mut overview.sites[0];
        let node = |number: usize| {
            OverviewNode(
                format!("web-{number:04}"),
                "up".into(),
                "agent_realtime".into(),
                Some(Short(3.25)),
                Some(Short(16.0)),
                Some(Short(0.875)),
                Some(Short(0.001_23)),
                12,
                Some(Short(0.001_01)),
                Short(123.0),
                Some(Short(0.004_56)),
                Some(Short(0.045_6)),
                Short(0.125),
                Short(1.0),
                None,
            )
        };
        site.nodes = (0..1000).map(node).collect();
        let length = serde_json::to_vec(&overview).unwrap().len();
        assert!(length <= 100 << 10, "{length}");
    }
}
