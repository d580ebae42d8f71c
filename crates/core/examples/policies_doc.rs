//! Prints `docs/policies.md`; `cargo xtask generate` writes it where it belongs.
#![expect(clippy::print_stdout, reason = "printing is what this example is for")]

fn main() {
    print!("{}", tidegate_core::policy::markdown());
}
