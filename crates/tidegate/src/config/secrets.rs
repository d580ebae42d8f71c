//! Keys and tokens: read from files, never printed.

use std::fmt;
use std::path::Path;

/// Bytes of a key.
const KEY_BYTES: usize = 16;
/// Letters of a token.
const TOKEN_MIN: usize = 16;
const TOKEN_MAX: usize = 256;
/// Largest file that is looked at for a key or token, bytes.
const FILE_BYTES_MAX: u64 = 4096;

/// What front-ends and agents share: a SipHash key of 128 bits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key(pub(crate) [u8; KEY_BYTES]);

impl fmt::Debug for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Key(…)")
    }
}

impl Key {
    /// Reads a file of 32 hexadecimal digits.
    pub(crate) fn load(path: &Path) -> Result<Self, String> {
        let text = read(path)?;
        Self::parse(text.trim()).ok_or_else(|| "not 32 hexadecimal digits".into())
    }

    /// Reads 32 hexadecimal digits.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 2 * KEY_BYTES {
            return None;
        }
        let mut key = [0; KEY_BYTES];
        for (byte, pair) in key.iter_mut().zip(digits.chunks_exact(2)) {
            let high = char::from(pair[0]).to_digit(16)?;
            let low = char::from(pair[1]).to_digit(16)?;
            *byte = (high * 16 + low) as u8;
        }
        Some(Self(key))
    }
}

/// What requests to the admin interface carry.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Token(String);

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Token(…)")
    }
}

impl Token {
    /// Reads a file with a token.
    pub(crate) fn load(path: &Path) -> Result<Self, String> {
        Self::parse(read(path)?.trim())
    }

    /// Checks a token.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let fits = (TOKEN_MIN..=TOKEN_MAX).contains(&text.len());
        if fits && text.bytes().all(|byte| byte.is_ascii_graphic()) {
            Ok(Self(text.into()))
        } else {
            Err(format!(
                "a token is {TOKEN_MIN} to {TOKEN_MAX} printable letters without spaces"
            ))
        }
    }

    /// Its letters, for the header that carries it.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether `offered` is the token; takes the same time wherever they differ.
    pub(crate) fn matches(&self, offered: &str) -> bool {
        let (own, offered) = (self.0.as_bytes(), offered.as_bytes());
        let differences = own
            .iter()
            .zip(offered)
            .fold(0, |sum, (left, right)| sum | (left ^ right));
        own.len() == offered.len() && differences == 0
    }
}

fn read(path: &Path) -> Result<String, String> {
    let size = std::fs::metadata(path).map_err(|error| error.to_string())?;
    if size.len() > FILE_BYTES_MAX {
        return Err(format!("larger than {FILE_BYTES_MAX} bytes"));
    }
    std::fs::read_to_string(path).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_exactly_32_digits() {
        let key = Key::parse("000102030405060708090a0b0c0d0E0F").unwrap();
        assert_eq!(
            key.0,
            [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]
        );
        for text in ["", "00", "000102030405060708090a0b0c0d0e0g", "é"] {
            assert_eq!(Key::parse(text), None);
        }
    }

    #[test]
    fn a_token_matches_itself_only() {
        let token = Token::parse("0123456789abcdef").unwrap();
        assert!(token.matches("0123456789abcdef"));
        assert!(!token.matches("0123456789abcdeF"));
        assert!(!token.matches("0123456789abcdef0"));
        assert!(!token.matches(""));
        assert!(Token::parse("short").is_err());
        assert!(Token::parse("0123456789 abcdef").is_err());
        assert!(!format!("{token:?}").contains("0123"));
    }
}
