//! Three front-ends agree on moves by words in regions: they are killed, stopped and cut off from those, and so is the home of
//! the words.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[path = "../../remote/tests/support/namespaces.rs"]
#[expect(dead_code, reason = "its other users use the rest")]
mod namespaces;
mod support;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use namespaces::{Hosts, NODE_SECOND, NODE_V4};
use support::moving::{
    EndsWith, Home, NODES, SITES, Scene, all_serve, assignments, front_ends_are_killed,
    home_is_silent, serving, trouble, while_asked,
};
use support::{Agent, FrontEnd, eventually, free_address_at, node_key, request, tidegate};
use tidegate_core::moves::words::{
    Assignment, AssignmentState, Count24, LockState, SiteLock, SiteNumber,
};
use tidegate_remote::Region as _;
use tidegate_remote::udp::key_file::KeyFile;
use tidegate_remote::udp::{UdpOptions, UdpRegion};

/// Lines of `[reconfigure]`: agents set nodes up.
const HOOKS: &str = "drain = \"5s\"\nhook = \"20s\"\n";

impl Home for Agent {
    fn lines(&self) -> String {
        format!(
            "engine = \"region\"\nhome = \"udp://{}\"\nhome_key_name = \"home\"\n",
            self.address
        )
    }

    fn kill(&mut self) {
        Self::kill(self);
    }

    fn revive(&mut self) {
        Self::revive(self);
    }
}

/// With an agent as home that answers.
fn start(test: &str) -> Scene<Agent> {
    let home = |_: &Path, master: &Path| Agent::start(&node_key(master, "home"));
    let scene = Scene::with(test, home);
    eventually("the home answers", || lock(&scene, 0));
    scene
}

/// What a site's lock holds at the home; none if that does not answer.
fn lock(scene: &Scene<Agent>, site: usize) -> Option<u64> {
    let key = std::fs::read_to_string(scene.folder.join("home.key")).unwrap();
    let key = KeyFile::parse(&key).unwrap().nodes().unwrap().remove(0).key;
    let options = UdpOptions {
        wait: Duration::from_millis(100),
        tries: 3,
    };
    let mut home = UdpRegion::connect(scene.home.address, key, options).unwrap();
    let word = SiteNumber(site as u8).lock_word();
    home.fetch_and_add(word, 0).ok()
}

/// Whether all locks at the home are free.
fn is_at_rest(scene: &Scene<Agent>) -> bool {
    (0..SITES.len()).all(|site| {
        let lock = lock(scene, site).map(SiteLock::unpack);
        let lock = lock.and_then(|it| it.unwrap());
        lock.is_some_and(|it| it.state == LockState::Idle)
    })
}

fn locks_are_free(scene: &Scene<Agent>) {
    eventually("no lock stays taken", || is_at_rest(scene).then_some(()));
}

/// Load that goes from site to site, while one of three front-ends is stopped, wakes, is killed and comes back.
fn one_front_end_after_the_other_fails(scene: &Scene<Agent>, one: &FrontEnd, two: &FrontEnd) {
    let three = scene.front_end("three", 1);
    scene.flow_to("shop");
    all_serve(&[one, two, &three], "shop", 3);
    assert_eq!(scene.moves(), 2, "one move per event");
    three.process.signal("STOP");
    scene.flow_to("blog");
    all_serve(&[one, two], "blog", 3);
    three.process.signal("CONT");
    all_serve(&[&three], "blog", 3);
    assert_eq!(scene.moves(), 4, "what slept moves nothing");
    front_ends_are_killed(scene, &[one, two, &three], || locks_are_free(scene));
}

#[test]
fn front_ends_agree_on_moves_whatever_becomes_of_one_and_of_the_home() {
    let mut scene = start("moves-region");
    let (one, two) = (scene.front_end("one", 1), scene.front_end("two", 1));
    let nodes = Arc::clone(&scene.nodes);
    while_asked(&nodes, [&one, &two], |asked| {
        one_front_end_after_the_other_fails(&scene, &one, &two);
        home_is_silent(&mut scene, &[&one, &two], asked);
        locks_are_free(&scene);
    });
}

#[test]
fn a_front_end_with_another_configuration_moves_nothing_and_says_so() {
    let scene = start("moves-disagree");
    let one = scene.front_end("one", 1);
    eventually("the words have begun", || {
        let (moves, all) = (one.api("/api/moves"), assignments(&scene.nodes));
        (moves["trouble"].is_null() && all.is_some()).then_some(())
    });
    let other = scene.front_end("other", 2);
    let said = eventually("it says that it disagrees", || trouble(&other));
    assert!(said.contains("min, max or priority"), "{said}");
    let admin = other.admin.to_string();
    let mut command = tidegate();
    let ordered = command
        .args(["move", "b1", "shop", "--admin", &admin])
        .output();
    let text = String::from_utf8(ordered.unwrap().stderr).unwrap();
    assert!(
        text.contains("moves no node until they are alike"),
        "{text}"
    );
    // The first one goes on, and the other one takes nothing from words that it reads by other numbers.
    let admin = one.admin.to_string();
    let mut command = tidegate();
    let moved = command
        .args(["move", "b1", "shop", "--admin", &admin])
        .output();
    let moved = moved.unwrap();
    assert!(moved.status.success(), "{moved:?}");
    assert_eq!((serving(&one, "shop"), serving(&other, "shop")), (2, 1));
    // Said once, and once more after a home that fell silent.
    let log = eventually("its log has it", || {
        let log = std::fs::read_to_string(scene.folder.join("other/front-end.log")).unwrap();
        log.contains("moves no node until").then_some(log)
    });
    let count = |text: &str| log.matches(text).count();
    let (said, silences) = (count("moves no node until"), count("does not answer"));
    assert!((1..=1 + silences).contains(&said), "{log}");
}

#[test]
fn every_front_end_says_since_when_it_sends_a_moved_node_requests_of_its_new_site() {
    let scene = start("moves-region-times");
    let (one, other) = (scene.front_end("one", 1), scene.front_end("other", 1));
    eventually("the other one is ready to follow", || {
        other.api("/api/moves")["trouble"].is_null().then_some(())
    });
    let admin = one.admin.to_string();
    let mut command = tidegate();
    let moved = command.args(["move", "b1", "shop", "--admin", &admin]);
    let moved = moved.output().unwrap();
    assert!(moved.status.success(), "{moved:?}");
    let last = |front_end: &FrontEnd| {
        let last = front_end.api("/api/moves")["moves"][0].clone();
        (last["node"] == "b1").then_some(last)
    };
    let made = last(&one).unwrap();
    let followed = eventually("the other one follows", || last(&other));
    let decided = made["decided_us"].as_u64().unwrap();
    for seen in [&made, &followed] {
        assert!(seen["assigned_us"].as_u64().unwrap() > decided, "{seen}");
        assert_eq!(seen["generation"], 2, "the words began with 1: {seen}");
    }
    assert!(followed["decided_us"].is_null(), "{followed}");
}

#[test]
fn a_site_that_one_front_end_freezes_is_frozen_for_all_until_any_thaws_it() {
    let scene = start("moves-region-frozen");
    let said = |front_end: &FrontEnd, words: &[&str]| {
        let admin = front_end.admin.to_string();
        let done = tidegate().args(words).args(["--admin", &admin]).output();
        let done = done.unwrap();
        let text = [done.stdout, done.stderr].concat();
        (done.status.success(), String::from_utf8(text).unwrap())
    };
    let is_frozen = |front_end: &FrontEnd| {
        let moves = front_end.api("/api/moves");
        let sites = moves["sites"].as_array().unwrap();
        sites
            .iter()
            .any(|it| it["site"] == "shop" && it["frozen"] == true)
    };
    let one = scene.front_end("one", 1);
    eventually("words have begun, and one freezes the shop", || {
        said(&one, &["moves", "freeze", "shop"]).0.then_some(())
    });
    // One that begins later sees it too, and moves nothing there; the one that has frozen it is gone.
    let two = scene.front_end("two", 1);
    eventually("the other one sees it", || is_frozen(&two).then_some(()));
    drop(one);
    let (done, text) = said(&two, &["move", "b1", "shop"]);
    assert!(
        !done && text.contains("operators have frozen the site"),
        "{text}"
    );
    assert!(said(&two, &["moves", "thaw", "shop"]).0);
    let three = scene.front_end("three", 1);
    eventually("words are read", || {
        let (done, _) = said(&three, &["move", "b1", "shop"]);
        done.then_some(())
    });
    assert!(!is_frozen(&two) && !is_frozen(&three));
}

#[test]
fn a_node_whose_agent_has_no_hooks_is_not_moved_and_that_is_said() {
    let scene = start("moves-no-hooks");
    let one = scene.front_end_with("one", 1, HOOKS);
    let unfollowed = || one.api("/api/moves")["unfollowed"].clone();
    eventually("words have begun, and no agent follows them", || {
        let all = unfollowed();
        let whys = all.as_array().unwrap().iter().map(|it| it["why"].as_str());
        let silent = whys.filter(|it| it.unwrap().contains("does not follow moves"));
        (silent.count() == NODES.len()).then_some(())
    });
    // All have an agent, that of b1 without hooks.
    let all = eventually("all other nodes can be moved", || {
        let words = assignments(&scene.nodes).unwrap();
        for ((node, word), (name, _)) in scene.nodes.iter().zip(words).zip(NODES) {
            node.follow(word, name != "b1");
        }
        let all = unfollowed();
        let whys = all.as_array().unwrap();
        let is_known = |it: &serde_json::Value| it["why"].as_str().unwrap().contains("no hooks");
        (whys.len() == 1 && is_known(&whys[0])).then(|| all.clone())
    });
    assert_eq!(all[0]["node"], "b1");
    let admin = one.admin.to_string();
    let said = |words: &[&str]| {
        let mut command = tidegate();
        let done = command.args(words).args(["--admin", &admin]).output();
        let done = done.unwrap();
        let text = [done.stdout, done.stderr].concat();
        (done.status.success(), String::from_utf8(text).unwrap())
    };
    let (_, text) = said(&["moves"]);
    assert!(
        text.contains("b1 is not moved: its agent has no hooks"),
        "{text}"
    );
    let (can, text) = said(&["move", "b1", "shop", "--dry-run"]);
    assert!(
        !can && text.contains("b1: its agent has no hooks"),
        "{text}"
    );
    let (can, text) = said(&["move", "b2", "shop", "--dry-run"]);
    assert!(can, "{text}");
}

/// The home is gone: nothing but the nodes' own words says where they are, and no front-end moves them meanwhile.
#[test]
fn a_front_end_that_starts_knows_where_nodes_are_before_its_first_request() {
    let mut scene = start("moves-at-start");
    scene.home.kill();
    let (blog, shop) = (SiteNumber(0), SiteNumber(1));
    let serves = |site| Assignment::first(Count24::new(5), site, false);
    let drains = Assignment {
        state: AssignmentState::Draining { from: blog },
        ..serves(shop)
    };
    // b1 has moved to the shop, b2 is on its way there.
    let words = [serves(shop), serves(shop), drains, serves(blog)];
    for (node, word) in scene.nodes.iter().zip(words) {
        node.begin(word);
    }
    let bodies = |front_end: &FrontEnd, host: &str| {
        let answers = (0..24).map(|_| front_end.get(host, "/").body);
        answers.collect::<BTreeSet<_>>()
    };
    let folder = scene.folder.clone();
    let log = |name: &str| {
        let path = folder.join(name).join("front-end.log");
        std::fs::read_to_string(path).unwrap()
    };
    let one = scene.front_end_with("one", 1, HOOKS);
    let expected = |names: &[&str]| names.iter().map(|it| it.to_string()).collect();
    let seen: BTreeSet<String> = bodies(&one, "blog.example");
    assert_eq!(seen, expected(&["b3"]));
    assert_eq!(bodies(&one, "shop.example"), expected(&["b1", "s1"]));
    assert!(!log("one").contains("did not say within"), "{}", log("one"));
    drop(one);

    // One node is silent: the others are known all the same.
    Arc::get_mut(&mut scene.nodes).unwrap()[0].responder = None;
    let two = scene.front_end_with("two", 1, HOOKS);
    assert!(bodies(&two, "shop.example").contains("b1"));
    assert_eq!(bodies(&two, "blog.example"), expected(&["b3"]));
    let log = log("two");
    assert!(log.contains("begin at the site of the file: s1"), "{log}");
}

/// What the front-end that is cut off has lost.
#[derive(Clone, Copy, Debug)]
enum Cut {
    /// Nothing comes through, in either direction.
    Silence,
    /// Its words arrive, and no answer does.
    Answers,
}

/// One front-end has a host of its own, with a way to the agents and another one to the servers; the rest is on the second host.
fn hosts() -> Result<Hosts, String> {
    let hosts = Hosts::switched()?;
    hosts.second_cable()?;
    hosts.at_front(|| loopback_up(&hosts))?;
    hosts.at_node(|| loopback_up(&hosts))?;
    Ok(hosts)
}

fn loopback_up(hosts: &Hosts) -> Result<(), String> {
    hosts.ip(&["link", "set", "lo", "up"]).map(drop)
}

impl Cut {
    /// Cuts the way to the agents, or mends it. The way to the servers stays.
    fn set(self, hosts: &Hosts, is_cut: bool) {
        let done = match (self, is_cut) {
            (Self::Silence, true) => {
                hosts.ip(&["-n", hosts.switch(), "link", "set", "port0", "down"])
            }
            (Self::Silence, false) => {
                hosts.ip(&["-n", hosts.switch(), "link", "set", "port0", "up"])
            }
            (Self::Answers, true) => {
                hosts.ip(&["-n", hosts.node(), "route", "add", "blackhole", FRONT])
            }
            (Self::Answers, false) => {
                hosts.ip(&["-n", hosts.node(), "route", "del", "blackhole", FRONT])
            }
        };
        done.unwrap();
    }
}

/// The address at which agents see the front-end that is cut off.
const FRONT: &str = "192.0.2.1/32";
/// Whose load must last so long moves nodes first, or last.
const SOON: &str = "history = \"20ms\"\n";
const LATE: &str = "history = \"150ms\"\n";

#[test]
fn a_front_end_that_is_cut_off_moves_nothing_and_follows_once_it_is_back() {
    match hosts() {
        Ok(hosts) => hosts.at_node(|| one_is_cut_off(&hosts)),
        Err(why) => println!("SKIPPED: {why}"),
    }
}

fn one_is_cut_off(hosts: &Hosts) {
    let [agents, servers] = [NODE_V4, NODE_SECOND].map(|it| it.parse().unwrap());
    let home = |_: &Path, master: &Path| {
        let address = free_address_at(agents);
        Agent::start_at(&node_key(master, "home"), address, "rungs = [\"agent\"]\n")
    };
    let scene = Scene::at("moves-cut", [agents, servers], home);
    eventually("the home answers", || lock(&scene, 0));
    let others = ["one", "two"].map(|name| scene.front_end_with(name, 1, LATE));
    let others = [&others[0], &others[1]];
    let cut_off = hosts.at_front(|| scene.front_end_with("cut-off", 1, SOON));
    let (enough, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    let ends = EndsWith(&enough);
    std::thread::scope(|scope| {
        let _ends = ends;
        scope.spawn(|| hosts.at_front(|| ask_cut_off(cut_off.address, &enough, &asked)));
        while_asked(&scene.nodes, others, |_| {
            scene.flow_to("shop");
            all_serve(&others, "shop", 3);
            hosts.at_front(|| all_serve(&[&cut_off], "shop", 3));
            for cut in [Cut::Silence, Cut::Answers] {
                while_cut(hosts, cut, &scene, others, &cut_off, &asked);
            }
        });
    });
}

/// Asks for both sites until it is enough: each request is answered.
fn ask_cut_off(address: SocketAddr, enough: &AtomicBool, asked: &AtomicUsize) {
    while !enough.load(Ordering::Relaxed) {
        for site in SITES {
            let head =
                format!("GET / HTTP/1.1\r\nhost: {site}.example\r\nconnection: close\r\n\r\n");
            let answer = request(address, &head).unwrap();
            assert_eq!(answer.status, 200, "{site}: {}", answer.body);
            asked.fetch_add(1, Ordering::Relaxed);
        }
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

/// The way is cut as soon as a node moves to the blog. Nodes go on to move without the one that is cut off, whose clients have their
/// answers all the same; once the way is mended it follows, and what it had begun moves nothing.
fn while_cut(
    hosts: &Hosts,
    cut: Cut,
    scene: &Scene<Agent>,
    others: [&FrontEnd; 2],
    cut_off: &FrontEnd,
    asked: &AtomicUsize,
) {
    let before = scene.moves();
    eventually("a node moves", || {
        scene.load("blog");
        (scene.moves() > before).then_some(())
    });
    cut.set(hosts, true);
    eventually("it says that the home is silent", || {
        let said = hosts.at_front(|| trouble(cut_off));
        said.is_some_and(|it| it.contains("does not answer"))
            .then_some(())
    });
    scene.flow_to("blog");
    let answered = asked.load(Ordering::Relaxed);
    for site in ["shop", "blog", "shop"] {
        scene.flow_to(site);
        all_serve(&others, site, 3);
    }
    let ordered = hosts.at_front(|| {
        let admin = cut_off.admin.to_string();
        let mut command = tidegate();
        command.args(["move", "s1", "blog", "--force", "--admin", &admin]);
        command.output().unwrap()
    });
    let said = String::from_utf8(ordered.stderr).unwrap();
    assert!(
        !ordered.status.success() && said.contains("does not answer"),
        "{cut:?}: {said}"
    );
    eventually("its clients are answered", || {
        (asked.load(Ordering::Relaxed) > answered + 200).then_some(())
    });
    let words = assignments(&scene.nodes);
    cut.set(hosts, false);
    hosts.at_front(|| {
        all_serve(&[cut_off], "shop", 3);
        eventually("nothing is wrong", || {
            trouble(cut_off).is_none().then_some(())
        });
    });
    locks_are_free(scene);
    assert_eq!(
        assignments(&scene.nodes),
        words,
        "{cut:?}: it moves nothing"
    );
}
