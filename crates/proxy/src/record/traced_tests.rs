//! A request's trace by itself: times, nodes that fail, second nodes; the limits on how many are kept.

use http::HeaderValue;

use super::*;

fn at(micros: u64) -> Timestamp {
    Timestamp::from_nanos(micros * 1000)
}

fn id(number: u64) -> SpanId {
    SpanId::new(number).unwrap()
}

fn begun(uri: &str, query: bool) -> Box<Trace> {
    let parent = TraceParent {
        trace: TraceId::new(7).unwrap(),
        caller: Some(id(1)),
        flags: 1,
    };
    let mut request = Request::get(uri).body(()).unwrap();
    let state = HeaderValue::from_static("a=1");
    request.headers_mut().append(TRACESTATE, state);
    let state = HeaderValue::from_static("b=2");
    request.headers_mut().append(TRACESTATE, state);
    let head = TracedHead {
        now: at(10),
        unix_nanos: 1_000_010_000,
        client: IpAddr::from([127, 0, 0, 1]),
        is_tls: false,
        query,
    };
    Trace::begin(&parent, id(2), &request, &head)
}

fn node(name: &str) -> AskedNode<'_> {
    AskedNode {
        name,
        address: SocketAddr::from(([10, 0, 0, 1], 80)),
        tls: false,
        http2: false,
    }
}

fn ended(trace: Box<Trace>, micros: u64, reason: Option<Reason>) -> TracedRequest {
    trace.end(&TracedEnd {
        now: at(micros),
        queued_until: at(20),
        status: 200,
        bytes: 5,
        bytes_in: 0,
        site: Some("shop"),
        throttle: None,
        retry_denied: false,
        hedged: None,
        reason,
    })
}

#[test]
fn a_request_that_is_tried_again_has_a_span_of_each_node() {
    let mut trace = begun("/cart?token=x", false);
    trace.begin_try(id(3), node("a"), at(20), at(20));
    trace.on_failure(Reason::Reset, at(30));
    trace.begin_try(id(4), node("b"), at(40), at(40));
    let mut sent = Request::get("/cart?token=x").body(()).unwrap();
    trace.introduce(&mut sent);
    let parent = &sent.headers()["traceparent"];
    assert_eq!(
        parent,
        "00-00000000000000000000000000000007-0000000000000004-01"
    );
    trace.on_head(200, at(50));
    let request = ended(trace, 60, None);
    assert_eq!(
        (request.begun, request.ended),
        (1_000_010_000, 1_000_060_000)
    );
    assert_eq!(request.queued_until, 1_000_020_000);
    assert_eq!((request.parent, request.span), (Some(id(1)), id(2)));
    assert_eq!(request.state.as_deref(), Some("a=1,b=2"));
    assert_eq!((request.path.as_str(), request.query), ("/cart", None));
    let [first, second] = &request.tries[..] else {
        panic!("two nodes were asked");
    };
    assert_eq!((first.error, first.status), (Some(Reason::Reset), None));
    assert_eq!((first.begun, first.ended), (1_000_020_000, 1_000_030_000));
    assert_eq!((second.error, second.status), (None, Some(200)));
    let times = (second.begun, second.head, second.ended);
    assert_eq!(times, (1_000_040_000, Some(1_000_050_000), 1_000_060_000));
    assert_eq!(
        (second.target.as_str(), second.node.as_str()),
        ("/cart", "b")
    );
    assert!(first.target.is_empty(), "nothing was sent there");
}

#[test]
fn a_second_node_wins_loses_or_fails() {
    let asked = || {
        let mut trace = begun("/", false);
        trace.begin_try(id(3), node("a"), at(20), at(20));
        trace.begin_second(id(4), node("b"), at(30));
        trace
    };
    let parts = |request: &TracedRequest| {
        let part = |it: &TracedTry| {
            (
                it.hedge,
                it.lost,
                it.status,
                it.error,
                it.ended / 1000 % 1000,
            )
        };
        [part(&request.tries[0]), part(&request.tries[1])]
    };
    let mut won = asked();
    won.second_wins(at(40));
    won.begin_try(id(9), node("b"), at(30), at(40));
    won.on_head(200, at(40));
    let won = parts(&ended(won, 60, None));
    assert_eq!(
        won,
        [
            (false, true, None, None, 40),
            (true, false, Some(200), None, 60)
        ]
    );
    let mut lost = asked();
    lost.on_head(200, at(50));
    let lost = parts(&ended(lost, 60, None));
    assert_eq!(
        lost,
        [
            (false, false, Some(200), None, 60),
            (true, true, None, None, 50)
        ]
    );
    let mut failed = asked();
    failed.second_ends(Err(Reason::Reset), at(35));
    failed.on_head(200, at(50));
    let failed = parts(&ended(failed, 60, None));
    assert_eq!(failed[1], (true, false, None, Some(Reason::Reset), 35));
    let mut refused = asked();
    refused.second_ends(Ok(503), at(35));
    let refused = parts(&ended(refused, 60, Some(Reason::ClientGone)));
    assert_eq!(refused[1], (true, false, Some(503), None, 35));
    assert_eq!(refused[0], (false, false, None, None, 60));
    let cut = parts(&ended(asked(), 60, Some(Reason::ClientGone)));
    assert_eq!(cut[1], (true, true, None, None, 60));
    // The first one breaks, and the second one takes over.
    let mut over = asked();
    over.on_failure(Reason::Reset, at(35));
    over.second_wins(at(36));
    over.begin_try(id(9), node("b"), at(30), at(36));
    over.on_head(200, at(50));
    let over = parts(&ended(over, 60, None));
    assert_eq!(over[0], (false, false, None, Some(Reason::Reset), 35));
    assert_eq!(over[1], (true, false, Some(200), None, 60));
}

#[test]
fn what_clients_send_is_cut_and_queries_are_by_choice() {
    let request = ended(begun("/?token=x", true), 60, None);
    assert_eq!(request.query.as_deref(), Some("token=x"));
    let long = format!("/{}", "%C3".repeat(2000));
    let request = ended(begun(&long, false), 60, None);
    assert_eq!(request.path.len(), PATH_MAX);
    assert_eq!(cut("aä", 2), "a");
    let mut headers = HeaderMap::new();
    assert_eq!(state(&headers), None);
    let long = HeaderValue::try_from("x".repeat(STATE_MAX + 1)).unwrap();
    headers.insert(TRACESTATE, long);
    assert_eq!(state(&headers), None);
}

#[test]
fn a_second_takes_no_more_than_it_may() {
    let seconds = TracedSecond::default();
    let taken = |micros: u64, most: u32| {
        let takes = (0..5).filter(|_| seconds.takes(at(micros), most));
        takes.count()
    };
    assert_eq!(taken(0, 3), 3);
    assert_eq!(taken(999_999, 3), 0);
    assert_eq!(taken(1_000_000, 3), 3);
    assert_eq!(taken(1_000_000, 4), 1);
    assert_eq!(taken(9_000_000, 0), 0);
    assert_eq!(taken(9_000_000, 9), 5);
}

#[test]
fn what_finds_no_room_is_counted() {
    let stats = Arc::new(Stats::new(1, 0, 0));
    let (sender, mut receiver) = mpsc::channel(1);
    let mut sink = TraceSink::new(Some(sender), Arc::clone(&stats), 0);
    for _ in 0..2 * BATCH + 1 {
        sink.push(ended(begun("/", false), 60, None));
    }
    assert!(sink.takes(at(0), 1) && !sink.takes(at(0), 1));
    drop(sink);
    let snapshot = stats.snapshot();
    assert_eq!(snapshot.traces_over_queue, BATCH as u64 + 1);
    assert_eq!(snapshot.traces_over_rate, 1);
    assert_eq!(receiver.try_recv().unwrap().len(), BATCH);
    assert!(receiver.try_recv().is_err());
}
