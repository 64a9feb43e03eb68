//! Whether decoded text was said: Whisper also produces text for silence and noise, and may repeat itself indefinitely.
//!
//! Pure: a [`Hypothesis`] and how long somebody may have spoken in, a judgement out. The first gate, by energy, is
//! `voiced`, before anything is decoded. Known hallucinations count only where the model itself is unsure.

use super::hypothesis::Hypothesis;
use antiphon_text::words::{count, spoken};

/// The model's own measures, as OpenAI's decoder uses them: likely that nobody spoke, and not sure of the words.
/// The first is a setting (`stt.no_speech_threshold`).
pub(super) const UNSURE_LOGPROB: f32 = -1.0;

/// Beyond this the model is so sure that nobody spoke that a few words count for nothing, however fluent: inventions
/// on silence often are.
const SURELY_NOBODY: f32 = 0.95;
const FEW_WORDS: usize = 4;

/// From here on a known invention is taken for one.
const MAYBE_NOBODY: f32 = 0.3;
const DOUBT_LOGPROB: f32 = -0.7;
const HARDLY_VOICED_MS: u64 = 300;

/// Nobody speaks more words a second: the fastest talkers reach about 6, and a short utterance may begin late.
const WORDS_A_SECOND: f64 = 8.0;
const WORDS_AT_LEAST: usize = 8;

/// So many of the same phrase in a row are a loop where there was no time to say them.
const LOOP: usize = 3;
const LONGEST_PHRASE: usize = 36;

/// What Whisper is known to write for silence: its training's subtitles end so. In lower case, without marks.
const INVENTIONS: [&str; 15] = [
    "thank you",
    "thank you very much",
    "thanks for watching",
    "thank you for watching",
    "thank you so much for watching",
    "please subscribe",
    "you",
    "bye",
    "bye bye",
    "subtitles by the amara org community",
    "untertitel der amara org community",
    "untertitelung des zdf 2020",
    "sous titres réalisés par la communauté d amara org",
    "ご視聴ありがとうございました",
    "продолжение следует",
];

/// What becomes of a hypothesis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The text was said.
    Said,
    /// Nobody spoke; for the log, why.
    Silence(&'static str),
    /// The text was said up to so many words ([`spoken`]); the rest repeats them.
    Loop(usize),
}

/// Judges. `voiced_ms` is how long something sounded, `no_speech` the setting.
pub(super) fn judge(hypothesis: &Hypothesis, voiced_ms: u64, no_speech: f32) -> Verdict {
    let text = hypothesis.text();
    let words: Vec<String> = spoken(&text).collect();
    let n_words = count(&text);
    let sureness = hypothesis.avg_logprob();
    let nobody = hypothesis.no_speech;
    if words.is_empty() {
        return Verdict::Silence("no word");
    }
    if nobody > no_speech && sureness < UNSURE_LOGPROB {
        return Verdict::Silence("likely silence, unlikely words");
    }
    if nobody > SURELY_NOBODY.max(no_speech) && n_words <= FEW_WORDS {
        return Verdict::Silence("surely silence, few words");
    }
    let is_doubtful = nobody > MAYBE_NOBODY || sureness < DOUBT_LOGPROB || voiced_ms < HARDLY_VOICED_MS;
    if is_doubtful && INVENTIONS.contains(&plain(&text).as_str()) {
        return Verdict::Silence("a known invention");
    }
    let room = (voiced_ms as f64 / 1_000.0 * WORDS_A_SECOND) as usize;
    if n_words > WORDS_AT_LEAST.max(room) {
        return match kept_of_loop(&words) {
            Some(n) => Verdict::Loop(n),
            None if sureness < DOUBT_LOGPROB => Verdict::Silence("more words than there was time for"),
            None => Verdict::Said,
        };
    }
    Verdict::Said
}

/// Where a phrase repeats itself to the end, or nearly: the words up to the end of its first time.
fn kept_of_loop(words: &[String]) -> Option<usize> {
    (1..=LONGEST_PHRASE.min(words.len() / LOOP)).find_map(|length| {
        let mut same = 0;
        // The last time may be cut off.
        for at in (length..words.len()).rev() {
            if words[at] != words[at - length] {
                break;
            }
            same += 1;
        }
        (same >= length * (LOOP - 1)).then(|| words.len() - same)
    })
}

/// Lower case, marks to blanks, single blanks.
fn plain(text: &str) -> String {
    let kept = text.chars().map(|c| if c.is_alphanumeric() { c } else { ' ' }).flat_map(char::to_lowercase);
    kept.collect::<String>().split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::super::hypothesis::tests::said;
    use super::*;

    #[track_caller]
    fn check(text: &str, logprob: f32, no_speech: f32, voiced_ms: u64, expect: Verdict) {
        let hypothesis = Hypothesis { no_speech, ..said(text, logprob) };
        assert_eq!(judge(&hypothesis, voiced_ms, 0.6), expect, "{text}");
    }

    #[test]
    fn words_stand_unless_the_model_doubts_both_them_and_the_speaker() {
        check("what time is it", -0.2, 0.1, 1_000, Verdict::Said);
        check("what time is it", -1.5, 0.1, 1_000, Verdict::Said);
        check("what time is it", -0.2, 0.7, 1_000, Verdict::Said);
        check("what time is it", -1.5, 0.7, 1_000, Verdict::Silence("likely silence, unlikely words"));
        check("", 0.0, 0.0, 1_000, Verdict::Silence("no word"));
        check("...", 0.0, 0.0, 1_000, Verdict::Silence("no word"));
    }

    #[test]
    fn a_few_fluent_words_on_sure_silence_are_none() {
        check("what time is it", -0.1, 0.97, 1_000, Verdict::Silence("surely silence, few words"));
        check("what time is it now please", -0.1, 0.97, 3_000, Verdict::Said);
    }

    #[test]
    fn thanks_are_thanks_unless_somebody_hardly_spoke() {
        check("Thank you.", -0.2, 0.05, 600, Verdict::Said);
        check("Thank you.", -0.2, 0.4, 600, Verdict::Silence("a known invention"));
        check("Thank you.", -0.9, 0.05, 600, Verdict::Silence("a known invention"));
        check("Thank you.", -0.2, 0.05, 120, Verdict::Silence("a known invention"));
        check("Thanks for watching!", -0.2, 0.4, 600, Verdict::Silence("a known invention"));
    }

    #[test]
    fn a_loop_is_cut_where_there_was_no_time_to_say_it() {
        let no = "no no no no no no no no no no no no";
        check(no, -0.2, 0.1, 3_000, Verdict::Said);
        check(no, -0.2, 0.1, 1_000, Verdict::Loop(1));
        let hum = "I am here and I go and I go and I go and I go and I go and I";
        check(hum, -0.2, 0.1, 1_000, Verdict::Loop(6));
        check("one two three four five six seven eight nine ten", -0.2, 0.1, 500, Verdict::Said);
        let fast = "one two three four five six seven eight nine ten";
        check(fast, -0.8, 0.1, 500, Verdict::Silence("more words than there was time for"));
        let marked = "I don't know I don't know I don't know I don't know";
        check(marked, -0.2, 0.1, 1_000, Verdict::Loop(3));
    }

    #[test]
    fn a_language_without_blanks_has_words_to_count() {
        let sentence = "今天天气很好我们去公园走走吧";
        check(sentence, -0.1, 0.97, 3_000, Verdict::Said);
        check("谢谢", -0.1, 0.97, 3_000, Verdict::Silence("surely silence, few words"));
        check(sentence, -0.2, 0.1, 2_500, Verdict::Said);
        check(&"我不知道".repeat(10), -0.2, 0.1, 1_000, Verdict::Loop(4));
        check(&sentence.repeat(3), -0.2, 0.1, 1_000, Verdict::Loop(14));
    }
}
