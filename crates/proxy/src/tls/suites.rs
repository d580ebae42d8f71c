//! Which cipher suite a connection gets.
//!
//! | the client's list begins with | suite |
//! |---|---|
//! | AES | AES-128-GCM, else AES-256-GCM, else ChaCha20-Poly1305: the first of them that the client lists |
//! | ChaCha20, as of clients without instructions for AES | the first of the client's list |
//! | either, on a CPU without such instructions | the first of the client's list |
//!
//! AES-128 goes before AES-256, which OpenSSL's clients list first: all of TLS 1.3 know it (RFC 8446 §9.1), no attack on it is
//! near, and the hash that belongs to it is SHA-256, where AES-256 has SHA-384: a handshake hashes some hundred blocks, and CPUs have
//! instructions for the first. Suites of TLS 1.2 follow the same rule. Towards nodes it is the order in which suites are listed.
//!
//! Failure case: a client that lists AES-256 alone gets it.

use tokio_rustls::rustls::CipherSuite;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};

/// What a suite enciphers with, the better first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Cipher {
    Aes128,
    Aes256,
    ChaCha20,
}

/// What all that are known here encipher with.
const CIPHERS: [(CipherSuite, Cipher); 9] = [
    (CipherSuite::TLS13_AES_128_GCM_SHA256, Cipher::Aes128),
    (CipherSuite::TLS13_AES_256_GCM_SHA384, Cipher::Aes256),
    (
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
        Cipher::ChaCha20,
    ),
    (
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        Cipher::Aes128,
    ),
    (
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        Cipher::Aes256,
    ),
    (
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        Cipher::ChaCha20,
    ),
    (
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        Cipher::Aes128,
    ),
    (
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        Cipher::Aes256,
    ),
    (
        CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
        Cipher::ChaCha20,
    ),
];

fn cipher(suite: CipherSuite) -> Option<Cipher> {
    let found = CIPHERS.iter().find(|(known, _)| *known == suite);
    found.map(|(_, cipher)| *cipher)
}

/// The cryptography of *ring*, its suites in the order of the module where this CPU has instructions for AES.
pub(super) fn provider() -> CryptoProvider {
    let mut provider = ring::default_provider();
    if has_aes() {
        // Stable: within one cipher the suites stay as they were.
        (provider.cipher_suites).sort_by_key(|it| cipher(it.suite()).unwrap_or(Cipher::ChaCha20));
    }
    provider
}

/// Whether a client's list decides, not ours.
pub(super) fn clients_order_counts(listed: &[CipherSuite]) -> bool {
    let first = listed.iter().find_map(|suite| cipher(*suite));
    first == Some(Cipher::ChaCha20) || !has_aes()
}

/// Whether this CPU has instructions for AES.
fn has_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("aes");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return false;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_suite_is_known_and_aes_128_goes_first() {
        let suites = provider().cipher_suites;
        let ciphers: Vec<_> = (suites.iter().map(|it| cipher(it.suite()).unwrap())).collect();
        assert_eq!(ciphers.len(), ring::ALL_CIPHER_SUITES.len());
        assert_eq!(ciphers.is_sorted(), has_aes());
    }

    #[test]
    fn clients_whose_list_begins_with_chacha20_decide() {
        let unknown = CipherSuite::TLS_EMPTY_RENEGOTIATION_INFO_SCSV;
        let aes = CipherSuite::TLS13_AES_256_GCM_SHA384;
        let chacha = CipherSuite::TLS13_CHACHA20_POLY1305_SHA256;
        assert!(clients_order_counts(&[unknown, chacha, aes]));
        for other in [&[unknown, aes, chacha][..], &[unknown], &[]] {
            assert_eq!(clients_order_counts(other), !has_aes());
        }
    }
}
