//! What an operator does to a front-end that runs: other servers by a changed file, and a process that takes over.
//!
//! | | reload | hand-over |
//! |---|---|---|
//! | Tidegate | `POST /api/reload` | `POST /api/upgrade` |
//! | HAProxy | SIGUSR2 to its master (`-W`): a new worker has the sockets, the old one stops softly | the same |
//! | nginx | SIGHUP: likewise | the same |
//!
//! Tidegate also moves a node to another site: `POST /api/moves`.
//!
//! Tidegate answers when the change is in force; the others are asked by a signal and say nothing.

use std::net::SocketAddr;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::cluster::{ClusterError, Place};

use super::layout::Site;
use super::ready::exchange;
use super::start::write_config;
use super::{FrontEnd, FrontError, FrontKind};

/// Longest wait for an answer: a successor has half a minute to be ready.
const ANSWER_MAX: Duration = Duration::from_secs(40);
/// What is read of an answer.
const BYTES_MAX: u64 = 1 << 20;

/// What a program is also given so that it can be changed while it runs.
pub(super) fn master(kind: &FrontKind) -> Option<String> {
    matches!(kind, FrontKind::Haproxy(_)).then(|| "-W".into())
}

impl FrontEnd {
    /// Gives it other sites and servers by its file; `place` is where it runs.
    ///
    /// # Errors
    /// If it says that it does not, or if the program cannot.
    pub fn reload(&mut self, place: &Place, sites: Vec<Site>) -> Result<(), FrontError> {
        self.layout.sites = sites;
        write_config(&self.kind, &self.layout)?;
        self.change(place, "POST /api/reload")
    }

    /// Has another process of it take over; `place` is where it runs.
    ///
    /// # Errors
    /// If it says that it does not, or if the program cannot.
    pub fn hand_over(&self, place: &Place) -> Result<(), FrontError> {
        self.change(place, "POST /api/upgrade")
    }

    /// Has a node serve another site; `place` is where it runs.
    ///
    /// # Errors
    /// If it says that it does not, or if the program cannot.
    pub fn move_node(&self, place: &Place, node: &str, site: &str) -> Result<(), FrontError> {
        let done = match self.admin {
            Some(admin) => move_node(place, admin, node, site)?,
            None => Err("the lab has no way to change it while it runs".into()),
        };
        done.map_err(|why| self.unchanged(why))
    }

    /// Has all its threads stand still, or go on.
    pub fn stand_still(&self, stands: bool) {
        let signal = if stands { Signal::STOP } else { Signal::CONT };
        self.process.signal(signal);
    }

    fn change(&self, place: &Place, words: &str) -> Result<(), FrontError> {
        let done = match (&self.kind, self.admin) {
            (FrontKind::Tidegate(_), Some(admin)) => place.inside(|| order(admin, words, ""))?,
            (FrontKind::Haproxy(_), _) => self.signal(Signal::USR2),
            (FrontKind::Nginx(_), _) => self.signal(Signal::HUP),
            (FrontKind::Tidegate(_) | FrontKind::Apache | FrontKind::Envoy(_), _) => {
                Err("the lab has no way to change it while it runs".into())
            }
        };
        done.map_err(|why| self.unchanged(why))
    }

    fn unchanged(&self, why: String) -> FrontError {
        FrontError::Unchanged {
            name: self.name.clone(),
            why,
        }
    }

    /// To its first process alone.
    fn signal(&self, signal: Signal) -> Result<(), String> {
        let number = i32::try_from(self.process.id()).ok();
        let process = number.and_then(Pid::from_raw);
        let process = process.ok_or("it has no process number")?;
        kill_process(process, signal).map_err(|error| error.to_string())
    }
}

/// Has the Tidegate with this interface have a node serve another site; `place` is where it runs. What it says if it does not.
///
/// # Errors
/// If the place cannot be entered.
pub fn move_node(
    place: &Place,
    admin: SocketAddr,
    node: &str,
    site: &str,
) -> Result<Result<(), String>, ClusterError> {
    let body = serde_json::json!({ "node": node, "site": site }).to_string();
    place.inside(|| order(admin, "POST /api/moves", &body))
}

/// Asks an admin interface to do something; what it says if it does not.
fn order(admin: SocketAddr, words: &str, body: &str) -> Result<(), String> {
    let answer = exchange(admin, words, body, BYTES_MAX, ANSWER_MAX);
    let answer = answer.map_err(|error| error.to_string())?;
    let status = answer.split(' ').nth(1).unwrap_or_default();
    match status {
        "200" => Ok(()),
        _ => {
            let body = answer.split_once("\r\n\r\n").map_or("", |it| it.1);
            Err(format!("it answers {status} {}", body.trim()))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn what_is_refused_is_said_with_its_reason() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            for answer in [
                "200 OK\r\n\r\n{}",
                "400 Bad Request\r\n\r\n{\"error\":\"x\"}",
            ] {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 256];
                let length = stream.read(&mut request).unwrap();
                assert!(request[..length].starts_with(b"POST /api/reload HTTP/1.1\r\n"));
                write!(stream, "HTTP/1.1 {answer}").unwrap();
            }
        });
        assert_eq!(order(address, "POST /api/reload", ""), Ok(()));
        let why = order(address, "POST /api/reload", "").unwrap_err();
        assert_eq!(why, "it answers 400 {\"error\":\"x\"}");
        server.join().unwrap();
    }
}
