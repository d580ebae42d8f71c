//! The page in a browser, with reports that are made by a formula and a front-end that remembers
//! what it was sent.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tidegate_culprits::page::{CONNECT, PAGE, POLICY, REPORT, for_script, offline_page, policy};
use tokio::net::TcpListener;

use super::answer;
use super::browser::Browser;
use super::fixture::{self, SCENE, Scene};
use crate::admin::api;
use crate::models::OVERRIDE_HEADER;
use crate::testing;

/// What the front-end of the tests answers, and what it was sent.
#[derive(Debug, Default)]
struct StubFrontEnd {
    /// The report to come; without one there is none yet.
    report: Option<Value>,
    /// Why overrides are refused.
    refusal: Option<&'static str>,
    overrides: Vec<(String, Value)>,
    polls: u32,
}

impl StubFrontEnd {
    fn answer(
        &mut self,
        method: &Method,
        path: &str,
        is_override: bool,
        body: &[u8],
    ) -> Response<Full<Bytes>> {
        let json = |status, body: &Value| api::body(status, "application/json", body.to_string());
        match (method, path) {
            (&Method::GET, "/culprits") => answer(),
            (&Method::GET, "/api/culprits") => {
                self.polls += 1;
                match &self.report {
                    Some(report) => json(StatusCode::OK, report),
                    None => json(StatusCode::NOT_FOUND, &json!({ "error": "nothing here" })),
                }
            }
            (&Method::POST, _) if is_override => match self.refusal {
                Some(error) => json(StatusCode::BAD_REQUEST, &json!({ "error": error })),
                None => {
                    let order = serde_json::from_slice(body).unwrap();
                    self.overrides.push((path.to_owned(), order));
                    json(StatusCode::OK, &json!({ "kept": false, "note": null }))
                }
            },
            _ => json(StatusCode::FORBIDDEN, &json!({ "error": "not like this" })),
        }
    }
}

/// A front-end of the tests, on a thread of its own for as long as the test runs.
fn serve(stage: StubFrontEnd) -> (Arc<Mutex<StubFrontEnd>>, SocketAddr) {
    let stage = Arc::new(Mutex::new(stage));
    let (told, address) = std::sync::mpsc::channel();
    let shared = Arc::clone(&stage);
    std::thread::spawn(move || {
        testing::runtime().block_on(async move {
            let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
            told.send(listener.local_addr().unwrap()).unwrap();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let stage = Arc::clone(&shared);
                tokio::spawn(async move {
                    let service = service_fn(|request| respond(request, &stage));
                    let connection = hyper::server::conn::http1::Builder::new();
                    // A browser breaks connections off as it likes.
                    connection
                        .serve_connection(TokioIo::new(stream), service)
                        .await
                        .ok();
                });
            }
        });
    });
    (stage, address.recv().unwrap())
}

async fn respond(
    request: Request<Incoming>,
    stage: &Mutex<StubFrontEnd>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let is_override = head.headers.contains_key(OVERRIDE_HEADER);
    let mut stage = stage.lock().unwrap();
    Ok(stage.answer(&head.method, head.uri.path(), is_override, &body))
}

/// A browser that shows the report; nothing where there is no browser.
fn open(scene: Scene) -> Option<(Browser, Arc<Mutex<StubFrontEnd>>)> {
    let mut browser = Browser::start()?;
    let report = Some(fixture::report(scene));
    let (stage, address) = serve(StubFrontEnd {
        report,
        ..StubFrontEnd::default()
    });
    browser.go(&format!("http://{address}/culprits"));
    browser.wait_for("document.querySelectorAll('#classes tbody tr').length > 0");
    Some((browser, stage))
}

#[test]
fn the_page_needs_nothing_from_elsewhere() {
    let code = PAGE.split_once("-->").unwrap().1;
    // The name of a namespace is all that may look like an address.
    let code = code.replace("http://www.w3.org/", "");
    for elsewhere in [
        "http:",
        "https:",
        "//cdn",
        "src=",
        "@import",
        "innerHTML",
        "eval(",
    ] {
        assert!(!code.contains(elsewhere), "{elsewhere}");
    }
    for part in [POLICY.0, CONNECT.0, &format!("{}{}", REPORT.0, REPORT.1)] {
        assert_eq!(PAGE.matches(part).count(), 1, "{part}");
    }
    let policy = policy().unwrap();
    assert!(policy.starts_with("default-src 'none'; script-src 'sha256-"));
    assert!(!policy.contains("unsafe"));
    let answer = answer();
    let header = answer.headers()["content-security-policy"]
        .to_str()
        .unwrap();
    assert_eq!(header, format!("{policy}; frame-ancestors 'none'"));
    assert!(
        PAGE.contains("Permission is hereby granted"),
        "licences stay in the bundle"
    );
}

#[test]
fn a_report_cannot_leave_its_place_in_the_page() {
    let hostile = json!({ "a": "</script><!--<script>&\u{2028}\u{2029}é" });
    let safe = for_script(&hostile.to_string());
    assert_eq!(
        safe,
        r#"{"a":"\u003c/script\u003e\u003c!--\u003cscript\u003e\u0026\u2028\u2029é"}"#
    );
    let read: Value = serde_json::from_str(&safe).unwrap();
    assert_eq!(read, hostile);
    let page = offline_page(&hostile.to_string());
    assert!(page.contains(&safe));
    assert!(page.contains(CONNECT.1) && !page.contains(CONNECT.0));
    assert_eq!(
        page.matches("</script>").count(),
        PAGE.matches("</script>").count()
    );
    // What looks like the place itself is a text like any other.
    let page = offline_page(&json!([CONNECT.0, REPORT.0]).to_string());
    assert_eq!(page.matches(CONNECT.1).count(), 1);
    assert_eq!(page.matches(REPORT.0).count(), 1);
}

#[test]
fn the_page_shows_who_loads_what() {
    let Some((mut browser, _stage)) = open(SCENE) else {
        return;
    };
    let headline = browser.text("#headline");
    assert!(headline.starts_with("GET /search?q takes "), "{headline}");
    assert!(headline.contains(" of db’s 4 CPUs, "), "{headline}");
    assert_eq!(browser.text("#badge"), "strong");
    let first = "#classes tbody tr:first-child";
    assert_eq!(browser.text(&format!("{first} .class")), "GET /search?q");
    assert_eq!(browser.text(&format!("{first} .verdict")), "strong");
    assert_eq!(browser.text(&format!("{first} .cost")), "62 ms");
    assert_eq!(
        browser.value("document.querySelectorAll('#classes tr[data-class]').length"),
        18
    );
    // Those that cannot be distinguished stand together.
    let together = "[...document.querySelectorAll('tr.together')].map((row) => row.dataset.class).sort().join()";
    assert_eq!(browser.value(together), "GET /cart/summary,POST /cart");
    assert_eq!(browser.text("#detail-name"), "GET /search?q");
    // Statistics and their pictures are folded away at first.
    let pictures = "document.querySelectorAll('.uplot canvas').length";
    assert_eq!(browser.value(pictures), 2);
    browser.click("#why");
    assert_eq!(browser.value(pictures), 5);
    let coloured = "(() => {
        const { width, height } = document.querySelector('#use-chart canvas');
        const pen = document.querySelector('#use-chart canvas').getContext('2d');
        const points = pen.getImageData(0, 0, width, height).data;
        const colours = new Set();
        for (let at = 0; at < points.length; at += 4) colours.add(points[at] << 16 | points[at + 1] << 8 | points[at + 2]);
        return colours.size;
    })()";
    assert!(browser.value(coloured).as_u64().unwrap() > 10);
    browser.click("#resources label:nth-of-type(2)");
    assert!(
        browser
            .text("#headline")
            .starts_with("GET /export/*.csv probably takes ")
    );
    browser.assert_content();
}

#[test]
fn keys_go_through_the_table_and_the_span() {
    let Some((mut browser, _stage)) = open(SCENE) else {
        return;
    };
    browser.value("document.querySelector('#classes tr[aria-selected=true]').focus()");
    browser.press("ArrowDown");
    assert_eq!(browser.text("#detail-name"), "GET /report/{n}");
    let focused = "document.activeElement.dataset.class";
    assert_eq!(browser.value(focused), "GET /report/{n}");
    browser.press("End");
    browser.press("ArrowDown");
    let last = browser.text("#classes tbody tr:last-child .class");
    assert_eq!(browser.text("#detail-name"), last);
    browser.value("document.querySelector('#classes th:first-child button').focus()");
    browser.press("Enter");
    assert_eq!(
        browser.text("#classes tbody tr:first-child .class"),
        "GET /"
    );
    browser.value("document.querySelector('#filter').focus()");
    browser.write("bid");
    let shown = "[...document.querySelectorAll('#classes tr[data-class]')].map((row) => row.dataset.class).join()";
    assert_eq!(browser.value(shown), "GET /user/{n}/bids,POST /bid/{n}");
    assert_eq!(browser.text("#table-note"), "2 of 18 classes");
    // The ends of the span.
    browser.value("document.querySelector('.handle.from').focus()");
    browser.press("ArrowRight");
    browser.press("ArrowRight");
    assert!(browser.text("#span-note").contains("(59 s)"));
    assert_eq!(
        browser.value("document.activeElement.className"),
        "handle from"
    );
    browser.press("Escape");
    assert!(browser.text("#span-note").starts_with("Drag"));
    browser.assert_content();
}

#[test]
fn a_dragged_span_tells_what_is_different_in_it() {
    let Some((mut browser, _stage)) = open(SCENE) else {
        return;
    };
    browser.drag("#heat-chart .u-over", 30.0 / 60.0, 42.0 / 60.0);
    let note = browser.text("#span-note");
    assert!(note.contains("(12 s)"), "{note}");
    assert_eq!(
        browser.text("#differences li:first-child .name"),
        "GET /search?q"
    );
    browser.click("#difference-by label:nth-of-type(3)");
    assert_eq!(
        browser.text("#differences li:first-child .name"),
        "GET /search?q"
    );
    let times = browser.text("#differences li:first-child strong");
    assert!(times.starts_with("× 2."), "{times}");
    browser.click("#span-clear");
    assert_eq!(
        browser.value("document.querySelector('#difference').hidden"),
        true
    );
    browser.assert_content();
}

#[test]
fn orders_are_shown_before_they_are_sent_and_their_effect_after() {
    let Some((mut browser, stage)) = open(SCENE) else {
        return;
    };
    let shown = "document.querySelector('#override-answer').textContent";
    let order = |browser: &mut Browser, button: &str, end: &str| {
        browser.click(button);
        browser.click(end);
    };
    browser.value("document.querySelector('#override-concurrency').value = '2'");
    browser.click("#throttle-form .primary");
    let sent = browser.text("#confirm-sent");
    assert!(
        sent.starts_with("POST /api/throttle") && sent.contains("\"GET /search?q\""),
        "{sent}"
    );
    browser.press("Escape");
    assert!(stage.lock().unwrap().overrides.is_empty());
    order(&mut browser, "#throttle-form .primary", "#send");
    browser.wait_for(&format!("{shown}.startsWith('Done')"));
    let wanted =
        json!({ "class": "GET /search?q", "limits": { "concurrency": 2 }, "for_seconds": 600 });
    assert_eq!(
        stage.lock().unwrap().overrides,
        [("/api/throttle".to_owned(), wanted)]
    );
    // Ten seconds later.
    let later = Scene {
        to: SCENE.to + 15.0,
        throttled_since: Some(SCENE.to + 1.0),
    };
    stage.lock().unwrap().report = Some(fixture::report(later));
    browser.wait_for("document.querySelector('#classes .throttled') !== null");
    let used = "#effects tbody tr:first-child td";
    let share = |text: String| text.trim_end_matches(" %").parse::<f64>().unwrap();
    let before = share(browser.text(&format!("{used}:nth-of-type(1)")));
    let after = share(browser.text(&format!("{used}:nth-of-type(2)")));
    assert!(after < 0.8 * before, "{before} to {after}");
    stage.lock().unwrap().refusal = Some("the front-end is stopping");
    order(&mut browser, "#release", "#send");
    browser.wait_for(&format!(
        "{shown} === 'Not done: the front-end is stopping'"
    ));
    browser.assert_content();
}

/// Names as attackers would choose them.
const HOSTILE: [&str; 6] = [
    "GET /</script><script>window.harm=1</script>",
    "GET /<img src=x onerror=window.harm=1>",
    "GET /\"><svg onload=window.harm=1>",
    "GET /'-window.harm-'\u{2028}\u{2029}",
    "GET /\u{202e}gpj.exe\u{0}",
    "__proto__",
];

fn hostile() -> Value {
    let mut report = fixture::report(SCENE);
    for (index, name) in HOSTILE.into_iter().enumerate() {
        let old = report["classes"][index]["name"].clone();
        report["classes"][index]["name"] = name.into();
        report["heatmap"]["cells"][index]["class"] = name.into();
        if index < 5 {
            report["resources"][0]["parts"][index]["class"] = name.into();
        }
        assert_ne!(old, name);
    }
    report["notes"][0] = HOSTILE[0].into();
    report["resources"][1]["name"] = HOSTILE[1].into();
    report["resources"][0]["node"] = HOSTILE[2].into();
    report
}

/// Nothing but what the page itself makes.
fn assert_unharmed(browser: &mut Browser) {
    for _ in 0..HOSTILE.len() {
        browser.press("ArrowDown");
    }
    assert_eq!(browser.value("typeof window.harm"), "undefined");
    assert_eq!(
        browser.value("document.querySelectorAll('img, svg, iframe').length"),
        0
    );
    assert_eq!(browser.value("document.scripts.length"), 2);
    for name in &HOSTILE[..3] {
        let shown = browser.value(&format!(
            "document.body.innerText.includes({})",
            json!(name)
        ));
        assert_eq!(shown, true, "{name}");
    }
    assert_eq!(
        browser.value("document.body.innerText.includes('\u{202e}')"),
        false
    );
    browser.assert_content();
}

#[test]
fn hostile_names_are_texts_live_and_offline() {
    let Some(mut browser) = Browser::start() else {
        return;
    };
    let (_stage, address) = serve(StubFrontEnd {
        report: Some(hostile()),
        ..StubFrontEnd::default()
    });
    let rows = "document.querySelectorAll('#classes tr[data-class]').length === 18";
    let select = "document.querySelector('#classes tr[aria-selected=true]').focus()";
    browser.go(&format!("http://{address}/culprits"));
    browser.wait_for(rows);
    browser.value(select);
    assert_unharmed(&mut browser);
    let name = format!("tidegate-culprits-{}.html", std::process::id());
    let file = std::env::temp_dir().join(name);
    std::fs::write(&file, offline_page(&hostile().to_string())).unwrap();
    browser.go(&format!("file://{}", file.display()));
    browser.wait_for(rows);
    browser.value(select);
    assert_unharmed(&mut browser);
    assert_eq!(
        browser.value("document.querySelector('#overrides').hidden"),
        true
    );
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn without_a_report_the_page_waits_politely_and_nobody_asks_for_one_that_is_hidden() {
    let Some(mut browser) = Browser::start() else {
        return;
    };
    let (stage, address) = serve(StubFrontEnd::default());
    browser.go(&format!("http://{address}/culprits"));
    browser.wait_for("document.querySelector('#nothing').innerText.startsWith('No data yet')");
    assert_eq!(
        browser.value("document.querySelector('#notice').hidden"),
        true
    );
    let visibility = |state: &str| {
        format!(
            "Object.defineProperty(document, 'visibilityState', {{ value: '{state}', configurable: true }});
             document.dispatchEvent(new Event('visibilitychange'))"
        )
    };
    browser.value(&visibility("hidden"));
    // What was asked before is answered.
    browser.wait_for("performance.getEntriesByType('resource').every((it) => it.responseEnd > 0)");
    let polls = stage.lock().unwrap().polls;
    let policy = json!({ "policy": "advance", "budget": 30_000 });
    browser.call("Emulation.setVirtualTimePolicy", &policy);
    browser.wait_for_event("Emulation.virtualTimeBudgetExpired");
    assert_eq!(stage.lock().unwrap().polls, polls);
    stage.lock().unwrap().report = Some(fixture::report(SCENE));
    browser.value(&visibility("visible"));
    let policy = json!({ "policy": "pauseIfNetworkFetchesPending", "budget": 30_000 });
    browser.call("Emulation.setVirtualTimePolicy", &policy);
    browser.wait_for("document.querySelectorAll('#classes tr[data-class]').length === 18");
    assert_eq!(
        browser.value("document.querySelector('#nothing').hidden"),
        true
    );
}

#[test]
fn a_file_of_its_own_shows_the_culprit_that_was_found() {
    let Some(mut browser) = Browser::start() else {
        return;
    };
    // As the page is written by `tidegate culprits --html`.
    let report = serde_json::to_string(&tidegate_culprits::picture::sample::sample()).unwrap();
    let name = format!("tidegate-culprits-found-{}.html", std::process::id());
    let file = std::env::temp_dir().join(name);
    std::fs::write(&file, offline_page(&report)).unwrap();
    browser.go(&format!("file://{}", file.display()));
    browser.wait_for("document.querySelectorAll('#classes tr[data-class]').length === 2");
    let headline = browser.text("#headline");
    assert!(
        headline.starts_with("GET /search takes 0.5 of db1’s 2 CPUs, "),
        "{headline}"
    );
    let first = "#classes tbody tr:first-child";
    assert_eq!(browser.text(&format!("{first} .class")), "GET /search");
    assert_eq!(browser.text(&format!("{first} .cost")), "500 ms");
    assert!(browser.text("#about").starts_with("offline report"));
    browser.assert_content();
    std::fs::remove_file(&file).unwrap();
}
