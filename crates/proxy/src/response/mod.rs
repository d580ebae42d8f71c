//! The answer on its way back to the client: its head, its body, or a tunnel; or a refusal in its place.

mod body;
mod deliver;
pub(crate) mod orca;
mod pacing;
mod tunnel;

pub(crate) use body::ResponseBody;
pub(crate) use deliver::{Delivery, deliver, refused, routed, settle_connection};
pub(crate) use tunnel::Tunnel;
