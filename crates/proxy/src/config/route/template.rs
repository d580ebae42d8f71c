//! Texts with parts of the request in them: where a redirect goes to, and rewritten paths.
//!
//! ```text
//! {host}    the host that was asked for, without a port
//! {path}    the path as it was sent
//! {rest}    what the path has below the route's `path = "/…/*"`: nothing, or from a slash on; else the whole path
//! {query}   `?` and the query as it was sent; nothing without one
//! ```
//!
//! Failure case: a text that begins with a part of the request could send clients to another host (`//evil.example`, a URL
//! without a scheme; browsers read `/\` so, too). So several slashes and backslashes in front of a text are one slash.
//! Source: RFC 3986 §4.2 (network-path references).

use std::fmt;
use std::str::FromStr;

/// Longest text, bytes.
const BYTES_MAX: usize = 2048;

/// Why a text is no template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// An unknown name, or a brace alone.
    #[error("`{{` and `}}` stand around `host`, `path`, `rest` or `query`")]
    Name,
    /// What no URL has.
    #[error("letters, digits and punctuation of a URL alone: others are percent-encoded")]
    Byte,
    /// Too long, or nothing.
    #[error("1 to {BYTES_MAX} bytes")]
    Length,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Host,
    Path,
    Rest,
    Query,
}

/// A text with parts of the request in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    pieces: Vec<Piece>,
    text: String,
}

/// The parts of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestParts<'a> {
    pub(crate) host: &'a str,
    pub(crate) path: &'a str,
    pub(crate) rest: &'a str,
    pub(crate) query: Option<&'a str>,
}

impl FromStr for Template {
    type Err = TemplateError;

    fn from_str(text: &str) -> Result<Self, TemplateError> {
        if text.is_empty() || text.len() > BYTES_MAX {
            return Err(TemplateError::Length);
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(TemplateError::Byte);
        }
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some(open) = rest.find('{') {
            let close = rest[open..].find('}').ok_or(TemplateError::Name)?;
            pieces.push(Piece::Text(rest[..open].to_owned()));
            pieces.push(match &rest[open + 1..open + close] {
                "host" => Piece::Host,
                "path" => Piece::Path,
                "rest" => Piece::Rest,
                "query" => Piece::Query,
                _ => return Err(TemplateError::Name),
            });
            rest = &rest[open + close + 1..];
        }
        pieces.push(Piece::Text(rest.to_owned()));
        pieces.retain(|piece| *piece != Piece::Text(String::new()));
        let stray = |piece: &Piece| matches!(piece, Piece::Text(text) if text.contains('}'));
        if pieces.iter().any(stray) {
            return Err(TemplateError::Name);
        }
        Ok(Self {
            pieces,
            text: text.to_owned(),
        })
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Template {
    /// Whether it has a part of the request that is named so.
    pub fn has_query(&self) -> bool {
        self.pieces.contains(&Piece::Query)
    }

    /// Whether what it makes begins with a slash.
    pub fn is_path(&self) -> bool {
        match self.pieces.first() {
            Some(Piece::Text(text)) => text.starts_with('/'),
            Some(Piece::Path | Piece::Rest) => true,
            Some(Piece::Host | Piece::Query) | None => false,
        }
    }

    /// The text for a request.
    pub(crate) fn fill(&self, parts: &RequestParts<'_>) -> String {
        let mut out = String::with_capacity(self.text.len() + parts.path.len());
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Host => out.push_str(parts.host),
                Piece::Path => out.push_str(parts.path),
                Piece::Rest => out.push_str(parts.rest),
                Piece::Query => {
                    if let Some(query) = parts.query {
                        out.push('?');
                        out.push_str(query);
                    }
                }
            }
        }
        if self.is_path() {
            let path = out.trim_start_matches(['/', '\\']);
            return format!("/{path}");
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(text: &str, path: &str, rest: &str) -> String {
        let template: Template = text.parse().unwrap();
        template.fill(&RequestParts {
            host: "shop.example",
            path,
            rest,
            query: Some("q=1"),
        })
    }

    #[test]
    fn parts_of_the_request_stand_where_they_are_named() {
        assert_eq!(
            filled("https://{host}{path}{query}", "/a", "/a"),
            "https://shop.example/a?q=1"
        );
        assert_eq!(filled("/v2{rest}", "/v1/x", "/x"), "/v2/x");
        assert_eq!(filled("/v2{rest}", "/v1", ""), "/v2");
        assert_eq!(filled("{rest}", "/v1", ""), "/");
        assert_eq!(filled("/only", "/v1", ""), "/only");
    }

    #[test]
    fn no_path_of_a_client_names_another_host() {
        for path in [
            "//evil.example/x",
            "///evil.example/x",
            "/\\evil.example/x",
            "/\\/evil.example/x",
        ] {
            assert_eq!(filled("{path}", path, path), "/evil.example/x", "{path}");
            assert_eq!(filled("/{rest}", path, path), "/evil.example/x", "{path}");
        }
    }

    #[test]
    fn what_is_no_template_is_refused() {
        let error = |text: &str| text.parse::<Template>().unwrap_err();
        for text in ["{", "}", "{}", "/{host", "{Path}", "/x}", "{{path}}"] {
            assert_eq!(error(text), TemplateError::Name, "{text}");
        }
        for text in ["/a b", "/\r\nset-cookie:x", "/ü"] {
            assert_eq!(error(text), TemplateError::Byte, "{text}");
        }
        assert_eq!(error(""), TemplateError::Length);
        assert_eq!(error(&"/".repeat(2049)), TemplateError::Length);
    }
}
