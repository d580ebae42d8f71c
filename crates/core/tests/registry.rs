//! The tables of policies and admission modes: names, and the documentation page made from them.

use std::collections::BTreeSet;
use std::path::Path;

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

/// The others are not somebody else's, and their files have names of their own.
#[test]
fn every_baseline_of_admission_has_a_file_whose_header_says_what_it_must() {
    // `check_header` asserts.
    for (kind, name) in AdmissionKind::ALL {
        match kind {
            AdmissionKind::Off | AdmissionKind::Static | AdmissionKind::Adaptive => {}
            AdmissionKind::MaxConn
            | AdmissionKind::Codel
            | AdmissionKind::Gradient2
            | AdmissionKind::Vegas
            | AdmissionKind::EnvoyAdaptiveConcurrency
            | AdmissionKind::EnvoyAdmissionControl
            | AdmissionKind::Dagor => check_header("src/admission/rivals", name),
        }
    }
}

fn check_header(folder: &str, name: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("{folder}/{name}.rs"));
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
