//! Any bytes as what a node reports of its load with a response.
//!
//! The invariants stand in `invariants/load_header.rs`; the tests of `tidegate-proxy` replay the corpus through them.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| tidegate_proxy::fuzzing::load_header(bytes));
