//! EndpointSlices of a service, and the nodes in them.
//!
//! Formula: of all endpoints with the wanted port and an address of the preferred family, those that are *ready* are
//! nodes. If none is, those that *serve* while they *terminate* are. An endpoint that terminates and is no node is
//! *ending*. Inputs: the slices, by their names. Failure case: a controller that says of endpoints that serve that they
//! are not ready takes them out; `max_drop` bounds how many at once. Source: KEP-1669, as kube-proxy does it; conditions
//! that are not known as the API's reference has them: `ready` and `serving` count as true, `terminating` as false.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use serde::Deserialize;

use crate::source::{Found, SourceError};

/// Most endpoints of a service.
const ENDPOINTS_MAX: usize = 20_000;
/// Longest name that a node may have.
const NAME_MAX: usize = 64;

/// Which port of a service's endpoints serves HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortChoice {
    /// The only one that there is.
    Only,
    /// The one of this name.
    Name(String),
    /// This one.
    Number(u16),
}

/// A list of slices.
#[derive(Debug, Deserialize)]
pub(super) struct SliceList {
    /// Of the list.
    pub(super) metadata: ListMetadata,
    /// The slices.
    #[serde(default)]
    pub(super) items: Option<Vec<Slice>>,
}

/// Where a list stands.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ListMetadata {
    /// What to watch from.
    pub(super) resource_version: String,
    /// What to ask for the rest with.
    #[serde(default, rename = "continue")]
    pub(super) rest: Option<String>,
}

/// A slice.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Slice {
    /// Its name and version.
    pub(super) metadata: SliceMetadata,
    #[serde(default)]
    address_type: Option<String>,
    #[serde(default)]
    endpoints: Option<Vec<Endpoint>>,
    #[serde(default)]
    ports: Option<Vec<Port>>,
}

/// A slice's name and version.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct SliceMetadata {
    /// Its name, which a bookmark has not.
    pub(super) name: String,
    /// What to watch from once it is known.
    pub(super) resource_version: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Endpoint {
    #[serde(default)]
    addresses: Vec<String>,
    #[serde(default)]
    conditions: Option<Conditions>,
    #[serde(default)]
    target_ref: Option<TargetRef>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
struct Conditions {
    ready: Option<bool>,
    serving: Option<bool>,
    terminating: Option<bool>,
}

#[derive(Clone, Debug, Deserialize)]
struct TargetRef {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    name: String,
}

#[derive(Clone, Debug, Deserialize)]
struct Port {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    port: Option<u16>,
    #[serde(default)]
    protocol: Option<String>,
}

/// What becomes of an endpoint, from the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Readiness {
    Ready,
    /// It serves what it has, and will end.
    ServesToEnd,
    Ends,
    Unready,
}

/// The endpoints of a service.
#[derive(Debug, PartialEq)]
pub(super) struct Endpoints {
    /// Those that get requests.
    pub(super) nodes: Vec<Found>,
    /// Those that will end.
    pub(super) ending: Vec<SocketAddr>,
}

/// An endpoint that has the wanted port.
#[derive(Debug)]
struct Candidate {
    readiness: Readiness,
    name: Option<String>,
}

/// The nodes of these slices.
pub(super) fn nodes<'a>(
    slices: impl Iterator<Item = &'a Slice> + Clone,
    port: &PortChoice,
) -> Result<Endpoints, SourceError> {
    // A pod with two addresses is one node.
    let family = match slices.clone().any(|it| it.is_of("IPv4")) {
        true => "IPv4",
        false => "IPv6",
    };
    let mut all: BTreeMap<SocketAddr, Candidate> = BTreeMap::new();
    for slice in slices.filter(|it| it.is_of(family)) {
        let Some(port) = slice.port(port)? else {
            continue;
        };
        for endpoint in slice.endpoints.iter().flatten() {
            let Some(ip) = endpoint
                .addresses
                .first()
                .and_then(|it| it.parse::<IpAddr>().ok())
            else {
                continue;
            };
            let found = Candidate {
                readiness: endpoint.readiness(),
                name: endpoint.pod(),
            };
            // While it moves from slice to slice it may be in both.
            let best = all.entry(SocketAddr::new(ip, port)).or_insert(Candidate {
                readiness: Readiness::Unready,
                name: None,
            });
            if found.readiness <= best.readiness {
                *best = found;
            }
        }
        if all.len() > ENDPOINTS_MAX {
            return Err(SourceError::malformed(format!(
                "more than {ENDPOINTS_MAX} endpoints"
            )));
        }
    }
    Ok(chosen(all))
}

fn chosen(all: BTreeMap<SocketAddr, Candidate>) -> Endpoints {
    let has = |wanted| all.values().any(|it| it.readiness == wanted);
    let wanted = match has(Readiness::Ready) {
        true => Readiness::Ready,
        false => Readiness::ServesToEnd,
    };
    let is_ending =
        |it: &Candidate| matches!(it.readiness, Readiness::ServesToEnd | Readiness::Ends);
    let mut endpoints = Endpoints {
        nodes: Vec::new(),
        ending: Vec::new(),
    };
    for (address, candidate) in all {
        if candidate.readiness == wanted {
            endpoints.nodes.push(Found {
                name: candidate.name,
                address,
                weight: None,
            });
        } else if is_ending(&candidate) {
            endpoints.ending.push(address);
        }
    }
    endpoints
}

impl Slice {
    fn is_of(&self, family: &str) -> bool {
        let has_some = self.endpoints.as_ref().is_some_and(|it| !it.is_empty());
        has_some && self.address_type.as_deref() == Some(family)
    }

    /// The port that is wanted; none: this slice has none.
    fn port(&self, wanted: &PortChoice) -> Result<Option<u16>, SourceError> {
        let is_tcp = |port: &&Port| port.protocol.as_deref().is_none_or(|it| it == "TCP");
        let mut ports = self.ports.iter().flatten().filter(is_tcp);
        let found = match wanted {
            PortChoice::Name(name) => ports.find(|it| it.name.as_deref() == Some(name)),
            PortChoice::Number(number) => ports.find(|it| it.port == Some(*number)),
            PortChoice::Only => {
                let first = ports.next();
                if ports.next().is_some() {
                    let why = "the service has several ports: `port` says which".into();
                    return Err(SourceError::Malformed(why));
                }
                first
            }
        };
        Ok(found.and_then(|it| it.port))
    }
}

impl Endpoint {
    fn readiness(&self) -> Readiness {
        let conditions = self.conditions.unwrap_or_default();
        let ready = conditions.ready.unwrap_or(true);
        let serving = conditions.serving.unwrap_or(ready);
        match (conditions.terminating.unwrap_or(false), serving) {
            (false, _) if ready => Readiness::Ready,
            (true, true) => Readiness::ServesToEnd,
            (true, false) => Readiness::Ends,
            (false, _) => Readiness::Unready,
        }
    }

    /// The pod's name, if it can be a node's.
    fn pod(&self) -> Option<String> {
        let target = self.target_ref.as_ref().filter(|it| it.kind == "Pod")?;
        let fits = (1..=NAME_MAX).contains(&target.name.len());
        fits.then(|| target.name.clone())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn slice(endpoints: &Value) -> Slice {
        let slice = json!({
            "metadata": {"name": "web-1", "resourceVersion": "1"},
            "addressType": "IPv4",
            "endpoints": endpoints,
            "ports": [
                {"name": "http", "port": 8080, "protocol": "TCP"},
                {"name": "dns", "port": 53, "protocol": "UDP"},
            ],
        });
        serde_json::from_value(slice).unwrap()
    }

    fn pod(name: &str, ip: &str, conditions: &Value) -> Value {
        json!({
            "addresses": [ip],
            "conditions": conditions,
            "targetRef": {"kind": "Pod", "name": name},
        })
    }

    fn found(slices: &[Slice], port: &PortChoice) -> (Vec<String>, Vec<String>) {
        let found = nodes(slices.iter(), port).unwrap();
        let shown = |it: &Found| format!("{} {}", it.name.as_deref().unwrap_or("-"), it.address);
        (
            found.nodes.iter().map(shown).collect(),
            found.ending.iter().map(ToString::to_string).collect(),
        )
    }

    #[test]
    fn ready_endpoints_are_nodes_and_terminating_ones_end() {
        let slices = [slice(&json!([
            pod("a", "10.0.0.1", &json!({"ready": true, "serving": true, "terminating": false})),
            pod("b", "10.0.0.2", &json!({"ready": false, "serving": true, "terminating": true})),
            pod("c", "10.0.0.3", &json!({"ready": false, "serving": false, "terminating": true})),
            pod("d", "10.0.0.4", &json!({"ready": false})),
            pod("e", "10.0.0.5", &json!({})),
            {"addresses": ["10.0.0.6"]},
            {"addresses": ["not an address"]},
            {"addresses": []},
        ]))];
        let (nodes, ending) = found(&slices, &PortChoice::Only);
        assert_eq!(
            nodes,
            ["a 10.0.0.1:8080", "e 10.0.0.5:8080", "- 10.0.0.6:8080"]
        );
        assert_eq!(ending, ["10.0.0.2:8080", "10.0.0.3:8080"]);
    }

    #[test]
    fn while_none_is_ready_those_that_serve_to_their_end_are_nodes() {
        let slices = [slice(&json!([
            pod(
                "b",
                "10.0.0.2",
                &json!({"ready": false, "serving": true, "terminating": true})
            ),
            pod(
                "c",
                "10.0.0.3",
                &json!({"ready": false, "serving": false, "terminating": true})
            ),
        ]))];
        let (nodes, ending) = found(&slices, &PortChoice::Only);
        assert_eq!(nodes, ["b 10.0.0.2:8080"]);
        assert_eq!(ending, ["10.0.0.3:8080"]);
    }

    #[test]
    fn an_endpoint_in_two_slices_is_one_node_and_ready_if_either_says_so() {
        let unready = slice(&json!([pod("a", "10.0.0.1", &json!({"ready": false}))]));
        let ready = slice(&json!([pod("a", "10.0.0.1", &json!({"ready": true}))]));
        for slices in [[unready.clone(), ready.clone()], [ready, unready]] {
            assert_eq!(found(&slices, &PortChoice::Only).0, ["a 10.0.0.1:8080"]);
        }
    }

    #[test]
    fn a_port_is_chosen_by_name_or_number_or_is_the_only_one() {
        let mut two = slice(&json!([pod("a", "10.0.0.1", &json!({}))]));
        let more = json!({"name": "admin", "port": 9000});
        two.ports
            .as_mut()
            .unwrap()
            .push(serde_json::from_value(more).unwrap());
        let two = [two];
        let by_name = PortChoice::Name("admin".into());
        assert_eq!(found(&two, &by_name).0, ["a 10.0.0.1:9000"]);
        assert_eq!(
            found(&two, &PortChoice::Number(8080)).0,
            ["a 10.0.0.1:8080"]
        );
        assert!(found(&two, &PortChoice::Number(53)).0.is_empty());
        assert!(found(&two, &PortChoice::Name("x".into())).0.is_empty());
        assert!(nodes(two.iter(), &PortChoice::Only).is_err());
    }

    #[test]
    fn of_two_families_one_is_taken_and_null_stands_for_nothing() {
        let four = slice(&json!([pod("a", "10.0.0.1", &json!({}))]));
        let mut six = slice(&json!([pod("a", "fd00::1", &json!({}))]));
        six.address_type = Some("IPv6".into());
        let empty = slice(&Value::Null);
        let both = [six.clone(), four, empty.clone()];
        assert_eq!(found(&both, &PortChoice::Only).0, ["a 10.0.0.1:8080"]);
        assert_eq!(
            found(&[empty, six], &PortChoice::Only).0,
            ["a [fd00::1]:8080"]
        );
    }
}
