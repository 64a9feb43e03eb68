//! Talks one conversation to an agent, in real time, and records both tracks.
//!
//! The microphone never stops: noise of the condition, and the turns in it, in frames of 20 ms. A sample counts as
//! spoken when a microphone would have captured it: a frame is sent when it is full. In the mode of binary audio the
//! server paces the reply, holds and clears it; in the GA mode the client stops the reply when the server hears speech,
//! and truncates it where it was heard.

use super::judge::Observed;
use super::link::{Link, SessionOptions};
use super::scenario::{Begins, Conversation, Expected, Turn};
use crate::voice_to_voice::server_said;
use crate::words::{n_errors, words};
use antiphon_client::playout::{Playout, Sound};
use antiphon_client::{ClientError, Event, FRAME, ReceivedMessage};
use antiphon_types::ItemId;
use std::time::Duration;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

/// Length of a frame of the microphone, in ms.
pub(super) const FRAME_MS: f64 = 20.0;
/// A frame that is sent this much after its time is late: the machine has fallen behind.
const LATE_MS: f64 = 100.0;
/// Interval of playback reports, in ms.
const REPORT_MS: f64 = 100.0;
/// How long an answer is waited for, from the end of a turn.
const ANSWER_WITHIN_MS: f64 = 6_000.0;
/// How long a reply that is to go on is watched, and silence that is to last.
const GOES_ON_MS: f64 = 1_500.0;
const SILENT_MS: f64 = 2_500.0;
/// How long a reply to speak over is waited for, and the end of a reply.
const REPLY_WITHIN_MS: f64 = 8_000.0;
const QUIET_WITHIN_MS: f64 = 30_000.0;

/// What was recorded of a conversation. Times in ms since it began.
#[derive(Debug, Default)]
pub(super) struct Recorded {
    /// When each turn's first sample was captured; `None`: it could not be run.
    pub(super) begins: Vec<Option<f64>>,
    pub(super) playout: Playout,
    pub(super) stops: Vec<f64>,
    pub(super) cleared: Vec<f64>,
    /// Transcripts of the user, and when they came.
    pub(super) transcripts: Vec<(f64, String)>,
    pub(super) n_frames: usize,
    pub(super) n_late: usize,
    pub(super) latest_ms: f64,
}

impl Recorded {
    /// The time from a turn's beginning to the next one's.
    fn window(&self, turn: usize) -> Option<(f64, f64)> {
        let from = (*self.begins.get(turn)?)?;
        let next = self.begins[turn + 1..].iter().flatten().next();
        Some((from, next.copied().unwrap_or(f64::INFINITY)))
    }

    /// What belongs to a turn; `None`: it was not run.
    pub(super) fn observed(&self, turn: usize) -> Option<Observed> {
        let (from, until) = self.window(turn)?;
        let within = |at: &f64| *at >= from && *at < until;
        let sounds = self.playout.sounds.iter().filter(|sound| sound.from_ms < until);
        let moved = |sound: &Sound| Sound { from_ms: sound.from_ms - from, to_ms: sound.to_ms - from, ..*sound };
        let holds = self.playout.holds.iter().filter(|(at, _)| within(at));
        let times = |times: &[f64]| times.iter().filter(|at| within(at)).map(|at| at - from).collect::<Vec<_>>();
        Some(Observed {
            sounds: sounds.map(moved).collect(),
            holds: holds.map(|(at, resumed)| (at - from, resumed.map(|resumed| resumed - from))).collect(),
            stops: times(&self.stops),
            cleared: times(&self.cleared),
        })
    }

    /// The transcripts that came in a turn's time.
    pub(super) fn heard(&self, index: usize) -> String {
        let Some((from, until)) = self.window(index) else { return String::new() };
        let heard = self.transcripts.iter().filter(|(at, _)| *at >= from && *at < until);
        heard.map(|(_, text)| text.as_str()).collect::<Vec<_>>().join(" ")
    }

    /// Words of the user's that were heard wrongly, and all of them; `None` where they are unknown.
    pub(super) fn word_errors(&self, index: usize, turn: &Turn) -> Option<(usize, usize)> {
        self.window(index)?;
        if !matches!(turn.expected, Expected::Answer | Expected::Yield)
            || turn.labels.iter().any(|label| label.text.is_empty())
        {
            return None;
        }
        let said = turn.labels.iter().map(|label| label.text.as_str()).collect::<Vec<_>>().join(" ");
        let said = words(&said);
        Some((n_errors(&said, &words(&self.heard(index))).min(said.len()), said.len()))
    }
}

/// Runs a conversation to its end.
///
/// # Errors
/// The connection fails, or the server reports an error.
pub(super) async fn run(options: &SessionOptions, conversation: &Conversation) -> Result<Recorded, ClientError> {
    talk(Link::open(options).await?, conversation).await
}

/// Talks on a session that has its settings.
async fn talk(link: Link, conversation: &Conversation) -> Result<Recorded, ClientError> {
    let mut ticks = interval(Duration::from_millis(FRAME_MS as u64));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut session = Session {
        link,
        ticks,
        began: Instant::now(),
        bed: &conversation.bed,
        bed_at: 0,
        clip: &[],
        clip_at: 0,
        clip_began_ms: None,
        n_active: 0,
        done_ms: 0.0,
        reported_ms: 0.0,
        recorded: Recorded::default(),
    };
    for (i, turn) in conversation.turns.iter().enumerate() {
        let is_followed_at_once = conversation.turns.get(i + 1).is_some_and(|next| next.begins == Begins::AtOnce);
        session.turn(turn, is_followed_at_once).await?;
    }
    session.link.close().await;
    Ok(session.recorded)
}

/// A session under way.
struct Session<'a> {
    link: Link,
    ticks: Interval,
    began: Instant,
    bed: &'a [i16],
    bed_at: usize,
    /// The turn that is spoken.
    clip: &'a [i16],
    clip_at: usize,
    /// When its first sample was captured.
    clip_began_ms: Option<f64>,
    /// Responses that are not done.
    n_active: usize,
    /// When the last response was done.
    done_ms: f64,
    reported_ms: f64,
    recorded: Recorded,
}

impl<'a> Session<'a> {
    fn now_ms(&self) -> f64 {
        self.began.elapsed().as_secs_f64() * 1e3
    }

    async fn turn(&mut self, turn: &'a Turn, is_followed_at_once: bool) -> Result<(), ClientError> {
        if !self.wait_to_begin(turn.begins).await? {
            self.recorded.begins.push(None);
            return Ok(());
        }
        self.clip = &turn.samples;
        self.clip_at = 0;
        self.clip_began_ms = None;
        while self.clip_at < self.clip.len() {
            self.step().await?;
        }
        let began_ms = self.clip_began_ms.unwrap_or_else(|| self.now_ms());
        self.recorded.begins.push(Some(began_ms));
        if is_followed_at_once {
            return Ok(());
        }
        let end_ms = began_ms + f64::from(turn.end_ms());
        let onset_ms = began_ms + f64::from(turn.onset_ms());
        loop {
            let now_ms = self.now_ms();
            let is_over = match turn.expected {
                Expected::Answer | Expected::Yield => {
                    now_ms > end_ms + ANSWER_WITHIN_MS || self.has_answered(onset_ms, end_ms, now_ms)
                }
                Expected::GoOn => now_ms > end_ms + GOES_ON_MS,
                Expected::Wait => now_ms > end_ms + SILENT_MS,
            };
            if is_over {
                return Ok(());
            }
            self.step().await?;
        }
    }

    /// Whether a reply that began behind a turn's onset sounds behind its end.
    fn has_answered(&self, onset_ms: f64, end_ms: f64, now_ms: f64) -> bool {
        let sounds = &self.recorded.playout.sounds;
        let is_new = |sound: &Sound| {
            sounds.iter().find(|other| other.item == sound.item).is_some_and(|first| first.from_ms >= onset_ms)
        };
        sounds.iter().any(|sound| sound.from_ms <= now_ms && sound.to_ms > end_ms && is_new(sound))
    }

    /// Waits for a turn's beginning; false: it does not come.
    async fn wait_to_begin(&mut self, begins: Begins) -> Result<bool, ClientError> {
        let since_ms = self.now_ms();
        loop {
            let now_ms = self.now_ms();
            match begins {
                Begins::AtOnce => return Ok(true),
                Begins::AfterReply(gap_ms) => {
                    let is_quiet = self.n_active == 0 && !self.recorded.playout.is_playing(now_ms);
                    let quiet_since_ms = self.done_ms.max(self.recorded.playout.ends_ms());
                    if is_quiet && now_ms >= quiet_since_ms + f64::from(gap_ms) {
                        return Ok(true);
                    }
                    if now_ms > since_ms + QUIET_WITHIN_MS {
                        return Ok(false);
                    }
                }
                Begins::OverReply(after_ms) => match self.recorded.playout.audible_since(now_ms) {
                    Some(audible_ms) if now_ms >= audible_ms + f64::from(after_ms) => return Ok(true),
                    Some(_) => {}
                    None if now_ms > since_ms + REPLY_WITHIN_MS => return Ok(false),
                    None => {}
                },
            }
            self.step().await?;
        }
    }

    /// Receives one message, or sends the next frame.
    async fn step(&mut self) -> Result<(), ClientError> {
        tokio::select! {
            biased;
            received = self.link.next() => {
                let received = received?;
                let now_ms = self.now_ms();
                self.take(received, now_ms).await
            }
            due = self.ticks.tick() => {
                let late_ms = due.elapsed().as_secs_f64() * 1e3;
                self.recorded.n_frames += 1;
                self.recorded.n_late += usize::from(late_ms > LATE_MS);
                self.recorded.latest_ms = self.recorded.latest_ms.max(late_ms);
                self.send_frame().await
            }
        }
    }

    async fn send_frame(&mut self) -> Result<(), ClientError> {
        let mut frame = [0; FRAME];
        for sample in &mut frame {
            if !self.bed.is_empty() {
                *sample = self.bed[self.bed_at];
                self.bed_at = (self.bed_at + 1) % self.bed.len();
            }
        }
        let left = self.clip.get(self.clip_at..).unwrap_or_default();
        if !left.is_empty() && self.clip_began_ms.is_none() {
            self.clip_began_ms = Some(self.now_ms() - FRAME_MS);
        }
        let n = left.len().min(FRAME);
        super::acoustics::mix(&mut frame, &left[..n]);
        self.clip_at += n;
        self.link.audio(&frame).await?;
        let now_ms = self.now_ms();
        if now_ms >= self.reported_ms + REPORT_MS {
            self.reported_ms = now_ms;
            if let Some((item_id, heard_ms)) = self.recorded.playout.heard(now_ms) {
                let item_id = ItemId::from(item_id);
                self.link.played(&item_id, heard_ms as u64).await?;
            }
        }
        Ok(())
    }

    async fn take(&mut self, received: ReceivedMessage, now_ms: f64) -> Result<(), ClientError> {
        let recorded = &mut self.recorded;
        match received {
            ReceivedMessage::Audio { item_id, samples } => recorded.playout.audio(&item_id, &samples, now_ms),
            ReceivedMessage::Event(Event::TranscriptDelta { item_id, delta }) => {
                let at = recorded.playout.item(&item_id);
                recorded.playout.items[at].text.push_str(&delta);
            }
            ReceivedMessage::Event(Event::ResponseCreated { .. }) => self.n_active += 1,
            ReceivedMessage::Event(Event::ResponseDone { .. }) => {
                self.n_active = self.n_active.saturating_sub(1);
                self.done_ms = now_ms;
            }
            ReceivedMessage::Event(Event::SpeechStarted { .. }) if self.link.stops_replies() => {
                if recorded.playout.is_playing(now_ms) {
                    self.truncate(now_ms).await?;
                }
            }
            ReceivedMessage::Event(Event::SpeechStopped { .. }) => recorded.stops.push(now_ms),
            ReceivedMessage::Event(Event::TranscriptionCompleted { transcript, .. }) => {
                recorded.transcripts.push((now_ms, transcript));
            }
            ReceivedMessage::Event(Event::Held { .. }) => recorded.playout.hold(now_ms),
            ReceivedMessage::Event(Event::Resumed { .. }) => recorded.playout.resume(now_ms),
            ReceivedMessage::Event(Event::Cleared {}) => {
                if recorded.playout.clear(now_ms).is_some() {
                    recorded.cleared.push(now_ms);
                }
            }
            ReceivedMessage::Event(Event::Error { error }) => return Err(server_said(error)),
            ReceivedMessage::Event(_) | ReceivedMessage::Resumed(_) => {}
        }
        Ok(())
    }

    /// Stops the reply in the client, and reports where.
    async fn truncate(&mut self, now_ms: f64) -> Result<(), ClientError> {
        let Some((at, heard_ms)) = self.recorded.playout.clear(now_ms) else { return Ok(()) };
        self.recorded.cleared.push(now_ms);
        let item_id = &self.recorded.playout.items[at].id;
        self.link.truncate(item_id, heard_ms as u64).await
    }
}

#[cfg(test)]
mod tests {
    use super::super::scenario::tests::turn;
    use super::*;

    use super::super::acoustics::samples_of;
    use super::super::scenario::{Condition, Split};
    use antiphon_client::{AudioMode, Connection};
    use futures_util::{SinkExt, StreamExt};
    use serde_json::{Value, json};
    use tokio::io::DuplexStream;
    use tokio_tungstenite::WebSocketStream;
    use tokio_tungstenite::tungstenite::Message;
    use tokio_tungstenite::tungstenite::protocol::Role;

    type Server = WebSocketStream<DuplexStream>;

    /// Both ends of a connection in memory, so that time may be virtual.
    async fn connected() -> (Link, Server) {
        let (client, server) = tokio::io::duplex(1 << 20);
        let client = WebSocketStream::from_raw_socket(client, Role::Client, None).await;
        let server = WebSocketStream::from_raw_socket(server, Role::Server, None).await;
        let connection = Connection::new(client, AudioMode::Ga).expect("a connection");
        (Link::Realtime(Box::new(connection)), server)
    }

    fn conversation(turns: Vec<Turn>) -> Conversation {
        let speaker = "a".to_owned();
        Conversation { split: Split::Held, speaker, condition: Condition::Clean, turns, bed: vec![3; 700] }
    }

    /// 100 ms of a reply.
    fn sound(item_id: &str) -> Message {
        use base64::Engine;
        let samples: Vec<u8> = (0..samples_of(100)).flat_map(|_| 4_000i16.to_le_bytes()).collect();
        let delta = base64::engine::general_purpose::STANDARD.encode(samples);
        Message::text(json!({"type": "response.output_audio.delta", "item_id": item_id, "delta": delta}).to_string())
    }

    fn event(event: &Value) -> Message {
        Message::text(event.to_string())
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_never_answers_ends_no_run() {
        let (link, mut server) = connected().await;
        let over = Turn { begins: Begins::OverReply(500), ..turn(Expected::Yield, &[(20, 400)]) };
        let conversation = conversation(vec![turn(Expected::Answer, &[(20, 900)]), over]);
        let talking = talk(link, &conversation);
        let listening = async { while server.next().await.is_some_and(|message| message.is_ok()) {} };
        let (recorded, ()) = tokio::join!(talking, listening);
        let recorded = recorded.expect("it ends");
        assert!(recorded.begins[0].is_some() && recorded.begins[1].is_none(), "{:?}", recorded.begins);
        let verdict = super::super::judge::judge(&conversation.turns[0], &recorded.observed(0).expect("run"));
        assert_eq!(verdict.response_ms, Some(f64::INFINITY));
        // Until 6 s after the first turn's end, and 8 s for a reply to speak over, a frame each 20 ms.
        assert!((700..800).contains(&recorded.n_frames), "{}", recorded.n_frames);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_never_stops_ends_no_run() {
        let (link, mut server) = connected().await;
        let conversation = conversation(vec![turn(Expected::Wait, &[(20, 300)]), turn(Expected::Answer, &[(20, 900)])]);
        let talking = talk(link, &conversation);
        let speaking = async {
            let mut ticks = interval(Duration::from_millis(100));
            let created = json!({"type": "response.created", "response": {"id": "r"}});
            let mut is_open = server.send(event(&created)).await.is_ok();
            while is_open {
                tokio::select! {
                    received = server.next() => is_open = received.is_some_and(|message| message.is_ok()),
                    _ = ticks.tick() => is_open = server.send(sound("i")).await.is_ok(),
                }
            }
        };
        let (recorded, ()) = tokio::join!(talking, speaking);
        let recorded = recorded.expect("it ends");
        assert_eq!(recorded.begins, [None, None], "there was never silence to begin in");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_of_the_ga_mode_stops_the_reply_and_truncates_it() {
        let (link, mut server) = connected().await;
        let over = Turn { begins: Begins::OverReply(400), ..turn(Expected::Yield, &[(20, 600)]) };
        let conversation = conversation(vec![turn(Expected::Answer, &[(20, 300)]), over]);
        let talking = talk(link, &conversation);
        // It answers after 40 frames, with 2 s of sound at once, and hears speech 40 frames after that.
        let serving = async {
            let mut truncated = None;
            let mut n_frames = 0;
            while let Some(Ok(Message::Text(text))) = server.next().await {
                let message: Value = serde_json::from_str(&text).expect("JSON");
                match message["type"].as_str() {
                    Some("input_audio_buffer.append") => n_frames += 1,
                    Some("conversation.item.truncate") => truncated = Some(message.clone()),
                    _ => {}
                }
                if n_frames == 40 && message["type"] == "input_audio_buffer.append" {
                    for _ in 0..20 {
                        server.send(sound("i")).await.expect("open");
                    }
                }
                if n_frames == 80 && message["type"] == "input_audio_buffer.append" {
                    let started = json!({
                        "type": "input_audio_buffer.speech_started", "item_id": "u", "audio_start_ms": 0,
                    });
                    server.send(event(&started)).await.expect("open");
                }
            }
            truncated
        };
        let (recorded, truncated) = tokio::join!(talking, serving);
        let recorded = recorded.expect("it ends");
        let truncated = truncated.expect("the reply was cut");
        assert_eq!((&truncated["item_id"], &truncated["content_index"]), (&json!("i"), &json!(0)));
        let heard_ms = truncated["audio_end_ms"].as_f64().expect("a number");
        assert!((780.0..=840.0).contains(&heard_ms), "40 frames are 800 ms: {heard_ms}");
        let verdict = super::super::judge::judge(&conversation.turns[1], &recorded.observed(1).expect("run"));
        let stop_ms = verdict.stop_ms.expect("there was a reply");
        assert!((300.0..500.0).contains(&stop_ms), "{stop_ms}");
        assert_eq!(verdict.yielded, Some(true));
    }

    fn recorded() -> Recorded {
        let mut playout = Playout::default();
        playout.audio("a", &[1_000; 24_000], 2_000.0);
        playout.audio("b", &[1_000; 24_000], 9_000.0);
        playout.hold(2_500.0);
        playout.resume(2_600.0);
        Recorded {
            begins: vec![Some(500.0), None, Some(2_400.0), Some(8_000.0)],
            playout,
            stops: vec![1_500.0, 8_900.0],
            cleared: vec![2_700.0],
            transcripts: vec![(1_700.0, "Move it to Monday.".into()), (8_950.0, "Thanks.".into())],
            ..Recorded::default()
        }
    }

    #[test]
    fn a_turn_has_what_came_until_the_next_one_began() {
        let recorded = recorded();
        let first = recorded.observed(0).expect("run");
        assert_eq!(first.stops, [1_000.0]);
        assert_eq!((first.sounds[0].from_ms, first.sounds.len()), (1_500.0, 1));
        assert!(first.cleared.is_empty() && first.holds.is_empty());
        assert_eq!(recorded.observed(1), None);
        let third = recorded.observed(2).expect("run");
        assert_eq!((third.cleared, third.holds), (vec![300.0], vec![(100.0, Some(200.0))]));
        assert_eq!(third.sounds[0].from_ms, -400.0, "the reply was under way");
        assert_eq!(recorded.observed(3).expect("run").stops, [900.0]);
    }

    #[test]
    fn words_are_compared_where_they_are_known() {
        let mut said = turn(Expected::Answer, &[(0, 500), (800, 900)]);
        assert_eq!(recorded().word_errors(0, &said), None);
        said.labels[0].text = "Please move it".into();
        said.labels[1].text = "to Monday.".into();
        assert_eq!(recorded().word_errors(0, &said), Some((1, 5)));
        assert_eq!(recorded().word_errors(1, &said), None, "it was not run");
    }
}
