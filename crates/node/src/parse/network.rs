//! `/proc/net/{dev,sockstat,snmp,netstat}`.

use super::{lines, number, number32, words};

/// Sockets in TIME_WAIT, from `/proc/net/sockstat`.
pub(crate) fn time_wait(sockstat: &[u8]) -> Option<u32> {
    let line = lines(sockstat).find_map(|line| line.strip_prefix(b"TCP: "))?;
    let mut words = words(line);
    words.find(|word| *word == b"tw")?;
    number32(words.next()?)
}

/// The number under the heading `column` of the pair of lines that begin with `prefix`, in
/// `/proc/net/snmp` or `/proc/net/netstat`.
pub(crate) fn mib(bytes: &[u8], prefix: &[u8], column: &[u8]) -> Option<u64> {
    let mut pair = lines(bytes).filter_map(|line| line.strip_prefix(prefix));
    let (names, values) = (pair.next()?, pair.next()?);
    let at = words(names).position(|name| name == column)?;
    words(values).nth(at).and_then(number)
}

/// Bytes received and sent by one interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    /// Received.
    pub(crate) received: u64,
    /// Sent.
    pub(crate) sent: u64,
}

/// Reads `/proc/net/dev`, giving each interface's name and bytes to `interface`.
pub(crate) fn dev(bytes: &[u8], mut interface: impl FnMut(&[u8], Traffic)) -> Option<()> {
    let mut interfaces = 0;
    // Two lines of headings.
    for line in lines(bytes).skip(2) {
        // A name cannot hold a colon but for old aliases, which carry no counters.
        let colon = line.iter().position(|byte| *byte == b':')?;
        let mut counts = words(&line[colon + 1..]).map(number);
        let received = counts.next()??;
        let sent = counts.nth(7)??;
        interface(line[..colon].trim_ascii(), Traffic { received, sent });
        interfaces += 1;
    }
    (interfaces > 0).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_wait_is_found_by_name() {
        let text = b"sockets: used 15\nTCP: inuse 1 orphan 0 tw 12 alloc 1 mem 110\nUDP: inuse 0\n";
        assert_eq!(time_wait(text), Some(12));
        assert_eq!(time_wait(b"TCP: inuse 1 tw\n"), None);
        assert_eq!(time_wait(b"UDP: tw 5\n"), None);
    }

    #[test]
    fn columns_are_found_by_their_heading() {
        let text = b"Ip: Forwarding\nIp: 2\nTcp: RtoMin MaxConn CurrEstab\nTcp: 200 -1 42\n";
        assert_eq!(mib(text, b"Tcp: ", b"CurrEstab"), Some(42));
        assert_eq!(mib(text, b"Tcp: ", b"MaxConn"), None);
        assert_eq!(mib(text, b"Tcp: ", b"Absent"), None);
        assert_eq!(mib(text, b"Udp: ", b"CurrEstab"), None);
        assert_eq!(mib(b"Tcp: A B\nTcp: 1\n", b"Tcp: ", b"B"), None);
    }

    #[test]
    fn interfaces_have_bytes_both_ways() {
        let text = b"Inter-|   Receive                 |  Transmit\n\
             face |bytes    packets errs drop fifo frame compressed multicast|bytes\n\
             \x20   lo:    3293      31    0    0    0     0          0         0     3294      31    0    0    0     0       0          0\n\
             eth0:247362157    6072    0    0    0     0          0         0   430730    3987    0    0    0     0       0          0\n";
        let mut seen = Vec::new();
        dev(text, |name, traffic| {
            seen.push((name.to_vec(), traffic.received, traffic.sent));
        })
        .unwrap();
        assert_eq!(
            seen,
            [
                (b"lo".to_vec(), 3293, 3294),
                (b"eth0".to_vec(), 247_362_157, 430_730)
            ]
        );
        assert_eq!(dev(b"a\nb\n", |_, _| ()), None);
        assert_eq!(dev(b"a\nb\neth0: 1 2 3\n", |_, _| ()), None);
    }
}
