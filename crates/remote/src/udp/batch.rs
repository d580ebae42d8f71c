//! Many datagrams per system call: recvmmsg and sendmmsg over buffers that are made once.
//!
//! A call costs some hundred nanoseconds whatever it carries; over a batch that is divided by
//! the number of datagrams. What remains is the kernel's work for each of them.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};

use super::address::Name;

/// Room for one control message: the address that a datagram was sent to.
const CONTROL_BYTES: usize = 64;
/// Where the payload of a control message begins: after its aligned header.
const CONTROL_DATA: usize = size_of::<libc::cmsghdr>();

/// Buffers for a number of datagrams. Stays on the thread that made it.
pub(crate) struct Batch {
    slots: Vec<Slot>,
    /// One stretch of `stride` bytes per slot.
    buffers: Vec<u8>,
    stride: usize,
    control: bool,
    /// What the kernel is given. The pointers in these are made anew for every call.
    messages: Vec<libc::mmsghdr>,
    parts: Vec<libc::iovec>,
}

/// What belongs to one datagram besides its bytes.
#[derive(Clone, Copy)]
struct Slot {
    name: Name,
    length: usize,
    truncated: bool,
    control: Control,
}

/// A control message, aligned as the kernel wants it.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control {
    bytes: [u8; CONTROL_BYTES],
    length: usize,
}

impl Batch {
    /// Room for `datagrams` of up to `bytes` each.
    pub(crate) fn new(datagrams: usize, bytes: usize) -> Self {
        let empty = Slot {
            name: Name::ROOM,
            length: 0,
            truncated: false,
            control: Control {
                bytes: [0; CONTROL_BYTES],
                length: 0,
            },
        };
        // SAFETY: both are plain C structures of integers and pointers, for which all zeros
        // are valid: no name, no parts, no control.
        let (message, part) = unsafe { std::mem::zeroed::<(libc::mmsghdr, libc::iovec)>() };
        Self {
            slots: vec![empty; datagrams],
            buffers: vec![0; datagrams * bytes],
            stride: bytes,
            control: false,
            messages: vec![message; datagrams],
            parts: vec![part; datagrams],
        }
    }

    /// The same, and every datagram that is answered leaves from the address to which it came;
    /// the socket needs a setting to say which that is.
    pub(crate) fn with_control(mut self, control: bool) -> Self {
        self.control = control;
        self
    }

    /// How many datagrams it holds.
    pub(crate) fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// The datagram in a slot; nothing if it was longer than the slot.
    pub(crate) fn datagram(&self, slot: usize) -> Option<&[u8]> {
        let about = &self.slots[slot];
        let start = slot * self.stride;
        (!about.truncated).then(|| &self.buffers[start..start + about.length])
    }

    /// The address that sent it.
    pub(crate) fn source(&self, slot: usize) -> Option<SocketAddr> {
        self.slots[slot].name.address()
    }

    /// Addresses a slot and gives its bytes, all of which will be sent.
    pub(crate) fn fill(&mut self, slot: usize, name: &Name, length: usize) -> &mut [u8] {
        self.slots[slot].name = *name;
        self.slots[slot].control.length = 0;
        self.answer(slot, length)
    }

    /// The bytes of a slot that goes back to where it came from.
    pub(crate) fn answer(&mut self, slot: usize, length: usize) -> &mut [u8] {
        let length = length.min(self.stride);
        self.slots[slot].length = length;
        let start = slot * self.stride;
        &mut self.buffers[start..start + length]
    }

    /// Receives datagrams into the first slots; gives how many. Waits for a first one if
    /// `wait`, as long as the socket's own time-out says.
    pub(crate) fn receive(&mut self, socket: impl AsFd, wait: bool) -> io::Result<usize> {
        let count = self.capacity();
        for slot in 0..count {
            self.slots[slot].name.length = Name::ROOM.length;
            self.slots[slot].control.length = if self.control { CONTROL_BYTES } else { 0 };
            self.point(slot, slot, self.stride);
        }
        let flags = if wait {
            libc::MSG_WAITFORONE
        } else {
            libc::MSG_DONTWAIT
        };
        // SAFETY: `point` has just made every header point to the name, part, bytes and control
        // of one slot, all owned by `self`, as long as the header says and not touched during
        // the call; there are `count` headers; no time-out is given.
        let received = unsafe {
            libc::recvmmsg(
                socket.as_fd().as_raw_fd(),
                self.messages.as_mut_ptr(),
                count as libc::c_uint,
                flags,
                std::ptr::null_mut(),
            )
        };
        let received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
        for (slot, message) in self.slots.iter_mut().zip(&self.messages[..received]) {
            slot.name.length = message.msg_hdr.msg_namelen;
            slot.length = (message.msg_len as usize).min(self.stride);
            slot.truncated = message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
            if self.control {
                slot.control.turn_round(message.msg_hdr.msg_controllen);
            }
        }
        Ok(received)
    }

    /// Sends these slots one after the other without waiting. One that cannot be sent is given
    /// to `refused` and does not hold the others up; a full socket buffer refuses all the rest.
    pub(crate) fn send(
        &mut self,
        socket: impl AsFd,
        slots: &[u16],
        mut refused: impl FnMut(u16, &io::Error),
    ) {
        for (header, slot) in slots.iter().enumerate() {
            let slot = usize::from(*slot);
            self.point(header, slot, self.slots[slot].length);
        }
        let mut done = 0;
        while done < slots.len() {
            let rest = &mut self.messages[done..slots.len()];
            // SAFETY: as in `receive`; the kernel only reads what the headers point to.
            let sent = unsafe {
                libc::sendmmsg(
                    socket.as_fd().as_raw_fd(),
                    rest.as_mut_ptr(),
                    rest.len() as libc::c_uint,
                    libc::MSG_DONTWAIT,
                )
            };
            if let Ok(sent @ 1..) = usize::try_from(sent) {
                done += sent;
                continue;
            }
            // The call stops before the datagram that fails, and says why when it comes first.
            let error = io::Error::last_os_error();
            let kind = error.kind();
            let count = if kind == io::ErrorKind::Interrupted {
                0
            } else if kind == io::ErrorKind::WouldBlock {
                slots.len() - done
            } else {
                1
            };
            for slot in &slots[done..done + count] {
                refused(*slot, &error);
            }
            done += count;
        }
    }

    /// Makes a header point to a slot, whose first `length` bytes count.
    fn point(&mut self, header: usize, slot: usize, length: usize) {
        let start = slot * self.stride;
        let bytes = &mut self.buffers[start..start + length];
        let part = &mut self.parts[header];
        part.iov_base = bytes.as_mut_ptr().cast();
        part.iov_len = length;
        let about = &mut self.slots[slot];
        let message = &mut self.messages[header].msg_hdr;
        message.msg_name = about.name.bytes.as_mut_ptr().cast();
        message.msg_namelen = about.name.length;
        message.msg_iov = part;
        message.msg_iovlen = 1;
        message.msg_flags = 0;
        message.msg_controllen = about.control.length;
        message.msg_control = match about.control.length {
            0 => std::ptr::null_mut(),
            _ => about.control.bytes.as_mut_ptr().cast(),
        };
    }
}

impl Control {
    /// Makes "came to this address by this interface" into "leave from this address": the
    /// message has the same form both ways. The interface is for the routing table to choose,
    /// except where an address means nothing without it.
    fn turn_round(&mut self, length: usize) {
        self.length = 0;
        let int = |at: usize| {
            let bytes = self.bytes.get(at..)?.first_chunk()?;
            Some(i32::from_ne_bytes(*bytes))
        };
        let kind = (int(8), int(12));
        let interface = if kind == (Some(libc::IPPROTO_IP), Some(libc::IP_PKTINFO)) {
            CONTROL_DATA
        } else if kind == (Some(libc::IPPROTO_IPV6), Some(libc::IPV6_PKTINFO)) {
            CONTROL_DATA + 16
        } else {
            return;
        };
        if length < interface + 4 || length > CONTROL_BYTES {
            return;
        }
        let link_local = interface != CONTROL_DATA && self.bytes[CONTROL_DATA] == 0xfe;
        if !link_local {
            self.bytes[interface..interface + 4].fill(0);
        }
        self.length = length;
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    fn socket() -> (UdpSocket, Name) {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let name = socket.local_addr().unwrap().into();
        (socket, name)
    }

    #[test]
    fn a_batch_goes_out_and_comes_in() {
        let ((from, from_name), (to, to_name)) = (socket(), socket());
        let (mut out, mut back) = (Batch::new(4, 8), Batch::new(4, 4));
        for slot in 0..3 {
            out.fill(slot, &to_name, 2 + slot * 2).fill(slot as u8);
        }
        out.send(&from, &[2, 0, 1], |_, error| panic!("{error}"));
        let mut seen = Vec::new();
        while seen.len() < 3 {
            for slot in 0..back.receive(&to, true).unwrap() {
                assert_eq!(back.source(slot), from_name.address());
                seen.push(back.datagram(slot).map(<[u8]>::to_vec));
            }
        }
        // The first is longer than the slot.
        assert_eq!(seen, [None, Some(vec![0; 2]), Some(vec![1; 4])]);
        let empty = back.receive(&to, false).unwrap_err();
        assert_eq!(empty.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn one_that_cannot_be_sent_does_not_hold_up_the_others() {
        let ((from, _), (to, to_name)) = (socket(), socket());
        let mut out = Batch::new(3, 8);
        // An IPv6 address on an IPv4 socket is refused by the system at once.
        let wrong: SocketAddr = "[::1]:9".parse().unwrap();
        for (slot, name) in [&to_name, &wrong.into(), &to_name].into_iter().enumerate() {
            out.fill(slot, name, 1).fill(slot as u8);
        }
        let mut refused = Vec::new();
        out.send(&from, &[0, 1, 2], |slot, _| refused.push(slot));
        assert_eq!(refused, [1]);
        let mut back = Batch::new(1, 8);
        for expected in [0, 2] {
            assert_eq!(back.receive(&to, true).unwrap(), 1);
            assert_eq!(back.datagram(0), Some(&[expected][..]));
        }
    }
}
