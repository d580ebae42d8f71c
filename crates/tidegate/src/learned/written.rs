//! What was learned, as JSON.

use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_core::admission::LearnedAdmission;
use tidegate_core::director::LearnedCosts;
use tidegate_core::director::learned::{
    LearnedCluster, LearnedEjection, LearnedNode, LearnedSite, LearnedTrial,
};
use tidegate_core::topology::{AdminState, Cause};

use super::{AGE_MAX, BYTES_MAX, Learned, LearnedError, OperatorThrottle};
use crate::models::LimitsModel;

/// Of this form. Another one is not read: numbers are in a fixed order.
pub(super) const VERSION: u32 = 1;
/// A time that is so far ahead is none of ours.
const AHEAD_MAX: Duration = Duration::from_secs(5);

/// All of it.
#[derive(Serialize, Deserialize)]
struct Written {
    version: u32,
    /// Seconds of the Unix epoch.
    at: f64,
    sites: Vec<SiteWritten>,
    nodes: Vec<NodeWritten>,
    throttles: Vec<ThrottleWritten>,
}

/// What tells which form it is, whatever else there is.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
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
    /// What an operator wants, unless it takes requests.
    admin: Option<String>,
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
    let nodes = nodes.map(|node| {
        let mut drained = learned.drained.iter();
        let admin = drained.find(|(name, _)| *name == node.name);
        node_written(node, admin.map(|(_, state)| *state))
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
        nodes: nodes.collect(),
        throttles: throttles.collect(),
    };
    serde_json::to_vec(&written).map_err(|error| error.to_string())
}

fn node_written(node: &LearnedNode, admin: Option<AdminState>) -> NodeWritten {
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
        admin: admin.map(|it| it.label().into()),
    }
}

/// Of text, as it is at this time. A part that makes no sense is left out.
pub(super) fn decode(bytes: &[u8], unix: Duration) -> Result<Learned, LearnedError> {
    if bytes.len() > BYTES_MAX {
        return Err(LearnedError::Long);
    }
    let damaged = |error: serde_json::Error| LearnedError::Damaged(error.to_string());
    let Versioned { version } = serde_json::from_slice(bytes).map_err(damaged)?;
    if version != VERSION {
        return Err(LearnedError::Version(version));
    }
    let written: Written = serde_json::from_slice(bytes).map_err(damaged)?;
    let at = seconds(written.at).ok_or(LearnedError::Damaged("its time is none".into()))?;
    let ahead = at.saturating_sub(unix);
    if ahead > AHEAD_MAX {
        return Err(LearnedError::Future(ahead.as_secs()));
    }
    let age = unix.saturating_sub(at);
    if age > AGE_MAX {
        return Err(LearnedError::Old(age.as_secs()));
    }
    let drained = written.nodes.iter().filter_map(|node| {
        let state = named(AdminState::ALL, node.admin.as_deref()?)?;
        Some((node.name.clone(), state))
    });
    let throttles = written.throttles.iter().filter_map(throttle);
    Ok(Learned {
        age,
        drained: drained.collect(),
        throttles: throttles.collect(),
        cluster: LearnedCluster {
            sites: written.sites.into_iter().map(site).collect(),
            nodes: written.nodes.into_iter().map(node).collect(),
        },
    })
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
    }
}

fn throttle(written: &ThrottleWritten) -> Option<OperatorThrottle> {
    let left = written.left.map(seconds);
    Some(OperatorThrottle {
        class: written.class.clone(),
        limits: written.limits.checked().ok()?,
        left: match left {
            Some(left) => Some(left?),
            None => None,
        },
    })
}

fn seconds(seconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds).ok()
}

fn named<T: Copy>(all: &[(T, &str)], name: &str) -> Option<T> {
    let found = all.iter().find(|(_, label)| *label == name);
    found.map(|(value, _)| *value)
}

#[cfg(test)]
mod tests {
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
            },
            drained: vec![("n1".into(), AdminState::Drain)],
            throttles: vec![OperatorThrottle {
                class: "GET /search".into(),
                limits: ThrottleLimits {
                    concurrency: Some(3),
                    ..ThrottleLimits::default()
                },
                left: Some(60 * second),
            }],
        }
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
        assert_eq!(decode(&bytes, late), Err(LearnedError::Old(301)));
        let early = NOW - Duration::from_secs(6);
        assert_eq!(decode(&bytes, early), Err(LearnedError::Future(6)));
        let other = br#"{"version":2,"numbers":"in another order"}"#;
        assert_eq!(decode(other, NOW), Err(LearnedError::Version(2)));
        let long = vec![b' '; BYTES_MAX + 1];
        assert_eq!(decode(&long, NOW), Err(LearnedError::Long));
        for end in 0..bytes.len() {
            let cut = decode(&bytes[..end], NOW);
            assert!(
                matches!(cut, Err(LearnedError::Damaged(_))),
                "{end}: {cut:?}"
            );
        }
        for hostile in [&b"[]"[..], b"{}", b"\xff\xfe", b"{\"version\":1}"] {
            let refused = decode(hostile, NOW);
            assert!(
                matches!(refused, Err(LearnedError::Damaged(_))),
                "{refused:?}"
            );
        }
    }

    #[test]
    fn parts_that_make_no_sense_are_left_out() {
        let text = String::from_utf8(encode(&learned(), NOW).unwrap()).unwrap();
        let with = |from: &str, to: &str| {
            assert!(text.contains(from), "{from}: {text}");
            decode(text.replace(from, to).as_bytes(), NOW).unwrap()
        };
        let node = |learned: Learned| learned.cluster.nodes[0].clone();
        assert_eq!(node(with("\"errors\"", "\"envy\"")).ejected, None);
        assert_eq!(node(with("\"wait\":10.0", "\"wait\":-10.0")).trial, None);
        assert_eq!(
            node(with("\"check_failing\":1.0", "\"check_failing\":1e99")).check_failing,
            None
        );
        assert_eq!(node(with("\"costs\":[", "\"costs\":[7.0,")).costs, None);
        assert_eq!(with("\"drain\"", "\"gone\"").drained, []);
        assert_eq!(with("\"rate\":null", "\"rate\":-3.0").throttles, []);
    }
}
