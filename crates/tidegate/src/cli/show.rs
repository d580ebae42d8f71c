//! Answers of the admin API as text for people.

use tidegate_culprits::table;

use crate::models::{
    Apart, BestMove, CertificateStatus, Decision, Headline, LeftOutStatus, Level, LoadStatus,
    NodeMetric, NodeStatus, Reloaded, SiteStatus, SourceStatus, Status, TermStatus, ThrottleStatus,
    Throttles, Why, WhyMoves, WhySiteNode, grown_reason,
};
use crate::text::{duration, limits, percent, quantiles, queue, seconds, state, visible};

/// Most nodes that are left out and named.
const LEFT_OUT_SHOWN: usize = 20;

/// A source of nodes.
fn source_line(source: &SourceStatus) -> String {
    let last = match (&source.error, source.answered_seconds_ago) {
        (Some(why), _) => format!("no answer: {why}"),
        (None, None) => "not asked yet".to_owned(),
        (None, Some(ago)) => format!("answered {} ago", seconds(Some(ago))),
    };
    let plural = if source.nodes == 1 { "" } else { "s" };
    let refused = match source.refused {
        0 => String::new(),
        count => format!(", {count} of which cannot be used"),
    };
    format!(
        "source {} ({}): {} node{plural} of site {}{refused}; {last}\n",
        source.name, source.what, source.nodes, source.site
    )
}

/// Sources of nodes, nodes that cannot come in, and certificates that come by themselves, one a line.
fn sources(status: &Status) -> String {
    let mut out: String = status.sources.iter().map(source_line).collect();
    let (shown, more) = (status.left_out).split_at(status.left_out.len().min(LEFT_OUT_SHOWN));
    let line = |it: &LeftOutStatus| format!("left out: {}: {}\n", it.what, it.why);
    out.extend(shown.iter().map(line));
    if !more.is_empty() {
        out.push_str(&format!("left out: {} nodes more\n", more.len()));
    }
    out.extend(status.certificates.iter().map(certificate_line));
    out
}

/// A certificate that comes by itself.
fn certificate_line(certificate: &CertificateStatus) -> String {
    let names = certificate.names.join(", ");
    let until = match certificate.expires_in_seconds {
        None => "there is none yet".to_owned(),
        Some(left @ 0.0..) => format!("valid for {}", duration(left)),
        Some(over) => format!("expired {} ago", duration(-over)),
    };
    let next = certificate.next_try_in_seconds;
    let next = next.map_or_else(String::new, |it| {
        format!("; the next is asked for in {}", duration(it))
    });
    let error = certificate.error.as_ref();
    let error = error.map_or_else(String::new, |why| format!("; {why}"));
    format!("certificate {names}: {until}{next}{error}\n")
}

/// Which front-end, how it is, and what is wrong.
fn front_end(status: &Status) -> String {
    let state = match (status.draining, status.ready) {
        (true, _) => "draining",
        (false, true) => "ready",
        (false, false) => "not ready: no site has a candidate",
    };
    format!(
        "tidegate {} · {state} · up {} · listening on {}\n{}",
        status.version,
        duration(status.uptime_seconds),
        status.listeners.join(", "),
        headline(&status.headline),
    )
}

/// `tidegate status`.
pub(super) fn status(status: &Status) -> String {
    let mut out = front_end(status);
    let requests = &status.requests;
    let rejected: u64 = requests.rejected.values().sum();
    out.push_str(&format!(
        "requests: {} received, {} completed, {} failed, {rejected} rejected, {} cancelled, {} in flight, {} retries\n",
        requests.received,
        requests.completed,
        requests.failed,
        requests.cancelled,
        requests.in_flight,
        requests.retries,
    ));
    out.push_str(&format!(
        "last {:.0} s: {:.1} req/s, {:.1} errors/s, latency {}, load age {}\n",
        status.recent.seconds,
        status.recent.requests_per_second,
        status.recent.errors_per_second,
        quantiles(&status.recent.latency),
        quantiles(&status.load_age),
    ));
    out.push_str(&connections(status));
    let reader = &status.reader;
    if reader.nodes > 0 {
        let priority = match (reader.realtime, &reader.note) {
            (Some(true), _) => "at real-time priority".to_owned(),
            (_, Some(note)) => format!("at normal priority ({note})"),
            (_, None) => "at normal priority".to_owned(),
        };
        out.push_str(&format!(
            "reader: {} nodes every {} {priority}\n",
            reader.nodes,
            seconds(Some(reader.interval_seconds)),
        ));
    }
    for resource in &status.resources {
        let reads = match resource.reads.as_ref().map(|it| (it.reads, &it.last_error)) {
            Some((_, Some(why))) => format!("not read: {why}"),
            Some((0, None)) | None => "not read: no answer yet".to_owned(),
            Some((_, None)) => format!("read ({})", resource.rung),
        };
        out.push_str(&format!(
            "resource {} ({}): {reads}\n",
            resource.name, resource.address
        ));
    }
    out.push_str(&sources(status));
    for site in &status.sites {
        out.push_str(&site_table(site));
    }
    for node in &status.leaving {
        out.push_str(&format!(
            "leaving: {} ({}), {} requests in flight\n",
            node.name, node.address, node.in_flight
        ));
    }
    if !status.throttles.is_empty() {
        out.push_str("\nthrottled\n");
        out.push_str(&throttle_table(&status.throttles));
    }
    out
}

/// What is wrong, worst first, a line each.
fn headline(headline: &Headline) -> String {
    // A front-end of a version before says nothing of it.
    if headline.text.is_empty() {
        return String::new();
    }
    let mark = |level| match level {
        Level::Good => "",
        Level::Warn => "warning: ",
        Level::Bad => "WRONG: ",
    };
    let mut out = format!("{}{}\n", mark(headline.level), headline.text);
    for it in &headline.others {
        out.push_str(&format!("{}{}\n", mark(it.level), it.text));
    }
    out
}

/// `tidegate reload`.
pub(super) fn reloaded(reloaded: &Reloaded) -> String {
    let mut out = String::new();
    for line in &reloaded.changes {
        out.push_str(&format!("{line}\n"));
    }
    for (takes, lines) in [
        ("needs an upgrade (`tidegate upgrade`)", &reloaded.upgrade),
        ("needs a restart", &reloaded.restart),
    ] {
        if !lines.is_empty() {
            out.push_str(&format!("{takes}:\n"));
        }
        for line in lines {
            out.push_str(&format!("{line}\n"));
        }
    }
    for note in &reloaded.notes {
        out.push_str(&format!("note: {note}\n"));
    }
    out.push_str(match (reloaded.applied, reloaded.changes.is_empty()) {
        (false, true) => "nothing would change",
        (false, false) => "nothing was done: a dry run",
        // A note may be about files that it names, which have other contents.
        (true, true) if !reloaded.notes.is_empty() => "in force: the file itself is as before",
        (true, true) => "in force: nothing has changed",
        (true, false) => "in force",
    });
    out
}

/// What keeps client connections out, where something does.
fn connections(status: &Status) -> String {
    let mut out = String::new();
    if !status.connections_refused.is_empty() {
        let by_reason: Vec<_> = (status.connections_refused.iter())
            .map(|(reason, count)| format!("{count} {reason}"))
            .collect();
        let by_reason = by_reason.join(", ");
        out.push_str(&format!("connections refused unread: {by_reason}\n"));
    }
    if status.connections_evicted > 0 {
        let evicted = status.connections_evicted;
        out.push_str(&format!(
            "connections without a request that gave way to new ones: {evicted}\n"
        ));
    }
    out
}

/// `tidegate throttle` without a class.
pub(super) fn throttles(throttles: &Throttles) -> String {
    let mut out = match throttles.throttles.is_empty() {
        true => "no class is throttled\n".into(),
        false => throttle_table(&throttles.throttles),
    };
    if let Some(why) = &throttles.unmarked {
        out.push_str(&format!("connections are not marked: {why}\n"));
    }
    out
}

fn throttle_table(throttles: &[ThrottleStatus]) -> String {
    let header = [
        "class",
        "limits",
        "by",
        "left",
        "in flight",
        "lent",
        "held now",
        "arrived",
        "held",
        "mean wait",
        "429",
    ];
    let mut rows = vec![header.map(str::to_owned)];
    rows.extend(throttles.iter().map(|it| {
        let mean = (it.held > 0).then(|| it.delayed_seconds / it.held as f64);
        [
            it.class.clone(),
            limits(it),
            it.set_by.clone(),
            it.seconds_left.map_or("-".into(), duration),
            it.in_flight.to_string(),
            it.lent.to_string(),
            it.waiting.to_string(),
            it.arrived.to_string(),
            it.held.to_string(),
            seconds(mean),
            it.rejected.to_string(),
        ]
    }));
    table(&rows)
}

fn site_table(site: &SiteStatus) -> String {
    let mut out = format!(
        "\n{} · {} · policy {} · {} of {} nodes · {:.1} req/s · {}{}\n",
        site.name,
        site.hosts.join(" "),
        site.policy,
        site.candidates,
        site.nodes.len(),
        site.recent.requests_per_second,
        quantiles(&site.recent.latency),
        if site.fail_open {
            " · no node is up: ejected ones are used"
        } else {
            ""
        },
    );
    out.push_str(&apart(&site.apart));
    if let Some(grown) = grown_reason(&site.grown) {
        out.push_str(&format!("  {grown}\n"));
    }
    let header = [
        "node",
        "state",
        "read by",
        "key",
        "queue",
        "cpu",
        "load age",
        "in flight",
        "share",
        "req/s",
        "err/s",
        "p50",
        "p99",
    ];
    let mut rows = vec![header.map(str::to_owned)];
    rows.extend(site.nodes.iter().map(row));
    out.push_str(&table(&rows));
    for node in &site.nodes {
        let mut notes = node.trouble.notes.clone();
        notes.extend(unread(node));
        let moves_to = node.moves_to.as_ref().filter(|_| node.moving);
        notes.extend(moves_to.map(|it| format!("it is on its way to {}", it.site)));
        if !notes.is_empty() {
            out.push_str(&format!("  {}: {}\n", node.name, notes.join("; ")));
        }
    }
    out
}

/// Why the load of a node that is read is not known, if it is not.
fn unread(node: &NodeStatus) -> Option<String> {
    let is_known = node.load.as_ref().is_some_and(|load| load.fresh);
    let error = node.reads.as_ref()?.last_error.as_ref()?;
    (!is_known).then(|| format!("its load is not known: {error}"))
}

/// What is no answer of a node, where there is any of it.
fn apart(apart: &Apart) -> String {
    let mut parts = Vec::new();
    if apart.queued > 0 || apart.queue_wait.p50_seconds.is_some() {
        let wait = quantiles(&apart.queue_wait);
        parts.push(format!("{} queued, wait {wait}", apart.queued));
    }
    if apart.refused_per_second > 0.0 {
        let (rate, after) = (apart.refused_per_second, quantiles(&apart.refusal));
        parts.push(format!("{rate:.1} refused/s after {after}"));
    }
    if apart.tunnel.p50_seconds.is_some() {
        parts.push(format!("tunnels ended after {}", quantiles(&apart.tunnel)));
    }
    match parts.is_empty() {
        true => String::new(),
        false => format!("  {}\n", parts.join(" · ")),
    }
}

fn row(node: &NodeStatus) -> [String; 13] {
    let load = node.load.as_ref().filter(|load| load.fresh);
    [
        node.name.clone(),
        state(node).to_owned(),
        node.rung.clone(),
        (node.reads.as_ref().and_then(|reads| reads.key)).map_or("-".into(), |key| key.to_string()),
        queue(node),
        percent(load.and_then(LoadStatus::shown_cpu)),
        seconds(node.load.as_ref().map(|load| load.age_seconds)),
        node.in_flight.to_string(),
        percent(node.share),
        format!("{:.1}", node.recent.requests_per_second),
        format!("{:.1}", node.recent.errors_per_second),
        seconds(node.recent.latency.p50_seconds),
        seconds(node.recent.latency.p99_seconds),
    ]
}

/// A table below a headline: names and states are words, all else are numbers.
fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let lines = table::render(rows, 3);
    lines.lines().map(|line| format!("  {line}\n")).collect()
}

/// `tidegate why`.
pub(super) fn why(why: &Why, top: usize) -> String {
    match why {
        Why::Node(why) => {
            let mut out = format!(
                "{} of site {} · policy {}: {}\n",
                why.node.name, why.site, why.policy, why.policy_what
            );
            out.push_str(&sentences(&why.reasons));
            out.push_str(&metrics(&why.metrics));
            out.push_str(&terms(&why.terms));
            out.push_str(&decisions(&why.decisions));
            out
        }
        Why::Site(why) => {
            let mut out = format!(
                "{} · policy {}: {}\n",
                why.site, why.policy, why.policy_what
            );
            out.push_str(&sentences(&why.reasons));
            if let Some(moves) = &why.moves {
                out.push_str(&sentences(&[what_if(moves)]));
            }
            for node in most_used(&why.nodes, top) {
                let share = node.share.map_or("no requests lately".into(), |share| {
                    format!("{:.0}% of the requests", share * 100.0)
                });
                let out_of = if node.candidate {
                    ""
                } else {
                    " · not a candidate"
                };
                out.push_str(&format!("\n{} · {share}{out_of}\n", node.name));
                out.push_str(&terms(&node.terms));
            }
            let left = why.nodes.len().saturating_sub(top);
            if left > 0 {
                out.push_str(&format!(
                    "\n… and {left} nodes more: --top N shows more of them\n"
                ));
            }
            out.push_str(&decisions(&why.decisions));
            out
        }
        Why::Class(why) => {
            let mut out = format!("{}\n", why.class);
            out.push_str(&sentences(&why.reasons));
            out.push_str(&decisions(&why.decisions));
            out
        }
        Why::Request(why) => {
            let mut out = format!("request {}\n", why.id);
            out.push_str(&sentences(std::slice::from_ref(&why.sentence)));
            out.push_str(&decisions(std::slice::from_ref(why)));
            out
        }
    }
}

/// The best move for a site now, and why it is not made.
fn what_if(moves: &WhyMoves) -> String {
    let mut parts = Vec::new();
    if let Some(pressure) = moves.pressure {
        parts.push(format!("{pressure:.1} tasks per CPU"));
    }
    parts.push(moves.verdict.clone());
    if let Some(best) = &moves.best {
        let BestMove {
            node,
            from,
            to,
            cause,
            expected,
            giver_expected,
        } = best;
        let giver = giver_expected.map_or("no CPU left".into(), |it| format!("{it:.1}"));
        parts.push(format!(
            "the best move now: {node} from {from} to {to} ({cause}), {expected:.1} tasks per CPU expected here, {giver} at {from}"
        ));
    }
    parts.extend(moves.held_back.clone());
    format!("moves: {}", parts.join("; "))
}

/// So many of a site's nodes: those with the most requests, in the order of the configuration.
fn most_used(nodes: &[WhySiteNode], top: usize) -> Vec<&WhySiteNode> {
    let mut order: Vec<_> = nodes.iter().enumerate().collect();
    let share = |node: &WhySiteNode| node.share.unwrap_or_default();
    order.sort_by(|(_, one), (_, other)| share(other).total_cmp(&share(one)));
    order.truncate(top);
    order.sort_by_key(|(place, _)| *place);
    order.into_iter().map(|(_, node)| node).collect()
}

fn decisions(decisions: &[Decision]) -> String {
    if decisions.is_empty() {
        return String::new();
    }
    let header = [
        "node",
        "path",
        "status",
        "ago",
        "took",
        "held",
        "delayed",
        "load age",
        "in flight",
        "score",
        "of",
        "sticky",
    ];
    let mut rows = vec![header.map(str::to_owned)];
    let text = |value: Option<String>| value.unwrap_or("-".into());
    rows.extend(decisions.iter().map(|decision| {
        [
            text(decision.node.clone()),
            visible(&decision.path),
            match &decision.reason {
                None => decision.status.to_string(),
                Some(reason) => format!("{} {reason}", decision.status),
            },
            seconds(Some(decision.seconds_ago)),
            seconds(Some(decision.duration_seconds)),
            seconds(decision.held_seconds),
            seconds(decision.experiment_seconds),
            seconds(decision.load_age_seconds),
            text(decision.in_flight.map(|number| number.to_string())),
            text(decision.score.map(|score| format!("{score:.2}"))),
            text(decision.compared.map(|number| number.to_string())),
            text(decision.sticky.clone()),
        ]
    }));
    format!("\nlast requests\n{}", table(&rows))
}

fn sentences(reasons: &[String]) -> String {
    reasons
        .iter()
        .map(|reason| format!("  {}\n", visible(reason)))
        .collect()
}

/// The numbers of a node's load that are known; nothing if none is.
fn metrics(metrics: &[NodeMetric]) -> String {
    let header = ["metric", "value", "by", "age", "weight", "soft limit"];
    let mut rows = vec![header.map(str::to_owned)];
    let percent = |share: f64| format!("{:.0}%", share * 100.0);
    let is_share = |it: &NodeMetric| matches!(&*it.name, "cpu" | "memory" | "files");
    rows.extend(metrics.iter().filter_map(|it| {
        let value = it.value?;
        let age = seconds(it.age_seconds);
        Some([
            it.name.clone(),
            match is_share(it) {
                true => percent(value),
                false => format!("{value:.1}"),
            },
            it.source.clone(),
            match it.believed {
                true => age,
                false => format!("{age}, not believed"),
            },
            it.weight.map_or("-".into(), |it| format!("{it:.2}")),
            it.limit.map_or("-".into(), percent),
        ])
    }));
    match rows.len() {
        1 => String::new(),
        _ => table(&rows),
    }
}

fn terms(terms: &[TermStatus]) -> String {
    let cell = |term: &TermStatus| {
        let value = term
            .value
            .map_or("unknown".into(), |value| format!("{value:.3}"));
        [term.name.clone(), value, term.what.clone()]
    };
    let rows: Vec<_> = terms.iter().map(cell).collect();
    table(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::{GrownKind, Quantiles};

    #[test]
    fn refusals_and_waits_have_a_line_of_their_own_where_there_are_any() {
        assert_eq!(apart(&Apart::default()), "");
        let both = |seconds| Quantiles {
            p50_seconds: Some(seconds),
            p99_seconds: Some(seconds),
        };
        let busy = Apart {
            queued: 3,
            queue_wait: both(0.051),
            refused_per_second: 12.34,
            refusal: both(0.311),
            tunnel: both(3.1),
            ..Apart::default()
        };
        let line = "  3 queued, wait p50 51.0ms p99 51.0ms · 12.3 refused/s after p50 311ms p99 311ms · \
                    tunnels ended after p50 3.1s p99 3.1s\n";
        assert_eq!(apart(&busy), line);
    }

    #[test]
    fn kinds_that_go_last_since_they_grew_are_named() {
        let grown = |kind: Option<&str>, in_flight| GrownKind {
            kind: kind.map(str::to_owned),
            in_flight,
        };
        assert_eq!(grown_reason(&[]), None);
        let mut all = vec![grown(Some("GET /search.php?q"), 12), grown(None, 3)];
        let line = "where room is short these go last, since they grew more than all others: \
            GET /search.php?q (12 in flight), kinds not told apart (3 in flight)";
        assert_eq!(grown_reason(&all).as_deref(), Some(line));
        all.resize(9, grown(Some("GET /a"), 1));
        let line = grown_reason(&all).unwrap();
        assert!(line.ends_with("GET /a (1 in flight), and 4 more"), "{line}");
    }

    #[test]
    fn a_large_sites_most_used_nodes_are_shown_and_the_others_counted() {
        let nodes = (0..30).map(|number: u32| WhySiteNode {
            name: format!("n{number}"),
            candidate: true,
            share: (number != 7).then(|| f64::from(number % 11) / 100.0),
            terms: Vec::new(),
        });
        let why_site = crate::models::WhySite {
            site: "shop".into(),
            policy: "auto".into(),
            policy_what: "what".into(),
            reasons: Vec::new(),
            grown: Vec::new(),
            moves: None,
            nodes: nodes.collect(),
            decisions: Vec::new(),
        };
        let text = why(&Why::Site(Box::new(why_site)), 3);
        let places = ["n9 ", "n10 ", "n21 "].map(|name| text.find(name).unwrap());
        assert!(places.is_sorted(), "{text}");
        assert!(
            !text.contains("n8 ") && text.contains("and 27 nodes more"),
            "{text}"
        );
    }

    #[test]
    fn columns_line_up() {
        let row = |cells: [&str; 4]| cells.map(str::to_owned);
        let text = table(&[row(["a", "b", "c", "1"]), row(["long", "b", "c", "1000"])]);
        assert_eq!(text, "  a     b  c     1\n  long  b  c  1000\n");
    }
}
