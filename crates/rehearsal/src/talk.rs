//! The talk: one scenario with a server over a WebSocket, in real time; records what both sides did.
//!
//! The microphone never stops: frames of 20 ms, silence or noise, and in them the caller's words. In the binary modes the
//! server paces its reply, holds and clears it; in the GA mode the client stops the reply when the server hears speech, and
//! truncates it where it was heard. Every wait ends: for an answer with the caller's patience, for the end of a reply and for
//! the whole with the scenario's limits. A dropped future ends the conversation.

use super::caller::{Caller, CallerError, Speaker, level, noise};
use super::judge;
use super::report::Report;
use super::scenario::{Expectation, Scenario, Tool, Turn};
use antiphon_client::playout::{Item, Playout, Sound};
use antiphon_client::{AudioMode, ClientError, Connection, Event, FRAME, Problem, ReceivedMessage, Receiver, Sender};
use antiphon_types::ItemId;
use serde_json::{Map, Value, json};
use std::pin::pin;
use std::time::Duration;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, timeout};

const FRAME_MS: f64 = 20.0;
/// A frame that is sent this much after its time is late: this machine has fallen behind.
const LATE_MS: f64 = 100.0;
/// Interval of playback reports in the binary modes, in ms.
const REPORT_MS: f64 = 100.0;
/// How long a session may take to begin.
const SESSION_WITHIN: Duration = Duration::from_secs(10);
/// How long the end of a reply is waited for before the caller goes on.
const QUIET_WITHIN_MS: f64 = 60_000.0;
/// How long a reply that is to go on is watched behind the caller's words.
const GOES_ON_MS: f64 = 1_500.0;
/// How long behind `limits.answer_ms` a reply that is not to come is watched for.
const LATE_REPLY_MS: f64 = 500.0;
/// Between the end of a response and the next one that its tool calls bring.
const SETTLES_MS: f64 = 250.0;
/// How many calls of tools a conversation may have; further ones are answered with an error.
const MAX_CALLS: usize = 200;
/// A server's code for a `response.create` while a response is under way.
const ALREADY_RESPONDING: &str = "conversation_already_has_active_response";

/// Why a rehearsal has no result.
#[derive(Debug, thiserror::Error)]
pub enum RehearsalError {
    /// The connection failed, or the server refused or ended the session.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The caller cannot speak.
    #[error(transparent)]
    Caller(#[from] CallerError),
}

/// What was recorded. Times are in ms since the conversation began.
#[derive(Debug, Default)]
pub(super) struct Recording {
    pub(super) turns: Vec<RecordedTurn>,
    pub(super) playout: Playout,
    pub(super) calls: Vec<RecordedCall>,
    pub(super) transcripts: Vec<Transcript>,
    /// What the microphone sent.
    pub(super) microphone: Vec<i16>,
    pub(super) ended_ms: f64,
    pub(super) n_late: usize,
    pub(super) end: End,
}

/// How a conversation ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum End {
    /// The caller had nothing more to say.
    #[default]
    Finished,
    /// Two turns in a row had no answer.
    Unanswered,
    /// It took longer than its limit.
    TooLong,
    /// The connection broke, or the server reported an error: its words.
    Broken(String),
}

/// A turn of the caller's.
#[derive(Debug)]
pub(super) struct RecordedTurn {
    pub(super) said: String,
    pub(super) expect: Expectation,
    pub(super) is_over_reply: bool,
    /// The first and the last audible sample of its words; `None`: it was silent, or could not begin.
    pub(super) speech: Option<Span>,
    /// When it began, and, behind its words or its silence, ended.
    pub(super) turn: Span,
    /// Replies that were there before it.
    pub(super) first_item: usize,
    /// Calls that were there before it.
    pub(super) first_call: usize,
    /// The reply that it speaks over.
    pub(super) over_item: Option<usize>,
}

/// A stretch of time, in ms since the conversation began.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Span {
    pub(super) from_ms: f64,
    pub(super) to_ms: f64,
}

/// A call of a tool.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RecordedCall {
    pub(super) at_ms: f64,
    pub(super) name: String,
    pub(super) arguments: Value,
}

/// What the server understood.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Transcript {
    pub(super) at_ms: f64,
    pub(super) text: String,
}

/// Talks to a server by a scenario, and judges what it did.
///
/// Takes as long as the conversation, and before it as long as the caller's voice needs for the words of a script.
/// `connecting` is awaited behind that, since a server ends a connection on which nothing is read.
///
/// # Errors
/// The caller cannot speak, or the session does not begin. A conversation that breaks off later has a report.
pub async fn rehearse(
    connecting: impl Future<Output = Result<Connection, ClientError>>,
    scenario: &Scenario,
    caller: &Caller,
) -> Result<Report, RehearsalError> {
    caller.check(scenario)?;
    let mut lines = Vec::new();
    for turn in &scenario.turns {
        lines.push(match turn.say.trim() {
            "" => Vec::new(),
            say => caller.speak(say, &scenario.caller).await?,
        });
    }
    let mut talk = Talk::new(connecting.await?, scenario);
    timeout(SESSION_WITHIN, talk.begin())
        .await
        .map_err(|_| ClientError::TimedOut { what: "the session's beginning", after: SESSION_WITHIN })??;
    let limit = Duration::from_secs(scenario.limits.max_seconds);
    let result = timeout(limit, talk.run(caller, lines)).await;
    match result {
        Ok(Ok(())) => {}
        Ok(Err(RehearsalError::Client(error))) => talk.recording.end = End::Broken(error.to_string()),
        Ok(Err(error)) => return Err(error),
        Err(_) => talk.recording.end = End::TooLong,
    }
    talk.recording.ended_ms = talk.now_ms();
    talk.sender.close().await;
    Ok(judge::judge(scenario, talk.recording))
}

/// A conversation under way.
struct Talk<'a> {
    scenario: &'a Scenario,
    sender: Sender,
    receiver: Receiver,
    ticks: Interval,
    began: Instant,
    /// Noise, and where in it the microphone is.
    bed: Vec<i16>,
    bed_at: usize,
    /// The words that are spoken now, and how far.
    line: Vec<i16>,
    line_at: usize,
    line_began_ms: Option<f64>,
    /// Responses that are not done.
    n_active: usize,
    /// Results of tools were sent that no response has read.
    owes_response: bool,
    /// Until when a response to tool calls is waited for.
    settles_ms: f64,
    done_ms: f64,
    reported_ms: f64,
    recording: Recording,
}

impl<'a> Talk<'a> {
    fn new(connection: Connection, scenario: &'a Scenario) -> Self {
        let mut ticks = interval(Duration::from_millis(FRAME_MS as u64));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        Self {
            scenario,
            sender: connection.sender,
            receiver: connection.receiver,
            ticks,
            began: Instant::now(),
            bed: Vec::new(),
            bed_at: 0,
            line: Vec::new(),
            line_at: 0,
            line_began_ms: None,
            n_active: 0,
            owes_response: false,
            settles_ms: 0.0,
            done_ms: 0.0,
            reported_ms: 0.0,
            recording: Recording::default(),
        }
    }

    fn now_ms(&self) -> f64 {
        self.began.elapsed().as_secs_f64() * 1e3
    }

    /// Waits for the session, gives it its settings and tools, and starts the clock.
    async fn begin(&mut self) -> Result<(), ClientError> {
        self.wait_for(|event| matches!(event, Event::SessionCreated {})).await?;
        let session = session(self.scenario, self.sender.mode());
        self.sender.event(&json!({"type": "session.update", "session": session})).await?;
        self.wait_for(|event| matches!(event, Event::SessionUpdated {})).await?;
        self.began = Instant::now();
        self.ticks.reset();
        Ok(())
    }

    async fn wait_for(&mut self, is_it: impl Fn(&Event) -> bool) -> Result<(), ClientError> {
        loop {
            match self.receiver.next().await? {
                ReceivedMessage::Event(Event::Error { error }) => return Err(server_error(error)),
                ReceivedMessage::Event(event) if is_it(&event) => return Ok(()),
                _ => {}
            }
        }
    }

    async fn run(&mut self, caller: &Caller, lines: Vec<Vec<i16>>) -> Result<(), RehearsalError> {
        match &self.scenario.goal {
            None => self.run_script(lines).await?,
            Some(_) => self.run_goal(caller).await?,
        }
        self.wait_for_quiet(0.0).await?;
        Ok(())
    }

    async fn run_script(&mut self, lines: Vec<Vec<i16>>) -> Result<(), ClientError> {
        let loudest = lines.iter().map(|line| level(line)).fold(0.0, f32::max);
        self.bed = noise(self.scenario.caller.noise_db, loudest);
        for (turn, line) in self.scenario.turns.iter().zip(lines) {
            self.turn(turn, line).await?;
            if self.is_given_up() {
                self.recording.end = End::Unanswered;
                break;
            }
        }
        Ok(())
    }

    async fn run_goal(&mut self, caller: &Caller) -> Result<(), RehearsalError> {
        let Some(goal) = &self.scenario.goal else { return Ok(()) };
        for _ in 0..goal.max_turns {
            self.wait_for_quiet(0.0).await?;
            let said = self.said();
            let scenario = self.scenario;
            let line = async {
                let Some(text) = caller.next_line(goal, &said).await? else { return Ok(None) };
                let samples = caller.speak(&text, &scenario.caller).await?;
                Ok::<_, CallerError>(Some(Line { text, samples }))
            };
            let Some(line) = self.while_listening(line).await?? else { break };
            if self.bed.is_empty() {
                self.bed = noise(self.scenario.caller.noise_db, level(&line.samples));
            }
            let turn = Turn { say: line.text, ..Turn::default() };
            self.turn(&turn, line.samples).await?;
            if self.is_given_up() {
                self.recording.end = End::Unanswered;
                break;
            }
        }
        Ok(())
    }

    /// What both sides have said so far.
    fn said(&self) -> Vec<(Speaker, String)> {
        let turns = &self.recording.turns;
        let mut said = Vec::new();
        for (place, turn) in turns.iter().enumerate() {
            let next = turns.get(place + 1).map(|next| next.first_item);
            said.push((Speaker::Caller, turn.said.clone()));
            said.push((Speaker::Agent, self.recording.reply(turn.first_item, next)));
        }
        said
    }

    /// Whether the last two turns that wanted an answer had none.
    fn is_given_up(&self) -> bool {
        let turns = self.recording.turns.iter().enumerate();
        let wanted: Vec<_> = turns.filter(|(_, turn)| !turn.expect.no_reply && !turn.said.is_empty()).collect();
        let is_unanswered = |(place, turn): &&(usize, &RecordedTurn)| {
            self.recording.answer(*place).is_none() && turn.over_item.is_none()
        };
        wanted.len() >= 2 && wanted[wanted.len() - 2..].iter().filter(is_unanswered).count() == 2
    }

    /// One turn of the caller's, to its answer or to the end of the caller's patience.
    async fn turn(&mut self, turn: &Turn, line: Vec<i16>) -> Result<(), ClientError> {
        let over_item = match turn.over_reply_ms {
            Some(after_ms) => self.wait_for_reply(after_ms as f64).await?,
            None => {
                self.wait_for_quiet(turn.after_ms as f64).await?;
                None
            }
        };
        let from_ms = self.now_ms();
        let mut recorded = RecordedTurn {
            said: turn.say.trim().to_owned(),
            expect: turn.expect.clone(),
            is_over_reply: turn.over_reply_ms.is_some(),
            speech: None,
            turn: Span { from_ms, to_ms: from_ms },
            first_item: self.recording.playout.items.len(),
            first_call: self.recording.calls.len(),
            over_item,
        };
        let could_begin = turn.over_reply_ms.is_none() || over_item.is_some();
        if could_begin && !line.is_empty() {
            recorded.speech = Some(self.speak(line).await?);
        }
        let silent_until_ms = from_ms + turn.silence_ms as f64;
        while self.now_ms() < silent_until_ms {
            self.step().await?;
        }
        recorded.turn.to_ms = recorded.speech.map_or(self.now_ms(), |speech| speech.to_ms);
        let patience_ms = self.scenario.caller.patience_seconds as f64 * 1e3;
        let waits_ms = match &recorded.expect {
            _ if !could_begin || recorded.speech.is_none() => 0.0,
            // A reply that is not to come may come as late as an answer.
            expect if expect.no_reply => {
                let answer_ms = self.scenario.limits.answer_ms as f64;
                patience_ms.min(answer_ms + LATE_REPLY_MS).max(GOES_ON_MS)
            }
            expect if expect.goes_on => GOES_ON_MS,
            _ => patience_ms,
        };
        let waits_for_answer = recorded.expect.no_reply || !recorded.expect.goes_on;
        let until_ms = recorded.turn.to_ms + waits_ms;
        let has_tools = !recorded.expect.tools.is_empty();
        let place = self.recording.turns.len();
        self.recording.turns.push(recorded);
        loop {
            let now_ms = self.now_ms();
            let is_answered = self.recording.answer(place).is_some_and(|sound| sound.from_ms <= now_ms);
            let is_called = has_tools && self.recording.calls.len() > self.recording.turns[place].first_call;
            if now_ms >= until_ms || waits_for_answer && (is_answered || is_called) {
                return Ok(());
            }
            self.step().await?;
        }
    }

    /// Speaks a line; when it was audible.
    async fn speak(&mut self, line: Vec<i16>) -> Result<Span, ClientError> {
        let is_audible = |sample: &i16| sample.unsigned_abs() >= 104;
        let first = line.iter().position(is_audible).unwrap_or(0);
        let last = line.iter().rposition(is_audible).unwrap_or(line.len());
        self.line = line;
        self.line_at = 0;
        self.line_began_ms = None;
        while self.line_at < self.line.len() {
            self.step().await?;
        }
        let began_ms = self.line_began_ms.unwrap_or_else(|| self.now_ms());
        self.line.clear();
        Ok(Span { from_ms: began_ms + samples_ms(first), to_ms: began_ms + samples_ms(last + 1) })
    }

    /// Waits until the agent has been silent for this time, at most [`QUIET_WITHIN_MS`].
    async fn wait_for_quiet(&mut self, gap_ms: f64) -> Result<(), ClientError> {
        let since_ms = self.now_ms();
        loop {
            let now_ms = self.now_ms();
            let playout = &self.recording.playout;
            let is_quiet = self.n_active == 0 && !playout.is_playing(now_ms) && now_ms >= self.settles_ms;
            let quiet_since_ms = self.done_ms.max(playout.ends_ms());
            if is_quiet && now_ms >= quiet_since_ms + gap_ms || now_ms > since_ms + QUIET_WITHIN_MS {
                return Ok(());
            }
            self.step().await?;
        }
    }

    /// Waits until a reply has sounded for this time; `None`: there is none within the caller's patience.
    async fn wait_for_reply(&mut self, sounded_ms: f64) -> Result<Option<usize>, ClientError> {
        let until_ms = self.now_ms() + self.scenario.caller.patience_seconds as f64 * 1e3;
        loop {
            let now_ms = self.now_ms();
            let playout = &self.recording.playout;
            match playout.audible_since(now_ms) {
                Some(audible_ms) if now_ms >= audible_ms + sounded_ms => {
                    return Ok(playout.sounds.last().map(|sound| sound.item));
                }
                None if now_ms > until_ms => return Ok(None),
                _ => {}
            }
            self.step().await?;
        }
    }

    /// Goes on sending and receiving while a future works.
    async fn while_listening<T>(&mut self, work: impl Future<Output = T>) -> Result<T, ClientError> {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return Ok(done),
                stepped = self.step() => stepped?,
            }
        }
    }

    /// Receives one message, or sends the next frame. A dropped future may lose the frame that it was writing.
    async fn step(&mut self) -> Result<(), ClientError> {
        tokio::select! {
            biased;
            received = self.receiver.next() => {
                let received = received?;
                let now_ms = self.now_ms();
                self.take(received, now_ms).await
            }
            due = self.ticks.tick() => {
                let late_ms = due.elapsed().as_secs_f64() * 1e3;
                self.recording.n_late += usize::from(late_ms > LATE_MS);
                self.send_frame().await
            }
        }
    }

    async fn send_frame(&mut self) -> Result<(), ClientError> {
        let mut frame = [0_i16; FRAME];
        if !self.bed.is_empty() {
            for sample in &mut frame {
                *sample = self.bed[self.bed_at];
                self.bed_at = (self.bed_at + 1) % self.bed.len();
            }
        }
        let left = self.line.get(self.line_at..).unwrap_or_default();
        if !left.is_empty() && self.line_began_ms.is_none() {
            self.line_began_ms = Some(samples_ms(self.recording.microphone.len()));
        }
        for (sample, word) in frame.iter_mut().zip(left) {
            *sample = sample.saturating_add(*word);
        }
        self.line_at += left.len().min(FRAME);
        self.recording.microphone.extend_from_slice(&frame);
        self.sender.audio(&frame).await?;
        let now_ms = self.now_ms();
        if self.sender.mode() != AudioMode::Ga && now_ms >= self.reported_ms + REPORT_MS {
            self.reported_ms = now_ms;
            if let Some((item_id, heard_ms)) = self.recording.playout.heard(now_ms) {
                self.sender.played(&ItemId::from(item_id), heard_ms as u64).await?;
            }
        }
        Ok(())
    }

    async fn take(&mut self, received: ReceivedMessage, now_ms: f64) -> Result<(), ClientError> {
        let recording = &mut self.recording;
        let event = match received {
            ReceivedMessage::Audio { item_id, samples } => {
                recording.playout.audio(&item_id, &samples, now_ms);
                return Ok(());
            }
            ReceivedMessage::Event(event) => event,
            ReceivedMessage::Resumed(_) => return Ok(()),
        };
        match event {
            Event::TranscriptDelta { item_id, delta } | Event::TextDelta { item_id, delta } => {
                let at = recording.playout.item(&item_id);
                recording.playout.items[at].text.push_str(&delta);
            }
            Event::ResponseCreated { .. } => {
                self.n_active += 1;
                // It reads the results that were sent before.
                self.owes_response = false;
            }
            Event::ResponseDone { response } => {
                self.n_active = self.n_active.saturating_sub(1);
                self.done_ms = now_ms;
                // The caller's words that cancelled it have a response of their own.
                self.owes_response &= response.status != "cancelled";
                return self.ask_for_response(now_ms).await;
            }
            Event::FunctionCall { call_id, name, arguments } => {
                return self.answer_call(&call_id, name, &arguments, now_ms).await;
            }
            Event::SpeechStarted { .. }
                if self.sender.mode() == AudioMode::Ga && recording.playout.is_playing(now_ms) =>
            {
                return self.truncate(now_ms).await;
            }
            Event::TranscriptionCompleted { transcript, .. } => {
                recording.transcripts.push(Transcript { at_ms: now_ms, text: transcript });
            }
            Event::Held { .. } => recording.playout.hold(now_ms),
            Event::Resumed { .. } => recording.playout.resume(now_ms),
            Event::Cleared {} => _ = recording.playout.clear(now_ms),
            // A response to the caller's words was faster: it, or the next one, reads the results.
            Event::Error { error } if error.code.as_deref() == Some(ALREADY_RESPONDING) => {}
            Event::Error { error } => return Err(server_error(error)),
            _ => {}
        }
        Ok(())
    }

    /// Gives the result of a tool. The response that uses it is asked for behind the one that calls, which may call
    /// more.
    async fn answer_call(
        &mut self,
        call_id: &str,
        name: String,
        arguments: &str,
        now_ms: f64,
    ) -> Result<(), ClientError> {
        let output = self.result_of(&name);
        let arguments = serde_json::from_str(arguments).unwrap_or_else(|_| Value::String(arguments.to_owned()));
        self.recording.calls.push(RecordedCall { at_ms: now_ms, name, arguments });
        let item = json!({"type": "function_call_output", "call_id": call_id, "output": output});
        self.sender.event(&json!({"type": "conversation.item.create", "item": item})).await?;
        self.owes_response = true;
        self.ask_for_response(now_ms).await
    }

    /// Asks for the response that reads the results of tools, once none is under way.
    async fn ask_for_response(&mut self, now_ms: f64) -> Result<(), ClientError> {
        if !self.owes_response || self.n_active > 0 {
            return Ok(());
        }
        self.owes_response = false;
        self.settles_ms = now_ms + SETTLES_MS;
        self.sender.event(&json!({"type": "response.create"})).await
    }

    fn result_of(&self, name: &str) -> String {
        if self.recording.calls.len() >= MAX_CALLS {
            return json!({"error": "too many calls"}).to_string();
        }
        match self.scenario.tools.iter().find(|tool| tool.name == name) {
            Some(tool) => tool.result.clone(),
            None => json!({"error": format!("there is no tool {name:?}")}).to_string(),
        }
    }

    /// Stops the reply in the client, and reports where.
    async fn truncate(&mut self, now_ms: f64) -> Result<(), ClientError> {
        let Some((at, heard_ms)) = self.recording.playout.clear(now_ms) else { return Ok(()) };
        let item_id = &self.recording.playout.items[at].id;
        self.sender.truncate(item_id, heard_ms as u64).await
    }
}

/// What a caller with a goal says next.
struct Line {
    text: String,
    samples: Vec<i16>,
}

impl Recording {
    /// The text of the replies from `first` to before `next`, as far as it was heard.
    pub(super) fn reply(&self, first: usize, next: Option<usize>) -> String {
        let items = self.playout.items.get(first..next.unwrap_or(self.playout.items.len())).unwrap_or_default();
        let texts: Vec<_> = items.iter().map(heard).filter(|text| !text.is_empty()).collect();
        texts.join(" ")
    }

    /// The first sound of the answer to the turn at this place: behind its words, and of a reply that is new since and
    /// was there before the caller spoke again.
    pub(super) fn answer(&self, place: usize) -> Option<Sound> {
        let turn = self.turns.get(place)?;
        let next = self.turns.iter().skip(place + 1).find(|next| next.speech.is_some());
        let replies = turn.first_item..next.map_or(self.playout.items.len(), |next| next.first_item);
        let is_answer = |sound: &&Sound| replies.contains(&sound.item) && sound.to_ms > turn.turn.to_ms;
        self.playout.sounds.iter().find(is_answer).copied()
    }
}

/// The text of a reply; of one that was cut, about as much as of its sound was heard, with an ellipsis.
fn heard(item: &Item) -> String {
    let text = item.text.trim();
    if item.cleared_ms.is_none() || item.samples.len() >= item.n_received {
        return text.to_owned();
    }
    let share = item.samples.len() as f64 / item.n_received as f64;
    let words: Vec<&str> = text.split_whitespace().collect();
    let n_heard = (words.len() as f64 * share).round() as usize;
    match words.get(..n_heard).unwrap_or_default() {
        [] => String::new(),
        heard => format!("{} …", heard.join(" ")),
    }
}

/// The session of a scenario. Servers other than this hub transcribe only where they are asked to.
fn session(scenario: &Scenario, mode: AudioMode) -> Map<String, Value> {
    let mut session = scenario.session.clone();
    session.entry("type").or_insert_with(|| "realtime".into());
    if mode == AudioMode::Ga {
        let audio = session.entry("audio").or_insert_with(|| json!({}));
        if let Some(audio) = audio.as_object_mut() {
            let input = audio.entry("input").or_insert_with(|| json!({}));
            if let Some(input) = input.as_object_mut() {
                input.entry("transcription").or_insert_with(|| json!({"model": "whisper-1"}));
            }
        }
    }
    if !scenario.tools.is_empty() {
        session.insert("tools".into(), scenario.tools.iter().map(declared).collect());
    }
    session
}

fn declared(tool: &Tool) -> Value {
    let mut parameters = tool.parameters.clone();
    parameters.entry("type").or_insert_with(|| "object".into());
    json!({"type": "function", "name": tool.name, "description": tool.description, "parameters": parameters})
}

fn server_error(problem: Problem) -> ClientError {
    ClientError::Server { code: problem.code, message: problem.message.unwrap_or_else(|| "an error".into()) }
}

/// The length of samples, in ms.
pub(super) fn samples_ms(n: usize) -> f64 {
    n as f64 * 1_000.0 / f64::from(antiphon_client::RATE.hz())
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_engine_api::fakes::tts::FakeTts;
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use futures_util::{SinkExt, StreamExt};
    use std::cell::Cell;
    use std::sync::Arc;
    use tokio::io::DuplexStream;
    use tokio_tungstenite::WebSocketStream;
    use tokio_tungstenite::tungstenite::Message;
    use tokio_tungstenite::tungstenite::protocol::Role;

    /// A server in memory, so that time may be virtual.
    struct Server {
        socket: WebSocketStream<DuplexStream>,
        /// Frames of audio received.
        n_frames: usize,
    }

    impl Server {
        async fn send(&mut self, event: Value) {
            self.socket.send(Message::text(event.to_string())).await.expect("open");
        }

        /// A response of 2 s of sound.
        async fn reply(&mut self, item_id: &str, text: &str) {
            self.send(json!({"type": "response.created", "response": {"id": item_id}})).await;
            let delta = json!({"type": "response.output_audio_transcript.delta", "item_id": item_id, "delta": text});
            self.send(delta).await;
            let sound: Vec<u8> = (0..48_000).flat_map(|_| 4_000_i16.to_le_bytes()).collect();
            let delta = STANDARD.encode(sound);
            self.send(json!({"type": "response.output_audio.delta", "item_id": item_id, "delta": delta})).await;
            self.send(json!({"type": "response.done", "response": {"id": item_id, "status": "completed"}})).await;
        }

        /// The next event; `None`: the client is gone.
        async fn next(&mut self) -> Option<Value> {
            if let Some(Ok(Message::Text(text))) = self.socket.next().await {
                let event: Value = serde_json::from_str(&text).expect("JSON");
                self.n_frames += usize::from(event["type"] == "input_audio_buffer.append");
                return Some(event);
            }
            None
        }
    }

    async fn connected() -> (Connection, Server) {
        let (client, server) = tokio::io::duplex(1 << 20);
        let client = WebSocketStream::from_raw_socket(client, Role::Client, None).await;
        let socket = WebSocketStream::from_raw_socket(server, Role::Server, None).await;
        let mut server = Server { socket, n_frames: 0 };
        server.send(json!({"type": "session.created"})).await;
        (Connection::new(client, AudioMode::Ga).expect("a connection"), server)
    }

    fn caller() -> Caller {
        Caller::new(Arc::new(FakeTts::default()), "tone".into(), None)
    }

    fn failed(report: &Report) -> Vec<String> {
        let failed = report.checks.iter().filter(|check| !check.passed);
        failed.map(|check| format!("{}: {}", check.expected, check.found)).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_is_called_once_the_words_of_the_script_are_spoken() {
        let script = "[[turns]]\nsay = \"Hello.\"\n[[turns]]\nsay = \"...\"\n";
        let scenario = Scenario::parse(script, "dots").expect("right");
        let is_called = Cell::new(false);
        let connecting = async {
            is_called.set(true);
            Ok(connected().await.0)
        };
        let held = rehearse(connecting, &scenario, &caller()).await;
        assert!(matches!(held, Err(RehearsalError::Caller(CallerError::Silent(_)))), "{held:?}");
        assert!(!is_called.get(), "it would have waited for the caller's voice");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_never_answers_is_left_after_two_turns() {
        let (connection, mut server) = connected().await;
        let script = "[caller]\npatience_seconds = 2\n[[turns]]\nsay = \"Hello.\"\n";
        let scenario = Scenario::parse(script, "silence").expect("right");
        let scenario = Scenario { turns: vec![scenario.turns[0].clone(); 5], ..scenario };
        let caller = caller();
        let talking = rehearse(async { Ok(connection) }, &scenario, &caller);
        let serving = async {
            while let Some(event) = server.next().await {
                if event["type"] == "session.update" {
                    server.send(json!({"type": "session.updated"})).await;
                }
            }
        };
        let (report, ()) = tokio::join!(talking, serving);
        let report = report.expect("a report");
        assert_eq!(report.turns.len(), 2, "{:?}", report.turns);
        assert!(failed(&report).iter().any(|line| line.contains("two turns in a row had no answer")), "{report:?}");
        assert!((4.5..5.5).contains(&report.measures.seconds), "{:?}", report.measures);
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_reply_to_a_turn_that_expects_none_is_seen() {
        let (connection, mut server) = connected().await;
        let script = "[[turns]]\nsay = \"Hm.\"\nexpect.no_reply = true\n";
        let scenario = Scenario::parse(script, "aside").expect("right");
        let caller = caller();
        let talking = rehearse(async { Ok(connection) }, &scenario, &caller);
        let serving = async {
            while let Some(event) = server.next().await {
                match event["type"].as_str().expect("a type") {
                    "session.update" => server.send(json!({"type": "session.updated"})).await,
                    // After 2.5 s.
                    "input_audio_buffer.append" if server.n_frames == 125 => server.reply("a", "Pardon?").await,
                    _ => {}
                }
            }
        };
        let (report, ()) = tokio::join!(talking, serving);
        let failed = failed(&report.expect("a report"));
        assert!(failed.contains(&"the agent says nothing: \"Pardon?\"".to_owned()), "{failed:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_that_expects_no_reply_takes_less_than_the_callers_patience() {
        let (connection, mut server) = connected().await;
        let script = "[[turns]]\nsay = \"Hm.\"\nexpect.no_reply = true\n";
        let scenario = Scenario::parse(script, "aside").expect("right");
        let caller = caller();
        let talking = rehearse(async { Ok(connection) }, &scenario, &caller);
        let serving = async {
            while let Some(event) = server.next().await {
                if event["type"] == "session.update" {
                    server.send(json!({"type": "session.updated"})).await;
                }
            }
        };
        let (report, ()) = tokio::join!(talking, serving);
        let report = report.expect("a report");
        assert_eq!(failed(&report), Vec::<String>::new());
        assert!(report.measures.seconds < 4.0, "{:?}", report.measures);
    }

    #[tokio::test(start_paused = true)]
    async fn one_response_is_asked_for_behind_the_one_that_calls_several_tools() {
        let (connection, mut server) = connected().await;
        let tool = "[[tools]]\nname = \"book\"\nresult = \"booked\"\n";
        let script = format!("{tool}[[turns]]\nsay = \"A table for two.\"\nexpect.words = [\"both\"]\n");
        let scenario = Scenario::parse(&script, "two tables").expect("right");
        let caller = caller();
        let talking = rehearse(async { Ok(connection) }, &scenario, &caller);
        let serving = async {
            let mut seen: Vec<String> = Vec::new();
            while let Some(event) = server.next().await {
                let kind = event["type"].as_str().expect("a type").to_owned();
                match kind.as_str() {
                    "session.update" => server.send(json!({"type": "session.updated"})).await,
                    "input_audio_buffer.append" if server.n_frames == 60 => {
                        server.send(json!({"type": "response.created", "response": {"id": "r"}})).await;
                        for call_id in ["c", "d"] {
                            let kind = "response.function_call_arguments.done";
                            server.send(json!({"type": kind, "call_id": call_id, "name": "book"})).await;
                        }
                    }
                    // Its calls were answered meanwhile.
                    "input_audio_buffer.append" if server.n_frames == 70 => {
                        assert_eq!(seen, ["conversation.item.create", "conversation.item.create"]);
                        server.send(json!({"type": "response.done", "response": {"id": "r"}})).await;
                    }
                    "input_audio_buffer.append" => {}
                    "response.create" => {
                        seen.push(kind);
                        server.reply("a", "Both are booked.").await;
                        // As to a client whose request came late.
                        let error = json!({"code": ALREADY_RESPONDING, "message": "Wait."});
                        server.send(json!({"type": "error", "error": error})).await;
                    }
                    _ => seen.push(kind),
                }
            }
            seen
        };
        let (report, seen) = tokio::join!(talking, serving);
        let report = report.expect("a report");
        assert_eq!(failed(&report), Vec::<String>::new());
        assert_eq!(report.turns[0].calls.len(), 2);
        assert_eq!(seen, ["conversation.item.create", "conversation.item.create", "response.create"]);
    }

    #[tokio::test(start_paused = true)]
    async fn calls_are_answered_replies_interrupted_and_cut_where_they_were_heard() {
        let (connection, mut server) = connected().await;
        let script = r#"
            [[tools]]
            name = "book"
            result = "booked"
            [[turns]]
            say = "A table for two."
            expect.tools = [{ name = "book", arguments = { people = 2 } }]
            expect.words = ["one two"]
            expect.not_words = ["nine"]
            [[turns]]
            say = "For three."
            over_reply_ms = 600
            expect.stops_within_ms = 300
        "#;
        let scenario = Scenario::parse(script, "booking").expect("right");
        let caller = caller();
        let talking = rehearse(async { Ok(connection) }, &scenario, &caller);
        let serving = async {
            let mut seen = Vec::new();
            while let Some(event) = server.next().await {
                match event["type"].as_str().expect("a type") {
                    "session.update" => {
                        assert_eq!(event["session"]["tools"][0]["name"], "book");
                        server.send(json!({"type": "session.updated"})).await;
                    }
                    "input_audio_buffer.append" if server.n_frames == 60 => {
                        server.send(json!({"type": "response.created", "response": {"id": "r"}})).await;
                        let arguments = r#"{"people": 2}"#;
                        let call = json!({
                            "type": "response.function_call_arguments.done", "call_id": "c", "name": "book",
                            "arguments": arguments,
                        });
                        server.send(call).await;
                        server.send(json!({"type": "response.done", "response": {"id": "r"}})).await;
                    }
                    // 600 ms of the reply have sounded, and the caller speaks.
                    "input_audio_buffer.append" if server.n_frames == 100 => {
                        let started = json!({
                            "type": "input_audio_buffer.speech_started", "item_id": "u", "audio_start_ms": 0,
                        });
                        server.send(started).await;
                    }
                    "input_audio_buffer.append" if server.n_frames == 150 => server.reply("b", "Booked.").await,
                    "response.create" => server.reply("a", "one two three four five six seven eight nine ten").await,
                    "input_audio_buffer.append" => {}
                    other => seen.push((other.to_owned(), event.clone())),
                }
            }
            seen
        };
        let (report, seen) = tokio::join!(talking, serving);
        let report = report.expect("a report");
        assert_eq!(failed(&report), Vec::<String>::new());
        assert_eq!(report.turns[0].calls, [r#"book({"people":2})"#]);
        assert!(report.turns[0].reply.ends_with(" …"), "{:?}", report.turns[0]);
        assert_eq!(report.turns[1].reply, "Booked.");
        let kinds: Vec<&str> = seen.iter().map(|(kind, _)| kind.as_str()).collect();
        assert_eq!(kinds, ["conversation.item.create", "conversation.item.truncate"]);
        assert_eq!(seen[0].1["item"]["output"], "booked");
        let heard_ms = seen[1].1["audio_end_ms"].as_u64().expect("a number");
        assert!((700..=900).contains(&heard_ms), "40 frames are 800 ms: {heard_ms}");
    }
}
