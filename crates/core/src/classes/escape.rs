//! Text of clients as a part of a name: nothing in it means anything to readers of names.
//!
//! ```text
//! *  {  }  ^  |  ?  #  "  '  \  <  >  `     percent-encoded, `*` as `%2A`
//! blanks, control characters and what is not a letter or digit of any script beyond ASCII     the same
//! all else, `%` included                    as it was sent
//! ```
//!
//! `*` and a `%2A` that the client itself has sent are the same text: servers do not tell them apart. So a name
//! can be typed in a shell, in TOML and in JSON, and reads back to the class that it was made from.

use std::borrow::Cow;

/// Bytes that mean something in names, in patterns or in a shell.
const SPECIAL: &[u8] = b"*{}^|?#\"'\\<>`";

/// The text, harmless.
pub(crate) fn escaped(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_special) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for letter in text.chars() {
        if !is_special(letter) {
            out.push(letter);
            continue;
        }
        for byte in letter.encode_utf8(&mut [0; 4]).bytes() {
            const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
            let digit = |value: u8| char::from(DIGITS[usize::from(value)]);
            out.extend(['%', digit(byte >> 4), digit(byte & 15)]);
        }
    }
    Cow::Owned(out)
}

fn is_special(letter: char) -> bool {
    match u8::try_from(letter) {
        Ok(byte) if byte.is_ascii() => !byte.is_ascii_graphic() || SPECIAL.contains(&byte),
        Ok(_) | Err(_) => !letter.is_alphanumeric(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_means_something_is_encoded_and_all_else_stays() {
        for (text, expected) in [
            ("shoes", "shoes"),
            ("caf\u{e9}", "caf\u{e9}"),
            ("a%20b", "a%20b"),
            ("*", "%2A"),
            ("%2A", "%2A"),
            ("{id}", "%7Bid%7D"),
            ("a b", "a%20b"),
            ("a\nb\u{7f}", "a%0Ab%7F"),
            ("'\"", "%27%22"),
            ("\u{202e}x\u{a0}", "%E2%80%AEx%C2%A0"),
        ] {
            assert_eq!(escaped(text), expected, "{text:?}");
            assert_eq!(escaped(expected), expected, "twice is once");
        }
    }
}
