//! Files and folders that a configuration names: keys and tokens, what is kept over a restart, the access log.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tidegate_proxy::{Journal, LogFormat, LogTarget, ProxyError, check_log_file};
use tidegate_remote::clock;

use super::Diagnosis;
use crate::config::{Config, state_folder};
use crate::failure::Failure;
use crate::privilege::user_number;
use crate::state;

const DAY: Duration = Duration::from_secs(24 * 3600);
/// A secret that is older has been read by more people and backups than are known.
const SECRET_DAYS_MAX: u64 = 400;
/// Bytes that a disk should have left.
const ROOM_MIN: u64 = 16 << 20;

/// All of them.
pub(super) fn examine(config: &Config, file: &Path) -> Vec<Diagnosis> {
    let folder = file.parent().unwrap_or(Path::new(""));
    let mut all: Vec<_> = secrets(config)
        .iter()
        .filter_map(|path| About::of(&folder.join(path)))
        .map(|about| secret(&about))
        .collect();
    if config.front_end.is_some() {
        all.push(kept(config, file));
        all.extend(issued(config, file));
        all.push(log(config));
        let written = written(config, file);
        all.extend(written.iter().filter_map(|it| disk(it, room(it)?)));
    }
    all
}

/// Where a front-end writes while it runs.
fn written(config: &Config, file: &Path) -> Vec<PathBuf> {
    let front_end = config.front_end.as_ref();
    let state = state_folder::of(&config.file.state, file).ok().flatten();
    let issued = front_end.and_then(|it| it.acme.as_ref());
    let log = front_end.map(|it| &it.log);
    let log = log.filter(|it| it.format != LogFormat::Off);
    let log = log.and_then(|it| match &it.target {
        LogTarget::File(path) => path.parent().map(Path::to_owned),
        LogTarget::Stdout | LogTarget::Journal(_) => None,
    });
    let issued = issued.map(|it| it.folder.clone());
    let mut all: Vec<_> = [state, issued, log].into_iter().flatten().collect();
    all.sort();
    all.dedup();
    all
}

/// Bytes that are left there for others than root; none where nothing is.
fn room(folder: &Path) -> Option<u64> {
    let room = rustix::fs::statvfs(folder).ok()?;
    Some(room.f_bavail.saturating_mul(room.f_frsize))
}

/// A disk that is as good as full.
fn disk(folder: &Path, room: u64) -> Option<Diagnosis> {
    let text = format!(
        "{}: {} KiB are left on its disk",
        folder.display(),
        room / 1024
    );
    (room < ROOM_MIN).then(|| {
        Diagnosis::warn(
            "disk",
            text,
            "room there: requests are served without it, lines of the access log and what was learned are lost",
        )
    })
}

/// Files that are for their owners alone. Those that others can read are no sound configuration.
fn secrets(config: &Config) -> Vec<PathBuf> {
    let file = &config.file;
    let of_nodes = file.node.value.iter();
    let of_nodes = of_nodes.filter_map(|node| node.load.value.key_file.value.clone());
    let checks = file.site.value.iter().flat_map(|site| &site.check.0);
    let checks = checks.chain(file.agent.value.iter().flat_map(|it| &it.check.0));
    let of_checks = checks.filter_map(|check| check.password_file.value.clone());
    let mut all: Vec<_> = [
        file.load.value.key_file.value.clone(),
        file.admin.value.token_file.value.clone(),
        file.culprits.value.peer_token_file.value.clone(),
        file.agent
            .value
            .as_ref()
            .map(|it| it.key_file.value.clone()),
    ]
    .into_iter()
    .flatten()
    .chain(of_nodes)
    .chain(of_checks)
    .collect();
    all.sort();
    all.dedup();
    all
}

/// What the file system says of a secret.
#[derive(Clone, Debug)]
struct About {
    path: PathBuf,
    mode: u32,
    owner: u32,
    /// Since it was last written.
    age: Duration,
}

impl About {
    fn of(path: &Path) -> Option<Self> {
        let about = path.metadata().ok()?;
        let written = Duration::from_secs(about.mtime().try_into().unwrap_or_default());
        Some(Self {
            path: path.to_owned(),
            mode: about.mode() & 0o7777,
            owner: about.uid(),
            age: clock::unix().saturating_sub(written),
        })
    }
}

fn secret(about: &About) -> Diagnosis {
    const CHECK: &str = "secret";
    let days = about.age.as_secs() / DAY.as_secs();
    let text = format!(
        "{}: mode {:04o}, of user {}, {days} days old",
        about.path.display(),
        about.mode,
        about.owner
    );
    match days <= SECRET_DAYS_MAX {
        true => Diagnosis::ok(CHECK, text),
        false => Diagnosis::warn(
            CHECK,
            text,
            "a new one: docs/ha.md says how keys change without a gap",
        ),
    }
}

fn kept(config: &Config, file: &Path) -> Diagnosis {
    const CHECK: &str = "state";
    match state_note(config, file) {
        Some(why) => Diagnosis::warn(
            CHECK,
            why,
            "`directory` in [state], a folder of the front-end's user alone, or `keep = false` there",
        ),
        None => Diagnosis::ok(CHECK, "what is learned can be kept, if it is to be"),
    }
}

fn issued(config: &Config, file: &Path) -> Option<Diagnosis> {
    const CHECK: &str = "acme";
    config.front_end.as_ref()?.acme.as_ref()?;
    Some(match acme_note(config, file) {
        Some(why) => Diagnosis::warn(
            CHECK,
            why,
            "`state` in [acme], a folder of the front-end's user alone",
        ),
        None => Diagnosis::ok(CHECK, "certificates that come can be kept"),
    })
}

fn log(config: &Config) -> Diagnosis {
    const CHECK: &str = "access log";
    const REMEDY: &str =
        "a file of the front-end's user in a folder of that user (docs/access-log.md)";
    match log_note(config) {
        Ok(None) => Diagnosis::ok(CHECK, "can be written, if there is to be one"),
        Ok(Some(why)) => Diagnosis::warn(CHECK, why, REMEDY),
        Err(Failure::Failed(why)) => Diagnosis::fail(CHECK, why, REMEDY),
        Err(why) => Diagnosis::fail(CHECK, format!("{why:?}"), REMEDY),
    }
}

/// Why what a front-end learns is not kept over a restart, if it was meant to be. It would run nevertheless.
pub(crate) fn state_note(config: &Config, file: &Path) -> Option<String> {
    config.front_end.as_ref()?.culprits.as_ref()?;
    let why = match state_folder::of(&config.file.state, file) {
        Ok(folder) => {
            let folder = folder?;
            match user_number(config.file.process.user.value.as_deref()) {
                Ok(user) => state::unfit(&folder, user)?,
                Err(why) => why.to_string(),
            }
        }
        Err(why) => why,
    };
    Some(format!("[state]: {why}"))
}

/// Whether two paths lead to one folder that is there.
fn is_one_folder(one: &Path, other: &Path) -> bool {
    let place = |path: &Path| path.canonicalize().ok();
    place(one).is_some_and(|it| Some(it) == place(other))
}

/// Why certificates that come by themselves cannot be kept.
pub(crate) fn acme_note(config: &Config, file: &Path) -> Option<String> {
    let folder = &config.front_end.as_ref()?.acme.as_ref()?.folder;
    let why = match user_number(config.file.process.user.value.as_deref()) {
        Ok(user) => state::unfit(folder, user),
        Err(why) => Some(why.to_string()),
    };
    let learned = || state_folder::of(&config.file.state, file).ok().flatten();
    let is_taken = || learned().is_some_and(|it| is_one_folder(&it, folder));
    let why = why.or_else(|| {
        is_taken().then(|| {
            format!(
                "{} is the folder of [state] as well: name another",
                folder.display()
            )
        })
    })?;
    Some(format!("[acme]: {why}"))
}

/// Why a front-end cannot open its access log as things are here. The file itself may be one that it refuses.
pub(crate) fn log_note(config: &Config) -> Result<Option<String>, Failure> {
    let log = config.front_end.as_ref().map(|it| &it.log);
    let Some(log) = log.filter(|it| it.format != LogFormat::Off) else {
        return Ok(None);
    };
    let checked = match &log.target {
        LogTarget::Stdout => Ok(()),
        LogTarget::Journal(path) => Journal::check(path),
        LogTarget::File(path) => match user_number(config.file.process.user.value.as_deref()) {
            Ok(user) => check_log_file(path, user),
            Err(why) => return Ok(Some(format!("[log]: {why}"))),
        },
    };
    let Err(why) = checked else { return Ok(None) };
    // Another machine or user may have such a folder.
    let is_absent = matches!(
        why.kind(),
        ErrorKind::NotFound | ErrorKind::PermissionDenied
    );
    let why = ProxyError::Log(why).to_string();
    match is_absent {
        true => Ok(Some(format!("[log]: {why}"))),
        false => Err(Failure::Failed(why)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn an_old_secret_is_to_be_changed() {
        let about = |days: u32| About {
            path: "/etc/tidegate/master.key".into(),
            mode: 0o600,
            owner: 0,
            age: DAY * days,
        };
        let young = secret(&about(12));
        assert_eq!(young.level, Level::Ok);
        assert_eq!(
            young.text,
            "/etc/tidegate/master.key: mode 0600, of user 0, 12 days old"
        );
        assert_eq!(secret(&about(401)).level, Level::Warn);
    }

    #[test]
    fn a_full_disk_is_a_warning() {
        let folder = Path::new("/var/lib/tidegate");
        assert!(disk(folder, ROOM_MIN).is_none());
        let full = disk(folder, 4096).unwrap();
        assert_eq!(full.level, Level::Warn);
        assert_eq!(full.text, "/var/lib/tidegate: 4 KiB are left on its disk");
        assert!(room(Path::new("/")).is_some());
        assert_eq!(room(Path::new("/nothing/is/here")), None);
    }
}
