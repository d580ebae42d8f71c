//! `GET /api/requests`: what became of the last requests, of all workers, newest first.
//!
//! A request is found by its id (`id` in the access log, `x-tidegate-request` in its answer), or by the number of the trace
//! that it was exported with. Each worker remembers as many as `[log] recent` says.

use http::StatusCode;
use tidegate_core::topology::Topology;
use tidegate_proxy::{Reason, Recent, RequestId, TraceId};

use super::api::{self, Answer};
use super::plane::{Look, Plane};
use super::query::Query;
use crate::models::{Decision, LastRequests};

/// Requests that are shown unless more or fewer are asked for, and the most.
const LAST: u64 = 50;
const LAST_MAX: u64 = 200;
/// The least length of a trace's number: W3C-TRACE-CONTEXT has 32.
const TRACE_DIGITS: usize = 32;

/// The answer to `?id=0-7fe12`, or to `?last=50&site=shop&node=n1&wrong`.
pub(super) fn answer(plane: &Plane, query: Option<&str>) -> Answer {
    let names = ["id", "last", "site", "node", "wrong"];
    let query = match Query::parsed(query, &names) {
        Ok(query) => query,
        Err(why) => return api::error(StatusCode::BAD_REQUEST, &why),
    };
    if let Some(id) = query.text("id") {
        return match found(plane, &id) {
            Some(request) => api::json(
                StatusCode::OK,
                &LastRequests {
                    requests: vec![request],
                },
            ),
            None => api::error(StatusCode::NOT_FOUND, UNKNOWN),
        };
    }
    let last = match query.number("last", LAST, 1..=LAST_MAX) {
        Ok(last) => last as usize,
        Err(why) => return api::error(StatusCode::BAD_REQUEST, &why),
    };
    let topology = plane.shared.topology.load();
    let (named_site, named_node) = (query.text("site"), query.text("node"));
    let site = (named_site.as_deref()).and_then(|it| topology.site_named(it));
    let node = (named_node.as_deref()).and_then(|it| topology.node_named(it));
    match (&named_site, &named_node) {
        (Some(name), _) if site.is_none() => return api::unknown("site", name),
        (_, Some(name)) if node.is_none() => return api::unknown("node", name),
        _ => {}
    }
    let wanted = |it: &Recent| {
        (site.is_none() || it.site == site)
            && (node.is_none() || it.node == node)
            && (!query.has("wrong") || it.is_wrong())
    };
    let requests = decisions(plane, &plane.look(), &topology, last, wanted);
    api::json(StatusCode::OK, &LastRequests { requests })
}

const UNKNOWN: &str = "no request of this id is among the last ones: [log] recent says how many each worker remembers";

/// The request of an id or of a trace, if it is among the last ones.
pub(super) fn found(plane: &Plane, id: &str) -> Option<Decision> {
    let own = id.parse::<RequestId>().ok();
    let digits = Some(id).filter(|it| it.len() == TRACE_DIGITS);
    let trace = digits.and_then(|it| u128::from_str_radix(it, 16).ok());
    let trace = trace.and_then(TraceId::new);
    if own.is_none() && trace.is_none() {
        return None;
    }
    let wanted = |it: &Recent| own == Some(it.id) || (trace.is_some() && it.trace == trace);
    let topology = plane.shared.topology.load();
    let all = decisions(plane, &plane.look(), &topology, 1, wanted);
    all.into_iter().next()
}

/// The last requests of some kind, newest first.
pub(super) fn decisions(
    plane: &Plane,
    look: &Look,
    topology: &Topology,
    most: usize,
    wanted: impl Fn(&Recent) -> bool,
) -> Vec<Decision> {
    let recent = plane.shared.stats.recent();
    let throttles = plane.shared.throttles.all();
    let class = |id| throttles.iter().find(|it| it.id == id);
    let newest = recent.iter().rev().filter(|recent| wanted(recent));
    let decision = |recent: &Recent| {
        let why = recent.why.as_ref();
        let score = why.map(|why| f64::from(why.score));
        let node = (recent.node).and_then(|node| topology.nodes.get(node.index()));
        let site = (recent.site).and_then(|site| topology.sites.get(site.index()));
        let mut decision = Decision {
            id: recent.id.to_string(),
            trace_id: recent.trace.map(|it| format!("{it:032x}")),
            sentence: String::new(),
            seconds_ago: look.now.since(recent.at).as_secs_f64(),
            method: recent.method().to_owned(),
            path: recent.path().to_owned(),
            site: site.map(|site| site.name.clone()),
            status: recent.status,
            node: node.map(|node| node.name.clone()),
            tries: recent.tries,
            compared: why.map(|why| why.compared),
            score: score.filter(|score| score.is_finite()),
            load_age_seconds: (why.and_then(|why| why.load_age)).map(|age| age.as_secs_f64()),
            in_flight: why.map(|why| why.in_flight),
            sticky: why.and_then(|why| why.sticky.label()).map(str::to_owned),
            throttle: (recent.throttle.and_then(class)).map(|it| it.pattern.name().to_owned()),
            held_seconds: recent.held.map(|held| held.as_secs_f64()),
            experiment_seconds: recent.delayed.map(|delay| delay.as_secs_f64()),
            duration_seconds: recent.duration.as_secs_f64(),
            reason: recent.reason.map(|reason| reason.label().into()),
        };
        decision.sentence = sentence(&decision, recent.reason);
        decision
    };
    newest.take(most).map(decision).collect()
}

/// What became of a request, in words.
fn sentence(request: &Decision, reason: Option<Reason>) -> String {
    let what = match &request.site {
        Some(site) => format!("{} {} of {site}", request.method, request.path),
        None => format!("{} {}", request.method, request.path),
    };
    let took = spelled(request.duration_seconds);
    let mut text = match (&request.node, reason) {
        (Some(node), None) => format!(
            "{what} was answered {} by {node} within {took}",
            request.status
        ),
        (Some(node), Some(reason)) => {
            format!(
                "{what} got {} after {took} at {node}: {}",
                request.status,
                reason.what()
            )
        }
        (None, Some(reason)) => {
            format!(
                "{what} was refused with {} after {took}: {}",
                request.status,
                reason.what()
            )
        }
        (None, None) => format!("{what} was answered {} here within {took}", request.status),
    };
    if request.tries > 1 {
        text.push_str(&format!(
            ", the last of {} nodes that it was sent to",
            request.tries
        ));
    }
    if let (Some(compared @ 2..), Some(in_flight)) = (request.compared, request.in_flight) {
        text.push_str(&format!(
            "; {compared} nodes were compared, with {in_flight} in flight there from here"
        ));
        if let Some(age) = request.load_age_seconds {
            text.push_str(&format!(", going by a load read {} before", spelled(age)));
        }
    }
    if let (Some(class), Some(held)) = (&request.throttle, request.held_seconds) {
        text.push_str(&format!(
            "; the throttle of {class} held it for {}",
            spelled(held)
        ));
    }
    text
}

fn spelled(seconds: f64) -> String {
    match seconds {
        ..0.000_999_5 => format!("{:.0} µs", seconds * 1e6),
        ..0.999_5 => format!("{:.1} ms", seconds * 1e3),
        _ => format!("{seconds:.1} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::LastRequests;
    use crate::testing;

    fn request() -> Decision {
        Decision {
            id: "0-1".into(),
            trace_id: None,
            sentence: String::new(),
            seconds_ago: 1.0,
            method: "GET".into(),
            path: "/a".into(),
            site: Some("shop".into()),
            status: 200,
            node: Some("n1".into()),
            tries: 1,
            compared: Some(2),
            score: Some(1.5),
            load_age_seconds: Some(0.001_25),
            in_flight: Some(3),
            sticky: None,
            throttle: None,
            held_seconds: None,
            experiment_seconds: None,
            duration_seconds: 0.012,
            reason: None,
        }
    }

    #[test]
    fn what_became_of_a_request_is_a_sentence() {
        let said = |change: fn(&mut Decision), reason| {
            let mut request = request();
            change(&mut request);
            sentence(&request, reason)
        };
        assert_eq!(
            said(|_| (), None),
            "GET /a of shop was answered 200 by n1 within 12.0 ms; 2 nodes were compared, with 3 in flight there from here, \
             going by a load read 1.2 ms before"
        );
        let refused = |it: &mut Decision| {
            (it.node, it.compared, it.status) = (None, None, 503);
            it.duration_seconds = 0.000_05;
        };
        assert_eq!(
            said(refused, Some(Reason::Overload)),
            "GET /a of shop was refused with 503 after 50 µs: an admission limit was reached"
        );
        let failed = |it: &mut Decision| {
            (it.tries, it.status, it.compared) = (2, 502, None);
            (it.throttle, it.held_seconds) = (Some("GET /a".into()), Some(2.0));
        };
        assert_eq!(
            said(failed, Some(Reason::ConnectFailed)),
            "GET /a of shop got 502 after 12.0 ms at n1: the node refused the connection, the last of 2 nodes that it was sent \
             to; the throttle of GET /a held it for 2.0 s"
        );
        let own = |it: &mut Decision| (it.node, it.site, it.compared) = (None, None, None);
        assert_eq!(
            said(own, None),
            "GET /a was answered 200 here within 12.0 ms"
        );
    }

    #[test]
    fn a_question_without_sense_or_answer_is_refused() {
        let (_driver, plane) = testing::plane();
        let status = |query| answer(&plane, Some(query)).status();
        assert_eq!(status("id=0-1"), StatusCode::NOT_FOUND);
        assert_eq!(status("id=x"), StatusCode::NOT_FOUND);
        assert_eq!(status("last=0"), StatusCode::BAD_REQUEST);
        assert_eq!(status("from=0"), StatusCode::BAD_REQUEST);
        assert_eq!(status("last=5&site=shop&wrong"), StatusCode::OK);
        let text = serde_json::to_string(&LastRequests {
            requests: vec![request()],
        })
        .unwrap();
        assert!(text.contains("\"id\":\"0-1\""));
    }
}
