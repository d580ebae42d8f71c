//! Why a command did not do what it was asked for, and the exit code that says so.

use std::io;
use std::process::ExitCode;

use serde_json::json;
use tidegate_culprits::search::SearchError;

use crate::config::ConfigError;
use crate::output::Output;

/// Exit code: it was tried and failed.
const EXIT_FAILED: u8 = 1;
/// Exit code: bad usage or configuration.
const EXIT_USAGE: u8 = 2;

/// Why a command did not do what it was asked for.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The configuration is bad.
    Config(ConfigError),
    /// The command line asks for something that makes no sense.
    Usage(String),
    /// It was tried and failed.
    Failed(String),
    /// The same, and its result was printed: it says why.
    Told,
    /// The result could not be written.
    Output(io::Error),
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

impl From<SearchError> for Failure {
    fn from(error: SearchError) -> Self {
        match error {
            SearchError::Usage(text) => Self::Usage(text),
            SearchError::Failed(text) => Self::Failed(text),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl Failure {
    /// What went wrong.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Config(error) => error.render(false),
            Self::Usage(text) | Self::Failed(text) => text.clone(),
            Self::Told => "it has failed".into(),
            Self::Output(error) => error.to_string(),
        }
    }

    /// Says it on standard error.
    pub(crate) fn report(self, output: Output) -> ExitCode {
        match self {
            Self::Config(error) => {
                let problems = json!({ "ok": false, "problems": error.reports() });
                output.detailed_error(&error.render(output.colour()), &problems);
                EXIT_USAGE.into()
            }
            Self::Usage(text) => {
                output.error(&text);
                EXIT_USAGE.into()
            }
            Self::Failed(text) => {
                output.error(&text);
                EXIT_FAILED.into()
            }
            Self::Told => EXIT_FAILED.into(),
            // The reader of the result has seen enough of it.
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
            Self::Output(error) => {
                output.error(&format!("cannot write the result: {error}"));
                EXIT_FAILED.into()
            }
        }
    }
}
