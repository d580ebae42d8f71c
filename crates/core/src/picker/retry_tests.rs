//! A retry takes no room that a node does not have, and its own place along.

use super::*;
use crate::admission::{AdmissionConfig, AdmissionKind, StaticLimits};
use crate::director::Director;
use crate::load::Group;
use crate::policy::{PolicyConfig, PolicyKind};
use crate::testing::cluster;

const SITE: SiteId = SiteId(0);
const NOW: Timestamp = Timestamp::from_millis(1000);
const ONE: NodeId = NodeId(0);
const TWO: NodeId = NodeId(1);

/// A picker of two nodes, of which each bears two requests.
fn picker(dry_run: bool) -> Picker {
    let mut spec = cluster(2, PolicyConfig::new(PolicyKind::LeastRequest));
    spec.sites[0].admission = AdmissionConfig {
        dry_run,
        limits: StaticLimits {
            connections: Some(2),
            ..StaticLimits::default()
        },
        ..AdmissionConfig::new(AdmissionKind::MaxConn)
    };
    let table = Arc::new(LoadTable::new(2, 1));
    let topology = Director::new(spec, 1).topology();
    Picker::new(table, topology, 1)
}

/// The other node for a request that was at the first one, where it is said beforehand whether there is one.
fn retry(picker: &mut Picker, retried: Retried) -> Result<Ticket, RejectReason> {
    let bears = picker.bears_retry(SITE, &[ONE], retried, NOW);
    let picked = picker.handle_retry(SITE, &[ONE], retried, NOW);
    assert_eq!(bears, picked.is_ok(), "{retried:?}");
    picked
}

#[test]
fn in_place_of_an_answer_only_a_node_with_room_is_asked() {
    let mut picker = picker(false);
    let tickets = [(); 2].map(|()| retry(&mut picker, Retried::Answer).unwrap());
    assert!(tickets.iter().all(|ticket| ticket.node == TWO));
    let third = retry(&mut picker, Retried::Answer);
    assert_eq!(third.err(), Some(RejectReason::Overload));
    drop(tickets);
    assert!(retry(&mut picker, Retried::Answer).is_ok());
    let none = picker.handle_retry(SITE, &[ONE, TWO], Retried::Answer, NOW);
    assert_eq!(none.err(), Some(RejectReason::NoNode));
}

#[test]
fn one_without_an_answer_takes_its_place_along_within_what_the_node_bears() {
    let mut picker = picker(false);
    let mut tickets = Vec::from([(); 3].map(|()| retry(&mut picker, Retried::Failure).unwrap()));
    picker.table().set_most(TWO, Some(4));
    tickets.push(retry(&mut picker, Retried::Failure).unwrap());
    let fifth = retry(&mut picker, Retried::Failure);
    assert_eq!(fifth.err(), Some(RejectReason::Overload));
}

#[test]
fn one_without_an_answer_prefers_a_node_with_room() {
    let mut spec = cluster(3, PolicyConfig::new(PolicyKind::Random));
    spec.sites[0].admission = AdmissionConfig {
        limits: StaticLimits {
            connections: Some(1),
            ..StaticLimits::default()
        },
        ..AdmissionConfig::new(AdmissionKind::MaxConn)
    };
    let table = Arc::new(LoadTable::new(3, 1));
    let topology = Director::new(spec, 1).topology();
    let mut picker = Picker::new(table, topology, 1);
    for _ in 0..20 {
        let first = retry(&mut picker, Retried::Failure).unwrap();
        let second = retry(&mut picker, Retried::Failure).unwrap();
        assert_ne!(first.node, second.node);
    }
}

#[test]
fn a_full_group_bears_its_own_request_at_another_node() {
    let mut picker = picker(false);
    let group = |nodes: Vec<NodeId>| Group {
        name: "database".into(),
        limit: 1,
        members: Vec::new(),
        nodes,
    };
    picker.table().set_groups(&[group(vec![ONE, TWO])]);
    let own = picker.table().group_of(ONE);
    picker.table().dispatch(ONE, own);
    assert!(!picker.table().bears_another(TWO));
    assert!(retry(&mut picker, Retried::Answer).is_ok());
    picker.table().complete(ONE, own);
    picker.table().set_groups(&[group(vec![TWO])]);
    picker.table().dispatch(TWO, picker.table().group_of(TWO));
    for retried in [Retried::Answer, Retried::Failure] {
        let refused = retry(&mut picker, retried);
        assert_eq!(refused.err(), Some(RejectReason::Overload));
    }
}

#[test]
fn a_dry_run_bounds_nothing() {
    let mut picker = picker(true);
    let tickets = [(); 5].map(|()| retry(&mut picker, Retried::Answer));
    assert!(tickets.iter().all(Result::is_ok));
}
