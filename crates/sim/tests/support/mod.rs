//! What the tests of this folder share.

use std::ops::Range;

/// These seeds, or the one that `SEED` in the environment names.
pub(crate) fn seeds(all: Range<u64>) -> Range<u64> {
    match std::env::var("SEED") {
        Ok(seed) => match seed.parse() {
            Ok(seed) => seed..seed + 1,
            Err(_) => panic!("SEED must be a whole number, not `{seed}`"),
        },
        Err(_) => all,
    }
}
