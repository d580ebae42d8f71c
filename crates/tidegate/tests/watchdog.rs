//! What a service manager hears of a front-end: that it serves, that it reloads, and for its watchdog that all workers go on, of
//! which one is held here.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "test code; a test that cannot run says why"
)]

mod support;

use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use support::{FrontEnd, PATIENCE, eventually, folder, tidegate};

const CONFIGURATION: &str = "limits = { workers = 2 }\n[[site]]\nname = \"a\"\n\
                             [[node]]\nname = \"n\"\nsite = \"a\"\naddress = \"127.0.0.1:9\"\n";

/// A service manager, and a front-end that is its service.
struct Scene {
    folder: PathBuf,
    heard: UnixDatagram,
    front_end: FrontEnd,
}

impl Scene {
    /// One with this watchdog, microseconds.
    fn start(name: &str, watchdog: Option<&str>) -> Self {
        let folder = folder(name);
        let socket = folder.join("notify");
        let heard = UnixDatagram::bind(&socket).unwrap();
        heard.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut command = tidegate();
        command.env("NOTIFY_SOCKET", &socket);
        command.env_remove("WATCHDOG_PID");
        match watchdog {
            Some(micros) => command.env("WATCHDOG_USEC", micros),
            None => command.env_remove("WATCHDOG_USEC"),
        };
        let front_end = FrontEnd::start_by(command, &folder, CONFIGURATION);
        let scene = Self {
            folder,
            heard,
            front_end,
        };
        assert_eq!(scene.next(), "READY=1");
        scene
    }

    /// The next word; there is one, if late.
    fn next(&self) -> String {
        let mut word = [0; 256];
        let length = self.heard.recv(&mut word).unwrap();
        String::from_utf8(word[..length].to_vec()).unwrap()
    }

    /// Takes away what was said so far.
    fn forget(&self) {
        self.heard.set_nonblocking(true).unwrap();
        while self.heard.recv(&mut [0; 256]).is_ok() {}
        self.heard.set_nonblocking(false).unwrap();
    }

    fn says(&self, text: &str) -> bool {
        let log = std::fs::read_to_string(self.folder.join("front-end.log"));
        log.unwrap().contains(text)
    }

    /// The thread of this name.
    fn thread(&self, name: &str) -> Pid {
        let tasks = Path::new("/proc").join(self.front_end.process.id().to_string());
        let tasks = std::fs::read_dir(tasks.join("task")).unwrap();
        let mut tasks = tasks.map(|task| task.unwrap().path());
        let is_meant = |task: &PathBuf| {
            let found = std::fs::read_to_string(task.join("comm"));
            found.is_ok_and(|it| it.trim_end() == name)
        };
        let task = tasks.find(is_meant).unwrap();
        let number = task.file_name().unwrap().to_str().unwrap();
        Pid::from_raw(number.parse().unwrap())
    }
}

/// A thread that stands still until this is dropped. Left behind, it would keep its process from being waited for: a thread that
/// is traced stays, dead, until the tracer has looked.
#[derive(Debug)]
struct Held(Pid);

impl Held {
    /// None: that is not permitted here.
    fn hold(thread: Pid) -> Option<Self> {
        match ptrace::seize(thread, ptrace::Options::empty()) {
            Err(Errno::EPERM) => return None,
            seized => seized.unwrap(),
        }
        let held = Self(thread);
        ptrace::interrupt(thread).unwrap();
        waitpid(thread, Some(WaitPidFlag::__WALL)).unwrap();
        Some(held)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Its process may have ended.
        let _detached = ptrace::detach(self.0, None);
    }
}

#[test]
fn one_worker_that_hangs_keeps_the_watchdogs_word_back() {
    let scene = Scene::start("watchdog", Some("2000000"));
    for _ in 0..3 {
        assert_eq!(scene.next(), "WATCHDOG=1");
    }
    let Some(held) = Held::hold(scene.thread("tidegate-w1")) else {
        println!("SKIPPED: to hold a thread of another process is not permitted");
        return;
    };
    let still = "worker 1 has stood still for 500ms";
    eventually(still, || scene.says(still).then_some(()));
    // The other worker serves, and so does the admin interface: that is no reason to let it be.
    assert_eq!(
        support::ask(scene.front_end.admin, "/livez")
            .unwrap()
            .status,
        200
    );
    scene.forget();
    drop(held);
    assert_eq!(scene.next(), "WATCHDOG=1");
}

#[test]
fn a_reload_is_said_from_its_begin_to_its_end() {
    let mut scene = Scene::start("reloading", None);
    let file = scene.folder.join("tidegate.toml");
    let mut text = std::fs::read_to_string(&file).unwrap();
    text.push_str("[[node]]\nname = \"later\"\nsite = \"a\"\naddress = \"127.0.0.1:9\"\n");
    std::fs::write(&file, text).unwrap();
    scene.front_end.process.signal("HUP");
    let begun = scene.next();
    let time = begun.strip_prefix("RELOADING=1\nMONOTONIC_USEC=");
    let time: u64 = time.unwrap_or_else(|| panic!("{begun}")).parse().unwrap();
    assert!(time > 0);
    assert_eq!(scene.next(), "READY=1");
    let status = support::ask(scene.front_end.admin, "/api/status").unwrap();
    assert!(status.body.contains("\"later\""), "{}", status.body);
    // Without a watchdog there is no word for one.
    scene.front_end.process.signal("TERM");
    assert_eq!(scene.next(), "STOPPING=1");
    assert_eq!(scene.front_end.process.wait(), Some(0));
}
