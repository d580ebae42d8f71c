//! The command line of the lab.

use clap::{Parser, Subcommand};
use tidegate_lab::server;

#[derive(Debug, Parser)]
#[command(
    name = "tidegate-lab",
    about = "A cluster in a box, on which every claim is measured"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(hide = true)]
    Serve(server::ServeArgs),
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    match Cli::parse().command {
        Command::Serve(args) => server::run(&args)?,
    }
    Ok(())
}
