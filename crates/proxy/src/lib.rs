//! The data plane: listeners, upstream pools, streaming, access log.
