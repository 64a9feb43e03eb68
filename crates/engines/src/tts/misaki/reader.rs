//! English text to phonemes in Kokoro's alphabet, by dictionaries and without espeak-ng.
//!
//! Tokens get a part of speech; tokens without a blank between them are looked up in the lexicon together, then in ever smaller
//! parts; words are read from the last to the first, since "the" and "to" depend on the sound that follows. What the lexicon does
//! not know goes to the graph for unknown words, and what has letters foreign to that graph to espeak-ng, where it is installed.
//! The rules are those of misaki 0.9.4, which the models were trained with; numbers, dates and the like come as words or plain figures
//! from the hub's normalization. It runs on the engine's thread and knows nothing of sound.

use super::super::alphabet::{self, Rules};
use super::super::phonemes::{Mark, Phonemizer};
use super::files;
use super::lexicon::{Context, Lexicon, PRIMARY, Word, is_consonant, is_currency, is_vowel, stressed, weight};
use super::sentences::{last_mark, sentences};
use super::tagger::{Tagger, TaggerFile};
use super::tokens::{Tokenizer, is_letter, is_lower, is_upper};
use super::unknown::UnknownWords;
use antiphon_engine_api::tts::TtsError;
use antiphon_inference::onnx::{OnnxError, Runtime};
use icu_normalizer::ComposingNormalizerBorrowed;
use std::path::Path;
use std::sync::Arc;

const MARKS: &str = ";:,.!?—…\"“”";
const PAUSES: &str = ";:,.!?—…";
/// Characters within a word that are not read.
const SILENT: &str = "',-._‘’/";
const MARK_TAGS: [&str; 10] = [".", ",", "-LRB-", "-RRB-", "``", "\"\"", "''", ":", "$", "#"];
const SYMBOLS: [(char, &str); 14] = [
    ('/', "slˈæʃ"),
    ('=', "ˈikwᵊlz"),
    ('+', "plˈʌs"),
    ('&', "ænd"),
    ('@', "æt"),
    ('%', "pəɹsˈɛnt"),
    ('#', "hˈæʃ"),
    ('*', "ˈæstəɹˌɪsk"),
    ('~', "tˈɪldə"),
    ('^', "kˈɛɹət"),
    ('<', "lˈɛs ðən"),
    ('>', "ɡɹˈATəɹ ðən"),
    ('—', "—"),
    ('–', "—"),
];

/// What the readers of all replicas share.
pub(in crate::tts) struct Dictionaries {
    tokenizer: Tokenizer,
    tagger: Tagger,
    lexicon: Lexicon,
}

/// See the module.
pub(in crate::tts) struct Reader {
    dictionaries: Arc<Dictionaries>,
    unknown: UnknownWords,
    /// `None` where espeak-ng is not installed.
    espeak: Option<Phonemizer>,
}

/// A sentence as it is read.
pub(in crate::tts) struct Sentence {
    pub(in crate::tts) phonemes: String,
    /// The mark that it ends with.
    pub(in crate::tts) mark: Option<Mark>,
}

/// A token, or a part of one.
#[derive(Clone, Debug)]
struct Token {
    text: String,
    tag: String,
    has_blank: bool,
    /// Where it is known already.
    phonemes: Option<String>,
    /// What is read in its place.
    alias: Option<&'static str>,
    currency: Option<String>,
    is_head: bool,
    has_gap: bool,
}

/// Tokens without a blank between them.
type Group = Vec<Token>;

impl Dictionaries {
    /// Reads the files of a folder. Blocks for some 200 ms.
    pub(in crate::tts) fn open(folder: &Path) -> Result<Self, TtsError> {
        let tagger: TaggerFile = files::json(folder, files::TAGGER)?;
        let damaged = |why| {
            let path = folder.join(files::TAGGER);
            TtsError::Unavailable(format!("{}: it is damaged: {why}; `make hibari` fetches it", path.display()))
        };
        Ok(Self {
            tokenizer: Tokenizer(files::json(folder, files::EXCEPTIONS)?),
            tagger: Tagger::new(tagger).map_err(damaged)?,
            lexicon: Lexicon { gold: files::json(folder, files::GOLD)?, silver: files::json(folder, files::SILVER)? },
        })
    }
}

impl Reader {
    /// Loads the graph for unknown words in this folder; opens espeak-ng, if it is there.
    pub(in crate::tts) fn open(
        folder: &Path,
        runtime: &Runtime,
        dictionaries: Arc<Dictionaries>,
    ) -> Result<Self, TtsError> {
        let unknown = UnknownWords::open(folder, runtime)?;
        Ok(Self { dictionaries, unknown, espeak: Phonemizer::open("en-us", true).ok() })
    }

    /// The sentences of a text that have something to say. Blocks as [`Self::phonemes`] does.
    pub(in crate::tts) fn sentences(&self, text: &str) -> Result<Vec<Sentence>, TtsError> {
        let mut read = Vec::new();
        for sentence in sentences(text).filter(|text| text.chars().any(char::is_alphanumeric)) {
            let phonemes = self.phonemes(sentence);
            let phonemes = phonemes
                .map_err(|error| TtsError::Engine { message: error.to_string(), source: Some(Box::new(error)) })?;
            // Marks alone are no speech.
            if phonemes.chars().any(char::is_alphabetic) {
                read.push(Sentence { phonemes, mark: last_mark(sentence) });
            }
        }
        Ok(read)
    }

    /// The phonemes of a sentence. Blocks for less than a millisecond, and about one more for each unknown word.
    pub(in crate::tts) fn phonemes(&self, text: &str) -> Result<String, OnnxError> {
        let mut groups = grouped(self.tokens(&tidy(text)));
        let mut context = Context::default();
        for group in groups.iter_mut().rev() {
            context = match group.as_mut_slice() {
                [token] => self.read_alone(token, context)?,
                parts => self.read_parts(parts, context)?,
            };
        }
        let mut phonemes = String::new();
        for group in &groups {
            let start = phonemes.len();
            for token in group {
                let Some(said) = token.phonemes.as_deref().filter(|said| !said.is_empty()) else { continue };
                if token.has_gap && phonemes.len() > start && !phonemes.ends_with(' ') {
                    phonemes.push(' ');
                }
                phonemes.push_str(said);
            }
            if group.last().is_some_and(|token| token.has_blank) {
                phonemes.push(' ');
            }
        }
        Ok(phonemes.trim().replace('ɾ', "T").replace('ʔ', "t"))
    }

    fn tokens(&self, text: &str) -> Vec<Token> {
        let pieces = self.dictionaries.tokenizer.pieces(text);
        let words: Vec<&str> = pieces.iter().map(|piece| piece.text.as_str()).collect();
        let tags: Vec<String> = self.dictionaries.tagger.tags(&words).into_iter().map(str::to_owned).collect();
        let token = |(piece, tag): (super::tokens::Piece, String)| Token {
            text: piece.text,
            tag,
            has_blank: piece.has_blank,
            phonemes: None,
            alias: None,
            currency: None,
            is_head: true,
            has_gap: false,
        };
        pieces.into_iter().zip(tags).map(token).collect()
    }

    fn look_up(&self, token: &Token, context: Context) -> Option<String> {
        let text = token.alias.unwrap_or(&token.text).replace(['‘', '’'], "'");
        let text = ComposingNormalizerBorrowed::new_nfkc().normalize(&text);
        let word = Word { text: &text, tag: &token.tag, currency: token.currency.as_deref(), is_head: token.is_head };
        self.dictionaries.lexicon.phonemes(word, context)
    }

    fn read_alone(&self, token: &mut Token, context: Context) -> Result<Context, OnnxError> {
        if token.phonemes.is_none() {
            token.phonemes = self.look_up(token, context);
        }
        if token.phonemes.is_none() {
            token.phonemes = Some(self.guess(&token.text)?);
        }
        Ok(before(context, token.phonemes.as_deref(), token))
    }

    /// Reads from the end: the longest known rest, then what is before it.
    fn read_parts(&self, parts: &mut [Token], mut context: Context) -> Result<Context, OnnxError> {
        let mut left = 0;
        let mut right = parts.len();
        while left < right {
            let is_free = parts[left..right].iter().all(|part| part.alias.is_none() && part.phonemes.is_none());
            let whole = is_free.then(|| merged(&parts[left..right]));
            let found = whole.and_then(|whole| Some((self.look_up(&whole, context)?, whole)));
            if let Some((phonemes, whole)) = found {
                context = before(context, Some(&phonemes), &whole);
                parts[left].phonemes = Some(phonemes);
                parts[left + 1..right].iter_mut().for_each(|part| part.phonemes = Some(String::new()));
                right = left;
                left = 0;
            } else if left + 1 < right {
                left += 1;
            } else {
                right -= 1;
                left = 0;
                let part = &mut parts[right];
                if part.phonemes.is_some() {
                    continue;
                }
                if !part.text.chars().all(|c| SILENT.contains(c)) {
                    let said = self.guess(&merged(parts).text)?;
                    parts.iter_mut().for_each(|part| part.phonemes = Some(String::new()));
                    parts[0].phonemes = Some(said);
                    return Ok(context);
                }
                part.phonemes = Some(String::new());
            }
        }
        settle(parts);
        Ok(context)
    }

    /// The phonemes of what the lexicon does not know; empty where nothing can be read.
    fn guess(&self, text: &str) -> Result<String, OnnxError> {
        let mut said: Vec<String> = Vec::new();
        for piece in kinds(text) {
            let phonemes = match piece.chars().next() {
                Some(c) if c.is_ascii_digit() => self.dictionaries.lexicon.number(piece, None, false),
                Some(c) if is_letter(c) => match self.unknown.phonemes(piece)? {
                    Some(phonemes) => Some(phonemes),
                    None => self.foreign(piece),
                },
                _ => Some(piece.chars().filter_map(symbol).collect()),
            };
            said.extend(phonemes.filter(|phonemes| !phonemes.is_empty()));
        }
        Ok(said.join(" "))
    }

    /// The phonemes by espeak-ng of a word in other letters.
    fn foreign(&self, word: &str) -> Option<String> {
        let clauses = self.espeak.as_ref()?.clauses(word).ok()?;
        Some(alphabet::written(Rules::American, &clauses))
    }
}

/// One line, plain apostrophes and dashes, no blank before a mark.
fn tidy(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for word in text.split_whitespace() {
        if !out.is_empty() && !word.starts_with([',', '.', ';', ':', '!', '?']) {
            out.push(' ');
        }
        out.push_str(word);
    }
    out.replace('’', "'").replace('‒', "-").replace('―', "—")
}

fn symbol(c: char) -> Option<&'static str> {
    SYMBOLS.iter().find(|(symbol, _)| *symbol == c).map(|(_, phonemes)| *phonemes)
}

/// Tokens cut into parts, in groups without a blank inside; marks and amounts are recognized.
fn grouped(tokens: Vec<Token>) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    // Whether the last group takes more parts.
    let mut is_open = false;
    let mut currency: Option<String> = None;
    let tags: Vec<String> = tokens.iter().map(|token| token.tag.clone()).collect();
    for (place, token) in tokens.into_iter().enumerate() {
        let texts = parts(&token.text);
        let n = texts.len();
        let edge = |text: &str, last: bool| if last { text.chars().next_back() } else { text.chars().next() };
        for (number, text) in texts.iter().enumerate() {
            let is_last = number + 1 == n;
            let has_blank = is_last && token.has_blank;
            let mut part = Token { text: (*text).to_owned(), has_blank, ..token.clone() };
            if part.tag == "$" && is_currency(&part.text) {
                currency = Some(part.text.clone());
                part.phonemes = Some(String::new());
            } else if part.tag == ":" && matches!(part.text.as_str(), "-" | "–") {
                part.phonemes = Some("—".into());
            } else if is_mark(&part) {
                part.phonemes = Some(mark(&part));
            } else if currency.is_some() {
                let is_end = is_last && tags.get(place + 1).is_none_or(|next| next != "CD");
                if part.tag != "CD" {
                    currency = None;
                } else if is_end {
                    part.currency = currency.clone();
                }
            } else if number > 0 && !is_last && part.text == "2" {
                let near = [edge(texts[number - 1], true), edge(texts[number + 1], false)];
                let is_between_letters = near.iter().all(|c| c.is_some_and(char::is_alphabetic));
                part.alias = is_between_letters.then_some("to");
            }
            if part.alias.is_some() || part.phonemes.is_some() {
                groups.push(vec![part]);
                is_open = false;
                continue;
            }
            let ends_group = part.has_blank;
            match groups.last_mut().filter(|_| is_open) {
                Some(group) => {
                    part.is_head = false;
                    group.push(part);
                }
                None => groups.push(vec![part]),
            }
            is_open = !ends_group;
        }
    }
    groups
}

fn is_mark(part: &Token) -> bool {
    let is_word = part.text.chars().all(|c| c.is_ascii_alphabetic());
    (MARK_TAGS.contains(&part.tag.as_str()) || part.tag == "NFP") && !is_word
}

fn mark(part: &Token) -> String {
    let fixed = match part.tag.as_str() {
        "-LRB-" => "(",
        "-RRB-" => ")",
        "``" => "“",
        "''" | "\"\"" => "”",
        _ => return part.text.chars().filter(|c| MARKS.contains(*c)).collect(),
    };
    fixed.into()
}

/// The parts of a token: words, figures, and single marks; "iPhone" is two.
fn parts(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut at = 0;
    while let Some(first) = text[at..].chars().next() {
        let n = part_length(&text[at..], at == 0);
        if n > 0 {
            parts.push(&text[at..at + n]);
        }
        at += n.max(if n == 0 { first.len_utf8() } else { 0 });
    }
    if parts.is_empty() { vec![text] } else { parts }
}

/// Bytes of the part that a text begins with; 0 where its first character is none.
fn part_length(text: &str, is_begin: bool) -> usize {
    let chars: Vec<char> = text.chars().collect();
    let length = |n: usize| chars[..n].iter().map(|c| c.len_utf8()).sum();
    let at = |place: usize| chars.get(place).copied();
    let is = |place: usize, fits: fn(char) -> bool| at(place).is_some_and(fits);
    let run = |from: usize, fits: fn(char) -> bool| chars[from..].iter().take_while(|c| fits(**c)).count();
    let is_quote = |c: char| matches!(c, '\'' | '‘' | '’');
    let quotes = run(0, is_quote);
    if is_begin && quotes > 0 {
        return length(quotes);
    }
    if is(0, is_upper) && is(1, is_upper) && is(2, is_lower) {
        return length(1);
    }
    let sign = usize::from(is_begin && chars[0] == '-');
    let mut digits = sign;
    loop {
        if is(digits, |c| c.is_ascii_digit()) {
            digits += 1;
        } else if is(digits, |c| matches!(c, ',' | '.')) && is(digits + 1, |c| c.is_ascii_digit()) {
            digits += 2;
        } else {
            break;
        }
    }
    if digits > sign {
        return length(digits);
    }
    let hyphens = run(0, |c| matches!(c, '-' | '_'));
    if hyphens > 0 {
        return length(hyphens);
    }
    if quotes > 1 {
        return length(quotes);
    }
    let letters = run(0, is_letter);
    // Behind each number of letters, pairs of an apostrophe and a letter; up to a small letter before a capital.
    for n in 0..=letters {
        let mut end = n;
        loop {
            if is(end, is_lower) && is(end + 1, is_upper) {
                return length(end + 1);
            }
            if !(is(end, is_quote) && is(end + 1, is_letter)) {
                break;
            }
            end += 2;
        }
    }
    if letters > 0 {
        let mut end = letters;
        while is(end, is_quote) && is(end + 1, is_letter) {
            end += 2;
        }
        return length(end);
    }
    if quotes > 0 {
        return if quotes == chars.len() { length(quotes) } else { 0 };
    }
    length(1)
}

/// Parts as one token; its tag is that of the part with most letters, where a capital counts twice.
fn merged(parts: &[Token]) -> Token {
    let mut text = String::new();
    for (place, part) in parts.iter().enumerate() {
        text.push_str(&part.text);
        if part.has_blank && place + 1 < parts.len() {
            text.push(' ');
        }
    }
    let size =
        |part: &Token| -> usize { part.text.chars().map(|c| if c.to_lowercase().eq([c]) { 1 } else { 2 }).sum() };
    // Of equal ones the first.
    let largest = parts.iter().rev().max_by_key(|part| size(part));
    Token {
        text,
        tag: largest.map(|part| part.tag.clone()).unwrap_or_default(),
        has_blank: parts.last().is_some_and(|part| part.has_blank),
        phonemes: None,
        alias: None,
        currency: parts.iter().filter_map(|part| part.currency.clone()).max(),
        is_head: parts.first().is_some_and(|part| part.is_head),
        has_gap: false,
    }
}

/// What a word before this one finds behind it.
fn before(context: Context, phonemes: Option<&str>, token: &Token) -> Context {
    let sounds = |c: &char| is_vowel(*c) || is_consonant(*c) || PAUSES.contains(*c);
    let first = phonemes.unwrap_or_default().chars().find(sounds);
    let vowel = match first {
        Some(c) if PAUSES.contains(c) => None,
        Some(c) => Some(is_vowel(c)),
        None => context.vowel,
    };
    let to =
        matches!(token.text.as_str(), "to" | "To") || token.text == "TO" && matches!(token.tag.as_str(), "TO" | "IN");
    Context { vowel, to }
}

/// The parts of a word that were read one by one: gaps between those of different kinds, one main stress else.
fn settle(parts: &mut [Token]) {
    let text = merged(parts).text;
    let kind = |c: char| {
        if c.is_alphabetic() {
            0
        } else if c.is_ascii_digit() {
            1
        } else {
            2
        }
    };
    let mut read = text.chars().filter(|c| !SILENT.contains(*c)).map(kind);
    let first = read.next();
    let has_gap = text.contains([' ', '/']) || read.any(|kind| Some(kind) != first);
    let n = parts.len();
    for (place, part) in parts.iter_mut().enumerate() {
        if part.phonemes.is_none() {
            let is_pause = part.text.chars().count() == 1 && part.text.chars().all(|c| PAUSES.contains(c));
            if place + 1 == n && is_pause {
                part.phonemes = Some(part.text.clone());
            } else if part.text.chars().all(|c| SILENT.contains(c)) {
                part.phonemes = Some(String::new());
            }
        } else if place > 0 {
            part.has_gap = has_gap;
        }
    }
    if has_gap {
        return;
    }
    let said = |part: &Token| part.phonemes.clone().filter(|phonemes| !phonemes.is_empty());
    let mut found: Vec<(bool, usize, usize)> = Vec::new();
    for (place, part) in parts.iter().enumerate() {
        if let Some(phonemes) = said(part) {
            found.push((phonemes.contains(PRIMARY), weight(&phonemes), place));
        }
    }
    let lengths: Vec<usize> = parts.iter().map(|part| part.text.chars().count()).collect();
    let mut weaken = |place: usize| {
        let weakened = parts[place].phonemes.as_deref().map(|phonemes| stressed(phonemes, Some(-0.5)));
        parts[place].phonemes = weakened;
    };
    let n_stressed = found.iter().filter(|(is_stressed, ..)| *is_stressed).count();
    if let [(.., first), (.., second)] = found[..]
        && lengths[first] == 1
    {
        weaken(second);
        return;
    }
    if found.len() < 2 || n_stressed <= found.len().div_ceil(2) {
        return;
    }
    found.sort_unstable();
    for (.., place) in &found[..found.len() / 2] {
        weaken(*place);
    }
}

/// Pieces of letters, of figures, and of other signs; blanks part them.
fn kinds(text: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut at = 0;
    while let Some(first) = text[at..].chars().next() {
        let rest = &text[at..];
        let n = if first.is_ascii_digit() {
            figure_length(rest)
        } else if is_letter(first) {
            word_length(rest)
        } else if first.is_whitespace() || first == '_' {
            at += first.len_utf8();
            continue;
        } else {
            rest.find(|c: char| c.is_alphanumeric() || c.is_whitespace() || c == '_').unwrap_or(rest.len())
        };
        pieces.push(&rest[..n]);
        at += n;
    }
    pieces
}

fn figure_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let is_digit = |place: usize| bytes.get(place).is_some_and(u8::is_ascii_digit);
    let mut n = 0;
    while is_digit(n) || matches!(bytes.get(n), Some(b',' | b'.')) && is_digit(n + 1) {
        n += 1;
    }
    n
}

fn word_length(text: &str) -> usize {
    let mut n = 0;
    loop {
        n += text[n..].find(|c| !is_letter(c)).unwrap_or(text.len() - n);
        let mut rest = text[n..].chars();
        let quote = rest.next().filter(|c| matches!(c, '\'' | '’'));
        match quote {
            Some(quote) if rest.next().is_some_and(is_letter) => n += quote.len_utf8(),
            _ => return n,
        }
    }
}
