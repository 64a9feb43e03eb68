//! The outcome of a load: its turns, the resource use of the server's process, and the figures of both.

use super::super::{BenchError, Figure, Process, Section, Unit, Waits};
use super::talk::{Conversation, Return, SessionRecord};
use super::turn::TurnRecord;
use antiphon_client::{ClientError, Gaps};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::time::Duration;

/// Maximum number of mix-ups and problems listed individually.
const MOST_NOTED: usize = 5;

/// Resource use of a process at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Time since the start of the load.
    pub at: Duration,
    /// CPU time since the start of the process, in seconds.
    pub cpu_s: f64,
    /// Resident memory, in bytes.
    pub resident: u64,
    /// The part of it that is no file's, in bytes.
    pub anonymous: u64,
}

impl Sample {
    pub(super) fn take(process: Process, at: Duration) -> Result<Self, BenchError> {
        Ok(Self { at, cpu_s: process.cpu_s()?, resident: process.resident()?, anonymous: process.anonymous()? })
    }
}

/// A session that the server refused, because it is full or a limit is reached.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// Time from the attempt to the refusal.
    pub after: Duration,
    /// The `Retry-After` header.
    pub retry_after: Option<String>,
}

impl Refusal {
    fn of(error: &ClientError, after: Duration) -> Option<Self> {
        match error {
            ClientError::Unavailable { retry_after, .. } => Some(Self { after, retry_after: retry_after.clone() }),
            ClientError::Refused { status: 429, .. } => Some(Self { after, retry_after: None }),
            _ => None,
        }
    }
}

/// The outcome of a load.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Number of concurrent sessions.
    pub n_sessions: usize,
    /// All turns of all sessions, including the warm-up.
    pub turns: Vec<TurnRecord>,
    /// Sessions that ended early, with the cause.
    pub broken: Vec<(usize, ClientError)>,
    /// Sessions that the server refused; they are among those that ended early.
    pub refused: Vec<Refusal>,
    /// Times that a session was resumed.
    pub returns: Vec<Return>,
    /// Sessions with reply frames whose sequence number was not the one expected, and how many.
    pub misplaced_frames: Vec<(usize, u64)>,
    /// The same behind an interruption, of all sessions: an interruption drops frames that have numbers.
    pub n_interrupted_frames: u64,
    /// The conversation of each session that did not end early.
    pub conversations: Vec<(usize, Conversation)>,
    /// Identifiers that were assigned to two sessions.
    pub shared_ids: Vec<String>,
    /// The server's process before the load.
    pub before: Option<Sample>,
    /// The server's process during the load, sampled twice a second.
    pub samples: Vec<Sample>,
    /// Duration of the load.
    pub took: Duration,
    /// Fraction of the machine's CPU time used by other programs, 0 to 1.
    pub others: Option<f64>,
    pub(crate) stagger: Duration,
    pub(crate) first_end: Option<Duration>,
}

impl Outcome {
    pub(super) fn take(&mut self, mut records: Vec<SessionRecord>) {
        records.sort_by_key(|record| record.session);
        let mut owners: HashMap<String, usize> = HashMap::new();
        for record in records {
            let session = record.session;
            for id in record.ids.into_iter().filter(|id| !id.is_empty()) {
                let owner = *owners.entry(id.clone()).or_insert(session);
                if owner != session {
                    self.shared_ids.push(format!("{id} in sessions {owner} and {session}"));
                }
            }
            self.turns.extend(record.turns);
            self.returns.extend(record.returns);
            self.misplaced_frames
                .extend((record.n_misplaced_frames > 0).then_some((session, record.n_misplaced_frames)));
            self.n_interrupted_frames += record.n_interrupted_frames;
            if record.broke.is_none() {
                self.conversations.push((session, record.conversation));
            }
            let refusal = record.broke.as_ref().zip(record.not_opened);
            self.refused.extend(refusal.and_then(|(error, after)| Refusal::of(error, after)));
            self.broken.extend(record.broke.map(|error| (session, error)));
        }
    }

    /// The turns without the warm-up.
    pub fn counted(&self) -> impl Iterator<Item = &TurnRecord> {
        self.turns.iter().filter(|turn| !turn.warm_up)
    }

    /// Voice-to-voice latencies without the warm-up. A session that ended early counts as one unanswered turn.
    pub fn waits(&self) -> Waits {
        let mut waits = Waits::default();
        self.counted().for_each(|turn| push(&mut waits, turn.wait));
        self.broken.iter().for_each(|_| waits.push_endless());
        waits
    }

    /// Times from the first loud sample of an interruption to silence.
    pub fn silences(&self) -> Waits {
        let mut waits = Waits::default();
        self.counted().filter_map(|turn| turn.silence).for_each(|silence| push(&mut waits, silence));
        waits
    }

    /// Descriptions of transcripts, responses and identifiers that belong to another session, including the warm-up.
    pub fn mix_ups(&self) -> Vec<String> {
        let of_turn = |turn: &TurnRecord| {
            let what = turn.mixed_up.as_ref()?;
            Some(format!("session {}, turn {}: {what}", turn.session, turn.turn))
        };
        self.turns.iter().filter_map(of_turn).chain(self.shared_ids.iter().cloned()).collect()
    }

    /// CPU time of the server per session, in per cent of a core, while all sessions were active.
    pub fn cpu_percent(&self) -> Option<f64> {
        let all_talk = self.stagger * self.n_sessions.saturating_sub(1) as u32;
        let until = self.first_end.unwrap_or(self.took);
        let mut during = self.samples.iter().filter(|sample| sample.at >= all_talk && sample.at <= until);
        let first = during.next()?;
        let last = during.next_back()?;
        let took = (last.at - first.at).as_secs_f64();
        (took > 0.0).then(|| 100.0 * (last.cpu_s - first.cpu_s) / took / self.n_sessions as f64)
    }

    /// Peak increase of anonymous memory per session, in KiB.
    pub fn memory_kib(&self) -> Option<f64> {
        let most = self.samples.iter().map(|sample| sample.anonymous).max()?;
        Some((most as f64 - self.before?.anonymous as f64) / 1024.0 / self.n_sessions as f64)
    }

    /// CPU seconds of the server during the load.
    pub(super) fn cpu_s(&self) -> f64 {
        self.before.zip(self.samples.last()).map_or(0.0, |(before, last)| last.cpu_s - before.cpu_s)
    }

    /// Whether the sessions are served: every turn answered, no cross-talk, and p95 within the objective.
    pub fn holds(&self, objective: Duration) -> bool {
        let p95 = self.waits().percentile(95.0);
        p95.is_some_and(|ms| ms <= objective.as_secs_f64() * 1e3) && self.mix_ups().is_empty() && self.broken.is_empty()
    }

    /// The verdict in one line.
    pub fn verdict(&self, objective: Duration) -> String {
        let p95 = match self.waits().percentile(95.0) {
            Some(ms) if ms.is_finite() => format!("at p95 {ms:.0} ms"),
            Some(_) => "with more than one turn in twenty not answered".into(),
            None => "without a turn behind the warm-up".into(),
        };
        let objective_ms = objective.as_millis();
        let is = if self.holds(objective) { "served" } else { "NOT served" };
        let s = if self.n_sessions == 1 { "" } else { "s" };
        format!("{} session{s} {p95}: {is} (objective: p95 <= {objective_ms} ms, nothing mixed up)", self.n_sessions)
    }

    /// The figures; `how` describes the run in one line.
    pub fn section(&self, how: impl Into<String>, objective: Duration) -> Section {
        let mut section = Section::new("voice", how);
        let waits = self.waits();
        let silences = self.silences();
        let mix_ups = self.mix_ups();
        section.percentile("voice-to-voice", &waits, 50.0, None);
        section.percentile("voice-to-voice", &waits, 95.0, Some(objective.as_secs_f64() * 1e3));
        section.percentile("voice-to-voice", &waits, 99.0, None);
        section.percentile("voice-to-voice", &waits, 100.0, None);
        let count = |name: &str, n: usize, of: usize| Figure::new(name, Unit::Count, n as f64, of);
        section.figures.push(count("turns not answered", waits.len() - waits.n_ended(), waits.len()));
        section.percentile("silence after an interruption", &silences, 50.0, None);
        section.percentile("silence after an interruption", &silences, 95.0, None);
        if !silences.is_empty() {
            let n = self.counted().map(|turn| turn.n_after_silence).sum();
            section.figures.push(count("pieces of replies after their silence", n, silences.len()));
        }
        let gaps = self.gaps();
        section.figures.push(count("playback underruns", gaps.n, waits.n_ended()));
        if gaps.n > 0 {
            section.figures.push(Figure::new(
                "the longest of them",
                Unit::Ms,
                gaps.longest.as_secs_f64() * 1e3,
                gaps.n,
            ));
        }
        let n_counted = self.counted().count();
        section.figures.push(count("recognized as its own", self.counted().filter(|turn| turn.own).count(), n_counted));
        section.figures.push(count("mixed up with another session", mix_ups.len(), self.turns.len()).at_most(0.0));
        section.figures.push(count("sessions broken off", self.broken.len(), self.n_sessions).at_most(0.0));
        let n = self.n_sessions;
        let percent =
            self.cpu_percent().map(|value| Figure::new("processor time a session", Unit::PercentOfCore, value, n));
        let memory = self.memory_kib().map(|value| Figure::new("memory a session", Unit::KiB, value, n));
        section.figures.extend(percent.into_iter().chain(memory));
        section.notes = self.notes(&mix_ups);
        section.others = self.others;
        section
    }

    fn gaps(&self) -> Gaps {
        self.counted().fold(Gaps::default(), |sum, turn| Gaps {
            n: sum.n + turn.gaps.n,
            total: sum.total + turn.gaps.total,
            longest: sum.longest.max(turn.gaps.longest),
        })
    }

    fn notes(&self, mix_ups: &[String]) -> Vec<String> {
        let mixed = mix_ups.iter().take(MOST_NOTED).map(|what| format!("mixed up: {what}"));
        let broken = self.broken.iter().take(MOST_NOTED).map(|(session, error)| format!("session {session}: {error}"));
        let troubled = self.counted().filter_map(|turn| {
            let what = turn.trouble.as_ref()?;
            Some(format!("session {}, turn {}: {what}", turn.session, turn.turn))
        });
        mixed.chain(broken).chain(troubled.take(MOST_NOTED)).collect()
    }

    /// Each turn and each sample of the process as JSON. Times in milliseconds; `null` for events that did not occur.
    pub fn json(&self) -> Value {
        let ms = |time: Duration| (time.as_secs_f64() * 1e6).round() / 1e3;
        let turn = |turn: &TurnRecord| {
            json!({
                "session": turn.session, "turn": turn.turn, "warm_up": turn.warm_up, "at_ms": ms(turn.at),
                "voice_to_voice_ms": turn.wait.map(ms),
                "interrupts": turn.silence.is_some(), "silence_ms": turn.silence.flatten().map(ms),
                "underruns": turn.gaps.n, "underrun_ms": ms(turn.gaps.total),
                "own": turn.own, "mixed_up": turn.mixed_up, "trouble": turn.trouble,
            })
        };
        let sample = |sample: &Sample| {
            json!({
                "at_ms": ms(sample.at), "cpu_s": (sample.cpu_s * 1e3).round() / 1e3,
                "resident_bytes": sample.resident, "anonymous_bytes": sample.anonymous,
            })
        };
        json!({
            "sessions": self.n_sessions,
            "took_ms": ms(self.took),
            "turns": self.turns.iter().map(turn).collect::<Vec<_>>(),
            "process": self.before.iter().chain(&self.samples).map(sample).collect::<Vec<_>>(),
        })
    }
}

fn push(waits: &mut Waits, wait: Option<Duration>) {
    match wait {
        Some(wait) => waits.push(wait),
        None => waits.push_endless(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_whose_turns_are_all_of_the_warm_up_says_so() {
        let wait = Some(Duration::from_millis(300));
        let warm_up = TurnRecord { warm_up: true, ..TurnRecord::asked(Duration::ZERO, wait) };
        let verdict = |turns| Outcome { n_sessions: 1, turns, ..Outcome::default() }.verdict(Duration::from_secs(2));
        let without = verdict(vec![warm_up]);
        assert!(without.starts_with("1 session without a turn behind the warm-up: NOT served"), "{without}");
        let unanswered = verdict(vec![TurnRecord::asked(Duration::ZERO, None)]);
        assert!(unanswered.contains("with more than one turn in twenty not answered"), "{unanswered}");
    }
}
