//! TLS: page and socket over https and wss, trust, and clients that do not complete the handshake.

use crate::hub::{Hub, engines, loud, quiet};
use antiphon::config::Config;
use antiphon::server::{Keys, Parts, Tls};
use antiphon_client::{ClientError, ConnectOptions, Event, ReceivedMessage, Trust};
use antiphon_engine_api::fakes::llm::FakeLlm;
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use antiphon_telemetry::Metrics;
use antiphon_types::Pcm;
use std::ffi::OsStr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A hub with its own certificate, and that certificate.
async fn hub() -> (Hub, String) {
    let (tls, pem) = Tls::self_signed(&[]).expect("a certificate");
    let engines = engines(FakeStt::default(), FakeLlm::says(["Hi."; 2]), FakeTts::default());
    let config = Config::default();
    let metrics = Metrics::new();
    let keys = Keys::default();
    (Hub::serve(Parts { config, engines, metrics, keys, tls: Some(tls), manager: None }).await, pem)
}

fn options(hub: &Hub, trust: Trust) -> ConnectOptions {
    ConnectOptions { trust, ..ConnectOptions::new(format!("https://localhost:{}", hub.address.port())) }
}

#[tokio::test]
async fn page_and_socket_speak_tls() {
    let (hub, pem) = hub().await;
    let _ = rustls::crypto::ring::default_provider().install_default();
    let trusted = reqwest::Certificate::from_pem(pem.as_bytes()).expect("PEM");
    let browser = reqwest::Client::builder().tls_certs_only([trusted]).build().expect("a client");
    let page = browser.get(format!("https://{}/", hub.address)).send().await.expect("an answer");
    assert!(page.text().await.expect("a body").to_lowercase().contains("<!doctype html>"));

    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("hub.pem");
    std::fs::write(&file, pem).expect("written");
    for trust in [Trust::File(file), Trust::Anyone] {
        let mut connection = antiphon_client::connect(&options(&hub, trust)).await.expect("trusted");
        let first = connection.receiver.next().await.expect("an event");
        assert_eq!(first, ReceivedMessage::Event(Event::SessionCreated {}));
    }
}

/// A hub with a certificate that an authority has signed for `voice.example` and `localhost`; the authority's own.
async fn certified_hub() -> (Hub, String) {
    let signing = rcgen::KeyPair::generate().expect("a key");
    let mut authority = rcgen::CertificateParams::new(Vec::new()).expect("parameters");
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority_pem = authority.self_signed(&signing).expect("a certificate").pem();
    let issuer = rcgen::Issuer::new(authority, signing);
    let names = vec!["voice.example".to_owned(), "localhost".into(), "127.0.0.1".into()];
    let mut params = rcgen::CertificateParams::new(names).expect("names");
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::CommonName, "voice.example");
    let key = rcgen::KeyPair::generate().expect("a key");
    let signed = params.signed_by(&key, &issuer).expect("signed");
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).to_str().expect("text").to_owned();
    std::fs::write(at("cert"), signed.pem()).expect("written");
    std::fs::write(at("key"), key.serialize_pem()).expect("written");
    let mut config = Config::default();
    config.server.tls_cert = at("cert");
    config.server.tls_key = at("key");
    config.server.allowed_hosts = vec!["voice.example".into()];
    let tls = Tls::load(&config.server).expect("readable");
    let engines = engines(FakeStt::default(), FakeLlm::says(["Hi."; 2]), FakeTts::default());
    let metrics = Metrics::new();
    let keys = Keys::default();
    (Hub::serve(Parts { config, engines, metrics, keys, tls, manager: None }).await, authority_pem)
}

#[tokio::test]
async fn browsers_are_bound_to_tls_by_a_public_name_and_never_on_localhost() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    for (hub, pem, is_certified) in [
        {
            let (hub, pem) = certified_hub().await;
            (hub, pem, true)
        },
        {
            let (hub, pem) = hub().await;
            (hub, pem, false)
        },
    ] {
        let trusted = reqwest::Certificate::from_pem(pem.as_bytes()).expect("PEM");
        let browser = reqwest::Client::builder().tls_certs_only([trusted]).resolve("voice.example", hub.address);
        let browser = browser.build().expect("a client");
        let port = hub.address.port();
        for (host, is_public) in [("voice.example", true), ("localhost", false), ("127.0.0.1", false)] {
            if !is_certified && is_public {
                continue;
            }
            for path in ["/", "/healthz", "/v1/models", "/nowhere"] {
                let answer = browser.get(format!("https://{host}:{port}{path}")).send().await.expect("an answer");
                let promise =
                    answer.headers().get("strict-transport-security").map(|value| value.to_str().expect("text"));
                assert_eq!(promise, (is_certified && is_public).then_some("max-age=31536000"), "{host}{path}");
            }
        }
    }
}

#[tokio::test]
async fn strangers_are_not_trusted_and_what_is_no_certificate_is_told() {
    let (hub, _) = hub().await;
    let error = antiphon_client::connect(&options(&hub, Trust::System)).await.err().expect("nobody vouches for it");
    assert!(matches!(error, ClientError::CannotConnect { .. }), "{error}");
    let other = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(other.path(), Tls::self_signed(&[]).expect("another").1).expect("written");
    let error =
        antiphon_client::connect(&options(&hub, Trust::File(other.path().into()))).await.err().expect("another's");
    assert!(matches!(error, ClientError::CannotConnect { .. }), "{error}");
    let nothing = Trust::File("Cargo.toml".into());
    let error = antiphon_client::connect(&options(&hub, nothing)).await.err().expect("no certificate");
    assert!(matches!(error, ClientError::BadCertificates { .. }), "{error}");
}

#[tokio::test]
async fn who_does_not_shake_hands_keeps_nobody_waiting() {
    let (hub, _) = hub().await;
    let silent = TcpStream::connect(hub.address).await.expect("accepted");
    let mut plain = TcpStream::connect(hub.address).await.expect("accepted");
    plain.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await.expect("sent");
    let mut answer = Vec::new();
    // An alert or a reset, but no page.
    let _ = plain.read_to_end(&mut answer).await;
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    antiphon_client::connect(&options(&hub, Trust::Anyone)).await.expect("served meanwhile");
    drop(silent);
}

#[tokio::test]
async fn the_command_asks_by_wss_whom_it_is_told_to_trust() {
    let (hub, pem) = hub().await;
    let folder = tempfile::tempdir().expect("a folder");
    let wav = folder.path().join("question.wav");
    let ca = folder.path().join("hub.pem");
    let question = Pcm { rate: antiphon_client::RATE, samples: [loud(600), quiet(100)].concat() };
    std::fs::write(&wav, antiphon_audio::wav::write(&question)).expect("written");
    std::fs::write(&ca, pem).expect("written");
    let url = format!("wss://localhost:{}", hub.address.port());
    let ask = async |trust: &[&OsStr]| {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_antiphon"));
        command.arg("ask").arg(&wav).args(["--json", "--url", &url]).args(trust);
        command.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        command.output().await.expect("the binary starts")
    };
    for trust in [&["--insecure".as_ref()][..], &["--ca-file".as_ref(), ca.as_os_str()][..]] {
        let output = ask(trust).await;
        assert!(output.status.success(), "{trust:?}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(String::from_utf8_lossy(&output.stdout).contains("Hi."), "{trust:?}");
    }
    let output = ask(&[]).await;
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("certificate") && !said.contains("panicked"), "{said}");
}
