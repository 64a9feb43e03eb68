//! TLS by rustls: the certificate, from files or self-signed.
//!
//! `cli` creates a [`Tls`] before the server listens, and another on a reload (SIGHUP); [`super::accepting`] performs
//! the handshakes with it. Private keys are never logged.

use crate::config::{ServerConfig, SipConfig};
use antiphon_types::small_file;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ClientConfig, RootCertStore};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use x509_cert::Certificate;
use x509_cert::der::Decode;

/// A certificate and its private key, ready to serve. Cheap to clone.
#[derive(Clone)]
pub struct Tls {
    server: Arc<rustls::ServerConfig>,
    /// Without the protocols of HTTP.
    sip: Arc<rustls::ServerConfig>,
    is_self_signed: bool,
    expires: Option<SystemTime>,
}

/// Why TLS cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// Only one of the two files is configured.
    #[error("{0}.tls_cert and {0}.tls_key belong together: set both, or none")]
    Half(&'static str),
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
        let names = ["server.tls_cert", "server.tls_key"];
        match (config.tls_cert.is_empty(), config.tls_key.is_empty()) {
            (true, true) => Ok(None),
            (false, false) => Self::read(Path::new(&config.tls_cert), Path::new(&config.tls_key), names).map(Some),
            _ => Err(TlsError::Half("server")),
        }
    }

    /// Loads the files of `[sip]`; `None` if none is configured. Blocks for two small files.
    pub fn load_sip(config: &SipConfig) -> Result<Option<Self>, TlsError> {
        let names = ["sip.tls_cert", "sip.tls_key"];
        match (config.tls_cert.is_empty(), config.tls_key.is_empty()) {
            (true, true) => Ok(None),
            (false, false) => Self::read(Path::new(&config.tls_cert), Path::new(&config.tls_key), names).map(Some),
            _ => Err(TlsError::Half("sip")),
        }
    }

    fn read(cert: &Path, key: &Path, [cert_name, key_name]: [&'static str; 2]) -> Result<Self, TlsError> {
        let wrong_cert = |why: String| unreadable(cert_name, cert, "certificate", why);
        let wrong_key = |why: String| unreadable(key_name, key, "private key", why);
        let pem = read(cert).map_err(|error| wrong_cert(error.to_string()))?;
        let chain = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(|error| wrong_cert(error.to_string()))?;
        if chain.is_empty() {
            return Err(wrong_cert("there is none in it".into()));
        }
        let pem = read(key).map_err(|error| wrong_key(error.to_string()))?;
        let private = PrivateKeyDer::from_pem_slice(&pem).map_err(|error| wrong_key(error.to_string()))?;
        Self::of(chain, private)
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
        let sip = Arc::new(config.clone());
        // WebSockets require HTTP/1.1 here.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { server: Arc::new(config), sip, is_self_signed, expires })
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

    /// The configuration for new handshakes of SIP.
    pub(in crate::server) fn sip(&self) -> Arc<rustls::ServerConfig> {
        self.sip.clone()
    }
}

fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    small_file::read(path, small_file::MAX_SETTINGS_BYTES)
}

fn unreadable(key: &'static str, path: &Path, what: &'static str, why: String) -> TlsError {
    TlsError::Unreadable { key, path: path.into(), what, why }
}

/// The configuration of connections to SIP trunks: they prove that they are `host` by an authority of the file
/// `sip.tls_ca`, or, where that is empty, by one that this machine trusts. Blocks for small files.
pub(in crate::server) fn sip_client(config: &SipConfig) -> Result<Arc<ClientConfig>, TlsError> {
    let mut roots = RootCertStore::empty();
    if config.tls_ca.is_empty() {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    } else {
        let path = Path::new(&config.tls_ca);
        let wrong = |why: String| unreadable("sip.tls_ca", path, "certificate", why);
        let pem = read(path).map_err(|error| wrong(error.to_string()))?;
        for certificate in CertificateDer::pem_slice_iter(&pem) {
            let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
            roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
        }
        if roots.is_empty() {
            return Err(wrong("there is none in it".into()));
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(Arc::new(builder.with_root_certificates(roots).with_no_client_auth()))
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
        let sip = |tls_cert: String, tls_key: String, tls_ca: String| {
            let config = SipConfig { tls_cert, tls_key, tls_ca, ..SipConfig::default() };
            (Tls::load_sip(&config).map(|tls| tls.is_some()), sip_client(&config).map(|_| ()))
        };
        assert!(matches!(sip(path("cert"), path("key"), path("cert")), (Ok(true), Ok(()))));
        assert!(matches!(sip(String::new(), String::new(), String::new()), (Ok(false), Ok(()))));
        let (served, trusted) = sip(path("cert"), String::new(), path("key"));
        assert!(served.unwrap_err().to_string().contains("sip.tls_cert and sip.tls_key"));
        assert!(trusted.unwrap_err().to_string().contains("sip.tls_ca"));
    }
}
