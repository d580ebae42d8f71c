//! The test server's parts, for real and for emulated CPUs: what its URLs ask for, its files, its connections.

pub mod cache;
pub mod http;
pub mod slowdown;
pub mod work;
