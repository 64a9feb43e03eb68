//! Voice-to-voice latency: a session by WebSocket (PCM in JSON) and a call by WebRTC with the same hub, at the same time.
//!
//! From the frame with the last loud sample of a question to the first sound of the reply that a listener hears: by WebSocket
//! when it arrives, by WebRTC behind the playout buffer. Both suffer what else this machine does. The hub runs on one core,
//! clients and mock engines on the other.

use super::client::{Client, Transport, WebSocket};
use super::*;
use antiphon_client::AudioMode;
use tokio::time::Instant;

const TURNS: usize = 40;
const ADDED_P95_MS: f64 = 60.0;
/// From the offer to the open data channel.
const CONNECT_MS: f64 = 1_000.0;

pub(super) async fn measure(plan: &TransportsPlan, progress: Progress<'_>) -> Result<Measurement, BenchError> {
    let how = "mock engines that take no time, 200 ms of silence end a turn, one session each; the hub on one core";
    let mut section = Section::new(Part::Turns.section(), how);
    let pinned = LoadAffinity::load();
    let pair = plan.pair(SOUND, &[], pinned.as_ref().ok()).await?;
    let n = plan.of(TURNS, 1);
    let warm_up = plan.of(1, 0);
    progress(&format!("turns: {n} by WebSocket and by WebRTC"));
    let http = http()?;
    let websocket = WebSocket::open(&pair.hub.url, AudioMode::Ga, &session(true)).await?;
    let begun = Instant::now();
    let webrtc = call(&http, &pair.hub).await?;
    let connected_ms = begun.elapsed().as_secs_f64() * 1e3;
    let (websocket, webrtc) = tokio::try_join!(
        ask(Client::WebSocket(Box::new(websocket)), Transport::WebSocket, warm_up, n),
        ask(webrtc, Transport::Webrtc, warm_up, n),
    )?;
    let [of_websocket, of_webrtc] = [&websocket, &webrtc].map(|turns| waits(turns.iter().map(|(_, turn)| turn)));
    for (transport, waits) in [(Transport::WebSocket, &of_websocket), (Transport::Webrtc, &of_webrtc)] {
        section.percentile(transport.name(), waits, 50.0, None);
        section.percentile(transport.name(), waits, 95.0, None);
    }
    let above_ms = of_webrtc.above_ms(&of_websocket, 95.0);
    section.figures.push(Figure::new("WebRTC's p95 above it", Unit::Ms, above_ms, n).at_most(ADDED_P95_MS));
    section.figures.push(Figure::new("WebRTC: connected after", Unit::Ms, connected_ms, 1).at_most(CONNECT_MS));
    add_failed(&mut section, &[websocket, webrtc].concat());
    section.notes.extend(pinned.as_ref().err().map(|why| format!("nothing was pinned to a core: {why}")));
    Ok(Measurement { section, hub_cpu_s: pair.stop().await? })
}

/// The `n` turns of one session behind its first ones.
async fn ask(client: Client, transport: Transport, first: usize, n: usize) -> Result<Vec<(usize, Turn)>, BenchError> {
    let speech = questions(transport, 1).await?.remove(0);
    let mut talker = talker(client, transport)?;
    let turns = converse(&mut talker, &speech, first + n, 1).await?;
    talker.client.close().await;
    Ok(turns.into_iter().skip(first).map(|turn| (transport as usize, turn)).collect())
}
