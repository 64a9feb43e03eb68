//! A phone call as Twilio Media Streams carry it: mu-law at 8 kHz in JSON, played in real time, with marks and clears.

use super::Received;
use crate::BenchError;
use antiphon_audio::codec;
use antiphon_types::{Format, SampleRate, Samples};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use std::collections::VecDeque;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

/// Samples of a frame of 20 ms.
pub(super) const FRAME: usize = 160;
const RATE: SampleRate = SampleRate::HZ_8000;

/// See the module.
pub(in super::super) struct Phone {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    n_sent: u64,
    /// When what was received has been played.
    plays_until: Instant,
    /// Marks that playback has not reached.
    marks: VecDeque<(Instant, String)>,
    /// When the start of the stream was sent.
    pub(in super::super) started: Instant,
}

impl Phone {
    /// Calls a hub that accepts calls without a token.
    pub(in super::super) async fn open(url: &str) -> Result<Self, BenchError> {
        let url = format!("{}/v1/telephony/twilio", url.replacen("http", "ws", 1));
        let (mut socket, _) = connect_async(url).await.map_err(failed)?;
        if let MaybeTlsStream::Plain(stream) = socket.get_ref() {
            stream.set_nodelay(true).map_err(failed)?;
        }
        let media = json!({"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1});
        let start = json!({"accountSid": "AC1", "streamSid": "MZ1", "callSid": "CA1", "tracks": ["inbound"],
            "customParameters": {"to": "+15550100"}, "mediaFormat": media});
        let started = Instant::now();
        for message in [
            json!({"event": "connected", "protocol": "Call", "version": "1.0.0"}),
            json!({"event": "start", "sequenceNumber": "1", "streamSid": "MZ1", "start": start}),
        ] {
            socket.send(Message::text(message.to_string())).await.map_err(failed)?;
        }
        Ok(Self { socket, n_sent: 0, plays_until: started, marks: VecDeque::new(), started })
    }

    pub(super) async fn speak(&mut self, frame: &Bytes) -> Result<(), BenchError> {
        self.n_sent += 1;
        let chunk = self.n_sent.to_string();
        let payload = BASE64.encode(frame);
        let media = json!({"track": "inbound", "chunk": chunk, "timestamp": (20 * self.n_sent).to_string(), "payload": payload});
        let message = json!({"event": "media", "streamSid": "MZ1", "sequenceNumber": chunk, "media": media});
        self.socket.send(Message::text(message.to_string())).await.map_err(failed)
    }

    pub(super) async fn next(&mut self) -> Result<Received, BenchError> {
        loop {
            let due = self.marks.front().map(|(due, _)| *due);
            let message = tokio::select! {
                biased;
                () = sleep_until(due.unwrap_or(self.plays_until)), if due.is_some() => {
                    self.answer_mark().await?;
                    continue;
                }
                message = self.socket.next() => message,
            };
            match message {
                Some(Ok(Message::Text(text))) => {
                    if let Some(received) = self.take(text.as_str()).await? {
                        return Ok(received);
                    }
                }
                Some(Ok(Message::Close(frame))) => return Err(failed(format!("the hub hung up: {frame:?}"))),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(failed(error)),
                None => return Err(failed("the connection ended")),
            }
        }
    }

    pub(super) async fn close(mut self) {
        let stop = json!({"event": "stop", "streamSid": "MZ1", "stop": {"callSid": "CA1"}});
        // The hub may have closed the connection.
        let _ = self.socket.send(Message::text(stop.to_string())).await;
        let _ = self.socket.close(None).await;
    }

    async fn take(&mut self, text: &str) -> Result<Option<Received>, BenchError> {
        let message: Value = serde_json::from_str(text).map_err(failed)?;
        let now = Instant::now();
        match message["event"].as_str().unwrap_or_default() {
            "media" => {
                let bytes = BASE64.decode(message["media"]["payload"].as_str().unwrap_or_default()).map_err(failed)?;
                let mut samples = Vec::new();
                codec::decode(Format::Ulaw, &bytes, &mut samples).map_err(failed)?;
                self.plays_until = self.plays_until.max(now) + Samples(samples.len() as u64).duration(RATE);
                Ok(Some(Received::Sound { samples, rate: RATE, plays_at: None }))
            }
            "mark" => {
                let name = message["mark"]["name"].as_str().unwrap_or_default().to_owned();
                self.marks.push_back((self.plays_until, name));
                Ok(None)
            }
            "clear" => {
                self.plays_until = now;
                while !self.marks.is_empty() {
                    self.answer_mark().await?;
                }
                Ok(Some(Received::Clear))
            }
            _ => Ok(None),
        }
    }

    async fn answer_mark(&mut self) -> Result<(), BenchError> {
        let Some((_, name)) = self.marks.pop_front() else { return Ok(()) };
        let mark = json!({"event": "mark", "streamSid": "MZ1", "mark": {"name": name}});
        self.socket.send(Message::text(mark.to_string())).await.map_err(failed)
    }
}

fn failed(why: impl ToString) -> BenchError {
    BenchError::Call(why.to_string())
}
