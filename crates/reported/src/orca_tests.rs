//! Services that stream reports, or something else.

use h2::server::{SendResponse, handshake};
use tidegate_core::load::ReportedMetric;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

const PERIOD: Duration = Duration::from_millis(100);

/// A service that does this about each question, as long as the test runs.
async fn service(answer: fn(SendResponse<Bytes>)) -> OrcaStream {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let mut connection = handshake(stream).await.unwrap();
            while let Some(Ok((request, respond))) = connection.accept().await {
                assert_eq!(request.uri().path(), PATH);
                answer(respond);
            }
        }
    });
    stream_of(address)
}

fn stream_of(address: SocketAddr) -> OrcaStream {
    OrcaStream::new(OrcaConfig {
        address,
        period: PERIOD,
    })
}

/// Streams these bytes, and nothing more for as long as the client stays.
fn stream(mut respond: SendResponse<Bytes>, pieces: Vec<Vec<u8>>) {
    let mut body = respond.send_response(Response::new(()), false).unwrap();
    for piece in pieces {
        body.send_data(piece.into(), false).unwrap();
    }
    tokio::spawn(async move { std::future::poll_fn(|context| body.poll_reset(context)).await });
}

/// With gRPC's head before it.
fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0], &length[..], message].concat()
}

/// A report of this used share of the CPUs.
fn report(cpu: f64) -> Vec<u8> {
    framed(&[&[0x09], &cpu.to_le_bytes()[..]].concat())
}

fn cpu(values: &[ReportedValue]) -> f32 {
    let cpu = values.iter().find(|it| it.metric == ReportedMetric::Cpu);
    cpu.unwrap().value
}

#[tokio::test]
async fn a_report_is_read_from_pieces_and_the_newest_counts() {
    let mut reports = service(|respond| {
        let bytes = report(0.25).into_iter().map(|byte| vec![byte]);
        stream(respond, bytes.collect());
    })
    .await;
    assert_eq!(cpu(&reports.next().await.unwrap()), 0.25);
    let several = |respond| stream(respond, vec![[report(0.25), report(0.5)].concat()]);
    let mut reports = service(several).await;
    assert_eq!(cpu(&reports.next().await.unwrap()), 0.5);
}

#[tokio::test]
async fn a_node_that_streams_without_a_pause_is_held_up_and_read_to_the_end() {
    const REPORTS: u32 = 20_000;
    let mut reports = service(|respond| {
        let share = |it| f64::from(it) / f64::from(REPORTS);
        let all: Vec<_> = (1..=REPORTS).map(|it| report(share(it))).collect();
        stream(respond, all.chunks(100).map(<[_]>::concat).collect());
    })
    .await;
    let mut last = 0.0;
    let mut read = 0;
    while last < 1.0 {
        let share = cpu(&reports.next().await.unwrap());
        assert!(share > last, "what is newer");
        last = share;
        read += 1;
        let open = reports.open.as_ref().unwrap();
        assert!(open.received.len() < FRAME_HEAD + ORCA_BYTES_MAX);
        assert!(open.received.capacity() < 1 << 20);
    }
    assert!(read > 1, "it had to wait");
}

#[tokio::test]
async fn what_is_no_stream_of_reports_is_a_fault_and_is_asked_anew() {
    let four_gib: fn(_) = |respond| stream(respond, vec![vec![0, 255, 255, 255, 255, 9]]);
    let cases = [
        (four_gib, PollFault::Malformed),
        (
            |respond| stream(respond, vec![framed(&[0x0b])]),
            PollFault::Malformed,
        ),
        (
            |respond| stream(respond, vec![vec![1, 0, 0, 0, 0]]),
            PollFault::Refused(COMPRESSED),
        ),
        (
            // Half of a message.
            |respond| stream(respond, vec![vec![0, 0, 0, 16, 0], vec![0; 4000]]),
            PollFault::NoAnswer(SILENT),
        ),
        (
            |mut respond| respond.send_reset(Reason::INTERNAL_ERROR),
            PollFault::NothingThere(BROKEN_OFF),
        ),
        (
            |mut respond| {
                let mut body = respond.send_response(Response::new(()), false).unwrap();
                body.send_data(Bytes::new(), true).unwrap();
            },
            PollFault::NothingThere(BROKEN_OFF),
        ),
        (
            |mut respond| {
                let refusal = Response::builder().header("grpc-status", "12");
                let refusal = refusal.body(()).unwrap();
                respond.send_response(refusal, true).unwrap();
            },
            PollFault::Refused(NO_SERVICE),
        ),
        (
            |mut respond| {
                let refusal = Response::builder().status(StatusCode::NOT_FOUND);
                let refusal = refusal.body(()).unwrap();
                respond.send_response(refusal, true).unwrap();
            },
            PollFault::Refused(NO_SERVICE),
        ),
    ];
    for (answer, fault) in cases {
        let mut reports = service(answer).await;
        for _ in 0..2 {
            assert_eq!(reports.next().await, Err(fault.clone()));
            assert!(reports.open.is_none());
        }
    }
}

#[tokio::test]
async fn another_protocol_is_a_fault() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut reports = stream_of(listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let answer = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";
        stream.write_all(answer).await.unwrap();
        // Until the client has left.
        stream.read_to_end(&mut Vec::new()).await.ok();
    });
    assert_eq!(reports.next().await, Err(PollFault::Malformed));
}

#[tokio::test]
async fn pauses_grow_until_a_report_comes() {
    let mut reports = service(|respond| stream(respond, vec![report(0.5)])).await;
    let pauses = [(); 8].map(|()| reports.pause().as_millis());
    assert_eq!(pauses, [250, 500, 1000, 2000, 4000, 8000, 8000, 8000]);
    reports.next().await.unwrap();
    assert_eq!(reports.pause(), PAUSE_FIRST);
}

#[test]
fn a_question_names_the_period() {
    let ten_seconds = question(Duration::from_secs(10));
    assert_eq!(&ten_seconds[..], [0, 0, 0, 0, 4, 0x0a, 2, 8, 10]);
    let tenth = question(Duration::from_millis(100));
    let wanted = [0, 0, 0, 0, 7, 0x0a, 5, 0x10, 0x80, 0xc2, 0xd7, 0x2f];
    assert_eq!(&tenth[..], wanted);
}
