//! The nodes' keys: each has its own, so that a front-end is configured as its users would.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use tidegate_remote::udp::Key;
use tidegate_remote::udp::key_file::{KeyFile, NodeKey};

use super::ClusterError;

/// Where a node's key is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyAt {
    /// The name in it.
    pub node: String,
    /// The file.
    pub file: PathBuf,
}

impl KeyAt {
    /// That of a node, in a cluster's folder.
    pub(super) fn of(node: &str, folder: &Path) -> Self {
        Self {
            node: node.to_owned(),
            file: folder.join(format!("{node}.key")),
        }
    }

    /// Makes the file.
    pub(super) fn make(&self) -> Result<(), ClusterError> {
        let key = NodeKey::random(&self.node);
        let key = key.map_err(|error| ClusterError::Missing(error.to_string()))?;
        let mut options = std::fs::OpenOptions::new();
        let made = options.write(true).create_new(true).mode(0o600);
        made.open(&self.file)
            .and_then(|mut file| file.write_all(key.to_line().as_bytes()))
            .map_err(ClusterError::file("write", &self.file))
    }

    /// The key.
    ///
    /// # Errors
    /// If the file is gone or holds none.
    pub fn read(&self) -> Result<Key, String> {
        let text = std::fs::read_to_string(&self.file).map_err(|error| error.to_string())?;
        let keys = KeyFile::parse(&text).and_then(KeyFile::nodes);
        let first = keys.map_err(|error| error.to_string())?.into_iter().next();
        first.map(|it| it.key).ok_or_else(|| "no key".into())
    }
}
