//! What clients of a listener with TLS may do wrong, and those that leave.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use std::io::{BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};

use support::scene::{Cluster, Scene};
use support::server::{head, server};
use support::tls::{Authority, Pair, end_sending};
use support::{PATIENCE, eventually, free_address};

struct Secure {
    scene: Scene,
    address: SocketAddr,
    authority: Authority,
    pair: Pair,
}

impl Secure {
    /// None where openssl is not installed.
    fn start(name: &str, node: SocketAddr, more: &str, admission: &str) -> Option<Self> {
        let authority = Authority::new(&support::folder(&format!("{name}-certificates")))?;
        let pair = authority.issue("a", &["a.example"]);
        let keys = pair.keys();
        let address = free_address();
        let text = format!(
            "{more}\n[[listener]]\naddress = \"{address}\"\ntls = {{ {keys} }}\n\
             [[site]]\nname = \"shop\"\n{admission}\n\
             [[node]]\nname = \"n1\"\nsite = \"shop\"\naddress = \"{node}\"\n"
        );
        let scene = Scene::start(name, &Cluster::default().more(&text));
        Some(Self {
            scene,
            address,
            authority,
            pair,
        })
    }

    #[track_caller]
    fn counts(&self, start: &str, wanted: f64) {
        eventually(start, || {
            (self.scene.front_end.metric(start) == Some(wanted)).then_some(())
        });
    }

    #[track_caller]
    fn failed(&self, reason: &str, wanted: f64) {
        let name = format!("tidegate_tls_handshake_failures_total{{reason=\"{reason}\"}}");
        self.counts(&name, wanted);
    }

    fn plain(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// What comes back for these bytes; a reset ends it as well.
    fn answer(&self, bytes: &[u8]) -> Vec<u8> {
        let mut stream = self.plain();
        // The other side may have closed by then.
        if stream.write_all(bytes).is_ok() {
            stream.shutdown(Shutdown::Write).ok();
        }
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).ok();
        answer
    }

    #[track_caller]
    fn serves(&self) {
        let answer = self.authority.client().get(self.address, "a.example", "/");
        assert!(answer.unwrap().starts_with("HTTP/1.1 200 "));
    }
}

/// A ClientHello of a real client.
fn hello() -> Vec<u8> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap().to_string();
    let mut client = std::process::Command::new("openssl");
    client.args(["s_client", "-connect", &to, "-servername", "a.example"]);
    client.stdin(std::process::Stdio::null());
    client.stdout(std::process::Stdio::null());
    client.stderr(std::process::Stdio::null());
    let mut client = client.spawn().unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    let mut record = [0; 5];
    stream.read_exact(&mut record).unwrap();
    let mut hello = vec![0; usize::from(u16::from_be_bytes([record[3], record[4]]))];
    stream.read_exact(&mut hello).unwrap();
    drop(stream);
    client.wait().unwrap();
    [&record[..], &hello].concat()
}

#[test]
fn plain_http_is_told_so_and_what_is_no_handshake_ends() {
    let Some(secure) = Secure::start("tls-garbage", server("a"), "", "") else {
        return;
    };
    let answer = secure.answer(b"GET / HTTP/1.1\r\nhost: a.example\r\n\r\n");
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert!(
        answer.contains("x-tidegate-reason: plain_http\r\n"),
        "{answer}"
    );
    assert!(answer.contains("https://"), "{answer}");
    secure.failed("plain_http", 1.0);
    let hello = hello();
    let mut malformed = 0;
    let zeros = [vec![22, 3, 1, 0xff, 0xff], vec![0; 70_000]].concat();
    let mut twisted = hello.clone();
    twisted[5] = 0xff;
    for bytes in [b"\0\x01\x02\x03".to_vec(), zeros, twisted, vec![22; 100]] {
        secure.answer(&bytes);
        malformed += 1;
        secure.failed("malformed", f64::from(malformed));
    }
    let mut gone = 0;
    for length in [0, 1, 4, 5, 6, 60, hello.len() - 1, hello.len()] {
        secure.answer(&hello[..length]);
        gone += 1;
        secure.failed("gone", f64::from(gone));
    }
    secure.serves();
}

#[test]
fn bytes_at_random_neither_end_the_front_end_nor_stay_uncounted() {
    let Some(secure) = Secure::start("tls-random", server("a"), "", "") else {
        return;
    };
    let hello = hello();
    // A generator by Lehmer; its seed is the test's.
    let mut state: u64 = 0x7469_6465;
    let mut next = move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as usize
    };
    const ROUNDS: u32 = 200;
    for _ in 0..ROUNDS {
        let mut bytes = hello.clone();
        for _ in 0..=next() % 8 {
            let at = 1 + next() % (bytes.len() - 1);
            bytes[at] = next() as u8;
        }
        bytes.truncate(1 + next() % bytes.len());
        secure.answer(&bytes);
    }
    eventually("each has failed in some way", || {
        let reasons = ["malformed", "gone", "incompatible", "refused"];
        let counts = reasons.map(|reason| {
            let name = format!("tidegate_tls_handshake_failures_total{{reason=\"{reason}\"}}");
            secure.scene.front_end.metric(&name).unwrap()
        });
        (counts.iter().sum::<f64>() == f64::from(ROUNDS)).then_some(())
    });
    secure.serves();
    secure.counts("tidegate_worker_failures_total", 0.0);
}

#[test]
fn a_slow_handshake_is_cut_at_the_time_for_a_head() {
    let more = "[timeouts]\nclient_head = \"300ms\"\n";
    let Some(secure) = Secure::start("tls-slow", server("a"), more, "") else {
        return;
    };
    let hello = hello();
    let mut silent = secure.plain();
    let mut slow = secure.plain();
    slow.write_all(&hello[..50]).unwrap();
    for stream in [&mut silent, &mut slow] {
        assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0);
    }
    secure.failed("timeout", 2.0);
    // What is left of the time is for the head.
    let client = secure.authority.client();
    let mut connection = client.connect(secure.address, "a.example").unwrap();
    connection.write_all(b"GET / HTTP/1.1\r\n").unwrap();
    let mut answer = Vec::new();
    connection.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
}

#[test]
fn a_malformed_head_gets_its_answer_through_tls() {
    let Some(secure) = Secure::start("tls-malformed", server("a"), "", "") else {
        return;
    };
    let client = secure.authority.client();
    let mut connection = client.connect(secure.address, "a.example").unwrap();
    connection
        .write_all(b"GET / HTTP/1.1\r\nbad header\r\n\r\n")
        .unwrap();
    let mut answer = Vec::new();
    connection.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8(answer).unwrap();
    assert!(
        answer.contains("x-tidegate-reason: bad_request\r\n"),
        "{answer}"
    );
}

#[test]
fn a_connection_too_many_is_refused_before_a_handshake() {
    let more = "[limits]\nconnections = 1\nworkers = 1\n";
    let (node, open) = gated();
    let Some(secure) = Secure::start("tls-limit", node, more, "") else {
        return;
    };
    let client = secure.authority.client();
    let mut kept = client.connect(secure.address, "a.example").unwrap();
    kept.write_all(ASKED).unwrap();
    secure.counts("tidegate_site_requests_in_flight{site=\"shop\"}", 1.0);
    // A fatal alert, `internal_error`, without a byte of ours.
    let mut refused = Vec::new();
    secure.plain().read_to_end(&mut refused).unwrap();
    assert_eq!(refused, [21, 3, 3, 0, 2, 2, 80]);
    let error = client.connect(secure.address, "a.example").unwrap_err();
    assert!(error.to_string().contains("InternalError"), "{error}");
    secure.counts(
        "tidegate_tls_handshakes_total{version=\"1.3\",resumed=\"false\"}",
        1.0,
    );
    open.send(()).unwrap();
    let mut answer = String::new();
    kept.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    eventually("there is room again", || {
        client.connect(secure.address, "a.example").ok()
    });
}

#[test]
fn an_idle_connection_that_gives_way_ends_with_a_goodbye() {
    let more = "[limits]\nconnections = 1\nworkers = 1\n";
    let Some(secure) = Secure::start("tls-evicted", server("a"), more, "") else {
        return;
    };
    let client = secure.authority.client();
    let mut kept = client.connect(secure.address, "a.example").unwrap();
    kept.write_all(b"GET / HTTP/1.1\r\nhost: a.example\r\n\r\n")
        .unwrap();
    let newer = eventually("a new client is let in", || {
        client.connect(secure.address, "a.example").ok()
    });
    // An end without `close_notify` would be an error.
    let mut answer = String::new();
    kept.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    secure.counts("tidegate_client_connections_evicted_total", 1.0);
    drop(newer);
}

/// A node that answers each request when the sender says so.
fn gated() -> (SocketAddr, Sender<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (open, gate) = channel();
    let gate = Arc::new(Mutex::new(gate));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, gate) = (stream.unwrap(), Arc::clone(&gate));
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                while head(&mut reader).is_some() {
                    if gate.lock().unwrap().recv().is_err() {
                        return;
                    }
                    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\na";
                    stream.write_all(answer).unwrap();
                }
            });
        }
    });
    (address, open)
}

const ASKED: &[u8] = b"GET / HTTP/1.1\r\nhost: a.example\r\nconnection: close\r\n\r\n";

#[test]
fn a_client_that_leaves_while_it_waits_is_gone_and_one_that_ends_its_sending_is_answered() {
    let admission = "admission = { mode = \"maxconn\", connections = 1, queue_timeout = \"60s\" }";
    let (node, open) = gated();
    let more = "[limits]\nworkers = 1\n";
    let Some(secure) = Secure::start("tls-gone", node, more, admission) else {
        return;
    };
    let client = secure.authority.client();
    let connect = || client.connect(secure.address, "a.example").unwrap();
    let mut served = connect();
    served.write_all(ASKED).unwrap();
    secure.counts("tidegate_site_requests_in_flight{site=\"shop\"}", 1.0);
    let queued = |count| secure.counts("tidegate_site_queued{site=\"shop\"}", count);
    // With the end of TLS and without it.
    for says_goodbye in [true, false] {
        let mut leaves = connect();
        leaves.write_all(ASKED).unwrap();
        queued(1.0);
        if says_goodbye {
            leaves.conn.send_close_notify();
            leaves.flush().unwrap();
        }
        drop(leaves);
        queued(0.0);
    }
    // One that sends nothing more and reads on stays.
    let mut half = connect();
    half.write_all(ASKED).unwrap();
    queued(1.0);
    end_sending(&mut half);
    let probe = b"HTTP/1.1 100 Continue\r\n\r\n";
    let mut interim = vec![0; probe.len()];
    half.read_exact(&mut interim).unwrap();
    assert_eq!(interim, probe);
    for connection in [&mut served, &mut half] {
        open.send(()).unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
}

#[test]
fn a_key_stands_in_no_log_and_in_no_answer() {
    let Some(secure) = Secure::start("tls-secret", server("a"), "", "") else {
        return;
    };
    secure.serves();
    let key = std::fs::read_to_string(&secure.pair.key).unwrap();
    let secret = key.lines().nth(1).unwrap();
    // A reload that fails has something to say of the key.
    let other = secure.authority.issue("other", &["a.example"]);
    std::fs::copy(&other.certificate, &secure.pair.certificate).unwrap();
    let refused = secure.scene.command(&["reload"]);
    assert!(!refused.status.success());
    let file = secure.scene.file();
    let printed = support::tidegate()
        .arg("config")
        .arg(&file)
        .output()
        .unwrap();
    let status = secure.scene.front_end.api("/api/status").to_string();
    let said = [
        refused.stdout,
        refused.stderr,
        printed.stdout,
        printed.stderr,
    ]
    .concat();
    let said = String::from_utf8(said).unwrap();
    for text in [secure.scene.log(), status, said] {
        assert!(!text.contains(secret), "{text}");
    }
}
