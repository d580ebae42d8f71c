//! Checks of services that do not speak HTTP, with a real front-end, and with real servers where there are any.

#![allow(clippy::unwrap_used, reason = "test code")]
#![allow(dead_code, reason = "not every test file needs all of `support`")]

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;
use support::name_server::NameServer;
use support::{FrontEnd, eventually, folder};

/// A site of one node at this address, which is checked so.
fn site(name: &str, address: SocketAddr, check: &str) -> String {
    format!(
        "[[site]]\nname = \"{name}\"\nhosts = [\"{name}.example\"]\n\
         [site.check]\ninterval = \"100ms\"\nfall = 2\nport = {port}\n{check}\n\
         [[node]]\nname = \"{name}-1\"\naddress = \"{address}\"\nsite = \"{name}\"\n",
        port = address.port(),
    )
}

struct Scene(FrontEnd);

impl Scene {
    /// Waits until the node of a site is as wanted by its checks.
    #[track_caller]
    fn wait(&self, site: &str, what: &str, wanted: impl Fn(&Value) -> bool) {
        eventually(&format!("{site}: {what}"), || {
            let status = self.0.api("/api/status");
            let sites = status["sites"].as_array().unwrap();
            let found = sites.iter().find(|it| it["name"] == site).unwrap();
            wanted(&found["nodes"][0]["check"]).then_some(())
        });
    }

    #[track_caller]
    fn passes(&self, site: &str) {
        self.wait(site, "passes", |check| {
            check["failing"] == false && check["passed"].as_u64() > Some(1)
        });
    }

    #[track_caller]
    fn fails(&self, site: &str, why: &str) {
        self.wait(site, why, |check| {
            check["failing"] == true && check["error"] == why
        });
        let reasons = self.0.api(&format!("/api/why/{site}-1"))["reasons"].to_string();
        assert!(reasons.contains("because its check fails"), "{reasons}");
        assert!(reasons.contains(why), "{reasons}");
    }
}

#[test]
fn what_a_server_says_over_a_connection_decides() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let loading = Arc::new(AtomicBool::new(false));
    let is_loading = Arc::clone(&loading);
    // Ends with the test's process.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, mut asked) = (stream.unwrap(), [0; 6]);
            if stream.read_exact(&mut asked).is_err() || asked != *b"PING\r\n" {
                continue;
            }
            let answer = match is_loading.load(Ordering::Relaxed) {
                true => "-LOADING the data\r\n",
                false => "+PONG\r\n",
            };
            stream.write_all(answer.as_bytes()).ok();
        }
    });
    let check = r#"kind = "tcp"
send = "PING\r\n"
expect = "+PONG""#;
    let text = site("store", address, check);
    let scene = Scene(FrontEnd::start(&folder("service-tcp"), &text));
    scene.passes("store");
    loading.store(true, Ordering::Relaxed);
    scene.fails("store", "the answer had not what is wanted");
    let metric = "tidegate_node_checks_total{site=\"store\",node=\"store-1\",result=\"answer\"}";
    assert!(scene.0.metric(metric) >= Some(2.0));
    loading.store(false, Ordering::Relaxed);
    scene.passes("store");
}

/// A question for the A records of `web.test`, as RFC 1035 has it.
const QUESTION: &str = "123401000001000000000000037765620474657374000001 0001";

#[test]
fn a_name_server_is_asked_for_a_name_and_by_a_datagram() {
    let folder = folder("service-dns");
    let known = "127.0.0.2 web.test\n";
    let Some(server) = NameServer::start(&folder, known) else {
        return;
    };
    let question = QUESTION.replace(' ', "");
    let text = [
        site(
            "names",
            server.address,
            "kind = \"dns\"\nname = \"web.test\"\nanswer = \"127.0.0.2\"",
        ),
        // Ends with the address as four bytes.
        site(
            "datagrams",
            server.address,
            &format!(
                "kind = \"udp\"\nsend = {{ hex = \"{question}\" }}\nexpect = {{ hex = \"00047f000002\" }}"
            ),
        ),
    ];
    let scene = Scene(FrontEnd::start(&folder, &text.concat()));
    scene.passes("names");
    scene.passes("datagrams");
    server.change("127.0.0.3 web.test\n");
    scene.fails("names", "the answer had not what is wanted");
    scene.fails("datagrams", "the answer had not what is wanted");
    server.change("127.0.0.2 other.test\n");
    scene.fails("names", "the response code was 3");
    server.process.signal("STOP");
    scene.fails("names", "no answer came in time");
    scene.fails("datagrams", "no answer came in time");
    server.process.signal("CONT");
    server.change(known);
    scene.passes("names");
    scene.passes("datagrams");
    drop(server);
    scene.fails("names", "nothing listens at the port");
    scene.fails("datagrams", "nothing listens at the port");
}
