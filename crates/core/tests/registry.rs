//! The table of policies: names, and the documentation page made from it.

use std::collections::BTreeSet;
use std::path::Path;

use tidegate_core::policy::{PolicyKind, markdown};

#[test]
fn names_are_unique_and_in_snake_case() {
    let mut names = BTreeSet::new();
    for kind in PolicyKind::ALL {
        let name = kind.name();
        assert!(names.insert(name), "{name} twice");
        let snake = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        assert!(name.chars().all(snake), "{name}");
        assert!(name.starts_with(|c: char| c.is_ascii_lowercase()), "{name}");
        assert!(!name.ends_with('_') && !name.contains("__"), "{name}");
        assert_eq!(PolicyKind::named(name), Some(*kind));
        assert!(!kind.what().is_empty());
    }
    assert_eq!(PolicyKind::named("no_such_policy"), None);
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
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/policy");
    for kind in PolicyKind::ALL {
        let path = folder.join(format!("{}.rs", kind.name()));
        let text = std::fs::read_to_string(&path).unwrap();
        let header: String = text
            .lines()
            .take_while(|line| line.starts_with("//!"))
            .collect();
        assert!(header.contains(&format!("`{}`", kind.name())));
        for part in ["Inputs:", "Failure case:", "Source:"] {
            assert!(header.contains(part), "{}: no {part:?}", path.display());
        }
        let formula = header.contains("Formula:") || header.contains("```text");
        assert!(formula, "{}: no formula", path.display());
    }
}
