//! Files that a process is given by the one that starts it, by their numbers.

use std::io;
use std::ops::Range;
use std::os::fd::{BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};

/// They are owned by what has taken them.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Takes the files of these numbers, which programs that this process starts do not get. To be called once, before the
/// process opens anything: it must have been given these, so that nothing else of it owns them.
///
/// # Errors
/// They were taken before, or one is not open.
pub fn take(numbers: Range<RawFd>) -> io::Result<Vec<OwnedFd>> {
    if numbers.start < 3 {
        return Err(io::Error::other(
            "standard input and output are no files of others",
        ));
    }
    if TAKEN.swap(true, Ordering::AcqRel) {
        return Err(io::Error::other("they were taken before"));
    }
    for number in numbers.clone() {
        // SAFETY: it is not used beyond this block, where nothing closes it; one that is not open is an error.
        let file = unsafe { BorrowedFd::borrow_raw(number) };
        let flags = fcntl_getfd(file)?;
        fcntl_setfd(file, flags | FdFlags::CLOEXEC)?;
    }
    // SAFETY: all are open, as was seen above, and by the contract nothing else of this process owns them; they are
    // not taken again.
    let own = numbers.map(|number| unsafe { OwnedFd::from_raw_fd(number) });
    Ok(own.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_given_is_an_error() {
        assert!(take(0..3).is_err());
        assert!(take(1_000_000..1_000_001).is_err());
        assert!(take(1_000_000..1_000_000).is_err(), "once");
    }
}
