//! The certificate that front-ends show, on the curve P-256 and signed by itself: clients of experiments ask nothing of it.

use std::path::{Path, PathBuf};

use crate::cluster::Place;

use super::{FrontError, programs};

/// The program that makes it.
const PROGRAM: &str = "openssl";
/// Days that it holds.
const DAYS: &str = "30";

/// Its files.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// The certificate, PEM.
    pub chain: PathBuf,
    /// Its key, PEM.
    pub key: PathBuf,
    /// Both in one, for programs that want it so.
    pub both: PathBuf,
}

impl Certificate {
    /// Makes one in this folder, for all names.
    ///
    /// # Errors
    /// If openssl is absent or fails, or the files cannot be written.
    pub fn make(place: &Place, folder: &Path) -> Result<Self, FrontError> {
        let made = Self::in_folder(folder);
        let program = programs::find(PROGRAM).map_err(FrontError::Absent)?;
        let mut command = place.command(program);
        command.args(["req", "-x509", "-nodes", "-newkey", "ec"]);
        command.args(["-pkeyopt", "ec_paramgen_curve:P-256"]);
        command.args(["-days", DAYS, "-subj", "/CN=site"]);
        command.arg("-keyout").arg(&made.key);
        command.arg("-out").arg(&made.chain);
        let output = command.output().map_err(FrontError::file(&made.chain))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(FrontError::Absent(format!("{PROGRAM}: {}", said.trim())));
        }
        let read = |path: &Path| std::fs::read(path).map_err(FrontError::file(path));
        let both = [read(&made.chain)?, read(&made.key)?].concat();
        std::fs::write(&made.both, both).map_err(FrontError::file(&made.both))?;
        Ok(made)
    }

    /// Where its files are.
    pub(super) fn in_folder(folder: &Path) -> Self {
        Self {
            chain: folder.join("site.pem"),
            key: folder.join("site.key"),
            both: folder.join("site.both.pem"),
        }
    }
}
