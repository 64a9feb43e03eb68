//! SIP by TLS: calls that come and go by it, whom the hub trusts, and where SRTP is required. baresip judges SRTP itself
//! ([`super::judges`]).

use super::calling::{self, call};
use super::phone::{Answer, Options, Phone};
use super::{config, free_port, soon};
use crate::hub::{Hub, engines};
use antiphon::config::{Config, SipTransport, SipTrunk, SrtpUse};
use antiphon::server::{Extras, Keys, Parts, Reload, Tls};
use antiphon_engine_api::fakes::llm::FakeLlm;
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use antiphon_sip::sdp::Codec;
use antiphon_sip::{Credentials, Message, Method, stream_message};
use antiphon_telemetry::Metrics;
use bytes::BytesMut;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::json;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::mpsc;
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// A certificate of this machine, in files.
struct Certificate {
    folder: TempDir,
}

impl Certificate {
    fn new() -> Self {
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("cert"), made.cert.pem()).expect("written");
        std::fs::write(folder.path().join("key"), made.signing_key.serialize_pem()).expect("written");
        Self { folder }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().expect("text").to_owned()
    }

    fn acceptor(&self) -> TlsAcceptor {
        let chain = vec![CertificateDer::from_pem_file(self.path("cert")).expect("PEM")];
        let key = PrivateKeyDer::from_pem_file(self.path("key")).expect("PEM");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = builder.expect("versions").with_no_client_auth().with_single_cert(chain, key).expect("a pair");
        TlsAcceptor::from(Arc::new(config))
    }
}

/// A configuration that listens by TLS too, and where.
fn secure_config() -> (Config, SocketAddr, SocketAddr) {
    let (mut config, sip) = config();
    let tls = SocketAddr::from(([127, 0, 0, 1], free_port()));
    config.sip.tls_listen = tls.to_string();
    (config, sip, tls)
}

fn trunk(config: &mut Config) -> &mut SipTrunk {
    config.sip.trunks.get_mut("here").expect("it is there")
}

fn parts(heard: &[&str], config: Config, tls: Option<Tls>) -> Parts {
    let engines = engines(FakeStt::hears(heard.iter().copied()), FakeLlm::says(["Yes."]), FakeTts::default());
    Parts { config, engines, metrics: Metrics::new(), keys: Keys::default(), tls, manager: None }
}

/// Connects by TLS to a hub with the certificate in this file.
async fn connect(hub: SocketAddr, pem: &Path) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(pem).expect("PEM")).expect("a certificate");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = builder.expect("versions").with_root_certificates(roots).with_no_client_auth();
    // The hub may not listen yet.
    let connected = async {
        loop {
            match TcpStream::connect(hub).await {
                Ok(stream) => return stream,
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    };
    let stream = soon("a connection by TLS", connected).await;
    TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("localhost").expect("a name"), stream).await
}

/// Carries datagrams of a phone to a connection and back; gives where the phone sends. `phone`: where it is, if the other
/// side speaks first.
#[allow(clippy::disallowed_methods)]
async fn bridge(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    mut phone: Option<SocketAddr>,
) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
    let address = socket.local_addr().expect("bound");
    tokio::spawn(async move {
        let (mut reader, mut writer) = tokio::io::split(stream);
        let mut datagram = [0; 8_192];
        let mut buffer = BytesMut::new();
        loop {
            tokio::select! {
                Ok((n, from)) = socket.recv_from(&mut datagram) => {
                    phone = Some(from);
                    writer.write_all(&datagram[..n]).await.expect("it is open");
                }
                Ok(n) = reader.read_buf(&mut buffer) => {
                    if n == 0 {
                        return;
                    }
                    while let Ok(Some(n)) = stream_message(&buffer) {
                        socket.send_to(&buffer.split_to(n), phone.expect("a phone")).await.expect("sent");
                    }
                }
                else => return,
            }
        }
    });
    address
}

#[tokio::test(start_paused = true)]
async fn a_call_by_tls_has_the_certificate_of_the_pages() {
    let (config, _, by_tls) = secure_config();
    let (tls, pem) = Tls::self_signed(&[]).expect("a certificate");
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("pem"), pem).expect("written");
    let hub = Hub::serve(parts(&["a question"], config, Some(tls))).await;
    let stream = connect(by_tls, &folder.path().join("pem")).await.expect("trusted");
    let way = bridge(stream, None).await;
    let mut phone = Phone::connect(way, Options::default()).await;
    phone.speak(500).await;
    phone.until("the reply is heard", |phone| phone.heard_ms() >= 130).await;
    phone.send(Method::Bye, "", "").await;
    let is_answered = |phone: &Phone| phone.responses.last().and_then(Message::status) == Some(200);
    phone.until("BYE is answered", is_answered).await;
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_trunk_that_requires_srtp_takes_no_plain_call() {
    let (mut config, sip, by_tls) = secure_config();
    let certificate = Certificate::new();
    config.sip.tls_cert = certificate.path("cert");
    config.sip.tls_key = certificate.path("key");
    trunk(&mut config).srtp = SrtpUse::Required;
    let hub = Hub::serve(parts(&[], config, None)).await;
    let stream = connect(by_tls, Path::new(&certificate.path("cert"))).await.expect("trusted");
    for way in [sip, bridge(stream, None).await] {
        let (_, answer) = Phone::call(way, Options::default()).await;
        assert!(matches!(answer, Answer::Refused { status: 488, .. }), "{answer:?}");
    }
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_call_out_by_tls_goes_to_whom_an_authority_vouches_for() {
    let callee = Certificate::new();
    let stranger = Certificate::new();
    for (trusted, srtp, expected) in [
        (&callee, SrtpUse::Optional, "in_progress"),
        // Its answer has no keys.
        (&callee, SrtpUse::Required, "failed"),
        (&stranger, SrtpUse::Optional, "failed"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let (mut config, _) = config_trusting(trusted, &stranger);
        config.sip.call_to = vec!["tel:+49*".into()];
        let trunk = trunk(&mut config);
        trunk.host = format!("localhost:{port}");
        trunk.transport = SipTransport::Tls;
        trunk.srtp = srtp;
        let hub = Hub::serve(parts(&[], config, None)).await;
        let (status, dialed) = call(&hub, json!({"to": "tel:+4930123"})).await;
        assert_eq!(status, 201, "{dialed}");
        let id = dialed["id"].as_str().expect("an id");
        let (stream, _) = soon("a connection of the hub", listener.accept()).await.expect("the hub connects");
        if let Ok(stream) = callee.acceptor().accept(stream).await {
            let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
            let way = bridge(stream, Some(socket.local_addr().expect("bound"))).await;
            let mut buffer = [0; 8_192];
            let (n, _) = soon("an INVITE", socket.recv_from(&mut buffer)).await.expect("an INVITE");
            let mut invite = Message::parse(&buffer[..n]).expect("a message");
            let offer = String::from_utf8_lossy(&invite.body).into_owned();
            let profile = if srtp == SrtpUse::Required { "RTP/SAVP" } else { "RTP/AVP" };
            assert!(offer.contains("a=crypto:1 ") && offer.contains(profile), "{offer}");
            assert!(invite.get("contact").is_some_and(|contact| contact.contains("transport=tls")), "{invite:?}");
            invite.body = offer.replace("RTP/SAVP", "RTP/AVP").into();
            Phone::answer(socket, way, &invite, Codec::Pcma).await;
        } else {
            assert_eq!(trusted.path("cert"), stranger.path("cert"));
        }
        calling::until(&hub, id, expected).await;
        hub.stop().await;
    }
}

/// Settings of a hub that trusts one certificate and has another, and its address by TLS.
fn config_trusting(trusted: &Certificate, own: &Certificate) -> (Config, SocketAddr) {
    let (mut config, _, by_tls) = secure_config();
    config.sip.tls_cert = own.path("cert");
    config.sip.tls_key = own.path("key");
    config.sip.tls_ca = trusted.path("cert");
    (config, by_tls)
}

/// The next message of the hub at this socket.
async fn next(socket: &UdpSocket) -> Message {
    let mut buffer = [0; 8_192];
    let (n, _) = soon("a message of the hub", socket.recv_from(&mut buffer)).await.expect("a message");
    Message::parse(&buffer[..n]).expect("a message")
}

/// In real time: it waits for messages alone, and a paused clock would jump while one is under way.
#[tokio::test]
async fn a_trunk_is_registered_by_tls_and_its_calls_come_by_that_connection() {
    let registrar = Certificate::new();
    let stranger = Certificate::new();
    for trusted in [&stranger, &registrar] {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let (mut config, by_tls) = config_trusting(trusted, &stranger);
        let trunk = trunk(&mut config);
        trunk.allow.clear();
        trunk.register = format!("localhost:{port}");
        trunk.transport = SipTransport::Tls;
        trunk.username = "4711".into();
        // A variable that is set.
        trunk.password_env = "PATH".into();
        let hub = Hub::serve(parts(&["a question"], config, None)).await;
        let (stream, _) = soon("a connection of the hub", listener.accept()).await.expect("the hub connects");
        let Ok(stream) = registrar.acceptor().accept(stream).await else {
            assert_eq!(trusted.path("cert"), stranger.path("cert"));
            hub.stop().await;
            continue;
        };
        let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
        let way = bridge(stream, Some(socket.local_addr().expect("bound"))).await;
        let first = next(&socket).await;
        let contact = format!("<sip:4711@{by_tls};transport=tls>");
        assert_eq!((first.method(), first.get("contact")), (Some(Method::Register), Some(contact.as_str())));
        let challenge = "Digest realm=\"registrar\", nonce=\"n\"";
        let mut asked = first.answer(401, "Unauthorized", Some("registrar"));
        asked.add("www-authenticate", challenge);
        socket.send_to(&asked.write(), way).await.expect("sent");
        let second = next(&socket).await;
        let password = std::env::var("PATH").expect("set").trim().to_owned();
        let proof = Credentials { username: "4711".into(), password };
        let proof = proof.answer(challenge, "REGISTER", "sip:localhost", "");
        assert_eq!((second.get("authorization"), proof.is_some()), (proof.as_deref(), true));
        socket.send_to(&second.answer(200, "OK", Some("registrar")).write(), way).await.expect("sent");
        let mut phone = Phone::connect(way, Options::default()).await;
        phone.speak(500).await;
        phone.until("the reply is heard", |phone| phone.heard_ms() >= 130).await;
        phone.send(Method::Bye, "", "").await;
        let is_answered = |phone: &Phone| phone.responses.last().and_then(Message::status) == Some(200);
        phone.until("BYE is answered", is_answered).await;
        // What the hub sends goes to the registrar again from its next request on.
        let mut options = Message::request(Method::Options, format!("sip:{by_tls}"));
        options.add("via", "SIP/2.0/TLS localhost;branch=z9hG4bKoptions");
        options.add("from", "<sip:localhost>;tag=registrar");
        options.add("to", format!("<sip:{by_tls}>"));
        options.add("call-id", "options");
        options.add("cseq", "1 OPTIONS");
        options.add("max-forwards", "70");
        socket.send_to(&options.write(), way).await.expect("sent");
        assert_eq!(next(&socket).await.status(), Some(200));
        let ((), last) = tokio::join!(hub.stop(), next(&socket));
        assert_eq!((last.method(), last.get("expires")), (Some(Method::Register), Some("0")), "it takes it back");
    }
}

#[tokio::test(start_paused = true)]
async fn its_own_certificate_is_replaced_while_it_runs() {
    let [before, after] = [Certificate::new(), Certificate::new()];
    let (mut config, _, by_tls) = secure_config();
    config.sip.tls_cert = before.path("cert");
    config.sip.tls_key = before.path("key");
    let (reload, reloads) = mpsc::channel(1);
    let extras = Extras { reloads: Some(reloads), ..Extras::default() };
    let mut replaced = config.sip.clone();
    let hub = Hub::serve_with(parts(&[], config, None), extras).await;
    let is_served =
        async |certificate: &Certificate| connect(by_tls, Path::new(&certificate.path("cert"))).await.is_ok();
    assert!(is_served(&before).await && !is_served(&after).await);
    replaced.tls_cert = after.path("cert");
    replaced.tls_key = after.path("key");
    let sip_tls = Tls::load_sip(&replaced).expect("readable");
    reload.send(Reload { sip_tls, ..Reload::default() }).await.expect("it runs");
    let replacement = async {
        while !is_served(&after).await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon("the new certificate", replacement).await;
    assert!(!is_served(&before).await);
    hub.stop().await;
}
