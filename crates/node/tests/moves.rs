//! An agent follows its node's word, which the test swaps as front-ends do: connections, hooks, what outlives the agent.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::moves::numbering::site_list;
use tidegate_core::moves::words::{
    AGENT_WORD, ASSIGNMENT_WORD, AgentStatus, AgentStep, Assignment, AssignmentState, Count24,
    SITE_LIST_WORD, SiteNumber,
};
use tidegate_node::{HookTemplate, MovesConfig, MovesEvent, MovesWatch, SiteHook};
use tidegate_remote::{RegionMemory, clock};

const BLOG: SiteNumber = SiteNumber(0);
const SHOP: SiteNumber = SiteNumber(1);
const PATIENCE: Duration = Duration::from_secs(30);

/// A node's folder: a template, the target, a log of what hooks did.
struct Node {
    folder: PathBuf,
    listener: TcpListener,
}

impl Node {
    fn new(name: &str) -> Self {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = format!("tidegate-node-moves-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        std::fs::create_dir_all(folder.join("state")).unwrap();
        std::fs::write(folder.join("template"), "{node} serves {site}").unwrap();
        std::fs::write(folder.join("target"), "as it was").unwrap();
        for (path, mode) in [("", 0o755), ("state", 0o700), ("template", 0o644)] {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(folder.join(path), mode).unwrap();
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Self { folder, listener }
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.join(name)).unwrap_or_default()
    }

    /// An agent whose hooks note generation and site in the log, and then do this.
    fn agent(&self, memory: &Arc<RegionMemory>, then: &str) -> MovesWatch {
        let log = self.folder.join("log").display().to_string();
        let note =
            format!("echo $TIDEGATE_GENERATION $TIDEGATE_FROM:$TIDEGATE_SITE >> {log}; {then}");
        let site = |name: &str| SiteHook {
            name: name.into(),
            template: Some(HookTemplate {
                template: self.folder.join("template"),
                target: self.folder.join("target"),
            }),
            commands: vec![["/bin/sh", "-c", &note].map(str::to_owned).to_vec()],
            timeout: Duration::from_secs(60),
        };
        let config = MovesConfig {
            port: self.listener.local_addr().unwrap().port(),
            state: Some(self.folder.join("state")),
            node: "n1".into(),
            sites: vec![site("shop"), site("blog")],
        };
        MovesWatch::spawn(config, Arc::clone(memory)).unwrap()
    }

    /// A region whose numbers are those of blog and shop.
    fn region() -> Arc<RegionMemory> {
        let memory = Arc::new(RegionMemory::anonymous().unwrap());
        set(&memory, SITE_LIST_WORD, site_list(["blog", "shop"]));
        memory
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.folder).ok();
    }
}

fn set(memory: &RegionMemory, word: u32, value: u64) {
    let held = memory.word(word).unwrap();
    memory.compare_and_swap(word, held, value).unwrap();
}

fn assign(memory: &RegionMemory, assignment: Assignment) {
    set(memory, ASSIGNMENT_WORD, assignment.pack());
}

fn serves(generation: u32, site: SiteNumber) -> Assignment {
    Assignment::first(Count24::new(generation), site, false)
}

/// From blog to shop.
fn drains(generation: u32) -> Assignment {
    Assignment {
        state: AssignmentState::Draining { from: BLOG },
        lent: true,
        ..serves(generation, SHOP)
    }
}

#[track_caller]
fn eventually<T>(what: &str, mut happened: impl FnMut() -> Option<T>) -> T {
    let deadline = clock::now() + PATIENCE;
    loop {
        if let Some(it) = happened() {
            return it;
        }
        assert!(clock::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}

/// Waits until the agent says this of this generation.
#[track_caller]
fn said(memory: &RegionMemory, generation: u32, step: AgentStep) -> AgentStatus {
    eventually(&format!("{step:?} of {generation}"), || {
        let word = memory.word(AGENT_WORD).unwrap();
        let status = AgentStatus::unpack(word).unwrap()?;
        (status.generation.get() == generation && status.step == step).then_some(status)
    })
}

fn names(events: &[MovesEvent]) -> Vec<&'static str> {
    events.iter().map(|it| it.name).collect()
}

/// Whether this system counts connections.
#[expect(clippy::print_stdout, reason = "how a test says that it could not run")]
fn counts(node: &Node) -> bool {
    let port = node.listener.local_addr().unwrap().port();
    let counts = tidegate_node::ServiceConnections::new(port)
        .count()
        .is_some();
    if !counts {
        println!("SKIPPED: the kernel refuses NETLINK_SOCK_DIAG");
    }
    counts
}

/// Takes a node through a move to shop.
fn moved(node: &Node, memory: &RegionMemory, generation: u32) {
    assign(memory, serves(generation - 1, BLOG));
    said(memory, generation - 1, AgentStep::Begun);
    assign(memory, drains(generation));
    said(memory, generation, AgentStep::Drained);
    assert_eq!(node.read("target"), "as it was", "not before it is drained");
    assign(memory, drains(generation).switching());
}

#[test]
fn a_drained_node_is_set_up_once_also_after_a_restart_of_its_agent() {
    let node = Node::new("once");
    if !counts(&node) {
        return;
    }
    let memory = Node::region();
    let agent = node.agent(&memory, "exit 0");
    assign(&memory, serves(4, BLOG));
    said(&memory, 4, AgentStep::Begun);
    let client = TcpStream::connect(node.listener.local_addr().unwrap()).unwrap();
    assign(&memory, drains(5));
    let counted = eventually("a count", || {
        let status = said(&memory, 5, AgentStep::Begun);
        (status.connections > 0).then_some(status.connections)
    });
    assert_eq!(counted, 1);
    drop((client, node.listener.accept().unwrap()));
    said(&memory, 5, AgentStep::Drained);
    assign(&memory, drains(5).switching());
    said(&memory, 5, AgentStep::HookDone);
    assert_eq!(node.read("target"), "n1 serves shop");
    assert_eq!(names(&agent.events()), ["hook_begun", "hook_done"]);
    assign(&memory, drains(5).served());
    drop(agent);
    // The next agent has a memory of its own, and begins it one generation later.
    let memory = Node::region();
    let agent = node.agent(&memory, "exit 0");
    said(&memory, 6, AgentStep::Begun);
    let word = memory.word(ASSIGNMENT_WORD).unwrap();
    let word = Assignment::unpack(word).unwrap().unwrap();
    assert_eq!(
        (word.site, word.lent, word.is_serving()),
        (SHOP, true, true)
    );
    // Back home: set up again, once.
    assign(&memory, serves(7, BLOG));
    said(&memory, 7, AgentStep::HookDone);
    drop(agent);
    assert_eq!(node.read("log"), "5 blog:shop\n7 shop:blog\n");
}

#[test]
fn a_hook_that_fails_leaves_the_node_as_it_was_and_says_its_exit_code() {
    let node = Node::new("fails");
    if !counts(&node) {
        return;
    }
    let memory = Node::region();
    let target = node.folder.join("target").display().to_string();
    let agent = node.agent(&memory, &format!("! grep shop {target} || exit 7"));
    moved(&node, &memory, 5);
    let status = said(&memory, 5, AgentStep::HookFailed);
    assert_eq!(status.exit_code, 7);
    assert_eq!(node.read("target"), "as it was");
    let events = agent.events();
    assert_eq!(names(&events), ["hook_begun", "hook_failed"]);
    assert!(
        events[1]
            .text
            .contains("exit code 7: n1 serves shop; it is undone"),
        "{events:?}"
    );
    // The move is taken back: nothing is to be done for that.
    assign(&memory, serves(6, BLOG));
    said(&memory, 6, AgentStep::Begun);
    drop(agent);
    assert_eq!(
        node.read("log"),
        "5 blog:shop\n5 shop:blog\n",
        "and once more for what was"
    );
}

#[test]
fn a_hook_that_was_cut_off_is_not_begun_again_for_its_generation() {
    let node = Node::new("cut");
    if !counts(&node) {
        return;
    }
    let memory = Node::region();
    let agent = node.agent(&memory, "sleep 600");
    moved(&node, &memory, 5);
    eventually("the hook runs", || {
        (node.read("log") == "5 blog:shop\n").then_some(())
    });
    drop(agent);
    let kept = node.read("state/moves.kept");
    assert!(kept.contains("hook 5\nsure false\n"), "{kept}");
    // The same words: the hook of generation 5 does not run again, and is no success.
    let agent = node.agent(&memory, "exit 0");
    said(&memory, 5, AgentStep::HookFailed);
    // Taken back: what the servers serve is not known, so they are set up.
    assign(&memory, serves(6, BLOG));
    said(&memory, 6, AgentStep::HookDone);
    drop(agent);
    assert_eq!(node.read("log"), "5 blog:shop\n6 :blog\n");
    assert_eq!(node.read("target"), "n1 serves blog");
}

/// Its words are lost with the agent, and a front-end that had not seen the move begins them.
#[test]
fn a_word_that_begins_in_the_generation_of_a_hook_that_was_cut_off_gets_the_next_one() {
    let node = Node::new("behind");
    if !counts(&node) {
        return;
    }
    let memory = Node::region();
    let agent = node.agent(&memory, "sleep 600");
    moved(&node, &memory, 5);
    eventually("the hook runs", || {
        (node.read("log") == "5 blog:shop\n").then_some(())
    });
    drop(agent);
    let memory = Node::region();
    let agent = node.agent(&memory, "exit 0");
    assign(&memory, serves(5, BLOG));
    said(&memory, 6, AgentStep::HookDone);
    let word = memory.word(ASSIGNMENT_WORD).unwrap();
    assert_eq!(Assignment::unpack(word), Ok(Some(serves(6, BLOG))));
    let events = agent.events();
    assert_eq!(
        names(&events),
        ["hook_cut_off", "hook_begun", "hook_done"],
        "{events:?}"
    );
    drop(agent);
    assert_eq!(node.read("log"), "5 blog:shop\n6 :blog\n");
}

#[test]
fn nothing_is_run_where_numbers_mean_other_sites() {
    let node = Node::new("others");
    let memory = Node::region();
    set(&memory, SITE_LIST_WORD, site_list(["blog", "news", "shop"]));
    let agent = node.agent(&memory, "exit 0");
    assign(&memory, drains(5).switching());
    let events = eventually("an event", || {
        Some(agent.events()).filter(|it| !it.is_empty())
    });
    assert_eq!(names(&events), ["moves_other_sites"]);
    assert!(
        events[0]
            .text
            .contains("between 3 sites that are not those"),
        "{events:?}"
    );
    assert_eq!(memory.word(AGENT_WORD).unwrap(), 0);
    drop(agent);
    assert_eq!(
        (node.read("log"), node.read("target").as_str()),
        (String::new(), "as it was")
    );
    assert!(!Path::new(&node.folder.join("state/moves.kept")).exists());
}
