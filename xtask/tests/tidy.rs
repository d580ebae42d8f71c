//! The tidy test: what is checked by reading the tree rather than by running it. Each check
//! says in its message what to do.

mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

use tree::{files, none, read, root};

/// Which crate may depend on which (design: data flows down this list).
const EDGES: &[(&str, &[&str])] = &[
    ("tidegate-core", &[]),
    ("tidegate-remote", &["tidegate-core"]),
    ("tidegate-node", &["tidegate-core", "tidegate-remote"]),
    ("tidegate-proxy", &["tidegate-core"]),
    ("tidegate-sim", &["tidegate-core"]),
    ("tidegate-culprits", &["tidegate-core"]),
    ("tidegate-discover", &["tidegate-core"]),
    ("tidegate-reported", &["tidegate-core"]),
    (
        "tidegate-emulator",
        &["tidegate-core", "tidegate-remote", "tidegate-sim"],
    ),
    (
        "tidegate-lab",
        &[
            "tidegate-emulator",
            "tidegate-core",
            "tidegate-remote",
            "tidegate-node",
            "tidegate-proxy",
            "tidegate-sim",
        ],
    ),
    (
        "tidegate",
        &[
            "tidegate-core",
            "tidegate-culprits",
            "tidegate-discover",
            "tidegate-reported",
            "tidegate-remote",
            "tidegate-node",
            "tidegate-proxy",
            "tidegate-sim",
            "tidegate-emulator",
        ],
    ),
    ("xtask", &[]),
];

/// Crates that may depend on another in tests alone: to have data that are made, rather than recorded.
const TEST_EDGES: &[(&str, &str)] = &[("tidegate-culprits", "tidegate-sim")];

/// Longest source file, in lines: a longer one hides something that deserves its own name.
const LINES_MAX: usize = 800;

/// Files outside `crates/remote` that may say `unsafe`, each with its reason.
const UNSAFE_ALLOWED: &[(&str, &str)] = &[
    (
        "crates/core/tests/no_alloc.rs",
        "counts allocations, and GlobalAlloc is an unsafe trait",
    ),
    (
        "crates/proxy/tests/allocations.rs",
        "counts allocations, and GlobalAlloc is an unsafe trait",
    ),
    (
        "crates/proxy/tests/memory.rs",
        "counts allocated bytes, and GlobalAlloc is an unsafe trait",
    ),
];

/// Words that have no place in the tree, and what to write instead.
const BANNED: &[(&str, &str)] = &[
    ("/home/", "no path of somebody's machine"),
    (concat!("/ro", "ot/"), "no path of somebody's machine"),
    ("FIXME", "mend it, or name the gap in the documentation"),
    ("XXX", "mend it, or name the gap in the documentation"),
    ("#[ignore", "a test that cannot run says SKIPPED and why"),
    ("dbg!(", "take it out"),
];

/// What git leaves in a file where two changes met, a line each: alone, or with the name of a side after a space.
const CONFLICT_MARKERS: [&str; 3] = ["<<<<<<<", "|||||||", ">>>>>>>"];
/// Between the sides: always alone. Longer ones underline headings.
const CONFLICT_MIDDLE: &str = "=======";

fn sources() -> impl Iterator<Item = (String, String)> {
    files()
        .into_iter()
        .filter(|file| file.ends_with(".rs"))
        .map(|file| {
            let text = read(&file);
            (file, text)
        })
}

#[test]
fn crates_depend_on_each_other_as_the_design_says() {
    let output = Command::new(env!("CARGO"))
        .current_dir(root())
        .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
        .output()
        .expect("cargo gives its metadata");
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("metadata is JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    let ours: BTreeSet<&str> = packages
        .iter()
        .filter_map(|it| it["name"].as_str())
        .collect();
    let allowed: BTreeMap<_, _> = EDGES.iter().copied().collect();
    let mut wrong = Vec::new();
    for package in packages {
        let name = package["name"].as_str().expect("a package has a name");
        let Some(allowed) = allowed.get(name) else {
            wrong.push(format!(
                "{name} is not in EDGES: say there what it may depend on"
            ));
            continue;
        };
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let on = dependency["name"]
                .as_str()
                .expect("a dependency has a name");
            let in_tests = dependency["kind"] == "dev" && TEST_EDGES.contains(&(name, on));
            if ours.contains(on) && !allowed.contains(&on) && !in_tests {
                wrong.push(format!(
                    "{name} depends on {on}: the design has no such arrow"
                ));
            }
        }
    }
    none(&wrong);
}

/// Crates and folders of their sources, as ARCHITECTURE.md names them: `crates/core/src/load/`.
#[test]
fn architecture_names_every_crate_and_folder_and_nothing_else() {
    let text = read("ARCHITECTURE.md");
    let mut exist = BTreeSet::new();
    for file in files().iter().filter(|file| file.ends_with(".rs")) {
        let parts: Vec<_> = file.split('/').collect();
        if let ["crates", name, rest @ ..] = parts.as_slice() {
            exist.insert(format!("crates/{name}"));
            if let ["src", folder, _, ..] = rest {
                exist.insert(format!("crates/{name}/src/{folder}/"));
            }
        }
    }
    let named: BTreeSet<String> = text
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|word| word.starts_with("crates/"))
        .filter(|word| {
            word.ends_with('/') && word.contains("/src/") || word.matches('/').count() == 1
        })
        .map(str::to_owned)
        .collect();
    let missing = exist
        .difference(&named)
        .map(|it| format!("ARCHITECTURE.md does not name `{it}`"));
    let vain = named
        .difference(&exist)
        .map(|it| format!("ARCHITECTURE.md names `{it}`, which is not there"));
    none(&missing.chain(vain).collect::<Vec<_>>());
}

#[test]
fn unsafe_stands_in_remote_only() {
    let allowed = |file: &str| {
        file.starts_with("crates/remote/")
            || file == "xtask/tests/tidy.rs"
            || UNSAFE_ALLOWED.iter().any(|(path, _)| *path == file)
    };
    let mut wrong = Vec::new();
    for (file, text) in sources().filter(|(file, _)| !allowed(file)) {
        for (index, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            if code.contains("unsafe ") {
                wrong.push(format!(
                    "{file}:{}: unsafe belongs into crates/remote",
                    index + 1
                ));
            }
        }
    }
    none(&wrong);
}

/// The page's sources, without its configuration.
fn scripts() -> impl Iterator<Item = (String, String)> {
    let files = files().into_iter();
    let ours = |file: &String| file.starts_with("web/") && file.ends_with(".ts");
    files.filter(ours).map(|file| {
        let text = read(&file);
        (file, text)
    })
}

#[test]
fn every_source_file_says_what_it_is_for() {
    let silent = sources().filter(|(_, text)| !text.starts_with("//!"));
    let scripts =
        scripts().filter(|(file, text)| !file.ends_with(".test.ts") && !text.starts_with("// "));
    let silent = silent.chain(scripts);
    none(
        &silent
            .map(|(file, _)| format!("{file}: begin with a line that says it (//! in Rust)"))
            .collect::<Vec<_>>(),
    );
}

#[test]
fn no_source_file_is_too_long_to_live_in() {
    let long = sources().chain(scripts());
    let long = long.filter(|(_, text)| text.lines().count() > LINES_MAX);
    none(
        &long
            .map(|(file, _)| format!("{file}: over {LINES_MAX} lines; split it"))
            .collect::<Vec<_>>(),
    );
}

#[test]
fn every_crate_takes_the_lints() {
    let manifests = files().into_iter().filter(|file| {
        file.ends_with("Cargo.toml") && (file.starts_with("crates/") || file.starts_with("xtask"))
    });
    let bare = manifests.filter(|file| {
        let text = read(file);
        // Remote spells them out, since it alone may be unsafe.
        !text.contains("[lints]\nworkspace = true") && file != "crates/remote/Cargo.toml"
    });
    none(
        &bare
            .map(|file| format!("{file}: add [lints] workspace = true"))
            .collect::<Vec<_>>(),
    );
}

#[test]
fn no_banned_word_stands_anywhere() {
    let mut wrong = Vec::new();
    for file in files()
        .iter()
        .filter(|file| *file != "xtask/tests/tidy.rs" && *file != "Cargo.lock")
    {
        let Ok(text) = std::fs::read_to_string(root().join(file)) else {
            continue;
        };
        for (index, line) in text.lines().enumerate() {
            for (word, instead) in BANNED.iter().filter(|(word, _)| line.contains(word)) {
                wrong.push(format!("{file}:{}: \"{word}\": {instead}", index + 1));
            }
        }
    }
    none(&wrong);
}

/// The lines, counted from one, that are conflict markers.
fn conflict_markers(text: &str) -> Vec<usize> {
    let is_marker = |line: &str| {
        let mut starts = CONFLICT_MARKERS.iter();
        let side = starts.find_map(|marker| line.strip_prefix(marker));
        line == CONFLICT_MIDDLE || side.is_some_and(|side| side.is_empty() || side.starts_with(' '))
    };
    let lines = (1..).zip(text.lines());
    lines
        .filter(|(_, line)| is_marker(line))
        .map(|(number, _)| number)
        .collect()
}

#[test]
fn no_conflict_marker_was_left() {
    let mut wrong = Vec::new();
    for file in files() {
        // What is no text has no lines.
        let Ok(text) = std::fs::read_to_string(root().join(&file)) else {
            continue;
        };
        let lines = conflict_markers(&text);
        wrong.extend(lines.iter().map(|line| {
            format!("{file}:{line}: a conflict marker: keep what is right of both sides")
        }));
    }
    none(&wrong);
}

#[test]
fn conflict_markers_are_known_from_what_looks_like_them() {
    let conflict = "a\n<<<<<<< HEAD\nb\n||||||| 1234567\nc\n=======\r\nd\n>>>>>>> topic\n<<<<<<<\n";
    assert_eq!(conflict_markers(conflict), [2, 4, 6, 8, 9]);
    let others = "<<<<<<<< HEAD\n <<<<<<< HEAD\n<<<<<<<HEAD\n======\n========\n======= b\n >>>>>>> c\n>>>>>> d\n|||||||||\n";
    assert_eq!(conflict_markers(others), [0_usize; 0]);
}

#[test]
fn the_lock_file_names_public_packages_only() {
    let lock = read("Cargo.lock");
    let odd = lock.lines().filter(|line| line.starts_with("source = "));
    let odd =
        odd.filter(|line| !line.contains("registry+https://github.com/rust-lang/crates.io-index"));
    none(
        &odd.map(|line| format!("Cargo.lock: {line}"))
            .collect::<Vec<_>>(),
    );
    // Versions and hashes; whichever registry serves them.
    let lock = read("web/package-lock.json");
    assert!(
        lock.contains("\"integrity\"") && !lock.contains("\"resolved\""),
        "web/package-lock.json names where packages came from: see web/.npmrc"
    );
}
