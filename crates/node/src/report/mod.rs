//! The node's load in the words of other programs: pure functions from records to answers. Sockets are the agent's.

pub mod agent_check;
pub mod agentx;
pub mod fields;
pub mod heartbeat;
pub mod mib;
pub mod orca;
mod own_load;

pub use own_load::OwnLoad;
