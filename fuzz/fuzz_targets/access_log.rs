//! Any bytes as an access log.
//!
//! The invariants stand in `invariants/access_log.rs`; the tests of `tidegate-culprits` replay the corpus through them.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| tidegate_culprits::fuzzing::access_log(bytes));
