//! `tidegate key`: makes masters and gives each node its key.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::json;
use tidegate_remote::udp::key_file::{Master, is_name};

use crate::failure::Failure;
use crate::key_file;
use crate::output::Output;

/// `tidegate key` and its commands.
#[derive(Debug, Args)]
pub(super) struct KeyArgs {
    #[command(subcommand)]
    command: KeyCommand,
}

#[derive(Debug, Subcommand)]
enum KeyCommand {
    /// Make a master, from which front-ends know every node's key.
    New {
        /// The file, which must not be there yet; only its owner can read it.
        file: PathBuf,
    },
    /// Give a node its key: what its agent is started with.
    Derive {
        /// The file with the front-end's masters.
        #[arg(long, value_name = "FILE")]
        master: PathBuf,
        /// The node's name in the front-end's configuration, or the `key_name` there.
        #[arg(value_parser = name)]
        node: String,
        /// Write it to this file, which must not be there yet, instead of standard output.
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
}

fn name(text: &str) -> Result<String, String> {
    match is_name(text) {
        true => Ok(text.into()),
        false => Err("a node's name has 1 to 64 letters, digits, `.`, `-` and `_`".into()),
    }
}

/// Does what is asked for.
pub(super) fn run(args: KeyArgs, output: Output) -> Result<(), Failure> {
    match args.command {
        KeyCommand::New { file } => new(&file, output),
        KeyCommand::Derive {
            master,
            node,
            output: file,
        } => derive(&master, &node, file.as_deref(), output),
    }
}

fn new(file: &Path, output: Output) -> Result<(), Failure> {
    let master = Master::random().map_err(|error| Failure::Failed(error.to_string()))?;
    key_file::create(file, &master.to_line()).map_err(Failure::Failed)?;
    let text = format!(
        "{}: a master, for front-ends only; next: tidegate key derive --master {} NODE",
        file.display(),
        file.display()
    );
    Ok(output.result(&text, &json!({ "file": file }))?)
}

/// One key for each master, in their order: a file with an old and a new master gives a file with an old
/// and a new key.
fn derive(master: &Path, node: &str, file: Option<&Path>, output: Output) -> Result<(), Failure> {
    let masters = key_file::masters(master)
        .map_err(|reason| Failure::Usage(format!("cannot use {}: {reason}", master.display())))?;
    let keys: Vec<_> = masters.iter().map(|master| master.derive(node)).collect();
    let lines: Vec<_> = keys.iter().map(|key| key.to_line()).collect();
    let Some(file) = file else {
        let keys: Vec<_> = lines.iter().map(|line| line.trim_end()).collect();
        return Ok(output.result(&lines.concat(), &json!({ "node": node, "keys": keys }))?);
    };
    key_file::create(file, &lines.concat()).map_err(Failure::Failed)?;
    let text = format!("{}: the key of node {node}", file.display());
    Ok(output.result(&text, &json!({ "node": node, "file": file }))?)
}
