//! A reference recording on its way to an engine: what is refused, and what is made of the rest.
//!
//! [`super::VoiceStore`] calls it. It is plain computation, some milliseconds a second of audio: no files, no state. It does
//! not distinguish music or a second speaker from one speaker.

use super::StoreSettings;
use crate::vad::Earshot;
use antiphon_engine_api::tts::VoiceError;
use antiphon_engine_api::vad::{RATE as VAD_RATE, Vad};
use antiphon_types::{Pcm, SampleRate, Samples};
use ebur128::{EbuR128, Mode};
use std::time::Duration;

/// The lowest rate of a recording. Below it, what makes a voice recognizable above 4 kHz (the sound of s, f and breath) is not
/// in the recording, and a clone sounds like a telephone.
pub(super) const MIN_RATE: SampleRate = SampleRate::HZ_16000;
/// Frames whose level is measured.
const FRAME: Duration = Duration::from_millis(20);
/// A recording whose loud parts are below this level, in dB of full scale, is silence.
const SILENT_DBFS: f32 = -50.0;
/// Samples of at least this size are clipped where [`CLIPPED_RUN`] of them follow one another.
const FULL_SCALE: u16 = 32_700;
const CLIPPED_RUN: usize = 3;
/// The share of clipped samples that is refused: audible distortion, which a clone would learn.
const MAX_CLIPPED: f32 = 0.001;
/// P(speech) from which a window counts as speech.
const IS_SPEECH: f32 = 0.5;
/// The least speech in a recording, as a share of it and at least [`MIN_SPEECH`]. Measured: 48 recordings of readers and
/// flite's voices have 0.65 and more, white and brown noise up to full scale 0.19 and less, hum 0.
const MIN_SPEECH_SHARE: f32 = 0.3;
const MIN_SPEECH: Duration = Duration::from_millis(500);
/// The least distance between loud and quiet frames, in dB: 18 and more in those recordings, 5 and less in noise.
const MIN_CONTRAST_DB: f32 = 8.0;

/// A usable recording.
#[derive(Debug)]
pub(super) struct PreparedRecording {
    /// Mono at the store's rate, full scale 1.0.
    pub(super) samples: Vec<f32>,
    /// What the client should know of it.
    pub(super) note: Option<String>,
}

/// Checks a recording and makes the reference of it.
pub(super) fn prepare(recording: &Pcm, settings: &StoreSettings) -> Result<PreparedRecording, VoiceError> {
    check(recording, settings)?;
    Ok(convert(recording, settings))
}

/// Makes the reference of a recording that was checked.
pub(super) fn convert(recording: &Pcm, settings: &StoreSettings) -> PreparedRecording {
    let used = recording.rate.samples_in(settings.use_at_most).0 as usize;
    let samples = &recording.samples[..recording.samples.len().min(used)];
    let samples = antiphon_audio::convert(samples, recording.rate, settings.rate);
    let mut samples: Vec<f32> = samples.iter().map(|&sample| f32::from(sample) / 32_768.0).collect();
    if let Some(gain) = settings.loudness_lufs.and_then(|target| gain(&samples, settings.rate, target)) {
        samples.iter_mut().for_each(|sample| *sample *= gain);
    }
    PreparedRecording { samples, note: note(recording, settings) }
}

fn note(recording: &Pcm, settings: &StoreSettings) -> Option<String> {
    (recording.duration() > settings.use_at_most)
        .then(|| format!("Only the first {} of the recording are used.", seconds(settings.use_at_most)))
}

/// Refuses what no voice can be made of; returns what the client should know of the rest.
pub(super) fn check(recording: &Pcm, settings: &StoreSettings) -> Result<Option<String>, VoiceError> {
    let got = recording.duration();
    let right = format!(
        "A recording of {} to {}, of one person who speaks in a quiet room, is right",
        seconds(settings.min),
        seconds(settings.max)
    );
    let wrong = |what: String| Err(VoiceError::Invalid { field: "audio_sample", message: format!("{what} {right}.") });
    if recording.rate < MIN_RATE {
        return wrong(format!(
            "The recording has {} Hz, and a voice needs {} at least: what lies above half the rate is missing.",
            recording.rate.hz(),
            MIN_RATE.hz()
        ));
    }
    if recording.is_empty() {
        return wrong("The recording holds no audio.".into());
    }
    if got < settings.min {
        return wrong(format!("The recording is too short: it lasts {}.", seconds(got)));
    }
    if got > settings.max {
        return wrong(format!("The recording is too long: it lasts {}.", seconds(got)));
    }
    let levels = levels(recording);
    let loud = percentile(&levels, 0.95);
    let quiet = percentile(&levels, 0.10);
    if loud < SILENT_DBFS {
        return wrong(format!("The recording is silent: its loud parts are at {loud:.0} dB of full scale."));
    }
    let clipped = clipped(&recording.samples);
    if clipped > MAX_CLIPPED {
        return wrong(format!(
            "The recording is clipped: {:.1} % of it is cut off at full scale. Record it again at a lower level.",
            100.0 * clipped
        ));
    }
    let spoken = spoken(recording);
    let least = got.mul_f32(MIN_SPEECH_SHARE).max(MIN_SPEECH);
    if loud - quiet < MIN_CONTRAST_DB || spoken < least {
        return wrong(format!(
            "There is too little speech in the recording: {} of {}. Noise, music and long silences are not speech.",
            seconds(if loud - quiet < MIN_CONTRAST_DB { Duration::ZERO } else { spoken }),
            seconds(got)
        ));
    }
    Ok(note(recording, settings))
}

/// The level of each frame, in dB of full scale, sorted; never empty for a recording with samples.
fn levels(recording: &Pcm) -> Vec<f32> {
    let frame = (recording.rate.samples_in(FRAME).0 as usize).max(1);
    let level = |frame: &[i16]| {
        let power = frame.iter().map(|&x| (f64::from(x) / 32_768.0).powi(2)).sum::<f64>() / frame.len() as f64;
        (10.0 * power.max(1e-12).log10()) as f32
    };
    let mut levels: Vec<f32> = recording.samples.chunks(frame).map(level).collect();
    levels.sort_by(f32::total_cmp);
    levels
}

fn percentile(sorted: &[f32], share: f32) -> f32 {
    sorted[((sorted.len() - 1) as f32 * share) as usize]
}

/// The share of samples that are clipped.
fn clipped(samples: &[i16]) -> f32 {
    let runs = samples.chunk_by(|a, b| is_full(*a) == is_full(*b) && (*a > 0) == (*b > 0));
    let n: usize = runs.filter(|run| is_full(run[0]) && run.len() >= CLIPPED_RUN).map(<[i16]>::len).sum();
    n as f32 / samples.len().max(1) as f32
}

fn is_full(sample: i16) -> bool {
    sample.unsigned_abs() >= FULL_SCALE
}

/// How much of the recording is speech.
fn spoken(recording: &Pcm) -> Duration {
    let samples = antiphon_audio::convert(&recording.samples, recording.rate, VAD_RATE);
    let mut stream = Earshot.open();
    let window = Earshot.window();
    let judged = samples.chunks_exact(window).map(|window| stream.probability(window).unwrap_or_default());
    let n = judged.filter(|probability| *probability >= IS_SPEECH).count();
    Samples((n * window) as u64).duration(VAD_RATE)
}

/// What brings the samples to a loudness of `target` LUFS; `None` for what has no loudness.
fn gain(samples: &[f32], rate: SampleRate, target: f64) -> Option<f32> {
    let mut meter = EbuR128::new(1, rate.hz(), Mode::I).ok()?;
    meter.add_frames_f32(samples).ok()?;
    let loudness = meter.loudness_global().ok().filter(|loudness| loudness.is_finite())?;
    Some(10f64.powf((target - loudness) / 20.0) as f32)
}

/// As people read it: "1.5 s", "10 s".
fn seconds(duration: Duration) -> String {
    let tenths = (duration.as_secs_f64() * 10.0).round() / 10.0;
    format!("{tenths} s")
}
