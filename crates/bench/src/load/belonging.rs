//! Cross-talk detection: whether what a session received belongs to it or to another session's question.
//!
//! Speech recognition makes errors, so a transcript is compared with all questions: it belongs to another one if it is
//! close to that one and far from its own. The names and tones of the mock engines are unambiguous. The text of the
//! response is checked only if the transcript is correct: a wrong response to a misheard question is not cross-talk.

use super::clips::{Clips, Sign};

/// Minimum [`likeness`] of sentences that count as the same.
const SAME: f64 = 0.8;
/// Maximum [`likeness`] of sentences that count as different, not as misheard.
const DIFFERENT: f64 = 0.5;
/// Tolerance of a tone's frequency, in Hz: half the distance between two of them.
const TONE_TOLERANCE_HZ: f64 = 5.0;

/// What was received for one question.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct RoundTrip<'a> {
    pub(super) transcript: &'a str,
    pub(super) answer: &'a str,
    /// Frequency of the response's audio, if it is a tone.
    pub(super) tone_hz: Option<f64>,
}

/// Which question a result belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Its own question.
    Own,
    /// Another question, with the evidence.
    Other(String),
    /// Neither: misheard, or nothing is known about the question.
    Unclear,
}

/// Judges what was received for the clip `own`.
pub(super) fn judge(clips: &Clips, own: usize, heard: &RoundTrip<'_>) -> Verdict {
    match &clips[own].sign {
        Sign::Unknown => Verdict::Unclear,
        Sign::Words { said, expect } => by_words(clips, said, expect.as_deref(), heard),
        Sign::Name { name, tone_hz } => by_name(clips, name, *tone_hz, heard),
    }
}

fn by_words(clips: &Clips, said: &str, expect: Option<&str>, heard: &RoundTrip<'_>) -> Verdict {
    let others = || {
        clips.all().iter().filter_map(move |clip| match &clip.sign {
            Sign::Words { said: other, expect } if other != said => Some((other, expect.as_deref())),
            _ => None,
        })
    };
    let own = likeness(heard.transcript, said);
    if own < DIFFERENT {
        let other = others().find(|(other, _)| likeness(heard.transcript, other) >= SAME);
        return other.map_or(Verdict::Unclear, |(other, _)| Verdict::Other(format!("it was heard as {other:?}")));
    }
    match expect {
        Some(expect) if own >= SAME && !holds(heard.answer, expect) => {
            let other = others().find(|(_, other)| other.is_some_and(|other| holds(heard.answer, other)));
            other.map_or(Verdict::Unclear, |(other, _)| Verdict::Other(format!("the answer belongs to {other:?}")))
        }
        _ if own >= SAME => Verdict::Own,
        _ => Verdict::Unclear,
    }
}

fn by_name(clips: &Clips, name: &str, tone_hz: f64, heard: &RoundTrip<'_>) -> Verdict {
    for (what, text) in [("transcript", heard.transcript), ("answer", heard.answer)] {
        if holds(text, name) {
            continue;
        }
        let other = clips.all().iter().find_map(|clip| match &clip.sign {
            Sign::Name { name, .. } if holds(text, name) => Some(name),
            _ => None,
        });
        return other.map_or(Verdict::Unclear, |other| Verdict::Other(format!("the {what} names {other:?}")));
    }
    match heard.tone_hz {
        None => Verdict::Unclear,
        Some(hz) if (hz - tone_hz).abs() < TONE_TOLERANCE_HZ => Verdict::Own,
        Some(hz) => Verdict::Other(format!("the voice sounds at {hz:.0} Hz instead of {tone_hz:.0}")),
    }
}

fn words(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect()
}

/// Whether the words of `piece` occur consecutively in `text`.
fn holds(text: &str, piece: &str) -> bool {
    let text = words(text);
    let piece = words(piece);
    !piece.is_empty() && text.windows(piece.len()).any(|window| window == piece)
}

/// Similarity of two sentences, 0 to 1: Dice's coefficient of their word multisets.
fn likeness(a: &str, b: &str) -> f64 {
    let a = words(a);
    let mut b = words(b);
    let n = a.len() + b.len();
    let common =
        a.iter().filter(|word| b.iter().position(|other| other == *word).map(|at| b.swap_remove(at)).is_some());
    let common = common.count();
    if n == 0 { 0.0 } else { 2.0 * common as f64 / n as f64 }
}

#[cfg(test)]
mod tests {
    use super::super::clips::Clip;
    use super::*;

    fn check(clips: &Clips, own: usize, heard: (&str, &str, Option<f64>), expect: &str) {
        let (transcript, answer, tone_hz) = heard;
        let verdict = judge(clips, own, &RoundTrip { transcript, answer, tone_hz });
        assert_eq!(format!("{verdict:?}"), expect, "{heard:?}");
    }

    fn clips(signs: Vec<Sign>) -> Clips {
        let clip = |sign| Clip::new("x", sign, vec![9, -9, 9]).expect("loud");
        Clips::kept(signs.into_iter().map(clip).collect()).expect("some")
    }

    #[test]
    fn words_belong_to_the_question_they_are_close_to() {
        let words = |said: &str, expect: &str| Sign::Words { said: said.into(), expect: Some(expect.into()) };
        let clips = clips(vec![
            words("What is twelve times seven?", "84"),
            words("How many feet are in a mile?", "5280"),
            words("What sound does a cow make?", "moo"),
        ]);
        check(&clips, 0, ("what is twelve times seven", "That is 84.", None), "Own");
        check(&clips, 0, ("what is twenty times seven", "140", None), "Unclear");
        check(
            &clips,
            0,
            ("what is twelve times seven", "It says moo.", None),
            r#"Other("the answer belongs to \"What sound does a cow make?\"")"#,
        );
        check(
            &clips,
            0,
            ("how many feet are in a mile", "5280", None),
            r#"Other("it was heard as \"How many feet are in a mile?\"")"#,
        );
        check(&clips, 0, ("", "", None), "Unclear");
        check(&clips, 1, ("what is this", "84", None), "Unclear");
    }

    #[test]
    fn names_and_tones_leave_no_doubt() {
        let name = |name: &str, tone_hz| Sign::Name { name: name.into(), tone_hz };
        let clips = clips(vec![name("Bamo", 300.0), name("Dilu", 310.0)]);
        check(&clips, 0, ("hello bamo", "Bamo, I can help.", Some(301.0)), "Own");
        check(&clips, 0, ("hello dilu", "Bamo, I can help.", Some(300.0)), r#"Other("the transcript names \"Dilu\"")"#);
        check(&clips, 0, ("hello bamo", "Dilu, I can help.", Some(300.0)), r#"Other("the answer names \"Dilu\"")"#);
        check(
            &clips,
            0,
            ("hello bamo", "Bamo, I can help.", Some(310.0)),
            r#"Other("the voice sounds at 310 Hz instead of 300")"#,
        );
        check(&clips, 1, ("hello", "Sure.", None), "Unclear");
        check(&clips, 1, ("hello dilu", "Dilu.", None), "Unclear");
        check(&super::tests::clips(vec![Sign::Unknown]), 0, ("hello", "Sure.", None), "Unclear");
    }
}
