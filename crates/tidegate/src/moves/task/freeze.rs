//! Sites that operators freeze: they neither get nor give a node, whichever front-end wants it, until they are thawed.
//!
//! ```text
//! freeze  S[x] free -> frozen, at the same sequence       thaw  S[x] frozen -> free, at the next one
//! taken   S[x] is looked at again until its move has let go of it, for 2 s at most
//! ```
//!
//! A node that is on its way by then arrives, or goes back: neither takes a lock. Failure case: a home that loses its words
//! loses this with them, and so do words of one process that begin anew.

use tidegate_core::moves::steps::MoveOp;
use tidegate_core::moves::words::{LockState, SiteLock};
use tidegate_remote::clock;
use tokio::time::Interval;

use super::{MovesTask, NO_PARTY, ORDER_MAX, unknown_site};
use crate::moves::models::FreezeRequest;

impl MovesTask {
    /// Freezes a site or thaws it, and waits until its lock says so.
    pub(super) async fn freeze(
        &mut self,
        request: &FreezeRequest,
        frozen: bool,
        ticks: &mut Interval,
    ) -> Result<(), String> {
        let name = &request.site;
        let deadline = clock::now() + ORDER_MAX;
        let mut swapped = false;
        loop {
            self.look().await;
            let party = self.party.as_mut().ok_or(NO_PARTY)?;
            let site = party.constitution().site_number(name);
            let site = site.ok_or_else(|| unknown_site(name))?;
            let lock = party.lock(site);
            if lock.is_some_and(|it| is_so(it, frozen)) {
                break;
            }
            if clock::now() >= deadline {
                let trouble = self.trouble.as_ref().map(|it| it.text().to_owned());
                return Err(trouble.unwrap_or_else(|| match lock {
                    Some(_) => format!("the lock of {name} is taken: a move of it does not end"),
                    None => format!("the words of {name} cannot be read"),
                }));
            }
            if let Some((expected, new)) = lock.and_then(|it| Some((it, changed(it, frozen)?))) {
                let op = MoveOp::SwapLock {
                    site,
                    expected,
                    new,
                };
                party.carry_out(op.atomic()).await;
                swapped = true;
            }
            ticks.tick().await;
        }
        self.show();
        if swapped {
            let (event, text) = match frozen {
                true => ("frozen", "neither gets nor gives a node from now on"),
                false => ("thawed", "gets and gives nodes again"),
            };
            self.output
                .event(event, &format!("site {name} {text}: an operator's order"));
        }
        Ok(())
    }
}

/// Whether nothing is to be done.
fn is_so(lock: SiteLock, frozen: bool) -> bool {
    match lock.state {
        LockState::Frozen => frozen,
        LockState::Idle | LockState::Receives(..) | LockState::Gives(_) => !frozen,
    }
}

/// What a lock becomes; none while it is taken.
fn changed(lock: SiteLock, frozen: bool) -> Option<SiteLock> {
    match frozen {
        true => lock.frozen(),
        false => Some(lock.released()),
    }
}
