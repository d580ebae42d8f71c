//! Asks other front-ends what they know of requests, and proves to them that this one may ask.

use std::net::SocketAddr;

use bytes::Bytes;
use http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::Full;
use tidegate_core::time::Timestamp;
use tidegate_culprits::live::Asks;
use tidegate_culprits::live::exchange::{EVERY, Shipment};
use tokio::time::{MissedTickBehavior, interval};

use crate::client;
use crate::models::EXCHANGE;
use crate::peer_auth::{self, Nonce, PeerKey};

/// Asks one of the others again and again, for as long as anybody wants it.
pub(crate) async fn run(mut client: PeerClient, asks: Asks, clock: fn() -> Timestamp) {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut next = 0;
    loop {
        ticks.tick().await;
        let asked = clock();
        let shipment = client.ask(next).await;
        // Halfway between question and answer.
        let at = asked + clock().since(asked) / 2;
        if let Ok(shipment) = &shipment {
            next = shipment.next;
        }
        if !asks.deliver(client.address, shipment, at) {
            return;
        }
    }
}

/// Asks one of the others. It proves that it may, and checks that the answer is the other's (`peer_auth`); without
/// a key, on loopback only, it does neither.
#[derive(Debug)]
pub(crate) struct PeerClient {
    address: SocketAddr,
    key: Option<PeerKey>,
    /// What the other has given us for the next question; empty before the first.
    challenge: String,
}

impl PeerClient {
    /// For the front-end with this admin address.
    pub(crate) fn new(address: SocketAddr, key: Option<PeerKey>) -> Self {
        Self {
            address,
            key,
            challenge: String::new(),
        }
    }

    /// What has ended after this.
    pub(crate) async fn ask(&mut self, after: u64) -> Result<Shipment, String> {
        let target = format!("{EXCHANGE}?after={after}");
        let Some(key) = self.key.clone() else {
            let answer = self.send(&target, None).await?;
            return self.understood(&answer);
        };
        let (mut answer, mut nonce) = self.prove(&key, &target).await?;
        // Our challenge is too old, or was made before the other's restart.
        if answer.status() == StatusCode::UNAUTHORIZED
            && let Some(challenge) = new_challenge(answer.headers())
        {
            self.challenge = challenge;
            (answer, nonce) = self.prove(&key, &target).await?;
        }
        if !answer.status().is_success() {
            return self.understood(&answer);
        }
        let field = |name| answer.headers().get(name)?.to_str().ok();
        let mac = field(peer_auth::MAC_HEADER).unwrap_or_default();
        if !key.is_answer(&self.challenge, &nonce, &target, answer.body(), mac) {
            let address = self.address;
            return Err(format!(
                "{address} does not prove that its answer is a peer's: do both have the same token?"
            ));
        }
        if let Some(challenge) = field(peer_auth::CHALLENGE_HEADER) {
            self.challenge = challenge.to_owned();
        }
        self.understood(&answer)
    }

    async fn prove(&self, key: &PeerKey, target: &str) -> Result<(Response<Bytes>, Nonce), String> {
        let nonce = Nonce::random().map_err(|error| format!("no randomness: {error}"))?;
        let proof = key.prove(&self.challenge, &nonce, target);
        Ok((self.send(target, Some(proof)).await?, nonce))
    }

    async fn send(&self, target: &str, proof: Option<String>) -> Result<Response<Bytes>, String> {
        let mut request = Request::get(target);
        if let Some(proof) = proof {
            request = request.header(AUTHORIZATION, proof);
        }
        let request = request.body(Full::new(Bytes::new()));
        let request = request.map_err(|error| error.to_string())?;
        client::send(self.address, request).await
    }

    fn understood(&self, answer: &Response<Bytes>) -> Result<Shipment, String> {
        let understood = client::understood(self.address, answer.status(), answer.body());
        understood.map_err(|error| error.to_string())
    }
}

fn new_challenge(headers: &HeaderMap) -> Option<String> {
    let offers = headers.get_all(WWW_AUTHENTICATE).iter();
    let mut offers = offers.filter_map(|value| value.to_str().ok());
    let challenge = offers.find_map(peer_auth::offered_challenge)?;
    Some(challenge.to_owned())
}
