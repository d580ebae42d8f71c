//! Nodes that operators add while the front-end runs, and the file in which they are kept over a restart.
//!
//! Only these are theirs to change and to remove: a node of the configuration file is changed there, one of a source
//! at its source. The file is `nodes.json` in the state folder; it is replaced as a whole, after the change is in force.

use std::path::PathBuf;
use std::sync::Arc;

use rustix::process::geteuid;
use serde::{Deserialize, Serialize};
use tidegate_core::topology::discovered::Announced;
use tokio::sync::Mutex;

use super::wanted::{OPERATORS, OtherNodes, Wanted, WholeCluster};
use super::{LiveCluster, ReloadError};
use crate::models::{AddedNode, NodeEdited, NodeRequest, NodeSettings};
use crate::output::Output;
use crate::replace::replace_private;
use crate::{secret_file, state};

/// The file.
const FILE: &str = "nodes.json";
/// Largest file, bytes: as many nodes as there may be.
const BYTES_MAX: usize = 4 << 20;
/// Most nodes of operators.
const ADDED_MAX: usize = 10_000;

/// What an operator wants.
#[derive(Clone, Debug)]
pub(crate) enum NodeEdit {
    /// A node more.
    Add(NodeRequest),
    /// Another address, site or weight of this one.
    Set(String, NodeSettings),
    /// This one less.
    Remove(String),
}

/// Where the nodes are kept.
#[derive(Debug, Default)]
pub(super) struct NodeFile {
    /// The state folder; none: nowhere.
    folder: Option<PathBuf>,
    /// What changes and writes.
    writing: Mutex<()>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    nodes: Vec<AddedNode>,
}

impl NodeFile {
    pub(super) fn new(folder: Option<PathBuf>) -> Self {
        Self {
            folder,
            writing: Mutex::default(),
        }
    }

    /// The nodes that are kept.
    pub(super) fn load(&self, output: Output) -> Vec<AddedNode> {
        let Some(folder) = &self.folder else {
            return Vec::new();
        };
        let path = folder.join(FILE);
        let kept = secret_file::read_kept(&path, BYTES_MAX).and_then(|bytes| match bytes {
            None => Ok(Vec::new()),
            Some(bytes) => parse(&bytes),
        });
        kept.unwrap_or_else(|why| {
            // What is in there may still be of use, and the next change replaces it.
            let aside = path.with_extension("broken");
            let moved = std::fs::rename(&path, &aside).is_ok();
            let path = if moved { aside } else { path };
            let text = format!("{}: nodes are not added again: {why}", path.display());
            output.event("nodes_not_read", &text);
            Vec::new()
        })
    }

    /// Keeps the nodes; why it does not, if so.
    async fn save(&self, nodes: Vec<AddedNode>) -> Option<String> {
        let Some(folder) = self.folder.clone() else {
            return Some(
                "it is not kept over a restart: there is no state folder (`directory` in [state])"
                    .into(),
            );
        };
        // The disk may not answer.
        let written = tokio::task::spawn_blocking(move || {
            if let Some(why) = state::unfit(&folder, geteuid().as_raw()) {
                return Err(why);
            }
            let text = serde_json::to_vec_pretty(&Kept { nodes });
            let text = text.map_err(|error| error.to_string())?;
            let path = folder.join(FILE);
            let written = replace_private(&path, &text);
            written.map_err(|error| format!("cannot write {}: {error}", path.display()))
        });
        let written = written.await.unwrap_or_else(|error| Err(error.to_string()));
        let why = written.err()?;
        Some(format!("it is not kept over a restart: {why}"))
    }
}

fn parse(bytes: &[u8]) -> Result<Vec<AddedNode>, String> {
    let kept: Kept = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    if kept.nodes.len() > ADDED_MAX {
        return Err(format!("more than {ADDED_MAX} nodes"));
    }
    match kept.nodes.iter().find_map(|node| fit(node).err()) {
        Some(why) => Err(why),
        None => Ok(kept.nodes),
    }
}

fn fit(node: &AddedNode) -> Result<(), String> {
    let announced = Announced {
        name: node.name.clone(),
        address: node.address,
        weight: node.weight,
    };
    announced.check().map_err(|unfit| unfit.to_string())
}

impl LiveCluster {
    /// The nodes of operators.
    pub(crate) async fn added(&self) -> Vec<AddedNode> {
        self.state.lock().await.others.added.clone()
    }

    /// Does what an operator wants, and keeps it.
    ///
    /// # Errors
    /// Nothing is changed then.
    pub(crate) async fn edit_node(
        self: &Arc<Self>,
        wanted: NodeEdit,
    ) -> Result<NodeEdited, ReloadError> {
        let own = Arc::clone(self);
        // Carried out and kept even if its asker leaves.
        let work = tokio::spawn(async move {
            let _writing = own.node_file.writing.lock().await;
            let edited = own.change_others(move |others, cluster| edit(others, cluster, wanted));
            let node = edited.await?;
            let note = own.node_file.save(own.added().await).await;
            Ok(NodeEdited {
                node,
                kept: note.is_none(),
                note,
            })
        });
        work.await.unwrap_or(Err(ReloadError::Broken))
    }
}

/// Changes the nodes of operators.
fn edit(
    others: &mut OtherNodes,
    cluster: &Wanted,
    wanted: NodeEdit,
) -> Result<AddedNode, ReloadError> {
    let before = cluster.with(others);
    let node = match wanted {
        NodeEdit::Add(request) => {
            let node = added(&before, request)?;
            if others.added.len() >= ADDED_MAX {
                let text = format!("there are {ADDED_MAX} nodes of operators already");
                return Err(ReloadError::Node(text));
            }
            others.added.push(node.clone());
            node
        }
        NodeEdit::Remove(name) => {
            let place = place(others, &before, &name)?;
            return Ok(others.added.remove(place));
        }
        NodeEdit::Set(name, settings) => {
            let place = place(others, &before, &name)?;
            let node = &mut others.added[place];
            node.address = settings.address.unwrap_or(node.address);
            node.weight = settings.weight.unwrap_or(node.weight);
            node.site = settings.site.unwrap_or_else(|| node.site.clone());
            node.clone()
        }
    };
    fit(&node).map_err(ReloadError::Node)?;
    match cluster.with(others).why_left_out(OPERATORS, &node.name) {
        Some(why) => Err(ReloadError::Node(format!("node {}: {why}", node.name))),
        None => Ok(node),
    }
}

fn added(before: &WholeCluster, request: NodeRequest) -> Result<AddedNode, ReloadError> {
    let sites = &before.wanted.cluster.sites;
    let site = match (request.site, sites.as_slice()) {
        (Some(site), _) => site,
        (None, [only]) => only.name.clone(),
        (None, _) => {
            let text = "there are several sites: say which of them the node serves";
            return Err(ReloadError::Node(text.into()));
        }
    };
    if let Some(owner) = before.owner(&request.name) {
        let text = format!("there is a node {} of {owner}", request.name);
        return Err(ReloadError::Node(text));
    }
    Ok(AddedNode {
        name: request.name,
        address: request.address,
        site,
        weight: request.weight.unwrap_or(1.0),
    })
}

/// The place of an operator's node.
fn place(others: &OtherNodes, before: &WholeCluster, name: &str) -> Result<usize, ReloadError> {
    let found = others.added.iter().position(|node| node.name == name);
    found.ok_or_else(|| {
        ReloadError::Node(match before.owner(name) {
            Some(owner) => format!(
                "node {name} is of {owner}, which changes it; `tidegate drain {name}` sends it no requests"
            ),
            None => "there is no node of this name".into(),
        })
    })
}
