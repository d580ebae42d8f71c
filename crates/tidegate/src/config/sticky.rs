//! Sessions of a site that stick to their nodes: `[[site]] sticky`, and what is wrong with it.

use std::path::PathBuf;
use std::time::Duration;

use tidegate_proxy::{StickyBy, StickyConfig, StickyCookie, StickySecret};
use tidegate_remote::udp::key_file::Master;

use super::problem::Problem;
use super::setting::{At, names, table};
use super::site::Checker;

/// How far a session's node may be loaded beside the others.
const LOAD_BOUND_MAX: f32 = 100.0;
/// How long a cookie is kept; browsers keep none for longer than 400 days.
const MAX_AGE_MIN: Duration = Duration::from_secs(1);
const MAX_AGE_MAX: Duration = Duration::from_secs(400 * 24 * 3600);
/// What the key of cookies is derived for: no node has such a name.
const KEY_LABEL: &str = "sticky cookies 1";

names! {
    /// What the node of a session follows from.
    pub(crate) enum HashName as "hash" {
        /// The client's address.
        Source = "source",
        /// The value of a field.
        Header = "header",
    }
}

table! {
    /// Requests of a session go to the same node, as far as its load allows
    /// ([sticky.md](sticky.md)): by a cookie that Tidegate sets (`cookie`), or by a hash (`hash`).
    pub(crate) struct StickyFile {
        /// The cookie's name. It is set with the first answer of a session, and anew when the session is at another
        /// node: `Path=/; HttpOnly; SameSite=Lax`, and `Secure` over TLS.
        cookie: Option<String> = None;
        /// How long browsers keep the cookie from then on; not set: until they are closed.
        max_age: Option<Duration> = None, in Some(MAX_AGE_MIN)..=Some(MAX_AGE_MAX);
        /// A master of `tidegate key new`, the same at all front-ends: no client can make a cookie's value without it. Not set:
        /// values are made of the site's and the node's names alone. Relative to this file.
        key_file: Option<PathBuf> = None;
        /// What the node is worked out from: the client's address (`source`), or a field of the request's head
        /// (`header`).
        hash: Option<HashName> = None;
        /// The field; requests without it are of no session.
        header: Option<String> = None;
        /// How many requests a session's node may have, over what is its share of all; more go elsewhere.
        load_bound: f32 = StickyConfig::LOAD_BOUND, in 1.0..=LOAD_BOUND_MAX;
    }
}

/// What values of cookies are made with, from these masters.
pub(super) fn secrets(masters: &[Master]) -> Vec<StickySecret> {
    let derived =
        |master: &Master| StickySecret::new(master.derive(KEY_LABEL).to_line().as_bytes());
    masters.iter().map(derived).collect()
}

impl Checker<'_, '_> {
    pub(super) fn sticky(
        &mut self,
        file: &StickyFile,
        at: &At<Option<StickyFile>>,
        secrets: Vec<StickySecret>,
    ) -> Option<StickyConfig> {
        let by = match (&file.cookie.value, file.hash.value) {
            (Some(name), None) => {
                let name = self.cookie(name, file.cookie.place());
                let other = self.means_nothing(&file.header, "`header`", "`hash = \"header\"`");
                let name = name.filter(|_| other)?;
                StickyBy::Cookie(StickyCookie {
                    name,
                    secrets,
                    max_age: file.max_age.value,
                })
            }
            (None, Some(hash)) => {
                let key_file = self.means_nothing(&file.key_file, "`key_file`", "`cookie`");
                let max_age = self.means_nothing(&file.max_age, "`max_age`", "`cookie`");
                let by = self.hash(file, hash);
                by.filter(|_| key_file && max_age)?
            }
            (Some(_), Some(_)) => {
                self.problems.push(
                    Problem::new(
                        file.hash.place(),
                        "sessions stick by a cookie or by a hash, not both",
                        "either this",
                    )
                    .context(file.cookie.place(), "or this"),
                );
                return None;
            }
            (None, None) => {
                let message = "nothing says by what sessions stick";
                self.problem(at.place(), message, "give it `cookie` or `hash`");
                return None;
            }
        };
        Some(StickyConfig {
            by,
            load_bound: file.load_bound.value,
        })
    }

    fn hash(&mut self, file: &StickyFile, hash: HashName) -> Option<StickyBy> {
        match (hash, &file.header.value) {
            (HashName::Source, _) => self
                .means_nothing(&file.header, "`header`", "`hash = \"header\"`")
                .then_some(StickyBy::Source),
            (HashName::Header, Some(name)) => {
                let name = self.header(name, file.header.place())?;
                Some(StickyBy::Header(name))
            }
            (HashName::Header, None) => {
                let message = "a hash of which field?";
                self.problem(file.hash.place(), message, "give it `header` as well");
                None
            }
        }
    }

    /// Whether a key is not set that belongs to something else.
    fn means_nothing<T>(&mut self, key: &At<Option<T>>, name: &str, of: &str) -> bool {
        if key.value.is_some() {
            let message = format!("{name} belongs to {of}");
            self.problem(key.place(), message, "means nothing here");
        }
        key.value.is_none()
    }
}
