//! Where the hierarchies of control groups are mounted: `/proc/self/mountinfo`.

use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use super::{lines, words};

/// One hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy {
    /// 1 or 2.
    pub version: u8,
    /// Controllers of a version 1 hierarchy, separated by commas; empty for version 2.
    pub controllers: Vec<u8>,
    /// The directory of the hierarchy that is mounted.
    pub subtree: PathBuf,
    /// Where.
    pub mount: PathBuf,
}

impl Hierarchy {
    /// Whether this is the version 1 hierarchy of that controller.
    pub fn controls(&self, controller: &str) -> bool {
        self.version == 1
            && self
                .controllers
                .split(|byte| *byte == b',')
                .any(|name| name == controller.as_bytes())
    }
}

/// The hierarchies in the order of their mounts.
pub fn hierarchies(mountinfo: &[u8]) -> Vec<Hierarchy> {
    lines(mountinfo).filter_map(hierarchy).collect()
}

/// "36 31 0:33 SUBTREE MOUNT OPTIONS [TAGS…] - TYPE SOURCE SUPER-OPTIONS"
fn hierarchy(line: &[u8]) -> Option<Hierarchy> {
    let mut words = words(line).skip(3);
    let (subtree, mount) = (words.next()?, words.next()?);
    words.find(|word| *word == b"-")?;
    let version = match words.next()? {
        b"cgroup" => 1,
        b"cgroup2" => 2,
        _ => return None,
    };
    let controllers = match version {
        1 => words.nth(1)?.to_vec(),
        _ => Vec::new(),
    };
    Some(Hierarchy {
        version,
        controllers,
        subtree: path(subtree),
        mount: path(mount),
    })
}

/// A path with the kernel's octal escapes of blanks and backslashes undone.
fn path(word: &[u8]) -> PathBuf {
    if !word.contains(&b'\\') {
        return OsStr::from_bytes(word).into();
    }
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word;
    while let [first, tail @ ..] = rest {
        let escape = (*first == b'\\').then(|| tail.get(..3)).flatten();
        match escape.and_then(octal) {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    std::ffi::OsString::from_vec(bytes).into()
}

fn octal(digits: &[u8]) -> Option<u8> {
    digits.iter().try_fold(0u8, |value, byte| {
        let digit = byte.wrapping_sub(b'0');
        (digit < 8)
            .then(|| value.checked_mul(8)?.checked_add(digit))
            .flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hybrid_mounts_are_told_apart() {
        let text = b"31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
            32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
            40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n\
            41 31 0:38 /a\\040b /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let found = hierarchies(text);
        assert_eq!(found.len(), 3);
        assert!(found[0].controls("cpuacct") && !found[0].controls("memory"));
        assert_eq!(found[0].mount, PathBuf::from("/sys/fs/cgroup/cpu,cpuacct"));
        assert_eq!(found[2].version, 2);
        assert_eq!(found[2].subtree, PathBuf::from("/a b"));
    }

    #[test]
    fn cut_lines_are_left_out() {
        for cut in [
            "",
            "1 2 3",
            "1 2 0:1 / /x rw - ",
            "1 2 0:1 / /x rw - cgroup",
        ] {
            assert!(hierarchies(cut.as_bytes()).is_empty(), "{cut}");
        }
        assert_eq!(path(b"/a\\04"), PathBuf::from("/a\\04"));
        assert_eq!(path(b"/a\\777"), PathBuf::from("/a\\777"));
    }
}
