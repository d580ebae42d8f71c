//! What must hold for any bytes that a connection begins with where a header of the PROXY protocol is wanted. Shared by the fuzz
//! target and by the tests of `tidegate-proxy`.
//!
//! 1. Reading never panics, and ends within the longest header there is.
//! 2. A header is the same however its bytes come, and what follows it means nothing.
//! 3. What is asked for is at least a byte, and what is whole asks for nothing more.

use super::{FIXED, ProxyHeader, REST_MAX, read};

/// Checks all of them.
pub(crate) fn check(bytes: &[u8]) {
    let mut taken = 0;
    let found = loop {
        match read(&bytes[..taken]) {
            ProxyHeader::Needs(more) => {
                assert!(more > 0, "after {taken} bytes");
                taken += more;
                assert!(taken <= FIXED + REST_MAX);
                if taken > bytes.len() {
                    return;
                }
            }
            found @ (ProxyHeader::Whole(_) | ProxyHeader::Bad) => break found,
        }
    };
    // The same, a byte at a time: none of the shorter beginnings is whole.
    for length in 0..taken {
        match read(&bytes[..length]) {
            ProxyHeader::Whole(_) => panic!("{length} of {taken} bytes are whole"),
            ProxyHeader::Bad => assert_eq!(found, ProxyHeader::Bad),
            ProxyHeader::Needs(_) => {}
        }
    }
}
