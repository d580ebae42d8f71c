//! A front-end whose configuration file changes while it runs.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Output;

use super::{FrontEnd, folder, tidegate};

/// A cluster as a configuration has it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cluster {
    /// Hosts by site.
    sites: BTreeMap<&'static str, &'static str>,
    /// Address and site by node.
    nodes: BTreeMap<&'static str, (SocketAddr, &'static str)>,
    /// What else is in the file.
    more: String,
}

impl Cluster {
    pub(crate) fn site(mut self, name: &'static str, host: &'static str) -> Self {
        self.sites.insert(name, host);
        self
    }

    pub(crate) fn node(
        mut self,
        name: &'static str,
        address: SocketAddr,
        site: &'static str,
    ) -> Self {
        self.nodes.insert(name, (address, site));
        self
    }

    pub(crate) fn more(mut self, text: &str) -> Self {
        self.more = text.into();
        self
    }

    pub(crate) fn text(&self) -> String {
        let mut text = format!("{}\n", self.more);
        for (name, host) in &self.sites {
            text.push_str(&format!(
                "[[site]]\nname = \"{name}\"\nhosts = [\"{host}\"]\n"
            ));
        }
        for (name, (address, site)) in &self.nodes {
            text.push_str(&format!(
                "[[node]]\nname = \"{name}\"\naddress = \"{address}\"\nsite = \"{site}\"\n"
            ));
        }
        text
    }
}

/// A front-end whose file changes.
pub(crate) struct Scene {
    pub(crate) folder: PathBuf,
    pub(crate) front_end: FrontEnd,
}

impl Scene {
    pub(crate) fn start(name: &str, cluster: &Cluster) -> Self {
        let folder = folder(name);
        let front_end = FrontEnd::start(&folder, &cluster.text());
        Self { folder, front_end }
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.folder.join("tidegate.toml")
    }

    /// Writes the file anew; listener and admin stay.
    pub(crate) fn write(&self, configuration: &str) {
        let before = std::fs::read_to_string(self.file()).unwrap();
        let end = &before[before.rfind("\n[admin]").unwrap()..];
        let new = self.folder.join("new.toml");
        std::fs::write(&new, format!("{configuration}{end}")).unwrap();
        std::fs::rename(new, self.file()).unwrap();
    }

    pub(crate) fn command(&self, words: &[&str]) -> Output {
        let admin = self.front_end.admin.to_string();
        let mut command = tidegate();
        command.args(words).args(["--admin", &admin]);
        command.output().unwrap()
    }

    /// What `tidegate reload` prints.
    pub(crate) fn reload(&self, words: &[&str]) -> String {
        let done = self.command(&[&["reload"], words].concat());
        let error = String::from_utf8(done.stderr).unwrap();
        assert!(done.status.success(), "{error}");
        String::from_utf8(done.stdout).unwrap()
    }

    /// Which servers answer that many requests for a host.
    pub(crate) fn answers(&self, host: &str, requests: usize) -> BTreeMap<String, usize> {
        let mut answers = BTreeMap::new();
        for _ in 0..requests {
            let answer = self.front_end.get(host, "/");
            *answers.entry(answer.body).or_default() += 1;
        }
        answers
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("front-end.log")).unwrap()
    }
}

pub(crate) fn names(answers: &BTreeMap<String, usize>) -> Vec<&str> {
    answers.keys().map(String::as_str).collect()
}
