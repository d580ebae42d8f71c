//! Where the access log ends up, whatever others put under its name: real processes.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use support::{Process, eventually, folder, free_address, request};

/// A front-end whose log lies in a folder that every user can write to.
struct Scene {
    folder: PathBuf,
    admin: SocketAddr,
    web: SocketAddr,
}

impl Scene {
    fn new(name: &str) -> Self {
        let scene = Self {
            folder: folder(name),
            admin: free_address(),
            web: free_address(),
        };
        std::fs::create_dir(scene.folder.join("log")).unwrap();
        std::fs::set_permissions(
            scene.folder.join("log"),
            std::fs::Permissions::from_mode(0o777),
        )
        .unwrap();
        scene.configure("file = \"log/access.log\"");
        std::fs::write(scene.victim(), "precious").unwrap();
        scene
    }

    fn configure(&self, log: &str) {
        let text = format!(
            "admin = {{ address = \"{}\" }}\nlistener = [{{ address = \"{}\" }}]\n\
             site = [{{ name = \"a\" }}]\nnode = [{{ name = \"n\", address = \"127.0.0.1:1\", site = \"a\" }}]\n\
             timeouts = {{ drain = \"1s\" }}\n[log]\naccess = \"combined\"\n{log}\n",
            self.admin, self.web
        );
        std::fs::write(self.folder.join("tidegate.toml"), text).unwrap();
    }

    fn log(&self) -> PathBuf {
        self.folder.join("log/access.log")
    }

    fn victim(&self) -> PathBuf {
        self.folder.join("victim")
    }

    fn command(&self, command: &str, stdout: Stdio) -> Process {
        let mut process = support::tidegate();
        process.arg(command).arg(self.folder.join("tidegate.toml"));
        Process::start(process.stdout(stdout).stderr(Stdio::piped()))
    }

    /// A front-end that is ready.
    fn start(&self, stdout: Stdio) -> Process {
        let process = self.command("run", stdout);
        let admin = self.admin;
        let text = format!("GET /readyz HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n");
        eventually("it is ready", || {
            request(admin, &text).filter(|it| it.status == 200)
        });
        process
    }

    /// `check` and `run` end with this in what they say.
    fn refuses(&self, why: &str) {
        for command in ["check", "run"] {
            let mut process = self.command(command, Stdio::null());
            process.wait_for_line(why);
            assert_eq!(process.wait(), Some(1), "{command}");
        }
        assert_eq!(std::fs::read(self.victim()).unwrap(), b"precious");
    }

    /// What is written after the log was renamed and something else has its name.
    fn rotate(&self, plant: impl Fn(&Path)) {
        let mut process = self.start(Stdio::null());
        self.ask("/first");
        std::fs::rename(self.log(), self.folder.join("log/old")).unwrap();
        plant(&self.log());
        process.signal("USR1");
        process.wait_for_line("not opened anew, the file that is open stays in use");
        self.ask("/second");
        process.signal("TERM");
        assert_eq!(process.wait(), Some(0));
        let old = std::fs::read_to_string(self.folder.join("log/old")).unwrap();
        assert!(old.contains("/first") && old.contains("/second"), "{old}");
        assert_eq!(std::fs::read(self.victim()).unwrap(), b"precious");
    }

    /// There is no node, so this is answered at once.
    fn ask(&self, path: &str) {
        let text = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        assert!(request(self.web, &text).is_some());
    }
}

#[test]
fn a_log_is_not_written_through_a_link_that_was_planted() {
    let scene = Scene::new("log_link");
    symlink(scene.victim(), scene.log()).unwrap();
    scene.refuses("`access.log` is a link in a folder that others can write to");
    std::fs::remove_file(scene.log()).unwrap();
    scene.rotate(|log| symlink(scene.victim(), log).unwrap());
}

#[test]
fn a_pipe_in_place_of_the_log_holds_up_neither_start_nor_end() {
    let scene = Scene::new("log_pipe");
    let plant = |log: &Path| {
        mknodat(CWD, log, FileType::Fifo, Mode::from_raw_mode(0o666), 0).unwrap();
    };
    plant(&scene.log());
    scene.refuses("it is a pipe, and not a regular file");
    std::fs::remove_file(scene.log()).unwrap();
    scene.rotate(plant);
}

#[test]
fn a_reader_of_the_log_that_stands_still_holds_up_no_end() {
    let scene = Scene::new("log_reader");
    scene.configure("");
    let mut process = scene.start(Stdio::piped());
    // More than a pipe holds.
    for _ in 0..100 {
        scene.ask(&format!("/{}", "x".repeat(2000)));
    }
    process.signal("TERM");
    assert_eq!(process.wait(), Some(0));
    let said = process.error_text();
    assert!(
        said.contains("access log were not written in time"),
        "{said}"
    );
}

/// The lines that a full disk refuses are counted, and said once; so is that it takes them again.
#[test]
fn a_full_disk_is_said_once_and_its_lines_are_counted_as_dropped() {
    let scene = Scene::new("log_full");
    scene.configure("file = \"/dev/full\"");
    let mut process = scene.start(Stdio::null());
    let metric = |name: &str| {
        let text = support::ask(scene.admin, "/metrics").unwrap().body;
        let line = text.lines().find(|it| it.starts_with(name)).unwrap();
        line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()
    };
    for dropped in 1..4 {
        scene.ask("/lost");
        eventually("it is counted", || {
            (metric("tidegate_access_log_dropped_total") == dropped).then_some(())
        });
    }
    assert_eq!(metric("tidegate_access_log_lines_total"), 0);
    scene.configure("file = \"log/access.log\"");
    process.signal("HUP");
    process.wait_for_line(
        "access log: lines are lost, and counted as dropped: No space left on device",
    );
    process.wait_for_line("the configuration is in force");
    let enough = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !enough.load(Ordering::Relaxed) {
                scene.ask("/written");
            }
        });
        process.wait_for_line("access log: lines are written again; 3 were lost");
        enough.store(true, Ordering::Relaxed);
    });
    let log = std::fs::read_to_string(scene.log()).unwrap();
    assert!(log.contains("/written") && !log.contains("/lost"), "{log}");
    process.signal("TERM");
    assert_eq!(process.wait(), Some(0));
    let rest = process.error_text();
    assert!(!rest.contains("access log"), "{rest}");
}

#[test]
fn a_request_belongs_to_a_trace() {
    let folder = folder("access-log-traces");
    let mirror = support::mirror::Mirror::start();
    let log = folder.join("access.log");
    let text = format!(
        "[log]\naccess = \"json\"\nfile = \"{}\"\n[forwarded]\ntraceparent = \"make\"\ntrace_sampled = 1.0\n\
         [[site]]\nname = \"shop\"\n[[node]]\nname = \"n1\"\naddress = \"{}\"\nsite = \"shop\"\n",
        log.display(),
        mirror.address
    );
    let front_end = support::FrontEnd::start(&folder, &text);
    let own = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
    let ask = |field: &str| {
        let text =
            format!("GET / HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n{field}\r\n");
        let told = request(front_end.address, &text).unwrap().body;
        let line = told
            .lines()
            .find_map(|line| line.strip_prefix("traceparent: "));
        line.unwrap().to_owned()
    };
    assert_eq!(ask(&format!("traceparent: {own}\r\n")), own);
    let made = ask("");
    assert!(made.ends_with("-01"), "{made}");
    assert_ne!(ask("traceparent: 00-0-0-0\r\n"), made);
    let trace = |of: &str| of.split('-').nth(1).unwrap().to_owned();
    for wanted in [trace(own), trace(&made)] {
        let part = format!("\"trace_id\":\"{wanted}\"");
        eventually("it is in the log", || {
            let lines = std::fs::read_to_string(&log).ok()?;
            lines.contains(&part).then_some(())
        });
    }
}
