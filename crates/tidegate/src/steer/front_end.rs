//! What a running front-end says of its nodes: to which of them it sends no requests, and why.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use tidegate_core::time::Timestamp;

use super::drains::Out;
use crate::client::{Client, NamedBy};
use crate::config::Admin;
use crate::models::{NodeStatus, Status};

/// Longest wait for its answer: weights wait meanwhile.
const PATIENCE: Duration = Duration::from_secs(1);
/// So long its last word holds. One that is gone for longer holds nothing back any more: an upgrade takes less.
const HOLDS_FOR: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Debug)]
pub(super) struct FrontEndWord {
    client: Client,
    /// Nothing before its first word.
    out: Option<BTreeMap<SocketAddr, Out>>,
    /// When that was said.
    said_at: Timestamp,
    is_silent: bool,
}

impl FrontEndWord {
    /// Of the front-end at this admin address, which a file gave.
    pub(super) fn new(admin: Admin, file: &Path) -> Self {
        Self {
            client: Client {
                address: admin.address,
                named_by: NamedBy::File(file.into()),
                token: admin.token,
                patience: PATIENCE,
            },
            out: None,
            said_at: Timestamp::ZERO,
            is_silent: false,
        }
    }

    /// Asks it. What is to be said of that, with the name of its event.
    pub(super) async fn ask(&mut self, now: Timestamp) -> Option<(&'static str, String)> {
        let silent = match self.client.get_soon::<Status>("/api/status").await {
            Ok(status) => {
                self.out = Some(out_of(&status));
                self.said_at = now;
                None
            }
            Err(why) => Some(why),
        };
        if now.since(self.said_at) > HOLDS_FOR {
            self.out.iter_mut().for_each(BTreeMap::clear);
        }
        let before = std::mem::replace(&mut self.is_silent, silent.is_some());
        match silent {
            Some(why) if !before => {
                let holds = HOLDS_FOR.as_secs();
                let text = format!("what it said last holds for {holds} s: {why}");
                Some(("no_front_end", text))
            }
            None if before => Some(("front_end", "the front-end answers".into())),
            _ => None,
        }
    }

    /// Nodes to which it sends no requests, once it has said anything.
    pub(super) fn out(&self) -> Option<&BTreeMap<SocketAddr, Out>> {
        self.out.as_ref()
    }
}

/// Nodes to which a front-end sends no requests, by their addresses. One address may be a node of several sites: it is out if
/// all of these are.
fn out_of(status: &Status) -> BTreeMap<SocketAddr, Out> {
    let mut all: BTreeMap<SocketAddr, Option<Out>> = BTreeMap::new();
    for node in status.sites.iter().flat_map(|site| &site.nodes) {
        let Ok(address) = node.address.parse::<SocketAddr>() else {
            continue;
        };
        let address = SocketAddr::new(address.ip().to_canonical(), address.port());
        let out = out(node);
        let known = all.entry(address);
        known
            .and_modify(|known| *known = known.and(out))
            .or_insert(out);
    }
    let out = all.into_iter();
    out.filter_map(|(address, out)| Some((address, out?)))
        .collect()
}

fn out(node: &NodeStatus) -> Option<Out> {
    match node.candidate {
        true => None,
        false if node.state != "ready" => Some(Out::Ordered),
        false if node.moving => Some(Out::Moving),
        false => Some(Out::Ejected),
    }
}
