//! Where events go besides the log and the admin interface.

use std::path::PathBuf;

use http::HeaderMap;
use http::uri::PathAndQuery;
use tidegate_discover::ServerUrl;

use super::file::ConfigFile;
use super::problem::Problem;
use super::setting::table;
use super::traces::host_name;
use super::validate::Checker;

table! {
    /// What happened: ejections, refusals that begin and end, throttles, moves, orders of operators ([api.md](api.md#get-apievents)).
    pub(crate) struct EventsFile {
        /// A server that events are sent to as they come, as JSON by POST, like `https://alerts.example:8443`. Not set: none.
        webhook: Option<ServerUrl> = None;
        /// The path there.
        path: String = "/".to_owned();
        /// Certificates, in PEM, of which one has signed that of an https server. Relative to this file.
        ca_file: Option<PathBuf> = None;
        /// File with headers for it, a line each: `authorization: Bearer …`. Only its owner may have access to it. They are sent over
        /// `https` only, or to this machine.
        headers_file: Option<PathBuf> = None;
        /// Send notes as well: what is neither trouble nor the end of it.
        notes: bool = false;
    }
}

/// Where events are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WebhookConfig {
    /// The server.
    pub(crate) server: ServerUrl,
    /// The path there.
    pub(crate) path: String,
    /// Certificates of which one has signed its own.
    pub(crate) ca_file: Option<PathBuf>,
    /// What is sent with each batch.
    pub(crate) headers: HeaderMap,
    /// Whether notes are sent as well.
    pub(crate) notes: bool,
    /// The name of this front-end's host, and its admin address.
    pub(crate) instance: String,
}

impl Checker<'_> {
    /// The webhook that is wanted; none if something is wrong with it.
    pub(super) fn events(&mut self, whole: &ConfigFile) -> Option<Option<WebhookConfig>> {
        let (file, admin) = (&whole.events, whole.admin.address.value);
        let Some(server) = &file.webhook.value else {
            let set = [
                file.headers_file
                    .is_some()
                    .then(|| file.headers_file.place()),
                file.ca_file.is_some().then(|| file.ca_file.place()),
                file.notes.value.then(|| file.notes.place()),
            ];
            for at in set.into_iter().flatten() {
                let label = "only with `webhook`, which says where to";
                self.problem(at, "no event is sent anywhere", label);
            }
            return Some(None);
        };
        if PathAndQuery::try_from(file.path.as_str()).is_err() || !file.path.starts_with('/') {
            let message = format!("`{}` is no path", file.path.value);
            self.problem(file.path.place(), message, "like \"/hooks/tidegate\"");
        }
        if server.is_tls() && file.ca_file.is_none() {
            let message = "https needs the certificates that have signed the server's";
            let problem = Problem::new(file.webhook.place(), message, "here");
            let how = "set `ca_file`: Debian has those of the public ones in /etc/ssl/certs/ca-certificates.crt";
            self.problems.push(problem.help(how));
        }
        let headers = self.headers(&file.headers_file)?;
        if !headers.is_empty() && server.is_plain_elsewhere() {
            let message = "headers are sent over https only, or to this machine";
            let problem = Problem::new(file.headers_file.place(), message, "these are not");
            self.problems
                .push(problem.context(file.webhook.place(), "plain http"));
        }
        Some(Some(WebhookConfig {
            server: server.clone(),
            path: file.path.value.clone(),
            ca_file: (file.ca_file.value.as_ref()).map(|path| self.path(path)),
            headers,
            notes: file.notes.value,
            instance: format!("{} {admin}", host_name()),
        }))
    }
}
