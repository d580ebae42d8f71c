//! Any bytes as requests that are folded into classes: what clients can do to names and memory.
//!
//! The invariants stand in `invariants/classes.rs`; the tests of `tidegate-core` replay the corpus through them.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../invariants/classes.rs"]
mod classes;

fuzz_target!(|bytes: &[u8]| classes::check(bytes));
