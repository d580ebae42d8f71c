//! Any bytes as an offer or an answer to connect over RDMA: what a node and a front-end take from each other.
//!
//! The invariants stand in `invariants/rdma_exchange.rs`; the tests of `tidegate-remote` replay the corpus through them.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../invariants/rdma_exchange.rs"]
mod rdma_exchange;

fuzz_target!(|bytes: &[u8]| rdma_exchange::check(bytes));
