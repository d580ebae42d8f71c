//! Code generation and the tidy test.

fn main() {}
