//! The fields of a message of Protocol Buffers, as much as load reports and questions for them need. Nothing is allocated, and
//! whatever the bytes are, reading ends.
//! Source: the encoding of Protocol Buffers, of which ORCA-2023 is an example.

/// Wire types.
const VARINT: u64 = 0;
const FIXED_64: u64 = 1;
const LENGTH: u64 = 2;
const FIXED_32: u64 = 5;

/// The fields of a message, one after another.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a>(&'a [u8]);

/// A field's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FieldValue<'a> {
    /// An integer.
    Number(u64),
    /// A `double`, if it is one.
    Double(f64),
    /// A text, or a message of its own.
    Bytes(&'a [u8]),
    /// Four bytes.
    Other,
}

impl<'a> Fields<'a> {
    /// Those of this message.
    pub fn of(message: &'a [u8]) -> Self {
        Self(message)
    }

    /// The next one with its number; nothing within if there is none, nothing at all if it is malformed.
    #[expect(
        clippy::should_implement_trait,
        reason = "the end and a malformed field are not the same"
    )]
    pub fn next(&mut self) -> Option<Option<(u64, FieldValue<'a>)>> {
        if self.0.is_empty() {
            return Some(None);
        }
        let key = self.varint()?;
        let value = match key & 7 {
            VARINT => FieldValue::Number(self.varint()?),
            LENGTH => {
                let length = usize::try_from(self.varint()?).ok()?;
                FieldValue::Bytes(self.take(length)?)
            }
            FIXED_64 => {
                let bytes = self.take(8)?.try_into().ok()?;
                FieldValue::Double(f64::from_le_bytes(bytes))
            }
            FIXED_32 => self.take(4).map(|_| FieldValue::Other)?,
            // Groups, which these messages never had.
            _ => return None,
        };
        Some(Some((key >> 3, value)))
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }
}
