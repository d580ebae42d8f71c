//! The command line of the lab.

use clap::{Parser, Subcommand};
use tidegate_lab::{antagonist, server};

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
    #[command(hide = true)]
    Antagonist(antagonist::AntagonistArgs),
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    match Cli::parse().command {
        Command::Serve(args) => server::run(&args)?,
        Command::Antagonist(args) => antagonist::run(&args)?,
    }
    Ok(())
}
