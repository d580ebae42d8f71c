//! What one configuration makes of another, as a plan for people: what changes at once, and what a new process is
//! needed for.
//!
//! ```text
//! file in force ─┐            ┌─> changes   sites, nodes, sources, groups, throttles, keys, limits, time-outs, …
//! file as it is ─┴─> compare ─┤
//!                             └─> restart   all else: `tidegate upgrade` takes it over without losing a request
//! ```
//!
//! Tables of a list are the same where their name is; their order means nothing.

use std::collections::BTreeSet;

use crate::config::file::ConfigFile;
use crate::config::setting::{Encoded, Setting, inline};
use crate::models::PlanLine;

/// Tables that a running front-end takes over whole.
const LIVE: [&str; 11] = [
    "listener",
    "site",
    "node",
    "discover",
    "dns",
    "group",
    "throttle",
    "limits",
    "timeouts",
    "forwarded",
    "log",
];
/// Keys of these that it does not.
const FIXED_KEYS: [(&str, &str); 1] = [("limits", "workers")];
/// Keys that it takes over of other tables.
const LIVE_KEYS: [(&str, &str); 12] = [
    ("load", "key_file"),
    ("load", "interval"),
    ("cluster", "front_ends"),
    ("reconfigure", "serial"),
    ("culprits", "peers"),
    ("culprits", "first_to_wait"),
    ("culprits", "automatic"),
    ("culprits", "trials"),
    ("culprits", "delay_experiments"),
    ("culprits", "slo"),
    ("culprits", "most"),
    ("culprits", "least"),
];
/// What names a table of a list: the first of these that it has.
const NAMES: [&str; 3] = ["name", "class", "address"];

/// See the module.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Plan {
    /// What takes effect without a restart.
    pub(super) changes: Vec<PlanLine>,
    /// What does not.
    pub(super) restart: Vec<PlanLine>,
}

/// A table under its name, with its keys as the file would have them: `admission.mode`, `"adaptive"`.
struct Item {
    name: String,
    keys: Vec<(String, String)>,
}

impl Plan {
    /// What makes the one of the other.
    pub(super) fn between(before: &ConfigFile, after: &ConfigFile) -> Self {
        let mut plan = Self::default();
        let (before, after) = (tables(&before.encode()), tables(&after.encode()));
        let names: Vec<_> = before.iter().map(|(name, _)| *name).collect();
        for table in names {
            let of = |all: &[(&'static str, Encoded)]| {
                let found = all.iter().find(|(name, _)| *name == table);
                items(table, found.map_or(&Encoded::Unset, |(_, value)| value))
            };
            plan.compare(table, &of(&before), &of(&after));
        }
        plan
    }

    fn compare(&mut self, table: &str, before: &[Item], after: &[Item]) {
        for item in after {
            match before.iter().find(|it| it.name == item.name) {
                None => self.push(table, whole(table, item, true)),
                Some(was) => self.compare_keys(table, was, item),
            }
        }
        for item in before {
            if after.iter().all(|it| it.name != item.name) {
                self.push(table, whole(table, item, false));
            }
        }
    }

    fn compare_keys(&mut self, table: &str, before: &Item, after: &Item) {
        let keys: BTreeSet<_> = before
            .keys
            .iter()
            .chain(&after.keys)
            .map(|it| &it.0)
            .collect();
        for key in keys {
            let value = |item: &Item| {
                let found = item.keys.iter().find(|it| it.0 == *key);
                found.map(|it| it.1.clone())
            };
            let (was, is) = (value(before), value(after));
            if was != is {
                let line = PlanLine {
                    what: called(table, &after.name),
                    key: Some(key.clone()),
                    before: was,
                    after: is,
                };
                self.push(table, line);
            }
        }
    }

    fn push(&mut self, table: &str, line: PlanLine) {
        let is_one_of = |keys: &[(&str, &str)]| {
            let key = line.key.as_deref();
            key.is_some_and(|key| keys.contains(&(table, key)))
        };
        let live = match LIVE.contains(&table) {
            true => !is_one_of(&FIXED_KEYS),
            false => is_one_of(&LIVE_KEYS),
        };
        match live {
            true => self.changes.push(line),
            false => self.restart.push(line),
        }
    }
}

/// A table that comes or goes.
fn whole(table: &str, item: &Item, comes: bool) -> PlanLine {
    let mut keys = item.keys.iter();
    let address = keys.find(|(key, _)| key == "address" || key == "hosts");
    let shown = address.map_or(String::new(), |(_, value)| value.clone());
    PlanLine {
        what: called(table, &item.name),
        key: None,
        before: (!comes).then(|| shown.clone()),
        after: comes.then_some(shown),
    }
}

/// `node n1`, `[limits]`.
fn called(table: &str, name: &str) -> String {
    match name {
        "" => format!("[{table}]"),
        _ => format!("{table} {name}"),
    }
}

fn tables(file: &Encoded) -> Vec<(&'static str, Encoded)> {
    match file {
        Encoded::Table(tables) => tables.clone(),
        Encoded::Tables(_) | Encoded::Inline(_) | Encoded::Unset => Vec::new(),
    }
}

/// The tables of that name; one that is no list has no name of its own.
fn items(table: &str, value: &Encoded) -> Vec<Item> {
    match value {
        Encoded::Tables(items) => items.iter().map(|item| named(table, item)).collect(),
        Encoded::Table(_) => vec![Item {
            name: String::new(),
            keys: keys("", value),
        }],
        Encoded::Inline(_) | Encoded::Unset => Vec::new(),
    }
}

fn named(table: &str, value: &Encoded) -> Item {
    let keys = keys("", value);
    let name = NAMES.iter().find_map(|name| {
        let found = keys.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.trim_matches('"').to_owned())
    });
    Item {
        name: name.unwrap_or_else(|| table.to_owned()),
        keys,
    }
}

/// What a table sets, with the keys of tables in it behind a dot.
fn keys(prefix: &str, value: &Encoded) -> Vec<(String, String)> {
    let Encoded::Table(entries) = value else {
        return Vec::new();
    };
    let of = |(name, value): &(&'static str, Encoded)| {
        let key = format!("{prefix}{name}");
        match value {
            Encoded::Table(_) => keys(&format!("{key}."), value),
            Encoded::Inline(_) | Encoded::Tables(_) | Encoded::Unset => {
                inline(value).map(|text| (key, text)).into_iter().collect()
            }
        }
    };
    entries.iter().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::Config;

    const FILE: &str = r#"
        [[listener]]
        address = "127.0.0.1:8080"
        [[site]]
        name = "shop"
        hosts = ["shop.example"]
        [[node]]
        name = "n1"
        address = "10.0.0.1:80"
        site = "shop"
        [[node]]
        name = "n2"
        address = "10.0.0.2:80"
        site = "shop"
    "#;

    fn file(text: &str) -> ConfigFile {
        Config::parse(text, "t.toml", Path::new("")).unwrap().file
    }

    fn plan(after: &str) -> (Vec<String>, Vec<String>) {
        let plan = Plan::between(&file(FILE), &file(after));
        let words = |lines: &[PlanLine]| lines.iter().map(ToString::to_string).collect();
        (words(&plan.changes), words(&plan.restart))
    }

    #[test]
    fn nodes_and_sites_come_go_and_change_at_once() {
        let after = FILE
            .replace("10.0.0.2:80", "10.0.0.9:80")
            .replace("\"n1\"", "\"n3\"")
            .replace(
                "hosts",
                "policy = \"random\"\nadmission.mode = \"off\"\nhosts",
            );
        let (changes, restart) = plan(&after);
        assert_eq!(
            changes,
            [
                "~ site shop: admission.mode = \"adaptive\" -> \"off\"",
                "~ site shop: policy = \"auto\" -> \"random\"",
                "+ node n3 \"10.0.0.1:80\"",
                "~ node n2: address = \"10.0.0.2:80\" -> \"10.0.0.9:80\"",
                "- node n1 \"10.0.0.1:80\"",
            ]
        );
        assert_eq!(restart, [""; 0]);
    }

    #[test]
    fn what_needs_a_new_process_is_named() {
        let after = format!(
            "{FILE}[limits]\nconnections = 9\nworkers = 3\n[load]\ninterval = \"2ms\"\nrealtime = false\n\
             [culprits]\nslo = \"1s\"\nclasses = [\"/cart/*\"]\n"
        );
        let (changes, restart) = plan(&after.replace("127.0.0.1:8080", "127.0.0.1:8081"));
        assert_eq!(
            changes,
            [
                "+ listener 127.0.0.1:8081 \"127.0.0.1:8081\"",
                "- listener 127.0.0.1:8080 \"127.0.0.1:8080\"",
                "~ [culprits]: slo = \"500ms\" -> \"1s\"",
                "~ [load]: interval = not set -> \"2ms\"",
                "~ [limits]: connections = 7000 -> 9",
            ]
        );
        assert_eq!(
            restart,
            [
                "~ [culprits]: classes = [] -> [\"/cart/*\"]",
                "~ [load]: realtime = true -> false",
                "~ [limits]: workers = \"auto\" -> 3",
            ]
        );
    }

    #[test]
    fn resources_come_and_go_at_once() {
        let resource = "[[node]]\nname = \"db\"\naddress = \"10.0.0.8:0\"\nrole = \"resource\"\nload.transport = \"shm\"\nload.path = \"/dev/shm/db\"\n";
        let (changes, restart) = plan(&format!("{FILE}{resource}"));
        assert_eq!(changes, ["+ node db \"10.0.0.8:0\""]);
        assert_eq!(restart, [""; 0]);
    }

    #[test]
    fn another_order_is_no_change() {
        let (first, second) = FILE.split_at(FILE.rfind("[[node]]").unwrap());
        let at = first.find("[[node]]").unwrap();
        let swapped = format!("{}{second}{}", &first[..at], &first[at..]);
        assert_eq!(plan(&swapped), (Vec::new(), Vec::new()));
    }
}
