//! A cluster of real processes for end-to-end tests: nginx servers, an agent beside each, and
//! the front-end, all on loopback and all gone when the test ends.
#![allow(dead_code, reason = "each test file uses its own part of this")]

pub(crate) mod acme;
pub(crate) mod client;
pub(crate) mod collector;
pub(crate) mod culprits;
pub(crate) mod greedy;
pub(crate) mod haproxy;
pub(crate) mod http2;
pub(crate) mod http2_node;
pub(crate) mod mirror;
pub(crate) mod moving;
pub(crate) mod name_server;
pub(crate) mod orca;
pub(crate) mod over_rdma;
pub(crate) mod published;
pub(crate) mod scene;
pub(crate) mod server;
pub(crate) mod snmpd;
pub(crate) mod tls;
pub(crate) mod tls_server;
pub(crate) mod upgrade;

use std::io::{Read, Seek as _, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long anything may take before the test gives up; far longer than it takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The same, or as long as an emulated machine may run: there anything takes long, and its runner gives up.
fn patience() -> Duration {
    match std::env::var_os("TIDEGATE_EMULATED") {
        Some(_) => Duration::from_secs(3600),
        None => PATIENCE,
    }
}

/// A process that ends with the test.
#[derive(Debug)]
pub(crate) struct Process(Child);

impl Process {
    pub(crate) fn start(command: &mut Command) -> Self {
        let name = format!("{command:?}");
        Self(
            command
                .stdin(Stdio::null())
                .spawn()
                .unwrap_or_else(|error| panic!("{name}: {error}")),
        )
    }

    /// The same with the input that the command has.
    pub(crate) fn start_with_input(command: &mut Command) -> Self {
        let name = format!("{command:?}");
        let started = command.spawn();
        Self(started.unwrap_or_else(|error| panic!("{name}: {error}")))
    }

    /// Where it reads from, if that is a pipe.
    pub(crate) fn input(&mut self) -> &mut impl Write {
        self.0.stdin.as_mut().expect("its input is a pipe")
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }

    /// Sends a signal by its name, as `kill` knows it.
    pub(crate) fn signal(&self, name: &str) {
        signal(self.0.id(), name);
    }

    /// Ends it by a signal that it heeds, so that what it has started ends too: a master that is killed leaves its workers
    /// behind. One that does not heed it is killed in the end.
    #[expect(
        clippy::disallowed_methods,
        reason = "a test gives up on the real clock"
    )]
    pub(crate) fn end(&mut self, name: &str) {
        self.signal(name);
        let start = Instant::now();
        while matches!(self.0.try_wait(), Ok(None)) && start.elapsed() < PATIENCE {
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }

    /// Waits for its end; its exit code.
    pub(crate) fn wait(&mut self) -> Option<i32> {
        eventually("the process ends", || self.0.try_wait().unwrap()).code()
    }

    /// Reads what it says until a line has this in it: standard output if that is a pipe, else standard error.
    pub(crate) fn wait_for_line(&mut self, part: &str) {
        let (out, err) = (self.0.stdout.as_mut(), self.0.stderr.as_mut());
        let said: &mut dyn Read = match (out, err) {
            (Some(out), _) => out,
            (None, Some(err)) => err,
            (None, None) => panic!("neither output is a pipe"),
        };
        // Byte by byte: what follows the line is for the next call.
        let (mut line, mut all) = (Vec::new(), String::new());
        loop {
            let mut byte = [0];
            let ended = said.read(&mut byte).unwrap() == 0;
            assert!(!ended, "no `{part}` in: {all}");
            line.push(byte[0]);
            if byte[0] == b'\n' {
                let text = String::from_utf8_lossy(&std::mem::take(&mut line)).into_owned();
                if text.contains(part) {
                    return;
                }
                all.push_str(&text);
            }
        }
    }

    /// What it said on standard error, once it has ended.
    pub(crate) fn error_text(&mut self) -> String {
        let mut text = String::new();
        self.0
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut text)
            .unwrap();
        text
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already: then there is nothing to do.
        let _killed = self.0.kill();
        let _status = self.0.wait();
    }
}

pub(crate) fn signal(process: u32, name: &str) {
    let sent = Command::new("kill")
        .args(["-s", name, &process.to_string()])
        .status()
        .unwrap();
    assert!(sent.success(), "kill -s {name} {process}");
}

/// Waits until `happened` gives something.
#[expect(
    clippy::disallowed_methods,
    reason = "a test gives up on the real clock"
)]
#[track_caller]
pub(crate) fn eventually<T>(what: &str, mut happened: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = happened() {
            return value;
        }
        assert!(start.elapsed() < patience(), "gave up waiting: {what}");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

/// A port that nothing listens on, now and for the run of all tests: see `free_port`.
pub(crate) fn free_address() -> SocketAddr {
    free_address_at(Ipv4Addr::LOCALHOST.into())
}

/// The same of another address of this host.
pub(crate) fn free_address_at(ip: IpAddr) -> SocketAddr {
    (ip, free_port()).into()
}

/// A port that no test has had in this run and no socket has now, of TCP and of UDP.
///
/// A port that the kernel picks is one that it may pick again, for a listener of another test or for a connection. So
/// these are below those that it picks from, and a file that all tests share says which are taken.
pub(crate) fn free_port() -> u16 {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("next-port");
    let mut options = std::fs::File::options();
    let options = options.read(true).write(true).create(true);
    let mut file = options.truncate(false).open(path).unwrap();
    file.lock().unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    // An empty file is that of a first run.
    let last = text.trim().parse().unwrap_or(PORTS.start);
    let after = (last + 1..PORTS.end).chain(PORTS.start..=last);
    let port = { after }
        .find(|port| {
            let at = (Ipv4Addr::LOCALHOST, *port);
            TcpListener::bind(at).is_ok() && UdpSocket::bind(at).is_ok()
        })
        .expect("one of these ports is free");
    file.set_len(0).unwrap();
    file.rewind().unwrap();
    write!(file, "{port}").unwrap();
    port
}

/// Below `net.ipv4.ip_local_port_range`.
const PORTS: Range<u16> = 12_000..27_000;

/// A folder of this test, emptied at its start.
pub(crate) fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if path.exists() {
        std::fs::remove_dir_all(&path).unwrap();
    }
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// Makes a master in the folder's file `master.key`.
pub(crate) fn master_key(folder: &Path) -> PathBuf {
    master_key_in(folder, "master.key")
}

/// The same, in a file of this name.
pub(crate) fn master_key_in(folder: &Path, name: &str) -> PathBuf {
    let file = folder.join(name);
    made(tidegate().args(["key", "new"]).arg(&file));
    file
}

/// Makes the key of a node from a master, in a file beside it.
pub(crate) fn node_key(master: &Path, node: &str) -> PathBuf {
    node_key_in(master, node, &format!("{node}.key"))
}

/// The same, in a file of this name.
pub(crate) fn node_key_in(master: &Path, node: &str, name: &str) -> PathBuf {
    let file = master.with_file_name(name);
    let mut derive = tidegate();
    derive.args(["key", "derive", node, "--master"]).arg(master);
    made(derive.arg("-o").arg(&file));
    file
}

fn made(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// Where a program is: in a folder of `PATH`, or where Debian keeps servers.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(["/usr/sbin".into()]);
    places.map(|it| it.join(name)).find(|it| it.is_file())
}

/// Whether a program is there; a test that goes without it says so.
#[expect(clippy::print_stdout, reason = "how a test says that it could not run")]
pub(crate) fn is_installed(name: &str) -> bool {
    let found = program(name).is_some();
    if !found {
        println!("SKIPPED: {name} is not installed");
    }
    found
}

/// The path of nginx, if it is installed.
pub(crate) fn nginx() -> Option<&'static str> {
    ["/usr/sbin/nginx", "/usr/bin/nginx"]
        .into_iter()
        .find(|path| Path::new(path).exists())
}

/// A real nginx that serves one file that names it, and `/large` of a mebibyte.
#[derive(Debug)]
pub(crate) struct Nginx {
    pub(crate) address: SocketAddr,
    folder: PathBuf,
    process: Option<Process>,
    /// What else it says of its server: behind the address, and in the table.
    more: [String; 2],
}

impl Nginx {
    pub(crate) fn start(folder: &Path, name: &str) -> Self {
        Self::start_with(folder, name, ["", ""])
    }

    /// The same with more behind the address that it listens at, and in the table of the server.
    pub(crate) fn start_with(folder: &Path, name: &str, more: [&str; 2]) -> Self {
        let folder = folder.join(name);
        std::fs::create_dir_all(folder.join("www")).unwrap();
        std::fs::write(folder.join("www/index.html"), format!("{name}\n")).unwrap();
        std::fs::write(folder.join("www/large"), vec![b'x'; 1 << 20]).unwrap();
        let mut server = Self {
            address: free_address(),
            folder,
            process: None,
            more: more.map(str::to_owned),
        };
        server.write_configuration();
        server.revive();
        server
    }

    fn write_configuration(&self) {
        let [listen, more] = &self.more;
        let text = format!(
            "daemon off; worker_processes 1; pid nginx.pid; error_log error.log;\n\
             events {{ worker_connections 4096; }}\n\
             http {{ access_log off; keepalive_requests 1000000; client_body_temp_path body;\n\
             proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi;\n\
             scgi_temp_path scgi;\n\
             server {{ listen {} backlog=4096 {listen}; root www; {more} }} }}\n",
            self.address
        );
        std::fs::write(self.folder.join("nginx.conf"), text).unwrap();
    }

    pub(crate) fn revive(&mut self) {
        let program = nginx().expect("the caller has checked that nginx is there");
        let mut command = Command::new(program);
        command
            .arg("-p")
            .arg(&self.folder)
            .args(["-c", "nginx.conf", "-e", "error.log"]);
        self.process = Some(Process::start(&mut command));
        eventually("nginx listens", || TcpStream::connect(self.address).ok());
    }

    /// Kills master and worker at once.
    pub(crate) fn kill(&mut self) {
        for process in self.processes() {
            signal(process, "KILL");
        }
        self.process = None;
        eventually("the port is closed", || {
            TcpStream::connect(self.address).err()
        });
    }

    pub(crate) fn stop(&self) {
        self.processes()
            .into_iter()
            .for_each(|process| signal(process, "STOP"));
    }

    pub(crate) fn resume(&self) {
        self.processes()
            .into_iter()
            .for_each(|process| signal(process, "CONT"));
    }

    /// Master and workers.
    fn processes(&self) -> Vec<u32> {
        let Some(master) = &self.process else {
            return Vec::new();
        };
        let children = format!("/proc/{0}/task/{0}/children", master.id());
        let workers = std::fs::read_to_string(children).unwrap_or_default();
        let workers = workers
            .split_whitespace()
            .filter_map(|word| word.parse().ok());
        std::iter::once(master.id()).chain(workers).collect()
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        for process in self.processes() {
            signal(process, "CONT");
            signal(process, "KILL");
        }
    }
}

pub(crate) fn tidegate() -> Command {
    Command::new(env!("CARGO_BIN_EXE_tidegate"))
}

/// An agent that answers at a loopback address.
#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) address: SocketAddr,
    process: Option<Process>,
    key: PathBuf,
    /// More lines of `[agent]`.
    more: &'static str,
}

impl Agent {
    pub(crate) fn start(key: &Path) -> Self {
        Self::start_at(key, free_address(), "")
    }

    /// The same at an address, with more lines of `[agent]`.
    pub(crate) fn start_at(key: &Path, address: SocketAddr, more: &'static str) -> Self {
        let mut agent = Self {
            address,
            process: None,
            key: key.to_path_buf(),
            more,
        };
        agent.revive();
        agent
    }

    /// Slow and at normal priority: several of them share the machine with all other tests.
    pub(crate) fn revive(&mut self) {
        let file = self
            .key
            .with_file_name(format!("agent-{}.toml", self.address.port()));
        let text = format!(
            "[agent]\nlisten = \"{}\"\nkey_file = \"{}\"\ninterval = \"20ms\"\nrealtime = false\n{}",
            self.address,
            self.key.display(),
            self.more
        );
        std::fs::write(&file, text).unwrap();
        let log = std::fs::File::create(self.log()).unwrap();
        let mut command = tidegate();
        command
            .arg("agent")
            .arg("-c")
            .arg(&file)
            .stdout(Stdio::null())
            .stderr(log);
        self.process = Some(Process::start(&mut command));
    }

    /// Ends it and starts it with another key file, at the same address.
    pub(crate) fn restart_with(&mut self, key: &Path) {
        self.kill();
        self.key = key.to_path_buf();
        self.revive();
    }

    /// The file with what it has said since it was started.
    pub(crate) fn log(&self) -> PathBuf {
        self.key
            .with_file_name(format!("agent-{}.log", self.address.port()))
    }

    pub(crate) fn kill(&mut self) {
        self.process = None;
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.as_ref().expect("it was not killed").id()
    }

    /// Sends it a signal by its name.
    pub(crate) fn signal(&self, name: &str) {
        if let Some(process) = &self.process {
            process.signal(name);
        }
    }
}

/// A running front-end.
#[derive(Debug)]
pub(crate) struct FrontEnd {
    pub(crate) address: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) process: Process,
}

impl FrontEnd {
    /// Starts one with this configuration, to which listener and admin are added.
    pub(crate) fn start(folder: &Path, configuration: &str) -> Self {
        Self::start_with(folder, configuration, "")
    }

    /// The same, with more in the admin's table.
    pub(crate) fn start_with(folder: &Path, configuration: &str, more: &str) -> Self {
        Self::launch(tidegate(), folder, configuration, more)
    }

    /// By this command, which has an environment of its own, say.
    pub(crate) fn start_by(command: Command, folder: &Path, configuration: &str) -> Self {
        Self::launch(command, folder, configuration, "")
    }

    /// As a process that may have so many files open.
    pub(crate) fn start_with_files(folder: &Path, configuration: &str, files: usize) -> Self {
        let mut limited = Command::new("sh");
        let script = format!("ulimit -n {files} && exec \"$0\" \"$@\"");
        limited.args(["-c", &script, env!("CARGO_BIN_EXE_tidegate")]);
        Self::launch(limited, folder, configuration, "")
    }

    fn launch(mut command: Command, folder: &Path, configuration: &str, more: &str) -> Self {
        let [address, admin] = [(); 2].map(|()| free_address());
        let file = folder.join("tidegate.toml");
        let text = format!(
            "{configuration}\n[admin]\naddress = \"{admin}\"\n{more}\n[[listener]]\naddress = \"{address}\"\n"
        );
        std::fs::write(&file, text).unwrap();
        let log = std::fs::File::create(folder.join("front-end.log")).unwrap();
        command
            .arg("run")
            .arg("-c")
            .arg(&file)
            .stdout(Stdio::null())
            .stderr(log);
        let process = Process::start(&mut command);
        let mut front_end = Self {
            address,
            admin,
            process,
        };
        eventually("the front-end is ready", || {
            let ended = front_end.process.0.try_wait().unwrap();
            assert_eq!(ended, None, "the front-end ended");
            (ask(admin, "/readyz")?.status == 200).then_some(())
        });
        front_end
    }

    /// GET of a path of a site.
    pub(crate) fn get(&self, host: &str, path: &str) -> Response {
        let text = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        request(self.address, &text).expect("the front-end answers")
    }

    /// The JSON of a path of the admin API.
    pub(crate) fn api(&self, path: &str) -> serde_json::Value {
        let response = ask(self.admin, path).expect("the admin API answers");
        assert_eq!(response.status, 200, "{path}: {}", response.body);
        serde_json::from_str(&response.body).expect("the admin API speaks JSON")
    }

    /// The value of the first metric whose line starts so.
    pub(crate) fn metric(&self, start: &str) -> Option<f64> {
        let response = ask(self.admin, "/metrics")?;
        let line = response
            .body
            .lines()
            .find(|line| line.starts_with(start))?
            .to_owned();
        line.rsplit(' ').next()?.parse().ok()
    }
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

/// GET of an admin path, which must be asked for by address.
pub(crate) fn ask(admin: SocketAddr, path: &str) -> Option<Response> {
    let text = format!("GET {path} HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n");
    request(admin, &text)
}

/// Sends these bytes and reads to the end of the connection; nothing if that failed.
pub(crate) fn request(address: SocketAddr, text: &str) -> Option<Response> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(patience())).ok()?;
    stream.write_all(text.as_bytes()).ok()?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some(Response {
        status,
        head: head.to_owned(),
        body: dechunked(head, body),
    })
}

/// The body without its chunk framing, where it has one.
fn dechunked(head: &str, body: &str) -> String {
    if !head
        .to_ascii_lowercase()
        .contains("transfer-encoding: chunked")
    {
        return body.to_owned();
    }
    let (mut rest, mut whole) = (body, String::new());
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
        if size == 0 || after.len() < size + 2 {
            break;
        }
        whole.push_str(&after[..size]);
        rest = &after[size + 2..];
    }
    whole
}
