//! A stock HAProxy with one backend, `b`.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{Process, eventually, free_address};

/// See the module.
pub(crate) struct Haproxy {
    pub(crate) socket: PathBuf,
    /// Where clients connect.
    pub(crate) address: SocketAddr,
    folder: PathBuf,
    process: Process,
}

impl Haproxy {
    /// Its servers, a line each.
    pub(crate) fn start(folder: &Path, servers: &[String]) -> Self {
        let (socket, address) = (socket(folder), free_address());
        let mut text = format!(
            "global\n  stats socket {} level admin\ndefaults\n  mode http\n  timeout connect 1s\n  timeout client 60s\n  \
             timeout server 60s\nfrontend f\n  bind {address}\n  default_backend b\nbackend b\n",
            socket.display()
        );
        for server in servers {
            text.push_str(&format!("  {server}\n"));
        }
        std::fs::write(folder.join("haproxy.cfg"), text).unwrap();
        Self {
            address,
            process: launch(folder, &socket),
            socket,
            folder: folder.into(),
        }
    }

    /// Ends it and starts it again.
    pub(crate) fn restart(&mut self) {
        self.process.end("TERM");
        self.process = launch(&self.folder, &self.socket);
    }

    /// The answer to a command.
    pub(crate) fn say(&self, command: &str) -> String {
        let mut stream = UnixStream::connect(&self.socket).unwrap();
        stream.write_all(format!("{command}\n").as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    /// A column of `show stat` for a server.
    pub(crate) fn stat(&self, server: &str, column: &str) -> String {
        let text = self.say("show stat");
        let mut lines = text
            .lines()
            .map(|line| line.trim_start_matches("# ").split(','));
        let at = lines.next().unwrap().position(|it| it == column).unwrap();
        let mut line = lines.find_map(|line| {
            let fields: Vec<_> = line.collect();
            (fields.get(1) == Some(&server)).then_some(fields)
        });
        line.as_mut().expect("the server is there")[at].to_owned()
    }

    /// A server's weight.
    pub(crate) fn weight(&self, server: &str) -> u32 {
        self.stat(server, "weight").parse().unwrap()
    }
}

/// Where the one in this folder takes commands.
pub(crate) fn socket(folder: &Path) -> PathBuf {
    folder.join("haproxy.sock")
}

fn launch(folder: &Path, socket: &Path) -> Process {
    let log = std::fs::File::create(folder.join("haproxy.log")).unwrap();
    let mut command = Command::new("haproxy");
    command.args(["-db", "-f"]).arg(folder.join("haproxy.cfg"));
    let process = Process::start(command.stdout(Stdio::null()).stderr(log));
    eventually("HAProxy's socket", || UnixStream::connect(socket).ok());
    process
}
