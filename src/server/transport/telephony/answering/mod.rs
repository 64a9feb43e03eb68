//! Who answers a call of ours: a person, an answering machine, a screening service, a menu or a fax machine.
//!
//! [`AnswerDetector`] decides from the sound of the line and the recognizer's words so far. What announces a recording, a
//! screening or a menu decides at once; what may still become something else waits for a pause; without such words length
//! and cadence count: a person says little and waits, a machine goes on. A beep is an answering machine's. Time is that of
//! the sound, so that it has no IO and no clock. [`super::answerer`] acts upon what it finds.
//! [`fax`] finds fax machines that call.

pub(super) mod fax;
mod phrases;
mod tone;

use antiphon_types::SampleRate;
use phrases::{Judgement, is_figure, is_hello, judge, words_of};
use serde::Serialize;
use std::collections::VecDeque;
use tone::{FRAME, FRAME_MS, HZ, Tone, ToneDetector, mean_square};

/// A judgement of words that holds for this time, in milliseconds, is no slip of a draft.
const HELD_MS: u32 = 200;
/// Pauses that end an answer, in milliseconds: of a greeting such as "Hello?", of other words of a person, of words of an
/// absent one, of words that say nothing.
const HELLO_PAUSE_MS: u32 = 700;
const PERSON_PAUSE_MS: u32 = 700;
const ABSENT_PAUSE_MS: u32 = 1_000;
const PAUSE_MS: u32 = 1_500;
/// The longest wait for the recognizer's words of what was said, in milliseconds of silence.
const WORDS_PAUSE_MS: u32 = 3_000;
/// Who says this much before a pause, or without one, is an answering machine, in milliseconds, unless the words say
/// otherwise. A receptionist's longest greeting takes some 5 s.
const LONG_MS: u32 = 6_000;
const ENDLESS_MS: u32 = 9_000;
/// A line without speech for this time since the answer, in milliseconds: nobody knows.
const SILENT_MS: u32 = 4_000;
/// The end of a greeting without a beep, in milliseconds of silence.
const NO_BEEP_MS: u32 = 4_000;
/// How long it is decided, in milliseconds since the answer; and how long a beep is waited for, or an answering machine
/// behind a screening or a menu.
const DECIDES_MS: u32 = 30_000;
const FOLLOWS_MS: u32 = 120_000;
/// Frames of sound in a row that are speech.
const MIN_VOICED: u32 = 3;
/// The quietest speech, as the mean square of a frame: -44 dB of full scale; and how far it is above the noise.
const QUIETEST: f32 = 200.0 * 200.0;
const ABOVE_NOISE: f32 = 6.0;
/// By how much the noise may rise in a frame: by half in 4 s.
const NOISE_RISE: f32 = 1.002;
/// Words that are kept.
const MAX_WORDS: usize = 400;
/// A longer transcript is cut.
const MAX_TEXT_BYTES: usize = 8_000;

/// Who answers a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::server::transport) enum AnsweredBy {
    Person,
    /// An answering machine, or a mailbox of a network.
    Voicemail,
    /// A service that asks for the caller's name before it connects.
    Screening,
    /// A menu, or a queue.
    Ivr,
    /// A fax machine.
    Fax,
    /// Nobody has spoken, or it could not be decided.
    Unknown,
}

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// Who answers. It may come again: an answering machine may follow a screening, and anyone a silence.
    Answered(AnsweredBy),
    /// An answering machine records from now on: its beep is over, or its greeting is, and no beep came.
    Records,
}

/// See the module.
pub(super) struct AnswerDetector {
    frames: Framer,
    tones: ToneDetector,
    line: SpeechMeter,
    words: Vec<String>,
    judgement: Option<Judgement>,
    /// For how long there has been this judgement, in milliseconds.
    judged_ms: u32,
    /// The recognizer may still have words for what was said.
    awaits_words: bool,
    decided: Option<AnsweredBy>,
    /// Words up to the decision, and up to the pause behind it.
    n_decided_words: usize,
    /// What was decided upon goes on.
    ignores_words: bool,
    records: bool,
    /// Since the answer, in milliseconds.
    elapsed_ms: u32,
    found: VecDeque<Finding>,
}

impl AnswerDetector {
    /// `rate`: that of the sound, a multiple of 8 kHz.
    pub(super) fn new(rate: SampleRate) -> Self {
        Self {
            frames: Framer::new(rate),
            tones: ToneDetector::default(),
            line: SpeechMeter::default(),
            words: Vec::new(),
            judgement: None,
            judged_ms: 0,
            awaits_words: false,
            decided: None,
            n_decided_words: 0,
            ignores_words: false,
            records: false,
            elapsed_ms: 0,
            found: VecDeque::new(),
        }
    }

    /// Takes what was recognized since the answer, which replaces what was before. `is_final`: no more words follow for
    /// what was said so far.
    pub(super) fn hear(&mut self, text: &str, is_final: bool) {
        let end = text.floor_char_boundary(MAX_TEXT_BYTES);
        self.words = words_of(&text[..end]);
        self.words.truncate(MAX_WORDS);
        self.awaits_words = !is_final;
        if !is_final {
            // A figure may be the first one of a telephone number.
            self.words.pop_if(|last| is_figure(last));
        }
        if self.ignores_words {
            self.n_decided_words = self.words.len();
        }
        let first = self.n_decided_words.min(self.words.len());
        let judgement = judge(&self.words[first..]);
        if judgement != self.judgement {
            self.judgement = judgement;
            self.judged_ms = 0;
        }
    }

    /// Takes the next sound of the line.
    pub(super) fn push(&mut self, samples: &[i16]) {
        self.frames.push(samples);
        while let Some(frame) = self.frames.next() {
            self.frame(&frame);
        }
    }

    /// The next finding.
    pub(super) fn pop(&mut self) -> Option<Finding> {
        self.found.pop_front()
    }

    /// Whether there was speech on the line.
    pub(super) fn has_spoken(&self) -> bool {
        self.line.has_begun
    }

    /// For how long the line has been silent, in milliseconds.
    pub(super) fn silent_ms(&self) -> u32 {
        self.line.silent_ms
    }

    /// Whether nothing more will be found.
    pub(super) fn is_done(&self) -> bool {
        let is_over = match self.decided {
            None => false,
            Some(AnsweredBy::Unknown) => self.elapsed_ms >= DECIDES_MS,
            Some(AnsweredBy::Person | AnsweredBy::Fax) => true,
            Some(AnsweredBy::Voicemail) => self.records || self.elapsed_ms >= FOLLOWS_MS,
            Some(AnsweredBy::Screening | AnsweredBy::Ivr) => self.elapsed_ms >= FOLLOWS_MS,
        };
        is_over && self.found.is_empty()
    }

    fn frame(&mut self, frame: &[f32]) {
        self.elapsed_ms = self.elapsed_ms.saturating_add(FRAME_MS);
        self.judged_ms = self.judged_ms.saturating_add(FRAME_MS);
        let tone = self.tones.push(frame);
        self.line.push(frame, self.tones.is_sounding());
        if tone == Some(Tone::Fax) && self.decided != Some(AnsweredBy::Person) {
            self.decide(AnsweredBy::Fax);
            return;
        }
        let has_beeped = tone == Some(Tone::Beep);
        match self.decided {
            None | Some(AnsweredBy::Unknown) if self.elapsed_ms <= DECIDES_MS => {
                let by = if has_beeped { Some(AnsweredBy::Voicemail) } else { self.judge() };
                if let Some(by) = by.filter(|by| self.decided != Some(*by)) {
                    self.decide(by);
                }
            }
            Some(AnsweredBy::Screening | AnsweredBy::Ivr) if self.elapsed_ms <= FOLLOWS_MS => {
                self.ignores_words &= self.line.silent_ms < PAUSE_MS;
                let by = self.certain_judgement();
                if by == Some(AnsweredBy::Voicemail) {
                    self.decide(AnsweredBy::Voicemail);
                }
            }
            _ => {}
        }
        let is_quiet = self.line.silent_ms >= NO_BEEP_MS;
        if self.decided == Some(AnsweredBy::Voicemail) && !self.records && (has_beeped || is_quiet) {
            self.records = true;
            self.found.push_back(Finding::Records);
        }
    }

    fn decide(&mut self, by: AnsweredBy) {
        self.decided = Some(by);
        if by != AnsweredBy::Unknown {
            self.n_decided_words = self.words.len();
            self.ignores_words = true;
            self.judgement = None;
        }
        self.found.push_back(Finding::Answered(by));
    }

    /// Who answers, if that can be said now.
    fn judge(&self) -> Option<AnsweredBy> {
        if let Some(by) = self.certain_judgement() {
            return Some(by);
        }
        let SpeechMeter { speech_ms, silent_ms, .. } = self.line;
        if !self.line.has_begun {
            let is_over = silent_ms >= SILENT_MS || self.elapsed_ms >= DECIDES_MS;
            return is_over.then_some(AnsweredBy::Unknown);
        }
        if self.awaits_words && silent_ms < WORDS_PAUSE_MS && speech_ms < ENDLESS_MS {
            return None;
        }
        match self.judgement.map(|judgement| judgement.by) {
            Some(AnsweredBy::Person) => (silent_ms >= PERSON_PAUSE_MS).then_some(AnsweredBy::Person),
            Some(by) => (silent_ms >= ABSENT_PAUSE_MS || speech_ms >= ENDLESS_MS).then_some(by),
            None if is_hello(&self.words) => (silent_ms >= HELLO_PAUSE_MS).then_some(AnsweredBy::Person),
            None if speech_ms >= ENDLESS_MS => Some(AnsweredBy::Voicemail),
            None if silent_ms < PAUSE_MS => None,
            None if speech_ms >= LONG_MS => Some(AnsweredBy::Voicemail),
            None => Some(AnsweredBy::Person),
        }
    }

    fn certain_judgement(&self) -> Option<AnsweredBy> {
        let judgement = self.judgement.filter(|judgement| judgement.is_certain && self.judged_ms >= HELD_MS)?;
        Some(judgement.by)
    }
}

/// Frames of 20 ms at 8 kHz, of sound at a multiple of that.
struct Framer {
    /// Samples that become one.
    n_each: usize,
    waiting: VecDeque<i16>,
}

impl Framer {
    fn new(rate: SampleRate) -> Self {
        Self { n_each: (rate.hz() / HZ).max(1) as usize, waiting: VecDeque::new() }
    }

    fn push(&mut self, samples: &[i16]) {
        self.waiting.extend(samples);
    }

    fn next(&mut self) -> Option<Vec<f32>> {
        let n = FRAME * self.n_each;
        if self.waiting.len() < n {
            return None;
        }
        let samples: Vec<f32> = self.waiting.drain(..n).map(f32::from).collect();
        // The mean of neighbours is a low-pass filter that is enough for tones up to 2.5 kHz.
        let mean = |chunk: &[f32]| chunk.iter().sum::<f32>() / chunk.len() as f32;
        Some(samples.chunks_exact(self.n_each).map(mean).collect())
    }
}

/// How long the line speaks and is silent.
#[derive(Default)]
struct SpeechMeter {
    /// Mean square of the noise; 0: not known.
    noise: f32,
    /// Frames of sound in a row.
    n_voiced: u32,
    has_begun: bool,
    /// From the beginning of speech to its last sound.
    speech_ms: u32,
    /// Since the last sound of speech, or since the answer.
    silent_ms: u32,
}

impl SpeechMeter {
    fn push(&mut self, frame: &[f32], is_tone: bool) {
        let power = mean_square(frame);
        let is_voiced = !is_tone && power > QUIETEST.max(ABOVE_NOISE * self.noise);
        if !is_tone {
            let risen = if self.noise > 0.0 { self.noise * NOISE_RISE } else { QUIETEST };
            self.noise = power.min(risen).max(1.0);
        }
        self.n_voiced = if is_voiced { self.n_voiced + 1 } else { 0 };
        self.silent_ms = self.silent_ms.saturating_add(FRAME_MS);
        if self.n_voiced < MIN_VOICED {
            return;
        }
        // The count begins again after a pause.
        if !self.has_begun || self.silent_ms > PAUSE_MS {
            self.has_begun = true;
            self.speech_ms = (MIN_VOICED - 1) * FRAME_MS;
        } else {
            self.speech_ms = self.speech_ms.saturating_add(self.silent_ms - FRAME_MS);
        }
        self.speech_ms = self.speech_ms.saturating_add(FRAME_MS);
        self.silent_ms = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::f32::consts::TAU;

    /// Answers with who gives them and their language, in pairs: of each two lines of the same kind the second one is held
    /// back, and was not looked at when the phrases were chosen.
    const ANSWERS: &str = include_str!("../../../../../tests/fixtures/greetings/answers.tsv");
    /// Share of the answers that have to be judged right within 2 s of their end, and of persons that may be taken for
    /// machines.
    const RIGHT: f64 = 0.97;
    const TAKEN_FOR_MACHINES: f64 = 0.01;

    /// A line that speaks, with a recognizer that is 300 ms behind.
    struct Line {
        detector: AnswerDetector,
        ms: u32,
        noise: u32,
        /// What the recognizer will have, and from when on.
        heard: VecDeque<(u32, String)>,
        silent_since: Option<u32>,
        text: String,
        answered: Vec<(u32, AnsweredBy)>,
        records_at: Option<u32>,
    }

    impl Line {
        fn new() -> Self {
            Self {
                detector: AnswerDetector::new(SampleRate::HZ_8000),
                ms: 0,
                noise: 1,
                heard: VecDeque::new(),
                silent_since: None,
                text: String::new(),
                answered: Vec::new(),
                records_at: None,
            }
        }

        /// 20 ms of this sound.
        fn frame(&mut self, samples: &[i16]) {
            while let Some((_, text)) = self.heard.pop_front_if(|(at, _)| *at <= self.ms) {
                self.text = text;
                self.detector.hear(&self.text, false);
            }
            if self.silent_since.is_some_and(|since| self.ms == since + 500) {
                self.detector.hear(&self.text, true);
            }
            self.detector.push(samples);
            self.ms += FRAME_MS;
            while let Some(finding) = self.detector.pop() {
                match finding {
                    Finding::Answered(by) => self.answered.push((self.ms, by)),
                    Finding::Records => self.records_at = Some(self.ms),
                }
            }
        }

        fn noise(&mut self, level: f32, ms: u32) {
            for _ in 0..ms / FRAME_MS {
                let samples: Vec<i16> = (0..FRAME).map(|_| (level * self.random()) as i16).collect();
                self.frame(&samples);
            }
        }

        fn random(&mut self) -> f32 {
            self.noise = self.noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (self.noise >> 8) as f32 / (1 << 23) as f32 - 1.0
        }

        fn silence(&mut self, ms: u32) {
            self.silent_since.get_or_insert(self.ms);
            self.noise(30.0, ms);
        }

        fn voice(&mut self, ms: u32) {
            self.silent_since = None;
            self.noise(4_000.0, ms);
        }

        fn beep(&mut self, hz: f32, ms: u32) {
            let sample = |i: usize| (5_000.0 * (TAU * hz * i as f32 / HZ as f32).sin()) as i16;
            let samples: Vec<i16> = (0..8 * ms as usize).map(sample).collect();
            samples.chunks_exact(FRAME).for_each(|frame| self.frame(frame));
        }

        /// Speaks at 170 words a minute; pauses at commas and full stops.
        fn say(&mut self, text: &str) {
            let mut so_far = String::new();
            for word in text.split_whitespace() {
                self.voice(340);
                so_far.push_str(word);
                so_far.push(' ');
                self.heard.push_back((self.ms + 300, so_far.clone()));
                if word.ends_with(',') {
                    self.silence(200);
                } else if word.ends_with(['.', '?', '!']) {
                    self.silence(460);
                }
            }
        }

        fn last(&self) -> Option<AnsweredBy> {
            self.answered.last().map(|(_, by)| *by)
        }
    }

    /// Who is found to give an answer, 2 s after its end.
    fn judged(text: &str) -> Option<AnsweredBy> {
        let mut line = Line::new();
        line.silence(400);
        line.say(text);
        line.silence(1_540);
        line.last()
    }

    fn name(by: Option<AnsweredBy>) -> String {
        by.map_or("nobody".into(), |by| serde_json::to_value(by).unwrap().as_str().unwrap().to_owned())
    }

    #[test]
    fn answers_that_were_held_back_are_judged_right() {
        let answers: Vec<(&str, &str)> = ANSWERS.lines().map(columns).collect();
        let seen = Rates::of(answers.iter().step_by(2));
        let held_back = Rates::of(answers.iter().skip(1).step_by(2));
        for rates in [seen, held_back] {
            assert!(rates.n >= 60 && rates.right >= RIGHT && rates.taken <= TAKEN_FOR_MACHINES, "{}", rates.report);
        }
    }

    /// Who gives an answer, and its text; its language stands between them.
    fn columns(line: &str) -> (&str, &str) {
        let mut columns = line.split('\t');
        let by = columns.next().unwrap();
        (by, columns.nth(1).unwrap())
    }

    /// How answers are judged.
    struct Rates {
        n: usize,
        /// Share that is judged right.
        right: f64,
        /// Share of the persons that are taken for machines.
        taken: f64,
        report: String,
    }

    impl Rates {
        fn of<'a>(answers: impl Iterator<Item = &'a (&'a str, &'a str)>) -> Self {
            let judged: Vec<_> = answers.map(|(by, text)| (*by, *text, name(judged(text)))).collect();
            let wrong: Vec<_> = judged.iter().filter(|(by, _, found)| by != found).collect();
            let n = judged.len();
            let n_persons = judged.iter().filter(|(by, ..)| *by == "person").count();
            let is_taken = |(by, _, found): &&&(&str, &str, String)| *by == "person" && found != "unknown";
            let n_taken = wrong.iter().filter(is_taken).count();
            let right = 1.0 - wrong.len() as f64 / n as f64;
            let taken = n_taken as f64 / n_persons as f64;
            let percent = 100.0 * right;
            let mut report =
                format!("{n} answers, {percent:.1} % right, {n_taken} of {n_persons} persons taken for machines");
            for (by, text, found) in &wrong {
                report += &format!("\n  {by}, found {found}: {text}");
            }
            Self { n, right, taken, report }
        }
    }

    #[test]
    fn without_words_length_and_cadence_decide() {
        let after = |spoken: &[(u32, u32)]| {
            let mut line = Line::new();
            line.silence(500);
            for (voice, pause) in spoken {
                line.voice(*voice);
                line.silence(*pause);
            }
            line.silence(2_000);
            line.last()
        };
        assert_eq!(after(&[(500, 0)]), Some(AnsweredBy::Person), "hello");
        assert_eq!(after(&[(400, 1_800), (400, 0)]), Some(AnsweredBy::Person), "hello, hello");
        assert_eq!(after(&[(4_500, 0)]), Some(AnsweredBy::Person), "a receptionist");
        assert_eq!(after(&[(3_000, 400), (3_500, 300), (2_000, 0)]), Some(AnsweredBy::Voicemail), "a greeting");
        assert_eq!(after(&[(15_000, 0)]), Some(AnsweredBy::Voicemail), "a menu, which nobody tells from a machine");
    }

    #[test]
    fn a_silent_line_is_unknown_until_someone_speaks_and_a_beep_alone_is_a_machine() {
        let mut line = Line::new();
        line.silence(6_000);
        assert_eq!(line.answered, [(4_000, AnsweredBy::Unknown)]);
        line.say("Hello?");
        line.silence(1_000);
        assert_eq!(line.last(), Some(AnsweredBy::Person));
        assert!(line.detector.is_done());

        let mut line = Line::new();
        line.silence(1_000);
        line.beep(1_000.0, 500);
        line.silence(300);
        assert_eq!((line.last(), line.records_at), (Some(AnsweredBy::Voicemail), Some(1_580)));
    }

    #[test]
    fn a_machine_records_after_its_beep_or_after_a_silence_without_one() {
        let greeting = "You've reached Anna. Please leave a message after the tone.";
        let mut line = Line::new();
        line.say(greeting);
        line.silence(800);
        assert_eq!((line.last(), line.records_at), (Some(AnsweredBy::Voicemail), None));
        line.beep(850.0, 300);
        let over = line.ms;
        line.silence(200);
        let records_at = line.records_at.unwrap();
        assert!(records_at > over && records_at <= over + 100, "{records_at} after {over}");
        assert!(line.detector.is_done());

        let mut line = Line::new();
        line.say(greeting);
        let over = line.ms - 460;
        line.silence(5_000);
        let records_at = line.records_at.unwrap();
        assert!((over + NO_BEEP_MS..over + NO_BEEP_MS + 60).contains(&records_at), "{records_at} after {over}");
    }

    #[test]
    fn a_machine_behind_a_screening_is_found_and_its_first_beep_is_none() {
        let mut line = Line::new();
        line.say("Please say your name after the beep.");
        line.beep(1_400.0, 300);
        line.silence(4_000);
        assert_eq!(line.last(), Some(AnsweredBy::Screening));
        line.say(
            "Please say your name after the beep. The person cannot take your call. Record your message at the tone.",
        );
        line.silence(500);
        assert_eq!(line.last(), Some(AnsweredBy::Voicemail));
    }

    #[test]
    fn a_figure_that_may_begin_a_telephone_number_is_no_key_yet() {
        let mut line = Line::new();
        line.say("If this is an emergency, hang up and dial nine one one. Otherwise leave a message.");
        line.silence(1_000);
        assert_eq!(line.answered.iter().map(|(_, by)| *by).collect::<Vec<_>>(), [AnsweredBy::Voicemail]);
    }

    #[test]
    fn a_person_stays_one_whatever_they_say_later() {
        let mut line = Line::new();
        line.say("Hello?");
        line.silence(1_000);
        line.say("Hello? The voicemail is full, leave your message after the beep, ha.");
        line.beep(1_000.0, 500);
        line.silence(5_000);
        assert_eq!(line.answered.len(), 1);
        assert_eq!((line.last(), line.records_at), (Some(AnsweredBy::Person), None));
    }

    #[test]
    fn a_fax_machine_is_one_at_once() {
        let mut line = Line::new();
        line.silence(1_000);
        line.beep(2_100.0, 3_000);
        assert_eq!(line.answered, [(3_000, AnsweredBy::Fax)]);
    }

    #[test]
    fn a_flood_of_words_and_of_sound_is_bounded() {
        let mut detector = AnswerDetector::new(SampleRate::new(16_000));
        detector.hear(&"é leave a message ".repeat(10_000), false);
        assert_eq!(detector.words.len(), MAX_WORDS);
        detector.push(&vec![i16::MIN; 16_000 * 200]);
        assert!(detector.is_done() || detector.found.len() <= 2);
        assert!(detector.frames.waiting.len() < 320);
    }
}
