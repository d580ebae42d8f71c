//! A real ACME authority of the tests' own, Pebble, which is built here from `xtask/pebble`, and a name server that sends it to this host.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use super::tls::{Authority, Client};
use super::{Process, eventually, free_address, is_installed};

/// Bytes of the header of a message of DNS (RFC 1035 §4.1.1).
const HEADER: usize = 12;

/// The program, built once; none where its sources cannot be had.
#[expect(clippy::print_stdout, reason = "how a test says that it could not run")]
pub(crate) fn pebble() -> Option<&'static Path> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    if !is_installed("go") {
        return None;
    }
    let built = BUILT.get_or_init(|| {
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pebble");
        let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../xtask/pebble");
        let mut command = Command::new("go");
        command
            .current_dir(module)
            .args(["build", "-o"])
            .arg(&program);
        let built = command.arg("github.com/letsencrypt/pebble/v2/cmd/pebble");
        let built = built.output().unwrap();
        let error = String::from_utf8_lossy(&built.stderr);
        match built.status.success() {
            true => Ok(program),
            false => Err(error.trim().to_owned()),
        }
    });
    if let Err(error) = built {
        println!("SKIPPED: Pebble cannot be had: {error}");
    }
    built.as_deref().ok()
}

/// What Pebble is to do.
pub(crate) struct Pebble {
    program: &'static Path,
    folder: PathBuf,
    /// The authority of Pebble's own server.
    servers: Authority,
    /// Where it is asked.
    directory: SocketAddr,
    management: SocketAddr,
    /// Where it looks for proof by `http-01`, and by `tls-alpn-01`.
    pub(crate) proofs: [SocketAddr; 2],
    /// Seconds for which certificates are valid.
    pub(crate) life: u64,
    /// Questions of a hundred that it refuses for their nonces.
    pub(crate) refused_nonces: u8,
    process: Option<Process>,
}

impl Pebble {
    /// One that is down; none where it cannot be had.
    pub(crate) fn new(folder: &Path) -> Option<Self> {
        Some(Self {
            program: pebble()?,
            folder: folder.to_owned(),
            servers: Authority::named(folder, "acme")?,
            directory: free_address(),
            management: free_address(),
            proofs: [free_address(), free_address()],
            life: 90 * 24 * 3600,
            refused_nonces: 0,
            process: None,
        })
    }

    /// The keys of `[acme]` that name it.
    pub(crate) fn keys(&self) -> String {
        format!(
            "directory = \"{}\"\nauthorities = \"{}\"\n",
            self.url(),
            self.servers.file().display()
        )
    }

    pub(crate) fn url(&self) -> String {
        format!("https://localhost:{}/dir", self.directory.port())
    }

    /// The file with those that have signed its server's certificate.
    pub(crate) fn authorities(&self) -> PathBuf {
        self.servers.file()
    }

    /// Starts it. It refuses `blocked.test`.
    pub(crate) fn revive(&mut self) {
        let own = self.servers.issue("pebble", &["localhost"]);
        let [http, tls] = self.proofs.map(|it| it.port());
        let config = serde_json::json!({ "pebble": {
            "listenAddress": self.directory.to_string(),
            "managementListenAddress": self.management.to_string(),
            "certificate": own.certificate, "privateKey": own.key,
            "httpPort": http, "tlsPort": tls,
            "domainBlocklist": ["blocked.test"],
            "retryAfter": { "authz": 1, "order": 1 },
            "keyAlgorithm": "ecdsa",
            "profiles": { "default": { "description": "all", "validityPeriod": self.life } },
        }});
        let file = self.folder.join("pebble.json");
        std::fs::write(&file, config.to_string()).unwrap();
        let log = std::fs::File::create(self.folder.join("pebble.log")).unwrap();
        let mut command = Command::new(self.program);
        command
            .arg("-config")
            .arg(&file)
            .args(["-dnsserver", &name_server().to_string()])
            .env("PEBBLE_VA_NOSLEEP", "1")
            .env("PEBBLE_WFE_NONCEREJECT", self.refused_nonces.to_string())
            .stdout(log.try_clone().unwrap())
            .stderr(Stdio::from(log));
        self.process = Some(Process::start(&mut command));
        let client = self.servers.client();
        eventually("Pebble answers", || {
            client.get(self.directory, "localhost", "/dir").ok()
        });
        let root = eventually("Pebble shows its root", || {
            client.get(self.management, "localhost", "/roots/0").ok()
        });
        let root = &root[root.find("-----BEGIN").unwrap()..];
        std::fs::write(self.root(), root).unwrap();
    }

    pub(crate) fn kill(&mut self) {
        self.process = None;
    }

    fn root(&self) -> PathBuf {
        self.folder.join("root.pem")
    }

    /// A client that believes the certificates that it issues.
    pub(crate) fn client(&self) -> Client {
        Client::believing(self.root())
    }

    /// What it has been asked, in lines.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("pebble.log")).unwrap()
    }
}

/// One by which every name is this host.
fn name_server() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || while serve(&mut stream).is_ok() {});
        }
    });
    address
}

/// Answers one question. By TCP, each message follows its length (RFC 1035 §4.2.2).
fn serve(stream: &mut TcpStream) -> std::io::Result<()> {
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut asked = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut asked)?;
    let answer = answer(&asked);
    let length = (answer.len() as u16).to_be_bytes();
    stream.write_all(&[&length[..], &answer].concat())
}

/// The address of this host where one of IPv4 is asked for, else none.
fn answer(asked: &[u8]) -> Vec<u8> {
    let name = asked[HEADER..].iter().position(|byte| *byte == 0).unwrap();
    let question = &asked[HEADER..HEADER + name + 5];
    let is_ipv4 = question[name + 1..name + 3] == [0, 1];
    let answers = u8::from(is_ipv4);
    let mut message = asked[..2].to_vec();
    message.extend([0x81, 0x80, 0, 1, 0, answers, 0, 0, 0, 0]);
    message.extend(question);
    if is_ipv4 {
        message.extend([0xc0, HEADER as u8, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4]);
        message.extend(Ipv4Addr::LOCALHOST.octets());
    }
    message
}
