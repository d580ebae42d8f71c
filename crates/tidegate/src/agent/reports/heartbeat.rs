//! Sends heartbeats to Apache's monitors: a datagram to each, once a second, as `mod_heartbeat` does.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use tidegate_node::report::heartbeat::datagram;
use tokio::time::{MissedTickBehavior, interval};

use super::SharedLoad;
use crate::config::HeartbeatReport;
use crate::failure::Failure;
use crate::output::Output;

const EVERY: Duration = Duration::from_secs(1);

/// A monitor, or a group of them.
#[derive(Debug)]
struct Monitor {
    at: SocketAddr,
    socket: UdpSocket,
    /// Why nothing could be sent, as it was said.
    said: Option<String>,
}

/// Sockets for all of a report's monitors.
#[derive(Debug)]
pub(super) struct Heartbeats {
    monitors: Vec<Monitor>,
    load: SharedLoad,
}

impl Monitor {
    fn open(at: SocketAddr, from: Option<IpAddr>) -> Result<Self, Failure> {
        let any: IpAddr = match at {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let from = from.unwrap_or(any);
        let opened = UdpSocket::bind((from, 0)).and_then(|socket| {
            // A full buffer loses a beat, and holds nothing up.
            socket.set_nonblocking(true)?;
            Ok(socket)
        });
        let said = None;
        let failed = |error| format!("cannot send from {from} ([agent.heartbeat]): {error}");
        let socket = opened.map_err(|error| Failure::Failed(failed(error)))?;
        Ok(Self { at, socket, said })
    }
}

impl Heartbeats {
    pub(super) fn new(report: &HeartbeatReport, load: SharedLoad) -> Result<Self, Failure> {
        let monitors = report.to.iter();
        let monitors = monitors.map(|at| Monitor::open(*at, report.from));
        Ok(Self {
            monitors: monitors.collect::<Result<_, Failure>>()?,
            load,
        })
    }

    /// Runs until the task is dropped. What cannot be sent is said once.
    pub(super) async fn run(mut self, output: Output) {
        let mut beat = interval(EVERY);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            beat.tick().await;
            let trouble = self.load.trouble();
            let said = datagram(&self.load.lock().own.load(), trouble.is_some());
            let Some(said) = said else {
                continue;
            };
            for monitor in &mut self.monitors {
                let sent = monitor.socket.send_to(said.as_bytes(), monitor.at);
                let why = sent.err().map(|error| error.to_string());
                if let (Some(why), true) = (&why, why != monitor.said) {
                    let text = format!("no heartbeat to {}: {why}; it goes on", monitor.at);
                    output.event("heartbeat", &text);
                }
                monitor.said = why;
            }
        }
    }
}
