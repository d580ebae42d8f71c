//! What the binary is made of besides our own crates: licences, versions, sources and use of each dependency, by
//! `deny.toml`. Advisories need a database of their own: `cargo deny check`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use spdx::{Expression, ParseMode};
use toml::{Table, Value};

/// What is built on this machine: crate, version, licence.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Package {
    name: String,
    version: String,
    licence: String,
}

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent()
        .expect("this crate lies in a folder")
        .to_owned()
}

fn table(file: &Path) -> Table {
    let text = std::fs::read_to_string(file);
    let text = text.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    text.parse()
        .unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

fn texts<'t>(table: &'t Table, section: &str, list: &str) -> BTreeSet<&'t str> {
    let list = table[section][list].as_array();
    let list = list.expect("a list in deny.toml").iter();
    list.map(|it| it.as_str().expect("a text")).collect()
}

/// All of `cargo tree`, each package once.
fn packages() -> BTreeSet<Package> {
    let output = Command::new(env!("CARGO"))
        .current_dir(root())
        .args(["tree", "--workspace", "--locked", "--offline"])
        .args(["--prefix", "none", "--format", "{p}|{l}"])
        .output()
        .expect("cargo runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo tree: {error}");
    let text = String::from_utf8(output.stdout).expect("names of packages are UTF-8");
    let lines = text.lines().filter(|line| !line.is_empty());
    lines.map(package).collect()
}

/// A line like `syn v2.0.0 (proc-macro)|MIT OR Apache-2.0`, which ` (*)` may follow.
fn package(line: &str) -> Package {
    let (package, licence) = line.split_once('|').expect("a licence");
    let mut words = package.split_whitespace();
    let mut word = || words.next().expect("a name and a version").to_owned();
    let (name, version) = (word(), word());
    let licence = licence.trim_end_matches("(*)").trim().to_owned();
    Package {
        name,
        version,
        licence,
    }
}

fn allows(allowed: &BTreeSet<&str>, licence: &str) -> bool {
    // Older manifests say `MIT/Apache-2.0`.
    let expression = Expression::parse_mode(licence, ParseMode::LAX);
    expression.is_ok_and(|it| {
        it.evaluate(|asked| {
            let id = asked.license.id();
            asked.addition.is_none() && id.is_some_and(|id| allowed.contains(id.name))
        })
    })
}

#[test]
fn every_licence_is_on_the_list_and_the_list_names_no_other() {
    let deny = table(&root().join("deny.toml"));
    let allowed = texts(&deny, "licenses", "allow");
    let packages = packages();
    assert!(packages.len() > 100, "{} packages", packages.len());
    let bad: Vec<_> = packages
        .iter()
        .filter(|it| !allows(&allowed, &it.licence))
        .collect();
    assert!(
        bad.is_empty(),
        "licences that deny.toml does not allow: {bad:#?}"
    );
    let needed = |licence: &&&str| {
        let mut others = allowed.clone();
        others.remove(**licence);
        packages.iter().any(|it| !allows(&others, &it.licence))
    };
    let vain: Vec<_> = allowed.iter().filter(|it| !needed(it)).collect();
    assert!(vain.is_empty(), "no crate needs {vain:?} of deny.toml");
}

#[test]
fn an_expression_is_allowed_if_one_of_its_choices_is() {
    let allowed = BTreeSet::from(["MIT", "Unicode-3.0"]);
    for good in [
        "MIT",
        "GPL-3.0-only OR MIT",
        "MIT/Apache-2.0",
        "(MIT OR Apache-2.0) AND Unicode-3.0",
    ] {
        assert!(allows(&allowed, good), "{good}");
    }
    for bad in [
        "",
        "GPL-3.0-only",
        "MIT AND Apache-2.0",
        "Unicode-3.0 WITH LLVM-exception",
        "ours",
    ] {
        assert!(!allows(&allowed, bad), "{bad}");
    }
}

#[test]
fn no_crate_is_built_in_two_versions() {
    let deny = table(&root().join("deny.toml"));
    let skipped = texts(&deny, "bans", "skip");
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in packages() {
        let of = versions.entry(package.name).or_default();
        of.insert(package.version);
    }
    versions.retain(|name, versions| versions.len() > 1 && !skipped.contains(name.as_str()));
    assert!(versions.is_empty(), "two versions of: {versions:#?}");
}

/// A dependency that no source names is built in vain, and one that only tests name is no part of the product.
#[test]
fn every_dependency_is_used_where_its_manifest_says() {
    let mut vain = Vec::new();
    for manifest in manifests() {
        let folder = manifest.parent().expect("a manifest lies in a folder");
        let product = sources(&folder.join("src"), Tests::Out);
        let build = std::fs::read_to_string(folder.join("build.rs")).unwrap_or_default();
        let all = sources(folder, Tests::In);
        let manifest = table(&manifest);
        for (section, text) in [
            ("dependencies", &product),
            ("build-dependencies", &build),
            ("dev-dependencies", &all),
        ] {
            let section_table = manifest.get(section).and_then(Value::as_table);
            for name in section_table.into_iter().flat_map(Table::keys) {
                if !names(text, &name.replace('-', "_")) {
                    vain.push(format!("{}: [{section}] {name}", folder.display()));
                }
            }
        }
    }
    assert!(vain.is_empty(), "not used: {vain:#?}");
}

fn manifests() -> Vec<PathBuf> {
    let crates = std::fs::read_dir(root().join("crates")).expect("crates/");
    let crates = crates.map(|it| it.expect("an entry").path().join("Cargo.toml"));
    let mut manifests: Vec<_> = crates.filter(|it| it.exists()).collect();
    manifests.push(root().join("xtask/Cargo.toml"));
    assert!(manifests.len() > 5, "{manifests:?}");
    manifests
}

/// Whether a file holds tests and nothing else, by the names that they have here.
fn is_test(file: &Path) -> bool {
    let name = file.file_stem().and_then(|it| it.to_str());
    name.is_some_and(|name| name == "tests" || name.ends_with("_tests"))
        || file.components().any(|it| it.as_os_str() == "tests")
}

/// Whether tests count as sources.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tests {
    In,
    Out,
}

/// The text of all sources below a folder.
fn sources(folder: &Path, tests: Tests) -> String {
    let mut text = String::new();
    for entry in std::fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        if tests == Tests::Out && is_test(&path) {
            continue;
        }
        if path.is_dir() {
            text += &sources(&path, tests);
        } else if path.extension().is_some_and(|it| it == "rs") {
            let file = std::fs::read_to_string(&path);
            let file = file.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            text += match file.split_once("#[cfg(test)]\nmod tests {") {
                Some((product, _)) if tests == Tests::Out => product,
                Some(_) | None => &file,
            };
        }
    }
    text
}

/// Whether a source names a crate: `name::`, `use name as`, `name!`.
fn names(text: &str, name: &str) -> bool {
    text.match_indices(name).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let whole = !before.is_some_and(|it| it.is_alphanumeric() || it == '_' || it == '.');
        let behind = &text[at + name.len()..];
        whole
            && ["::", " as ", "!", ";"]
                .iter()
                .any(|it| behind.starts_with(it))
    })
}
