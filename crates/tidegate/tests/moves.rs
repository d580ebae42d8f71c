//! Nodes that move between sites: by an operator, and by load that the test publishes.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use support::client::ask_for_ever;
use support::published::PublishedLoad;
use support::server::server;
use support::upgrade::{begin_upgrade, upgrade};
use support::{FrontEnd, eventually, folder, tidegate};
use tidegate_remote::RegionMemory;

/// A node that publishes the load that the test says.
struct Node {
    shm: PathBuf,
    load: PublishedLoad,
}

impl Node {
    fn start(test: &str, name: &str) -> Self {
        let process = std::process::id();
        let shm = PathBuf::from(format!("/dev/shm/tidegate-moves-{test}-{name}-{process}"));
        let memory = Arc::new(RegionMemory::create(&shm).unwrap());
        Self {
            shm,
            load: PublishedLoad::start(memory),
        }
    }

    fn load(&self, runnable: u32) {
        self.load.set(runnable);
    }
}

/// Two sites, `shop` with node `s1` and `blog` with `b1` to `b3`.
struct Scene {
    folder: PathBuf,
    front_end: FrontEnd,
}

const NODES: [(&str, &str); 4] = [
    ("s1", "shop"),
    ("b1", "blog"),
    ("b2", "blog"),
    ("b3", "blog"),
];

impl Scene {
    /// Nodes that have come have their whole share at once, unless the lines say otherwise.
    fn start(name: &str, reconfigure: &str, shm: impl Fn(&str) -> Option<PathBuf>) -> Self {
        let warm_up = match reconfigure.contains("warm_up") {
            true => "",
            false => "warm_up = \"0s\"\n",
        };
        let mut text = format!("[reconfigure]\nenabled = true\n{warm_up}{reconfigure}\n");
        for site in ["shop", "blog"] {
            text.push_str(&format!(
                "[[site]]\nname = \"{site}\"\nhosts = [\"{site}.example\"]\npolicy = \"round_robin\"\nnodes = {{ min = 1, max = 3 }}\n"
            ));
        }
        for (node, site) in NODES {
            let address = server(node);
            let load = shm(node).map_or(String::new(), |path| {
                format!(
                    "load = {{ transport = \"shm\", path = \"{}\" }}\n",
                    path.display()
                )
            });
            text.push_str(&format!(
                "[[node]]\nname = \"{node}\"\naddress = \"{address}\"\nsite = \"{site}\"\n{load}"
            ));
        }
        let folder = folder(name);
        let front_end = FrontEnd::start(&folder, &text);
        Self { folder, front_end }
    }

    fn command(&self, words: &[&str]) -> Output {
        let admin = self.front_end.admin.to_string();
        let mut command = tidegate();
        command.args(words).args(["--admin", &admin]);
        command.output().unwrap()
    }

    /// Whether it was done, and what was said.
    fn said(&self, words: &[&str]) -> (bool, String) {
        let done = self.command(words);
        let text = [done.stdout, done.stderr].concat();
        (done.status.success(), String::from_utf8(text).unwrap())
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("front-end.log")).unwrap()
    }

    /// Has the shop check its nodes: its own alone passes, since a server of the tests answers with its name.
    fn check_that_the_shop_is_s1(&self) {
        let file = self.folder.join("tidegate.toml");
        let text = std::fs::read_to_string(&file).unwrap();
        let bounds = "nodes = { min = 1, max = 3 }\n";
        let check = "check = { path = \"/\", body = \"s1\", interval = \"100ms\" }\n";
        std::fs::write(&file, text.replacen(bounds, &format!("{bounds}{check}"), 1)).unwrap();
        assert!(self.said(&["reload"]).0);
    }

    /// The servers that answer for a site.
    fn serve(&self, site: &str) -> BTreeSet<String> {
        let host = format!("{site}.example");
        (0..40)
            .map(|_| self.front_end.get(&host, "/").body)
            .collect()
    }

    /// How many nodes a site has, as `moves` says.
    fn count(&self, site: &str) -> u64 {
        let moves = self.front_end.api("/api/moves");
        let sites = moves["sites"].as_array().unwrap();
        let site = sites.iter().find(|it| it["site"] == site);
        site.map_or(0, |it| it["nodes"].as_u64().unwrap())
    }
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn an_operator_moves_nodes_within_the_floors_and_no_request_fails() {
    let scene = Scene::start("moves-operator", "", |_| None);
    assert_eq!(scene.serve("shop"), set(&["s1"]));
    let checked = tidegate()
        .arg("check")
        .arg(scene.folder.join("tidegate.toml"))
        .output();
    let checked = String::from_utf8(checked.unwrap().stdout).unwrap();
    assert!(
        checked.contains("the load of 4 nodes is not read"),
        "{checked}"
    );
    let (done, text) = scene.said(&["move", "b1", "shop", "--dry-run"]);
    assert!(
        done && text.contains("can move: b1 from blog to shop"),
        "{text}"
    );
    assert_eq!(scene.serve("shop"), set(&["s1"]));
    let (enough, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    let address = scene.front_end.address;
    std::thread::scope(|scope| {
        for host in [
            "shop.example",
            "blog.example",
            "shop.example",
            "blog.example",
        ] {
            scope.spawn(|| ask_for_ever(address, host, &enough, &asked));
        }
        for round in 0..20 {
            let site = ["shop", "blog"][round % 2];
            for node in ["b1", "b2"] {
                let (done, text) = scene.said(&["move", node, site]);
                assert!(done && text.contains("moved"), "{round}: {text}");
            }
            let (shop, blog) = match site {
                "shop" => (set(&["s1", "b1", "b2"]), set(&["b3"])),
                _ => (set(&["s1"]), set(&["b1", "b2", "b3"])),
            };
            assert_eq!(
                (scene.serve("shop"), scene.serve("blog")),
                (shop, blog),
                "{round}"
            );
        }
        enough.store(true, Ordering::Relaxed);
    });
    assert!(asked.load(Ordering::Relaxed) > 100);
    for (words, why) in [
        (&["move", "s1", "blog"][..], "no node above its floor"),
        (&["move", "b1", "blog"], "is of that site already"),
        (&["move", "x", "shop"], "`x` is no node that can be moved"),
        (&["move", "b1", "x"], "`x` is no site that takes part"),
    ] {
        let (done, text) = scene.said(words);
        assert!(!done && text.contains(why), "{words:?}: {text}");
    }
    let (done, text) = scene.said(&["move", "s1", "blog", "--force"]);
    assert!(!done && text.contains("at its ceiling"), "{text}");
    let (_, text) = scene.said(&["moves"]);
    let unknown = "blog: 3 nodes (1 to 3); its load is not known";
    assert!(text.contains(unknown), "{text}");
    assert!(text.contains("b2: shop -> blog (operator)"), "{text}");
    // A reload leaves nodes where they are.
    assert!(scene.said(&["move", "b3", "shop"]).0);
    assert!(scene.said(&["reload"]).0);
    assert_eq!(scene.serve("shop"), set(&["s1", "b3"]));
    let metric = scene
        .front_end
        .metric("tidegate_moves_total{cause=\"operator\",result=\"done\"}");
    assert_eq!(metric, Some(41.0));
}

/// The live page as a browser shows it; none where there is no browser.
fn live_page(front_end: &FrontEnd) -> Option<String> {
    if Command::new("chromium").arg("--version").output().is_err() {
        return None;
    }
    let profile = folder("moves-page-profile");
    // The page's timer runs on virtual time, which waits for answers.
    let output = Command::new("chromium")
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
        ])
        .args([
            "--disable-background-networking",
            "--disable-component-update",
        ])
        .args(["--disable-sync", "--virtual-time-budget=5000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("http://{}/", front_end.admin))
        .output();
    Some(String::from_utf8(output.unwrap().stdout).unwrap())
}

#[test]
fn the_live_page_shows_how_many_nodes_each_site_had() {
    let scene = Scene::start("moves-page", "", |_| None);
    assert!(scene.said(&["move", "b1", "shop"]).0);
    let Some(page) = live_page(&scene.front_end) else {
        println!("SKIPPED: chromium is not installed");
        return;
    };
    assert!(page.contains("b1: blog → shop (operator)"), "{page}");
    // Heights of the line's steps from now back, of 100 from the top: two of three nodes, one of three before.
    for (site, sign, expected) in [("shop", "▲", [33, 66]), ("blog", "▼", [33, 0])] {
        let row = format!("class=\"moverow\" data-site=\"{site}\"");
        let row = page.split_once(&row).unwrap().1;
        let row = row.split_once("class=\"moverow\"").unwrap().0;
        let steps = row.split('V').skip(1);
        let heights = steps.map(|step| {
            let height = step.split_once('H').unwrap().0;
            height.parse::<f64>().unwrap() as u32
        });
        assert_eq!(heights.collect::<Vec<_>>(), expected, "{site}: {row}");
        assert!(
            row.contains(sign) && row.contains("2 nodes"),
            "{site}: {row}"
        );
    }
}

#[test]
fn a_frozen_site_neither_gets_nor_gives_a_node() {
    let scene = Scene::start("moves-frozen", "", |_| None);
    let (done, text) = scene.said(&["moves", "freeze", "shop"]);
    assert!(
        done && text.contains("shop: 1 nodes (1 to 3), frozen by an operator"),
        "{text}"
    );
    assert!(scene.said(&["moves", "freeze", "shop"]).0, "it is already");
    let (done, text) = scene.said(&["move", "b1", "shop"]);
    assert!(
        !done && text.contains("operators have frozen the site"),
        "{text}"
    );
    assert!(scene.said(&["moves", "thaw", "shop"]).0);
    assert!(scene.said(&["move", "b1", "shop"]).0);
    assert!(scene.said(&["moves", "freeze", "shop"]).0);
    let (done, text) = scene.said(&["move", "b1", "blog", "--force"]);
    assert!(
        !done && text.contains("operators have frozen the site"),
        "{text}"
    );
    assert_eq!(scene.serve("shop"), set(&["s1", "b1"]));
    assert!(scene.said(&["moves", "thaw", "shop"]).0);
    assert!(scene.said(&["move", "b1", "blog"]).0);
    for (words, why) in [
        (
            &["moves", "freeze", "x"][..],
            "`x` is no site that takes part",
        ),
        (&["moves", "freeze"], "SITE"),
        (&["moves", "pause", "shop"], "nothing else takes one"),
    ] {
        let (done, text) = scene.said(words);
        assert!(!done && text.contains(why), "{words:?}: {text}");
    }
    let log = std::fs::read_to_string(scene.folder.join("front-end.log")).unwrap();
    let frozen = "site shop neither gets nor gives a node from now on";
    assert_eq!(log.matches(frozen).count(), 2, "{log}");
}

#[test]
fn a_reload_changes_floors_and_leaves_nodes_where_they_are() {
    let scene = Scene::start("moves-reload", "", |_| None);
    assert!(scene.said(&["move", "b1", "shop"]).0);
    let file = scene.folder.join("tidegate.toml");
    let write = |from: &str, to: &str| {
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, text.replace(from, to)).unwrap();
        assert!(scene.said(&["reload"]).0);
    };
    // A floor that is higher from now on.
    write("min = 1, max = 3", "min = 2, max = 3");
    eventually("the new floor holds", || {
        let (done, text) = scene.said(&["move", "b1", "blog", "--dry-run"]);
        (!done && text.contains("no node above its floor")).then_some(())
    });
    assert_eq!(scene.serve("shop"), set(&["s1", "b1"]));
    // A file in which no site takes part is refused while nodes are to move.
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("nodes = { min = 2, max = 3 }", "")).unwrap();
    let (done, text) = scene.said(&["reload"]);
    assert!(!done && text.contains("two sites at least"), "{text}");
    assert_eq!(scene.serve("shop"), set(&["s1", "b1"]));
}

#[test]
fn a_node_that_has_moved_back_follows_the_file_again() {
    let scene = Scene::start("moves-back", "", |_| None);
    for site in ["shop", "blog"] {
        assert!(scene.said(&["move", "b1", site]).0);
    }
    let file = scene.folder.join("tidegate.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let (before, b1) = text.split_at(text.find("name = \"b1\"").unwrap());
    let b1 = b1.replacen("site = \"blog\"", "site = \"shop\"", 1);
    std::fs::write(&file, format!("{before}{b1}")).unwrap();
    assert!(scene.said(&["reload"]).0);
    assert_eq!(scene.serve("shop"), set(&["s1", "b1"]));
    assert_eq!(scene.serve("blog"), set(&["b2", "b3"]));
}

#[test]
fn a_node_that_does_not_pass_the_check_of_its_new_site_goes_back() {
    let scene = Scene::start("moves-unfit", "", |_| None);
    scene.check_that_the_shop_is_s1();
    assert!(scene.said(&["move", "b1", "shop"]).0);
    assert_eq!(scene.count("shop"), 2);
    eventually("the node goes back", || {
        assert_eq!(scene.serve("shop"), set(&["s1"]));
        (scene.count("shop") == 1).then_some(())
    });
    let (_, text) = scene.said(&["moves"]);
    assert!(text.contains("b1: shop -> blog (revert)"), "{text}");
    eventually("it serves its own site", || {
        (scene.serve("blog") == set(&["b1", "b2", "b3"])).then_some(())
    });
}

fn follow(scene: &Scene, nodes: &[Node], loaded: &str) {
    // Loads follow the requests: those of the site's nodes of now.
    let serve = scene.serve(loaded);
    for (node, (name, _)) in nodes.iter().zip(NODES) {
        node.load(if serve.contains(name) { 8 } else { 0 });
    }
}

#[test]
fn nodes_follow_the_load_and_stay_while_an_operator_says_so() {
    let nodes = NODES.map(|(name, _)| Node::start("load", name));
    let path = |name: &str| {
        let place = NODES.iter().position(|it| it.0 == name);
        Some(nodes[place.unwrap()].shm.clone())
    };
    let scene = Scene::start("moves-load", "history = \"50ms\"\nmoves_max = 1000", path);
    let at = |shop: u64, what: &str, loaded: &str| {
        eventually(what, || {
            follow(&scene, &nodes, loaded);
            (scene.count("shop") == shop).then_some(())
        });
    };
    at(3, "two nodes come to the loaded site", "shop");
    assert_eq!(scene.serve("blog").len(), 1, "its floor");
    at(1, "they go where the load goes", "blog");
    assert_eq!(scene.serve("blog").len(), 3);
    let (done, text) = scene.said(&["moves", "pause"]);
    assert!(done && text.contains("paused by an operator"), "{text}");
    follow(&scene, &nodes, "shop");
    eventually("the site is in need", || {
        let (_, text) = scene.said(&["moves"]);
        text.contains("shop: 1 nodes (1 to 3), 8.0 tasks per CPU; is in need")
            .then_some(())
    });
    assert_eq!(scene.count("shop"), 1);
    let paused = "load moves no node: paused by an operator";
    let why = eventually("the best move is named", || {
        let why = scene.front_end.api("/api/why/shop");
        (!why["moves"]["best"].is_null()).then_some(why)
    });
    // Four tasks per CPU here once one more node is there, and at the other site none.
    let (best, held_back) = (&why["moves"]["best"], &why["moves"]["held_back"]);
    assert_eq!(held_back, paused);
    assert_eq!(
        (&best["from"], &best["to"]),
        (&"blog".into(), &"shop".into())
    );
    let (_, text) = scene.said(&["why", "shop"]);
    for says in [
        "moves: 8.0 tasks per CPU; is in need",
        "the best move now: b",
        "4.0 tasks per CPU expected here",
        paused,
    ] {
        assert!(text.contains(says), "{says}: {text}");
    }
    assert!(scene.said(&["moves", "resume"]).0);
    at(3, "they come again", "shop");
    eventually("the log says so", || {
        let log = std::fs::read_to_string(scene.folder.join("front-end.log")).unwrap();
        log.contains("moved node b").then_some(())
    });
}

#[test]
fn a_dry_run_says_what_it_would_move() {
    let nodes = NODES.map(|(name, _)| Node::start("dry", name));
    let path = |name: &str| {
        let place = NODES.iter().position(|it| it.0 == name);
        Some(nodes[place.unwrap()].shm.clone())
    };
    let scene = Scene::start("moves-dry", "dry_run = true\nhistory = \"50ms\"", path);
    follow(&scene, &nodes, "shop");
    let log: &Path = &scene.folder.join("front-end.log");
    eventually("what would be moved is said", || {
        let log = std::fs::read_to_string(log).unwrap();
        log.contains("would move node b").then_some(())
    });
    assert_eq!(scene.serve("shop"), set(&["s1"]));
}

#[test]
fn a_node_that_has_moved_warms_up() {
    // Of 40 requests for two nodes: with its whole share, and with the half of it that one of two has at once.
    for (warm_up, expected) in [("0s", 18..=22), ("1h", 6..=10)] {
        let reconfigure = format!("warm_up = \"{warm_up}\"");
        let scene = Scene::start(&format!("moves-warm-{warm_up}"), &reconfigure, |_| None);
        assert!(scene.said(&["move", "b1", "shop"]).0);
        let answers = (0..40).map(|_| scene.front_end.get("shop.example", "/").body);
        let own = answers.filter(|body| body == "b1").count();
        assert!(expected.contains(&own), "{warm_up}: {own}");
        let (_, text) = scene.said(&["why", "b1"]);
        let starts = "it starts slowly: up to 50 % of its fair share now, all of it after 1h";
        assert_eq!(text.contains(starts), warm_up == "1h", "{text}");
    }
}

#[test]
fn nodes_that_have_moved_stay_over_an_upgrade() {
    let mut scene = Scene::start("moves-upgrade", "", |_| None);
    assert!(scene.said(&["move", "b1", "shop"]).0);
    let _successor = upgrade(&mut scene.front_end);
    assert_eq!(scene.serve("shop"), set(&["s1", "b1"]));
    // The new process knows where they are, and moves them on.
    eventually("it looks at moves", || {
        (scene.count("shop") == 2).then_some(())
    });
    let (done, text) = scene.said(&["move", "b1", "blog"]);
    assert!(done, "{text}");
    assert_eq!(scene.serve("shop"), set(&["s1"]));
}

/// One node moves to and fro while a new process takes over: what was confirmed holds, whichever process did.
#[test]
fn a_move_that_was_confirmed_is_not_lost_by_an_upgrade() {
    let scene = Scene::start("moves-while-upgrade", "", |_| None);
    let (mut at, mut to, mut moves) = ("blog", "shop", 0);
    let mut move_on = || {
        let (done, text) = scene.said(&["move", "b1", to]);
        assert!(!text.contains("of that site already"), "{at} {to}: {text}");
        if done {
            (at, to, moves) = (to, at, moves + 1);
        }
        at
    };
    let mut successors = Vec::new();
    for _ in 0..4 {
        // One that is dropped ends.
        successors.push(std::thread::scope(|scope| {
            let upgrade = scope.spawn(|| begin_upgrade(&scene.front_end));
            while !upgrade.is_finished() {
                move_on();
            }
            upgrade.join().unwrap()
        }));
        eventually("the new process knows where it is", || {
            (scene.count("shop") > 0).then_some(())
        });
        let at = move_on();
        assert_eq!(scene.serve("shop").contains("b1"), at == "shop");
    }
    assert!(moves > 4, "{moves}");
}

#[test]
fn without_moves_the_command_says_how_to_get_them() {
    let address = server("a");
    let text = format!(
        "[[site]]\nname = \"shop\"\n[[node]]\nname = \"a\"\naddress = \"{address}\"\nsite = \"shop\"\n"
    );
    let folder = folder("moves-none");
    let front_end = FrontEnd::start(&folder, &text);
    let admin = front_end.admin.to_string();
    let mut command = tidegate();
    let said = command
        .args(["move", "a", "shop", "--admin", &admin])
        .output();
    let said = said.unwrap();
    assert_eq!(said.status.code(), Some(1));
    let text = String::from_utf8(said.stderr).unwrap();
    assert!(text.contains("see [reconfigure]"), "{text}");
}

#[test]
fn a_forced_move_that_empties_a_site_warns() {
    let scene = Scene::start("moves-emptied", "", |_| None);
    let file = scene.folder.join("tidegate.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("max = 3", "max = 4")).unwrap();
    assert!(scene.said(&["reload"]).0);
    let warning =
        "site shop has no other node: until it gets one its requests are answered 503 (no_node)";
    let order = ["move", "s1", "blog", "--force"];
    let (done, text) = scene.said(&[&order[..], &["--dry-run"]].concat());
    assert!(
        done && text.contains(&format!("warning: {warning}")),
        "{text}"
    );
    assert!(!scene.log().contains(warning), "nothing was done");
    let (done, text) = scene.said(&order);
    assert!(
        done && text.contains(&format!("warning: {warning}")),
        "{text}"
    );
    assert_eq!(scene.log().matches(warning).count(), 1);
    assert_eq!(scene.front_end.get("shop.example", "/").status, 503);
    let (done, text) = scene.said(&["move", "b1", "shop"]);
    assert!(done && !text.contains("warning"), "{text}");
    assert_eq!(scene.serve("shop"), set(&["b1"]));
}

#[test]
fn a_node_that_may_not_go_back_says_why_once() {
    let scene = Scene::start("moves-held", "", |_| None);
    scene.check_that_the_shop_is_s1();
    assert!(scene.said(&["move", "b1", "shop"]).0);
    assert!(scene.said(&["moves", "freeze", "blog"]).0);
    let held =
        "b1 takes no requests of shop, and cannot go back to blog: operators have frozen the site";
    eventually("it is to go back", || {
        scene.said(&["moves"]).1.contains(held).then_some(())
    });
    for words in [&["why", "shop"][..], &["why", "blog"], &["status"]] {
        let (_, text) = scene.said(words);
        assert!(text.contains(held), "{words:?}: {text}");
    }
    assert_eq!(scene.count("shop"), 2);
    assert!(scene.said(&["moves", "thaw", "blog"]).0);
    eventually("the node goes back", || {
        (scene.count("shop") == 1).then_some(())
    });
    let log = scene.log();
    assert_eq!(log.matches(held).count(), 1, "{log}");
    assert_eq!(log.matches("gives back node b1").count(), 1, "{log}");
    let (_, text) = scene.said(&["moves"]);
    assert!(!text.contains(held), "{text}");
}

#[test]
fn nodes_that_have_moved_stay_when_an_upgrade_switches_moves_off_and_that_is_said() {
    let mut scene = Scene::start("moves-off", "", |_| None);
    assert!(scene.said(&["move", "b1", "shop"]).0);
    let file = scene.folder.join("tidegate.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("enabled = true", "enabled = false")).unwrap();
    let _successor = upgrade(&mut scene.front_end);
    assert_eq!(scene.serve("shop"), set(&["s1", "b1"]));
    let log = scene.log();
    let said = "nodes are not moved any more ([reconfigure] `enabled`), and stay where they were moved: b1 at shop";
    assert_eq!(log.matches(said).count(), 1, "{log}");
    let (_, text) = scene.said(&["status"]);
    let note = "b1: it was moved to shop, and stays: [reconfigure] is off";
    assert!(text.contains(note), "{text}");
    assert!(!text.contains("b2: it was moved"), "{text}");
}
