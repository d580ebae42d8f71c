//! Discovery of culprits in a front-end whose sites and nodes change: real processes, emulated nodes.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::Value;
use support::{FrontEnd, eventually, folder, tidegate};
use tidegate_core::prng::Prng;
use tidegate_emulator::CachePlan;
use tidegate_emulator::nodes::{AgentPlan, Machines, NodePlan};

/// How long the use of a node is looked at after it has moved, seconds.
const LOOK: f64 = 15.0;

fn machines(folder: &Path, names: &[&str]) -> Machines {
    let plan = |name: &&str| NodePlan {
        name: (*name).into(),
        cores: 1.0,
        workers: 64,
        cache: CachePlan::default(),
        agents: vec![AgentPlan {
            interval: Duration::from_millis(5),
            inside: false,
        }],
    };
    let plans: Vec<_> = names.iter().map(plan).collect();
    Machines::start(&plans, folder).unwrap()
}

/// Requests with pauses in between that are random, until this is dropped.
struct Load {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    fn new() -> Self {
        Self {
            stop: Arc::default(),
            threads: Vec::new(),
        }
    }

    /// So many per second, each with so much work.
    fn add(&mut self, front_end: SocketAddr, host: &str, path: &str, rate: f64, work: &str) {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nx-lab-work: {work}\r\n\r\n");
        let stop = Arc::clone(&self.stop);
        let mut prng = Prng::new(self.threads.len() as u64 + 1);
        self.threads.push(thread::spawn(move || {
            let mut stream = TcpStream::connect(front_end).unwrap();
            while !stop.load(Ordering::Relaxed) {
                let pause = -(1.0 - prng.unit()).ln() / rate;
                thread::sleep(Duration::from_secs_f64(pause));
                stream.write_all(request.as_bytes()).unwrap();
                let mut answer = Vec::new();
                while !answer.windows(4).any(|it| it == b"\r\n\r\n") {
                    let mut more = [0; 2048];
                    let read = stream.read(&mut more).unwrap();
                    assert_ne!(read, 0, "{}", String::from_utf8_lossy(&answer));
                    answer.extend(&more[..read]);
                }
            }
        }));
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A client that failed has said why.
            thread.join().unwrap_or_default();
        }
    }
}

/// A configuration of these sites, and of nodes with the site of each.
fn configuration(machines: &Machines, sites: &[&str], nodes: &[(usize, &str)]) -> String {
    let mut text = "[culprits]\n".to_owned();
    for site in sites {
        let table = format!("[[site]]\nname = \"{site}\"\nhosts = [\"{site}.example\"]\n");
        text.push_str(&table);
        text.push_str("policy = \"round_robin\"\nadmission.mode = \"off\"\n");
    }
    for (place, site) in nodes {
        let (address, region) = (machines.addresses()[*place], &machines.regions()[*place][0]);
        text.push_str(&format!(
            "[[node]]\nname = \"n{place}\"\naddress = \"{address}\"\nsite = \"{site}\"\n\
             load.transport = \"shm\"\nload.path = \"{}\"\n",
            region.display()
        ));
    }
    text
}

fn reload(folder: &Path, front_end: &FrontEnd, configuration: &str) {
    let file = folder.join("tidegate.toml");
    let before = std::fs::read_to_string(&file).unwrap();
    let end = &before[before.rfind("\n[admin]").unwrap()..];
    std::fs::write(&file, format!("{configuration}{end}")).unwrap();
    let admin = front_end.admin.to_string();
    let mut command = tidegate();
    let done = command
        .args(["reload", "--admin", &admin])
        .output()
        .unwrap();
    let error = String::from_utf8(done.stderr).unwrap();
    assert!(done.status.success(), "{error}");
    let said = String::from_utf8(done.stdout).unwrap();
    assert!(!said.contains("needs a"), "{said}");
}

/// Classes that are accused of loading a resource.
fn accused(report: &Value, resource: &str) -> Vec<String> {
    let classes = report["classes"].as_array().unwrap().iter();
    let is_accused = |class: &&Value| {
        let mut pairs = class["pairs"].as_array().unwrap().iter();
        pairs.any(|it| it["resource"] == resource && !it["confidence"].is_null())
    };
    let accused = classes.filter(is_accused);
    accused
        .map(|it| it["name"].as_str().unwrap().to_owned())
        .collect()
}

fn resource<'a>(report: &'a Value, name: &str) -> Option<&'a Value> {
    let mut resources = report["resources"].as_array().unwrap().iter();
    resources.find(|it| it["name"] == name)
}

/// Mean use in the last seconds.
fn used(resource: &Value) -> f64 {
    let steps = resource["used"].as_array().unwrap();
    let known: Vec<f64> = steps
        .iter()
        .rev()
        .take(60)
        .filter_map(Value::as_f64)
        .collect();
    known.iter().sum::<f64>() / known.len().max(1) as f64
}

/// What is used is the blog's, which has two nodes by now, and next to nothing is the shop's.
fn check_use(report: &Value) {
    let of = |name| {
        let found = resource(report, name).unwrap();
        (found["capacity"].as_f64().unwrap(), used(found))
    };
    let (shop, blog) = (of("shop cpu"), of("blog cpu"));
    assert!(shop.0 == 1.0 && blog.0 == 2.0, "{shop:?} {blog:?}");
    assert!(shop.1 < 0.15 && blog.1 > 0.3, "{shop:?} {blog:?}");
}

#[test]
fn a_new_sites_culprit_is_named_there_and_a_node_that_moves_accuses_none_of_the_site_that_had_it() {
    let folder = folder("culprits-follow");
    let machines = machines(&folder, &["m0", "m1", "m2"]);
    let text = configuration(&machines, &["shop"], &[(0, "shop"), (2, "shop")]);
    let front_end = FrontEnd::start(&folder, &text);
    let mut load = Load::new();
    load.add(
        front_end.address,
        "shop.example",
        "/page/1",
        30.0,
        "cpu=1ms",
    );
    eventually(
        "the class of the site that is alone has no site's name",
        || {
            let report = front_end.api("/api/culprits");
            let classes = report["classes"].as_array().unwrap();
            classes
                .iter()
                .any(|it| it["name"] == "GET /page/{n}")
                .then_some(())
        },
    );
    // A site comes, with an elephant.
    let nodes = [(0, "shop"), (1, "blog"), (2, "shop")];
    reload(
        &folder,
        &front_end,
        &configuration(&machines, &["shop", "blog"], &nodes),
    );
    load.add(
        front_end.address,
        "blog.example",
        "/page/1",
        30.0,
        "cpu=1ms",
    );
    for _ in 0..2 {
        load.add(
            front_end.address,
            "blog.example",
            "/search",
            5.0,
            "cpu=50ms",
        );
    }
    let is_named = || {
        let report = front_end.api("/api/culprits");
        let blog = accused(&report, "blog cpu");
        assert_eq!(accused(&report, "shop cpu"), Vec::<String>::new());
        blog.contains(&"blog GET /search".to_owned()).then_some(())
    };
    eventually("the new site's culprit is named", is_named);
    // Its site gets a node that the other one had: what it does there is no use of the other site's.
    let nodes = [(0, "shop"), (1, "blog"), (2, "blog")];
    reload(
        &folder,
        &front_end,
        &configuration(&machines, &["shop", "blog"], &nodes),
    );
    let report = front_end.api("/api/culprits");
    let moved = report["to"].as_f64().unwrap();
    eventually("the node's use was looked at for a while", || {
        let report = front_end.api("/api/culprits");
        assert_eq!(accused(&report, "shop cpu"), Vec::<String>::new());
        let at = resource(&report, "blog cpu")?["evaluated_at"].as_f64()?;
        (at > moved + LOOK).then_some(())
    });
    check_use(&front_end.api("/api/culprits"));
}

#[test]
fn a_site_that_goes_is_watched_no_more_and_a_resource_that_comes_is() {
    let folder = folder("culprits-resource");
    let machines = machines(&folder, &["m0", "m1"]);
    let both = configuration(&machines, &["shop", "blog"], &[(0, "shop"), (1, "blog")]);
    let front_end = FrontEnd::start(&folder, &both);
    let is_watched = |name| {
        let report = front_end.api("/api/culprits");
        resource(&report, name).is_some()
    };
    eventually("both are watched", || {
        (is_watched("shop cpu") && is_watched("blog cpu")).then_some(())
    });
    // The blog's node serves nothing from then on, and is watched all the same.
    let shop = configuration(&machines, &["shop"], &[(0, "shop")]);
    let database = format!(
        "{shop}[[node]]\nname = \"db\"\nrole = \"resource\"\naddress = \"127.0.0.1:0\"\n\
         load.transport = \"shm\"\nload.path = \"{}\"\n",
        machines.regions()[1][0].display()
    );
    reload(&folder, &front_end, &database);
    eventually("the resource is watched instead of the site", || {
        (is_watched("db cpu") && !is_watched("blog cpu")).then_some(())
    });
    let resources = || front_end.api("/api/status")["resources"].clone();
    assert_eq!(resources()[0]["name"], "db");
    reload(&folder, &front_end, &shop);
    eventually("it is not watched any more", || {
        (!is_watched("db cpu")).then_some(())
    });
    assert_eq!(resources().as_array().map(Vec::len), Some(0));
}
