//! Turn-taking alone, with other settings, over labelled recordings.

use super::{LabelledTurn, Labels, ReplayError, ReplayLog};
use antiphon_dialog::turn::{Decision, Eagerness, Edge, Ending, ModelWeight, Thresholds, TurnTaker, WindowFeatures};
use antiphon_session::replay_log::{Line, PartialTranscript, TurnProbability, unpack};
use antiphon_types::sealed::Sealing;
use antiphon_types::{SampleRate, Samples};
use std::path::Path;
use std::sync::Arc;

/// What is tried.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Setting {
    /// A fixed wait in milliseconds.
    Fixed(u32),
    /// The adaptive wait of medium eagerness, times this.
    Adaptive(f64),
    /// The same with another weight of the turn model.
    Weighed(f64, ModelWeight),
}

/// What became of one turn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TurnResult {
    /// It was taken to be over while the speaker had more to say.
    pub cut_in: bool,
    /// From its true end until it was taken to be over, in milliseconds; where it never was, until the next one began.
    pub delay_ms: f64,
}

/// What was known in a pause, at the moment a short fixed wait would have ended.
#[derive(Clone, Debug)]
pub struct PauseHints {
    /// The turn.
    pub turn: LabelledTurn,
    /// The turn was over.
    pub is_end: bool,
    /// What turn-taking made of it.
    pub decision: Decision,
}

/// Labelled recordings.
pub struct Corpus {
    sessions: Vec<Session>,
}

struct Session {
    thresholds: Thresholds,
    inputs: Vec<Input>,
    turns: Vec<LabelledTurn>,
}

enum Input {
    WindowFeatures(WindowFeatures),
    Partial(PartialTranscript),
    TurnProbability(TurnProbability),
    End,
}

impl Corpus {
    /// Reads recordings and their labels, all turns or those of a group and a speaker; `key` is asked for each that is sealed.
    ///
    /// # Errors
    /// The file and what is wrong with it.
    pub fn open<'a>(
        paths: impl IntoIterator<Item = &'a Path>,
        group: Option<&str>,
        speaker: Option<&str>,
        key: impl Fn() -> Result<Option<Arc<dyn Sealing>>, ReplayError>,
    ) -> Result<Self, (&'a Path, ReplayError)> {
        let mut sessions = Vec::new();
        for path in paths {
            let mut session = Session::open(path, &key).map_err(|error| (path, error))?;
            let fits = |wanted: Option<&str>, is: &str| wanted.is_none_or(|wanted| wanted == is);
            session.turns.retain(|turn| fits(group, &turn.group) && fits(speaker, &turn.speaker));
            if !session.turns.is_empty() {
                sessions.push(session);
            }
        }
        Ok(Self { sessions })
    }

    /// The turns, in the order of [`Corpus::run`].
    pub fn turns(&self) -> impl Iterator<Item = &LabelledTurn> {
        self.sessions.iter().flat_map(|session| &session.turns)
    }

    /// What becomes of each turn.
    pub fn run(&self, setting: Setting) -> Vec<TurnResult> {
        self.sessions.iter().flat_map(|session| session.taken(setting)).collect()
    }

    /// The hints at `after` into every labelled pause and end that lasts that long without being taken for an end.
    pub fn hints(&self, after: Samples) -> Vec<PauseHints> {
        self.sessions.iter().flat_map(|session| session.hints(after)).collect()
    }
}

impl Session {
    fn open(path: &Path, key: impl Fn() -> Result<Option<Arc<dyn Sealing>>, ReplayError>) -> Result<Self, ReplayError> {
        let mut recording = ReplayLog::open_with(path, key)?;
        let labels = Labels::of(path)?;
        let mut inputs = Vec::new();
        while let Some(line) = recording.next_line()? {
            match line {
                Line::Windows { from, size, packed, .. } => {
                    let line = recording.line;
                    let windows = unpack(from, size, &packed).ok_or(ReplayError::Windows { line })?;
                    inputs.extend(windows.into_iter().map(Input::WindowFeatures));
                }
                Line::Partial(partial) => inputs.push(Input::Partial(partial)),
                Line::TurnProbability(answer) => inputs.push(Input::TurnProbability(answer)),
                Line::Ended { .. } => inputs.push(Input::End),
                // The settings are what is tried; the dialog is not run.
                Line::TurnSettings(_) | Line::Step { .. } | Line::End(_) => {}
            }
        }
        Ok(Self { thresholds: recording.header.turn.thresholds, inputs, turns: labels.turns })
    }

    fn taker(&self, setting: Setting) -> TurnTaker {
        match setting {
            Setting::Fixed(ms) => {
                let silence = Samples::from_ms(u64::from(ms), SampleRate::HZ_16000);
                TurnTaker::new(Thresholds { silence, ..self.thresholds }, Ending::Silence)
            }
            Setting::Adaptive(scale) => {
                TurnTaker::new(self.thresholds, Ending::Adaptive(Eagerness::Medium)).scaled(scale)
            }
            Setting::Weighed(scale, weight) => self.taker(Setting::Adaptive(scale)).weighing_model(weight),
        }
    }

    fn taken(&self, setting: Setting) -> Vec<TurnResult> {
        let mut taker = self.taker(setting);
        let mut ends = Vec::new();
        let mut now = Samples::ZERO;
        for input in &self.inputs {
            let edge = match input {
                Input::WindowFeatures(heard) => {
                    now = heard.end;
                    taker.window(*heard)
                }
                Input::Partial(partial) => {
                    taker.partial(&partial.text, partial.audio_end);
                    None
                }
                Input::TurnProbability(answer) => {
                    taker.judged(answer.probability, answer.pause_start);
                    None
                }
                Input::End => taker.end(),
            };
            if let Some(Edge::Stopped { .. }) = edge {
                ends.push(ms(now));
            }
        }
        let all_over = ms(now);
        let turn = |(i, turn): (usize, &LabelledTurn)| {
            let (from, to) = turn.ends_ms();
            let until = self.turns.get(i + 1).map_or(all_over, |next| next.ends_ms().0);
            let cut_in = ends.iter().any(|&end| end >= from && end < to);
            let end = ends.iter().copied().find(|&end| end >= to && end < until);
            TurnResult { cut_in, delay_ms: end.unwrap_or(until) - to }
        };
        self.turns.iter().enumerate().map(turn).collect()
    }

    fn hints(&self, after: Samples) -> Vec<PauseHints> {
        // A wait of this length never ends in a pause.
        let mut taker = self.taker(Setting::Adaptive(1e3));
        let mut found = Vec::new();
        let mut due = self.turns.iter().flat_map(|turn| {
            let last = turn.spans_ms.len() - 1;
            let at = move |span: &[f64; 2]| span[1] + ms(after);
            turn.spans_ms.iter().enumerate().filter_map(move |(i, span)| {
                let lasts = turn.spans_ms.get(i + 1).is_none_or(|next| next[0] > at(span));
                lasts.then(|| (at(span), turn, i == last))
            })
        });
        let mut next = due.next();
        for input in &self.inputs {
            match input {
                Input::Partial(partial) => taker.partial(&partial.text, partial.audio_end),
                Input::TurnProbability(answer) => taker.judged(answer.probability, answer.pause_start),
                Input::End => drop(taker.end()),
                Input::WindowFeatures(heard) => {
                    taker.window(*heard);
                    while let Some((_, turn, is_end)) = next.filter(|(at, ..)| ms(heard.end) >= *at) {
                        let turn = turn.clone();
                        found.extend(taker.decision().map(|&decision| PauseHints { turn, is_end, decision }));
                        if is_end {
                            taker.end();
                        }
                        next = due.next();
                    }
                }
            }
        }
        found
    }
}

fn ms(at: Samples) -> f64 {
    at.0 as f64 / 16.0
}
