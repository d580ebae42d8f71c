//! Any bytes as a datagram: what a node and a front-end do with what the network sends them.
//!
//! The invariants stand in `invariants/wire.rs`; the tests of `tidegate-remote` replay the corpus through them.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../invariants/wire.rs"]
mod wire;

fuzz_target!(|bytes: &[u8]| wire::check(bytes));
