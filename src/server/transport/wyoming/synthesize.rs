//! Voices: a text in, at once or as it is written; sound out as it is made.

use super::frame::{Event, FrameError};
use super::{Connection, ConnectionEnd, LONGEST_REQUEST, needed_text, text};
use crate::server::speech::SpeechParts;
use crate::server::speech::live::{Request, RequestFailure, SPEECH_RATE, Speaker};
use antiphon_telemetry::Endpoint;
use antiphon_types::Meter;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

/// Samples of one `audio-chunk`.
const CHUNK: usize = 2_048;

/// What the next step of a synthesis is about.
enum Step {
    Sound(Option<Result<Vec<i16>, RequestFailure>>),
    Event(Result<Option<Event>, FrameError>),
    Gone,
    Late,
}

impl Connection {
    /// Serves `synthesize`, or all of a text that begins with `synthesize-start`.
    pub(super) async fn synthesize(&mut self, first: Event) -> Result<(), ConnectionEnd> {
        let request = Request::begin(&self.speech, &self.spender, Endpoint::Speech)?;
        let synthesized = self.synthesized(&first, request.meter()).await;
        if let Some(outcome) = synthesized.as_ref().map_or_else(ConnectionEnd::outcome, |()| Some("ok")) {
            request.end(outcome);
        }
        synthesized
    }

    async fn synthesized(&mut self, first: &Event, meter: Meter) -> Result<(), ConnectionEnd> {
        let voice = voice(&self.speech, first)?;
        let mut speaker = Speaker::begin(&self.speech, &self.spender, meter, voice.as_deref())?;
        let is_stream = first.kind == "synthesize-start";
        // More text may come; all that came is spoken; the format was sent.
        let mut is_open = is_stream;
        let mut is_dry = is_stream;
        let mut has_begun = false;
        if !is_stream {
            speaker.add(needed_text(first, "text")?)?;
            speaker.end();
        }
        let deadline = Instant::now() + LONGEST_REQUEST;
        self.writer.set_deadline(Some(deadline));
        while is_open || !is_dry {
            let reader = self.reader();
            let inbound = async {
                if is_open {
                    return Step::Event(reader.next().await);
                }
                reader.closed().await;
                Step::Gone
            };
            let step = tokio::select! {
                sound = speaker.next(), if !is_dry => Step::Sound(sound),
                step = inbound => step,
                () = sleep_until(deadline) => Step::Late,
            };
            match step {
                Step::Sound(Some(sound)) => self.send_sound(&sound?, &mut has_begun).await?,
                Step::Sound(None) => is_dry = true,
                Step::Event(event) => {
                    let event = event?.ok_or(ConnectionEnd::Gone)?;
                    match event.kind.as_str() {
                        "synthesize-chunk" => speaker.add(needed_text(&event, "text")?)?,
                        "synthesize-stop" => {
                            speaker.end();
                            is_open = false;
                        }
                        "ping" => self.pong(&event).await?,
                        // `synthesize` repeats the text for servers that take no chunks.
                        _ => continue,
                    }
                    is_dry = false;
                }
                Step::Gone => return Err(ConnectionEnd::Gone),
                Step::Late => return Err(ConnectionEnd::Late("The synthesis took longer than it may.")),
            }
        }
        self.begin_sound(&mut has_begun).await?;
        self.writer.send("audio-stop", json!({"timestamp": null})).await?;
        if is_stream {
            self.writer.send("synthesize-stopped", Value::Null).await?;
        }
        Ok(())
    }

    async fn send_sound(&mut self, samples: &[i16], has_begun: &mut bool) -> Result<(), ConnectionEnd> {
        self.begin_sound(has_begun).await?;
        for chunk in samples.chunks(CHUNK) {
            let bytes: Vec<u8> = chunk.iter().flat_map(|sample| sample.to_le_bytes()).collect();
            self.writer.send_with("audio-chunk", format(), &bytes).await?;
        }
        Ok(())
    }

    async fn begin_sound(&mut self, has_begun: &mut bool) -> Result<(), ConnectionEnd> {
        if !std::mem::replace(has_begun, true) {
            self.writer.send("audio-start", format()).await?;
        }
        Ok(())
    }
}

fn format() -> Value {
    json!({"rate": SPEECH_RATE.hz(), "width": 2, "channels": 1, "timestamp": null})
}

/// The voice that an event asks for, by name or by language; `None`: the configured one.
fn voice(speech: &SpeechParts, event: &Event) -> Result<Option<String>, ConnectionEnd> {
    let voice = match event.data.get("voice") {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Object(voice)) => voice,
        Some(_) => return Err(ConnectionEnd::Invalid("'voice' is not an object.".into())),
    };
    if let Some(name) = text(voice, "name")? {
        return Ok(Some(name.to_owned()));
    }
    Ok(text(voice, "language")?.and_then(|language| Speaker::voice_of_language(speech, language)))
}
