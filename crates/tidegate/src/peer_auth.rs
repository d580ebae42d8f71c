//! How front-ends prove to each other that they belong together, without sending a secret.
//!
//! ```text
//! GET /api/culprits/requests?after=N ──────────────────────────────> a peer
//! 401, WWW-Authenticate: Tidegate-Peer challenge="C" <──────────────
//! the same, Authorization: Tidegate-Peer challenge="C", nonce="N", mac="HMAC(K, request)" ──>
//! 200, Tidegate-Peer-Mac: HMAC(K, answer), Tidegate-Peer-Challenge: C' for the next <──
//! ```
//!
//! K is made from the secret that front-ends share (HMAC-SHA-256, RFC 2104 and RFC 6234, with a label), so it opens
//! nothing but the exchange. A request's MAC covers challenge, nonce and target; an answer's covers these and
//! its bytes. So a listener learns no secret and can neither ask for something else nor forge an answer; what it has
//! heard can be sent again for [`CHALLENGE_LASTS`] at most, and brings it what it hears anyway.
//!
//! A challenge is a time of the answering process and a MAC that only that process can make: nothing is kept for
//! those that ask.

use std::fmt;
use std::time::Duration;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use tidegate_core::time::Timestamp;

use crate::token::Token;

/// The scheme in `Authorization` and `WWW-Authenticate`.
pub(crate) const SCHEME: &str = "Tidegate-Peer";
/// Carries an answer's MAC.
pub(crate) const MAC_HEADER: &str = "tidegate-peer-mac";
/// Carries the next challenge.
pub(crate) const CHALLENGE_HEADER: &str = "tidegate-peer-challenge";
/// For so long a challenge is good.
pub(crate) const CHALLENGE_LASTS: Duration = Duration::from_secs(30);

/// What keys are made for. New labels make new keys.
const KEY_LABEL: &[u8] = b"tidegate peer exchange 1";
const REQUEST_LABEL: &[u8] = b"request";
const ANSWER_LABEL: &[u8] = b"answer";
/// Bytes of a MAC.
const MAC_BYTES: usize = 32;
/// Bytes of a nonce.
const NONCE_BYTES: usize = 16;
/// Bytes of a challenge: nanoseconds of its maker's clock, and a MAC.
const CHALLENGE_BYTES: usize = 8 + MAC_BYTES;

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

    /// Asks for a target: the proof for `Authorization`.
    pub(crate) fn prove(&self, challenge: &str, nonce: &Nonce, target: &str) -> String {
        let nonce = nonce.text();
        let mac = self.0.tag(&request(challenge, nonce, target));
        format!("{SCHEME} challenge=\"{challenge}\", nonce=\"{nonce}\", mac=\"{mac}\"")
    }

    /// Whether an answer was made for this question by someone with the key.
    pub(crate) fn is_answer(
        &self,
        challenge: &str,
        nonce: &Nonce,
        target: &str,
        body: &[u8],
        mac: &str,
    ) -> bool {
        let [_, challenge, nonce, target] = request(challenge, nonce.text(), target);
        let parts = [ANSWER_LABEL, challenge, nonce, target, body];
        self.0.is_tag(&parts, mac)
    }
}

fn request<'a>(challenge: &'a str, nonce: &'a str, target: &'a str) -> [&'a [u8]; 4] {
    let [challenge, nonce, target] = [challenge, nonce, target].map(str::as_bytes);
    [REQUEST_LABEL, challenge, nonce, target]
}

/// A number that is used once.
#[derive(Debug)]
pub(crate) struct Nonce(String);

impl Nonce {
    /// From the system's randomness.
    pub(crate) fn random() -> std::io::Result<Self> {
        Ok(Self(hex(&random::<NONCE_BYTES>()?)))
    }

    fn text(&self) -> &str {
        &self.0
    }
}

/// What the answering side needs.
#[derive(Clone, Debug)]
pub(crate) struct PeerGate {
    key: PeerKey,
    challenges: PeerKey,
}

/// A proof that was found right, from which the answer's MAC is made.
#[derive(Debug)]
pub(crate) struct Proven {
    challenge: String,
    nonce: String,
    target: String,
}

impl PeerGate {
    /// For this key. Challenges are made with randomness of the system.
    pub(crate) fn new(key: PeerKey) -> std::io::Result<Self> {
        let challenges = PeerKey(Secret(random()?));
        Ok(Self { key, challenges })
    }

    /// A challenge that is good from now on.
    pub(crate) fn challenge(&self, now: Timestamp) -> String {
        let at = now.nanos().to_le_bytes();
        format!("{}{}", hex(&at), self.challenges.0.tag(&[&at]))
    }

    /// Whether `Authorization` proves the right to ask for a target.
    pub(crate) fn check(&self, offered: &str, target: &str, now: Timestamp) -> Option<Proven> {
        let [challenge, nonce, mac] = parameters(offered)?;
        if !self.is_fresh(challenge, now) || bytes::<NONCE_BYTES>(nonce).is_none() {
            return None;
        }
        let proven = Proven {
            challenge: challenge.to_owned(),
            nonce: nonce.to_owned(),
            target: target.to_owned(),
        };
        let right = self.key.0.is_tag(&request(challenge, nonce, target), mac);
        right.then_some(proven)
    }

    /// The MAC of an answer to a peer that has proven its right.
    pub(crate) fn answer(&self, proven: &Proven, body: &[u8]) -> String {
        let [_, challenge, nonce, target] =
            request(&proven.challenge, &proven.nonce, &proven.target);
        let parts = [ANSWER_LABEL, challenge, nonce, target, body];
        self.key.0.tag(&parts)
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

fn parameters(offered: &str) -> Option<[&str; 3]> {
    let mut parts = offered.strip_prefix(SCHEME)?.split(", ");
    let found = [
        parameter(parts.next()?.trim_start(), "challenge")?,
        parameter(parts.next()?, "nonce")?,
        parameter(parts.next()?, "mac")?,
    ];
    parts.next().is_none().then_some(found)
}

fn parameter<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let quoted = text.strip_prefix(name)?.strip_prefix("=\"")?;
    quoted.strip_suffix('"')
}

fn random<const N: usize>() -> std::io::Result<[u8; N]> {
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

    fn gate() -> (PeerGate, PeerKey) {
        let key = key("0123456789abcdef");
        (PeerGate::new(key.clone()).unwrap(), key)
    }

    fn at(seconds: f64) -> Timestamp {
        Timestamp::from_nanos((seconds * 1e9) as u64)
    }

    #[test]
    fn a_proof_shows_the_right_to_one_target_for_a_while() {
        let (gate, key) = gate();
        let challenge = gate.challenge(at(100.0));
        let nonce = Nonce::random().unwrap();
        let proof = key.prove(&challenge, &nonce, TARGET);
        let good = |proof: &str, target, now| gate.check(proof, target, at(now)).is_some();
        assert!(good(&proof, TARGET, 100.0));
        let lasts = CHALLENGE_LASTS.as_secs_f64();
        assert!(good(&proof, TARGET, 99.999 + lasts));
        assert!(!good(&proof, TARGET, 100.0 + lasts));
        assert!(!good(&proof, "/api/culprits/requests?after=8", 100.0));
        assert!(!good(&proof, "/api/status", 100.0));
        // Another process, or the same one after a restart, made no such challenge.
        let other = PeerGate::new(key).unwrap();
        assert!(other.check(&proof, TARGET, at(100.0)).is_none());
    }

    #[test]
    fn proofs_without_the_key_or_changed_ones_show_nothing() {
        let (gate, own) = gate();
        let challenge = gate.challenge(at(100.0));
        let nonce = Nonce::random().unwrap();
        let proof = own.prove(&challenge, &nonce, TARGET);
        let foreign = key("0123456789abcdeF").prove(&challenge, &nonce, TARGET);
        assert!(gate.check(&foreign, TARGET, at(100.0)).is_none());
        for place in 0..proof.len() {
            for other in [b'0', b'f', b' ', b'"'] {
                let mut changed = proof.clone().into_bytes();
                if std::mem::replace(&mut changed[place], other) != other {
                    let changed = String::from_utf8(changed).unwrap();
                    assert!(
                        gate.check(&changed, TARGET, at(100.0)).is_none(),
                        "{changed}"
                    );
                }
            }
            assert!(gate.check(&proof[..place], TARGET, at(100.0)).is_none());
        }
        assert!(
            gate.check(&format!("{proof}, x=\"\""), TARGET, at(100.0))
                .is_none()
        );
    }

    #[test]
    fn an_answer_belongs_to_its_question() {
        let (gate, key) = gate();
        let challenge = gate.challenge(at(100.0));
        let nonce = Nonce::random().unwrap();
        let proof = key.prove(&challenge, &nonce, TARGET);
        let proven = gate.check(&proof, TARGET, at(100.0)).unwrap();
        let mac = gate.answer(&proven, b"{}");
        assert!(key.is_answer(&challenge, &nonce, TARGET, b"{}", &mac));
        assert!(!key.is_answer(&challenge, &nonce, TARGET, b"[]", &mac));
        let later = Nonce::random().unwrap();
        assert!(!key.is_answer(&challenge, &later, TARGET, b"{}", &mac));
        assert!(!key.is_answer(&challenge, &nonce, "/", b"{}", &mac));
        // What a peer sends to prove its right is no answer's MAC.
        let [_, _, asked] = parameters(&proof).unwrap();
        assert!(!key.is_answer(&challenge, &nonce, TARGET, b"", asked));
    }

    #[test]
    fn the_secret_is_in_nothing_that_is_sent_or_printed() {
        let (gate, key) = gate();
        let challenge = gate.challenge(at(1.0));
        let proof = key.prove(&challenge, &Nonce::random().unwrap(), TARGET);
        for text in [challenge, proof, format!("{key:?} {gate:?}")] {
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
