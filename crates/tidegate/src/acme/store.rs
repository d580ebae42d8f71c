//! Account and certificates in a folder, for the process's user alone; one front-end at a time writes there.
//!
//! | file | what is in it |
//! |---|---|
//! | `account-HASH.json` | the account at a directory, with its key |
//! | `NAME-HASH.pem` | key and chain of a certificate; the hash is of its names and the directory |
//! | `lock` | nothing: locked by the front-end that orders |
//!
//! Key and chain are one file, so that they always fit.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use sha2::{Digest as _, Sha256};
use tidegate_culprits::live::front_end::KeptFile as _;
use tidegate_proxy::{Certificate, IssuedCertificate};
use tidegate_remote::clock;

use super::order::IssuedPem;
use crate::config::AcmeConfig;
use crate::secret_file;
use crate::state::{StateFile, StateFolder, Untaken};

/// Bytes of a file here.
const FILE_MAX: usize = 1 << 20;
/// Files that are looked at for one that stands in.
const FILES_MAX: usize = 1000;
/// Seconds that an authority's clock may go ahead of this one.
const CLOCKS_APART: u64 = 24 * 3600;
/// Letters of the first name in a file's name.
const NAME_LETTERS: usize = 100;

/// See the module.
pub(super) struct Store {
    folder: PathBuf,
    directory: String,
}

/// The folder is this front-end's, until this is dropped.
pub(super) struct OwnedFolder {
    store: Store,
    folder: StateFolder,
    account: Mutex<AccountFile>,
}

struct AccountFile {
    file: StateFile,
    /// The authority does not know what is in it.
    is_void: bool,
}

impl Store {
    pub(super) fn new(config: &AcmeConfig) -> Self {
        Self {
            folder: config.folder.clone(),
            directory: config.directory.clone(),
        }
    }

    /// The first bytes of a digest, in hexadecimal.
    fn hash(&self, of: &str) -> String {
        let digest = Sha256::digest(format!("{}\n{of}", self.directory));
        data_encoding::HEXLOWER.encode(&digest[..8])
    }

    fn file(&self, wanted: &IssuedCertificate) -> String {
        let first = wanted.names().first().map_or("", |it| it);
        let hash = self.hash(&super::key(wanted));
        format!("{first:.NAME_LETTERS$}-{hash}.pem")
    }

    /// The certificate that is kept for these names; none if there is none.
    ///
    /// # Errors
    /// What is there cannot be used, and why.
    pub(super) fn certificate(
        &self,
        wanted: &IssuedCertificate,
    ) -> Result<Option<Arc<Certificate>>, String> {
        let path = self.folder.join(self.file(wanted));
        let unusable = |why: String| format!("cannot use {}: {why}", path.display());
        let Some(pem) = secret_file::read_kept(&path, FILE_MAX).map_err(unusable)? else {
            return Ok(None);
        };
        let made = Certificate::from_pem(&pem, &pem, None);
        let made = made.map_err(|error| unusable(error.to_string()))?;
        if let Some(name) = (wanted.names().iter()).find(|it| !made.names().contains(it)) {
            return Err(unusable(format!("it is not for {name}")));
        }
        if made.valid().start > clock::unix().as_secs().saturating_add(CLOCKS_APART) {
            return Err(unusable("it is not valid yet".into()));
        }
        Ok(Some(Arc::new(made)))
    }

    /// All certificates that are kept and can be used, whatever they are for; of many files the first.
    pub(super) fn all(&self) -> Vec<Arc<Certificate>> {
        let entries = std::fs::read_dir(&self.folder).into_iter().flatten();
        let paths = entries.take(FILES_MAX).flatten().map(|entry| entry.path());
        let kept = paths.filter(|path| path.extension().is_some_and(|it| it == "pem"));
        let read = kept.filter_map(|path| {
            let pem = secret_file::read_kept(&path, FILE_MAX).ok()??;
            Certificate::from_pem(&pem, &pem, None).ok().map(Arc::new)
        });
        read.collect()
    }

    /// Takes the folder.
    ///
    /// # Errors
    /// It is of no use, or another front-end has it.
    pub(super) fn take(self) -> Result<OwnedFolder, String> {
        let folder = StateFolder::new(self.folder.clone());
        let name = format!("account-{}.json", self.hash("account"));
        let mut account = StateFile::new(&folder, &name);
        account.take().map_err(|why| match why {
            Untaken::Unfit(why) => why,
            Untaken::Elsewhere(_) => format!(
                "another front-end orders certificates for {}: this one shows what it finds there",
                self.folder.display()
            ),
        })?;
        Ok(OwnedFolder {
            store: self,
            folder,
            account: Mutex::new(AccountFile {
                file: account,
                is_void: false,
            }),
        })
    }
}

impl OwnedFolder {
    /// The account that is kept; none if there is none.
    pub(super) fn account(&self) -> Result<Option<Vec<u8>>, String> {
        let account = self.account.lock().unwrap_or_else(PoisonError::into_inner);
        match account.is_void {
            true => Ok(None),
            false => account.file.read(FILE_MAX),
        }
    }

    pub(super) fn keep_account(&self, bytes: &[u8]) -> Result<(), String> {
        let mut account = self.account.lock().unwrap_or_else(PoisonError::into_inner);
        account.file.write(bytes)?;
        account.is_void = false;
        Ok(())
    }

    /// What is kept is as if it were not there, until another one is.
    pub(super) fn forget_account(&self) {
        let mut account = self.account.lock().unwrap_or_else(PoisonError::into_inner);
        account.is_void = true;
    }

    pub(super) fn keep(&self, wanted: &IssuedCertificate, pem: &IssuedPem) -> Result<(), String> {
        let mut file = StateFile::new(&self.folder, &self.store.file(wanted));
        file.write(pem.text().as_bytes())
    }
}
