//! How front-ends prove to each other that they belong together, without sending a secret.
//!
//! ```text
//! GET /api/culprits/requests?after=N ──────────────────────────────> a peer
//! 401, WWW-Authenticate: Tidegate-Peer challenge="C" <──────────────
//! the same, Authorization: Tidegate-Peer challenge="C", nonce="N", identity="I", asked="ADDRESS", mac="M" ──>
//! 200, Tidegate-Peer-Identity: J, Tidegate-Peer-Mac: M', Tidegate-Peer-Challenge: C' for the next <──
//!
//! M  = HMAC(K, "request", C, N, I, ADDRESS, target)
//! M' = HMAC(K, "answer",  C, N, I, ADDRESS, target, J, body)
//! ```
//!
//! K is made from the secret that front-ends share (HMAC-SHA-256, RFC 2104 and RFC 6234, with a label), so it opens
//! nothing but the exchange. I and J are the identities of the process that asks and of the one that answers, random
//! at each start. So a listener learns no secret and can neither ask for something else nor forge an answer; what it has
//! heard can be sent again for [`CHALLENGE_LASTS`] at most, and brings it what it hears anyway. All front-ends have the
//! same key: that an answer is proven says that one of them gave it, and J says which (`culprits::heard`).
//!
//! A challenge is a time of the answering process and a MAC that only that process can make: nothing is kept for
//! those that ask.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use tidegate_core::time::Timestamp;

use crate::token::Token;

/// The scheme in `Authorization` and `WWW-Authenticate`.
pub(crate) const SCHEME: &str = "Tidegate-Peer";
/// Carries an answer's MAC.
pub(crate) const MAC_HEADER: &str = "tidegate-peer-mac";
/// Says which process an answer is from.
pub(crate) const IDENTITY_HEADER: &str = "tidegate-peer-identity";
/// Carries the next challenge.
pub(crate) const CHALLENGE_HEADER: &str = "tidegate-peer-challenge";
/// For so long a challenge is good.
pub(crate) const CHALLENGE_LASTS: Duration = Duration::from_secs(30);

/// What keys are made for. New labels make new keys.
const KEY_LABEL: &[u8] = b"tidegate peer exchange 2";
const REQUEST_LABEL: &[u8] = b"request";
const ANSWER_LABEL: &[u8] = b"answer";
/// Bytes of a MAC.
const MAC_BYTES: usize = 32;
/// Bytes of a nonce.
const NONCE_BYTES: usize = 16;
/// Bytes of an identity.
const IDENTITY_BYTES: usize = 16;
/// Bytes of a challenge: nanoseconds of its maker's clock, and a MAC.
const CHALLENGE_BYTES: usize = 8 + MAC_BYTES;

/// Which process of a front-end this is: random at each start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity([u8; IDENTITY_BYTES]);

impl Identity {
    /// From the system's randomness.
    pub(crate) fn random() -> io::Result<Self> {
        Ok(Self(random()?))
    }

    /// As [`IDENTITY_HEADER`] has it.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        bytes(text).map(Self)
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&hex(&self.0))
    }
}

/// A MAC key; never printed.
#[derive(Clone)]
struct Secret([u8; MAC_BYTES]);

impl Secret {
    fn mac(&self, parts: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac = hmac(&self.0);
        for part in parts {
            // A length before each: no two lists of parts are the same bytes.
            mac.update(&(part.len() as u64).to_le_bytes());
            mac.update(part);
        }
        mac
    }

    fn tag(&self, parts: &[&[u8]]) -> String {
        hex(&self.mac(parts).finalize().into_bytes())
    }

    /// Whether the tag is right; takes the same time wherever it is wrong.
    fn is_tag(&self, parts: &[&[u8]], tag: &str) -> bool {
        bytes::<MAC_BYTES>(tag).is_some_and(|tag| self.mac(parts).verify_slice(&tag).is_ok())
    }
}

fn hmac(key: &[u8]) -> Hmac<Sha256> {
    // HMAC takes keys of any length.
    Hmac::new_from_slice(key).unwrap_or_else(|_| unreachable!("a key of any length"))
}

/// The key of the exchange, the same on all front-ends that are peers.
#[derive(Clone)]
pub(crate) struct PeerKey(Secret);

impl fmt::Debug for PeerKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("PeerKey(…)")
    }
}

impl PeerKey {
    /// Made from a secret, which cannot be had from it.
    pub(crate) fn derived(token: &Token) -> Self {
        let mut mac = hmac(token.reveal().as_bytes());
        mac.update(KEY_LABEL);
        Self(Secret(mac.finalize().into_bytes().into()))
    }

    /// The proof for `Authorization`.
    pub(crate) fn prove(&self, question: &Question) -> String {
        let Question {
            challenge,
            nonce,
            asker,
            asked,
            ..
        } = question;
        let mac = self.0.tag(&question.parts(REQUEST_LABEL));
        format!(
            "{SCHEME} challenge=\"{challenge}\", nonce=\"{nonce}\", identity=\"{asker}\", asked=\"{asked}\", \
             mac=\"{mac}\""
        )
    }

    /// Whether this process with the key has answered this question so.
    pub(crate) fn is_answer(
        &self,
        question: &Question,
        answerer: Identity,
        body: &[u8],
        mac: &str,
    ) -> bool {
        self.0.is_tag(&answer(question, &answerer.0, body), mac)
    }
}

/// A question as both sides know it: what its MAC covers, and that of its answer as well.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    challenge: String,
    /// A number that is used once.
    nonce: String,
    /// Identity of the process that asks.
    asker: String,
    /// The address that it asks.
    asked: String,
    target: String,
}

impl Question {
    /// With a nonce from the system's randomness.
    pub(crate) fn new(
        challenge: &str,
        asker: Identity,
        asked: SocketAddr,
        target: &str,
    ) -> io::Result<Self> {
        Ok(Self {
            challenge: challenge.to_owned(),
            nonce: hex(&random::<NONCE_BYTES>()?),
            asker: asker.to_string(),
            asked: asked.to_string(),
            target: target.to_owned(),
        })
    }

    fn parts(&self, label: &'static [u8]) -> [&[u8]; 6] {
        let Self {
            challenge,
            nonce,
            asker,
            asked,
            target,
        } = self;
        let [challenge, nonce, asker, asked, target] =
            [challenge, nonce, asker, asked, target].map(|part| part.as_bytes());
        [label, challenge, nonce, asker, asked, target]
    }
}

/// What an answer's MAC covers.
fn answer<'a>(question: &'a Question, answerer: &'a [u8], body: &'a [u8]) -> [&'a [u8]; 8] {
    let [label, challenge, nonce, asker, asked, target] = question.parts(ANSWER_LABEL);
    [
        label, challenge, nonce, asker, asked, target, answerer, body,
    ]
}

/// What the answering side needs.
#[derive(Clone, Debug)]
pub(crate) struct PeerGate {
    key: PeerKey,
    challenges: PeerKey,
    identity: Identity,
}

/// A question whose proof was found right, from which the answer's MAC is made.
#[derive(Debug)]
pub(crate) struct Proven(Question);

/// Why a proof shows no right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unproven {
    /// It is a peer's, but its challenge is none of this process that is still good: a first question has none.
    NeedsChallenge,
    /// It is none of a peer.
    Wrong,
}

impl PeerGate {
    /// For this key and process. Challenges are made with randomness of the system.
    pub(crate) fn new(key: PeerKey, identity: Identity) -> io::Result<Self> {
        let challenges = PeerKey(Secret(random()?));
        Ok(Self {
            key,
            challenges,
            identity,
        })
    }

    /// A challenge that is good from now on.
    pub(crate) fn challenge(&self, now: Timestamp) -> String {
        let at = now.nanos().to_le_bytes();
        format!("{}{}", hex(&at), self.challenges.0.tag(&[&at]))
    }

    /// Whether `Authorization` proves the right to ask for a target.
    pub(crate) fn check(
        &self,
        offered: &str,
        target: &str,
        now: Timestamp,
    ) -> Result<Proven, Unproven> {
        let [challenge, nonce, asker, asked, mac] = parameters(offered).ok_or(Unproven::Wrong)?;
        let well_formed =
            bytes::<NONCE_BYTES>(nonce).is_some() && bytes::<IDENTITY_BYTES>(asker).is_some();
        let question = Question {
            challenge: challenge.to_owned(),
            nonce: nonce.to_owned(),
            asker: asker.to_owned(),
            asked: asked.to_owned(),
            target: target.to_owned(),
        };
        if !well_formed || !self.key.0.is_tag(&question.parts(REQUEST_LABEL), mac) {
            return Err(Unproven::Wrong);
        }
        if !self.is_fresh(challenge, now) {
            return Err(Unproven::NeedsChallenge);
        }
        Ok(Proven(question))
    }

    /// The MAC of an answer to a peer that has proven its right.
    pub(crate) fn answer(&self, proven: &Proven, body: &[u8]) -> String {
        self.key.0.tag(&answer(&proven.0, &self.identity.0, body))
    }

    fn is_fresh(&self, challenge: &str, now: Timestamp) -> bool {
        let Some(whole) = bytes::<CHALLENGE_BYTES>(challenge) else {
            return false;
        };
        let Some((at, _)) = whole.split_first_chunk() else {
            return false;
        };
        let made = Timestamp::from_nanos(u64::from_le_bytes(*at));
        let right = self.challenges.0.is_tag(&[at], &challenge[2 * at.len()..]);
        right && now.since(made) < CHALLENGE_LASTS
    }
}

/// The challenge in a `WWW-Authenticate`.
pub(crate) fn offered_challenge(value: &str) -> Option<&str> {
    parameter(value.strip_prefix(SCHEME)?.trim_start(), "challenge")
}

fn parameters(offered: &str) -> Option<[&str; 5]> {
    let mut parts = offered.strip_prefix(SCHEME)?.split(", ");
    let found = [
        parameter(parts.next()?.trim_start(), "challenge")?,
        parameter(parts.next()?, "nonce")?,
        parameter(parts.next()?, "identity")?,
        parameter(parts.next()?, "asked")?,
        parameter(parts.next()?, "mac")?,
    ];
    parts.next().is_none().then_some(found)
}

fn parameter<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let quoted = text.strip_prefix(name)?.strip_prefix("=\"")?;
    quoted.strip_suffix('"')
}

fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        filled +=
            rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())?;
    }
    Ok(bytes)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Exactly so many bytes, in small hexadecimal digits: one text for each value.
fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |letter: u8| match letter {
        b'0'..=b'9' => Some(letter - b'0'),
        b'a'..=b'f' => Some(letter - b'a' + 10),
        _ => None,
    };
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if pairs.len() != N || !rest.is_empty() {
        return None;
    }
    let mut found = [0; N];
    for (byte, [high, low]) in found.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: &str = "/api/culprits/requests?after=7";

    fn key(token: &str) -> PeerKey {
        PeerKey::derived(&Token::parse(token).unwrap())
    }

    fn identity(byte: u8) -> Identity {
        Identity([byte; IDENTITY_BYTES])
    }

    const ASKER: u8 = 1;
    const ANSWERER: u8 = 2;

    fn gate() -> (PeerGate, PeerKey) {
        let key = key("0123456789abcdef");
        let gate = PeerGate::new(key.clone(), identity(ANSWERER)).unwrap();
        (gate, key)
    }

    fn at(seconds: f64) -> Timestamp {
        Timestamp::from_nanos((seconds * 1e9) as u64)
    }

    fn question(challenge: &str) -> Question {
        let asked = "10.0.0.3:9900".parse().unwrap();
        Question::new(challenge, identity(ASKER), asked, TARGET).unwrap()
    }

    #[test]
    fn a_proof_shows_the_right_to_one_target_for_a_while() {
        let (gate, key) = gate();
        let challenge = gate.challenge(at(100.0));
        let proof = key.prove(&question(&challenge));
        let shows = |target, now| gate.check(&proof, target, at(now)).map(drop);
        assert_eq!(shows(TARGET, 100.0), Ok(()));
        let lasts = CHALLENGE_LASTS.as_secs_f64();
        assert_eq!(shows(TARGET, 99.999 + lasts), Ok(()));
        assert_eq!(shows(TARGET, 100.0 + lasts), Err(Unproven::NeedsChallenge));
        let wrong = Err(Unproven::Wrong);
        assert_eq!(shows("/api/culprits/requests?after=8", 100.0), wrong);
        assert_eq!(shows("/api/status", 100.0), wrong);
        // Another process, or the same one after a restart, made no such challenge.
        let other = PeerGate::new(key.clone(), identity(3)).unwrap();
        let unknown = Err(Unproven::NeedsChallenge);
        assert_eq!(other.check(&proof, TARGET, at(100.0)).map(drop), unknown);
        let first = key.prove(&question(""));
        assert_eq!(gate.check(&first, TARGET, at(100.0)).map(drop), unknown);
    }

    #[test]
    fn proofs_without_the_key_or_changed_ones_show_nothing() {
        let (gate, own) = gate();
        let question = question(&gate.challenge(at(100.0)));
        let proof = own.prove(&question);
        let is_wrong =
            |proof: &str| gate.check(proof, TARGET, at(100.0)).map(drop) == Err(Unproven::Wrong);
        assert!(!is_wrong(&proof));
        assert!(is_wrong(&key("0123456789abcdeF").prove(&question)));
        for place in 0..proof.len() {
            for other in [b'0', b'f', b' ', b'"'] {
                let mut changed = proof.clone().into_bytes();
                if std::mem::replace(&mut changed[place], other) != other {
                    let changed = String::from_utf8(changed).unwrap();
                    assert!(is_wrong(&changed), "{changed}");
                }
            }
            assert!(is_wrong(&proof[..place]));
        }
        assert!(is_wrong(&format!("{proof}, x=\"\"")));
    }

    /// A question and its answer, with the answer's body and MAC.
    fn answered() -> (PeerGate, PeerKey, Question, String) {
        let (gate, key) = gate();
        let question = question(&gate.challenge(at(100.0)));
        let proof = key.prove(&question);
        let proven = gate.check(&proof, TARGET, at(100.0)).unwrap();
        let mac = gate.answer(&proven, b"{}");
        (gate, key, question, mac)
    }

    #[test]
    fn an_answer_belongs_to_its_question() {
        let (gate, key, asked, mac) = answered();
        let is_answer = |question: &Question, body: &[u8]| {
            key.is_answer(question, identity(ANSWERER), body, &mac)
        };
        assert!(is_answer(&asked, b"{}"));
        assert!(!is_answer(&asked, b"[]"));
        let changed = |change: &dyn Fn(&mut Question)| {
            let mut changed = asked.clone();
            change(&mut changed);
            changed
        };
        for other in [
            changed(&|it| it.challenge = gate.challenge(at(100.1))),
            changed(&|it| it.nonce = hex(&[0; NONCE_BYTES])),
            changed(&|it| it.asker = identity(3).to_string()),
            changed(&|it| it.asked = "10.0.0.4:9900".into()),
            changed(&|it| it.target = "/".into()),
        ] {
            assert!(!is_answer(&other, b"{}"), "{other:?}");
        }
    }

    #[test]
    fn an_answer_belongs_to_the_process_that_gave_it() {
        let (_, key, question, mac) = answered();
        assert!(key.is_answer(&question, identity(ANSWERER), b"{}", &mac));
        for other in [ASKER, 3] {
            assert!(!key.is_answer(&question, identity(other), b"{}", &mac));
        }
    }

    /// A request's MAC and an answer's are made under one key, and differ in what they begin with.
    #[test]
    fn what_proves_a_question_proves_no_answer_nor_the_other_way_round() {
        let (gate, key, question, mac) = answered();
        let proof = key.prove(&question);
        let [.., asked] = parameters(&proof).unwrap();
        for body in [&b""[..], b"{}"] {
            assert!(!key.is_answer(&question, identity(ANSWERER), body, asked));
            assert!(!key.is_answer(&question, identity(ASKER), body, asked));
        }
        let reflected = proof.replace(asked, &mac);
        let checked = gate.check(&reflected, TARGET, at(100.0)).map(drop);
        assert_eq!(checked, Err(Unproven::Wrong));
    }

    #[test]
    fn an_identity_is_128_random_bits_and_has_one_text() {
        let (one, other) = (Identity::random().unwrap(), Identity::random().unwrap());
        assert_ne!(one, other);
        let text = one.to_string();
        assert_eq!(text.len() * 4, 128);
        assert_eq!(Identity::parse(&text), Some(one));
        assert_eq!(Identity::parse(&text[1..]), None);
        assert_eq!(Identity::parse(&format!("{text}0")), None);
        assert_eq!(Identity::parse(&"A".repeat(text.len())), None);
    }

    #[test]
    fn the_secret_is_in_nothing_that_is_sent_or_printed() {
        let (gate, key, question, mac) = answered();
        let challenge = gate.challenge(at(1.0));
        let proof = key.prove(&question);
        for text in [challenge, proof, mac, format!("{key:?} {gate:?}")] {
            assert!(!text.contains("0123456789abcdef"), "{text}");
            assert!(!text.contains(&hex(&key.0.0)), "{text}");
        }
    }

    /// RFC 4231, test case 2.
    #[test]
    fn the_mac_is_hmac_sha_256() {
        let mut mac = hmac(b"Jefe");
        mac.update(b"what do ya want for nothing?");
        let expected = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(hex(&mac.finalize().into_bytes()), expected);
    }

    #[test]
    fn a_challenge_is_read_from_its_header() {
        let offered = format!("{SCHEME} challenge=\"ab\"");
        assert_eq!(offered_challenge(&offered), Some("ab"));
        assert_eq!(offered_challenge("Bearer"), None);
        assert_eq!(offered_challenge("Tidegate-Peer"), None);
    }
}
