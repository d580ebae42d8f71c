//! What must hold for anything that a server answers to a check of kind `ftp`, `nfs` or `smb`. Shared by the fuzz target and
//! by the tests of `tidegate`.
//!
//! 1. Reading never panics.
//! 2. What was decided of the begin of an answer stays so, whatever comes after it: pieces of any size lead to one result.

use std::fmt::Debug;

use super::{CheckFailure, ftp, nfs, smb};

/// Bytes of which each begin is looked at.
const BEGIN_BYTES_MAX: usize = 200;

/// Takes the first byte for the protocol, and the rest for the answer.
pub(crate) fn check(bytes: &[u8]) {
    let Some((protocol, answer)) = bytes.split_first() else {
        return;
    };
    match protocol % 3 {
        0 => {
            same_in_pieces(answer, ftp::reply);
            if let Ok(Some(reply)) = ftp::reply(answer) {
                assert!(
                    reply.code < 1000 && reply.bytes <= answer.len(),
                    "{reply:?}"
                );
            }
        }
        1 => same_in_pieces(answer, nfs::answer),
        _ => same_in_pieces(answer, smb::answer),
    }
}

fn same_in_pieces<T: Debug + PartialEq>(
    answer: &[u8],
    judge: impl Fn(&[u8]) -> Result<Option<T>, CheckFailure>,
) {
    let whole = judge(answer);
    for length in 0..answer.len().min(BEGIN_BYTES_MAX) {
        let begin = judge(&answer[..length]);
        assert!(
            begin == Ok(None) || begin == whole,
            "{length}: {begin:?}, {whole:?}"
        );
    }
}
