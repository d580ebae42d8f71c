//! nginx as a node's server: files of all the usual sizes.
//!
//! It serves `/work?bytes=N` for N = 0 and the powers of two up to 16 MiB, which is the work that
//! it is made for, and `/health`. It has nothing that computes, sleeps or holds memory on
//! demand: a request with `cpu`, `mem`, `sleep`, `fds` or `file`, or with another number of
//! bytes, is refused with 400.

use std::fmt::Write;
use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use super::{NOBODY, make_folder, program, write};
use crate::cluster::{ClusterError, Place};

/// The largest file is two to this power.
const LARGEST: u32 = 24;
/// What it cannot do.
const REFUSED: [&str; 5] = ["cpu", "mem", "sleep", "fds", "file"];

pub(super) fn command(
    address: SocketAddr,
    place: &Place,
    folder: &Path,
) -> Result<Command, ClusterError> {
    let nginx = program(&["nginx"], "nginx-light")?;
    let files = folder.join("files");
    make_folder(&files)?;
    for bytes in std::iter::once(0).chain((0..=LARGEST).map(|power| 1 << power)) {
        let path = files.join(format!("{bytes}"));
        // Without content: it takes no memory, and is sent as any other file.
        let made = File::create(&path).and_then(|file| file.set_len(bytes));
        made.map_err(ClusterError::file("make", path))?;
    }
    let path = folder.join("nginx.conf");
    write(&path, &config(address, folder))?;
    let mut command = place.command(nginx);
    command.arg("-e").arg(folder.join("error.log"));
    command.arg("-c").arg(path);
    Ok(command)
}

fn config(address: SocketAddr, folder: &Path) -> String {
    let folder = folder.display();
    let mut refused = String::new();
    for name in REFUSED {
        // Writing to a string cannot fail.
        writeln!(
            refused,
            "      if ($arg_{name}) {{ return 400 \"nginx does no {name} on demand\\n\"; }}"
        )
        .ok();
    }
    format!(
        "user {user};
worker_processes 1;
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log warn;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  sendfile on;
  tcp_nopush on;
  tcp_nodelay on;
  keepalive_requests 1000000000;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  map $arg_bytes $size {{ '' 0; default $arg_bytes; }}
  server {{
    listen {address} backlog=4096;
    root {folder}/files;
    location = /health {{ return 200 \"fine\\n\"; }}
    location = /work {{
{refused}      try_files /$size @none;
    }}
    location @none {{ return 400 \"there are files of 0 bytes and of powers of two up to 16 MiB\\n\"; }}
  }}
}}
",
        user = user(),
    )
}

/// nginx wants names; without root it keeps its user.
fn user() -> String {
    let name = |file: &str| -> Option<String> {
        let text = std::fs::read_to_string(file).ok()?;
        let number = NOBODY.to_string();
        let of = |line: &str| line.split(':').nth(2) == Some(&number);
        let line = text.lines().find(|line| of(line))?;
        line.split(':').next().map(str::to_owned)
    };
    let names = [name("/etc/passwd"), name("/etc/group")];
    let [user, group] = names.map(|name| name.unwrap_or_else(|| "nobody".into()));
    format!("{user} {group}")
}
