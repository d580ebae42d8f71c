//! What was learned, and what operators have set, as JSON.
//!
//! Each part is read by itself: one that is not understood, as another version of this program may write it, is left out and
//! named, and the others are used. What operators have set is read whatever the version and age of the rest.

use std::net::SocketAddr;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tidegate_core::admission::LearnedAdmission;
use tidegate_core::director::LearnedCosts;
use tidegate_core::director::learned::{
    LearnedAgent, LearnedEjection, LearnedNode, LearnedSite, LearnedTrial,
};
use tidegate_core::moves::words::NODES_MAX;
use tidegate_core::topology::{AdminState, Cause};
use tidegate_reported::AgentLine;

use super::automatic::{self, AutomaticWritten};
use super::{AGE_MAX, BYTES_MAX, Learned, LearnedError, OperatorThrottle};
use crate::models::{AddedNode, LimitsModel, MovedNodes};

/// Of this form. What was learned in another one is not read: numbers are in a fixed order.
pub(super) const VERSION: u32 = 1;
/// A time that is so far ahead is none of ours.
const AHEAD_MAX: Duration = Duration::from_secs(5);

/// All of it, as it is written.
#[derive(Serialize)]
struct Written {
    version: u32,
    /// Seconds of the Unix epoch.
    at: f64,
    sites: Vec<SiteWritten>,
    nodes: Vec<NodeWritten>,
    operators: OperatorsWritten,
    #[serde(skip_serializing_if = "Option::is_none")]
    automatic: Option<AutomaticWritten>,
}

/// What operators have set.
#[derive(Serialize)]
struct OperatorsWritten {
    taken_out: Vec<TakenOutWritten>,
    throttles: Vec<ThrottleWritten>,
    #[serde(skip_serializing_if = "Option::is_none")]
    added: Option<Vec<AddedNode>>,
    #[serde(skip_serializing_if = "MovedNodes::is_empty")]
    moved: MovedNodes,
}

/// The same as it is read, part by part.
#[derive(Deserialize)]
struct Parts<'a> {
    #[serde(borrow)]
    version: Option<&'a RawValue>,
    #[serde(borrow)]
    at: Option<&'a RawValue>,
    #[serde(borrow)]
    sites: Option<&'a RawValue>,
    #[serde(borrow)]
    nodes: Option<&'a RawValue>,
    #[serde(borrow)]
    operators: Option<&'a RawValue>,
    #[serde(borrow)]
    automatic: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
struct OperatorParts<'a> {
    #[serde(borrow)]
    taken_out: Option<&'a RawValue>,
    #[serde(borrow)]
    throttles: Option<&'a RawValue>,
    #[serde(borrow)]
    added: Option<&'a RawValue>,
    #[serde(borrow)]
    moved: Option<&'a RawValue>,
}

/// A node that an operator has added, maybe with more of a later version.
#[derive(Deserialize)]
struct AddedParts {
    name: String,
    address: SocketAddr,
    site: String,
    weight: f32,
}

#[derive(Serialize, Deserialize)]
struct TakenOutWritten {
    name: String,
    state: String,
}

#[derive(Serialize, Deserialize)]
struct SiteWritten {
    name: String,
    admission: Option<AdmissionWritten>,
}

#[derive(Serialize, Deserialize)]
struct AdmissionWritten {
    alone: [f64; 3],
    unloaded: Option<f64>,
}

#[derive(Serialize, Deserialize)]
struct NodeWritten {
    name: String,
    address: SocketAddr,
    site: String,
    costs: Option<Vec<f64>>,
    limit: Option<f64>,
    ramp: Option<f64>,
    ejected: Option<EjectionWritten>,
    trial: Option<TrialWritten>,
    check_failing: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    agent: Option<AgentWritten>,
}

/// What a node's agent has said, as a line of HAProxy's agent check.
#[derive(Serialize, Deserialize)]
struct AgentWritten {
    line: String,
    out_for: f64,
    from: Option<SocketAddr>,
}

/// Durations in seconds, as all here.
#[derive(Serialize, Deserialize)]
struct EjectionWritten {
    cause: String,
    age: f64,
    wait: f64,
    left: f64,
}

#[derive(Serialize, Deserialize)]
struct TrialWritten {
    wait: f64,
    age: f64,
}

#[derive(Serialize, Deserialize)]
struct ThrottleWritten {
    class: String,
    limits: LimitsModel,
    left: Option<f64>,
}

/// As text.
///
/// # Errors
/// There is a number that text cannot have.
pub(super) fn encode(learned: &Learned, unix: Duration) -> Result<Vec<u8>, String> {
    let sites = learned.cluster.sites.iter();
    let sites = sites.map(|site| SiteWritten {
        name: site.name.clone(),
        admission: site.admission.map(|it| AdmissionWritten {
            alone: it.alone,
            unloaded: it.unloaded,
        }),
    });
    let nodes = learned.cluster.nodes.iter();
    let taken_out = learned.cluster.taken_out.iter();
    let taken_out = taken_out.map(|(name, state)| TakenOutWritten {
        name: name.clone(),
        state: state.label().into(),
    });
    let throttles = learned.throttles.iter().map(|it| ThrottleWritten {
        class: it.class.clone(),
        limits: LimitsModel::of(&it.limits),
        left: it.left.map(|left| left.as_secs_f64()),
    });
    let written = Written {
        version: VERSION,
        at: unix.as_secs_f64(),
        sites: sites.collect(),
        nodes: nodes.map(node_written).collect(),
        operators: OperatorsWritten {
            taken_out: taken_out.collect(),
            throttles: throttles.collect(),
            added: learned.added.clone(),
            moved: learned.moved.clone(),
        },
        automatic: learned.policy.as_ref().map(automatic::encoded),
    };
    serde_json::to_vec(&written).map_err(|error| error.to_string())
}

fn node_written(node: &LearnedNode) -> NodeWritten {
    NodeWritten {
        name: node.name.clone(),
        address: node.address,
        site: node.site.clone(),
        costs: node.costs.map(|it| it.numbers().collect()),
        limit: node.limit,
        ramp: node.ramp,
        ejected: node.ejected.map(|it| EjectionWritten {
            cause: it.cause.label().into(),
            age: it.age.as_secs_f64(),
            wait: it.wait.as_secs_f64(),
            left: it.left.as_secs_f64(),
        }),
        trial: node.trial.map(|it| TrialWritten {
            wait: it.wait.as_secs_f64(),
            age: it.age.as_secs_f64(),
        }),
        check_failing: node.check_failing.map(|it| it.as_secs_f64()),
        agent: node.agent.as_ref().map(|it| AgentWritten {
            line: AgentLine::write(&it.answer),
            out_for: it.out_for.as_secs_f64(),
            from: it.from,
        }),
    }
}

/// Of text, as it is at this time.
///
/// # Errors
/// It is no such text at all.
pub(super) fn decode(bytes: &[u8], unix: Duration) -> Result<Learned, LearnedError> {
    if bytes.len() > BYTES_MAX {
        return Err(LearnedError::Long);
    }
    let damaged = |error: serde_json::Error| LearnedError::Damaged(error.to_string());
    let parts: Parts<'_> = serde_json::from_slice(bytes).map_err(damaged)?;
    let mut ignored = Ignored::default();
    let mut learned = Learned::default();
    match age(&parts, unix) {
        Ok(age) => {
            learned.age = age;
            let sites = ignored.items("sites", parts.sites, |it| Ok(site(it)));
            let nodes = ignored.items("nodes", parts.nodes, |it| Ok(node(it)));
            (learned.cluster.sites, learned.cluster.nodes) = (sites, nodes);
        }
        Err(why) => learned.refused = Some(why),
    }
    let operators = ignored.one("what operators have set", parts.operators);
    let operators: OperatorParts<'_> = operators.unwrap_or_default();
    learned.cluster.taken_out = ignored.items("drained nodes", operators.taken_out, taken_out);
    learned.throttles = ignored.items("throttles", operators.throttles, throttle);
    let added = operators
        .added
        .map(|added| ignored.items("added nodes", Some(added), added_node));
    learned.added = added.map(|added| ignored.named_once(added));
    let moved = ignored.one("moved nodes", operators.moved);
    learned.moved = ignored.few(moved.unwrap_or_default());
    learned.policy = automatic::decoded(parts.automatic, learned.age, &mut ignored);
    learned.ignored = ignored.0;
    Ok(learned)
}

/// How old what was learned is, if it can be used.
fn age(parts: &Parts<'_>, unix: Duration) -> Result<Duration, LearnedError> {
    let damaged = |what: &str| LearnedError::Damaged(format!("its {what} is none"));
    let version = parts.version.and_then(|it| parsed(it).ok());
    let version: u32 = version.ok_or_else(|| damaged("version"))?;
    if version != VERSION {
        return Err(LearnedError::Version(version));
    }
    let at = parts.at.and_then(|it| parsed(it).ok());
    let at = at.and_then(seconds).ok_or_else(|| damaged("time"))?;
    let ahead = at.saturating_sub(unix);
    if ahead > AHEAD_MAX {
        return Err(LearnedError::Future(ahead.as_secs()));
    }
    let age = unix.saturating_sub(at);
    match age > AGE_MAX {
        true => Err(LearnedError::Old(age.as_secs())),
        false => Ok(age),
    }
}

fn parsed<'a, T: Deserialize<'a>>(part: &'a RawValue) -> Result<T, String> {
    serde_json::from_str(part.get()).map_err(|error| error.to_string())
}

/// What is not understood, in sentences.
#[derive(Default)]
pub(super) struct Ignored(pub(super) Vec<String>);

impl Ignored {
    /// A part as a whole; none if it is not there or not understood.
    pub(super) fn one<'a, T: Deserialize<'a>>(
        &mut self,
        what: &str,
        part: Option<&'a RawValue>,
    ) -> Option<T> {
        let part = parsed(part?);
        part.inspect_err(|why| self.0.push(format!("{what}: {why}")))
            .ok()
    }

    /// The items of a part, those left out that make no sense.
    pub(super) fn items<T: DeserializeOwned, U>(
        &mut self,
        what: &str,
        part: Option<&RawValue>,
        of: impl Fn(T) -> Result<U, String>,
    ) -> Vec<U> {
        let items: Vec<&RawValue> = self.one(what, part).unwrap_or_default();
        let all = items.len();
        let (mut good, mut first) = (Vec::new(), None);
        for (place, item) in items.into_iter().enumerate() {
            match parsed(item).and_then(&of) {
                Ok(item) => good.push(item),
                Err(why) => first = first.or(Some((place, why))),
            }
        }
        if let Some((place, why)) = first {
            let left_out = all - good.len();
            let text = format!("{left_out} of {all} {what}: the one at place {place}: {why}");
            self.0.push(text);
        }
        good
    }

    /// No more moved nodes than can be moved.
    fn few(&mut self, moved: MovedNodes) -> MovedNodes {
        if moved.len() > NODES_MAX {
            let (all, left_out) = (moved.len(), moved.len() - NODES_MAX);
            let text = format!("{left_out} of {all} moved nodes: at most {NODES_MAX} can be moved");
            self.0.push(text);
        }
        moved.into_iter().take(NODES_MAX).collect()
    }

    /// Of nodes with the same name the first one, and no more of them than there may be.
    fn named_once(&mut self, nodes: Vec<AddedNode>) -> Vec<AddedNode> {
        let all = nodes.len();
        let mut names = std::collections::BTreeSet::new();
        let once = nodes.into_iter().filter(|it| names.insert(it.name.clone()));
        let nodes: Vec<_> = once.take(AddedNode::MAX).collect();
        if nodes.len() < all {
            let left_out = all - nodes.len();
            let text = format!(
                "{left_out} of {all} added nodes: a name is a node's once, and {} the most",
                AddedNode::MAX
            );
            self.0.push(text);
        }
        nodes
    }
}

fn site(site: SiteWritten) -> LearnedSite {
    LearnedSite {
        name: site.name,
        admission: site.admission.map(|it| LearnedAdmission {
            alone: it.alone,
            unloaded: it.unloaded,
        }),
    }
}

fn node(node: NodeWritten) -> LearnedNode {
    let costs = node.costs.as_deref();
    LearnedNode {
        costs: costs.and_then(LearnedCosts::of_numbers),
        name: node.name,
        address: node.address,
        site: node.site,
        limit: node.limit,
        ramp: node.ramp,
        ejected: node.ejected.and_then(|it| {
            Some(LearnedEjection {
                cause: named(Cause::ALL, &it.cause)?,
                age: seconds(it.age)?,
                wait: seconds(it.wait)?,
                left: seconds(it.left)?,
            })
        }),
        trial: node.trial.and_then(|it| {
            Some(LearnedTrial {
                wait: seconds(it.wait)?,
                age: seconds(it.age)?,
            })
        }),
        check_failing: node.check_failing.and_then(seconds),
        agent: node.agent.and_then(|it| {
            Some(LearnedAgent {
                answer: AgentLine::parse(it.line.as_bytes())?.answer,
                out_for: seconds(it.out_for)?,
                from: it.from,
            })
        }),
    }
}

fn taken_out(written: TakenOutWritten) -> Result<(String, AdminState), String> {
    match named(AdminState::ALL, &written.state) {
        Some(state) => Ok((written.name, state)),
        None => Err("it is neither drained nor in maintenance".into()),
    }
}

fn added_node(parts: AddedParts) -> Result<AddedNode, String> {
    let AddedParts {
        name,
        address,
        site,
        weight,
    } = parts;
    let node = AddedNode {
        name,
        address,
        site,
        weight,
    };
    node.fit().map(|()| node)
}

fn throttle(written: ThrottleWritten) -> Result<OperatorThrottle, String> {
    let left = match written.left {
        Some(left) => Some(seconds(left).ok_or("its time is none")?),
        None => None,
    };
    Ok(OperatorThrottle {
        class: written.class,
        limits: written.limits.checked()?,
        left,
    })
}

pub(super) fn seconds(seconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds).ok()
}

fn named<T: Copy>(all: &[(T, &str)], name: &str) -> Option<T> {
    let found = all.iter().find(|(_, label)| *label == name);
    found.map(|(value, _)| *value)
}

#[cfg(test)]
mod tests {
    use tidegate_core::director::learned::LearnedCluster;
    use tidegate_core::throttle::ThrottleLimits;

    use super::*;

    const NOW: Duration = Duration::from_secs(1_700_000_000);

    fn learned() -> Learned {
        let second = Duration::from_secs(1);
        let node = LearnedNode {
            name: "n1".into(),
            address: ([10, 0, 0, 1], 80).into(),
            site: "shop".into(),
            costs: LearnedCosts::of_numbers(&[0.5; 17]),
            limit: Some(12.5),
            ramp: Some(0.25),
            ejected: Some(LearnedEjection {
                cause: Cause::Errors,
                age: 3 * second,
                wait: 10 * second,
                left: 7 * second,
            }),
            trial: Some(LearnedTrial {
                wait: 10 * second,
                age: 20 * second,
            }),
            check_failing: Some(second),
            agent: Some(LearnedAgent {
                answer: AgentLine::parse(b"75% drain maxconn:20 down #disk full\n")
                    .unwrap()
                    .answer,
                out_for: 4 * second,
                from: Some(([10, 0, 0, 1], 9902).into()),
            }),
        };
        Learned {
            age: Duration::ZERO,
            cluster: LearnedCluster {
                sites: vec![LearnedSite {
                    name: "shop".into(),
                    admission: Some(LearnedAdmission {
                        alone: [1.0, 2.0, 3.0],
                        unloaded: Some(0.01),
                    }),
                }],
                nodes: vec![node],
                taken_out: vec![("n1".into(), AdminState::Drain)],
            },
            throttles: vec![OperatorThrottle {
                class: "GET /search".into(),
                limits: ThrottleLimits {
                    concurrency: Some(3),
                    ..ThrottleLimits::default()
                },
                left: Some(60 * second),
            }],
            added: Some(vec![added("n7")]),
            moved: [("n1".into(), "blog".into())].into(),
            ..Learned::default()
        }
    }

    fn added(name: &str) -> AddedNode {
        AddedNode {
            name: name.into(),
            address: ([10, 0, 0, 7], 80).into(),
            site: "shop".into(),
            weight: 1.5,
        }
    }

    /// What is read of a text in which this stands in the place of that.
    fn with(from: &str, to: &str) -> Learned {
        let text = String::from_utf8(encode(&learned(), NOW).unwrap()).unwrap();
        assert!(text.contains(from), "{from}: {text}");
        decode(text.replacen(from, to, 1).as_bytes(), NOW).unwrap()
    }

    #[test]
    fn what_is_written_is_read_again() {
        let mut learned = learned();
        learned.cluster.nodes[0].costs = LearnedCosts::of_numbers(&[0.5; 17]);
        assert!(learned.cluster.nodes[0].costs.is_some());
        let bytes = encode(&learned, NOW).unwrap();
        assert_eq!(decode(&bytes, NOW), Ok(learned.clone()));
        let later = NOW + Duration::from_secs(7);
        let age = later - NOW;
        assert_eq!(decode(&bytes, later), Ok(Learned { age, ..learned }));
    }

    #[test]
    fn what_is_old_damaged_long_or_of_another_version_is_refused_by_name() {
        let bytes = encode(&learned(), NOW).unwrap();
        let limit = NOW + AGE_MAX;
        assert!(decode(&bytes, limit).is_ok());
        let late = limit + Duration::from_secs(1);
        let early = NOW - Duration::from_secs(6);
        let refused = |bytes: &[u8], at| decode(bytes, at).unwrap().refused;
        assert_eq!(refused(&bytes, late), Some(LearnedError::Old(301)));
        assert_eq!(refused(&bytes, early), Some(LearnedError::Future(6)));
        let other = br#"{"version":2,"numbers":"in another order"}"#;
        assert_eq!(refused(other, NOW), Some(LearnedError::Version(2)));
        for none in [
            &b"{}"[..],
            br#"{"version":1}"#,
            br#"{"version":1,"at":-1}"#,
            br#"{"version":[1],"at":1}"#,
        ] {
            let why = refused(none, NOW);
            assert!(matches!(why, Some(LearnedError::Damaged(_))), "{why:?}");
        }
        let long = vec![b' '; BYTES_MAX + 1];
        assert_eq!(decode(&long, NOW), Err(LearnedError::Long));
        for end in 0..bytes.len() {
            let cut = decode(&bytes[..end], NOW);
            assert!(
                matches!(cut, Err(LearnedError::Damaged(_))),
                "{end}: {cut:?}"
            );
        }
        for hostile in [&b"[]"[..], b"", b"7", b"\xff\xfe", b"{\"version\":1"] {
            let refused = decode(hostile, NOW);
            assert!(
                matches!(refused, Err(LearnedError::Damaged(_))),
                "{refused:?}"
            );
        }
    }

    #[test]
    fn parts_that_make_no_sense_are_left_out() {
        let node = |learned: Learned| learned.cluster.nodes[0].clone();
        assert_eq!(node(with("\"errors\"", "\"envy\"")).ejected, None);
        assert_eq!(
            node(with(
                "\"wait\":10.0,\"age\":20",
                "\"wait\":-10.0,\"age\":20"
            ))
            .trial,
            None
        );
        assert_eq!(
            node(with("\"check_failing\":1.0", "\"check_failing\":1e99")).check_failing,
            None
        );
        assert_eq!(node(with("\"costs\":[", "\"costs\":[7.0,")).costs, None);
        assert_eq!(with("\"drain\"", "\"gone\"").cluster.taken_out, []);
        assert_eq!(with("\"rate\":null", "\"rate\":-3.0").throttles, []);
        // A node that nothing can be made of costs no other.
        let limits = with("\"limit\":12.5", "\"limit\":\"many\"");
        assert_eq!(
            (limits.cluster.nodes.len(), limits.cluster.sites.len()),
            (0, 1)
        );
        assert!(
            limits.ignored[0].starts_with("1 of 1 nodes: the one at place 0: invalid type"),
            "{:?}",
            limits.ignored
        );
        let weight = with("\"weight\":1.5", "\"weight\":0");
        assert_eq!(weight.added, Some(Vec::new()));
        assert!(weight.ignored[0].contains("weight"), "{:?}", weight.ignored);
    }

    #[test]
    fn what_operators_have_set_is_read_whatever_the_version_and_the_rest() {
        let known = learned();
        for (from, to) in [
            ("\"version\":1", "\"version\":2"),
            ("\"version\":1", "\"version\":\"next\""),
            ("\"at\":", "\"when\":"),
            ("\"at\":", "\"more\":{\"of\":[1]},\"at\":"),
            ("\"nodes\":[", "\"nodes\":[null,7,"),
            ("\"sites\":[", "\"sites\":{},\"former\":["),
        ] {
            let read = with(from, to);
            let operators = (
                &read.cluster.taken_out,
                &read.throttles,
                &read.added,
                &read.moved,
            );
            let wanted = (
                &known.cluster.taken_out,
                &known.throttles,
                &known.added,
                &known.moved,
            );
            assert_eq!(operators, wanted, "{from} {to}");
            assert_ne!(
                read.refused.is_some(),
                read.cluster.nodes == known.cluster.nodes
            );
        }
        let none = with("\"operators\":{", "\"operators\":7,\"others\":{");
        assert_eq!((none.added, none.throttles), (None, Vec::new()));
        assert_eq!(none.cluster.nodes, known.cluster.nodes);
        assert!(none.ignored[0].starts_with("what operators have set: "));
        // Of an older program nothing is said, and nothing is wrong.
        let older = with("\"operators\":{", "\"others\":{");
        assert_eq!((older.added, older.ignored), (None, Vec::new()));
    }

    #[test]
    fn no_more_nodes_have_moved_than_can_be_moved() {
        let mut many = learned();
        let names = (0..NODES_MAX + 5).map(|number| (format!("n{number}"), "blog".into()));
        many.moved = names.collect();
        let text = encode(&many, NOW).unwrap();
        let read = decode(&text, NOW).unwrap();
        assert_eq!(read.moved.len(), NODES_MAX);
        assert!(read.ignored[0].starts_with("5 of 4101 moved nodes"));
    }

    #[test]
    fn a_name_is_an_added_nodes_once_and_there_are_only_so_many() {
        let mut many = learned();
        many.added = Some(["a", "b", "a"].map(added).into());
        let bytes = encode(&many, NOW).unwrap();
        let read = decode(&bytes, NOW).unwrap();
        assert_eq!(read.added, Some(["a", "b"].map(added).into()));
        assert!(read.ignored[0].starts_with("1 of 3 added nodes"));
        let names = (0..AddedNode::MAX + 5).map(|number| added(&format!("n{number}")));
        many.added = Some(names.collect());
        let bytes = encode(&many, NOW).unwrap();
        let read = decode(&bytes, NOW).unwrap();
        assert_eq!(read.added.map(|it| it.len()), Some(AddedNode::MAX));
    }
}
