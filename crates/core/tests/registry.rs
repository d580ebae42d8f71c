//! The tables of policies and admission modes: names, and the documentation page made from them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use tidegate_core::admission::AdmissionKind;
use tidegate_core::policy::{PolicyKind, markdown};

/// Each name once, in lower case with single underscores.
fn check_names<'a>(all: impl Iterator<Item = &'a str>) {
    let mut names = BTreeSet::new();
    for name in all {
        assert!(names.insert(name), "{name} twice");
        let snake = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        assert!(name.chars().all(snake), "{name}");
        assert!(name.starts_with(|c: char| c.is_ascii_lowercase()), "{name}");
        assert!(!name.ends_with('_') && !name.contains("__"), "{name}");
    }
    assert!(!names.is_empty());
}

#[test]
fn names_are_unique_and_in_snake_case() {
    check_names(PolicyKind::ALL.iter().map(|kind| kind.name()));
    for kind in PolicyKind::ALL {
        assert_eq!(PolicyKind::named(kind.name()), Some(*kind));
        assert!(!kind.what().is_empty());
    }
    assert_eq!(PolicyKind::named("no_such_policy"), None);
    check_names(AdmissionKind::ALL.iter().map(|(_, name)| *name));
    for (kind, name) in AdmissionKind::ALL {
        assert_eq!(kind.label(), *name);
        assert!(!kind.what().is_empty());
    }
}

#[test]
fn the_documentation_names_every_policy_and_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/policies.md");
    #[expect(
        clippy::disallowed_methods,
        reason = "a test may be told to rewrite the file that it compares"
    )]
    let rewrite = std::env::var("UPDATE_EXPECT").is_ok();
    if rewrite {
        std::fs::write(&path, markdown()).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap();
    for kind in PolicyKind::ALL {
        let row = format!("| `{}`", kind.name());
        assert!(written.contains(&row), "{} is missing", kind.name());
    }
    assert_eq!(
        written,
        markdown(),
        "stale: run `cargo xtask generate` or the test with UPDATE_EXPECT=1"
    );
}

#[test]
fn every_policy_has_a_file_whose_header_says_what_it_must() {
    // `check_header` asserts.
    for kind in PolicyKind::ALL {
        check_header("src/policy", kind.name());
    }
}

/// The files of the first three have no formula, or another name.
#[test]
fn every_admission_mode_has_a_file_whose_header_says_what_it_must() {
    use AdmissionKind::{Adaptive, Off, Static};
    for (_, name) in
        (AdmissionKind::ALL.iter()).filter(|(kind, _)| ![Off, Static, Adaptive].contains(kind))
    {
        let file = |folder: &&str| source(folder, name).exists();
        let folder = ["src/admission", "src/admission/baselines"]
            .into_iter()
            .find(file);
        check_header(folder.expect("a mode has a file"), name);
    }
}

fn source(folder: &str, name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("{folder}/{name}.rs"))
}

fn check_header(folder: &str, name: &str) {
    let path = source(folder, name);
    let text = std::fs::read_to_string(&path);
    let text = text.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let header: String = text
        .lines()
        .take_while(|line| line.starts_with("//!"))
        .collect();
    assert!(header.contains(&format!("`{name}`")));
    for part in ["Inputs:", "Failure case:", "Source:"] {
        assert!(header.contains(part), "{}: no {part:?}", path.display());
    }
    let formula = header.contains("Formula:") || header.contains("```text");
    assert!(formula, "{}: no formula", path.display());
}
