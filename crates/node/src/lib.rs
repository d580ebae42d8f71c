//! The node side: samples the kernel and publishes the load record.
//!
//! What this crate does **not** know: sites, policies and front-ends. It reads what the kernel
//! says of this machine or of one control group, and hands the record out.
//!
//! * [`Agent`]: a thread that samples and publishes, and the responder that answers.
//! * The kernel answers in the agent's place where it lets programs in (`kernel.rs`).
//! * [`MovesWatch`]: the agent's part of moves between sites; runs hooks.
//! * [`run_command`]: a listed command, with a deadline.
//! * [`report`]: the load as operators' protocols tell it.
//! * [`Sampler`]: files to a record; every source says whether it was truly measured and how.

mod agent;
mod config;
mod connections;
mod counter;
mod demand;
mod file;
mod findings;
mod kernel;
mod moves;
mod pace;
mod parse;
mod privilege;
mod rdma;
pub mod report;
mod sampler;

pub use agent::{Agent, AgentError, AgentHandle, AgentStatus, ServicesBoard};
pub use config::{
    AgentConfig, COMMANDS_MAX, HOOK_TIMEOUT, HOOK_TIMEOUT_MAX, HOOK_TIMEOUT_MIN, HookTemplate,
    INTERVAL_DEFAULT, INTERVAL_MAX, INTERVAL_MIN, LISTEN_DEFAULT, MovesConfig, RUNGS,
    SamplerConfig, Scope, SiteHook,
};
pub use connections::ServiceConnections;
pub use kernel::{PACKETS as PACKET_RUNGS, options as kernel_options};
pub use moves::{
    CommandEnd, HookError, HookPart, KeptError, MovesError, MovesEvent, MovesWatch,
    check_kept_folder, check_program, kept_files, run_command,
};
pub use parse::mounts::{Hierarchy, hierarchies};
pub use privilege::STARTING as STARTING_CAPABILITIES;
pub use rdma::address as rdma_address;
pub use sampler::{CpuLines, Sampler, SamplerError, process_names, short_name};
