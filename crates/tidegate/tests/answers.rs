//! From the configuration to what a refused client reads, through the binary itself.

#![allow(clippy::unwrap_used, reason = "test code")]

mod support;

use support::{FrontEnd, Response, folder, free_address, request};

const PAGE: &str = "<p>Back in a moment.";

/// A front-end with a site that lets nothing in, and one whose only server is not there.
fn front_end(name: &str) -> FrontEnd {
    let folder = folder(name);
    std::fs::write(folder.join("busy.html"), PAGE).unwrap();
    let text = format!(
        "[limits]\nworkers = 1\ntries = 3\n\
         [[site]]\nname = \"shop\"\nhosts = [\"shop.example\"]\n\
         admission = {{ mode = \"static\", connections = 0, status = 429, body = \"busy.html\", \
         retry_after = [\"4s\", \"4s\"] }}\n\
         [[site]]\nname = \"down\"\nhosts = [\"down.example\"]\n\
         retry_budget = {{ ratio = 0.0, min_per_second = 0.0 }}\n\
         [[node]]\nname = \"s1\"\naddress = \"{}\"\nsite = \"shop\"\n\
         [[node]]\nname = \"d1\"\naddress = \"{}\"\nsite = \"down\"\n\
         [[node]]\nname = \"d2\"\naddress = \"{}\"\nsite = \"down\"\n",
        free_address(),
        free_address(),
        free_address()
    );
    FrontEnd::start(&folder, &text)
}

fn has(response: &Response, field: &str) -> bool {
    response.head.lines().any(|line| line == field)
}

#[test]
fn a_refused_client_reads_what_the_operator_wrote() {
    let front_end = front_end("answers-page");
    let answer = front_end.get("shop.example", "/");
    assert_eq!((answer.status, answer.body.as_str()), (429, PAGE));
    for field in [
        "content-type: text/html; charset=utf-8",
        "retry-after: 4",
        "ratelimit-policy: \"shop\";q=0;qu=\"concurrent-requests\"",
        "ratelimit: \"shop\";r=0;t=4",
        "x-tidegate-reason: overload",
    ] {
        assert!(has(&answer, field), "{field} in {}", answer.head);
    }
    let text = "POST / HTTP/1.1\r\nHost: shop.example\r\nContent-Type: application/grpc-web\r\n\
                Content-Length: 0\r\nConnection: close\r\n\r\n";
    let answer = request(front_end.address, text).unwrap();
    assert_eq!((answer.status, answer.body.as_str()), (200, ""));
    assert!(has(&answer, "grpc-status: 8"), "{}", answer.head);
}

#[test]
fn a_site_without_a_retry_budget_fails_at_once_and_says_so() {
    let front_end = front_end("answers-retries");
    assert_eq!(front_end.get("down.example", "/").status, 502);
    let denied = "tidegate_site_retries_denied_total{site=\"down\"}";
    assert_eq!(front_end.metric(denied), Some(1.0));
    let retries = "tidegate_site_retries_total{site=\"down\"}";
    assert_eq!(front_end.metric(retries), Some(0.0));
    assert_eq!(front_end.metric("tidegate_accept_paused "), Some(0.0));
}
