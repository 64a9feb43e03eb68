//! One session of the load: it asks, listens to the response in real time, interrupts some responses, and asks again.

use super::Load;
use super::network::Line;
use super::turn::{Turn, TurnRecord};
use crate::voice_to_voice::open_with;
use antiphon_client::{
    AudioMode, Checkpoints, ClientError, Connection, Event, FRAME, RATE, ReceivedMessage, Receiver, Resumption, Sender,
};
use antiphon_types::{ItemId, Samples};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep_until};

const FRAME_TIME: Duration = Duration::from_millis(20);
/// Pause between the end of a response and the next question, in seconds.
const PAUSE_S: std::ops::Range<f64> = 0.3..0.7;
/// How much of a response is heard before it is interrupted, in seconds.
const HEARD_S: std::ops::Range<f64> = 0.4..0.8;
/// Interval of playback reports in the binary modes, the same as the web page's.
const REPORT_EVERY: Duration = Duration::from_millis(100);

/// Duration of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// This many turns per session, without the warm-up.
    Turns(usize),
    /// No session asks another question after this time.
    For(Duration),
}

/// The record of a session.
#[derive(Debug, Default)]
pub(super) struct SessionRecord {
    pub(super) session: usize,
    pub(super) turns: Vec<TurnRecord>,
    /// Identifiers assigned by the server; no other session may have the same.
    pub(super) ids: Vec<String>,
    /// Why the session ended early.
    pub(super) broke: Option<ClientError>,
    /// How long it took until the session could not be opened.
    pub(super) not_opened: Option<Duration>,
    /// How often it was resumed.
    pub(super) returns: Vec<Return>,
    /// Reply frames whose sequence number was not the one expected, although no audio was dropped before.
    pub(super) n_misplaced_frames: u64,
    /// Those behind an interruption, which drops frames that have numbers.
    pub(super) n_interrupted_frames: u64,
    /// What is in the conversation at its end.
    pub(super) conversation: Conversation,
}

/// A session was resumed after its connection was lost.
#[derive(Clone, Copy, Debug)]
pub struct Return {
    /// Index of the session, from 0.
    pub session: usize,
    /// When it was resumed.
    pub at: Instant,
    /// How.
    pub resumed: Resumption,
}

/// What a session's conversation has in it at its end, without what was void because the session went back to a checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conversation {
    /// Questions that were spoken.
    pub n_asked: usize,
    /// Utterances that the server committed.
    pub n_committed: usize,
    /// Responses that were completed.
    pub n_answered: usize,
    /// Questions that were sent again with the next one right behind them, because the session went back to a checkpoint before
    /// the end of their responses: one response may answer both.
    pub n_followed: usize,
}

/// State of a talk at a checkpoint.
#[derive(Clone, Default)]
struct Mark {
    /// Number of turns started.
    n_begun: usize,
    turn: Option<Turn>,
    conversation: Conversation,
}

/// Runs one conversation to its end; a failure is part of the record.
///
/// `call` counts the sessions that were in this place before.
pub(super) async fn hold(load: Arc<Load>, session: usize, call: usize, began: Instant) -> SessionRecord {
    let mut record = SessionRecord { session, ..SessionRecord::default() };
    let talked = async {
        let begun = Instant::now();
        let connection = open_with(&load.connect, &load.session).await;
        let connection = connection.inspect_err(|_| record.not_opened = Some(begun.elapsed()))?;
        Talk::new(&load, session, call, began, connection).run(&mut record).await
    };
    record.broke = talked.await.err();
    record
}

struct Talk<'a> {
    load: &'a Load,
    session: usize,
    began: Instant,
    sender: Sender,
    receiver: Receiver,
    line: Line,
    ticks: Interval,
    dice: StdRng,
    turn: Option<Turn>,
    /// The last turn that has ended: it is received again if the session goes back to a checkpoint in it.
    ended: Option<Turn>,
    checkpoints: Checkpoints<Mark>,
    /// The receiver's count of misplaced frames so far.
    n_misplaced: u64,
    /// Audio was dropped since the last frame.
    was_cleared: bool,
    /// Samples of the turn's clip that were spoken.
    said: usize,
    /// Number of turns started.
    n_begun: usize,
    /// Number of turns after which this session ends; `None`: it stays.
    n_turns: Option<usize>,
    /// How much of the current response is heard before it is interrupted; `None`: all of it.
    hears: Option<Duration>,
    /// When the next question is due.
    next_at: Instant,
    reported: Instant,
}

impl<'a> Talk<'a> {
    fn new(load: &'a Load, session: usize, call: usize, began: Instant, connection: Connection) -> Self {
        let now = Instant::now();
        let seed = load.seed.wrapping_add((call * load.n_sessions + session) as u64);
        let mut ticks = interval(FRAME_TIME);
        // A late microphone catches up.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let mut dice = StdRng::seed_from_u64(!seed);
        let n_turns = load.call_turns.clone().map(|turns| dice.random_range(turns));
        Self {
            load,
            session,
            began,
            sender: connection.sender,
            receiver: connection.receiver,
            line: Line::new(load.network, seed, now),
            ticks,
            next_at: now + Duration::from_secs_f64(dice.random_range(PAUSE_S)),
            dice,
            turn: None,
            ended: None,
            checkpoints: Checkpoints::default(),
            n_misplaced: 0,
            was_cleared: false,
            said: 0,
            n_begun: 0,
            n_turns,
            hears: None,
            reported: now,
        }
    }

    async fn run(mut self, record: &mut SessionRecord) -> Result<(), ClientError> {
        let result = self.talk(record).await;
        record.conversation.n_asked = self.n_begun;
        result
    }

    async fn talk(&mut self, record: &mut SessionRecord) -> Result<(), ClientError> {
        loop {
            let now = Instant::now();
            let stalled = self.line.stalled(now).is_some();
            let due = self.line.next_due();
            tokio::select! {
                biased;
                received = self.receiver.next(), if !stalled => self.take(received?, record).await?,
                () = sleep_until(due.unwrap_or(now)), if due.is_some() => self.send(Instant::now()).await?,
                _ = self.ticks.tick() => if !self.tick(record).await? { break },
            }
        }
        self.sender.close().await;
        Ok(())
    }

    /// Advances by 20 ms; returns `false` when all questions were asked.
    async fn tick(&mut self, record: &mut SessionRecord) -> Result<bool, ClientError> {
        let now = Instant::now();
        if !self.advance(now, record) {
            return Ok(false);
        }
        let frame = self.frame(now);
        self.line.speak(frame, now);
        self.send(now).await?;
        if now.saturating_duration_since(self.reported) >= REPORT_EVERY {
            self.reported = now;
            if let Some((item_id, ms)) = self.turn.as_ref().and_then(|turn| turn.heard(now)) {
                self.sender.played(&ItemId::from(item_id), ms).await?;
            }
        }
        Ok(true)
    }

    /// Ends a turn that is over and starts one that is due.
    fn advance(&mut self, now: Instant, record: &mut SessionRecord) -> bool {
        let Some(turn) = &self.turn else {
            if !self.goes_on(now) {
                return false;
            }
            if now >= self.next_at {
                self.begin(now, None);
            }
            return true;
        };
        let asked = self.said >= self.load.clips[turn.clip].samples.len();
        let since = turn.sounding_since(now).filter(|_| asked);
        if self.receiver.is_away() {
            // What it waits for cannot come.
        } else if asked && turn.is_over(now) || now >= turn.deadline {
            self.end(record);
            self.ended = self.turn.take();
            self.next_at = now + Duration::from_secs_f64(self.dice.random_range(PAUSE_S));
        } else if since.zip(self.hears).is_some_and(|(since, hears)| now >= since + hears) && self.goes_on(now) {
            self.end(record);
            let over = self.turn.take();
            self.begin(now, over);
        }
        true
    }

    fn goes_on(&self, now: Instant) -> bool {
        if self.load.stop.is_cancelled() || self.n_turns.is_some_and(|n| self.n_begun >= n) {
            return false;
        }
        match self.load.length {
            Length::Turns(n) => self.n_begun < self.load.warm_up + n,
            Length::For(time) => now < self.began + time,
        }
    }

    fn begin(&mut self, now: Instant, over: Option<Turn>) {
        let clip = self.load.clips.of(self.session, self.n_begun);
        let paced = self.load.connect.mode != AudioMode::Ga;
        self.turn = Some(Turn::new(clip, self.deadline(clip, now), paced, over));
        self.said = 0;
        self.n_begun += 1;
        let interrupts = self.load.barge_in > 0.0 && self.dice.random_bool(self.load.barge_in);
        self.hears = interrupts.then(|| Duration::from_secs_f64(self.dice.random_range(HEARD_S)));
    }

    fn deadline(&self, clip: usize, now: Instant) -> Instant {
        now + Samples(self.load.clips[clip].samples.len() as u64).duration(RATE) + self.load.patience
    }

    fn end(&self, record: &mut SessionRecord) {
        let Some(turn) = &self.turn else { return };
        let at = self.n_begun - 1;
        let of_turn = turn.record(&self.load.clips, self.session, at, self.began);
        record.turns.push(TurnRecord { warm_up: at < self.load.warm_up, ..of_turn });
        self.load.n_turns.fetch_add(1, Relaxed);
    }

    /// The next frame: of the question, or of the silence around it.
    fn frame(&mut self, now: Instant) -> Vec<i16> {
        let mut frame = vec![0; FRAME];
        let Some(turn) = &mut self.turn else { return frame };
        let clip = &self.load.clips[turn.clip];
        let left = clip.samples.get(self.said..).unwrap_or_default();
        let n = left.len().min(FRAME);
        frame[..n].copy_from_slice(&left[..n]);
        self.said += n;
        turn.said(self.said, clip.loud, now);
        frame
    }

    async fn send(&mut self, now: Instant) -> Result<(), ClientError> {
        while let Some(frame) = self.line.ready(now) {
            self.sender.lose(frame.lost);
            self.sender.audio(&frame.samples).await?;
        }
        Ok(())
    }

    async fn take(&mut self, received: ReceivedMessage, record: &mut SessionRecord) -> Result<(), ClientError> {
        let at = self.line.arrival(Instant::now());
        match &received {
            ReceivedMessage::Event(Event::ResponseCreated { response }) => record.ids.push(response.id.clone()),
            ReceivedMessage::Event(Event::Committed { item_id }) => {
                record.ids.push(item_id.clone());
                record.conversation.n_committed += 1;
            }
            ReceivedMessage::Event(Event::ResponseDone { response }) if response.status == "completed" => {
                record.conversation.n_answered += 1;
            }
            ReceivedMessage::Event(Event::SessionCheckpoint { .. }) if self.load.connect.resume => {
                let mark = Mark { n_begun: self.n_begun, turn: self.turn.clone(), conversation: record.conversation };
                self.checkpoints.mark(self.receiver.n_received(), mark);
            }
            ReceivedMessage::Resumed(resumed) => self.resumed(*resumed, at, record),
            ReceivedMessage::Event(Event::Cleared {}) => self.was_cleared = true,
            ReceivedMessage::Audio { .. } => {
                let all = self.receiver.n_misplaced_frames();
                let n = all - std::mem::replace(&mut self.n_misplaced, all);
                match std::mem::take(&mut self.was_cleared) {
                    true => record.n_interrupted_frames += n,
                    false => record.n_misplaced_frames += n,
                }
            }
            _ => {}
        }
        // Events between two turns are irrelevant.
        let Some(turn) = &mut self.turn else { return Ok(()) };
        let report = match received {
            ReceivedMessage::Audio { item_id, samples } => {
                turn.audio(&item_id, &samples, at);
                None
            }
            ReceivedMessage::Event(event) => turn.event(event, at),
            ReceivedMessage::Resumed(_) => None,
        };
        match report {
            Some(event) => self.sender.event(&event).await,
            None => Ok(()),
        }
    }

    /// The session was resumed; where it went back to a checkpoint, so does what was received.
    fn resumed(&mut self, resumed: Resumption, at: Instant, record: &mut SessionRecord) {
        record.returns.push(Return { session: self.session, at, resumed });
        self.load.n_returns.fetch_add(1, Relaxed);
        if let Some(turn) = &mut self.turn {
            turn.waited(resumed.gap, at);
        }
        // Without a mark the checkpoint was announced before the talk began.
        let Some(mark) = resumed.back_to.map(|number| self.checkpoints.back_to(number).unwrap_or_default()) else {
            return;
        };
        record.conversation = mark.conversation;
        let was_answered = mark.turn.as_ref().is_some_and(Turn::is_answered);
        let n_again = self.n_begun - mark.n_begun + usize::from(mark.turn.is_some() && !was_answered);
        record.conversation.n_followed += n_again.saturating_sub(1);
        let in_turn = mark.turn.as_ref().filter(|_| mark.n_begun == self.n_begun);
        let (turn, was_ended) = match self.turn.take() {
            Some(turn) => (turn, false),
            // The last turn has ended, and its response is void.
            None if mark.n_begun < self.n_begun || in_turn.is_some() && !was_answered => match self.ended.take() {
                Some(ended) => (ended, true),
                None => return,
            },
            None => return,
        };
        if was_ended {
            record.turns.pop();
            self.load.n_turns.fetch_sub(1, Relaxed);
        }
        self.turn = Some(turn.back(in_turn, self.deadline(turn.clip, at), at));
    }
}
