//! Files that are replaced as a whole: whoever reads one sees the old or the new one, also after a
//! crash.

use std::io;
use std::path::Path;

/// Writes a file beside the one that it then replaces. What is no file, like a pipe, is written to.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if std::fs::metadata(path).is_ok_and(|known| !known.is_file()) {
        return std::fs::write(path, bytes);
    }
    let next = path.with_extension("next");
    std::fs::write(&next, bytes)?;
    std::fs::rename(next, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_replaced_and_others_written_to() {
        let name = format!("tidegate-replace-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("page.html");
        replace(&file, b"one").unwrap();
        replace(&file, b"two").unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"two");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
        replace(Path::new("/dev/null"), b"three").unwrap();
        assert!(!std::fs::metadata("/dev/null").unwrap().is_file());
        assert!(replace(&folder.join("absent/page.html"), b"four").is_err());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
