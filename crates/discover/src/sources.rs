//! All sources: one line each.

use std::fmt;

use crate::consul::{ConsulConfig, ConsulSource};
use crate::dns::{DnsConfig, DnsSource};
use crate::file::{FileConfig, FileSource};
use crate::kubernetes::{KubernetesConfig, KubernetesSource};
use crate::source::{Answer, SourceError};

/// Makes the enums of sources. A source has `new(config)` and `async fn ask(&mut self) -> Result<Answer, SourceError>`,
/// which ends by itself in bounded time, with an answer of bounded size, and which may be dropped at any moment.
macro_rules! sources {
    ($($(#[doc = $about:literal])* $name:ident: $config:ty => $source:ty,)*) => {
        /// What a source is.
        #[derive(Clone, Debug, PartialEq)]
        pub enum SourceKind { $($(#[doc = $about])* $name($config),)* }

        #[derive(Debug)]
        pub(crate) enum Source { $($name(Box<$source>),)* }

        impl Source {
            pub(crate) fn new(kind: SourceKind) -> Self {
                match kind {
                    $(SourceKind::$name(config) => Self::$name(Box::new(<$source>::new(config))),)*
                }
            }

            pub(crate) async fn ask(&mut self) -> Result<Answer, SourceError> {
                match self { $(Self::$name(source) => source.ask().await,)* }
            }
        }

        /// As the configuration has it: `file nodes.json`.
        impl fmt::Display for SourceKind {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self { $(Self::$name(config) => config.fmt(out),)* }
            }
        }
    };
}

sources! {
    /// A watched file.
    File: FileConfig => FileSource,
    /// A name in DNS.
    Dns: DnsConfig => DnsSource,
    /// The endpoints of a service in Kubernetes.
    Kubernetes: KubernetesConfig => KubernetesSource,
    /// The healthy instances of a service in Consul.
    Consul: ConsulConfig => ConsulSource,
}
