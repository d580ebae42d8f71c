//! Table tests of the head rules.

mod responses;

use super::*;
use crate::config::Limits;

type Fields<'a> = &'a [(&'a str, &'a str)];

/// A request from its lines, as hyper would hand it over.
fn request(line: &str, fields: Fields<'_>) -> Request<()> {
    let mut words = line.split(' ');
    let method = words.next().unwrap();
    let target = words.next().unwrap();
    let version = match words.next() {
        Some("1.0") => Version::HTTP_10,
        _ => Version::HTTP_11,
    };
    let mut request = Request::builder()
        .method(method)
        .uri(target)
        .version(version)
        .body(())
        .unwrap();
    append_all(request.headers_mut(), fields);
    request
}

fn append_all(headers: &mut HeaderMap, fields: Fields<'_>) {
    for (name, value) in fields {
        let name = HeaderName::try_from(*name).unwrap();
        headers.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
}

fn check_all(request: &Request<()>) -> Result<&str, Reason> {
    check(request, Limits::default().uri_bytes).map(|checked| checked.host)
}

const SHOP: (&str, &str) = ("host", "shop.example");
const CHUNKED: (&str, &str) = ("transfer-encoding", "chunked");
const SUM: (&str, &str) = ("trailer", "x-sum");

const HEADS: &[(&str, Fields<'_>, Result<&str, Reason>)] = &[
    ("GET /", &[SHOP], Ok("shop.example")),
    ("GET / 1.0", &[], Ok("")),
    ("GET / 1.0", &[SHOP], Ok("shop.example")),
    ("GET /", &[], Err(Reason::MissingHost)),
    ("GET /", &[SHOP, SHOP], Err(Reason::DuplicateHost)),
    (
        "GET / 1.0",
        &[SHOP, ("host", "b")],
        Err(Reason::DuplicateHost),
    ),
    ("GET /", &[("host", "shop:8080")], Ok("shop:8080")),
    ("GET /", &[("host", "[::1]:80")], Ok("[::1]:80")),
    ("GET /", &[("host", "")], Err(Reason::BadHost)),
    ("GET /", &[("host", "a/b")], Err(Reason::BadHost)),
    ("GET /", &[("host", "a@b")], Err(Reason::BadHost)),
    ("GET /", &[("host", "a,b")], Err(Reason::BadHost)),
    ("GET /", &[("host", "a b")], Err(Reason::BadHost)),
    ("GET /", &[("host", "a:b")], Err(Reason::BadHost)),
    ("GET /", &[("host", ":80")], Err(Reason::BadHost)),
    ("GET /", &[("host", "[::1")], Err(Reason::BadHost)),
    ("GET /", &[("host", "[::1]x")], Err(Reason::BadHost)),
    ("GET /", &[("host", "[::1]80")], Err(Reason::BadHost)),
    ("GET /", &[("host", "[x]")], Err(Reason::BadHost)),
    ("GET /", &[("host", "a]")], Err(Reason::BadHost)),
    ("GET /", &[("host", "\u{e4}.example")], Err(Reason::BadHost)),
    ("GET http://other.example/a", &[SHOP], Ok("other.example")),
    ("GET http://other.example/a", &[], Err(Reason::MissingHost)),
    ("GET ftp://other.example/a", &[SHOP], Err(Reason::BadTarget)),
    (
        "GET http://me@other.example/",
        &[SHOP],
        Err(Reason::BadTarget),
    ),
    ("GET other.example:80", &[SHOP], Err(Reason::BadTarget)),
    ("OPTIONS *", &[SHOP], Ok("shop.example")),
    ("GET *", &[SHOP], Err(Reason::BadTarget)),
    (
        "CONNECT other.example:80",
        &[SHOP],
        Err(Reason::MethodRefused),
    ),
    ("TRACE /", &[SHOP], Err(Reason::MethodRefused)),
    ("BREW /pot", &[SHOP], Ok("shop.example")),
    (
        "POST /",
        &[SHOP, ("transfer-encoding", "Chunked")],
        Ok("shop.example"),
    ),
    (
        "POST /",
        &[SHOP, ("transfer-encoding", "gzip, chunked")],
        Err(Reason::BadEncoding),
    ),
    (
        "POST /",
        &[
            SHOP,
            ("transfer-encoding", "chunked"),
            ("transfer-encoding", "chunked"),
        ],
        Err(Reason::BadEncoding),
    ),
    (
        "GET /",
        &[SHOP, ("connection", "a b")],
        Err(Reason::BadConnection),
    ),
    (
        "GET /",
        &[SHOP, ("connection", ", close ,")],
        Ok("shop.example"),
    ),
];

#[test]
fn heads_are_refused_by_name() {
    for (line, fields, expected) in HEADS {
        let request = request(line, fields);
        assert_eq!(check_all(&request), *expected, "{line} {fields:?}");
    }
    let long = format!("GET /{}", "a".repeat(Limits::default().uri_bytes));
    assert_eq!(check_all(&request(&long, &[SHOP])), Err(Reason::UriTooLong));
}

/// What a node gets of a request: its target and its fields, sorted.
fn forwarded(
    line: &str,
    fields: Fields<'_>,
    config: &ForwardedConfig,
) -> (String, Vec<(String, String)>) {
    let mut request = request(line, fields);
    let facts = check(&request, Limits::default().uri_bytes).unwrap().facts;
    let has_body = request.headers().contains_key(CONTENT_LENGTH);
    let client = HeaderValue::from_static("192.0.2.7");
    let hop = Hop {
        config,
        client: "192.0.2.7".parse().unwrap(),
        client_value: &client,
        scheme: "http",
        asks_certificate: false,
        certificate: None,
    };
    prepare(&mut request, &facts, has_body, &hop).unwrap();
    ensure_host(&mut request, &facts, || HeaderValue::from_static("n1:80"));
    assert_eq!(request.version(), Version::HTTP_11);
    (request.uri().to_string(), sorted(request.headers()))
}

fn sorted(headers: &HeaderMap) -> Vec<(String, String)> {
    let mut fields: Vec<_> = headers
        .iter()
        .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
        .collect();
    fields.sort();
    fields
}

fn pairs(fields: Fields<'_>) -> Vec<(String, String)> {
    let mut fields: Vec<_> = fields
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    fields.sort();
    fields
}

/// Request line, fields as they came, fields as they go on.
const HOPS: &[(&str, Fields<'_>, Fields<'_>)] = &[
    (
        "GET /",
        &[SHOP, ("connection", "keep-alive"), ("keep-alive", "5")],
        &[SHOP],
    ),
    ("GET /", &[SHOP, ("proxy-connection", "close")], &[SHOP]),
    (
        "GET /",
        &[
            SHOP,
            ("connection", "close, X-Secret, x-other"),
            ("x-secret", "1"),
            ("x-other", "2"),
            ("x-kept", "3"),
        ],
        &[SHOP, ("x-kept", "3")],
    ),
    (
        "POST /",
        &[
            SHOP,
            ("connection", "host, content-length"),
            ("content-length", "3"),
        ],
        &[SHOP, ("content-length", "3")],
    ),
    (
        "GET /",
        &[SHOP, ("te", "gzip;q=1, trailers")],
        &[SHOP, ("connection", "te"), ("te", "trailers")],
    ),
    ("GET /", &[SHOP, ("te", "gzip")], &[SHOP]),
    ("GET /", &[SHOP, ("upgrade", "websocket")], &[SHOP]),
    (
        "GET /",
        &[SHOP, ("connection", "Upgrade"), ("upgrade", "websocket")],
        &[SHOP, ("connection", "upgrade"), ("upgrade", "websocket")],
    ),
    (
        "GET / 1.0",
        &[SHOP, ("connection", "Upgrade"), ("upgrade", "websocket")],
        &[SHOP],
    ),
    (
        "GET /",
        &[
            SHOP,
            ("connection", "Upgrade, HTTP2-Settings"),
            ("upgrade", "h2c"),
            ("http2-settings", "x"),
        ],
        &[SHOP],
    ),
    (
        "GET /",
        &[SHOP, ("connection", "upgrade"), ("upgrade", "TLS/1.3")],
        &[SHOP],
    ),
    (
        "GET /",
        &[
            SHOP,
            ("connection", "upgrade"),
            ("upgrade", "websocket, h2c"),
        ],
        &[SHOP],
    ),
    // Trailers go on, unless `Connection` names fields that may be among them.
    (
        "POST /",
        &[SHOP, CHUNKED, SUM, ("connection", "keep-alive")],
        &[SHOP, CHUNKED, SUM],
    ),
    (
        "POST /",
        &[SHOP, CHUNKED, SUM, ("connection", "close")],
        &[SHOP, CHUNKED, SUM],
    ),
    (
        "POST /",
        &[SHOP, CHUNKED, SUM, ("connection", "TE")],
        &[SHOP, CHUNKED, SUM],
    ),
    (
        "POST /",
        &[SHOP, CHUNKED, SUM, ("connection", "close, x-sum")],
        &[SHOP, CHUNKED],
    ),
    (
        "POST /",
        &[SHOP, SUM, ("content-length", "3")],
        &[SHOP, ("content-length", "3")],
    ),
    ("GET /", &[SHOP, ("expect", "100-continue")], &[SHOP]),
    (
        "POST /",
        &[SHOP, ("expect", "100-continue"), ("content-length", "3")],
        &[SHOP, ("expect", "100-continue"), ("content-length", "3")],
    ),
    (
        "POST / 1.0",
        &[SHOP, ("expect", "100-continue"), ("content-length", "3")],
        &[SHOP, ("content-length", "3")],
    ),
    (
        "OPTIONS /",
        &[SHOP, ("max-forwards", "3")],
        &[SHOP, ("max-forwards", "2")],
    ),
    ("OPTIONS /", &[SHOP, ("max-forwards", "many")], &[SHOP]),
    (
        "GET /",
        &[SHOP, ("max-forwards", "3")],
        &[SHOP, ("max-forwards", "3")],
    ),
    ("GET / 1.0", &[], &[("host", "n1:80")]),
    (
        "GET /",
        &[
            SHOP,
            ("x-forwarded-for", "10.9.9.9"),
            ("forwarded", "for=10.9.9.9"),
        ],
        &[SHOP],
    ),
];

#[test]
fn hop_by_hop_fields_end_here() {
    let silent = ForwardedConfig {
        x_forwarded: false,
        ..ForwardedConfig::default()
    };
    for (line, fields, expected) in HOPS {
        let (_, seen) = forwarded(line, fields, &silent);
        assert_eq!(seen, pairs(expected), "{line} {fields:?}");
    }
}

#[test]
fn absolute_form_becomes_origin_form_and_its_authority_wins() {
    let silent = ForwardedConfig {
        x_forwarded: false,
        ..ForwardedConfig::default()
    };
    let (target, fields) = forwarded(
        "GET http://other.example:81/a?b",
        &[("host", "shop.example")],
        &silent,
    );
    assert_eq!(target, "/a?b");
    assert_eq!(fields, pairs(&[("host", "other.example:81")]));
}

#[test]
fn a_target_has_so_many_bytes_and_no_more() {
    let most = Limits::default().uri_bytes;
    let target = |bytes: usize| format!("GET /{}", "a".repeat(bytes - 1));
    let checked = |bytes| {
        let request = request(&target(bytes), &[SHOP]);
        check(&request, most).map(|checked| checked.host.to_owned())
    };
    assert_eq!(checked(most), Ok("shop.example".to_owned()));
    assert_eq!(checked(most + 1), Err(Reason::UriTooLong));
}

#[test]
fn a_url_without_a_path_gets_the_one_that_it_stands_for() {
    for (line, without_path, completed) in [
        ("OPTIONS http://a", true, Some("*")),
        ("OPTIONS http://a/", false, Some("/")),
        ("GET http://a?b=c", false, Some("/?b=c")),
        ("OPTIONS http://a?b", true, Some("/?b")),
        ("GET http://a/b?c", false, Some("/b?c")),
        ("GET http://a/b?c", true, Some("/b?c")),
    ] {
        let mut request = request(line, &[]);
        complete_path(&mut request, without_path);
        let target = request.uri().path_and_query().map(PathAndQuery::as_str);
        assert_eq!(target, completed, "{line}");
        assert_eq!(request.uri().authority().unwrap(), "a", "{line}");
    }
}

/// A fragment is no part of a request; without a path before it the node would get a line without a target.
#[test]
fn absolute_form_without_a_path_asks_for_the_root() {
    for line in [
        "GET http://other.example",
        "GET http://other.example/",
        "GET http://other.example#a/b",
    ] {
        let request = request(line, &[SHOP]);
        let mut prepared = request.clone();
        let facts = check(&request, Limits::default().uri_bytes).unwrap().facts;
        to_origin_form(&mut prepared).unwrap();
        assert!(facts.absolute);
        assert_eq!(prepared.uri().to_string(), "/", "{line}");
        assert_eq!(prepared.uri().path(), "/", "{line}");
    }
}

#[test]
fn claims_about_the_client_are_replaced_or_appended_to() {
    let claims = &[
        ("host", "shop"),
        ("x-forwarded-for", "10.0.0.1"),
        ("x-forwarded-for", "10.0.0.2"),
        ("x-forwarded-proto", "https"),
        ("forwarded", "for=10.0.0.1"),
    ];
    let both = ForwardedConfig {
        forwarded: true,
        ..ForwardedConfig::default()
    };
    let (_, replaced) = forwarded("GET /", claims, &both);
    assert_eq!(
        replaced,
        pairs(&[
            ("host", "shop"),
            ("x-forwarded-for", "192.0.2.7"),
            ("x-forwarded-host", "shop"),
            ("x-forwarded-proto", "http"),
            ("forwarded", "for=192.0.2.7;host=\"shop\";proto=http"),
        ])
    );
    let trusting = ForwardedConfig {
        trusted: vec!["192.0.2.0/24".parse().unwrap()],
        ..both
    };
    let (_, appended) = forwarded("GET /", claims, &trusting);
    assert_eq!(
        appended,
        pairs(&[
            ("host", "shop"),
            ("x-forwarded-for", "10.0.0.1, 10.0.0.2, 192.0.2.7"),
            ("x-forwarded-host", "shop"),
            ("x-forwarded-proto", "https"),
            (
                "forwarded",
                "for=10.0.0.1, for=192.0.2.7;host=\"shop\";proto=http"
            ),
        ])
    );
}

/// A field that is kept may be another proxy's; what is said here of the client does not rest on it.
#[test]
fn a_kept_claim_of_an_untrusted_client_is_not_appended_to() {
    let config = ForwardedConfig {
        keep: vec![X_FORWARDED_FOR],
        ..ForwardedConfig::default()
    };
    let fields = [("host", "shop"), ("x-forwarded-for", "a lie")];
    let (_, got) = forwarded("GET /", &fields, &config);
    let ours = ("x-forwarded-for".to_owned(), "192.0.2.7".to_owned());
    assert!(got.contains(&ours), "{got:?}");
}

/// Names that claim a client's identity or how it came.
const SPELLED_CLAIMS: &[&str] = &[
    "Forwarded",
    "X-Forwarded-For",
    "X-Forwarded-Host",
    "X-Forwarded-Port",
    "X-Forwarded-Prefix",
    "X-Forwarded-Proto",
    "X-Forwarded-Scheme",
    "X-Forwarded-Server",
    "X-Forwarded-Ssl",
    "X-Forwarded-Uri",
    "X-Forwarded-User",
    "X-Forwarded-Tls-Client-Cert-Info",
    "X-Forwarded",
    "X-Original-Forwarded-For",
    "X-Real-IP",
    "Client-IP",
    "True-Client-IP",
    "X-Client-IP",
    "X-Cluster-Client-IP",
    "X-Envoy-External-Address",
    "X-AppEngine-User-IP",
    "CF-Connecting-IP",
    "CF-Connecting-IPv6",
    "CF-Pseudo-IPv4",
    "Fastly-Client-IP",
    "Forwarded-For",
    "WL-Proxy-Client-IP",
    "WL-Proxy-SSL",
    "Proxy-Client-IP",
    "X-Originating-IP",
    "X-Remote-IP",
    "X-Remote-Addr",
    "Remote-Addr",
    "X-Source-IP",
    "X-Azure-ClientIP",
    "X-Azure-SocketIP",
    "X-ProxyUser-IP",
    "X-ForwardedFor",
    "X-Host",
    "X-Url-Scheme",
    "Front-End-Https",
    "Ali-CDN-Real-IP",
    "CDN-Src-IP",
    "CloudFront-Viewer-Address",
    "DO-Connecting-IP",
    "Fly-Client-IP",
    "Incap-Client-IP",
    "X-NF-Client-Connection-IP",
    "X-Sucuri-ClientIP",
    "X-Vercel-Forwarded-For",
    "X-Vercel-Proxied-For",
];

/// Names that say what is wanted of the server, or are none of these.
const OTHERS: &[&str] = &[
    "x-forwarded-",
    "x-original-url",
    "x-rewrite-url",
    "x-original-host",
    "x-http-method-override",
    "proxy-authorization",
    "content-encoding",
    "x-real-ips",
    "x-hosts",
    "x-remote-user",
    "x-source",
    "x-requested-with",
    // Gateways take these for none of the others.
    "x_forward_fox",
    "x_requested_with",
    "content_security_policy",
];

#[test]
fn no_claim_of_an_untrusted_client_goes_on_however_it_is_spelled() {
    let trusting = ForwardedConfig {
        trusted: vec!["192.0.2.7".parse().unwrap()],
        ..ForwardedConfig::default()
    };
    let ours = pairs(&[
        ("host", "shop"),
        ("x-forwarded-for", "192.0.2.7"),
        ("x-forwarded-host", "shop"),
        ("x-forwarded-proto", "http"),
    ]);
    for name in SPELLED_CLAIMS {
        let name = name.to_ascii_lowercase();
        for spelled in [
            name.clone(),
            name.replace('-', "_"),
            name.replacen('-', "_", 1),
            name.replace('-', "."),
            name.replace('-', "~"),
        ] {
            let fields = [("host", "shop"), (spelled.as_str(), "a lie")];
            let (_, got) = forwarded("GET /", &fields, &ForwardedConfig::default());
            assert_eq!(got, ours, "{spelled}");
        }
        let (_, got) = forwarded("GET /", &[("host", "shop"), (&name, "believed")], &trusting);
        let kept = |(at, value): &(String, String)| *at == name && value.starts_with("believed");
        assert!(got.iter().any(kept), "{name}: {got:?}");
        assert!(ends_unless_kept(&name.parse().unwrap()), "{name}");
    }
    for name in OTHERS {
        let (_, got) = forwarded(
            "GET /",
            &[("host", "shop"), (name, "kept")],
            &ForwardedConfig::default(),
        );
        assert!(
            got.contains(&((*name).to_owned(), "kept".to_owned())),
            "{got:?}"
        );
    }
}

#[test]
fn what_a_gateway_would_take_for_its_proxy_ends_here_whoever_says_it() {
    let fields = [
        ("host", "shop"),
        ("proxy", "http://192.0.2.1/"),
        ("cf-connecting-ip", "a lie"),
    ];
    let has = |config: &ForwardedConfig, name: &str| {
        let (_, got) = forwarded("GET /", &fields, config);
        got.iter().any(|(at, _)| at == name)
    };
    let mut config = ForwardedConfig {
        trusted: vec!["192.0.2.7".parse().unwrap()],
        ..ForwardedConfig::default()
    };
    assert!(!has(&config, "proxy"));
    for name in ["proxy", "cf-connecting-ip"] {
        config.trusted.clear();
        config.keep = vec![name.parse().unwrap()];
        assert!(has(&config, name) && ends_unless_kept(&config.keep[0]));
        config.keep.clear();
        assert!(!has(&config, name));
    }
    assert!(!ends_unless_kept(&"x-original-url".parse().unwrap()));
}

#[test]
fn underscores_are_kept_where_the_nodes_mind_none() {
    let fields = [
        ("host", "shop"),
        ("x_forwarded_for", "kept"),
        ("x-real-ip", "a lie"),
    ];
    let kept = |underscores| {
        let config = ForwardedConfig {
            underscores,
            x_forwarded: false,
            ..ForwardedConfig::default()
        };
        forwarded("GET /", &fields, &config).1
    };
    assert_eq!(kept(false), pairs(&fields[..1]));
    assert_eq!(kept(true), pairs(&fields[..2]));
}

#[test]
fn connection_names_so_many_fields_and_no_more() {
    let named = |count: usize| {
        let names: Vec<_> = (0..count).map(|number| format!("x-{number}")).collect();
        let mut headers = HeaderMap::new();
        // In one field or in several, what it names is counted in all.
        for half in names.chunks(count.div_ceil(2)) {
            headers.append(CONNECTION, half.join(", ").parse().unwrap());
        }
        nominated(&headers).map(|names| names.len())
    };
    assert_eq!(named(NOMINATED_MAX), Ok(NOMINATED_MAX));
    assert_eq!(named(NOMINATED_MAX + 1), Err(Reason::BadConnection));
}

#[test]
fn via_is_appended_with_the_version_that_was_received() {
    let config = ForwardedConfig {
        x_forwarded: false,
        via: Some("tidegate".into()),
        ..ForwardedConfig::default()
    };
    let (_, fields) = forwarded("GET / 1.0", &[("host", "a"), ("via", "1.1 b")], &config);
    assert_eq!(
        fields,
        pairs(&[("host", "a"), ("via", "1.1 b, 1.0 tidegate")])
    );
}

#[test]
fn a_node_switches_to_what_was_asked_for_and_nothing_else() {
    let cases: &[(&[&str], &[&str], bool)] = &[
        (&["websocket"], &["websocket"], true),
        (&["websocket"], &["WebSocket"], true),
        (&["websocket"], &["h2c"], false),
        (&["websocket"], &[], false),
        (&["websocket"], &[""], false),
        (&[], &["websocket"], false),
        (&["websocket"], &["websocket, h2c"], false),
        (&["websocket"], &["websocket", "h2c"], false),
        (&["a, b"], &["b"], true),
        (&["a", "b"], &["a, b"], true),
        (&["a/1"], &["a"], true),
        (&["a"], &["a/2"], true),
        (&["a/1"], &["A/1"], true),
        (&["a/1"], &["a/2"], false),
        (&["a/1, a/2"], &["a/2"], true),
        (&["a/1"], &["b/1"], false),
    ];
    for (asked, answered, switches) in cases {
        let asked: Vec<_> = asked.iter().map(|it| it.parse().unwrap()).collect();
        let mut response = HeaderMap::new();
        for protocol in *answered {
            response.append(UPGRADE, protocol.parse().unwrap());
        }
        let found = switches_to(&response, &asked);
        assert_eq!(found, *switches, "{asked:?} {answered:?}");
    }
}

#[test]
fn an_options_request_goes_as_far_as_it_may() {
    for (hops, ends) in [("0", true), ("1", false), ("x", false)] {
        let request = request("OPTIONS /", &[("host", "a"), ("max-forwards", hops)]);
        let facts = check(&request, Limits::default().uri_bytes).unwrap().facts;
        assert_eq!(ends_here(&request, &facts), ends, "{hops}");
    }
}

#[test]
fn trailers_of_requests_say_nothing_that_belongs_into_a_head() {
    let fields = [
        ("x-sum", "1"),
        ("x_sum", "2"),
        ("content-length", "3"),
        ("host", "4"),
        ("x-forwarded-for", "5"),
        ("x_forwarded_for", "6"),
        ("x-real-ip", "7"),
    ];
    let left = |config: &ForwardedConfig| {
        let mut trailers = HeaderMap::new();
        append_all(&mut trailers, &fields);
        strip_trailers(&mut trailers, config);
        sorted(&trailers)
    };
    let mut config = ForwardedConfig::default();
    assert_eq!(left(&config), pairs(&fields[..2]));
    config.keep = vec!["x-real-ip".parse().unwrap()];
    assert_eq!(left(&config), pairs(&[fields[0], fields[1], fields[6]]));
    config.underscores = true;
    let kept = [fields[0], fields[1], fields[5], fields[6]];
    assert_eq!(left(&config), pairs(&kept));
}

#[test]
fn methods_that_may_be_sent_again_are_those_of_rfc_9110() {
    for (method, again) in [
        (Method::GET, true),
        (Method::HEAD, true),
        (Method::OPTIONS, true),
        (Method::PUT, true),
        (Method::DELETE, true),
        (Method::POST, false),
        (Method::PATCH, false),
    ] {
        assert_eq!(is_idempotent(&method), again, "{method}");
    }
}

#[test]
fn every_noted_name_is_noticed_and_few_others_are() {
    assert!(NOTED.iter().all(|name| may_be_noted(name)));
    for name in [
        "date",
        "server",
        "content-type",
        "user-agent",
        "cookie",
        "x",
        "",
    ] {
        assert!(!may_be_noted(name), "{name}");
    }
    assert!(!may_be_noted(&"c".repeat(300)));
}
