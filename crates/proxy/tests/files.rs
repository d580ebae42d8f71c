//! Clients that come when the process has no file left: in a process of its own, since that strikes all of it.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::fs::File;

use common::{Bench, Node, until};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tidegate_proxy::Reason;

#[test]
fn without_a_file_each_client_is_refused_with_an_answer() {
    let limit = Rlimit {
        current: Some(200),
        ..getrlimit(Resource::Nofile)
    };
    setrlimit(Resource::Nofile, limit).unwrap();
    let node = Node::ok();
    let bench = Bench::with(&[node.address], |config| config.workers = 1);
    let mut served = bench.client();
    assert_eq!(served.get("/").status(), 200);
    let refused = || bench.snapshot().refused[Reason::TooManyConnections as usize];
    let mut files: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    let mut clients = Vec::new();
    for count in 1..=20 {
        // One file, for the client itself.
        files.pop();
        let mut client = bench.client();
        until("it is refused", || refused() == count);
        let answer = client.read_response(false);
        assert_eq!(
            (answer.status(), answer.reason()),
            (503, Some("too_many_connections"))
        );
        clients.push(client);
    }
    // Those that are served do not notice, and when there are files again all are.
    assert_eq!(served.get("/").status(), 200);
    drop(files);
    until("a client is let in", || {
        bench.client().get("/").status() == 200
    });
    assert_eq!(bench.snapshot().accept_errors, 0);
}
