//! TLS by rustls: the certificate, from files or self-signed.
//!
//! `cli` creates a [`Tls`] before the server listens, and another on a reload (SIGHUP); [`super::accepting`] performs
//! the handshakes with it. Private keys are never logged.

use crate::config::ServerConfig;
use antiphon_types::small_file;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use x509_cert::Certificate;
use x509_cert::der::Decode;

/// A certificate and its private key, ready to serve. Cheap to clone.
#[derive(Clone)]
pub struct Tls {
    server: Arc<rustls::ServerConfig>,
    is_self_signed: bool,
    expires: Option<SystemTime>,
}

/// Why TLS cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// Only one of the two files is configured.
    #[error("server.tls_cert and server.tls_key belong together: set both, or none")]
    Half,
    /// A file cannot be read as PEM.
    #[error("{key}: {} holds no usable {what}: {why}", path.display())]
    Unreadable {
        /// The key of the configuration.
        key: &'static str,
        /// The configured path.
        path: PathBuf,
        /// `certificate` or `private key`.
        what: &'static str,
        /// The cause.
        why: String,
    },
    /// The certificate and the private key do not match, or are unsupported.
    #[error("the certificate and its key cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
    /// A self-signed certificate could not be created.
    #[error("a self-signed certificate could not be created")]
    RestartFailed(#[from] rcgen::Error),
}

impl Tls {
    /// Loads the configured files; `None` if none is configured. Blocks for two small files.
    pub fn load(config: &ServerConfig) -> Result<Option<Self>, TlsError> {
        let cert = Path::new(&config.tls_cert);
        let key = Path::new(&config.tls_key);
        match (config.tls_cert.is_empty(), config.tls_key.is_empty()) {
            (true, true) => return Ok(None),
            (false, false) => {}
            _ => return Err(TlsError::Half),
        }
        let wrong = |key, path: &Path, what, why: String| TlsError::Unreadable { key, path: path.into(), what, why };
        let read = |path: &Path| small_file::read(path, small_file::MAX_SETTINGS_BYTES);
        let pem = read(cert).map_err(|error| wrong("server.tls_cert", cert, "certificate", error.to_string()))?;
        let chain = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(|error| wrong("server.tls_cert", cert, "certificate", error.to_string()))?;
        if chain.is_empty() {
            return Err(wrong("server.tls_cert", cert, "certificate", "there is none in it".into()));
        }
        let pem = read(key).map_err(|error| wrong("server.tls_key", key, "private key", error.to_string()))?;
        let private = PrivateKeyDer::from_pem_slice(&pem);
        let private = private.map_err(|error| wrong("server.tls_key", key, "private key", error.to_string()))?;
        Self::of(chain, private).map(Some)
    }

    /// Creates a self-signed certificate for this machine and `names`, kept in memory only. Also returns it as PEM, for
    /// clients that should trust it.
    pub fn self_signed(names: &[String]) -> Result<(Self, String), TlsError> {
        let own = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
        let mut names = [&own, names].concat();
        names.sort();
        names.dedup();
        let made = rcgen::generate_simple_self_signed(names)?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let pem = made.cert.pem();
        Ok((Self::of(vec![made.cert.der().clone()], key)?, pem))
    }

    fn of(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Result<Self, TlsError> {
        let read: Vec<_> = chain.iter().map(|certificate| Certificate::from_der(certificate).ok()).collect();
        // One that cannot be read counts as self-signed.
        let is_self_signed = read.first().and_then(Option::as_ref).is_none_or(|certificate| {
            certificate.tbs_certificate().issuer() == certificate.tbs_certificate().subject()
        });
        let end = |certificate: &Certificate| {
            SystemTime::UNIX_EPOCH + certificate.tbs_certificate().validity().not_after.to_unix_duration()
        };
        let expires = read.iter().flatten().map(end).min();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        // WebSockets require HTTP/1.1 here.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { server: Arc::new(config), is_self_signed, expires })
    }

    /// Whether the certificate names itself as its issuer: no authority vouches for it.
    pub(in crate::server) fn is_self_signed(&self) -> bool {
        self.is_self_signed
    }

    /// When clients stop to accept the chain: the earliest end of its certificates; `None` if none can be read.
    pub fn expires(&self) -> Option<SystemTime> {
        self.expires
    }

    /// A certificate that another one has signed.
    #[cfg(test)]
    pub(in crate::server) fn signed_for_tests() -> Self {
        let authority = rcgen::CertificateParams::new(Vec::new()).unwrap();
        let signing = rcgen::KeyPair::generate().unwrap();
        let issuer = rcgen::Issuer::new(authority, signing);
        let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::CommonName, "localhost");
        let key = rcgen::KeyPair::generate().unwrap();
        let signed = params.signed_by(&key, &issuer).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        Self::of(vec![signed.der().clone()], key).unwrap()
    }

    /// The configuration for new handshakes.
    pub(in crate::server) fn server(&self) -> Arc<rustls::ServerConfig> {
        self.server.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(cert: &str, key: &str) -> Result<Option<Tls>, TlsError> {
        let config = ServerConfig { tls_cert: cert.into(), tls_key: key.into(), ..ServerConfig::default() };
        Tls::load(&config)
    }

    #[test]
    fn files_are_loaded_and_what_is_wrong_with_them_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        std::fs::write(path("cert"), made.cert.pem()).unwrap();
        std::fs::write(path("key"), made.signing_key.serialize_pem()).unwrap();
        let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        std::fs::write(path("other"), other.signing_key.serialize_pem()).unwrap();
        assert!(load(&path("cert"), &path("key")).unwrap().is_some());
        assert!(load("", "").unwrap().is_none());
        let says = |cert: &str, key: &str, expect: &str| {
            let error = load(cert, key).err().expect("it is wrong").to_string();
            assert!(error.contains(expect), "{error}");
        };
        says(&path("cert"), "", "belong together");
        says(&path("nowhere"), &path("key"), "server.tls_cert");
        says(&path("key"), &path("key"), "there is none in it");
        says(&path("cert"), &path("cert"), "server.tls_key");
        says(&path("cert"), &path("other"), "cannot be used");
    }
}
