//! Parses a dialogue: header comment, setup, client actions, expected sections.

use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// First words allowed in `== setup`.
const SETUP: &[&str] = &[
    "connect",
    "session",
    "config",
    "answer",
    "+",
    "model",
    "voice",
    "recognizer",
    "hears",
    "detector",
    "turn-model",
    "another",
    "noise",
    "echo",
    "library",
];

/// A parsed dialogue.
pub struct Script {
    /// The text before the expected sections.
    pub source: String,
    /// The expected sections.
    pub expected: String,
    /// Lines of `== setup`.
    pub setup: Vec<Line>,
    /// Lines of `== client`.
    pub actions: Vec<Line>,
}

/// A line: its first word and the rest.
#[derive(Clone, Debug)]
pub struct Line {
    pub word: String,
    pub rest: String,
}

impl Script {
    pub fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let (source, expected) = match text.split_once("\n== wire\n") {
            Some((source, expected)) => (source.to_owned(), format!("== wire\n{expected}")),
            None => (text.trim_end().to_owned() + "\n", String::new()),
        };
        let mut script = Self { setup: Vec::new(), actions: Vec::new(), source: String::new(), expected };
        let mut section = "";
        for line in source.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            match (line, section) {
                ("== setup" | "== client", _) => section = line,
                (line, "== setup") => {
                    let line = Line::read(line);
                    assert!(SETUP.contains(&line.word.as_str()), "{}: no such setting: {line:?}", path.display());
                    script.setup.push(line);
                }
                (line, "== client") => script.actions.push(Line::read(line)),
                (line, _) => panic!("{}: outside == setup and == client: {line}", path.display()),
            }
        }
        Self { source, ..script }
    }

    /// The arguments of every setup line that begins with `word`.
    pub fn set<'a>(&'a self, word: &'a str) -> impl Iterator<Item = &'a str> {
        self.setup.iter().filter(move |line| line.word == word).map(|line| line.rest.as_str())
    }
}

impl Line {
    fn read(line: &str) -> Self {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        Self { word: word.to_owned(), rest: rest.trim().to_owned() }
    }

    /// Splits `800ms "what time is it"`.
    pub fn timed(&self) -> (Duration, &str) {
        let (time, rest) = self.rest.split_once(' ').unwrap_or((&self.rest, ""));
        (duration(time), rest.trim())
    }
}

/// Parses `800ms` or `2s`.
pub fn duration(text: &str) -> Duration {
    let number = |digits: &str| digits.parse().unwrap_or_else(|_| panic!("not a duration: {text}"));
    match text.strip_suffix("ms") {
        Some(ms) => Duration::from_millis(number(ms)),
        None => Duration::from_secs(number(text.strip_suffix('s').unwrap_or(text))),
    }
}

/// Parses `-12dB` into an amplitude factor.
pub fn gain(text: &str) -> f32 {
    let db: f32 =
        text.strip_suffix("dB").and_then(|db| db.parse().ok()).unwrap_or_else(|| panic!("not a level: {text}"));
    10f32.powf(db / 20.0)
}

/// A JSON string.
pub fn quoted(text: &str) -> String {
    serde_json::from_str(text).unwrap_or_else(|_| panic!("not a quoted text: {text}"))
}

pub fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("not JSON: {error}: {text}"))
}
