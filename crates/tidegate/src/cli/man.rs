//! The manual: `tidegate(1)`, a page for each subcommand, and `tidegate.toml(5)`.
//!
//! The pages of commands are made from the same definitions as the parser and the help. The page of the file is
//! `contrib/man/tidegate.toml.5`, which a test makes from the tables that read the file.

use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use serde_json::json;

use crate::failure::Failure;
use crate::output::Output;

/// The page of the configuration file.
const FILE_PAGE: &str = include_str!("../../../../contrib/man/tidegate.toml.5");
/// Its name.
const FILE_PAGE_NAME: &str = "tidegate.toml.5";
/// What `man` writes over each page.
const MANUAL: &str = "Tidegate";
/// Exit codes, as `failure.rs` has them.
const EXIT_STATUS: [(&str, &str); 3] = [
    ("0", "It is done."),
    ("1", "It was tried and failed."),
    ("2", "The command line or the configuration is wrong."),
];

/// Where the pages go.
#[derive(Debug, Args)]
pub(super) struct ManArgs {
    /// Write all pages into this folder, in place of those of the same names.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// A page: its file's name and its text in roff.
type Page = (String, Vec<u8>);

/// Prints the page of the command, or writes all.
pub(super) fn run(args: &ManArgs, command: Command, output: Output) -> Result<(), Failure> {
    let mut command = without_help(command);
    command.build();
    match &args.dir {
        None => {
            let (_, text) = page(&command)?;
            Ok(output.raw(&String::from_utf8_lossy(&text))?)
        }
        Some(dir) => {
            let pages = pages(&command)?;
            write(dir, &pages)?;
            let names: Vec<_> = pages.iter().map(|(name, _)| name).collect();
            let text = format!("{}: {} pages", dir.display(), names.len());
            Ok(output.result(&text, &json!({ "dir": dir, "pages": names }))?)
        }
    }
}

/// The command without `help`, of which there is no page: pages would name it.
fn without_help(command: Command) -> Command {
    let command = command.disable_help_subcommand(true);
    command.mut_subcommands(without_help)
}

fn write(dir: &Path, pages: &[Page]) -> Result<(), Failure> {
    let failed = |path: &Path, error| {
        let path = path.display();
        Failure::Failed(format!("cannot write {path}: {error}"))
    };
    std::fs::create_dir_all(dir).map_err(|error| failed(dir, error))?;
    for (name, text) in pages {
        let path = dir.join(name);
        std::fs::write(&path, text).map_err(|error| failed(&path, error))?;
    }
    Ok(())
}

/// The pages of a command, of all below it, and of the file.
fn pages(command: &Command) -> io::Result<Vec<Page>> {
    let mut pages = vec![(FILE_PAGE_NAME.to_owned(), FILE_PAGE.into())];
    let mut waiting = vec![command];
    while let Some(command) = waiting.pop() {
        pages.push(page(command)?);
        waiting.extend(command.get_subcommands());
    }
    pages.sort();
    Ok(pages)
}

/// The page of one command, whose tree is built.
fn page(command: &Command) -> io::Result<Page> {
    let man = Man::new(command.clone())
        .source(format!("tidegate {}", env!("CARGO_PKG_VERSION")))
        .manual(MANUAL);
    let mut text = Vec::new();
    man.render(&mut text)?;
    let mut rest = Roff::new();
    rest.control("SH", ["EXIT STATUS"]);
    for (code, meaning) in EXIT_STATUS {
        rest.control("TP", []);
        rest.text([bold(code)]).text([roman(meaning)]);
    }
    rest.control("SH", ["SEE ALSO"]);
    let mut others = vec![bold("tidegate.toml"), roman("(5)")];
    if command.get_name() != "tidegate" {
        others.extend([roman(", "), bold("tidegate"), roman("(1)")]);
    }
    rest.text(others);
    rest.to_writer(&mut text)?;
    Ok((man.get_filename(), without_date(&text)))
}

/// Says in the title that there is no date: the one that writes it leaves an empty argument without its quotes.
fn without_date(page: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(page);
    let lines = text.split_inclusive('\n');
    let lines = lines.map(|line| match line.starts_with(".TH ") {
        true => line.replacen("  ", " \"\" ", 1),
        false => line.to_owned(),
    });
    lines.collect::<String>().into_bytes()
}
