//! Requests beside those of clients get what is to spare, and nothing that others wait for.

use super::*;
use crate::admission::{AdmissionConfig, AdmissionKind, StaticLimits};
use crate::director::Director;
use crate::policy::{PolicyConfig, PolicyKind};
use crate::testing::cluster;

const SITE: SiteId = SiteId(0);
const NOW: Timestamp = Timestamp::from_millis(1000);

/// A picker of two nodes, of which each bears so many requests, with so many places in its queue.
fn picker(connections: u32, queue: u32) -> Picker {
    let mut spec = cluster(2, PolicyConfig::new(PolicyKind::LeastRequest));
    spec.sites[0].admission = AdmissionConfig {
        queue,
        limits: StaticLimits {
            connections: Some(connections),
            ..StaticLimits::default()
        },
        ..AdmissionConfig::new(AdmissionKind::MaxConn)
    };
    let table = Arc::new(LoadTable::new(2, 1));
    let topology = Director::new(spec, 1).topology();
    Picker::new(table, topology, 1)
}

fn forward(picker: &mut Picker) -> Ticket {
    match picker.handle_request(&Arrival::at(SITE), NOW) {
        Decision::Forward(ticket) => ticket,
        other @ (Decision::Reject(_) | Decision::Wait) => panic!("not sent: {other:?}"),
    }
}

#[test]
fn it_gets_a_node_with_room_and_counts_there() {
    let mut picker = picker(1, 10);
    let copy = picker.handle_extra(SITE, Extra::Copy, NOW).unwrap();
    let other = picker.handle_extra(SITE, Extra::Copy, NOW).unwrap();
    assert_ne!(copy.node, other.node);
    assert_eq!(picker.table().in_flight(copy.node), 1);
    assert!(picker.handle_extra(SITE, Extra::Copy, NOW).is_none());
    drop(other);
    assert!(picker.handle_extra(SITE, Extra::Copy, NOW).is_some());
    assert!(picker.handle_extra(SiteId(7), Extra::Copy, NOW).is_none());
}

#[test]
fn one_more_try_goes_to_no_node_that_has_the_request() {
    let mut picker = picker(10, 10);
    for _ in 0..20 {
        let first = forward(&mut picker);
        let tried = [first.node];
        let second = picker.handle_extra(SITE, Extra::Try(&tried), NOW).unwrap();
        assert_ne!(second.node, first.node);
        let tried = [first.node, second.node];
        assert!(picker.handle_extra(SITE, Extra::Try(&tried), NOW).is_none());
    }
}

#[test]
fn none_while_a_request_waits() {
    let mut picker = picker(1, 10);
    let taken = [forward(&mut picker), forward(&mut picker)];
    let waits = picker.handle_request(&Arrival::at(SITE), NOW);
    assert!(matches!(waits, Decision::Wait));
    // There is room again, which is for the one that waits.
    drop(taken);
    assert!(picker.handle_extra(SITE, Extra::Copy, NOW).is_none());
    assert!(picker.handle_extra(SITE, Extra::Try(&[]), NOW).is_none());
    picker.handle_left(SITE, WaitId(0));
    assert!(picker.handle_extra(SITE, Extra::Try(&[]), NOW).is_some());
}

#[test]
fn none_for_a_second_behind_a_refusal() {
    let mut picker = picker(1, 0);
    let taken = [forward(&mut picker), forward(&mut picker)];
    let refused = picker.handle_request(&Arrival::at(SITE), NOW);
    assert!(matches!(refused, Decision::Reject(_)));
    drop(taken);
    let soon = NOW + Duration::from_millis(999);
    assert!(picker.handle_extra(SITE, Extra::Copy, soon).is_none());
    let later = NOW + Duration::from_secs(1);
    assert!(picker.handle_extra(SITE, Extra::Copy, later).is_some());
}
