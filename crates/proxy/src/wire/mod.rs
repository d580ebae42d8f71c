//! HTTP as bytes: where heads and bodies of HTTP/1 begin and end, before and beside hyper's own reading; and what the frames of
//! HTTP/2 come to.

mod bell;
pub(crate) mod chunks;
pub(crate) mod client_body;
pub(crate) mod frames;
mod head_end;
pub(crate) mod inflow;
mod interim;
pub(crate) mod proxy_header;
pub(crate) mod trace;
