//! What systemd's journal is given, by a socket that stands for its own: real processes.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use support::mirror::Mirror;
use support::{FrontEnd, PATIENCE, Process, eventually, folder, free_address, tidegate};

type Fields = BTreeMap<String, String>;

/// The journal.
struct Journal {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Journal {
    fn start(folder: &Path) -> Self {
        let path = folder.join("journal");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { socket, path }
    }

    fn next(&self) -> Fields {
        let mut bytes = vec![0; 1 << 20];
        let length = self.socket.recv(&mut bytes).unwrap();
        fields(&bytes[..length])
    }

    /// The next entry that is of this program and has a field with this value.
    fn find(&self, identifier: &str, name: &str, value: &str) -> Fields {
        loop {
            let entry = self.next();
            if entry["SYSLOG_IDENTIFIER"] == identifier
                && entry.get(name).is_some_and(|it| it == value)
            {
                return entry;
            }
        }
    }
}

/// An entry's fields: `NAME=value` and a line's end, or `NAME`, a line's end, the length and the value.
fn fields(mut rest: &[u8]) -> Fields {
    let mut found = Fields::new();
    while !rest.is_empty() {
        let end = rest.iter().position(|it| b"=\n".contains(it)).unwrap();
        let name = String::from_utf8(rest[..end].to_vec()).unwrap();
        let is_line = rest[end] == b'=';
        rest = &rest[end + 1..];
        let length = match is_line {
            true => rest.iter().position(|it| *it == b'\n').unwrap(),
            false => {
                let (length, behind) = rest.split_first_chunk().unwrap();
                rest = behind;
                usize::try_from(u64::from_le_bytes(*length)).unwrap()
            }
        };
        let value = String::from_utf8(rest[..length].to_vec()).unwrap();
        assert_eq!(rest[length], b'\n');
        rest = &rest[length + 1..];
        assert_eq!(found.insert(name, value), None);
    }
    found
}

/// A process whose standard error is this file, and is said to be the journal's stream.
fn in_journal(journal: &Journal, errors: &File) -> std::process::Command {
    let about = errors.metadata().unwrap();
    let mut command = tidegate();
    command
        .env("TIDEGATE_JOURNAL_SOCKET", &journal.path)
        .env("JOURNAL_STREAM", format!("{}:{}", about.dev(), about.ino()))
        .stderr(errors.try_clone().unwrap())
        .stdout(Stdio::null());
    command
}

/// The example's access log is in the journal, each field one of the entry; so are events, where standard error is.
#[test]
fn requests_of_the_example_and_events_are_entries() {
    let folder = folder("journal");
    let (mirror, journal) = (Mirror::start(), Journal::start(&folder));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/journal.toml");
    let (web, admin) = (free_address(), free_address());
    let text = std::fs::read_to_string(path).unwrap();
    let text = text
        .replace("127.0.0.1:8081", &mirror.address.to_string())
        .replace("0.0.0.0:8080", &web.to_string());
    let file = folder.join("tidegate.toml");
    std::fs::write(&file, format!("{text}\n[admin]\naddress = \"{admin}\"\n")).unwrap();
    let errors = File::create(folder.join("errors")).unwrap();
    let mut command = in_journal(&journal, &errors);
    let mut process = Process::start(command.arg("run").arg(&file));
    let listening = journal.find("tidegate", "TIDEGATE_EVENT", "listening");
    assert_eq!(listening["PRIORITY"], "6");
    assert!(
        listening["MESSAGE"].contains(&web.to_string()),
        "{listening:?}"
    );
    eventually("it is ready", || {
        (support::ask(admin, "/readyz")?.status == 200).then_some(())
    });
    let text = "GET /cart HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n";
    assert_eq!(support::request(web, text).unwrap().status, 200);
    let entry = journal.find("tidegate-access", "TIDEGATE_PATH", "/cart");
    for (name, value) in [
        ("PRIORITY", "6"),
        ("TIDEGATE_SITE", "shop"),
        ("TIDEGATE_NODE", "shop1"),
        ("TIDEGATE_STATUS", "200"),
        ("TIDEGATE_CLIENT", "127.0.0.1"),
    ] {
        assert_eq!(entry[name], value, "{entry:?}");
    }
    let line: serde_json::Value = serde_json::from_str(&entry["MESSAGE"]).unwrap();
    assert_eq!((&line["path"], line.get("time")), (&"/cart".into(), None));
    // What is wrong with the file is one entry of several lines.
    std::fs::write(&file, "[log]\nnone = 1\nnothing = 2\n").unwrap();
    process.signal("HUP");
    let failed = journal.find("tidegate", "TIDEGATE_EVENT", "reload_failed");
    assert_eq!(failed["PRIORITY"], "3");
    process.signal("TERM");
    assert_eq!(process.wait(), Some(0));
    let said = std::fs::read_to_string(folder.join("errors")).unwrap();
    assert_eq!(said, "");
}

/// Why a start failed, in all its lines; and the same at standard error where that is no journal, or it takes nothing.
#[test]
fn an_error_is_an_entry_or_a_line() {
    let folder = folder("journal-errors");
    let journal = Journal::start(&folder);
    let file = folder.join("tidegate.toml");
    std::fs::write(&file, "[log]\nnone = 1\n").unwrap();
    let errors = File::create(folder.join("errors")).unwrap();
    let said = || std::fs::read_to_string(folder.join("errors")).unwrap();
    let status = in_journal(&journal, &errors).arg("run").arg(&file).status();
    assert_eq!(status.unwrap().code(), Some(2));
    let entry = journal.next();
    assert_eq!(
        (&*entry["SYSLOG_IDENTIFIER"], &*entry["PRIORITY"]),
        ("tidegate", "3")
    );
    let message = &entry["MESSAGE"];
    assert!(
        message.contains("unknown key `none`") && message.contains('\n'),
        "{message}"
    );
    assert_eq!(said(), "");
    let other = in_journal(&journal, &errors)
        .env("JOURNAL_STREAM", "1:1")
        .arg("run")
        .arg(&file)
        .status();
    assert_eq!(other.unwrap().code(), Some(2));
    let once = said();
    assert!(once.contains("unknown key `none`"), "{once}");
    drop(journal.socket);
    let mut command = tidegate();
    let about = errors.metadata().unwrap();
    command
        .env("TIDEGATE_JOURNAL_SOCKET", &journal.path)
        .env("JOURNAL_STREAM", format!("{}:{}", about.dev(), about.ino()))
        .stderr(errors.try_clone().unwrap());
    let gone = command.arg("run").arg(&file).status();
    assert_eq!(gone.unwrap().code(), Some(2));
    assert_eq!(said(), format!("{once}{once}"));
}

/// Lines that a journal does not take are counted, and said once; an absent one is said before.
#[test]
fn a_journal_that_is_gone_costs_lines_that_are_counted() {
    let folder = folder("journal-gone");
    let (mirror, journal) = (Mirror::start(), Journal::start(&folder));
    let text = format!(
        "[log]\naccess = \"combined\"\njournal = true\n[[site]]\nname = \"shop\"\n\
         [[node]]\nname = \"n1\"\naddress = \"{}\"\nsite = \"shop\"\n",
        mirror.address
    );
    let mut command = tidegate();
    command.env("TIDEGATE_JOURNAL_SOCKET", &journal.path);
    let front_end = FrontEnd::start_by(command, &folder, &text);
    front_end.get("shop.example", "/taken");
    let entry = journal.next();
    assert!(
        entry["MESSAGE"].contains("\"GET /taken HTTP/1.1\" 200"),
        "{entry:?}"
    );
    let Journal { socket, path } = journal;
    drop(socket);
    front_end.get("shop.example", "/lost");
    eventually("it is counted", || {
        let dropped = front_end.metric("tidegate_access_log_dropped_total")?;
        (dropped >= 1.0).then_some(())
    });
    eventually("it is said", || {
        let said = std::fs::read_to_string(folder.join("front-end.log")).ok()?;
        said.contains("access log: lines are lost").then_some(())
    });
    std::fs::remove_file(&path).unwrap();
    let checked = tidegate()
        .env("TIDEGATE_JOURNAL_SOCKET", &path)
        .arg("check")
        .arg(folder.join("tidegate.toml"))
        .output()
        .unwrap();
    let said = String::from_utf8(checked.stdout).unwrap();
    assert!(
        checked.status.success() && said.contains("[log]: "),
        "{said}"
    );
}
