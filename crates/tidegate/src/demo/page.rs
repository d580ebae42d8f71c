//! The live page of a demo: that of a front-end, which may change while the page stays where it is.

use std::net::Ipv4Addr;
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::admin::plane::Plane;
use crate::admin::{Access, server};
use crate::failure::Failure;
use crate::output::Output;
use tidegate_proxy::Ports;
use tokio::sync::mpsc;

/// See the module.
#[derive(Debug)]
pub(super) struct Page {
    plane: Arc<ArcSwap<Plane>>,
    /// `http://127.0.0.1:PORT/`.
    pub(super) address: String,
}

impl Page {
    /// Serves it from now on, on the runtime around the caller.
    pub(super) fn open(port: u16, plane: Arc<Plane>) -> Result<Self, Failure> {
        let address = (Ipv4Addr::LOCALHOST, port).into();
        let failed =
            |error| Failure::Failed(format!("cannot serve the page at {address}: {error}"));
        let listener = server::bind(address, Ports::default()).map_err(failed)?;
        let address = format!("http://{}/", listener.local_addr().map_err(failed)?);
        let plane = Arc::new(ArcSwap::new(plane));
        let shown = Arc::clone(&plane);
        let planes = move || shown.load_full();
        let served = server::serve(
            listener,
            planes,
            Access::default(),
            Output::QUIET,
            mpsc::channel(1).0,
        );
        tokio::spawn(served);
        Ok(Self { plane, address })
    }

    /// Looks at another front-end.
    pub(super) fn turn(&self, plane: Arc<Plane>) {
        self.plane.store(plane);
    }
}
