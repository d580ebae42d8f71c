//! The load generator as the experiments use it: a process of the lab beside a cluster.

use std::process::Command;
use std::time::Duration;

use tidegate_lab::cluster::{Cluster, ClusterError, ClusterPlan, NodePlan};
use tidegate_lab::load::{self, Arrivals, LoadPlan, Pacing, Requests, Size, Stream};

const LAB: &str = env!("CARGO_BIN_EXE_tidegate-lab");

fn plan(cluster: &Cluster) -> LoadPlan {
    let stream = |site: &str, pacing, requests| Stream {
        site: site.to_owned(),
        pacing,
        requests,
        header: None,
    };
    LoadPlan {
        targets: cluster.nodes().iter().map(|node| node.address).collect(),
        streams: vec![
            stream(
                "open.example",
                Pacing::Open {
                    rate: 100.0,
                    arrivals: Arrivals::WorldCup,
                },
                Requests::world_cup("/work?cpu={cpu}us&bytes={bytes}", Size::fixed(100.0)),
            ),
            stream(
                "closed.example",
                Pacing::Closed {
                    clients: 2,
                    think: Duration::from_millis(20),
                },
                Requests::Single {
                    path: "/work?cpu=100us".to_owned(),
                },
            ),
        ],
        warm_up: Duration::from_millis(200),
        length: Duration::from_secs(1),
        windows: Some(Duration::from_millis(50)),
        ..LoadPlan::default()
    }
}

#[test]
fn a_load_runs_beside_a_cluster() {
    let nodes = ["n1", "n2"].map(|name| NodePlan::new(name, 0.2));
    let cluster = match Cluster::start(&ClusterPlan::new(nodes.to_vec())) {
        Ok(cluster) => cluster,
        Err(ClusterError::Missing(what)) => {
            eprintln!("SKIPPED: no cluster here: {what}");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let result = load::run(cluster.front(), &plan(&cluster)).unwrap();
    for stream in &result.streams {
        assert!(stream.completed > 0, "{stream:?}");
        assert_eq!(stream.errors.len(), 0, "{:?}", stream.errors);
        assert_eq!(stream.series.len(), 20);
    }
    assert!(result.said.iter().any(|it| it.contains("World Cup")));
}

#[test]
fn what_is_no_plan_is_refused_with_a_sentence() {
    let output = Command::new(LAB).arg("load").output().unwrap();
    assert!(!output.status.success());
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("the plan"), "{told}");
}
