//! Voice-to-voice latency: how long a user waits for the response, with engines that need no model.
//!
//! The recognizer follows a script ([`super::scripted`]) and costs no time, so that the figures are the hub's own; `real` measures
//! recognizers. On a new session, a flite voice asks a question for the offline assistant in real time, followed by silence; 200 ms
//! of silence end the turn. Latency is measured from the moment the frame with the last loud sample (above 5 % of the
//! clip's peak) was sent, to the playback of the first response sample above -50 dBFS, if playback starts with the
//! first sample received. Questions follow one another with rotating voices. If Silero is installed, the measure is repeated
//! with it.

use super::hub_process::Hub;
use super::noise::best_vad;
use super::questions::{QUESTIONS, SpokenText, VOICES, speak, speaker};
use super::{BenchError, Figure, Measure, Measurement, Plan, Progress, Section, Unit, Waits, name_of};
use antiphon_client::{
    AudioMode, ClientError, ConnectOptions, Connection, Event, Microphone, ReceivedMessage, Reply, connect,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout};

/// Questions of a full run: each of the twelve by two voices.
const N_QUESTIONS: usize = 24;
/// Silence that ends a turn, for which the figures are valid.
pub(super) const SILENCE_MS: u64 = 200;
/// Timeout of a response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(8);

const P50_MS: f64 = 300.0;
const P95_MS: f64 = 500.0;

const STOPPED: &str = "speech_stopped";
const QUIET_LEAD: &str = "quiet_lead";

/// Latency breakdown: events at the client, and the hub's marks (`antiphon.timeline`). The marks count from the end of
/// the last voiced window, which is later than the last loud sample by the hangover of the voice activity detector.
const PARTS: [(&str, &str); 8] = [
    (STOPPED, "last loud sample to speech_stopped"),
    ("end_confirmed", "hub: speech end to its confirmation"),
    ("stt_final", "hub: speech end to transcript"),
    ("llm_first_token", "hub: speech end to first token"),
    ("first_chunk", "hub: speech end to first chunk"),
    ("tts_first_audio", "hub: speech end to first speech"),
    ("first_audio_sent", "hub: speech end to first audio sent"),
    (QUIET_LEAD, "first reply sample to audible one"),
];

/// The result of one question.
#[derive(Default)]
struct Outcome {
    wait: Option<Duration>,
    /// Time from the last loud sample sent to the event that ends the turn.
    stopped: Option<Duration>,
    /// Time from the first response sample played to the first one above -50 dBFS.
    quiet_lead: Option<Duration>,
    text: String,
    transcript: String,
    marks: BTreeMap<String, f64>,
}

pub(super) async fn measure(plan: &Plan, progress: Progress<'_>) -> Result<Measurement, BenchError> {
    let n = plan.turns(N_QUESTIONS);
    progress("voice-to-voice: speaking the questions");
    let questions = questions(n).await?;
    let (plain, mut hub_cpu_s) = asked(plan, "earshot", &questions, progress).await?;
    let mut section = plain.section();
    if best_vad().await?.name() == "silero" {
        let (silero, cpu_s) = asked(plan, "silero", &questions, progress).await?;
        section.percentile("with Silero", &silero.waits, 50.0, None);
        section.percentile("with Silero", &silero.waits, 95.0, None);
        let count = |name: &str, n: usize| Figure::new(name, Unit::Count, n as f64, silero.waits.len());
        section.figures.push(count("with Silero: answered", silero.waits.n_ended()));
        section.figures.push(count("with Silero: as expected", silero.n_right));
        hub_cpu_s += cpu_s;
    }
    Ok(Measurement { section, hub_cpu_s })
}

/// Asks all questions of one hub with this detector; returns the results and the hub's CPU seconds.
async fn asked(
    plan: &Plan,
    vad: &str,
    questions: &[(SpokenText, &'static str)],
    progress: Progress<'_>,
) -> Result<(QuestionResults, f64), BenchError> {
    let hub = Hub::scripted(&plan.hub, vad).await?;
    let mut asked = QuestionResults::default();
    for (i, (question, expect)) in questions.iter().enumerate() {
        progress(&format!("voice-to-voice, {vad}: question {} of {}", i + 1, questions.len()));
        asked.take(question, expect, ask(&hub.url, question).await?);
    }
    let hub_cpu_s = hub.process.cpu_s()?;
    hub.stop().await;
    Ok((asked, hub_cpu_s))
}

/// The results of all questions.
#[derive(Default)]
struct QuestionResults {
    waits: Waits,
    n_right: usize,
    wrong: Vec<String>,
    /// Latency breakdown by name.
    parts: BTreeMap<String, Waits>,
}

async fn questions(n: usize) -> Result<Vec<(SpokenText, &'static str)>, BenchError> {
    let speaker = speaker().await?;
    let mut spoken = Vec::new();
    for i in 0..n {
        let (text, expect) = QUESTIONS[i % QUESTIONS.len()];
        // Shifted by one each round, so that the second round uses another voice.
        let voice = VOICES[(i + i / QUESTIONS.len()) % VOICES.len()];
        spoken.push((speak(&*speaker, text, voice).await?, expect));
    }
    Ok(spoken)
}

impl QuestionResults {
    fn take(&mut self, question: &SpokenText, expect: &str, outcome: Outcome) {
        match outcome.wait {
            Some(wait) => self.waits.push(wait),
            None => self.waits.push_endless(),
        }
        if outcome.text.to_lowercase().contains(expect) {
            self.n_right += 1;
        } else {
            self.wrong.push(format!("{}, {:?}: heard {:?}", question.voice, question.text, outcome.transcript));
        }
        let seen = [(STOPPED, outcome.stopped), (QUIET_LEAD, outcome.quiet_lead)];
        let seen = seen.into_iter().filter_map(|(name, wait)| Some((name.to_owned(), wait?.as_secs_f64() * 1e3)));
        for (part, ms) in outcome.marks.into_iter().chain(seen) {
            self.parts.entry(part).or_default().push_ms(ms);
        }
    }

    fn section(self) -> Section {
        let how = format!(
            "a recognizer that costs no time, questions spoken by flite at real time, {SILENCE_MS} ms of silence end a turn"
        );
        let mut section = Section::new(name_of(Measure::VoiceToVoice), how);
        section.percentile("", &self.waits, 50.0, Some(P50_MS));
        section.percentile("", &self.waits, 95.0, Some(P95_MS));
        section.percentile("", &self.waits, 100.0, None);
        let count = |name: &str, n: usize| Figure::new(name, Unit::Count, n as f64, self.waits.len());
        section.figures.push(count("turns answered", self.waits.n_ended()));
        section.figures.push(count("answered as expected", self.n_right));
        for (part, name) in PARTS {
            if let Some(waits) = self.parts.get(part) {
                section.percentile(name, waits, 50.0, None);
            }
        }
        section.notes = self.wrong.into_iter().map(|wrong| format!("not as expected: {wrong}")).collect();
        section
    }
}

/// Session settings: those the measures need; the rest are defaults.
pub(super) fn session(create_response: bool) -> Value {
    session_with(create_response, SILENCE_MS)
}

/// The same with another silence that ends a turn.
pub(super) fn session_with(create_response: bool, silence_ms: u64) -> Value {
    let vad = json!({
        "type": "server_vad", "silence_duration_ms": silence_ms, "create_response": create_response,
    });
    json!({"type": "session.update", "session": {"type": "realtime", "audio": {"input": {"turn_detection": vad}}}})
}

/// The session of a clip for the recognizer that follows a script.
pub(super) fn scripted_session(create_response: bool, spoken: &SpokenText) -> Value {
    let mut session = session(create_response);
    let script = spoken.script();
    session["session"]["audio"]["input"]["transcription"] = json!({"model": "whisper-1", "prompt": script});
    session
}

/// Opens a session with these settings.
pub(super) async fn open(url: &str, mode: AudioMode, session: &Value) -> Result<Connection, ClientError> {
    open_with(&ConnectOptions { mode, ..ConnectOptions::new(url) }, session).await
}

/// Connects, sends the settings, and waits until the server has applied them.
pub(super) async fn open_with(options: &ConnectOptions, session: &Value) -> Result<Connection, ClientError> {
    let mut connection = connect(options).await?;
    connection.sender.event(session).await?;
    let updated = async {
        loop {
            match connection.receiver.next().await? {
                ReceivedMessage::Event(Event::SessionUpdated {}) => return Ok(()),
                ReceivedMessage::Event(Event::Error { error }) => return Err(server_said(error)),
                _ => {}
            }
        }
    };
    let late = ClientError::TimedOut { what: "the session's beginning", after: RESPONSE_TIMEOUT };
    timeout(RESPONSE_TIMEOUT, updated).await.unwrap_or(Err(late))?;
    Ok(connection)
}

/// Converts an `error` event to an error.
pub(super) fn server_said(problem: antiphon_client::Problem) -> ClientError {
    ClientError::Server { code: problem.code, message: problem.message.unwrap_or_default() }
}

/// Asks one question on a new session and waits until the text of the response is complete and its audio has started.
async fn ask(url: &str, question: &SpokenText) -> Result<Outcome, ClientError> {
    let session = scripted_session(true, question);
    let Connection { mut sender, mut receiver } = open(url, AudioMode::Pcm16, &session).await?;
    let mut microphone = Microphone::new(question.samples.clone())?;
    let mut turn = Turn::default();
    let deadline = Instant::now() + microphone.duration() + RESPONSE_TIMEOUT;
    while !(microphone.is_over() && turn.is_over()) {
        tokio::select! {
            biased;
            () = sleep_until(deadline) => break,
            received = receiver.next() => turn.take(received?, Instant::now())?,
            () = microphone.due() => microphone.step(&mut sender).await?,
        }
    }
    sender.close().await;
    let spoken = microphone.loud_sent();
    let audible = turn.reply.audible();
    // A response that played before the end of the question answers only a part of it and does not count.
    let since = |at: Option<Instant>, from: Option<Instant>| at?.checked_duration_since(from?);
    turn.outcome.wait = since(audible, spoken);
    turn.outcome.stopped = since(turn.stopped, spoken);
    turn.outcome.quiet_lead = since(audible, turn.reply.first());
    Ok(turn.outcome)
}

/// State of the turn so far.
#[derive(Default)]
struct Turn {
    reply: Reply,
    done: bool,
    stopped: Option<Instant>,
    outcome: Outcome,
}

impl Turn {
    fn take(&mut self, received: ReceivedMessage, now: Instant) -> Result<(), ClientError> {
        match received {
            ReceivedMessage::Audio { item_id, samples } => self.reply.take(&item_id, &samples, now),
            ReceivedMessage::Event(Event::Error { error }) => return Err(server_said(error)),
            // A later response replaces the one before it.
            ReceivedMessage::Event(Event::ResponseCreated { .. }) => {
                self.reply = Reply::default();
                self.done = false;
                self.outcome.text.clear();
                self.outcome.marks.clear();
            }
            ReceivedMessage::Event(Event::SpeechStopped { .. }) => self.stopped = Some(now),
            ReceivedMessage::Event(Event::TranscriptDelta { delta, .. }) => self.outcome.text.push_str(&delta),
            ReceivedMessage::Event(Event::TranscriptionCompleted { transcript, .. }) => {
                self.outcome.transcript = format!("{} {transcript}", self.outcome.transcript).trim().to_owned();
            }
            ReceivedMessage::Event(Event::ResponseDone { response }) => self.done = response.status == "completed",
            ReceivedMessage::Event(Event::Timeline { marks }) => self.outcome.marks = marks,
            ReceivedMessage::Event(_) | ReceivedMessage::Resumed(_) => {}
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.done && self.reply.audible().is_some() && !self.outcome.marks.is_empty()
    }
}
