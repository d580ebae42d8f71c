//! The state of a front-end in one sentence with its numbers, and what else is wrong with it, worst first.
//!
//! Input: what `GET /api/status` says, which classes are named as culprits, and which nodes were ejected several times. Nothing is
//! remembered: the same input has the same headline.
//!
//! | level | what |
//! |---|---|
//! | bad | clients notice it: a site without a node that may take requests; 1 % of a site's requests or more that are refused for want of room, that fail, or that its nodes answer with an error; workers that accept no connections, and connections that are refused unread; a certificate that has run out |
//! | warn | clients may notice it soon: nodes that are out against the operator's word, that go in and out, or that are used though none is up; loads that are to be read and are not known; half of all requests or more that are refused for what their clients did; requests that wait for room; a full resource; a source of nodes or an authority of certificates that does not do its part; a certificate that is not renewed, or that ends within seven days |
//! | good | none of these |
//!
//! A drain or `maint` of a node is what an operator wants, and nothing that is wrong. Requests that are refused for what their
//! client did (a malformed head, more than its address may have) are not the site's trouble either. Only where most are, it may be
//! the operator's: a proxy before this one that is not `trusted`, a host name that was forgotten.

use std::collections::BTreeMap;

use tidegate_culprits::live::Finding;
use tidegate_proxy::Reason;

use super::trouble::spell;
use crate::models::{
    CertificateStatus, EventModel, GivenCertificate, Headline, Level, LoadStatus, NodeStatus,
    Problem, ResourceStatus, SiteStatus, Status,
};
use crate::text::state;

/// A part of a site's requests that is worth a word.
const SHARE: f64 = 0.01;
/// A part of all requests from which on their clients' faults are worth a word,
const MOST: f64 = 0.5;
/// if there were so many of them in the last seconds.
const MANY: f64 = 10.0;
/// A used share of a CPU from which on it is full.
const FULL: f64 = 0.95;
/// A used share of a site's CPUs from which on there is hardly any room left.
const BUSY: f64 = 0.9;
/// A wait for room that is worth a word, seconds.
const WAIT: f64 = 0.1;
/// A certificate of the configuration that ends within this time should be replaced, seconds.
const SOON: f64 = 7.0 * 86_400.0;
/// Most nodes, reasons and classes that a sentence names.
const NAMED_MAX: usize = 3;
/// Most sentences besides the first.
const OTHERS_MAX: usize = 30;

/// Something that is wrong, and its place among what is as bad.
struct Found {
    level: Level,
    weight: f64,
    text: String,
}

impl Found {
    fn bad(weight: f64, text: String) -> Self {
        Self {
            level: Level::Bad,
            weight,
            text,
        }
    }

    fn warn(weight: f64, text: String) -> Self {
        Self {
            level: Level::Warn,
            weight,
            text,
        }
    }
}

/// See the module.
pub(super) fn headline(status: &Status, accused: &[&Finding], unsteady: &[EventModel]) -> Headline {
    let mut all = front_end(status);
    all.extend(unsteady_nodes(unsteady));
    for site in &status.sites {
        all.extend(no_node(site));
        all.extend(refusals(site, accused));
        all.extend(errors(site));
        all.extend(nodes_out(site));
        all.extend(unknown_loads(site));
        all.extend(waits(site));
        all.extend(busy(site, accused));
    }
    all.extend(status.resources.iter().filter_map(full_resource));
    all.extend(status.certificates.iter().filter_map(certificate));
    let given = status
        .given_certificates
        .iter()
        .filter_map(given_certificate);
    all.extend(given.map(|it| match it.level {
        Level::Bad => Found::bad(1.4, it.text),
        Level::Warn | Level::Good => Found::warn(0.7, it.text),
    }));
    let webhook = status.webhook_error.iter().cloned();
    all.extend(webhook.map(|why| Found::warn(0.1, why)));
    let silent = status.sources.iter().filter_map(|it| {
        let why = it.error.as_ref()?;
        Some(Found::warn(
            0.2,
            format!("source {} of {} gave no nodes: {why}", it.name, it.site),
        ))
    });
    all.extend(silent);
    all.sort_by(|one, other| {
        (other.level.cmp(&one.level)).then(other.weight.total_cmp(&one.weight))
    });
    let mut all = all.into_iter().map(|it| Problem {
        level: it.level,
        text: it.text,
    });
    match all.next() {
        Some(worst) => Headline {
            level: worst.level,
            text: worst.text,
            others: all.take(OTHERS_MAX).collect(),
        },
        None => Headline {
            text: calm(status),
            ..Headline::default()
        },
    }
}

/// What goes on where nothing is wrong.
fn calm(status: &Status) -> String {
    let nodes = status.sites.iter().map(|site| site.nodes.len()).sum();
    let sites = plural(status.sites.len(), "site");
    let nodes = plural(nodes, "node");
    let well = match status.recent.latency.p99_seconds {
        Some(p99) => format!(
            "all is well: {sites}, {nodes}, {:.0} requests/s, p99 {}",
            status.recent.requests_per_second,
            spelled(p99),
        ),
        None => format!("all is well: {sites}, {nodes}, no requests"),
    };
    // Others do their work, and it may be meant so.
    let full = full_nodes(status.sites.iter().flat_map(|site| &site.nodes));
    format!("{well}{full}")
}

/// `; full: n2 (CPU 98 %, 12 tasks on 2 CPUs)`, or nothing.
fn full_nodes<'a>(nodes: impl Iterator<Item = &'a NodeStatus>) -> String {
    let full: Vec<_> = nodes.filter(|it| is_full(it)).collect();
    match full.is_empty() {
        true => String::new(),
        false => format!("; full: {}", named(full.into_iter().map(fullness))),
    }
}

/// `; by GET /search (62 % of shop cpu)`, or nothing: accused classes that use the site's resources.
fn accused_at(site: &SiteStatus, accused: &[&Finding]) -> String {
    let by = accused.iter().filter(|it| is_of(&it.resource, site));
    let by: Vec<_> = by
        .map(|it| {
            let part = (it.share * 100.0).round();
            format!("{} ({part:.0} % of {})", it.class, it.resource)
        })
        .collect();
    match by.is_empty() {
        true => String::new(),
        false => format!("; by {}", named(by.into_iter())),
    }
}

/// A site whose nodes have hardly any room left, though it refuses nothing yet.
fn busy(site: &SiteStatus, accused: &[&Finding]) -> Option<Found> {
    if site.refusing_seconds.is_some() {
        return None;
    }
    let serving = site.nodes.iter().filter(|node| node.candidate);
    let used = serving.filter_map(|node| {
        let load = node.load.as_ref().filter(|load| load.fresh)?;
        load.judged_cpu().zip(load.capacity)
    });
    let (used, all) = used.fold((0.0, 0.0), |(used, all), (cpu, cpus)| {
        (used + cpu * cpus, all + cpus)
    });
    // None of them has a load that is known.
    let share = Some(used / all).filter(|it| *it >= BUSY)?;
    let (name, by) = (&site.name, accused_at(site, accused));
    let text = format!(
        "the nodes of {name} have little room left: {} of their CPUs are used{by}",
        percent(share)
    );
    Some(Found::warn(0.5 * share, text))
}

fn front_end(status: &Status) -> Vec<Found> {
    let mut all = Vec::new();
    match status.accept_paused {
        0 => {}
        1 => all.push(Found::bad(
            1.5,
            "one worker accepts no connections: it does not keep up".into(),
        )),
        paused => all.push(Found::bad(
            1.5,
            format!("{paused} workers accept no connections: they do not keep up"),
        )),
    }
    all.extend(unread(status));
    all.extend(faulty(status));
    if status.draining {
        all.push(Found::warn(
            2.0,
            "this front-end drains: it was asked to stop".into(),
        ));
    }
    all
}

/// Connections that are refused before a byte of them is read.
fn unread(status: &Status) -> Option<Found> {
    let (rate, why) = by_reason(&status.connections_refused_per_second, |_| true)?;
    let text = format!(
        "connections are refused unread, {}: {why}",
        per_second(rate)
    );
    Some(Found::bad(1.5, text))
}

/// Requests that are refused for what their clients did, where that is what most have in common. What a throttle refuses is
/// the operator's wish.
fn faulty(status: &Status) -> Option<Found> {
    let is_faulty = |reason: Reason| {
        reason.status_code() < 500 && !matches!(reason, Reason::Throttled | Reason::ThrottleFull)
    };
    let (rate, why) = by_reason(&status.refused, is_faulty)?;
    let share = rate / status.recent.requests_per_second;
    let is_most = share >= MOST && rate * status.recent.seconds >= MANY;
    let text = format!(
        "{} of all requests are refused for what their clients did, {}: {why}",
        percent(share),
        per_second(rate),
    );
    is_most.then(|| Found::warn(1.5, text))
}

/// The sum of these rates, and what the most frequent reason means; nothing if there are none.
fn by_reason(
    rates: &BTreeMap<String, f64>,
    is_meant: impl Fn(Reason) -> bool,
) -> Option<(f64, String)> {
    let known = rates.iter().filter_map(|(label, rate)| {
        let reason = *Reason::ALL.iter().find(|it| it.label() == label)?;
        (is_meant(reason) && *rate > 0.0).then_some((reason, *rate))
    });
    let known: Vec<_> = known.collect();
    let (first, _) = known
        .iter()
        .max_by(|one, other| one.1.total_cmp(&other.1))?;
    let all = known.iter().map(|it| it.1).sum();
    Some((all, format!("{} ({})", first.label(), first.what())))
}

/// A site without a node that may take requests, or with none that is up.
fn no_node(site: &SiteStatus) -> Option<Found> {
    let name = &site.name;
    if site.fail_open {
        let text = format!("no node of {name} is up: ejected ones are used");
        return Some(Found::warn(1.0, text));
    }
    if site.candidates > 0 {
        return None;
    }
    if site.nodes.is_empty() {
        return Some(Found::bad(2.0, format!("{name} has no node")));
    }
    let why = named(site.nodes.iter().map(out_of));
    let text = format!("no node of {name} may take requests: {why}");
    Some(Found::bad(3.0, text))
}

/// `n2 (failures, 12 s)`: a node that gets no requests, why, and since when.
fn out_of(node: &NodeStatus) -> String {
    let name = &node.name;
    let trouble = &node.trouble;
    match (&trouble.ejected_for, trouble.ejected_seconds_ago) {
        (Some(why), Some(ago)) => format!("{name} ({why}, {})", spell(ago)),
        _ => format!("{name} ({})", state(node)),
    }
}

/// Requests that are refused though their clients did nothing wrong.
fn refusals(site: &SiteStatus, accused: &[&Finding]) -> Option<Found> {
    let ours = site.refused.iter().filter_map(|(label, rate)| {
        let reason = Reason::ALL.iter().find(|it| it.label() == label)?;
        // A site without a node has a sentence of its own.
        let is_ours = reason.status_code() >= 500 && *reason != Reason::NoNode;
        is_ours.then_some((*reason, *rate))
    });
    let mut ours: Vec<_> = ours.filter(|it| it.1 > 0.0).collect();
    ours.sort_by(|one, other| other.1.total_cmp(&one.1));
    let rate: f64 = ours.iter().map(|it| it.1).sum();
    let share = rate / site.recent.requests_per_second;
    let Some((first, _)) = ours.first().filter(|_| share >= SHARE) else {
        // On and off, a moment ago and perhaps again in the next.
        let lasts = site.refusing_seconds?;
        let why = ours
            .first()
            .map(|(reason, _)| format!(" ({}: {})", reason.label(), reason.what()));
        let text = format!(
            "{} refuses requests on and off, for {}{}",
            site.name,
            spell(lasts),
            why.unwrap_or_default()
        );
        return Some(Found::warn(0.8, text));
    };
    let full = full_nodes(site.nodes.iter());
    let by = accused_at(site, accused);
    let text = format!(
        "{} refuses {} of its requests, {}{} ({}: {}){full}{by}",
        site.name,
        percent(share),
        per_second(rate),
        lasting(site.refusing_seconds),
        first.label(),
        first.what(),
    );
    Some(Found::bad(1.0 + share, text))
}

fn is_full(node: &NodeStatus) -> bool {
    let load = node.load.as_ref().filter(|load| load.fresh);
    load.and_then(LoadStatus::judged_cpu)
        .is_some_and(|cpu| cpu >= FULL)
}

/// `n2 (CPU 98 %, 12 tasks on 2 CPUs)`.
fn fullness(node: &NodeStatus) -> String {
    let load = node.load.as_ref();
    let of = |part: fn(&LoadStatus) -> Option<f64>| load.and_then(part);
    let cpu = of(LoadStatus::shown_cpu).map(|cpu| format!("CPU {}", percent(cpu)));
    let tasks = of(|it| it.runnable).zip(of(|it| it.capacity));
    let counted = |(tasks, cpus): (f64, _)| {
        let tasks = plural(tasks.round() as usize, "task");
        format!("{tasks} on {cpus} CPUs")
    };
    let tasks = tasks.map(counted);
    let parts: Vec<_> = cpu.into_iter().chain(tasks).collect();
    format!("{} ({})", node.name, parts.join(", "))
}

/// Whether a resource is the site's, or one of its nodes'.
fn is_of(resource: &str, site: &SiteStatus) -> bool {
    let owner = resource.rsplit_once(' ').map_or(resource, |it| it.0);
    owner == site.name || site.nodes.iter().any(|node| node.name == owner)
}

/// Requests that fail, and answers of nodes with a server error.
fn errors(site: &SiteStatus) -> Option<Found> {
    let mut by: Vec<_> = site.errors.iter().filter(|it| *it.1 > 0.0).collect();
    by.sort_by(|one, other| other.1.total_cmp(one.1));
    let rate: f64 = by.iter().map(|it| it.1).sum();
    let share = rate / site.recent.requests_per_second;
    let what = match by.is_empty() {
        true => String::new(),
        false => {
            let each = |(what, rate): (&String, &f64)| format!("{what} {}", per_second(*rate));
            format!(
                ": {}{}",
                named(by.iter().map(|it| each(*it))),
                failing_at(site)
            )
        }
    };
    if by.is_empty() || share < SHARE {
        let lasts = site.failing_seconds?;
        let text = format!(
            "requests to {} fail on and off, for {}{what}",
            site.name,
            spell(lasts)
        );
        return Some(Found::warn(0.8, text));
    }
    let text = format!(
        "{} of the requests to {} fail{}{what}",
        percent(share),
        site.name,
        lasting(site.failing_seconds),
    );
    Some(Found::bad(1.0 + share, text))
}

/// `; at n2 (73/s)`: the nodes where that is, the worst first; nothing if it is at none.
fn failing_at(site: &SiteStatus) -> String {
    let rate = |it: &NodeStatus| it.recent.errors_per_second;
    let mut from: Vec<_> = site.nodes.iter().filter(|it| rate(it) > 0.0).collect();
    from.sort_by(|one, other| rate(other).total_cmp(&rate(one)));
    let each = |it: &NodeStatus| format!("{} ({})", it.name, per_second(rate(it)));
    match from.is_empty() {
        true => String::new(),
        false => format!("; at {}", named(from.into_iter().map(each))),
    }
}

/// `, for 3 min`: how long something has been so.
fn lasting(seconds: Option<f64>) -> String {
    seconds.map_or_else(String::new, |it| format!(", for {}", spell(it)))
}

/// Nodes that are out though the operator has them in.
fn nodes_out(site: &SiteStatus) -> Option<Found> {
    if site.candidates == 0 {
        return None;
    }
    let out = site
        .nodes
        .iter()
        .filter(|it| it.trouble.ejected_for.is_some());
    let out: Vec<_> = out.collect();
    let share = out.len() as f64 / site.nodes.len().max(1) as f64;
    let text = format!(
        "{} of {} of {} {} out: {}",
        out.len(),
        plural(site.nodes.len(), "node"),
        site.name,
        if out.len() == 1 { "is" } else { "are" },
        named(out.iter().map(|it| out_of(it))),
    );
    (!out.is_empty()).then(|| Found::warn(0.5 + share, text))
}

/// Nodes that are ejected and return, again and again.
fn unsteady_nodes(events: &[EventModel]) -> Vec<Found> {
    let (out, unread): (Vec<_>, Vec<_>) = events.iter().partition(|it| it.kind == "ejected");
    let each = |nodes: &[&EventModel], what: &str| {
        named(nodes.iter().map(|it| {
            let name = it.node.as_deref().unwrap_or_default();
            let lasting = spell(it.at_seconds - it.first_at_seconds);
            format!("{name} ({what} {} times in {lasting})", it.times)
        }))
    };
    let mut found = Vec::new();
    if !out.is_empty() {
        let verb = if out.len() == 1 { "goes" } else { "go" };
        let (nodes, each) = (plural(out.len(), "node"), each(&out, "ejected"));
        found.push(Found::warn(
            0.45,
            format!("{nodes} {verb} in and out: {each}"),
        ));
    }
    if !unread.is_empty() {
        let (nodes, each) = (plural(unread.len(), "node"), each(&unread, "lost"));
        found.push(Found::warn(
            0.25,
            format!("the load of {nodes} comes and goes: {each}"),
        ));
    }
    found
}

/// Nodes that are read, and of which no load is known.
fn unknown_loads(site: &SiteStatus) -> Option<Found> {
    let is_unknown = |node: &&NodeStatus| {
        let is_known = node.load.as_ref().is_some_and(|load| load.fresh);
        let is_out = node.trouble.ejected_for.is_some();
        let fails = node
            .reads
            .as_ref()
            .is_some_and(|it| it.last_error.is_some());
        fails && !is_known && !is_out
    };
    let unknown: Vec<_> = site.nodes.iter().filter(is_unknown).collect();
    let first = unknown.first()?;
    let why = first.reads.as_ref()?.last_error.as_ref()?;
    let share = unknown.len() as f64 / site.nodes.len().max(1) as f64;
    let text = format!(
        "the load of {} of {} of {} is not known: {}: {why}",
        unknown.len(),
        plural(site.nodes.len(), "node"),
        site.name,
        first.name,
    );
    Some(Found::warn(0.3 + share / 10.0, text))
}

/// Requests that wait for room.
fn waits(site: &SiteStatus) -> Option<Found> {
    let wait = site.apart.queue_wait.p99_seconds?;
    let text = format!(
        "requests to {} wait for room: {} of them now, p99 {}",
        site.name,
        site.apart.queued,
        spelled(wait)
    );
    (wait >= WAIT).then(|| Found::warn(0.4, text))
}

fn full_resource(resource: &ResourceStatus) -> Option<Found> {
    let load = resource.load.as_ref().filter(|load| load.fresh)?;
    let cpu = load.judged_cpu().filter(|cpu| *cpu >= FULL)?;
    let text = format!("{} is full: CPU {}", resource.name, percent(cpu));
    Some(Found::warn(0.6, text))
}

fn certificate(certificate: &CertificateStatus) -> Option<Found> {
    let names = named(certificate.names.iter().cloned());
    let error = certificate.error.as_ref();
    let error = error.map_or_else(String::new, |why| format!(": {why}"));
    match certificate.expires_in_seconds {
        None => {
            let text = format!("there is no certificate for {names} yet{error}");
            Some(Found::warn(1.2, text))
        }
        Some(left) if left <= 0.0 => {
            let ago = spell(-left);
            let text = format!("the certificate for {names} has run out {ago} ago{error}");
            Some(Found::bad(1.4, text))
        }
        Some(left) if !error.is_empty() => {
            let left = spell(left);
            let text =
                format!("the certificate for {names} ends in {left} and has no next one{error}");
            Some(Found::warn(0.7, text))
        }
        Some(_) => None,
    }
}

/// One that an operator has to replace.
pub(super) fn given_certificate(certificate: &GivenCertificate) -> Option<Problem> {
    let names = named(certificate.names.iter().cloned());
    let left = certificate.expires_in_seconds;
    match left {
        ..=0.0 => {
            let text = format!(
                "the certificate for {names} has run out {} ago",
                spell(-left)
            );
            Some(Problem {
                level: Level::Bad,
                text,
            })
        }
        ..SOON => {
            let text = format!("the certificate for {names} ends in {}", spell(left));
            Some(Problem {
                level: Level::Warn,
                text,
            })
        }
        _ => None,
    }
}

/// The first few, and how many more.
fn named(all: impl Iterator<Item = String>) -> String {
    let mut all: Vec<_> = all.collect();
    let more = all.len().saturating_sub(NAMED_MAX);
    all.truncate(NAMED_MAX);
    let text = all.join(", ");
    match more {
        0 => text,
        more => format!("{text} and {more} more"),
    }
}

fn plural(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        count => format!("{count} {what}s"),
    }
}

fn percent(share: f64) -> String {
    match share {
        ..0.1 => format!("{:.1} %", share * 100.0),
        _ => format!("{:.0} %", share.min(1.0) * 100.0),
    }
}

fn per_second(rate: f64) -> String {
    match rate {
        ..9.95 => format!("{rate:.1}/s"),
        _ => format!("{rate:.0}/s"),
    }
}

/// A short time.
fn spelled(seconds: f64) -> String {
    match seconds {
        ..1.0 => format!("{:.0} ms", seconds * 1e3),
        _ => format!("{seconds:.1} s"),
    }
}

#[cfg(test)]
mod tests;
