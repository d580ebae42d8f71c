//! Files read as far as they may go: neither a pipe that is never written nor a device without an end holds anything up.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

/// Opens what is a file and nothing else. The error says what is wrong without the path.
pub(super) fn regular(path: &Path) -> Result<File, String> {
    // Else a pipe would be waited for as it is opened.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, Mode::empty());
    let file = File::from(opened.map_err(|error| io::Error::from(error).to_string())?);
    let about = file.metadata().map_err(|error| error.to_string())?;
    // Of a folder the system says so itself when it is read.
    match about.is_file() || about.is_dir() {
        true => Ok(file),
        false => Err("it is not a regular file".into()),
    }
}

/// All of it, if it has not more bytes than so many.
pub(super) fn bytes(file: File, most: usize) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = file.take(most as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|error| error.to_string())?;
    if bytes.len() > most {
        return Err(format!("larger than {most} bytes"));
    }
    Ok(bytes)
}

/// All of it as text, if it has not more bytes than so many.
pub(super) fn text(file: File, most: usize) -> Result<String, String> {
    let bytes = bytes(file, most)?;
    String::from_utf8(bytes).map_err(|_| "it is no UTF-8".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &str) -> Result<String, String> {
        regular(Path::new(path)).and_then(|file| text(file, 100))
    }

    #[test]
    fn devices_and_folders_are_no_files_and_none_is_read_without_end() {
        assert_eq!(read("/dev/zero"), Err("it is not a regular file".into()));
        let folder = read("/").unwrap_err();
        assert!(folder.contains("directory"), "{folder}");
        let endless = File::open("/dev/zero").map(|file| text(file, 100));
        assert_eq!(endless.unwrap(), Err("larger than 100 bytes".into()));
    }
}
