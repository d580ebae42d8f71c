//! HTTP/1.1 as bytes: where heads and bodies begin and end, before and beside hyper's own reading.

mod bell;
pub(crate) mod chunks;
mod head_end;
pub(crate) mod inflow;
mod interim;
pub(crate) mod proxy_header;
