//! What the kernel's text files say, as pure functions over bytes.
//!
//! Nothing here opens a file, allocates or panics: whatever the bytes hold, the answer is a
//! value or nothing. "Nothing" means that the file is not what was expected, so the caller
//! leaves the source unset instead of publishing a zero.

pub(crate) mod cgroup;
pub(crate) mod cpu;
pub(crate) mod diag;
pub(crate) mod mounts;
pub(crate) mod network;
pub(crate) mod process;
pub(crate) mod system;

#[cfg(test)]
mod hostile;

/// The lines of a file, without their ends.
pub(crate) fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
}

/// The words of a line.
pub(crate) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
}

/// A decimal number that is the whole word; nothing if it is not one or does not fit.
pub(crate) fn number(word: &[u8]) -> Option<u64> {
    if word.is_empty() {
        return None;
    }
    word.iter().try_fold(0u64, |value, byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// As [`number`], for fields of 32 bits: a larger number is the largest.
pub(crate) fn number32(word: &[u8]) -> Option<u32> {
    number(word).map(saturated)
}

/// The value as 32 bits, the largest if it does not fit.
pub(crate) fn saturated(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// The number after the word `key` that begins a line.
pub(crate) fn keyed(bytes: &[u8], key: &[u8]) -> Option<u64> {
    lines(bytes).find_map(|line| {
        let mut words = words(line);
        let named = words.next()? == key;
        named.then(|| words.next().and_then(number)).flatten()
    })
}

/// The file's one number.
pub(crate) fn single(bytes: &[u8]) -> Option<u64> {
    number(bytes.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_decimal_words_are_numbers() {
        let table: &[(&[u8], Option<u64>)] = &[
            (b"0", Some(0)),
            (b"007", Some(7)),
            (b"18446744073709551615", Some(u64::MAX)),
            (b"18446744073709551616", None),
            (b"", None),
            (b"-1", None),
            (b"1.5", None),
            (b"12kB", None),
            (b"\xff", None),
        ];
        for (word, expected) in table {
            assert_eq!(number(word), *expected, "{word:?}");
        }
    }

    #[test]
    fn a_key_is_a_whole_word_at_the_start_of_a_line() {
        let text = b"usage 1\nuser_usage 2\nusage_usec 3\nbroken\n";
        assert_eq!(keyed(text, b"usage_usec"), Some(3));
        assert_eq!(keyed(text, b"user_usage"), Some(2));
        assert_eq!(keyed(text, b"broken"), None);
        assert_eq!(keyed(text, b"absent"), None);
    }
}
