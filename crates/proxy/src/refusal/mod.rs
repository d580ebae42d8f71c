//! Answers of our own, where a request is refused: as HTTP, as gRPC, and as each site wants them.

mod answers;
mod grpc;
mod ready;

pub(crate) use answers::Answers;
pub(crate) use grpc::Form;
pub(crate) use ready::{CLIENT_CLOSED, CLOSE, answer, options_answer, ready_made};
