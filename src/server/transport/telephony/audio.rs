//! Between a peer's audio and the session's, which is PCM16 at 24 kHz: order, coding, rate and frames.
//!
//! [`super::conversation`] owns one [`Microphone`] and one [`Voice`] a call. Nothing blocks and nothing reads a clock.

use super::leg::Coding;
use super::playout::RATE;
use antiphon_audio::Resampler;
use antiphon_audio::codec::{self, CodecError};
use antiphon_audio::{Jitter, Slot};
use antiphon_types::{Format, ItemId, Samples};
use bytes::Bytes;

/// Audio of the caller, on its way to the session.
pub(super) struct Microphone {
    coding: Coding,
    resampler: Resampler,
    /// Where frames are numbered.
    jitter: Jitter,
    /// Length of the last frame at the peer's rate: that of one that was lost.
    frame: usize,
    position: Samples,
    samples: Vec<i16>,
}

/// A frame for the session: its first sample, and PCM16 at 24 kHz.
pub(super) type SessionFrame = (Samples, Bytes);

impl Microphone {
    pub(super) fn new(coding: Coding) -> Self {
        let resampler = Resampler::new(coding.rate, RATE);
        let frame = coding.frame().0 as usize;
        Self { coding, resampler, jitter: Jitter::new(), frame, position: Samples::ZERO, samples: Vec::new() }
    }

    /// Takes a frame of the peer. A numbered one waits for those before it, three later ones at most; silence stands for one
    /// that is lost.
    ///
    /// # Errors
    /// A frame ends inside a sample.
    pub(super) fn push(&mut self, number: Option<u32>, audio: Bytes) -> Result<Vec<SessionFrame>, CodecError> {
        let Some(number) = number else { return Ok(self.decode(&audio)?.into_iter().collect()) };
        self.jitter.push(number, 0, audio);
        self.in_order()
    }

    /// Takes silence for `ms`, where the peer sends nothing. Frames that wait for others come before it.
    ///
    /// # Errors
    /// A frame ends inside a sample.
    pub(super) fn rest(&mut self, ms: u64) -> Result<Vec<SessionFrame>, CodecError> {
        self.jitter.release();
        let mut frames = self.in_order()?;
        frames.extend(self.silence(Samples::from_ms(ms, self.coding.rate)));
        Ok(frames)
    }

    fn in_order(&mut self) -> Result<Vec<SessionFrame>, CodecError> {
        let mut frames = Vec::new();
        while let Some(slot) = self.jitter.pop() {
            match slot {
                Slot::Frame(frame) => frames.extend(self.decode(&frame.payload)?),
                Slot::Lost { .. } => frames.extend(self.silence(Samples(self.frame as u64))),
            }
        }
        Ok(frames)
    }

    fn decode(&mut self, audio: &[u8]) -> Result<Option<SessionFrame>, CodecError> {
        self.samples.clear();
        self.coding.decode(audio, &mut self.samples)?;
        self.frame = self.samples.len();
        Ok(self.resampled())
    }

    fn silence(&mut self, n: Samples) -> Option<SessionFrame> {
        self.samples.clear();
        self.samples.resize(n.0 as usize, 0);
        self.resampled()
    }

    fn resampled(&mut self) -> Option<SessionFrame> {
        let mut out = Vec::with_capacity(self.samples.len() * 3 + 64);
        self.resampler.process(&self.samples, &mut out);
        if out.is_empty() {
            return None;
        }
        let at = self.position;
        self.position += Samples(out.len() as u64);
        let mut bytes = Vec::with_capacity(2 * out.len());
        codec::encode(Format::Pcm16, &out, &mut bytes);
        Some((at, bytes.into()))
    }
}

/// Audio of a reply, on its way to the peer: in whole frames of 20 ms. Silence fills the last one of an item, because peers take
/// a shorter frame for noise, or play it with a click (Vonage, AudioSocket).
pub(super) struct Voice {
    coding: Coding,
    resampler: Resampler,
    /// The item, and its first sample here.
    item: Option<(ItemId, Samples)>,
    /// Samples of the item that have left, at the peer's rate.
    n_left: u64,
    /// What does not fill a frame yet.
    pending: Vec<i16>,
}

/// A frame for the peer.
#[derive(Debug, PartialEq)]
pub(super) struct PeerFrame {
    pub(super) item: ItemId,
    /// Its first sample and its end within the item, at 24 kHz; the silence that fills it is behind the end.
    pub(super) from: Samples,
    pub(super) end: Samples,
    /// In the peer's coding.
    pub(super) audio: Vec<u8>,
}

impl Voice {
    pub(super) fn new(coding: Coding) -> Self {
        let resampler = Resampler::new(RATE, coding.rate);
        Self { coding, resampler, item: None, n_left: 0, pending: Vec::new() }
    }

    /// Takes a frame of the session; gives those of the peer that are full.
    pub(super) fn push(&mut self, item: &ItemId, offset: Samples, payload: &[u8]) -> Vec<PeerFrame> {
        let mut frames = Vec::new();
        if self.item.as_ref().is_some_and(|(current, _)| current != item) {
            frames = self.finish();
        }
        self.item.get_or_insert_with(|| (item.clone(), offset));
        let mut samples = Vec::with_capacity(payload.len() / 2);
        // The session sends whole samples.
        let _ = codec::decode(Format::Pcm16, payload, &mut samples);
        self.resampler.process(&samples, &mut self.pending);
        self.take(false, &mut frames);
        frames
    }

    /// The item is complete; gives the rest of it, filled up with silence.
    pub(super) fn finish(&mut self) -> Vec<PeerFrame> {
        let mut frames = Vec::new();
        if self.item.is_some() {
            self.resampler.flush(&mut self.pending);
            self.take(true, &mut frames);
        }
        self.clear();
        frames
    }

    /// Discards what has not left.
    pub(super) fn clear(&mut self) {
        self.pending.clear();
        self.resampler = Resampler::new(RATE, self.coding.rate);
        self.item = None;
        self.n_left = 0;
    }

    fn take(&mut self, all: bool, frames: &mut Vec<PeerFrame>) {
        let Some((item, first)) = &self.item else { return };
        let hz = u64::from(self.coding.rate.hz());
        let at = |n: u64| *first + Samples(n * u64::from(RATE.hz()) / hz);
        let size = self.coding.frame().0 as usize;
        let n_whole = if all { self.pending.len() } else { self.pending.len() / size * size };
        for samples in self.pending[..n_whole].chunks(size) {
            let from = at(self.n_left);
            self.n_left += samples.len() as u64;
            let end = at(self.n_left);
            let audio = if samples.len() == size {
                self.coding.encode(samples)
            } else {
                let mut filled = samples.to_vec();
                filled.resize(size, 0);
                self.coding.encode(&filled)
            };
            frames.push(PeerFrame { item: item.clone(), from, end, audio });
        }
        self.pending.drain(..n_whole);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pcm(frame: &SessionFrame) -> Vec<i16> {
        frame.1.chunks(2).map(|pair| i16::from_le_bytes([pair[0], pair[1]])).collect()
    }

    #[test]
    fn a_reply_leaves_in_whole_frames_and_no_sample_is_lost() {
        for coding in [Coding::ULAW, Coding::l16(16_000).unwrap(), Coding::l16(44_100).unwrap()] {
            let mut voice = Voice::new(coding);
            let item = ItemId::from("a");
            let payload: Vec<u8> = std::iter::repeat_n(1_000i16.to_le_bytes(), 480).flatten().collect();
            let mut frames = Vec::new();
            for n in 0..10 {
                frames.extend(voice.push(&item, Samples(480 * n), &payload));
            }
            frames.extend(voice.finish());
            let frame = coding.frame().0 as usize * coding.format.bytes_per_sample();
            let (last, whole) = frames.split_last().unwrap();
            assert!(whole.iter().all(|piece| piece.audio.len() == frame), "{coding:?}");
            assert!(whole.windows(2).all(|pair| pair[0].end == pair[1].from));
            assert_eq!((frames[0].from, last.end), (Samples::ZERO, Samples(4_800)), "{coding:?}");
            let n_bytes: usize = frames.iter().map(|piece| piece.audio.len()).sum();
            assert_eq!(n_bytes, coding.frame().0 as usize * 10 * coding.format.bytes_per_sample());
            assert!(voice.finish().is_empty());
        }
    }

    #[test]
    fn silence_fills_the_last_frame_of_a_reply() {
        for coding in [Coding::ULAW, Coding::ALAW, Coding::l16(8_000).unwrap(), Coding::l16(16_000).unwrap()] {
            let mut voice = Voice::new(coding);
            let payload: Vec<u8> = std::iter::repeat_n(1_000i16.to_le_bytes(), 720).flatten().collect();
            let mut frames = voice.push(&"a".into(), Samples(0), &payload);
            frames.extend(voice.finish());
            let n_bytes = coding.frame().0 as usize * coding.format.bytes_per_sample();
            assert_eq!(frames.iter().map(|frame| frame.audio.len()).collect::<Vec<_>>(), [n_bytes; 2], "{coding:?}");
            assert_eq!(frames[1].end, Samples(720), "silence is no part of what was said");
            let mut samples = Vec::new();
            coding.decode(&frames[1].audio, &mut samples).unwrap();
            let rest = &samples[samples.len() / 2 + 1..];
            assert!(rest.iter().all(|sample| sample.unsigned_abs() <= 8), "{coding:?}: {rest:?}");
        }
    }

    #[test]
    fn another_item_begins_at_its_own_start() {
        let mut voice = Voice::new(Coding::ULAW);
        voice.push(&"a".into(), Samples(0), &[0; 960]);
        let frames = voice.push(&"b".into(), Samples(0), &[0; 960]);
        assert!(frames.iter().all(|frame| frame.item.as_str() == "a"), "the rest of the first: {frames:?}");
        assert_eq!(frames.last().unwrap().end, Samples(480));
        let rest = voice.finish();
        assert_eq!((rest[0].item.as_str(), rest[0].from), ("b", Samples(0)));
        voice.push(&"c".into(), Samples(0), &[0; 960]);
        voice.clear();
        assert!(voice.finish().is_empty());
    }

    #[test]
    fn numbered_frames_come_in_order_and_silence_stands_for_a_lost_one() {
        let frame = |level: u8| Bytes::from(vec![level; 160]);
        let mut microphone = Microphone::new(Coding::ULAW);
        let mut frames = Vec::new();
        // 4 is lost; 3 comes late.
        for (number, level) in [(1, 0x80), (2, 0x90), (5, 0xb0), (3, 0xa0), (6, 0xb0), (7, 0xb0), (3, 0x00)] {
            frames.extend(microphone.push(Some(number), frame(level)).unwrap());
        }
        let mut at = Samples::ZERO;
        for frame in &frames {
            assert_eq!(frame.0, at, "one behind the other");
            at += Samples(frame.1.len() as u64 / 2);
        }
        let samples: Vec<i16> = frames.iter().flat_map(pcm).collect();
        // The filter holds back 4 ms.
        assert!((7 * 480 - 110..7 * 480).contains(&samples.len()), "{}", samples.len());
        let level = |n: usize| samples[n * 480 + 240];
        assert!(level(0) > level(1) && level(1) > level(2), "in order");
        assert!(level(3).abs() < 40 && level(4) > 2_000, "silence, then what came after it");
    }

    #[test]
    fn frames_without_numbers_pass_and_rest_is_silence() {
        let mut microphone = Microphone::new(Coding::l16(16_000).unwrap());
        assert_eq!(microphone.push(None, Bytes::from(vec![0; 640])).unwrap().len(), 1);
        assert!(microphone.push(None, Bytes::from(vec![0; 3])).is_err());
        let rest = microphone.rest(100).unwrap();
        assert_eq!(rest.iter().flat_map(pcm).count(), 2_400);
    }

    #[test]
    fn frames_that_wait_for_a_lost_one_come_before_silence() {
        let mut microphone = Microphone::new(Coding::ULAW);
        let frame = || Bytes::from(vec![0x80; 160]);
        assert_eq!(microphone.push(Some(1), frame()).unwrap().len(), 1);
        assert!(microphone.push(Some(3), frame()).unwrap().is_empty(), "2 may still come");
        let samples: Vec<i16> = microphone.rest(100).unwrap().iter().flat_map(pcm).collect();
        // The lost frame, the one that waited, then silence.
        assert!((7 * 480 - 110..=7 * 480).contains(&samples.len()), "{}", samples.len());
        assert!(samples[480 + 240].unsigned_abs() > 2_000 && samples[960 + 240].abs() < 40);
        assert!(microphone.push(Some(2), frame()).unwrap().is_empty(), "it is too late");
    }

    /// Telephone speech has nothing above 4 kHz; the recognizer's 16 kHz must not have its mirror image there.
    #[test]
    fn no_mirror_image_of_telephone_speech_stands_above_4_khz() {
        let tone = |hz: f64| {
            (0..8_000).map(move |n| (12_000.0 * (std::f64::consts::TAU * hz * n as f64 / 8_000.0).sin()) as i16)
        };
        for hz in [300.0, 1_000.0, 2_000.0, 3_000.0, 3_400.0] {
            let coding = Coding::l16(8_000).unwrap();
            let mut microphone = Microphone::new(coding);
            let samples: Vec<i16> = tone(hz).collect();
            let frames = coding.encode(&samples).chunks(320).map(Bytes::copy_from_slice).collect::<Vec<_>>();
            let wide: Vec<i16> = frames
                .into_iter()
                .flat_map(|frame| microphone.push(None, frame).unwrap())
                .flat_map(|frame| pcm(&frame))
                .collect();
            let heard = antiphon_audio::convert(&wide, RATE, antiphon_types::SampleRate::HZ_16000);
            let signal = power(&heard, hz);
            let image = power(&heard, 8_000.0 - hz);
            assert!(signal / image > 1e5, "{hz} Hz: its image is {:.1} dB below it", 10.0 * (signal / image).log10());
        }
    }

    /// Power of one frequency at 16 kHz (Goertzel), edges excluded.
    fn power(samples: &[i16], hz: f64) -> f64 {
        let inner = &samples[1_600..14_400];
        let mut sin = 0.0;
        let mut cos = 0.0;
        for (n, sample) in inner.iter().enumerate() {
            let phase = std::f64::consts::TAU * hz * n as f64 / 16_000.0;
            sin += f64::from(*sample) * phase.sin();
            cos += f64::from(*sample) * phase.cos();
        }
        (sin * sin + cos * cos) / (inner.len() as f64).powi(2)
    }
}
