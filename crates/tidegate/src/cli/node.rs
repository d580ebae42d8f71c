//! `tidegate node`: nodes that an operator adds, changes and removes.

use std::net::SocketAddr;

use clap::{Args, Subcommand};

use super::commands::segment;
use crate::client::AdminArgs;
use crate::failure::Failure;
use crate::models::{AddedNode, AddedNodes, NodeEdited, NodeRequest, NodeSettings};
use crate::output::Output;

/// `tidegate node` and its commands.
#[derive(Debug, Args)]
pub(super) struct NodeArgs {
    #[command(subcommand)]
    command: NodeCommand,
}

#[derive(Debug, Subcommand)]
enum NodeCommand {
    /// Add a node, which is kept over a restart where the front-end has a state folder.
    Add {
        /// Its name.
        name: String,
        /// Where it serves HTTP, like 10.0.0.13:80.
        #[arg(value_parser = address)]
        address: SocketAddr,
        /// Its site; may be left out where there is one.
        #[arg(long)]
        site: Option<String>,
        /// Its share relative to others.
        #[arg(long, allow_negative_numbers = true)]
        weight: Option<f32>,
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Give a node that was added another address, site or weight.
    Set {
        /// Its name.
        name: String,
        /// Where it serves HTTP from now on.
        #[arg(long, value_parser = address)]
        address: Option<SocketAddr>,
        /// Its site from now on.
        #[arg(long)]
        site: Option<String>,
        /// Its share relative to others.
        #[arg(long, allow_negative_numbers = true)]
        weight: Option<f32>,
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Remove a node that was added; its requests in flight end by themselves.
    Remove {
        /// Its name.
        name: String,
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// List the nodes that were added.
    List {
        #[command(flatten)]
        admin: AdminArgs,
    },
}

/// An address; a node that is added has no host name.
fn address(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse().map_err(|_| {
        "expected an IP address and a port, like 10.0.0.13:80; host names are for the configuration file"
    })
}

/// Does what is asked for.
pub(super) fn run(args: NodeArgs, output: Output) -> Result<(), Failure> {
    let (done, edited) = match args.command {
        NodeCommand::List { admin } => {
            let nodes: AddedNodes = admin.client()?.get("/api/nodes").map_err(Failure::Failed)?;
            return Ok(output.result(&list(&nodes), &nodes)?);
        }
        NodeCommand::Add {
            name,
            address,
            site,
            weight,
            admin,
        } => {
            let request = NodeRequest {
                name,
                address,
                site,
                weight,
            };
            ("added", admin.client()?.post_json("/api/nodes", &request))
        }
        NodeCommand::Set {
            name,
            address,
            site,
            weight,
            admin,
        } => {
            let path = format!("/api/nodes/{}", segment(&name)?);
            let settings = NodeSettings {
                address,
                site,
                weight,
            };
            ("changed", admin.client()?.post_json(&path, &settings))
        }
        NodeCommand::Remove { name, admin } => {
            let path = format!("/api/nodes/{}", segment(&name)?);
            ("removed", admin.client()?.delete(&path))
        }
    };
    let edited: NodeEdited = edited.map_err(Failure::Failed)?;
    let mut text = format!("{done}: {}", line(&edited.node));
    if let Some(note) = &edited.note {
        text.push_str(&format!("\nnote: {note}"));
    }
    Ok(output.result(&text, &edited)?)
}

fn list(nodes: &AddedNodes) -> String {
    let lines: Vec<_> = nodes.nodes.iter().map(line).collect();
    match lines.is_empty() {
        true => "no node was added".into(),
        false => lines.join("\n"),
    }
}

fn line(node: &AddedNode) -> String {
    let AddedNode {
        name,
        address,
        site,
        weight,
    } = node;
    format!("{name} at {address}, of site {site}, weight {weight}")
}
