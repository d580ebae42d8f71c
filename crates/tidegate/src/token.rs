//! The admin token: read from a file, never printed.

use std::fmt;
use std::path::Path;

use subtle::ConstantTimeEq as _;

use crate::secret_file;

/// Letters of a token.
const TOKEN_MIN: usize = 16;
const TOKEN_MAX: usize = 256;
/// Largest file that is looked at for a token, bytes.
const FILE_BYTES_MAX: usize = 4096;

/// What requests to the admin interface carry.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Token(String);

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Token(…)")
    }
}

impl Token {
    /// Reads a file with a token, which others must not be able to read.
    pub(crate) fn load(path: &Path) -> Result<Self, String> {
        Self::parse(secret_file::read(path, FILE_BYTES_MAX)?.trim())
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
        self.0.as_bytes().ct_eq(offered.as_bytes()).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
