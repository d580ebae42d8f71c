//! Asks other front-ends what they know of requests, and proves to them that this one may ask.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::Full;
use tidegate_core::time::Timestamp;
use tidegate_culprits::live::Asks;
use tidegate_culprits::live::exchange::{EVERY, Shipment};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{MissedTickBehavior, interval};

use super::heard::{Heard, NotAnother};
use crate::client;
use crate::models::EXCHANGE;
use crate::output::Output;
use crate::peer_auth::{self, Identity, PeerKey, Question};

/// A cause that is absent for so long is an event again when it comes back.
const CAUSE_LASTS: Duration = Duration::from_secs(60);

/// The other front-ends, as they come and go.
#[derive(Debug)]
pub(crate) struct Peers {
    addresses: Vec<SocketAddr>,
    key: Option<PeerKey>,
    heard: Arc<Heard>,
}

impl Peers {
    /// Those at these admin addresses, at first.
    pub(crate) fn new(addresses: Vec<SocketAddr>, key: Option<PeerKey>, heard: Arc<Heard>) -> Self {
        Self {
            addresses,
            key,
            heard,
        }
    }

    /// Asks each of them, and those that there are after each change; without changes those at first.
    pub(crate) async fn follow(
        mut self,
        changes: Option<watch::Receiver<Vec<SocketAddr>>>,
        asks: Asks,
        output: Output,
        clock: fn() -> Timestamp,
    ) {
        let mut changes = changes;
        let mut asked: BTreeMap<SocketAddr, AbortHandle> = BTreeMap::new();
        loop {
            let left = |address: &SocketAddr| !self.addresses.contains(address);
            for (_, task) in asked.extract_if(.., |address, _| left(address)) {
                task.abort();
            }
            for address in &self.addresses {
                asked.entry(*address).or_insert_with(|| {
                    let client =
                        PeerClient::new(*address, self.key.clone(), Arc::clone(&self.heard));
                    tokio::spawn(run(client, asks.clone(), output, clock)).abort_handle()
                });
            }
            let Some(changes) = &mut changes else { return };
            if changes.changed().await.is_err() {
                return;
            }
            self.addresses = changes.borrow_and_update().clone();
        }
    }
}

/// Asks one of the others again and again, for as long as its answers are wanted.
async fn run(mut client: PeerClient, asks: Asks, output: Output, clock: fn() -> Timestamp) {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut causes = Causes::default();
    loop {
        ticks.tick().await;
        let asked = clock();
        let answer = client.ask(clock).await;
        // Halfway between question and answer.
        let at = asked + clock().since(asked) / 2;
        let shipment = answer.map_err(|error| {
            if causes.is_news(&error, at) {
                output.event("peers", &format!("peers: {error}"));
            }
            error.to_string()
        });
        if !asks.deliver(client.address, shipment, at) {
            return;
        }
    }
}

/// Why there is nothing from one of the others.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum PeerError {
    /// It does not answer, or refuses.
    #[error("{0}")]
    NoAnswer(String),
    /// The key is not behind what answers.
    #[error("{0} does not prove that its answer is a peer's: do both have the same token?")]
    Unproven(SocketAddr),
    /// It has no identity.
    #[error("{0} does not say which front-end it is: are both of the same version?")]
    Unnamed(SocketAddr),
    /// It is none of the others.
    #[error(
        "{0} is this front-end itself: leave it out of `peers`, or find what on the way there leads back"
    )]
    Itself(SocketAddr),
    /// It is one of the others that has another address as well.
    #[error(
        "{address} is the same front-end as {other}: leave one of them out of `peers`, or find what on the way to \
         one leads to the other"
    )]
    SameAs {
        /// Where it was asked.
        address: SocketAddr,
        /// Where it has answered.
        other: SocketAddr,
    },
}

/// Of which causes there was an event.
#[derive(Debug, Default)]
struct Causes(Vec<(PeerError, Timestamp)>);

impl Causes {
    /// Whether there is to be an event of this: the first time that something answers and is no other peer, and once
    /// more after a minute without it. A peer that is silent is in the report alone: it may just be restarted.
    fn is_news(&mut self, error: &PeerError, now: Timestamp) -> bool {
        self.0.retain(|(_, last)| now.since(*last) < CAUSE_LASTS);
        if matches!(error, PeerError::NoAnswer(_)) {
            return false;
        }
        let known = self.0.iter_mut().find(|(cause, _)| cause == error);
        let is_news = known.is_none();
        match known {
            Some((_, last)) => *last = now,
            None => self.0.push((error.clone(), now)),
        }
        is_news
    }
}

/// Asks one of the others. It proves that it may, and checks that the answer is another front-end's (`peer_auth`);
/// without a key, on loopback only, what answers is believed to be the front-end that it says it is.
#[derive(Debug)]
pub(crate) struct PeerClient {
    address: SocketAddr,
    key: Option<PeerKey>,
    heard: Arc<Heard>,
    /// Which process has answered last.
    identity: Option<Identity>,
    /// What the other has given us for the next question; empty before the first.
    challenge: String,
}

impl PeerClient {
    /// For the front-end with this admin address.
    pub(crate) fn new(address: SocketAddr, key: Option<PeerKey>, heard: Arc<Heard>) -> Self {
        Self {
            address,
            key,
            heard,
            identity: None,
            challenge: String::new(),
        }
    }

    /// What has ended since it was asked before.
    pub(crate) async fn ask(&mut self, clock: fn() -> Timestamp) -> Result<Shipment, PeerError> {
        let after = self.identity.map_or(0, |it| self.heard.next(it));
        let target = format!("{EXCHANGE}?after={after}");
        let answer = match self.key.clone() {
            Some(key) => self.ask_with(&key, &target).await?,
            None => self.send(&target, None).await?,
        };
        let mut shipment = self.understood(&answer)?;
        let address = self.address;
        let identity = identity(&answer).ok_or(PeerError::Unnamed(address))?;
        self.identity = Some(identity);
        let taken = self.heard.take(identity, address, &mut shipment, clock());
        taken.map_err(|error| match error {
            NotAnother::Itself => PeerError::Itself(address),
            NotAnother::SameAs(other) => PeerError::SameAs { address, other },
        })?;
        Ok(shipment)
    }

    /// A success that is proven, or a refusal.
    async fn ask_with(
        &mut self,
        key: &PeerKey,
        target: &str,
    ) -> Result<Response<Bytes>, PeerError> {
        let mut question = self.question(target)?;
        let mut answer = self.send(target, Some(key.prove(&question))).await?;
        // Our challenge is too old, or was made before the other's restart.
        if answer.status() == StatusCode::UNAUTHORIZED
            && let Some(challenge) = new_challenge(answer.headers())
        {
            self.challenge = challenge;
            question = self.question(target)?;
            answer = self.send(target, Some(key.prove(&question))).await?;
        }
        if !answer.status().is_success() {
            return Ok(answer);
        }
        let mac = field(&answer, peer_auth::MAC_HEADER).unwrap_or_default();
        let is_answer = |identity| key.is_answer(&question, identity, answer.body(), mac);
        if !identity(&answer).is_some_and(is_answer) {
            return Err(PeerError::Unproven(self.address));
        }
        if let Some(challenge) = field(&answer, peer_auth::CHALLENGE_HEADER) {
            self.challenge = challenge.to_owned();
        }
        Ok(answer)
    }

    fn question(&self, target: &str) -> Result<Question, PeerError> {
        let question = Question::new(&self.challenge, self.heard.own(), self.address, target);
        question.map_err(|error| PeerError::NoAnswer(format!("no randomness: {error}")))
    }

    async fn send(
        &self,
        target: &str,
        proof: Option<String>,
    ) -> Result<Response<Bytes>, PeerError> {
        let mut request = Request::get(target);
        if let Some(proof) = proof {
            request = request.header(AUTHORIZATION, proof);
        }
        let request = request.body(Full::new(Bytes::new()));
        let request = request.map_err(|error| PeerError::NoAnswer(error.to_string()))?;
        let answer = client::send(self.address, request).await;
        answer.map_err(PeerError::NoAnswer)
    }

    fn understood(&self, answer: &Response<Bytes>) -> Result<Shipment, PeerError> {
        let understood = client::understood(self.address, answer.status(), answer.body());
        understood.map_err(|error| PeerError::NoAnswer(error.to_string()))
    }
}

fn field<'a>(answer: &'a Response<Bytes>, name: &'static str) -> Option<&'a str> {
    answer.headers().get(name)?.to_str().ok()
}

fn identity(answer: &Response<Bytes>) -> Option<Identity> {
    Identity::parse(field(answer, peer_auth::IDENTITY_HEADER)?)
}

fn new_challenge(headers: &HeaderMap) -> Option<String> {
    let offers = headers.get_all(WWW_AUTHENTICATE).iter();
    let mut offers = offers.filter_map(|value| value.to_str().ok());
    let challenge = offers.find_map(peer_auth::offered_challenge)?;
    Some(challenge.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_one_event_and_another_after_a_minute_without_it() {
        let mut causes = Causes::default();
        let address = ([10, 0, 0, 2], 9900).into();
        let other = ([10, 0, 0, 3], 9900).into();
        let itself = PeerError::Itself(address);
        let twice = PeerError::SameAs { address, other };
        let start = Timestamp::from_millis(5_000);
        assert!(causes.is_news(&itself, start));
        assert!(causes.is_news(&twice, start));
        let mut now = start;
        for _ in 0..200 {
            now = now + EVERY;
            assert!(!causes.is_news(&itself, now));
            let silent = PeerError::NoAnswer("connection refused".into());
            assert!(!causes.is_news(&silent, now));
        }
        assert!(causes.is_news(&twice, now));
        assert!(!causes.is_news(&itself, now + CAUSE_LASTS - Duration::from_nanos(1)));
        assert!(causes.is_news(&itself, now + CAUSE_LASTS * 2));
    }
}
