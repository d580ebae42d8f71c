//! The files of `assets/auction/`: pages, tables and settings, with their holes filled.
//!
//! A hole is `{name}`. Other braces stay, as settings of nginx need them.

use std::net::SocketAddr;
use std::path::Path;

/// Connections that the database takes beyond those of the site's workers: for those that look.
const SPARE_CONNECTIONS: u32 = 10;

/// Tables.
pub const SCHEMA: &str = include_str!("../../assets/auction/schema.sql");
/// What is in them.
pub const DATA: &str = include_str!("../../assets/auction/data.sql");
/// What may connect to the database.
pub const ACCESS: &str = include_str!("../../assets/auction/pg_hba.conf");
/// All pages: the way in, and what they show.
pub const PAGES: [(&str, &str); 2] = [
    ("index.php", include_str!("../../assets/auction/index.php")),
    ("pages.php", include_str!("../../assets/auction/pages.php")),
];
/// Starts both halves of the web server.
pub const START: &str = include_str!("../../assets/auction/start.sh");

/// The database's user and its name.
pub const USER: &str = "auction";

/// Settings of the database for so many workers of the site.
#[must_use]
pub fn postgresql(address: SocketAddr, workers: u32) -> String {
    let text = include_str!("../../assets/auction/postgresql.conf");
    let connections = (workers + SPARE_CONNECTIONS).to_string();
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    filled(
        text,
        &[
            ("host", &host),
            ("port", &port),
            ("connections", &connections),
        ],
    )
}

/// Settings of PHP-FPM with so many workers, before this database.
#[must_use]
pub fn php_fpm(folder: &Path, workers: u32, database: SocketAddr) -> String {
    let text = include_str!("../../assets/auction/php-fpm.conf");
    let (host, port) = (database.ip(), database.port());
    let database = format!("host={host} port={port} dbname={USER} user={USER}");
    let folder = folder.display().to_string();
    let workers = workers.to_string();
    filled(
        text,
        &[
            ("folder", &folder),
            ("workers", &workers),
            ("database", &database),
        ],
    )
}

/// Settings of nginx.
#[must_use]
pub fn nginx(folder: &Path, address: SocketAddr) -> String {
    let text = include_str!("../../assets/auction/nginx.conf");
    let (folder, address) = (folder.display().to_string(), address.to_string());
    filled(text, &[("folder", &folder), ("address", &address)])
}

fn filled(text: &str, holes: &[(&str, &str)]) -> String {
    holes.iter().fold(text.to_owned(), |text, (name, value)| {
        text.replace(&format!("{{{name}}}"), value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_hole_is_left_in_any_settings() {
        let folder = Path::new("/run/site");
        let database = SocketAddr::from(([10, 77, 0, 10], 5432));
        let web = SocketAddr::from(([10, 77, 0, 11], 8080));
        let all = [
            postgresql(database, 64),
            php_fpm(folder, 64, database),
            nginx(folder, web),
        ];
        for text in &all {
            for name in [
                "{folder}",
                "{host}",
                "{port}",
                "{connections}",
                "{workers}",
                "{database}",
                "{address}",
            ] {
                assert!(!text.contains(name), "{name} in {text}");
            }
        }
        assert!(all[0].contains("max_connections = 74\n"));
        assert!(all[1].contains("host=10.77.0.10 port=5432 dbname=auction user=auction"));
        assert!(all[2].contains("listen 10.77.0.11:8080 ") && all[2].contains("location / {"));
    }
}
