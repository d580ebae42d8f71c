//! Our own entries in systemd's journal: where it is, and whether standard error leads there.

use std::fs::Metadata;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use tidegate_proxy::{Entry, Journal, Priority};

/// Where the journal takes entries.
const SOCKET: &str = "/run/systemd/journal/socket";
/// The variable that names another place.
const SOCKET_VARIABLE: &str = "TIDEGATE_JOURNAL_SOCKET";
/// The variable by which systemd says what the journal's stream is: device and inode.
const STREAM_VARIABLE: &str = "JOURNAL_STREAM";
/// What entries are found by: `journalctl -t tidegate`.
const IDENTIFIER: &str = "tidegate";
/// Longest wait for the journal; then standard error has to do.
const PATIENCE: Duration = Duration::from_secs(1);

/// Events that say that something does not work.
const ERRORS: &[&str] = &[
    "certificate_failed",
    "errors",
    "fail_open",
    "not_listening",
    "refusals",
    "reload_failed",
    "stands_still",
    "upgrade_failed",
    "worker_failed",
];
/// Events that say that something does not work as well as it should.
const WARNINGS: &[&str] = &[
    "admin_refused",
    "agent_down",
    "certificate_ending",
    "check_failed",
    "discovery_failed",
    "ejected",
    "events_dropped",
    "flood",
    "load_unknown",
    "log_lost",
    "log_not_reopened",
    "moves_not_read",
    "moves_stopped",
    "no_answer",
    "no_front_end",
    "node_left_out",
    "nodes_not_read",
    "not_drained",
    "not_followed",
    "open_files",
    "restart_needed",
    "services_failed",
    "site_emptied",
    "soft_limit_crossed",
    "soft_limit_ignored",
    "source_failed",
    "unmarked",
    "webhook_failed",
    "upgrade_needed",
    "wrong_key",
];

/// The journal's socket.
pub(crate) fn socket() -> PathBuf {
    std::env::var_os(SOCKET_VARIABLE).map_or_else(|| SOCKET.into(), PathBuf::from)
}

/// An event of this name, as the journal has it.
pub(crate) fn event(name: &str, text: &str) -> Entry {
    let mut entry = Entry::new(IDENTIFIER, priority(name), text);
    entry.field("event", name);
    entry
}

/// Why a command failed.
pub(crate) fn error(text: &str) -> Entry {
    Entry::new(IDENTIFIER, Priority::Error, text)
}

/// How much an event of this name matters.
pub(crate) fn priority(event: &str) -> Priority {
    match event {
        it if ERRORS.contains(&it) => Priority::Error,
        it if WARNINGS.contains(&it) => Priority::Warning,
        _ => Priority::Info,
    }
}

/// The journal, if it is what standard error leads to, so that entries can have more than a text.
pub(crate) fn of_errors() -> Option<&'static Journal> {
    static JOURNAL: OnceLock<Option<Journal>> = OnceLock::new();
    let open = || {
        let stream = std::env::var(STREAM_VARIABLE).ok()?;
        let file = io::stderr().as_fd().try_clone_to_owned().ok()?;
        let about = std::fs::File::from(file).metadata().ok()?;
        if !is_stream(&stream, &about) {
            return None;
        }
        // Without its socket the stream does.
        Journal::open(&socket(), PATIENCE).ok()
    };
    JOURNAL.get_or_init(open).as_ref()
}

/// Whether this is what systemd means: a child has the variable, and perhaps another standard error.
fn is_stream(stream: &str, about: &Metadata) -> bool {
    let numbers = stream.split_once(':');
    let numbers =
        numbers.and_then(|(device, inode)| Some((device.parse().ok()?, inode.parse().ok()?)));
    numbers == Some((about.dev(), about.ino()))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_stream_is_known_by_its_device_and_inode() {
        let about = std::fs::metadata("/dev/null").unwrap();
        let (device, inode) = (about.dev(), about.ino());
        assert!(is_stream(&format!("{device}:{inode}"), &about));
        for other in [
            format!("{device}:{}", inode + 1),
            format!("{}:{inode}", device + 1),
            format!("{device}"),
            "a:b".into(),
            String::new(),
        ] {
            assert!(!is_stream(&other, &about), "{other}");
        }
    }

    #[test]
    fn an_event_has_one_priority() {
        for name in ERRORS {
            assert!(!WARNINGS.contains(name), "{name}");
            assert_eq!(priority(name), Priority::Error);
        }
        assert_eq!(priority("ejected"), Priority::Warning);
        assert_eq!(priority("listening"), Priority::Info);
    }

    /// A name that no event has any more would be there for nothing.
    #[test]
    fn names_with_a_priority_are_those_of_events() {
        let mut sources = String::new();
        read(
            &Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
            &mut sources,
        );
        for name in ERRORS.iter().chain(WARNINGS) {
            assert!(sources.contains(&format!("\"{name}\"")), "{name}");
        }
    }

    /// All sources but this file.
    fn read(folder: &Path, sources: &mut String) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                read(&path, sources);
            } else if !path.ends_with("src/journal.rs") {
                sources.push_str(&std::fs::read_to_string(&path).unwrap());
            }
        }
    }
}
