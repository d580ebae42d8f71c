//! Any bytes as a request's target: what a site's routes make of it.
//!
//! The invariants stand in `invariants/route.rs`; the tests of `tidegate-proxy` replay the corpus through them.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| tidegate_proxy::fuzzing::route(bytes));
