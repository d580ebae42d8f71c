//! What open-loop load is made of: connections that are there when a request is due, and a timer that is on time.

mod connections;
mod timer;

pub use connections::{Connections, NoBody, SendError};
pub use timer::Timer;
