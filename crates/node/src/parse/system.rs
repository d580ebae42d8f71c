//! `/proc/meminfo`, `/proc/sys/fs/file-nr`, `/proc/diskstats` and pressure files.

use super::{keyed, lines, number, number32, words};

/// Most block devices that are looked at.
pub(crate) const DISKS_MAX: usize = 256;

/// Memory in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    /// All of it.
    pub(crate) total: u64,
    /// What can be had without swapping.
    pub(crate) available: u64,
}

/// Reads `/proc/meminfo`.
pub(crate) fn meminfo(bytes: &[u8]) -> Option<Memory> {
    let kib = |key| keyed(bytes, key)?.checked_mul(1024);
    Some(Memory {
        total: kib(b"MemTotal:".as_slice()).filter(|total| *total > 0)?,
        available: kib(b"MemAvailable:".as_slice())?,
    })
}

/// Open files and their limit from `/proc/sys/fs/file-nr`: allocated handles less those that
/// are free (always 0 since 2.6), and the limit.
pub(crate) fn file_nr(bytes: &[u8]) -> Option<(u64, u64)> {
    let mut numbers = words(bytes).map(number);
    let (allocated, free, max) = (numbers.next()??, numbers.next()??, numbers.next()??);
    Some((allocated.saturating_sub(free), max))
}

/// Reads `/proc/diskstats`, giving (major, minor) and the milliseconds in which the device had
/// work to `disk`.
pub(crate) fn diskstats(bytes: &[u8], mut disk: impl FnMut((u32, u32), u64)) -> Option<()> {
    let mut disks = 0;
    for line in lines(bytes).take(DISKS_MAX) {
        let mut words = words(line);
        let major = number32(words.next()?)?;
        let minor = number32(words.next()?)?;
        // After the name: 4 fields of reads, 4 of writes, requests in flight, then this.
        let busy_ms = number(words.nth(10)?)?;
        disk((major, minor), busy_ms);
        disks += 1;
    }
    (disks > 0).then_some(())
}

/// The time in which some task was stalled, from a pressure file, ns.
pub(crate) fn pressure(bytes: &[u8]) -> Option<u64> {
    let line = lines(bytes).find_map(|line| line.strip_prefix(b"some "))?;
    let usec = words(line).find_map(|word| word.strip_prefix(b"total="))?;
    number(usec)?.checked_mul(1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_is_in_bytes() {
        let text = b"MemTotal:       24684092 kB\nMemFree:  1 kB\nMemAvailable:   24324644 kB\n";
        let expected = Memory {
            total: 24_684_092 * 1024,
            available: 24_324_644 * 1024,
        };
        assert_eq!(meminfo(text), Some(expected));
        assert_eq!(meminfo(b"MemTotal: 5 kB\n"), None);
        assert_eq!(meminfo(b"MemTotal: 0 kB\nMemAvailable: 0 kB\n"), None);
    }

    #[test]
    fn file_nr_is_open_and_limit() {
        assert_eq!(file_nr(b"522\t0\t2466186\n"), Some((522, 2_466_186)));
        assert_eq!(
            file_nr(b"1209\t9\t9223372036854775807\n"),
            Some((1200, i64::MAX as u64))
        );
        assert_eq!(file_nr(b"522\t0\n"), None);
    }

    #[test]
    fn diskstats_is_the_time_with_work() {
        let text = b"   7       0 loop0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n\
            \x20259 1 nvme0n1p1 10 0 80 5 20 0 160 9 0 1234 14 0 0 0 0 1 2\n";
        let mut disks = Vec::new();
        diskstats(text, |id, ms| disks.push((id, ms))).unwrap();
        assert_eq!(disks, [((7, 0), 0), ((259, 1), 1234)]);
        // Partitions of kernels before 2.6.25 have four numbers only.
        assert_eq!(diskstats(b" 8 1 sda1 1 2 3 4\n", |_, _| ()), None);
        assert_eq!(diskstats(b"", |_, _| ()), None);
    }

    #[test]
    fn pressure_is_the_some_line() {
        let text = b"some avg10=0.76 avg60=1.10 avg300=0.68 total=16556660\n\
            full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        assert_eq!(pressure(text), Some(16_556_660_000));
        assert_eq!(pressure(b"full avg10=0.00 total=7\n"), None);
        assert_eq!(pressure(b"some total=18446744073709551615\n"), None);
    }
}
