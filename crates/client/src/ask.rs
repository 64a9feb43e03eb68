//! Asks one spoken question in real time and collects the response with its latency.

use super::connection::{AudioMode, Connection, Sender};
use super::error::ClientError;
use super::event::{Event, Problem, ReceivedMessage, ResponseInfo};
use super::microphone::Microphone;
use super::reply::Reply;
use super::resume::Checkpoints;
use crate::RATE;
use antiphon_types::{ItemId, Pcm};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout};

/// Interval of playback reports in the binary modes.
const REPORT_EVERY: Duration = Duration::from_millis(100);
/// In the binary modes audio arrives after `response.done`, in real time. After its end this long is left for another response.
const QUIET: Duration = Duration::from_millis(700);
/// How long after the response a transcript may arrive. Servers without transcription never send one.
const TRANSCRIPT_GRACE: Duration = Duration::from_secs(2);

/// Options for a question.
#[derive(Clone, Debug)]
pub struct AskOptions {
    /// A `session` object for `session.update`, sent first; other servers need it to enable transcription.
    pub session: Option<Value>,
    /// Timeout for the start of the session.
    pub greeting_deadline: Duration,
    /// Timeout for the complete response, from the end of the recording.
    pub answer_deadline: Duration,
}

impl Default for AskOptions {
    fn default() -> Self {
        Self { session: None, greeting_deadline: Duration::from_secs(10), answer_deadline: Duration::from_secs(60) }
    }
}

/// The result of a question.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Transcript of the question; several utterances are joined by spaces.
    pub transcript: String,
    /// Text of the response.
    pub text: String,
    /// Status of the last response: `completed` or `incomplete`.
    pub status: String,
    /// Why the answer is not whole; `None` if it is.
    pub cut: Option<String>,
    /// Audio of the response: mono at 24 kHz.
    pub reply: Pcm,
    /// Time from sending the last loud sample (above 5 % of the recording's peak) to the playback of the first response
    /// sample above -50 dBFS; `None` for a silent response, or one that started before the question ended.
    pub voice_to_voice: Option<Duration>,
    /// Client-side events with their times in milliseconds from the last loud sample sent, in order; negative before
    /// it.
    pub seen: Vec<(&'static str, f64)>,
    /// The server's timeline of the last turn (`antiphon.timeline`), in milliseconds from the end of speech.
    pub marks: BTreeMap<String, f64>,
}

/// Why a question was not answered, and what there is of the answer.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct AskError {
    /// Why.
    #[source]
    pub error: ClientError,
    /// What was understood and answered before; its [`Answer::cut`] is the error. `None`: nothing was.
    pub so_far: Option<Box<Answer>>,
}

impl From<ClientError> for AskError {
    fn from(error: ClientError) -> Self {
        Self { error, so_far: None }
    }
}

/// Speaks `question` in real time and waits for the end of the response.
///
/// If the connection was opened to be resumed ([`super::ConnectOptions::resume`]) and is lost, the session is resumed
/// and the answer is the same as without the loss. Takes as long as the recording and the response. Dropping the future
/// stops immediately and closes the socket. An error has what came before it ([`AskError::so_far`]). Fails with [`ClientError::Server`] on an `error` event, with the response's
/// error if the response fails, with [`ClientError::BrokeOff`] if the connection ends before the sound is complete, and with
/// [`ClientError::TimedOut`] if the server does not respond. What is not whole for other reasons says so ([`Answer::cut`]).
pub async fn ask(mut connection: Connection, question: &Pcm, options: &AskOptions) -> Result<Answer, AskError> {
    let mut microphone = Microphone::new(antiphon_audio::convert(&question.samples, question.rate, RATE))?;
    greet(&mut connection, options).await?;
    let mut turn = Turn::new(connection.sender.mode());
    match converse(&mut connection, &mut microphone, &mut turn, options).await {
        Ok(()) => Ok(turn.answer(&microphone)),
        Err(error) if turn.has_begun() => {
            let so_far = Answer { cut: Some(error.to_string()), ..turn.answer(&microphone) };
            Err(AskError { error, so_far: Some(Box::new(so_far)) })
        }
        Err(error) => Err(error.into()),
    }
}

/// Speaks and listens until the answer has ended.
async fn converse(
    connection: &mut Connection,
    microphone: &mut Microphone,
    turn: &mut Turn,
    options: &AskOptions,
) -> Result<(), ClientError> {
    let mut checkpoints = Checkpoints::default();
    let deadline = Instant::now() + microphone.duration() + options.answer_deadline;
    loop {
        tokio::select! {
            biased;
            () = sleep_until(deadline) => {
                return Err(ClientError::TimedOut { what: turn.awaited(), after: options.answer_deadline });
            }
            () = microphone.due() => {
                microphone.step(&mut connection.sender).await?;
                turn.report(&mut connection.sender).await?;
            }
            received = connection.receiver.next() => match received.map_err(|error| turn.broke_off(error))? {
                ReceivedMessage::Resumed(resumed) => {
                    if let Some(number) = resumed.back_to {
                        // Without a state the checkpoint is older than the turn.
                        let past = checkpoints.back_to(number).unwrap_or_else(|| Turn::new(turn.mode));
                        turn.go_back(past);
                    }
                    turn.resume(Instant::now());
                }
                ReceivedMessage::Event(Event::SessionCheckpoint { .. }) => {
                    checkpoints.mark(connection.receiver.n_received(), turn.clone());
                }
                received => turn.take(received, Instant::now())?,
            },
        }
        if microphone.is_over() && !connection.receiver.is_away() && turn.is_over(Instant::now()) {
            connection.sender.close().await;
            return Ok(());
        }
    }
}

async fn greet(connection: &mut Connection, options: &AskOptions) -> Result<(), ClientError> {
    let greeting = async {
        wait_for(connection, |event| matches!(event, Event::SessionCreated {})).await?;
        if let Some(session) = &options.session {
            let update = serde_json::json!({"type": "session.update", "session": session});
            connection.sender.event(&update).await?;
            wait_for(connection, |event| matches!(event, Event::SessionUpdated {})).await?;
        }
        Ok(())
    };
    let late = ClientError::TimedOut { what: "the session's beginning", after: options.greeting_deadline };
    timeout(options.greeting_deadline, greeting).await.unwrap_or(Err(late))
}

async fn wait_for(connection: &mut Connection, wanted: impl Fn(&Event) -> bool) -> Result<(), ClientError> {
    loop {
        match connection.receiver.next().await? {
            ReceivedMessage::Event(Event::Error { error }) => return Err(said(error)),
            ReceivedMessage::Event(event) if wanted(&event) => return Ok(()),
            _ => {}
        }
    }
}

fn said(problem: Problem) -> ClientError {
    ClientError::Server { code: problem.code, message: problem.message.unwrap_or_else(|| "an error".into()) }
}

/// State of the turn so far. Clones share the samples of the reply.
#[derive(Clone)]
struct Turn {
    mode: AudioMode,
    transcripts: Vec<String>,
    text: String,
    reply: Reply,
    /// The last response; `None` before the first one and after speech cancelled one.
    response: Option<ResponseInfo>,
    n_responses: usize,
    /// When the response was done.
    done: Option<Instant>,
    /// Number of committed items without a transcript.
    untranscribed: usize,
    last_audio: Option<Instant>,
    /// The item whose sound has begun and not ended. Only the binary modes say when it ends.
    sounding: Option<String>,
    /// The server has discarded sound of the response that was not played yet.
    is_cleared: bool,
    reported: Option<Instant>,
    seen: Vec<(&'static str, Instant)>,
    marks: BTreeMap<String, f64>,
}

impl Turn {
    fn new(mode: AudioMode) -> Self {
        Self {
            mode,
            transcripts: Vec::new(),
            text: String::new(),
            reply: Reply::default(),
            response: None,
            n_responses: 0,
            done: None,
            untranscribed: 0,
            last_audio: None,
            sounding: None,
            is_cleared: false,
            reported: None,
            seen: Vec::new(),
            marks: BTreeMap::new(),
        }
    }

    fn take(&mut self, received: ReceivedMessage, now: Instant) -> Result<(), ClientError> {
        match received {
            ReceivedMessage::Audio { item_id, samples } => {
                self.last_audio = Some(now);
                self.sounding = Some(item_id.clone()).filter(|_| self.mode != AudioMode::Ga);
                self.reply.take(&item_id, &samples, now);
            }
            ReceivedMessage::Event(event) => self.take_event(event, now)?,
            ReceivedMessage::Resumed(_) => self.resume(now),
        }
        Ok(())
    }

    fn take_event(&mut self, event: Event, now: Instant) -> Result<(), ClientError> {
        match event {
            Event::SpeechStarted { .. } => self.see("speech_started", now),
            Event::SpeechStopped { .. } => self.see("speech_stopped", now),
            Event::Committed { .. } => self.untranscribed += 1,
            Event::TranscriptionCompleted { transcript, .. } => {
                self.see("transcript", now);
                self.untranscribed = self.untranscribed.saturating_sub(1);
                self.transcripts.extend(Some(transcript).filter(|words| !words.is_empty()));
            }
            Event::TranscriptionFailed { error, .. } => return Err(said(error)),
            Event::ResponseCreated { response } => {
                self.see("response_created", now);
                // A later response replaces the one before it.
                self.text.clear();
                self.reply = Reply::default();
                self.sounding = None;
                self.is_cleared = false;
                self.response = Some(response);
                self.n_responses += 1;
                self.done = None;
            }
            Event::TranscriptDelta { delta, .. } | Event::TextDelta { delta, .. } => {
                self.see("first_text", now);
                self.text.push_str(&delta);
            }
            Event::ResponseDone { response } => self.take_done(response, now)?,
            Event::Held { .. } => self.reply.hold(now),
            Event::Resumed { .. } => self.reply.resume(now),
            Event::AudioSent { item_id } => self.sounding = self.sounding.take().filter(|item| *item != item_id),
            Event::Cleared {} => {
                self.is_cleared = !self.reply.remaining(now).is_zero() || self.sounding.is_some();
                self.sounding = None;
                self.reply.clear(now);
            }
            Event::Timeline { marks } => self.marks = marks,
            Event::Error { error } => return Err(said(error)),
            _ => {}
        }
        Ok(())
    }

    /// The session was resumed at `now`: only from here on a missing frame means that the audio has ended.
    fn resume(&mut self, now: Instant) {
        self.last_audio = Some(now);
    }

    /// What happened after `past` is void. If that was a response, there will be another one, since the speech that it
    /// answered is sent again.
    fn go_back(&mut self, past: Self) {
        let is_answered = past.n_responses == self.n_responses;
        *self = past;
        self.done = self.done.filter(|_| is_answered);
    }

    fn take_done(&mut self, response: ResponseInfo, now: Instant) -> Result<(), ClientError> {
        self.see("response_done", now);
        if self.response.as_ref().is_some_and(|current| current.id != response.id) {
            return Ok(());
        }
        if response.status == "failed" {
            return Err(said(response.status_details.and_then(|details| details.error).unwrap_or_default()));
        }
        // The rest of the question cancelled it: another response will follow.
        self.response = (response.status != "cancelled").then_some(response);
        self.done = self.response.as_ref().map(|_| now);
        Ok(())
    }

    /// Records the time of an event; for repeated events, the last time, except for the first text.
    fn see(&mut self, what: &'static str, now: Instant) {
        if what == "first_text" && !self.text.is_empty() {
            return;
        }
        self.seen.retain(|(seen, _)| *seen != what);
        self.seen.push((what, now));
    }

    async fn report(&mut self, sender: &mut Sender) -> Result<(), ClientError> {
        let now = Instant::now();
        let due = self.reported.is_none_or(|last| now - last >= REPORT_EVERY);
        if self.mode == AudioMode::Ga || !due {
            return Ok(());
        }
        if let Some((item_id, heard)) = self.reply.heard(now) {
            sender.played(&ItemId::from(item_id), heard.as_ms(RATE)).await?;
            self.reported = Some(now);
        }
        Ok(())
    }

    fn is_over(&self, now: Instant) -> bool {
        let Some(done) = self.done else { return false };
        let quiet = self.mode == AudioMode::Ga || self.last_audio.is_none_or(|last| now - last >= QUIET);
        // A server that pauses, as before its session moves, is silent too.
        quiet && self.sounding.is_none() && (self.untranscribed == 0 || now - done >= TRANSCRIPT_GRACE)
    }

    /// The error of a connection that ended: of an answer that has begun, how much of it there is.
    fn broke_off(&self, error: ClientError) -> ClientError {
        if self.response.is_none() {
            return error;
        }
        ClientError::BrokeOff { after: self.reply.duration(), source: Box::new(error) }
    }

    /// Why the answer is not whole.
    fn cut(&self) -> Option<String> {
        let response = self.response.as_ref().filter(|response| response.status != "completed");
        if let Some(response) = response {
            let reason = response.status_details.as_ref().and_then(|details| details.reason.as_deref());
            let reason = reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
            return Some(format!("the response is {}, not completed{reason}", response.status));
        }
        self.is_cleared.then(|| "the server stopped the playback before its end".to_owned())
    }

    /// Whether anything was understood or answered.
    fn has_begun(&self) -> bool {
        !self.transcripts.is_empty() || !self.text.is_empty() || self.last_audio.is_some()
    }

    /// What the client was waiting for when a timeout expired.
    fn awaited(&self) -> &'static str {
        let saw = |what| self.seen.iter().any(|(seen, _)| *seen == what);
        match (saw("speech_started"), saw("speech_stopped"), self.response.is_some()) {
            (false, ..) => "being heard (the server noticed no speech)",
            (_, false, _) => "the end of the turn (the server heard speech, but no end of it)",
            (.., false) => "the response",
            _ => "the end of the response",
        }
    }

    fn answer(mut self, microphone: &Microphone) -> Answer {
        // An error may come before the recording was sent.
        let spoken = microphone.loud_sent().unwrap_or_else(Instant::now);
        let from_spoken = |at: Instant| match at.checked_duration_since(spoken) {
            Some(after) => after.as_secs_f64() * 1e3,
            None => -(spoken - at).as_secs_f64() * 1e3,
        };
        self.seen.extend(self.reply.first().map(|at| ("first_audio", at)));
        self.seen.extend(self.reply.audible().map(|at| ("audible", at)));
        self.seen.sort_by_key(|(_, at)| *at);
        let cut = self.cut();
        Answer {
            cut,
            transcript: self.transcripts.join(" "),
            text: self.text,
            status: self.response.map(|response| response.status).unwrap_or_default(),
            voice_to_voice: self.reply.audible().and_then(|at| at.checked_duration_since(spoken)),
            seen: self.seen.into_iter().map(|(what, at)| (what, from_spoken(at))).collect(),
            marks: self.marks,
            reply: Pcm { rate: RATE, samples: self.reply.into_samples() },
        }
    }
}

#[cfg(test)]
#[path = "ask_tests.rs"]
mod tests;
