//! Any bytes as a question of a client of ORCA.
//!
//! The invariants stand in `invariants/orca.rs`; the tests of `tidegate-node` replay the corpus through them.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../invariants/orca.rs"]
mod orca;

fuzz_target!(|bytes: &[u8]| orca::check(bytes));
