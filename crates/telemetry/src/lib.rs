//! Telemetry: typed metric handles, span names and fields, GPU load.
//!
//! `server` creates one [`Metrics`] and passes clones to its sessions; engines never record. This crate never makes
//! domain decisions and never performs IO, except for [`gpu`], which queries the graphics driver. There is no global
//! recorder, so two servers in one process have separate metrics.

mod causes;
mod config;
mod exposition;
mod family;
pub mod gpu;
mod names;
mod registry;
pub mod span;
mod totals;

pub use causes::with_causes;
pub use config::TelemetryConfig;
pub use exposition::Exposition;
pub use family::Family;
pub use names::{Endpoint, Outcome, Stage};
pub use totals::Totals;

use registry::{Registry, Series};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The metrics that are recorded. Cheap to clone. Recording never blocks; metrics whose labels are known beforehand take no lock.
#[derive(Clone)]
pub struct Metrics(Arc<Handles>);

struct Handles {
    registry: Registry,
    sessions_active: Series,
    sessions: Series,
    sessions_rejected: Series,
    turns: Series,
    responses: [Series; Outcome::ALL.len()],
    stages: [Series; Stage::ALL.len()],
    barge_ins: Series,
    held: Series,
    backchannels: Series,
    ignored_speech: Series,
    bytes_in: Series,
    bytes_out: Series,
    underruns: Series,
    stt_waiting: Series,
    tts_waiting: Series,
    /// Microseconds, of which the metric counts whole milliseconds.
    speculation_wasted_us: AtomicU64,
}

impl Metrics {
    /// All metrics, at zero.
    pub fn new() -> Self {
        let registry = Registry::new(&names::RECORDED);
        // Exported from the start, at zero.
        for outcome in ["confirmed", "resumed", "changed"] {
            registry.series(&names::SPECULATIVE_RESPONSES, &[outcome]);
        }
        registry.series(&names::SPECULATION_WASTED, &[]);
        for stage in ["stt", "tts"] {
            registry.series(&names::COMPUTE, &[stage, "cpu", "none"]);
        }
        for stage in ["llm", "tts", "none"] {
            for code in ["response_failed", "engine_unavailable"] {
                registry.series(&names::FAILED_RESPONSES, &[code, stage]);
            }
        }
        for endpoint in Endpoint::ALL {
            for outcome in names::REQUEST_OUTCOMES {
                registry.series(&names::REQUESTS, &[endpoint.as_str(), outcome]);
            }
            registry.series(&names::REQUEST_DURATION, &[endpoint.as_str()]);
        }
        let handles = Handles {
            sessions_active: registry.series(&names::SESSIONS_ACTIVE, &[]),
            sessions: registry.series(&names::SESSIONS, &[]),
            sessions_rejected: registry.series(&names::SESSIONS_REJECTED, &[]),
            turns: registry.series(&names::TURNS, &[]),
            responses: Outcome::ALL.map(|outcome| registry.series(&names::RESPONSES, &[outcome.as_str()])),
            stages: Stage::ALL.map(|stage| registry.series(&names::LATENCY, &[stage.as_str()])),
            barge_ins: registry.series(&names::BARGE_INS, &[]),
            held: registry.series(&names::HELD, &[]),
            backchannels: registry.series(&names::BACKCHANNELS, &[]),
            ignored_speech: registry.series(&names::IGNORED_SPEECH, &[]),
            bytes_in: registry.series(&names::BYTES_IN, &[]),
            bytes_out: registry.series(&names::BYTES_OUT, &[]),
            underruns: registry.series(&names::UNDERRUNS, &[]),
            stt_waiting: registry.series(&names::STT_WAITING, &[]),
            tts_waiting: registry.series(&names::TTS_WAITING, &[]),
            speculation_wasted_us: AtomicU64::new(0),
            registry,
        };
        Self(Arc::new(handles))
    }

    /// Increments the number of active sessions; dropping the guard decrements it.
    pub fn session(&self) -> ActiveSession {
        self.0.sessions.add(1);
        self.0.sessions_active.add(1);
        ActiveSession(self.0.sessions_active.clone())
    }

    /// Records a session that was rejected.
    pub fn session_rejected(&self) {
        self.0.sessions_rejected.add(1);
    }

    /// Records the end of a user turn.
    pub fn turn(&self) {
        self.0.turns.add(1);
    }

    /// Records the end of a response.
    pub fn response(&self, outcome: Outcome) {
        self.0.responses[outcome as usize].add(1);
    }

    /// Records an error sent to a client. `code` must be one of the protocol's fixed codes, never external text.
    pub fn error(&self, code: &'static str) {
        self.0.registry.series(&names::ERRORS, &[code]).add(1);
    }

    /// Records a failed response, whose error its client reads in it. `code` as in [`Self::error`]; `stage` is llm, tts or none.
    pub fn failed_response(&self, code: &'static str, stage: &'static str) {
        self.0.registry.series(&names::FAILED_RESPONSES, &[code, stage]).add(1);
        self.error(code);
    }

    /// Records the latency of a stage.
    pub fn latency(&self, stage: Stage, took: Duration) {
        self.0.stages[stage as usize].observe(took);
    }

    /// Records the end of a speech API request; `outcome` is ok, refused, overloaded, failed or cancelled.
    pub fn request(&self, endpoint: Endpoint, outcome: &'static str, took: Duration) {
        let registry = &self.0.registry;
        registry.series(&names::REQUESTS, &[endpoint.as_str(), outcome]).add(1);
        registry.series(&names::REQUEST_DURATION, &[endpoint.as_str()]).observe(took);
    }

    /// Records a barge-in: speech stopped a response.
    pub fn barge_in(&self) {
        self.0.barge_ins.add(1);
    }

    /// Records `n` underruns during the playback of a response.
    pub fn underruns(&self, n: u32) {
        self.0.underruns.add(u64::from(n));
    }

    /// The totals so far.
    pub fn totals(&self) -> Totals {
        let registry = &self.0.registry;
        Totals {
            turns: self.0.turns.value(),
            responses: registry.total(&names::RESPONSES),
            errors: registry.total(&names::ERRORS),
            barge_ins: self.0.barge_ins.value(),
            speculative_responses: registry.total(&names::SPECULATIVE_RESPONSES),
            speculative_responses_confirmed: registry.series(&names::SPECULATIVE_RESPONSES, &["confirmed"]).value(),
            speculation_wasted: Duration::from_micros(self.0.speculation_wasted_us.load(Ordering::Relaxed)),
        }
    }

    /// Records that a response was paused because speech may have started.
    pub fn held(&self) {
        self.0.held.add(1);
    }

    /// A reply went on after a backchannel, or a sound without words.
    pub fn backchannel(&self) {
        self.0.backchannels.add(1);
    }

    /// Speech of another voice than the user's was left out.
    pub fn speech_ignored(&self) {
        self.0.ignored_speech.add(1);
    }

    /// Records the outcome of a speculative response; `wasted` is the time spent on it if it was discarded.
    pub fn speculation(&self, outcome: &'static str, wasted: Duration) {
        let registry = &self.0.registry;
        registry.series(&names::SPECULATIVE_RESPONSES, &[outcome]).add(1);
        registry.series(&names::SPECULATION_WASTED, &[]).add(wasted.as_millis() as u64);
        self.0.speculation_wasted_us.fetch_add(wasted.as_micros() as u64, Ordering::Relaxed);
    }

    /// Adds busy time of an engine. `kind` is cpu or gpu; `waste` says why it was of no use: none, speculation or unheard. A
    /// series begins with its first value; each value is rounded to a millisecond.
    pub fn compute(&self, stage: &'static str, kind: &'static str, waste: &'static str, took: Duration) {
        if !took.is_zero() {
            let ms = (took.as_micros() + 500) as u64 / 1_000;
            self.0.registry.series(&names::COMPUTE, &[stage, kind, waste]).add(ms);
        }
    }

    /// Adds to the bytes of messages received.
    pub fn bytes_in(&self, n: u64) {
        self.0.bytes_in.add(n);
    }

    /// Adds to the bytes of messages sent.
    pub fn bytes_out(&self, n: u64) {
        self.0.bytes_out.add(n);
    }

    /// Sets the slots of a speech language model, all of them and those in use. An engine without slots has no such gauges.
    pub fn tts_slots(&self, all: usize, in_use: usize) {
        self.0.registry.series(&names::TTS_SLOTS, &[]).set(all as u64);
        self.0.registry.series(&names::TTS_SLOTS_IN_USE, &[]).set(in_use as u64);
    }

    /// Sets the number of utterances waiting for a decoder, and of chunks waiting for a TTS engine.
    pub fn waiting(&self, stt: usize, tts: usize) {
        self.0.stt_waiting.set(stt as u64);
        self.0.tts_waiting.set(tts as u64);
        self.queue("stt", stt);
        self.queue("tts", tts);
    }

    /// Sets the depth of a queue.
    pub fn queue(&self, queue: &'static str, depth: usize) {
        self.0.registry.series(&names::QUEUE_DEPTH, &[queue]).set(depth as u64);
    }

    /// All metrics in Prometheus' text format, for `/metrics`. Takes well under a millisecond.
    pub fn render(&self) -> String {
        self.0.registry.render()
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

/// Counts one active session; dropping it decrements the count.
#[must_use = "dropping it counts the session out"]
pub struct ActiveSession(Series);

impl Drop for ActiveSession {
    fn drop(&mut self) {
        self.0.subtract(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value of the line that starts with `series`.
    fn value(text: &str, series: &str) -> Option<f64> {
        text.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
    }

    #[test]
    fn counts_what_happened() {
        let metrics = Metrics::new();
        let session = metrics.session();
        drop(metrics.session());
        metrics.session_rejected();
        metrics.response(Outcome::Cancelled);
        metrics.error("invalid_value");
        metrics.error("invalid_value");
        metrics.bytes_in(960);
        let text = metrics.render();
        assert_eq!(value(&text, "antiphon_sessions_active "), Some(1.0), "{text}");
        assert_eq!(value(&text, "antiphon_sessions_total "), Some(2.0));
        assert_eq!(value(&text, "antiphon_sessions_rejected_total "), Some(1.0));
        assert_eq!(value(&text, "antiphon_responses_total{outcome=\"cancelled\"} "), Some(1.0));
        assert_eq!(value(&text, "antiphon_responses_total{outcome=\"completed\"} "), Some(0.0));
        let failed = "antiphon_failed_responses_total{code=\"engine_unavailable\",stage=\"llm\"} ";
        assert_eq!(value(&text, failed), Some(0.0), "a rate needs the zero before the first failure");
        assert_eq!(value(&text, "antiphon_errors_total{code=\"invalid_value\"} "), Some(2.0));
        assert_eq!(value(&text, "antiphon_bytes_in_total "), Some(960.0));
        drop(session);
        assert_eq!(value(&metrics.render(), "antiphon_sessions_active "), Some(0.0));
    }

    #[test]
    fn latencies_are_histograms() {
        let metrics = Metrics::new();
        for _ in 0..768 {
            metrics.latency(Stage::VoiceToVoice, Duration::from_millis(320));
        }
        let text = metrics.render();
        let bucket = |le: &str| format!("antiphon_latency_seconds_bucket{{stage=\"voice_to_voice\",le=\"{le}\"}} ");
        assert_eq!(value(&text, &bucket("0.3")), Some(0.0), "{text}");
        assert_eq!(value(&text, &bucket("0.4")), Some(768.0));
        assert_eq!(value(&text, "antiphon_latency_seconds_count{stage=\"voice_to_voice\"} "), Some(768.0));
    }

    #[test]
    fn totals_are_those_of_all_series() {
        let metrics = Metrics::new();
        metrics.response(Outcome::Completed);
        metrics.response(Outcome::Failed);
        metrics.failed_response("response_failed", "llm");
        metrics.speculation("confirmed", Duration::ZERO);
        metrics.speculation("changed", Duration::from_micros(1_500));
        let expect = Totals {
            responses: 2,
            errors: 1,
            speculative_responses: 2,
            speculative_responses_confirmed: 1,
            speculation_wasted: Duration::from_micros(1_500),
            ..Totals::default()
        };
        assert_eq!(metrics.totals(), expect);
    }

    #[test]
    fn everything_counted_is_described() {
        let metrics = Metrics::new();
        metrics.error("x");
        let text = metrics.render();
        for line in text.lines().filter(|line| line.starts_with("# TYPE ")) {
            let name = line.split(' ').nth(2).expect("a name");
            assert!(text.contains(&format!("# HELP {name} ")), "{name}");
        }
    }

    #[test]
    fn two_servers_count_apart() {
        let a = Metrics::new();
        let b = Metrics::new();
        a.turn();
        assert_eq!(value(&b.render(), "antiphon_turns_total "), Some(0.0));
    }
}
