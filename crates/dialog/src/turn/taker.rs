//! Turn-taking of one microphone: the detector, and where the wait adapts, all that is known of the speaker.
//!
//! Session ingress feeds it one window after the other and each partial transcript as it comes.

use crate::turn::detector::{Edge, Thresholds, TurnDetector};
use crate::turn::endpointing::{Decision, Eagerness, Hints, MODEL, ModelWeight};
use crate::turn::pauses::Pauses;
use crate::turn::prosody::Contour;
use crate::turn::wording::Wording;
use antiphon_types::{SampleRate, Samples};
use serde::{Deserialize, Serialize};

/// Speech that goes on within this of an end was cut in two: the gap was a pause of this speaker's.
const CUT_WITHIN: Samples = Samples(16_000 * 3 / 2);

/// What ends a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ending {
    /// Silence of the thresholds' length.
    Silence,
    /// Silence of a length that adapts.
    Adaptive(Eagerness),
}

/// A window as it was heard. `start..end` is turn time.
#[derive(Clone, Copy, Debug)]
pub struct WindowFeatures {
    /// P(speech).
    pub probability: f32,
    /// The loudest sample.
    pub peak: u16,
    /// dB below full scale.
    pub level_db: f32,
    /// Where it has one.
    pub pitch_hz: Option<f32>,
    /// Where it begins.
    pub start: Samples,
    /// Where it ends.
    pub end: Samples,
}

/// The turn-taking of one microphone.
#[derive(Clone, Debug)]
pub struct TurnTaker {
    detector: TurnDetector,
    thresholds: Thresholds,
    ending: Ending,
    contour: Contour,
    pauses: Pauses,
    /// The latest words, and the turn time up to which they are those of all that was said.
    words: Option<(Wording, Samples)>,
    /// The turn model's latest answer, and the turn time up to which it heard all that was said.
    judged: Option<(f32, Samples)>,
    /// Voiced time of the turn under way, over the places where it was cut.
    spoken: Samples,
    /// Where the last utterance ended.
    stopped: Option<Samples>,
    decision: Option<Decision>,
    /// What an adaptive wait is multiplied by; 1 but in a sweep.
    scale: f64,
    /// What the turn model counts; [`MODEL`] but in a sweep.
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

    /// Other settings; what is under way goes on.
    pub fn set(&mut self, thresholds: Thresholds, ending: Ending) {
        self.thresholds = thresholds;
        self.ending = ending;
        if ending == Ending::Silence {
            self.decision = None;
        }
        self.detector.set(thresholds);
    }

    /// Whether levels and pitches are of use.
    pub fn listens_to_the_voice(&self) -> bool {
        matches!(self.ending, Ending::Adaptive(_))
    }

    /// Whether speech is under way, or what may become it.
    pub fn is_active(&self) -> bool {
        self.detector.is_active()
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

    /// Ends what is under way: see [`TurnDetector::end`].
    pub fn end(&mut self) -> Option<Edge> {
        let edge = self.detector.end();
        self.follow(edge);
        edge
    }

    /// The words of the utterance under way, of all its audio up to `heard_to` in turn time.
    pub fn partial(&mut self, text: &str, heard_to: Samples) {
        if self.detector.is_active() {
            self.words = Some((Wording::of(text), heard_to));
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

    /// In a pause: weighs what is known by its end at `now` and sets the detector's wait.
    fn decide(&mut self, now: Samples) {
        let Ending::Adaptive(eagerness) = self.ending else { return };
        let Some(pause) = self.detector.pause(now) else { return };
        let said_to = now.saturating_sub(pause);
        let wording = self.words.filter(|(_, heard_to)| *heard_to >= said_to).map(|(wording, _)| wording);
        let hints = Hints {
            pause: pause.duration(SampleRate::HZ_16000),
            spoken: self.spoken.duration(SampleRate::HZ_16000),
            wording: wording.unwrap_or_default(),
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
