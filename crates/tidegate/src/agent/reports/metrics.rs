//! The record as metrics.
//!
//! ```text
//! tidegate_agent_<field>                 every field of the record that was measured, in base units
//! tidegate_agent_utilization_ratio ...   used shares: CPU over the last two seconds, memory and files now
//! tidegate_agent_service_failing         service checks, by their labels and places in the file
//! ```

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tidegate_node::report::OwnLoad;
use tidegate_node::report::fields::{FieldKind, FieldUnit, REPORTED, ReportedField};
use tokio::time::timeout;

use super::super::checks::ServiceState;
use super::SharedLoad;
use super::door::Door;
use crate::exposition::{Format, Kind, Text};

const HEAD_BYTES_MAX: usize = 8 << 10;
const HEADERS_MAX: usize = 64;
/// For a request's head, and between two requests: what is silent keeps its seat no longer, and a scraper opens another
/// connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// For a whole connection.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(600);

/// Answers until the task is dropped.
pub(super) async fn serve(door: Door, load: SharedLoad) {
    loop {
        let (stream, seat) = door.next().await;
        let load = load.clone();
        tokio::spawn(async move {
            let service = service_fn(async |request: Request<Incoming>| {
                seat.begin();
                let answer = answered(&request, &load);
                seat.end();
                Ok::<_, Infallible>(answer)
            });
            let mut builder = hyper::server::conn::http1::Builder::new();
            builder
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIMEOUT)
                .max_buf_size(HEAD_BYTES_MAX)
                .max_headers(HEADERS_MAX);
            let served = builder.serve_connection(TokioIo::new(stream), service);
            tokio::select! {
                // What breaks off or stands still costs its own connection only.
                _ended = timeout(CONNECTION_TIMEOUT, served) => {}
                () = seat.lost() => {}
            }
        });
    }
}

fn answered<B>(request: &Request<B>, load: &SharedLoad) -> Response<Full<Bytes>> {
    let with = |status, kind: &'static str, text: String| {
        let mut answer = Response::new(Full::new(text.into()));
        *answer.status_mut() = status;
        let kind = HeaderValue::from_static(kind);
        answer.headers_mut().insert(CONTENT_TYPE, kind);
        answer
    };
    let plain = "text/plain; charset=utf-8";
    if request.uri().path() != "/metrics" {
        return with(StatusCode::NOT_FOUND, plain, "see /metrics\n".into());
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let text = "only GET and HEAD\n".into();
        return with(StatusCode::METHOD_NOT_ALLOWED, plain, text);
    }
    let accept = request.headers().get(ACCEPT);
    let format = Format::wanted(accept.and_then(|it| it.to_str().ok()));
    let text = {
        let load = load.lock();
        exposition(&load.own, &load.services.lock(), format)
    };
    with(StatusCode::OK, format.content_type(), text)
}

/// All metrics. Before the first sample there are none.
fn exposition(own: &OwnLoad, services: &[ServiceState], format: Format) -> String {
    let mut text = Text::new(format);
    let Some(record) = own.newest() else {
        return text.finish();
    };
    let load = own.load();
    for (name, value, help) in [
        (
            "tidegate_agent_cpu_used_ratio",
            load.utilization,
            "Used share of the CPUs that the scope may use, mean of two seconds.",
        ),
        (
            "tidegate_agent_memory_used_ratio",
            load.memory,
            "Used share of the memory.",
        ),
        (
            "tidegate_agent_files_used_ratio",
            load.files,
            "Used share of the file descriptors: the worse of the system and the watched process nearest to its limit.",
        ),
    ] {
        text.family(name, Kind::Gauge, help)
            .sample(&[], value.into());
    }
    if !services.is_empty() {
        exposed_services(services, &mut text);
    }
    for field in REPORTED {
        let Some(value) = (field.value)(record) else {
            continue;
        };
        let kind = match field.kind {
            FieldKind::Counter => Kind::Counter,
            FieldKind::Gauge => Kind::Gauge,
        };
        let help = format!("{}.", field.what);
        let scale = scale(field.unit);
        let name = name(field);
        text.family(&name, kind, &help)
            .sample(&[], value as f64 * scale);
    }
    text.finish()
}

fn exposed_services(services: &[ServiceState], text: &mut Text) {
    let help = "Whether this service check fails; not there before its first result.";
    let mut family = text.family("tidegate_agent_service_failing", Kind::Gauge, help);
    for (place, state) in (1_u32..).zip(services) {
        if let Some(passes) = state.passes {
            let place = place.to_string();
            let labels = [("check", state.label.as_str()), ("place", &place)];
            family.sample(&labels, if passes { 0.0 } else { 1.0 });
        }
    }
}

fn name(field: &ReportedField) -> String {
    let unit = match field.unit {
        FieldUnit::Nanoseconds => "_seconds",
        FieldUnit::Bytes => "_bytes",
        FieldUnit::Thousandths | FieldUnit::Number => "",
    };
    format!("tidegate_agent_{}{unit}", field.label())
}

/// What a number of it is in the metric's base unit.
fn scale(unit: FieldUnit) -> f64 {
    match unit {
        FieldUnit::Nanoseconds => 1e-9,
        FieldUnit::Thousandths => 1e-3,
        FieldUnit::Bytes | FieldUnit::Number => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::record::{LoadRecord, Sources};
    use tidegate_core::topology::SoftLimits;

    use super::*;

    fn asked(load: &SharedLoad, method: Method, path: &str) -> Response<Full<Bytes>> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .body(())
            .unwrap();
        answered(&request, load)
    }

    #[test]
    fn what_was_measured_is_there_in_base_units_and_the_rest_is_left_out() {
        let sources = Sources::BUSY_ACCT
            .with(Sources::MEMORY)
            .with(Sources::NETWORK);
        let mut own = OwnLoad::default();
        for tick in 1..=2 {
            own.note(&LoadRecord {
                t_ns: tick * 1_000_000_000,
                busy_ns: tick * 500_000_000,
                cores_milli: 2000,
                memory_total: 200,
                memory_available: 50,
                received_bytes: 7,
                sources,
                ..LoadRecord::default()
            });
        }
        let services = [("dns", Some(true)), ("store", Some(false)), ("files", None)];
        let services = services.map(|(label, passes)| ServiceState {
            label: label.into(),
            passes,
        });
        let text = exposition(&own, &services, Format::OpenMetrics);
        for line in [
            "tidegate_agent_cpu_used_ratio 0.25",
            "tidegate_agent_memory_used_ratio 0.75",
            "tidegate_agent_clock_seconds_total 2",
            "# UNIT tidegate_agent_busy_seconds seconds",
            "tidegate_agent_busy_seconds_total 1",
            "tidegate_agent_cores 2",
            "tidegate_agent_memory_total_bytes 200",
            "tidegate_agent_received_bytes_total 7",
            "tidegate_agent_service_failing{check=\"dns\",place=\"1\"} 0",
            "tidegate_agent_service_failing{check=\"store\",place=\"2\"} 1",
        ] {
            assert!(text.lines().any(|it| it == line), "{line} in:\n{text}");
        }
        assert!(
            !text.contains("tidegate_agent_files_used_ratio 0"),
            "{text}"
        );
        assert!(!text.contains("agent_accept_queue"), "{text}");
        assert!(!text.contains("check=\"files\""), "{text}");
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn only_metrics_are_served() {
        let load = SharedLoad::new(SoftLimits::default());
        assert_eq!(asked(&load, Method::GET, "/").status(), 404);
        assert_eq!(asked(&load, Method::POST, "/metrics").status(), 405);
        assert_eq!(asked(&load, Method::GET, "/metrics?x").status(), 200);
    }
}
