//! Whether decoded text was said: Whisper also produces text for silence and noise, and may repeat itself indefinitely.
//!
//! Pure: a [`Hypothesis`] and the time in which there may be speech in, a judgement out. The first gate, by energy, is
//! `voiced`, before anything is decoded. Known hallucinations count only where the model itself is unsure.

use super::hypothesis::Hypothesis;
use antiphon_text::words::{count, spoken};
use flate2::Compression;
use flate2::write::ZlibEncoder;
use std::collections::HashSet;
use std::io::Write;

/// The model's own measures, as OpenAI's decoder uses them: no speech is likely, and the words are not sure.
/// The first is a setting (`stt.no_speech_threshold`).
pub(super) const UNSURE_LOGPROB: f32 = -1.0;

/// Beyond this the model is so sure of no speech that a few words count for nothing, however fluent: inventions
/// on silence often are.
const SURELY_NO_SPEECH: f32 = 0.95;
const FEW_WORDS: usize = 4;

/// From here on a known invention is taken for one.
const MAYBE_NO_SPEECH: f32 = 0.3;
const DOUBT_LOGPROB: f32 = -0.7;
const HARDLY_VOICED_MS: u64 = 300;

/// The most words a second that are spoken: the fastest talkers reach about 6, and a short utterance may begin late.
const WORDS_A_SECOND: f64 = 8.0;
const WORDS_AT_LEAST: usize = 8;

/// This number of the same phrase in a row is a loop where there was no time to say them.
const LOOP: usize = 3;
const LONGEST_PHRASE: usize = 36;

/// A text that zlib packs by more repeats itself, by OpenAI's decoder.
const PACKED: f64 = 2.4;

/// This number of words that stand twice anywhere is suspect; a phrase is where it follows itself this often.
const COPIED_WORDS: usize = 6;

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
    /// There was no speech; for the log, why.
    Silence(&'static str),
    /// The text was said up to this number of words ([`spoken`]); the rest repeats them.
    Loop(usize),
}

/// Judges. `voiced_ms` is how long something sounded, `no_speech` the setting.
pub(super) fn judge(hypothesis: &Hypothesis, voiced_ms: u64, no_speech: f32) -> Verdict {
    let text = hypothesis.text();
    let words: Vec<String> = spoken(&text).collect();
    let n_words = count(&text);
    let sureness = hypothesis.avg_logprob();
    let no_speech_probability = hypothesis.no_speech;
    if words.is_empty() {
        return Verdict::Silence("no word");
    }
    if no_speech_probability > no_speech && sureness < UNSURE_LOGPROB {
        return Verdict::Silence("likely silence, unlikely words");
    }
    if no_speech_probability > SURELY_NO_SPEECH.max(no_speech) && n_words <= FEW_WORDS {
        return Verdict::Silence("surely silence, few words");
    }
    let is_doubtful =
        no_speech_probability > MAYBE_NO_SPEECH || sureness < DOUBT_LOGPROB || voiced_ms < HARDLY_VOICED_MS;
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

/// Whether a decoding may not be what was said, and is worth another one: it repeats itself, has more words than there was
/// time for, does not end, or has unlikely words.
pub(super) fn is_suspect(hypothesis: &Hypothesis, voiced_ms: u64) -> bool {
    let text = hypothesis.text();
    let most = WORDS_AT_LEAST.max((voiced_ms as f64 / 1_000.0 * WORDS_A_SECOND) as usize);
    repeats(hypothesis) || count(&text) > most || hypothesis.avg_logprob() < UNSURE_LOGPROB
}

/// Whether a decoding of the same audio is the better one: it repeats nothing where the other one does, or else its words
/// are likelier. One without words is never better.
pub(super) fn is_better(new: &Hypothesis, old: &Hypothesis) -> bool {
    if new.pieces().next().is_none() {
        return false;
    }
    match (repeats(new), repeats(old)) {
        (false, true) => true,
        (true, false) => false,
        _ => new.avg_logprob() > old.avg_logprob(),
    }
}

/// Whether the last words of what was said are missing: the text is full and does not end in a loop.
pub(super) fn lacks_words(hypothesis: &Hypothesis, verdict: Verdict) -> bool {
    let words: Vec<String> = spoken(&hypothesis.text()).collect();
    hypothesis.is_full && verdict == Verdict::Said && kept_of_loop(&words).is_none()
}

fn repeats(hypothesis: &Hypothesis) -> bool {
    let text = hypothesis.text();
    let words: Vec<String> = spoken(&text).collect();
    hypothesis.is_cut_off || follows_itself(&words) || has_copies(&words) || packed(&text) > PACKED
}

/// Whether a phrase follows itself: of one word four times, of two words three times, of more twice.
fn follows_itself(words: &[String]) -> bool {
    (1..=LONGEST_PHRASE.min(words.len() / 2)).any(|length| {
        let times = (5 - length.min(3)).max(2);
        let mut same = 0;
        (length..words.len()).any(|at| {
            same = if words[at] == words[at - length] { same + 1 } else { 0 };
            same >= length * (times - 1)
        })
    })
}

/// Whether some words stand twice.
fn has_copies(words: &[String]) -> bool {
    let mut seen = HashSet::new();
    words.windows(COPIED_WORDS).any(|words| !seen.insert(words))
}

/// The length of a text over that of its zlib form.
fn packed(text: &str) -> f64 {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    let packed = encoder.write_all(text.as_bytes()).and_then(|()| encoder.finish());
    packed.map_or(1.0, |packed| text.len() as f64 / packed.len().max(1) as f64)
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
    fn thanks_are_thanks_unless_there_was_hardly_any_speech() {
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
    fn a_phrase_that_follows_itself_anywhere_is_suspect() {
        let is_suspect = |text: &str| is_suspect(&said(text, -0.2), 60_000);
        for text in [
            "only a spear only a spear",
            "he went and he went and he went home at last",
            "well no no no no there is none",
            "the door was open and the light the door was open and the light was on",
            "and so they came to the house at night but nobody knew that they came to the house at night",
        ] {
            assert!(is_suspect(text), "{text}");
        }
        for text in [
            "ask not what your country can do for you ask what you can do for your country",
            "no no no that is very very good",
            "bye bye bye",
            "it was and it was not",
        ] {
            assert!(!is_suspect(text), "{text}");
        }
        assert!(super::is_suspect(&said("what time is it", -1.5), 60_000), "unlikely words");
        assert!(
            super::is_suspect(&said("one two three four five six seven eight nine ten", -0.2), 500),
            "no time for it"
        );
        assert!(super::is_suspect(&Hypothesis { is_cut_off: true, ..said("a b c", -0.2) }, 60_000), "without an end");
        let full = Hypothesis { is_full: true, ..said("a b c", -0.2) };
        assert!(!super::is_suspect(&full, 60_000), "without room for its end");
    }

    #[test]
    fn a_full_text_lacks_words_unless_it_ends_in_a_loop() {
        let full = |text: &str| Hypothesis { is_full: true, ..said(text, -0.2) };
        assert!(lacks_words(&full("what time is it"), Verdict::Said));
        assert!(!lacks_words(&full("what time is it"), Verdict::Silence("no word")));
        assert!(!lacks_words(&full("only a spear only a spear only a spear"), Verdict::Said));
        let repeats = "and so they came to the house at night but we knew that they came to the house at night";
        assert!(lacks_words(&full(repeats), Verdict::Said));
        assert!(!lacks_words(&said("what time is it", -0.2), Verdict::Said));
    }

    #[test]
    fn the_better_decoding_repeats_nothing_and_is_likelier() {
        let one = said("only a spear", -0.6);
        let doubled = said("only a spear only a spear", -0.2);
        assert!(is_better(&one, &doubled), "a loop is likely to itself");
        assert!(!is_better(&doubled, &one));
        assert!(is_better(&said("only a spear", -0.3), &one));
        assert!(!is_better(&said("lonely spear", -0.9), &one));
        assert!(!is_better(&said("", 0.0), &doubled), "silence is no better");
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
