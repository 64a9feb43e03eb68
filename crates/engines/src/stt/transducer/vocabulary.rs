//! The tokens of a recognizer, and the text that they spell: pieces of words, marks of languages, the blank.

use antiphon_engine_api::stt::{Segment, TokenLogprob, Transcript, Word};
use antiphon_types::{language_code, primary_language};

/// What stands before a piece that begins a word.
const WORD_START: char = '\u{2581}';

/// See the module. The blank is the last token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vocabulary {
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    /// Part of a word; the first of one where it begins with [`WORD_START`].
    Text(String),
    /// `<en-US>`: the language that is spoken, as its code.
    Language(String),
    /// `<unk>`, `<blk>` and the like.
    Other,
}

/// A token of a transcript.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Token {
    /// Its number.
    pub id: u32,
    /// The encoder frame that it was emitted at, from the utterance's start on.
    pub frame: u64,
    /// Natural logarithm of its probability; 0 where it was not asked for.
    pub logprob: f32,
}

impl Vocabulary {
    /// Reads a list of tokens: a token and its number a line, in the order of the numbers, the blank `<blk>` last.
    ///
    /// # Errors
    /// What is wrong, with the line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut last = "";
        for (i, line) in text.lines().enumerate() {
            let entry = line.rsplit_once([' ', '\t']).and_then(|(piece, id)| Some((piece, id.parse::<usize>().ok()?)));
            match entry {
                Some((piece, id)) if id == i => {
                    pieces.push(Piece::parse(piece));
                    last = piece;
                }
                _ => return Err(format!("line {} is {line:?}, expected a token, a space and {i}", i + 1)),
            }
        }
        if last != "<blk>" {
            return Err(format!("the last token is {last:?}, expected <blk>"));
        }
        Ok(Self { pieces })
    }

    /// Tokens with the blank.
    pub fn len(&self) -> usize {
        self.pieces.len()
    }

    /// The pieces of words, with their numbers.
    pub fn texts(&self) -> impl Iterator<Item = (u32, &str)> {
        let text = |(id, piece): (usize, &'_ Piece)| match piece {
            Piece::Text(_) => Some(id as u32),
            Piece::Language(_) | Piece::Other => None,
        };
        self.pieces.iter().enumerate().filter_map(text).map(|id| (id, self.piece(id)))
    }

    /// Whether the model names the language that it hears.
    pub fn names_languages(&self) -> bool {
        self.pieces.iter().any(|piece| matches!(piece, Piece::Language(_)))
    }

    /// The language that the tokens name last.
    pub fn language(&self, tokens: &[Token]) -> Option<&str> {
        tokens.iter().rev().find_map(|token| match &self.pieces[token.id as usize] {
            Piece::Language(code) => Some(code.as_str()),
            _ => None,
        })
    }

    /// The words of the tokens, with times at `frame_ms` a frame.
    pub fn words(&self, tokens: &[Token], frame_ms: u64) -> Vec<Word> {
        let mut words: Vec<(Word, f64, u32)> = Vec::new();
        for token in tokens {
            let Piece::Text(piece) = &self.pieces[token.id as usize] else { continue };
            let start_ms = token.frame * frame_ms;
            if piece.starts_with(WORD_START) || words.is_empty() {
                words.push((Word { start_ms, end_ms: start_ms, ..Word::default() }, 0.0, 0));
            }
            let (word, logprob, n) = words.last_mut().expect("one was pushed");
            word.text.push_str(piece.trim_start_matches(WORD_START));
            word.end_ms = start_ms + frame_ms;
            *logprob += f64::from(token.logprob);
            *n += 1;
        }
        // A mark of a word without letters joins nothing.
        words.retain(|(word, ..)| !word.text.is_empty());
        let mean = |logprob: f64, n: u32| Some((logprob / f64::from(n)).exp() as f32);
        words.into_iter().map(|(word, logprob, n)| Word { probability: mean(logprob, n), ..word }).collect()
    }

    /// The transcript of the tokens: the text alone, and what was asked for beside it.
    pub fn transcript(&self, tokens: &[Token], frame_ms: u64, logprobs: bool, segments: bool) -> Transcript {
        let mut words = self.words(tokens, frame_ms);
        let text = words.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ");
        let mut transcript =
            Transcript { text, language: self.language(tokens).map(str::to_owned), ..Transcript::default() };
        let of_text = || tokens.iter().filter(|token| matches!(self.pieces[token.id as usize], Piece::Text(_)));
        if logprobs {
            let logprobs = of_text().map(|token| TokenLogprob {
                token: self.piece(token.id).replace(WORD_START, " "),
                logprob: f64::from(token.logprob),
            });
            transcript.logprobs = Some(logprobs.collect());
        }
        if let (true, Some(first), Some(last)) = (segments, words.first(), words.last()) {
            let n = of_text().count().max(1);
            let segment = Segment {
                text: transcript.text.clone(),
                start_ms: first.start_ms,
                end_ms: last.end_ms,
                tokens: of_text().map(|token| token.id).collect(),
                avg_logprob: Some(of_text().map(|token| token.logprob).sum::<f32>() / n as f32),
                words: std::mem::take(&mut words),
                ..Segment::default()
            };
            transcript.confidence = segment.avg_logprob.map(f32::exp);
            transcript.segments = vec![segment];
        }
        transcript
    }

    fn piece(&self, id: u32) -> &str {
        match &self.pieces[id as usize] {
            Piece::Text(text) => text,
            Piece::Language(_) | Piece::Other => "",
        }
    }
}

impl Piece {
    fn parse(text: &str) -> Self {
        let Some(mark) = text.strip_prefix('<').and_then(|rest| rest.strip_suffix('>')) else {
            return Self::Text(text.into());
        };
        match code(mark) {
            Some(code) => Self::Language(code),
            None => Self::Other,
        }
    }
}

/// The code of a tag's language ("en" of "en-US"); `None`: it is no tag of a language.
pub fn code(tag: &str) -> Option<String> {
    let primary = primary_language(tag);
    let is_code = (2..=3).contains(&primary.len()) && primary.bytes().all(|byte| byte.is_ascii_lowercase());
    let is_tag = tag.len() == primary.len() || tag.contains(['-', '_']);
    (is_code && is_tag).then(|| language_code(&primary).map(str::to_owned)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vocabulary() -> Vocabulary {
        let text = "<unk> 0\n<en-US> 1\n\u{2581}Hel 2\nlo 3\n, 4\n\u{2581}world 5\n\u{2581} 6\n<blk> 7\n";
        Vocabulary::parse(text).expect("it is right")
    }

    fn tokens(ids: &[u32]) -> Vec<Token> {
        ids.iter().enumerate().map(|(i, id)| Token { id: *id, frame: 3 * i as u64, logprob: -0.5 }).collect()
    }

    #[test]
    fn pieces_become_words_with_times_and_marks_are_no_text() {
        let said = vocabulary().transcript(&tokens(&[1, 2, 3, 4, 0, 5]), 80, true, true);
        assert_eq!((said.text.as_str(), said.language.as_deref()), ("Hello, world", Some("en")));
        let times: Vec<_> =
            said.segments[0].words.iter().map(|word| (word.text.as_str(), word.start_ms, word.end_ms)).collect();
        assert_eq!(times, [("Hello,", 240, 800), ("world", 1_200, 1_280)]);
        assert_eq!(said.segments[0].tokens, [2, 3, 4, 5]);
        assert_eq!(said.logprobs.map(|all| all.len()), Some(4));
    }

    #[test]
    fn a_space_alone_and_no_tokens_are_no_words() {
        assert_eq!(vocabulary().transcript(&tokens(&[6]), 80, false, true), Transcript::default());
        assert_eq!(vocabulary().transcript(&[], 80, false, true), Transcript::default());
    }

    #[test]
    fn a_list_that_is_wrong_is_refused_with_its_line() {
        let wrong = |text: &str| Vocabulary::parse(text).expect_err("wrong");
        assert_eq!(wrong("a 0\nb 2\n<blk> 3\n"), "line 2 is \"b 2\", expected a token, a space and 1");
        assert_eq!(wrong("a 0\nb 1\n"), "the last token is \"b\", expected <blk>");
        assert_eq!(wrong(""), "the last token is \"\", expected <blk>");
    }
}
