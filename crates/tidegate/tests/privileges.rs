//! What running processes may do, as the kernel says in /proc: capabilities, users, new privileges.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, its helpers too"
)]

mod support;

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use support::{
    FrontEnd, Process, eventually, folder, free_address, master_key, node_key, tidegate,
};

const NOBODY: &str = "nobody";
/// Their numbers, as in linux/capability.h.
const NET_ADMIN: u64 = 1 << 12;
const SYS_PTRACE: u64 = 1 << 19;
const DAC_READ_SEARCH: u64 = 1 << 2;
const BPF: u64 = 1 << 39;
const SYS_NICE: u64 = 1 << 23;

/// One thread's lines of /proc/PID/task/TID/status.
struct Thread(BTreeMap<String, String>);

impl Thread {
    fn text(&self, key: &str) -> &str {
        self.0.get(key).unwrap_or_else(|| panic!("no {key}"))
    }

    fn set(&self, key: &str) -> u64 {
        u64::from_str_radix(self.text(key), 16).unwrap()
    }

    /// Nothing could be won, by any way; and it has these capabilities at most.
    #[track_caller]
    fn has_at_most(&self, allowed: u64) {
        let name = self.text("Name");
        for key in ["CapEff", "CapPrm"] {
            assert_eq!(
                self.set(key) & !allowed,
                0,
                "{name}: {key} {}",
                self.text(key)
            );
        }
        for key in ["CapInh", "CapAmb", "CapBnd"] {
            assert_eq!(self.set(key), 0, "{name}: {key} {}", self.text(key));
        }
        assert_eq!(self.text("NoNewPrivs"), "1", "{name}");
    }

    fn ids(&self, key: &str) -> Vec<u32> {
        let words = self.text(key).split_whitespace();
        words.map(|word| word.parse().unwrap()).collect()
    }
}

/// All threads of a process.
fn threads(process: &Process) -> Vec<Thread> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", process.id())).unwrap();
    let read = |task: std::io::Result<std::fs::DirEntry>| {
        // A thread that has just ended has no status.
        let text = std::fs::read_to_string(task.unwrap().path().join("status")).ok()?;
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        let lines = lines.map(|(key, value)| (key.to_owned(), value.trim().to_owned()));
        Some(Thread(lines.collect()))
    };
    tasks.filter_map(read).collect()
}

/// What a thread of a front-end without marks may keep: the one that closes sockets reads nothing from anybody.
fn of_front_end(thread: &Thread) -> u64 {
    match thread.text("Name") {
        "tidegate-close" => NET_ADMIN,
        _ => 0,
    }
}

/// Only root has privileges to give away.
const NO_ROOT: &str = "SKIPPED: it takes root to give root's privileges away";

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn nobody() -> u32 {
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap();
    let mut lines = passwd
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>());
    let line = lines.find(|line| line[0] == NOBODY).unwrap();
    line[2].parse().unwrap()
}

/// A folder that each user reaches, gone at the end.
struct Open(PathBuf);

impl Open {
    fn new(name: &str) -> Self {
        let name = format!("tidegate-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // What is left of a test that failed is the system's to clear away.
        drop(std::fs::remove_dir_all(&self.0));
    }
}

const SITE: &str =
    "[[site]]\nname = \"a\"\n[[node]]\nname = \"n\"\naddress = \"127.0.0.1:1\"\nsite = \"a\"\n";

fn site(key: &Path, more: &str) -> String {
    format!("{SITE}[load]\nkey_file = \"{}\"\n{more}\n", key.display())
}

#[test]
fn a_front_end_of_root_keeps_no_capability_but_one_for_closing() {
    if !is_root() {
        println!("{NO_ROOT}");
        return;
    }
    let folder = folder("privileges-run");
    let front_end = FrontEnd::start(&folder, &site(&master_key(&folder), ""));
    let threads = threads(&front_end.process);
    assert!(threads.len() > 4, "{}", threads.len());
    for thread in &threads {
        thread.has_at_most(of_front_end(thread));
    }
    let said = std::fs::read_to_string(folder.join("front-end.log")).unwrap();
    assert!(said.contains("runs as root"), "{said}");
}

#[test]
fn workers_that_mark_connections_keep_one_capability_and_no_other_thread_does() {
    if !is_root() {
        println!("{NO_ROOT}");
        return;
    }
    let folder = folder("privileges-marks");
    let marks = "[[throttle]]\nclass = \"GET /\"\nmark = 7\n";
    let front_end = FrontEnd::start(&folder, &site(&master_key(&folder), marks));
    let (mut workers, mut others) = (0, 0);
    for thread in threads(&front_end.process) {
        if thread.text("Name").starts_with("tidegate-w") {
            thread.has_at_most(NET_ADMIN);
            workers += thread.set("CapEff").count_ones();
        } else {
            thread.has_at_most(of_front_end(&thread));
            others += 1;
        }
    }
    assert!(workers > 0 && others > 0, "{workers} {others}");
}

#[test]
fn a_front_end_becomes_the_user_that_it_is_given_and_listens_on_a_low_port() {
    if !is_root() {
        println!("{NO_ROOT}");
        return;
    }
    let folder = Open::new("privileges-user");
    let file = folder.0.join("tidegate.toml");
    let (admin, key) = (free_address(), master_key(&folder.0));
    let (nobody, state) = (nobody(), folder.0.join("state"));
    std::fs::create_dir(&state).unwrap();
    std::os::unix::fs::chown(&state, Some(nobody), None).unwrap();
    // A port below 1024 that is free: the test's own network has none that is taken.
    let text = format!(
        "{}[process]\nuser = \"{NOBODY}\"\n[admin]\naddress = \"{admin}\"\n\
         [[listener]]\naddress = \"127.0.0.1:80\"\n[state]\ndirectory = \"state\"\n",
        site(&key, "")
    );
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--net", "sh", "-c"]);
    command.arg("ip link set lo up && exec \"$0\" run \"$1\"");
    command.arg(env!("CARGO_BIN_EXE_tidegate")).arg(&file);
    let mut can = Command::new("unshare");
    let can = can
        .args(["--net", "ip", "link", "set", "lo", "up"])
        .output();
    if !can.is_ok_and(|it| it.status.success()) {
        println!("SKIPPED: not permitted: a network namespace");
        return;
    }
    let mut process = Process::start(command.stderr(Stdio::piped()));
    process.wait_for_line(r"listening on 127.0.0.1:80");
    process.wait_for_line("reading the load");
    for thread in threads(&process) {
        thread.has_at_most(of_front_end(&thread));
        assert_eq!(thread.ids("Uid"), [nobody; 4], "{}", thread.text("Name"));
        assert!(!thread.ids("Gid").contains(&0), "{}", thread.text("Gid"));
        assert!(
            !thread.ids("Groups").contains(&0),
            "{}",
            thread.text("Groups")
        );
    }
    process.signal("TERM");
    assert_eq!(process.wait(), Some(0));
    // What it keeps is its own, in a folder that it may write to: it has learned nothing, and had the folder for itself.
    let kept = std::fs::metadata(state.join("lock")).unwrap();
    assert_eq!((kept.uid(), kept.mode() & 0o777), (nobody, 0o600));
}

#[test]
fn threads_of_an_agent_keep_what_each_needs() {
    if !is_root() {
        println!("{NO_ROOT}");
        return;
    }
    let folder = folder("privileges-agent");
    let key = node_key(&master_key(&folder), "n");
    for user in [None, Some(NOBODY)] {
        let mut command = tidegate();
        command.args(["agent", "--json", "--listen", &free_address().to_string()]);
        command.arg("--key-file").arg(&key);
        command.args(["--rung", "agent_realtime", "--rung", "agent"]);
        command.args(user.map(|user| ["--user", user]).into_iter().flatten());
        let mut process = Process::start(command.stdout(Stdio::piped()).stderr(Stdio::null()));
        process.wait_for_line("\"started\"");
        let wanted = user.map_or(0, |_| nobody());
        // The main thread gives its part away behind that line.
        eventually("the main thread has given its privileges away", || {
            let all = threads(&process);
            let main = all.iter().find(|it| it.text("Name") == "tidegate")?;
            (main.set("CapPrm") & !(BPF | NET_ADMIN) == 0).then_some(())
        });
        for thread in threads(&process) {
            thread.has_at_most(match thread.text("Name") {
                "tidegate-sample" => SYS_PTRACE | DAC_READ_SEARCH,
                "tidegate-udp" => SYS_NICE,
                _ => 0,
            });
            assert_eq!(thread.ids("Uid"), [wanted; 4]);
        }
        process.signal("TERM");
        assert_eq!(process.wait(), Some(0));
    }
}

#[test]
fn another_user_takes_root_and_must_be_there() {
    let folder = folder("privileges-refused");
    let key = node_key(&master_key(&folder), "n");
    let mut command = tidegate();
    command.args(["agent", "--listen", "127.0.0.1:0", "--user", "no-such-user"]);
    let output = command.arg("--key-file").arg(&key).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("there is no user `no-such-user` here"),
        "{said}"
    );
}
