//! What a connection asks for, and the session object that this gives: the hub's settings, and over them those its key is bound
//! to.
//!
//! A session asks once, at its start; the server asks to show what a short-lived key would open.

use super::checkpoint::SnapshotSender;
use super::limits::SessionLimits;
use super::output::AudioMode;
use super::recording_consent::RecordingConsent;
use super::setup::Setup;
use antiphon_engine_api::tts::find_voice;
use antiphon_protocol::{AudioFormat, Dialect, OPENAI_VOICES, ServerVad, SessionKind, SessionUpdate, WireError};
use antiphon_types::{IdMint, KeyId, SessionId};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What a connection asked for before it said anything: by its address, its headers and its key.
#[derive(Default)]
pub struct Opening {
    /// How audio travels.
    pub mode: AudioMode,
    /// How JSON is read and written.
    pub dialect: Dialect,
    /// The model it named.
    pub model: Option<String>,
    /// What the session is for, where the address says so. Otherwise the first update or response decides.
    pub intent: Option<SessionKind>,
    /// Settings to begin with over the hub's own: those a client's key is bound to.
    pub settings: Option<Arc<SessionUpdate>>,
    /// The key by which the client can take the session up again after its connection broke; `None`: it did not ask.
    pub resume_key: Option<String>,
    /// The API key the session belongs to; `None` where the hub has no keys.
    pub owner: Option<KeyId>,
    /// Whether the client reads why an upstream failed, in the upstream's words: the operator does.
    pub sees_causes: bool,
    /// Where its snapshots go; `None`: no other hub may resume it.
    pub snapshots: Option<SnapshotSender>,
    /// What its client may use; `None`: there is no limit.
    pub limits: Option<Arc<dyn SessionLimits>>,
    /// The transport's name in turn records; `None`: [`WEBSOCKET`].
    pub transport: Option<&'static str>,
    /// Whether the client is a telephone, whose line may return the reply.
    pub by_phone: bool,
    /// ISO-639-1 code of the language that the client prefers: the recognizer tries it first where it detects the language.
    pub language: Option<&'static str>,
    /// The session is recorded once its client agrees; `None`: it is not asked.
    pub recording_consent: Option<RecordingConsent>,
}

/// The transport of a session that has no other.
pub const WEBSOCKET: &str = "websocket";

impl Setup {
    /// How long a session lives.
    pub(super) fn lifetime(&self) -> Duration {
        Duration::from_secs(60 * u64::from(self.session.max_minutes))
    }

    /// The session object a session of this key with these settings would begin with, if it began now. `Err`: an update to
    /// them would be refused so.
    pub fn describe(
        &self,
        settings: Option<&SessionUpdate>,
        owner: Option<KeyId>,
    ) -> Result<antiphon_protocol::Session, WireError> {
        let id = SessionId::from(IdMint::new(rand::random()).next("sess"));
        let mut session = self.plain_object(id);
        let mut update = settings.cloned().unwrap_or_default();
        self.find_voice(update.output.voice.as_mut(), owner, "session.audio.output.voice")?;
        self.check_language(&update)?;
        session.apply(update);
        self.check_tools(&[], &mut session)?;
        Ok(session)
    }

    /// The session object a session begins with.
    pub(super) fn session_object(&self, id: SessionId, opening: &Opening) -> antiphon_protocol::Session {
        let mut session = self.plain_object(id);
        let model = opening.model.clone();
        if opening.intent == Some(SessionKind::Transcription) {
            session.kind = SessionKind::Transcription;
            session.audio.input.transcription = Some(antiphon_protocol::Transcription { model, ..Default::default() });
        } else if let Some(model) = model {
            session.model = model;
        }
        if let Some(settings) = &opening.settings {
            let mut update = SessionUpdate::clone(settings);
            let voice = update.output.voice.as_mut();
            if let Err(error) = self.find_voice(voice, opening.owner, "session.audio.output.voice") {
                // It was there when the client's key was made.
                tracing::info!(why = error.message, "a session begins with the hub's voice");
                update.output.voice = None;
            }
            session.apply(update);
        }
        if opening.mode != AudioMode::Events {
            // Frames carry this format whatever the key is bound to.
            session.audio.input.format = AudioFormat::Pcm;
            session.audio.output.format = AudioFormat::Pcm;
        }
        session
    }

    /// Puts the id of a custom voice that the key may use in the place of its name. Names that no custom voice has stay as
    /// they are: the engine's own are among them, and those of other services, for which the engine's first voice speaks.
    /// `Err`: a custom voice that is not there, or not the key's.
    pub(super) fn find_voice(
        &self,
        voice: Option<&mut String>,
        owner: Option<KeyId>,
        param: &str,
    ) -> Result<(), WireError> {
        let Some(voice) = voice else { return Ok(()) };
        match find_voice(self.engines.tts.as_ref(), voice, owner.into()) {
            Ok(id) => *voice = id,
            // The configured voice speaks for these, and for itself where the engine lacks it.
            Err(_) if OPENAI_VOICES.contains(&voice.as_str()) || *voice == self.voice => {}
            Err(why) => {
                return Err(WireError::invalid("voice_not_found", format!("Invalid '{param}': {why}."), Some(param)));
            }
        }
        Ok(())
    }

    /// As the configuration has it.
    fn plain_object(&self, id: SessionId) -> antiphon_protocol::Session {
        let vad = ServerVad {
            threshold: as_configured(self.turn.threshold),
            prefix_padding_ms: self.turn.prefix_padding_ms,
            silence_duration_ms: self.turn.silence_duration_ms,
            create_response: self.session.create_response,
            interrupt_response: self.session.interrupt_response,
            ignore_backchannels: None,
            speaker_lock: None,
            idle_timeout_ms: None,
        };
        let mut session = antiphon_protocol::Session::new(id, self.model.clone(), self.voice.clone(), vad);
        session.instructions.clone_from(&self.instructions);
        session.audio.output.speed = as_configured(self.speed);
        let ends = (SystemTime::now() + self.lifetime()).duration_since(UNIX_EPOCH);
        session.expires_at = ends.map_or(0, |since| since.as_secs());
        session
    }
}

/// The number as the operator has written it: 0.45 for the nearest `f32`, which is 0.44999998807907104.
fn as_configured(number: f32) -> f64 {
    number.to_string().parse().unwrap_or(f64::from(number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::begun;
    use antiphon_dialog::turn::TurnConfig;
    use antiphon_protocol::TurnDetection;

    #[test]
    fn a_session_shows_numbers_as_they_are_configured() {
        let (setup, _) = begun(Opening::default());
        let turn = TurnConfig { threshold: 0.45, ..setup.turn.clone() };
        let session = Setup { speed: 1.1, turn, ..Setup::clone(&setup) }.describe(None, None).expect("a session");
        assert_eq!(session.audio.output.speed, 1.1);
        let Some(TurnDetection::ServerVad(vad)) = session.audio.input.turn_detection else {
            panic!("another detector")
        };
        assert_eq!(vad.threshold, 0.45);
    }
}
