//! Any bytes as a message's head: what the proxy does with what clients and servers send it.
//!
//! The invariants stand in `invariants/head.rs`; the tests of `tidegate-proxy` replay the corpus through them.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| tidegate_proxy::fuzzing::head(bytes));
