//! Files of a control group, versions 1 and 2.

use super::{keyed, number, single, words};

/// A limit so large that it stands for none: version 1 writes the largest number of pages.
const UNLIMITED_MIN: u64 = 1 << 60;

/// A quota in thousandths of a CPU; 0 means none.
pub(crate) fn quota_v2(cpu_max: &[u8]) -> Option<u32> {
    let mut words = words(cpu_max);
    let quota = words.next()?;
    let period = words.next().and_then(number)?;
    if quota == b"max" {
        return Some(0);
    }
    thousandths(number(quota)?, period)
}

/// The same from `cpu.cfs_quota_us` (-1: none) and `cpu.cfs_period_us`.
pub(crate) fn quota_v1(quota_us: &[u8], period_us: &[u8]) -> Option<u32> {
    let quota = quota_us.trim_ascii();
    if quota == b"-1" {
        return Some(0);
    }
    thousandths(number(quota)?, single(period_us)?)
}

/// At least one thousandth: a quota that rounds to nothing is not "no quota".
fn thousandths(quota: u64, period: u64) -> Option<u32> {
    let milli = quota.checked_mul(1000)?.checked_div(period)?;
    Some(super::saturated(milli.max(1)))
}

/// CPU time used, ns, from `cpu.stat` of version 2.
pub(crate) fn usage_v2(cpu_stat: &[u8]) -> Option<u64> {
    keyed(cpu_stat, b"usage_usec")?.checked_mul(1000)
}

/// Time held back by the quota, ns, from `cpu.stat` of either version; version 2 leaves it out
/// where the CPU controller is off.
pub(crate) fn throttled(cpu_stat: &[u8]) -> Option<u64> {
    match keyed(cpu_stat, b"throttled_time") {
        Some(ns) => Some(ns),
        None => keyed(cpu_stat, b"throttled_usec")?.checked_mul(1000),
    }
}

/// A limit on memory: the inner nothing means that there is none.
pub(crate) fn memory_limit(bytes: &[u8]) -> Option<Option<u64>> {
    let word = bytes.trim_ascii();
    if word == b"max" {
        return Some(None);
    }
    number(word).map(limited)
}

/// The limit, unless it stands for none.
pub(crate) fn limited(limit: u64) -> Option<u64> {
    (limit < UNLIMITED_MIN).then_some(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_are_thousandths_of_a_cpu() {
        let table: &[(&[u8], Option<u32>)] = &[
            (b"max 100000\n", Some(0)),
            (b"50000 100000\n", Some(500)),
            (b"400000 100000\n", Some(4000)),
            (b"1 1000000\n", Some(1)),
            (b"50000 0\n", None),
            (b"50000\n", None),
            (b"18446744073709551615 1\n", None),
            (b"", None),
        ];
        for (cpu_max, expected) in table {
            assert_eq!(quota_v2(cpu_max), *expected, "{cpu_max:?}");
        }
        assert_eq!(quota_v1(b"-1\n", b"100000\n"), Some(0));
        assert_eq!(quota_v1(b"25000\n", b"100000\n"), Some(250));
        assert_eq!(quota_v1(b"25000\n", b"\n"), None);
    }

    #[test]
    fn cpu_stat_of_both_versions() {
        let v2 = b"usage_usec 192941094\nuser_usec 1\nnr_periods 9\nthrottled_usec 17\n";
        assert_eq!(usage_v2(v2), Some(192_941_094_000));
        assert_eq!(throttled(v2), Some(17_000));
        let v1 = b"nr_periods 0\nnr_throttled 0\nthrottled_time 55\n";
        assert_eq!(usage_v2(v1), None);
        assert_eq!(throttled(v1), Some(55));
        assert_eq!(throttled(b"usage_usec 5\n"), None);
    }

    #[test]
    fn huge_memory_limits_are_none() {
        assert_eq!(memory_limit(b"max\n"), Some(None));
        assert_eq!(memory_limit(b"9223372036854771712\n"), Some(None));
        assert_eq!(memory_limit(b"1048576\n"), Some(Some(1_048_576)));
        assert_eq!(memory_limit(b"lots\n"), None);
    }
}
