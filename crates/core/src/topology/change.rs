//! What is to change in a cluster that runs: one set of edits, by names, applied as a whole or not at all.
//!
//! ```text
//! configuration, discovery, operators, moves ── ClusterChange ──> Director ── Topology ──> all that read it
//! ```
//!
//! Edits are in an order in which each finds what it names: sites come first and go last. Names are identities: what
//! keeps its name stays what it is and keeps what was learned of it, wherever it is served.

use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;

use super::routes::RouteError;
use super::{Capacity, ClusterSpec, SiteSpec, Topology};

/// What is wanted of a node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeWanted {
    /// Its name.
    pub name: String,
    /// Where it serves HTTP.
    pub address: SocketAddr,
    /// The name of the site that it serves.
    pub site: String,
    /// Its share relative to others.
    pub weight: f32,
    /// What it has of each resource, relative to others.
    pub capacity: Capacity,
}

/// What is wanted of a group.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupWanted {
    /// Its name.
    pub name: String,
    /// Most requests in flight at its nodes, of all front-ends together.
    pub limit: u32,
    /// The names of the sites that share it, each with its weight.
    pub members: Vec<(String, f64)>,
    /// The names of the nodes of theirs that do.
    pub nodes: BTreeSet<String>,
}

/// One step of a change.
#[derive(Clone, Debug, PartialEq)]
pub enum Edit {
    /// A site begins.
    AddSite(SiteSpec),
    /// A site is served in another way.
    ChangeSite(SiteSpec),
    /// A node begins, or one that is leaving stays.
    AddNode(NodeWanted),
    /// A node has another address, site, weight or capacity.
    ChangeNode(NodeWanted),
    /// A node gets no new requests; it is gone when those that it has have ended.
    RemoveNode(String),
    /// A node gets no new requests until it is released: it is on its way to another site.
    WithholdNode(String),
    /// It gets requests of the site that it has by now.
    ReleaseNode(String),
    /// A site without nodes ends.
    RemoveSite(String),
    /// These are the groups from now on.
    SetGroups(Vec<GroupWanted>),
    /// So many front-ends are configured.
    SetFrontEnds(u32),
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterChange {
    /// Its steps, in order.
    pub edits: Vec<Edit>,
}

/// Why a change is refused; nothing of it was applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// A name is taken.
    #[error("{0} `{1}` exists")]
    Exists(Named, String),
    /// A name is not known.
    #[error("no {0} is called `{1}`")]
    Unknown(Named, String),
    /// A site that has nodes cannot end.
    #[error("site `{0}` still has node `{1}`")]
    HasNode(String, String),
    /// Two sites would want the same requests.
    #[error(transparent)]
    Routes(#[from] RouteError),
}

/// What has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// A site.
    Site,
    /// A node.
    Node,
}

impl fmt::Display for Named {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Site => "site",
            Self::Node => "node",
        })
    }
}

impl ClusterChange {
    /// What makes one cluster of another.
    pub fn between(before: &ClusterSpec, after: &ClusterSpec) -> Self {
        let mut edits = Vec::new();
        for site in &after.sites {
            match before.sites.iter().find(|it| it.name == site.name) {
                None => edits.push(Edit::AddSite(site.clone())),
                Some(was) if was != site => edits.push(Edit::ChangeSite(site.clone())),
                Some(_) => {}
            }
        }
        let (nodes_before, nodes) = (nodes(before), nodes(after));
        for node in &nodes {
            match nodes_before.iter().find(|it| it.name == node.name) {
                None => edits.push(Edit::AddNode(node.clone())),
                Some(was) if was != node => edits.push(Edit::ChangeNode(node.clone())),
                Some(_) => {}
            }
        }
        let gone = |it: &&NodeWanted| nodes.iter().all(|node| node.name != it.name);
        let removed = nodes_before.iter().filter(gone);
        edits.extend(removed.map(|it| Edit::RemoveNode(it.name.clone())));
        let gone = |it: &&SiteSpec| after.sites.iter().all(|site| site.name != it.name);
        let removed = before.sites.iter().filter(gone);
        edits.extend(removed.map(|it| Edit::RemoveSite(it.name.clone())));
        let groups_after = groups(after);
        if groups(before) != groups_after {
            edits.push(Edit::SetGroups(groups_after));
        }
        if before.front_ends != after.front_ends {
            edits.push(Edit::SetFrontEnds(after.front_ends));
        }
        Self { edits }
    }

    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.edits.is_empty()
    }

    /// Whether each step finds what it names in the cluster as it then is.
    pub fn check(&self, topology: &Topology) -> Result<(), ChangeError> {
        let mut names = Names::of(topology);
        self.edits.iter().try_for_each(|edit| names.apply(edit))
    }
}

/// The names that there are, as a change goes on.
struct Names<'a> {
    sites: BTreeSet<&'a str>,
    /// Each with the site that it serves.
    nodes: Vec<NameOfNode<'a>>,
}

struct NameOfNode<'a> {
    name: &'a str,
    site: &'a str,
}

impl<'a> Names<'a> {
    fn of(topology: &'a Topology) -> Self {
        let sites = topology.sites.iter().filter(|site| !site.removed);
        let nodes = topology.members().map(|(_, node)| NameOfNode {
            name: &node.name,
            site: &topology.site(node.site).name,
        });
        Self {
            sites: sites.map(|site| site.name.as_str()).collect(),
            nodes: nodes.collect(),
        }
    }

    fn apply(&mut self, edit: &'a Edit) -> Result<(), ChangeError> {
        match edit {
            Edit::AddSite(site) => match self.sites.insert(&site.name) {
                true => Ok(()),
                false => Err(ChangeError::Exists(Named::Site, site.name.clone())),
            },
            Edit::ChangeSite(site) => self.known_site(&site.name),
            Edit::AddNode(node) => {
                if self.node(&node.name).is_some() {
                    return Err(ChangeError::Exists(Named::Node, node.name.clone()));
                }
                self.known_site(&node.site)?;
                self.nodes.push(NameOfNode {
                    name: &node.name,
                    site: &node.site,
                });
                Ok(())
            }
            Edit::ChangeNode(node) => {
                self.known_site(&node.site)?;
                let place = self.known_node(&node.name)?;
                self.nodes[place].site = &node.site;
                Ok(())
            }
            Edit::RemoveNode(name) => {
                let place = self.known_node(name)?;
                self.nodes.swap_remove(place);
                Ok(())
            }
            Edit::WithholdNode(name) | Edit::ReleaseNode(name) => self.known_node(name).map(drop),
            Edit::RemoveSite(name) => {
                self.known_site(name)?;
                if let Some(node) = self.nodes.iter().find(|node| node.site == name) {
                    return Err(ChangeError::HasNode(name.clone(), node.name.into()));
                }
                self.sites.remove(name.as_str());
                Ok(())
            }
            Edit::SetGroups(groups) => {
                let mut members = groups.iter().flat_map(|group| &group.members);
                members.try_for_each(|(site, _)| self.known_site(site))?;
                let mut nodes = groups.iter().flat_map(|group| &group.nodes);
                nodes.try_for_each(|node| self.known_node(node).map(drop))
            }
            Edit::SetFrontEnds(_) => Ok(()),
        }
    }

    fn node(&self, name: &str) -> Option<usize> {
        self.nodes.iter().position(|node| node.name == name)
    }

    fn known_node(&self, name: &str) -> Result<usize, ChangeError> {
        let place = self.node(name);
        place.ok_or_else(|| ChangeError::Unknown(Named::Node, name.into()))
    }

    fn known_site(&self, name: &str) -> Result<(), ChangeError> {
        match self.sites.contains(name) {
            true => Ok(()),
            false => Err(ChangeError::Unknown(Named::Site, name.into())),
        }
    }
}

fn nodes(spec: &ClusterSpec) -> Vec<NodeWanted> {
    let wanted = spec.nodes.iter().map(|node| NodeWanted {
        name: node.name.clone(),
        address: node.address,
        site: spec.sites[node.site.index()].name.clone(),
        weight: node.weight,
        capacity: node.capacity,
    });
    wanted.collect()
}

fn groups(spec: &ClusterSpec) -> Vec<GroupWanted> {
    let wanted = spec.groups.iter().map(|group| {
        let site = |(site, weight): &(super::SiteId, f64)| {
            (spec.sites[site.index()].name.clone(), *weight)
        };
        let nodes = group.nodes.iter();
        GroupWanted {
            name: group.name.clone(),
            limit: group.limit,
            members: group.members.iter().map(site).collect(),
            nodes: nodes
                .map(|it| spec.nodes[it.index()].name.clone())
                .collect(),
        }
    });
    wanted.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::AdmissionConfig;
    use crate::load::Group;
    use crate::policy::PolicyConfig;
    use crate::topology::{Capacity, NodeId, NodeSpec, SiteId};

    fn spec(sites: &[&str], nodes: &[(&str, &str)]) -> ClusterSpec {
        let place = |name: &str| sites.iter().position(|it| *it == name).unwrap() as u32;
        let site = |name: &&str| SiteSpec {
            name: (*name).into(),
            hosts: Vec::new(),
            paths: Vec::new(),
            policy: PolicyConfig::default(),
            admission: AdmissionConfig::default(),
            health: Default::default(),
        };
        let node = |(name, site): &(&str, &str)| NodeSpec {
            name: (*name).into(),
            address: ([127, 0, 0, 1], 80).into(),
            site: SiteId(place(site)),
            weight: 1.0,
            capacity: Capacity::default(),
        };
        ClusterSpec {
            sites: sites.iter().map(site).collect(),
            nodes: nodes.iter().map(node).collect(),
            groups: Vec::new(),
            front_ends: 1,
        }
    }

    fn words(change: &ClusterChange) -> Vec<String> {
        let word = |edit: &Edit| match edit {
            Edit::AddSite(it) => format!("+site {}", it.name),
            Edit::ChangeSite(it) => format!("site {}", it.name),
            Edit::AddNode(it) => format!("+{} {}", it.name, it.site),
            Edit::ChangeNode(it) => format!("{} {}", it.name, it.site),
            Edit::RemoveNode(name) => format!("-{name}"),
            Edit::WithholdNode(name) => format!("({name}"),
            Edit::ReleaseNode(name) => format!("{name})"),
            Edit::RemoveSite(name) => format!("-site {name}"),
            Edit::SetGroups(groups) => format!("{} groups", groups.len()),
            Edit::SetFrontEnds(count) => format!("{count} front-ends"),
        };
        change.edits.iter().map(word).collect()
    }

    #[test]
    fn steps_come_in_an_order_in_which_each_finds_what_it_names() {
        let before = spec(&["a", "b"], &[("n1", "a"), ("n2", "b"), ("n3", "b")]);
        let mut after = spec(&["c", "a"], &[("n4", "c"), ("n2", "a"), ("n1", "a")]);
        after.front_ends = 3;
        let change = ClusterChange::between(&before, &after);
        let expected = ["+site c", "+n4 c", "n2 a", "-n3", "-site b", "3 front-ends"];
        assert_eq!(words(&change), expected);
        assert!(ClusterChange::between(&after, &after).is_empty());
        // Another order in the file is no change.
        let same = spec(&["b", "a"], &[("n3", "b"), ("n1", "a"), ("n2", "b")]);
        assert!(ClusterChange::between(&before, &same).is_empty());
    }

    #[test]
    fn what_a_group_has_is_compared_by_names() {
        let before = spec(&["a", "b"], &[("n1", "a"), ("n2", "b")]);
        let group = |site, node| Group {
            name: "db".into(),
            limit: 5,
            members: vec![(SiteId(site), 1.0)],
            nodes: vec![NodeId(node)],
        };
        let with = |mut spec: ClusterSpec, group| {
            spec.groups = vec![group];
            spec
        };
        let (one, other) = (group(0, 0), group(1, 1));
        let swapped = spec(&["b", "a"], &[("n2", "b"), ("n1", "a")]);
        let (before, same) = (with(before, one), with(swapped.clone(), other));
        assert!(ClusterChange::between(&before, &same).is_empty());
        let another = with(swapped, group(0, 0));
        assert_eq!(
            words(&ClusterChange::between(&before, &another)),
            ["1 groups"]
        );
    }
}
