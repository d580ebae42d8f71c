//! Certificates that come by themselves, for the API and the metrics.

use tidegate_remote::clock;

use super::plane::Plane;
use crate::acme::key;
use crate::exposition::{Kind, Text};
use crate::models::{CertificateStatus, GivenCertificate};

/// All, in the order of the configuration.
pub(super) fn status(plane: &Plane) -> Vec<CertificateStatus> {
    let now = clock::unix().as_secs_f64();
    let all = plane.certificates.all().into_iter();
    let status = all.map(|(certificate, state)| CertificateStatus {
        names: (certificate.names().iter())
            .map(ToString::to_string)
            .collect(),
        expires_in_seconds: (certificate.current()).map(|it| it.valid().end as f64 - now),
        issued: state.issued,
        failed: state.failed,
        error: state.error.or(state.unkept),
        next_try_in_seconds: state.due.map(|due| (due as f64 - now).max(0.0)),
    });
    status.collect()
}

/// Those of the configuration that clients are shown.
pub(super) fn given(plane: &Plane) -> Vec<GivenCertificate> {
    let now = clock::unix().as_secs_f64();
    let ends = plane.cluster.iter().flat_map(|it| it.certificate_ends());
    let given = ends.map(|(names, end)| GivenCertificate {
        names: names.iter().map(ToString::to_string).collect(),
        expires_in_seconds: end as f64 - now,
    });
    given.collect()
}

pub(super) fn metrics(plane: &Plane, text: &mut Text) {
    let all = plane.certificates.all();
    if all.is_empty() {
        return;
    }
    let named = all.into_iter().map(|(it, state)| (key(&it), it, state));
    let all: Vec<_> = named.collect();
    let mut family = text.family(
        "tidegate_certificate_not_after_timestamp_seconds",
        Kind::Gauge,
        "When the certificate in force ends, since 1970; of those that come by themselves.",
    );
    for (names, certificate, _) in &all {
        if let Some(current) = certificate.current() {
            family.sample(&[("names", names)], current.valid().end as f64);
        }
    }
    let mut family = text.family(
        "tidegate_certificate_unwritten",
        Kind::Gauge,
        "1 while the certificate in force is in no file, since it could not be written.",
    );
    for (names, _, state) in &all {
        family.count(&[("names", names)], state.unkept.is_some().into());
    }
    let mut family = text.family(
        "tidegate_certificate_orders",
        Kind::Counter,
        "Tries to have a certificate issued, by how they ended.",
    );
    for (names, _, state) in &all {
        for (result, count) in [("issued", state.issued), ("failed", state.failed)] {
            family.count(&[("names", names), ("result", result)], count);
        }
    }
}
