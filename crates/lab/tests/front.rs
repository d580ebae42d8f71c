//! Front-ends before a small cluster, end to end: every one that is installed proxies, and dies
//! with all its processes. As root; without it each test says SKIPPED.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "test code")]

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use support::{PATIENCE, agent_binary, eventually, start};
use tidegate_lab::cluster::{Cluster, NodePlan};
use tidegate_lab::experiments::arms;
use tidegate_lab::front::{
    self, EnvoyFilter, FrontKind, HaproxyBalance, NginxBalance, SiteTargets, TidegateArm,
};

fn nodes() -> Vec<NodePlan> {
    let node = |name: &str| NodePlan {
        agents: arms::AGENTS.to_vec(),
        ..NodePlan::new(name, 0.3)
    };
    ["a", "b"].map(node).into()
}

fn sites() -> Vec<SiteTargets> {
    let site = |name: &str| SiteTargets {
        name: name.into(),
        nodes: vec![0, 1],
    };
    ["shop", "blog"].map(site).into()
}

/// Front-ends with something against overload, and one that reads load over TCP.
fn guarded() -> Vec<FrontKind> {
    let slo = std::time::Duration::from_millis(500);
    let admission = "{ mode = \"adaptive\", slo = \"500ms\", priorities = 4 }";
    let over_tcp = TidegateArm::asking("adaptive_tcp", "auto", slo / 10).admitting(admission);
    vec![
        FrontKind::Haproxy(HaproxyBalance::Limited { queue: slo }),
        FrontKind::Nginx(NginxBalance::LimitConn),
        FrontKind::Envoy(EnvoyFilter::AdaptiveConcurrency),
        FrontKind::Envoy(EnvoyFilter::AdmissionControl { timeout: slo }),
        FrontKind::Tidegate(over_tcp),
    ]
}

/// The whole answer to a request from the front's network.
fn get(cluster: &Cluster, address: SocketAddr, host: &str) -> String {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let head =
            format!("GET /work?bytes=7 HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    cluster.front().inside(ask).unwrap().unwrap()
}

#[test]
fn every_front_end_that_is_here_proxies_both_sites_and_goes() {
    if !agent_binary() {
        return;
    }
    let Some(cluster) = start(nodes()) else {
        return;
    };
    let kinds = arms::peers()
        .into_iter()
        .chain([arms::auto()])
        .map(|arm| arm.kind)
        .chain(guarded());
    for kind in kinds {
        if let Err(why) = front::available(&kind) {
            println!("SKIPPED {}: {why}", kind.label());
            continue;
        }
        let helpers = front::helpers(&kind, &cluster).unwrap();
        let front = front::start(cluster.front(), &kind, &sites(), &cluster).unwrap();
        for host in ["shop", "blog"] {
            let answer = get(&cluster, front.address, host);
            let good = answer.starts_with("HTTP/1.1 200") && answer.contains("xxxxxxx");
            assert!(good, "{}: {answer}", kind.label());
        }
        let (address, processes) = (front.address, front.processes());
        assert!(!processes.is_empty(), "{}", kind.label());
        drop((front, helpers));
        eventually(&format!("{} is gone", kind.label()), || {
            let alive = |id: &u32| std::path::Path::new(&format!("/proc/{id}/task")).exists();
            (!processes.iter().any(alive)).then_some(())
        });
        let refused = cluster
            .front()
            .inside(|| TcpStream::connect(address).is_err());
        assert!(refused.unwrap(), "{}", kind.label());
    }
}

#[test]
fn a_front_end_that_cannot_start_says_why() {
    let Some(cluster) = start(nodes()) else {
        return;
    };
    let kind = FrontKind::Tidegate(TidegateArm::blind("no_such_policy"));
    if !agent_binary() {
        return;
    }
    let error = front::start(cluster.front(), &kind, &sites(), &cluster).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("no_such_policy") && text.contains("does not proxy"),
        "{text}"
    );
}
