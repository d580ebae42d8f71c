//! What comes in on a connection, taken apart into heads and bodies before hyper sees it: hyper gets a
//! head without what follows it, and chunked bodies written anew ([`Chunks`]). So the end of each message
//! is known here, malformed chunks are known as such, and bytes that came early are known to be there.
//!
//! Where a head ends is found here; what follows it says hyper's parser ([`Inflow::expect`]), so the
//! two never disagree. Heads and bodies with a length are read straight into hyper's buffer; only what came
//! behind their end is copied, and kept until it is wanted. That is less than hyper's buffer holds.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http_body::Body;
use hyper::body::Incoming;
use hyper::rt::{Read, ReadBufCursor};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, ReadBuf};

use super::bell::Reading;
use super::chunks::{ChunkError, Chunks};
use super::head_end::{HeadEnd, HeadNotes};
use super::interim::{Flood, Interims};

/// Bytes of a chunked body that are read at once.
const SCRATCH_BYTES: usize = 64 << 10;

/// Memory that all connections of a worker use in turn.
#[derive(Debug)]
pub(crate) struct Scratch {
    pub(crate) raw: RefCell<Box<[u8]>>,
    rewritten: RefCell<Vec<u8>>,
}

impl Default for Scratch {
    fn default() -> Self {
        Self {
            raw: RefCell::new(vec![0; SCRATCH_BYTES].into_boxed_slice()),
            rewritten: RefCell::new(Vec::with_capacity(SCRATCH_BYTES + Chunks::GROWTH_MAX)),
        }
    }
}

/// The side that sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sender {
    Client,
    Node,
}

/// What the next bytes are.
#[derive(Debug)]
enum Next {
    Head(HeadEnd),
    /// What the head's reader says.
    Undecided,
    /// A body of which so many bytes are left.
    Length(u64),
    Chunked(Box<Chunks>),
    /// Whatever they are, they pass by.
    Raw,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Inflow {
    sender: Sender,
    next: Next,
    /// What was read and is not wanted yet, from `at` on.
    kept: Vec<u8>,
    at: usize,
    /// What the last head has.
    seen: HeadNotes,
    broken: Option<ChunkError>,
    pub(crate) interims: Interims,
    /// Every look at the socket for something to read goes through it.
    pub(crate) reading: Reading,
}

impl Inflow {
    /// From a client.
    pub(crate) fn of_client() -> Self {
        Self::new(Sender::Client)
    }

    /// From a node.
    pub(crate) fn of_node() -> Self {
        Self::new(Sender::Node)
    }

    fn new(sender: Sender) -> Self {
        Self {
            sender,
            next: Next::Head(head_end(sender)),
            kept: Vec::new(),
            at: 0,
            seen: HeadNotes::default(),
            broken: None,
            interims: Interims::default(),
            reading: Reading::default(),
        }
    }

    /// A head comes next.
    pub(crate) fn expect_head(&mut self) {
        self.next = Next::Head(head_end(self.sender));
        self.broken = None;
        self.interims.clear();
    }

    /// This is the body that hyper has read from the head; one without a length is chunked, or
    /// `until_end` of the stream.
    pub(crate) fn expect(&mut self, body: &Incoming, until_end: bool) {
        self.next = match (self.sender, body.size_hint().exact()) {
            _ if body.is_end_stream() => self.after_body(),
            (Sender::Client, Some(length)) => Next::Length(length),
            (Sender::Node, Some(_)) => Next::Raw,
            (_, None) if until_end => Next::Raw,
            (Sender::Client, None) => Next::Chunked(Box::new(Chunks::of_request())),
            (Sender::Node, None) => Next::Chunked(Box::new(Chunks::of_response())),
        };
    }

    /// A node says nothing more of its own accord: if it does, hyper is to notice.
    fn after_body(&self) -> Next {
        match self.sender {
            Sender::Client => Next::Head(head_end(self.sender)),
            Sender::Node => Next::Raw,
        }
    }

    /// What the last head has: a `Content-Length` (a client's) or a `Transfer-Encoding` (a node's), for one.
    pub(crate) fn seen(&self) -> HeadNotes {
        self.seen
    }

    /// The same of a head that has not ended yet, if one has begun.
    pub(crate) fn seen_so_far(&self) -> HeadNotes {
        match &self.next {
            Next::Head(head) => head.seen_so_far(),
            Next::Undecided | Next::Length(_) | Next::Chunked(_) | Next::Raw => self.seen,
        }
    }

    /// Why the present body is refused.
    pub(crate) fn broken(&self) -> Option<ChunkError> {
        self.broken
    }

    /// Whether a body is on its way, or what follows a head is not known yet.
    pub(crate) fn is_in_body(&self) -> bool {
        !matches!(self.next, Next::Head(_))
    }

    /// Whether there is more of a body than has come. A chunked one counts as that up to its end.
    pub(crate) fn awaits_body(&self) -> bool {
        match &self.next {
            Next::Head(_) | Next::Undecided | Next::Raw => false,
            Next::Length(left) => *left > (self.kept.len() - self.at) as u64,
            Next::Chunked(_) => true,
        }
    }

    /// Whether bytes were read that were not asked for yet.
    pub(crate) fn is_ahead(&self) -> bool {
        self.at < self.kept.len()
    }

    /// What was read and not wanted.
    pub(crate) fn take_kept(&mut self) -> Vec<u8> {
        let kept = self.kept.split_off(self.at);
        (self.kept, self.at) = (Vec::new(), 0);
        kept
    }

    /// Whether what is here of a chunked body is malformed.
    pub(crate) fn check_kept(&self, scratch: &Scratch) -> Result<(), ChunkError> {
        let Next::Chunked(chunks) = &self.next else {
            return Ok(());
        };
        let mut out = scratch.rewritten.borrow_mut();
        out.clear();
        let mut chunks = Chunks::clone(chunks);
        chunks.rewrite(&self.kept[self.at..], &mut out).map(drop)
    }

    /// Reads as hyper wants it read. Says how many bytes came; none means the end of the stream.
    #[inline]
    pub(crate) fn poll_read<S: AsyncRead + Unpin>(
        &mut self,
        stream: &mut S,
        scratch: &Scratch,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<usize>> {
        // hyper asks far more often than something comes.
        if self.reading.is_quiet(context) && !self.is_ahead() {
            return Poll::Pending;
        }
        self.poll_shaped(stream, scratch, context, buffer)
    }

    #[inline(never)]
    fn poll_shaped<S: AsyncRead + Unpin>(
        &mut self,
        stream: &mut S,
        scratch: &Scratch,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<usize>> {
        let mut shaped = TokioIo::new(Shaped {
            inflow: self,
            stream,
            scratch,
            read: 0,
        });
        ready!(Pin::new(&mut shaped).poll_read(context, buffer))?;
        Poll::Ready(Ok(shaped.inner().read))
    }

    /// Fills an empty buffer.
    fn poll_fill<S: AsyncRead + Unpin>(
        &mut self,
        stream: &mut S,
        scratch: &Scratch,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &self.next {
            // The reader of the head says how to go on, and asks again.
            Next::Undecided => return Poll::Pending,
            Next::Chunked(chunks) => {
                if self.is_ahead() || chunks.passing() < buffer.remaining() as u64 {
                    return self.poll_chunks(stream, scratch, context, buffer);
                }
            }
            Next::Head(_) if self.interims.take_yield() => {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            Next::Head(_) | Next::Length(_) | Next::Raw => {}
        }
        if self.is_ahead() {
            let kept = std::mem::take(&mut self.kept);
            let end = kept.len().min(self.at + buffer.remaining());
            let wanted = self.take(&kept[self.at..end])?;
            buffer.put_slice(&kept[self.at..self.at + wanted]);
            self.kept = kept;
            self.on_taken(wanted);
            return Poll::Ready(Ok(()));
        }
        ready!((self.reading).poll(context, |context| {
            Pin::new(stream).poll_read(context, buffer)
        }))?;
        let bytes = buffer.filled();
        let wanted = self.take(bytes)?;
        if wanted < bytes.len() {
            self.keep(&bytes[wanted..]);
            buffer.set_filled(wanted);
        }
        Poll::Ready(Ok(()))
    }

    /// How many of these bytes go on.
    fn take(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(match &mut self.next {
            Next::Head(_) => self.take_head(bytes)?,
            Next::Length(left) => {
                let wanted = usize::try_from(*left).map_or(bytes.len(), |it| it.min(bytes.len()));
                *left -= wanted as u64;
                if *left == 0 {
                    self.next = self.after_body();
                }
                wanted
            }
            Next::Chunked(chunks) => {
                chunks.on_passed(bytes.len() as u64);
                bytes.len()
            }
            Next::Undecided | Next::Raw => bytes.len(),
        })
    }

    /// Up to the end of the head, or all where it does not matter what follows.
    fn take_head(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut from = 0;
        while let Next::Head(head) = &mut self.next {
            let Some(length) = head.find(&bytes[from..]) else {
                if self.sender == Sender::Node {
                    self.interims.on_part(&bytes[from..]);
                }
                return Ok(bytes.len());
            };
            let part = &bytes[from..from + length];
            from += length;
            let (seen, interim) = (head.seen(), head.is_interim());
            self.seen = seen;
            match interim {
                true => self
                    .interims
                    .on_interim(part)
                    .map_err(|Flood| io::Error::from(io::ErrorKind::InvalidData))?,
                false => self.interims.on_final(),
            }
            self.next = match self.sender {
                Sender::Client => Next::Undecided,
                Sender::Node if interim => Next::Head(head_end(self.sender)),
                Sender::Node if seen.found => Next::Undecided,
                Sender::Node => Next::Raw,
            };
        }
        if let Next::Raw = self.next {
            return Ok(bytes.len());
        }
        Ok(from)
    }

    /// So many of the kept bytes are taken.
    fn on_taken(&mut self, count: usize) {
        self.at += count;
        if self.at == self.kept.len() {
            (self.kept, self.at) = (Vec::new(), 0);
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        (self.kept, self.at) = (bytes.to_vec(), 0);
    }

    fn poll_chunks<S: AsyncRead + Unpin>(
        &mut self,
        stream: &mut S,
        scratch: &Scratch,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let most = match buffer.remaining().checked_sub(Chunks::GROWTH_MAX) {
            // hyper reads a body into an empty buffer.
            None | Some(0) => return Poll::Ready(Err(io::ErrorKind::InvalidInput.into())),
            Some(most) => most,
        };
        let mut out = scratch.rewritten.borrow_mut();
        out.clear();
        // Part of a size is nothing to hand on, and nothing would be the end of the stream.
        while out.is_empty() {
            if self.is_ahead() {
                let kept = std::mem::take(&mut self.kept);
                let end = kept.len().min(self.at + most);
                let taken = self.rewrite(&kept[self.at..end], &mut out)?;
                self.kept = kept;
                self.on_taken(taken);
                continue;
            }
            let mut raw = scratch.raw.borrow_mut();
            let most = most.min(raw.len());
            let mut read = ReadBuf::new(&mut raw[..most]);
            ready!((self.reading).poll(context, |context| {
                Pin::new(&mut *stream).poll_read(context, &mut read)
            }))?;
            let bytes = read.filled();
            if bytes.is_empty() {
                break;
            }
            let taken = self.rewrite(bytes, &mut out)?;
            if taken < bytes.len() {
                self.keep(&bytes[taken..]);
            }
        }
        buffer.put_slice(&out);
        Poll::Ready(Ok(()))
    }

    fn rewrite(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> io::Result<usize> {
        let Next::Chunked(chunks) = &mut self.next else {
            return Ok(0);
        };
        let rewritten = chunks.rewrite(bytes, out);
        if chunks.is_done() {
            self.next = self.after_body();
        }
        rewritten.map_err(|error| {
            self.broken = Some(error);
            io::ErrorKind::InvalidData.into()
        })
    }
}

/// The socket as [`Inflow`] lets it be seen: in this form the bytes can be looked at where they lie.
struct Shaped<'a, S> {
    inflow: &'a mut Inflow,
    stream: &'a mut S,
    scratch: &'a Scratch,
    read: usize,
}

impl<S: AsyncRead + Unpin> AsyncRead for Shaped<'_, S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let polled = this
            .inflow
            .poll_fill(this.stream, this.scratch, context, buffer);
        this.read = buffer.filled().len();
        polled
    }
}

/// The field that matters: a client's length beside its coding, a node's coding.
fn head_end(sender: Sender) -> HeadEnd {
    HeadEnd::new(match sender {
        Sender::Client => "content-length",
        Sender::Node => "transfer-encoding",
    })
}
