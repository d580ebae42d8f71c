//! Names of nodes of which a source gives the address alone.

use std::net::SocketAddr;

/// Longest part that stands before the address, bytes: an IPv6 address and a port take 46 of 64.
const PREFIX_MAX: usize = 17;

/// A name that says the address: `shop-10.0.0.11-80`, with `-` for each `:` of an IPv6 address.
pub(crate) fn of(prefix: &str, address: SocketAddr) -> String {
    let ip = address.ip().to_canonical().to_string().replace(':', "-");
    let end = prefix.floor_char_boundary(PREFIX_MAX);
    format!("{}-{ip}-{}", &prefix[..end], address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_and_differ_as_addresses_do() {
        let name = |address: &str| of("a-site-with-a-long-name", address.parse().unwrap());
        assert_eq!(name("10.0.0.1:80"), "a-site-with-a-lon-10.0.0.1-80");
        assert_eq!(name("[::1]:80"), "a-site-with-a-lon---1-80");
        let longest = name("[1111:2222:3333:4444:5555:6666:7777:8888]:65535");
        assert_eq!(longest.len(), 63, "{longest}");
    }
}
