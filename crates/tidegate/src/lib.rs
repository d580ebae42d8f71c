//! The binary: command line, configuration, driver, admin API, metrics, demo.

mod acme;
mod admin;
mod agent;
mod check;
mod cli;
mod client;
mod config;
mod culprits;
mod demo;
mod discovery;
mod doctor;
mod driver;
mod events;
mod exposition;
mod failure;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod history;
mod journal;
mod key_file;
mod learned;
mod models;
mod moves;
mod open_files;
mod otlp;
mod output;
mod overrides_file;
mod peer_auth;
mod privilege;
mod probe;
mod reads;
mod reload;
mod replace;
mod resources;
mod run;
mod rungs;
mod seats;
mod secret_file;
mod signals;
mod simulate;
mod state;
mod steer;
#[cfg(test)]
mod testing;
mod text;
mod token;
mod top;
mod upgrade;
mod webhook;

use std::process::ExitCode;

/// Does what the process's arguments ask for.
pub fn main() -> ExitCode {
    cli::main()
}
