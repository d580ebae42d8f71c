//! Any bytes as an answer of an agent of HAProxy's agent check.
//!
//! The invariants stand in `invariants/agent_line.rs`; the tests of `tidegate-reported` replay the corpus through them.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../invariants/agent_line.rs"]
mod agent_line;

fuzz_target!(|bytes: &[u8]| agent_line::check(bytes));
