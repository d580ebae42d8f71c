//! Certificates that come by themselves: an ACME authority (RFC 8555) issues those of listeners with `acme`, and renews them.
//!
//! ```text
//! configuration ── AcmeConfig ──> Certificates ── keep ──> schedule: which is due, and when
//!                                      │                      │
//!                     status, metrics <┘                 order ── client ──> authority
//!                                                           │  └─ Challenges ──> listeners
//!                                      folder <── store <───┤
//!                                                           └─ IssuedCertificate ──> handshakes
//! ```
//!
//! | module | what |
//! |---|---|
//! | `client` | HTTP with the authority |
//! | `order` | account, order, proof, certificate |
//! | `schedule` | when the next try is due |
//! | `store` | account and certificates in files |
//! | `unkept` | certificates that could not be written |
//!
//! It all runs beside the admin interface, in no worker: handshakes read what is in force, and wait for nothing. A try that fails
//! changes nothing but what is known of it. One front-end at a time orders for a folder: the one that has it locked. The others
//! show what they find there.

mod client;
mod order;
mod schedule;
mod store;
mod unkept;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_core::prng::Prng;
use tidegate_proxy::{Certificate, IssuedCertificate};
use tidegate_remote::clock;
use tokio::sync::watch;

use crate::config::AcmeConfig;
use crate::output::Output;
use order::{IssuedPem, OrderError};
use schedule::{Tries, next_try};
use store::{OwnedFolder, Store};
use unkept::UnkeptCertificates;

/// How long nothing is looked at: the time of day may be set meanwhile.
const LOOK: Duration = Duration::from_secs(60);
/// How often a front-end without the folder's lock looks for it, and at the files in it.
const LOCK_LOOK: Duration = Duration::from_secs(10);

/// What is known of a certificate, for people and programs.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct CertificateState {
    /// What became of tries.
    pub(crate) tries: Tries,
    /// Certificates that came, and tries that failed, since the start.
    pub(crate) issued: u64,
    /// See `issued`.
    pub(crate) failed: u64,
    /// Why the last try failed; none if it did not.
    pub(crate) error: Option<String>,
    /// Why the one in force is in no file, so that it ends with this process; none if it is in one.
    pub(crate) unkept: Option<String>,
    /// Seconds since 1970 at which the next try is due; none: another front-end orders.
    pub(crate) due: Option<u64>,
}

/// See the module. One of a front-end.
#[derive(Debug, Default)]
pub(crate) struct Certificates {
    configs: watch::Sender<Option<AcmeConfig>>,
    states: Mutex<BTreeMap<String, CertificateState>>,
    unkept: UnkeptCertificates,
}

/// What a certificate is called here: its first name, and how many more.
fn called(certificate: &IssuedCertificate) -> String {
    match certificate.names() {
        [] => String::new(),
        [only] => only.to_string(),
        [first, more @ ..] => format!("{first} (+{})", more.len()),
    }
}

/// The certificate of this configuration for these names.
fn same<'a>(
    config: Option<&'a AcmeConfig>,
    wanted: &IssuedCertificate,
) -> Option<&'a IssuedCertificate> {
    let mut all = config?.certificates.iter();
    all.find(|it| it.names() == wanted.names()).map(|it| &**it)
}

/// Of some certificates that are in force the one for most of the names, and of those the one that is valid for longest.
fn stand_in(
    all: impl Iterator<Item = Arc<Certificate>>,
    wanted: &IssuedCertificate,
) -> Option<Arc<Certificate>> {
    let covered = |it: &Arc<Certificate>| {
        let names = wanted.names().iter();
        names.filter(|name| it.names().contains(name)).count()
    };
    let now = clock::unix().as_secs();
    let usable = all.filter(|it| covered(it) > 0 && it.valid().contains(&now));
    usable.max_by_key(|it| (covered(it), it.valid().end))
}

/// All its names: no two certificates have the same.
pub(crate) fn key(certificate: &IssuedCertificate) -> String {
    certificate.names().join(",")
}

impl Certificates {
    /// These are the certificates to be had from the start on. To be called by the user that the process runs as. Reads files.
    pub(crate) fn begin(&self, config: Option<AcmeConfig>, output: Output) {
        self.prepare(config.as_ref(), output);
        self.follow(config);
    }

    /// Gives the certificates of a configuration what is in force for their names, or what is kept in the folder. To be called
    /// before clients see them, by the user that the process runs as. Reads files.
    fn prepare(&self, config: Option<&AcmeConfig>, output: Output) {
        let Some(config) = config else { return };
        let before = self.configs.borrow().clone();
        let is_same = before
            .as_ref()
            .is_some_and(|it| it.directory == config.directory);
        let store = Store::new(config);
        for wanted in &config.certificates {
            let former = same(before.as_ref(), wanted);
            let current = former.and_then(IssuedCertificate::current);
            let is_own = is_same && former.is_some_and(|it| !it.has_stand_in());
            let kept = match current.is_some() && is_own {
                true => None,
                false => store.certificate(wanted).unwrap_or_else(|why| {
                    output.event("certificate", &why);
                    None
                }),
            };
            match (kept, current) {
                (Some(kept), _) => wanted.set(kept),
                (None, Some(current)) if is_own => wanted.set(current),
                (None, Some(current)) => wanted.set_stand_in(current),
                // Its names are new: one that is for some of them serves those until it is there.
                (None, None) => {
                    let before = before.iter().flat_map(|it| &it.certificates);
                    let shown = before.filter_map(|it| it.current());
                    let other = stand_in(shown, wanted)
                        .or_else(|| stand_in(store.all().into_iter(), wanted));
                    if let Some(other) = other {
                        wanted.set_stand_in(other);
                    }
                }
            }
        }
    }

    /// The same, on another thread.
    pub(crate) async fn prepared(
        self: &Arc<Self>,
        config: Option<AcmeConfig>,
        output: Output,
    ) -> Option<AcmeConfig> {
        let (own, wanted) = (Arc::clone(self), config.clone());
        let preparing = tokio::task::spawn_blocking(move || own.prepare(wanted.as_ref(), output));
        if let Err(broken) = preparing.await {
            output.event(
                "certificate",
                &format!("kept certificates are not read: {broken}"),
            );
        }
        config
    }

    /// These are the certificates to be had from now on.
    pub(crate) fn follow(&self, config: Option<AcmeConfig>) {
        let wanted = config.iter().flat_map(|it| &it.certificates);
        let wanted: Vec<_> = wanted.map(|it| key(it)).collect();
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        states.retain(|name, _| wanted.contains(name));
        for key in wanted {
            let tries = &mut states.entry(key).or_default().tries;
            // What was wrong is perhaps mended; but reloads by the minute ask for no more than one try in that.
            tries.silences = tries.silences.min(1);
            tries.refusals = tries.refusals.min(1);
        }
        drop(states);
        self.unkept.retain(|(directory, key)| {
            let config = config.as_ref().filter(|it| it.directory == *directory);
            let mut wanted = config.into_iter().flat_map(|it| &it.certificates);
            wanted.any(|it| self::key(it) == *key)
        });
        self.configs.send_replace(config);
    }

    /// All, in the order of the configuration, and what is known of each.
    pub(crate) fn all(&self) -> Vec<(Arc<IssuedCertificate>, CertificateState)> {
        let config = self.configs.borrow().clone();
        let states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        let certificates = config.into_iter().flat_map(|it| it.certificates);
        let known = certificates.map(|it| {
            let state = states.get(&key(&it)).cloned().unwrap_or_default();
            (it, state)
        });
        known.collect()
    }

    fn state(&self, certificate: &IssuedCertificate) -> CertificateState {
        let states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        states.get(&key(certificate)).cloned().unwrap_or_default()
    }

    fn change(&self, certificate: &IssuedCertificate, change: impl FnOnce(&mut CertificateState)) {
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        change(states.entry(key(certificate)).or_default());
    }

    /// Has the certificates of the configuration in force, for ever. A change of it begins anew: listeners answer the challenges of
    /// the new one alone.
    pub(crate) async fn run(self: Arc<Self>, output: Output) {
        let mut configs = self.configs.subscribe();
        loop {
            let config = configs.borrow_and_update().clone();
            let keeping = async {
                match &config {
                    Some(config) if !config.certificates.is_empty() => {
                        self.keep(config, output).await;
                    }
                    Some(_) | None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = keeping => {}
                changed = configs.changed() => if changed.is_err() {
                    return;
                },
            }
            if let Some(config) = &config {
                config.pending.forget();
            }
        }
    }

    async fn keep(&self, config: &AcmeConfig, output: Output) {
        let mut keeper = Keeper {
            own: self,
            config,
            prng: Prng::new(clock::now().nanos()),
            output,
        };
        let folder = keeper.wait_for_folder().await;
        loop {
            let wait = keeper.work(&folder).await;
            tokio::time::sleep(wait.min(LOOK)).await;
        }
    }
}

/// Of one configuration.
struct Keeper<'a> {
    own: &'a Certificates,
    config: &'a AcmeConfig,
    prng: Prng,
    output: Output,
}

impl Keeper<'_> {
    /// Waits for the folder, and shows meanwhile what another front-end puts there.
    async fn wait_for_folder(&mut self) -> Arc<OwnedFolder> {
        let mut said = None;
        loop {
            let store = Store::new(self.config);
            let taken = tokio::task::spawn_blocking(move || store.take()).await;
            let why = match taken {
                Ok(Ok(folder)) => {
                    self.adopt().await;
                    if said.is_some() {
                        self.waits_for(None);
                    }
                    return Arc::new(folder);
                }
                Ok(Err(why)) => why,
                Err(broken) => broken.to_string(),
            };
            if said.as_ref() != Some(&why) {
                self.output
                    .event("certificate", &format!("no certificate is ordered: {why}"));
                self.waits_for(Some(&why));
                said = Some(why);
            }
            self.adopt().await;
            tokio::time::sleep(LOCK_LOOK).await;
        }
    }

    /// Why nothing is ordered; none: the folder is this front-end's.
    fn waits_for(&self, why: Option<&String>) {
        for certificate in &self.config.certificates {
            self.own.change(certificate, |state| {
                state.error = why.cloned();
                state.due = None;
            });
        }
    }

    /// Shows what is in the folder, where that is valid for longer than what is shown.
    async fn adopt(&self) {
        for certificate in &self.config.certificates {
            let (store, wanted) = (Store::new(self.config), Arc::clone(certificate));
            let read = tokio::task::spawn_blocking(move || store.certificate(&wanted)).await;
            let Ok(Ok(Some(found))) = read else { continue };
            if certificate.has_stand_in()
                || end(Some(&found)) > end(certificate.current().as_deref())
            {
                certificate.set(found);
            }
        }
    }

    /// Orders what is due; how long nothing is.
    async fn work(&mut self, folder: &Arc<OwnedFolder>) -> Duration {
        let mut first = LOOK;
        for certificate in &self.config.certificates {
            let is_due = |due: u64| due <= clock::unix().as_secs();
            if is_due(self.due(certificate)) {
                // Another machine's may have been put there.
                self.adopt().await;
            }
            if is_due(self.due(certificate)) {
                self.order(certificate, folder).await;
            }
            self.write_again(certificate, folder).await;
            let due = self.due(certificate);
            self.own.change(certificate, |state| state.due = Some(due));
            let due = (self.own.unkept.due(&self.whose(certificate))).map_or(due, |it| it.min(due));
            let wait = Duration::from_secs(due).saturating_sub(clock::unix());
            first = first.min(wait);
        }
        first
    }

    /// What a certificate that could not be written is known by.
    fn whose(&self, certificate: &IssuedCertificate) -> (String, String) {
        (self.config.directory.clone(), key(certificate))
    }

    /// Writes one that could not be written before, if it is time for that.
    async fn write_again(
        &mut self,
        certificate: &Arc<IssuedCertificate>,
        folder: &Arc<OwnedFolder>,
    ) {
        let whose = self.whose(certificate);
        let Some(pem) = self.own.unkept.pem(&whose, clock::unix().as_secs()) else {
            return;
        };
        let failed = write(&pem, certificate, folder).await;
        if failed.is_none() {
            let text = format!("{}: it is kept in its file now", called(certificate));
            self.output.event("certificate", &text);
        }
        self.is_written(certificate, pem, failed);
    }

    /// A certificate is in its file, or why it is not.
    fn is_written(
        &mut self,
        certificate: &IssuedCertificate,
        pem: Arc<IssuedPem>,
        failed: Option<String>,
    ) {
        let whose = self.whose(certificate);
        match &failed {
            None => self.own.unkept.done(&whose),
            Some(_) => {
                let (now, jitter) = (clock::unix().as_secs(), self.prng.unit());
                self.own.unkept.failed(whose, pem, now, jitter);
            }
        }
        self.own.change(certificate, |state| state.unkept = failed);
    }

    fn due(&self, certificate: &IssuedCertificate) -> u64 {
        let state = self.own.state(certificate);
        let own = certificate.current();
        let own = own.filter(|_| !certificate.has_stand_in());
        next_try(own.map(|it| it.valid()), state.tries)
    }

    async fn order(&mut self, certificate: &Arc<IssuedCertificate>, folder: &Arc<OwnedFolder>) {
        let (name, refusals) = (
            called(certificate),
            self.own.state(certificate).tries.refusals,
        );
        self.output.event(
            "certificate",
            &format!("{name}: asking {} for a certificate", self.config.directory),
        );
        let ordered = order::order(self.config, certificate.names(), refusals, folder).await;
        self.config.pending.forget();
        let jitter = self.prng.unit();
        let now = clock::unix().as_secs();
        let kept = match ordered {
            Ok(pem) => checked(pem, certificate),
            Err(error) => Err(error),
        };
        match kept {
            Ok((issued, pem)) => {
                let unkept = write(&pem, certificate, folder).await;
                let end = jiff::Timestamp::from_second(issued.valid().end.cast_signed());
                let until =
                    end.map_or_else(|_| String::new(), |end| format!(", valid until {end}"));
                certificate.set(issued);
                self.own.change(certificate, |state| {
                    state.issued += 1;
                    state.tries = Tries {
                        last: now,
                        jitter,
                        ..Tries::default()
                    };
                    state.error = None;
                });
                self.output.event(
                    "certificate",
                    &format!("{name}: a new certificate is in force{until}"),
                );
                if let Some(why) = &unkept {
                    self.output.event(
                        "certificate",
                        &format!(
                            "{name}: it ends with this process, until it can be written: {why}"
                        ),
                    );
                }
                self.is_written(certificate, pem, unkept);
            }
            Err(error) => {
                self.own.change(certificate, |state| {
                    state.failed += 1;
                    let is_refused = matches!(error, OrderError::Refused(_));
                    state.tries = state.tries.failed(is_refused, now, jitter);
                    state.error = Some(error.to_string());
                });
                let wait = self.due(certificate).saturating_sub(now);
                let text =
                    format!("{name}: no new certificate: {error}; the next try is in {wait} s");
                self.output.event("certificate_failed", &text);
            }
        }
    }
}

/// A certificate that was issued, if it is what was asked for.
fn checked(
    pem: IssuedPem,
    certificate: &IssuedCertificate,
) -> Result<(Arc<Certificate>, Arc<IssuedPem>), OrderError> {
    let made = pem.certificate();
    let made =
        made.map_err(|why| OrderError::Refused(format!("what was issued is of no use: {why}")))?;
    if let Some(name) = (certificate.names().iter()).find(|it| !made.names().contains(it)) {
        let why = format!("what was issued is not for {name}");
        return Err(OrderError::Refused(why));
    }
    Ok((Arc::new(made), Arc::new(pem)))
}

/// Puts a certificate into the folder; why it is not there, if it is not.
async fn write(
    pem: &Arc<IssuedPem>,
    certificate: &Arc<IssuedCertificate>,
    folder: &Arc<OwnedFolder>,
) -> Option<String> {
    let (folder, wanted, pem) = (Arc::clone(folder), Arc::clone(certificate), Arc::clone(pem));
    let written = tokio::task::spawn_blocking(move || folder.keep(&wanted, &pem));
    match written.await {
        Ok(written) => written.err(),
        Err(broken) => Some(broken.to_string()),
    }
}

/// When a certificate ends; 0 if there is none.
fn end(certificate: Option<&Certificate>) -> u64 {
    certificate.map_or(0, |it| it.valid().end)
}
