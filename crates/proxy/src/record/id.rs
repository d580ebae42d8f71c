//! By what a request is known: in the access log, in a header of its answer, and among the last requests.
//!
//! ```text
//! WORKER-NUMBER, both hexadecimal     numbers of a worker begin anywhere below 2^48 and grow by one
//! ```
//!
//! So that an id of a former process, or of another front-end, is not taken for one of this. Nothing is kept safe by them.

use std::cell::Cell;
use std::fmt;
use std::str::FromStr;

use ring::rand::{SecureRandom as _, SystemRandom};

/// Where numbers begin: below.
const FIRST_BELOW: u64 = 1 << 48;

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RequestId {
    worker: u32,
    number: u64,
}

impl RequestId {
    /// Of no request.
    pub(crate) const NONE: Self = Self {
        worker: 0,
        number: 0,
    };
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{:x}", self.worker, self.number)
    }
}

impl FromStr for RequestId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (worker, number) = text.split_once('-').ok_or(())?;
        let is_plain = |part: &str| part.bytes().all(|it| it.is_ascii_hexdigit());
        if !is_plain(worker) || !is_plain(number) {
            return Err(());
        }
        Ok(Self {
            worker: u32::from_str_radix(worker, 16).map_err(|_| ())?,
            number: u64::from_str_radix(number, 16).map_err(|_| ())?,
        })
    }
}

/// Gives a worker's requests their numbers.
#[derive(Debug)]
pub(crate) struct RequestIds {
    worker: u32,
    next: Cell<u64>,
}

impl RequestIds {
    /// Those of this worker.
    pub(crate) fn new(worker: usize) -> Self {
        let mut first = [0; 8];
        // Without randomness they are those of others.
        SystemRandom::new().fill(&mut first).unwrap_or_default();
        let first = u64::from_ne_bytes(first) % FIRST_BELOW;
        Self::beginning(worker, first)
    }

    fn beginning(worker: usize, first: u64) -> Self {
        Self {
            worker: worker as u32,
            next: Cell::new(first),
        }
    }

    /// The next one.
    #[inline]
    pub(crate) fn next(&self) -> RequestId {
        let number = self.next.get();
        self.next.set(number.wrapping_add(1));
        RequestId {
            worker: self.worker,
            number,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_grow_and_are_read_as_they_are_written() {
        let ids = RequestIds::beginning(26, 0xfffe);
        let (first, second) = (ids.next(), ids.next());
        assert_eq!(first.to_string(), "1a-fffe");
        assert_eq!(second.number, first.number + 1);
        assert_eq!(second.to_string().parse(), Ok(second));
        for bad in [
            "",
            "1",
            "-",
            "1-",
            "-1",
            "+1-2",
            "1-g",
            "1-2-3",
            "1-11112222333344445",
        ] {
            assert_eq!(bad.parse::<RequestId>(), Err(()), "{bad}");
        }
    }

    #[test]
    fn another_process_gives_others() {
        let [one, other] = [RequestIds::new(0), RequestIds::new(0)].map(|it| it.next());
        assert_ne!(one, other);
        assert!(one.number < FIRST_BELOW);
    }
}
