//! Files that are written whatever is in them: the access log, an agent's targets, the file of throttles. None of them may be
//! another file of this configuration: lines would be appended to a key, or a template would take its place.
//!
//! Two paths are one file if they lead to the same place, with links followed, or to the same inode of the same device. A device,
//! a pipe or a folder has its own checks. Failure case: a file that comes to be another one after this was looked at.

use std::collections::BTreeSet;
use std::fs;
use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::agent_moves::SiteHookFile;
use super::discover::DiscoverFile;
use super::file::{AgentFile, ConfigFile};
use super::problem::{Problem, Problems};
use super::setting::At;
use super::state_folder;
use super::tls::{NodeTlsFile, TlsFile};

/// Links that are followed to a file that is not there yet, as many as the kernel follows.
const LINKS_MAX: usize = 40;

/// A file that the configuration names.
#[derive(Clone, Debug)]
struct Named {
    path: PathBuf,
    /// Where it is named; nowhere if that follows from something else.
    at: Option<Range<usize>>,
    what: &'static str,
}

/// Where a path leads.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    real: PathBuf,
    /// Device and inode of what is there.
    inode: Option<(u64, u64)>,
}

impl Place {
    /// None: what is there is no regular file.
    fn of(path: &Path) -> Option<Self> {
        let about = fs::metadata(path).ok();
        if about.as_ref().is_some_and(|it| !it.is_file()) {
            return None;
        }
        Some(Self {
            real: real(path),
            inode: about.map(|it| (it.dev(), it.ino())),
        })
    }

    fn is(&self, other: &Self) -> bool {
        let same_inode = self.inode.is_some() && self.inode == other.inode;
        same_inode || self.real == other.real
    }
}

/// Whether two paths lead to one file.
pub(crate) fn is_one(one: &Path, other: &Path) -> bool {
    let places = Place::of(one).zip(Place::of(other));
    places.is_some_and(|(one, other)| one.is(&other))
}

/// The path without links, also if nothing is there yet.
fn real(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new(".")).to_owned();
        match (fs::canonicalize(&path), fs::read_link(&path)) {
            (Ok(real), _) => return real,
            (Err(_), Ok(target)) => path = folder.join(target),
            (Err(_), Err(_)) => {
                let folder = fs::canonicalize(&folder).unwrap_or(folder);
                return path.file_name().map_or(path.clone(), |it| folder.join(it));
            }
        }
    }
    path
}

/// Notes each file that would be written over another one. `own` is the configuration file, if it is one.
pub(super) fn check(file: &ConfigFile, folder: &Path, own: Option<&Path>, problems: &mut Problems) {
    folders(file, folder, problems);
    let names = Names { folder };
    let written = names.written(file);
    let targets = names.targets(file);
    if written.is_empty() && targets.is_empty() {
        return;
    }
    let mut read = names.read(file);
    read.extend(own.into_iter().flat_map(|own| implied(file, own)));
    // Nodes may share a file.
    let mut seen = BTreeSet::new();
    read.retain(|it| seen.insert(it.path.clone()));
    let placed = |all: Vec<Named>| -> Vec<_> {
        let placed = all.into_iter().map(|it| (Place::of(&it.path), it));
        placed
            .filter_map(|(place, it)| Some((place?, it)))
            .collect()
    };
    let (written, targets, read) = (placed(written), placed(targets), placed(read));
    for (index, (place, it)) in written.iter().enumerate() {
        let others = read.iter().chain(&targets).chain(&written[..index]);
        note(place, it, others, problems);
    }
    // Sites may have one target: only one of them is set up at a time.
    for (place, it) in &targets {
        note(place, it, read.iter(), problems);
    }
}

fn note<'a>(
    place: &Place,
    it: &Named,
    mut others: impl Iterator<Item = &'a (Place, Named)>,
    problems: &mut Problems,
) {
    let Some((_, other)) = others.find(|(other, _)| place.is(other)) else {
        return;
    };
    let message = format!("{} and {} are one file", it.what, other.what);
    let at = it.at.clone().unwrap_or(0..0);
    let label = "expected a file of its own";
    let problem = Problem::new(at, message, label);
    problems.push(match &other.at {
        Some(at) => problem.context(at.clone(), "the same file"),
        None => problem,
    });
}

/// The folder of certificates is for nothing else: what is kept over a restart has one of its own.
fn folders(file: &ConfigFile, folder: &Path, problems: &mut Problems) {
    let Some(acme) = &file.acme.value else { return };
    // Of a file in this folder, whatever it is called.
    let state = state_folder::of(&file.state, &folder.join("tidegate.toml"));
    let Ok(Some(state)) = state else { return };
    if real(&state) != real(&folder.join(&acme.state.value)) {
        return;
    }
    let message = "`state` of [acme] and the folder of [state] are one";
    let problem = Problem::new(acme.state.place(), message, "expected a folder of its own");
    problems.push(match &file.state.directory.at {
        Some(at) => problem.context(at.clone(), "the same folder"),
        None => problem.help("that of [state] is given by the service manager (STATE_DIRECTORY)"),
    });
}

/// Files that no key names.
fn implied(file: &ConfigFile, own: &Path) -> Vec<Named> {
    let named = |path: PathBuf, what| Named {
        path,
        at: None,
        what,
    };
    let mut all = vec![named(own.to_owned(), "this configuration file")];
    // Why the service manager's is not used is said at the start.
    if let Ok(Some(folder)) = state_folder::of(&file.state, own) {
        let kept = state_folder::files(&folder);
        all.extend(kept.map(|path| named(path, "a file of the state folder")));
    }
    all
}

/// Paths are relative to this folder.
struct Names<'a> {
    folder: &'a Path,
}

impl Names<'_> {
    fn named(&self, path: &Path, at: Option<Range<usize>>, what: &'static str) -> Named {
        Named {
            path: self.folder.join(path),
            at,
            what,
        }
    }

    fn always(&self, path: &At<PathBuf>, what: &'static str) -> Option<Named> {
        Some(self.named(&path.value, path.at.clone(), what))
    }

    fn if_set(&self, path: &At<Option<PathBuf>>, what: &'static str) -> Option<Named> {
        let set = path.value.as_deref()?;
        Some(self.named(set, path.at.clone(), what))
    }

    /// What a front-end writes.
    fn written(&self, file: &ConfigFile) -> Vec<Named> {
        let all = [
            self.if_set(&file.admin.overrides_file, "the file of throttles"),
            self.if_set(&file.log.file, "the access log"),
        ];
        all.into_iter().flatten().collect()
    }

    /// What an agent writes when its node moves.
    fn targets(&self, file: &ConfigFile) -> Vec<Named> {
        let hooks = file.agent.value.iter().flat_map(hooks);
        hooks
            .filter_map(|it| self.if_set(&it.target, "a hook's target"))
            .collect()
    }

    /// What else the configuration names.
    fn read(&self, file: &ConfigFile) -> Vec<Named> {
        let moves = &file.reconfigure;
        let all = [
            self.if_set(&file.load.key_file, "the key file of [load]"),
            self.if_set(&file.admin.token_file, "the token file of [admin]"),
            self.if_set(
                &file.admin.read_token_file,
                "the token file of [admin] for those that look",
            ),
            self.if_set(
                &file.culprits.peer_token_file,
                "the token file of [culprits]",
            ),
            self.if_set(&file.traces.headers_file, "the headers of [traces]"),
            self.if_set(&file.traces.ca_file, "the certificates of [traces]"),
            self.if_set(&file.events.headers_file, "the headers of [events]"),
            self.if_set(&file.events.ca_file, "the certificates of [events]"),
            self.if_set(&moves.home_key_file, "the key file of [reconfigure]"),
            self.if_set(&moves.home_ca_file, "the certificates of [reconfigure]"),
        ];
        let nodes = file.node.iter().flat_map(|it| {
            let load = &it.load;
            [
                self.if_set(&load.key_file, "a node's key file"),
                self.if_set(&load.path, "a node's shared memory"),
            ]
        });
        let bodies = file.site.iter();
        let bodies = bodies.map(|it| self.if_set(&it.admission.body, "a site's answer"));
        let sticky = file.site.iter().filter_map(|it| it.sticky.value.as_ref());
        let cookies =
            sticky.map(|it| self.if_set(&it.key_file, "the key file of a site's cookies"));
        let checks = file.site.iter().flat_map(|it| &it.check.0);
        let passwords =
            checks.map(|it| self.if_set(&it.password_file, "the password file of a check"));
        let sources = file.discover.iter().flat_map(|it| self.source(it));
        let agent = file.agent.value.iter().flat_map(|it| self.agent(it));
        let tls = file.listener.iter().filter_map(|it| it.tls.value.as_ref());
        let tls = tls.flat_map(|it| self.tls(it));
        let to_nodes = file.site.iter().filter_map(|it| it.node_tls.value.as_ref());
        let tls = tls.chain(to_nodes.flat_map(|it| self.node_tls(it)));
        let agent = agent.chain(tls);
        let named = all.into_iter().chain(nodes).chain(bodies);
        let named = named.chain(cookies).chain(passwords);
        named.flatten().chain(sources).chain(agent).collect()
    }

    fn tls(&self, it: &TlsFile) -> Vec<Named> {
        const CERTIFICATE: &str = "a certificate of a [[listener]]";
        const KEY: &str = "a key of a [[listener]]";
        const OCSP: &str = "an OCSP response of a [[listener]]";
        let mut all = vec![
            self.if_set(&it.certificate, CERTIFICATE),
            self.if_set(&it.key, KEY),
            self.if_set(&it.ocsp, OCSP),
        ];
        for it in it.certificates.iter() {
            all.push(self.always(&it.certificate, CERTIFICATE));
            all.push(self.always(&it.key, KEY));
            all.push(self.if_set(&it.ocsp, OCSP));
        }
        if let Some(clients) = &it.client_certificates.value {
            all.push(self.always(&clients.authorities, "authorities of a [[listener]]"));
        }
        all.into_iter().flatten().collect()
    }

    fn node_tls(&self, it: &NodeTlsFile) -> Vec<Named> {
        let all = [
            self.if_set(&it.authorities, "authorities of a site's nodes"),
            self.if_set(&it.certificate, "a certificate for a site's nodes"),
            self.if_set(&it.key, "a key for a site's nodes"),
        ];
        all.into_iter().flatten().collect()
    }

    fn source(&self, it: &DiscoverFile) -> Vec<Named> {
        const TOKEN: &str = "the token file of a [[discover]]";
        const CERTIFICATES: &str = "the certificates of a [[discover]]";
        let mut all = vec![
            self.if_set(&it.file, "the file of a [[discover]]"),
            self.if_set(&it.load.key_file, "the key file of a [[discover]]"),
        ];
        if let Some(api) = &it.kubernetes.value {
            all.push(self.always(&api.token_file, TOKEN));
            all.push(self.always(&api.ca_file, CERTIFICATES));
        }
        if let Some(api) = &it.consul.value {
            all.push(self.if_set(&api.token_file, TOKEN));
            all.push(self.if_set(&api.ca_file, CERTIFICATES));
        }
        all.into_iter().flatten().collect()
    }

    fn agent(&self, it: &AgentFile) -> Vec<Named> {
        let mut all = vec![
            self.always(&it.key_file, "the key file of [agent]"),
            self.if_set(&it.shm, "the shared memory of [agent]"),
        ];
        let passwords = it.check.0.iter();
        all.extend(
            passwords
                .map(|check| self.if_set(&check.password_file, "the password file of a check")),
        );
        for hook in hooks(it) {
            all.push(self.if_set(&hook.template, "a hook's template"));
            all.extend(hook.commands.iter().map(|command| {
                let program = command.value.first()?;
                Some(self.named(program.as_ref(), command.at.clone(), "a hook's program"))
            }));
        }
        if let Some(moves) = &it.moves.value
            && let Some(state) = &moves.state.value
        {
            let kept = tidegate_node::kept_files(state);
            let at = &moves.state.at;
            let named =
                |path: PathBuf| self.named(&path, at.clone(), "a file of [agent.moves] `state`");
            all.extend(kept.map(|path| Some(named(path))));
        }
        all.into_iter().flatten().collect()
    }
}

fn hooks(agent: &AgentFile) -> impl Iterator<Item = &SiteHookFile> {
    let moves = agent.moves.value.iter();
    moves.flat_map(|it| it.site.iter().map(|site| &site.value))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_file_is_known_by_its_place_and_by_its_inode() {
        let folder = std::env::temp_dir().join(format!("tidegate-own-{}", std::process::id()));
        fs::create_dir_all(folder.join("in")).unwrap();
        let at = |name: &str| folder.join(name);
        fs::write(at("key"), "").unwrap();
        fs::hard_link(at("key"), at("hard")).unwrap();
        symlink("key", at("soft")).unwrap();
        symlink("in/none", at("dangling")).unwrap();
        symlink("round", at("round")).unwrap();
        symlink(".", at("here")).unwrap();
        fs::write(at("other"), "").unwrap();
        let same = |one: &str, other: &str| is_one(&at(one), &at(other));
        for (one, other) in [
            ("key", "key"),
            ("key", "hard"),
            ("key", "soft"),
            ("key", "here/in/../soft"),
            ("none", "here/none"),
            ("in/none", "dangling"),
        ] {
            assert!(same(one, other) && same(other, one), "{one} {other}");
        }
        for (one, other) in [
            ("key", "other"),
            ("none", "in/none"),
            ("round", "key"),
            ("in", "in"),
        ] {
            assert!(!same(one, other) && !same(other, one), "{one} {other}");
        }
        assert_eq!(Place::of(Path::new("/dev/null")), None);
        fs::remove_dir_all(&folder).unwrap();
    }
}
