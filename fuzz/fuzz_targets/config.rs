//! Any bytes as a configuration.
//!
//! The invariants stand in `invariants/config.rs`; the tests of `tidegate` replay the corpus through them.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| tidegate::fuzzing::config(bytes));
