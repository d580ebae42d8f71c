//! A client of ORCA: HTTP/2 by hyper, messages by prost.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message as _;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::time::timeout;

use super::PATIENCE;

pub(crate) const PATH: &str = "/xds.service.orca.v3.OpenRcaService/StreamCoreMetrics";

/// As `xds/data/orca/v3/orca_load_report.proto` has it.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct OrcaLoadReport {
    #[prost(double, tag = "1")]
    pub(crate) cpu_utilization: f64,
    #[prost(double, tag = "2")]
    pub(crate) mem_utilization: f64,
    #[prost(uint64, tag = "3")]
    pub(crate) rps: u64,
    #[prost(btree_map = "string, double", tag = "4")]
    pub(crate) request_cost: BTreeMap<String, f64>,
    #[prost(btree_map = "string, double", tag = "5")]
    pub(crate) utilization: BTreeMap<String, f64>,
    #[prost(double, tag = "6")]
    pub(crate) rps_fractional: f64,
    #[prost(double, tag = "7")]
    pub(crate) eps: f64,
    #[prost(btree_map = "string, double", tag = "8")]
    pub(crate) named_metrics: BTreeMap<String, f64>,
    #[prost(double, tag = "9")]
    pub(crate) application_utilization: f64,
}

/// A connection.
pub(crate) struct OrcaClient {
    runtime: Runtime,
    sender: SendRequest<Full<Bytes>>,
    at: SocketAddr,
}

/// The reports of one question.
pub(crate) struct OrcaReports<'a> {
    client: &'a OrcaClient,
    /// Nothing if the question was not answered.
    body: Option<Incoming>,
    received: Vec<u8>,
}

impl OrcaClient {
    /// Nothing if the connection is not taken.
    pub(crate) fn connect(at: SocketAddr) -> Option<Self> {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().build().unwrap();
        let sender = runtime.block_on(async {
            let stream = TcpStream::connect(at).await.ok()?;
            let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream))
                .await
                .ok()?;
            // A connection that breaks off shows in what is asked by it.
            tokio::spawn(async { connection.await.ok() });
            Some(sender)
        })?;
        Some(Self {
            runtime,
            sender,
            at,
        })
    }

    fn send(&self, path: &str, kind: &str, body: &[u8]) -> Option<http::Response<Incoming>> {
        let request = Request::post(format!("http://{}{path}", self.at))
            .header("content-type", kind)
            .header("te", "trailers")
            .body(Full::new(Bytes::copy_from_slice(body)))
            .unwrap();
        let mut sender = self.sender.clone();
        let answer = async { timeout(PATIENCE, sender.send_request(request)).await };
        let answer = self.runtime.block_on(answer);
        answer.expect("an answer or an end").ok()
    }

    /// Asks by a message.
    pub(crate) fn ask(&self, message: &[u8]) -> OrcaReports<'_> {
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        let framed = [&[0], &length[..], message].concat();
        let answer = self.send(PATH, "application/grpc", &framed);
        OrcaReports {
            client: self,
            body: answer.map(http::Response::into_body),
            received: Vec::new(),
        }
    }

    /// Status and code of gRPC of an answer that is over with its head.
    pub(crate) fn refusal(&self, path: &str, kind: &str, body: &[u8]) -> (u16, Option<String>) {
        let answer = self.send(path, kind, body).unwrap();
        let code = answer.headers().get("grpc-status");
        let code = code.map(|it| it.to_str().unwrap().to_owned());
        assert!(hyper::body::Body::is_end_stream(answer.body()));
        (answer.status().as_u16(), code)
    }
}

impl OrcaReports<'_> {
    /// The next one; nothing if there is none any more.
    pub(crate) fn try_next(&mut self) -> Option<OrcaLoadReport> {
        let body = self.body.as_mut()?;
        loop {
            if let Some((head, rest)) = self.received.split_first_chunk::<5>() {
                assert_eq!(head[0], 0, "it is not compressed");
                let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
                if let Some(message) = rest.get(..length) {
                    let report = OrcaLoadReport::decode(message).unwrap();
                    self.received.drain(..5 + length);
                    return Some(report);
                }
            }
            let frame = async { timeout(PATIENCE, body.frame()).await };
            let frame = self.client.runtime.block_on(frame);
            let data = frame.expect("a report or an end")?.ok()?.into_data();
            self.received.extend_from_slice(&data.unwrap_or_default());
        }
    }

    pub(crate) fn next(&mut self) -> OrcaLoadReport {
        self.try_next().expect("a report")
    }
}
