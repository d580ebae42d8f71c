//! A file with nodes, read again when it has changed.
//!
//! * `.toml`: a table `[[node]]` for each, with `address` and, if wanted, `name` and `weight`.
//! * `.json`: a list of objects with the same keys, or Prometheus' `file_sd` format: a list of
//!   `{"targets": ["host:port"], "labels": {…}}`, of whose labels `weight` counts.
//!
//! The file is looked at every `interval`, by its size, time and number: so it may be replaced by renaming, on any file
//! system. One that is half written is an error or, cut between two nodes, an answer that lacks some: `max_drop` bounds
//! what that does until the rest is there.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::source::{Answer, Found, SourceError};

/// Largest file, bytes.
const BYTES_MAX: usize = 4 << 20;

/// A watched file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileConfig {
    /// Where it is.
    pub path: PathBuf,
    /// Time between two looks.
    pub interval: Duration,
    /// Time for one look.
    pub timeout: Duration,
}

impl fmt::Display for FileConfig {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "file {}", self.path.display())
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct FileSource {
    config: FileConfig,
    read: Option<LastRead>,
    /// A look that has not ended: a disk that does not answer holds up one thread, and no more.
    looking: Option<JoinHandle<Result<LastRead, SourceError>>>,
}

#[derive(Clone, Debug)]
struct LastRead {
    version: Version,
    nodes: Vec<Found>,
}

/// What another content of the file changes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Version {
    device: u64,
    inode: u64,
    bytes: u64,
    /// Seconds and nanoseconds.
    modified: [i64; 2],
    changed: [i64; 2],
}

impl FileSource {
    pub(crate) fn new(config: FileConfig) -> Self {
        Self {
            config,
            read: None,
            looking: None,
        }
    }

    pub(crate) async fn ask(&mut self) -> Result<Answer, SourceError> {
        let (config, last) = (&self.config, &self.read);
        let begin = || {
            let (config, last) = (config.clone(), last.clone());
            tokio::task::spawn_blocking(move || look(&config, last))
        };
        let looking = self.looking.get_or_insert_with(begin);
        let ended = tokio::time::timeout(config.timeout, looking).await;
        let ended = ended.map_err(|_| SourceError::TimedOut(config.timeout))?;
        self.looking = None;
        let read = ended.map_err(SourceError::unreachable)??;
        let nodes = read.nodes.clone();
        self.read = Some(read);
        Ok(Answer {
            nodes,
            ending: Vec::new(),
            again: self.config.interval,
        })
    }
}

/// Reads the file, unless it is as it was.
fn look(config: &FileConfig, last: Option<LastRead>) -> Result<LastRead, SourceError> {
    let path = &config.path;
    let unreadable =
        |error: std::io::Error| SourceError::unreachable(format!("{}: {error}", path.display()));
    // Before it is opened: opening a pipe would wait for its writer.
    if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(SourceError::unreachable(format!(
            "{}: not a file",
            path.display()
        )));
    }
    let file = File::open(path).map_err(unreadable)?;
    let version = version(&file).map_err(unreadable)?;
    if let Some(last) = last
        && last.version == version
    {
        return Ok(last);
    }
    let mut text = Vec::new();
    let limit = BYTES_MAX as u64 + 1;
    file.take(limit)
        .read_to_end(&mut text)
        .map_err(unreadable)?;
    if text.len() > BYTES_MAX {
        return Err(SourceError::TooLong(BYTES_MAX));
    }
    let nodes = parse(path, &text)?;
    Ok(LastRead { version, nodes })
}

fn version(file: &File) -> std::io::Result<Version> {
    let metadata = file.metadata()?;
    Ok(Version {
        device: metadata.dev(),
        inode: metadata.ino(),
        bytes: metadata.size(),
        modified: [metadata.mtime(), metadata.mtime_nsec()],
        changed: [metadata.ctime(), metadata.ctime_nsec()],
    })
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default)]
    node: Vec<Entry>,
}

/// An address as a text, with an error that says what is wanted.
#[derive(Clone, Copy, Debug)]
struct Address(SocketAddr);

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map(Self).map_err(|_| {
            D::Error::custom(format!(
                "`{text}` is not an IP address with a port, like 10.0.0.11:80"
            ))
        })
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    address: Address,
    name: Option<String>,
    weight: Option<f32>,
}

/// One of Prometheus' target groups.
#[derive(Debug, Deserialize)]
struct TargetGroup {
    targets: Vec<Address>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

/// The nodes in a text; the path says its format.
fn parse(path: &Path, text: &[u8]) -> Result<Vec<Found>, SourceError> {
    let text = str::from_utf8(text).map_err(SourceError::malformed)?;
    let is_toml = path.extension().is_some_and(|it| it == "toml");
    let entries = match is_toml {
        true => {
            let document = toml::from_str::<Document>(text);
            document.map_err(|error| placed(text, &error))?.node
        }
        false => json(text)?,
    };
    let node = |entry: Entry| Found {
        name: entry.name,
        address: entry.address.0,
        weight: entry.weight,
    };
    Ok(entries.into_iter().map(node).collect())
}

/// An error of TOML with its line.
fn placed(text: &str, error: &toml::de::Error) -> SourceError {
    let before = error.span().and_then(|span| text.get(..span.start));
    let line = before.map(|before| 1 + before.matches('\n').count());
    SourceError::malformed(match line {
        Some(line) => format!("line {line}: {}", error.message()),
        None => error.message().to_owned(),
    })
}

fn json(text: &str) -> Result<Vec<Entry>, SourceError> {
    let items: Value = serde_json::from_str(text).map_err(SourceError::malformed)?;
    let Value::Array(items) = items else {
        let why = "a list is expected, like [{\"address\": \"10.0.0.11:80\"}]";
        return Err(SourceError::malformed(why));
    };
    let mut entries = Vec::new();
    for (index, item) in items.into_iter().enumerate() {
        let bad = |why: String| SourceError::malformed(format!("entry {}: {why}", index + 1));
        if !item.is_object() {
            return Err(bad(
                "an object with `address` or `targets` is expected".into()
            ));
        }
        match item.get("targets") {
            Some(_) => entries.extend(targets(item).map_err(bad)?),
            None => {
                let entry = serde_json::from_value(item);
                entries.push(entry.map_err(|error| bad(error.to_string()))?);
            }
        }
    }
    Ok(entries)
}

fn targets(group: Value) -> Result<Vec<Entry>, String> {
    let group: TargetGroup = serde_json::from_value(group).map_err(|error| error.to_string())?;
    let number = |text: &String| match text.parse::<f32>() {
        Ok(weight) => Ok(weight),
        Err(_) => Err(format!("the weight `{text}` is no number")),
    };
    let weight = group.labels.get("weight").map(number).transpose()?;
    let entry = |address| Entry {
        address,
        name: None,
        weight,
    };
    Ok(group.targets.into_iter().map(entry).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(file: &str, text: &str) -> Result<Vec<String>, String> {
        let nodes = parse(Path::new(file), text.as_bytes());
        let text = |it: Found| {
            let name = it.name.unwrap_or_else(|| "-".into());
            format!("{name} {} {}", it.address, it.weight.unwrap_or(1.0))
        };
        let nodes = nodes.map(|nodes| nodes.into_iter().map(text).collect());
        nodes.map_err(|error| error.to_string())
    }

    #[test]
    fn each_format_gives_the_same_nodes() {
        let toml = "[[node]]\naddress = \"10.0.0.1:80\"\n[[node]]\nname = \"b\"\naddress = \"[::1]:81\"\nweight = 2.5\n";
        let json =
            r#"[{"address": "10.0.0.1:80"}, {"name": "b", "address": "[::1]:81", "weight": 2.5}]"#;
        let wanted = ["- 10.0.0.1:80 1", "b [::1]:81 2.5"];
        assert_eq!(parsed("a.toml", toml).unwrap(), wanted);
        assert_eq!(parsed("a.json", json).unwrap(), wanted);
        let prometheus = r#"[{"targets": ["10.0.0.1:80", "10.0.0.2:80"], "labels": {"job": "shop", "weight": "3"}}, {"targets": ["10.0.0.3:80"]}]"#;
        let wanted = ["- 10.0.0.1:80 3", "- 10.0.0.2:80 3", "- 10.0.0.3:80 1"];
        assert_eq!(parsed("a.json", prometheus).unwrap(), wanted);
    }

    #[test]
    fn the_examples_of_the_page_are_understood() {
        let page = include_str!("../../../docs/discovery.md");
        let mut names = Vec::new();
        for (fence, file) in [("```toml\n", "a.toml"), ("```json\n", "a.json")] {
            let blocks = page.split(fence).skip(1);
            let blocks = blocks.map(|it| it.split("```").next().unwrap());
            // The others are configurations of a front-end.
            for block in blocks.filter(|it| !it.contains("[[site]]")) {
                names.push(parsed(file, block).unwrap().len());
            }
        }
        assert_eq!(names, [2, 3]);
    }

    #[test]
    fn what_is_not_understood_is_an_error_with_its_place() {
        let like = "is not an IP address with a port, like 10.0.0.11:80";
        for (file, text, wanted) in [
            ("a.json", "", "EOF while parsing a value at line 1 column 0"),
            ("a.json", "{}", "a list is expected, like"),
            (
                "a.json",
                "[1]",
                "entry 1: an object with `address` or `targets`",
            ),
            (
                "a.json",
                r#"[{"address": "10.0.0.1:80"}, {"address": "web:80"}]"#,
                &format!("entry 2: `web:80` {like}"),
            ),
            (
                "a.json",
                r#"[{"address": "10.0.0.1:80", "wieght": 1}]"#,
                "entry 1: unknown field `wieght`",
            ),
            (
                "a.json",
                r#"[{"targets": "10.0.0.1:80"}]"#,
                "entry 1: invalid type: string",
            ),
            (
                "a.json",
                r#"[{"targets": ["10.0.0.1:80", "10.0.0.2"]}]"#,
                &format!("entry 1: `10.0.0.2` {like}"),
            ),
            (
                "a.json",
                r#"[{"targets": ["10.0.0.1:80"], "labels": {"weight": "x"}}]"#,
                "entry 1: the weight `x` is no number",
            ),
            ("a.json", r#"[{"targets": ["10.0.0.1:80"#, "EOF"),
            (
                "a.toml",
                "[[node]]\nname = \"a\"",
                "line 1: missing field `address`",
            ),
            ("a.toml", "[[nodes]]\n", "line 1: unknown field `nodes`"),
            (
                "a.toml",
                "[[node]]\naddress = \"10.0.0.1:80\"\n[[node]]\naddress = \"web\"\n",
                &format!("line 4: `web` {like}"),
            ),
            ("a.toml", "[[node]]\naddress = \"10.0.0.1:80", "line 2: "),
        ] {
            let error = parsed(file, text).unwrap_err();
            let wanted = format!("not understood: {wanted}");
            assert!(error.starts_with(&wanted), "{text}: {error}");
        }
        let deep = "[".repeat(100_000);
        assert!(parsed("a.json", &deep).is_err());
        assert!(parse(Path::new("a.json"), &[0xff, 0xfe]).is_err());
    }

    #[test]
    fn a_file_cut_anywhere_is_an_error_or_lacks_nodes() {
        let toml = "[[node]]\naddress = \"10.0.0.1:80\"\n[[node]]\naddress = \"10.0.0.2:80\"\n";
        let whole = parsed("a.toml", toml).unwrap();
        for end in 0..toml.len() {
            if let Ok(nodes) = parsed("a.toml", &toml[..end]) {
                assert!(nodes.iter().all(|it| whole.contains(it)), "{nodes:?}");
            }
        }
    }
}
