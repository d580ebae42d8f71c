//! PostgreSQL as a node's server, with the auction site's tables.
//!
//! It runs as `nobody`, on files of the cluster. What an ordinary kill would leave in the system is kept out
//! of it: its System V segment is in an IPC namespace of its own and goes with it, other shared memory is in
//! its folder, and it has no Unix socket. Helpers that would do a query's work in other processes are off.
//!
//! Making it takes some seconds, without the node's CPU quota.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::super::run::{installed, run};
use super::{as_nobody, make_folder, own, write};
use crate::auction::{self, files};
use crate::cluster::{ClusterError, NodePlan, Place};

/// Where Debian keeps a folder for each version.
const VERSIONS: &str = "/usr/lib/postgresql";
const PACKAGE: &str = "postgresql";

/// A new and empty database.
pub(super) fn command(
    plan: &NodePlan,
    address: SocketAddr,
    place: &Place,
    folder: &Path,
) -> Result<Command, ClusterError> {
    let (initdb, postgres) = (program("initdb")?, program("postgres")?);
    if folder.exists() {
        std::fs::remove_dir_all(folder).map_err(ClusterError::file("remove", folder))?;
    }
    make_folder(folder)?;
    let data = folder.join("data");
    make_folder(&data)?;
    own(&data)?;
    let mut init = as_nobody(place, &initdb);
    init.current_dir(folder).arg("-D").arg(&data).args([
        "--username",
        files::USER,
        "--auth=trust",
        "--encoding=UTF8",
        "--locale=C",
        "--no-sync",
        "--no-instructions",
    ]);
    run(&mut init)?;
    write(
        &data.join("postgresql.conf"),
        &files::postgresql(address, plan.workers),
    )?;
    write(&data.join("pg_hba.conf"), files::ACCESS)?;
    write(&folder.join("schema.sql"), files::SCHEMA)?;
    write(&folder.join("data.sql"), files::DATA)?;
    let mut command = place.command("unshare");
    command.args(["--ipc", "--"]);
    super::nobody(&mut command);
    command.arg(postgres).arg("-D").arg(data);
    command.current_dir(folder);
    Ok(command)
}

/// Whether it takes connections; else why not.
pub(super) fn answers(address: SocketAddr) -> Result<(), String> {
    let ready = || -> Result<String, ClusterError> {
        let mut command = Command::new(program("pg_isready")?);
        command.args(connection(address));
        run(&mut command)
    };
    ready().map(drop).map_err(|error| error.to_string())
}

/// Makes the tables and fills them.
pub(super) fn fill(place: &Place, address: SocketAddr, folder: &Path) -> Result<(), ClusterError> {
    ask(
        place,
        address,
        "postgres",
        &format!("create database {}", files::USER),
    )?;
    for (file, sizes) in [("schema.sql", &[][..]), ("data.sql", &SIZES[..])] {
        let mut command = psql(place, address, files::USER)?;
        for (name, size) in sizes {
            command.arg("-v").arg(format!("{name}={size}"));
        }
        command.arg("-f").arg(folder.join(file));
        run(&mut command)?;
    }
    Ok(())
}

const SIZES: [(&str, u32); 6] = [
    ("members", auction::MEMBERS),
    ("items", auction::ITEMS),
    ("bids", auction::BIDS),
    ("comments", auction::COMMENTS),
    ("categories", auction::CATEGORIES),
    ("regions", auction::REGIONS),
];

/// Asks it something; what it answers, a line per row.
pub(in crate::cluster) fn ask(
    place: &Place,
    address: SocketAddr,
    database: &str,
    query: &str,
) -> Result<String, ClusterError> {
    run(psql(place, address, database)?.args(["-c", query]))
}

fn psql(place: &Place, address: SocketAddr, database: &str) -> Result<Command, ClusterError> {
    let mut command = place.command(program("psql")?);
    command.args(connection(address));
    command.args(["-U", files::USER, "-d", database]);
    command.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"]);
    Ok(command)
}

fn connection(address: SocketAddr) -> [String; 4] {
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    ["-h".into(), host, "-p".into(), port]
}

/// A program of the newest version that is installed.
fn program(name: &str) -> Result<PathBuf, ClusterError> {
    let entries = std::fs::read_dir(VERSIONS).into_iter().flatten().flatten();
    let number = |folder: &PathBuf| -> Option<u32> { folder.file_name()?.to_str()?.parse().ok() };
    let folders = entries.map(|entry| entry.path());
    let newest = folders
        .filter(|folder| folder.join("bin").join(name).is_file())
        .max_by_key(|folder| number(folder));
    let found = newest.map(|folder| folder.join("bin").join(name));
    found.or_else(|| installed(name)).ok_or_else(|| {
        ClusterError::Missing(format!("{name} is not installed (Debian: {PACKAGE})"))
    })
}
