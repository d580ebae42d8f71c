//! What a node's own agent says of it, in the words of HAProxy's agent check: what it weighs, whether it is well, whether it is in
//! service, how many requests it bears.
//!
//! ```text
//! W      NN%: w NN / 100;  weight:NN: NN              w: configured weight
//! out    down, fail or stopped, until up;             an ejection: it fails open as all of them do
//!        W = 0, until W > 0                           what serves all the same weighs w
//! state  drain or maint, until ready                  beside the operator's: requests need both to be `ready`
//! most   maxconn: own requests in flight; 0: no bound
//! ```
//!
//! Inputs: the agent's answers, in their order. What an answer does not say stays as it was. So only the agent takes back what
//! it has set, and one that is gone changes nothing.
//!
//! Failure case: an agent that ends after it has said `down` keeps its node out, until it says `up` or the node's load is
//! configured otherwise.
//! Source: HAProxy's manual, `agent-check`.

use std::net::SocketAddr;
use std::sync::Arc;

use super::{AdminState, Cause, Ejection};
use crate::time::Timestamp;

/// What a node weighs, as its agent says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AgentWeight {
    /// Of its configured weight.
    Share(f32),
    /// In place of that.
    Absolute(f32),
}

/// Whether a node is well, as its agent says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentHealth {
    /// It is.
    Up,
    /// It is not.
    Down {
        /// The agent's word: `down`, `fail` or `stopped`.
        word: &'static str,
        /// Why, in the agent's words; it may be empty.
        reason: Arc<str>,
    },
}

/// What one answer says. What it does not say stays as it was.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentAnswer {
    /// What the node weighs.
    pub weight: Option<AgentWeight>,
    /// Whether it is in service.
    pub state: Option<AdminState>,
    /// Whether it is well.
    pub health: Option<AgentHealth>,
    /// How many own requests it bears; zero: as many as come.
    pub most: Option<u32>,
}

impl AgentAnswer {
    /// Takes in what a later answer says: its words count.
    pub fn then(&mut self, later: &Self) {
        let Self {
            weight,
            state,
            health,
            most,
        } = later;
        self.weight = weight.or(self.weight);
        self.state = state.or(self.state);
        self.health = health.clone().or(self.health.take());
        self.most = most.or(self.most);
    }
}

/// What a node's agent has said since it was listened to last.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentNews {
    /// What was said before does not stand any more: it is another agent, or none is asked any more.
    pub anew: bool,
    /// What came after that; of two words of a kind the last one.
    pub answer: AgentAnswer,
    /// When that came.
    pub at: Timestamp,
    /// Where the agent answers.
    pub from: Option<SocketAddr>,
}

impl AgentNews {
    /// What was said before does not stand any more.
    pub fn anew() -> Self {
        Self {
            anew: true,
            ..Self::default()
        }
    }

    /// Takes in later news.
    pub fn then(&mut self, later: Self) {
        if later.anew || are_others(self.from, later.from) {
            *self = Self {
                anew: true,
                ..later
            };
        } else {
            self.answer.then(&later.answer);
            self.at = later.at;
            self.from = later.from.or(self.from);
        }
    }
}

/// Whether two are known to be agents at different addresses.
fn are_others(one: Option<SocketAddr>, other: Option<SocketAddr>) -> bool {
    one.zip(other).is_some_and(|(one, other)| one != other)
}

/// A node that its agent has out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentDown {
    /// Since when.
    pub since: Timestamp,
    /// The agent's word for it.
    pub word: &'static str,
    /// Why; it may be empty.
    pub reason: Arc<str>,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentState {
    /// What the node weighs; none: as configured.
    pub weight: Option<AgentWeight>,
    /// Since when that is nothing.
    pub weightless_since: Option<Timestamp>,
    /// Whether it is in service.
    pub state: AdminState,
    /// Why it is not well.
    pub down: Option<AgentDown>,
    /// Most own requests in flight.
    pub most: Option<u32>,
    /// Where the agent that has said all this answers.
    pub from: Option<SocketAddr>,
}

impl AgentState {
    /// Takes an answer in; whether it changes anything.
    pub fn on_answer(&mut self, answer: &AgentAnswer, at: Timestamp) -> bool {
        let before = self.clone();
        if let Some(weight) = answer.weight {
            self.weight = Some(weight);
            let (AgentWeight::Share(number) | AgentWeight::Absolute(number)) = weight;
            let is_nothing = number <= 0.0;
            self.weightless_since = is_nothing.then(|| self.weightless_since.unwrap_or(at));
        }
        self.state = answer.state.unwrap_or(self.state);
        match &answer.health {
            None => {}
            Some(AgentHealth::Up) => self.down = None,
            Some(AgentHealth::Down { word, reason }) => {
                self.down = Some(AgentDown {
                    since: self.down.as_ref().map_or(at, |down| down.since),
                    word,
                    reason: Arc::clone(reason),
                });
            }
        }
        if let Some(most) = answer.most {
            self.most = (most > 0).then_some(most);
        }
        *self != before
    }

    /// What it comes to with the news.
    pub fn with(&self, news: &AgentNews) -> Self {
        let mut next = if news.anew || are_others(self.from, news.from) {
            Self::default()
        } else {
            self.clone()
        };
        next.from = news.from.or(next.from);
        next.on_answer(&news.answer, news.at);
        next
    }

    /// Whether there is anything that it has said and not taken back.
    pub fn says_anything(&self) -> bool {
        self.as_answer() != AgentAnswer::default()
    }

    /// The answer that would say all of it at once.
    pub fn as_answer(&self) -> AgentAnswer {
        let down = self.down.as_ref();
        AgentAnswer {
            weight: self.weight,
            state: (self.state != AdminState::Ready).then_some(self.state),
            health: down.map(|down| AgentHealth::Down {
                word: down.word,
                reason: Arc::clone(&down.reason),
            }),
            most: self.most,
        }
    }

    /// What a node weighs that is configured with this weight, while it serves.
    pub fn weight_of(&self, configured: f32) -> f32 {
        match self.weight.filter(|_| self.weightless_since.is_none()) {
            None => configured,
            Some(AgentWeight::Share(share)) => configured * share,
            Some(AgentWeight::Absolute(weight)) => weight,
        }
    }

    /// Since when the agent has the node out, if it has.
    pub fn ejection(&self) -> Option<Ejection> {
        let down = self.down.as_ref().map(|down| down.since);
        let since = down.or(self.weightless_since)?;
        Some(Ejection {
            cause: Cause::Agent,
            since,
            until: since,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_agent_has_said_does_not_stand_once_one_at_another_address_answers() {
        let news = |answer, port| AgentNews {
            anew: false,
            answer,
            at: at(1),
            from: Some(([10, 0, 0, 1], port).into()),
        };
        let before = AgentState::default().with(&news(down("disk"), 1));
        let same = before.with(&news(AgentAnswer::default(), 1));
        assert!(same.down.is_some());
        let other = news(AgentAnswer::default(), 2);
        assert!(before.with(&other).down.is_none());
        let mut unheard = news(down("disk"), 1);
        unheard.then(other);
        assert!(before.with(&unheard).down.is_none());
    }

    #[test]
    fn news_that_were_not_heard_yet_come_to_what_they_say_one_after_the_other() {
        let word = |state| AgentAnswer {
            state: Some(state),
            ..AgentAnswer::default()
        };
        let news = |answer, ms| AgentNews {
            anew: false,
            answer,
            at: at(ms),
            from: None,
        };
        let all = [
            news(word(AdminState::Drain), 1),
            news(down("disk"), 2),
            AgentNews::anew(),
            news(word(AdminState::Maint), 3),
            news(down("memory"), 4),
            news(AgentAnswer::default(), 5),
        ];
        for split in 0..all.len() {
            let mut unheard = all[split].clone();
            all[split + 1..]
                .iter()
                .for_each(|it| unheard.then(it.clone()));
            let heard = &all[..split];
            let one_by_one = |state: AgentState, news: &AgentNews| state.with(news);
            let before = heard.iter().fold(AgentState::default(), one_by_one);
            let at_once = before.with(&unheard);
            assert_eq!(at_once.state, AdminState::Maint, "{split}");
            let down = at_once.down.unwrap();
            assert_eq!(&*down.reason, "memory", "{split}");
        }
    }

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    fn down(reason: &str) -> AgentAnswer {
        AgentAnswer {
            health: Some(AgentHealth::Down {
                word: "down",
                reason: reason.into(),
            }),
            ..AgentAnswer::default()
        }
    }

    fn weight(weight: AgentWeight) -> AgentAnswer {
        AgentAnswer {
            weight: Some(weight),
            ..AgentAnswer::default()
        }
    }

    #[test]
    fn what_is_not_said_stays() {
        let mut state = AgentState::default();
        let drain = AgentAnswer {
            state: Some(AdminState::Drain),
            most: Some(20),
            ..AgentAnswer::default()
        };
        assert!(state.on_answer(&drain, at(1)));
        assert!(!state.on_answer(&drain, at(2)), "said again");
        assert!(state.on_answer(&weight(AgentWeight::Share(0.5)), at(3)));
        assert!(state.on_answer(&down("disk"), at(4)));
        assert!(!state.on_answer(&AgentAnswer::default(), at(5)));
        assert_eq!(state.state, AdminState::Drain);
        assert_eq!(state.most, Some(20));
        assert_eq!(state.weight_of(3.0), 1.5);
        let unbound = AgentAnswer {
            most: Some(0),
            ..AgentAnswer::default()
        };
        assert!(state.on_answer(&unbound, at(6)));
        assert_eq!(state.most, None);
    }

    #[test]
    fn it_is_out_since_the_first_answer_that_says_so() {
        let mut state = AgentState::default();
        state.on_answer(&down("disk"), at(10));
        assert!(
            state.on_answer(&down("two disks"), at(20)),
            "another reason"
        );
        assert_eq!(state.ejection().unwrap().since, at(10));
        let up = AgentAnswer {
            health: Some(AgentHealth::Up),
            ..AgentAnswer::default()
        };
        assert!(state.on_answer(&up, at(30)));
        assert_eq!(state.ejection(), None);
    }

    #[test]
    fn a_weight_of_nothing_has_it_out_whatever_else_is_said() {
        let mut state = AgentState::default();
        state.on_answer(&weight(AgentWeight::Absolute(0.0)), at(10));
        state.on_answer(&weight(AgentWeight::Share(0.0)), at(20));
        assert_eq!(state.ejection().unwrap().since, at(10));
        assert_eq!(state.ejection().unwrap().cause, Cause::Agent);
        state.on_answer(&weight(AgentWeight::Absolute(7.0)), at(30));
        assert_eq!(state.ejection(), None);
        assert_eq!(state.weight_of(3.0), 7.0);
    }
}
