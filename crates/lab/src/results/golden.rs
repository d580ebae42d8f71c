//! The sample report's files, byte for byte: a change of what is written shows as a difference.

use std::path::Path;

use super::sample::report;
use super::{figure, markdown, page};

fn check(file: &str, found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(file);
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, found).unwrap();
    }
    let wanted = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        wanted == found,
        "{file} differs; UPDATE_EXPECT=1 rewrites it, then read the difference"
    );
}

#[test]
fn the_markdown_is_as_before() {
    // `check` compares with the file.
    check("sample.md", &markdown(&report()));
}

#[test]
fn the_plots_are_as_before() {
    // `check` compares with the file.
    check("sample.svg", &figure(&report().plots));
}

#[test]
fn the_page_is_as_before() {
    // `check` compares with the file.
    check("index.html", &page(&[report()]));
}
