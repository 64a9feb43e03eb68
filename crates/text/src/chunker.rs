//! Splits streamed text into chunks that a TTS engine can speak.

use super::boundary::{self, TextPosition};
use super::normalize::{Language, Position, speakable};

/// A chunk of text and its spoken form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// The text as written. The concatenated raw text of all chunks equals the pushed text, byte for byte.
    pub raw: String,
    /// Normalized text with punctuation. Empty if there is nothing to speak (a code block, a rule, an emoji): such a
    /// chunk is shown but not spoken.
    pub spoken: String,
}

/// Splits text into chunks while it is streamed.
///
/// The first chunk is short, so that speech starts early: the first clause of two words or more, or eight words if
/// there is no punctuation. Later chunks are sentences. A chunk has at most 300 characters. Numbers, abbreviations,
/// addresses and links are not split unless they are longer than that. The chunks do not depend on how the text is
/// divided into deltas: each decision depends only on the characters before it.
#[derive(Clone, Debug)]
pub struct Chunker {
    language: Language,
    /// What the voice reads as something else than words.
    marks: Vec<String>,
    unit: Unit,
    pending: String,
    place: TextPosition,
    in_word: bool,
    /// The last spoken chunk ended with a letter or a figure.
    open_ended: bool,
}

/// What a chunk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Sentence,
    Word,
}

impl Chunker {
    /// An empty chunker. `language` selects the words for figures and symbols.
    pub fn new(language: Language) -> Self {
        Self {
            language,
            marks: Vec::new(),
            unit: Unit::Sentence,
            pending: String::new(),
            place: TextPosition::start(),
            in_word: false,
            open_ended: false,
        }
    }

    /// The same for a voice that reads these as something else than words, such as "[laugh]": they stay as they are, where
    /// brackets are removed otherwise. None may be empty.
    pub fn keeping(self, marks: Vec<String>) -> Self {
        Self { marks: marks.into_iter().filter(|mark| !mark.is_empty()).collect(), ..self }
    }

    /// An empty chunker for an engine that finds its own sentences: a chunk is a word, or the words that are only spoken
    /// right together ("5 %", "Dr. Who"). The spoken forms, joined by blanks, are the text to speak.
    pub fn by_words(language: Language) -> Self {
        Self { unit: Unit::Word, ..Self::new(language) }
    }

    /// Appends text of any length and returns the chunks that are now complete.
    pub fn push(&mut self, delta: &str) -> Vec<Chunk> {
        let mut chunks = Vec::new();
        for c in delta.chars() {
            self.pending.push(c);
            // A chunk never ends inside a plain word; skipping the scan there saves most of the work.
            let plain = c.is_ascii_alphanumeric();
            let skip = plain && self.in_word && self.pending.len() <= boundary::MAX_CHARS;
            self.in_word = plain;
            if skip {
                continue;
            }
            while let Some(cut) = self.find() {
                // Of all pending text: a backtick behind the cut shows that there is no fence.
                let code = self.place.is_code(&self.pending);
                let rest = self.pending.split_off(cut.at);
                let raw = std::mem::replace(&mut self.pending, rest);
                chunks.push(self.chunk(raw, code, cut.ends_line));
            }
        }
        chunks
    }

    /// Ends the text: returns the remaining chunk, if any, and resets the chunker.
    pub fn finish(&mut self) -> Vec<Chunk> {
        let raw = std::mem::take(&mut self.pending);
        let code = self.place.is_code(&raw);
        let rest = if raw.is_empty() { None } else { Some(self.chunk(raw, code, false)) };
        *self = Self { unit: self.unit, marks: std::mem::take(&mut self.marks), ..Self::new(self.language) };
        rest.into_iter().collect()
    }

    fn find(&self) -> Option<boundary::Cut> {
        match self.unit {
            Unit::Sentence => boundary::find(&self.pending, &self.place, self.language.sentences()),
            Unit::Word => boundary::find_words(&self.pending, &self.place, self.language.sentences()),
        }
    }

    fn chunk(&mut self, raw: String, code: bool, ends_line: bool) -> Chunk {
        let position = Position { line_start: self.place.line_start, ends_line };
        let mut spoken = if code { String::new() } else { speakable(&raw, position, self.language, &self.marks) };
        self.place.advance(&raw, code, !spoken.is_empty());
        if self.unit == Unit::Word && !spoken.is_empty() {
            // A heading or an item without punctuation ends where the next line begins, which is known only now.
            let ends_block = self.open_ended && boundary::begins_block(&raw);
            self.open_ended = spoken.ends_with(char::is_alphanumeric);
            if ends_block {
                spoken.insert_str(0, ". ");
            }
        }
        Chunk { raw, spoken }
    }
}

#[cfg(test)]
mod tests;
