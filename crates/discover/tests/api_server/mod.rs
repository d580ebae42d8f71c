//! A real `kube-apiserver` with its etcd, on loopback, as long as a test lasts.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

/// Tries until a process answers, and the time between two.
const TRIES: usize = 600;
const PAUSE: Duration = Duration::from_millis(100);
/// The operator's token.
pub(crate) const ADMIN: &str = "an-operators-token";

struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _killed = self.0.kill();
        let _status = self.0.wait();
    }
}

pub(crate) struct ApiServer {
    folder: PathBuf,
    program: PathBuf,
    port: u16,
    etcd_port: u16,
    api: Option<Process>,
    _etcd: Process,
}

impl ApiServer {
    /// None, with a reason, where something is missing.
    pub(crate) fn start(test: &str) -> Option<Self> {
        let program = match program() {
            Ok(program) => program,
            Err(why) => {
                println!("SKIPPED: {why}");
                return None;
            }
        };
        for needed in ["etcd", "openssl", "curl"] {
            if Command::new(needed).arg("version").output().is_err() {
                println!("SKIPPED: {needed} is not installed");
                return None;
            }
        }
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
        if folder.exists() {
            std::fs::remove_dir_all(&folder).unwrap();
        }
        std::fs::create_dir_all(&folder).unwrap();
        let made = Command::new("openssl")
            .args(["genrsa", "-out"])
            .arg(folder.join("accounts.key"))
            .arg("2048")
            .output();
        assert!(made.unwrap().status.success());
        let tokens = format!("{ADMIN},operator,1,system:masters\n");
        std::fs::write(folder.join("tokens.csv"), tokens).unwrap();
        let [etcd_port, peer_port, port] = free_ports();
        let etcd = start_etcd(&folder, etcd_port, peer_port);
        let mut server = Self {
            folder,
            program,
            port,
            etcd_port,
            api: None,
            _etcd: etcd,
        };
        server.revive();
        Some(server)
    }

    /// Starts it where it was, and waits until it answers.
    pub(crate) fn revive(&mut self) {
        let log = File::create(self.folder.join("api.log")).unwrap();
        let path = |name: &str| self.folder.join(name).display().to_string();
        let mut command = Command::new(&self.program);
        command
            .arg(format!(
                "--etcd-servers=http://127.0.0.1:{}",
                self.etcd_port
            ))
            .arg(format!("--secure-port={}", self.port))
            .arg("--bind-address=127.0.0.1")
            .arg(format!("--cert-dir={}", path("certificates")))
            .arg(format!("--token-auth-file={}", path("tokens.csv")))
            .arg(format!(
                "--service-account-key-file={}",
                path("accounts.key")
            ))
            .arg(format!(
                "--service-account-signing-key-file={}",
                path("accounts.key")
            ))
            .arg("--service-account-issuer=https://kubernetes.default.svc")
            .args([
                "--authorization-mode=RBAC",
                "--service-cluster-ip-range=10.96.0.0/24",
            ])
            .stdout(Stdio::null())
            .stderr(log);
        self.api = Some(Process(command.spawn().unwrap()));
        for _ in 0..TRIES {
            if self.send("GET", "/readyz", "").is_ok_and(|it| it == "ok") {
                return;
            }
            std::thread::park_timeout(PAUSE);
        }
        let log = std::fs::read_to_string(self.folder.join("api.log")).unwrap();
        panic!("no API server: {log}");
    }

    pub(crate) fn kill(&mut self) {
        self.api = None;
    }

    pub(crate) fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// Its certificate, and that of the authority that it has made for it.
    pub(crate) fn ca_file(&self) -> PathBuf {
        self.folder.join("certificates/apiserver.crt")
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// What the operator does: an object in YAML, of which JSON is a part.
    pub(crate) fn put(&self, method: &str, path: &str, body: &str) -> Value {
        let text = self.send(method, path, body).unwrap();
        let value: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{path}: {text}"));
        assert_ne!(value["status"], "Failure", "{method} {path}: {text}");
        value
    }

    fn send(&self, method: &str, path: &str, body: &str) -> Result<String, String> {
        let kind = match method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/yaml",
        };
        let output = Command::new("curl")
            .args([
                "--silent",
                "--show-error",
                "--max-time",
                "20",
                "--request",
                method,
            ])
            .arg("--cacert")
            .arg(self.ca_file())
            .args(["--header", &format!("Authorization: Bearer {ADMIN}")])
            .args(["--header", &format!("Content-Type: {kind}")])
            .args(["--data-binary", body])
            .arg(format!("{}{path}", self.url()))
            .output()
            .map_err(|error| error.to_string())?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }
}

fn start_etcd(folder: &Path, port: u16, peer_port: u16) -> Process {
    let log = File::create(folder.join("etcd.log")).unwrap();
    let (client, peer) = (
        format!("http://127.0.0.1:{port}"),
        format!("http://127.0.0.1:{peer_port}"),
    );
    let mut command = Command::new("etcd");
    command
        .arg("--data-dir")
        .arg(folder.join("etcd"))
        .args([
            "--listen-client-urls",
            &client,
            "--advertise-client-urls",
            &client,
        ])
        .args([
            "--listen-peer-urls",
            &peer,
            "--initial-advertise-peer-urls",
            &peer,
        ])
        .args(["--initial-cluster", &format!("default={peer}")])
        .stdout(Stdio::null())
        .stderr(log);
    Process(command.spawn().unwrap())
}

fn free_ports() -> [u16; 3] {
    let listeners = [0; 3].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

/// Where `cargo xtask kubernetes` puts it.
fn program() -> Result<PathBuf, String> {
    if let Some(program) = std::env::var_os("TIDEGATE_KUBE_APISERVER") {
        return Ok(program.into());
    }
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../xtask/kubernetes/go.mod");
    let text = std::fs::read_to_string(module).unwrap();
    let version = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("k8s.io/kubernetes "));
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
    let cache = cache.or_else(home).unwrap_or_default();
    let program = cache.join(format!("tidegate/kube-apiserver-{}", version.unwrap()));
    match program.exists() {
        true => Ok(program),
        false => Err("kube-apiserver is not built: `cargo xtask kubernetes`".into()),
    }
}
