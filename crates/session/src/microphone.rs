//! From decoded audio to windows: echo guard, then noise reduction.
//!
//! Session ingress puts samples at 16 kHz in and takes windows out, each twice: as the voice activity detector hears it
//! and as the recognizer does. The guard comes first, since it knows a reply only by its untouched shape. Without noise
//! reduction the recognizer gets the audio as it came; with it, what guard and reduction left, and so does the detector
//! while no reply sounds. While one does, the detector gets the guard's residual itself: a reduction would take the noise
//! off what is left of the reply. Never decides anything, never waits.

use antiphon_audio::echo::WINDOW;
use antiphon_audio::{Denoiser, EchoGuard, NoiseReduction};
use antiphon_types::{Pcm, Samples};

/// A window, as its two listeners hear it.
pub(super) struct Window<'a> {
    /// For the voice activity detector.
    pub(super) voice: &'a [i16],
    /// For the recognizer.
    pub(super) words: &'a [i16],
    /// A reply that plays, or has just ended, may be in it.
    pub(super) may_hold_reply: bool,
}

/// The samples of one microphone that wait to be judged, mono at 16 kHz.
#[derive(Default)]
pub(super) struct Microphone {
    raw: Vec<i16>,
    n_raw_taken: usize,
    guard: EchoGuard,
    reduction: Option<NoiseReduction>,
    /// Made on the first audio, since many connections never send any.
    denoiser: Option<Denoiser>,
    /// What has passed the guard.
    left: Vec<i16>,
    /// Audio after the noise reduction: aligned with `left`, but shorter by what the reduction holds back.
    words: Vec<i16>,
    n_taken: usize,
    /// A reply may be in the room.
    hears_reply: bool,
    /// All that was put in and is in no window yet, what the noise reduction holds back included.
    n_waiting: usize,
}

impl Microphone {
    /// It is a telephone's.
    pub(super) fn expect_line(&mut self) {
        self.guard.expect_line();
    }

    /// Reduces noise so from the next window on, or not any more.
    pub(super) fn reduce_noise(&mut self, reduction: Option<NoiseReduction>) {
        self.reduction = reduction;
        match (&mut self.denoiser, reduction) {
            (Some(denoiser), Some(reduction)) => denoiser.set(reduction),
            (Some(_), None) => {
                self.flush();
                self.denoiser = None;
            }
            (None, _) => {}
        }
    }

    /// Puts in what `write` appends; returns how many samples that was, and what `write` returned.
    pub(super) fn push<R>(&mut self, write: impl FnOnce(&mut Vec<i16>) -> R) -> (usize, R) {
        let before = self.raw.len();
        let result = write(&mut self.raw);
        let n = self.raw.len() - before;
        self.n_waiting += n;
        (n, result)
    }

    /// The next window of `n` samples; `None` when fewer are available.
    pub(super) fn window(&mut self, n: usize) -> Option<Window<'_>> {
        if self.words.len() < self.n_taken + n {
            self.words.drain(..self.n_taken);
            self.left.drain(..self.n_taken);
            self.n_taken = 0;
        }
        while self.words.len() < self.n_taken + n {
            if self.raw.len() < self.n_raw_taken + WINDOW {
                self.forget_taken();
                return None;
            }
            let from = self.n_raw_taken;
            let to = self.n_raw_taken + WINDOW;
            self.n_raw_taken = to;
            let at = self.left.len();
            self.left.resize(at + WINDOW, 0);
            self.hears_reply = self.guard.residual(&self.raw[from..to], &mut self.left[at..]).in_reach;
            match self.reduction {
                Some(reduction) => {
                    let denoiser = self.denoiser.get_or_insert_with(|| Denoiser::new(reduction));
                    denoiser.process(&self.left[at..], &mut self.words);
                }
                None => self.words.extend_from_slice(&self.raw[from..to]),
            }
        }
        let range = self.n_taken..self.n_taken + n;
        self.n_taken = range.end;
        self.n_waiting -= n;
        let is_residual = self.hears_reply || self.reduction.is_none();
        let words = &self.words[range.clone()];
        let voice = if is_residual { &self.left[range] } else { words };
        Some(Window { voice, words, may_hold_reply: self.hears_reply })
    }

    /// A copy of the audio that is in no window yet, without what the noise reduction holds back (some milliseconds).
    pub(super) fn waiting(&self) -> Vec<i16> {
        let mut waiting = self.words[self.n_taken..].to_vec();
        waiting.extend_from_slice(&self.raw[self.n_raw_taken..]);
        waiting
    }

    /// Turn time begins at `position`: the session was heard elsewhere so far. Call before any audio.
    pub(super) fn starts_at(&mut self, position: Samples) {
        self.guard.skip(position);
    }

    /// Samples that are in no window yet.
    pub(super) fn n_waiting(&self) -> usize {
        self.n_waiting
    }

    /// Takes all audio that is in no window yet, for the recognizer. The next window begins with later audio.
    pub(super) fn take_rest(&mut self) -> Vec<i16> {
        self.flush();
        let mut rest = self.words.split_off(self.n_taken);
        match &mut self.denoiser {
            Some(denoiser) => {
                denoiser.process(&self.raw[self.n_raw_taken..], &mut rest);
                denoiser.flush(&mut rest);
            }
            None => rest.extend_from_slice(&self.raw[self.n_raw_taken..]),
        }
        self.guard.skip(Samples((self.raw.len() - self.n_raw_taken) as u64));
        self.raw.clear();
        self.words.clear();
        self.left.clear();
        self.n_raw_taken = 0;
        self.n_taken = 0;
        self.n_waiting = 0;
        rest
    }

    /// Reply audio at 16 kHz that will sound from `at` on.
    pub(super) fn played(&mut self, at: Samples, reply: &Pcm) {
        self.guard.played(at, &reply.samples);
    }

    /// What sounded is not heard.
    pub(super) fn forget_reply(&mut self) {
        self.guard.forget();
    }

    /// The reply stops sounding at `at`.
    pub(super) fn reply_stopped(&mut self, at: Samples) {
        self.guard.stopped(at);
    }

    /// Playback stood still from `since` for `n` samples.
    pub(super) fn reply_resumed(&mut self, since: Samples, n: Samples) {
        self.guard.delayed(since, n);
    }

    /// What the noise reduction holds back.
    fn flush(&mut self) {
        if let Some(denoiser) = &mut self.denoiser {
            denoiser.flush(&mut self.words);
        }
    }

    fn forget_taken(&mut self) {
        self.raw.drain(..self.n_raw_taken);
        self.n_raw_taken = 0;
        give_back(&mut self.raw);
    }
}

/// Samples that a buffer may keep room for: 2 s at 24 kHz. A message of the client's may hold minutes.
const KEPT_SAMPLES: usize = 48_000;

/// Gives back what a long message has made a buffer grow to.
pub(super) fn give_back(samples: &mut Vec<i16>) {
    if samples.capacity() > KEPT_SAMPLES && samples.len() < KEPT_SAMPLES {
        samples.shrink_to(KEPT_SAMPLES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_engine_api::tts::SpeechRequest;
    use antiphon_engine_api::vad::Vad;
    use antiphon_engines::tts::TtsEngine;
    use antiphon_engines::tts::flite::Flite;
    use antiphon_engines::vad::Earshot;
    use antiphon_types::SampleRate;
    use proptest::prelude::*;
    use tokio_util::sync::CancellationToken;

    fn put(microphone: &mut Microphone, pcm: &[i16]) {
        microphone.push(|raw| raw.extend_from_slice(pcm));
    }

    /// Every whole window's words.
    fn words(microphone: &mut Microphone, n: usize, out: &mut Vec<i16>) {
        while let Some(window) = microphone.window(n) {
            assert_eq!((window.voice.len(), window.words.len()), (n, n));
            out.extend_from_slice(window.words);
        }
    }

    #[test]
    fn without_reduction_the_recognizer_gets_every_sample_as_it_came_and_the_detector_none_of_the_reply() {
        let mut state = 1u32;
        let mut random = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 19) as i16 - 4_096
        };
        let reply: Vec<i16> = (0..16_000).map(|_| random()).collect();
        let mut microphone = Microphone::default();
        let at = Samples::ZERO;
        microphone.played(at, &Pcm { samples: reply.clone(), rate: SampleRate::HZ_16000 });
        put(&mut microphone, &reply);
        let mut heard = Vec::new();
        let mut left = 0.0;
        while let Some(window) = microphone.window(512) {
            heard.extend_from_slice(window.words);
            left += window.voice.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>();
        }
        heard.extend(microphone.take_rest());
        assert_eq!(heard, reply);
        let all: f64 = reply.iter().map(|&x| f64::from(x).powi(2)).sum();
        assert!(left < all / 100.0, "{:.1} dB", 10.0 * (left / all).log10());
    }

    /// A sentence by flite at 16 kHz.
    fn sentence() -> Vec<i16> {
        let mut flite = Flite::open("slt").expect("flite is installed");
        let text = "Once upon a time there was a little fox who lived at the edge of a large and quiet forest.";
        let request = SpeechRequest { text: text.into(), voice: "slt".into(), ..SpeechRequest::default() };
        let mut pcm = Vec::new();
        let mut take = |piece: Pcm| {
            assert_eq!(piece.rate, SampleRate::HZ_16000);
            pcm.extend(piece.samples);
            std::ops::ControlFlow::Continue(())
        };
        flite.synthesize(&request, &CancellationToken::new(), &mut take).expect("it speaks");
        pcm
    }

    /// Windows that the detector takes for speech when `reply` comes back `delay` samples late at -12 dB over noise.
    fn n_voiced(reply: &[i16], delay: usize, reduction: Option<NoiseReduction>, guarded: bool) -> usize {
        let mut state = 1u32;
        let mut noise = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 26) as i16 - 32
        };
        let echo = |i: usize| i.checked_sub(delay).and_then(|i| reply.get(i)).map_or(0, |sample| sample / 4);
        let heard: Vec<i16> = (0..reply.len() + delay + 8_000).map(|i| echo(i) + noise()).collect();
        let mut microphone = Microphone::default();
        microphone.reduce_noise(reduction);
        if guarded {
            microphone.played(Samples::ZERO, &Pcm { rate: SampleRate::HZ_16000, samples: reply.to_vec() });
        }
        let mut vad = Earshot.open();
        let mut n = 0;
        for piece in heard.chunks(320) {
            put(&mut microphone, piece);
            while let Some(window) = microphone.window(256) {
                n += usize::from(vad.probability(window.voice).expect("a window") >= 0.5);
            }
        }
        n
    }

    #[test]
    fn a_reply_that_comes_back_is_not_speech_with_and_without_noise_reduction() {
        let reply = sentence();
        for reduction in [None, Some(NoiseReduction::Near), Some(NoiseReduction::Far)] {
            assert!(n_voiced(&reply, 1_000, reduction, false) > 100, "the echo alone must look like speech");
            for delay_ms in [0, 70, 250, 430, 600] {
                let n = n_voiced(&reply, delay_ms * 16, reduction, true);
                assert_eq!(n, 0, "{delay_ms} ms late, {reduction:?}");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]
        #[test]
        fn no_sample_is_lost_or_counted_twice_whatever_is_switched(
            steps in prop::collection::vec((0..2_000usize, 0..5u8), 1..40), window in prop::sample::select(vec![256usize, 512])
        ) {
            let mut microphone = Microphone::default();
            let mut n_in = 0;
            let mut out = Vec::new();
            for (n, step) in steps {
                put(&mut microphone, &vec![300; n]);
                n_in += n;
                match step {
                    0 => microphone.reduce_noise(Some(NoiseReduction::Near)),
                    1 => microphone.reduce_noise(None),
                    2 => out.extend(microphone.take_rest()),
                    _ => words(&mut microphone, window, &mut out),
                }
                prop_assert_eq!(out.len() + microphone.n_waiting(), n_in);
                prop_assert!(microphone.guard.position().0 as usize >= out.len());
            }
            out.extend(microphone.take_rest());
            prop_assert_eq!(out.len(), n_in);
            prop_assert_eq!(microphone.guard.position(), Samples(n_in as u64));
        }
    }

    #[test]
    fn a_long_message_leaves_no_large_buffer_behind() {
        let mut microphone = Microphone::default();
        // No whole number of windows: some samples stay.
        microphone.push(|raw| raw.resize(100 * KEPT_SAMPLES + 7, 0));
        while microphone.window(256).is_some() {}
        let buffers = [&microphone.raw, &microphone.left, &microphone.words];
        assert!(buffers.iter().all(|buffer| buffer.capacity() <= KEPT_SAMPLES), "{:?}", buffers.map(Vec::capacity));
    }
}
