//! Binary audio frames from a socket: header, order, payload.
//!
//! The input is a sequence of messages, each preceded by its length in two bytes.
#![no_main]

use antiphon_audio::codec::{OpusIn, decode};
use antiphon_audio::{Jitter, Slot};
use antiphon_protocol::frame::{Frame, FrameKind};
use antiphon_types::Format;
use bytes::{Buf, Bytes};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut rest = Bytes::copy_from_slice(data);
    let mut jitter = Jitter::new();
    let mut opus = OpusIn::new().expect("a decoder");
    let mut pcm = Vec::new();
    while rest.len() > 2 {
        let n = usize::from(rest.get_u16_le()).min(rest.len());
        let message = rest.split_to(n);
        let Ok(frame) = Frame::parse(&message) else { continue };
        assert_eq!(frame.encode().expect("what was read can be written"), message);
        if frame.kind != FrameKind::Microphone {
            continue;
        }
        jitter.push(frame.sequence, frame.offset.0, frame.payload);
        while let Some(slot) = jitter.pop() {
            pcm.clear();
            match slot {
                Slot::Frame(frame) => {
                    let _ = opus.decode(&frame.payload, &mut pcm);
                    let _ = decode(Format::Pcm16, &frame.payload, &mut pcm);
                }
                Slot::Lost { next, .. } => opus.conceal(next.as_deref(), &mut pcm).expect("a loss can be concealed"),
            }
        }
    }
});
