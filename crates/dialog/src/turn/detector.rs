//! Hysteresis, minimum speech and hang-over.
//!
//! What goes on behind an utterance, clearly quieter than it, is background: other people at other tables. It ends the
//! utterance, and until there is silence neither begins nor prolongs one.

use super::background::Background;
use antiphon_types::{SampleRate, Samples};
use serde::{Deserialize, Serialize};

/// What the detector goes by. All lengths are samples at 16 kHz.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Thresholds {
    /// P(speech) from which a silent stream becomes voiced.
    pub voiced: f32,
    /// Voiced time that makes a sound speech; less is a cough.
    pub min_speech: Samples,
    /// Silence that ends the utterance.
    pub silence: Samples,
    /// Silence after which the detector reports a pause; `None`: never.
    pub pause: Option<Samples>,
}

impl Thresholds {
    /// From the protocol's fields.
    pub fn from_ms(threshold: f32, min_speech_ms: u32, silence_duration_ms: u32) -> Self {
        let samples = |ms: u32| Samples::from_ms(u64::from(ms), SampleRate::HZ_16000);
        Self {
            voiced: threshold,
            min_speech: samples(min_speech_ms),
            silence: samples(silence_duration_ms),
            pause: None,
        }
    }

    /// The same, reporting pauses after `pause`.
    pub fn with_pause(self, pause: Option<Samples>) -> Self {
        Self { pause, ..self }
    }

    /// P(speech) from which a window may be the beginning of speech: a syllable's first windows rise through it. It only
    /// triggers a hold; speech requires [`Thresholds::voiced`] as well.
    fn onset(&self) -> f32 {
        (self.voiced - 0.15).max(0.01)
    }

    /// P(speech) at which a single window is an onset. It triggers a hold: each 20 ms frame of delay is talked over.
    fn sure_onset(&self) -> f32 {
        (self.voiced - 0.05).max(0.01)
    }

    /// Once voiced, a window stays voiced down to this. The gap of 0.15 is Silero's (`get_speech_timestamps`,
    /// `neg_threshold`): it bridges unvoiced consonants.
    fn unvoiced(&self) -> f32 {
        (self.voiced - 0.15).max(0.01)
    }
}

/// A change of the turn, dated in sample time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Edge {
    /// A window of speech, or two of what may be: it may become speech. Followed by `Started` or `Retracted`.
    Onset {
        /// Where the first voiced window begins.
        at: Samples,
    },
    /// It did not: a cough, a click.
    Retracted,
    /// It is speech.
    Started {
        /// Where the first voiced window begins.
        at: Samples,
    },
    /// The speaker pauses: the utterance may be over. Followed by `Resumed` or `Stopped`.
    Paused {
        /// Where the last voiced window ended.
        at: Samples,
    },
    /// The speaker goes on.
    Resumed,
    /// The utterance is over.
    Stopped {
        /// Where the last voiced window ended: earlier than now by the silence waited.
        at: Samples,
    },
}

/// Voiced windows that make an onset where no window nearly reaches the threshold. One that does is enough: earshot
/// looks at 48 ms and more, so a click does not bring it there (one or two such windows in a minute of typing, measured;
/// two at 0.35 are as rare), and waiting for a second would cost 16 ms of talking over.
const ONSET_WINDOWS: u32 = 2;

/// Silence after which an onset that has not become speech is retracted: longer than the closure of a stop consonant
/// (about 80 ms), so that "ta-ta" still adds up.
const RETRACT_AFTER: Samples = Samples(16_000 / 10);

/// A window below this share of the utterance's peak is silence whatever the probability says: -30 dB. A detector that
/// looks at several windows at once (earshot: 48 ms of signal and three frames of context) calls the room after a word
/// speech for 100 ms and more; no listener waits for that decay.
const FAINT: f32 = 0.03;

/// The turn detector of one microphone.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TurnDetector {
    thresholds: Thresholds,
    /// The loudest sample of the voiced windows since the last silence.
    loudest: u16,
    state: Phase,
    /// Whether the last window was voiced, for the hysteresis.
    voiced: bool,
    /// Absent in snapshots that are older.
    #[serde(default)]
    background: Background,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
enum Phase {
    Silent,
    Onset(OnsetWindows),
    Speaking { last_voiced: Samples, is_paused: bool },
}

/// Voiced windows that are not speech yet.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct OnsetWindows {
    since: Samples,
    last_voiced: Samples,
    n_windows: u32,
    voiced: Samples,
    /// A window reached the threshold itself.
    is_sure: bool,
    /// The onset was reported.
    #[serde(rename = "is_told")]
    is_reported: bool,
}

impl TurnDetector {
    /// A detector in silence.
    pub fn new(thresholds: Thresholds) -> Self {
        let background = Background::default();
        Self { thresholds, loudest: 0, state: Phase::Silent, voiced: false, background }
    }

    /// Changes the thresholds; the state stays.
    pub fn set(&mut self, thresholds: Thresholds) {
        self.thresholds = thresholds;
    }

    /// Whether speech is under way, or what may become it.
    pub fn is_active(&self) -> bool {
        self.state != Phase::Silent
    }

    /// Whether the last window was of the user's voice, or of what may become it.
    pub fn is_voiced(&self) -> bool {
        self.voiced
    }

    /// The silence since the last voiced window while speech is under way. `now` is where the last window ended.
    pub fn pause(&self, now: Samples) -> Option<Samples> {
        match self.state {
            Phase::Speaking { last_voiced, .. } => Some(now.saturating_sub(last_voiced)),
            _ => None,
        }
    }

    /// Takes P(speech) and the loudest sample of the window that spans `start..end` in sample time.
    pub fn window(&mut self, probability: f32, peak: u16, start: Samples, end: Samples) -> Option<Edge> {
        let bound = match (self.voiced, self.state) {
            (true, _) => self.thresholds.unvoiced(),
            (false, Phase::Speaking { .. }) => self.thresholds.voiced,
            (false, _) => self.thresholds.onset(),
        };
        let sure = probability >= self.thresholds.voiced;
        let nearly_sure = probability >= self.thresholds.sure_onset();
        if self.state == Phase::Silent {
            self.loudest = 0;
        }
        let is_sound = probability >= bound;
        self.background.hear(peak, end.saturating_sub(start), is_sound);
        let is_faint = f32::from(peak) < FAINT * f32::from(self.loudest);
        self.voiced = is_sound && !is_faint && !self.background.covers();
        if self.voiced {
            self.loudest = self.loudest.max(peak);
        }
        if let Phase::Speaking { .. } = self.state
            && let Some(spoken_to) = self.background.behind_speech(self.voiced, end)
        {
            return Some(self.stop(spoken_to));
        }
        match self.state {
            Phase::Silent if self.voiced => {
                let n_windows = 1;
                let voiced = end - start;
                let it = OnsetWindows {
                    since: start,
                    last_voiced: end,
                    n_windows,
                    voiced,
                    is_sure: sure,
                    is_reported: false,
                };
                self.onset_or_start(it, nearly_sure)
            }
            Phase::Silent => None,
            Phase::Onset(it) if self.voiced => {
                let n_windows = it.n_windows + 1;
                let voiced = it.voiced + (end - start);
                let it = OnsetWindows { last_voiced: end, n_windows, voiced, is_sure: it.is_sure || sure, ..it };
                self.onset_or_start(it, nearly_sure)
            }
            Phase::Onset(it) => {
                if end.saturating_sub(it.last_voiced) < RETRACT_AFTER {
                    return None;
                }
                self.state = Phase::Silent;
                it.is_reported.then_some(Edge::Retracted)
            }
            Phase::Speaking { is_paused, .. } if self.voiced => {
                self.state = Phase::Speaking { last_voiced: end, is_paused: false };
                is_paused.then_some(Edge::Resumed)
            }
            Phase::Speaking { last_voiced, is_paused } => self.silent(last_voiced, is_paused, end),
        }
    }

    /// Ends speech under way: the audio stopped (mute, DTX, a stall), or the client committed the buffer.
    pub fn end(&mut self) -> Option<Edge> {
        self.voiced = false;
        match self.state {
            Phase::Silent => None,
            Phase::Onset(it) => {
                self.state = Phase::Silent;
                it.is_reported.then_some(Edge::Retracted)
            }
            Phase::Speaking { last_voiced, .. } => Some(self.stop(last_voiced)),
        }
    }

    /// Speech, if the onset has enough voiced time; an onset, if it is one now.
    fn onset_or_start(&mut self, mut it: OnsetWindows, nearly_sure: bool) -> Option<Edge> {
        if it.is_sure && it.voiced >= self.thresholds.min_speech {
            self.state = Phase::Speaking { last_voiced: it.last_voiced, is_paused: false };
            self.background.speech_begins(it.last_voiced);
            return Some(Edge::Started { at: it.since });
        }
        let is_onset = !it.is_reported && (nearly_sure || it.n_windows >= ONSET_WINDOWS);
        it.is_reported |= is_onset;
        self.state = Phase::Onset(it);
        is_onset.then_some(Edge::Onset { at: it.since })
    }

    /// In a pause of the speaker's, whose last window ended at `end`.
    fn silent(&mut self, last_voiced: Samples, is_paused: bool, end: Samples) -> Option<Edge> {
        let silence = end.saturating_sub(last_voiced);
        if silence >= self.thresholds.silence {
            return Some(self.stop(last_voiced));
        }
        let is_pause = !is_paused && self.thresholds.pause.is_some_and(|pause| silence >= pause);
        is_pause.then(|| {
            self.state = Phase::Speaking { last_voiced, is_paused: true };
            Edge::Paused { at: last_voiced }
        })
    }

    fn stop(&mut self, at: Samples) -> Edge {
        self.state = Phase::Silent;
        self.voiced = false;
        Edge::Stopped { at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a script of windows of 16 ms, a character each: `#` voiced, `-` voiced but faint, `.` silent, `~` between
    /// the two bounds, `+` nearly sure; gives the edges as `window:edge@ms`.
    fn check(script: &str, expect: &str) {
        check_pauses(None, script, expect);
    }

    /// The same with pauses reported after `pause`.
    fn check_pauses(pause: Option<Samples>, script: &str, expect: &str) {
        let mut detector = TurnDetector::new(Thresholds::from_ms(0.5, 96, 200).with_pause(pause));
        let mut edges = Vec::new();
        for (i, window) in script.chars().enumerate() {
            let probability = match window {
                '#' => 0.9,
                '-' => 0.9,
                '~' => 0.4,
                '+' => 0.46,
                _ => 0.05,
            };
            let peak = if window == '-' { 200 } else { 8_000 };
            let start = Samples(i as u64 * 256);
            let end = Samples((i as u64 + 1) * 256);
            let edge = detector.window(probability, peak, start, end);
            let ms = |at: Samples| at.as_ms(SampleRate::HZ_16000);
            edges.extend(edge.map(|edge| match edge {
                Edge::Onset { at } => format!("{i}:onset@{}", ms(at)),
                Edge::Retracted => format!("{i}:retracted"),
                Edge::Started { at } => format!("{i}:started@{}", ms(at)),
                Edge::Paused { at } => format!("{i}:paused@{}", ms(at)),
                Edge::Resumed => format!("{i}:resumed"),
                Edge::Stopped { at } => format!("{i}:stopped@{}", ms(at)),
            }));
        }
        assert_eq!(edges.join(" "), expect, "{script}");
    }

    #[test]
    fn speech_starts_after_its_minimum_and_is_dated_back() {
        check("..#######", "2:onset@32 7:started@32");
    }

    #[test]
    fn the_end_is_dated_back_to_the_last_voiced_window() {
        check("#######.............", "0:onset@0 5:started@0 19:stopped@112");
    }

    #[test]
    fn what_decays_after_loud_speech_is_silence_and_faint_speech_is_speech() {
        check("#######-----........", "0:onset@0 5:started@0 19:stopped@112");
        check("-------.............", "0:onset@0 5:started@0 19:stopped@112");
    }

    #[test]
    fn a_cough_is_retracted_and_what_is_near_the_threshold_once_is_nothing() {
        check("####..........", "0:onset@0 10:retracted");
        check("#.............", "0:onset@0 7:retracted");
        check("~.............", "");
        check("+.............", "0:onset@0 7:retracted");
        check("++++++........", "0:onset@0 12:retracted");
    }

    #[test]
    fn what_is_near_the_threshold_may_begin_speech_and_goes_on_with_it() {
        check("###~~~~", "0:onset@0 5:started@0");
        check("~~~~~~~", "1:onset@0");
        check("~~#####", "1:onset@0 5:started@0");
    }

    #[test]
    fn short_gaps_add_up_to_speech_and_do_not_end_it() {
        check("##..##..##..##", "0:onset@0 9:started@0");
        check("#######............#.......", "0:onset@0 5:started@0");
    }

    #[test]
    fn a_pause_is_reported_once_and_then_how_it_ended() {
        let pause = Some(Samples(1_600));
        check_pauses(pause, "#######.............", "0:onset@0 5:started@0 13:paused@112 19:stopped@112");
        check_pauses(pause, "#######.......##....", "0:onset@0 5:started@0 13:paused@112 14:resumed");
        check_pauses(pause, "#######......##....", "0:onset@0 5:started@0");
        // A wait that is no longer than the pause just ends.
        check_pauses(Some(Samples(3_200)), "#######.............", "0:onset@0 5:started@0 19:stopped@112");
    }

    #[test]
    fn a_stall_ends_the_utterance() {
        let mut detector = TurnDetector::new(Thresholds::from_ms(0.5, 30, 200));
        let onset = Edge::Onset { at: Samples(0) };
        assert_eq!(detector.window(0.9, 8_000, Samples(0), Samples(256)), Some(onset));
        assert_eq!(detector.window(0.9, 8_000, Samples(256), Samples(512)), Some(Edge::Started { at: Samples(0) }));
        assert_eq!(detector.end(), Some(Edge::Stopped { at: Samples(512) }));
        assert_eq!(detector.end(), None);
    }
}
