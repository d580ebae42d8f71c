//! A new process takes the place of this one, and no client notices.
//!
//! ```text
//! this process                          its successor: same path, same arguments
//!   SIGUSR2, POST /api/upgrade
//!   starts it ───────────────────────────> reads its configuration
//!   Sockets, …, Whole ───────────────────> takes the listening sockets of its listeners, opens others
//!                                          serves beside this process
//!   <──────────────── Ready | Failed | end
//!   Yours ───────────────────────────────> is on its own
//!   closes its copies, drains
//! ```
//!
//! Both have the same sockets (`SCM_RIGHTS`), so no connection waits in a queue that closes, and nothing is refused or
//! reset in between. Until it has sent `Yours` this process serves as before: a successor that fails, ends or is not
//! ready in time changes nothing but the log, a counter and the answer. One upgrade at a time.
//!
//! Failure case: a successor that is ready and fails afterwards. By then the former process takes nothing new.
//!
//! | file | what |
//! |---|---|
//! | `program` | what is started |
//! | `channel` | words between the two, with files |
//! | `predecessor` | this process's side |
//! | `successor` | the new one's |
//! | `sockets` | which listener has which socket; those of the service manager |
//! | `desk` | where upgrades are asked for, one at a time |
//! | `notify` | what the service manager hears |

mod channel;
mod desk;
pub(crate) mod notify;
mod predecessor;
mod program;
mod sockets;
pub(crate) mod successor;

pub(crate) use channel::Role;
pub(crate) use desk::{Change, Desk, Requests, Upgrader, desk};
pub(crate) use predecessor::{Offer, Successor};
pub(crate) use program::Program;
pub(crate) use sockets::GivenSockets;
pub(crate) use successor::{Given, Succession};
