//! What operators have set outlives an upgrade, with a state folder and without; and two processes that share one lose
//! nothing of it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::io::{IoSlice, Seek as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::process::Stdio;

use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    sendmsg, socketpair,
};
use serde_json::{Value, json};
use support::server::server;
use support::upgrade::upgrade;
use support::{FrontEnd, Process, ask, eventually, folder, free_address, tidegate};

const SITE: &str = "[[site]]\nname = \"shop\"\n";
const STATE: &str = "[state]\ndirectory = \"state\"\n";

fn state_folder(folder: &Path) {
    let mut builder = std::fs::DirBuilder::new();
    builder.mode(0o700).create(folder.join("state")).unwrap();
}

fn node(name: &'static str) -> String {
    let address = server(name);
    format!("[[node]]\nname = \"{name}\"\naddress = \"{address}\"\nsite = \"shop\"\n")
}

/// What a command says, and whether it succeeds.
fn run(front_end: &FrontEnd, words: &[&str]) -> (bool, String) {
    let admin = front_end.admin.to_string();
    let mut command = tidegate();
    command.args(words).args(["--admin", &admin]);
    let done = command.output().unwrap();
    let text = [done.stdout, done.stderr].concat();
    let text = String::from_utf8(text).unwrap();
    (done.status.success(), text)
}

#[track_caller]
fn done(front_end: &FrontEnd, words: &[&str]) -> String {
    let (done, text) = run(front_end, words);
    assert!(done, "{words:?}: {text}");
    text
}

/// The nodes of operators: names and weights.
fn added(front_end: &FrontEnd) -> Vec<(String, f64)> {
    let nodes = front_end.api("/api/nodes")["nodes"].take();
    let nodes = nodes.as_array().unwrap().iter();
    let one = |node: &Value| {
        let name = node["name"].as_str().unwrap();
        (name.to_owned(), node["weight"].as_f64().unwrap())
    };
    nodes.map(one).collect()
}

/// All nodes of the site that serve or may: names and what operators want of them.
fn nodes(front_end: &FrontEnd) -> Vec<(String, String)> {
    let status = front_end.api("/api/status");
    let nodes = status["sites"][0]["nodes"].as_array().unwrap().iter();
    let text = |node: &Value, key: &str| node[key].as_str().unwrap().to_owned();
    nodes
        .map(|node| (text(node, "name"), text(node, "state")))
        .collect()
}

fn pairs<T: Copy>(all: &[(&str, T)]) -> Vec<(String, T)> {
    all.iter()
        .map(|(name, it)| ((*name).to_owned(), *it))
        .collect()
}

fn states(all: &[(&str, &str)]) -> Vec<(String, String)> {
    let all = all.iter();
    all.map(|(name, it)| ((*name).to_owned(), (*it).to_owned()))
        .collect()
}

#[test]
fn an_upgrade_hands_over_the_nodes_of_operators_with_a_state_folder_and_without() {
    for state in [STATE, ""] {
        let folder = folder(&format!("handed-over-nodes-{}", state.len()));
        state_folder(&folder);
        let configuration = format!("{state}{SITE}{}", node("n1"));
        let mut front_end = FrontEnd::start(&folder, &configuration);
        let address = server("ok").to_string();
        for name in ["n2", "n3", "n4"] {
            done(&front_end, &["node", "add", name, &address]);
        }
        done(&front_end, &["node", "set", "n2", "--weight", "2.5"]);
        done(&front_end, &["node", "remove", "n3"]);
        done(&front_end, &["drain", "n4"]);
        done(&front_end, &["maint", "n1"]);
        let _successor = upgrade(&mut front_end);
        assert_eq!(added(&front_end), pairs(&[("n2", 2.5), ("n4", 1.0)]));
        let wanted = [("n1", "maint"), ("n2", "ready"), ("n4", "drain")];
        assert_eq!(nodes(&front_end), states(&wanted));
        assert_eq!(front_end.get("shop", "/").body, "ok");
        // They are still an operator's to change, and there is a file of them where there is a folder.
        done(&front_end, &["node", "remove", "n2"]);
        let said = done(&front_end, &["node", "add", "n5", &address]);
        assert_eq!(said.contains("not kept"), state.is_empty(), "{said}");
        let kept = std::fs::read_to_string(folder.join("state/nodes.json")).unwrap_or_default();
        let has = ["n2", "n4", "n5"].map(|name| kept.contains(&format!("\"{name}\"")));
        let wanted = !state.is_empty();
        assert_eq!(has, [false, wanted, wanted], "{kept}");
    }
}

#[test]
fn two_front_ends_with_one_folder_lose_no_node_of_either() {
    let folder = folder("handed-over-folder");
    state_folder(&folder);
    let (first, second) = (folder.join("first"), folder.join("second"));
    for own in [&first, &second] {
        std::fs::create_dir(own).unwrap();
    }
    let state = "[state]\ndirectory = \"../state\"\n";
    let configuration = format!("{state}{SITE}{}", node("n1"));
    let address = server("ok").to_string();
    let one = FrontEnd::start(&first, &configuration);
    done(&one, &["node", "add", "n2", &address]);
    let other = FrontEnd::start(&second, &configuration);
    assert_eq!(
        added(&other),
        pairs(&[("n2", 1.0)]),
        "it reads what is kept"
    );
    done(&one, &["node", "add", "n3", &address]);
    done(&one, &["node", "remove", "n2"]);
    let (accepted, why) = run(&other, &["node", "add", "n4", &address]);
    assert!(
        !accepted && why.contains("another front-end keeps files in"),
        "{why}"
    );
    assert_eq!(added(&other), pairs(&[("n2", 1.0)]), "nothing is changed");
    one.process.signal("TERM");
    eventually("the other has what the first was given", || {
        (added(&other) == pairs(&[("n3", 1.0)])).then_some(())
    });
    done(&other, &["node", "add", "n4", &address]);
    let kept = std::fs::read(folder.join("state/nodes.json")).unwrap();
    let kept: Value = serde_json::from_slice(&kept).unwrap();
    let names: Vec<_> = kept["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["name"])
        .collect();
    assert_eq!(names, ["n3", "n4"]);
    let log = std::fs::read_to_string(second.join("front-end.log")).unwrap();
    assert!(
        log.contains("nodes that operators have given another front-end are taken over"),
        "{log}"
    );
}

/// The former process's end of the channel to a successor.
struct Predecessor(OwnedFd);

impl Predecessor {
    fn send(&self, word: &Value, files: &[&OwnedFd]) {
        let bytes = word.to_string();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let files: Vec<_> = files.iter().map(|it| it.as_fd()).collect();
        assert!(control.push(SendAncillaryMessage::ScmRights(&files)));
        let parts = [IoSlice::new(bytes.as_bytes())];
        sendmsg(&self.0, &parts, &mut control, SendFlags::NOSIGNAL).unwrap();
    }

    /// What the successor says next.
    fn receive(&self) -> Value {
        let mut bytes = vec![0; 64 << 10];
        let (read, _) =
            rustix::net::recv(&self.0, &mut *bytes, rustix::net::RecvFlags::empty()).unwrap();
        serde_json::from_slice(&bytes[..read]).unwrap()
    }
}

/// A file with these bytes.
fn file(path: &Path, bytes: &[u8]) -> OwnedFd {
    let mut options = std::fs::OpenOptions::new();
    options.read(true).write(true).create(true).truncate(true);
    let mut file = options.open(path).unwrap();
    file.write_all(bytes).unwrap();
    file.rewind().unwrap();
    file.into()
}

/// A successor that is given these bytes as what was learned, and maybe others as what requests cost.
fn succeed(folder: &Path, more: &str, bytes: &[u8], costs: Option<&[u8]>) -> FrontEnd {
    let (ours, theirs) = socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .unwrap();
    let predecessor = Predecessor(ours);
    let (address, admin) = (free_address(), free_address());
    let configuration = format!(
        "{SITE}{}{more}[admin]\naddress = \"{admin}\"\n[[listener]]\naddress = \"{address}\"\n",
        node("n1")
    );
    let path = folder.join("tidegate.toml");
    std::fs::write(&path, configuration).unwrap();
    let log = std::fs::File::create(folder.join("log")).unwrap();
    let mut command = tidegate();
    command.arg("run").arg("-c").arg(&path);
    command.stdout(Stdio::null()).stderr(log);
    command
        .env("TIDEGATE_UPGRADE", "1")
        .stdin(Stdio::from(theirs));
    let process = Process::start_with_input(&mut command);
    drop(command);
    let whole = json!({"version": 1, "upgrades": 6, "learned": true, "costs": costs.is_some()});
    let learned = file(&folder.join("learned"), bytes);
    let costs = costs.map(|bytes| file(&folder.join("costs"), bytes));
    let files: Vec<_> = std::iter::once(&learned).chain(&costs).collect();
    predecessor.send(&json!({"whole": whole}), &files);
    let said = predecessor.receive();
    assert!(said["ready"].is_array(), "{said}");
    predecessor.send(&json!("yours"), &[]);
    let front_end = FrontEnd {
        address,
        admin,
        process,
    };
    let upgrades = eventually("the admin interface answers", || {
        ask(admin, "/readyz").filter(|it| it.status == 200)?;
        front_end.metric("tidegate_upgrades_total")
    });
    assert_eq!(upgrades, 7.0);
    front_end
}

/// Waits until its log has all of these. It is written beside what is said by other ways.
#[track_caller]
fn says(folder: &Path, parts: &[&str]) {
    let log = folder.join("log");
    eventually(&format!("{parts:?} in the log"), || {
        let log = std::fs::read_to_string(&log).unwrap();
        parts.iter().all(|part| log.contains(part)).then_some(())
    });
}

/// Its nodes, once it has said all of these.
fn succeeded(folder: &Path, bytes: &[u8], parts: &[&str]) -> Vec<(String, String)> {
    let front_end = succeed(folder, "", bytes, None);
    says(folder, parts);
    nodes(&front_end)
}

#[test]
fn a_successor_comes_up_whatever_it_is_given_and_names_what_it_ignores() {
    let folder = folder("handed-over-garbage");
    let alone = states(&[("n1", "ready")]);
    for (garbage, why) in [
        (&b""[..], "it is damaged, or of another kind"),
        (b"\x00\xff\x17{", "it is damaged, or of another kind"),
        (b"[1, 2, 3]", "it is damaged, or of another kind"),
        (&[b' '; (16 << 20) + 1], "it is larger than 16777216 bytes"),
    ] {
        let unused = "what the former process has learned is not used: ";
        assert_eq!(succeeded(&folder, garbage, &[unused, why]), alone);
    }
    // One of another version: what it says of operators is understood as far as that goes.
    let address = server("ok");
    let known =
        json!({"name": "n2", "address": address, "site": "shop", "weight": 1.0, "zone": "b"});
    let next = json!({
        "version": 9,
        "at": "noon",
        "nodes": "in another form",
        "operators": {
            "taken_out": [{"name": "n1", "state": "drain"}, {"name": "n1", "state": "parked"}],
            "added": [{"name": "n3"}, known],
            "colours": [],
        },
    });
    let said = [
        "is not used: it is of version 9",
        "ignored: 1 of 2 drained nodes: the one at place 1: ",
        "ignored: 1 of 2 added nodes: the one at place 0: missing field",
    ];
    let nodes = succeeded(&folder, next.to_string().as_bytes(), &said);
    assert_eq!(nodes, states(&[("n1", "drain"), ("n2", "ready")]));
}

/// What a process has learned that slows a class.
fn slows_searches() -> Vec<u8> {
    let throttle = json!({
        "class": "GET /search?", "resource": "shop cpu", "limit": 3, "needed": 10.0,
    });
    let learned = json!({"version": 1, "automatic": {
        "throttles": [throttle, {"class": "no method", "resource": "shop cpu", "limit": 3, "needed": 1.0}],
        "orders": [["GET /search", "GET /search?"]],
        "usual": 0.25,
        "alone": "shop",
    }});
    learned.to_string().into_bytes()
}

/// Classes that are slowed, what set that, and to how many at a time.
fn throttles(front_end: &FrontEnd) -> Vec<(Value, Value, Option<u64>)> {
    let all = front_end.api("/api/throttles")["throttles"].take();
    let one = |it: &Value| {
        let limit = it["limits"]["concurrency"].as_u64();
        (it["class"].clone(), it["set_by"].clone(), limit)
    };
    all.as_array().unwrap().iter().map(one).collect()
}

#[test]
fn throttles_of_automatic_stand_in_each_next_process_and_end_where_it_is_switched_off() {
    let folder = folder("handed-over-automatic");
    let bytes = slows_searches();
    let automatic = "[culprits]\nautomatic = true\n";
    let wanted = [(json!("GET /search?"), json!("policy"), Some(3))];
    let mut front_end = succeed(&folder, automatic, &bytes, Some(b"no costs"));
    assert_eq!(throttles(&front_end), wanted);
    let stays = "GET /search?: stays throttled to 3 at a time, for shop cpu";
    let costs = "what requests cost is not taken over from the former process: ";
    says(&folder, &[stays, costs]);
    // Through a process that has it in force, and with what that one knows of requests.
    let successor = upgrade(&mut front_end);
    assert_eq!(throttles(&front_end), wanted);
    says(
        &folder,
        &["what requests cost is known from the former process"],
    );
    eventually("both processes say that it stays", || {
        let said = std::fs::read_to_string(folder.join("log")).unwrap();
        (said.matches("stays throttled").count() == 2).then_some(())
    });
    drop(successor);
    let off = "[culprits]\nfirst_to_wait = false\n";
    let off = succeed(&folder, off, &bytes, None);
    assert_eq!(throttles(&off), []);
    says(
        &folder,
        &["GET /search?: not throttled any more, `automatic` is switched off"],
    );
}

#[test]
fn what_discovery_does_by_itself_follows_a_reload() {
    let folder = folder("reload-automatic");
    let automatic = "[culprits]\nautomatic = true\n";
    let front_end = succeed(&folder, automatic, &slows_searches(), None);
    let path = folder.join("tidegate.toml");
    let begun = std::fs::read_to_string(&path).unwrap();
    let write = |culprits: &str| {
        let text = begun.replace(automatic, &format!("[culprits]\n{culprits}"));
        std::fs::write(&path, text).unwrap();
    };
    let slowed = |to| vec![(json!("GET /search?"), json!("policy"), to)];
    write("automatic = false\nclasses = [\"/cart/*\"]\n");
    let live = "~ [culprits]: automatic = true -> false\n";
    let fixed = "needs an upgrade (`tidegate upgrade`):\n~ [culprits]: classes = ";
    for words in [&["reload", "--dry-run"][..], &["reload"]] {
        assert_eq!(throttles(&front_end), slowed(Some(3)));
        let plan = done(&front_end, words);
        assert!(plan.contains(live) && plan.contains(fixed), "{plan}");
    }
    let is_slowed = |to: Vec<_>| {
        eventually(&format!("{to:?}"), || {
            (throttles(&front_end) == to).then_some(())
        });
    };
    is_slowed(slowed(None));
    says(
        &folder,
        &["GET /search?: still goes last where requests wait"],
    );
    // What needs a new process is named until there is one, or it is as it was.
    let plan = done(&front_end, &["reload"]);
    assert!(!plan.contains(live) && plan.contains(fixed), "{plan}");
    write("automatic = true\nleast = 5\n");
    let plan = done(&front_end, &["reload"]);
    assert!(
        plan.contains("least = 1 -> 5\n") && !plan.contains(fixed),
        "{plan}"
    );
    is_slowed(slowed(Some(5)));
    write("first_to_wait = false\n");
    done(&front_end, &["reload"]);
    is_slowed(Vec::new());
    says(
        &folder,
        &["GET /search?: not throttled any more, `automatic` is switched off"],
    );
}
