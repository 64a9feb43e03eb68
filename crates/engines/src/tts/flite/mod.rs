//! The `flite` engine: CMU Flite 2.2 with the voices slt, rms, awb and kal16, at 16 kHz.
//!
//! One for each replica of a pool ([`crate::tts::local`]). It streams: the first samples leave after
//! the text analysis and the prediction of the whole chunk's parameters, which take about a third of the whole. It
//! cannot be cancelled before that first sample; afterwards within 20 ms of sound.
//!
//! Several replicas are safe: what a request changes (text, speed, the stream) is set on its own utterance, and the voices,
//! which are singletons of the process, are only read.
//!
//! flite's own silence at the edges is cut to 20 ms, and the chunk's last punctuation makes the pause after it:
//! 250 ms after a sentence, 120 ms after a clause, none else (see [`text::pause_after`]), divided by the speed. Each voice has
//! the loudness of all ([`Level`]).
#![allow(unsafe_code)]

mod ffi;
mod text;

use super::level::Level;
use super::local::{LocalTts, PoolSettings};
use super::trim::EdgeTrim;
use super::{TtsConfig, TtsEngine};
use antiphon_audio::Stretcher;
use antiphon_engine_api::tts::{Repeats, SpeechRequest, TtsError, Voice};
use antiphon_types::{Pcm, SampleRate, Samples};
use ffi::{StreamingInfo, Wave};
use std::any::Any;
use std::ffi::{CString, c_int, c_void};
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The rate of every voice used.
pub const RATE: SampleRate = SampleRate::HZ_16000;

/// Above this, flite's phonemes have a shortest length, and its sound is stretched.
const FASTEST: f32 = 2.0;
/// Near-silence left at each end of a chunk.
const EDGE_MS: u64 = 20;

/// Samples flite gathers before it calls back: 20 ms, one frame of transport.
const MIN_SAMPLES: c_int = 320;

/// The engine. Cheap to make once the first one has opened the libraries.
pub struct Flite {
    flite: &'static ffi::Flite,
    voices: Vec<Voice>,
}

/// The port: flite on a pool of its own. Blocks while the libraries are opened.
///
/// # Errors
/// As [`Flite::open`].
pub fn start(config: &TtsConfig) -> Result<LocalTts<Flite>, TtsError> {
    let voice = config.voice.clone();
    let deadline = Duration::from_millis(config.timeout_ms);
    let pool = PoolSettings { n_replicas: config.pool_size(1), in_turn: false, deadline };
    LocalTts::start("flite", pool, move |_| Flite::open(&voice))
}

impl Flite {
    /// Opens flite with `default_voice` first among the voices. Blocks while the libraries are opened, once in a
    /// process. [`TtsError::Unavailable`] names what is missing and how to get it.
    pub fn open(default_voice: &str) -> Result<Self, TtsError> {
        let flite = ffi::library()?;
        let mut voices: Vec<Voice> = flite.voices.iter().map(|(id, _)| describe(id)).collect();
        let ids = || voices.iter().map(|voice| voice.id.as_str()).collect::<Vec<_>>().join(", ");
        let Some(first) = voices.iter().position(|voice| voice.id == default_voice) else {
            return Err(TtsError::Unavailable(format!("flite has no voice \"{default_voice}\"; it has: {}", ids())));
        };
        voices[..=first].rotate_right(1);
        Ok(Self { flite, voices })
    }

    /// The voice a request means, with its id.
    fn voice(&self, id: &str) -> (&'static str, *const ffi::CVoice) {
        let find = |id: &str| self.flite.voices.iter().find(|(known, _)| *known == id).copied();
        find(id).or_else(|| find(&self.voices[0].id)).expect("the default voice was found when the engine was opened")
    }
}

/// How loud a voice speaks, in LUFS: the mean of two sentences, measured by ITU-R BS.1770.
fn loudness_lufs(voice: &str) -> f32 {
    match voice {
        "slt" => -15.9,
        "rms" => -21.3,
        "awb" => -20.9,
        _ => -28.7,
    }
}

fn describe(id: &str) -> Voice {
    let (name, language) = match id {
        "slt" => ("Slt (US English, female)", "en-US"),
        "rms" => ("Rms (US English, male)", "en-US"),
        "awb" => ("Awb (Scottish English, male)", "en-GB"),
        _ => ("Kal (US English, male, robotic)", "en-US"),
    };
    Voice { id: id.into(), name: name.into(), language: language.into() }
}

impl TtsEngine for Flite {
    fn voices(&self) -> &[Voice] {
        &self.voices
    }

    /// The vocoder of the other voices excites with noise, for which it takes `rand()`, one sequence of the whole process.
    fn repeats(&self, voice: &str) -> Repeats {
        if voice == "kal16" { Repeats::Exactly } else { Repeats::InTime }
    }

    fn synthesize(
        &mut self,
        request: &SpeechRequest,
        cancel: &CancellationToken,
        sink: &mut dyn FnMut(Pcm) -> ControlFlow<()>,
    ) -> Result<(), TtsError> {
        let spoken = text::for_flite(&request.text);
        if cancel.is_cancelled() || !spoken.contains(|c: char| c.is_ascii_alphanumeric()) {
            return Ok(());
        }
        let speed = if request.speed.is_finite() { request.speed.clamp(0.25, 4.0) } else { 1.0 };
        let own = speed.min(FASTEST);
        let mut stretcher = Stretcher::new(RATE, speed / own);
        let voice = self.voice(&request.voice);
        let level = Level::of(loudness_lufs(voice.0));
        let mut stretched = |mut pcm: Pcm| {
            level.apply(&mut pcm.samples);
            let samples = stretcher.push(&pcm.samples);
            if samples.is_empty() { ControlFlow::Continue(()) } else { sink(Pcm { samples, ..pcm }) }
        };
        let pad = Samples::from_ms(EDGE_MS, RATE).0 as usize;
        let mut tap = Tap { trim: EdgeTrim::new(pad), sink: &mut stretched, cancel, stopped: false, wrong: None };
        let input = CString::new(spoken).expect("text::for_flite leaves no zero byte");
        let made = self.run(&input, own, voice.1, &mut tap);
        match tap.wrong.take() {
            Some(Wrong::Panic(payload)) => resume_unwind(payload),
            Some(Wrong::Format(message)) => return Err(TtsError::Engine { message, source: None }),
            None if tap.stopped => return Ok(()),
            None => made?,
        }
        let Tap { trim, .. } = tap;
        let mut end = trim.finish();
        level.apply(&mut end);
        let mut rest = stretcher.push(&end);
        rest.extend(stretcher.finish());
        let pause = RATE.samples_in(text::pause_after(&request.text).div_f32(speed));
        rest.resize(rest.len() + pause.0 as usize, 0);
        if !rest.is_empty() {
            // Nothing is left to stop.
            let _ = sink(Pcm { rate: RATE, samples: rest });
        }
        Ok(())
    }
}

impl Flite {
    /// Synthesizes `input` into `tap`. Blocks until it is done or the tap has stopped it.
    fn run(&self, input: &CString, speed: f32, voice: *const ffi::CVoice, tap: &mut Tap<'_>) -> Result<(), TtsError> {
        let flite = self.flite;
        let failed = || TtsError::Engine { message: "flite could not speak this text".into(), source: None };
        // SAFETY: the utterance is ours alone. Feature names are static, their values are copied (strings) or handed
        // over (the streaming info, which the utterance's features own and free). `tap` outlives the call, and flite
        // calls back on this thread only. `do_synth` frees the utterance itself when it returns NULL.
        unsafe {
            let utterance = (flite.new_utterance)();
            let features = (*utterance).features;
            (flite.feat_set_string)(features, c"input_text".as_ptr(), input.as_ptr());
            (flite.feat_set_float)(features, c"duration_stretch".as_ptr(), 1.0 / speed);
            let info = (flite.new_streaming_info)();
            (*info).min_buffsize = MIN_SAMPLES;
            (*info).callback = Some(on_samples);
            (*info).userdata = std::ptr::from_mut(tap).cast::<c_void>();
            (flite.feat_set)(features, c"streaming_info".as_ptr(), (flite.streaming_info_val)(info));
            let utterance = (flite.do_synth)(utterance, voice, flite.utt_synth);
            if utterance.is_null() {
                return Err(failed());
            }
            (flite.delete_utterance)(utterance);
        }
        Ok(())
    }
}

/// Where flite's samples go.
struct Tap<'a> {
    trim: EdgeTrim,
    sink: &'a mut dyn FnMut(Pcm) -> ControlFlow<()>,
    cancel: &'a CancellationToken,
    stopped: bool,
    wrong: Option<Wrong>,
}

/// Why a tap stopped a synthesis that was not cancelled.
enum Wrong {
    Panic(Box<dyn Any + Send>),
    Format(String),
}

impl Tap<'_> {
    fn take(&mut self, samples: &[i16]) -> ControlFlow<()> {
        if self.cancel.is_cancelled() {
            return ControlFlow::Break(());
        }
        let samples = self.trim.push(samples);
        if samples.is_empty() { ControlFlow::Continue(()) } else { (self.sink)(Pcm { rate: RATE, samples }) }
    }
}

/// flite's callback: `size` new samples of `wave` from `start`. A panic must not unwind through C, so it is carried round.
unsafe extern "C" fn on_samples(
    wave: *const Wave,
    start: c_int,
    size: c_int,
    _last: c_int,
    info: *mut StreamingInfo,
) -> c_int {
    // SAFETY: `userdata` is the tap that `run` put there and keeps borrowed for the whole call; nothing else uses it.
    let (wave, tap) = unsafe { (&*wave, &mut *(*info).userdata.cast::<Tap<'_>>()) };
    if tap.stopped || size <= 0 {
        return if tap.stopped { ffi::STOP } else { ffi::CONTINUE };
    }
    if wave.sample_rate != RATE.hz() as c_int || wave.num_channels != 1 {
        let message = format!("flite gave {} Hz and {} channels", wave.sample_rate, wave.num_channels);
        tap.stopped = true;
        tap.wrong = Some(Wrong::Format(message));
        return ffi::STOP;
    }
    // SAFETY: flite has written the samples from `start` to `start + size` before it calls.
    let samples = unsafe { std::slice::from_raw_parts(wave.samples.add(start as usize), size as usize) };
    match catch_unwind(AssertUnwindSafe(|| tap.take(samples))) {
        Ok(ControlFlow::Continue(())) => ffi::CONTINUE,
        Ok(ControlFlow::Break(())) => {
            tap.stopped = true;
            ffi::STOP
        }
        Err(payload) => {
            tap.stopped = true;
            tap.wrong = Some(Wrong::Panic(payload));
            ffi::STOP
        }
    }
}

#[cfg(test)]
mod tests;
