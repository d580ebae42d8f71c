//! Which servers of HAProxy are to be drained, since a front-end sends their nodes nothing: pure, from what HAProxy and the
//! front-end say.
//!
//! A server is drained here alone if it took requests before, and made ready again alone if it was drained here. What an operator
//! has drained or put in maintenance stays so; a server that an operator makes ready against us is left alone until its node
//! takes requests again. A HAProxy that was started anew has forgotten all states: it is another process, so that is no order.
//!
//! Never all servers of a backend: where no other one takes requests, one of those that would be drained stays in. An operator's
//! drain of a node goes before an ejection, which is a guess.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use super::changes::{Change, DrainState, Keeper, Key, Plan};
use super::servers::ServerState;

/// Why a front-end sends a node nothing, the firmest word first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Out {
    /// An operator has drained it, or put it in maintenance.
    Ordered,
    /// It is on its way to another site.
    Moving,
    /// It fails, or is at a soft limit.
    Ejected,
}

impl Out {
    fn words(self) -> &'static str {
        match self {
            Self::Ordered => "is drained there",
            Self::Moving => "moves to another site",
            Self::Ejected => "is ejected there",
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Drains {
    /// What is drained at first is taken to be drained here.
    takes_over: bool,
    /// Drained here.
    drained: BTreeSet<Key>,
    /// Made ready by others after that, or not to be drained by HAProxy's word.
    left_alone: BTreeSet<Key>,
    /// The last ones of their backends, which was said.
    kept: BTreeSet<Key>,
}

impl Drains {
    pub(super) fn new(takes_over: bool) -> Self {
        Self {
            takes_over,
            ..Self::default()
        }
    }

    /// HAProxy was started anew: it has drained nothing.
    pub(super) fn forget(&mut self) {
        self.drained.clear();
        self.left_alone.clear();
    }

    /// Compares what HAProxy has with what the front-end says; `out` has the nodes to which that sends nothing.
    pub(super) fn plan(
        &mut self,
        servers: &[ServerState],
        out: &BTreeMap<SocketAddr, Out>,
    ) -> Plan<DrainState> {
        if std::mem::take(&mut self.takes_over) {
            let drained = servers.iter().filter(|it| it.is_drained());
            self.drained = drained.map(ServerState::key).collect();
        }
        let mut plan = Plan::default();
        let mut backends: BTreeMap<&str, Vec<&ServerState>> = BTreeMap::new();
        for server in servers {
            backends.entry(&server.backend).or_default().push(server);
        }
        for servers in backends.into_values() {
            self.plan_backend(&servers, out, &mut plan);
        }
        plan
    }

    fn plan_backend(
        &mut self,
        servers: &[&ServerState],
        out: &BTreeMap<SocketAddr, Out>,
        plan: &mut Plan<DrainState>,
    ) {
        let why = |server: &ServerState| out.get(&server.address?).copied();
        for server in servers {
            self.note_orders(server, why(server).is_some(), plan);
        }
        // What is to be drained, and what takes requests beside that.
        let (mut wanted, mut others) = (Vec::new(), 0);
        for server in servers {
            let key = server.key();
            let ours = self.drained.contains(&key);
            match why(server) {
                Some(why) if ours || (server.is_ready() && !self.left_alone.contains(&key)) => {
                    wanted.push((why, *server));
                }
                _ => others += usize::from((ours || server.is_ready()) && server.is_of_use()),
            }
        }
        wanted.sort_by(|one, other| (one.0, &one.1.server).cmp(&(other.0, &other.1.server)));
        let spared = self.spared(&wanted, others == 0, plan);
        for server in servers {
            let key = server.key();
            let is_wanted = wanted.iter().any(|(_, it)| it.server == server.server);
            let drain = is_wanted && spared.as_ref() != Some(&key);
            if drain != self.drained.contains(&key) {
                let (change, reason) = change(server, drain, why(server));
                plan.changes.push(change);
                plan.reasons.push(reason);
            }
        }
    }

    /// The server that stays in, if one of those that are to be drained must.
    fn spared(
        &mut self,
        wanted: &[(Out, &ServerState)],
        needed: bool,
        plan: &mut Plan<DrainState>,
    ) -> Option<Key> {
        let of_use = wanted.iter().rev().find(|(_, it)| it.is_of_use());
        let (_, server) = of_use.filter(|_| needed)?;
        let key = server.key();
        if self.kept.insert(key.clone()) {
            let text = format!(
                "{}/{} is not drained: no other server of its backend takes requests",
                key.0, key.1
            );
            plan.events.push(("not_drained", text));
        }
        Some(key)
    }

    /// Notes what others have set since the last turn.
    fn note_orders(&mut self, server: &ServerState, is_out: bool, plan: &mut Plan<DrainState>) {
        let key = server.key();
        if !is_out {
            self.left_alone.remove(&key);
            self.kept.remove(&key);
        }
        if self.drained.contains(&key) && !server.is_drained() {
            self.drained.remove(&key);
            if is_out && server.is_ready() {
                let text = format!(
                    "{}/{} is left alone: it was made ready at HAProxy; it may be drained again once its node takes requests",
                    key.0, key.1
                );
                plan.events.push(("left_alone", text));
                self.left_alone.insert(key);
            }
        }
    }

    /// What makes all servers ready that were drained here and still are.
    pub(super) fn restore(&self, servers: &[ServerState]) -> Vec<Change<DrainState>> {
        let ours = |it: &&ServerState| self.drained.contains(&it.key()) && it.is_drained();
        let ready = |it: &ServerState| change(it, false, None).0;
        servers.iter().filter(ours).map(ready).collect()
    }
}

impl Keeper<DrainState> for Drains {
    fn on_set(&mut self, change: &Change<DrainState>) {
        match change.to {
            DrainState::Drained => _ = self.drained.insert(change.key.clone()),
            DrainState::Ready => _ = self.drained.remove(&change.key),
        }
    }

    /// The server is not tried again until its node takes requests.
    fn on_refused(&mut self, change: &Change<DrainState>) {
        self.drained.remove(&change.key);
        self.left_alone.insert(change.key.clone());
    }
}

/// Drains a server or makes it ready, and why.
fn change(
    server: &ServerState,
    drain: bool,
    out: Option<Out>,
) -> (Change<DrainState>, (&'static str, String)) {
    let (event, why) = match (drain, out) {
        (true, out) => ("drained", out.map_or("is out", Out::words)),
        (false, None) => ("ready", "takes requests"),
        (false, Some(_)) => ("ready", "is out, and so are all others of the backend"),
    };
    let (from, to) = match drain {
        true => (DrainState::Ready, DrainState::Drained),
        false => (DrainState::Drained, DrainState::Ready),
    };
    let key = server.key();
    let text = format!("{}/{}: its node {why}", key.0, key.1);
    (Change { key, from, to }, (event, text))
}

#[cfg(test)]
mod tests {
    use super::super::servers::{DRAINED, MAINTAINED};
    use super::*;

    fn address(last: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, last], 80))
    }

    fn server(last: u8, admin_state: u32) -> ServerState {
        ServerState {
            backend: "shop".into(),
            server: format!("n{last}"),
            address: Some(address(last)),
            admin_state,
            ..ServerState::running(100)
        }
    }

    fn change(last: u8, drain: bool) -> Change<DrainState> {
        super::change(&server(last, 0), drain, None).0
    }

    /// Plans, and does it.
    fn done(
        drains: &mut Drains,
        servers: &[ServerState],
        out: &[(u8, Out)],
    ) -> (Vec<Change<DrainState>>, Vec<&'static str>) {
        let out = out
            .iter()
            .map(|(last, why)| (address(*last), *why))
            .collect();
        let plan = drains.plan(servers, &out);
        plan.changes.iter().for_each(|it| drains.on_set(it));
        let events = plan.events.iter().chain(&plan.reasons);
        let events = events.map(|it| it.0).collect();
        (plan.changes, events)
    }

    #[test]
    fn a_server_is_out_as_long_as_its_node() {
        let mut drains = Drains::default();
        let all = [server(1, 0), server(2, 0)];
        assert_eq!(done(&mut drains, &all, &[]), (vec![], vec![]));
        let out = [(1, Out::Ejected)];
        let drained = (vec![change(1, true)], vec!["drained"]);
        assert_eq!(done(&mut drains, &all, &out), drained);
        let all = [server(1, DRAINED), server(2, 0)];
        assert_eq!(done(&mut drains, &all, &out), (vec![], vec![]));
        assert_eq!(drains.restore(&all), [change(1, false)]);
        let ready = (vec![change(1, false)], vec!["ready"]);
        assert_eq!(done(&mut drains, &all, &[]), ready);
        assert_eq!(drains.restore(&all), []);
    }

    #[test]
    fn an_operators_states_stand() {
        let mut drains = Drains::default();
        let out = [(1, Out::Ejected), (2, Out::Ordered), (3, Out::Ejected)];
        let all = [
            server(1, DRAINED),
            server(2, MAINTAINED),
            server(3, 0),
            server(4, 0),
        ];
        let drained = (vec![change(3, true)], vec!["drained"]);
        assert_eq!(done(&mut drains, &all, &out), drained);
        // Made ready at HAProxy: no word of ours until the node is back.
        let ready = [server(3, 0), server(4, 0)];
        let left = (vec![], vec!["left_alone"]);
        assert_eq!(done(&mut drains, &ready, &out), left);
        assert_eq!(done(&mut drains, &ready, &out), (vec![], vec![]));
        assert_eq!(done(&mut drains, &ready, &[]), (vec![], vec![]));
        let drained = (vec![change(3, true)], vec!["drained"]);
        assert_eq!(done(&mut drains, &ready, &out), drained);
        // Put in maintenance meanwhile: it stays so.
        let all = [server(3, MAINTAINED), server(4, 0)];
        assert_eq!(done(&mut drains, &all, &out), (vec![], vec![]));
        assert_eq!(done(&mut drains, &all, &[]), (vec![], vec![]));
        assert_eq!(drains.restore(&all), []);
    }

    #[test]
    fn one_of_a_backend_stays_in() {
        let mut drains = Drains::default();
        let out = [(1, Out::Ejected), (2, Out::Ordered)];
        // The operator's word is the firmer one.
        let all = [server(1, 0), server(2, 0)];
        let kept = (vec![change(2, true)], vec!["not_drained", "drained"]);
        assert_eq!(done(&mut drains, &all, &out), kept);
        let all = [server(1, 0), server(2, DRAINED)];
        assert_eq!(done(&mut drains, &all, &out), (vec![], vec![]));
        // A third one comes, and goes down: those that are drained are needed again.
        let three = [server(1, 0), server(2, DRAINED), server(3, 0)];
        let drained = (vec![change(1, true)], vec!["drained"]);
        assert_eq!(done(&mut drains, &three, &out), drained);
        let down = ServerState {
            is_up: false,
            ..server(3, 0)
        };
        let three = [server(1, DRAINED), server(2, DRAINED), down];
        let ready = (vec![change(1, false)], vec!["ready"]);
        assert_eq!(done(&mut drains, &three, &out), ready);
    }

    #[test]
    fn a_haproxy_that_was_started_anew_is_drained_anew() {
        let mut drains = Drains::default();
        let (all, out) = ([server(1, 0), server(2, 0)], [(1, Out::Moving)]);
        let drained = (vec![change(1, true)], vec!["drained"]);
        assert_eq!(done(&mut drains, &all, &out), drained);
        drains.forget();
        assert_eq!(done(&mut drains, &all, &out), drained);
        assert_eq!(done(&mut drains, &all, &out).1, ["left_alone"]);
    }

    #[test]
    fn what_was_drained_before_can_be_taken_over() {
        let all = [server(1, DRAINED), server(2, 0)];
        let mut drains = Drains::new(true);
        let ready = (vec![change(1, false)], vec!["ready"]);
        assert_eq!(done(&mut drains, &all, &[]), ready);
        // Later ones are an operator's.
        assert_eq!(done(&mut drains, &all, &[]), (vec![], vec![]));
    }

    #[test]
    fn what_haproxy_refuses_is_not_tried_again() {
        let mut drains = Drains::default();
        let all = [server(1, 0), server(2, 0)];
        let plan = drains.plan(&all, &[(address(1), Out::Ejected)].into());
        drains.on_refused(&plan.changes[0]);
        let out = [(1, Out::Ejected)];
        assert_eq!(done(&mut drains, &all, &out), (vec![], vec![]));
    }
}
