//! One front-end takes the place of another, and one that has few open files to use.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use support::server::server;
use support::{eventually, folder, free_address, request, signal, tidegate};

const PATIENCE: Duration = Duration::from_secs(60);
const UPGRADE: &str =
    "GET /socket HTTP/1.1\r\nhost: shop\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n";

/// A process that is killed when the test ends.
struct FrontEnd(Child);

impl FrontEnd {
    fn start(command: &mut Command) -> Self {
        let command = command.stdin(Stdio::null()).stdout(Stdio::null());
        Self(command.spawn().unwrap())
    }

    fn is_running(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }

    fn signal(&self, name: &str) {
        signal(self.0.id(), name);
    }
}

impl Drop for FrontEnd {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

struct Scene {
    folder: PathBuf,
    config: PathBuf,
    web: SocketAddr,
    admin: SocketAddr,
}

impl Scene {
    fn new(name: &str, more: &str) -> Self {
        let folder = folder(name);
        let (web, admin) = (free_address(), free_address());
        let config = folder.join("tidegate.toml");
        let text = format!(
            "admin = {{ address = \"{admin}\" }}\nlistener = [{{ address = \"{web}\" }}]\n\
             site = [{{ name = \"shop\" }}]\n\
             node = [{{ name = \"n1\", site = \"shop\", address = \"{}\" }}]\n{more}",
            server("ok")
        );
        std::fs::write(&config, text).unwrap();
        Self {
            folder,
            config,
            web,
            admin,
        }
    }

    fn command(&self, more: &[&str]) -> Command {
        let mut command = tidegate();
        command.arg("run").arg("-c").arg(&self.config).args(more);
        command
    }

    /// One that writes what it reports to a file of this name, and is ready.
    fn start(&self, name: &str, more: &[&str]) -> FrontEnd {
        let log = std::fs::File::create(self.folder.join(name)).unwrap();
        let mut front_end = FrontEnd::start(self.command(more).stderr(log));
        eventually("the front-end has started", || {
            assert!(front_end.is_running(), "{}", self.log(name));
            self.log(name)
                .contains("page, API and metrics at ")
                .then_some(())
        });
        front_end
    }

    fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.join(name)).unwrap_or_default()
    }

    fn is_ready(&self) -> bool {
        admin_status(self.admin, "/readyz") == Some(200)
    }
}

fn admin_status(admin: SocketAddr, path: &str) -> Option<u16> {
    let text = format!("GET {path} HTTP/1.1\r\nhost: {admin}\r\nconnection: close\r\n\r\n");
    Some(request(admin, &text)?.status)
}

/// A closed loop over one connection at a time, by the rules: it is used until an answer says that it
/// closes. Whatever else goes wrong is a lost request.
fn closed_loop(web: SocketAddr, stop: &AtomicBool, done: &AtomicUsize) -> Vec<String> {
    let mut lost = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let (requests, error) = match connection(web, stop) {
            Ok(requests) => (requests, None),
            Err((requests, error)) => (requests, Some(error)),
        };
        done.fetch_add(requests, Ordering::Relaxed);
        lost.extend(error);
    }
    lost
}

fn connection(web: SocketAddr, stop: &AtomicBool) -> Result<usize, (usize, String)> {
    let mut done = 0;
    let one = |stream: &mut BufReader<TcpStream>| -> std::io::Result<bool> {
        stream
            .get_mut()
            .write_all(b"GET / HTTP/1.1\r\nhost: shop\r\n\r\n")?;
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if stream.read_line(&mut head)? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        let mut body = [0; 2];
        stream.read_exact(&mut body)?;
        assert!(
            head.starts_with("HTTP/1.1 200 ") && body == *b"ok",
            "{head}"
        );
        Ok(head.contains("connection: close"))
    };
    let stream = TcpStream::connect(web).map_err(|error| (0, format!("connect: {error}")))?;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut stream = BufReader::new(stream);
    while !stop.load(Ordering::Relaxed) {
        let closes =
            one(&mut stream).map_err(|error| (done, format!("request {done}: {error}")))?;
        done += 1;
        // Now and then a new connection, so that both ways of arriving are tried.
        if closes || done % 50 == 0 {
            break;
        }
    }
    Ok(done)
}

#[test]
fn a_rolling_restart_loses_no_request() {
    const CLIENTS: usize = 6;
    const RESTARTS: usize = 3;
    const BETWEEN: usize = 1000;
    let scene = Scene::new("rolling", "limits = { workers = 2 }\n");
    let mut running = scene.start("0.log", &[]);
    let stop = Arc::new(AtomicBool::new(false));
    let done = Arc::new(AtomicUsize::new(0));
    let web = scene.web;
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let (stop, done) = (Arc::clone(&stop), Arc::clone(&done));
            std::thread::spawn(move || closed_loop(web, &stop, &done))
        })
        .collect();
    let go_on = || {
        let before = done.load(Ordering::Relaxed);
        eventually("clients go on", || {
            (done.load(Ordering::Relaxed) >= before + BETWEEN).then_some(())
        });
    };
    for restart in 1..=RESTARTS {
        go_on();
        let successor = scene.start(&format!("{restart}.log"), &["--reuse-port"]);
        let mut former = std::mem::replace(&mut running, successor);
        former.signal("TERM");
        eventually("the former one ends", || {
            (!former.is_running()).then_some(())
        });
        let log = scene.log(&format!("{}.log", restart - 1));
        assert!(log.contains(" 0 cut off"), "{log}");
    }
    go_on();
    stop.store(true, Ordering::Relaxed);
    let lost: Vec<_> = (clients.into_iter())
        .flat_map(|client| client.join().unwrap())
        .collect();
    let done = done.load(Ordering::Relaxed);
    println!("{done} requests, {RESTARTS} restarts, lost: {}", lost.len());
    assert!(lost.is_empty(), "{done}: {lost:?}");
}

#[test]
fn a_successor_starts_at_once_although_a_tunnel_is_open() {
    let scene = Scene::new("tunnel", "");
    let mut former = scene.start("former.log", &[]);
    let mut tunnel = TcpStream::connect(scene.web).unwrap();
    tunnel.write_all(UPGRADE.as_bytes()).unwrap();
    let mut answer = [0; 12];
    tunnel.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 101");
    former.signal("TERM");
    let _successor = scene.start("successor.log", &[]);
    assert!(scene.is_ready());
    assert!(former.is_running(), "the tunnel goes on");
    tunnel.write_all(b"still there").unwrap();
    former.signal("TERM");
    eventually("told twice it ends", || {
        (!former.is_running()).then_some(())
    });
}

#[test]
fn a_second_front_end_on_a_port_is_an_error_unless_asked_for() {
    let scene = Scene::new("second", "");
    let _first = scene.start("first.log", &[]);
    // Another one with its own admin address, on the same port.
    let text = std::fs::read_to_string(&scene.config).unwrap();
    let other = free_address();
    let text = text.replace(&scene.admin.to_string(), &other.to_string());
    let config = scene.folder.join("other.toml");
    std::fs::write(&config, text).unwrap();
    let run = |more: &[&str]| {
        let mut command = tidegate();
        command.arg("run").arg("-c").arg(&config).args(more);
        command
    };
    let refused = run(&[]).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    let message = String::from_utf8(refused.stderr).unwrap();
    let wanted = format!("cannot listen on {}: Address already in use", scene.web);
    assert!(message.contains(&wanted), "{message}");
    assert!(message.contains("--reuse-port"), "{message}");
    let mut second = FrontEnd::start(run(&["--reuse-port"]).stderr(Stdio::null()));
    eventually("the second one serves", || {
        assert!(second.is_running());
        (admin_status(other, "/readyz") == Some(200)).then_some(())
    });
}

#[test]
fn readiness_ends_before_anything_else_does() {
    let scene = Scene::new("delay", "timeouts = { drain_delay = \"10m\" }\n");
    let mut front_end = scene.start("log", &[]);
    assert!(scene.is_ready());
    front_end.signal("TERM");
    eventually("it is not ready any more", || {
        (admin_status(scene.admin, "/readyz") == Some(503)).then_some(())
    });
    // It goes on accepting.
    let stop = AtomicBool::new(false);
    assert_eq!(connection(scene.web, &stop).unwrap(), 50);
    front_end.signal("TERM");
    eventually("told twice it ends", || {
        (!front_end.is_running()).then_some(())
    });
}

/// Open files of a process.
fn open_files(process: u32) -> usize {
    std::fs::read_dir(Path::new("/proc").join(process.to_string()).join("fd"))
        .unwrap()
        .count()
}

#[test]
fn clients_that_take_all_files_leave_some_for_nodes_and_operators() {
    const FILES: usize = 128;
    let scene = Scene::new("files", "limits = { workers = 2 }\n");
    let mut command = Command::new("sh");
    command
        .args(["-c", "ulimit -n 128 && exec \"$0\" run -c \"$1\""])
        .arg(env!("CARGO_BIN_EXE_tidegate"))
        .arg(&scene.config)
        .stderr(std::fs::File::create(scene.folder.join("log")).unwrap());
    let mut front_end = FrontEnd::start(&mut command);
    eventually("it is ready", || {
        assert!(front_end.is_running(), "{}", scene.log("log"));
        scene.is_ready().then_some(())
    });
    let log = scene.log("log");
    assert!(
        log.contains("the limit on open files is 128: at most "),
        "{log}"
    );
    // As many clients as come in, and as many again that do not.
    let refused = AtomicUsize::new(0);
    let mut clients = Vec::new();
    while refused.load(Ordering::Relaxed) < FILES {
        let mut client = TcpStream::connect(scene.web).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        let ask = client.write_all(b"GET / HTTP/1.1\r\nhost: shop\r\n\r\n");
        let mut answer = [0; 12];
        match ask.and_then(|()| client.read_exact(&mut answer)) {
            Ok(()) if answer == *b"HTTP/1.1 200" => {}
            // Refused, or reset when even those that are refused are too many.
            Ok(()) | Err(_) => drop(refused.fetch_add(1, Ordering::Relaxed)),
        }
        clients.push(client);
    }
    let served = clients.len() - FILES;
    assert!(served >= 20, "{served}");
    // Tunnels take a connection to the node each, for good.
    for (tunnels, client) in clients[..served].iter_mut().enumerate() {
        let mut rest = [0; 64];
        while !rest.ends_with(b"ok") {
            rest.rotate_left(1);
            client.read_exact(&mut rest[63..]).unwrap();
        }
        client.write_all(UPGRADE.as_bytes()).unwrap();
        let mut answer = [0; 12];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 101", "after {tunnels} of {served}");
    }
    assert!(scene.is_ready(), "operators reach it");
    assert!(open_files(front_end.0.id()) < FILES);
}
