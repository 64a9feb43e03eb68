//! A speech server on loopback that takes words over a WebSocket, as a test scripts it.
#![allow(clippy::disallowed_methods)]

use antiphon_engine_api::tts::{SpokenPart, TextSpeech, TtsError};
use axum::Router;
use axum::extract::ws::{WebSocket, WebSocketUpgrade};
use axum::http::{HeaderMap, Uri};
use axum::routing::any;
use futures_util::StreamExt;
use std::sync::{Arc, Mutex};

/// What the server was asked for at the upgrade.
pub(crate) type Upgrades = Arc<Mutex<Vec<(Uri, HeaderMap)>>>;

/// A server that gives each connection to `script`; its address.
pub(crate) async fn serve<F: Future<Output = ()> + Send + 'static>(
    script: impl Fn(WebSocket) -> F + Clone + Send + Sync + 'static,
) -> (String, Upgrades) {
    let upgrades = Upgrades::default();
    let seen = upgrades.clone();
    let answer = async move |upgrade: WebSocketUpgrade, uri: Uri, headers: HeaderMap| {
        seen.lock().unwrap().push((uri, headers));
        upgrade.on_upgrade(script)
    };
    let app = Router::new().fallback(any(answer));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    (format!("http://{address}"), upgrades)
}

/// Sends the words, ends the text and collects what is spoken: samples, the pieces that each sound speaks, the failure.
pub(crate) async fn say(speech: TextSpeech, words: &[&str]) -> (Vec<i16>, Vec<usize>, Option<TtsError>) {
    let TextSpeech { words: sender, mut speech } = speech;
    let feed = async {
        for word in words {
            if sender.send((*word).to_owned()).await.is_err() {
                break;
            }
        }
        drop(sender);
    };
    let listen = async {
        let mut samples = Vec::new();
        let mut pieces = Vec::new();
        while let Some(part) = speech.next().await {
            match part {
                Ok(SpokenPart::Audio(pcm)) => samples.extend(pcm.samples),
                Ok(SpokenPart::Pieces(n)) => pieces.push(n),
                Err(error) => return (samples, pieces, Some(error)),
            }
        }
        (samples, pieces, None)
    };
    tokio::join!(feed, listen).1
}

/// A server that answers the upgrade with this status.
pub(crate) async fn refuse(status: u16) -> (String, Upgrades) {
    let status = axum::http::StatusCode::from_u16(status).unwrap();
    let app = Router::new().fallback(any(async move || status));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    (format!("http://{address}"), Upgrades::default())
}
