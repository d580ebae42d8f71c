//! What goes to other front-ends, and what comes from them: folded into classes here, whatever they are called there.

use std::net::SocketAddr;
use std::time::Duration;

use tidegate_core::classes::{self, ClassId, Weight};
use tidegate_core::culprits::Discovery;
use tidegate_core::time::Timestamp;

use super::super::exchange::{self, Peer, Shipment};
use super::{IN_PROGRESS_MAX, Requests};

/// Longest age of a request that another front-end tells: an hour.
pub(super) const AGE_MICROS_MAX: u64 = 3_600_000_000;

impl Requests {
    /// What others get that ask for what ended after this.
    pub(in crate::live) fn ship(&mut self, after: u64, now: Timestamp) -> Shipment {
        let begun = self.in_progress.values();
        let unfinished = begun.map(|it| (it.words, it.site, it.sent));
        let sites = self.sites.iter().map(|it| it.name.clone());
        self.outbox.ship(after, sites.collect(), unfinished, now)
    }

    /// These are the other front-ends from now on. What one that is left out had in progress counts no more.
    pub(in crate::live) fn follow_peers(&mut self, wanted: &[SocketAddr]) {
        self.peers.retain(|it| wanted.contains(&it.address));
        for address in wanted {
            if self.peers.iter().all(|it| it.address != *address) {
                self.peers.push(Peer::new(*address));
            }
        }
    }

    /// Takes in what another front-end said, or why it did not.
    pub(in crate::live) fn accept(
        &mut self,
        from: SocketAddr,
        shipment: Result<Shipment, String>,
        at: Timestamp,
        discovery: &mut Discovery,
    ) {
        let Some(place) = self.peers.iter().position(|it| it.address == from) else {
            return;
        };
        let shipment = match shipment {
            Ok(shipment) => shipment,
            Err(why) => {
                self.peers[place].trouble = Some(why);
                return;
            }
        };
        self.overflows += u64::from(shipment.lost > 0);
        let ago = |micros: u64| at - Duration::from_micros(micros.min(AGE_MICROS_MAX));
        for (words, site, sent, ended) in shipment.ended.iter().take(exchange::KEPT_MAX) {
            let (sent, ended) = (ago(*sent), ago(*ended));
            let weight = Weight::finished(ended.seconds_since(sent));
            if let Some(class) = self.fold_told(&shipment, *words, *site, weight) {
                self.end(class, sent, ended, discovery);
                let took = ended.seconds_since(sent);
                self.note(class, ended, Some((0.0, took)));
            }
        }
        let mut unfinished = Vec::new();
        for (words, site, sent) in shipment.unfinished.iter().take(IN_PROGRESS_MAX) {
            let class = self.fold_told(&shipment, *words, *site, Weight::default());
            unfinished.extend(class.map(|class| (class, ago(*sent))));
        }
        let peer = &mut self.peers[place];
        peer.heard = Some(at);
        peer.trouble = None;
        peer.unfinished = unfinished;
    }

    /// The class of what another front-end said; none if it makes no sense, or is of a site that is not here. Sites go by
    /// name; two front-ends that have one each have the same, whatever they call it.
    fn fold_told(
        &mut self,
        shipment: &Shipment,
        words: u32,
        site: u32,
        weight: Weight,
    ) -> Option<ClassId> {
        let (method, target) = shipment.words.get(words as usize)?;
        let told = shipment.sites.get(site as usize).map(String::as_str);
        let site = match (self.are_several(), told) {
            (true, told) => told.unwrap_or_default(),
            (false, Some(told)) if shipment.sites.len() > 1 => {
                let mut own = self.sites.iter();
                own.any(|it| it.name == told).then_some("")?
            }
            (false, _) => "",
        };
        let request = classes::Request {
            site,
            method,
            target,
        };
        Some(self.table.add(&request, weight))
    }

    /// How far behind what is known here is complete.
    pub(in crate::live) fn behind(&self) -> Duration {
        match self.peers.is_empty() {
            true => Duration::ZERO,
            false => exchange::BEHIND,
        }
    }

    /// Other front-ends that do not answer, and why.
    pub(in crate::live) fn silent(&self) -> impl Iterator<Item = (SocketAddr, &str)> {
        let silent = |peer: &'_ Peer| peer.trouble.is_some();
        self.peers.iter().filter(move |it| silent(it)).map(|it| {
            let why = it.trouble.as_deref().unwrap_or_default();
            (it.address, why)
        })
    }
}
