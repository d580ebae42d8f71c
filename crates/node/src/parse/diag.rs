//! `NETLINK_SOCK_DIAG`: the listening TCP sockets and their accept queues; the connections of one port.
//!
//! The same numbers stand in `/proc/net/tcp`, but that file walks every bucket of the table of
//! established connections (2.1 ms on an idle machine with 24 GB); the request here asks for
//! listening sockets only. Layouts: the kernel's `uapi/linux/{netlink,sock_diag,inet_diag}.h`.
//! Netlink is in the machine's own byte order.

/// Bytes of the request: a netlink header and an `inet_diag_req_v2`.
pub(crate) const REQUEST_BYTES: usize = HEADER + 56;

const HEADER: usize = 16;
/// `struct inet_diag_msg`.
const MESSAGE: usize = 72;
/// `idiag_rqueue`: for a listening socket, connections that wait to be accepted.
const WAITING_AT: usize = 56;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const REQUEST_DUMP: u16 = 0x1 | 0x300;
const TYPE_ERROR: u16 = 2;
const TYPE_DONE: u16 = 3;
const TCP: u8 = 6;
const LISTEN: u8 = 10;
/// States in which a server has yet to answer or to send: SYN_RECV, ESTABLISHED, FIN_WAIT1 (not all is acknowledged),
/// CLOSE_WAIT (the client sends no more), LAST_ACK.
const CONNECTED: u32 = 1 << 3 | 1 << 1 | 1 << 4 | 1 << 8 | 1 << 9;
/// `idiag_sport`, in network order.
const PORT_AT: usize = 4;

/// Families that are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// IPv4.
    V4 = 2,
    /// IPv6, which holds the sockets that listen for both.
    V6 = 10,
}

/// A request for all listening TCP sockets of a family.
pub(crate) fn request(family: Family) -> [u8; REQUEST_BYTES] {
    request_states(family, 1 << LISTEN)
}

/// A request for the connections of a family whose port at this machine is that one.
pub(crate) fn request_connections(family: Family, port: u16) -> [u8; REQUEST_BYTES] {
    let mut bytes = request_states(family, CONNECTED);
    bytes[HEADER + 8..HEADER + 10].copy_from_slice(&port.to_be_bytes());
    bytes
}

fn request_states(family: Family, states: u32) -> [u8; REQUEST_BYTES] {
    let mut bytes = [0; REQUEST_BYTES];
    bytes[0..4].copy_from_slice(&(REQUEST_BYTES as u32).to_ne_bytes());
    bytes[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes[6..8].copy_from_slice(&REQUEST_DUMP.to_ne_bytes());
    bytes[HEADER] = family as u8;
    bytes[HEADER + 1] = TCP;
    bytes[HEADER + 4..HEADER + 8].copy_from_slice(&states.to_ne_bytes());
    bytes
}

/// What one datagram of the answer held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// What was counted in it; more datagrams follow.
    More(u64),
    /// The same, and it was the last one.
    Done(u64),
    /// The kernel refuses, or this is not an answer.
    Refused,
}

/// Connections that wait to be accepted, by one datagram.
pub(crate) fn answer(datagram: &[u8]) -> Answer {
    count(datagram, |body| match body[1] {
        LISTEN => word(body, WAITING_AT).into(),
        _ => 0,
    })
}

/// Connections of a port, by one datagram.
pub(crate) fn connections(datagram: &[u8], port: u16) -> Answer {
    count(datagram, |body| {
        let is_connected = body[1] < 32 && CONNECTED & (1 << body[1]) != 0;
        let its_port = u16::from_be_bytes([body[PORT_AT], body[PORT_AT + 1]]);
        (is_connected && its_port == port).into()
    })
}

/// Adds up what each message of a datagram counts for.
fn count(datagram: &[u8], of: impl Fn(&[u8]) -> u64) -> Answer {
    let mut sum = 0u64;
    let mut rest = datagram;
    while rest.len() >= HEADER {
        let length = word(rest, 0) as usize;
        if length < HEADER || length > rest.len() {
            return Answer::Refused;
        }
        let (message, body) = (&rest[..length], &rest[HEADER..length]);
        match u16::from_ne_bytes([message[4], message[5]]) {
            TYPE_DONE => return Answer::Done(sum),
            TYPE_ERROR => return Answer::Refused,
            SOCK_DIAG_BY_FAMILY if body.len() >= MESSAGE => sum = sum.saturating_add(of(body)),
            _ => return Answer::Refused,
        }
        // Messages begin at multiples of four.
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Answer::More(sum)
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_ne_bytes(word)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::parse) fn message(kind: u16, state: u8, waiting: u32) -> Vec<u8> {
        let mut bytes = vec![0; HEADER + MESSAGE];
        bytes[0..4].copy_from_slice(&((HEADER + MESSAGE) as u32).to_ne_bytes());
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[HEADER + 1] = state;
        bytes[HEADER + WAITING_AT..HEADER + WAITING_AT + 4].copy_from_slice(&waiting.to_ne_bytes());
        bytes
    }

    #[test]
    fn waiting_connections_of_all_listeners_are_summed() {
        let mut datagram = message(SOCK_DIAG_BY_FAMILY, LISTEN, 3);
        datagram.extend(message(SOCK_DIAG_BY_FAMILY, LISTEN, 4));
        // The receive queue of a connection is in bytes.
        datagram.extend(message(SOCK_DIAG_BY_FAMILY, 1, 1000));
        assert_eq!(answer(&datagram), Answer::More(7));
        datagram.extend(message(TYPE_DONE, 0, 0));
        assert_eq!(answer(&datagram), Answer::Done(7));
        assert_eq!(answer(&[]), Answer::More(0));
    }

    #[test]
    fn connections_of_a_port_are_counted_by_their_state() {
        let of_port = |state: u8, port: u16| {
            let mut bytes = message(SOCK_DIAG_BY_FAMILY, state, 0);
            bytes[HEADER + PORT_AT..HEADER + PORT_AT + 2].copy_from_slice(&port.to_be_bytes());
            bytes
        };
        let all = (1..=12).flat_map(|state| of_port(state, 8080));
        let mut datagram: Vec<_> = all.collect();
        datagram.extend(of_port(1, 8081));
        datagram.extend(of_port(255, 8080));
        assert_eq!(connections(&datagram, 8080), Answer::More(5));
        assert_eq!(connections(&datagram, 8081), Answer::More(1));
        datagram.extend(message(TYPE_DONE, 0, 0));
        assert_eq!(connections(&datagram, 80), Answer::Done(0));
    }

    #[test]
    fn errors_and_cut_messages_are_refused() {
        assert_eq!(answer(&message(TYPE_ERROR, 0, 0)), Answer::Refused);
        let whole = message(SOCK_DIAG_BY_FAMILY, LISTEN, 3);
        assert_eq!(answer(&whole[..HEADER + 10]), Answer::Refused);
        let mut endless = whole;
        endless[0..4].copy_from_slice(&0u32.to_ne_bytes());
        assert_eq!(answer(&endless), Answer::Refused);
    }
}
