//! Streamed text in, speakable chunks out.

use super::boundary::{self, TextPosition};
use super::normalize::{Language, Position, speakable};

/// A piece of the text, and what a voice says of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// The text as it was written. All chunks' raw text in a row is the text that was pushed, byte for byte.
    pub raw: String,
    /// Plain words with punctuation. Empty where there is nothing to say (a code block, a rule, an emoji): such a
    /// chunk is shown and not spoken.
    pub spoken: String,
}

/// Cuts text into chunks while it comes.
///
/// The first chunk is short, so that the voice begins early: the first clause of two words or more, or eight words
/// where no punctuation comes. Later chunks grow to sentences, and no chunk is longer than 300 characters. Numbers,
/// abbreviations, addresses and links stay whole (unless longer than that). How the text is split into deltas changes
/// nothing: each character is judged as it comes, by what came before it.
#[derive(Clone, Debug)]
pub struct Chunker {
    language: Language,
    pending: String,
    place: TextPosition,
    in_word: bool,
}

impl Chunker {
    /// An empty chunker. `language` says into which words figures and symbols are put.
    pub fn new(language: Language) -> Self {
        Self { language, pending: String::new(), place: TextPosition::start(), in_word: false }
    }

    /// Takes more text, any length; returns the chunks that are complete now.
    pub fn push(&mut self, delta: &str) -> Vec<Chunk> {
        let mut chunks = Vec::new();
        for c in delta.chars() {
            self.pending.push(c);
            // Nothing is decided inside a plain word, which saves most of the looking.
            let plain = c.is_ascii_alphanumeric();
            let skip = plain && self.in_word && self.pending.len() <= boundary::MAX_CHARS;
            self.in_word = plain;
            if skip {
                continue;
            }
            while let Some(cut) = boundary::find(&self.pending, &self.place) {
                let rest = self.pending.split_off(cut.at);
                let raw = std::mem::replace(&mut self.pending, rest);
                chunks.push(self.chunk(raw, cut.ends_line));
            }
        }
        chunks
    }

    /// Ends the text: returns what is left, and begins anew.
    pub fn finish(&mut self) -> Vec<Chunk> {
        let raw = std::mem::take(&mut self.pending);
        let rest = if raw.is_empty() { None } else { Some(self.chunk(raw, false)) };
        *self = Self::new(self.language);
        rest.into_iter().collect()
    }

    fn chunk(&mut self, raw: String, ends_line: bool) -> Chunk {
        let code = self.place.is_code(&raw);
        let position = Position { line_start: self.place.line_start, ends_line };
        let spoken = if code { String::new() } else { speakable(&raw, position, self.language) };
        self.place.advance(&raw, code, !spoken.is_empty());
        Chunk { raw, spoken }
    }
}

#[cfg(test)]
mod tests;
