//! Where clients come in: listening sockets, the connections that they become, and those that are refused unread.

mod accept;
mod clients;
mod closing;
mod handshake;
mod http2;
mod introduction;
mod io;
mod linger;
mod listeners;
mod respond;
mod serve;
mod tcp;

pub(crate) use accept::{Listener, accept};
pub(crate) use clients::{Clients, Rested};
pub(crate) use closing::{Closer, CloserAsks};
pub(crate) use listeners::{OpenListener, OpenListeners, Opening, kept};
