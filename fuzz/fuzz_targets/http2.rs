//! Any bytes as what a client of HTTP/2 sends.
//!
//! The invariants stand in `invariants/http2.rs`; the tests of `tidegate-proxy` replay the corpus through them.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| tidegate_proxy::fuzzing::http2(bytes));
