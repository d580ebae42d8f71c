//! Certificates and clients of TLS.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned, crypto, version,
};

use super::{PATIENCE, is_installed};

/// An authority in a folder: `ca.pem`, `ca.key`.
pub(crate) struct Authority {
    folder: PathBuf,
}

/// A certificate and its key, in files.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl Pair {
    /// As the table of a configuration has it, without its braces.
    pub(crate) fn keys(&self) -> String {
        let (certificate, key) = (self.certificate.display(), self.key.display());
        format!("certificate = \"{certificate}\", key = \"{key}\"")
    }
}

fn openssl(folder: &Path, words: &[&str]) -> Output {
    let mut command = Command::new("openssl");
    let done = command.current_dir(folder).args(words).output().unwrap();
    assert!(done.status.success(), "openssl {words:?}: {done:?}");
    done
}

impl Authority {
    /// None where openssl is not installed.
    pub(crate) fn new(folder: &Path) -> Option<Self> {
        Self::named(folder, "ca")
    }

    /// The same with other names of its files.
    pub(crate) fn named(folder: &Path, name: &str) -> Option<Self> {
        if !is_installed("openssl") {
            return None;
        }
        let folder = folder.join(format!("{name}-files"));
        std::fs::create_dir_all(&folder).unwrap();
        let subject = format!("/CN=authority {name}");
        key(&folder, "ca.key");
        openssl(
            &folder,
            &[
                "req",
                "-x509",
                "-new",
                "-key",
                "ca.key",
                "-out",
                "ca.pem",
                "-subj",
                &subject,
                "-days",
                "2",
                "-addext",
                "keyUsage=critical,keyCertSign",
            ],
        );
        Some(Self { folder })
    }

    /// The authority's own certificate.
    pub(crate) fn file(&self) -> PathBuf {
        self.folder.join("ca.pem")
    }

    /// A certificate for these names; the first is the name of its files as well.
    pub(crate) fn issue(&self, file: &str, names: &[&str]) -> Pair {
        self.issue_for(file, names, 2)
    }

    /// The same for so many days; it has expired if that is negative.
    pub(crate) fn issue_for(&self, file: &str, names: &[&str], days: i32) -> Pair {
        let at = |end: &str| format!("{file}.{end}");
        let (key_file, request, extensions) = (at("key"), at("csr"), at("ext"));
        key(&self.folder, &key_file);
        let subject = format!("/O=Shop, Inc./CN={file}");
        let words = [
            "req", "-new", "-key", &key_file, "-out", &request, "-subj", &subject,
        ];
        openssl(&self.folder, &words);
        let names: Vec<_> = names.iter().map(|name| format!("DNS:{name}")).collect();
        let text = match names.is_empty() {
            true => "extendedKeyUsage=clientAuth\n".to_owned(),
            false => format!("subjectAltName={}\n", names.join(",")),
        };
        std::fs::write(self.folder.join(&extensions), text).unwrap();
        let days = days.to_string();
        openssl(
            &self.folder,
            &[
                "x509",
                "-req",
                "-in",
                &request,
                "-CA",
                "ca.pem",
                "-CAkey",
                "ca.key",
                "-CAcreateserial",
                "-days",
                &days,
                "-extfile",
                &extensions,
                "-out",
                &at("pem"),
            ],
        );
        Pair {
            certificate: self.folder.join(at("pem")),
            key: self.folder.join(key_file),
        }
    }

    /// What a client does that believes this authority.
    pub(crate) fn client(&self) -> Client {
        Client {
            authority: self.file(),
            own: None,
        }
    }
}

/// A new key in a file for its owner alone.
fn key(folder: &Path, name: &str) {
    let words = ["ecparam", "-name", "prime256v1", "-genkey", "-noout"];
    let made = openssl(folder, &words);
    let mut options = std::fs::OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = file.open(folder.join(name)).unwrap();
    file.write_all(&made.stdout).unwrap();
}

/// A connection on which anything can be written and read.
pub(crate) type Connection = StreamOwned<ClientConnection, TcpStream>;

/// How a client connects.
pub(crate) struct Client {
    authority: PathBuf,
    own: Option<Pair>,
}

impl Client {
    /// One that believes the authorities in this file.
    pub(crate) fn believing(authority: PathBuf) -> Self {
        Self {
            authority,
            own: None,
        }
    }

    /// It shows this certificate.
    pub(crate) fn showing(self, own: &Pair) -> Self {
        let own = Some(own.clone());
        Self { own, ..self }
    }

    /// Connects; an error if the server does not shake hands.
    pub(crate) fn connect(&self, to: SocketAddr, name: &str) -> std::io::Result<Connection> {
        let mut roots = RootCertStore::empty();
        let authority = CertificateDer::from_pem_file(&self.authority).unwrap();
        roots.add(authority).unwrap();
        let provider = Arc::new(crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&version::TLS13, &version::TLS12])
            .unwrap()
            .with_root_certificates(roots);
        let config = match &self.own {
            None => builder.with_no_client_auth(),
            Some(own) => {
                let chain = CertificateDer::pem_file_iter(&own.certificate).unwrap();
                let chain = chain.map(Result::unwrap).collect();
                let key = PrivateKeyDer::from_pem_file(&own.key).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let session = ClientConnection::new(Arc::new(config), name).unwrap();
        let stream = TcpStream::connect(to)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut connection = StreamOwned::new(session, stream);
        while connection.conn.is_handshaking() {
            connection.conn.complete_io(&mut connection.sock)?;
        }
        Ok(connection)
    }

    /// Asks for a path on a new connection, and reads to its end.
    pub(crate) fn get(&self, to: SocketAddr, name: &str, path: &str) -> std::io::Result<String> {
        let mut connection = self.connect(to, name)?;
        let text = format!("GET {path} HTTP/1.1\r\nhost: {name}\r\nconnection: close\r\n\r\n");
        connection.write_all(text.as_bytes())?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer)?;
        Ok(answer)
    }
}

/// It sends nothing more, and goes on reading.
pub(crate) fn end_sending(connection: &mut Connection) {
    connection.conn.send_close_notify();
    connection.flush().unwrap();
    connection.sock.shutdown(Shutdown::Write).unwrap();
}
