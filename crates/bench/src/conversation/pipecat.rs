//! A bot as the other side of a conversation, by pipecat's WebSocket transport: protobuf frames and RTVI messages, as
//! pipecat's own clients take them. LiveKit's agent (`peers/livekit_bot.py`) has the same transport.
//!
//! [`super::link`] calls it. The bot paces its sound, so that what arrives is played at once. Messages become those of
//! a Realtime server: a reply begins with `bot-llm-started` and is done when the bot has stopped speaking, and an
//! interruption frame cuts the one that sounds.

use super::runner::FRAME_MS;
use antiphon::server::rtvi_frames::{Frame, Kind};
use antiphon_audio::Resampler;
use antiphon_client::{ClientError, Event, RATE, ReceivedMessage, ResponseInfo};
use antiphon_types::SampleRate;
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

/// The rate of the bot's input, which it does not convert.
const INPUT: SampleRate = SampleRate::HZ_16000;
/// How long a bot may load its models, which it does for each connection.
const READY_WITHIN: Duration = Duration::from_secs(120);
/// The version of RTVI that the client says it speaks.
const RTVI_VERSION: &str = "1.4.0";

/// A connection to a bot.
pub(super) struct Bot {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    resampler: Resampler,
    received: Messages,
}

impl Bot {
    /// Connects, and waits until the bot is ready.
    ///
    /// # Errors
    /// There is no bot, or it is not ready in [`READY_WITHIN`].
    pub(super) async fn connect(url: &str) -> Result<Self, ClientError> {
        let connecting = tokio_tungstenite::connect_async(url);
        let late = |what| ClientError::TimedOut { what, after: READY_WITHIN };
        let connected = timeout(READY_WITHIN, connecting).await.map_err(|_| late("the connection"))?;
        let (socket, _) =
            connected.map_err(|source| ClientError::CannotConnect { url: url.to_owned(), source: Box::new(source) })?;
        let mut bot = Self { socket, resampler: Resampler::new(RATE, INPUT), received: Messages::default() };
        let about = json!({"library": "antiphon-bench", "library_version": env!("CARGO_PKG_VERSION")});
        let ready = json!({
            "label": "rtvi-ai", "type": "client-ready", "id": "1",
            "data": {"version": RTVI_VERSION, "about": about},
        });
        bot.send(Frame::message(ready.to_string())).await?;
        let is_ready = async {
            while !bot.received.is_ready {
                bot.receive().await?;
            }
            Ok(())
        };
        timeout(READY_WITHIN, is_ready).await.map_err(|_| late("the bot's readiness"))??;
        Ok(bot)
    }

    /// Sends a frame of the microphone, at [`RATE`].
    pub(super) async fn audio(&mut self, samples: &[i16]) -> Result<(), ClientError> {
        let mut resampled = Vec::with_capacity(samples.len());
        self.resampler.process(samples, &mut resampled);
        if resampled.is_empty() {
            return Ok(());
        }
        let bytes: Vec<u8> = resampled.into_iter().flat_map(i16::to_le_bytes).collect();
        self.send(Frame::audio(0, bytes.into(), INPUT.hz())).await
    }

    /// The next message. May be dropped at any time without a loss.
    pub(super) async fn next(&mut self) -> Result<ReceivedMessage, ClientError> {
        loop {
            if let Some(message) = self.received.queue.pop_front() {
                return Ok(message);
            }
            self.receive().await?;
        }
    }

    /// Closes the connection.
    pub(super) async fn close(&mut self) {
        let closing = self.socket.close(None);
        let _ = timeout(Duration::from_millis(50 * FRAME_MS as u64), closing).await;
    }

    async fn send(&mut self, frame: Bytes) -> Result<(), ClientError> {
        let sent = self.socket.send(Message::Binary(frame)).await;
        sent.map_err(|error| ClientError::Broken(Box::new(error)))
    }

    async fn receive(&mut self) -> Result<(), ClientError> {
        let closed = |reason: &str| ClientError::Closed { code: None, reason: reason.to_owned() };
        match self.socket.next().await {
            Some(Ok(Message::Binary(bytes))) => {
                let frame = Frame::read(bytes).map_err(|_| closed("a message is no frame of pipecat"))?;
                self.received.take(frame.kind);
                Ok(())
            }
            Some(Ok(Message::Close(_))) | None => Err(closed("")),
            Some(Ok(_)) => Ok(()),
            Some(Err(error)) => Err(ClientError::Broken(Box::new(error))),
        }
    }
}

/// What the bot's frames mean.
#[derive(Default)]
struct Messages {
    queue: VecDeque<ReceivedMessage>,
    is_ready: bool,
    n_replies: usize,
    /// The reply is not done.
    is_active: bool,
    /// The bot has sent sound and not said that it has stopped.
    is_speaking: bool,
}

impl Messages {
    fn take(&mut self, kind: Option<Kind>) {
        match kind {
            Some(Kind::Audio(audio)) => {
                let (samples, _) = audio.audio.as_chunks::<2>();
                let samples: Vec<i16> = samples.iter().map(|bytes| i16::from_le_bytes(*bytes)).collect();
                self.is_speaking = true;
                let item_id = self.reply();
                self.queue.push_back(ReceivedMessage::Audio { item_id, samples });
            }
            Some(Kind::Message(message)) => {
                let message: Value = serde_json::from_str(&message.data).unwrap_or_default();
                self.rtvi(&message);
            }
            Some(Kind::Interruption(_)) => {
                if self.is_speaking {
                    self.event(Event::Cleared {});
                }
                self.stopped();
            }
            None => {}
        }
    }

    /// The bot is silent: its reply has ended or was interrupted.
    fn stopped(&mut self) {
        self.is_speaking = false;
        if std::mem::take(&mut self.is_active) {
            self.event(Event::ResponseDone { response: ResponseInfo::default() });
        }
    }

    /// What concerns turns and replies; the rest is for a page.
    fn rtvi(&mut self, message: &Value) {
        let text = || message["data"]["text"].as_str().unwrap_or_default().to_owned();
        let item_id = String::new;
        match message["type"].as_str().unwrap_or_default() {
            "bot-ready" => self.is_ready = true,
            "bot-llm-started" => {
                self.stopped();
                self.n_replies += 1;
                self.is_active = true;
                self.event(Event::ResponseCreated { response: ResponseInfo::default() });
            }
            "bot-llm-text" => {
                let item_id = self.reply();
                self.event(Event::TranscriptDelta { item_id, delta: text() });
            }
            "bot-stopped-speaking" => self.stopped(),
            "user-started-speaking" => self.event(Event::SpeechStarted { item_id: item_id(), audio_start_ms: 0 }),
            "user-stopped-speaking" => self.event(Event::SpeechStopped { item_id: item_id(), audio_end_ms: 0 }),
            "user-transcription" if message["data"]["final"] == true => {
                self.event(Event::TranscriptionCompleted { item_id: item_id(), transcript: text() });
            }
            _ => {}
        }
    }

    fn event(&mut self, event: Event) {
        self.queue.push_back(ReceivedMessage::Event(event));
    }

    /// The id of the current reply.
    fn reply(&self) -> String {
        format!("reply {}", self.n_replies)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon::server::rtvi_frames::{Audio, Interruption, RtviMessage};

    fn message(data: &Value) -> Option<Kind> {
        Some(Kind::Message(RtviMessage { data: data.to_string() }))
    }

    fn audio() -> Option<Kind> {
        let audio = Bytes::from_static(&[1, 0, 255, 255]);
        Some(Kind::Audio(Audio { audio, sample_rate: 24_000, num_channels: 1, ..Audio::default() }))
    }

    fn interruption() -> Option<Kind> {
        Some(Kind::Interruption(Interruption::default()))
    }

    fn events(kinds: impl IntoIterator<Item = Option<Kind>>) -> Vec<ReceivedMessage> {
        let mut messages = Messages::default();
        kinds.into_iter().for_each(|kind| messages.take(kind));
        messages.queue.into()
    }

    #[test]
    fn sound_and_words_belong_to_the_reply_that_the_model_began() {
        let started = || message(&json!({"type": "bot-llm-started"}));
        let words = || message(&json!({"type": "bot-llm-text", "data": {"text": "The old "}}));
        let heard = events([started(), words(), audio(), interruption(), started(), audio()]);
        let created = || ReceivedMessage::Event(Event::ResponseCreated { response: ResponseInfo::default() });
        let done = || ReceivedMessage::Event(Event::ResponseDone { response: ResponseInfo::default() });
        let cleared = || ReceivedMessage::Event(Event::Cleared {});
        let sound = |item_id: &str| ReceivedMessage::Audio { item_id: item_id.into(), samples: vec![1, -1] };
        let delta = Event::TranscriptDelta { item_id: "reply 1".into(), delta: "The old ".into() };
        let first = [created(), ReceivedMessage::Event(delta), sound("reply 1"), cleared(), done()];
        let expected: Vec<ReceivedMessage> = first.into_iter().chain([created(), sound("reply 2")]).collect();
        assert_eq!(heard, expected);
    }

    #[test]
    fn an_interruption_cuts_a_reply_that_sounds_and_no_other() {
        let cleared = |kinds: Vec<Option<Kind>>| {
            let is_cleared = |heard: &&ReceivedMessage| matches!(heard, ReceivedMessage::Event(Event::Cleared {}));
            events(kinds).iter().filter(is_cleared).count()
        };
        let stopped = message(&json!({"type": "bot-stopped-speaking"}));
        assert_eq!(cleared(vec![interruption()]), 0, "nothing has sounded");
        assert_eq!(cleared(vec![audio(), interruption(), interruption()]), 1);
        assert_eq!(cleared(vec![audio(), stopped, interruption()]), 0, "it had ended by itself");
    }

    #[test]
    fn only_final_transcripts_count() {
        let transcript = |is_final: bool| {
            message(&json!({"type": "user-transcription", "data": {"text": "Stop.", "final": is_final}}))
        };
        assert_eq!(events([transcript(false), transcript(true)]).len(), 1);
        assert!(events([message(&json!({"type": "metrics"})), None]).is_empty());
    }
}
