//! `GET /metrics`: everything countable, in base units, prefixed `tidegate_`.
//!
//! Labels are names of the configuration and closed lists, so there are as many series as sites and
//! nodes ask for and no more. What clients sent comes in only as the names of classes that are shown to
//! be culprits, which are a few.

mod node_loads;

use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_core::admission::Rank;
use tidegate_core::load::Rung;
use tidegate_core::topology::{AdminState, GroupId, Health, Membership, NodeId, SiteId, Topology};
use tidegate_proxy::{
    Ending, Handshake, HandshakeFailure, HistogramSnapshot, NodeSnapshot, Reason, SiteSnapshot,
};

use super::plane::{Look, Plane};
use super::status::STATUS_CLASSES;
use super::{
    agents, certificates, checks, findings, process, retries, soft_limits, sources, throttles,
    traces,
};
use crate::exposition::{Family, Format, Kind, Labels, Text};
use crate::moves::models::MoveCount;

/// Upper bounds of the histograms' buckets, microseconds: about three per power of ten.
const BOUNDS_MICROS: &[u64] = &[
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000, 10_000_000, 30_000_000, 60_000_000,
];

/// The same for tunnels, which live longer: a tenth of a second to 19 hours.
const TUNNEL_BOUNDS_MICROS: &[u64] = &[
    100_000,
    1_000_000,
    10_000_000,
    60_000_000,
    600_000_000,
    3_600_000_000,
    21_600_000_000,
    68_400_000_000,
];

/// The text.
pub(crate) fn metrics(plane: &Plane, format: Format) -> String {
    let look = plane.look();
    let topology = plane.shared.topology.load();
    let scene = Scene {
        plane,
        look: &look,
        topology: &topology,
    };
    let mut text = Text::new(format);
    scene.front_end(&mut text);
    scene.reloads(&mut text);
    scene.moves(&mut text);
    process::metrics(&mut text);
    scene.requests(&mut text);
    scene.connections(&mut text);
    scene.accepting(&mut text);
    scene.handshakes(&mut text);
    scene.http2(&mut text);
    scene.decisions(&mut text);
    scene.sites(&mut text);
    scene.site_counts(&mut text);
    scene.site_durations(&mut text);
    scene.node_requests(&mut text);
    scene.node_limits(&mut text);
    scene.groups(&mut text);
    scene.node_states(&mut text);
    scene.node_loads(&mut text);
    scene.reads(&mut text);
    checks::metrics(plane, &topology, &mut text);
    checks::services_metrics(plane, &topology, &mut text);
    soft_limits::metrics(&topology, &mut text);
    agents::metrics(plane, &topology, &mut text);
    sources::metrics(plane, &mut text);
    certificates::metrics(plane, &mut text);
    throttles::metrics(plane, &mut text);
    traces::metrics(plane.traces.counts(), &look.snapshot, &mut text);
    findings::metrics(plane, &mut text);
    scene.delay_experiments(&mut text);
    text.finish()
}

struct Scene<'a> {
    plane: &'a Plane,
    look: &'a Look,
    topology: &'a Topology,
}

fn flag(value: bool) -> f64 {
    if value { 1.0 } else { 0.0 }
}

fn gauge(text: &mut Text, name: &'static str, help: &str, value: f64) {
    text.family(name, Kind::Gauge, help).sample(&[], value);
}

fn counter(text: &mut Text, name: &'static str, help: &str, value: u64) {
    text.family(name, Kind::Counter, help).count(&[], value);
}

fn histogram(family: &mut Family<'_>, labels: Labels<'_>, of: &HistogramSnapshot) {
    bounded(family, labels, BOUNDS_MICROS, of);
}

fn bounded(family: &mut Family<'_>, labels: Labels<'_>, bounds: &[u64], of: &HistogramSnapshot) {
    let below = bounds.iter().map(|micros| {
        let bound = Duration::from_micros(*micros);
        (bound.as_secs_f64(), of.count_below(bound))
    });
    family.histogram(labels, below, of.count(), of.sum_seconds());
}

impl Scene<'_> {
    fn front_end(&self, text: &mut Text) {
        let plane = self.plane;
        let driver = &plane.driver;
        let (version, revision) = (env!("CARGO_PKG_VERSION"), env!("TIDEGATE_REVISION"));
        text.family("tidegate_build", Kind::Info, "The running version.")
            .sample(&[("version", version), ("revision", revision)], 1.0);
        let uptime = self.look.now.since(plane.started).as_secs_f64();
        gauge(
            text,
            "tidegate_uptime_seconds",
            "Time since the start.",
            uptime,
        );
        let ready = flag(plane.is_ready());
        gauge(
            text,
            "tidegate_ready",
            "Whether it takes requests that some node can serve.",
            ready,
        );
        let draining = flag(plane.is_draining());
        gauge(
            text,
            "tidegate_draining",
            "Whether it was told to stop.",
            draining,
        );
        let front_ends = f64::from(plane.front_ends());
        gauge(
            text,
            "tidegate_front_ends",
            "Front-ends known to serve these nodes.",
            front_ends,
        );
        let version = self.topology.version as f64;
        gauge(
            text,
            "tidegate_topology_version",
            "Grows with every change of a state.",
            version,
        );
        let ticks = driver.ticks.load(Ordering::Relaxed);
        counter(
            text,
            "tidegate_director_ticks",
            "Ticks of the control thread.",
            ticks,
        );
        let late = driver.late.load(Ordering::Relaxed);
        counter(
            text,
            "tidegate_director_late_ticks",
            "Ticks that came a tick late or more.",
            late,
        );
        let ejections = driver.ejections.load(Ordering::Relaxed);
        counter(text, "tidegate_ejections", "Nodes ejected.", ejections);
        let upgrades = &self.plane.upgrades;
        let (done, failed) = (upgrades.done(), upgrades.failed());
        let help = "Times that a new process has taken over, each from the one before.";
        counter(text, "tidegate_upgrades", help, done);
        let help = "Upgrades that this process has tried in vain.";
        counter(text, "tidegate_upgrades_failed", help, failed);
    }

    fn requests(&self, text: &mut Text) {
        let snapshot = &self.look.snapshot;
        let help = "Requests that came in: ended and in flight add up to them.";
        counter(text, "tidegate_requests_received", help, snapshot.requests);
        let mut family = text.family(
            "tidegate_requests_ended",
            Kind::Counter,
            "Requests by how they ended.",
        );
        for (ending, label) in Ending::ALL {
            family.count(&[("ending", label)], snapshot.ended_as(*ending));
        }
        let in_flight = snapshot.in_flight() as f64;
        gauge(
            text,
            "tidegate_requests_in_flight",
            "Requests that have not ended.",
            in_flight,
        );
        let help = "Requests that were not answered whole by their node, by reason.";
        let mut family = text.family("tidegate_requests_unserved", Kind::Counter, help);
        for reason in Reason::ALL {
            let ending = reason.ending().label();
            let labels = [("ending", ending), ("reason", reason.label())];
            family.count(&labels, snapshot.reason(*reason));
        }
        retries::metrics(snapshot, text);
        counter(
            text,
            "tidegate_request_body_bytes",
            "Bytes of request bodies.",
            snapshot.bytes_in,
        );
        counter(
            text,
            "tidegate_response_body_bytes",
            "Bytes of response bodies.",
            snapshot.bytes_out,
        );
        counter(
            text,
            "tidegate_access_log_lines",
            "Lines written to the access log.",
            snapshot.log_lines,
        );
        let help = "Lines that the access log was too slow for, or that its file refused.";
        counter(
            text,
            "tidegate_access_log_dropped",
            help,
            snapshot.log_drops,
        );
    }

    fn connections(&self, text: &mut Text) {
        let snapshot = &self.look.snapshot;
        let open = snapshot.connections as f64;
        gauge(
            text,
            "tidegate_client_connections",
            "Client connections that are open.",
            open,
        );
        let help = "Client connections accepted.";
        counter(
            text,
            "tidegate_client_connections_accepted",
            help,
            snapshot.accepted,
        );
        let help = "Client connections refused before a byte was read, by reason.";
        let mut family = text.family("tidegate_client_connections_refused", Kind::Counter, help);
        for reason in Reason::UNREAD {
            let count = snapshot.refused_unread(reason);
            family.count(&[("reason", reason.label())], count);
        }
        let help = "Client connections without a request that gave way to new ones, as many being open as may be.";
        let evicted = snapshot.evicted;
        counter(text, "tidegate_client_connections_evicted", help, evicted);
        let help = "Failed accepts: the machine has no memory for a connection, say.";
        counter(text, "tidegate_accept_errors", help, snapshot.accept_errors);
        let help = "Workers that failed and were replaced.";
        counter(
            text,
            "tidegate_worker_failures",
            help,
            snapshot.worker_failures,
        );
        let open = snapshot.tunnels_open as f64;
        gauge(
            text,
            "tidegate_tunnels",
            "Upgraded connections that are open.",
            open,
        );
        counter(
            text,
            "tidegate_tunnels_opened",
            "Upgraded connections.",
            snapshot.tunnels,
        );
    }

    fn handshakes(&self, text: &mut Text) {
        let snapshot = &self.look.snapshot;
        let help = "Handshakes of TLS that made a connection.";
        let mut family = text.family("tidegate_tls_handshakes", Kind::Counter, help);
        for ((_, version, resumed), count) in Handshake::ALL.iter().zip(&snapshot.handshakes) {
            let resumed = if *resumed { "true" } else { "false" };
            let labels = [("version", *version), ("resumed", resumed)];
            family.sample(&labels, *count as f64);
        }
        let help = "Connections to listeners with TLS whose handshake failed.";
        let mut family = text.family("tidegate_tls_handshake_failures", Kind::Counter, help);
        let failures = HandshakeFailure::ALL.iter();
        for (failure, count) in failures.zip(&snapshot.handshake_failures) {
            family.sample(&[("reason", failure.label())], *count as f64);
        }
    }

    fn http2(&self, text: &mut Text) {
        let snapshot = &self.look.snapshot;
        let help = "Client connections of HTTP/2.";
        let connections = snapshot.http2_connections;
        counter(text, "tidegate_http2_connections", help, connections);
        let help = "Connections of HTTP/2 that were ended because their client asked for more than it may.";
        let excesses = snapshot.http2_excesses;
        counter(text, "tidegate_http2_excesses", help, excesses);
        let help =
            "Connections of HTTP/2 that were ended because their client did not keep the protocol.";
        let violations = snapshot.http2_violations;
        counter(text, "tidegate_http2_violations", help, violations);
    }

    fn accepting(&self, text: &mut Text) {
        let snapshot = &self.look.snapshot;
        let help = "Workers that accept no connections now, because they do not keep up.";
        let paused = snapshot.accept_paused as f64;
        gauge(text, "tidegate_accept_paused", help, paused);
        let help = "Times at which a worker stopped accepting connections.";
        counter(text, "tidegate_accept_pauses", help, snapshot.accept_pauses);
        let help = "Time that workers accepted no connections, added up.";
        let mut family = text.family("tidegate_accept_paused_seconds", Kind::Counter, help);
        family.sample(&[], snapshot.accept_paused_micros as f64 * 1e-6);
        let help = "How late the workers served a timer, looked at each 20 ms.";
        let mut family = text.family("tidegate_event_loop_lag_seconds", Kind::Histogram, help);
        histogram(&mut family, &[], &snapshot.lag);
    }

    fn decisions(&self, text: &mut Text) {
        let snapshot = &self.look.snapshot;
        let help = "Age of the load record at the routing decision.";
        let mut family = text.family("tidegate_decision_load_age_seconds", Kind::Histogram, help);
        histogram(&mut family, &[], &snapshot.load_age);
        let help = "Decisions without a load record.";
        counter(
            text,
            "tidegate_decisions_without_load",
            help,
            snapshot.load_unknown,
        );
    }

    fn sites(&self, text: &mut Text) {
        let help = "Requests of the site by how they ended.";
        let mut family = text.family("tidegate_site_requests_ended", Kind::Counter, help);
        self.each_site(|name, _, site| {
            for (ending, label) in Ending::ALL {
                family.count(&[("site", name), ("ending", label)], site.ended_as(*ending));
            }
        });
        let help = "Requests of the site that were not answered whole by their node, by reason.";
        let mut family = text.family("tidegate_site_requests_unserved", Kind::Counter, help);
        self.each_site(|name, _, site| {
            for reason in Reason::ALL {
                let count = site.reason(*reason);
                let labels = [
                    ("site", name),
                    ("ending", reason.ending().label()),
                    ("reason", reason.label()),
                ];
                // Most reasons never happen at most sites.
                if count > 0 {
                    family.count(&labels, count);
                }
            }
        });
        let help = "Requests of the site that have not ended.";
        let mut family = text.family("tidegate_site_requests_in_flight", Kind::Gauge, help);
        self.each_site(|name, _, site| family.sample(&[("site", name)], site.in_flight() as f64));
        let help = "Requests of the site that found no room at any of its nodes.";
        let mut family = text.family("tidegate_site_no_room", Kind::Counter, help);
        for (id, site) in self.topology.served() {
            let count = self.plane.shared.table.found_no_room(id);
            family.count(&[("site", &site.name)], count);
        }
        let help = "Answers to clients of the site by class of their status.";
        let mut family = text.family("tidegate_site_responses", Kind::Counter, help);
        self.each_site(|name, _, site| {
            for (code, count) in STATUS_CLASSES.iter().zip(site.status_classes) {
                family.count(&[("site", name), ("code", code)], count);
            }
        });
        let help = "Nodes that requests may go to now.";
        let mut family = text.family("tidegate_site_candidates", Kind::Gauge, help);
        self.each_site(|name, id, _| {
            let candidates = self.topology.site(id).candidates.len();
            family.sample(&[("site", name)], candidates as f64);
        });
        let help = "Whether no node is up, so that ejected ones are used.";
        let mut family = text.family("tidegate_site_fail_open", Kind::Gauge, help);
        self.each_site(|name, id, _| {
            family.sample(&[("site", name)], flag(self.topology.site(id).fail_open));
        });
    }

    fn site_counts(&self, text: &mut Text) {
        type Count = fn(&SiteSnapshot) -> u64;
        let counters: [(_, _, Count); 3] = [
            (
                "tidegate_site_retries",
                "Requests of the site that were tried again.",
                |site| site.retries,
            ),
            (
                "tidegate_site_retries_denied",
                "Retries that the site's budget refused.",
                |site| site.retries_denied,
            ),
            (
                "tidegate_site_established_session_requests",
                "Requests of established user sessions: one of them was let in a moment before.",
                |site| site.established,
            ),
        ];
        for (name, help, count) in counters {
            let mut family = text.family(name, Kind::Counter, help);
            self.each_site(|name, _, site| family.count(&[("site", name)], count(site)));
        }
    }

    fn site_durations(&self, text: &mut Text) {
        let help = "Requests that wait for room at a node of the site now.";
        let mut family = text.family("tidegate_site_queued", Kind::Gauge, help);
        self.each_site(|name, _, site| family.count(&[("site", name)], site.queued));
        type Durations = fn(&SiteSnapshot) -> &HistogramSnapshot;
        let histograms: [(_, _, _, Durations); 4] = [
            (
                "tidegate_site_request_duration_seconds",
                "From the head of a request to its end, of requests that a node answered whole.",
                BOUNDS_MICROS,
                |site| &site.latency,
            ),
            (
                "tidegate_site_refusal_duration_seconds",
                "From the head of a request to its end, of rejected requests.",
                BOUNDS_MICROS,
                |site| &site.refusals,
            ),
            (
                "tidegate_site_queue_duration_seconds",
                "Wait for room at a node, of requests that found none at once.",
                BOUNDS_MICROS,
                |site| &site.queueing,
            ),
            (
                "tidegate_site_tunnel_duration_seconds",
                "From the head of an upgraded request to the end of its tunnel.",
                TUNNEL_BOUNDS_MICROS,
                |site| &site.tunnels,
            ),
        ];
        for (name, help, bounds, durations) in histograms {
            let mut family = text.family(name, Kind::Histogram, help);
            self.each_site(|name, _, site| {
                bounded(&mut family, &[("site", name)], bounds, durations(site));
            });
        }
    }

    fn delay_experiments(&self, text: &mut Text) {
        let counters = self.plane.shared.delay_experiments.counters();
        let help = "Requests in delay experiments, by whether they were delayed.";
        let mut family = text.family("tidegate_delay_experiment_requests", Kind::Counter, help);
        family.count(&[("delayed", "yes")], counters.delayed);
        family.count(&[("delayed", "no")], counters.not_delayed);
        let help =
            "Requests of an experiment's class that took no part: there was no room for them.";
        let left_out = counters.left_out;
        counter(text, "tidegate_delay_experiment_left_out", help, left_out);
        let help = "Requests that a delay experiment delays now.";
        let delayed_now = counters.delayed_now as f64;
        gauge(text, "tidegate_delay_experiment_delayed", help, delayed_now);
    }

    fn node_requests(&self, text: &mut Text) {
        type Count = fn(&NodeSnapshot) -> u64;
        let counters: [(_, _, Count); 4] = [
            (
                "tidegate_node_tries",
                "Requests sent to the node, retries among them.",
                |node| node.tries,
            ),
            (
                "tidegate_node_failures",
                "Tries without an answer.",
                |node| node.failures,
            ),
            (
                "tidegate_node_connects",
                "Connections made to the node.",
                |node| node.connects,
            ),
            (
                "tidegate_node_connections_reused",
                "Requests that found a connection in the pool.",
                |node| node.reuses,
            ),
        ];
        for (name, help, count) in counters {
            let mut family = text.family(name, Kind::Counter, help);
            self.each_node(|labels, _, node| family.count(labels, count(node)));
        }
        let gauges: [(_, _, Count); 2] = [
            (
                "tidegate_node_connections",
                "Connections open to the node.",
                |node| node.connections,
            ),
            (
                "tidegate_node_connections_idle",
                "Connections idle in the pool.",
                |node| node.connections_idle,
            ),
        ];
        for (name, help, count) in gauges {
            let mut family = text.family(name, Kind::Gauge, help);
            self.each_node(|labels, _, node| family.count(labels, count(node)));
        }
        let help = "Answers of the node by class of their status.";
        let mut family = text.family("tidegate_node_responses", Kind::Counter, help);
        self.each_node(|labels, _, node| {
            for (code, count) in STATUS_CLASSES.iter().zip(node.status_classes) {
                family.count(&[labels[0], labels[1], ("code", code)], count);
            }
        });
        let help = "From the try to the response head.";
        let mut family = text.family("tidegate_node_latency_seconds", Kind::Histogram, help);
        self.each_node(|labels, _, node| histogram(&mut family, labels, &node.latency));
        let help = "Own requests in flight at the node.";
        let mut family = text.family("tidegate_node_in_flight", Kind::Gauge, help);
        self.each_node(|labels, id, _| family.count(labels, self.plane.shared.table.in_flight(id)));
    }

    fn node_errors(&self, text: &mut Text) {
        let help = "Tries that failed at the node, by reason.";
        let mut family = text.family("tidegate_node_errors", Kind::Counter, help);
        self.each_node(|labels, _, node| {
            for (reason, count) in Reason::ALL.iter().zip(&node.reasons) {
                // Most reasons are no node's.
                if *count > 0 {
                    family.count(&[labels[0], labels[1], ("reason", reason.label())], *count);
                }
            }
        });
        let help = "Time since the node's last failure or server error, if there was one.";
        let mut family = text.family("tidegate_node_last_error_age_seconds", Kind::Gauge, help);
        self.each_node(|labels, _, node| {
            if let Some(last) = node.last_error {
                family.sample(labels, self.look.now.since(last.at).as_secs_f64());
            }
        });
    }

    fn node_limits(&self, text: &mut Text) {
        let help = "Most own requests in flight at the node, where admission limits them.";
        let mut family = text.family("tidegate_node_limit", Kind::Gauge, help);
        self.each_node(|labels, id, _| {
            let limit = self.plane.shared.table.limit(id, Rank::LOWEST);
            if limit.is_finite() {
                family.sample(labels, limit.into());
            }
        });
        let help = "Slots that all front-ends hold at the node, where they agree by its words.";
        let mut family = text.family("tidegate_node_slots", Kind::Gauge, help);
        self.each_node(|labels, id, _| {
            if let Some(agreed) = self.plane.shared.table.agreed(id) {
                family.count(labels, agreed.held.into());
            }
        });
        let help = "How many slots there are for all front-ends.";
        let mut family = text.family("tidegate_node_slots_limit", Kind::Gauge, help);
        self.each_node(|labels, id, _| {
            if let Some(agreed) = self.plane.shared.table.agreed(id) {
                family.count(labels, agreed.limit.into());
            }
        });
    }

    fn groups(&self, text: &mut Text) {
        let groups = || (0..).map(GroupId).zip(self.topology.groups.iter());
        let help = "Own requests in flight at the nodes of a group.";
        let mut family = text.family("tidegate_group_in_flight", Kind::Gauge, help);
        for (id, group) in groups() {
            let (in_flight, _) = self.plane.shared.table.group(id);
            family.count(&[("group", &group.name)], in_flight);
        }
        let help = "Most of them: this front-end's part of the group's limit.";
        let mut family = text.family("tidegate_group_limit", Kind::Gauge, help);
        for (id, group) in groups() {
            let (_, limit) = self.plane.shared.table.group(id);
            family.count(&[("group", &group.name)], limit);
        }
    }

    fn node_states(&self, text: &mut Text) {
        let help = "The operator's word: one of the states is 1.";
        let mut family = text.family("tidegate_node_state", Kind::Gauge, help);
        self.each_node(|labels, id, _| {
            for (state, name) in AdminState::ALL {
                let is = self.topology.node(id).admin == *state;
                family.sample(&[labels[0], labels[1], ("state", name)], flag(is));
            }
        });
        let help = "Whether the node is ejected.";
        let mut family = text.family("tidegate_node_ejected", Kind::Gauge, help);
        self.each_node(|labels, id, _| {
            let ejected = self.topology.node(id).health == Health::Ejected;
            family.sample(labels, flag(ejected));
        });
        let help = "How often the node was ejected.";
        let mut family = text.family("tidegate_node_ejections", Kind::Counter, help);
        self.each_node(|labels, id, _| family.count(labels, self.topology.node(id).ejections));
        let help = "Requests that failed at the node since it answered one.";
        let mut family = text.family("tidegate_node_failures_in_a_row", Kind::Gauge, help);
        self.each_node(|labels, id, _| {
            let streak = self.plane.shared.table.outcomes(id).streak;
            family.count(labels, streak.into());
        });
        self.node_errors(text);
        let help = "How the node's load is read now; none while it is not known.";
        let mut family = text.family("tidegate_node_rung", Kind::Gauge, help);
        self.each_node(|labels, id, _| {
            let load = self.plane.shared.table.fresh(id, self.look.now);
            let rung = load.map_or(Rung::None, |load| load.rung).label();
            family.sample(&[labels[0], labels[1], ("rung", rung)], 1.0);
        });
    }

    fn reloads(&self, text: &mut Text) {
        let Some(cluster) = &self.plane.cluster else {
            return;
        };
        let stats = cluster.stats();
        let help = "Reloads of the configuration file by result.";
        let mut family = text.family("tidegate_reloads", Kind::Counter, help);
        for (result, count) in [("done", &stats.done), ("failed", &stats.failed)] {
            family.count(&[("result", result)], count.load(Ordering::Relaxed));
        }
        gauge(
            text,
            "tidegate_reload_last_done",
            "Whether the last reload was carried out; 1 before the first.",
            flag(stats.last_done.load(Ordering::Relaxed)),
        );
    }

    fn moves(&self, text: &mut Text) {
        let Some(moves) = self.plane.moves.as_ref().map(|it| it.status()) else {
            return;
        };
        let help = "Moves of nodes between sites by cause and result.";
        let mut family = text.family("tidegate_moves", Kind::Counter, help);
        for MoveCount { cause, done, count } in &moves.counts {
            let result = if *done { "done" } else { "failed" };
            family.count(&[("cause", cause.as_str()), ("result", result)], *count);
        }
        let help =
            "Runnable tasks and waiting requests per CPU of a site that takes part in moves.";
        let mut family = text.family("tidegate_site_pressure", Kind::Gauge, help);
        for site in &moves.sites {
            if let Some(pressure) = site.pressure {
                family.sample(&[("site", site.site.as_str())], pressure);
            }
        }
    }

    fn reads(&self, text: &mut Text) {
        let help = "Load reads by result.";
        let mut family = text.family("tidegate_reads", Kind::Counter, help);
        self.each_node(|labels, id, _| {
            if let Some(status) = self.plane.reads.status(id) {
                let results = [
                    ("answered", status.reads),
                    ("timeout", status.timeouts),
                    ("torn", status.torn),
                    ("implausible", status.implausible),
                ];
                for (result, count) in results {
                    family.count(&[labels[0], labels[1], ("result", result)], count);
                }
            }
        });
        let help = "Restarts of the node's agent that the reader saw.";
        let mut family = text.family("tidegate_agent_restarts", Kind::Counter, help);
        self.each_node(|labels, id, _| {
            if let Some(status) = self.plane.reads.status(id) {
                family.count(labels, status.restarts);
            }
        });
        let help = "Round trip of the last load read.";
        let mut family = text.family("tidegate_read_round_trip_seconds", Kind::Gauge, help);
        self.each_node(|labels, id, _| {
            let status = self.plane.reads.status(id);
            if let Some(seconds) = status.and_then(|status| status.rtt_seconds) {
                family.sample(labels, seconds);
            }
        });
        if let Some(cpu) = self.plane.reads.cpu() {
            let help = "CPU time of the reading thread.";
            let mut family = text.family("tidegate_reader_cpu_seconds", Kind::Counter, help);
            family.sample(&[], cpu.as_secs_f64());
        }
        let help = "Time between two reads of a node, as of now.";
        let interval = self.plane.reads.interval().as_secs_f64();
        gauge(text, "tidegate_reader_interval_seconds", help, interval);
        if let Some(realtime) = self.plane.reads.realtime() {
            let help = "Whether the reading thread runs at real-time priority.";
            gauge(
                text,
                "tidegate_reader_realtime",
                help,
                flag(realtime.is_ok()),
            );
        }
    }

    fn each_site(&self, mut each: impl FnMut(&str, SiteId, &SiteSnapshot)) {
        for (index, site) in self.look.snapshot.sites.iter().enumerate() {
            if let Some(known) = self.topology.sites.get(index).filter(|it| !it.removed) {
                each(&known.name, SiteId(index as u32), site);
            }
        }
    }

    fn each_node(&self, mut each: impl FnMut(Labels<'_>, NodeId, &NodeSnapshot)) {
        for (index, node) in self.look.snapshot.nodes.iter().enumerate() {
            let known = self.topology.nodes.get(index);
            if let Some(known) = known.filter(|it| it.membership != Membership::Gone) {
                let site = &self.topology.site(known.site).name;
                let labels = [("site", site.as_str()), ("node", known.name.as_str())];
                each(&labels, NodeId(index as u32), node);
            }
        }
    }
}
