//! The source beside a real API server: rights, slices that change, a token that is replaced, a server that goes away.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]
#![expect(clippy::print_stdout, reason = "a test that cannot run says why")]

mod api_server;

use std::path::Path;
use std::time::Duration;

use api_server::ApiServer;
use serde_json::{Value, json};
use tidegate_core::time::Timestamp;
use tidegate_core::topology::discovered::{Departure, DiscoveryEvent, DiscoveryLimits};
use tidegate_discover::{
    Asked, KubernetesConfig, Naming, PortChoice, SourceConfig, SourceKind, WatchedSource,
};

/// Questions until what was changed must have been answered.
const QUESTIONS_MAX: usize = 100;
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices";

/// Limits of time are the business of `tidegate_core`.
fn clock() -> Timestamp {
    Timestamp::from_millis(1000)
}

fn source(server: &ApiServer) -> WatchedSource {
    let config = KubernetesConfig {
        server: Some(server.url().parse().unwrap()),
        token_file: server.file("token"),
        ca_file: server.ca_file(),
        namespace: "shop".into(),
        service: "web".into(),
        port: PortChoice::Name("http".into()),
        timeout: Duration::from_secs(5),
    };
    let config = SourceConfig {
        name: "web".into(),
        kind: SourceKind::Kubernetes(config),
        naming: Naming::Prefix("web".into()),
        weight: 1.0,
        limits: DiscoveryLimits::default(),
    };
    WatchedSource::new(config, 7, clock)
}

/// Asks until an answer is as wanted.
async fn until(source: &mut WatchedSource, what: &str, wanted: impl Fn(&Asked) -> bool) -> Asked {
    let mut last = String::new();
    for _ in 0..QUESTIONS_MAX {
        let asked = source.ask().await;
        if wanted(&asked) {
            return asked;
        }
        last = format!("{asked:?}");
        // A server that refuses does so at once.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{what}: {last}");
}

fn names(source: &WatchedSource) -> Vec<String> {
    let nodes = source.nodes().into_iter();
    nodes
        .map(|node| format!("{} {}", node.name, node.address))
        .collect()
}

/// The documents of a file in `contrib/kubernetes`, and where the API takes each.
fn documents(name: &str) -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/kubernetes");
    let text = std::fs::read_to_string(folder.join(name)).unwrap();
    let place = |document: &str| {
        let line = |key: &str| {
            let mut lines = document.lines();
            lines
                .find_map(|line| line.strip_prefix(key))
                .unwrap()
                .trim()
                .to_owned()
        };
        let (version, kind) = (line("apiVersion:"), line("kind:"));
        let root = match version.contains('/') {
            true => "apis",
            false => "api",
        };
        let kind = format!("{}s", kind.to_lowercase());
        format!("/{root}/{version}/namespaces/shop/{kind}?fieldValidation=Strict")
    };
    let documents = text.split("\n---\n");
    documents.map(|it| (place(it), it.to_owned())).collect()
}

/// A token of the service account, as a pod gets it.
fn issue_token(server: &ApiServer) {
    let path = "/api/v1/namespaces/shop/serviceaccounts/tidegate/token";
    let request =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let answer = server.put("POST", path, &request.to_string());
    let token = answer["status"]["token"].as_str().unwrap();
    std::fs::write(server.file("token"), token).unwrap();
}

fn endpoint(pod: &str, ip: &str, terminating: bool) -> Value {
    json!({
        "addresses": [ip],
        "conditions": {"ready": !terminating, "serving": true, "terminating": terminating},
        "targetRef": {"kind": "Pod", "name": pod, "namespace": "shop"},
    })
}

fn slice(name: &str, endpoints: &[Value]) -> String {
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4",
        "endpoints": endpoints,
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
    });
    slice.to_string()
}

#[tokio::test]
async fn a_service_is_followed_through_rights_changes_and_restarts() {
    let Some(mut server) = ApiServer::start("kubernetes") else {
        return;
    };
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    server.put("POST", "/api/v1/namespaces", &namespace.to_string());
    let rights = documents("rbac.yaml");
    server.put("POST", &rights[0].0, &rights[0].1);
    issue_token(&server);
    let mut source = source(&server);

    // Without the role: the reason says what is missing.
    let refused = source.ask().await.answer.unwrap_err();
    assert!(
        refused.contains("403") && refused.contains("cannot list resource"),
        "{refused}"
    );
    for (path, document) in &rights[1..] {
        server.put("POST", path, document);
    }
    until(&mut source, "no endpoint yet", |asked| {
        asked
            .answer
            .as_ref()
            .is_err_and(|why| why.contains("no endpoint is ready"))
    })
    .await;

    let both = [
        endpoint("web-a", "10.1.0.1", false),
        endpoint("web-b", "10.1.0.2", false),
    ];
    server.put("POST", SLICES, &slice("web-1", &both));
    until(&mut source, "two pods", |asked| asked.answer == Ok(2)).await;
    assert_eq!(
        names(&source),
        ["web-a 10.1.0.1:8080", "web-b 10.1.0.2:8080"]
    );

    // One begins to terminate while another comes.
    let third = [endpoint("web-c", "10.1.0.3", false)];
    server.put("POST", SLICES, &slice("web-2", &third));
    let ends = [
        endpoint("web-a", "10.1.0.1", true),
        endpoint("web-b", "10.1.0.2", false),
    ];
    let path = format!("{SLICES}/web-1");
    server.put("PATCH", &path, &json!({"endpoints": ends}).to_string());
    let gone = DiscoveryEvent::Removed("web-a".into(), Departure::Ends);
    until(&mut source, "web-a ends", |asked| {
        asked.events.contains(&gone)
    })
    .await;
    assert_eq!(names(&source).last().unwrap(), "web-c 10.1.0.3:8080");

    // The API server is replaced, and so is the token meanwhile.
    server.kill();
    until(&mut source, "it is gone", |asked| asked.answer.is_err()).await;
    assert_eq!(source.nodes().len(), 2);
    server.revive();
    issue_token(&server);
    until(&mut source, "it is back", |asked| asked.answer == Ok(2)).await;
    server.put("DELETE", &path, "");
    until(&mut source, "web-b goes", |asked| asked.answer == Ok(1)).await;
    assert_eq!(names(&source), ["web-c 10.1.0.3:8080"]);

    // An authority that has not signed the server's certificate is not believed.
    std::fs::write(server.ca_file(), include_str!("api_server/other-ca.pem")).unwrap();
    let mut stranger = self::source(&server);
    let why = stranger.ask().await.answer.unwrap_err();
    assert!(why.contains("certificate"), "{why}");
}

#[test]
fn the_files_of_contrib_are_what_a_real_server_takes() {
    let Some(server) = ApiServer::start("kubernetes-contrib") else {
        return;
    };
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    server.put("POST", "/api/v1/namespaces", &namespace.to_string());
    for file in ["rbac.yaml", "deployment.yaml"] {
        for (path, document) in documents(file) {
            server.put("POST", &path, &document);
        }
    }
}
