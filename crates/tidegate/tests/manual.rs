//! The manual pages: there is one for each command, and the formatters have nothing to say about any.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "test code; a test that cannot run says why"
)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

fn tidegate(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    let output = command.args(arguments).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// The pages in a fresh folder of this name.
fn pages(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
    if folder.exists() {
        std::fs::remove_dir_all(&folder).unwrap();
    }
    let said = tidegate(&["man", "--dir", folder.to_str().unwrap()]);
    let entries = std::fs::read_dir(&folder).unwrap();
    let pages: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    assert!(
        said.trim_end()
            .ends_with(&format!(": {} pages", pages.len())),
        "{said}"
    );
    pages
}

/// The commands that a help text lists.
fn listed(help: &str) -> impl Iterator<Item = &str> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines = lines.take_while(|line| !line.is_empty());
    let commands = lines.filter(|line| !line.starts_with("   "));
    commands
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
}

#[test]
fn each_command_has_a_page_that_the_first_one_names() {
    let pages: BTreeSet<_> = pages("manual-names")
        .iter()
        .map(|page| page.file_name().unwrap().to_str().unwrap().to_owned())
        .collect();
    let mut wanted = BTreeSet::from(["tidegate.1".to_owned(), "tidegate.toml.5".to_owned()]);
    let first = tidegate(&["man"]);
    for command in listed(&tidegate(&["--help"])) {
        wanted.insert(format!("tidegate-{command}.1"));
        let name = command.replace('-', "\\-");
        assert!(
            first.contains(&format!("tidegate\\-{name}(1)")),
            "{command}"
        );
        for below in listed(&tidegate(&[command, "--help"])) {
            wanted.insert(format!("tidegate-{command}-{below}.1"));
        }
    }
    assert!(wanted.contains("tidegate-key-derive.1"), "{wanted:?}");
    assert_eq!(pages, wanted);
    // There is no page of `help`.
    assert!(!first.contains("tidegate\\-help"), "{first}");
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    let output = command.args(["man", "--dir", "/proc/none"]).output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("cannot write /proc/none: "), "{said}");
}

#[test]
fn formatters_have_nothing_to_say_about_the_pages() {
    let pages = pages("manual-format");
    for formatter in [
        &["mandoc", "-T", "lint", "-W", "warning"][..],
        &["man", "--local-file", "--warnings", "--encoding=UTF-8"],
    ] {
        let (program, arguments) = formatter.split_first().unwrap();
        for page in &pages {
            let mut command = Command::new(program);
            command.args(arguments).arg(page).env("MANWIDTH", "100");
            let Ok(output) = command.env("LC_ALL", "C.UTF-8").output() else {
                println!("SKIPPED: {program} is not installed");
                break;
            };
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let found = match *program {
                "mandoc" => String::from_utf8_lossy(&output.stdout).into_owned(),
                _ => said,
            };
            let bad = found.lines().filter(|line| !is_tolerated(line));
            let bad: Vec<_> = bad.collect();
            assert!(bad.is_empty(), "{program}: {bad:#?}");
            assert!(!found.is_empty() || !output.stdout.is_empty() || *program == "mandoc");
        }
    }
}

/// Pages have no date, so that the same sources make the same package. A space too many is no fault.
fn is_tolerated(line: &str) -> bool {
    line.contains("missing date") || line.contains("skipping paragraph macro")
}
