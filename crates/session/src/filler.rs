//! Speaks a filler: a few configured words where an answer is late ([`antiphon_dialog`] decides when).
//!
//! A task synthesizes all of it and hands it to the actor in one product, which gives it to the reducer in one go. A filler that
//! cannot be spoken, or not in time, is left out: the answer reports what fails.

use super::actor::Actor;
use super::languages;
use super::responding::Product;
use antiphon_dialog::{Event, ResponseSettings};
use antiphon_engine_api::tts::{PlayoutEstimate, SpeechRequest};
use antiphon_types::{BrownoutLevel, Format, Meter, Pcm, ResponseId};
use futures_util::StreamExt;
use std::time::Duration;
use tokio::time::timeout;

/// The longest wait for a filler's sound: then the answer is nearer than the filler.
const SPOKEN_WITHIN: Duration = Duration::from_secs(3);

/// The longest filler; the rest of its sound is not taken. `session.fillers` allows 100 characters, about 7 s.
const LONGEST: Duration = Duration::from_secs(10);

/// A filler with all of its sound.
pub(super) struct FillerSpeech {
    /// The response it is spoken for.
    pub(super) response: ResponseId,
    pub(super) text: String,
    /// How its audio is encoded.
    pub(super) format: Format,
    /// In order; bounded by [`LONGEST`].
    pub(super) speech: Vec<Pcm>,
}

impl Actor {
    /// Starts to synthesize a filler for `response`, in the language of its speech; none where no words are configured for it.
    pub(super) fn speak_filler(&mut self, response: ResponseId, settings: &ResponseSettings) {
        let tts = self.setup.engines.tts.clone();
        let language = languages::of_speech(tts.as_ref(), settings);
        let Some(text) = self.setup.session.fillers.get(&language).cloned() else {
            return tracing::debug!(%language, "no filler: session.fillers has none in the voice's language");
        };
        let meter = Meter::requested_by(self.requester);
        let request = SpeechRequest {
            text: text.clone(),
            voice: settings.voice.clone(),
            speed: settings.speed,
            unplayed: Some(PlayoutEstimate::default().unplayed()),
            instructions: settings.spoken_instructions(),
            immediate: self.setup.brownout.is_at_least(BrownoutLevel::ShortLookAhead),
            meter: meter.clone(),
            ..SpeechRequest::default()
        };
        self.timeline.filler_requested(meter);
        let products = self.products.clone();
        let format = settings.output_format;
        let work = async move {
            let mut stream = tts.speak(request);
            let mut speech = Vec::new();
            let mut length = Duration::ZERO;
            while let Some(pcm) = stream.next().await {
                match pcm {
                    Ok(pcm) => {
                        length += pcm.duration();
                        speech.push(pcm);
                    }
                    Err(error) => return tracing::warn!(%error, "no filler"),
                }
                if length > LONGEST {
                    break;
                }
            }
            // The actor is gone only when the session is.
            let _ = products.send(Box::new(Product::Filler(FillerSpeech { response, text, format, speech }))).await;
        };
        self.filler = Some(self.spawn(async move {
            if timeout(SPOKEN_WITHIN, work).await.is_err() {
                tracing::debug!("no filler: its sound came too late");
            }
        }));
    }

    /// Plays a filler, unless the answer has begun or the user speaks.
    pub(super) fn filler(&mut self, filler: FillerSpeech) {
        let FillerSpeech { response, text, format, speech } = filler;
        self.step(Event::FillerStarted { response: response.clone(), text });
        if !self.dialog.is_filling(&response) {
            return;
        }
        // A response of its own has no task that would have opened a voice; it ends with this filler.
        if !self.speaking.contains_key(&response)
            && let Some(guard) = self.filler.take()
        {
            self.speaking.insert(response.clone(), (guard, self.voice(format)));
        }
        for pcm in &speech {
            self.speech(&response, pcm);
        }
        self.finish_speech(&response);
        self.step(Event::FillerEnded { response });
    }
}
