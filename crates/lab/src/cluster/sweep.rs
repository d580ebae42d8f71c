//! Removing what clusters leave: at their regular end, at a signal, and after a crash.
//!
//! Everything is found by its name alone (see `name`), in this order: processes in namespaces
//! or control groups of that name or with the name in their environment, control groups,
//! namespaces, temporary folders. There is no list of what was made that could be lost.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tidegate_remote::clock;

use super::ClusterError;
use super::group::{self, Tree};
use super::name::Owner;
use super::network::NAMESPACES;
use super::run::ip;

/// In the environment of every process of a cluster: the beginning of the cluster's names.
pub(crate) const MARK: &str = "TIDEGATE_LAB_CLUSTER";
/// How long a lab that still runs may take to end by itself when `clean --all` asks it to.
const ENDING_MAX: Duration = Duration::from_secs(20);

/// Looks for more after something was found.
const PASSES_MAX: usize = 10;

/// What was removed, and what could not be and why; one sentence each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// What is gone.
    pub removed: Vec<String>,
    /// What is still there.
    pub left: Vec<String>,
}

/// Removes what clusters of dead owners left, and with `all` those of the living too: these are
/// asked to end, and killed if they do not.
pub fn clean(all: bool) -> Result<Swept, ClusterError> {
    let this = Owner::this()?;
    let mut ended = Vec::new();
    if all {
        for owner in owners()
            .into_iter()
            .filter(|owner| *owner != this && owner.lives())
        {
            end(owner);
            ended.push(format!("ended the lab with process number {}", owner.pid));
        }
    }
    let theirs = |name: &str| Owner::of(name).is_some_and(|owner| owner != this && !owner.lives());
    let mut swept = sweep(&theirs);
    swept.removed.splice(0..0, ended);
    Ok(swept)
}

/// Asks a lab to end, and ends it.
fn end(owner: Owner) {
    let pid = i32::try_from(owner.pid).ok().and_then(Pid::from_raw);
    let Some(pid) = pid else { return };
    // It may end at any moment: then there is nothing to do.
    kill_process(pid, Signal::TERM).ok();
    let deadline = clock::now() + ENDING_MAX;
    while owner.lives() && clock::now() < deadline {
        group::look_again();
    }
    if owner.lives() {
        kill_process(pid, Signal::KILL).ok();
        while owner.lives() && clock::now() < deadline + ENDING_MAX {
            group::look_again();
        }
    }
}

/// All owners of which something is there.
fn owners() -> BTreeSet<Owner> {
    let names = places().into_iter().flat_map(|folder| names_in(&folder));
    names.filter_map(|name| Owner::of(&name)).collect()
}

/// Removes everything whose name is meant, until nothing more turns up: a process that is killed in the
/// midst of making something may have made it after it was looked for.
pub(crate) fn sweep(meant: &dyn Fn(&str) -> bool) -> Swept {
    let mut swept = Swept::default();
    for _ in 0..PASSES_MAX {
        let before = swept.removed.len();
        pass(meant, &mut swept);
        if swept.removed.len() == before || !swept.left.is_empty() {
            break;
        }
    }
    swept
}

fn pass(meant: &dyn Fn(&str) -> bool, swept: &mut Swept) {
    let groups = matching(&group_mounts(), meant);
    let namespaces = matching(&[NAMESPACES.into()], meant);
    kill_all(&groups, &namespaces, meant, swept);
    for group in &groups {
        swept.note("control group", group, group::remove(group));
    }
    for namespace in &namespaces {
        let name = namespace.file_name().unwrap_or_default().to_string_lossy();
        swept.note(
            "network namespace",
            namespace,
            ip("", &["netns", "del", &name]),
        );
    }
    for folder in matching(&folders(), meant) {
        swept.note("folder", &folder, fs::remove_dir_all(&folder));
    }
}

impl Swept {
    fn note<T, E: std::fmt::Display>(&mut self, what: &str, path: &Path, done: Result<T, E>) {
        let there = path.exists();
        let path = path.display();
        match done {
            // Another sweep was quicker.
            Err(_) if !there => {}
            Ok(_) => self.removed.push(format!("removed the {what} {path}")),
            Err(why) => self
                .left
                .push(format!("the {what} {path} is still there: {why}")),
        }
    }
}

/// Kills until none is left: a process may have started another one while it was looked for.
fn kill_all(
    groups: &[PathBuf],
    namespaces: &[PathBuf],
    meant: &dyn Fn(&str) -> bool,
    swept: &mut Swept,
) {
    let start = clock::now();
    let mut killed = BTreeSet::new();
    loop {
        let living = living(groups, namespaces, meant);
        if living.is_empty() || !group::in_time(start) {
            let left = living
                .iter()
                .map(|pid| format!("process {pid} does not end"));
            swept.left.extend(left);
            break;
        }
        for pid in living {
            group::kill_one(pid);
            killed.insert(pid);
        }
        group::look_again();
    }
    let killed = killed.iter().map(|pid| format!("killed process {pid}"));
    swept.removed.extend(killed);
}

/// Processes that belong to what is meant, without this one.
fn living(
    groups: &[PathBuf],
    namespaces: &[PathBuf],
    meant: &dyn Fn(&str) -> bool,
) -> BTreeSet<u32> {
    let inodes: Vec<_> = namespaces.iter().filter_map(|path| inode(path)).collect();
    let belongs = |pid: &u32| {
        let process = Path::new("/proc").join(pid.to_string());
        let inside = || inode(&process.join("ns/net")).is_some_and(|it| inodes.contains(&it));
        inside() || mark(&process).is_some_and(|name| meant(&name))
    };
    let all = names_in(Path::new("/proc")).into_iter();
    let all = all.filter_map(|name| name.parse().ok());
    let mut living: BTreeSet<u32> = all.filter(belongs).collect();
    living.extend(groups.iter().flat_map(|path| group::processes(path)));
    living.remove(&std::process::id());
    living
}

/// What tells two namespaces apart.
fn inode(path: &Path) -> Option<(u64, u64)> {
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

/// The cluster in a process's environment.
fn mark(process: &Path) -> Option<String> {
    let environment = fs::read(process.join("environ")).ok()?;
    let mut variables = environment.split(|byte| *byte == 0);
    let value = variables
        .find_map(|variable| variable.strip_prefix(MARK.as_bytes())?.strip_prefix(b"="))?;
    Some(String::from_utf8_lossy(value).into_owned())
}

/// Where something of ours may be.
fn places() -> Vec<PathBuf> {
    let mut places = group_mounts();
    places.push(NAMESPACES.into());
    places.extend(folders());
    places
}

fn group_mounts() -> Vec<PathBuf> {
    // Without a hierarchy there are no groups of ours either.
    let tree = Tree::find();
    tree.iter()
        .flat_map(Tree::mounts)
        .map(Path::to_path_buf)
        .collect()
}

/// Where temporary folders are made; the first one that is there is taken.
pub(crate) fn folders() -> Vec<PathBuf> {
    let mut folders = vec![PathBuf::from("/dev/shm"), std::env::temp_dir()];
    folders.retain(|folder| folder.is_dir());
    folders
}

fn matching(folders: &[PathBuf], meant: &dyn Fn(&str) -> bool) -> Vec<PathBuf> {
    let all = folders.iter().flat_map(|folder| {
        let names = names_in(folder).into_iter();
        names.map(move |name| (folder.join(&name), name))
    });
    all.filter(|(_, name)| meant(name))
        .map(|(path, _)| path)
        .collect()
}

/// Names in a folder; none if it cannot be read.
fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let name = |entry: fs::DirEntry| entry.file_name().to_str().map(str::to_owned);
    entries.filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn an_owner_that_lives_is_asked_to_end_and_ends() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let owner = Owner::running(child.id()).unwrap();
        assert!(owner.lives());
        end(owner);
        assert!(!owner.lives());
        child.wait().unwrap();
    }

    #[test]
    fn what_is_not_meant_stays() {
        let owner = Owner::this().unwrap();
        let (mine, other) = (owner.next(), owner.next());
        let parent = folders().remove(0);
        let paths = [&mine, &other].map(|stem| parent.join(stem.name("files")));
        for path in &paths {
            fs::create_dir(path).unwrap();
        }
        let swept = sweep(&|name| name.starts_with(mine.text()));
        assert_eq!(swept.removed.len(), 1, "{swept:?}");
        assert_eq!(swept.left, Vec::<String>::new());
        assert!(!paths[0].exists() && paths[1].exists());
        fs::remove_dir(&paths[1]).unwrap();
    }
}
