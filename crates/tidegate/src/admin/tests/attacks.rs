//! What strangers, slow clients and listeners on the path can do to the admin interface: on sockets, and with a
//! clock that stands still.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONNECTION, WWW_AUTHENTICATE};
use http::{Method, Request, StatusCode};
use http_body_util::Full;
use hyper::body::{Body, Frame};
use tidegate_core::time::Timestamp;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::time::Instant;

use crate::admin::access::{Access, Right};
use crate::admin::plane::Plane;
use crate::admin::server::{
    BODY_BYTES_MAX, BODY_TIMEOUT, Desk, HEAD_BYTES_MAX, HEAD_TIMEOUT, HEADERS_MAX, bind, serve,
};
use crate::driver::Driver;
use crate::models::EXCHANGE;
use crate::output::Output;
use crate::peer_auth::{Identity, PeerGate, PeerKey, Question, offered_challenge};
use crate::seats::{PER_SOURCE_MAX, SEATS_MAX, Seats};
use crate::testing;
use crate::token::Token;
use tidegate_proxy::Ports;

const TOKEN: &str = "0123456789abcdef";
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// How long a test waits for what comes at once.
const PATIENCE: Duration = Duration::from_secs(30);

fn token() -> Token {
    Token::parse(TOKEN).unwrap()
}

fn key() -> PeerKey {
    PeerKey::derived(&token())
}

/// Asks for a token, and knows peers by it.
fn guarded() -> Access {
    let identity = Identity::random().unwrap();
    Access {
        token: Some(token()),
        read_token: None,
        peers: Some(PeerGate::new(key(), identity).unwrap()),
        identity: Some(identity),
    }
}

/// What a peer asks.
fn question(challenge: &str, target: &str) -> Question {
    let asked = (HERE, 9900).into();
    Question::new(challenge, Identity::random().unwrap(), asked, target).unwrap()
}

/// A server on a thread of its own, for as long as the test runs.
fn server(access: Access) -> (Driver, SocketAddr) {
    let (driver, plane) = testing::plane();
    let (bound, address) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        testing::runtime().block_on(async move {
            let listener = bind((HERE, 0).into(), Ports::default()).unwrap();
            bound.send(listener.local_addr().unwrap()).unwrap();
            serve(
                listener,
                move || Arc::clone(&plane),
                access,
                Output::QUIET,
                tokio::sync::mpsc::channel(1).0,
            )
            .await;
        });
    });
    (driver, address.recv().unwrap())
}

fn connect(address: SocketAddr, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    stream
}

/// The whole of what comes back.
fn answer(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn get(address: SocketAddr, path: &str, more: &str) -> String {
    let text = format!("GET {path} HTTP/1.1\r\nHost: h\r\n{more}Connection: close\r\n\r\n");
    answer(connect(address, &text))
}

#[test]
fn idle_and_slow_connections_keep_neither_health_checks_nor_operators_out() {
    let (_driver, address) = server(guarded());
    let bearer = format!("Authorization: Bearer {TOKEN}\r\n");
    for stands in [
        "",
        "GET /livez HTTP/1.1\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\n\r\n",
    ] {
        let held: Vec<_> = (0..SEATS_MAX * 2)
            .map(|_| connect(address, stands))
            .collect();
        for path in ["/livez", "/readyz"] {
            let answer = get(address, path, "");
            assert!(answer.starts_with("HTTP/1.1 200"), "{stands:?}: {answer}");
        }
        let status = get(address, "/api/status", &bearer);
        assert!(status.starts_with("HTTP/1.1 200"), "{stands:?}: {status}");
        drop(held);
    }
}

#[test]
fn halves_of_orders_keep_health_checks_out_no_more_where_everybody_may_order() {
    let (_driver, address) = server(Access::default());
    let half = "POST /api/throttle HTTP/1.1\r\nHost: 127.0.0.1\r\ntidegate-override: 1\r\nContent-Length: 1000\r\n\r\n{";
    let held: Vec<_> = (0..SEATS_MAX * 2).map(|_| connect(address, half)).collect();
    for path in ["/livez", "/readyz"] {
        let answer = answer(connect(
            address,
            &format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"),
        ));
        assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer:?}");
    }
    drop(held);
}

/// Whether a connection is still there, by what it answers to this.
fn answers(stream: &mut TcpStream, ask: &str) -> bool {
    if stream.write_all(ask.as_bytes()).is_err() {
        return false;
    }
    match stream.read(&mut [0; 1 << 16]) {
        Ok(read) => read > 0,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
            false
        }
    }
}

#[test]
fn one_that_has_shown_its_right_to_ask_stays_though_it_is_the_quietest() {
    let (_driver, address) = server(guarded());
    let health = "GET /livez HTTP/1.1\r\nHost: h\r\n\r\n";
    let asks =
        format!("GET /api/throttles HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {TOKEN}\r\n\r\n");
    let mut known = connect(address, "");
    assert!(answers(&mut known, &asks));
    let mut strangers = Vec::new();
    for _ in 0..SEATS_MAX {
        let mut stranger = connect(address, "");
        assert!(answers(&mut stranger, health));
        strangers.push(stranger);
    }
    assert!(answers(&mut known, &asks));
    assert!(!answers(&mut strangers[0], health));
}

#[test]
fn the_quietest_connection_is_closed_for_one_more_and_not_before() {
    let (_driver, address) = server(guarded());
    let ask = "GET /livez HTTP/1.1\r\nHost: h\r\n\r\n";
    let mut held = Vec::new();
    let alive = |stream: &mut TcpStream| answers(stream, ask);
    for _ in 0..SEATS_MAX {
        let mut stream = connect(address, "");
        // Each is served before the next comes, so their order is known.
        assert!(alive(&mut stream));
        held.push(stream);
    }
    assert!(held.iter_mut().all(alive));
    let mut one_more = connect(address, "");
    assert!(alive(&mut one_more));
    let alive: Vec<_> = held.iter_mut().map(alive).collect();
    assert_eq!(alive.iter().position(|alive| !alive), Some(0));
    assert_eq!(alive.iter().filter(|alive| !**alive).count(), 1);
}

/// Linux has all of 127.0.0.0/8; what is not loopback cannot be asked from here, so the share of one address
/// is tested where seats are given away (`seats`).
#[test]
fn loopback_has_more_than_one_addresss_share() {
    let (_driver, address) = server(guarded());
    let mut held: Vec<_> = (0..=PER_SOURCE_MAX).map(|_| connect(address, "")).collect();
    let text = "GET /livez HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    held[0].write_all(text.as_bytes()).unwrap();
    assert!(answer(held.swap_remove(0)).starts_with("HTTP/1.1 200"));
}

#[test]
fn a_request_without_the_token_is_refused_before_its_body_comes() {
    let (_driver, address) = server(guarded());
    for path in [
        "/api/throttle",
        "/api/status",
        "/api/nodes/n1/drain",
        "/nothing",
    ] {
        let head = format!("POST {path} HTTP/1.1\r\nHost: h\r\nContent-Length: 16384\r\n\r\n");
        // Not a byte of the body comes, and the connection ends with the answer.
        let answer = answer(connect(address, &head));
        assert!(answer.starts_with("HTTP/1.1 401"), "{path}: {answer}");
        assert!(answer.contains("connection: close"), "{path}: {answer}");
    }
}

/// All of the admin interface but its sockets.
struct Scene {
    desk: Desk<Box<dyn Fn() -> Arc<Plane> + Send + Sync>>,
    runtime: tokio::runtime::Runtime,
    _driver: Driver,
}

impl Scene {
    /// With a clock that stands still, and goes on when all that could be done is done.
    fn new(access: Access) -> Self {
        let (driver, plane) = testing::plane();
        let plane: Box<dyn Fn() -> Arc<Plane> + Send + Sync> = Box::new(move || Arc::clone(&plane));
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().start_paused(true).build().unwrap();
        Self {
            desk: Desk::new(plane, access, Output::QUIET),
            runtime,
            _driver: driver,
        }
    }

    fn order(&self, body: &[u8]) -> StatusCode {
        let order = Request::post("/api/throttle");
        let order = order.header(AUTHORIZATION, format!("Bearer {TOKEN}"));
        let (head, body) = order
            .body(Full::new(Bytes::copy_from_slice(body)))
            .unwrap()
            .into_parts();
        let answer = self.desk.answer(head, body, HERE, None);
        self.runtime.block_on(answer).status()
    }

    /// What a client says, and what comes back until the connection ends; with the time that it took.
    #[expect(clippy::disallowed_methods, reason = "it measures real time")]
    fn talk(&self, says: impl AsyncFnOnce(&mut DuplexStream)) -> (String, Duration) {
        self.runtime.block_on(async {
            let start = Instant::now();
            let (mut client, stream) = tokio::io::duplex(1 << 20);
            let seat = Seats::<()>::new().take(HERE, |_| ());
            let served = self.desk.serve(stream, HERE, seat);
            let talk = async {
                says(&mut client).await;
                let mut heard = String::new();
                client.read_to_string(&mut heard).await.unwrap();
                heard
            };
            let ((), heard) = tokio::join!(served, talk);
            (heard, start.elapsed())
        })
    }
}

#[test]
fn an_override_has_so_many_bytes_and_no_more() {
    let scene = Scene::new(guarded());
    // It makes no sense, but is read.
    assert_eq!(
        scene.order(&[b'x'; BODY_BYTES_MAX]),
        StatusCode::BAD_REQUEST
    );
    assert_eq!(
        scene.order(&[b'x'; BODY_BYTES_MAX + 1]),
        StatusCode::PAYLOAD_TOO_LARGE
    );
}

#[test]
fn bodies_that_nothing_asks_for_are_not_read() {
    let scene = Scene::new(guarded());
    for (method, path) in [
        (Method::GET, "/api/status"),
        (Method::POST, "/api/nodes/n1/ready"),
    ] {
        let request = Request::builder().method(method).uri(path);
        let request = request.header(AUTHORIZATION, format!("Bearer {TOKEN}"));
        let (head, body) = request.body(Unread).unwrap().into_parts();
        let answer = scene.desk.answer(head, body, HERE, None);
        assert_eq!(
            scene.runtime.block_on(answer).status(),
            StatusCode::OK,
            "{path}"
        );
    }
}

/// A body that must not be read.
struct Unread;

impl Body for Unread {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        panic!("the body was read");
    }
}

#[test]
fn a_head_has_its_time_whole_half_or_after_another() {
    let scene = Scene::new(guarded());
    let (heard, took) = scene.talk(async |_: &mut DuplexStream| ());
    assert_eq!((heard.as_str(), took), ("", HEAD_TIMEOUT));
    let (heard, took) = scene.talk(async |client: &mut DuplexStream| {
        client.write_all(b"GET /livez HTTP/1.1\r\n").await.unwrap();
        tokio::time::sleep(HEAD_TIMEOUT / 2).await;
        client.write_all(b"Host: h\r\n").await.unwrap();
    });
    assert!(!heard.contains("200"), "{heard}");
    assert_eq!(took, HEAD_TIMEOUT);
    let before = HEAD_TIMEOUT - Duration::from_millis(2);
    let (heard, took) = scene.talk(async |client: &mut DuplexStream| {
        client.write_all(b"GET /livez HTTP/1.1\r\n").await.unwrap();
        tokio::time::sleep(before).await;
        client.write_all(b"Host: h\r\n\r\n").await.unwrap();
    });
    assert!(heard.starts_with("HTTP/1.1 200"), "{heard}");
    assert_eq!(took, before + HEAD_TIMEOUT);
}

#[test]
fn a_head_has_so_many_bytes() {
    let scene = Scene::new(guarded());
    let ask = |length: usize| {
        let head = "GET /livez HTTP/1.1\r\nHost: h\r\nConnection: close\r\nx: ";
        let filler = "y".repeat(length - head.len() - 4);
        scene.talk(async |client: &mut DuplexStream| {
            let text = format!("{head}{filler}\r\n\r\n");
            client.write_all(text.as_bytes()).await.unwrap();
        })
    };
    assert!(ask(HEAD_BYTES_MAX - 1).0.starts_with("HTTP/1.1 200"));
    assert!(ask(HEAD_BYTES_MAX + 1).0.starts_with("HTTP/1.1 431"));
}

#[test]
fn a_head_has_so_many_headers() {
    let scene = Scene::new(guarded());
    let ask = |headers: usize| {
        let head = "GET /livez HTTP/1.1\r\nHost: h\r\nConnection: close\r\n";
        let fillers = "x: y\r\n".repeat(headers - 2);
        scene.talk(async |client: &mut DuplexStream| {
            let text = format!("{head}{fillers}\r\n");
            client.write_all(text.as_bytes()).await.unwrap();
        })
    };
    assert!(ask(HEADERS_MAX).0.starts_with("HTTP/1.1 200"));
    assert!(ask(HEADERS_MAX + 1).0.starts_with("HTTP/1.1 431"));
}

#[test]
fn an_orders_body_has_its_time() {
    let scene = Scene::new(guarded());
    let (heard, took) = scene.talk(async |client: &mut DuplexStream| {
        let head = format!(
            "POST /api/throttle HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {TOKEN}\r\n\
             Content-Length: 10\r\n\r\n12345"
        );
        client.write_all(head.as_bytes()).await.unwrap();
    });
    assert!(heard.starts_with("HTTP/1.1 408"), "{heard}");
    assert!(
        took >= BODY_TIMEOUT && took <= BODY_TIMEOUT + HEAD_TIMEOUT,
        "{took:?}"
    );
}

/// What a request may ask for that carries this.
fn right(method: Method, target: &str, authorization: Option<String>) -> Result<Right, StatusCode> {
    let access = guarded();
    judged(&access, method, target, authorization).map_err(|(status, _)| status)
}

fn judged(
    access: &Access,
    method: Method,
    target: &str,
    authorization: Option<String>,
) -> Result<Right, (StatusCode, Option<String>)> {
    let mut request = Request::builder().method(method).uri(target);
    if let Some(authorization) = authorization {
        request = request.header(AUTHORIZATION, authorization);
    }
    let (head, ()) = request.body(()).unwrap().into_parts();
    let judged = access.judge(&head, Timestamp::from_millis(1000));
    judged.map_err(|refusal| {
        assert_eq!(refusal.answer.headers()[CONNECTION], "close");
        let offers = refusal.answer.headers().get_all(WWW_AUTHENTICATE);
        let mut offers = offers.iter().map(|offer| offer.to_str().unwrap());
        let challenge = offers.find_map(offered_challenge).map(str::to_owned);
        (refusal.answer.status(), challenge)
    })
}

#[test]
fn a_peers_proof_opens_the_exchange_and_nothing_else() {
    let access = guarded();
    let target = format!("{EXCHANGE}?after=3");
    let prove = |challenge: &str, target: &str| Some(key().prove(&question(challenge, target)));
    let (status, challenge) =
        judged(&access, Method::GET, &target, prove("", &target)).unwrap_err();
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    let challenge = challenge.unwrap();
    let proof = prove(&challenge, &target);
    let proven = judged(&access, Method::GET, &target, proof.clone());
    assert!(matches!(proven, Ok(Right::Exchange(Some(_)))), "{proven:?}");
    for (method, other) in [
        (Method::POST, target.as_str()),
        (Method::GET, "/api/status"),
        (Method::GET, "/metrics"),
        (Method::POST, "/api/nodes/n1/drain"),
        (Method::POST, "/api/throttle"),
        (Method::GET, "/api/culprits"),
        (Method::GET, "/api/culprits/requests?after=4"),
    ] {
        let as_heard = judged(&access, method.clone(), other, proof.clone());
        assert_eq!(as_heard.unwrap_err().0, StatusCode::UNAUTHORIZED, "{other}");
        if other.starts_with(EXCHANGE) && method == Method::GET {
            continue;
        }
        // Not even one that holds the peers' key.
        let made_for_it = judged(&access, method, other, prove(&challenge, other));
        assert_eq!(
            made_for_it.unwrap_err().0,
            StatusCode::UNAUTHORIZED,
            "{other}"
        );
    }
}

#[test]
fn the_token_opens_all_and_anything_else_only_pages_and_health_checks() {
    let bearer = |token: &str| Some(format!("Bearer {token}"));
    for path in ["/api/status", EXCHANGE, "/nothing"] {
        let all = right(Method::GET, path, bearer(TOKEN));
        assert!(matches!(all, Ok(Right::All)), "{path}: {all:?}");
        for wrong in [
            None,
            bearer("0123456789abcdeg"),
            bearer(""),
            Some("Basic x".into()),
        ] {
            let refused = right(Method::GET, path, wrong.clone());
            assert_eq!(
                refused.unwrap_err(),
                StatusCode::UNAUTHORIZED,
                "{path}: {wrong:?}"
            );
        }
    }
    for path in ["/", "/culprits", "/livez", "/readyz"] {
        assert!(
            matches!(right(Method::GET, path, None), Ok(Right::Open)),
            "{path}"
        );
    }
}

/// Answers to peers are sealed, and those to the operator's token are plain.
#[test]
fn an_answer_to_a_peer_carries_its_proof() {
    let (_driver, address) = server(guarded());
    let target = format!("{EXCHANGE}?after=0");
    let refused = get(address, &target, "");
    let offer = refused.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        let is_offer = name.eq_ignore_ascii_case("www-authenticate");
        is_offer.then(|| offered_challenge(value)).flatten()
    });
    let challenge = offer.unwrap();
    let question = question(challenge, &target);
    let proof = key().prove(&question);
    let sealed = get(address, &target, &format!("Authorization: {proof}\r\n"));
    let (head, body) = sealed.split_once("\r\n\r\n").unwrap();
    let field = |name: &str| {
        head.lines()
            .find_map(|line| line.strip_prefix(name))
            .unwrap()
    };
    let mac = field("tidegate-peer-mac: ");
    let identity = Identity::parse(field("tidegate-peer-identity: ")).unwrap();
    assert!(key().is_answer(&question, identity, body.as_bytes(), mac));
    assert!(!field("tidegate-peer-challenge: ").is_empty());
    let bearer = format!("Authorization: Bearer {TOKEN}\r\n");
    assert!(!get(address, &target, &bearer).contains("tidegate-peer-mac"));
}

/// Where no token is needed, peers are not proven but say which process they are.
#[test]
fn an_open_answer_to_a_peer_says_which_process_gave_it() {
    let identity = Identity::random().unwrap();
    let open = Access {
        identity: Some(identity),
        ..Access::default()
    };
    let (_driver, address) = server(open);
    let get = |path: &str| {
        let text = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
        answer(connect(address, &text))
    };
    let named = format!("tidegate-peer-identity: {identity}\r\n");
    let exchanged = get(&format!("{EXCHANGE}?after=0"));
    assert!(exchanged.contains(&named), "{exchanged}");
    assert!(!exchanged.contains("tidegate-peer-mac"), "{exchanged}");
    assert!(!get("/api/status").contains("tidegate-peer"));
}

/// A peer's first question has no challenge, which is no attack; one without the key is.
#[test]
fn a_peers_first_question_is_no_line_in_the_log() {
    let access = guarded();
    let target = format!("{EXCHANGE}?after=0");
    let why = |key: PeerKey| {
        let request = Request::get(&target);
        let request = request.header(AUTHORIZATION, key.prove(&question("", &target)));
        let (head, ()) = request.body(()).unwrap().into_parts();
        let refused = access.judge(&head, Timestamp::from_millis(1000));
        refused.unwrap_err().why
    };
    assert_eq!(why(key()), None);
    let stranger = PeerKey::derived(&Token::parse("another-secret-of-it").unwrap());
    assert_eq!(why(stranger), Some("no proof of a peer"));
}
