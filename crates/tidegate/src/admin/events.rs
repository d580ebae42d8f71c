//! `GET /api/events`: what happened, and what operators ordered.

use http::request::Parts;
use http::{Method, StatusCode};
use percent_encoding::percent_decode_str;
use std::net::IpAddr;

use super::api::{self, Answer};
use super::plane::Plane;
use super::query::Query;
use crate::events::{About, EVENTS_MAX};
use crate::models::{Events, OPERATOR_HEADER};

/// Events that are shown unless more or fewer are asked for.
const LAST: usize = 100;
/// Most letters of an operator's name.
const NAME_MAX: usize = 64;
/// Most letters of an order's details.
const DETAILS_MAX: usize = 200;

/// The answer to `?after=17&last=100`.
pub(super) fn answer(plane: &Plane, query: Option<&str>) -> Answer {
    let wanted = Query::parsed(query, &["after", "last"]).and_then(|query| {
        let after = query.number("after", 0, 0..=u64::MAX)?;
        let last = query.number("last", LAST as u64, 1..=EVENTS_MAX as u64)?;
        Ok((after, last as usize))
    });
    let (after, last) = match wanted {
        Ok(wanted) => wanted,
        Err(why) => return api::error(StatusCode::BAD_REQUEST, &why),
    };
    let none = Events {
        since: 0,
        newest: 0,
        oldest: 0,
        events: Vec::new(),
    };
    let events = plane.output.log.map_or(none, |log| log.after(after, last));
    api::json(StatusCode::OK, &events)
}

/// What asks: the name that its program gives, and its address.
pub(super) fn operator(head: &Parts, from: IpAddr) -> String {
    let name = head.headers.get(OPERATOR_HEADER);
    let name = name
        .and_then(|it| std::str::from_utf8(it.as_bytes()).ok())
        .unwrap_or_default();
    let is_plain = |it: &char| it.is_alphanumeric() || " ._-@".contains(*it);
    let name: String = name.chars().filter(is_plain).take(NAME_MAX).collect();
    match name.trim() {
        "" => from.to_string(),
        // A name has no brackets.
        name => format!("{name} ({from})"),
    }
}

/// Keeps an order that was carried out.
pub(super) fn note_order(plane: &Plane, head: &Parts, body: &[u8], from: IpAddr) {
    let Some(order) = Ordered::of(&head.method, head.uri.path(), head.uri.query(), body) else {
        return;
    };
    let by = operator(head, from);
    let topology = plane.shared.topology.load();
    let named = order.node.as_deref();
    let node = named.and_then(|name| topology.node_named(name));
    let site = node.map(|it| topology.site(topology.node(it).site).name.as_str());
    let about = About {
        site: site.or(order.site.as_deref()),
        node: named,
        by: Some(&by),
    };
    let text = format!("ordered by {by}: {}", order.text);
    plane.output.event_about("ordered", about, &text);
}

/// An order in words.
#[derive(Debug, PartialEq, Eq)]
struct Ordered {
    text: String,
    node: Option<String>,
    site: Option<String>,
}

impl Ordered {
    fn of(method: &Method, path: &str, query: Option<&str>, body: &[u8]) -> Option<Self> {
        let what = path.strip_prefix("/api/")?;
        if matches!(*method, Method::GET | Method::HEAD) || query == Some("dry_run") {
            return None;
        }
        let object: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
        let field = |name: &str| object.get(name)?.as_str().map(str::to_owned);
        let details = details(&object);
        let decoded = |name: &str| percent_decode_str(name).decode_utf8_lossy().into_owned();
        let segments: Vec<_> = what.split('/').collect();
        let (verb, node) = match segments.as_slice() {
            ["nodes", name, "weight"] => ("weigh".into(), Some(decoded(name))),
            ["nodes", name, order] => ((*order).to_owned(), Some(decoded(name))),
            ["nodes", name] if *method == Method::DELETE => ("remove".into(), Some(decoded(name))),
            ["nodes", name] => ("change".into(), Some(decoded(name))),
            ["nodes"] => ("add a node".into(), field("name")),
            ["moves"] => ("move".into(), field("node")),
            other => (other.join(" "), None),
        };
        let named = node.iter().map(String::as_str);
        let words: Vec<_> = (std::iter::once(verb.as_str()).chain(named))
            .chain(Some(details.as_str()).filter(|it| !it.is_empty()))
            .collect();
        Some(Self {
            text: words.join(" "),
            site: field("site").or_else(|| field("to")),
            node,
        })
    }
}

/// `class GET /search, concurrency 2`: the order's other words.
fn details(object: &serde_json::Value) -> String {
    let fields = object.as_object().into_iter().flatten();
    let fields = fields
        .filter(|(name, value)| !["node", "name"].contains(&name.as_str()) && !value.is_null());
    let each = fields.map(|(name, value)| match value.as_str() {
        Some(text) => format!("{name} {text}"),
        None => format!("{name} {value}"),
    });
    let all = each.collect::<Vec<_>>().join(", ");
    let plain = all.chars().filter(|it| !it.is_control());
    plain.take(DETAILS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_said_in_words() {
        let of = |method, path, body: &str| Ordered::of(&method, path, None, body.as_bytes());
        let said = |method, path, body| of(method, path, body).map(|it| it.text);
        for (path, body, wanted) in [
            ("/api/nodes/n1/drain", "", "drain n1"),
            (
                "/api/nodes/n%201",
                r#"{"weight":2.5}"#,
                "change n 1 weight 2.5",
            ),
            (
                "/api/nodes",
                r#"{"name":"n9","address":"10.0.0.9:80","site":"shop"}"#,
                "add a node n9 address 10.0.0.9:80, site shop",
            ),
            (
                "/api/throttle",
                r#"{"class":"GET /a","concurrency":2,"rate":null}"#,
                "throttle class GET /a, concurrency 2",
            ),
            (
                "/api/moves",
                r#"{"node":"n1","to":"shop"}"#,
                "move n1 to shop",
            ),
            (
                "/api/moves/freeze",
                r#"{"site":"shop"}"#,
                "moves freeze site shop",
            ),
            ("/api/reload", "", "reload"),
            ("/api/throttle", "not json\n", "throttle"),
        ] {
            assert_eq!(said(Method::POST, path, body).as_deref(), Some(wanted));
        }
        let removed = of(Method::DELETE, "/api/nodes/n1", "").unwrap();
        assert_eq!(
            (removed.text.as_str(), removed.node.as_deref()),
            ("remove n1", Some("n1"))
        );
        let moved = of(Method::POST, "/api/moves", r#"{"node":"n1","to":"shop"}"#).unwrap();
        assert_eq!(moved.site.as_deref(), Some("shop"));
        assert_eq!(said(Method::GET, "/api/nodes", ""), None);
        assert_eq!(
            Ordered::of(&Method::POST, "/api/reload", Some("dry_run"), b""),
            None
        );
    }

    #[test]
    fn an_operator_is_known_by_name_and_address() {
        let from = IpAddr::from([10, 0, 0, 9]);
        let of = |name: Option<&str>| {
            let mut request = http::Request::builder();
            if let Some(name) = name {
                request = request.header(OPERATOR_HEADER, name);
            }
            operator(&request.body(()).unwrap().into_parts().0, from)
        };
        assert_eq!(of(None), "10.0.0.9");
        assert_eq!(of(Some("anna")), "anna (10.0.0.9)");
        assert_eq!(of(Some("<>")), "10.0.0.9");
        assert_eq!(of(Some("<b>anna")), "banna (10.0.0.9)");
        assert_eq!(
            of(Some(&"a".repeat(99))).len(),
            NAME_MAX + " (10.0.0.9)".len()
        );
    }
}
