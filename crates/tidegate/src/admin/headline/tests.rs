//! What the headline says of which status.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_core::culprits::Confidence;
use tidegate_core::time::Timestamp;

use super::super::status::status;
use super::*;
use crate::models::Quantiles;
use crate::testing;

/// `shop` with n1 and n2, `blog` with n3, all in order.
fn calm_status() -> Status {
    let (_driver, plane) = testing::plane();
    let mut status = status(&plane);
    for node in status.sites.iter_mut().flat_map(|it| &mut it.nodes) {
        node.load.iter_mut().for_each(|load| load.fresh = true);
    }
    status.recent.requests_per_second = 300.0;
    status.recent.latency = Quantiles {
        p50_seconds: Some(0.004),
        p99_seconds: Some(0.0215),
    };
    status
}

/// After this change, nothing being known of culprits.
fn after(change: impl FnOnce(&mut Status)) -> Headline {
    let mut status = calm_status();
    change(&mut status);
    headline(&status, &[], &[])
}

fn texts(headline: &Headline) -> Vec<&str> {
    let others = headline.others.iter().map(|it| it.text.as_str());
    std::iter::once(headline.text.as_str())
        .chain(others)
        .collect()
}

fn rates(all: &[(&str, f64)]) -> BTreeMap<String, f64> {
    let all = all.iter();
    all.map(|(what, rate)| ((*what).to_owned(), *rate))
        .collect()
}

#[test]
fn nothing_wrong_is_said_with_what_goes_on() {
    let calm = after(|_| {});
    assert_eq!(calm.level, Level::Good);
    let text = "all is well: 2 sites, 3 nodes, 300 requests/s, p99 22 ms";
    assert_eq!(texts(&calm), [text]);
    let idle = after(|status| status.recent = Default::default());
    assert_eq!(idle.text, "all is well: 2 sites, 3 nodes, no requests");
    // What operators want is nothing wrong, nor is what clients did.
    let wanted = after(|status| {
        status.sites[0].nodes[0].state = "maint".into();
        status.sites[0].nodes[0].candidate = false;
        status.sites[0].refused = rates(&[("bad_request", 100.0), ("source_rate", 90.0)]);
    });
    assert_eq!(texts(&wanted), [text]);
}

#[test]
fn connections_that_are_refused_unread_are_bad_and_most_requests_that_are_refused_are_a_warning() {
    let full = after(|status| {
        status.connections_refused_per_second = rates(&[("too_many_connections", 125.0)]);
    });
    assert_eq!(full.level, Level::Bad);
    assert_eq!(
        texts(&full),
        [
            "connections are refused unread, 125/s: too_many_connections (as many client connections are open as may be)"
        ]
    );
    let refused = |all: &[(&str, f64)]| {
        after(|status| {
            status.refused = rates(all);
            status.recent.seconds = 10.0;
        })
    };
    let known = refused(&[("source_rate", 270.0), ("no_site", 15.0)]);
    assert_eq!(known.level, Level::Warn);
    assert_eq!(
        texts(&known),
        [
            "95 % of all requests are refused for what their clients did, 285/s: source_rate (more requests come from this client's address than may)"
        ]
    );
    // Less than half; what a throttle refuses; what sites refuse for want of room, which they say themselves.
    for calm in [
        ("no_site", 149.0),
        ("throttled", 299.0),
        ("queue_full", 299.0),
    ] {
        assert_eq!(refused(&[calm]).level, Level::Good, "{calm:?}");
    }
    // A scanner at a site without visitors.
    let scanned = after(|status| {
        status.recent.requests_per_second = 0.5;
        status.recent.seconds = 10.0;
        status.refused = rates(&[("no_site", 0.5)]);
    });
    assert_eq!(scanned.level, Level::Good);
}

#[test]
fn nodes_that_go_in_and_out_are_named_though_they_are_in_now() {
    let log = crate::events::EventLog::default();
    let eject = |node: &str| {
        let about = crate::events::About::node(node, "shop");
        log.add("ejected", about, "it fails");
    };
    (0..3).for_each(|_| log.add("ejected", crate::events::About::node("n1", "shop"), "slow"));
    (0..4).for_each(|_| eject("n1"));
    (0..2).for_each(|_| eject("n2"));
    let said = headline(&calm_status(), &[], &log.unsteady());
    let text = "1 node goes in and out: n1 (ejected 4 times in 0.0 s)";
    assert_eq!((texts(&said), said.level), (vec![text], Level::Warn));
}

/// A class that takes 62 % of a resource.
fn finding(class: &str, resource: &str) -> Finding {
    Finding {
        class: class.into(),
        pattern: None,
        resource: Arc::from(resource),
        share: 0.62,
        cost_seconds: 0.1,
        cost_error: 0.1,
        evidence: [9.0; 3],
        in_progress: 3.0,
        flagged: Some((Confidence::Strong, Timestamp::ZERO)),
        suspected: None,
        presumed: None,
    }
}

#[test]
fn a_full_node_is_named_where_all_is_well_and_a_full_site_is_a_warning() {
    let full = |nodes: &[usize]| {
        let mut status = calm_status();
        for node in nodes {
            let load = status.sites[0].nodes[*node].load.as_mut().unwrap();
            (load.cpu, load.recent_cpu) = (Some(0.1), Some(0.99));
            (load.runnable, load.capacity) = (Some(5.0), Some(0.25));
        }
        let by = finding("shop GET /search?q", "shop cpu");
        let other = finding("blog GET /", "blog cpu");
        headline(&status, &[&by, &other], &[])
    };
    let one = full(&[1]);
    assert_eq!(one.level, Level::Good, "{}", one.text);
    assert!(one.text.starts_with("all is well: "), "{}", one.text);
    let named = "; full: n2 (CPU 99 %, 5 tasks on 0.25 CPUs)";
    assert!(one.text.ends_with(named), "{}", one.text);
    let all = full(&[0, 1]);
    assert_eq!(all.level, Level::Warn);
    let text = "the nodes of shop have little room left: 99 % of their CPUs are used; \
                by shop GET /search?q (62 % of shop cpu)";
    assert_eq!(texts(&all), [text]);
}

#[test]
fn refusals_are_named_with_what_is_full_and_by_whom() {
    let mut status = calm_status();
    let shop = &mut status.sites[0];
    shop.recent.requests_per_second = 300.0;
    shop.refused = rates(&[
        ("overload", 200.0),
        ("queue_full", 10.0),
        ("bad_request", 9.0),
    ]);
    let load = shop.nodes[1].load.as_mut().unwrap();
    (load.cpu, load.runnable, load.capacity) = (Some(0.98), Some(12.0), Some(2.0));
    let (own, other) = (
        finding("shop GET /search?q", "shop cpu"),
        finding("blog GET /", "blog cpu"),
    );
    let said = headline(&status, &[&own, &other], &[]);
    assert_eq!(said.level, Level::Bad);
    assert_eq!(
        texts(&said),
        [
            "shop refuses 70 % of its requests, 210/s (overload: an admission limit was reached); \
          full: n2 (CPU 98 %, 12 tasks on 2 CPUs); by shop GET /search?q (62 % of shop cpu)"
        ]
    );
}

#[test]
fn errors_are_named_with_their_reasons_and_nodes() {
    let said = after(|status| {
        let shop = &mut status.sites[0];
        shop.recent.requests_per_second = 104.0;
        shop.errors = rates(&[("5xx", 70.0), ("connect", 3.0)]);
        shop.nodes[1].recent.errors_per_second = 73.0;
    });
    assert_eq!(said.level, Level::Bad);
    let text = "70 % of the requests to shop fail: 5xx 70/s, connect 3.0/s; at n2 (73/s)";
    assert_eq!(texts(&said), [text]);
    // On and off; some come just now.
    let now_and_then = after(|status| {
        let shop = &mut status.sites[0];
        shop.recent.requests_per_second = 1000.0;
        shop.errors = rates(&[("5xx", 1.0)]);
        shop.failing_seconds = Some(13.0);
        shop.nodes[1].recent.errors_per_second = 1.0;
    });
    let text = "requests to shop fail on and off, for 13 s: 5xx 1.0/s; at n2 (1.0/s)";
    assert_eq!(texts(&now_and_then), [text]);
    // One in a thousand is no sentence.
    let few = after(|status| {
        status.sites[0].recent.requests_per_second = 1000.0;
        status.sites[0].errors = rates(&[("5xx", 1.0)]);
    });
    assert_eq!(few.level, Level::Good);
}

#[test]
fn a_site_without_a_node_comes_before_all_else() {
    let said = after(|status| {
        status.accept_paused = 1;
        status.sites[0].refused = rates(&[("overload", 100.0)]);
        status.sites[0].recent.requests_per_second = 100.0;
        let blog = &mut status.sites[1];
        blog.candidates = 0;
        blog.refused = rates(&[("no_node", 50.0)]);
        blog.recent.requests_per_second = 50.0;
        blog.nodes[0].trouble.ejected_for = Some("failures".into());
        blog.nodes[0].trouble.ejected_seconds_ago = Some(12.0);
    });
    let all = texts(&said);
    assert_eq!(
        all[0],
        "no node of blog may take requests: n3 (failures, 12 s)"
    );
    assert!(all[1].starts_with("shop refuses 100 %"), "{all:?}");
    assert!(all[2].starts_with("one worker accepts no"), "{all:?}");
    assert_eq!(all.len(), 3);
}

#[test]
fn what_clients_do_not_notice_yet_is_a_warning() {
    let said = after(|status| {
        status.draining = true;
        let shop = &mut status.sites[0];
        shop.nodes[0].trouble.ejected_for = Some("check".into());
        shop.nodes[0].trouble.ejected_seconds_ago = Some(300.0);
        shop.nodes[0].load = None;
        shop.apart.queue_wait.p99_seconds = Some(0.25);
        shop.apart.queued = 4;
        status.sites[1].fail_open = true;
    });
    assert_eq!(said.level, Level::Warn);
    let expected = [
        "this front-end drains: it was asked to stop",
        "1 of 2 nodes of shop is out: n1 (check, 5 min)",
        "no node of blog is up: ejected ones are used",
        "requests to shop wait for room: 4 of them now, p99 250 ms",
    ];
    assert_eq!(texts(&said), expected);
}

#[test]
fn certificates_are_wrong_once_they_end_or_have_no_next_one() {
    let with = |left: Option<f64>, error: Option<&str>| {
        after(|status| {
            status.certificates = vec![CertificateStatus {
                names: vec!["shop.example".into()],
                expires_in_seconds: left,
                issued: 1,
                failed: 0,
                error: error.map(str::to_owned),
                next_try_in_seconds: None,
            }];
        })
    };
    assert_eq!(with(Some(60.0), None).level, Level::Good);
    assert_eq!(with(Some(-60.0), None).level, Level::Bad);
    let said = with(Some(86_400.0), Some("refused"));
    let text = "the certificate for shop.example ends in 24 h and has no next one: refused";
    assert_eq!((said.level, said.text.as_str()), (Level::Warn, text));
}

#[test]
fn a_certificate_of_the_file_is_a_warning_for_its_last_seven_days() {
    let with = |days: f64| {
        after(|status| {
            status.given_certificates = vec![GivenCertificate {
                names: vec!["shop.example".into()],
                expires_in_seconds: days * 86_400.0,
            }];
        })
    };
    assert_eq!(with(7.01).level, Level::Good);
    let said = with(6.0);
    let text = "the certificate for shop.example ends in 144 h";
    assert_eq!((said.level, said.text.as_str()), (Level::Warn, text));
    let said = with(-1.0);
    let text = "the certificate for shop.example has run out 24 h ago";
    assert_eq!((said.level, said.text.as_str()), (Level::Bad, text));
}

#[test]
fn long_lists_are_cut() {
    let names = (1..=5).map(|number| format!("n{number}"));
    assert_eq!(named(names), "n1, n2, n3 and 2 more");
    let said = after(|status| {
        let site = status.sites[1].clone();
        status.sites = vec![site; 100];
        for site in &mut status.sites {
            site.candidates = 0;
        }
    });
    assert_eq!(said.others.len(), OTHERS_MAX);
}
