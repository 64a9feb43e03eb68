//! Verification of the server's certificate.

use super::error::ClientError;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use std::path::PathBuf;
use std::sync::Arc;
use tokio_tungstenite::Connector;

/// Which certificates are trusted. Applies to `https://` and `wss://` only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// Those signed by an authority that this machine trusts.
    #[default]
    System,
    /// Only those in this PEM file, for example the server's own certificate.
    File(PathBuf),
    /// Any certificate: the connection is encrypted, but a man in the middle can read and change it.
    Anyone,
}

impl Trust {
    /// The TLS connector; `None` selects the library's default, the system's authorities. Blocks while it reads a small
    /// file.
    pub(super) fn connector(&self) -> Result<Option<Connector>, ClientError> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .expect("ring has the default versions");
        let config = match self {
            Self::System => return Ok(None),
            Self::File(path) => builder.with_root_certificates(roots(path)?).with_no_client_auth(),
            Self::Anyone => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(UncheckedCertificates(provider)))
                .with_no_client_auth(),
        };
        Ok(Some(Connector::Rustls(Arc::new(config))))
    }
}

fn roots(path: &PathBuf) -> Result<RootCertStore, ClientError> {
    let bad = |reason: String| ClientError::BadCertificates { path: path.clone(), reason };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| bad(error.to_string()))? {
        let certificate = certificate.map_err(|error| bad(error.to_string()))?;
        roots.add(certificate).map_err(|error| bad(error.to_string()))?;
    }
    if roots.is_empty() { Err(bad("it contains no certificate".into())) } else { Ok(roots) }
}

/// Accepts any certificate, but still verifies that the server holds its key.
#[derive(Debug)]
struct UncheckedCertificates(Arc<CryptoProvider>);

impl ServerCertVerifier for UncheckedCertificates {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
