//! The admin interface's answers: the page, the JSON API, metrics, health.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{
    ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use percent_encoding::percent_decode_str;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidegate_core::topology::{AdminState, NodeId, Topology};

use super::culprits;
use super::events;
use super::history;
use super::moves;
use super::nodes;
use super::overview;
use super::page;
use super::plane::Plane;
use super::requests;
use super::{metrics, status, throttles, why};
use crate::exposition::Format;
use crate::models::{ApiError, Overridden, Upgraded};

const TEXT: &str = "text/plain; charset=utf-8";

/// An answer.
pub(super) type Answer = Response<Full<Bytes>>;

/// Whether a request of this kind has a body that is looked at: an override that takes more words than its path.
pub(super) fn takes_body(method: &Method, path: &str) -> bool {
    let words = matches!(
        path,
        "/api/throttle"
            | "/api/release"
            | "/api/culprits/experiment"
            | "/api/nodes"
            | "/api/moves"
            | "/api/moves/freeze"
            | "/api/moves/thaw"
    );
    let node = path.strip_prefix("/api/nodes/");
    let node = node.map(|name| name.strip_suffix("/weight").unwrap_or(name));
    (words || node.is_some_and(|name| !name.contains('/'))) && *method == Method::POST
}

/// Answers one request that has the right to ask (`access`).
pub(super) async fn answer(request: &Request<Bytes>, plane: &Arc<Plane>) -> Answer {
    let path = request.uri().path();
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let segments: Vec<_> = path.split('/').skip(1).collect();
    match segments.as_slice() {
        ["api", "nodes", rest @ ..] => nodes::answer(request, plane, rest).await,
        ["api", "moves", rest @ ..] => moves::answer(request, plane, rest).await,
        ["api", "reload"] => {
            if *request.method() != Method::POST {
                return not_allowed("POST");
            }
            reload(plane, request.uri().query()).await
        }
        ["api", order @ ("throttle" | "release")] => {
            if *request.method() != Method::POST {
                return not_allowed("POST");
            }
            let releases = *order == "release";
            order_class(plane, request.body().clone(), releases).await
        }
        ["api", "upgrade"] => {
            if *request.method() != Method::POST {
                return not_allowed("POST");
            }
            match plane.upgrades.upgrade().await {
                Ok(process) => json(StatusCode::OK, &Upgraded { process }),
                Err(why) => error(StatusCode::SERVICE_UNAVAILABLE, &why),
            }
        }
        ["api", "culprits", "experiment"] if *request.method() == Method::POST => {
            begin_experiment(plane, request.body()).await
        }
        _ if !reads => not_allowed("GET, HEAD"),
        path => look(request, plane, path).await,
    }
}

/// Answers one that only looks.
async fn look(request: &Request<Bytes>, plane: &Arc<Plane>, path: &[&str]) -> Answer {
    let query = request.uri().query();
    match path {
        [""] => page::answer(),
        ["culprits"] => culprits::answer(),
        ["livez"] => text(StatusCode::OK, "ok\n"),
        ["readyz"] => readyz(plane),
        ["metrics"] => {
            let accept = request.headers().get(ACCEPT);
            let format = Format::wanted(accept.and_then(|accept| accept.to_str().ok()));
            let kind = format.content_type();
            let metrics = move |plane: &Plane| metrics::metrics(plane, format);
            apart(plane, move |plane| {
                body(StatusCode::OK, kind, metrics(plane))
            })
            .await
        }
        ["api", "status"] => {
            apart(plane, |plane| json(StatusCode::OK, &status::status(plane))).await
        }
        ["api", "overview"] => {
            apart(plane, |plane| {
                json(StatusCode::OK, &overview::overview(plane))
            })
            .await
        }
        ["api", "events"] => events::answer(plane, query),
        ["api", "requests"] => {
            let query = request.uri().query().map(str::to_owned);
            apart(plane, move |plane| {
                requests::answer(plane, query.as_deref())
            })
            .await
        }
        ["api", "history"] => {
            let query = query.map(str::to_owned);
            apart(plane, move |plane| history::answer(plane, query.as_deref())).await
        }
        ["api", "throttles"] => {
            apart(plane, |plane| json(StatusCode::OK, &throttles::list(plane))).await
        }
        ["api", "culprits"] => report(plane).await,
        ["api", "culprits", "experiment"] => experiment(plane),
        ["api", "culprits", "requests"] => observed(plane, query).await,
        ["api", "why", name] => {
            // A class has blanks and slashes in its name.
            let name = percent_decode_str(name).decode_utf8_lossy().into_owned();
            apart(plane, move |plane| explain(plane, &name)).await
        }
        _ => nothing(),
    }
}

pub(super) fn nothing() -> Answer {
    let text = "there is nothing here; see / and /api/status";
    error(StatusCode::NOT_FOUND, text)
}

/// Puts the configuration file in force, or says what that would do.
async fn reload(plane: &Plane, query: Option<&str>) -> Answer {
    let dry_run = match query {
        None | Some("") => false,
        Some("dry_run") => true,
        Some(_) => return error(StatusCode::BAD_REQUEST, "a reload knows `dry_run` only"),
    };
    let Some(cluster) = &plane.cluster else {
        return error(
            StatusCode::NOT_FOUND,
            "this front-end has no configuration file",
        );
    };
    match cluster.reload(dry_run).await {
        Ok(reloaded) => json(StatusCode::OK, &reloaded),
        Err(why) if why.is_passing() => error(StatusCode::SERVICE_UNAVAILABLE, &why.to_string()),
        Err(why) => error(StatusCode::BAD_REQUEST, &why.to_string()),
    }
}

const NOBODY_LOOKS: &str = "nobody looks for culprits: `enabled = false` in `[culprits]`";

/// Which classes load what, of the last minute.
async fn report(plane: &Arc<Plane>) -> Answer {
    let Some(culprits) = &plane.culprits else {
        return error(StatusCode::NOT_FOUND, NOBODY_LOOKS);
    };
    match culprits.report().await {
        Ok(report) => apart(plane, move |_| json(StatusCode::OK, &report)).await,
        Err(why) => error(StatusCode::SERVICE_UNAVAILABLE, &why.to_string()),
    }
}

/// Begins a delay experiment.
async fn begin_experiment(plane: &Arc<Plane>, body: &[u8]) -> Answer {
    let Some(culprits) = &plane.culprits else {
        return error(StatusCode::NOT_FOUND, NOBODY_LOOKS);
    };
    let begun = match parsed(body) {
        Ok(order) => culprits.experiment(order).await,
        Err(why) => Err(why),
    };
    match begun {
        Ok(begun) => json(StatusCode::OK, &begun),
        Err(why) => error(StatusCode::BAD_REQUEST, &why),
    }
}

/// The last delay experiment, or the one that runs.
fn experiment(plane: &Plane) -> Answer {
    let Some(culprits) = &plane.culprits else {
        return error(StatusCode::NOT_FOUND, NOBODY_LOOKS);
    };
    json(StatusCode::OK, &culprits.findings().experiment)
}

/// What ended after a number, for another front-end.
async fn observed(plane: &Arc<Plane>, query: Option<&str>) -> Answer {
    let after = query.and_then(|query| query.strip_prefix("after="));
    let Some(after) = after.map_or(Some(0), |after| after.parse().ok()) else {
        return error(StatusCode::BAD_REQUEST, "`after` must be a number");
    };
    let Some(culprits) = &plane.culprits else {
        return error(StatusCode::NOT_FOUND, NOBODY_LOOKS);
    };
    match culprits.requests(after).await {
        Ok(shipment) => apart(plane, move |_| json(StatusCode::OK, &shipment)).await,
        Err(why) => error(StatusCode::SERVICE_UNAVAILABLE, &why.to_string()),
    }
}

/// Throttles a class or releases it, once no upgrade is under way.
async fn order_class(plane: &Arc<Plane>, body: Bytes, releases: bool) -> Answer {
    let change = match plane.upgrades.change().await {
        Ok(change) => change,
        Err(why) => return error(StatusCode::SERVICE_UNAVAILABLE, &why),
    };
    apart(plane, move |plane| {
        let answer = override_class(plane, &body, releases);
        drop(change);
        answer
    })
    .await
}

/// Does it.
fn override_class(plane: &Plane, body: &[u8], releases: bool) -> Answer {
    let given = match releases {
        true => parsed(body).and_then(|wanted| throttles::release(plane, &wanted)),
        false => parsed(body).and_then(|wanted| throttles::throttle(plane, &wanted)),
    };
    match given {
        Ok(given) => json(StatusCode::OK, &given),
        Err(reason) => error(StatusCode::BAD_REQUEST, &reason),
    }
}

pub(super) fn parsed<T: DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    serde_json::from_slice(body).map_err(|error| format!("the override is not understood: {error}"))
}

/// Works an answer out on another thread: with a thousand nodes it takes milliseconds, which
/// signals and health probes should not wait for.
async fn apart(plane: &Arc<Plane>, work: impl FnOnce(&Plane) -> Answer + Send + 'static) -> Answer {
    let plane = Arc::clone(plane);
    let answer = tokio::task::spawn_blocking(move || work(&plane)).await;
    // What made it panic stands on standard error.
    answer.unwrap_or_else(|_| error(StatusCode::INTERNAL_SERVER_ERROR, "no answer: see the log"))
}

fn explain(plane: &Plane, name: &str) -> Answer {
    match why::why(plane, name) {
        Some(why) => json(StatusCode::OK, &why),
        None => error(
            StatusCode::NOT_FOUND,
            &format!(
                "there is no site, node, throttled class or recent request `{}`",
                printable(name)
            ),
        ),
    }
}

/// Nothing has this name.
pub(super) fn unknown(what: &str, name: &str) -> Answer {
    let text = format!("there is no {what} `{}`", printable(name));
    error(StatusCode::NOT_FOUND, &text)
}

pub(super) async fn override_node(plane: &Plane, name: &str, order: &str) -> Answer {
    let state = AdminState::ALL.iter().find(|(_, label)| *label == order);
    let Some((state, _)) = state else {
        return error(
            StatusCode::NOT_FOUND,
            "an order to a node is one of drain, ready, maint and weight",
        );
    };
    let Some(node) = plane.shared.topology.load().node_named(name) else {
        return unknown("node", name);
    };
    // The driver has it before it is asked what a successor is to know.
    let given = match plane.upgrades.change().await {
        Ok(change) => {
            let given = plane.overrides.give(node, *state).await;
            drop(change);
            given.map_err(|error| error.to_string())
        }
        Err(why) => Err(why),
    };
    if let Err(reason) = given {
        return error(StatusCode::SERVICE_UNAVAILABLE, &reason);
    }
    let topology = plane.shared.topology.load();
    let done = Overridden {
        node: topology.node(node).name.clone(),
        state: topology.node(node).admin.label().into(),
        in_flight: plane.shared.table.in_flight(node),
        warning: unserved(&topology, node),
    };
    json(StatusCode::OK, &done)
}

/// A site whose last node was taken away refuses all requests.
fn unserved(topology: &Topology, node: NodeId) -> Option<String> {
    let site = topology.site(topology.node(node).site);
    let text = || {
        format!(
            "no node of site {} takes requests now: they are answered 503 (no_node)",
            site.name
        )
    };
    site.candidates.is_empty().then(text)
}

fn readyz(plane: &Plane) -> Answer {
    if plane.is_ready() {
        return text(StatusCode::OK, "ready\n");
    }
    let why = if plane.is_draining() {
        "draining\n"
    } else {
        "no site has a candidate\n"
    };
    text(StatusCode::SERVICE_UNAVAILABLE, why)
}

pub(super) fn not_allowed(methods: &'static str) -> Answer {
    let mut answer = error(
        StatusCode::METHOD_NOT_ALLOWED,
        &format!("only {methods} here"),
    );
    answer
        .headers_mut()
        .insert(ALLOW, HeaderValue::from_static(methods));
    answer
}

/// What a client sent, fit to be repeated to it.
fn printable(name: &str) -> String {
    let letters = name.chars().take(64);
    letters
        .map(|letter| {
            if letter.is_ascii_graphic() || letter == ' ' {
                letter
            } else {
                '?'
            }
        })
        .collect()
}

pub(super) fn error(status: StatusCode, text: &str) -> Answer {
    json(status, &ApiError { error: text.into() })
}

fn text(status: StatusCode, text: &'static str) -> Answer {
    body(status, TEXT, text)
}

pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Answer {
    match serde_json::to_vec(value) {
        Ok(bytes) => body(status, "application/json", bytes),
        Err(error) => body(
            StatusCode::INTERNAL_SERVER_ERROR,
            TEXT,
            format!("cannot write the answer: {error}\n"),
        ),
    }
}

/// An answer that no cache keeps, no page embeds and no browser guesses the type of.
pub(super) fn body(status: StatusCode, kind: &'static str, bytes: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(bytes.into()));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    for (name, value) in [
        (CONTENT_TYPE, kind),
        (CACHE_CONTROL, "no-store"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (
            CONTENT_SECURITY_POLICY,
            "default-src 'none'; frame-ancestors 'none'",
        ),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    answer
}
