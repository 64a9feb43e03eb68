//! The language of a conversation whose replies follow the language heard.
//!
//! [`super::listening`] reports the language of each utterance that has words. [`super::responding`] and [`super::speculation`]
//! resolve a response's settings here: its language, which the model is asked for in one sentence behind the instructions, and
//! a voice that speaks it. The sentence is never an item, and a response beside the conversation goes without it.

use super::{Dialog, Modality, ResponseRequest, ResponseSettings};
use antiphon_types::{ResponseId, language_name};
use std::borrow::Cow;

/// Letters, in bytes of UTF-8, from which the language of a text is believed: "guten Tag", "привет" and "你好吗" have as many.
/// Recognizers guess the language of a single short word.
const JUDGED_FROM_BYTES: usize = 8;

impl Dialog {
    /// The language of the conversation once `text` was heard, which the recognizer takes for `language`. Words that are too few
    /// to judge leave it as it is.
    pub(super) fn language_after(&self, text: &str, language: Option<&str>) -> Option<String> {
        self.settings.language_voices.as_ref()?;
        let letters: usize = text.chars().filter(|c| c.is_alphabetic()).map(char::len_utf8).sum();
        let judged = language.filter(|_| letters >= JUDGED_FROM_BYTES);
        judged.map(str::to_owned).or_else(|| self.language.clone())
    }

    /// The settings of a response to words of this language.
    pub(super) fn resolve(&self, request: &ResponseRequest, language: Option<&str>) -> ResponseSettings {
        let mut settings = ResponseSettings::resolve(&self.settings, request);
        let (Some(voices), Some(language)) = (&self.settings.language_voices, language) else { return settings };
        settings.language = Some(language.to_owned());
        if let Some(voice) = voices.get(language).filter(|_| request.voice.is_none()) {
            settings.voice.clone_from(voice);
        }
        settings
    }

    /// The transcripts that a response reads are complete: it is in the language of the last one.
    pub(super) fn settle_language(&mut self, id: &ResponseId) {
        let resolved = self.resolve(&self.responses[id].request, self.language.as_deref());
        let settings = &mut self.responses.get_mut(id).expect("seen just now").settings;
        if settings.language != resolved.language {
            settings.language = resolved.language;
            settings.voice = resolved.voice;
        }
    }
}

/// Words that voices speak in a minute, the slower ones of them.
const WORDS_PER_MINUTE: u64 = 140;

impl ResponseSettings {
    /// The instructions for the model, with the language to answer in and the length of what is spoken.
    pub(super) fn model_instructions(&self) -> Cow<'_, str> {
        let language = self.language.as_deref().filter(|_| self.in_conversation).and_then(language_name);
        let language = language.map(|name| format!("Answer in {name}."));
        let length = self.max_answer.filter(|_| self.modality == Modality::Audio).map(|most| {
            let seconds = most.as_secs();
            let words = seconds * WORDS_PER_MINUTE / 60;
            format!("Your answers are spoken, {seconds} seconds at most: write at most {words} words.")
        });
        if language.is_none() && length.is_none() {
            return Cow::Borrowed(&self.instructions);
        }
        let own = Some(self.instructions.clone()).filter(|own| !own.is_empty());
        let parts: Vec<String> = own.into_iter().chain(length).chain(language).collect();
        Cow::Owned(parts.join("\n\n"))
    }
}
