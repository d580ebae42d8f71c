//! Sessions in overload: with the known ones first, as many get to their end as can, and without
//! a few do.
//!
//! One server with ten places, 10 ms each: 1000 requests a second. Sessions of ten requests each come at
//! four times that, think for 50 ms between two requests, and leave for good when one is refused.

#[path = "support/cluster.rs"]
mod cluster;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cluster::{SITE, cluster};
use tidegate_core::admission::{AdmissionConfig, AdmissionKind, Priority, Rank, Sessions};
use tidegate_core::director::Director;
use tidegate_core::load::LoadTable;
use tidegate_core::picker::{Arrival, Decision, Picker, Ticket, WaitId};
use tidegate_core::policy::PolicyConfig;
use tidegate_core::prng::Prng;
use tidegate_core::time::Timestamp;
use tidegate_core::topology::NodeId;

const PLACES: f32 = 10.0;
const SERVICE_MS: usize = 10;
const THINK_MS: f64 = 50.0;
const REQUESTS: u32 = 10;
const SESSIONS_PER_MS: f64 = 0.4;
const LENGTH_MS: usize = 20_000;
/// Sessions that begin later might not have ended when the run does.
const MEASURED_MS: usize = 15_000;

#[derive(Clone, Copy)]
struct Session {
    hash: u64,
    began_ms: usize,
    left: u32,
}

struct World {
    picker: Picker,
    known: Option<Sessions>,
    prng: Prng,
    next_id: u64,
    waiting: BTreeMap<u64, Session>,
    requests: Vec<Vec<Session>>,
    served: Vec<Vec<(Ticket, Session)>>,
    began: u32,
    ended: u32,
}

impl World {
    fn new(known: bool) -> Self {
        let mut spec = cluster(&[1.0], PolicyConfig::default(), 1);
        spec.sites[0].admission = AdmissionConfig {
            slo: Duration::from_millis(500),
            sessions: known,
            ..AdmissionConfig::new(AdmissionKind::Adaptive)
        };
        let table = Arc::new(LoadTable::new(1, 1));
        let above = |rank: Rank| f32::from(u8::from(rank.priority().is_established()));
        let limits = Rank::ALL.map(|rank| PLACES + above(rank));
        table.set_limits(NodeId(0), limits);
        Self {
            picker: Picker::new(table, Director::new(spec, 1).topology(), 1),
            known: known.then(|| Sessions::new(Sessions::SLOTS, Duration::from_secs(60))),
            prng: Prng::new(7),
            next_id: 0,
            waiting: BTreeMap::new(),
            requests: (0..LENGTH_MS).map(|_| Vec::new()).collect(),
            served: (0..LENGTH_MS).map(|_| Vec::new()).collect(),
            began: 0,
            ended: 0,
        }
    }

    fn run(mut self) -> f64 {
        let mut next = 0.0;
        for ms in 0..LENGTH_MS {
            for (ticket, session) in std::mem::take(&mut self.served[ms]) {
                drop(ticket);
                self.on_answer(session, ms);
                self.poll(ms);
            }
            while next < ms as f64 {
                next += self.prng.exponential(1.0 / SESSIONS_PER_MS);
                let session = Session {
                    hash: self.prng.bits(),
                    began_ms: ms,
                    left: REQUESTS,
                };
                self.began += u32::from(ms < MEASURED_MS);
                self.request(session, ms);
            }
            for session in std::mem::take(&mut self.requests[ms]) {
                self.request(session, ms);
            }
            self.poll(ms);
        }
        f64::from(self.ended) / f64::from(self.began)
    }

    fn request(&mut self, session: Session, ms: usize) {
        let now = at(ms);
        self.next_id += 1;
        let known = self.known.as_ref();
        let known = known.is_some_and(|known| known.is_established(session.hash, now));
        let arrival = Arrival {
            priority: Priority::HIGHEST.with_established(known),
            id: WaitId(self.next_id),
            ..Arrival::at(SITE)
        };
        match self.picker.handle_request(&arrival, now) {
            Decision::Forward(ticket) => self.send(ticket, session, ms),
            Decision::Wait => {
                self.waiting.insert(self.next_id, session);
            }
            Decision::Reject(_) => {}
        }
    }

    fn poll(&mut self, ms: usize) {
        while let Some((id, decision)) = self.picker.poll_waiting(at(ms)) {
            let session = self.waiting.remove(&id.0);
            if let (Decision::Forward(ticket), Some(session)) = (decision, session) {
                self.send(ticket, session, ms);
            }
        }
    }

    fn send(&mut self, ticket: Ticket, session: Session, ms: usize) {
        if let Some(known) = &self.known {
            known.mark(session.hash, at(ms));
        }
        // What would be served behind the end is dropped, and with it its place.
        if let Some(served) = self.served.get_mut(ms + SERVICE_MS) {
            served.push((ticket, session));
        }
    }

    fn on_answer(&mut self, session: Session, ms: usize) {
        let left = session.left - 1;
        if left == 0 {
            self.ended += u32::from(session.began_ms < MEASURED_MS);
            return;
        }
        let next = ms + self.prng.exponential(THINK_MS) as usize + 1;
        if let Some(requests) = self.requests.get_mut(next) {
            requests.push(Session { left, ..session });
        }
    }
}

fn at(ms: usize) -> Timestamp {
    Timestamp::from_millis(1000 + ms as u64)
}

#[test]
fn established_sessions_get_to_their_end_in_overload() {
    let (without, with) = (World::new(false).run(), World::new(true).run());
    // All that the server can do is a quarter, and a tenth more: the place above the limit.
    assert!(with > 0.25 && with <= 0.275, "{with}");
    assert!(without < 0.1, "{without}");
}
