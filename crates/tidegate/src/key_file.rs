//! Key files on disk: read if no other user can, and never written over.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use tidegate_remote::udp::key_file::{KEY_FILE_BYTES_MAX, KeyFile, KeyFileError, Master, NodeKey};

use crate::secret_file;

/// Reads a key file. The error says what is wrong without the path, which a caret shows.
pub(crate) fn read(path: &Path) -> Result<KeyFile, String> {
    let text = secret_file::read(path, KEY_FILE_BYTES_MAX)?;
    KeyFile::parse(&text).map_err(|error| error.to_string())
}

/// The masters in a front-end's key file.
pub(crate) fn masters(path: &Path) -> Result<Vec<Master>, String> {
    let masters: Result<_, KeyFileError> = read(path)?.masters();
    masters.map_err(|error| error.to_string())
}

/// The keys in a node's key file.
pub(crate) fn nodes(path: &Path) -> Result<Vec<NodeKey>, String> {
    let nodes: Result<_, KeyFileError> = read(path)?.nodes();
    nodes.map_err(|error| error.to_string())
}

/// Makes a file that its owner alone can read. One that is there stays as it is.
pub(crate) fn create(path: &Path, text: &str) -> Result<(), String> {
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    made.and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    })
    .map_err(|error| {
        let path = path.display();
        match error.kind() == ErrorKind::AlreadyExists {
            true => format!(
                "{path} is there already, and no key is written over: remove it, or name another file"
            ),
            false => format!("cannot make {path}: {error}"),
        }
    })
}
