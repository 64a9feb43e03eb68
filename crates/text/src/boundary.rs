//! Finds where a chunk ends.
//!
//! [`find`] scans the pending text and returns the first boundary. Each decision depends only on the text up to and
//! including the current character, never on what follows, so the result does not depend on how the text is streamed.

use super::sentences::{DotMeaning, Sentences, is_initials};
use super::tables::{FUNCTION_WORDS, WEEKDAYS};

/// The longest chunk in characters: about 20 s of speech. It bounds the time for which one chunk occupies a TTS engine.
pub(super) const MAX_CHARS: usize = 300;

/// The first chunk ends after this many words if there is no punctuation.
const FIRST_WORDS: usize = 8;
/// After this many words the first chunk may end before a function word such as "and" or "with".
const FIRST_PHRASE_WORDS: usize = 6;
/// Minimum number of words in a first clause.
const FIRST_CLAUSE_WORDS: usize = 2;
/// A sentence with fewer words is merged with the next one, except for the first sentence.
const SENTENCE_WORDS: usize = 4;
/// Minimum length at which the second chunk may end with a clause. It is short because little audio is buffered yet.
const SECOND_CLAUSE_CHARS: usize = 50;
/// Minimum length at which a later chunk may end with a clause.
const CLAUSE_CHARS: usize = 120;

/// State of the text at the start of the pending part.
#[derive(Clone, Debug)]
pub(super) struct TextPosition {
    /// Only blanks precede it on its line.
    pub(super) line_start: bool,
    /// The fence of the code block that the text is inside.
    fence: Option<Fence>,
    /// Number of chunks so far that contain something to speak.
    n_spoken: usize,
}

/// The fence of a code block (CommonMark 0.31, 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fence {
    /// A backtick or a tilde.
    sign: char,
    length: usize,
}

impl Fence {
    const MIN_LENGTH: usize = 3;

    /// The fence that `line` begins with. Backticks with another backtick behind them are a code span.
    fn opening(line: &str) -> Option<Self> {
        let sign = line.chars().next().filter(|c| matches!(c, '`' | '~'))?;
        let info = line.trim_start_matches(sign);
        let length = line.len() - info.len();
        let is_span = sign == '`' && info.lines().next().is_some_and(|info| info.contains('`'));
        (length >= Self::MIN_LENGTH && !is_span).then_some(Self { sign, length })
    }

    /// Whether `line` closes the block that this fence opens.
    fn is_closed_by(self, line: &str) -> bool {
        line.len() >= self.length && line.chars().all(|c| c == self.sign)
    }
}

/// A chunk boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// Length of the chunk in bytes.
    pub(super) at: usize,
    /// A heading, a list item or a paragraph ends here, whatever its punctuation.
    pub(super) ends_line: bool,
}

impl TextPosition {
    /// The start of a text.
    pub(super) fn start() -> Self {
        Self { line_start: true, fence: None, n_spoken: 0 }
    }

    /// Whether `text`, which starts here, is code or the fence of a code block.
    pub(super) fn is_code(&self, text: &str) -> bool {
        let body = text.trim_start();
        let begins_line = self.line_start || text[..text.len() - body.len()].contains('\n');
        self.fence.is_some() || (begins_line && Fence::opening(body).is_some())
    }

    /// Advances past a chunk.
    pub(super) fn advance(&mut self, chunk: &str, code: bool, spoken: bool) {
        let body = chunk.trim();
        let begins_line = self.line_start || chunk[..chunk.len() - chunk.trim_start().len()].contains('\n');
        if code && begins_line {
            self.fence = match self.fence {
                None => Fence::opening(body),
                Some(fence) => Some(fence).filter(|fence| !fence.is_closed_by(body)),
            };
        }
        self.line_start = match chunk.rfind('\n') {
            Some(newline) => chunk[newline..].trim().is_empty(),
            None => self.line_start && body.is_empty(),
        };
        self.n_spoken += usize::from(spoken);
    }
}

/// Whether a word that grows character by character has just become a fence or the beginning of a code span.
fn begins_fence(word: &str) -> bool {
    matches!(word, "```" | "~~~")
}

/// The end of the line above the one that begins with the word at byte `start`, if there is text above.
fn line_above(text: &str, start: usize) -> Option<Cut> {
    let above = text[..start].trim_end().len();
    let newline = text[above..start].find('\n')?;
    (above > 0).then_some(Cut { at: above + newline, ends_line: true })
}

/// The end of the first chunk of `text`, which starts at `place`; `None` if more text is needed.
pub(super) fn find(text: &str, place: &TextPosition, sentences: Sentences) -> Option<Cut> {
    if place.is_code(text) {
        return find_code(text);
    }
    let mut walk = Walk::new(text, place, sentences);
    for (n_chars, (at, c)) in text.char_indices().enumerate() {
        if let Some(cut) = walk.step(at, c) {
            return Some(cut);
        }
        if n_chars >= MAX_CHARS {
            return Some(walk.forced(at));
        }
    }
    None
}

/// The end of the first word of `text`, which starts at `place`, together with what it is only spoken right with; `None` if
/// more text is needed.
pub(super) fn find_words(text: &str, place: &TextPosition, sentences: Sentences) -> Option<Cut> {
    if place.is_code(text) {
        return find_code(text);
    }
    let mut word_start = None;
    for (n_chars, (at, c)) in text.char_indices().enumerate() {
        if n_chars >= MAX_CHARS {
            return cut_at(at);
        }
        if !c.is_whitespace() {
            let start = *word_start.get_or_insert(at);
            if begins_fence(&text[start..at + c.len_utf8()])
                && let Some(cut) = line_above(text, start)
            {
                return Some(cut);
            }
            if matches!(c, '。' | '！' | '？' | '｡' | '，' | '、' | '；' | '：') {
                return cut_at(at + c.len_utf8());
            }
        } else if let Some(start) = word_start.take()
            && stands_alone(&text[start..at], sentences)
        {
            return cut_at(at);
        }
    }
    None
}

/// Whether a word is spoken the same whatever follows: it has letters, no figures, and is no abbreviation.
fn stands_alone(word: &str, sentences: Sentences) -> bool {
    let abbreviates = |word: &str| {
        matches!(word.to_lowercase().as_str(), "no" | "nos") || sentences.dotted(word, "") != DotMeaning::End
    };
    word.contains(char::is_alphabetic)
        && !word.contains(|c: char| c.is_ascii_digit() || "$€£¥".contains(c))
        && !word.strip_suffix('.').is_some_and(abbreviates)
}

/// Whether a paragraph, a heading or a list item begins before the first word of `text`.
pub(super) fn begins_block(text: &str) -> bool {
    let body = text.trim_start();
    let newlines = text[..text.len() - body.len()].matches('\n').count();
    newlines > 1 || newlines == 1 && body.starts_with(|c: char| "#-*+>|•".contains(c) || c.is_ascii_digit())
}

/// A chunk of code ends at the end of its line.
fn find_code(text: &str) -> Option<Cut> {
    let body = text.len() - text.trim_start().len();
    if let Some(newline) = text[body..].find('\n') {
        return Some(Cut { at: body + newline + 1, ends_line: true });
    }
    text.char_indices().nth(MAX_CHARS).map(|(at, _)| Cut { at, ends_line: false })
}

/// How a word ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Plain,
    Clause,
    Sentence,
    /// A sentence if the next word starts with a capital or the line ends here.
    IfCapital,
    /// A sentence unless the next word starts with a digit ("No. 5").
    UnlessDigit,
}

/// Position relative to a Markdown link, inside which no chunk ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Outside,
    Text,
    Closed,
    Target,
}

/// State of one scan over the pending text.
struct Walk<'a> {
    text: &'a str,
    sentences: Sentences,
    n_spoken: usize,
    /// The current line is a heading or a list item: its newline ends a chunk.
    block: bool,
    line_start: bool,
    word_start: Option<usize>,
    /// Words so far, counted in halves: a CJK character counts as half a word.
    half_words: usize,
    n_chars: usize,
    link: Link,
    newline: Option<usize>,
    n_newlines: usize,
    unsure: Option<(usize, Ending)>,
    last_clause: Option<usize>,
    /// The last blank at which the text may be split.
    last_gap: Option<usize>,
    /// Where the last word ended.
    word_end: Option<usize>,
    after_number: bool,
    /// The last word was a function word such as "and" or "with".
    after_join: bool,
}

impl<'a> Walk<'a> {
    fn new(text: &'a str, place: &TextPosition, sentences: Sentences) -> Self {
        Self {
            text,
            sentences,
            n_spoken: place.n_spoken,
            block: false,
            line_start: place.line_start,
            word_start: None,
            half_words: 0,
            n_chars: 0,
            link: Link::Outside,
            newline: None,
            n_newlines: 0,
            unsure: None,
            last_clause: None,
            last_gap: None,
            word_end: None,
            after_number: false,
            after_join: false,
        }
    }

    /// Processes the character at byte `at`.
    fn step(&mut self, at: usize, c: char) -> Option<Cut> {
        self.n_chars += 1;
        if c.is_whitespace() {
            let cut = self.word_start.take().and_then(|start| self.end_word(start, at));
            return cut.or_else(|| if c == '\n' { self.end_line(at) } else { None });
        }
        if self.word_start.is_none()
            && let Some(cut) = self.begin_word(c)
        {
            return Some(cut);
        }
        let start = *self.word_start.get_or_insert(at);
        if self.line_start && begins_fence(&self.text[start..at + c.len_utf8()]) {
            if let Some(cut) = line_above(self.text, start) {
                return Some(cut);
            }
            self.block = true;
        }
        self.follow_link(c);
        self.inside_word(at, c)
    }

    /// A word starts: resolves endings that depend on its first character.
    fn begin_word(&mut self, c: char) -> Option<Cut> {
        if let Some((end, ending)) = self.unsure.take() {
            let sentence = match ending {
                Ending::UnlessDigit => !c.is_ascii_digit(),
                _ => c.is_uppercase() || "\"“‘'([*_¿¡".contains(c) || self.newline.is_some(),
            };
            if sentence && self.accepts(Ending::Sentence) {
                return cut_at(end);
            }
        }
        if let Some(newline) = self.newline.take() {
            let starts_block = "#-*+>`|•".contains(c) || c.is_ascii_digit();
            if self.half_words > 0 && (starts_block || self.n_newlines > 1) {
                return Some(Cut { at: newline, ends_line: true });
            }
            self.n_newlines = 0;
            self.line_start = true;
        }
        if self.line_start {
            self.block = "#-*+•|".contains(c) || c.is_ascii_digit() && self.half_words == 0;
        }
        if self.n_spoken == 0 && self.half_words >= 2 * FIRST_WORDS && self.last_gap.is_some() {
            return self.last_gap.and_then(cut_at);
        }
        None
    }

    /// A word ended before the blank at `end`.
    fn end_word(&mut self, start: usize, end: usize) -> Option<Cut> {
        let word = &self.text[start..end];
        let before = self.text[..start].split_whitespace().next_back().unwrap_or_default();
        let first_of_line = std::mem::take(&mut self.line_start);
        let ending = ending_of(word, before, first_of_line, self.after_number, self.sentences);
        let speaks = word.chars().any(|c| c.is_alphanumeric() && !is_cjk(c));
        let joins = is_function_word(word);
        let phrase = self.n_spoken == 0 && self.half_words >= 2 * FIRST_PHRASE_WORDS && joins && !self.after_join;
        if let (true, Some(before), Link::Outside) = (phrase, self.word_end, self.link) {
            return cut_at(before);
        }
        self.after_join = joins;
        self.word_end = Some(end);
        self.half_words += if speaks { 2 } else { 0 };
        self.after_number = word.ends_with(|c: char| c.is_ascii_digit() || "$€£¥+-–−*/=×÷".contains(c));
        if self.link == Link::Closed {
            self.link = Link::Outside;
        }
        if self.link != Link::Outside {
            return None;
        }
        let whole = !self.after_number && !word.ends_with('.');
        if whole || ending == Ending::Sentence {
            self.last_gap = Some(end);
        }
        match ending {
            Ending::IfCapital | Ending::UnlessDigit => self.unsure = Some((end, ending)),
            Ending::Clause => self.last_clause = Some(end),
            Ending::Sentence | Ending::Plain => {}
        }
        if self.accepts(ending) { cut_at(end) } else { None }
    }

    /// A line ended.
    fn end_line(&mut self, at: usize) -> Option<Cut> {
        self.link = Link::Outside;
        if self.block && self.half_words > 0 {
            return Some(Cut { at, ends_line: true });
        }
        self.block = false;
        self.line_start = true;
        self.newline.get_or_insert(at);
        self.n_newlines += 1;
        None
    }

    /// Inside a word: handles punctuation that needs no blank after it.
    fn inside_word(&mut self, at: usize, c: char) -> Option<Cut> {
        let end = at + c.len_utf8();
        if is_cjk(c) {
            if self.n_spoken == 0 && self.half_words >= 2 * FIRST_WORDS && self.link == Link::Outside {
                return cut_at(at);
            }
            self.half_words += 1;
            self.last_gap = Some(end);
        }
        let ending = match c {
            '。' | '！' | '？' | '｡' => Ending::Sentence,
            '，' | '、' | '；' | '：' | '—' => Ending::Clause,
            ',' if is_short_weekday(&self.text[self.word_start.unwrap_or(at)..at]) => return None,
            ',' | ';' if self.n_spoken == 0 && self.is_letters(at) => Ending::Clause,
            '!' | '?' if self.n_spoken == 0 && self.is_letters(at) => Ending::Sentence,
            _ => return None,
        };
        if self.link != Link::Outside {
            return None;
        }
        // The current word is counted, because it ends with this character.
        let whole = self.half_words;
        let start = self.word_start.unwrap_or(at);
        if self.text[start..at].chars().any(|c| c.is_alphanumeric() && !is_cjk(c)) {
            self.half_words += 2;
        }
        let accepted = self.accepts(ending);
        self.half_words = whole;
        if ending == Ending::Clause && !c.is_ascii() {
            self.last_clause = Some(end);
        }
        if accepted { cut_at(end) } else { None }
    }

    /// Whether the current word, up to `at`, consists of letters only, so that punctuation after it is not part of a
    /// number or an address.
    fn is_letters(&self, at: usize) -> bool {
        let word = &self.text[self.word_start.unwrap_or(at)..at];
        word.chars().next_back().is_some_and(char::is_alphabetic)
            && word.chars().all(|c| c.is_alphabetic() || "'’\"“*_-".contains(c))
    }

    fn follow_link(&mut self, c: char) {
        self.link = match (self.link, c) {
            (Link::Outside | Link::Closed, '[') => Link::Text,
            (Link::Text, ']') => Link::Closed,
            (Link::Closed, '(') => Link::Target,
            (Link::Target, ')') | (Link::Closed, _) => Link::Outside,
            (link, _) => link,
        };
    }

    /// Whether a chunk may end here with this ending.
    fn accepts(&self, ending: Ending) -> bool {
        let words = self.half_words / 2;
        match (ending, self.n_spoken) {
            (Ending::Sentence, 0) => self.half_words >= 1,
            (Ending::Sentence, _) => words >= SENTENCE_WORDS,
            (Ending::Clause, 0) => words >= FIRST_CLAUSE_WORDS,
            (Ending::Clause, 1) => words > 0 && self.n_chars >= SECOND_CLAUSE_CHARS,
            (Ending::Clause, _) => words > 0 && self.n_chars >= CLAUSE_CHARS,
            _ => false,
        }
    }

    /// The end of a chunk that reached the maximum length at byte `at`.
    fn forced(&self, at: usize) -> Cut {
        let end = self.last_clause.or(self.last_gap).unwrap_or(at);
        Cut { at: end, ends_line: false }
    }
}

fn cut_at(at: usize) -> Option<Cut> {
    (at > 0).then_some(Cut { at, ends_line: false })
}

/// The ending of `word`, which is followed by a blank.
fn ending_of(word: &str, before: &str, first_of_line: bool, after_number: bool, sentences: Sentences) -> Ending {
    if matches!(word, "-" | "–" | "--" | "—") {
        return if after_number { Ending::Plain } else { Ending::Clause };
    }
    let core = word.trim_end_matches(|c| "\"'”’)]}*_~`»".contains(c));
    match core.chars().next_back() {
        Some(',') if is_short_weekday(&core[..core.len() - 1]) => Ending::Plain,
        Some('!' | '?' | '。' | '！' | '？' | '।' | '॥' | '؟' | '۔' | '։' | '።') => Ending::Sentence,
        Some(',' | ';' | ':' | '…' | '،' | '؛' | '—') => Ending::Clause,
        Some('.') => ending_of_dotted(&core[..core.len() - 1], before, first_of_line, sentences),
        _ => Ending::Plain,
    }
}

/// The ending of a word followed by a dot; `word` excludes the dot.
fn ending_of_dotted(word: &str, before: &str, first_of_line: bool, sentences: Sentences) -> Ending {
    if word.ends_with('.') {
        return Ending::Clause;
    }
    let word = word.trim_start_matches(|c: char| !c.is_alphanumeric());
    let is_marker = word.len() <= 3 && (word.bytes().all(|b| b.is_ascii_digit()) || word.len() == 1);
    let dotted = sentences.dotted(word, before);
    match word.to_lowercase().as_str() {
        "" => Ending::Plain,
        _ if first_of_line && is_marker => Ending::Plain,
        "no" | "nos" => Ending::UnlessDigit,
        _ if dotted == DotMeaning::Abbreviation => Ending::Plain,
        _ if dotted == DotMeaning::UnlessCapital => Ending::IfCapital,
        _ if is_initials(word) => Ending::Plain,
        _ => Ending::Sentence,
    }
}

/// "Mon" as in "Mon, Jan 3": what follows decides how it is said.
fn is_short_weekday(word: &str) -> bool {
    word.len() == 3 && WEEKDAYS.iter().any(|name| name.starts_with(word))
}

fn is_function_word(word: &str) -> bool {
    FUNCTION_WORDS.iter().any(|known| word.eq_ignore_ascii_case(known))
}

/// Scripts written without blanks between words, where a split between any two characters is acceptable.
fn is_cjk(c: char) -> bool {
    matches!(c, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}'
        | '\u{20000}'..='\u{2fa1f}')
}
