//! Takes a model's thinking out of its words. No IO.
//!
//! Servers that do not separate the two send `<think>...</think>` in the text. Templates of some models write the opening tag
//! into the request, so that only `</think>` comes, behind thinking that looked like an answer until then. Of such an answer
//! all text so far is withdrawn, and the next answers of that model are held back until the tag comes: see [`Opens`].

use std::sync::atomic::{AtomicBool, Ordering};

/// Tags around thinking, in lower case: Qwen, DeepSeek and most others; their variants; Magistral; Kimi.
const TAGS: [(&str, &str); 7] = [
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("[think]", "[/think]"),
    ("◁think▷", "◁/think▷"),
];

/// Models whose templates usually open the tag, by a part of their name. A model that is listed and does not think loses the
/// streaming of its first answer, and no other one.
const OPENED_BY_TEMPLATE: [&str; 4] = ["deepseek-r1", "qwq", "-thinking", "-reasoning"];

/// Whether a model's answers begin with thinking whose opening tag does not come. Learnt from its answers.
pub(super) struct Opens(AtomicBool);

impl Opens {
    /// A guess, from the model's name.
    pub fn guess(model: &str) -> Self {
        let name = model.to_lowercase();
        Self(AtomicBool::new(OPENED_BY_TEMPLATE.iter().any(|part| name.contains(part))))
    }

    pub fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub fn learn(&self, opens: bool) {
        self.0.store(opens, Ordering::Relaxed);
    }
}

/// What is left of a piece of text.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Words {
    /// All text before was thinking.
    pub withdrawn: bool,
    pub text: String,
}

enum State {
    /// Behind no tag, where the model may open with thinking: the text is held.
    Opening,
    Speaking,
    /// Behind the opening tag of this index.
    Thinking(usize),
}

/// Reads the text of one answer in order.
pub(super) struct ThinkingFilter {
    state: State,
    /// Text that is not decided: all of an opening, or the beginning of what may be a tag.
    held: String,
    /// Something but white space was passed on.
    said: bool,
    /// A tag was seen.
    tagged: bool,
    /// What the answer shows of the model; `None`: nothing.
    learnt: Option<bool>,
}

impl ThinkingFilter {
    pub fn new(opens: bool) -> Self {
        let state = if opens { State::Opening } else { State::Speaking };
        Self { state, held: String::new(), said: false, tagged: false, learnt: None }
    }

    /// What the answer has shown so far of the model's opening.
    pub fn learnt(&self) -> Option<bool> {
        self.learnt
    }

    /// Reads on.
    pub fn read(&mut self, text: &str) -> Words {
        let mut words = Words::default();
        self.held.push_str(text);
        while let Some((at, tag)) = self.next_tag() {
            let before: String = self.held.drain(..at).collect();
            self.held.drain(..tag.len());
            match (&self.state, tag) {
                (State::Thinking(open), Tag::Closes(close)) if *open == close => self.state = State::Speaking,
                (State::Thinking(_), _) => {}
                (_, Tag::Opens(open)) => {
                    self.say(&before, &mut words);
                    if !self.tagged {
                        self.learnt = Some(false);
                    }
                    self.state = State::Thinking(open);
                }
                (_, Tag::Closes(_)) if self.tagged => self.say(&before, &mut words),
                (_, Tag::Closes(_)) => {
                    if self.said || !before.trim().is_empty() {
                        self.learnt = Some(true);
                    }
                    words = Words { withdrawn: self.said, text: String::new() };
                    self.said = false;
                    self.state = State::Speaking;
                }
            }
            self.tagged = true;
        }
        match self.state {
            State::Opening => {}
            State::Speaking => {
                let end = self.held.len() - tag_beginning(&self.held);
                let text: String = self.held.drain(..end).collect();
                self.say(&text, &mut words);
            }
            State::Thinking(_) => drop(self.held.drain(..self.held.len() - tag_beginning(&self.held))),
        }
        words
    }

    /// The server sends thinking apart: what it sends as text is none.
    pub fn is_apart(&mut self) -> String {
        if !matches!(self.state, State::Opening) {
            return String::new();
        }
        self.learnt = Some(false);
        self.state = State::Speaking;
        self.read("").text
    }

    /// What is left at the end, or before a call. `complete`: the model said all it wanted; an opening that was cut off may be
    /// thinking throughout.
    pub fn end(&mut self, complete: bool) -> String {
        let held = std::mem::take(&mut self.held);
        let is_words = match self.state {
            State::Opening => complete,
            State::Speaking => true,
            State::Thinking(_) => false,
        };
        if !is_words {
            return String::new();
        }
        if matches!(self.state, State::Opening) && !held.trim().is_empty() {
            self.learnt = Some(false);
        }
        let mut words = Words::default();
        self.say(&held, &mut words);
        words.text
    }

    fn say(&mut self, text: &str, words: &mut Words) {
        // White space between the thinking and the answer belongs to neither.
        let text = if self.said || !self.tagged { text } else { text.trim_start() };
        self.said |= !text.trim().is_empty();
        words.text.push_str(text);
    }

    fn next_tag(&self) -> Option<(usize, Tag)> {
        self.held.char_indices().filter(|(_, c)| begins_tag(*c)).find_map(|(at, _)| {
            let rest = &self.held[at..];
            let is = |tag: &str| rest.get(..tag.len()).is_some_and(|text| text.eq_ignore_ascii_case(tag));
            TAGS.iter().enumerate().find_map(|(index, (open, close))| match () {
                () if is(open) => Some((at, Tag::Opens(index))),
                () if is(close) => Some((at, Tag::Closes(index))),
                () => None,
            })
        })
    }
}

/// A tag, by its index.
#[derive(Clone, Copy)]
enum Tag {
    Opens(usize),
    Closes(usize),
}

impl Tag {
    fn len(self) -> usize {
        match self {
            Self::Opens(index) => TAGS[index].0.len(),
            Self::Closes(index) => TAGS[index].1.len(),
        }
    }
}

fn begins_tag(c: char) -> bool {
    matches!(c, '<' | '[' | '◁')
}

/// Bytes at the end of a text that may be the beginning of a tag.
fn tag_beginning(text: &str) -> usize {
    let may_be = |rest: &str| {
        let tags = TAGS.iter().flat_map(|(open, close)| [*open, *close]);
        tags.filter_map(|tag| tag.get(..rest.len())).any(|beginning| beginning.eq_ignore_ascii_case(rest))
    };
    let starts = text.char_indices().filter(|(_, c)| begins_tag(*c));
    starts.map(|(at, _)| &text[at..]).find(|rest| may_be(rest)).map_or(0, str::len)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words of an answer that comes in pieces of `size` characters, those that were withdrawn behind a bar.
    fn read(opens: bool, text: &str, size: usize) -> (String, Option<bool>) {
        let mut thinking = ThinkingFilter::new(opens);
        let mut said = String::new();
        let letters: Vec<char> = text.chars().collect();
        for piece in letters.chunks(size) {
            let words = thinking.read(&piece.iter().collect::<String>());
            if words.withdrawn {
                said.clear();
            }
            said.push_str(&words.text);
        }
        said.push_str(&thinking.end(true));
        (said, thinking.learnt())
    }

    #[track_caller]
    fn check(text: &str, expect: &str) {
        for size in [1, 2, 3, 5, 8, 1_000] {
            assert_eq!(read(false, text, size).0, expect, "in pieces of {size}");
        }
    }

    #[test]
    fn thinking_is_left_out_wherever_it_stands_and_however_it_is_split() {
        check("<think>The user greets me.</think>Hello there.", "Hello there.");
        check("<think>\nWell < 3.\n</think>\n\nHello.", "Hello.");
        check("<THINK>a</Think>Hello.", "Hello.");
        check("<thinking>a <think> b</thinking>Hello.", "Hello.");
        check("One. <think>Two?</think>Three.", "One. Three.");
        check("<think>a</think>One.<think>b</think> Two.", "One. Two.");
        check("<reasoning>a</reasoning>Hello.", "Hello.");
        check("[THINK]a[/THINK]Hello.", "Hello.");
        check("◁think▷a◁/think▷Hello.", "Hello.");
        check("<think>never closed", "");
        check("<think></think>", "");
        check("Hello.<think>never closed", "Hello.");
    }

    #[test]
    fn words_that_are_no_tags_stay() {
        for text in ["1 < 2 and [x] <b>bold</b>", "a <thin", "<", "thinking </b", "[thin] ◁x", "Wörter ◁"] {
            check(text, text);
        }
    }

    #[test]
    fn a_tag_that_only_closes_withdraws_what_stood_before_it() {
        check("The user greets me.</think>Hello there.", "Hello there.");
        check("</think>\nHello there.", "Hello there.");
        check("<think>a</think>Hello </think>there.", "Hello there.");
    }

    #[test]
    fn a_model_whose_template_opens_the_tag_is_known_from_its_first_answer() {
        assert_eq!(read(false, "Hm.</think>Hello.", 4).1, Some(true));
        assert_eq!(read(false, "Hello.", 4).1, None);
        assert_eq!(read(false, "</think>Hello.", 4).1, None, "it thought nothing");
        assert_eq!(read(true, "Hm.</think>Hello.", 4), ("Hello.".into(), Some(true)));
        assert_eq!(read(true, "Hello.", 4), ("Hello.".into(), Some(false)), "it does not think any more");
        assert_eq!(read(true, "<think>Hm.</think>Hello.", 4), ("Hello.".into(), Some(false)));
        let mut held = ThinkingFilter::new(true);
        assert_eq!(held.read("Hm, so "), Words::default(), "nothing is said before the tag");
        assert_eq!(held.end(false), "", "it was cut off while it thought");
        let mut apart = ThinkingFilter::new(true);
        assert_eq!((apart.is_apart(), apart.read("Hello.").text), (String::new(), "Hello.".into()));
        assert!(Opens::guess("DeepSeek-R1:7b").get() && !Opens::guess("llama3.2").get());
    }
}
