//! Where things lie in a region. Two pages: the record stands alone on the first, so that a
//! transport can grant reading it without granting the words.
//!
//! | bytes | what |
//! |---|---|
//! | 0 .. 1344 | record area, see `lines` |
//! | 2048 .. 2072 | identity: magic and version; 1 once the owner is gone; epoch of the words |
//! | 2072 .. 2088 | reads so far; 1 while the owner sleeps until one comes (`demand`) |
//! | 2088 .. 2096 | front-ends that read by datagrams (`presence`) |
//! | 2096 .. 3120 | front-ends that read through a mapping (`presence`) |
//! | 3120 .. 3128 | 1 once a card alone changes the words |
//! | 4096 .. 8192 | words, unless the kernel keeps them: then they are memory of their own |

use tidegate_core::record::{LINE_BYTES, LINES_MAX};

/// Words of 64 bits beside the record of every region.
pub const WORDS: usize = 512;
/// Bytes of them.
pub(crate) const WORDS_BYTES: usize = WORDS * size_of::<u64>();
/// Bytes of a region.
pub(crate) const REGION_BYTES: usize = 8192;
/// Where the identity lies, in words.
pub(crate) const IDENTITY: usize = 2048 / size_of::<u64>();
/// Where the mark of an owner that is gone lies, in words.
pub(crate) const RETIRED: usize = IDENTITY + 1;
/// Where the epoch lies, in words.
pub(crate) const EPOCH: usize = IDENTITY + 2;
/// Where the count of reads lies, in words.
pub(crate) const READS: usize = IDENTITY + 3;
/// Where the mark of an owner that sleeps lies, in words.
pub(crate) const ASLEEP: usize = IDENTITY + 4;
/// Where the number of those that read by datagrams lies, in words.
pub(crate) const BY_DATAGRAMS: usize = IDENTITY + 5;
/// Where those that read through a mapping sign in, in words: two for each.
pub(crate) const PRESENCE: usize = IDENTITY + 6;
/// So many of them.
pub(crate) const PRESENCE_SLOTS: usize = 64;
/// Where the mark of words that a card alone changes lies, in words.
pub(crate) const WORDS_OVER_RDMA: usize = PRESENCE + 2 * PRESENCE_SLOTS;
/// Where the words lie, in words.
pub(crate) const WORDS_START: usize = WORDS_PAGE / size_of::<u64>();
/// Where their page begins, in bytes.
pub(crate) const WORDS_PAGE: usize = 4096;
/// "TGRM", and version 2 of this layout.
pub(crate) const IDENTITY_VALUE: u64 = u64::from_le_bytes(*b"TGRM\x02\0\0\0");

const _: () = assert!(LINES_MAX * LINE_BYTES <= IDENTITY * size_of::<u64>());
const _: () = assert!(WORDS_OVER_RDMA < WORDS_START);
const _: () = assert!(WORDS_START * size_of::<u64>() + WORDS_BYTES <= REGION_BYTES);
