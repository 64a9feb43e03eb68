//! Opus packets of a client: after any packets the decoder still decodes a valid one, and its output stays bounded.
//!
//! The input is a sequence of packets, each preceded by its length in one byte; a length of 255 marks a lost packet.
#![no_main]

use antiphon_audio::codec::{Delivery, OpusIn, OpusOut};
use libfuzzer_sys::fuzz_target;

/// The longest packet: 120 ms at 16 kHz.
const MAX_DECODED: usize = 1920;
const LOST: u8 = 255;

fuzz_target!(|data: &[u8]| {
    let mut decoder = OpusIn::new().expect("a decoder");
    let mut pcm = Vec::new();
    let mut rest = data;
    while let Some((&n, behind)) = rest.split_first() {
        pcm.clear();
        if n == LOST {
            decoder.conceal(Some(behind), &mut pcm).expect("a loss can be concealed");
            rest = behind;
        } else {
            let (packet, behind) = behind.split_at(usize::from(n).min(behind.len()));
            if decoder.decode(packet, &mut pcm).is_err() {
                assert!(pcm.is_empty(), "a refused packet leaves no samples");
            }
            rest = behind;
        }
        assert!(pcm.len() <= MAX_DECODED, "{} samples of one packet", pcm.len());
    }
    pcm.clear();
    let mut encoder = OpusOut::new(Delivery::Lossy).expect("an encoder");
    encoder
        .push(&[1000; 480], &mut |packet| decoder.decode(packet, &mut pcm).expect("a good packet"))
        .expect("480 samples are a frame");
    assert_eq!(pcm.len(), 320, "20 ms at 16 kHz");
});
