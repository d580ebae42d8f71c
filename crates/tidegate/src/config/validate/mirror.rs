//! Copies of requests for another site: which site that is, and that it can take them.

use super::super::file::{ConfigFile, SiteFile};
use super::super::setting::unknown_name;
use super::Checker;

/// Whether some route's requests are copied for the site.
pub(super) fn is_mirrored(file: &ConfigFile, site: &SiteFile) -> bool {
    let mut routes = file.site.iter().flat_map(|it| it.route.iter());
    routes.any(|route| {
        let mirror = route.mirror.value.as_ref();
        mirror.is_some_and(|it| it.to.value == site.name.value)
    })
}

impl Checker<'_> {
    /// See the module.
    pub(super) fn mirrors(&mut self, file: &ConfigFile) {
        for site in &file.site.value {
            let mirrors = site.route.iter().filter_map(|it| it.mirror.value.as_ref());
            for mirror in mirrors {
                let (name, at) = (&mirror.to.value, mirror.to.place());
                let names = file.site.iter().map(|it| it.name.value.as_str());
                if !names.clone().any(|it| it == name) {
                    let problem = unknown_name(at, "site", name, names);
                    self.problems.push(problem);
                } else if *name == site.name.value {
                    let message = "a site gets no copies of its own requests";
                    self.problem(at, message, "name another site");
                } else if file
                    .listener
                    .iter()
                    .any(|it| it.tcp_site.value.as_ref() == Some(name))
                {
                    let message = format!("site `{name}` gets connections, and no requests");
                    self.problem(at, message, "name a site of requests");
                }
            }
        }
    }
}
