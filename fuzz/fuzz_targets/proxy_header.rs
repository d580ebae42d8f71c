//! Any bytes as what a connection begins with that a balancer passes on.
//!
//! The invariants stand in `invariants/proxy_header.rs`; the tests of `tidegate-proxy` replay the corpus through them.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| tidegate_proxy::fuzzing::proxy_header(bytes));
