//! What an API key has used: counters since the start, and their values at the full minutes of the last hour.

use antiphon_types::Compute;
use serde::Serialize;
use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Minutes that are kept, and the value before them.
const KEPT: usize = 61;

/// What is counted. Lengths of audio are in milliseconds, times of computing in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Count {
    Sessions,
    Responses,
    Turns,
    AudioInMs,
    AudioOutMs,
    TokensIn,
    TokensOut,
    Characters,
    TranscribedMs,
    Jobs,
    CpuUs,
    GpuUs,
    Requests,
    Refused,
}

impl Count {
    pub(super) const ALL: [Self; 14] = [
        Self::Sessions,
        Self::Responses,
        Self::Turns,
        Self::AudioInMs,
        Self::AudioOutMs,
        Self::TokensIn,
        Self::TokensOut,
        Self::Characters,
        Self::TranscribedMs,
        Self::Jobs,
        Self::CpuUs,
        Self::GpuUs,
        Self::Requests,
        Self::Refused,
    ];

    /// The metric's name and its help.
    pub(super) fn metric(self) -> (&'static str, &'static str) {
        match self {
            Self::Sessions => ("antiphon_key_sessions_total", "Sessions started, by API key."),
            Self::Responses => ("antiphon_key_responses_total", "Responses begun, by API key."),
            Self::Turns => ("antiphon_key_turns_total", "Turns of the user, by API key."),
            Self::AudioInMs => ("antiphon_key_audio_in_seconds_total", "Audio received in sessions, by API key."),
            Self::AudioOutMs => ("antiphon_key_audio_out_seconds_total", "Audio made in sessions, by API key."),
            Self::TokensIn => ("antiphon_key_tokens_in_total", "Tokens read by the language model, by API key."),
            Self::TokensOut => ("antiphon_key_tokens_out_total", "Tokens written by the language model, by API key."),
            Self::Characters => ("antiphon_key_characters_total", "Characters for the speech API, by API key."),
            Self::TranscribedMs => ("antiphon_key_transcription_seconds_total", "Audio files transcribed, by API key."),
            Self::Jobs => ("antiphon_key_jobs_total", "Jobs created, by API key."),
            Self::CpuUs => ("antiphon_key_cpu_seconds_total", "Busy time of engines on the processor, by API key."),
            Self::GpuUs => ("antiphon_key_gpu_seconds_total", "Time of runs on GPUs, by API key."),
            Self::Requests => ("antiphon_key_requests_total", "HTTP requests, by API key."),
            Self::Refused => ("antiphon_key_refused_total", "Requests, sessions and responses refused, by API key."),
        }
    }

    /// How many make a second, where it is shown in seconds.
    pub(super) fn in_a_second(self) -> Option<f64> {
        match self {
            Self::AudioInMs | Self::AudioOutMs | Self::TranscribedMs => Some(1e3),
            Self::CpuUs | Self::GpuUs => Some(1e6),
            _ => None,
        }
    }
}

/// The counters of one API key.
#[derive(Default)]
pub(super) struct Usage {
    counts: [AtomicU64; Count::ALL.len()],
    minutes: Mutex<VecDeque<Totals>>,
}

/// All counters at one time, or their growth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Totals(pub(super) [u64; Count::ALL.len()]);

/// As `/api/usage` shows it.
#[derive(Debug, Serialize)]
pub(super) struct Shown {
    sessions: u64,
    responses: u64,
    turns: u64,
    audio_in_seconds: f64,
    audio_out_seconds: f64,
    tokens_in: u64,
    tokens_out: u64,
    characters: u64,
    transcription_seconds: f64,
    jobs: u64,
    cpu_seconds: f64,
    gpu_seconds: f64,
    requests: u64,
    refused: u64,
}

impl Usage {
    pub(super) fn add(&self, count: Count, n: u64) {
        self.counts[count as usize].fetch_add(n, Ordering::Relaxed);
    }

    pub(super) fn add_compute(&self, Compute { cpu, gpu }: Compute) {
        for (count, took) in [(Count::CpuUs, cpu), (Count::GpuUs, gpu)] {
            self.add(count, u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        }
    }

    pub(super) fn add_all(&self, totals: Totals) {
        self.counts.iter().zip(totals.0).for_each(|(count, n)| _ = count.fetch_add(n, Ordering::Relaxed));
    }

    pub(super) fn totals(&self) -> Totals {
        Totals(std::array::from_fn(|at| self.counts[at].load(Ordering::Relaxed)))
    }

    /// A minute is over.
    pub(super) fn minute_ended(&self) {
        let totals = self.totals();
        let mut minutes = self.minutes.lock().expect("no panic while locked");
        if minutes.is_empty() {
            minutes.push_back(Totals::default());
        }
        minutes.push_back(totals);
        if minutes.len() > KEPT {
            minutes.pop_front();
        }
    }

    /// What was used in the last full minute, and in the last 60 of them or as many as there were.
    pub(super) fn recent(&self) -> (Totals, Totals) {
        let minutes = self.minutes.lock().expect("no panic while locked");
        let Some(last) = minutes.back() else { return Default::default() };
        let before =
            |n: usize| minutes.len().checked_sub(n).and_then(|at| minutes.get(at)).copied().unwrap_or_default();
        (last.since(before(2)), last.since(*minutes.front().expect("one at least")))
    }
}

impl Totals {
    fn since(self, before: Self) -> Self {
        Self(std::array::from_fn(|at| self.0[at].saturating_sub(before.0[at])))
    }

    pub(super) fn plus(self, more: Self) -> Self {
        Self(std::array::from_fn(|at| self.0[at] + more.0[at]))
    }

    pub(super) fn get(self, count: Count) -> u64 {
        self.0[count as usize]
    }
}

impl From<Totals> for Shown {
    fn from(totals: Totals) -> Self {
        let n = |count| totals.get(count);
        let seconds = |count: Count| n(count) as f64 / count.in_a_second().unwrap_or(1.0);
        Self {
            sessions: n(Count::Sessions),
            responses: n(Count::Responses),
            turns: n(Count::Turns),
            audio_in_seconds: seconds(Count::AudioInMs),
            audio_out_seconds: seconds(Count::AudioOutMs),
            tokens_in: n(Count::TokensIn),
            tokens_out: n(Count::TokensOut),
            characters: n(Count::Characters),
            transcription_seconds: seconds(Count::TranscribedMs),
            jobs: n(Count::Jobs),
            cpu_seconds: seconds(Count::CpuUs),
            gpu_seconds: seconds(Count::GpuUs),
            requests: n(Count::Requests),
            refused: n(Count::Refused),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_minute_and_hour_are_full_ones() {
        let usage = Usage::default();
        usage.add(Count::Turns, 3);
        assert_eq!(usage.recent(), (Totals::default(), Totals::default()), "no minute is over");
        usage.minute_ended();
        usage.add(Count::Turns, 4);
        let turns = |(minute, hour): (Totals, Totals)| (minute.get(Count::Turns), hour.get(Count::Turns));
        assert_eq!(turns(usage.recent()), (3, 3));
        usage.minute_ended();
        assert_eq!(turns(usage.recent()), (4, 7));
        for _ in 0..59 {
            usage.minute_ended();
        }
        assert_eq!(turns(usage.recent()), (0, 4), "the first minute is more than an hour ago");
        usage.minute_ended();
        assert_eq!(turns(usage.recent()), (0, 0));
        assert_eq!(usage.totals().get(Count::Turns), 7);
        assert_eq!(usage.minutes.lock().unwrap().len(), KEPT);
    }
}
