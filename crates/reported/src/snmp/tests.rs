//! The questions against an agent of the test's own, which answers whatever the test says.

use tidegate_core::prng::Prng;
use tokio::net::UdpSocket;

use super::*;

const MS: fn(u64) -> Duration = Duration::from_millis;

fn config(address: SocketAddr) -> SnmpConfig {
    SnmpConfig {
        address,
        version: SnmpVersion::V2c(Secret::new("public")),
        periods: Periods {
            usual: MS(500),
            memory: MS(500),
            files: MS(500),
        },
        objects: Vec::new(),
    }
}

#[test]
fn names_of_objects_are_numbers_with_dots() {
    for good in ["1.3.6.1.2.1.1.3.0", ".1.3.6", "0.0.0"] {
        assert!(ObjectId::parse(good).is_some(), "{good}");
    }
    let long = ["1"; 200].join(".");
    for bad in [
        "",
        ".",
        "1",
        "1.3",
        "1..3.6",
        "1.3.6.",
        "3.1.1",
        "1.40.1",
        "1.3.x",
        "1.3.4294967296",
        &long,
    ] {
        assert_eq!(ObjectId::parse(bad), None, "{bad}");
    }
}

#[test]
fn no_secret_is_printed() {
    let mut config = config(SocketAddr::from(([127, 0, 0, 1], 161)));
    config.version = SnmpVersion::V3(SnmpUser {
        name: "monitor".into(),
        auth: Some((AuthKind::Sha256, Secret::new("hunter2hunter2"))),
        privacy: Some((PrivacyKind::Aes128, Secret::new("hunter2hunter2"))),
    });
    assert!(!format!("{config:?}").contains("hunter2"));
    assert_eq!(config.check(), Ok(()));
    config.version = SnmpVersion::V3(SnmpUser {
        name: "monitor".into(),
        auth: Some((AuthKind::Sha256, Secret::new("short"))),
        privacy: None,
    });
    let why = config.check().unwrap_err();
    assert!(!why.contains("hunter2") && !why.is_empty(), "{why}");
}

/// Random bytes, or the question as an answer with some damage.
fn damaged(question: &[u8], prng: &mut Prng) -> Vec<u8> {
    if prng.below(3) == 0 {
        return (0..prng.below(200)).map(|_| prng.bits() as u8).collect();
    }
    let mut bytes = question.to_vec();
    let kind = bytes.iter().position(|it| *it & 0xf0 == 0xa0);
    bytes[kind.unwrap()] = 0xa2;
    for _ in 0..=prng.below(4) {
        let at = prng.below(bytes.len());
        bytes[at] = prng.bits() as u8;
    }
    bytes.truncate(bytes.len() - prng.below(3));
    bytes
}

/// Whatever comes back: random bytes, cut and changed copies of the question itself.
#[tokio::test]
async fn garbage_is_a_fault_and_never_a_panic() {
    let agent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let mut poll = SnmpPoll::new(config(agent.local_addr().unwrap()));
    let mut prng = Prng::new(5);
    for round in 0..4_u64 {
        let answer = async {
            let mut buffer = [0; 2048];
            let (length, from) = agent.recv_from(&mut buffer).await.unwrap();
            for _ in 0..200 {
                let bytes = damaged(&buffer[..length], &mut prng);
                agent.send_to(&bytes, from).await.unwrap();
            }
        };
        let (polled, ()) = tokio::join!(poll.ask(MS(round * 60_000)), answer);
        // A damaged answer may still be one.
        let values = polled.unwrap_or_default();
        assert!(values.len() <= ReportedMetric::COUNT, "{values:?}");
    }
}

#[tokio::test]
async fn an_agent_that_says_nothing_is_waited_for_no_longer_than_a_period() {
    let agent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let mut poll = SnmpPoll::new(config(agent.local_addr().unwrap()));
    let fault = poll.ask(Duration::ZERO).await.unwrap_err();
    assert_eq!(fault, PollFault::NoAnswer(SILENT_COMMUNITY));
}
