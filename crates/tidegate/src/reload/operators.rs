//! Nodes that operators add, change and remove while the front-end runs.
//!
//! Only these are theirs: a node of the configuration file is changed there, one of a source at its source. They are kept
//! in a file (`node_file`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;

use super::node_file::{EVERY, Folder, merged};
use super::wanted::{OPERATORS, OtherNodes, Wanted, Weighed, WholeCluster};
use super::{LiveCluster, ReloadError};
use crate::models::{AddedNode, NodeEdited, NodeRequest, NodeSettings};
use crate::upgrade::Change;

/// A state folder that another front-end has for longer is worth a word.
const SAID_AFTER: Duration = Duration::from_secs(10);

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

impl LiveCluster {
    /// The nodes of operators.
    pub(crate) async fn added(&self) -> Vec<AddedNode> {
        self.state.lock().await.others.added.clone()
    }

    /// The same as it is at each moment, also while a change is under way.
    pub(crate) fn added_now(&self) -> Arc<ArcSwap<Vec<AddedNode>>> {
        Arc::clone(&self.added)
    }

    /// Names of the certificates of the file that clients are shown now, and when each ends, in seconds since 1970.
    pub(crate) fn certificate_ends(&self) -> BTreeMap<Vec<Box<str>>, u64> {
        self.reach.listeners.certificate_ends()
    }

    /// Weights that operators have set, as they are at each moment.
    pub(crate) fn weights_now(&self) -> Arc<BTreeMap<String, Weighed>> {
        self.weights.load_full()
    }

    /// Does what an operator wants, and keeps it. No upgrade begins meanwhile.
    ///
    /// # Errors
    /// Nothing is changed then.
    pub(crate) async fn edit_node(
        self: &Arc<Self>,
        wanted: NodeEdit,
        change: Change,
    ) -> Result<NodeEdited, ReloadError> {
        let own = Arc::clone(self);
        // Carried out and kept even if its asker leaves.
        let work = tokio::spawn(async move {
            let _writing = own.node_file.writing.lock().await;
            let unkept = own.take_folder().await?;
            let edited = own.change_others(move |others, cluster| edit(others, cluster, wanted));
            let node = edited.await?;
            let unkept = match unkept {
                None => own.node_file.save(own.added.load().to_vec()).await.err(),
                unfit => unfit,
            };
            drop(change);
            Ok(NodeEdited {
                node,
                kept: unkept.is_none(),
                note: unkept.map(|why| format!("it is not kept over a restart: {why}")),
            })
        });
        work.await.unwrap_or(Err(ReloadError::Broken))
    }

    /// Has a node weigh so much, or what it weighs by itself, until the process ends. No upgrade begins meanwhile.
    ///
    /// # Errors
    /// Nothing is changed then.
    pub(crate) async fn weigh_node(
        self: &Arc<Self>,
        name: String,
        weight: Option<f32>,
        change: Change,
    ) -> Result<NodeEdited, ReloadError> {
        let own = Arc::clone(self);
        let work = tokio::spawn(async move {
            let weighed =
                own.change_others(move |others, cluster| weigh(others, cluster, name, weight));
            let node = weighed.await?;
            drop(change);
            Ok(NodeEdited {
                node,
                kept: false,
                note: Some("until this process ends, or its owner gives it another weight".into()),
            })
        });
        work.await.unwrap_or(Err(ReloadError::Broken))
    }

    /// Takes over what another front-end has kept in the state folder, once that is ours.
    pub(crate) async fn follow_folder(self: Arc<Self>) {
        let mut waited = Duration::ZERO;
        let mut said = None;
        while self.node_file.is_waiting() {
            let writing = self.node_file.writing.lock().await;
            let folder = self.node_file.take().await;
            let why = self.take_over(folder).await.err().map(|it| it.to_string());
            drop(writing);
            // The process before this one gives it up at its end: that is waited for, and nothing is lost meanwhile.
            if waited >= SAID_AFTER && why != said {
                if let Some(why) = &why {
                    let text = format!("nodes in the state folder are not taken over: {why}");
                    self.reach.output.event("nodes_not_read", &text);
                }
                said = why;
            }
            tokio::time::sleep(EVERY).await;
            waited += EVERY;
        }
    }

    /// The state folder is another front-end's from now on.
    pub(crate) fn give_up_folder(&self) {
        self.node_file.give_up();
    }

    /// Takes the folder before a change; why what is changed cannot be kept, if so.
    async fn take_folder(self: &Arc<Self>) -> Result<Option<String>, ReloadError> {
        let folder = self.node_file.take_patiently().await;
        self.take_over(folder).await
    }

    /// Takes over what came into a folder that is newly ours; why there is none.
    async fn take_over(self: &Arc<Self>, folder: Folder) -> Result<Option<String>, ReloadError> {
        let (known, theirs) = match folder {
            Folder::Ours(None) => return Ok(None),
            Folder::Ours(Some(read)) => read,
            Folder::Unfit(why) => return Ok(Some(why)),
            Folder::Elsewhere(why) => return Err(ReloadError::Elsewhere(why)),
        };
        let ours = self.added().await;
        let all = merged(&known, &theirs, &ours);
        if all != ours {
            let added = all.clone();
            let changed = self.change_others(move |others, _| {
                others.added = added;
                Ok(())
            });
            changed.await?;
            let text = "nodes that operators have given another front-end are taken over from the state folder";
            self.reach.output.event("nodes_taken_over", text);
        }
        match all == theirs {
            true => Ok(None),
            false => Ok(self.node_file.save(all).await.err()),
        }
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
            if others.added.len() >= AddedNode::MAX {
                let text = format!("there are {} nodes of operators already", AddedNode::MAX);
                return Err(ReloadError::Node(text));
            }
            others.added.push(node.clone());
            node
        }
        NodeEdit::Remove(name) => {
            let place = place(others, &before, &name)?;
            others.weights.remove(&name);
            return Ok(others.added.remove(place));
        }
        NodeEdit::Set(name, settings) => {
            let place = place(others, &before, &name)?;
            let node = &mut others.added[place];
            node.address = settings.address.unwrap_or(node.address);
            if let Some(weight) = settings.weight {
                node.weight = weight;
                others.weights.remove(&name);
            }
            node.site = settings.site.unwrap_or_else(|| node.site.clone());
            node.clone()
        }
    };
    node.fit().map_err(ReloadError::Node)?;
    match cluster.with(others).why_left_out(OPERATORS, &node.name) {
        Some(why) => Err(ReloadError::Node(format!("node {}: {why}", node.name))),
        None => Ok(node),
    }
}

/// Changes what a node weighs, whatever its owner says.
fn weigh(
    others: &mut OtherNodes,
    cluster: &Wanted,
    name: String,
    weight: Option<f32>,
) -> Result<AddedNode, ReloadError> {
    let unknown = || ReloadError::Node("there is no node of this name".into());
    others.weights.remove(&name);
    let own = cluster.with(others).wanted.cluster;
    let node = own.nodes.into_iter().find(|it| it.name == name);
    let node = node.ok_or_else(unknown)?;
    let own_weight = node.weight;
    let node = AddedNode {
        site: own.sites[node.site.index()].name.clone(),
        address: node.address,
        weight: weight.unwrap_or(node.weight),
        name: name.clone(),
    };
    node.fit().map_err(ReloadError::Node)?;
    if let Some(weight) = weight {
        let weighed = Weighed {
            weight,
            instead_of: own_weight,
        };
        others.weights.insert(name, weighed);
    }
    Ok(node)
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
