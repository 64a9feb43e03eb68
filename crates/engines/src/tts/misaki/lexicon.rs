//! misaki's English lexicon, American: a word with its part of speech and neighbourhood to phonemes.
//!
//! Two dictionaries, one checked ("gold") and one not ("silver"), hold stems; endings (-s, -ed, -ing) are added by rule, capitals
//! are spelled, and numbers are read in words. It gives what misaki 0.9.4 gives, which Kokoro and hibari were trained on. `None`
//! where it does not know a word; the reader has other means. Pure.

use super::super::numbers;
use serde::Deserialize;
use std::collections::HashMap;

pub(super) const PRIMARY: char = 'ˈ';
pub(super) const SECONDARY: char = 'ˌ';
const VOWELS: &str = "AIOQWYaiuæɑɒɔəɛɜɪʊʌᵻ";
const CONSONANTS: &str = "bdfhjklmnpstvwzðŋɡɹɾʃʒʤʧθ";
const LONG: &str = "AIOQWYʤʧ";
/// Sounds after which a t before a vowel is a flap.
const FLAP_BEHIND: &str = "AIOWYiuæɑəɛɪɹʊʌ";
/// Signs, and the words for one of the currency and of its hundredth.
const CURRENCIES: [(&str, &str, &str); 3] = [("$", "dollar", "cent"), ("£", "pound", "pence"), ("€", "euro", "cent")];
const ORDINALS: [&str; 4] = ["st", "nd", "rd", "th"];
const SYMBOLS: [(&str, &str); 4] = [("%", "percent"), ("&", "and"), ("+", "plus"), ("@", "at")];
const ADDRESS_SYMBOLS: [(&str, &str); 2] = [(".", "dot"), ("/", "slash")];

/// How a word is pronounced: `None` for a part of speech means that it is spelled.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Entry {
    One(Box<str>),
    ByTag(HashMap<Box<str>, Option<Box<str>>>),
}

/// A dictionary. A word with a small first letter is also found as its capitalized form, and the other way round.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(super) struct Dictionary(HashMap<Box<str>, Entry>);

/// Both dictionaries.
#[derive(Debug)]
pub(super) struct Lexicon {
    pub(super) gold: Dictionary,
    pub(super) silver: Dictionary,
}

/// What follows a word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Context {
    /// Whether the next sound is a vowel; `None` where a pause or nothing follows.
    pub(super) vowel: Option<bool>,
    /// Whether the next word is "to".
    pub(super) to: bool,
}

/// A word to look up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Word<'a> {
    pub(super) text: &'a str,
    /// Its part of speech.
    pub(super) tag: &'a str,
    /// The sign of the currency that a number is an amount of.
    pub(super) currency: Option<&'a str>,
    /// Whether it begins what stands between two blanks.
    pub(super) is_head: bool,
}

impl Dictionary {
    fn get(&self, word: &str) -> Option<&Entry> {
        if let Some(entry) = self.0.get(word) {
            return Some(entry);
        }
        word.chars().nth(1)?;
        let lower = word.to_lowercase();
        let capitalized = capitalized(&lower);
        if word == lower {
            return if capitalized == lower { None } else { self.0.get(capitalized.as_str()) };
        }
        if word == capitalized { self.0.get(lower.as_str()) } else { None }
    }

    fn has(&self, word: &str) -> bool {
        self.get(word).is_some()
    }
}

fn capitalized(lower: &str) -> String {
    let mut rest = lower.chars();
    rest.next().map_or_else(String::new, |first| first.to_uppercase().chain(rest).collect())
}

impl Entry {
    fn usual(&self) -> Option<&str> {
        self.tagged("DEFAULT")
    }

    /// For this tag only.
    fn tagged(&self, tag: &str) -> Option<&str> {
        match self {
            Self::One(phonemes) => Some(phonemes),
            Self::ByTag(by_tag) => by_tag.get(tag)?.as_deref(),
        }
    }

    fn of(&self, tag: &str, context: Option<Context>) -> Option<&str> {
        let Self::ByTag(by_tag) = self else { return self.usual() };
        let is_last = context.is_some_and(|context| context.vowel.is_none());
        let tag = if is_last && by_tag.contains_key("None") {
            "None"
        } else if by_tag.contains_key(tag) {
            tag
        } else {
            parent(tag)
        };
        by_tag.get(tag).or_else(|| by_tag.get("DEFAULT"))?.as_deref()
    }
}

/// The class of a tag.
fn parent(tag: &str) -> &str {
    let classes = [("VB", "VERB"), ("NN", "NOUN"), ("ADV", "ADV"), ("RB", "ADV"), ("ADJ", "ADJ"), ("JJ", "ADJ")];
    classes.iter().find(|(beginning, _)| tag.starts_with(beginning)).map_or(tag, |(_, class)| class)
}

impl Lexicon {
    /// The phonemes of a word in its context.
    pub(super) fn phonemes(&self, word: Word<'_>, context: Context) -> Option<String> {
        let stress = match word.text {
            text if text == text.to_lowercase() => None,
            text if text == text.to_uppercase() => Some(2.0),
            _ => Some(0.5),
        };
        if let Some(phonemes) = self.word(word.text, word.tag, stress, context) {
            return Some(self.with_currency(phonemes, word.currency));
        }
        if is_number(word.text, word.is_head) { self.number(word.text, word.currency, word.is_head) } else { None }
    }

    /// The letters' names, the last one stressed.
    fn spelled(&self, word: &str) -> Option<String> {
        let mut phonemes = String::new();
        for letter in word.chars().filter(|c| c.is_alphabetic()) {
            phonemes.push_str(self.gold.get(&letter.to_uppercase().to_string())?.usual()?);
        }
        let phonemes = stressed(&phonemes, Some(0.0));
        Some(match phonemes.rsplit_once(SECONDARY) {
            Some((before, behind)) => format!("{before}{PRIMARY}{behind}"),
            None => phonemes,
        })
    }

    fn special(&self, word: &str, tag: &str, stress: Option<f32>, context: Context) -> Option<String> {
        let named =
            |symbols: &[(&str, &'static str)]| symbols.iter().find(|(sign, _)| *sign == word).map(|(_, name)| *name);
        if let Some(name) = named(&ADDRESS_SYMBOLS).filter(|_| tag == "ADD") {
            return self.lookup(name, "", Some(-0.5), Some(context));
        }
        if let Some(name) = named(&SYMBOLS) {
            return self.lookup(name, "", None, Some(context));
        }
        let is_initials = word.trim_matches('.').contains('.')
            && word.chars().all(|c| c == '.' || c.is_alphabetic())
            && word.split('.').all(|part| part.chars().count() < 3);
        if is_initials {
            return self.spelled(word);
        }
        let usual = |word: &str| self.gold.get(word).and_then(Entry::usual).map(str::to_owned);
        match word {
            "a" | "A" => Some(if tag == "DT" { "ɐ" } else { "ˈA" }.into()),
            "am" | "Am" | "AM" => {
                if tag.starts_with("NN") {
                    self.spelled(word)
                } else if context.vowel.is_none() || word != "am" || stress.is_some_and(|stress| stress > 0.0) {
                    usual("am")
                } else {
                    Some("ɐm".into())
                }
            }
            "AN" if tag.starts_with("NN") => self.spelled(word),
            "an" | "An" | "AN" => Some("ɐn".into()),
            "I" if tag == "PRP" => Some(format!("{SECONDARY}I")),
            "by" | "By" | "BY" if parent(tag) == "ADV" => Some("bˈI".into()),
            "to" | "To" => self.to(context),
            "TO" if matches!(tag, "TO" | "IN") => self.to(context),
            "in" | "In" => Some(preposition_in(tag, context)),
            "IN" if tag != "NNP" => Some(preposition_in(tag, context)),
            "the" | "The" => Some(article(context)),
            "THE" if tag == "DT" => Some(article(context)),
            _ if tag == "IN" && matches!(word.to_lowercase().as_str(), "vs" | "vs.") => {
                self.lookup("versus", "", None, Some(context))
            }
            "used" | "Used" | "USED" => {
                let form = if matches!(tag, "VBD" | "JJ") && context.to { "VBD" } else { "DEFAULT" };
                self.gold.get("used")?.tagged(form).map(str::to_owned)
            }
            _ => None,
        }
    }

    fn to(&self, context: Context) -> Option<String> {
        match context.vowel {
            None => self.gold.get("to").and_then(Entry::usual).map(str::to_owned),
            Some(false) => Some("tə".into()),
            Some(true) => Some("tʊ".into()),
        }
    }

    fn is_known(&self, word: &str) -> bool {
        if self.gold.has(word) || SYMBOLS.iter().any(|(sign, _)| *sign == word) || self.silver.has(word) {
            return true;
        }
        if word.is_empty() || !word.chars().all(|c| c.is_ascii_alphabetic()) {
            return false;
        }
        let is_capital = word == word.to_uppercase();
        word.len() == 1 || is_capital && self.gold.has(&word.to_lowercase()) || word[1..] == word[1..].to_uppercase()
    }

    fn lookup(&self, word: &str, tag: &str, stress: Option<f32>, context: Option<Context>) -> Option<String> {
        let is_upper = word == word.to_uppercase() && !self.gold.has(word);
        let lower = word.to_lowercase();
        let word = if is_upper { lower.as_str() } else { word };
        let is_name = is_upper && tag == "NNP";
        let entry = self.gold.get(word).or_else(|| if is_name { None } else { self.silver.get(word) });
        let phonemes = entry.and_then(|entry| entry.of(tag, context));
        let has_to_be_spelled = phonemes.is_none_or(|phonemes| is_name && !phonemes.contains(PRIMARY));
        if has_to_be_spelled && let Some(spelled) = self.spelled(word) {
            return Some(spelled);
        }
        phonemes.map(|phonemes| stressed(phonemes, stress))
    }

    fn with_s(&self, word: &str, tag: &str, stress: Option<f32>, context: Option<Context>) -> Option<String> {
        let n = word.chars().count();
        let cut = |end: &str| word.strip_suffix(end);
        let stem = if n < 3 || !word.ends_with('s') {
            None
        } else if !word.ends_with("ss") && cut("s").is_some_and(|stem| self.is_known(stem)) {
            cut("s").map(str::to_owned)
        } else if let Some(stem) = cut("'s")
            .or_else(|| cut("es").filter(|_| n > 4 && !word.ends_with("ies")))
            .filter(|stem| self.is_known(stem))
        {
            Some(stem.to_owned())
        } else {
            cut("ies").filter(|_| n > 4).map(|stem| format!("{stem}y")).filter(|stem| self.is_known(stem))
        };
        plural(&self.lookup(&stem?, tag, stress, context)?)
    }

    fn with_ed(&self, word: &str, tag: &str, stress: Option<f32>, context: Option<Context>) -> Option<String> {
        let n = word.chars().count();
        let is_known = |stem: &&str| self.is_known(stem);
        let short = word.strip_suffix('d').filter(|_| n >= 4)?;
        let stem = Some(short).filter(|_| !word.ends_with("dd")).filter(is_known);
        let stem =
            stem.or_else(|| word.strip_suffix("ed").filter(|_| n > 4 && !word.ends_with("eed")).filter(is_known))?;
        past(&self.lookup(stem, tag, stress, context)?)
    }

    fn with_ing(&self, word: &str, tag: &str, stress: Option<f32>, context: Option<Context>) -> Option<String> {
        let n = word.chars().count();
        let short = word.strip_suffix("ing").filter(|_| n >= 5)?;
        let with_e = format!("{short}e");
        let stem = if n > 5 && self.is_known(short) {
            short
        } else if self.is_known(&with_e) {
            &with_e
        } else {
            let mut ends = short.chars().rev();
            let last = ends.next()?;
            let is_doubled = "bcdgklmnprstvxz".contains(last) && ends.next() == Some(last) || short.ends_with("ck");
            let single = &short[..short.len() - last.len_utf8()];
            Some(single).filter(|stem| n > 5 && is_doubled && self.is_known(stem))?
        };
        progressive(&self.lookup(stem, tag, stress, context)?)
    }

    fn word(&self, word: &str, tag: &str, stress: Option<f32>, context: Context) -> Option<String> {
        if let Some(phonemes) = self.special(word, tag, stress, context) {
            return Some(phonemes);
        }
        let lower = word.to_lowercase();
        let context = Some(context);
        let is_plain = word.chars().any(|c| c != '\'') && word.chars().all(|c| c == '\'' || c.is_alphabetic());
        let n = word.chars().count();
        let tail: String = word.chars().skip(1).collect();
        let is_lowered = n > 1
            && is_plain
            && word != lower
            && (tag != "NNP" || n > 7)
            && !self.gold.has(word)
            && !self.silver.has(word)
            && (word == word.to_uppercase() || tail == tail.to_lowercase())
            && (self.gold.has(&lower)
                || self.silver.has(&lower)
                || self.with_s(&lower, tag, stress, context).is_some()
                || self.with_ed(&lower, tag, stress, context).is_some()
                || self.with_ing(&lower, tag, stress, context).is_some());
        let word = if is_lowered { lower.as_str() } else { word };
        if self.is_known(word) {
            return self.lookup(word, tag, stress, context);
        }
        if let Some(stem) = word.strip_suffix("s'") {
            let owner = format!("{stem}'s");
            if self.is_known(&owner) {
                return self.lookup(&owner, tag, stress, context);
            }
        }
        if let Some(stem) = word.strip_suffix('\'').filter(|stem| self.is_known(stem)) {
            return self.lookup(stem, tag, stress, context);
        }
        self.with_s(word, tag, stress, context)
            .or_else(|| self.with_ed(word, tag, stress, context))
            .or_else(|| self.with_ing(word, tag, stress.or(Some(0.5)), context))
    }

    /// A number with its ending, such as "1,250", "3.5", "21st", "1990s" or "-4".
    pub(super) fn number(&self, text: &str, currency: Option<&str>, is_head: bool) -> Option<String> {
        let digits = text.trim_end_matches(|c: char| c.is_ascii_lowercase() || c == '\'');
        let suffix = &text[digits.len()..];
        let (is_negative, figure) = digits.strip_prefix('-').map_or((false, digits), |figure| (true, figure));
        let mut said: Vec<String> = Vec::new();
        if is_negative {
            said.push(self.lookup("minus", "", None, None)?);
        }
        let is_plain = is_digits(figure);
        let is_ordinal = ORDINALS.contains(&suffix);
        let known = CURRENCIES.iter().find(|(sign, ..)| Some(*sign) == currency);
        if is_plain && is_ordinal {
            self.say(&mut said, &numbers::ordinal(figure))?;
        } else if !is_negative && figure.len() == 4 && known.is_none() && is_plain {
            self.say(&mut said, &numbers::year(figure))?;
        } else if !is_head && !figure.contains('.') {
            self.say_inner(&mut said, &figure.replace(',', ""))?;
        } else if figure.matches('.').count() > 1 || !is_head {
            for part in figure.replace(',', "").split('.').filter(|part| !part.is_empty()) {
                let is_long = part.len() != 2 && part.bytes().skip(1).any(|b| b != b'0');
                if part.starts_with('0') || is_long {
                    self.say_digits(&mut said, part)?;
                } else {
                    self.say(&mut said, &numbers::cardinal(part))?;
                }
            }
        } else if let Some(money) = known.filter(|_| is_amount(figure)) {
            self.say_money(&mut said, figure, money)?;
        } else if is_ordinal && !figure.contains('.') {
            self.say(&mut said, &numbers::ordinal(&figure.replace(',', "")))?;
        } else {
            self.say(&mut said, &numbers::decimal(&figure.replace(',', "")))?;
        }
        if said.is_empty() {
            return None;
        }
        let said = said.join(" ");
        match suffix {
            "s" | "'s" => plural(&said),
            "ed" | "'d" => past(&said),
            "ing" => progressive(&said),
            _ => Some(said),
        }
    }

    /// A number behind something else, such as that of "B52": up to two digits are one number, three are two, more are digits.
    fn say_inner(&self, said: &mut Vec<String>, figure: &str) -> Option<()> {
        if figure.starts_with('0') || figure.len() > 3 {
            return self.say_digits(said, figure);
        }
        if figure.len() < 3 || figure.ends_with("00") {
            return self.say(said, &numbers::cardinal(figure));
        }
        self.say(said, &numbers::cardinal(&figure[..1]))?;
        if &figure[1..2] == "0" {
            said.push(self.lookup("O", "", Some(-2.0), None)?);
            return self.say(said, &numbers::cardinal(&figure[2..]));
        }
        self.say(said, &numbers::cardinal(&figure[1..]))
    }

    fn say_digits(&self, said: &mut Vec<String>, figure: &str) -> Option<()> {
        figure
            .split("")
            .filter(|digit| !digit.is_empty())
            .try_for_each(|digit| self.say(said, &numbers::cardinal(digit)))
    }

    fn say_money(&self, said: &mut Vec<String>, figure: &str, money: &(&str, &str, &str)) -> Option<()> {
        let figure = figure.replace(',', "");
        let (whole, part) = figure.split_once('.').unwrap_or((&figure, ""));
        let is_zero = |figure: &str| figure.bytes().all(|b| b == b'0');
        let mut amounts = vec![(whole, money.1)];
        if !is_zero(part) {
            if is_zero(whole) {
                amounts.clear();
            }
            amounts.push((part, money.2));
        }
        for (place, (amount, unit)) in amounts.into_iter().enumerate() {
            if place > 0 {
                said.push(self.lookup("and", "", None, None)?);
            }
            let amount = amount.trim_start_matches('0');
            self.say(said, &numbers::cardinal(if amount.is_empty() { "0" } else { amount }))?;
            let is_plural = amount != "1" && unit != "pence";
            said.push(match is_plural {
                true => self.with_s(&format!("{unit}s"), "", None, None)?,
                false => self.lookup(unit, "", None, None)?,
            });
        }
        Some(())
    }

    /// The phonemes of each word of a number; "and" is not said.
    fn say(&self, said: &mut Vec<String>, words: &str) -> Option<()> {
        for word in words.split(|c: char| !c.is_ascii_lowercase()).filter(|word| !word.is_empty() && *word != "and") {
            let stress = (word == "point").then_some(-2.0);
            said.push(self.lookup(word, "", stress, None)?);
        }
        Some(())
    }

    fn with_currency(&self, phonemes: String, currency: Option<&str>) -> String {
        let name = CURRENCIES.iter().find(|(sign, ..)| Some(*sign) == currency);
        let name = name.and_then(|(_, name, _)| self.with_s(&format!("{name}s"), "", None, None));
        name.map_or(phonemes.clone(), |name| format!("{phonemes} {name}"))
    }
}

fn preposition_in(tag: &str, context: Context) -> String {
    if context.vowel.is_none() || tag != "IN" { "ˈɪn" } else { "ɪn" }.into()
}

fn article(context: Context) -> String {
    if context.vowel == Some(true) { "ði" } else { "ðə" }.into()
}

/// The sign of a currency that has a name.
pub(super) fn is_currency(sign: &str) -> bool {
    CURRENCIES.iter().any(|(known, ..)| *known == sign)
}

/// Whether a figure has at most two digits behind the point.
fn is_amount(figure: &str) -> bool {
    match figure.split_once('.') {
        None => true,
        Some((_, part)) => part.len() < 3 && !part.contains('.'),
    }
}

pub(super) fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

fn is_number(text: &str, is_head: bool) -> bool {
    if !text.bytes().any(|b| b.is_ascii_digit()) {
        return false;
    }
    let suffixes = ["ing", "'d", "ed", "'s", "st", "nd", "rd", "th", "s"];
    let figure = suffixes.iter().find_map(|suffix| text.strip_suffix(suffix)).unwrap_or(text);
    let fits = |(at, b): (usize, u8)| b.is_ascii_digit() || b == b',' || b == b'.' || is_head && at == 0 && b == b'-';
    figure.bytes().enumerate().all(fits)
}

/// The stem with the ending of a plural or of a third person.
fn plural(stem: &str) -> Option<String> {
    let end = match stem.chars().next_back()? {
        'p' | 't' | 'k' | 'f' | 'θ' => "s",
        's' | 'z' | 'ʃ' | 'ʒ' | 'ʧ' | 'ʤ' => "ᵻz",
        _ => "z",
    };
    Some(format!("{stem}{end}"))
}

/// The stem with the ending of a past tense.
fn past(stem: &str) -> Option<String> {
    Some(match stem.chars().next_back()? {
        'p' | 'k' | 'f' | 'θ' | 'ʃ' | 's' | 'ʧ' => format!("{stem}t"),
        'd' => format!("{stem}ᵻd"),
        't' => match flapped(stem) {
            _ if stem.chars().nth(1).is_none() => format!("{stem}ɪd"),
            Some(flapped) => format!("{flapped}ᵻd"),
            None => format!("{stem}ᵻd"),
        },
        _ => format!("{stem}d"),
    })
}

/// The stem with the ending of a present participle.
fn progressive(stem: &str) -> Option<String> {
    stem.chars().next()?;
    Some(format!("{}ɪŋ", flapped(stem).unwrap_or_else(|| stem.into())))
}

/// A stem whose last t is a flap before a vowel.
fn flapped(stem: &str) -> Option<String> {
    let short = stem.strip_suffix('t')?;
    short.ends_with(|c| FLAP_BEHIND.contains(c)).then(|| format!("{short}ɾ"))
}

pub(super) fn is_vowel(c: char) -> bool {
    VOWELS.contains(c)
}

pub(super) fn is_consonant(c: char) -> bool {
    CONSONANTS.contains(c)
}

/// How long phonemes are: diphthongs and affricates count twice.
pub(super) fn weight(phonemes: &str) -> usize {
    phonemes.chars().map(|c| if LONG.contains(c) { 2 } else { 1 }).sum()
}

/// Phonemes with another stress: below -1 none, -1 to 0 at most a secondary one, up to 1 at least a secondary one, above 1 a
/// primary one.
pub(super) fn stressed(phonemes: &str, stress: Option<f32>) -> String {
    let Some(stress) = stress else { return phonemes.into() };
    let has_primary = phonemes.contains(PRIMARY);
    let has_secondary = phonemes.contains(SECONDARY);
    let has_none = !has_primary && !has_secondary;
    let has_vowel = phonemes.chars().any(is_vowel);
    let weakened = || phonemes.replace(SECONDARY, "").replace(PRIMARY, "ˌ");
    if stress < -1.0 {
        return phonemes.replace([PRIMARY, SECONDARY], "");
    }
    if stress == -1.0 || (stress == 0.0 || stress == -0.5) && has_primary {
        return weakened();
    }
    if [0.0, 0.5, 1.0].contains(&stress) && has_none {
        return if has_vowel { before_vowel(SECONDARY, phonemes) } else { phonemes.into() };
    }
    if stress >= 1.0 && !has_primary && has_secondary {
        return phonemes.replace(SECONDARY, "ˈ");
    }
    if stress > 1.0 && has_none && has_vowel {
        return before_vowel(PRIMARY, phonemes);
    }
    phonemes.into()
}

/// The mark before the first vowel.
fn before_vowel(mark: char, phonemes: &str) -> String {
    let at = phonemes.find(is_vowel).unwrap_or(0);
    format!("{}{mark}{}", &phonemes[..at], &phonemes[at..])
}
