//! A request from its head to its end: what is known of it, whether it is let in, and which node it gets.

mod admit;
mod client;
mod guard;
mod pick;
mod redirect;
mod state;

pub(crate) use admit::{
    Admitted, CONNECTION, RequestTraits, Wait, admit, admit_connection, prepare, until_room, waited,
};
pub(crate) use client::Client;
pub(crate) use guard::{Moment, RequestGuard, enter_headless, outcome_of, traced};
pub(crate) use pick::{dispatch, hand_over, note_try, trace_second};
pub(crate) use state::Hedging;
