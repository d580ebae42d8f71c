//! What has happened between two samples: nodes and sites that came, went or changed, a new process.

use std::collections::{BTreeMap, VecDeque};

use tidegate_core::time::Timestamp;

use super::sample::Sample;
use crate::models::{NodeStatus, Status};
use crate::text::state;

/// Most events that are kept.
const EVENTS_MAX: usize = 100;
/// Most events of one kind between two samples; more are counted.
const NAMED_MAX: usize = 10;

/// Something that has happened, and when it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Event {
    /// When.
    pub(super) at: Timestamp,
    /// What.
    pub(super) text: String,
}

/// The last ones, newest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Events(VecDeque<Event>);

impl Events {
    /// Takes what has changed between two samples.
    pub(super) fn record(&mut self, before: &Sample, now: &Sample) {
        for text in changes(&before.status, &now.status) {
            self.say(now.at, text);
        }
    }

    /// Takes an event.
    pub(super) fn say(&mut self, at: Timestamp, text: String) {
        self.0.push_front(Event { at, text });
        self.0.truncate(EVENTS_MAX);
    }

    /// The newest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Event> {
        self.0.iter()
    }
}

/// A node, and its site.
#[derive(Clone, Copy)]
struct Member<'a> {
    site: &'a str,
    node: &'a NodeStatus,
}

fn members(status: &Status) -> BTreeMap<&str, Member<'_>> {
    let of_site = status.sites.iter().flat_map(|site| {
        let member = |node| Member {
            site: &site.name,
            node,
        };
        site.nodes.iter().map(member)
    });
    of_site.map(|it| (it.node.name.as_str(), it)).collect()
}

/// What is different, in sentences.
fn changes(before: &Status, now: &Status) -> Vec<String> {
    if now.uptime_seconds < before.uptime_seconds {
        return vec![format!("another process answers: {}", now.version)];
    }
    let mut all = Vec::new();
    if before.ready != now.ready {
        let is = if now.ready { "ready" } else { "not ready" };
        all.push(format!("the front-end is {is}"));
    }
    if now.draining && !before.draining {
        all.push("the front-end drains: it was asked to stop".into());
    }
    if before.front_ends != now.front_ends {
        let (before, now) = (before.front_ends, now.front_ends);
        all.push(format!("front-ends: {before} -> {now}"));
    }
    all.extend(site_changes(before, now));
    all.extend(node_changes(before, now));
    let is_new = |class: &str| !before.throttles.iter().any(|it| it.class == class);
    let set = now.throttles.iter().filter(|it| is_new(&it.class));
    all.extend(set.map(|it| format!("{} is throttled by {}", it.class, it.set_by)));
    let is_over = |class: &str| !now.throttles.iter().any(|it| it.class == class);
    let released = before.throttles.iter().filter(|it| is_over(&it.class));
    all.extend(released.map(|it| format!("{} is released", it.class)));
    all
}

fn site_changes(before: &Status, now: &Status) -> Vec<String> {
    let mut all = Vec::new();
    let old: BTreeMap<_, _> = before.sites.iter().map(|it| (&it.name, it)).collect();
    let new: BTreeMap<_, _> = now.sites.iter().map(|it| (&it.name, it)).collect();
    for (name, site) in &new {
        match old.get(name) {
            None => all.push(format!("site {name} is new")),
            Some(before) if site.fail_open && !before.fail_open => {
                all.push(format!("site {name}: no node is up, ejected ones are used"));
            }
            Some(before) if before.policy != site.policy => {
                let (before, now) = (&before.policy, &site.policy);
                all.push(format!("site {name}: policy {before} -> {now}"));
            }
            Some(_) => {}
        }
    }
    let gone = old.keys().filter(|name| !new.contains_key(*name));
    all.extend(gone.map(|name| format!("site {name} is gone")));
    bounded(all, "sites")
}

fn node_changes(before: &Status, now: &Status) -> Vec<String> {
    let mut all = Vec::new();
    let (old, new) = (members(before), members(now));
    for (name, member) in &new {
        match old.get(name) {
            None => all.push(format!("{name} is new in {}", member.site)),
            Some(before) => all.extend(changes_of(*before, *member)),
        }
    }
    let gone = old.keys().filter(|name| !new.contains_key(*name));
    all.extend(gone.map(|name| format!("{name} is gone")));
    bounded(all, "nodes")
}

fn changes_of(before: Member<'_>, now: Member<'_>) -> Vec<String> {
    let name = &now.node.name;
    let mut all = Vec::new();
    if before.site != now.site {
        all.push(format!("{name}: site {} -> {}", before.site, now.site));
    }
    if before.node.address != now.node.address {
        let (before, now) = (&before.node.address, &now.node.address);
        all.push(format!("{name}: address {before} -> {now}"));
    }
    let (was, is) = (state(before.node), state(now.node));
    if was != is {
        let why = match &now.node.trouble.ejected_for {
            Some(why) if is == "ejected" => format!(" ({why})"),
            Some(_) | None => String::new(),
        };
        all.push(format!("{name}: {was} -> {is}{why}"));
    }
    if before.node.rung != now.node.rung {
        let (before, now) = (&before.node.rung, &now.node.rung);
        all.push(format!("{name}: load read by {before} -> {now}"));
    }
    all
}

fn bounded(mut all: Vec<String>, what: &str) -> Vec<String> {
    let more = all.len().saturating_sub(NAMED_MAX);
    if more > 0 {
        all.truncate(NAMED_MAX);
        all.push(format!("… and {more} more changes of {what}"));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;

    fn differences(change: impl FnOnce(&mut Status)) -> Vec<String> {
        let before = fixture::status();
        let mut now = before.clone();
        now.uptime_seconds += 1.0;
        change(&mut now);
        changes(&before, &now)
    }

    #[test]
    fn nothing_happens_between_equal_samples() {
        assert!(differences(|_| {}).is_empty());
    }

    #[test]
    fn nodes_and_sites_that_change_are_named_with_what_changed() {
        let all = differences(|now| {
            let mut moved = now.sites[0].nodes.remove(0);
            moved.health = "ejected".into();
            moved.trouble.ejected_for = Some("silence".into());
            now.sites[1].nodes.push(moved);
            now.sites[0].nodes[0].state = "drain".into();
            now.sites[1].policy = "random".into();
            now.throttles.clear();
            now.ready = false;
        });
        let expected = [
            "the front-end is not ready",
            "site blog: policy least_request -> random",
            "n1: site shop -> blog",
            "n1: up -> ejected (silence)",
            "n2: failing -> drain",
            "GET /search/* is released",
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn a_process_that_is_younger_than_the_one_before_is_another() {
        let all = differences(|now| now.uptime_seconds = 0.5);
        assert_eq!(all, ["another process answers: 0.1.0"]);
    }

    #[test]
    fn many_changes_at_once_are_counted() {
        let all = differences(|now| {
            let node = now.sites[0].nodes[0].clone();
            for number in 0..100 {
                let mut node = node.clone();
                node.name = format!("m{number}");
                now.sites[0].nodes.push(node);
            }
        });
        assert_eq!(all.len(), NAMED_MAX + 1);
        assert_eq!(all[NAMED_MAX], "… and 90 more changes of nodes");
    }
}
