//! Goodput within the SLO, row by row: for whoever works on admission.
//!
//! `cargo run --release -p tidegate-sim --example admission_rows [ROW]`

#![allow(clippy::print_stdout, reason = "its output is what it is for")]

#[path = "../tests/support/admission.rs"]
mod admission;

fn main() {
    let wanted = std::env::args().nth(1);
    println!("row                     mode      good%  shed%  p50ms  p99ms");
    for row in admission::rows() {
        if wanted
            .as_ref()
            .is_some_and(|wanted| !row.name.contains(wanted.as_str()))
        {
            continue;
        }
        for mode in ["adaptive"] {
            match admission::measure(&row, mode) {
                Ok(it) => println!(
                    "{:<23} {mode:<9} {:>5.1}  {:>5.1}  {:>5.1}  {:>5.1}",
                    row.name, it.goodput, it.shed, it.p50_ms, it.p99_ms,
                ),
                Err(broken) => println!("{:<23} {mode:<9} {broken}", row.name),
            }
        }
    }
}
