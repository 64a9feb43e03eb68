//! Composes conversations from speakers' sounds: which turns, in which order, with which pauses, by a seed.
//!
//! The same speakers and the same seed give the same conversations, sample by sample. Turns alternate between those
//! that begin in silence and those over the reply to them, drawn from decks, so that every category has its share.

use super::acoustics::{bed, cough, gain, laughter, levelled, mix, ms_of, samples_of, scaled, turned_away, under};
use super::lines::Lines;
use super::scenario::{
    Begins, Category, Condition, Conversation, Expected, Labelled, NoiseKind, Source, Span, Split, Turn,
};
use super::voices::Speaker;
use antiphon_dialog::INTERRUPTS_AFTER;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{RngExt, SeedableRng};

/// Conversations of a half, and of a half of a quick run.
pub(super) const N_CONVERSATIONS: usize = 20;
pub(super) const N_QUICK: usize = 2;
/// Pairs of a conversation: a turn in silence, and one over the reply to it. One more turn is none for the agent.
const N_PAIRS: usize = 5;

/// Conditions of the conversations of a half, in turn.
const CONDITIONS: [Condition; 10] = [
    Condition::Clean,
    Condition::Noisy { kind: NoiseKind::Pink, snr_db: 20 },
    Condition::Clean,
    Condition::Telephone,
    Condition::Noisy { kind: NoiseKind::Brown, snr_db: 10 },
    Condition::Clean,
    Condition::FarField,
    Condition::Noisy { kind: NoiseKind::Babble, snr_db: 10 },
    Condition::Clean,
    Condition::Noisy { kind: NoiseKind::Pink, snr_db: 0 },
];

/// Silence before the first sound of a turn, and behind its last one.
const LEAD_MS: u32 = 20;
/// How loud television is, against the user.
const TELEVISION_DB: f64 = -15.0;

/// Composes `n` conversations of the speakers of a half. `only`: wherever a turn of this category may stand, one does.
pub(super) fn conversations(
    speakers: &[Speaker],
    split: Split,
    n: usize,
    seed: u64,
    only: Option<Category>,
) -> Vec<Conversation> {
    let own: Vec<&Speaker> = speakers.iter().filter(|speaker| speaker.split == split).collect();
    if own.is_empty() {
        return Vec::new();
    }
    // The halves share no seed.
    let first_seed = seed.wrapping_mul(2) + u64::from(split == Split::Held);
    let mut decks = Decks::new(first_seed, only);
    let compose = |i: usize| {
        let speaker = own[i % own.len()];
        let condition = CONDITIONS[i % CONDITIONS.len()];
        let others: Vec<&Speaker> = own.iter().copied().filter(|other| other.name != speaker.name).collect();
        let seed = first_seed.wrapping_add(1_000 * (i as u64 + 1));
        let chance = StdRng::seed_from_u64(seed);
        Composer { chance, speaker, others, lines: Lines::of(split), seed }.conversation(condition, &mut decks)
    };
    (0..n).map(compose).collect()
}

/// Categories that are still to come, so that each comes as often as its deck says.
struct Decks {
    chance: StdRng,
    only: Option<Category>,
    words_in_silence: Vec<Category>,
    words_over_reply: Vec<Category>,
    clips_in_silence: Vec<Category>,
    clips_over_reply: Vec<Category>,
    alone: Vec<Category>,
}

impl Decks {
    fn new(seed: u64, only: Option<Category>) -> Self {
        Self {
            chance: StdRng::seed_from_u64(seed),
            only,
            words_in_silence: Vec::new(),
            words_over_reply: Vec::new(),
            clips_in_silence: Vec::new(),
            clips_over_reply: Vec::new(),
            alone: Vec::new(),
        }
    }

    fn in_silence(&mut self, has_words: bool) -> Category {
        use Category::{Correction, CutSentence, Hesitation, NaturalPause, Question, SelfInterruption, SlowNumber};
        let words =
            [Question, Hesitation, Hesitation, CutSentence, Correction, SelfInterruption, SlowNumber, SlowNumber];
        match has_words {
            true => draw(&mut self.words_in_silence, &words, self.only, &mut self.chance),
            false => {
                draw(&mut self.clips_in_silence, &[NaturalPause, CutSentence, Question], self.only, &mut self.chance)
            }
        }
    }

    fn over_reply(&mut self, has_words: bool) -> Category {
        use Category::{Aside, Backchannel, Interruption, OverlappingStart, Television, VocalTic};
        let words = [
            Interruption,
            Interruption,
            Interruption,
            OverlappingStart,
            Backchannel,
            Backchannel,
            Backchannel,
            VocalTic,
            VocalTic,
            Aside,
            Aside,
            Television,
        ];
        let clips = [Interruption, Interruption, OverlappingStart, VocalTic, Television];
        match has_words {
            true => draw(&mut self.words_over_reply, &words, self.only, &mut self.chance),
            false => draw(&mut self.clips_over_reply, &clips, self.only, &mut self.chance),
        }
    }

    fn alone(&mut self) -> Category {
        draw(&mut self.alone, &[Category::TelevisionAlone, Category::CoughAlone], self.only, &mut self.chance)
    }
}

fn draw(deck: &mut Vec<Category>, full: &[Category], only: Option<Category>, chance: &mut StdRng) -> Category {
    if let Some(only) = only.filter(|only| full.contains(only)) {
        return only;
    }
    if deck.is_empty() {
        deck.extend(full);
        deck.shuffle(chance);
    }
    deck.pop().unwrap_or(full[0])
}

/// A track under composition.
struct Track {
    samples: Vec<i16>,
    labels: Vec<Labelled>,
}

impl Track {
    fn new() -> Self {
        Self { samples: vec![0; samples_of(LEAD_MS)], labels: Vec::new() }
    }

    fn pause(&mut self, ms: u32) {
        self.samples.resize(self.samples.len() + samples_of(ms), 0);
    }

    /// Appends a sound that is one stretch.
    fn sound(&mut self, samples: &[i16], source: Source, text: &str) {
        let from_ms = ms_of(self.samples.len());
        self.samples.extend_from_slice(samples);
        let span = Span { from_ms, to_ms: ms_of(self.samples.len()) };
        self.labels.push(Labelled { span, source, text: text.to_owned() });
    }

    /// Appends speech whose own pauses are labelled.
    fn phrases(&mut self, phrases: &[Phrase<'_>]) {
        for phrase in phrases {
            self.pause(phrase.pause_ms);
            self.sound(phrase.samples, Source::User, "");
        }
    }

    fn end_ms(&self) -> u32 {
        ms_of(self.samples.len())
    }

    fn turn(mut self, category: Category, expected: Expected, begins: Begins) -> Turn {
        let decided_ms = self.end_ms();
        self.pause(LEAD_MS);
        Turn { category, expected, begins, samples: self.samples, labels: self.labels, decided_ms }
    }
}

/// A stretch of human speech, and the pause before it.
struct Phrase<'a> {
    pause_ms: u32,
    samples: &'a [i16],
}

struct Composer<'a> {
    chance: StdRng,
    speaker: &'a Speaker,
    /// The other speakers of the same half.
    others: Vec<&'a Speaker>,
    lines: &'static Lines,
    seed: u64,
}

impl Composer<'_> {
    fn conversation(mut self, condition: Condition, decks: &mut Decks) -> Conversation {
        let has_words = self.speaker.clips.is_empty();
        let alone_after = self.chance.random_range(0..N_PAIRS);
        let mut turns = Vec::new();
        for pair in 0..N_PAIRS {
            let category = decks.in_silence(has_words);
            turns.push(self.in_silence(category));
            let category = decks.over_reply(has_words);
            turns.push(self.over_reply(category));
            if pair == alone_after {
                let category = decks.alone();
                turns.push(self.alone(category));
            }
        }
        for (i, turn) in turns.iter_mut().enumerate() {
            turn.samples = under(condition, &turn.samples, self.seed.wrapping_add(i as u64));
        }
        let babble: Vec<Vec<i16>> = self.others.iter().flat_map(|other| other.sounds().cloned()).take(12).collect();
        Conversation {
            split: self.speaker.split,
            speaker: self.speaker.name.clone(),
            condition,
            bed: bed(condition, self.seed, &babble),
            turns,
        }
    }

    /// After the agent's reply, by 300 to 900 ms.
    fn after_reply(&mut self) -> Begins {
        Begins::AfterReply(self.chance.random_range(300..900))
    }

    fn pause(&mut self, from_ms: u32, to_ms: u32) -> u32 {
        self.chance.random_range(from_ms..to_ms)
    }

    fn one<T>(&mut self, of: &'static [T]) -> &'static T {
        // Every list of lines has an entry.
        of.choose(&mut self.chance).unwrap_or(&of[0])
    }

    /// Appends a text of the speaker; a speaker of clips says one of these.
    fn say(&mut self, track: &mut Track, text: &str) {
        match self.speaker.lines.get(text) {
            Some(line) => track.sound(line, Source::User, text),
            None => {
                let phrases = &self.speaker.clips;
                if let Some(phrase) = phrases.choose(&mut self.chance).and_then(|clip| clip.phrases.last()) {
                    track.sound(&phrase.samples, Source::User, "");
                }
            }
        }
    }

    fn in_silence(&mut self, category: Category) -> Turn {
        let mut track = Track::new();
        let begins = self.after_reply();
        match category {
            Category::NaturalPause => {
                let clips = self.speaker.clips.iter().filter(|clip| clip.phrases.len() > 1).collect::<Vec<_>>();
                if let Some(clip) = clips.choose(&mut self.chance).copied().or(self.speaker.clips.first()) {
                    let phrases = clip.phrases.iter();
                    let phrases = phrases.map(|phrase| Phrase { pause_ms: phrase.pause_ms, samples: &phrase.samples });
                    track.phrases(&phrases.collect::<Vec<_>>());
                }
            }
            Category::Hesitation => {
                let (first, filler, rest) = self.one(&self.lines.hesitations);
                self.say(&mut track, first);
                track.pause(self.pause(100, 350));
                self.say(&mut track, filler);
                track.pause(self.pause(300, 1_200));
                self.say(&mut track, rest);
            }
            Category::CutSentence if self.speaker.lines.is_empty() => self.cut_clip(&mut track),
            Category::CutSentence => {
                let (first, rest) = self.one(&self.lines.cut_sentences);
                self.say(&mut track, first);
                track.pause(self.pause(500, 1_500));
                self.say(&mut track, rest);
            }
            Category::Correction => {
                let (first, rest) = self.one(&self.lines.corrections);
                self.say(&mut track, first);
                track.pause(self.pause(250, 700));
                self.say(&mut track, rest);
            }
            Category::SelfInterruption => {
                let (first, rest) = self.one(&self.lines.self_interruptions);
                if let Some(line) = self.speaker.lines.get(first.as_str()) {
                    let share = self.chance.random_range(0.6..0.85);
                    let cut = &line[..(line.len() as f64 * share) as usize];
                    track.sound(&faded(cut), Source::User, first);
                }
                track.pause(self.pause(80, 400));
                self.say(&mut track, rest);
            }
            Category::SlowNumber => {
                let (intro, groups) = self.one(&self.lines.numbers);
                self.say(&mut track, intro);
                for group in groups {
                    track.pause(self.pause(300, 950));
                    self.say(&mut track, group);
                }
            }
            // The others begin over a reply, or are a question.
            _ => {
                let question = self.one(&self.lines.questions);
                self.say(&mut track, question);
            }
        }
        track.turn(category, Expected::Answer, begins)
    }

    /// A clip with one of its own pauses made longer: where a person paused there is more to come.
    fn cut_clip(&mut self, track: &mut Track) {
        let clips = self.speaker.clips.iter().filter(|clip| clip.phrases.len() > 1).collect::<Vec<_>>();
        let Some(clip) = clips.choose(&mut self.chance).copied().or(self.speaker.clips.first()) else { return };
        let cut = self.chance.random_range(1..clip.phrases.len().max(2));
        let cut_ms = self.pause(500, 1_500);
        let phrases = clip.phrases.iter().enumerate().map(|(at, phrase)| {
            let pause_ms = if at == cut { cut_ms } else { phrase.pause_ms };
            Phrase { pause_ms, samples: &phrase.samples }
        });
        track.phrases(&phrases.collect::<Vec<_>>());
    }

    fn over_reply(&mut self, category: Category) -> Turn {
        let mut track = Track::new();
        let begins = Begins::OverReply(self.pause(600, 1_800));
        match category {
            Category::Backchannel => {
                let text = self.one(&self.lines.backchannels);
                self.say(&mut track, text);
                track.turn(category, Expected::GoOn, begins)
            }
            Category::VocalTic => {
                let seed = self.chance.random();
                let sound = if self.chance.random_bool(0.5) { cough(seed) } else { laughter(seed) };
                track.sound(&sound, Source::Vocal, "");
                track.turn(category, Expected::GoOn, begins)
            }
            Category::Aside => {
                let text = self.one(&self.lines.asides);
                if let Some(line) = self.speaker.lines.get(text.as_str()) {
                    track.sound(&turned_away(line), Source::Aside, text);
                }
                track.turn(category, Expected::GoOn, begins)
            }
            Category::Television => {
                self.television(&mut track);
                track.turn(category, Expected::GoOn, begins)
            }
            // The user begins to speak again as the reply begins.
            Category::OverlappingStart => {
                let begins = Begins::OverReply(self.pause(40, 250));
                self.interrupt(track, category, begins)
            }
            _ => self.interrupt(track, category, begins),
        }
    }

    /// An interruption: a word that decides, and what follows it; a speaker of clips says a phrase, whose length
    /// decides.
    fn interrupt(&mut self, mut track: Track, category: Category, begins: Begins) -> Turn {
        let (decides, rest) = self.one(&self.lines.interruptions);
        self.say(&mut track, decides);
        let mut decided_ms = track.end_ms();
        if self.speaker.clips.is_empty() {
            track.pause(self.pause(40, 120));
            self.say(&mut track, rest);
        } else {
            decided_ms = decided_ms.min(LEAD_MS + INTERRUPTS_AFTER.as_millis() as u32);
        }
        Turn { decided_ms, ..track.turn(category, Expected::Yield, begins) }
    }

    /// Sound that is not for the agent, while nobody speaks to it.
    fn alone(&mut self, category: Category) -> Turn {
        let mut track = Track::new();
        match category {
            Category::CoughAlone => {
                let sound = cough(self.chance.random());
                track.sound(&sound, Source::Vocal, "");
            }
            _ => self.television(&mut track),
        }
        let begins = Begins::AfterReply(self.pause(600, 1_200));
        track.turn(category, Expected::Wait, begins)
    }

    /// Another voice, quieter; noise where there is no other speaker.
    fn television(&mut self, track: &mut Track) {
        let text = self.one(&self.lines.television);
        let voice = self.others.choose(&mut self.chance);
        let speech = voice.and_then(|other| match other.lines.get(text.as_str()) {
            Some(line) => Some(line.clone()),
            None => {
                let clip = other.clips.choose(&mut self.chance)?;
                Some(clip.phrases.iter().flat_map(|phrase| phrase.samples.iter().copied()).collect())
            }
        });
        let speech = speech.unwrap_or_else(|| levelled(&laughter(self.seed)));
        let mut samples = vec![0; speech.len()];
        mix(&mut samples, &scaled(&speech, gain(TELEVISION_DB)));
        track.sound(&samples, Source::Other, text);
    }
}

/// The sound with a fade of 15 ms at its end: speech that breaks off does not click.
fn faded(samples: &[i16]) -> Vec<i16> {
    let n = samples_of(15).min(samples.len());
    let mut faded = samples.to_vec();
    let from = faded.len() - n;
    for (i, sample) in faded[from..].iter_mut().enumerate() {
        *sample = (f64::from(*sample) * (1.0 - i as f64 / n as f64)) as i16;
    }
    faded
}

#[cfg(test)]
mod tests {
    use super::super::voices::tests::{reader, synthetic};
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    fn speakers() -> Vec<Speaker> {
        vec![
            synthetic("a", Split::Dev),
            synthetic("b", Split::Held),
            synthetic("c", Split::Held),
            reader("d", Split::Held),
            reader("e", Split::Dev),
        ]
    }

    #[test]
    fn the_same_seed_gives_the_same_samples_and_another_one_does_not() {
        let speakers = speakers();
        let make = |seed| conversations(&speakers, Split::Held, 1, seed, None);
        let made = make(7);
        assert_eq!(made, make(7));
        assert_ne!(made, make(8));
    }

    #[test]
    fn the_halves_share_no_speaker_and_no_turn() {
        let speakers = speakers();
        let dev = conversations(&speakers, Split::Dev, 4, 1, None);
        let held = conversations(&speakers, Split::Held, 4, 1, None);
        let names = |all: &[Conversation]| all.iter().map(|one| one.speaker.clone()).collect::<BTreeSet<_>>();
        assert!(names(&dev).is_disjoint(&names(&held)), "{:?} {:?}", names(&dev), names(&held));
        assert_eq!(names(&held).len(), 3);
        let sounds = |all: &[Conversation]| {
            all.iter().flat_map(|one| one.turns.iter().map(|turn| turn.samples.clone())).collect::<BTreeSet<_>>()
        };
        assert!(sounds(&dev).is_disjoint(&sounds(&held)));
    }

    #[test]
    fn a_whole_run_has_at_least_400_turns_of_every_category_without_contradictions() {
        let mut n = BTreeMap::<Category, usize>::new();
        let mut conditions = BTreeSet::new();
        let speakers = speakers();
        for split in [Split::Dev, Split::Held] {
            let half = conversations(&speakers, split, N_CONVERSATIONS, 1, None);
            assert!(half.iter().map(|one| one.turns.len()).sum::<usize>() >= 200);
            for turn in half.iter().flat_map(|one| &one.turns) {
                assert_eq!(turn.check(), Ok(()), "{}", turn.category.name());
                *n.entry(turn.category).or_default() += 1;
            }
            conditions.extend(half.iter().map(|one| one.condition.to_string()));
        }
        assert_eq!(n.len(), 15, "{n:?}");
        assert!(n.values().all(|n| *n >= 3), "{n:?}");
        assert_eq!(conditions.len(), 6, "{conditions:?}");
    }

    #[test]
    fn a_category_alone_stands_wherever_it_may() {
        let only = Some(Category::Backchannel);
        let half = conversations(&speakers(), Split::Dev, 4, 1, only);
        for conversation in &half {
            let n = conversation.turns.iter().filter(|turn| turn.category == Category::Backchannel).count();
            let has_words = conversation.speaker != "e";
            assert_eq!(n, if has_words { N_PAIRS } else { 0 }, "{}", conversation.speaker);
        }
    }

    #[test]
    fn pauses_are_labelled_as_they_were_made() {
        let half = conversations(&speakers(), Split::Dev, 8, 3, None);
        let all = || half.iter().flat_map(|one| &one.turns);
        let of = |category| all().find(move |turn| turn.category == category).expect("drawn");
        assert_eq!(of(Category::Hesitation).labels.len(), 3);
        let slow = of(Category::SlowNumber);
        assert!(slow.pauses().len() >= 3 && slow.pauses().iter().all(|pause| pause.to_ms - pause.from_ms < 960));
        let interruption = of(Category::Interruption);
        assert!(interruption.decided_ms < interruption.end_ms());
        assert!(matches!(interruption.begins, Begins::OverReply(_)));
        // In the pauses of a clean conversation nothing sounds.
        let clean = half.iter().filter(|one| one.condition == Condition::Clean).flat_map(|one| &one.turns);
        for turn in clean {
            for pause in turn.pauses() {
                let silence = &turn.samples[samples_of(pause.from_ms + 1)..samples_of(pause.to_ms - 1)];
                assert!(silence.iter().all(|sample| *sample == 0), "{}", turn.category.name());
            }
        }
    }
}
