//! The admin interface: its address, and the tokens that it asks for.

use std::path::{Path, PathBuf};

use super::Checker;
use crate::config::Admin;
use crate::config::file::ConfigFile;
use crate::config::problem::Problem;
use crate::config::setting::At;
use crate::secret_file;
use crate::token::Token;

impl Checker<'_> {
    pub(super) fn admin(&mut self, file: &ConfigFile) -> Option<Admin> {
        let address = file.admin.address.value;
        let token = self.admin_token(&file.admin.token_file)?;
        let read_token = self.admin_token(&file.admin.read_token_file)?;
        if read_token.is_some() && token.is_none() {
            let at = file.admin.read_token_file.place();
            let message = "a token for those that look, and none for those that give orders";
            let problem = Problem::new(at, message, "here");
            self.problems
                .push(problem.help("set `token_file` in [admin]"));
            return None;
        }
        if read_token.is_some() && read_token == token {
            let at = file.admin.read_token_file.place();
            self.problem(
                at,
                "this token is that of `token_file`: it would give orders",
                "here",
            );
            return None;
        }
        if token.is_none() && !address.ip().is_loopback() {
            let at = file.admin.address.place();
            self.problems.push(
                Problem::new(
                    at,
                    format!("admin address {address} is open to others and asks for no token"),
                    "not a loopback address",
                )
                .help("set `token_file` in [admin], or use 127.0.0.1"),
            );
            return None;
        }
        Some(Admin {
            address,
            token,
            read_token,
        })
    }

    /// The token of a file, if one is named; none if it cannot be used.
    fn admin_token(&mut self, file: &At<Option<PathBuf>>) -> Option<Option<Token>> {
        let Some(path) = &file.value else {
            return Some(None);
        };
        match self.token(&self.path(path)) {
            Ok(token) => Some(Some(token)),
            Err(reason) => {
                let message = format!("cannot use this token file: {reason}");
                self.problem(file.place(), message, "here");
                None
            }
        }
    }

    fn token(&mut self, path: &Path) -> Result<Token, String> {
        let before = self.before.tokens.remove(path);
        let before = before.filter(|_| secret_file::is_denied(path));
        let token = match (Token::load(path), before) {
            (Err(_), Some(token)) => {
                self.unread.push(path.to_owned());
                token
            }
            (read, _) => read?,
        };
        self.tokens.insert(path.to_owned(), token.clone());
        Ok(token)
    }
}
