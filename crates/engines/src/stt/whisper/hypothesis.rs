//! The result of one decoding: tokens with their probabilities and times, and their text.
//!
//! Made by `decoder`, judged by `judge`, put together to transcripts by `stream`. Pure data.

use antiphon_engine_api::stt::{Segment, TokenLogprob, Word};
use antiphon_text::words::{is_spaced, spoken};

/// A piece of text: a word or a part of one. Its bytes may be no whole characters.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct DecodedToken {
    pub(super) bytes: Vec<u8>,
    pub(super) id: u32,
    pub(super) logprob: f32,
    /// From the beginning of what was decoded; both 0 where no times were asked for.
    pub(super) start_ms: u64,
    pub(super) end_ms: u64,
}

/// Pieces between two times that the model gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Span {
    pub(super) pieces: Vec<DecodedToken>,
    pub(super) start_ms: u64,
    pub(super) end_ms: u64,
}

/// The result of a decoding.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Hypothesis {
    /// In order; one where no times were asked for.
    pub(super) spans: Vec<Span>,
    /// The probability of silence.
    pub(super) no_speech: f32,
    /// As it was set, or detected.
    pub(super) language: Option<&'static str>,
    /// At which it was decoded.
    pub(super) temperature: Option<f32>,
    /// It has as many tokens as the length of its audio allows.
    pub(super) is_cut_off: bool,
    /// It has as many tokens as the decoder has positions for: the last words are missing.
    pub(super) is_full: bool,
    /// It would have been decoded again, in the full window, in another language or in parts, if there had been time.
    pub(super) is_hasty: bool,
}

impl Hypothesis {
    pub(super) fn pieces(&self) -> impl Iterator<Item = &DecodedToken> {
        self.spans.iter().flat_map(|span| &span.pieces)
    }

    /// What it spells.
    pub(super) fn text(&self) -> String {
        spell(self.pieces())
    }

    /// The mean of its tokens' log-probabilities; 0 where there are none.
    pub(super) fn avg_logprob(&self) -> f32 {
        mean(self.pieces())
    }

    pub(super) fn logprobs(&self) -> impl Iterator<Item = TokenLogprob> {
        self.pieces().map(|piece| TokenLogprob {
            token: String::from_utf8_lossy(&piece.bytes).into_owned(),
            logprob: f64::from(piece.logprob),
        })
    }

    /// In the port's form; `from_ms` is where the decoded audio begins in the utterance, which lasts to `end_ms`.
    pub(super) fn segments(&self, from_ms: u64, end_ms: u64) -> impl Iterator<Item = Segment> {
        let at = move |ms: u64| (from_ms + ms).min(end_ms);
        let spans = self.spans.iter().filter(|span| !span.pieces.is_empty());
        spans.map(move |span| {
            let start_ms = at(span.start_ms);
            Segment {
                text: spell(&span.pieces),
                start_ms,
                end_ms: at(span.end_ms).max(start_ms),
                words: words(span, self.is_unspaced(), at),
                tokens: span.pieces.iter().map(|piece| piece.id).collect(),
                temperature: self.temperature,
                avg_logprob: Some(mean(&span.pieces)),
                no_speech: Some(self.no_speech),
            }
        })
    }

    /// Whether its language is written without blanks between words.
    pub(super) fn is_unspaced(&self) -> bool {
        self.language.is_some_and(|language| !is_spaced(language))
    }

    /// How many of its first words ([`antiphon_text::words::words`]) have no piece that is less probable than `least`, a
    /// log-probability.
    pub(super) fn n_sure_words(&self, least: f32) -> u32 {
        let pieces: Vec<&DecodedToken> = self.pieces().collect();
        let unsure = pieces.iter().position(|piece| piece.logprob < least).unwrap_or(pieces.len());
        // The word that the piece belongs to begins before it.
        let within = unsure < pieces.len() && !begins_word(pieces[unsure]) && !self.is_unspaced();
        let sure = match within {
            true => pieces[..unsure].iter().rposition(|piece| begins_word(piece)).unwrap_or(0),
            false => unsure,
        };
        antiphon_text::words::words(&spell(pieces[..sure].iter().copied())).count() as u32
    }

    /// Keeps the pieces of its first `n_words` words ([`spoken`]).
    pub(super) fn cut(&mut self, n_words: usize) {
        let mut bytes = Vec::new();
        let mut n_kept = 0;
        for (i, piece) in self.pieces().enumerate() {
            bytes.extend_from_slice(&piece.bytes);
            let text = String::from_utf8_lossy(&bytes);
            if spoken(&text).count() > n_words {
                break;
            }
            // A piece that ends within a character belongs to what follows.
            if !text.ends_with(char::REPLACEMENT_CHARACTER) {
                n_kept = i + 1;
            }
        }
        for span in &mut self.spans {
            span.pieces.truncate(n_kept);
            n_kept -= span.pieces.len();
        }
    }
}

fn mean<'a>(pieces: impl IntoIterator<Item = &'a DecodedToken>) -> f32 {
    let (sum, n) = pieces.into_iter().fold((0.0, 0), |(sum, n), piece| (sum + piece.logprob, n + 1));
    if n == 0 { 0.0 } else { sum / n as f32 }
}

fn spell<'a>(pieces: impl IntoIterator<Item = &'a DecodedToken>) -> String {
    let bytes: Vec<u8> = pieces.into_iter().flat_map(|piece| piece.bytes.iter().copied()).collect();
    String::from_utf8_lossy(&bytes).trim().to_owned()
}

fn begins_word(piece: &DecodedToken) -> bool {
    piece.bytes.starts_with(b" ")
}

fn words(span: &Span, unspaced: bool, at: impl Fn(u64) -> u64) -> Vec<Word> {
    let mut groups: Vec<Vec<&DecodedToken>> = Vec::new();
    for piece in &span.pieces {
        let is_whole = |group: &Vec<&DecodedToken>| std::str::from_utf8(&joined(group)).is_ok();
        let begins = begins_word(piece) || unspaced && groups.last().is_some_and(is_whole);
        match groups.last_mut() {
            Some(group) if !begins => group.push(piece),
            _ => groups.push(vec![piece]),
        }
    }
    let mut from = 0;
    let mut made = Vec::new();
    for group in groups {
        let text = String::from_utf8_lossy(&joined(&group)).trim().to_owned();
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        if text.is_empty() {
            continue;
        }
        // whisper.cpp's times of tokens may overlap by a little.
        let start_ms = at(first.start_ms).max(from);
        let end_ms = at(last.end_ms).max(start_ms);
        from = end_ms;
        let probability = Some(mean(group.iter().copied()).exp().clamp(0.0, 1.0));
        made.push(Word { text, start_ms, end_ms, probability });
    }
    made
}

fn joined(group: &[&DecodedToken]) -> Vec<u8> {
    group.iter().flat_map(|piece| piece.bytes.iter().copied()).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Words of 100 ms each, as sure as `logprob`.
    pub(crate) fn said(text: &str, logprob: f32) -> Hypothesis {
        let words = text.split_inclusive(' ').map(str::trim).filter(|word| !word.is_empty()).enumerate();
        let piece = |(i, word): (usize, &str)| DecodedToken {
            bytes: format!(" {word}").into_bytes(),
            id: i as u32,
            logprob,
            start_ms: 100 * i as u64,
            end_ms: 100 * (i as u64 + 1),
        };
        let pieces: Vec<DecodedToken> = words.map(piece).collect();
        let end_ms = pieces.last().map_or(0, |piece| piece.end_ms);
        Hypothesis { spans: vec![Span { pieces, start_ms: 0, end_ms }], ..Hypothesis::default() }
    }

    #[test]
    fn times_count_from_the_utterance_and_end_with_it() {
        let segments: Vec<Segment> = said("red green blue", -0.5).segments(1_000, 1_250).collect();
        let [segment] = &segments[..] else { panic!("one") };
        assert_eq!((segment.text.as_str(), segment.start_ms, segment.end_ms), ("red green blue", 1_000, 1_250));
        let words: Vec<_> = segment.words.iter().map(|w| (w.text.as_str(), w.start_ms, w.end_ms)).collect();
        assert_eq!(words, [("red", 1_000, 1_100), ("green", 1_100, 1_200), ("blue", 1_200, 1_250)]);
        assert!((segment.words[0].probability.unwrap() - 0.606_53).abs() < 1e-4);
    }

    #[test]
    fn a_character_in_two_pieces_is_one_and_a_language_without_blanks_has_words() {
        let piece = |bytes: &[u8]| DecodedToken { bytes: bytes.to_vec(), ..DecodedToken::default() };
        let first = "字".as_bytes();
        let second = "幕".as_bytes();
        let pieces = vec![piece(&first[..1]), piece(&first[1..]), piece(second)];
        let spans = vec![Span { pieces, ..Span::default() }];
        let hypothesis = Hypothesis { spans, language: Some("zh"), ..Hypothesis::default() };
        assert_eq!(hypothesis.text(), "字幕");
        let words: Vec<Word> = hypothesis.segments(0, 0).flat_map(|segment| segment.words).collect();
        assert_eq!(words.iter().map(|word| word.text.as_str()).collect::<Vec<_>>(), ["字", "幕"]);
    }

    #[test]
    fn words_are_sure_up_to_the_first_piece_that_is_not() {
        let of = |pieces: &[(&str, f32)]| {
            let piece = |(text, p): &(&str, f32)| DecodedToken {
                bytes: text.as_bytes().to_vec(),
                logprob: p.ln(),
                ..DecodedToken::default()
            };
            let spans = vec![Span { pieces: pieces.iter().map(piece).collect(), ..Span::default() }];
            Hypothesis { spans, ..Hypothesis::default() }.n_sure_words(0.5f32.ln())
        };
        assert_eq!(of(&[]), 0);
        assert_eq!(of(&[(" And", 0.9), (" so", 0.6)]), 2);
        assert_eq!(of(&[(" And", 0.9), (" so", 0.4), (" it", 0.9)]), 1);
        assert_eq!(of(&[(" And", 0.9), (" slaugh", 0.9), ("terer", 0.4)]), 1, "the whole word is unsure");
        assert_eq!(of(&[(" And", 0.4), (" so", 0.9)]), 0);
    }

    #[test]
    fn a_cut_keeps_whole_words() {
        let mut hypothesis = said("a b c", 0.0);
        hypothesis.spans[0].pieces.insert(1, DecodedToken { bytes: b"bc".to_vec(), ..DecodedToken::default() });
        hypothesis.cut(2);
        assert_eq!(hypothesis.text(), "abc b");
        hypothesis.cut(0);
        assert_eq!(hypothesis.text(), "");
        let piece = |text: &str| DecodedToken { bytes: text.as_bytes().to_vec(), ..DecodedToken::default() };
        let spans = ["I", " don", "'t", " know", " -", " I", " don"].map(piece).to_vec();
        let mut marked = Hypothesis { spans: vec![Span { pieces: spans, ..Span::default() }], ..Hypothesis::default() };
        marked.cut(3);
        assert_eq!(marked.text(), "I don't know -");
    }

    #[test]
    fn a_cut_counts_characters_where_no_blanks_are_written_and_breaks_none() {
        let bytes = "我不知道".as_bytes();
        let pieces = [&bytes[..4], &bytes[4..7], &bytes[7..]]
            .map(|bytes| DecodedToken { bytes: bytes.into(), ..DecodedToken::default() });
        let spans = vec![Span { pieces: pieces.to_vec(), ..Span::default() }];
        let mut hypothesis = Hypothesis { spans, language: Some("zh"), ..Hypothesis::default() };
        hypothesis.cut(3);
        assert_eq!(hypothesis.text(), "");
        let whole = [&bytes[..3], &bytes[3..6], &bytes[6..7], &bytes[7..]];
        let pieces = whole.map(|bytes| DecodedToken { bytes: bytes.into(), ..DecodedToken::default() }).to_vec();
        hypothesis.spans = vec![Span { pieces, ..Span::default() }];
        hypothesis.cut(2);
        assert_eq!(hypothesis.text(), "我不");
    }
}
