//! Any bytes as a question of a balancer's agent check.
//!
//! The invariants stand in `invariants/agent_check.rs`; the tests of `tidegate-node` replay the corpus through them.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../invariants/agent_check.rs"]
mod agent_check;

fuzz_target!(|bytes: &[u8]| agent_check::check(bytes));
