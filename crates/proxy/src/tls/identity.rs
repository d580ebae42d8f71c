//! A client's certificate as the value of a header field: `Hash=` with the SHA-256 of the certificate in hexadecimal, and
//! `Subject=` with its subject (RFC 4514) in quotes, as in Envoy's `x-forwarded-client-cert`.

use http::HeaderValue;
use ring::digest::{SHA256, digest};

use super::der;

/// Of a certificate in DER that was believed.
pub(crate) fn client_identity(certificate: &[u8]) -> Option<HeaderValue> {
    let hash = digest(&SHA256, certificate);
    let hex: Vec<_> = hash.as_ref().iter().map(|it| format!("{it:02x}")).collect();
    let mut value = format!("Hash={}", hex.concat());
    // No quote is in there.
    if let Some(subject) = der::subject(certificate) {
        value.push_str(&format!(";Subject=\"{subject}\""));
    }
    HeaderValue::try_from(value).ok()
}
