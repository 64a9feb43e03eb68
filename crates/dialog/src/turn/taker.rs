//! Turn-taking of one microphone: the detector and, where the wait adapts, the state of the speaker.
//!
//! The session's turn pipeline feeds it window by window, and each partial transcript as it arrives.

use crate::turn::completeness;
use crate::turn::detector::{Edge, Thresholds, TurnDetector};
use crate::turn::endpointing::{Decision, Eagerness, Hints, MODEL, ModelWeight};
use crate::turn::pauses::Pauses;
use crate::turn::prosody::Contour;
use crate::turn::wording::Wording;
use antiphon_types::{SampleRate, Samples};
use serde::{Deserialize, Serialize};

/// Speech that resumes within this time of an end was cut in two: the gap was a pause of this speaker.
const CUT_WITHIN: Samples = Samples(16_000 * 3 / 2);

/// What ends a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ending {
    /// Silence of the thresholds' length.
    Silence,
    /// Silence of a length that adapts.
    Adaptive(Eagerness),
}

/// Measurements of a window. `start..end` is turn time.
#[derive(Clone, Copy, Debug)]
pub struct WindowFeatures {
    /// P(speech).
    pub probability: f32,
    /// The loudest sample.
    pub peak: u16,
    /// Level in dB relative to full scale.
    pub level_db: f32,
    /// Pitch in Hz, where it is voiced.
    pub pitch_hz: Option<f32>,
    /// Where it begins.
    pub start: Samples,
    /// Where it ends.
    pub end: Samples,
}

/// The turn-taking of one microphone.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TurnTaker {
    detector: TurnDetector,
    thresholds: Thresholds,
    ending: Ending,
    contour: Contour,
    pauses: Pauses,
    /// The latest partial transcript, and the turn time up to which it covers the audio.
    words: Option<(Wording, Samples)>,
    /// The log-odds that these words are a whole turn.
    #[serde(default)]
    completeness: Option<f32>,
    /// The turn model's latest answer, and the turn time up to which it covers the audio.
    judged: Option<(f32, Samples)>,
    /// Voiced time of the turn under way, across cuts.
    spoken: Samples,
    /// Where the last utterance ended.
    stopped: Option<Samples>,
    decision: Option<Decision>,
    /// Factor of an adaptive wait; 1 except in a sweep.
    scale: f64,
    /// Weight of the turn model; [`MODEL`] except in a sweep.
    model: ModelWeight,
}

impl TurnTaker {
    /// In silence.
    pub fn new(thresholds: Thresholds, ending: Ending) -> Self {
        Self {
            detector: TurnDetector::new(thresholds),
            thresholds,
            ending,
            contour: Contour::default(),
            pauses: Pauses::default(),
            words: None,
            completeness: None,
            judged: None,
            spoken: Samples::ZERO,
            stopped: None,
            decision: None,
            scale: 1.0,
            model: MODEL,
        }
    }

    /// The same with adaptive waits of `by` times the length, for a sweep over a corpus.
    pub fn scaled(self, by: f64) -> Self {
        Self { scale: by, ..self }
    }

    /// The same with another weight of the turn model, for a sweep over a corpus.
    pub fn weighing_model(self, model: ModelWeight) -> Self {
        Self { model, ..self }
    }

    /// Changes the settings; speech under way continues.
    pub fn set(&mut self, thresholds: Thresholds, ending: Ending) {
        self.thresholds = thresholds;
        self.ending = ending;
        if ending == Ending::Silence {
            self.decision = None;
        }
        self.detector.set(thresholds);
    }

    /// Whether levels and pitches are used.
    pub fn listens_to_the_voice(&self) -> bool {
        matches!(self.ending, Ending::Adaptive(_))
    }

    /// Whether speech is under way, or what may become it.
    pub fn is_active(&self) -> bool {
        self.detector.is_active()
    }

    /// Whether the last window was voiced: see [`TurnDetector::is_voiced`].
    pub fn is_voiced(&self) -> bool {
        self.detector.is_voiced()
    }

    /// The silence since the last voiced window while speech is under way: see [`TurnDetector::pause`].
    pub fn pause(&self, now: Samples) -> Option<Samples> {
        self.detector.pause(now)
    }

    /// Takes a window.
    pub fn window(&mut self, heard: WindowFeatures) -> Option<Edge> {
        let pause = self.detector.pause(heard.start);
        if pause.is_some_and(|pause| pause > Samples::ZERO) {
            self.decide(heard.end);
        }
        let edge = self.detector.window(heard.probability, heard.peak, heard.start, heard.end);
        if self.detector.pause(heard.end) == Some(Samples::ZERO) {
            let length = heard.end.saturating_sub(heard.start);
            self.contour.voiced(length, heard.level_db, heard.pitch_hz);
            self.spoken += length;
            if let Some(pause) = pause.filter(|pause| *pause > Samples::ZERO) {
                self.pauses.heard(pause);
            }
        }
        self.follow(edge);
        edge
    }

    /// Ends speech under way: see [`TurnDetector::end`].
    pub fn end(&mut self) -> Option<Edge> {
        let edge = self.detector.end();
        self.follow(edge);
        edge
    }

    /// A partial transcript of the utterance under way, of its audio up to `heard_to` in turn time.
    pub fn partial(&mut self, text: &str, heard_to: Samples) {
        if self.detector.is_active() {
            self.words = Some((Wording::of(text), heard_to));
            self.completeness = completeness::log_odds(text);
        }
    }

    /// A turn model's probability that the turn under way was over where a pause began, at `said_to` in turn time.
    pub fn judged(&mut self, probability: f32, said_to: Samples) {
        if self.detector.is_active() {
            self.judged = Some((probability, said_to));
        }
    }

    /// Why the utterance under way, or the last one, ended when it did; `None` where the wait is fixed.
    pub fn decision(&self) -> Option<&Decision> {
        self.decision.as_ref()
    }

    /// The silence that would end the turn now.
    pub fn wait(&self) -> Samples {
        match (self.ending, &self.decision) {
            (Ending::Silence, _) => self.thresholds.silence,
            (Ending::Adaptive(_), Some(decision)) => SampleRate::HZ_16000.samples_in(decision.wait),
            (Ending::Adaptive(eagerness), None) => SampleRate::HZ_16000.samples_in(eagerness.longest()),
        }
    }

    /// In a pause: weighs the hints available at `now` and sets the detector's wait.
    fn decide(&mut self, now: Samples) {
        let Ending::Adaptive(eagerness) = self.ending else { return };
        let Some(pause) = self.detector.pause(now) else { return };
        let said_to = now.saturating_sub(pause);
        let wording = self.words.filter(|(_, heard_to)| *heard_to >= said_to).map(|(wording, _)| wording);
        let hints = Hints {
            pause: pause.duration(SampleRate::HZ_16000),
            spoken: self.spoken.duration(SampleRate::HZ_16000),
            wording: wording.unwrap_or_default(),
            completeness: wording.and(self.completeness),
            prosody: self.contour.prosody(),
            n_pauses: self.pauses.n(),
            typical_pause: self.pauses.typical(),
            patience: self.pauses.patience(),
            model: self.judged.filter(|(_, heard_to)| *heard_to >= said_to).map(|(probability, _)| probability),
        };
        self.decision = Some(Decision::weighed(hints, eagerness, self.model).scaled(self.scale));
        self.detector.set(Thresholds { silence: self.wait(), ..self.thresholds });
    }

    fn follow(&mut self, edge: Option<Edge>) {
        match edge {
            Some(Edge::Started { at }) => {
                let gap = self.stopped.take().map(|stopped| at.saturating_sub(stopped));
                match gap.filter(|gap| *gap <= CUT_WITHIN) {
                    // What was said before the cut belongs to what comes.
                    Some(gap) => self.pauses.heard(gap),
                    None => self.spoken = Samples::ZERO,
                }
                self.decision = None;
                self.words = None;
                self.judged = None;
                self.contour.clear();
            }
            Some(Edge::Stopped { at }) => self.stopped = Some(at),
            _ => {}
        }
    }
}

#[cfg(test)]
#[path = "taker_tests.rs"]
mod tests;
