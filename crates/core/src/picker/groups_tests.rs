//! Sites that share a limit, through the picker.

use std::sync::Arc;

use crate::admission::{AdmissionConfig, AdmissionKind, Priority};
use crate::director::Director;
use crate::load::LoadTable;
use crate::picker::{Arrival, Decision, Picker, Ticket, WaitId};
use crate::policy::{PolicyConfig, PolicyKind};
use crate::testing::cluster;
use crate::time::Timestamp;
use crate::topology::{Group, GroupId, NodeId, SiteId};

const NOW: Timestamp = Timestamp::from_millis(1000);
const SHOP: SiteId = SiteId(0);
const BLOG: SiteId = SiteId(1);
const GROUP: GroupId = GroupId(0);

/// Two sites with two nodes each; the first node of each, or all, share what bears `limit` requests.
fn picker(limit: u32, all: bool, mode: AdmissionKind) -> Picker {
    let mut spec = cluster(4, PolicyConfig::new(PolicyKind::RoundRobin));
    spec.sites[0].admission = AdmissionConfig {
        priorities: 2,
        ..AdmissionConfig::new(mode)
    };
    spec.sites.push(spec.sites[0].clone());
    for node in &mut spec.nodes[2..] {
        node.site = BLOG;
    }
    let nodes = if all { vec![0, 1, 2, 3] } else { vec![0, 2] };
    spec.groups = vec![Group {
        name: "database".into(),
        limit,
        members: vec![(SHOP, 3.0), (BLOG, 1.0)],
        nodes: nodes.into_iter().map(NodeId).collect(),
    }];
    let table = Arc::new(LoadTable::new(4, 2).grouped(&spec.groups));
    Picker::new(table, Director::new(spec, 1).topology(), 1)
}

fn ask(picker: &mut Picker, site: SiteId, priority: usize, id: u64) -> Decision {
    let arrival = Arrival {
        priority: Priority::ALL[priority],
        id: WaitId(id),
        ..Arrival::at(site)
    };
    picker.handle_request(&arrival, NOW)
}

fn sent(decision: Decision) -> Ticket {
    let Decision::Forward(ticket) = decision else {
        panic!("not sent: {decision:?}");
    };
    ticket
}

/// The request that goes next, and the ticket.
fn next(picker: &mut Picker) -> Option<(u64, Ticket)> {
    let (id, decision) = picker.poll_waiting(NOW)?;
    Some((id.0, sent(decision)))
}

#[test]
fn the_limit_holds_for_all_members_whatever_their_mode() {
    for mode in [AdmissionKind::Off, AdmissionKind::Adaptive] {
        let mut picker = picker(2, true, mode);
        let one = sent(ask(&mut picker, SHOP, 0, 1));
        let other = sent(ask(&mut picker, BLOG, 0, 2));
        assert_eq!(picker.table().group(GROUP), (2, 2));
        assert!(matches!(ask(&mut picker, BLOG, 0, 3), Decision::Wait));
        assert!(next(&mut picker).is_none());
        drop(one);
        let (id, ticket) = next(&mut picker).unwrap();
        assert_eq!((id, ticket.site()), (3, BLOG));
        drop((other, ticket));
        assert_eq!(picker.table().group(GROUP).0, 0);
    }
}

#[test]
fn nodes_that_share_nothing_are_used_when_the_others_may_not() {
    let mut picker = picker(1, false, AdmissionKind::Off);
    let tickets: Vec<_> = (0..4)
        .map(|id| sent(ask(&mut picker, SHOP, 0, id)))
        .collect();
    let shared = tickets.iter().filter(|it| it.node == NodeId(0)).count();
    assert_eq!(shared, 1);
    assert_eq!(picker.table().group(GROUP), (1, 1));
}

#[test]
fn turns_go_by_weight_and_nobody_overtakes() {
    let mut picker = picker(1, true, AdmissionKind::Off);
    let mut ticket = Some(sent(ask(&mut picker, SHOP, 0, 0)));
    for id in 0..40 {
        for (site, first) in [(SHOP, 100), (BLOG, 200)] {
            let decision = ask(&mut picker, site, 0, first + id);
            assert!(matches!(decision, Decision::Wait), "{decision:?}");
        }
    }
    let mut turns = [0, 0];
    for _ in 0..40 {
        drop(ticket.take());
        // A newcomer, with room, still goes behind those that wait.
        assert!(matches!(ask(&mut picker, BLOG, 0, 999), Decision::Wait));
        picker.handle_left(BLOG, WaitId(999));
        let (id, next) = next(&mut picker).unwrap();
        assert_ne!(id, 999);
        turns[next.site().index()] += 1;
        ticket = Some(next);
    }
    assert_eq!(turns, [30, 10]);
    drop(ticket);
    while let Some((_, ticket)) = next(&mut picker) {
        drop(ticket);
    }
    let again = ask(&mut picker, BLOG, 0, 1);
    assert!(matches!(again, Decision::Forward(_)), "nobody waits");
}

#[test]
fn the_highest_priority_goes_first_whatever_its_site() {
    let mut picker = picker(1, true, AdmissionKind::Off);
    let ticket = sent(ask(&mut picker, SHOP, 0, 0));
    for (site, priority, id) in [(SHOP, 1, 1), (BLOG, 1, 2), (BLOG, 0, 3)] {
        assert!(matches!(
            ask(&mut picker, site, priority, id),
            Decision::Wait
        ));
    }
    drop(ticket);
    let order: Vec<_> = std::iter::from_fn(|| next(&mut picker).map(|it| it.0)).collect();
    assert_eq!(order, [3, 1, 2]);
}

#[test]
fn each_front_end_has_its_part_of_the_limit() {
    let picker = picker(10, true, AdmissionKind::Off);
    let mut spec = cluster(4, PolicyConfig::default());
    spec.groups = picker.topology().groups.to_vec();
    let mut director = Director::new(spec, 1);
    for (front_ends, part) in [(1, 10), (3, 3), (64, 1)] {
        director.handle_front_ends(front_ends);
        director.handle_tick(picker.table(), NOW);
        assert_eq!(picker.table().group(GROUP).1, part);
    }
}

/// Front-ends that are not seen, or claim to be alone, take no more than what the configuration leaves them.
#[test]
fn a_front_end_is_one_of_at_least_as_many_as_are_configured() {
    let picker = picker(12, true, AdmissionKind::Off);
    for (configured, seen) in [
        (4, [(0, 3), (1, 3), (4, 3), (5, 2)]),
        (0, [(0, 12), (1, 12), (4, 3), (5, 2)]),
    ] {
        let mut spec = cluster(4, PolicyConfig::default());
        spec.groups = picker.topology().groups.to_vec();
        spec.front_ends = configured;
        let mut director = Director::new(spec, 1);
        for (front_ends, part) in seen {
            director.handle_front_ends(front_ends);
            director.handle_tick(picker.table(), NOW);
            assert_eq!(picker.table().group(GROUP).1, part, "{configured}");
        }
    }
}
