//! One search: a decoder and the preprocessing of its audio. A `stream` has two of them.
//!
//! All that happens here happens at fixed samples of the utterance, whatever pieces it comes in, so that the same audio
//! always gives the same words.

use super::decoder::{Cepstra, Decoder, Word};
use antiphon_engine_api::stt::SttError;

/// Samples of a decoder's frame, 10 ms: what it is given at a time.
const FRAME: usize = 160;

/// Frames between two looks at the cepstral mean, 100 ms.
const ADAPT_EVERY: usize = 10;

/// Frames that are given together at the beginning. PocketSphinx holds the first 10 back; a first piece from which it
/// gets no frame makes it take the end of the last utterance for what was before this one (with 8 it still did).
const FIRST_FRAMES: usize = 20;

/// What a search starts from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prior {
    /// The cepstral mean.
    pub(super) mean: Cepstra,
    /// How many frames of the utterance outweigh it.
    pub(super) n_frames: u16,
}

/// A decoder with its front end.
pub(super) struct Search {
    decoder: Decoder,
    noise: Option<Noise>,
    /// The beginning of the next frame.
    rest: Vec<i16>,
    n_frames: usize,
}

impl Search {
    /// With noise under the audio, or without.
    pub(super) fn new(decoder: Decoder, noise: Option<Noise>) -> Self {
        Self { decoder, noise, rest: Vec::with_capacity(FIRST_FRAMES * FRAME), n_frames: 0 }
    }

    /// Begins an utterance in a clean state.
    pub(super) fn begin(&mut self, prior: &Prior) -> Result<(), SttError> {
        self.rest.clear();
        self.n_frames = 0;
        if let Some(noise) = &mut self.noise {
            noise.begin();
        }
        self.decoder.begin(&prior.mean, prior.n_frames)
    }

    /// Decodes the whole frames there are.
    pub(super) fn push(&mut self, pcm: &[i16]) -> Result<(), SttError> {
        let mut pcm = pcm;
        while self.rest.len() + pcm.len() >= self.n_wanted() {
            let (head, tail) = pcm.split_at(self.n_wanted() - self.rest.len());
            self.rest.extend_from_slice(head);
            pcm = tail;
            self.decode()?;
        }
        self.rest.extend_from_slice(pcm);
        Ok(())
    }

    /// Samples given to the decoder next.
    fn n_wanted(&self) -> usize {
        if self.n_frames == 0 { FIRST_FRAMES * FRAME } else { FRAME }
    }

    fn decode(&mut self) -> Result<(), SttError> {
        if let Some(noise) = &mut self.noise {
            self.rest.chunks_mut(FRAME).for_each(|frame| noise.add(frame));
        }
        self.decoder.push(&self.rest)?;
        self.n_frames += self.rest.len().div_ceil(FRAME);
        self.rest.clear();
        if self.n_frames.is_multiple_of(ADAPT_EVERY) {
            self.decoder.adapt()?;
        }
        Ok(())
    }

    /// Decodes what is left.
    pub(super) fn end(&mut self) -> Result<(), SttError> {
        if !self.rest.is_empty() {
            self.rest.resize(self.n_wanted().max(self.rest.len()), 0);
            self.decode()?;
        }
        self.decoder.end()
    }

    /// The words of the best path so far.
    pub(super) fn words(&mut self) -> Vec<Word> {
        self.decoder.words()
    }

    /// The cepstral mean now, the prior in it.
    pub(super) fn mean(&mut self) -> Result<Cepstra, SttError> {
        self.decoder.mean()
    }
}

/// Faint noise under the speech. Between the words of synthetic speech there is nothing at all, which no model of sounds
/// was trained on; a microphone's own noise is louder than this.
#[derive(Debug)]
pub(super) struct Noise {
    /// Of the loudest frame so far.
    share: f32,
    max_rms: f32,
    loudest: f32,
    state: u32,
}

impl Noise {
    /// Noise at this share of the loudest frame so far, both RMS, at most `max_rms` of full scale 32768.
    pub(super) fn new(share: f32, max_rms: f32) -> Self {
        Self { share, max_rms, loudest: 0.0, state: 0 }
    }

    fn begin(&mut self) {
        self.loudest = 0.0;
        self.state = 12_345;
    }

    fn add(&mut self, frame: &mut [i16]) {
        let energy: f32 = frame.iter().map(|sample| f32::from(*sample) * f32::from(*sample)).sum();
        self.loudest = self.loudest.max((energy / frame.len() as f32).sqrt());
        let rms = (self.loudest * self.share).clamp(self.max_rms / 10.0, self.max_rms);
        for sample in frame {
            // Four uniform draws of variance 1/3 each make nearly a normal one of variance 4/3.
            let sum: f32 = (0..4).map(|_| self.draw()).sum();
            let noise = (sum * 0.866 * rms) as i16;
            *sample = sample.saturating_add(noise);
        }
    }

    /// In `[-1, 1)`: the linear congruential generator of "Numerical Recipes" (Press et al., 2nd edition, 7.1).
    fn draw(&mut self) -> f32 {
        self.state = self.state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.state >> 8) as f32 / 8_388_608.0 - 1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_follows_the_loudest_frame_and_starts_anew() {
        let mut noise = Noise::new(0.01, 40.0);
        let mut rms = |level: i16| {
            let mut frame = vec![level; 1600];
            noise.add(&mut frame);
            let energy: f32 = frame.iter().map(|sample| f32::from(sample - level).powi(2)).sum();
            (energy / 1600.0).sqrt()
        };
        let (silence, loud, after) = (rms(0), rms(2000), rms(0));
        assert!((3.0..5.0).contains(&silence) && (18.0..22.0).contains(&loud), "{silence} {loud}");
        assert!((18.0..22.0).contains(&after), "{after}");
        let mut first = [0; FRAME];
        noise.begin();
        noise.add(&mut first);
        let mut second = [0; FRAME];
        noise.begin();
        noise.add(&mut second);
        assert_eq!(first, second);
    }
}
