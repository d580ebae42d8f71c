//! The file in which nodes of operators are kept over a restart: `nodes.json` in the state folder.
//!
//! ```text
//! start     file or, from a process that is succeeded, what it has ──> nodes in force
//! change    folder is ours ──> nodes in force ──> file
//! taken     folder becomes ours: what another front-end has written since the start is taken over
//!           a name that only one of the two has changed is as that one has it; else as in force here
//! ```
//!
//! A front-end writes only while the folder is its own (`state`). While another one has it, nodes are not changed here:
//! so neither loses what the other was given. The file is replaced as a whole, after the change is in force.
//!
//! Failure case: a folder that cannot be used by anyone. Nodes are changed then and not kept, and each answer says so.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex as PlainMutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_culprits::live::front_end::KeptFile;
use tokio::sync::Mutex;

use crate::config::state_folder::ADDED_NODES;
use crate::models::AddedNode;
use crate::output::Output;
use crate::state::{StateFile, StateFolder, Untaken};

/// Largest file, bytes: as many nodes as there may be.
const BYTES_MAX: usize = 4 << 20;
/// How long a change waits for the folder: a process that was succeeded is about to give it up.
const PATIENCE: Duration = Duration::from_secs(2);
/// Entries that are no nodes and are named.
const BAD_SHOWN: usize = 5;
/// Between two tries to have it.
pub(super) const EVERY: Duration = Duration::from_millis(250);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct NodeFile {
    /// None: no state folder.
    file: Option<Arc<PlainMutex<KeptNodes>>>,
    /// What changes and writes.
    pub(super) writing: Mutex<()>,
}

#[derive(Debug)]
struct KeptNodes {
    file: StateFile,
    /// As they were read or written last.
    known: Vec<AddedNode>,
    /// Nothing is written any more.
    ended: bool,
}

#[derive(Debug, Serialize)]
struct Written {
    nodes: Vec<AddedNode>,
}

/// The same as it is read, entry by entry: one that is no node costs none of the others.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entries {
    nodes: Vec<serde_json::Value>,
}

/// Whether nodes can be kept.
#[derive(Debug, PartialEq)]
pub(super) enum Folder {
    /// The folder is ours. If it was not before: the nodes that were known to be in the file, and those that are.
    Ours(Option<(Vec<AddedNode>, Vec<AddedNode>)>),
    /// There is none, or it is of no use, for this reason.
    Unfit(String),
    /// Another front-end has it, or this one has given it up.
    Elsewhere(String),
}

impl NodeFile {
    pub(super) fn new(folder: Option<&StateFolder>) -> Self {
        let kept = folder.map(|folder| KeptNodes {
            file: StateFile::new(folder, ADDED_NODES),
            known: Vec::new(),
            ended: false,
        });
        Self {
            file: kept.map(PlainMutex::new).map(Arc::new),
            writing: Mutex::default(),
        }
    }

    /// The nodes that are kept.
    pub(super) fn load(&self, output: Output) -> Vec<AddedNode> {
        let Some(file) = &self.file else {
            return Vec::new();
        };
        let mut kept = lock(file);
        let (nodes, why) = match kept.read() {
            Ok(Found { nodes, bad }) if bad.is_empty() => (nodes, None),
            Ok(Found { nodes, bad }) => (nodes, Some(shortened(&bad))),
            Err(why) => (Vec::new(), Some(why)),
        };
        if let Some(why) = why {
            // What is in there may still be of use.
            kept.file.spare();
            let (path, aside) = (kept.file.path(), kept.file.aside());
            let (path, aside) = (path.display(), aside.display());
            let which = match nodes.len() {
                0 => "nodes are not added again".into(),
                good => format!("{good} nodes are added again, others not"),
            };
            let text =
                format!("{path}: {which}: {why}; the file becomes {aside} with the next change");
            output.event("nodes_not_read", &text);
        }
        kept.known = nodes;
        kept.known.clone()
    }

    /// Whether there is anything to wait for: a folder that is not ours yet.
    pub(super) fn is_waiting(&self) -> bool {
        self.file.as_ref().is_some_and(|file| {
            let kept = lock(file);
            !kept.ended && !kept.file.has_folder()
        })
    }

    /// Takes the folder; one that another front-end has is waited for a little.
    pub(super) async fn take_patiently(&self) -> Folder {
        let mut waited = Duration::ZERO;
        loop {
            let folder = self.take().await;
            let is_ending = || self.file.as_ref().is_some_and(|file| lock(file).ended);
            if !matches!(folder, Folder::Elsewhere(_)) || waited >= PATIENCE || is_ending() {
                return folder;
            }
            tokio::time::sleep(EVERY).await;
            waited += EVERY;
        }
    }

    /// Takes the folder, if it is free.
    pub(super) async fn take(&self) -> Folder {
        let Some(file) = self.file.clone() else {
            let why = "there is no state folder (`directory` in [state])";
            return Folder::Unfit(why.into());
        };
        // The disk may not answer.
        let taken = tokio::task::spawn_blocking(move || lock(&file).take());
        taken
            .await
            .unwrap_or_else(|error| Folder::Unfit(error.to_string()))
    }

    /// Keeps these nodes in a folder that is ours; why it does not, if so.
    pub(super) async fn save(&self, nodes: Vec<AddedNode>) -> Result<(), String> {
        let Some(file) = self.file.clone() else {
            return Ok(());
        };
        let written = tokio::task::spawn_blocking(move || lock(&file).write(nodes));
        written.await.unwrap_or_else(|error| Err(error.to_string()))
    }

    /// The folder is another front-end's from now on, and no node is changed here any more.
    pub(super) fn give_up(&self) {
        if let Some(file) = &self.file {
            let mut kept = lock(file);
            kept.ended = true;
            kept.file.give_up();
        }
    }
}

impl KeptNodes {
    fn read(&self) -> Result<Found, String> {
        match self.file.read(BYTES_MAX)? {
            None => Ok(Found::default()),
            Some(bytes) => parse(&bytes),
        }
    }

    fn take(&mut self) -> Folder {
        if self.ended {
            return Folder::Elsewhere("this front-end is about to end".into());
        }
        let had_it = self.file.has_folder();
        match self.file.take() {
            Err(Untaken::Unfit(why)) => return Folder::Unfit(why),
            Err(Untaken::Elsewhere(why)) => return Folder::Elsewhere(why),
            Ok(()) if had_it => return Folder::Ours(None),
            Ok(()) => {}
        }
        // A file that is of no use was said to be so at the start, or is newly so and set aside by the first write.
        let theirs = match self.read() {
            Ok(Found { nodes, bad }) => {
                if !bad.is_empty() {
                    self.file.spare();
                }
                nodes
            }
            Err(_) => {
                self.file.spare();
                self.known.clone()
            }
        };
        let known = std::mem::replace(&mut self.known, theirs.clone());
        Folder::Ours(Some((known, theirs)))
    }

    fn write(&mut self, nodes: Vec<AddedNode>) -> Result<(), String> {
        if self.ended {
            return Err("this front-end is about to end".into());
        }
        let written = Written { nodes };
        let text = serde_json::to_vec_pretty(&written).map_err(|error| error.to_string())?;
        self.file.write(&text)?;
        self.known = written.nodes;
        Ok(())
    }
}

fn lock(file: &PlainMutex<KeptNodes>) -> MutexGuard<'_, KeptNodes> {
    file.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a file has.
#[derive(Debug, Default, PartialEq)]
struct Found {
    nodes: Vec<AddedNode>,
    /// Which of its entries are no nodes, and why.
    bad: Vec<String>,
}

fn parse(bytes: &[u8]) -> Result<Found, String> {
    let entries: Entries = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    if entries.nodes.len() > AddedNode::MAX {
        return Err(format!("more than {} nodes", AddedNode::MAX));
    }
    let mut found = Found::default();
    for (index, entry) in entries.nodes.into_iter().enumerate() {
        let node = serde_json::from_value(entry).map_err(|error| error.to_string());
        let node = node.and_then(|node: AddedNode| node.fit().map(|()| node));
        match node {
            Ok(node) => found.nodes.push(node),
            Err(why) => found.bad.push(format!("entry {}: {why}", index + 1)),
        }
    }
    Ok(found)
}

/// The first of them, and how many more there are.
fn shortened(bad: &[String]) -> String {
    let first: Vec<_> = bad.iter().take(BAD_SHOWN).cloned().collect();
    match bad.len().saturating_sub(BAD_SHOWN) {
        0 => first.join("; "),
        more => format!("{}; and {more} more", first.join("; ")),
    }
}

/// What two front-ends have made of the nodes that both knew, name by name: what only one has changed is as that one has
/// it, and what both have, as it is here.
pub(super) fn merged(
    known: &[AddedNode],
    theirs: &[AddedNode],
    ours: &[AddedNode],
) -> Vec<AddedNode> {
    type ByName<'a> = BTreeMap<&'a str, &'a AddedNode>;
    let by_name = |nodes| -> ByName<'_> {
        let nodes: &[AddedNode] = nodes;
        nodes.iter().map(|it| (it.name.as_str(), it)).collect()
    };
    let (known, changed) = (by_name(known), by_name(theirs));
    let own = by_name(ours);
    // In the order of the ones here, those that came elsewhere behind them.
    let mut seen = BTreeSet::new();
    let names = ours.iter().chain(theirs).map(|it| it.name.as_str());
    let names = names.filter(|name| seen.insert(*name));
    let one = |name| {
        let (was, there, here) = (known.get(name), changed.get(name), own.get(name));
        let chosen = if here == was { there } else { here };
        chosen.map(|node| (*node).clone())
    };
    names.filter_map(one).take(AddedNode::MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, weight: f32) -> AddedNode {
        AddedNode {
            name: name.into(),
            address: ([10, 0, 0, 1], 80).into(),
            site: "shop".into(),
            weight,
        }
    }

    #[test]
    fn an_entry_that_is_no_node_costs_no_other_one() {
        let text = r#"{"nodes": [
            {"name": "n1", "address": "10.0.0.1:80", "site": "shop", "weight": 1.0},
            {"name": "n2", "address": "10.0.0.1:80", "weight": 1.0},
            {"name": "n3", "address": "0.0.0.0:80", "site": "shop", "weight": 1.0},
            7,
            {"name": "n5", "address": "10.0.0.1:80", "site": "shop", "weight": 2.0}
        ]}"#;
        let found = parse(text.as_bytes()).unwrap();
        assert_eq!(found.nodes, [node("n1", 1.0), node("n5", 2.0)]);
        let parts = [
            "entry 2: missing field `site`",
            "entry 3: no server",
            "entry 4: ",
        ];
        assert_eq!(found.bad.len(), parts.len());
        for (bad, part) in found.bad.iter().zip(parts) {
            assert!(bad.starts_with(part), "{bad}");
        }
        for broken in ["", "[]", r#"{"nodes": 7}"#, r#"{"nodes": [], "more": 1}"#] {
            assert!(parse(broken.as_bytes()).is_err(), "{broken}");
        }
    }

    #[test]
    fn two_front_ends_lose_nothing_of_what_either_was_given() {
        let known = [node("stays", 1.0), node("set", 1.0), node("gone", 1.0)];
        let theirs = [node("stays", 1.0), node("set", 2.0), node("theirs", 1.0)];
        assert_eq!(merged(&known, &theirs, &known), theirs, "only there");
        assert_eq!(merged(&known, &known, &theirs), theirs, "only here");
        let ours = [node("stays", 3.0), node("gone", 1.0), node("ours", 1.0)];
        let both = merged(&known, &theirs, &ours);
        let wanted = [
            // Removed here and changed there: removed. Removed there and left as it was here: removed.
            node("stays", 3.0),
            node("ours", 1.0),
            node("theirs", 1.0),
        ];
        assert_eq!(both, wanted);
        let other = [node("stays", 4.0)];
        assert_eq!(
            merged(&known, &other, &ours)[0],
            node("stays", 3.0),
            "here is where it was asked for"
        );
        assert_eq!(merged(&[], &[], &[]), []);
    }
}
