//! `cargo xtask COMMAND`: what the project does to itself. No command needs a tool beyond
//! cargo, and none of them edits a file that a person wrote.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command line tool prints"
)]

mod bpf;
mod fuzz;
mod generate;
mod instructions;
mod kernels;
mod kubernetes;
mod left;
mod machine;
mod mib;
mod model;
mod npm;
mod rdma;
mod skips;
mod test;
mod web;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use test::Outcome;

const USAGE: &str = "\
usage: cargo xtask COMMAND
  generate    write the generated files anew (record header, tables in docs/)
  bpf [--check]
              compile the kernel's programs anew; whether they are what their source gives
  web [--check]
              bundle the pages of the admin interface anew; whether they are what their sources
              give, and whether these pass their tests
  web --browser
              look at the pages in a browser, in front of a server that stands in for a front-end
  mib         whether smilint has nothing to say about TIDEGATE-MIB
  kernels     test the kernel's programs under Debian's other kernels, in emulated machines
  rdma [--pair]
              test the transport over RDMA in an emulated machine, whose kernel plays the card;
              in two, with a cable between that is pulled
  kubernetes  build a real kube-apiserver for the tests of discovery, once, into the cache folder
  model       check the protocol of moves within large bounds: some minutes, and some GB of memory
  instructions [--record|--compare]
              user instructions per proxied request and per refused connection against
              the recorded baseline; record a new one; compare with the HAProxy that is installed
  fuzz --check
              whether the fuzz targets compile
  test        format, lints, documentation and every test; ends with their count
  skips LOG   which tests a log of `test` says were skipped, and whether they may be";

fn main() -> ExitCode {
    let command: Vec<_> = std::env::args().skip(1).collect();
    let words: Vec<_> = command.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["generate"] => generate::run(&root()),
        ["bpf"] => bpf::run(&root()),
        ["bpf", "--check"] => bpf::check(&root()).map(Outcome::said),
        ["web"] => web::run(&root()),
        ["web", "--check"] => web::check(&root()).map(Outcome::said),
        ["web", "--browser"] => web::browser(&root()).map(Outcome::said),
        ["mib"] => mib::check(&root()).map(Outcome::said),
        ["kernels"] => kernels::check(&root()).map(Outcome::said),
        ["rdma"] => rdma::check(&root()).map(Outcome::said),
        ["rdma", "--pair"] => rdma::pair(&root()).map(Outcome::said),
        ["kubernetes"] => kubernetes::run(&root()),
        ["model"] => model::run(&root()),
        ["instructions"] => instructions::check(&root()).map(Outcome::said),
        ["instructions", "--compare"] => instructions::compare(&root()).map(Outcome::said),
        ["instructions", "--record"] => instructions::record(&root()),
        ["fuzz", "--check"] => fuzz::check(&root()).map(Outcome::said),
        ["test"] => test::run(&root()),
        ["skips", log] => skips::check(&root(), Path::new(log)),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The repository's root: the folder above this crate.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}
