//! The auction site on a cluster: every page, what it costs the database, and what is left of it.
//! As root, with nginx, PHP-FPM and PostgreSQL; else SKIPPED with the reason.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "test code")]

mod support;

use std::io::Write;
use std::net::TcpStream;

use support::{PATIENCE, answer, get, status_of};
use tidegate_lab::auction::{CPU_HEADER, STATEMENTS, statements};
use tidegate_lab::cluster::{Cluster, ClusterError, ClusterPlan, Mode, NodePlan, ServerKind};
use tidegate_lab::load::visitors::{Visitor, class, is_elephant, walk};

const DATABASE: usize = 0;
const WEB: usize = 1;

/// The site, or the reason why not printed.
fn site() -> Option<Cluster> {
    let node = |name: &str, server| NodePlan {
        server,
        workers: 4,
        ..NodePlan::new(name, 0.45)
    };
    let plan = ClusterPlan {
        mode: Some(Mode::Namespaces),
        ..ClusterPlan::new(vec![
            node("db", ServerKind::Database),
            node("web", ServerKind::Auction),
        ])
    };
    match Cluster::start(&plan) {
        Ok(cluster) => Some(cluster),
        Err(ClusterError::Missing(why)) => {
            println!("SKIPPED: {why}");
            None
        }
        Err(why) => panic!("{why}"),
    }
}

fn post(cluster: &Cluster, path: &str) -> String {
    let address = cluster.nodes()[WEB].address;
    let ask = || {
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let head = format!("POST {path} HTTP/1.1\r\nhost: n\r\ncontent-length: 0\r\n");
        write!(stream, "{head}connection: close\r\n\r\n")?;
        answer(stream)
    };
    cluster.front().inside(ask).unwrap().unwrap()
}

/// Nanoseconds of the database that an answer tells.
fn cost(answer: &str) -> f64 {
    let lines = answer.lines();
    let mut values = lines.filter_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case(CPU_HEADER).then_some(value)
    });
    let value = values
        .next()
        .unwrap_or_else(|| panic!("no {CPU_HEADER}: {answer}"));
    value.trim().parse().unwrap()
}

/// A path with 1 for every draw.
fn filled(path: &str) -> String {
    let parts = path.split('{').enumerate();
    let part = |(number, part): (usize, &str)| match (number, part.split_once('}')) {
        (0, _) | (_, None) => part.to_owned(),
        (_, Some((_, rest))) => format!("1{rest}"),
    };
    parts.map(part).collect()
}

/// System V segments of the host, where a database outside its own namespace would leave one.
fn segments() -> usize {
    let text = std::fs::read_to_string("/proc/sysvipc/shm").unwrap_or_default();
    text.lines().count()
}

#[test]
fn every_page_is_there_and_tells_what_it_cost() {
    let before = segments();
    let Some(cluster) = site() else { return };
    let (mut ants, mut elephants) = (Vec::new(), Vec::new());
    let walks = Visitor::ALL.map(walk);
    let pages = walks.iter().flat_map(|walk| &walk.pages);
    for page in pages {
        let path = filled(&page.path);
        let answer = match page.post {
            true => post(&cluster, &path),
            false => get(&cluster, WEB, &path).unwrap(),
        };
        assert_eq!(status_of(&answer), 200, "{}: {answer}", page.name);
        assert!(answer.contains("<!doctype html><title>"), "{answer}");
        assert!(class(&page.name).is_some());
        let kind = if is_elephant(&path) {
            &mut elephants
        } else {
            &mut ants
        };
        kind.push(cost(&answer));
    }
    let dearest = ants.iter().copied().fold(0.0, f64::max);
    let cheapest = elephants.iter().copied().fold(f64::INFINITY, f64::min);
    assert!(cheapest > dearest, "{elephants:?} {ants:?}");
    assert_eq!(segments(), before);

    for missing in [
        "/nothing",
        "/item/0",
        "/search/category/x",
        "/member/99999999",
    ] {
        let answer = get(&cluster, WEB, missing).unwrap();
        assert_eq!(status_of(&answer), 404, "{missing}: {answer}");
    }
    bids_count(&cluster);
    let account = cluster.nodes()[DATABASE].ask_database(STATEMENTS).unwrap();
    assert!(!statements(&account).is_empty(), "{account}");
    assert!(cluster.nodes()[WEB].ask_database("select 1").is_err());
}

/// A bid is kept.
fn bids_count(cluster: &Cluster) {
    let count = || {
        let query = "select count(*) from bids where item = 7";
        let told = cluster.nodes()[DATABASE].ask_database(query).unwrap();
        told.trim().parse::<u32>().unwrap()
    };
    let before = count();
    let answer = post(cluster, "/item/7/bid?amount=777&member=3");
    assert_eq!(status_of(&answer), 200, "{answer}");
    assert_eq!(count(), before + 1);
    let shown = get(cluster, WEB, "/item/7/bids").unwrap();
    assert!(shown.contains("777"), "{shown}");
}

#[test]
fn a_database_that_was_killed_comes_back_as_it_was() {
    let Some(mut cluster) = site() else { return };
    let count = |cluster: &Cluster| {
        let query = "select count(*), sum(hashtext(bids.item || ' ' || bids.amount)) from bids";
        cluster.nodes()[DATABASE].ask_database(query).unwrap()
    };
    let first = count(&cluster);
    assert_eq!(status_of(&post(&cluster, "/item/7/bid?member=3")), 200);
    cluster.kill(DATABASE).unwrap();
    support::eventually("the site misses it", || {
        let answer = get(&cluster, WEB, "/item/7").unwrap();
        (status_of(&answer) != 200).then_some(())
    });
    cluster.revive(DATABASE).unwrap();
    assert_eq!(count(&cluster), first);
    // Workers whose connection died get another one.
    support::eventually("the site is there again", || {
        let answer = get(&cluster, WEB, "/item/7").unwrap();
        (status_of(&answer) == 200).then_some(())
    });
}
