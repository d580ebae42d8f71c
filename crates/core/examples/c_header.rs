//! Prints the C header of the load record; `cargo xtask generate` writes it where it belongs.
#![expect(clippy::print_stdout, reason = "printing is what this example is for")]

fn main() {
    print!("{}", tidegate_core::record::c_header());
}
