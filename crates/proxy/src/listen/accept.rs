//! From a listening socket to a connection that is served, or refused before a byte of it is read.
//!
//! A refused connection costs as little as can be: it is accepted, gets an answer that was ready, and
//! waits among the lingering for its client to close. It never becomes a task, nor does the
//! reactor know it. Each gets its answer: where as many linger as may, the oldest makes room, and
//! where no file is left for one more, a spare one is given up for it.
//!
//! A worker that does not keep up accepts nothing for a while ([`AcceptGate`]); the kernel holds new
//! connections in the backlog of its socket. `SO_REUSEPORT` gives each worker a socket of its own, so the
//! others go on with theirs.
//!
//! [`AcceptGate`]: tidegate_core::admission::AcceptGate

use std::cell::Cell;
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::net::{self, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::SendFlags;
use socket2::{SockRef, Socket, Type};
use tidegate_core::admission::AdmissionVerdict;
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::clients::Clients;
use super::linger::linger;
use super::serve::serve;
use crate::base::{Removal, Settings};
use crate::config::listener::ListenerPlan;
use crate::record::reason::Reason;
use crate::request::Client;
use crate::sockets::{is_own_fault, probes, stop_new};
use crate::stream;
use crate::wire::proxy_header::Ends;

/// Pause after a failed accept: mostly too many open files, which others must close first.
const ERROR_PAUSE: Duration = Duration::from_millis(10);
/// What a handshake may take that has begun when the worker stops accepting.
const HANDSHAKE: Duration = Duration::from_millis(250);
/// A record of TLS with the fatal alert `internal_error`: the nearest to having no room that there is (RFC 8446 §6.2).
const TLS_ALERT: [u8; 7] = [21, 3, 3, 0, 2, 2, 80];
/// Connections that are accepted before others get their turn.
const BATCH: usize = 64;

/// A listening socket in the worker's reactor. tokio's own would make the reactor know of every
/// connection that it accepts; this one only tells when there is something to accept. That is all that is
/// asked of the stream whose form it has.
pub(crate) struct Listener {
    /// Whether it was taken out.
    removal: Rc<Removal>,
    stream: TcpStream,
    /// How its connections are served.
    plan: Arc<ArcSwap<ListenerPlan>>,
    /// The settings that its connections are probed by.
    followed: Cell<Option<u64>>,
    /// Whether connections have its own options: those that waited while it was another program's may not.
    is_inherited: Cell<bool>,
    /// A file that is given up when there is none for a connection that is to be refused.
    spare: Cell<Option<Socket>>,
}

impl Listener {
    /// Of a socket that listens already and does not block.
    pub(crate) fn new(
        socket: Socket,
        removal: Rc<Removal>,
        plan: Arc<ArcSwap<ListenerPlan>>,
    ) -> io::Result<Self> {
        Ok(Self {
            removal,
            plan,
            spare: Cell::new(socket.try_clone().ok()),
            followed: Cell::new(None),
            is_inherited: Cell::new(false),
            stream: TcpStream::from_std(socket.into())?,
        })
    }

    fn socket(&self) -> SockRef<'_> {
        SockRef::from(&self.stream)
    }

    /// Hands on each connection that is there, up to `most`; an error that would block if that were
    /// all of them.
    fn accept(&self, most: usize, each: impl Fn(Socket, SocketAddr)) -> io::Result<()> {
        // The flags of a type are those of accept4.
        let flags = i32::from(Type::STREAM.nonblocking().cloexec()) & !i32::from(Type::STREAM);
        let socket = self.socket();
        self.stream.try_io(Interest::READABLE, || {
            for _ in 0..most {
                let (socket, peer) = match socket.accept4(flags) {
                    // Without a file an accept fails even if no connection waits.
                    Err(error) if is_own_fault(&error) && !self.is_waited_at() => {
                        return Err(ErrorKind::WouldBlock.into());
                    }
                    Err(error) => {
                        // None waits any more that is older than the listener's options.
                        let is_none_left = error.kind() == ErrorKind::WouldBlock;
                        self.is_inherited
                            .set(self.is_inherited.get() || is_none_left);
                        return Err(error);
                    }
                    Ok(accepted) => accepted,
                };
                if let Some(peer) = peer.as_socket() {
                    each(socket, peer);
                }
            }
            Ok(())
        })
    }

    /// Its connections are probed as the settings say, from now on.
    fn follow(&self, settings: &Settings) {
        let version = Some(settings.version());
        if self.followed.get() != version {
            let probes = probes(settings.timeouts().keepalive);
            // One that fails is tried again with the next connection.
            if self.socket().set_tcp_keepalive(&probes).is_ok() {
                self.followed.set(version);
            }
        }
    }

    /// Keeps a spare file, if there is one again.
    fn keep_spare(&self) {
        let spare = self.spare.take();
        self.spare
            .set(spare.or_else(|| self.socket().try_clone().ok()));
    }

    /// Whether a connection waits.
    #[cold]
    fn is_waited_at(&self) -> bool {
        let mut listener = [PollFd::new(&self.stream, PollFlags::IN)];
        poll(&mut listener, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    /// Frees a file for a connection that is to be refused: the spare one, or that of the refused connection
    /// that lingers longest.
    #[cold]
    fn free_file(&self, clients: &Clients) -> bool {
        self.spare.take().is_some() || clients.evict_lingering()
    }
}

/// Accepts until the listener is taken out or the worker drains, and then those whose handshake has begun.
pub(crate) async fn accept(clients: Rc<Clients>, listener: Listener) {
    tokio::select! {
        () = accept_for_ever(&clients, &listener) => {}
        () = clients.worker.base.drain.begun() => {}
        () = listener.removal.begun() => {}
    }
    let address = listener.socket().local_addr();
    let address = address.ok().and_then(|address| address.as_socket());
    if address.is_some_and(|address| clients.worker.base.drain.is_taken_over(address)) {
        // The other process serves whatever waits, and a filter would be on its socket, too.
        return;
    }
    // Clients that are connected already, or think so, would be reset when the socket closes.
    // Mostly the closer has put the filter there. Where neither may, those that are still new are served as well.
    stop_new(&listener.socket()).unwrap_or_default();
    let late = accept_for_ever(&clients, &listener);
    tokio::time::timeout(HANDSHAKE, late).await.ok();
    while listener
        .accept(BATCH, on_accept(&clients, &listener))
        .is_ok()
    {}
}

async fn accept_for_ever(clients: &Rc<Clients>, listener: &Listener) {
    loop {
        clients.accepting().await;
        listener.keep_spare();
        // What may be wrong here shows at the accept.
        let readable = poll_fn(|context| listener.stream.poll_read_ready(context));
        readable.await.ok();
        listener.follow(&clients.worker.base.settings);
        clients.on_accept();
        let accepted = match listener.accept(BATCH, on_accept(clients, listener)) {
            Err(error) if is_own_fault(&error) && listener.free_file(clients) => {
                let refuse = |socket, _| {
                    refuse(clients, socket, listener, Reason::TooManyConnections);
                };
                listener.accept(1, refuse)
            }
            accepted => accepted,
        };
        match accepted {
            Ok(()) => tokio::task::yield_now().await,
            Err(error) if is_none_left(&error) => {}
            Err(_) => {
                clients.worker.base.stats().accept_errors.add(1);
                tokio::time::sleep(ERROR_PAUSE).await;
            }
        }
    }
}

fn is_none_left(error: &io::Error) -> bool {
    [ErrorKind::WouldBlock, ErrorKind::Interrupted].contains(&error.kind())
}

/// What becomes of each connection.
fn on_accept(clients: &Rc<Clients>, listener: &Listener) -> impl Fn(Socket, SocketAddr) {
    |socket, peer| admit(clients, socket, peer, listener)
}

fn admit(clients: &Rc<Clients>, socket: Socket, peer: SocketAddr, listener: &Listener) {
    let base = &clients.worker.base;
    base.cluster.refresh();
    let verdict = base.cluster.picker.borrow_mut().handle_accept(base.now());
    if let AdmissionVerdict::Reject(reason) = verdict {
        return refuse(clients, socket, listener, reason.into());
    }
    match clients.seats.take().or_else(|| clients.evict()) {
        None => refuse(clients, socket, listener, Reason::TooManyConnections),
        Some(seat) => {
            // A socket that does not take the option is one that its client has closed.
            if !listener.is_inherited.get() && socket.set_tcp_nodelay(true).is_err() {
                return;
            }
            let socket = stream::Socket::from(net::TcpStream::from(socket));
            let client = Client::new(
                Rc::clone(&clients.worker),
                peer.ip(),
                Rc::clone(&listener.removal),
                listener.plan.load_full(),
            );
            if clients.worker.sites.introduces() {
                introduce(&client, &socket, peer);
            }
            tokio::task::spawn_local(serve(Rc::clone(clients), socket, client, seat));
        }
    }
}

/// Notes both ends of the connection, for headers that say them to nodes.
#[cold]
#[inline(never)]
fn introduce(client: &Client, socket: &stream::Socket, source: SocketAddr) {
    if let Ok(destination) = socket.local_addr() {
        client.connection.introduce(Ends {
            source,
            destination,
        });
    }
}

/// Stage 0: a ready-made answer, not a byte is read before it. Where TLS is spoken it is an alert, and no handshake begins.
fn refuse(clients: &Rc<Clients>, socket: Socket, listener: &Listener, reason: Reason) {
    clients.worker.base.stats().refused[reason.index()].add(1);
    let (worker, base) = (&clients.worker, &clients.worker.base);
    let answer = match listener.plan.load().tls {
        None => worker.sites.unread(reason),
        Some(_) => Bytes::from_static(&TLS_ALERT),
    };
    // More is to come: the answer leaves with the end of the stream, in one segment.
    match rustix::net::send(&socket, &answer, SendFlags::MORE | SendFlags::NOSIGNAL) {
        Ok(sent) if sent == answer.len() => {
            let until = base.due(base.settings.ticks().linger);
            clients.lingering.borrow_mut().push(socket, until);
            if clients.refused_now() > base.settings.limits().lingering {
                clients.evict_lingering();
            }
        }
        // More than the socket takes at once.
        Ok(sent) if clients.refused_now() < base.settings.limits().lingering => {
            refuse_slowly(clients, socket, answer.slice(sent..));
        }
        Ok(_) => {}
        // Its client has left.
        Err(_) => {}
    }
}

#[cold]
fn refuse_slowly(clients: &Rc<Clients>, socket: Socket, rest: Bytes) {
    let Ok(stream) = TcpStream::from_std(socket.into()) else {
        return;
    };
    let clients = Rc::clone(clients);
    let slow = &clients.refused_slowly;
    slow.set(slow.get() + 1);
    tokio::task::spawn_local(async move {
        linger(
            stream,
            Some(rest),
            clients.worker.base.settings.timeouts().linger,
        )
        .await;
        let slow = &clients.refused_slowly;
        slow.set(slow.get() - 1);
    });
}
