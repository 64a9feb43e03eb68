//! The way in: wire audio to windows, to edges of the turn, to the utterance's transcription.
//!
//! The actor pushes what came and then asks for one window after the other, so that the reducer decides between two
//! windows whatever the size of a message. Owns VAD, turn detector, echo guard and pre-roll. Never waits: when the
//! transcription is behind, [`Ingress::blocked_on`] names the queue to wait for.

use super::hearing::Feed;
use super::turns::Turns;
use super::utterance::Utterance;
use crate::audio::codec::{self, CodecError, Format, OpusIn};
use crate::audio::{Denoiser, EchoGuard, Jitter, NoiseReduction, Pitch, PreRoll, Resampler, Slot};
use crate::turn::{Decision, Edge, Heard, TurnTaker};
use crate::units::{ItemId, Pcm, SampleRate, Samples};
use crate::vad::{Vad, VadStream};
use bytes::Bytes;
use std::sync::Arc;
use tokio::sync::mpsc;

const RATE: SampleRate = SampleRate::HZ_16000;

/// One microphone.
pub(super) struct Ingress {
    format: Format,
    turns: Turns,
    reduction: Option<NoiseReduction>,
    engine: Arc<dyn Vad>,
    /// Made on the first audio, since many connections never send any.
    ears: Option<Ears>,
    opus: Option<OpusIn>,
    jitter: Jitter,
    turn: TurnTaker,
    pitch: Pitch,
    echo: EchoGuard,
    preroll: PreRoll,
    /// Turn time at which the pre-roll began.
    preroll_base: Samples,
    /// Samples at 16 kHz that wait for a window.
    pending: Vec<i16>,
    taken: usize,
    /// Turn time up to which windows were judged.
    position: Samples,
    /// Turn time of the last commit or clear.
    buffer_start: Samples,
    /// Samples at 16 kHz that the resampler holds back, and held back at the last commit or clear.
    lag: f64,
    lag_at_start: f64,
    utterance: Option<Utterance>,
    /// Complete utterances whose feed is full.
    closing: Vec<Utterance>,
    scratch: Vec<i16>,
}

struct Ears {
    resampler: Resampler,
    vad: Box<dyn VadStream>,
    denoiser: Option<Denoiser>,
}

impl Ears {
    fn new(rate: SampleRate, engine: &dyn Vad, reduction: Option<NoiseReduction>) -> Self {
        let denoiser = reduction.map(Denoiser::new);
        Self { resampler: Resampler::new(rate, RATE), vad: engine.open(), denoiser }
    }

    /// Runs what `pending` holds from `from` on through the noise reduction.
    fn reduce_noise(&mut self, pending: &mut Vec<i16>, from: usize) {
        if let Some(denoiser) = &mut self.denoiser {
            let fresh = pending.split_off(from);
            denoiser.process(&fresh, pending);
        }
    }
}

impl Ingress {
    pub(super) fn new(engine: Arc<dyn Vad>, format: Format, turns: Turns) -> Self {
        Self {
            format,
            turn: TurnTaker::new(turns.thresholds(), turns.ending()),
            pitch: Pitch::default(),
            preroll: PreRoll::new(turns.capacity()),
            turns,
            reduction: None,
            engine,
            ears: None,
            opus: None,
            jitter: Jitter::new(),
            echo: EchoGuard::new(),
            preroll_base: Samples::ZERO,
            pending: Vec::new(),
            taken: 0,
            position: Samples::ZERO,
            buffer_start: Samples::ZERO,
            lag: 0.0,
            lag_at_start: 0.0,
            utterance: None,
            closing: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// New settings; audio that is under way goes on.
    pub(super) fn set(&mut self, format: Format, turns: Turns) {
        if format != self.format {
            self.format = format;
            if let Some(ears) = &mut self.ears {
                ears.resampler = Resampler::new(format.rate(), RATE);
                (self.lag, self.lag_at_start) = (0.0, 0.0);
            }
        }
        if turns == self.turns {
            return;
        }
        if turns.capacity() != self.turns.capacity() {
            let mut kept = Vec::new();
            let start = self.preroll.copy_from(Samples::ZERO, &mut kept) + self.preroll_base;
            self.preroll = PreRoll::new(turns.capacity());
            self.preroll.push(&kept);
            self.preroll_base = start;
        }
        self.turns = turns;
        self.turn.set(turns.thresholds(), turns.ending());
    }

    /// Reduces noise so from the next audio on, or not any more.
    pub(super) fn reduce_noise(&mut self, reduction: Option<NoiseReduction>) {
        self.reduction = reduction;
        let Some(ears) = &mut self.ears else { return };
        match (&mut ears.denoiser, reduction) {
            (Some(denoiser), Some(reduction)) => denoiser.set(reduction),
            (Some(denoiser), None) => {
                denoiser.flush(&mut self.pending);
                ears.denoiser = None;
            }
            (none, reduction) => *none = reduction.map(Denoiser::new),
        }
    }

    /// Takes audio in the session's format; any length of whole samples.
    pub(super) fn push(&mut self, audio: &[u8]) -> Result<(), CodecError> {
        let mut samples = std::mem::take(&mut self.scratch);
        samples.clear();
        let decoded = codec::decode(self.format, audio, &mut samples);
        if decoded.is_ok() {
            let rate = self.format.rate();
            let engine = &self.engine;
            let ears = self.ears.get_or_insert_with(|| Ears::new(rate, &**engine, self.reduction));
            let before = self.pending.len();
            ears.resampler.process(&samples, &mut self.pending);
            ears.reduce_noise(&mut self.pending, before);
            let given = samples.len() as f64 * f64::from(RATE.hz()) / f64::from(rate.hz());
            self.lag += given - (self.pending.len() - before) as f64;
        }
        self.scratch = samples;
        decoded
    }

    /// Takes a binary frame's payload: one Opus packet, or PCM16.
    pub(super) fn push_frame(
        &mut self,
        sequence: u32,
        offset: Samples,
        payload: Bytes,
        opus: bool,
    ) -> Result<(), CodecError> {
        self.jitter.push(sequence, offset.0, payload);
        let mut worst = Ok(());
        while let Some(slot) = self.jitter.pop() {
            let result = match slot {
                Slot::Frame(frame) if opus => self.push_opus(|decoder, out| decoder.decode(&frame.payload, out)),
                Slot::Frame(frame) => self.push(&frame.payload),
                Slot::Lost { next, .. } if opus => self.push_opus(|decoder, out| decoder.conceal(next.as_deref(), out)),
                // A lost PCM frame is silence of its length, so that turn time stays true.
                Slot::Lost { next, .. } => self.push(&vec![0; next.map_or(960, |next| next.len() & !1)]),
            };
            worst = worst.and(result);
        }
        worst
    }

    fn push_opus(
        &mut self,
        decode: impl FnOnce(&mut OpusIn, &mut Vec<i16>) -> Result<(), CodecError>,
    ) -> Result<(), CodecError> {
        let engine = &self.engine;
        let rate = self.format.rate();
        let ears = self.ears.get_or_insert_with(|| Ears::new(rate, &**engine, self.reduction));
        if self.opus.is_none() {
            self.opus = Some(OpusIn::new()?);
        }
        let before = self.pending.len();
        let decoded = decode(self.opus.as_mut().expect("made just now"), &mut self.pending);
        ears.reduce_noise(&mut self.pending, before);
        decoded
    }

    /// Judges the next window. `None` when there is no whole one, or when the transcription is behind.
    pub(super) fn advance(&mut self) -> Option<Option<Edge>> {
        let window = self.engine.window();
        if self.is_blocked() || self.pending.len() - self.taken < window {
            self.forget_taken();
            return None;
        }
        let (from, to) = (self.taken, self.taken + window);
        self.taken = to;
        let (start, end) = (self.position, self.position + Samples(window as u64));
        self.position = end;
        self.scratch.clear();
        self.scratch.resize(window, 0);
        self.echo.residual(&self.pending[from..to], &mut self.scratch);
        let ears = self.ears.as_mut().expect("audio came through the ears");
        let probability = ears.vad.probability(&self.scratch).unwrap_or_else(|error| {
            tracing::error!(%error, "the voice activity detector failed on a window");
            0.0
        });
        let peak = self.scratch.iter().map(|sample| sample.unsigned_abs()).max().unwrap_or(0);
        let (pending, preroll, utterance) = (&self.pending[from..to], &mut self.preroll, &mut self.utterance);
        preroll.push(pending);
        if let Some(utterance) = utterance {
            utterance.push(pending);
        }
        let (level_db, pitch_hz) = self
            .turn
            .listens_to_the_voice()
            .then(|| self.pitch.window(pending))
            .map_or((0.0, None), |tone| (tone.level_db, tone.pitch_hz));
        let edge = self.turn.window(Heard { probability, peak, level_db, pitch_hz, start, end });
        if self.turn.asks_for_words(end)
            && let Some(utterance) = &mut self.utterance
        {
            utterance.ask();
        }
        Some(edge)
    }

    /// What was understood of the first `n_heard` samples of the utterance `item`.
    pub(super) fn partial(&mut self, item: &ItemId, text: &str, n_heard: Samples) {
        if let Some(utterance) = self.utterance.as_ref().filter(|utterance| utterance.item == *item) {
            self.turn.partial(text, utterance.start + n_heard);
        }
    }

    /// Why the last utterance ended when it did, where the wait adapts.
    pub(super) fn decision(&self) -> Option<&Decision> {
        self.turn.decision()
    }

    /// The silence that would end the turn now.
    pub(super) fn wait(&self) -> Samples {
        self.turn.wait()
    }

    fn forget_taken(&mut self) {
        if self.taken == self.pending.len() {
            self.pending.clear();
            self.taken = 0;
        } else if self.taken > 0 && self.pending.len() - self.taken < self.engine.window() {
            self.pending.drain(..self.taken);
            self.taken = 0;
        }
        // A long message may have blown it up.
        if self.pending.is_empty() && self.pending.capacity() > 64 * 1024 {
            self.pending.shrink_to(4 * 1024);
        }
    }

    /// Where an utterance begins whose first voiced window is at `voiced`.
    pub(super) fn audio_start(&self, voiced: Samples) -> Samples {
        match self.turns {
            Turns::Detected { padding, .. } => voiced.saturating_sub(padding).max(self.buffer_start),
            Turns::Manual { .. } => self.buffer_start,
        }
    }

    /// Opens an utterance whose audio goes to `feed`, from `start` in turn time on, as far as the pre-roll reaches.
    pub(super) fn open(&mut self, item: ItemId, start: Samples, feed: mpsc::Sender<Feed>) {
        let mut audio = Vec::new();
        let start = self.preroll.copy_from(start.saturating_sub(self.preroll_base), &mut audio) + self.preroll_base;
        let mut utterance = Utterance::new(item, start, feed);
        utterance.push(&audio);
        self.utterance = Some(utterance);
    }

    /// Completes the utterance `item`. With `rest`, audio that has not filled a window belongs to it.
    pub(super) fn close(&mut self, item: &ItemId, rest: bool) {
        let Some(mut utterance) = self.utterance.take_if(|utterance| utterance.item == *item) else { return };
        if rest {
            if let Some(denoiser) = self.ears.as_mut().and_then(|ears| ears.denoiser.as_mut()) {
                denoiser.flush(&mut self.pending);
            }
            utterance.push(&self.pending[self.taken..]);
        }
        if !utterance.finish() {
            self.closing.push(utterance);
        }
    }

    /// Gives the utterance up.
    pub(super) fn drop_utterance(&mut self, item: &ItemId) {
        self.utterance.take_if(|utterance| utterance.item == *item);
    }

    /// The buffer begins anew here: after a commit or a clear.
    pub(super) fn restart_buffer(&mut self) -> Option<Edge> {
        self.pending.clear();
        self.taken = 0;
        self.mark_buffer();
        self.turn.end()
    }

    /// The next utterance holds nothing of what came before here.
    pub(super) fn mark_buffer(&mut self) {
        self.buffer_start = self.position;
        self.lag_at_start = self.lag;
    }

    /// Turn time at which the buffer begins.
    pub(super) fn buffer_start(&self) -> Samples {
        self.buffer_start
    }

    /// What was appended since the last commit or clear, to the sample: a client that counts may not be refused.
    pub(super) fn buffered(&self) -> Samples {
        let held_back = (self.lag - self.lag_at_start).round().max(0.0) as u64;
        self.position - self.buffer_start + Samples((self.pending.len() - self.taken) as u64 + held_back)
    }

    /// Whether an utterance's audio still comes.
    pub(super) fn is_hearing(&self) -> bool {
        self.utterance.is_some()
    }

    /// The length of the utterance under way, at 16 kHz.
    pub(super) fn n_hearing(&self) -> Samples {
        self.utterance.as_ref().map_or(Samples::ZERO, |utterance| Samples(utterance.n_samples as u64))
    }

    /// Whether the client commits.
    pub(super) fn is_manual(&self) -> bool {
        matches!(self.turns, Turns::Manual { .. })
    }

    /// Turn time.
    pub(super) fn position(&self) -> Samples {
        self.position
    }

    /// Whether the detector is in the middle of speech or of what may become it.
    pub(super) fn is_listening(&self) -> bool {
        matches!(self.turns, Turns::Detected { .. }) && self.turn.is_active()
    }

    /// The audio stopped coming: ends what is under way.
    pub(super) fn stall(&mut self) -> Option<Edge> {
        self.turn.end()
    }

    /// Reply audio at 16 kHz that will sound from `at` on.
    pub(super) fn played(&mut self, at: Samples, reply: &Pcm) {
        self.echo.played(at, &reply.samples);
    }

    /// The reply stops sounding now.
    pub(super) fn reply_stopped(&mut self) {
        self.echo.stopped(self.position);
    }

    /// Playback stood still from `since` in turn time until now.
    pub(super) fn reply_resumed(&mut self, since: Samples) {
        self.echo.delayed(since, self.position.saturating_sub(since));
    }

    fn is_blocked(&mut self) -> bool {
        self.closing.retain_mut(|utterance| !utterance.drain());
        !self.closing.is_empty() || self.utterance.as_mut().is_some_and(|utterance| !utterance.drain())
    }

    /// The feed to wait for before [`Ingress::advance`] goes on.
    pub(super) fn blocked_on(&self) -> Option<mpsc::Sender<Feed>> {
        let mut utterances = self.closing.iter().chain(&self.utterance);
        utterances.find_map(|utterance| utterance.blocked_on())
    }
}
