//! Speech recognition: `audio-start`, `audio-chunk`s and `audio-stop` in, a `transcript` out, its words as they are certain.

use super::audio::Input;
use super::frame::Event;
use super::{Connection, ConnectionEnd, LONGEST_REQUEST};
use crate::server::speech::live::{Request, Transcriber};
use antiphon_engine_api::stt::RATE;
use antiphon_telemetry::Endpoint;
use antiphon_types::Meter;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// How far audio may be behind the clock, from its first event on: a client that sends more slowly than it records occupies a
/// decoder for nothing.
const BEHIND: Duration = Duration::from_secs(10);
/// Audio that an engine is given at a time: a tenth of a second, as a microphone would.
const PIECE: usize = RATE.hz() as usize / 10;

impl Connection {
    /// Serves one utterance, of which `first` is the first event with audio or its format.
    pub(super) async fn transcribe(&mut self, first: Event) -> Result<(), ConnectionEnd> {
        let request = Request::begin(&self.speech, &self.spender, Endpoint::Transcriptions)?;
        let transcribed = self.transcribed(first, request.meter()).await;
        if let Some(outcome) = transcribed.as_ref().map_or_else(ConnectionEnd::outcome, |()| Some("ok")) {
            request.end(outcome);
        }
        transcribed
    }

    async fn transcribed(&mut self, first: Event, meter: Meter) -> Result<(), ConnectionEnd> {
        let mut input = Input::of(&first)?;
        let language = self.language.take();
        let mut transcriber = Transcriber::begin(&self.speech, &self.spender, meter, language).await?;
        let mut words = Words::default();
        let begun = Instant::now();
        let mut received = Duration::ZERO;
        let mut next = Some(first);
        let mut pcm = Vec::new();
        // The audio may be as long as a request.
        self.writer.set_deadline(Some(begun + 2 * LONGEST_REQUEST));
        loop {
            let event = match next.take() {
                Some(event) => event,
                None => timeout_at(begun + received + BEHIND, self.reader().next())
                    .await
                    .map_err(|_| ConnectionEnd::Late("The audio came more slowly than it was recorded."))??
                    .ok_or(ConnectionEnd::Gone)?,
            };
            let is_last = event.kind == "audio-stop";
            match event.kind.as_str() {
                "audio-chunk" => received += input.take(&event, &mut pcm)?,
                "audio-stop" => input.flush(&mut pcm),
                "ping" => self.pong(&event).await?,
                _ => {}
            }
            while pcm.len() >= PIECE || (is_last && !pcm.is_empty()) {
                let piece = pcm.drain(..PIECE.min(pcm.len())).collect();
                if let Some(more) = transcriber.push(piece).await? {
                    words.send(self, &more).await?;
                }
            }
            if is_last {
                break;
            }
        }
        let transcript = tokio::select! {
            transcript = transcriber.finish() => transcript?,
            () = self.reader().closed() => return Err(ConnectionEnd::Gone),
        };
        self.writer.set_deadline(Some(Instant::now() + LONGEST_REQUEST));
        if let Some(rest) = transcript.rest.filter(|rest| !rest.is_empty()) {
            words.send(self, &rest).await?;
        }
        let mut data = json!({"text": transcript.text});
        if let Some(language) = transcript.language {
            data["language"] = language.into();
        }
        self.writer.send("transcript", data).await?;
        words.end(self).await
    }
}

/// The stream of a transcript's words; there is none without words.
#[derive(Default)]
struct Words {
    has_begun: bool,
}

impl Words {
    async fn send(&mut self, connection: &mut Connection, words: &str) -> Result<(), ConnectionEnd> {
        if !self.has_begun {
            connection.writer.send("transcript-start", Value::Null).await?;
            self.has_begun = true;
        }
        Ok(connection.writer.send("transcript-chunk", json!({"text": words})).await?)
    }

    async fn end(self, connection: &mut Connection) -> Result<(), ConnectionEnd> {
        if self.has_begun {
            connection.writer.send("transcript-stop", Value::Null).await?;
        }
        Ok(())
    }
}
