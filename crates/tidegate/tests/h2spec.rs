//! Conformance with HTTP/2: every case of h2spec, which is built here from `xtask/h2spec`, against a listener with TLS and one without.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]
#![expect(clippy::print_stdout, reason = "how a test says that it could not run")]

mod support;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::scene::Cluster;
use support::server::patient_server;
use support::tls::Authority;
use support::{FrontEnd, folder, free_address, is_installed};

/// All that it has, for HTTP/2 and for HPACK.
const CASES: usize = 145;

/// The program; none where its sources cannot be had.
fn built(folder: &Path) -> Option<PathBuf> {
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../xtask/h2spec");
    let program = folder.join("h2spec");
    let mut command = Command::new("go");
    command
        .current_dir(module)
        .args(["build", "-o"])
        .arg(&program);
    let built = command.arg("github.com/summerwind/h2spec/cmd/h2spec");
    let built = built.output().unwrap();
    if !built.status.success() {
        let error = String::from_utf8_lossy(&built.stderr);
        println!("SKIPPED: h2spec cannot be had: {}", error.trim());
        return None;
    }
    Some(program)
}

fn all_hold(program: &Path, at: SocketAddr, options: &[&str]) {
    let (host, port) = (at.ip().to_string(), at.port().to_string());
    let mut command = Command::new(program);
    command.args(["-h", &host, "-p", &port, "-o", "10"]);
    let output = command.args(options).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let wanted = format!("{CASES} tests, {CASES} passed, 0 skipped, 0 failed");
    assert!(said.contains(&wanted), "{options:?}: {said}");
}

#[test]
fn every_case_of_h2spec_holds() {
    if !is_installed("go") {
        return;
    }
    let folder = folder("h2spec");
    let Some(program) = built(&folder) else {
        return;
    };
    let plain = free_address();
    let listener = format!("[[listener]]\naddress = \"{plain}\"\nprotocols = [\"h2\"]\n");
    let authority = Authority::new(&support::folder("h2spec-keys"));
    let secure = authority.map(|it| (free_address(), it.issue("shop", &["shop.example"]).keys()));
    let with_tls = secure.as_ref().map(|(address, keys)| {
        format!("[[listener]]\naddress = \"{address}\"\ntls = {{ {keys} }}\n")
    });
    let cluster = Cluster::default()
        .site("shop", "*")
        .node("n1", patient_server("an answer of some length"), "shop")
        .more(&[listener, with_tls.unwrap_or_default()].concat());
    let front_end = FrontEnd::start(&folder, &cluster.text());
    all_hold(&program, plain, &[]);
    if let Some((address, _)) = secure {
        all_hold(&program, address, &["-t", "-k"]);
    }
    // It is still there for others.
    assert_eq!(
        front_end.get("shop.example", "/").body,
        "an answer of some length"
    );
}
