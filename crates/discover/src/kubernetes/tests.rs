//! The source beside an API server of our own, which lies, flaps, hangs and ends in the middle. The real one is in
//! `tests/kubernetes.rs`.

use std::net::SocketAddr;

use serde_json::{Value, json};

use super::*;
use crate::http::testing::{Act, Server, answer, file};

fn config(server: &Server, name: &str) -> KubernetesConfig {
    KubernetesConfig {
        server: Some(server.url()),
        token_file: file(&format!("token-{name}"), "secret-1\n"),
        ca_file: PathBuf::from("/nowhere"),
        namespace: "shop".into(),
        service: "web".into(),
        port: PortChoice::Only,
        timeout: Duration::from_millis(400),
    }
}

fn slice(name: &str, version: u32, hosts: &[u8]) -> Value {
    let endpoint = |host: &u8| json!({"addresses": [format!("10.0.0.{host}")]});
    json!({
        "metadata": {"name": name, "resourceVersion": version.to_string()},
        "addressType": "IPv4",
        "endpoints": hosts.iter().map(endpoint).collect::<Vec<_>>(),
        "ports": [{"name": "", "port": 80, "protocol": "TCP"}],
    })
}

fn page(items: &[Value], version: u32, rest: &str) -> Vec<Act> {
    let list = json!({
        "metadata": {"resourceVersion": version.to_string(), "continue": rest},
        "items": items,
    });
    answer("200 OK", "", &list.to_string())
}

fn event(kind: &str, object: &Value) -> Act {
    Act::Send(format!("{}\n", json!({"type": kind, "object": object})))
}

fn watched(events: Vec<Act>) -> Vec<Act> {
    let mut all = vec![Act::Send("HTTP/1.1 200 OK\r\n\r\n".into())];
    all.extend(events);
    all
}

/// What a question gives: the hosts of the nodes, or why there are none.
async fn ask(source: &mut KubernetesSource) -> Result<Vec<u8>, String> {
    let host = |address: SocketAddr| match address.ip() {
        std::net::IpAddr::V4(ip) => ip.octets()[3],
        std::net::IpAddr::V6(_) => 0,
    };
    let answer = source.ask().await.map_err(|error| error.to_string())?;
    Ok(answer.nodes.iter().map(|it| host(it.address)).collect())
}

#[tokio::test]
async fn slices_are_listed_page_by_page_and_then_followed() {
    let scripts = vec![
        page(&[slice("a", 5, &[1, 2])], 7, "more?"),
        page(&[slice("b", 6, &[3])], 7, ""),
        watched(vec![
            event("MODIFIED", &slice("a", 8, &[1])),
            event("ADDED", &slice("c", 9, &[4])),
            Act::Wait,
            event("BOOKMARK", &json!({"metadata": {"resourceVersion": "12"}})),
            event("DELETED", &slice("b", 13, &[3])),
            Act::Wait,
        ]),
        watched(vec![event("MODIFIED", &slice("a", 14, &[9])), Act::Hang]),
    ];
    let server = Server::start(scripts).await;
    let mut source = KubernetesSource::new(config(&server, "follow"));
    assert_eq!(ask(&mut source).await, Ok(vec![1, 2, 3]));
    assert_eq!(ask(&mut source).await, Ok(vec![1, 3, 4]));
    server.proceed();
    assert_eq!(ask(&mut source).await, Ok(vec![1, 4]));
    // The watch ends; the next one goes on where it was.
    server.proceed();
    assert_eq!(ask(&mut source).await, Ok(vec![1, 4]));
    assert_eq!(ask(&mut source).await, Ok(vec![4, 9]));
    let heads = server.heads();
    let first = "GET /apis/discovery.k8s.io/v1/namespaces/shop/endpointslices?labelSelector=\
                 kubernetes%2Eio%2Fservice%2Dname%3Dweb&";
    assert!(heads.iter().all(|it| it.starts_with(first)), "{heads:?}");
    assert!(
        heads
            .iter()
            .all(|it| it.contains("\r\nauthorization: Bearer secret-1\r\n"))
    );
    assert!(heads[1].contains("&continue=more%3F "));
    assert!(
        heads[2].contains("&watch=1&allowWatchBookmarks=true&timeoutSeconds=60&resourceVersion=7 ")
    );
    assert!(heads[3].contains("&resourceVersion=13 "));
}

#[tokio::test]
async fn a_version_that_is_out_of_date_has_everything_listed_again() {
    let gone = json!({"kind": "Status", "code": 410, "message": "too old resource version"});
    let scripts = vec![
        page(&[slice("a", 5, &[1])], 7, ""),
        watched(vec![
            event("MODIFIED", &slice("a", 8, &[2])),
            Act::Wait,
            event("ERROR", &gone),
        ]),
        page(&[slice("a", 20, &[3])], 21, ""),
        // A server that flaps says so of what it has just listed.
        answer("410 Gone", "", &gone.to_string()),
        page(&[slice("a", 30, &[4])], 31, ""),
    ];
    let server = Server::start(scripts).await;
    let mut source = KubernetesSource::new(config(&server, "gone"));
    assert_eq!(ask(&mut source).await, Ok(vec![1]));
    assert_eq!(ask(&mut source).await, Ok(vec![2]));
    server.proceed();
    assert_eq!(ask(&mut source).await, Ok(vec![3]));
    let flaps = ask(&mut source).await.unwrap_err();
    assert!(flaps.contains("out of date"), "{flaps}");
    assert_eq!(ask(&mut source).await, Ok(vec![4]));
}

/// What comes of a watch that does this, and whether the question after that lists again.
async fn after(name: &str, acts: Vec<Act>) -> String {
    let scripts = vec![
        page(&[slice("a", 5, &[1])], 7, ""),
        acts,
        page(&[slice("a", 9, &[2])], 9, ""),
    ];
    let server = Server::start(scripts).await;
    let mut source = KubernetesSource::new(config(&server, name));
    assert_eq!(ask(&mut source).await, Ok(vec![1]));
    let error = ask(&mut source).await.unwrap_err();
    assert_eq!(ask(&mut source).await, Ok(vec![2]), "{name}");
    error
}

#[tokio::test]
async fn a_watch_that_is_not_understood_is_a_failure_and_begins_anew() {
    let line = |text: &str| watched(vec![Act::Send(text.to_owned())]);
    let large = format!(
        "{{\"type\": \"ADDED\", \"object\": \"{}\"}}\n",
        "x".repeat(OBJECT_BYTES_MAX)
    );
    let internal = json!({"code": 500, "message": "etcd is\u{1b}[2J gone"});
    for (name, acts, wanted) in [
        (
            "half",
            line("{\"type\": \"ADDED\", \"obj"),
            "ends within a line",
        ),
        (
            "json",
            line("{\"type\": \"ADDED\", \"obj\n"),
            "not understood",
        ),
        (
            "kind",
            line("{\"type\": \"SHOUTED\", \"object\": {}}\n"),
            "SHOUTED",
        ),
        (
            "form",
            line("{\"type\": \"ADDED\", \"object\": {\"metadata\": 3}}\n"),
            "not understood",
        ),
        (
            "bare",
            line("{\"type\": \"BOOKMARK\", \"object\": {\"metadata\": {}}}\n"),
            "without a version",
        ),
        ("large", line(&large), "longer than"),
        ("end", watched(Vec::new()), "ended at once"),
        (
            "error",
            watched(vec![event("ERROR", &internal)]),
            "etcd is?[2J gone",
        ),
        (
            "refused",
            answer("403 Forbidden", "", "{\"message\": \"no right to watch\"}"),
            "no right to watch",
        ),
        (
            "redirect",
            answer("302 Found", "location: http://10.0.0.1/\r\n", ""),
            "302",
        ),
        ("silent", vec![Act::Hang], "no answer within"),
        ("closed", vec![], "connection"),
    ] {
        let error = after(name, acts).await;
        assert!(error.contains(wanted), "{name}: {error}");
        assert!(!error.contains('\u{1b}'), "{name}");
    }
}

#[tokio::test]
async fn a_list_has_bounds_and_a_time() {
    let endless = format!("{{\"items\": [\"{}", "x".repeat(PAGE_BYTES_MAX));
    let head = "HTTP/1.1 200 OK\r\n\r\n".to_owned();
    for (name, acts, wanted) in [
        (
            "list-long",
            vec![Act::Send(head.clone() + &endless)],
            "longer than",
        ),
        (
            "list-half",
            answer("200 OK", "", "{\"metadata\": {\"resourceVersion\""),
            "not understood",
        ),
        (
            "list-hangs",
            vec![Act::Send(head + "{"), Act::Hang],
            "no answer within",
        ),
        (
            "list-other",
            answer("200 OK", "", "<html>"),
            "not understood",
        ),
    ] {
        let server = Server::start(vec![acts]).await;
        let mut source = KubernetesSource::new(config(&server, name));
        let error = ask(&mut source).await.unwrap_err();
        assert!(error.contains(wanted), "{name}: {error}");
    }
    let same = page(&[slice("a", 5, &[1])], 7, "again");
    let server = Server::start(vec![same; PAGES_MAX + 1]).await;
    let mut patient = config(&server, "list-pages");
    patient.timeout = Duration::from_secs(20);
    let error = ask(&mut KubernetesSource::new(patient)).await.unwrap_err();
    assert!(error.contains("more than 40 pages"), "{error}");
}

#[tokio::test]
async fn a_token_that_was_replaced_is_read_again_and_one_that_is_gone_is_said() {
    let scripts = vec![
        page(&[slice("a", 5, &[1])], 7, ""),
        watched(vec![event("MODIFIED", &slice("a", 8, &[2])), Act::Hang]),
    ];
    let server = Server::start(scripts).await;
    let config = config(&server, "rotated");
    let mut source = KubernetesSource::new(config.clone());
    assert_eq!(ask(&mut source).await, Ok(vec![1]));
    std::fs::write(&config.token_file, "secret-2").unwrap();
    assert_eq!(ask(&mut source).await, Ok(vec![2]));
    assert!(server.heads()[1].contains("Bearer secret-2\r\n"));
    std::fs::remove_file(&config.token_file).unwrap();
    let mut source = KubernetesSource::new(config);
    let error = ask(&mut source).await.unwrap_err();
    assert!(error.contains("token-rotated"), "{error}");
}

#[tokio::test]
async fn a_service_without_ready_endpoints_is_watched_on() {
    let scripts = vec![
        page(&[], 7, ""),
        watched(vec![event("ADDED", &slice("a", 8, &[2])), Act::Hang]),
    ];
    let server = Server::start(scripts).await;
    let mut source = KubernetesSource::new(config(&server, "empty"));
    let none = source.ask().await;
    assert!(matches!(none, Err(SourceError::NoneReady(_))), "{none:?}");
    assert_eq!(ask(&mut source).await, Ok(vec![2]));
}
