//! What sites share and that bears only so many requests: the table, and what it means.

use tidegate_core::topology::{Group, NodeId, SiteId};

use super::answers::Named;
use super::file::{ConfigFile, NodeFile};
use super::problem::{Problem, Problems};
use super::setting::{At, table};
use super::validate;

const LIMIT_MAX: u32 = 1_000_000;
const WEIGHT_MIN: f64 = 0.001;
const WEIGHT_MAX: f64 = 1000.0;

table! {
    /// Nodes that share something which bears only so many requests at a time: a database, a licence, a
    /// remote service. When it has as many, requests to those nodes wait as for any other room.
    pub(crate) struct GroupFile {
        /// Its name: letters, digits, `.`, `-` and `_`.
        name: String;
        /// Most requests in flight at its nodes, of all front-ends together: each takes its part.
        limit: u32, in 1..=LIMIT_MAX;
        /// The sites that share it and their weights, like `{ shop = 3, blog = 1 }`: requests wait in
        /// turns by weight, the highest priority first. A site is in one group at most.
        sites: Named<f64>;
        /// Those of their nodes that share it; empty: all.
        nodes: Vec<At<String>> = Vec::new();
    }
}

impl validate::Checker<'_> {
    /// The groups of a file; all that is wrong is among the problems.
    pub(super) fn groups(&mut self, file: &ConfigFile) -> Vec<Group> {
        let names: Vec<_> = file.group.iter().map(|group| &group.name).collect();
        self.names("group", &names);
        let problems = &mut *self.problems;
        let mut checker = Checker { file, problems };
        let groups = file.group.iter();
        groups.map(|group| checker.group(group)).collect()
    }
}

struct Checker<'a, 'p> {
    file: &'a ConfigFile,
    problems: &'p mut Problems,
}

impl Checker<'_, '_> {
    fn group(&mut self, group: &At<GroupFile>) -> Group {
        if group.sites.0.is_empty() {
            let message = format!("group `{}` has no sites", group.name.value);
            let problem = Problem::new(group.sites.place(), message, "nobody shares it");
            self.problems
                .push(problem.help("like `{ shop = 3, blog = 1 }`"));
        }
        let members = group.sites.0.iter().filter_map(|(name, weight)| {
            self.alone(group, name);
            self.member(name, weight)
        });
        let members = members.collect();
        Group {
            name: group.name.value.clone(),
            limit: group.limit.value,
            nodes: self.nodes(group),
            members,
        }
    }

    fn member(&mut self, name: &At<String>, weight: &At<f64>) -> Option<(SiteId, f64)> {
        if !(WEIGHT_MIN..=WEIGHT_MAX).contains(&weight.value) {
            let message = format!("a weight must be from {WEIGHT_MIN} to {WEIGHT_MAX}");
            let problem = Problem::new(weight.place(), message, "out of range");
            self.problems.push(problem);
        }
        let mut sites = self.file.site.iter();
        let site = sites.position(|site| site.name.value == name.value);
        if site.is_none() {
            let message = format!("no site is called `{}`", name.value);
            self.problems
                .push(Problem::new(name.place(), message, "unknown site"));
        }
        Some((SiteId(u32::try_from(site?).ok()?), weight.value))
    }

    /// The site is in no group before this one.
    fn alone(&mut self, group: &At<GroupFile>, name: &At<String>) {
        let before = self.file.group.iter();
        let mut before = before.take_while(|it| it.place() != group.place());
        let other = before.find_map(|other| {
            let mut names = other.sites.0.iter().map(|it| &it.0);
            names.find(|it| it.value == name.value)
        });
        if let Some(other) = other {
            let message = format!("site `{}` is in two groups", name.value);
            self.problems.push(
                Problem::new(name.place(), message, "again here")
                    .context(other.place(), "first here"),
            );
        }
    }

    fn nodes(&mut self, group: &At<GroupFile>) -> Vec<NodeId> {
        let is_member = |node: &NodeFile| group.sites.0.iter().any(|it| node.serves(&it.0.value));
        for name in &group.nodes.value {
            let mut nodes = self.file.node.iter();
            let node = nodes.find(|node| node.name.value == name.value);
            let (message, label) = match node {
                None => (
                    format!("no node is called `{}`", name.value),
                    "unknown node",
                ),
                Some(node) if !is_member(node) => (
                    format!("node `{}` is of no site of the group", name.value),
                    "not one of theirs",
                ),
                Some(_) => continue,
            };
            self.problems
                .push(Problem::new(name.place(), message, label));
        }
        let named =
            |name: &str| group.nodes.is_empty() || group.nodes.iter().any(|it| it.value == name);
        let nodes = (0..).map(NodeId).zip(self.file.servers());
        nodes
            .filter(|(_, node)| is_member(node) && named(&node.name.value))
            .map(|(id, _)| id)
            .collect()
    }
}
