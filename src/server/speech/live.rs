//! The engines of the speech API for adapters that hold a connection of their own: audio and text that come bit by bit.
//!
//! `transport/wyoming` calls it. A [`Request`] has the place, the limits and the metrics that the same work has by HTTP; a
//! [`Transcriber`] and a [`Speaker`] are its two kinds. Nothing here knows a protocol, and nothing is logged of what is spoken or
//! transcribed. Dropping any of them ends the work and gives back the engine.

use super::error::ApiError;
use super::metering::MeteredRequest;
use super::parts::{SpeechParts, names, take};
use super::speaking::{Course, SpeechPiece, SpeechSource};
use super::spec::SpeechSpec;
use super::waiting::{BEFORE_SOUND, Retry};
use crate::server::access::limits::{Count, Resource, Spender};
use crate::server::sessions::load::ApiRequest;
use antiphon_audio::encode::{self, FileFormat};
use antiphon_dialog::{Captions, Partial};
use antiphon_engine_api::stt::{RATE, SttError, SttOptions, SttUtterance, Transcript, requested_language};
use antiphon_engine_api::tts::{VoiceScope, find_voice};
use antiphon_telemetry::Endpoint;
use antiphon_text::{Chunk, Chunker, Language};
use antiphon_types::{BrownoutLevel, Meter, SampleRate, Samples, Timestamp};
use std::time::Duration;
use tokio::time::{timeout, timeout_at};

/// Sampling rate of the sound that a [`Speaker`] gives: mono.
pub(in crate::server) const SPEECH_RATE: SampleRate = encode::RATE;
/// New audio after which the partial transcript is asked for, in samples at [`RATE`]: 250 ms, as in a session.
const PARTIAL_EVERY: usize = RATE.hz() as usize / 4;
/// Longest wait for a decoder, and for it to take a piece of audio, as in a session.
const BEHIND: Duration = Duration::from_secs(30);

/// Why a request ends without its result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(in crate::server) struct RequestFailure {
    /// The code that the same failure has in the speech API.
    pub(in crate::server) code: &'static str,
    /// A sentence for the client.
    pub(in crate::server) message: String,
    /// What the request counts as.
    pub(in crate::server) outcome: &'static str,
}

impl From<ApiError> for RequestFailure {
    fn from(error: ApiError) -> Self {
        Self { code: error.code, outcome: error.outcome(), message: error.message }
    }
}

/// A request in progress, with its place among those of the speech API. It is counted when it is dropped.
pub(in crate::server) struct Request {
    metered: MeteredRequest,
    meter: Meter,
}

impl Request {
    /// Takes a place.
    ///
    /// # Errors
    /// A limit of requests is used up, no place is free, or the server does without such requests now.
    pub(in crate::server) fn begin(
        speech: &SpeechParts,
        spender: &Spender,
        endpoint: Endpoint,
    ) -> Result<Self, RequestFailure> {
        take(speech, spender, Resource::Requests, 1)?;
        spender.consumer.count(Count::Requests, 1);
        let mut metered = MeteredRequest::begin(speech, endpoint);
        let checked = speech.check_place(spender, BrownoutLevel::NoSpeechRequests);
        let place = checked.and_then(|()| speech.admit(spender));
        match place {
            Ok(place) => {
                metered.place = Some(place);
                let stage = match endpoint {
                    Endpoint::Handle => "llm",
                    Endpoint::Transcriptions | Endpoint::Translations => "stt",
                    Endpoint::Speech | Endpoint::Job | Endpoint::Voices => "tts",
                };
                let meter = metered.meter(stage, spender.requester(), &spender.consumer);
                Ok(Self { metered, meter })
            }
            Err(error) => {
                metered.end(error.outcome());
                Err(error.into())
            }
        }
    }

    /// The meter for the request's engine; its client's key is charged with it at the end.
    pub(in crate::server) fn meter(&self) -> Meter {
        self.meter.clone()
    }

    /// It ended like this: an outcome of `voice_requests_total`. A request without an end counts as cancelled by its client.
    pub(in crate::server) fn end(self, outcome: &'static str) {
        self.metered.end(outcome);
    }
}

/// One utterance being transcribed while its audio comes.
pub(in crate::server) struct Transcriber {
    utterance: Box<dyn SttUtterance>,
    _counted: ApiRequest,
    spender: Spender,
    captions: Captions,
    /// The longest utterance, in samples at [`RATE`].
    longest: usize,
    n_samples: usize,
    since_partial: usize,
    /// From the end of the audio to the transcript.
    timeout: Duration,
}

/// A final transcript.
pub(in crate::server) struct FinalTranscript {
    /// The complete text; empty if nothing was said.
    pub(in crate::server) text: String,
    /// What no partial had; `None` where nothing is left, or where the partials had other words.
    pub(in crate::server) rest: Option<String>,
    /// The language as an ISO-639-1 code, if known.
    pub(in crate::server) language: Option<String>,
}

impl Transcriber {
    /// Opens an utterance in this language; `None`: the configured one. Waits for a decoder, 30 s at most.
    ///
    /// # Errors
    /// The limit of transcribed audio is used up, or no decoder serves it.
    pub(in crate::server) async fn begin(
        speech: &SpeechParts,
        spender: &Spender,
        meter: Meter,
        language: Option<String>,
    ) -> Result<Self, RequestFailure> {
        take(speech, spender, Resource::Transcription, 0)?;
        let setup = speech.sessions.setup();
        let language = language.as_deref().map(|given| requested_language(setup.engines.stt.as_ref(), given));
        let language = language
            .transpose()
            .map_err(|why| ApiError::invalid("invalid_value", "language", format!("Invalid 'language': {why}.")))?;
        let options = SttOptions {
            language: language.flatten().or_else(|| setup.language.clone()),
            meter,
            ..SttOptions::default()
        };
        let retry = Retry::within(BEHIND);
        let opened = async { setup.engines.stt.open_queued(options).await.await };
        let utterance = timeout_at(retry.deadline(), opened).await.unwrap_or(Err(SttError::Behind(BEHIND)));
        Ok(Self {
            utterance: utterance.map_err(ApiError::from)?,
            _counted: speech.sessions.load.stt_api.begin(),
            spender: spender.clone(),
            captions: Captions::default(),
            longest: setup.session.max_utterance_seconds as usize * RATE.hz() as usize,
            n_samples: 0,
            since_partial: 0,
            timeout: setup.stt_timeout,
        })
    }

    /// Adds mono PCM at 16 kHz, which is charged, and gives the words that are certain since the last call. Waits while the engine
    /// is behind, 30 s at most.
    ///
    /// # Errors
    /// The engine fails, or the utterance is longer than `session.max_utterance_seconds`.
    pub(in crate::server) async fn push(&mut self, pcm: Vec<i16>) -> Result<Option<String>, RequestFailure> {
        let n = pcm.len();
        if self.n_samples + n > self.longest {
            let message = "The utterance is too long (session.max_utterance_seconds).";
            return Err(ApiError::invalid("audio_too_long", None, message).into());
        }
        let pushed = timeout(BEHIND, self.utterance.push(pcm)).await.unwrap_or(Err(SttError::Behind(BEHIND)));
        pushed.map_err(ApiError::from)?;
        let before = Samples(self.n_samples as u64).as_ms(RATE);
        self.n_samples += n;
        self.since_partial += n;
        // Charged as it is taken: the client may go before the end.
        let ms = Samples(self.n_samples as u64).as_ms(RATE);
        self.spender.consumer.spend(Resource::Transcription, ms - before);
        self.spender.consumer.count(Count::TranscribedMs, ms - before);
        if self.since_partial < PARTIAL_EVERY {
            return Ok(None);
        }
        self.since_partial = 0;
        let partial = timeout(BEHIND, self.utterance.partial()).await.unwrap_or(Err(SttError::Behind(BEHIND)));
        let partial = partial.map_err(ApiError::from)?.filter(|partial| !partial.text.is_empty());
        // The time of the sound: a file may come faster.
        let at = Timestamp::from_ms(ms);
        Ok(partial.and_then(|transcript| {
            let Transcript { n_sure_words, n_settled_words, .. } = transcript;
            self.captions.partial(&Partial { text: transcript.text.trim(), n_sure_words, n_settled_words }, at)
        }))
    }

    /// Ends the utterance and waits for its transcript, `stt.timeout_ms` and twice the length of the audio at most.
    ///
    /// # Errors
    /// The engine fails or is too slow.
    pub(in crate::server) async fn finish(self) -> Result<FinalTranscript, RequestFailure> {
        let most = self.timeout + Samples(self.n_samples as u64).duration(RATE) * 2;
        let finished = timeout(most, self.utterance.finish()).await.unwrap_or(Err(SttError::Timeout(most)));
        let transcript = finished.map_err(ApiError::from)?;
        let text = transcript.text.trim().to_owned();
        Ok(FinalTranscript { rest: self.captions.rest(&text), text, language: transcript.language })
    }
}

/// One text being spoken while it is written.
pub(in crate::server) struct Speaker {
    course: Course,
    chunker: Chunker,
    spender: Spender,
    n_chars: usize,
    longest: usize,
}

impl Speaker {
    /// Prepares the voice by its name; `None`: the configured one. Asks no engine for anything yet.
    ///
    /// # Errors
    /// There is no such voice, the limit of characters is used up, or the engine has more to speak than it can begin in time.
    pub(in crate::server) fn begin(
        speech: &SpeechParts,
        spender: &Spender,
        meter: Meter,
        voice: Option<&str>,
    ) -> Result<Self, RequestFailure> {
        take(speech, spender, Resource::Characters, 0)?;
        let engines = speech.sessions.setup().engines.clone();
        let names = names(speech);
        let (voice, is_own_voice) = names.voice(&engines, voice)?;
        if speech.sessions.load.tts_wait(engines.tts.as_ref()) > BEFORE_SOUND {
            let message = "The voice engine has more to speak than it can begin in time. Try again later.";
            return Err(ApiError::overloaded(message).into());
        }
        let language = Language::of_tag(&engines.tts.language(&voice));
        let chunker = Chunker::new(language).keeping(engines.tts.marks());
        let config = &speech.config;
        let speaking = SpeechSource {
            tts: engines.tts,
            tasks: speech.sessions.setup.tasks.clone(),
            ahead: config.chunks_ahead,
            is_heard: true,
            immediate: speech.sessions.load.brownout().is_at_least(BrownoutLevel::ShortLookAhead),
            meter,
            load: speech.sessions.load.tts_api.clone(),
        };
        let spec = SpeechSpec {
            chunks: Vec::new(),
            n_chars: 0,
            voice,
            is_own_voice,
            speed: 1.0,
            instructions: None,
            seed: None,
            format: FileFormat::Pcm,
            as_events: false,
            model: None,
        };
        Ok(Self {
            course: speaking.course(&spec),
            chunker,
            spender: spender.clone(),
            n_chars: 0,
            longest: config.max_input_chars,
        })
    }

    /// The engine's voice for a language, of those that every client may use; `None` if none speaks it.
    pub(in crate::server) fn voice_of_language(speech: &SpeechParts, language: &str) -> Option<String> {
        let setup = speech.sessions.setup();
        let primary = |tag: &str| tag.split(['-', '_']).next().unwrap_or_default().to_ascii_lowercase();
        let tts = setup.engines.tts.as_ref();
        let wanted = primary(language);
        let configured = find_voice(tts, &setup.voice, VoiceScope::Nobody).ok();
        let is_right = |voice: &str| primary(&tts.language(voice)) == wanted;
        configured
            .filter(|voice| is_right(voice))
            .or_else(|| tts.voices().into_iter().map(|voice| voice.id).find(|voice| is_right(voice)))
    }

    /// Adds more of the text.
    ///
    /// # Errors
    /// The text is longer than `speech.max_input_chars`.
    pub(in crate::server) fn add(&mut self, text: &str) -> Result<(), RequestFailure> {
        let n = text.chars().count();
        self.n_chars += n;
        if self.n_chars > self.longest {
            let message = format!("The text is longer than {} characters (speech.max_input_chars).", self.longest);
            return Err(ApiError::invalid("string_above_max_length", None, message).into());
        }
        self.spender.consumer.spend(Resource::Characters, n as u64);
        self.spender.consumer.count(Count::Characters, n as u64);
        let chunks = self.chunker.push(text);
        self.begin_chunks(chunks);
        Ok(())
    }

    /// Ends the text.
    pub(in crate::server) fn end(&mut self) {
        let chunks = self.chunker.finish();
        self.begin_chunks(chunks);
    }

    fn begin_chunks(&mut self, chunks: Vec<Chunk>) {
        let spoken = chunks.into_iter().map(|chunk| chunk.spoken).filter(|spoken| !spoken.is_empty());
        spoken.for_each(|chunk| self.course.add(chunk));
    }

    /// Waits for the next sound, mono at [`SPEECH_RATE`], never empty. `None`, at once: all that was added so far is spoken, up to
    /// the last chunk that is complete. After an error there is nothing more to ask for. Cancel safe.
    pub(in crate::server) async fn next(&mut self) -> Option<Result<Vec<i16>, RequestFailure>> {
        loop {
            match self.course.next().await? {
                Ok(SpeechPiece::Sound(samples)) => return Some(Ok(samples)),
                Ok(SpeechPiece::ChunkEnd) => {}
                Err(error) => return Some(Err(ApiError::from(error).into())),
            }
        }
    }
}
