//! A new process takes over, and no client notices: real processes, one after the other.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::cell::RefCell;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use support::server::{head, server};
use support::{PATIENCE, Process, Response, eventually, folder, free_address, request};

const TUNNEL: &str =
    "GET /socket HTTP/1.1\r\nhost: shop\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n";

/// A front-end that is started by a name of its own, which may lead to another program later.
struct Scene {
    folder: PathBuf,
    node: SocketAddr,
    web: SocketAddr,
    admin: SocketAddr,
    first: RefCell<Option<Process>>,
    /// Processes that have taken over.
    successors: RefCell<Vec<u32>>,
}

impl Scene {
    fn new(name: &str) -> Self {
        let folder = folder(&format!("upgrade-{name}"));
        let scene = Self {
            node: server("ok"),
            web: free_address(),
            admin: free_address(),
            first: RefCell::new(None),
            successors: RefCell::default(),
            folder,
        };
        symlink(env!("CARGO_BIN_EXE_tidegate"), scene.program()).unwrap();
        scene
    }

    fn program(&self) -> PathBuf {
        self.folder.join("tidegate")
    }

    fn config(&self) -> PathBuf {
        self.folder.join("tidegate.toml")
    }

    fn configure(&self, more: &str) {
        let text = format!(
            "admin = {{ address = \"{}\" }}\nsite = [{{ name = \"shop\" }}]\n\
             node = [{{ name = \"n1\", site = \"shop\", address = \"{}\" }}]\n{more}\n\
             [[listener]]\naddress = \"{}\"\n",
            self.admin, self.node, self.web
        );
        std::fs::write(self.config(), text).unwrap();
    }

    fn start(&self) {
        let mut command = Command::new(self.program());
        command.arg("run").arg("-c").arg(self.config());
        self.launch(&mut command);
    }

    fn launch(&self, command: &mut Command) {
        let log = std::fs::File::create(self.folder.join("log")).unwrap();
        let command = command.stdout(Stdio::null()).stderr(log);
        *self.first.borrow_mut() = Some(Process::start_with_input(command));
        eventually("the front-end is ready", || {
            (self.ask("GET", "/readyz")?.status == 200).then_some(())
        });
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap()
    }

    fn ask(&self, method: &str, path: &str) -> Option<Response> {
        let admin = self.admin;
        let text = format!(
            "{method} {path} HTTP/1.1\r\nhost: {admin}\r\ntidegate-override: 1\r\n\
             content-length: 0\r\nconnection: close\r\n\r\n"
        );
        request(admin, &text)
    }

    /// The number of the process that has taken over, or why none has.
    fn upgrade(&self) -> Result<u32, String> {
        let answer = self.ask("POST", "/api/upgrade").unwrap();
        let body: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
        if answer.status != 200 {
            return Err(body["error"].as_str().unwrap().to_owned());
        }
        let process = body["process"].as_u64().unwrap() as u32;
        self.successors.borrow_mut().push(process);
        Ok(process)
    }

    fn metric(&self, name: &str) -> Option<f64> {
        let answer = self.ask("GET", "/metrics")?;
        let start = format!("{name} ");
        let line = answer.body.lines().find(|line| line.starts_with(&start));
        line?.rsplit(' ').next()?.parse().ok()
    }

    /// Puts a shell script in the place of the program.
    fn replace_program(&self, script: &str) {
        let next = self.folder.join("next");
        std::fs::write(&next, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&next, PermissionsExt::from_mode(0o755)).unwrap();
        std::fs::rename(next, self.program()).unwrap();
    }

    fn get(&self, address: SocketAddr) -> Option<u16> {
        let text = "GET / HTTP/1.1\r\nhost: shop\r\nconnection: close\r\n\r\n";
        Some(request(address, text)?.status)
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        for process in self.successors.borrow().iter() {
            // Most have ended, or end just now.
            if is_running(*process) {
                let id = i32::try_from(*process)
                    .ok()
                    .and_then(rustix::process::Pid::from_raw);
                let kill = |id| rustix::process::kill_process(id, rustix::process::Signal::KILL);
                let _killed = id.map(kill);
            }
        }
    }
}

/// Whether it is there and not merely waited for by its parent.
fn is_running(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = stat
        .rsplit(") ")
        .next()
        .and_then(|rest| rest.chars().next());
    stat.contains("(tidegate)") && state != Some('Z')
}

/// Clients in a closed loop, and what they lost.
struct Clients {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<Vec<String>>>,
}

/// One after the other: how many requests were done, or why one was lost.
type Loop = fn(SocketAddr, &AtomicBool) -> Result<usize, String>;

impl Clients {
    fn start(web: SocketAddr, loops: &[Loop]) -> Self {
        let (stop, done) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let thread = |each: &Loop| {
            let (stop, done, each) = (Arc::clone(&stop), Arc::clone(&done), *each);
            std::thread::spawn(move || {
                let mut lost = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    match each(web, &stop) {
                        Ok(requests) => drop(done.fetch_add(requests, Ordering::Relaxed)),
                        Err(why) => lost.push(why),
                    }
                }
                lost
            })
        };
        let threads = loops.iter().map(thread).collect();
        Self {
            stop,
            done,
            threads,
        }
    }

    /// Waits until so many more requests are done.
    fn go_on(&self, requests: usize) {
        let before = self.done.load(Ordering::Relaxed);
        eventually("clients go on", || {
            (self.done.load(Ordering::Relaxed) >= before + requests).then_some(())
        });
    }

    fn end(self) -> Vec<String> {
        self.stop.store(true, Ordering::Relaxed);
        let lost = self.threads.into_iter();
        lost.flat_map(|it| it.join().unwrap()).collect()
    }
}

fn connect(web: SocketAddr) -> Result<BufReader<TcpStream>, String> {
    let stream = TcpStream::connect(web).map_err(|error| format!("connect: {error}"))?;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    Ok(BufReader::new(stream))
}

/// Whether the connection closes behind the answer.
fn exchange(stream: &mut BufReader<TcpStream>, fields: &str) -> std::io::Result<bool> {
    let text = format!("GET / HTTP/1.1\r\nhost: shop\r\n{fields}\r\n");
    stream.get_mut().write_all(text.as_bytes())?;
    let head = head(stream).ok_or(ErrorKind::UnexpectedEof)?;
    let mut body = [0; 2];
    stream.read_exact(&mut body)?;
    assert!(
        head.starts_with("HTTP/1.1 200 ") && body == *b"ok",
        "{head}"
    );
    Ok(head.contains("connection: close"))
}

/// A connection is used until an answer says that it closes.
fn keep_alive(web: SocketAddr, stop: &AtomicBool) -> Result<usize, String> {
    let mut stream = connect(web)?;
    let mut done = 0;
    while !stop.load(Ordering::Relaxed) {
        let closes = exchange(&mut stream, "");
        done += 1;
        if closes.map_err(|error| format!("request {done} of a connection: {error}"))? {
            break;
        }
    }
    Ok(done)
}

fn per_request(web: SocketAddr, _: &AtomicBool) -> Result<usize, String> {
    let closes = exchange(&mut connect(web)?, "connection: close\r\n");
    closes.map_err(|error| format!("the request of a connection: {error}"))?;
    Ok(1)
}

/// A tunnel that carries ten messages, one after the other.
fn tunnel(web: SocketAddr, _: &AtomicBool) -> Result<usize, String> {
    let mut stream = open_tunnel(web)?;
    for message in 0..10 {
        echo(&mut stream).map_err(|error| format!("message {message} of a tunnel: {error}"))?;
    }
    stream.get_ref().shutdown(Shutdown::Both).unwrap();
    Ok(1)
}

fn open_tunnel(web: SocketAddr) -> Result<BufReader<TcpStream>, String> {
    let mut stream = connect(web)?;
    let sent = stream.get_mut().write_all(TUNNEL.as_bytes());
    sent.map_err(|error| format!("a tunnel: {error}"))?;
    let head = head(&mut stream).ok_or("a tunnel that ended before it began")?;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    Ok(stream)
}

fn echo(stream: &mut BufReader<TcpStream>) -> std::io::Result<()> {
    stream.get_mut().write_all(b"hello")?;
    let mut back = [0; 5];
    stream.read_exact(&mut back)?;
    assert_eq!(&back, b"hello");
    Ok(())
}

#[test]
fn hand_overs_are_noticed_by_no_client_whatever_the_number_of_workers() {
    const BETWEEN: usize = 300;
    let scene = Scene::new("clients");
    let workers = |count: usize| scene.configure(&format!("limits = {{ workers = {count} }}"));
    workers(2);
    scene.start();
    let clients = Clients::start(
        scene.web,
        &[
            keep_alive,
            keep_alive,
            per_request,
            per_request,
            per_request,
            tunnel,
        ],
    );
    let mut kept = open_tunnel(scene.web).unwrap();
    for (upgrade, count) in [4, 1, 3, 2].into_iter().enumerate() {
        clients.go_on(BETWEEN);
        workers(count);
        let process = scene
            .upgrade()
            .unwrap_or_else(|why| panic!("{why}: {}", scene.log()));
        assert!(is_running(process));
        assert_eq!(
            scene.metric("tidegate_upgrades_total"),
            Some(upgrade as f64 + 1.0)
        );
        assert_eq!(scene.metric("tidegate_draining"), Some(0.0));
    }
    clients.go_on(BETWEEN);
    echo(&mut kept).unwrap();
    assert!(
        scene.first.borrow_mut().as_mut().unwrap().is_running(),
        "a tunnel is open there"
    );
    drop(kept);
    let done = clients.done.load(Ordering::Relaxed);
    let lost = clients.end();
    assert!(
        lost.is_empty(),
        "{} of {done}: {lost:?}: {}",
        lost.len(),
        scene.log()
    );
    assert_eq!(scene.first.borrow_mut().as_mut().unwrap().wait(), Some(0));
    let successors = scene.successors.borrow().clone();
    let (last, former) = successors.split_last().unwrap();
    for process in former {
        eventually("a former process ends", || {
            (!is_running(*process)).then_some(())
        });
    }
    assert!(is_running(*last));
    assert!(
        !scene.log().contains("cut off") || !scene.log().contains(" 1 cut off"),
        "{}",
        scene.log()
    );
}

#[test]
fn a_new_process_that_does_not_come_up_changes_nothing() {
    let scene = Scene::new("failures");
    scene.configure("");
    scene.start();
    let clients = Clients::start(scene.web, &[keep_alive, per_request]);
    // Its configuration is broken.
    scene.configure("limits = { workers = 0 }");
    let why = scene.upgrade().unwrap_err();
    assert!(
        why.starts_with("the new process did not start: ") && why.contains("workers"),
        "{why}"
    );
    scene.configure("");
    // It ends at once.
    scene.replace_program("exit 7");
    let why = scene.upgrade().unwrap_err();
    assert_eq!(
        why,
        "the new process ended before it was ready: exit status: 7"
    );
    // It cannot be started at all.
    std::fs::write(scene.program(), "no program").unwrap();
    let why = scene.upgrade().unwrap_err();
    assert!(why.starts_with("cannot start "), "{why}");
    assert_eq!(scene.metric("tidegate_upgrades_failed_total"), Some(3.0));
    assert_eq!(scene.metric("tidegate_upgrades_total"), Some(0.0));
    assert!(
        scene
            .log()
            .contains("not upgraded, this process goes on as before: the new process")
    );
    clients.go_on(100);
    // The next one is sound.
    let script = format!("exec {} \"$@\"", env!("CARGO_BIN_EXE_tidegate"));
    scene.replace_program(&script);
    scene.upgrade().unwrap();
    clients.go_on(100);
    let lost = clients.end();
    assert!(lost.is_empty(), "{lost:?}");
}

#[test]
fn one_upgrade_at_a_time_and_a_signal_asks_for_one_as_well() {
    let scene = Scene::new("once");
    scene.configure("");
    scene.start();
    let gate = scene.folder.join("gate");
    // A program that waits until it may go on.
    scene.replace_program(&format!(
        "while [ ! -e {} ]; do sleep 0.01; done\nexec {} \"$@\"",
        gate.display(),
        env!("CARGO_BIN_EXE_tidegate")
    ));
    scene.first.borrow().as_ref().unwrap().signal("USR2");
    eventually("the upgrade is under way", || {
        scene.log().contains("starting a new process").then_some(())
    });
    assert_eq!(
        scene.upgrade().unwrap_err(),
        "an upgrade is under way already"
    );
    let dry_run = scene.ask("POST", "/api/reload?dry_run").unwrap();
    assert_eq!(dry_run.status, 200, "it changes nothing: {dry_run:?}");
    let mut reload = TcpStream::connect(scene.admin).unwrap();
    reload.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut answers = BufReader::new(reload.try_clone().unwrap());
    // A connection that the first process has answered on is its own.
    let asked = |line: &str| format!("{line} HTTP/1.1\r\nhost: {}\r\n", scene.admin);
    let livez = asked("GET /livez") + "\r\n";
    reload.write_all(livez.as_bytes()).unwrap();
    let mut line = String::new();
    answers.read_line(&mut line).unwrap();
    assert_eq!(line, "HTTP/1.1 200 OK\r\n");
    let reload_now =
        asked("POST /api/reload") + "tidegate-override: 1\r\ncontent-length: 0\r\n\r\n";
    reload.write_all(reload_now.as_bytes()).unwrap();
    std::fs::write(&gate, "").unwrap();
    let mut rest = String::new();
    answers.read_to_string(&mut rest).unwrap();
    assert!(
        rest.contains("HTTP/1.1 503 ") && rest.contains("another process has taken over meanwhile"),
        "{rest}"
    );
    assert_eq!(scene.first.borrow_mut().as_mut().unwrap().wait(), Some(0));
    let log = scene.log();
    let process = log
        .split("process ")
        .find_map(|rest| rest.split_once(" has taken over"));
    let process: u32 = process.unwrap().0.parse().unwrap();
    scene.successors.borrow_mut().push(process);
    assert_eq!(scene.get(scene.web), Some(200));
}

#[test]
fn one_that_is_asked_to_stop_meanwhile_ends_without_a_successor() {
    let scene = Scene::new("stop");
    scene.configure("");
    scene.start();
    scene.replace_program("exec sleep 600");
    scene.first.borrow().as_ref().unwrap().signal("USR2");
    eventually("the upgrade is under way", || {
        scene.log().contains("starting a new process").then_some(())
    });
    scene.first.borrow().as_ref().unwrap().signal("TERM");
    assert_eq!(scene.first.borrow_mut().as_mut().unwrap().wait(), Some(0));
    assert!(
        TcpStream::connect(scene.web).is_err(),
        "nothing has its socket"
    );
}

#[test]
fn listeners_come_and_go_with_the_configuration() {
    let scene = Scene::new("listeners");
    let (leaves, comes) = (free_address(), free_address());
    let listener = |address| format!("[[listener]]\naddress = \"{address}\"");
    scene.configure(&listener(leaves));
    scene.start();
    assert_eq!(scene.get(leaves), Some(200));
    scene.configure(&listener(comes));
    scene.upgrade().unwrap();
    assert_eq!(
        (scene.get(scene.web), scene.get(comes)),
        (Some(200), Some(200))
    );
    assert_eq!(scene.first.borrow_mut().as_mut().unwrap().wait(), Some(0));
    assert!(TcpStream::connect(leaves).is_err());
}

#[test]
fn sockets_of_a_service_manager_are_used_and_handed_on() {
    let scene = Scene::new("activation");
    scene.configure("limits = { workers = 2 }");
    let listener = TcpListener::bind(scene.web).unwrap();
    // A client that comes before the front-end waits for it.
    let mut early = connect(scene.web).unwrap();
    let mut command = Command::new("sh");
    command
        .args([
            "-c",
            "exec 3<&0 </dev/null; export LISTEN_FDS=1 LISTEN_PID=$$; exec \"$0\" run -c \"$1\"",
        ])
        .arg(scene.program())
        .arg(scene.config())
        .stdin(Stdio::from(std::os::fd::OwnedFd::from(listener)));
    scene.launch(&mut command);
    // The command's copy of the socket goes with it.
    drop(command);
    exchange(&mut early, "connection: close\r\n").unwrap();
    let clients = Clients::start(scene.web, &[keep_alive, per_request]);
    clients.go_on(50);
    scene.upgrade().unwrap();
    clients.go_on(50);
    let lost = clients.end();
    assert!(lost.is_empty(), "{lost:?}");
}

#[test]
fn a_user_without_privileges_hands_a_privileged_port_on() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root can listen on a port below 1024 and become another user");
        return;
    }
    let mut scene = Scene::new("privileges");
    let free = (601..1024).find_map(|port| TcpListener::bind(("127.0.0.1", port)).ok());
    scene.web = free.unwrap().local_addr().unwrap();
    open_to_all(&scene.folder);
    scene.configure("process = { user = \"nobody\" }");
    scene.start();
    for _ in 0..2 {
        scene
            .upgrade()
            .unwrap_or_else(|why| panic!("{why}: {}", scene.log()));
        assert_eq!(scene.get(scene.web), Some(200));
    }
}

/// Others can look into the folder.
fn open_to_all(folder: &Path) {
    std::fs::set_permissions(folder, PermissionsExt::from_mode(0o755)).unwrap();
}
