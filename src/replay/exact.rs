//! The exact replay: the same inputs at the same times must give the same decisions.

use super::{ReplayError, ReplayLog};
use antiphon_dialog::turn::{TurnTaker, WindowFeatures};
use antiphon_dialog::{Dialog, Event};
use antiphon_session::replay_log::{DialogStart, End, Line, Outcome, unpack};
use antiphon_types::{SampleRate, Samples, Timestamp};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use std::time::Duration;

/// Who decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// Turn-taking, in turn time.
    Turn,
    /// The reducer, in time since the session began.
    Dialog,
}

/// One decision of the replay.
#[derive(Clone, Debug, Serialize)]
pub struct ReplayedDecision {
    /// Line of the recording, counted from 1.
    pub line: usize,
    /// By whom.
    pub layer: Layer,
    /// When, in milliseconds of the layer's time.
    pub at_ms: f64,
    /// The layer's input, where it is shown; JSON.
    pub input: Option<Box<RawValue>>,
    /// What it decided; JSON.
    pub outputs: Vec<Box<RawValue>>,
}

/// A decision that is not the recorded one.
#[derive(Clone, Debug, Serialize)]
pub struct Difference {
    /// What the replay decided, and where.
    pub replayed: ReplayedDecision,
    /// What the recording says; JSON.
    pub recorded: Vec<String>,
}

/// What came of a replay.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Windows that were heard.
    pub n_windows: u64,
    /// Events that the reducer received.
    pub n_events: u64,
    /// Decisions of both layers.
    pub n_decisions: u64,
    /// The first differences: what follows one is likely to differ too.
    pub differences: Vec<Difference>,
    /// How many there are.
    pub n_differences: u64,
    /// How the recording ended; `None`: the hub was killed before it could say.
    pub end: Option<End>,
    /// Lines are missing, or too many, by the recording's own count.
    pub miscounted: bool,
}

/// Differences that are kept.
const KEPT: usize = 5;

impl Report {
    /// Whether every decision was the recorded one.
    pub fn is_same(&self) -> bool {
        self.n_differences == 0 && !self.miscounted
    }
}

/// Where a replay goes on with turn-taking and a dialog that were written to a snapshot and read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restores {
    /// Nowhere.
    Never,
    /// After the line of this number, counted from 1.
    After(usize),
    /// After every line.
    Always,
}

/// Runs a recording and shows each decision to `see`, with the share of the file that is done, 0 to 1.
///
/// # Errors
/// When the file cannot be read to its end, or is not of this version.
pub fn replay(recording: ReplayLog, see: &mut dyn FnMut(&ReplayedDecision, f64)) -> Result<Report, ReplayError> {
    replay_restoring(recording, Restores::Never, see)
}

/// [`replay`] with state that comes from a snapshot: the decisions must be the recorded ones all the same.
///
/// # Errors
/// As [`replay`].
pub fn replay_restoring(
    mut recording: ReplayLog,
    restores: Restores,
    see: &mut dyn FnMut(&ReplayedDecision, f64),
) -> Result<Report, ReplayError> {
    let mut run = Run::new(&recording);
    while let Some(line) = recording.next_line()? {
        if run.report.end.is_some() {
            run.report.miscounted = true;
            break;
        }
        let n = recording.line;
        let decided = run.line(n, line)?;
        if restores == Restores::Always || restores == Restores::After(n) {
            run.restore();
        }
        let done = recording.n_read as f64 / recording.n_bytes.max(1) as f64;
        decided.iter().for_each(|decided| see(decided, done));
    }
    Ok(run.report)
}

struct Run {
    taker: TurnTaker,
    dialog: Option<Dialog>,
    /// Turn time.
    position: Samples,
    report: Report,
}

impl Run {
    fn new(recording: &ReplayLog) -> Self {
        let turn = recording.header.turn;
        let start = |start: DialogStart| {
            Dialog::new(start.settings, start.playback, start.seed)
                .with_follow_up_after(start.follow_up_after)
                .with_max_tool_rounds(start.max_tool_rounds)
                .with_speculation(start.speculation)
        };
        Self {
            taker: TurnTaker::new(turn.thresholds, turn.ending),
            dialog: recording.header.dialog.clone().map(start),
            position: Samples::ZERO,
            report: Report::default(),
        }
    }

    fn restore(&mut self) {
        self.taker = written_and_read(&self.taker);
        self.dialog = self.dialog.as_ref().map(written_and_read);
    }

    /// What a line leads to.
    fn line(&mut self, n: usize, line: Line) -> Result<Vec<ReplayedDecision>, ReplayError> {
        match line {
            Line::Windows { from, size, packed, outcome } => {
                let windows = unpack(from, size, &packed).ok_or(ReplayError::Windows { line: n })?;
                return Ok(self.windows(n, &windows, outcome));
            }
            Line::Partial(partial) => self.taker.partial(&partial.text, partial.audio_end),
            Line::TurnProbability(answer) => self.taker.judged(answer.probability, answer.pause_start),
            Line::TurnSettings(turn) => self.taker.set(turn.thresholds, turn.ending),
            Line::Ended { outcome: recorded } => {
                let outcome = Outcome::of_end(&mut self.taker);
                return Ok(self.turn(n, outcome, Some(recorded)).into_iter().collect());
            }
            Line::Step { at, event, actions } => return Ok(self.step(n, at, *event, actions).into_iter().collect()),
            Line::End(end) => {
                self.report.miscounted |= end.n_lines + 2 != n as u64;
                self.report.end = Some(end);
            }
        }
        Ok(Vec::new())
    }

    /// Only the last window of a line led to anything, when it was recorded.
    fn windows(
        &mut self,
        n: usize,
        windows: &[WindowFeatures],
        outcome: Option<Box<RawValue>>,
    ) -> Vec<ReplayedDecision> {
        let mut decided = Vec::new();
        let mut recorded = outcome;
        for (i, &heard) in windows.iter().enumerate() {
            self.report.n_windows += 1;
            self.position = heard.end;
            let outcome = Outcome::of_window(&mut self.taker, heard);
            let recorded = recorded.take_if(|_| i + 1 == windows.len());
            decided.extend(self.turn(n, outcome, recorded));
        }
        decided
    }

    fn turn(&mut self, n: usize, outcome: Outcome, recorded: Option<Box<RawValue>>) -> Option<ReplayedDecision> {
        let nothing = Outcome::default();
        if outcome == nothing && recorded.is_none() {
            return None;
        }
        let at_ms = ms(self.position.duration(SampleRate::HZ_16000));
        let decided =
            ReplayedDecision { line: n, layer: Layer::Turn, at_ms, input: None, outputs: vec![raw(&outcome)] };
        let recorded = recorded.unwrap_or_else(|| raw(&nothing));
        self.compare(&decided, &[recorded]);
        (outcome != nothing).then_some(decided)
    }

    fn step(
        &mut self,
        n: usize,
        at: Timestamp,
        event: Event,
        recorded: Vec<Box<RawValue>>,
    ) -> Option<ReplayedDecision> {
        self.report.n_events += 1;
        let input = Some(raw(&event));
        let actions = self.dialog.as_mut().map_or_else(Vec::new, |dialog| dialog.step(at, event));
        let outputs: Vec<_> = actions.iter().map(raw).collect();
        let decided = ReplayedDecision { line: n, layer: Layer::Dialog, at_ms: ms(at.since_start()), input, outputs };
        self.compare(&decided, &recorded);
        (!decided.outputs.is_empty()).then_some(decided)
    }

    fn compare(&mut self, decided: &ReplayedDecision, recorded: &[Box<RawValue>]) {
        self.report.n_decisions += u64::from(!decided.outputs.is_empty());
        let same = decided.outputs.iter().map(|one| one.get()).eq(recorded.iter().map(|one| one.get()));
        if same {
            return;
        }
        self.report.n_differences += 1;
        if self.report.differences.len() < KEPT {
            let recorded = recorded.iter().map(|one| one.get().to_owned()).collect();
            self.report.differences.push(Difference { replayed: decided.clone(), recorded });
        }
    }
}

fn written_and_read<T: Serialize + DeserializeOwned>(state: &T) -> T {
    let written = serde_json::to_vec(state).expect("state has text for keys");
    serde_json::from_slice(&written).expect("what was written can be read")
}

fn ms(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

fn raw(value: &impl Serialize) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).expect("events and actions have text for keys")
}
