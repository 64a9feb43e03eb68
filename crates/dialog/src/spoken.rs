//! The speech of one reply item: text and audio aligned, so that a cut falls where the listener stopped hearing.

use antiphon_text::words::{is_unspaced, words};
use antiphon_types::{Playhead, ResponseId, SampleRate, Samples, Timestamp};
use serde::{Deserialize, Serialize};

/// One reply item's speech. Samples are counted at the rate of the response's output format, from the item's beginning.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SpokenItem {
    response: ResponseId,
    rate: SampleRate,
    text: String,
    chunks: Vec<Chunk>,
    generated: Samples,
    playhead: Playhead,
    /// The history ends here, in bytes of `text`.
    cut: Option<usize>,
    /// The client set the cut: it knows what was heard, and no estimate changes it.
    client_cut: bool,
}

/// Where a chunk of text and its audio end.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Chunk {
    text_end: usize,
    audio_end: Samples,
    /// The silence at the end of the audio. Absent in snapshots that are older.
    #[serde(default)]
    quiet: Samples,
}

impl SpokenItem {
    /// Without speech. Playback begins no earlier than `not_before`, the end of the audio queued before it.
    pub(super) fn new(response: ResponseId, rate: SampleRate, not_before: Timestamp) -> Self {
        Self {
            response,
            rate,
            text: String::new(),
            chunks: Vec::new(),
            generated: Samples::ZERO,
            playhead: Playhead::queued(rate, not_before),
            cut: None,
            client_cut: false,
        }
    }

    /// The text of the next chunk; its audio follows.
    pub(super) fn say(&mut self, text: &str) {
        self.text.push_str(text);
        let text_end = self.text.len();
        self.chunks.push(Chunk { text_end, audio_end: self.generated, quiet: Samples::ZERO });
    }

    /// The text so far was none; its audio stays where it is.
    pub(super) fn withdraw(&mut self) {
        self.text.clear();
        self.chunks = vec![Chunk { text_end: 0, audio_end: self.generated, quiet: Samples::ZERO }];
        self.cut = self.cut.map(|_| 0);
    }

    /// Audio of the current chunk was synthesized, with silence at its end.
    pub(super) fn made(&mut self, n: Samples, quiet: Samples) {
        self.generated += n;
        if let Some(chunk) = self.chunks.last_mut() {
            chunk.audio_end = self.generated;
            chunk.quiet = if quiet < n { quiet } else { chunk.quiet + n };
        }
    }

    pub(super) fn sent(&mut self, now: Timestamp, n: Samples) {
        self.playhead.sent(now, n);
    }

    pub(super) fn reported(&mut self, now: Timestamp, heard: Samples) {
        self.playhead.reported(now, heard);
    }

    /// The client's playback ended here. An estimated cut moves to this position.
    pub(super) fn stopped(&mut self, now: Timestamp, heard: Samples) {
        self.playhead.reported(now, heard);
        if self.cut.is_some() && !self.client_cut {
            self.cut(heard);
        }
    }

    pub(super) fn hold(&mut self, now: Timestamp) {
        self.playhead.hold(now);
    }

    pub(super) fn resume(&mut self, now: Timestamp) {
        self.playhead.resume(now);
    }

    /// The listener's position, for the pacer.
    pub fn playhead(&self) -> &Playhead {
        &self.playhead
    }

    /// The response it belongs to.
    pub fn response(&self) -> &ResponseId {
        &self.response
    }

    /// Samples per second of all counts here.
    pub fn rate(&self) -> SampleRate {
        self.rate
    }

    /// All the text so far.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// How much audio was synthesized.
    pub fn generated(&self) -> Samples {
        self.generated
    }

    /// How much of it the listener has heard, by report or estimate.
    pub fn heard(&self, now: Timestamp) -> Samples {
        self.playhead.heard(now).min(self.generated)
    }

    /// The words that were heard by `now`: those of the history, once it was cut.
    pub fn heard_words(&self, now: Timestamp) -> &str {
        let end = self.cut.unwrap_or_else(|| self.text_end(self.heard(now)));
        self.text[..end].trim_end()
    }

    /// Whether the sentence that is being heard, or that has just ended, is a question.
    pub(super) fn is_question(&self, now: Timestamp) -> bool {
        let at = self.cut.unwrap_or_else(|| self.text_end(self.heard(now)));
        let (said, rest) = self.text.split_at(at);
        if let Some(end) = said.trim_end().chars().next_back().filter(|c| is_end_mark(*c)) {
            return is_question_mark(end);
        }
        // A point within a number ends no sentence. Full-width marks have no blank behind them.
        let ends = |(i, c): &(usize, char)| {
            is_end_mark(*c) && (!c.is_ascii() || rest[i + 1..].chars().next().is_none_or(char::is_whitespace))
        };
        rest.char_indices().find(ends).is_some_and(|(_, end)| is_question_mark(end))
    }

    /// When playback of the sent audio ended, or will end; `None` once it was cut or while it is held.
    pub(super) fn sounds_until(&self) -> Option<Timestamp> {
        self.playhead.ends_at().filter(|_| self.cut.is_none())
    }

    /// Whether part of it was not heard yet.
    pub fn is_unheard(&self, now: Timestamp) -> bool {
        self.cut.is_none() && self.heard(now) < self.generated
    }

    /// Whether the history of this item ends before its text does, or may.
    pub fn is_cut(&self) -> bool {
        self.cut.is_some()
    }

    /// Ends the history of this item where `heard` samples end, at a word; unless the client has said where it ends.
    pub(super) fn cut(&mut self, heard: Samples) {
        if !self.client_cut {
            self.cut = Some(self.text_end(heard));
        }
    }

    /// Ends the history where the client says, in milliseconds; this is final. Some clients round down the length they were
    /// sent: the last millisecond counts as the end, or the last word would be lost.
    pub(super) fn cut_at_ms(&mut self, heard_ms: u64) {
        let at_end = heard_ms >= self.generated.as_ms(self.rate);
        let heard = if at_end { self.generated } else { Samples::from_ms(heard_ms, self.rate) };
        self.cut = Some(self.text_end(heard));
        self.client_cut = true;
    }

    /// Ends the history at what was sent.
    pub(super) fn cut_unsent(&mut self) {
        self.cut(self.playhead.n_sent());
    }

    /// The words that belong in the history.
    pub fn history(&self) -> &str {
        self.text[..self.cut.unwrap_or(self.text.len())].trim_end()
    }

    /// The words that do not, since they were not heard.
    pub(super) fn not_heard(&self) -> &str {
        self.text[self.cut.unwrap_or(self.text.len())..].trim()
    }

    /// How much text `heard` samples carry: whole chunks, and of the chunk the cut falls into the words whose share of
    /// its audio was heard (the lengths of letters and pauses stand for time, since the engines give no word times).
    fn text_end(&self, heard: Samples) -> usize {
        let mut text_start = 0;
        let mut audio_start = Samples::ZERO;
        for chunk in &self.chunks {
            if heard < chunk.audio_end {
                let spoken = chunk.audio_end.saturating_sub(audio_start).saturating_sub(chunk.quiet);
                let share = (heard.0 - audio_start.0) as f64 / spoken.0.max(1) as f64;
                return text_start + words_within(&self.text[text_start..chunk.text_end], share);
            }
            text_start = chunk.text_end;
            audio_start = chunk.audio_end;
        }
        text_start
    }
}

/// Whether the mark ends a sentence.
fn is_end_mark(c: char) -> bool {
    matches!(c, '.' | '!' | '?' | '。' | '！' | '？')
}

fn is_question_mark(c: char) -> bool {
    matches!(c, '?' | '？')
}

/// The share of a word from which its listener has heard it.
const HEARD_FROM: f64 = 2.0 / 3.0;

/// The length in bytes of the leading words of `text` that are heard within `share` of its sound, which ends with the last
/// word.
fn words_within(text: &str, share: f64) -> usize {
    let budget = share * length(text.trim_end_matches(|c: char| !c.is_alphanumeric()));
    let mut end = 0;
    let mut passed = 0.0;
    for word in words(text).map(|word| word.text) {
        let Some(gap) = text[end..].find(word) else { break };
        let start = end + gap;
        passed += length(&text[end..start]);
        let spoken = word.trim_end_matches(|c: char| !c.is_alphanumeric());
        if passed + HEARD_FROM * length(spoken) > budget {
            break;
        }
        passed += length(word);
        end = start + word.len();
    }
    end
}

/// How long text lasts, in letters. Fitted to sentences of hibari and of Piper's Joe, whose words Whisper dated.
fn length(text: &str) -> f64 {
    let of = |c: char| match c {
        c if is_end_mark(c) => 5.0,
        ',' | ';' | ':' | '，' | '、' | '；' | '：' => 3.0,
        c if c.is_numeric() => 4.0,
        c if is_unspaced(c) => 2.0,
        c if c.is_alphanumeric() => 1.0,
        c if c.is_whitespace() => 0.5,
        _ => 0.0,
    };
    text.chars().map(of).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spoken() -> SpokenItem {
        let mut spoken = SpokenItem::new("resp_1".into(), SampleRate::HZ_24000, Timestamp::ZERO);
        spoken.say("Hello there. ");
        spoken.made(Samples(1_300), Samples(300));
        spoken.say("One two three four.");
        spoken.made(Samples(1_500), Samples::ZERO);
        spoken.made(Samples(400), Samples(400));
        spoken
    }

    #[track_caller]
    fn check(heard: u64, expect: &str) {
        let mut spoken = spoken();
        spoken.cut(Samples(heard));
        assert_eq!(spoken.history(), expect, "after {heard} samples");
    }

    #[test]
    fn a_cut_keeps_the_words_that_were_heard() {
        check(0, "");
        // Of 10.5 letters "Hello" takes 5, and is heard from two thirds of them on: after 317 of 1,000 samples.
        check(317, "");
        check(318, "Hello");
        check(841, "Hello");
        check(842, "Hello there.");
        check(1_300, "Hello there.");
        check(1_400, "Hello there.");
        check(2_000, "Hello there. One two");
        // The silence behind the last word belongs to no word.
        check(2_700, "Hello there. One two three four.");
        check(9_999, "Hello there. One two three four.");
    }

    #[test]
    fn letters_stand_for_words_where_there_are_no_blanks() {
        let heard = |share: f64| {
            let text = "今天天气很好，我们走吧。";
            &text[..words_within(text, share)]
        };
        assert_eq!(["", "今天天气很好，"], [heard(0.01), heard(0.5)]);
        assert_eq!(heard(0.9), "今天天气很好，我们走");
    }

    #[test]
    fn a_question_is_asked_from_its_first_word_until_the_next_sentence_begins() {
        let mut spoken = SpokenItem::new("resp_1".into(), SampleRate::HZ_24000, Timestamp::ZERO);
        spoken.say("It is 3.5 miles. Shall we go on? Yes.");
        spoken.made(Samples(3_700), Samples::ZERO);
        let is_question = |heard| {
            let mut spoken = spoken.clone();
            spoken.sent(Timestamp::ZERO, Samples(3_700));
            spoken.reported(Timestamp::ZERO, Samples(heard));
            spoken.is_question(Timestamp::ZERO)
        };
        let questions = [0, 800, 1_650, 2_500, 3_250, 3_700].map(is_question);
        assert_eq!(questions, [false, false, false, true, true, false]);
    }

    #[test]
    fn full_width_marks_end_sentences_without_blanks_behind_them() {
        let mut spoken = SpokenItem::new("resp_1".into(), SampleRate::HZ_24000, Timestamp::ZERO);
        spoken.say("天气很好。我们走吗？好。");
        spoken.made(Samples(2_800), Samples::ZERO);
        spoken.sent(Timestamp::ZERO, Samples(2_800));
        let is_question = |heard| {
            let mut spoken = spoken.clone();
            spoken.reported(Timestamp::ZERO, Samples(heard));
            spoken.is_question(Timestamp::ZERO)
        };
        // A letter takes 200 samples, the mark behind a sentence 500.
        let questions = [0, 700, 900, 1_500, 2_200, 2_800].map(is_question);
        assert_eq!(questions, [false, false, false, true, true, false]);
    }

    #[test]
    fn a_length_rounded_down_keeps_the_last_word() {
        let mut spoken = spoken();
        // 3200 samples are 133.3 ms.
        spoken.cut_at_ms(133);
        assert_eq!(spoken.history(), "Hello there. One two three four.");
        spoken.cut_at_ms(100);
        assert_eq!(spoken.history(), "Hello there. One two three");
    }

    #[test]
    fn where_playback_stopped_moves_an_estimated_cut_and_no_other() {
        let mut spoken = spoken();
        spoken.sent(Timestamp::ZERO, Samples(3_200));
        spoken.stopped(Timestamp::ZERO, Samples(1_300));
        assert_eq!(spoken.history(), "Hello there. One two three four.", "nothing was cut");
        spoken.cut(Samples(2_100));
        spoken.stopped(Timestamp::ZERO, Samples(1_300));
        assert_eq!(spoken.history(), "Hello there.");
        spoken.cut_at_ms(133);
        spoken.stopped(Timestamp::ZERO, Samples(1_300));
        assert_eq!(spoken.history(), "Hello there. One two three four.");
    }

    #[test]
    fn a_later_cut_by_the_client_beats_the_estimate() {
        let mut spoken = spoken();
        spoken.cut(Samples(600));
        // 1300 samples are 54.2 ms.
        spoken.cut_at_ms(55);
        assert_eq!(spoken.history(), "Hello there.");
        spoken.cut(Samples(600));
        spoken.cut_unsent();
        assert_eq!(spoken.history(), "Hello there.", "and no later one beats it");
    }
}
