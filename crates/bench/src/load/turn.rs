//! One turn of a session from its listener's point of view: the end of the question, playback of the response, and the
//! response that the question interrupted.

use super::belonging::{RoundTrip, Verdict, judge};
use super::clips::{Clips, Sign};
pub use crate::simulated::Words;
use antiphon_client::{Event, Gaps, RATE, Reply};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;

/// In the binary modes audio arrives after `response.done`, in real time. Each item's ends with `antiphon.output_audio.sent`;
/// the response has no further item after this long without any audio.
const QUIET: Duration = Duration::from_millis(700);
/// How long after the response a transcript may arrive. Servers without transcription never send one.
const TRANSCRIPT_GRACE: Duration = Duration::from_secs(2);
/// Samples used for measuring a tone's frequency: 0.2 s.
const TONE_SAMPLES: usize = RATE.hz() as usize / 5;

/// The result of one turn.
#[derive(Clone, Debug, PartialEq)]
pub struct TurnRecord {
    /// Index of the session, from 0.
    pub session: usize,
    /// Index of the turn, from 0, including the warm-up.
    pub turn: usize,
    /// Whether it is left out of the figures.
    pub warm_up: bool,
    /// Time from the start of the load to the last loud sample of the question.
    pub at: Duration,
    /// Voice-to-voice latency from then on; `None` without audible response, or if it started before the end of the
    /// question.
    pub wait: Option<Duration>,
    /// For a question that interrupts a response: time from its first loud sample to silence, or an inner `None` if
    /// playback continued. The outer `None` means no interruption, or that the response had already ended.
    pub silence: Option<Option<Duration>>,
    /// Audio deltas of the interrupted response received after the silence.
    pub n_after_silence: usize,
    /// Underruns during playback of the response.
    pub gaps: Gaps,
    /// Lost and doubled words of the response; `None` where they cannot be recognized by their sound.
    pub words: Option<Words>,
    /// Evidence that the response or the transcript belongs to another session.
    pub mixed_up: Option<String>,
    /// Whether transcript and response were recognized as its own.
    pub own: bool,
    /// Index of its clip.
    pub clip: usize,
    /// What the server heard.
    pub heard: HeardQuestion,
    /// Description of a failure.
    pub trouble: Option<String>,
}

/// What the server heard of a question.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HeardQuestion {
    /// The final transcript; empty without one.
    pub transcript: String,
    /// The words that were shown while the person spoke, before the final transcript.
    pub shown: String,
    /// From the first loud sample to the first of them.
    pub first_words: Option<Duration>,
}

#[cfg(test)]
impl TurnRecord {
    /// A turn in which nothing went wrong, but that it may have no answer.
    pub(crate) fn asked(at: Duration, wait: Option<Duration>) -> Self {
        Self {
            session: 0,
            turn: 0,
            warm_up: false,
            at,
            wait,
            silence: None,
            n_after_silence: 0,
            gaps: Gaps::default(),
            words: None,
            mixed_up: None,
            own: true,
            clip: 0,
            heard: HeardQuestion::default(),
            trouble: None,
        }
    }
}

/// A response that is being interrupted.
#[derive(Clone)]
pub(super) struct InterruptedReply {
    pub(super) reply: Reply,
    item_id: Option<String>,
    first_loud: Option<Instant>,
    /// Whether it was still playing at the first loud sample.
    sounded: bool,
    held: Option<Instant>,
    silent: Option<Instant>,
    n_after: usize,
}

/// The current turn.
#[derive(Clone)]
pub(super) struct Turn {
    pub(super) clip: usize,
    /// When the turn times out.
    pub(super) deadline: Instant,
    pub(super) reply: Reply,
    first_loud: Option<Instant>,
    spoken: Option<Instant>,
    /// Words shown before the question was committed, and when the first of them arrived.
    shown: String,
    first_words: Option<Instant>,
    item_id: Option<String>,
    /// The last response started in this turn.
    response: Option<String>,
    done: Option<Instant>,
    transcripts: Vec<String>,
    /// Items committed in this turn, and whether their transcripts have arrived; one may arrive during the next turn.
    items: Vec<(String, bool)>,
    answer: String,
    last_audio: Option<Instant>,
    /// The item whose audio has begun and is not complete, in the binary modes.
    sounding: Option<String>,
    interrupted: Option<InterruptedReply>,
    trouble: Option<String>,
    paced: bool,
}

impl Turn {
    /// A turn that speaks `clip`; `over` is the turn whose response it interrupts.
    pub(super) fn new(clip: usize, deadline: Instant, paced: bool, over: Option<Self>) -> Self {
        let interrupted = over.map(|over| InterruptedReply {
            reply: over.reply,
            item_id: over.item_id,
            first_loud: None,
            sounded: false,
            held: None,
            silent: None,
            n_after: 0,
        });
        Self {
            clip,
            deadline,
            reply: Reply::default(),
            first_loud: None,
            spoken: None,
            shown: String::new(),
            first_words: None,
            item_id: None,
            response: None,
            done: None,
            transcripts: Vec::new(),
            items: Vec::new(),
            answer: String::new(),
            last_audio: None,
            sounding: None,
            interrupted,
            trouble: None,
            paced,
        }
    }

    /// The turn as it was at a checkpoint. What was spoken meanwhile stays spoken; what was received is void.
    pub(super) fn back(&self, checkpoint: Option<&Self>, deadline: Instant, at: Instant) -> Self {
        let turn = checkpoint.cloned().unwrap_or_else(|| Self::new(self.clip, deadline, self.paced, None));
        Self { deadline, first_loud: self.first_loud, spoken: self.spoken, last_audio: Some(at), ..turn }
    }

    /// The connection is back after `gap`: what the turn waits for was not sent meanwhile.
    pub(super) fn waited(&mut self, gap: Duration, at: Instant) {
        self.deadline += gap;
        self.last_audio = Some(at);
    }

    /// Whether the text of the response is complete.
    pub(super) fn is_answered(&self) -> bool {
        self.done.is_some()
    }

    /// Records that `n_said` samples of the clip were spoken by `now`; `loud` are the indices of its loud samples.
    pub(super) fn said(&mut self, n_said: usize, loud: (usize, usize), now: Instant) {
        if n_said > loud.0 {
            self.first_loud.get_or_insert(now);
        }
        if n_said > loud.1 {
            self.spoken.get_or_insert(now);
        }
        match &mut self.interrupted {
            Some(over) if n_said > loud.0 && over.first_loud.is_none() => {
                over.first_loud = Some(now);
                over.sounded = over.silent.is_none() && !over.reply.remaining(now).is_zero();
            }
            _ => {}
        }
    }

    /// Handles response audio.
    pub(super) fn audio(&mut self, item_id: &str, samples: &[i16], at: Instant) {
        match &mut self.interrupted {
            Some(over) if self.response.is_none() => match over.silent {
                Some(_) => over.n_after += 1,
                None => over.reply.take(item_id, samples, at),
            },
            _ => {
                self.last_audio = Some(at);
                if self.item_id.as_deref() != Some(item_id) {
                    self.item_id = Some(item_id.to_owned());
                }
                if self.paced && self.sounding.as_deref() != Some(item_id) {
                    self.sounding = Some(item_id.to_owned());
                }
                self.reply.take(item_id, samples, at);
            }
        }
    }

    /// Handles an event; returns the event that the client must send in reply, if any.
    pub(super) fn event(&mut self, event: Event, at: Instant) -> Option<Value> {
        match event {
            Event::SpeechStarted { .. } if !self.paced => return self.cut(at),
            Event::Held { .. } => self.hold(at),
            Event::Resumed { .. } => self.resume(at),
            Event::Cleared {} => self.clear(at),
            Event::AudioSent { item_id } if self.sounding.as_ref() == Some(&item_id) => self.sounding = None,
            Event::Committed { item_id } => self.items.push((item_id, false)),
            // Behind the commit the rest of the final transcript comes.
            Event::TranscriptionDelta { delta, .. } if self.items.is_empty() => {
                self.first_words.get_or_insert(at);
                self.shown.push_str(&delta);
            }
            Event::TranscriptionDraft { transcript, .. } if self.items.is_empty() && !transcript.is_empty() => {
                self.first_words.get_or_insert(at);
            }
            Event::TranscriptionCompleted { item_id, transcript } => {
                let of_turn = self.transcribed(&item_id) && !transcript.is_empty();
                self.transcripts.extend(of_turn.then_some(transcript));
            }
            Event::TranscriptionFailed { item_id, error } => {
                self.transcribed(&item_id);
                self.went_wrong("the transcription failed", error.message);
            }
            Event::ResponseCreated { response } => {
                // A later response replaces the one before it.
                self.reply = Reply::default();
                self.sounding = None;
                self.answer.clear();
                self.response = Some(response.id);
                self.done = None;
            }
            Event::TranscriptDelta { delta, .. } | Event::TextDelta { delta, .. } if self.response.is_some() => {
                self.answer.push_str(&delta);
            }
            Event::ResponseDone { response } if self.response.as_ref() == Some(&response.id) => {
                let error = response.status_details.and_then(|details| details.error);
                match response.status.as_str() {
                    // Cancelled by the rest of the question, or by the next one.
                    "cancelled" => {}
                    "failed" => {
                        self.went_wrong("the response failed", error.and_then(|error| error.message));
                        self.done = Some(at);
                    }
                    _ => self.done = Some(at),
                }
            }
            Event::Error { error } => self.went_wrong("the server said", error.message),
            _ => {}
        }
        None
    }

    /// Stops playback at the current position, as GA clients do when speech starts.
    fn cut(&mut self, at: Instant) -> Option<Value> {
        let (reply, item_id) = match &mut self.interrupted {
            Some(over) if over.silent.is_none() && self.response.is_none() => {
                over.silent = Some(at);
                (&mut over.reply, over.item_id.as_ref()?)
            }
            _ => (&mut self.reply, self.item_id.as_ref()?),
        };
        if reply.remaining(at).is_zero() {
            return None;
        }
        reply.clear(at);
        let audio_end_ms = reply.heard(at).map_or(0, |(_, heard)| heard.as_ms(RATE));
        Some(json!({
            "type": "conversation.item.truncate", "item_id": item_id, "content_index": 0, "audio_end_ms": audio_end_ms,
        }))
    }

    fn hold(&mut self, at: Instant) {
        match &mut self.interrupted {
            Some(over) if over.silent.is_none() => {
                over.held = Some(at);
                over.reply.hold(at);
            }
            _ => self.reply.hold(at),
        }
    }

    fn resume(&mut self, at: Instant) {
        match &mut self.interrupted {
            Some(over) if over.silent.is_none() => {
                over.held = None;
                over.reply.resume(at);
            }
            _ => self.reply.resume(at),
        }
    }

    fn clear(&mut self, at: Instant) {
        match &mut self.interrupted {
            Some(over) if over.silent.is_none() => {
                over.silent = Some(over.held.unwrap_or(at));
                over.reply.clear(at);
            }
            _ => {
                self.reply.clear(at);
                self.sounding = None;
            }
        }
    }

    /// Marks an item of this turn as transcribed; returns whether it belongs to the turn.
    fn transcribed(&mut self, item_id: &str) -> bool {
        let item = self.items.iter_mut().find(|(of_turn, _)| of_turn == item_id);
        item.map(|(_, there)| *there = true).is_some()
    }

    fn went_wrong(&mut self, what: &str, message: Option<String>) {
        self.trouble.get_or_insert_with(|| format!("{what}: {}", message.as_deref().unwrap_or("no reason given")));
    }

    /// Whether the response was played to its end and the transcripts have arrived or are overdue. The question must
    /// have been spoken completely.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        let Some(done) = self.done else { return false };
        let is_quiet = || self.last_audio.is_none_or(|last| now.saturating_duration_since(last) >= QUIET);
        let quiet = !self.paced || self.sounding.is_none() && is_quiet();
        let grace = now.saturating_duration_since(done) >= TRANSCRIPT_GRACE;
        quiet && self.reply.remaining(now).is_zero() && (self.items.iter().all(|(_, there)| *there) || grace)
    }

    /// When the response started to play, if the question is over and playback continues.
    pub(super) fn sounding_since(&self, now: Instant) -> Option<Instant> {
        let since = self.reply.audible().filter(|at| self.spoken.is_some_and(|spoken| *at > spoken))?;
        (!self.reply.remaining(now).is_zero()).then_some(since)
    }

    /// The playback position to report.
    pub(super) fn heard(&self, now: Instant) -> Option<(&str, u64)> {
        let (item_id, heard) = self.reply.heard(now)?;
        Some((item_id, heard.as_ms(RATE)))
    }

    /// The record of the turn; `began` is the start of the load.
    pub(super) fn record(&self, clips: &Clips, session: usize, turn: usize, began: Instant) -> TurnRecord {
        let tone_hz = matches!(clips[self.clip].sign, Sign::Name { .. }).then(|| tone(self.reply.samples())).flatten();
        let transcript = self.transcripts.join(" ");
        let verdict = judge(clips, self.clip, &RoundTrip { transcript: &transcript, answer: &self.answer, tone_hz });
        let wait =
            self.reply.audible().zip(self.spoken).and_then(|(audible, spoken)| audible.checked_duration_since(spoken));
        let trouble = match (&self.trouble, wait, self.reply.audible()) {
            (None, None, None) => Some("there was no answer".to_owned()),
            (None, None, Some(_)) => Some("it was answered before the question was over".to_owned()),
            (trouble, ..) => trouble.clone(),
        };
        let over = self.interrupted.as_ref().filter(|over| over.sounded);
        TurnRecord {
            session,
            turn,
            warm_up: false,
            at: self.spoken.map_or(Duration::ZERO, |spoken| spoken.saturating_duration_since(began)),
            wait,
            silence: over.map(|over| {
                let (silent, loud) = over.silent.zip(over.first_loud)?;
                Some(silent.saturating_duration_since(loud))
            }),
            n_after_silence: over.map_or(0, |over| over.n_after),
            gaps: self.reply.gaps(),
            words: clips[self.clip].word.map(|word| Words::count(self.reply.samples(), word)),
            own: verdict == Verdict::Own,
            clip: self.clip,
            heard: HeardQuestion {
                transcript,
                shown: self.shown.clone(),
                first_words: self
                    .first_words
                    .zip(self.first_loud)
                    .and_then(|(words, loud)| words.checked_duration_since(loud)),
            },
            mixed_up: match verdict {
                Verdict::Other(what) => Some(what),
                Verdict::Own | Verdict::Unclear => None,
            },
            trouble,
        }
    }
}

/// The frequency of the first sound in Hz, from its upward zero crossings; `None` if it is too short.
fn tone(samples: &[i16]) -> Option<f64> {
    let start = samples.iter().position(|sample| sample.unsigned_abs() >= 1_000)?;
    let part = samples[start..].get(..TONE_SAMPLES)?;
    let crossings: Vec<f64> = part
        .windows(2)
        .enumerate()
        .filter(|(_, pair)| pair[0] < 0 && pair[1] >= 0)
        .map(|(i, pair)| i as f64 + f64::from(pair[0]) / (f64::from(pair[0]) - f64::from(pair[1])))
        .collect();
    let first = crossings.first()?;
    let last = crossings.last()?;
    (crossings.len() > 1).then(|| (crossings.len() - 1) as f64 * f64::from(RATE.hz()) / (last - first))
}

#[cfg(test)]
#[path = "turn_tests.rs"]
mod tests;
