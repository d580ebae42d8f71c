//! What one configuration makes of another, as a plan for people: what changes at once, and what a new process is
//! needed for.
//!
//! ```text
//! file in force ─┐            ┌─> changes   sites, nodes, sources, groups, throttles, keys, limits, time-outs, …
//! file as it is ─┴─> compare ─┼─> upgrade   a new process takes it over without losing a request: `tidegate upgrade`
//!                             └─> restart   privileges that this process has given away, and what is an agent's
//! ```
//!
//! Tables of a list are the same where their name is; their order means nothing.

use std::collections::BTreeSet;

use crate::config::file::ConfigFile;
use crate::config::setting::{Encoded, Setting, inline};
use crate::models::PlanLine;

/// Tables that a running front-end takes over whole.
const LIVE: [&str; 12] = [
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
    "traces",
];
/// Keys of these that it does not.
const FIXED_KEYS: [(&str, &str); 1] = [("limits", "workers")];
/// Keys that it takes over of other tables.
const LIVE_KEYS: [(&str, &str); 14] = [
    ("load", "key_file"),
    ("load", "interval"),
    ("load", "pace"),
    ("load", "budget"),
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
/// Keys that a new process takes over only if it is started as the first one was: this process cannot become another user.
const STARTED_KEYS: [(&str, &str); 1] = [("process", "user")];
/// The same where they are switched on, since they take privileges.
const PRIVILEGED_KEYS: [(&str, &str); 2] = [("process", "marks"), ("load", "realtime")];
/// The table of another process: an agent reads it at its start.
const OF_AGENT: &str = "agent";
/// What names a table of a list: the first of these that it has.
const NAMES: [&str; 3] = ["name", "class", "address"];

/// See the module.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Plan {
    /// What takes effect at once.
    pub(super) changes: Vec<PlanLine>,
    /// What takes an upgrade.
    pub(super) upgrade: Vec<PlanLine>,
    /// What takes a restart.
    pub(super) restart: Vec<PlanLine>,
}

/// What a change takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takes {
    Reload,
    Upgrade,
    Restart,
}

impl Takes {
    /// For a key of a table, or a whole one, that is to be this.
    fn of(table: &str, key: Option<&str>, after: Option<&str>) -> Self {
        let is_one_of = |keys: &[(&str, &str)]| key.is_some_and(|key| keys.contains(&(table, key)));
        let is_live = match LIVE.contains(&table) {
            true => !is_one_of(&FIXED_KEYS),
            false => is_one_of(&LIVE_KEYS),
        };
        let is_on = after == Some("true");
        let is_given_away = is_one_of(&STARTED_KEYS) || (is_on && is_one_of(&PRIVILEGED_KEYS));
        match (is_live, table == OF_AGENT || is_given_away) {
            (true, _) => Self::Reload,
            (false, true) => Self::Restart,
            (false, false) => Self::Upgrade,
        }
    }
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
        match Takes::of(table, line.key.as_deref(), line.after.as_deref()) {
            Takes::Reload => self.changes.push(line),
            Takes::Upgrade => self.upgrade.push(line),
            Takes::Restart => self.restart.push(line),
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
    use crate::testing::key_folder;

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

    fn words(lines: &[PlanLine]) -> Vec<String> {
        lines.iter().map(ToString::to_string).collect()
    }

    fn plan(after: &str) -> (Vec<String>, Vec<String>) {
        let plan = Plan::between(&file(FILE), &file(after));
        assert_eq!(words(&plan.restart), [""; 0]);
        (words(&plan.changes), words(&plan.upgrade))
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
        let (changes, upgrade) = plan(&after);
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
        assert_eq!(upgrade, [""; 0]);
    }

    #[test]
    fn what_needs_a_new_process_is_named() {
        let after = format!(
            "{FILE}[limits]\nconnections = 9\nworkers = 3\n[load]\ninterval = \"2ms\"\nrealtime = false\n\
             [process]\nreload = \"watch\"\n[culprits]\nslo = \"1s\"\nclasses = [\"/cart/*\"]\n"
        );
        let (changes, upgrade) = plan(&after.replace("127.0.0.1:8080", "127.0.0.1:8081"));
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
            upgrade,
            [
                "~ [culprits]: classes = [] -> [\"/cart/*\"]",
                "~ [load]: realtime = true -> false",
                "~ [process]: reload = \"asked\" -> \"watch\"",
                "~ [limits]: workers = \"auto\" -> 3",
            ]
        );
    }

    #[test]
    fn privileges_that_were_given_away_and_what_is_an_agents_need_a_restart() {
        let agent = format!(
            "{FILE}[agent]\nkey_file = \"{}\"\n",
            key_folder().join("n1.key").display()
        );
        let before = format!("{agent}[load]\nrealtime = false\n");
        let after = format!("{agent}interval = \"2ms\"\n[process]\nuser = \"web\"\nmarks = true\n");
        let plan = Plan::between(&file(&before), &file(&after));
        assert_eq!(
            words(&plan.restart),
            [
                "~ [load]: realtime = false -> true",
                "~ [agent]: interval = \"1ms\" -> \"2ms\"",
                "~ [process]: marks = false -> true",
                "~ [process]: user = not set -> \"web\"",
            ]
        );
        let back = Plan::between(&file(&after), &file(&before));
        assert_eq!(
            words(&back.upgrade),
            [
                "~ [load]: realtime = true -> false",
                "~ [process]: marks = true -> false",
            ]
        );
        assert_eq!(back.restart.len(), 2, "{back:?}");
    }

    /// A row of the page: a table, keys of it or none, and what their change takes.
    struct Row {
        table: String,
        keys: Vec<String>,
        takes: String,
    }

    fn rows() -> Vec<Row> {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operating.md");
        let page = std::fs::read_to_string(page).unwrap();
        let (_, rest) = page
            .split_once("| what | takes | why |\n|---|---|---|\n")
            .unwrap();
        let lines = rest.lines().take_while(|it| it.starts_with('|'));
        let row = |line: &str| {
            let cells: Vec<_> = line.split('|').map(str::trim).collect();
            let mut names = cells[1].split('`').skip(1).step_by(2);
            let table = names.next().unwrap().trim_matches(['[', ']']);
            let is_all_but = cells[1].contains("but for");
            Row {
                table: table.to_owned(),
                keys: names.filter(|_| !is_all_but).map(str::to_owned).collect(),
                takes: cells[2].to_owned(),
            }
        };
        lines.map(row).collect()
    }

    #[test]
    fn the_page_says_of_every_key_what_its_change_takes() {
        let agent = format!(
            "{FILE}[agent]\nkey_file = \"{}\"\n",
            key_folder().join("n1.key").display()
        );
        let rows = rows();
        let mut used = BTreeSet::new();
        for (table, value) in tables(&file(&agent).encode()) {
            let Encoded::Table(entries) = &value else {
                continue;
            };
            for (key, _) in entries {
                let [other, on] = [None, Some("true")].map(|to| Takes::of(table, Some(key), to));
                let takes = match (other, on) {
                    (Takes::Reload, Takes::Reload) => continue,
                    (Takes::Upgrade, Takes::Upgrade) => "upgrade",
                    (Takes::Restart, Takes::Restart) => "restart",
                    (Takes::Upgrade, Takes::Restart) => "upgrade; restart to switch it on",
                    mixed => panic!("{table} {key}: {mixed:?}"),
                };
                let of_table = rows.iter().enumerate().filter(|(_, it)| it.table == table);
                let (named, whole): (Vec<_>, Vec<_>) = of_table
                    .filter(|(_, it)| it.keys.is_empty() || it.keys.iter().any(|it| it == key))
                    .partition(|(_, it)| !it.keys.is_empty());
                let (place, row) = *(named.first().or(whole.first()))
                    .unwrap_or_else(|| panic!("docs/operating.md lacks [{table}] {key}: {takes}"));
                assert_eq!(row.takes, takes, "docs/operating.md: [{table}] {key}");
                used.insert(place);
            }
        }
        assert_eq!(used.len(), rows.len(), "a row of no key");
    }

    #[test]
    fn resources_come_and_go_at_once() {
        let resource = "[[node]]\nname = \"db\"\naddress = \"10.0.0.8:0\"\nrole = \"resource\"\nload.transport = \"shm\"\nload.path = \"/dev/shm/db\"\n";
        let (changes, upgrade) = plan(&format!("{FILE}{resource}"));
        assert_eq!(changes, ["+ node db \"10.0.0.8:0\""]);
        assert_eq!(upgrade, [""; 0]);
    }

    #[test]
    fn another_order_is_no_change() {
        let (first, second) = FILE.split_at(FILE.rfind("[[node]]").unwrap());
        let at = first.find("[[node]]").unwrap();
        let swapped = format!("{}{second}{}", &first[..at], &first[at..]);
        assert_eq!(plan(&swapped), (Vec::new(), Vec::new()));
    }
}
