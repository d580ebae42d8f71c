//! Bytes of a protocol in the file: a text, or hexadecimal digits where they are none.

use data_encoding::HEXLOWER_PERMISSIVE;
use toml::de::DeValue;

use super::problem::{Problem, Problems};
use super::setting::{Encoded, Raw, Setting, quoted, table, wrong_type};

/// Bytes of one value.
const BYTES_MAX: usize = 4096;

/// Bytes as the file has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Payload {
    /// A text.
    Text(String),
    /// Digits, two a byte.
    Hex(Vec<u8>),
}

table! {
    /// Bytes that are no text.
    pub(crate) struct HexFile {
        /// Two digits a byte.
        hex: String;
    }
}

impl Payload {
    /// What they are on the wire.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Hex(bytes) => bytes,
        }
    }
}

impl Setting for Payload {
    fn kind() -> String {
        "a text or `{ hex = \"0a0d\" }`".into()
    }

    fn decode(raw: &Raw<'_>, problems: &mut Problems) -> Option<Self> {
        let payload = match raw.get_ref() {
            DeValue::String(text) => Self::Text(text.to_string()),
            DeValue::Table(_) => hex(raw, problems)?,
            DeValue::Integer(_)
            | DeValue::Float(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_)
            | DeValue::Array(_) => return wrong_type(raw, &Self::kind(), problems),
        };
        if payload.bytes().len() > BYTES_MAX {
            let message = format!("more than {BYTES_MAX} bytes");
            problems.push(Problem::new(raw.span(), message, "too long"));
            return None;
        }
        Some(payload)
    }

    fn encode(&self) -> Encoded {
        match self {
            Self::Text(text) => quoted(text),
            Self::Hex(bytes) => Encoded::Inline(format!(
                "{{ hex = \"{}\" }}",
                HEXLOWER_PERMISSIVE.encode(bytes)
            )),
        }
    }
}

fn hex(raw: &Raw<'_>, problems: &mut Problems) -> Option<Payload> {
    let digits = HexFile::decode(raw, problems)?.hex;
    let bytes = HEXLOWER_PERMISSIVE.decode(digits.as_bytes());
    if bytes.is_err() {
        let message = format!("`{}` is not hexadecimal", digits.value);
        problems.push(Problem::new(digits.place(), message, "two digits a byte"));
    }
    bytes.ok().map(Payload::Hex)
}
