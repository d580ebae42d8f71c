//! Whatever becomes of a lab, nothing of it stays: after a drop, after a signal, and with
//! `clean` after SIGKILL in the midst of set-up. As root; without it each test says SKIPPED.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "test code")]

mod support;

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use support::{eventually, start, start_loopback};
use tidegate_lab::antagonist::Antagonist;
use tidegate_lab::cluster::{NodePlan, Process, clean};

/// In the environment of a helper: it starts a cluster and waits to be killed.
const HELPER: &str = "TGLAB_TEST_HELPER";
/// What a cluster of the helper consists of when it is complete: three nodes and the front have
/// a namespace each and a group in every hierarchy, and there is a folder.
const NODES: usize = 3;

fn nodes() -> Vec<NodePlan> {
    (0..NODES)
        .map(|node| NodePlan::new(format!("n{node}"), 0.2))
        .collect()
}

/// Not a test of its own: what the helper process does.
#[test]
fn helper() {
    if std::env::var_os(HELPER).is_none() {
        return;
    }
    let cluster = match std::env::var(HELPER).as_deref() {
        Ok("loopback") => Some(start_loopback(nodes())),
        _ => start(nodes()),
    };
    let Some(cluster) = cluster else { return };
    let kind = Antagonist::PingPong {
        processes: 2,
        bytes: 64,
    };
    let _guard = cluster.antagonist(0, &kind).unwrap();
    let mut sleeper = cluster.front().command("sleep");
    let _sleeper = Process::start("a sleeper", sleeper.arg("1000")).unwrap();
    std::fs::File::create(cluster.folder().join("complete")).unwrap();
    loop {
        std::thread::park();
    }
}

fn spawn_helper(mode: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "helper", "--nocapture"])
        .env(HELPER, mode)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Namespaces, groups and folders of this process's clusters.
fn things(owner: u32) -> Vec<PathBuf> {
    let mut places: Vec<PathBuf> = ["/run/netns", "/dev/shm", "/sys/fs/cgroup"]
        .map(Into::into)
        .into();
    places.push(std::env::temp_dir());
    places.extend(entries(Path::new("/sys/fs/cgroup")));
    let prefix = format!("tglab-{owner}-");
    let all = places.iter().flat_map(|place| entries(place));
    let ours = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with(&prefix)
    };
    all.filter(ours).collect()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// Processes that carry the cluster's name in their environment.
fn processes(owner: u32) -> Vec<PathBuf> {
    let mark = format!("TIDEGATE_LAB_CLUSTER=tglab-{owner}-");
    let marked = |process: &PathBuf| {
        let environment = std::fs::read(process.join("environ")).unwrap_or_default();
        String::from_utf8_lossy(&environment).contains(&mark)
    };
    entries(Path::new("/proc"))
        .into_iter()
        .filter(marked)
        .collect()
}

#[track_caller]
fn assert_nothing_of(owner: u32) {
    assert_eq!(things(owner), Vec::<PathBuf>::new());
    assert_eq!(processes(owner), Vec::<PathBuf>::new());
}

/// Whether clusters can be started here at all.
fn possible() -> bool {
    start(vec![NodePlan::new("n", 0.5)]).is_some()
}

fn is_complete(owner: u32) -> bool {
    things(owner)
        .iter()
        .any(|path| path.join("complete").exists())
}

#[test]
fn a_dropped_cluster_leaves_nothing() {
    let Some(cluster) = start(nodes()) else {
        return;
    };
    let this = std::process::id();
    let folder = cluster.folder().to_path_buf();
    let stem = folder.file_name().unwrap().to_string_lossy();
    let stem = stem.strip_suffix("files").unwrap().to_owned();
    let mine = || {
        let all = things(this);
        let named = |path: &PathBuf| {
            path.file_name()
                .unwrap()
                .to_string_lossy()
                .starts_with(&stem)
        };
        all.into_iter().filter(named).count()
    };
    assert!(mine() > NODES);
    // A process without an owner.
    let mut stray = cluster.nodes()[0]
        .place()
        .command("sleep")
        .arg("1000")
        .spawn()
        .unwrap();
    drop(cluster);
    assert_eq!(mine(), 0);
    assert_eq!(stray.wait().unwrap().signal(), Some(9));
}

#[test]
fn killed_at_any_point_clean_removes_everything() {
    if !possible() {
        return;
    }
    // Points of set-up by how much there is already; the last ones are the complete cluster.
    for point in [1, 2, 3, 5, 7, 9, 12, 15, 18, usize::MAX] {
        let mut helper = spawn_helper("namespaces");
        let owner = helper.id();
        eventually("the helper has come so far", || {
            let reached = things(owner).len() >= point || is_complete(owner);
            reached.then_some(())
        });
        helper.kill().unwrap();
        helper.wait().unwrap();
        let swept = clean(false).unwrap();
        assert_eq!(swept.left, Vec::<String>::new(), "at {point}");
        assert_nothing_of(owner);
    }
}

/// Anybody may run this one: loopback mode needs no privilege, and neither does its cleaning.
#[test]
fn a_killed_loopback_cluster_is_removed_with_its_processes() {
    let mut helper = spawn_helper("loopback");
    let owner = helper.id();
    eventually("the cluster is complete", || {
        is_complete(owner).then_some(())
    });
    eventually("its process runs", || {
        (!processes(owner).is_empty()).then_some(())
    });
    helper.kill().unwrap();
    helper.wait().unwrap();
    assert_eq!(clean(false).unwrap().left, Vec::<String>::new());
    assert_nothing_of(owner);
}

#[test]
fn a_signal_cleans_up_before_the_end() {
    if !possible() {
        return;
    }
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let mut helper = spawn_helper("namespaces");
        let owner = helper.id();
        eventually("the cluster is complete", || {
            is_complete(owner).then_some(())
        });
        let pid = Pid::from_raw(i32::try_from(owner).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
        assert_eq!(helper.wait().unwrap().code(), Some(code));
        assert_nothing_of(owner);
    }
}

#[test]
fn clean_leaves_the_living_alone() {
    let Some(cluster) = start(vec![NodePlan::new("n", 0.5)]) else {
        return;
    };
    let this = std::process::id();
    let mine = || {
        let stem = cluster
            .folder()
            .file_name()
            .unwrap()
            .to_string_lossy()
            .into_owned();
        let stem = stem.strip_suffix("files").unwrap().to_owned();
        let named = |path: &&PathBuf| {
            path.file_name()
                .unwrap()
                .to_string_lossy()
                .starts_with(&stem)
        };
        things(this).iter().filter(named).count()
    };
    let before = mine();
    let swept = clean(false).unwrap();
    let ours = |line: &&String| line.contains(&format!("tglab-{this}-"));
    assert_eq!(swept.removed.iter().find(ours), None);
    assert_eq!(mine(), before);
}
