//! `tidegate culprits` with the logs and recordings of these tests.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// Where the logs and recordings of these tests are.
pub(crate) fn logs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/logs")
}

/// `tidegate culprits` there.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.arg("culprits").args(arguments).current_dir(logs());
    command
}

/// What it said.
pub(crate) fn culprits(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

/// As text.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// What it found, as it gives it to programs.
pub(crate) fn json(arguments: &[&str]) -> Value {
    let mut all = arguments.to_vec();
    all.push("--json");
    let ran = culprits(&all);
    assert!(ran.stderr.is_empty(), "{}", text(&ran.stderr));
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran.stdout));
    serde_json::from_slice(&ran.stdout).unwrap()
}

/// Name, requests and milliseconds at servers of each class with requests, by name.
pub(crate) fn classes(value: &Value) -> Vec<(String, u64, i64)> {
    let class = |it: &Value| {
        let name = it["name"].as_str().unwrap().to_owned();
        let millis = (it["seconds"].as_f64().unwrap() * 1000.0).round() as i64;
        (name, it["requests"].as_u64().unwrap(), millis)
    };
    let mut classes: Vec<_> = value["inputs"]["classes"]
        .as_array()
        .unwrap()
        .iter()
        .map(class)
        .collect();
    classes.retain(|(_, requests, _)| *requests > 0);
    classes.sort();
    classes
}

/// A folder that goes away with the test.
#[derive(Debug)]
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tidegate-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// A file in it; its path.
    pub(crate) fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap_or_default();
    }
}
