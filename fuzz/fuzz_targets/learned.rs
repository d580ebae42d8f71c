//! Any bytes as what was learned before a restart, as they are and with a right sum.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../invariants/learned.rs"]
mod learned;

fuzz_target!(|bytes: &[u8]| learned::check(bytes));
