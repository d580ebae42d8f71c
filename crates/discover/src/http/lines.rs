//! A body as lines, as they come.

use http_body_util::BodyExt;
use hyper::body::Incoming;

use super::Connection;
use crate::source::SourceError;

/// See the module. Dropping what waits for a line loses nothing of it.
#[derive(Debug)]
pub(crate) struct Lines {
    body: Incoming,
    _connection: Connection,
    buffer: LineBuffer,
}

/// Bytes that have come, and how far they were looked at.
#[derive(Debug)]
struct LineBuffer {
    bytes: Vec<u8>,
    searched: usize,
    bytes_max: usize,
}

impl Lines {
    pub(super) fn new(body: Incoming, connection: Connection, bytes_max: usize) -> Self {
        Self {
            body,
            _connection: connection,
            buffer: LineBuffer::new(bytes_max),
        }
    }

    /// The next line; none at the end. A line that the end cuts off is an error.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<u8>>, SourceError> {
        loop {
            if let Some(line) = self.buffer.line()? {
                return Ok(Some(line));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        self.buffer.bytes.extend_from_slice(data);
                    }
                }
                Some(Err(error)) => return Err(SourceError::unreachable(error)),
                None if self.buffer.bytes.is_empty() => return Ok(None),
                None => return Err(SourceError::malformed("it ends within a line")),
            }
        }
    }
}

impl LineBuffer {
    fn new(bytes_max: usize) -> Self {
        Self {
            bytes: Vec::new(),
            searched: 0,
            bytes_max,
        }
    }

    /// The first whole line, without its end; empty ones are left out.
    fn line(&mut self) -> Result<Option<Vec<u8>>, SourceError> {
        while let Some(end) = self.bytes[self.searched..]
            .iter()
            .position(|it| *it == b'\n')
        {
            let rest = self.bytes.split_off(self.searched + end + 1);
            let mut line = std::mem::replace(&mut self.bytes, rest);
            self.searched = 0;
            line.truncate(line.trim_ascii_end().len());
            if line.len() > self.bytes_max {
                return Err(SourceError::TooLong(self.bytes_max));
            }
            if !line.is_empty() {
                return Ok(Some(line));
            }
        }
        self.searched = self.bytes.len();
        match self.bytes.len() > self.bytes_max {
            true => Err(SourceError::TooLong(self.bytes_max)),
            false => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_found_however_they_are_cut_into_pieces() {
        let text = b"{\"a\": 1}\n\n  \r\nlast\nrest";
        for size in 1..text.len() {
            let mut buffer = LineBuffer::new(20);
            let mut lines = Vec::new();
            for piece in text.chunks(size) {
                buffer.bytes.extend_from_slice(piece);
                while let Some(line) = buffer.line().unwrap() {
                    lines.push(String::from_utf8(line).unwrap());
                }
            }
            assert_eq!(lines, ["{\"a\": 1}", "last"], "{size}");
            assert_eq!(buffer.bytes, b"rest");
        }
    }

    #[test]
    fn a_line_without_end_is_an_error_before_it_fills_the_memory() {
        let mut buffer = LineBuffer::new(1000);
        for _ in 0..10 {
            buffer.bytes.extend_from_slice(&[b'x'; 100]);
            assert!(matches!(buffer.line(), Ok(None)));
        }
        buffer.bytes.push(b'x');
        assert!(matches!(buffer.line(), Err(SourceError::TooLong(1000))));
    }
}
