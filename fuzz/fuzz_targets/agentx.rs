//! Any bytes as what a master of AgentX subagents sends.
//!
//! The invariants stand in `invariants/agentx.rs`; the tests of `tidegate-node` replay the corpus through them.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../invariants/agentx.rs"]
mod agentx;

fuzz_target!(|bytes: &[u8]| agentx::check(bytes));
