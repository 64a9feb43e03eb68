//! Microphones that send what is no sound, too much of it, or nothing, and listeners that report nonsense.

use super::harness::{Party, append, error_of, fault, run, speech, typed};
use super::process::Settings;
use crate::hub::{Socket, base64, loud};
use serde_json::{Value, json};
use std::time::Duration;
use tokio_tungstenite::tungstenite::Message;

/// Resident memory that sound may cost the hub, in MiB: some utterances of ten seconds, and what waits to be decoded.
const MEMORY_MIB: u64 = 64;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sound_that_is_none_ends_no_session() {
    let goes_on = "an error event or silence, and the session goes on";
    let noise: Vec<i16> = (0..24_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 16) as i16).collect();
    let clipped: Vec<i16> = (0..48_000).map(|n| if n % 2 == 0 { i16::MAX } else { i16::MIN }).collect();
    let mut faults = vec![
        fault("base64 that is none", "an error event", |party| refused(party, json!("*** not base64 ***"))).short(),
        fault("base64 with half a sample", "an error event", |party| refused(party, json!("AAAA"))),
        fault("audio that is a number", "an error event", |party| refused(party, json!(7))),
        fault("a commit of 10 ms", "an error event", commits_too_little),
        fault("a format that changes within a word", goes_on, changes_format),
        fault("a microphone that stalls within a word", "its turn, ended", stalls),
        fault("a word without a pause, for a minute", "turns that are cut", never_pauses),
        fault("ten minutes of silence in one go", goes_on, much_silence),
        fault("two hundred words in one go", "turns, and the session goes on", chatters),
        fault("cleared within each word", goes_on, clears),
        fault("a truncation of a reply at its end and beyond", "an error event", truncates_beyond),
        fault("interrupted a hundred times", "cancelled replies", interrupts).short(),
        fault("opus: packets that are none", goes_on, |party| opus(party, &[0xff; 200])),
        fault("opus: a packet of 100 KiB", goes_on, |party| opus(party, &[0x7c; 100 << 10])),
        fault("opus: an empty packet", goes_on, |party| opus(party, &[])),
        fault("binary frames without having asked for them", "an error event", binary_unasked),
        fault("binary frames of half samples", goes_on, half_samples),
        fault("playback reports that go backwards", goes_on, nonsense_reports),
        fault("an item whose sound is none", "an error event", item_of_nonsense),
        fault("leaves within a word, thirty times", "nothing: it has left", leaves_in_word),
    ];
    let direct: Vec<i16> = vec![i16::MIN; 48_000];
    for (name, pcm) in
        [("white noise", noise), ("full scale at the highest pitch", clipped), ("a constant voltage", direct)]
    {
        faults.push(fault(format!("sound: {name}"), goes_on, move |party| sounds(party, pcm.clone())));
    }
    for kind in ["audio/pcmu", "audio/pcma"] {
        faults.push(fault(format!("{kind}: every byte there is"), goes_on, move |party| g711(party, kind)));
    }
    run("audio", Settings::default(), MEMORY_MIB, faults).await;
}

/// A typed question apart from the conversation is answered; turns that are under way do not matter.
async fn goes_on(socket: &mut Socket) {
    let input = json!([{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "And now?"}]}]);
    let response =
        json!({"conversation": "none", "input": input, "output_modalities": ["text"], "metadata": {"last": "1"}});
    socket.send(json!({"type": "response.create", "response": response})).await;
    loop {
        let event = socket.until("response.done").await.pop().expect("an end");
        if event["response"]["metadata"]["last"] == "1" {
            assert_eq!(event["response"]["status"], "completed", "{event}");
            return;
        }
    }
}

async fn update(socket: &mut Socket, input: Value) {
    socket.send(json!({"type": "session.update", "session": {"type": "realtime", "audio": {"input": input}}})).await;
    socket.until("session.updated").await;
}

async fn refused(party: Party, audio: Value) {
    let mut socket = party.connect("").await;
    socket.send(json!({"type": "input_audio_buffer.append", "audio": audio})).await;
    party.beside().await;
    error_of(&mut socket).await;
    goes_on(&mut socket).await;
}

async fn commits_too_little(party: Party) {
    let mut socket = party.connect("").await;
    update(&mut socket, json!({"turn_detection": null})).await;
    socket.send(append(&loud(10))).await;
    socket.send(json!({"type": "input_audio_buffer.commit"})).await;
    party.beside().await;
    error_of(&mut socket).await;
    goes_on(&mut socket).await;
}

async fn changes_format(party: Party) {
    let mut socket = party.connect("").await;
    for kind in ["audio/pcmu", "audio/pcm", "audio/pcma", "audio/pcm"].repeat(10) {
        socket.send(append(&speech()[..12_000])).await;
        let format = if kind == "audio/pcm" { json!({"type": kind, "rate": 24_000}) } else { json!({"type": kind}) };
        socket.send(json!({"type": "session.update", "session": {"type": "realtime", "audio": {"input": {"format": format}}}})).await;
    }
    party.beside().await;
    goes_on(&mut socket).await;
}

async fn stalls(party: Party) {
    let mut socket = party.connect("").await;
    socket.send(append(&speech()[..16_000])).await;
    let stopped = socket.until("input_audio_buffer.speech_stopped");
    tokio::join!(stopped, party.beside());
    goes_on(&mut socket).await;
}

async fn never_pauses(party: Party) {
    let mut socket = party.connect("").await;
    // The spoken part, again and again.
    let word = &speech()[..speech().len() - 24_000];
    let minute: Vec<i16> = word.iter().copied().cycle().take(60 * 24_000).collect();
    for part in minute.chunks(24_000) {
        socket.send(append(part)).await;
    }
    party.beside().await;
    // `session.max_utterance_seconds` is 10.
    for _ in 0..3 {
        socket.until("input_audio_buffer.committed").await;
    }
    goes_on(&mut socket).await;
}

async fn much_silence(party: Party) {
    let mut socket = party.connect("").await;
    let minute = base64(&vec![0; 60 * 24_000]);
    for part in (0..10).flat_map(|_| minute.as_bytes().chunks(640_000)) {
        let audio = std::str::from_utf8(part).expect("base64");
        socket.send(json!({"type": "input_audio_buffer.append", "audio": audio})).await;
    }
    party.beside().await;
    goes_on(&mut socket).await;
}

async fn chatters(party: Party) {
    let mut socket = party.connect("").await;
    let words = async {
        for _ in 0..60 {
            socket.send(append(speech())).await;
        }
    };
    let (_, ()) = tokio::join!(tokio::time::timeout(Duration::from_secs(20), words), party.beside());
    socket.until("input_audio_buffer.committed").await;
    goes_on(&mut socket).await;
}

async fn clears(party: Party) {
    let mut socket = party.connect("").await;
    for _ in 0..50 {
        socket.send(append(&speech()[..12_000])).await;
        socket.send(json!({"type": "input_audio_buffer.clear"})).await;
    }
    party.beside().await;
    goes_on(&mut socket).await;
}

async fn truncates_beyond(party: Party) {
    let mut socket = party.connect("").await;
    socket.send(typed("Hello")).await;
    socket.send(json!({"type": "response.create"})).await;
    let done = socket.until("response.done").await.pop().expect("an end");
    let item = &done["response"]["output"][0]["id"];
    for end in [json!(u64::MAX), json!(-1), json!(1e300), json!("soon"), json!(3_600_000)] {
        let cut =
            json!({"type": "conversation.item.truncate", "item_id": item, "content_index": 0, "audio_end_ms": end});
        socket.send(cut).await;
        error_of(&mut socket).await;
    }
    party.beside().await;
    goes_on(&mut socket).await;
}

async fn interrupts(party: Party) {
    let mut socket = party.connect("").await;
    let interrupted = async {
        for _ in 0..100 {
            socket.send(typed("Tell me a long story")).await;
            socket.send(json!({"type": "response.create"})).await;
            socket.until("response.created").await;
            socket.send(json!({"type": "response.cancel"})).await;
            let done = socket.until("response.done").await.pop().expect("an end");
            assert_eq!(done["response"]["status"], "cancelled", "{done}");
        }
    };
    tokio::join!(interrupted, party.beside());
    goes_on(&mut socket).await;
}

async fn opus(party: Party, packet: &'static [u8]) {
    let mut socket = party.connect("?audio=opus").await;
    for _ in 0..50 {
        let _ = futures_util::SinkExt::send(&mut socket.stream, Message::binary(packet)).await;
    }
    party.beside().await;
    goes_on(&mut socket).await;
}

async fn binary_unasked(party: Party) {
    let mut socket = party.connect("").await;
    socket.send_raw(Message::binary(vec![0; 1_920])).await;
    party.beside().await;
    error_of(&mut socket).await;
    goes_on(&mut socket).await;
}

async fn half_samples(party: Party) {
    let mut socket = party.connect("?audio=pcm16").await;
    for n in 0..100 {
        socket.send_raw(Message::binary(vec![0; 2 * n + 1])).await;
    }
    party.beside().await;
    goes_on(&mut socket).await;
}

async fn nonsense_reports(party: Party) {
    let mut socket = party.connect("?audio=pcm16").await;
    for (played, item) in
        [(json!(u64::MAX), "item_none"), (json!(-5), "item_none"), (json!(0), ""), (json!("now"), "x")]
    {
        socket.send(json!({"type": "antiphon.playback", "item_id": item, "played_ms": played})).await;
    }
    party.beside().await;
    goes_on(&mut socket).await;
}

async fn item_of_nonsense(party: Party) {
    let mut socket = party.connect("").await;
    let item = json!({"type": "message", "role": "user", "content": [{"type": "input_audio", "audio": "%%%"}]});
    socket.send(json!({"type": "conversation.item.create", "item": item})).await;
    party.beside().await;
    error_of(&mut socket).await;
    goes_on(&mut socket).await;
}

async fn leaves_in_word(party: Party) {
    for _ in 0..30 {
        let mut socket = party.connect("").await;
        socket.send(append(&speech()[..16_000])).await;
    }
    party.beside().await;
}

async fn sounds(party: Party, pcm: Vec<i16>) {
    let mut socket = party.connect("").await;
    for part in pcm.repeat(5).chunks(24_000) {
        socket.send(append(part)).await;
    }
    party.beside().await;
    goes_on(&mut socket).await;
}

async fn g711(party: Party, kind: &'static str) {
    let mut socket = party.connect("").await;
    update(&mut socket, json!({"format": {"type": kind}})).await;
    let bytes: Vec<i16> = (0..=u8::MAX).flat_map(|byte| [i16::from_le_bytes([byte, !byte])]).collect();
    for _ in 0..100 {
        socket.send(append(&bytes)).await;
    }
    party.beside().await;
    goes_on(&mut socket).await;
}
