//! Interim responses of a node (102, 103 and others of 1xx, RFC 9110 §15.2), from its connection to
//! the client's. hyper reads and drops them at the one side and cannot write them at the other, so they
//! go past it: what the node sends is seen on its way into hyper, and what goes to the client is
//! written where hyper has nothing half written.
//!
//! A node may send as many as it likes and never answer, which costs it nothing and us time. So
//! their number and their bytes are limited; their time is that of the answer's head, which none of
//! them prolongs; and between two reads that brought nothing else other requests have their turn.
//!
//! 100 and 101 stay behind: the first is hyper's business with each side, the second is final.

/// Most interim responses to a request, and most bytes of all their heads.
const COUNT_MAX: u32 = 100;
const BYTES_MAX: usize = 64 << 10;

/// A node sends more of them than it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flood;

/// What has come of them for the present request.
#[derive(Debug, Default)]
pub(crate) struct Interims {
    count: u32,
    bytes: usize,
    /// The begin of a head whose end has not come.
    begun: Vec<u8>,
    /// Heads to be forwarded, one after the other.
    whole: Vec<u8>,
    flooded: bool,
    /// The last read brought nothing else.
    yields: bool,
}

impl Interims {
    /// A request goes out.
    pub(crate) fn clear(&mut self) {
        if self.count > 0 || !self.begun.is_empty() {
            *self = Self::default();
        }
    }

    /// Part of a head has come, and not its end.
    pub(crate) fn on_part(&mut self, part: &[u8]) {
        // A head that is longer than all may be is refused by its reader.
        if self.begun.len() + part.len() <= BYTES_MAX {
            self.begun.extend_from_slice(part);
        }
    }

    /// The last part of an interim head has come.
    pub(crate) fn on_interim(&mut self, part: &[u8]) -> Result<(), Flood> {
        self.count += 1;
        self.bytes += self.begun.len() + part.len();
        self.yields = true;
        if self.count > COUNT_MAX || self.bytes > BYTES_MAX {
            self.flooded = true;
            return Err(Flood);
        }
        self.whole.append(&mut self.begun);
        self.whole.extend_from_slice(part);
        Ok(())
    }

    /// The last part of the answer's head has come.
    pub(crate) fn on_final(&mut self) {
        self.begun.clear();
        self.yields = false;
    }

    /// Whether there were more of them than may be.
    pub(crate) fn is_flooded(&self) -> bool {
        self.flooded
    }

    /// Whether others have their turn before the next read.
    pub(crate) fn take_yield(&mut self) -> bool {
        std::mem::take(&mut self.yields)
    }

    /// Whether nothing has.
    pub(crate) fn is_empty(&self) -> bool {
        self.whole.is_empty()
    }

    /// What has come since this was asked last.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_and_bytes_have_limits() {
        let head = b"HTTP/1.1 102 Processing\r\n\r\n";
        let mut interims = Interims::default();
        for _ in 0..COUNT_MAX {
            assert_eq!(interims.on_interim(head), Ok(()));
        }
        assert_eq!(interims.on_interim(head), Err(Flood));
        assert!(interims.is_flooded());
        interims.clear();
        assert!(!interims.is_flooded());
        for (part, ends) in [
            (BYTES_MAX - head.len(), Ok(())),
            (BYTES_MAX - head.len() + 1, Err(Flood)),
            (BYTES_MAX, Err(Flood)),
        ] {
            interims.clear();
            interims.on_part(&vec![b'x'; part]);
            assert_eq!(interims.on_interim(head), ends, "{part}");
        }
        // What no head may be long is not kept.
        interims.clear();
        interims.on_part(&[b'x'; BYTES_MAX]);
        interims.on_part(b"x");
        assert_eq!(interims.begun.len(), BYTES_MAX);
    }
}
