//! Telemetry: typed metric handles, span names and fields, GPU load.
//!
//! `server` creates one [`Metrics`] and passes clones to its sessions; engines never record. This crate never makes
//! domain decisions and never performs IO, except for [`gpu`], which queries the graphics driver. There is no global
//! recorder, so two servers in one process have separate metrics.

mod causes;
mod config;
mod exposition;
pub mod gpu;
mod names;
pub mod span;
mod totals;

pub use causes::with_causes;
pub use config::TelemetryConfig;
pub use exposition::Exposition;
pub use names::{Endpoint, Outcome, Stage};
pub use totals::Totals;

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Label, Level, Metadata, Recorder, Unit};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use totals::{Counters, count};

/// The metric handles, created once. Cheap to clone; recording takes no lock and never blocks.
#[derive(Clone)]
pub struct Metrics(Arc<Handles>);

struct Handles {
    recorder: PrometheusRecorder,
    prometheus: PrometheusHandle,
    sessions_active: Gauge,
    sessions: Counter,
    sessions_rejected: Counter,
    turns: Counter,
    responses: [Counter; Outcome::ALL.len()],
    stages: [Histogram; Stage::ALL.len()],
    barge_ins: Counter,
    held: Counter,
    backchannels: Counter,
    bytes_in: Counter,
    bytes_out: Counter,
    underruns: Counter,
    stt_waiting: Gauge,
    tts_waiting: Gauge,
    counted: Counters,
    n_observed: AtomicU64,
}

/// Upper bounds of the latency histogram buckets, in seconds; fine between 50 ms and 1 s, which matters in a
/// conversation.
const BUCKETS: [f64; 18] =
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.65, 0.8, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0];

/// Bucket bounds for requests of the speech API, in seconds; a request lasts as long as its audio.
const REQUEST_BUCKETS: [f64; 16] =
    [0.025, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0];

/// The recorder keeps every observation until it is scraped or maintained, and it may never be scraped. Maintenance
/// after this many observations bounds the memory without a timer.
const TIDY_EVERY: u64 = 256;

const METADATA: Metadata<'static> = Metadata::new("antiphon", Level::INFO, None);

impl Metrics {
    /// All metrics, at zero.
    pub fn new() -> Self {
        let recorder = PrometheusBuilder::new()
            .set_buckets_for_metric(Matcher::Full(names::LATENCY.into()), &BUCKETS)
            .expect("there are buckets")
            .set_buckets_for_metric(Matcher::Full(names::REQUEST_DURATION.into()), &REQUEST_BUCKETS)
            .expect("there are buckets")
            .build_recorder();
        names::describe(&recorder);
        // Exported from the start, at zero.
        for outcome in ["confirmed", "resumed", "changed"] {
            let _ = labelled(&recorder, names::SPECULATIVE_RESPONSES, "outcome", outcome);
        }
        let _ = counter(&recorder, names::SPECULATION_WASTED);
        for stage in ["stt", "tts"] {
            let _ = compute(&recorder, [("stage", stage), ("kind", "cpu"), ("waste", "none")]);
        }
        for stage in ["llm", "tts", "none"] {
            let _ = failed_responses(&recorder, "response_failed", stage);
        }
        for endpoint in Endpoint::ALL {
            for outcome in names::REQUEST_OUTCOMES {
                let _ = requests(&recorder, endpoint, outcome);
            }
            let _ = request_duration(&recorder, endpoint);
        }
        let handles = Handles {
            prometheus: recorder.handle(),
            sessions_active: recorder.register_gauge(&Key::from_static_name(names::SESSIONS_ACTIVE), &METADATA),
            sessions: counter(&recorder, names::SESSIONS),
            sessions_rejected: counter(&recorder, names::SESSIONS_REJECTED),
            turns: counter(&recorder, names::TURNS),
            responses: Outcome::ALL.map(|outcome| labelled(&recorder, names::RESPONSES, "outcome", outcome.as_str())),
            stages: Stage::ALL.map(|stage| {
                let labels = vec![Label::from_static_parts("stage", stage.as_str())];
                recorder.register_histogram(&Key::from_parts(names::LATENCY, labels), &METADATA)
            }),
            barge_ins: counter(&recorder, names::BARGE_INS),
            held: counter(&recorder, names::HELD),
            backchannels: counter(&recorder, names::BACKCHANNELS),
            bytes_in: counter(&recorder, names::BYTES_IN),
            bytes_out: counter(&recorder, names::BYTES_OUT),
            stt_waiting: recorder.register_gauge(&Key::from_static_name(names::STT_WAITING), &METADATA),
            tts_waiting: recorder.register_gauge(&Key::from_static_name(names::TTS_WAITING), &METADATA),
            underruns: counter(&recorder, names::UNDERRUNS),
            counted: Counters::default(),
            n_observed: AtomicU64::new(0),
            recorder,
        };
        Self(Arc::new(handles))
    }

    /// Increments the number of active sessions; dropping the guard decrements it.
    pub fn session(&self) -> ActiveSession {
        self.0.sessions.increment(1);
        self.0.sessions_active.increment(1.0);
        ActiveSession(self.0.sessions_active.clone())
    }

    /// Records a session that was rejected because the server is full.
    pub fn session_rejected(&self) {
        self.0.sessions_rejected.increment(1);
    }

    /// Records the end of a user turn.
    pub fn turn(&self) {
        self.0.turns.increment(1);
        count(&self.0.counted.turns);
    }

    /// Records the end of a response.
    pub fn response(&self, outcome: Outcome) {
        self.0.responses[outcome as usize].increment(1);
        count(&self.0.counted.responses);
    }

    /// Records an error sent to a client. `code` must be one of the protocol's fixed codes, never external text.
    pub fn error(&self, code: &'static str) {
        labelled(&self.0.recorder, names::ERRORS, "code", code).increment(1);
        count(&self.0.counted.errors);
    }

    /// Records a failed response, whose error its client reads in it. `code` as in [`Self::error`]; `stage` is llm, tts or none.
    pub fn failed_response(&self, code: &'static str, stage: &'static str) {
        failed_responses(&self.0.recorder, code, stage).increment(1);
        self.error(code);
    }

    /// Records the latency of a stage.
    pub fn latency(&self, stage: Stage, took: Duration) {
        self.0.stages[stage as usize].record(took.as_secs_f64());
        self.observed();
    }

    /// Records the end of a speech API request; `outcome` is ok, refused, overloaded, failed or cancelled.
    pub fn request(&self, endpoint: Endpoint, outcome: &'static str, took: Duration) {
        requests(&self.0.recorder, endpoint, outcome).increment(1);
        request_duration(&self.0.recorder, endpoint).record(took.as_secs_f64());
        self.observed();
    }

    fn observed(&self) {
        if self.0.n_observed.fetch_add(1, Ordering::Relaxed) % TIDY_EVERY == TIDY_EVERY - 1 {
            self.0.prometheus.run_upkeep();
        }
    }

    /// Records a barge-in: speech stopped a response.
    pub fn barge_in(&self) {
        self.0.barge_ins.increment(1);
        count(&self.0.counted.barge_ins);
    }

    /// Records `n` underruns during the playback of a response.
    pub fn underruns(&self, n: u32) {
        self.0.underruns.increment(u64::from(n));
    }

    /// The totals so far.
    pub fn totals(&self) -> Totals {
        self.0.counted.totals()
    }

    /// Records that a response was paused because speech may have started.
    pub fn held(&self) {
        self.0.held.increment(1);
    }

    /// A reply went on after a backchannel, or a sound without words.
    pub fn backchannel(&self) {
        self.0.backchannels.increment(1);
    }

    /// Records the outcome of a speculative response; `wasted` is the time spent on it if it was discarded.
    pub fn speculation(&self, outcome: &'static str, wasted: Duration) {
        labelled(&self.0.recorder, names::SPECULATIVE_RESPONSES, "outcome", outcome).increment(1);
        counter(&self.0.recorder, names::SPECULATION_WASTED).increment(wasted.as_millis() as u64);
        let counted = &self.0.counted;
        count(&counted.speculative_responses);
        counted.speculation_wasted_us.fetch_add(wasted.as_micros() as u64, Ordering::Relaxed);
        if outcome == "confirmed" {
            count(&counted.speculative_responses_confirmed);
        }
    }

    /// Adds busy time of an engine. `kind` is cpu or gpu; `waste` says why it was of no use: none, speculation or unheard. A
    /// series begins with its first value; each value is rounded to a millisecond.
    pub fn compute(&self, stage: &'static str, kind: &'static str, waste: &'static str, took: Duration) {
        if !took.is_zero() {
            let ms = (took.as_micros() + 500) as u64 / 1_000;
            compute(&self.0.recorder, [("stage", stage), ("kind", kind), ("waste", waste)]).increment(ms);
        }
    }

    /// Adds to the bytes of messages received.
    pub fn bytes_in(&self, n: u64) {
        self.0.bytes_in.increment(n);
    }

    /// Adds to the bytes of messages sent.
    pub fn bytes_out(&self, n: u64) {
        self.0.bytes_out.increment(n);
    }

    /// Sets the slots of a speech language model, all of them and those in use. An engine without slots has no such gauges.
    pub fn tts_slots(&self, all: usize, in_use: usize) {
        for (name, n) in [(names::TTS_SLOTS, all), (names::TTS_SLOTS_IN_USE, in_use)] {
            self.0.recorder.register_gauge(&Key::from_static_name(name), &METADATA).set(n as f64);
        }
    }

    /// Sets the number of utterances waiting for a decoder, and of chunks waiting for a TTS engine.
    pub fn waiting(&self, stt: usize, tts: usize) {
        self.0.stt_waiting.set(stt as f64);
        self.0.tts_waiting.set(tts as f64);
        self.queue("stt", stt);
        self.queue("tts", tts);
    }

    /// Sets the depth of a queue.
    pub fn queue(&self, queue: &'static str, depth: usize) {
        gauge(&self.0.recorder, names::QUEUE_DEPTH, Label::new("queue", queue)).set(depth as f64);
    }

    /// All metrics in Prometheus' text format, for `/metrics`. Takes well under a millisecond.
    pub fn render(&self) -> String {
        self.0.prometheus.render()
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

/// Counts one active session; dropping it decrements the count.
#[must_use = "dropping it counts the session out"]
pub struct ActiveSession(Gauge);

impl Drop for ActiveSession {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}

fn counter(recorder: &PrometheusRecorder, name: &'static str) -> Counter {
    recorder.register_counter(&Key::from_static_name(name), &METADATA)
}

fn compute(recorder: &PrometheusRecorder, labels: [(&'static str, &'static str); 3]) -> Counter {
    let labels = labels.map(|(name, value)| Label::from_static_parts(name, value)).to_vec();
    recorder.register_counter(&Key::from_parts(KeyName::from_const_str(names::COMPUTE), labels), &METADATA)
}

fn labelled(recorder: &PrometheusRecorder, name: &'static str, label: &'static str, value: &'static str) -> Counter {
    let labels = vec![Label::from_static_parts(label, value)];
    recorder.register_counter(&Key::from_parts(KeyName::from_const_str(name), labels), &METADATA)
}

fn gauge(recorder: &PrometheusRecorder, name: &'static str, label: Label) -> Gauge {
    recorder.register_gauge(&Key::from_parts(KeyName::from_const_str(name), vec![label]), &METADATA)
}

fn failed_responses(recorder: &PrometheusRecorder, code: &'static str, stage: &'static str) -> Counter {
    let labels = [("code", code), ("stage", stage)].map(|(name, value)| Label::from_static_parts(name, value));
    recorder.register_counter(
        &Key::from_parts(KeyName::from_const_str(names::FAILED_RESPONSES), labels.to_vec()),
        &METADATA,
    )
}

fn requests(recorder: &PrometheusRecorder, endpoint: Endpoint, outcome: &'static str) -> Counter {
    let labels = [("endpoint", endpoint.as_str()), ("outcome", outcome)]
        .map(|(name, value)| Label::from_static_parts(name, value));
    recorder.register_counter(&Key::from_parts(KeyName::from_const_str(names::REQUESTS), labels.to_vec()), &METADATA)
}

fn request_duration(recorder: &PrometheusRecorder, endpoint: Endpoint) -> Histogram {
    let labels = vec![Label::from_static_parts("endpoint", endpoint.as_str())];
    recorder.register_histogram(&Key::from_parts(names::REQUEST_DURATION, labels), &METADATA)
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
        assert_eq!(value(&text, "antiphon_errors_total{code=\"invalid_value\"} "), Some(2.0));
        assert_eq!(value(&text, "antiphon_bytes_in_total "), Some(960.0));
        drop(session);
        assert_eq!(value(&metrics.render(), "antiphon_sessions_active "), Some(0.0));
    }

    #[test]
    fn latencies_are_histograms_and_none_is_lost_by_tidying() {
        let metrics = Metrics::new();
        for _ in 0..3 * TIDY_EVERY {
            metrics.latency(Stage::VoiceToVoice, Duration::from_millis(320));
        }
        let text = metrics.render();
        let bucket = |le: &str| format!("antiphon_latency_seconds_bucket{{stage=\"voice_to_voice\",le=\"{le}\"}} ");
        assert_eq!(value(&text, &bucket("0.3")), Some(0.0), "{text}");
        assert_eq!(value(&text, &bucket("0.4")), Some(768.0));
        assert_eq!(value(&text, "antiphon_latency_seconds_count{stage=\"voice_to_voice\"} "), Some(768.0));
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
