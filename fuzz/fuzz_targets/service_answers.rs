//! Any bytes as what a server answers to a check.
//!
//! The invariants stand in `invariants/service_answers.rs`; the tests of `tidegate` replay the corpus through them.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| tidegate::fuzzing::service_answers(bytes));
