//! Any bytes as a load record: what a front-end does with what the network sends it.
//!
//! The invariants stand in `invariants/load_record.rs`, one function each: decoding refuses or
//! gives a record that keeps its word; what was encoded is decoded; a history of any records
//! makes loads of known numbers or unknown ones, never of nonsense. The tests of
//! `tidegate-core` replay the corpus through the same functions.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../invariants/load_record.rs"]
mod load_record;

fuzz_target!(|bytes: &[u8]| load_record::check(bytes));
