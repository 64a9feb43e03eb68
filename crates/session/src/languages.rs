//! The languages of a session: in which its speech is transcribed, and the voices of replies that follow the language heard.
//!
//! The setup is asked for a session's settings, the tasks that speak for the language of their speech. What is heard when, and what
//! follows from it, [`antiphon_dialog`] decides.

use super::setup::Setup;
use super::translate;
use antiphon_dialog::{ResponseSettings, Settings};
use antiphon_engine_api::stt::{DETECT_LANGUAGE, LanguageError, requested_language};
use antiphon_engine_api::tts::Tts;
use antiphon_protocol::{Patch, Session, SessionUpdate, WireError};
use antiphon_types::{language_code, primary_language};
use std::collections::BTreeMap;

/// The code of the language that a recognizer names; `None` for one that is not known.
pub(super) fn named(language: Option<String>) -> Option<String> {
    language.as_deref().and_then(language_code).map(str::to_owned)
}

/// The language of a response's speech: its voice's, or the response's where the voice speaks many.
pub(super) fn of_speech(tts: &dyn Tts, settings: &ResponseSettings) -> String {
    let voice = primary_language(&tts.language(&settings.voice));
    settings.language.clone().filter(|_| speaks_many(&voice)).unwrap_or(voice)
}

/// Whether this is the language of a voice of several: `mul` of servers' voices, `auto` of custom voices.
fn speaks_many(language: &str) -> bool {
    matches!(language, "" | "mul" | "auto")
}

impl Setup {
    /// The language that a session's speech is transcribed in: a code, or that it is detected; `None`: the engine's own choice.
    pub(super) fn spoken_language(&self, session: &Session) -> Option<String> {
        let asked = session.audio.input.transcription.as_ref().and_then(|asked| asked.language.as_deref());
        // The hub's engine may have been replaced since the language was checked.
        requested_language(self.engines.stt.as_ref(), asked.or(self.language.as_deref())?).ok().flatten()
    }

    /// Refuses an update that asks for a language that the engine does not transcribe, or cannot detect.
    pub(super) fn check_language(&self, update: &SessionUpdate) -> Result<(), WireError> {
        let Patch::Set(transcription) = &update.input.transcription else { return Ok(()) };
        let Patch::Set(language) = &transcription.language else { return Ok(()) };
        let param = "session.audio.input.transcription.language";
        let refused =
            |why: LanguageError| WireError::invalid("invalid_value", format!("Invalid '{param}': {why}."), Some(param));
        requested_language(self.engines.stt.as_ref(), language).map(drop).map_err(refused)
    }

    /// The dialog's settings of a session.
    pub(super) fn dialog_settings(&self, session: &Session) -> Settings {
        let follows = self.spoken_language(session).as_deref() == Some(DETECT_LANGUAGE);
        let language_voices = follows.then(|| self.voices_by_language(&session.audio.output.voice));
        let mut settings = Settings { language_voices, ..translate::settings(session, &self.session) };
        for own in &self.hub_servers {
            if settings.servers.iter().all(|declared| declared.server.label != own.server.label) {
                settings.servers.push(own.clone());
            }
        }
        settings
    }

    /// The voice for each language, where it is not `voice`, the session's, for all: a voice that the client has chosen for its own
    /// language, the configured ones, the session's, and the engine's first of each language.
    fn voices_by_language(&self, voice: &str) -> BTreeMap<String, String> {
        let tts = self.engines.tts.as_ref();
        let own = primary_language(&tts.language(voice));
        let is_chosen = voice != self.voice;
        if speaks_many(&own) {
            return if is_chosen { BTreeMap::new() } else { (*self.language_voices).clone() };
        }
        let mut voices = BTreeMap::new();
        for known in tts.voices() {
            let language = primary_language(&known.language);
            if !speaks_many(&language) {
                voices.entry(language).or_insert(known.id);
            }
        }
        let session = (own, voice.to_owned());
        voices.extend([session.clone()]);
        voices.extend((*self.language_voices).clone());
        voices.extend(is_chosen.then_some(session));
        voices
    }
}
