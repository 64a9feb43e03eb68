//! What a detector makes of speech in noise: a session's turn pipeline on a clock of samples.

use super::sounds::Noise;
use antiphon_dialog::turn::{Edge, Ending, Thresholds, TurnTaker};
use antiphon_engine_api::vad::{Vad, VadError};
use antiphon_session::turn_pipeline::TurnPipeline;
use antiphon_types::Samples;
use std::ops::Range;

/// Samples of a millisecond at 16 kHz.
const MS: usize = 16;
/// Root mean square of the speech, where it is any: -26 dB below full scale.
const SPEECH_RMS: f32 = 1_642.0;
/// Of the noise alone, and before and after each clip.
const ALONE: usize = 40_000 * MS;
const BEFORE: usize = 4_000 * MS;
const AFTER: usize = 3_000 * MS;
/// An end is late when it comes so much later than the configured silence.
const SLACK: usize = 300 * MS;

/// A stretch of speech.
#[derive(Clone, Debug)]
pub struct Speech {
    /// Mono, 16 kHz, at a level of -26 dB where it is loud.
    pub pcm: Vec<i16>,
    /// The first and the last sample above 5 % of its peak.
    pub loud: (usize, usize),
}

/// A kind of noise, and how loud it is against the speech.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Condition {
    /// Which.
    pub noise: Noise,
    /// Of the speech over the noise, in dB; `None`: there is no noise.
    pub snr_db: Option<f32>,
}

/// What came of one condition.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Windows of noise alone, before any speech.
    pub n_windows: usize,
    /// Those taken for speech.
    pub n_voiced: usize,
    /// Utterances that began in it.
    pub n_false: usize,
    /// Clips.
    pub n_clips: usize,
    /// Of which nothing was heard.
    pub n_missed: usize,
    /// Clips that began while the detector took the noise for speech.
    pub n_blurred: usize,
    /// Clips whose end was found late: more than 300 ms after the silence was over, or not within 3 s.
    pub n_late: usize,
    /// Milliseconds from a clip's first loud sample to the first edge it gave.
    pub onset_ms: Vec<f64>,
}

impl Outcome {
    /// Of the windows of noise alone.
    pub fn voiced_percent(&self) -> f64 {
        100.0 * self.n_voiced as f64 / self.n_windows.max(1) as f64
    }

    /// Median and longest delay of an onset, in milliseconds.
    pub fn onset(&self) -> Option<(f64, f64)> {
        let mut sorted = self.onset_ms.clone();
        sorted.sort_by(f64::total_cmp);
        Some((*sorted.get(sorted.len() / 2)?, *sorted.last()?))
    }
}

impl Speech {
    /// The clip at the level of all clips; `None` when it is silent.
    pub fn new(pcm: &[i16]) -> Option<Self> {
        let peak = pcm.iter().map(|x| u32::from(x.unsigned_abs())).max().filter(|peak| *peak > 0)?;
        let power = |frame: &[i16]| frame.iter().map(|x| f32::from(*x).powi(2)).sum::<f32>() / frame.len() as f32;
        let frames: Vec<f32> = pcm.chunks(20 * MS).map(power).collect();
        let most = frames.iter().copied().fold(0.0, f32::max);
        // Pauses do not count: 30 dB below the loudest frame is not the voice.
        let spoken: Vec<f32> = frames.into_iter().filter(|power| *power > most / 1e3).collect();
        let rms = (spoken.iter().sum::<f32>() / spoken.len() as f32).sqrt();
        let scale = SPEECH_RMS / rms;
        let is_loud = |x: &i16| u32::from(x.unsigned_abs()) * 20 > peak;
        let loud = (pcm.iter().position(is_loud)?, pcm.iter().rposition(is_loud)?);
        Some(Self { pcm: pcm.iter().map(|x| (f32::from(*x) * scale) as i16).collect(), loud })
    }
}

/// Runs the engine over 40 s of the noise and then over each clip with noise around it, on one stream, as a microphone
/// that is never switched off. Blocks for as long as the engine takes.
///
/// # Errors
/// As the engine's.
pub fn judge(vad: &dyn Vad, thresholds: Thresholds, at: Condition, speech: &[Speech]) -> Result<Outcome, VadError> {
    let mut outcome = Outcome { n_clips: speech.len(), ..Outcome::default() };
    let clips: Vec<Vec<i16>> = speech.iter().map(|clip| clip.pcm.clone()).collect();
    let n = ALONE + speech.iter().map(|clip| BEFORE + clip.pcm.len() + AFTER).sum::<usize>();
    let mut pcm = match at.snr_db {
        Some(snr_db) => {
            let level = SPEECH_RMS / 10f32.powf(snr_db / 20.0);
            at.noise.make(n, 1, &clips).into_iter().map(|x| x * level).collect()
        }
        None => vec![0.0; n],
    };
    let mut spans = Vec::new();
    let mut from = ALONE;
    for clip in speech {
        from += BEFORE;
        pcm[from..].iter_mut().zip(&clip.pcm).for_each(|(to, sample)| *to += f32::from(*sample));
        spans.push(from + clip.loud.0..from + clip.loud.1);
        from += clip.pcm.len() + AFTER;
    }
    let pcm: Vec<i16> = pcm.into_iter().map(|x| x as i16).collect();
    let mut pipeline = TurnPipeline::new(vad.open(), TurnTaker::new(thresholds, Ending::Silence));
    let mut edges = Vec::new();
    for piece in pcm.chunks_exact(vad.window()) {
        let edge = pipeline.window(piece, piece)?.outcome.edge;
        let now = pipeline.position();
        let end = now.0 as usize;
        if end <= ALONE {
            outcome.n_windows += 1;
            outcome.n_voiced += usize::from(pipeline.taker().pause(now) == Some(Samples::ZERO));
        }
        edges.extend(edge.map(|edge| (end, edge)));
    }
    let is_start = |edge: &Edge| matches!(edge, Edge::Started { .. });
    outcome.n_false = edges.iter().filter(|(at, edge)| *at <= ALONE && is_start(edge)).count();
    for span in spans {
        outcome.take(&edges, span, thresholds.silence.0 as usize);
    }
    Ok(outcome)
}

impl Outcome {
    /// Adds one clip, whose first and last loud samples are the ends of `span`.
    pub(super) fn take(&mut self, edges: &[(usize, Edge)], span: Range<usize>, silence: usize) {
        let first = span.start;
        let last = span.end;
        let before = edges.iter().rev().find(|(at, _)| *at <= first);
        let is_blurred = before.is_some_and(|(_, edge)| !matches!(edge, Edge::Stopped { .. } | Edge::Retracted));
        self.n_blurred += usize::from(is_blurred);
        let within = |until: usize| edges.iter().filter(move |(at, _)| *at > first && *at <= until);
        if !is_blurred {
            let heard = within(last + silence).any(|(_, edge)| matches!(edge, Edge::Started { .. }));
            self.n_missed += usize::from(!heard);
            let onset = within(last).find(|(_, edge)| matches!(edge, Edge::Onset { .. } | Edge::Started { .. }));
            self.onset_ms.extend(onset.map(|(at, _)| (at - first) as f64 / MS as f64));
            if !heard {
                return;
            }
        }
        let over = last + silence + SLACK;
        let state = edges.iter().rev().find(|(at, _)| *at <= over);
        let goes_on = state.is_some_and(|(_, edge)| !matches!(edge, Edge::Stopped { .. } | Edge::Retracted));
        self.n_late += usize::from(goes_on);
    }
}
