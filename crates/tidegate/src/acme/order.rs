//! One certificate from an authority (RFC 8555 §7): account, order, proof of each name, certificate.

use std::sync::Arc;
use std::time::Duration;

use instant_acme::{
    Account, AccountCredentials, AuthorizationHandle, AuthorizationStatus, ChallengeType, Error,
    Identifier, NewAccount, NewOrder, Order, OrderStatus, Problem, RetryPolicy,
};
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use serde::{Deserialize, Serialize};
use tidegate_proxy::{Certificate, CertificateOrKeyError};

use super::client::Client;
use super::store::OwnedFolder;
use crate::config::AcmeConfig;
use crate::config::acme::ChallengeName;

/// Faults of the authority, not of what asks it (RFC 8555 §6.7): a nonce that is used up, and a server's own.
const PASSING: [&str; 2] = [
    "urn:ietf:params:acme:error:badNonce",
    "urn:ietf:params:acme:error:serverInternal",
];
/// The account is gone.
const NO_ACCOUNT: &str = "urn:ietf:params:acme:error:accountDoesNotExist";
/// Statuses from here on are the server's faults.
const SERVER_FAULT: u16 = 500;

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub(super) enum OrderError {
    /// The authority says no, or finds no proof.
    #[error("{0}")]
    Refused(String),
    /// It does not answer, or not as it should; or something is wrong here.
    #[error("{0}")]
    Silent(String),
    /// It does not know the account that is kept: the next try makes a new one.
    #[error("{0}")]
    NoAccount(String),
}

impl From<Error> for OrderError {
    fn from(error: Error) -> Self {
        if let Error::Api(problem) = &error {
            return Self::of(problem);
        }
        Self::Silent(error.to_string())
    }
}

impl OrderError {
    fn of(problem: &Problem) -> Self {
        let kind = problem.r#type.as_deref().unwrap_or_default();
        let is_fault = problem.status.is_some_and(|it| it >= SERVER_FAULT);
        let text = said(problem);
        match kind {
            NO_ACCOUNT => Self::NoAccount(text),
            kind if is_fault || PASSING.contains(&kind) => Self::Silent(text),
            _ => Self::Refused(text),
        }
    }
}

/// An authority's own words, in one line.
fn said(problem: &Problem) -> String {
    let text = problem.to_string();
    let text = text.strip_prefix("API error: ").unwrap_or(&text);
    let clean = |letter: char| if letter.is_control() { ' ' } else { letter };
    let text: String = text.chars().map(clean).take(TEXT_MAX).collect();
    format!("the authority says: {text}")
}

/// How long an order may take at each of its steps, and how often it is looked at.
const PATIENCE: RetryPolicy = RetryPolicy::new().timeout(Duration::from_secs(120));
/// Letters of an authority's words that are shown.
const TEXT_MAX: usize = 500;

/// A certificate with its key, in PEM.
pub(super) struct IssuedPem(String);

impl IssuedPem {
    #[cfg(test)]
    pub(super) fn of(text: String) -> Self {
        Self(text)
    }

    /// Key and chain.
    pub(super) fn text(&self) -> &str {
        &self.0
    }

    pub(super) fn certificate(&self) -> Result<Certificate, CertificateOrKeyError> {
        let bytes = self.0.as_bytes();
        Certificate::from_pem(bytes, bytes, None)
    }
}

/// The account as it is kept.
#[derive(Serialize, Deserialize)]
struct KeptAccount {
    /// What the authority was given.
    contacts: Vec<String>,
    credentials: AccountCredentials,
}

/// Has a certificate issued for these names. What is pending when this ends is to be forgotten by the caller.
pub(super) async fn order(
    config: &AcmeConfig,
    names: &[Box<str>],
    failures: u32,
    folder: &Arc<OwnedFolder>,
) -> Result<IssuedPem, OrderError> {
    let ordered = place(config, names, failures, folder).await;
    if let Err(OrderError::NoAccount(_)) = &ordered {
        folder.forget_account();
    }
    ordered
}

async fn place(
    config: &AcmeConfig,
    names: &[Box<str>],
    failures: u32,
    folder: &Arc<OwnedFolder>,
) -> Result<IssuedPem, OrderError> {
    let account = account(config, folder).await?;
    let identifiers: Vec<_> = names
        .iter()
        .map(|it| Identifier::Dns(it.to_string()))
        .collect();
    let mut order = account.new_order(&NewOrder::new(&identifiers)).await?;
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        prove(config, authorization?, failures).await?;
    }
    let ready = order.poll_ready(&PATIENCE).await;
    if !matches!(ready, Ok(OrderStatus::Ready)) {
        return Err(why_not(&mut order, ready.err()).await);
    }
    let key = KeyPair::generate().map_err(unmade)?;
    let request = params(names)?.serialize_request(&key).map_err(unmade)?;
    order.finalize_csr(request.der()).await?;
    let chain = order.poll_certificate(&PATIENCE).await?;
    Ok(IssuedPem(key.serialize_pem() + &chain))
}

/// The account that is kept, or a new one.
async fn account(config: &AcmeConfig, folder: &Arc<OwnedFolder>) -> Result<Account, OrderError> {
    let kept = Arc::clone(folder);
    let kept = on_disk(move || kept.account()).await?;
    let builder = || Account::builder_with_http(Box::new(Client::new(&config.authorities)));
    let wanted: Vec<_> = config.contacts.iter().map(String::as_str).collect();
    let kept = kept.map(|bytes| serde_json::from_slice::<KeptAccount>(&bytes));
    let (account, contacts, credentials) = match kept {
        Some(Ok(kept)) => {
            let credentials = serde_json::to_value(&kept.credentials);
            let account = builder().from_credentials(kept.credentials).await?;
            if kept.contacts == config.contacts {
                return Ok(account);
            }
            account.update_contacts(&wanted).await?;
            (account, config.contacts.clone(), credentials)
        }
        Some(Err(why)) => {
            let text = format!(
                "the account that is kept cannot be read: {why}; move its file away for a new one"
            );
            return Err(OrderError::Silent(text));
        }
        None => {
            let new = NewAccount {
                contact: &wanted,
                terms_of_service_agreed: true,
                only_return_existing: false,
            };
            let directory = config.directory.clone();
            let (account, credentials) = builder().create(&new, directory, None).await?;
            (
                account,
                config.contacts.clone(),
                serde_json::to_value(&credentials),
            )
        }
    };
    let credentials = credentials.and_then(serde_json::from_value);
    let bytes = credentials.and_then(|credentials| {
        serde_json::to_vec(&KeptAccount {
            contacts,
            credentials,
        })
    });
    let bytes = bytes.map_err(|why| OrderError::Silent(why.to_string()))?;
    let keeper = Arc::clone(folder);
    // Another try makes another account, of which authorities allow a few: that waits as behind a refusal.
    let kept = on_disk(move || keeper.keep_account(&bytes)).await;
    kept.map_err(|why| OrderError::Refused(why.to_string()))?;
    Ok(account)
}

/// Answers the challenge of a name, if it is not proved already.
async fn prove(
    config: &AcmeConfig,
    mut authorization: AuthorizationHandle<'_>,
    failures: u32,
) -> Result<(), OrderError> {
    let name = authorization.identifier().to_string();
    match authorization.status {
        AuthorizationStatus::Valid => return Ok(()),
        AuthorizationStatus::Pending => {}
        AuthorizationStatus::Invalid
        | AuthorizationStatus::Revoked
        | AuthorizationStatus::Expired
        | AuthorizationStatus::Deactivated => {
            return Err(OrderError::Refused(format!(
                "{name} cannot be proved any more"
            )));
        }
    }
    let offered: Vec<_> = authorization
        .challenges
        .iter()
        .map(|it| it.r#type.clone())
        .collect();
    let possible = config
        .challenges
        .iter()
        .filter(|it| offered.contains(&kind(**it)));
    let possible: Vec<_> = possible.copied().collect();
    // The next one behind each failure.
    let Some(chosen) = possible.get(failures as usize % possible.len().max(1)) else {
        return Err(OrderError::Refused(format!(
            "the authority takes no proof of {name} that a listener here can give: it offers {offered:?}"
        )));
    };
    let Some(mut challenge) = authorization.challenge(kind(*chosen)) else {
        return Err(OrderError::Silent(format!(
            "the challenge for {name} is gone"
        )));
    };
    let authorized = challenge.key_authorization();
    match chosen {
        ChallengeName::Http => config
            .pending
            .expect_http(&challenge.token, authorized.as_str()),
        ChallengeName::TlsAlpn => {
            let key = KeyPair::generate().map_err(unmade)?;
            let mut params = params(&[name.as_str().into()])?;
            params.custom_extensions = vec![CustomExtension::new_acme_identifier(
                authorized.digest().as_ref(),
            )];
            let shown = params.self_signed(&key).map_err(unmade)?;
            let expected = config
                .pending
                .expect_tls(&name, shown.der(), key.serialized_der());
            expected.map_err(|why| OrderError::Silent(why.to_string()))?;
        }
    }
    Ok(challenge.set_ready().await?)
}

const fn kind(name: ChallengeName) -> ChallengeType {
    match name {
        ChallengeName::Http => ChallengeType::Http01,
        ChallengeName::TlsAlpn => ChallengeType::TlsAlpn01,
    }
}

/// What a request or a certificate of ours says: these names and no more.
fn params(names: &[Box<str>]) -> Result<CertificateParams, OrderError> {
    let names: Vec<_> = names.iter().map(ToString::to_string).collect();
    let mut params = CertificateParams::new(names).map_err(unmade)?;
    params.distinguished_name = DistinguishedName::new();
    Ok(params)
}

fn unmade(error: rcgen::Error) -> OrderError {
    OrderError::Silent(format!("cannot make a key or a certificate: {error}"))
}

/// Why an order came to nothing: the first proof that was not accepted, or else what was said of the order itself.
async fn why_not(order: &mut Order, error: Option<Error>) -> OrderError {
    let own = match error {
        Some(Error::Api(problem)) => OrderError::of(&problem),
        Some(error) => return error.into(),
        None => OrderError::Refused("the authority has refused and does not say why".into()),
    };
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        let name = authorization.identifier().to_string();
        let Ok(state) = authorization.refresh().await else {
            break;
        };
        let mut problems = state.challenges.iter().filter_map(|it| it.error.as_ref());
        if let Some(problem) = problems.next() {
            return OrderError::Refused(format!("{name}: {}", said(problem)));
        }
    }
    own
}

/// Has something done that waits for a disk.
async fn on_disk<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, OrderError> {
    let done = tokio::task::spawn_blocking(work).await;
    let done = done.unwrap_or_else(|broken| Err(broken.to_string()));
    done.map_err(OrderError::Silent)
}
