//! Any bytes as a chunked body: what the proxy does with what clients and servers send it.
//!
//! The invariants stand in `invariants/chunks.rs`; the tests of `tidegate-proxy` check them as well.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/proxy/src/chunks.rs"]
mod chunks;

fuzz_target!(|bytes: &[u8]| chunks::invariants::check(bytes));
