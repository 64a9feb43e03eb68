//! What the words of speech over a reply mean: a backchannel ("uh-huh", "right", a laugh) or an interruption.
//!
//! Pure. `listening` calls this with each transcript of such speech, and decides what becomes of the reply. Nothing
//! here knows a language's grammar or the conversation: words that agree or acknowledge are listed, all other words
//! interrupt, those of `claims` at once.

use super::claims::{claim_in, has_command, is_claim};
use antiphon_text::words::{spoken, words};
use serde::{Deserialize, Serialize};

/// What the words of speech over a reply are so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Words {
    /// There are none.
    None,
    /// They acknowledge what is being said, or laugh.
    Backchannel,
    /// They may become either: the beginning of a backchannel, or one that a recognizer may yet take back.
    Open,
    /// All of them are there, and the first that is no backchannel is a guess of the recognizer.
    Guess,
    /// The same, and one of them would claim the turn.
    GuessedClaim,
    /// They claim the turn.
    Interruption,
}

/// A transcript of speech over a reply.
#[derive(Clone, Copy, Debug)]
pub(super) struct OverlapTranscript<'a> {
    /// The words.
    pub(super) text: &'a str,
    /// How many of the first ones the recognizer is sure of; `None`: it does not say.
    pub(super) n_sure_words: Option<u32>,
    /// They are all; otherwise more may follow, and these may change.
    pub(super) is_final: bool,
}

impl OverlapTranscript<'_> {
    /// The words without annotations.
    fn spoken(&self) -> Vec<String> {
        spoken(&without_annotations(self.text)).collect()
    }

    /// Whether the recognizer is sure of the spoken word at this place, and of all before it.
    fn is_sure_of(&self, place: usize) -> bool {
        let Some(n_sure) = self.n_sure_words else { return true };
        let sure: Vec<&str> = words(self.text).take(n_sure as usize).map(|word| word.text).collect();
        spoken(&without_annotations(&sure.join(" "))).count() > place
    }
}

/// Backchannels, as [`letters`] without blanks: recognizers write "uh-huh", "uh huh" and "uhhuh". English, German, Spanish
/// and French together, because what a session speaks is not always known; an utterance that consists of nothing else means
/// the same in all of them. Words that also ask for something ("please", "thanks", "again") are left out. Most of the
/// English ones are from a list that was written without a look at the lines of a benchmark.
pub(super) const BACKCHANNELS: &[&str] = &[
    // Sounds of listening
    "m",
    "mm",
    "mmm",
    "mhm",
    "mhmm",
    "mmhm",
    "mmhmm",
    "mmmm",
    "hm",
    "hmm",
    "hmmm",
    "uhhuh",
    "uhuh",
    "huh",
    "uh",
    "um",
    "ah",
    "aha",
    "ahhuh",
    "oh",
    "ooh",
    "ohoh",
    "wow",
    // English
    "yeah",
    "yea",
    "yep",
    "yup",
    "yes",
    "ya",
    "ok",
    "okay",
    "kay",
    "right",
    "alright",
    "allright",
    "sure",
    "suresure",
    "exactly",
    "indeed",
    "true",
    "absolutely",
    "definitely",
    "certainly",
    "totally",
    "ofcourse",
    "isee",
    "iseeisee",
    "iseeyou",
    "gotit",
    "igotit",
    "igetit",
    "gotcha",
    "iknow",
    "iunderstand",
    "understood",
    "makessense",
    "thatmakessense",
    "really",
    "isthatso",
    "good",
    "great",
    "nice",
    "cool",
    "fine",
    "perfect",
    "lovely",
    "amazing",
    "interesting",
    "thatsinteresting",
    "fairenough",
    "thatsright",
    "thatsgood",
    "thatsgreat",
    "thatstrue",
    "verygood",
    "verynice",
    "soundsgood",
    "goon",
    "goahead",
    "keepgoing",
    "fair",
    "funny",
    "thatsfunny",
    "goodtoknow",
    "thatsnice",
    "thatscool",
    "gosh",
    "aw",
    "aww",
    "precisely",
    "obviously",
    "goodness",
    "gee",
    "geez",
    "jeez",
    "golly",
    "crikey",
    "blimey",
    "bless",
    "fascinating",
    "awesome",
    "incredible",
    "fantastic",
    "wonderful",
    "excellent",
    "brilliant",
    "neat",
    "facts",
    "amen",
    "righto",
    "aye",
    "yeh",
    "yo",
    "whoa",
    "woah",
    "phew",
    "ouch",
    "yikes",
    "ohmy",
    "ohboy",
    "ohman",
    "ohdear",
    "ohgod",
    "awman",
    "ibet",
    "illbet",
    "iagree",
    "imsure",
    "gotya",
    "gotyou",
    "quiteright",
    "quiteso",
    "forsure",
    "thatsamazing",
    "thatsawesome",
    "thatscrazy",
    "thatsterrible",
    "thatsawful",
    "thatssad",
    "verytrue",
    "sotrue",
    "tootrue",
    "fairpoint",
    "goodpoint",
    "goodnessme",
    "mygoodness",
    "mygod",
    "mygosh",
    "holycow",
    "yourekidding",
    "fancythat",
    "toobad",
    "veryinteresting",
    "samehere",
    "youbet",
    "youreright",
    "okeydoke",
    "okiedokie",
    "ohmygod",
    "itotallyagree",
    "ihearyou",
    "ihearya",
    "ifeelyou",
    "isupposeso",
    "thatsforsure",
    "thatstoobad",
    "thatsashame",
    "thatssotrue",
    "goodforyou",
    "youdontsay",
    "wellinever",
    "isthatright",
    "ithinksotoo",
    // German
    "ja",
    "jaja",
    "jo",
    "jawohl",
    "genau",
    "achso",
    "ach",
    "stimmt",
    "dasstimmt",
    "klar",
    "naklar",
    "allesklar",
    "verstehe",
    "ichverstehe",
    "verstanden",
    "richtig",
    "gut",
    "sehrgut",
    "schön",
    "eben",
    "natürlich",
    "echt",
    "wirklich",
    "toll",
    "super",
    "prima",
    "interessant",
    "gerne",
    // Spanish
    "sí",
    "si",
    "claro",
    "vale",
    "ajá",
    "exacto",
    "entiendo",
    "entendido",
    "yaveo",
    "deacuerdo",
    "bien",
    "muybien",
    "bueno",
    "perfecto",
    "correcto",
    "cierto",
    "esverdad",
    "verdad",
    "porsupuesto",
    "genial",
    "interesante",
    "asíes",
    // French
    "oui",
    "ouais",
    "daccord",
    "ahbon",
    "biensûr",
    "jevois",
    "exact",
    "exactement",
    "voilà",
    "cestvrai",
    "jecomprends",
    "compris",
    "entendu",
    "trèsbien",
    "parfait",
    "toutàfait",
    "hum",
    "intéressant",
    "vraiment",
];

/// The most words of a backchannel of [`BACKCHANNELS`].
const LONGEST: usize = 4;

/// A backchannel of this many letters is one, too, with a letter too many or too few: recognizers write "make sense" and
/// "sound good". In shorter ones that makes another word, and so does another letter in any ("that's eight").
const LETTERS_WITH_SLIP: usize = 8;

/// Other words than backchannels that the second of two partial transcripts has to have until they interrupt; fewer may be
/// a misheard backchannel, and wait for the end of the utterance, or for their time. The reply is silent meanwhile.
const CONFIRMED_WORDS: usize = 3;

impl Words {
    /// Classifies a transcript of speech over a reply; a final one is never [`Words::Open`]. `all_claim`: the reply asks
    /// something where it was held, or has just begun, so that "yes" claims the turn.
    pub(super) fn of(transcript: &OverlapTranscript<'_>, all_claim: bool) -> Self {
        let words = transcript.spoken();
        if words.is_empty() {
            // Whisper writes "(laughs)".
            return if transcript.text.trim().is_empty() { Self::None } else { Self::Backchannel };
        }
        let rest = without_backchannels(&words);
        let n_before = words.len() - rest.len();
        let claim = claim_in(rest);
        let is_sure_claim = claim.is_some_and(|place| transcript.is_sure_of(n_before + place));
        let is_guess = !transcript.is_sure_of(n_before) && !has_command(rest);
        match rest {
            [] if all_claim && !words.iter().all(|word| is_laugh(word)) => Self::Interruption,
            [] => Self::Backchannel,
            // An answer is heard even as a guess.
            _ if transcript.is_final && is_guess && !all_claim => match claim {
                Some(_) => Self::GuessedClaim,
                None => Self::Guess,
            },
            _ if transcript.is_final || is_sure_claim => Self::Interruption,
            _ => Self::Open,
        }
    }

    /// The same words after those of the partial transcript before: two that agree on there being other words than
    /// backchannels, [`CONFIRMED_WORDS`] by now, settle it. The words of both are not compared: a recognizer that changes
    /// its mind about a word still hears one, if it is sure of one.
    pub(super) fn after(self, before: Self, transcript: &OverlapTranscript<'_>) -> Self {
        let words = transcript.spoken();
        let n_others = without_backchannels(&words).len();
        let is_sure = transcript.is_sure_of(words.len() - n_others);
        if self == Self::Open && before == Self::Open && n_others >= CONFIRMED_WORDS && is_sure {
            return Self::Interruption;
        }
        self
    }
}

/// The text without what recognizers put into brackets or asterisks: "[laughter]", "*coughs*".
fn without_annotations(text: &str) -> String {
    let mut kept = String::new();
    let mut closes_with = None;
    for c in text.chars() {
        match (closes_with, c) {
            (Some(end), c) if c == end => closes_with = None,
            (Some(_), _) => {}
            (None, '[') => closes_with = Some(']'),
            (None, '(') => closes_with = Some(')'),
            (None, '*') => closes_with = Some('*'),
            (None, c) => kept.push(c),
        }
    }
    kept
}

/// What is left of the words behind those at the beginning that are backchannels.
fn without_backchannels(words: &[String]) -> &[String] {
    let mut rest = words;
    while let Some(n) = (1..=LONGEST.min(rest.len())).rev().find(|n| is_backchannel(&rest[..*n])) {
        rest = &rest[n..];
    }
    rest
}

fn is_backchannel(words: &[String]) -> bool {
    let letters = words.concat();
    let has_claim = || words.iter().any(|word| is_claim(word));
    let is_slip = |known: &&str| known.len() >= LETTERS_WITH_SLIP && is_slip_of(&letters, known);
    matches!(words, [word] if is_laugh(word))
        || BACKCHANNELS.contains(&letters.as_str())
        || (!has_claim() && BACKCHANNELS.iter().any(is_slip))
}

/// Whether a letter more or less is all that parts the two.
fn is_slip_of(heard: &str, known: &str) -> bool {
    let heard: Vec<char> = heard.chars().collect();
    let known: Vec<char> = known.chars().collect();
    let n_first = heard.iter().zip(&known).take_while(|(one, other)| one == other).count();
    let rest_of_heard = &heard[n_first..];
    let rest_of_known = &known[n_first..];
    let n_last =
        rest_of_heard.iter().rev().zip(rest_of_known.iter().rev()).take_while(|(one, other)| one == other).count();
    heard.len() != known.len() && rest_of_heard.len().max(rest_of_known.len()) - n_last == 1
}

/// "ha", "hahaha", "hehe".
fn is_laugh(word: &str) -> bool {
    let of = |vowel| word.contains('h') && word.contains(vowel) && word.chars().all(|c| c == 'h' || c == vowel);
    of('a') || (word.len() >= 4 && ['e', 'i', 'o'].into_iter().any(of))
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_text::words::letters;

    #[track_caller]
    fn check(expect: Words, transcripts: &[&str]) {
        for transcript in transcripts {
            assert_eq!(Words::of(&whole(transcript), false), expect, "{transcript}");
        }
    }

    /// All words, of a recognizer that does not say how sure it is.
    fn whole(text: &str) -> OverlapTranscript<'_> {
        OverlapTranscript { text, n_sure_words: None, is_final: true }
    }

    fn partial(text: &str) -> OverlapTranscript<'_> {
        OverlapTranscript { is_final: false, ..whole(text) }
    }

    #[test]
    fn words_are_listed_as_they_are_compared() {
        for word in BACKCHANNELS {
            assert_eq!(letters(word), *word);
        }
    }

    #[test]
    fn what_acknowledges_is_a_backchannel() {
        check(
            Words::Backchannel,
            &["uh-huh", "Uh huh.", "mm-hmm", "Yeah, yeah.", "I see.", "Oh, okay, right.", "Oh really?"],
        );
        // Recognizers guess the mark behind a single word.
        check(Words::Backchannel, &["Right?", "Okay?"]);
        check(
            Words::Backchannel,
            &["ha ha ha", "Hahaha", "[laughter]", "(laughs) Right.", "*laughs*", "That's right."],
        );
        check(Words::Backchannel, &["Ja, genau.", "Ach so.", "Sí, claro.", "Ah bon.", "D'accord.", "Bien sûr."]);
    }

    #[test]
    fn what_claims_the_turn_is_an_interruption() {
        check(
            Words::Interruption,
            &["stop", "No, wait.", "Yeah, but why?", "Okay, thank you.", "Tell me another one."],
        );
        check(Words::Interruption, &["I see a fox.", "he said", "Nein, warte.", "Para, por favor.", "Attends."]);
        check(Words::None, &["", "  "]);
    }

    #[test]
    fn an_answer_to_a_question_is_no_backchannel() {
        assert_eq!(Words::of(&whole("yeah"), true), Words::Interruption);
        assert_eq!(Words::of(&partial("yeah"), true), Words::Interruption);
        assert_eq!(Words::of(&whole("haha"), true), Words::Backchannel);
        let guess = OverlapTranscript { n_sure_words: Some(0), ..whole("Tuesday.") };
        assert_eq!(Words::of(&guess, true), Words::Interruption);
        assert_eq!(Words::of(&guess, false), Words::Guess);
    }

    /// What partial transcripts lead to, one after the other.
    fn so_far(partials: &[&str]) -> Vec<Words> {
        weighed(partials.iter().map(|text| partial(text)))
    }

    fn weighed<'a>(partials: impl Iterator<Item = OverlapTranscript<'a>>) -> Vec<Words> {
        let mut before = Words::None;
        let weigh = |transcript: OverlapTranscript<'_>| {
            before = Words::of(&transcript, false).after(before, &transcript);
            before
        };
        partials.map(weigh).collect()
    }

    #[test]
    fn guesses_are_open_until_all_words_are_there() {
        let sure_of = |text, n| OverlapTranscript { n_sure_words: Some(n), ..partial(text) };
        let partials = [sure_of("no", 0), sure_of("oh no", 1), sure_of("oh no", 2)];
        assert_eq!(weighed(partials.into_iter()), [Words::Open, Words::Open, Words::Interruption]);
        let guesses = ["and then late", "and then late champ"];
        let unsure = guesses.map(|text| sure_of(text, 0));
        assert_eq!(weighed(unsure.into_iter()), [Words::Open, Words::Open]);
        let sure = guesses.map(|text| sure_of(text, 1));
        assert_eq!(weighed(sure.into_iter()), [Words::Open, Words::Interruption]);
        for (text, n, expect) in [
            ("no", 0, Words::GuessedClaim),
            ("oh hello", 1, Words::GuessedClaim),
            ("mo", 0, Words::Guess),
            ("oh hello", 2, Words::Interruption),
            ("uh huh", 0, Words::Backchannel),
            ("uh stop", 0, Words::Interruption),
            ("(laughs) hi", 1, Words::Guess),
            ("(laughs) hi", 2, Words::Interruption),
            ("", 0, Words::None),
        ] {
            let whole = OverlapTranscript { is_final: true, ..sure_of(text, n) };
            assert_eq!(Words::of(&whole, false), expect, "{text} {n}");
        }
    }

    #[test]
    fn a_partial_transcript_decides_by_a_claim_or_when_it_is_confirmed() {
        assert_eq!(so_far(&["stop"]), [Words::Interruption]);
        assert_eq!(so_far(&["yeah", "yeah but"]), [Words::Backchannel, Words::Interruption]);
        assert_eq!(so_far(&["yeah let", "yeah let me"]), [Words::Open, Words::Interruption]);
        assert_eq!(so_far(&["another one for", "another one for me"]), [Words::Open, Words::Interruption]);
        assert_eq!(so_far(&["on", "uh huh"]), [Words::Open, Words::Backchannel]);
        assert_eq!(so_far(&["i", "i", "i see"]), [Words::Open, Words::Open, Words::Backchannel]);
        assert_eq!(so_far(&["i", "i want a"]), [Words::Open, Words::Interruption]);
    }

    #[test]
    fn a_word_or_two_may_be_a_misheard_backchannel_until_all_words_are_there() {
        assert_eq!(so_far(&["on ice", "on ice", "oh nice"]), [Words::Open, Words::Open, Words::Backchannel]);
        check(Words::Interruption, &["on ice"]);
        assert_eq!(so_far(&["[door slams loudly] my", "[door slams loudly] my"]), [Words::Open, Words::Open]);
    }

    #[test]
    fn a_long_backchannel_with_a_slip_is_one() {
        check(Words::Backchannel, &["Make sense.", "Sound good.", "Your kidding.", "Yeah, I understands."]);
        check(Words::Interruption, &["Makes no sense.", "That's not right.", "Not true.", "Rights.", "I knew."]);
        check(Words::Interruption, &["That's eight.", "That's nine.", "That's bad."]);
    }
}
