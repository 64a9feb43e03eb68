//! Barge-in: how fast a reply stops at the listener, and whether the hub knows where it stopped.
//!
//! A question is answered by a long tone; after 0.4 to 0.8 s of it a flite voice interrupts. A question that a busy machine
//! delivers with a gap is two turns to the hub, whose first reply the rest of the question stops: the reply that goes on is
//! the one that is interrupted. From the first loud sample sent:
//! to the end of the sound in the recording (the hold), and to the hub's message that clears (the cancel). The
//! position that the hub reports is compared with the duration of sound in the recording: of a WebRTC call
//! `conversation.item.truncated`, of a phone call the turn record. Each interruption has a call of its own.

use super::caller::Step;
use super::client::{Client, Phone, Transport, WebSocket};
use super::phones::settings;
use super::*;
use crate::questions::VOICES;
use antiphon_client::{AudioMode, Event, FRAME};
use serde_json::Value;
use tokio::time::Instant;

const N: usize = 20;
const SAID: [&str; 5] =
    ["Stop, please.", "Wait a moment.", "No, that is enough.", "Hold on, please.", "Okay, thank you."];
/// Playing time of a chunk of the reply: longer than any interruption takes.
const LONG: Duration = Duration::from_secs(6);
const REPLY_TIMEOUT: Duration = Duration::from_secs(8);
/// Interval at which the record of the interrupted turn is looked for.
const SETTLES: Duration = Duration::from_millis(500);
/// Packets may be so late on a busy machine, and the reply sounds nevertheless.
const LATE: Duration = Duration::from_millis(200);
/// How long before the interruption the records are looked at.
const ASKED: Duration = Duration::from_millis(100);
/// From the cancel until all that had left was played; the next reply comes later, after 200 ms of silence.
const ON_ITS_WAY: Duration = Duration::from_millis(150);

const WEBRTC_ERROR_MS: f64 = 100.0;
const PHONE_ERROR_MS: f64 = 60.0;

/// What an interruption gave, from its first loud sample.
#[derive(Default)]
struct Came {
    silent: Option<Duration>,
    cleared: Option<Duration>,
    /// The hub's position and that of the recording, in milliseconds.
    position: Option<(f64, f64)>,
    /// The hub said that it heard speech.
    is_heard: bool,
}

pub(super) async fn measure(plan: &TransportsPlan, progress: Progress<'_>) -> Result<Measurement, BenchError> {
    let how = "mock engines, a reply of one tone, a flite voice interrupts; from its first loud sample sent";
    let mut section = Section::new(Part::BargeIn.section(), how);
    let settings = settings("");
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let pair = plan.pair(LONG, &settings, None).await?;
    let http = http()?;
    let n = plan.of(N, 1);
    for (transport, bound) in [
        (Transport::WebSocket, None),
        (Transport::Webrtc, Some(WEBRTC_ERROR_MS)),
        (Transport::Phone, Some(PHONE_ERROR_MS)),
    ] {
        let question = questions(transport, 1).await?.remove(0);
        let clips = interruptions(transport, n).await?;
        let mut silent = Waits::default();
        let mut cleared = Waits::default();
        let mut errors = Waits::default();
        for (i, clip) in clips.iter().enumerate() {
            progress(&format!("barge-in by {}: {} of {n}", transport.name(), i + 1));
            let came = interruption(&pair.hub, &http, transport, &question, clip, i).await?;
            silent.push_option(came.silent);
            cleared.push_option(came.cleared);
            if came.cleared.is_none() {
                let what = SAID[i % SAID.len()];
                let voice = VOICES[i % VOICES.len()];
                let heard = if came.is_heard { "heard" } else { "not heard" };
                section.notes.push(format!("{} {i}: {what:?} by {voice} did not interrupt; {heard}", transport.name()));
            }
            match came.position {
                Some((hub, listener)) => {
                    errors.push_ms((hub - listener).abs());
                    if bound.is_some_and(|bound| (hub - listener).abs() > bound) {
                        let name = transport.name();
                        section
                            .notes
                            .push(format!("{name} {i}: the hub says {hub:.0} ms, the listener {listener:.0} ms"));
                    }
                }
                None if bound.is_some() => errors.push_endless(),
                None => {}
            }
        }
        let name = transport.name();
        for (what, waits) in [("to the end of the sound", &silent), ("to the cancel", &cleared)] {
            section.percentile(&format!("{name}: {what}"), waits, 50.0, None);
            section.percentile(&format!("{name}: {what}"), waits, 95.0, None);
        }
        section.percentile(&format!("{name}: error of position"), &errors, 50.0, None);
        section.percentile(&format!("{name}: error of position"), &errors, 95.0, bound);
    }
    Ok(Measurement { section, hub_cpu_s: pair.stop().await? })
}

/// Interruptions, which begin at any offset within a frame.
async fn interruptions(transport: Transport, n: usize) -> Result<Vec<Speech>, BenchError> {
    let speaker = speaker().await?;
    let mut clips = Vec::new();
    for i in 0..n {
        let samples = speak(&*speaker, SAID[i % SAID.len()], VOICES[i % VOICES.len()]).await?.samples;
        clips.push(Speech::new(transport, &[vec![0; (i * 211) % FRAME], samples].concat())?);
    }
    Ok(clips)
}

async fn interruption(
    hub: &Hub,
    http: &reqwest::Client,
    transport: Transport,
    question: &Speech,
    clip: &Speech,
    i: usize,
) -> Result<Came, BenchError> {
    let client = match transport {
        Transport::WebSocket => {
            Client::WebSocket(Box::new(WebSocket::open(&hub.url, AudioMode::Pcm16, &session(true)).await?))
        }
        Transport::Webrtc => call(http, hub).await?,
        Transport::Phone => Client::Phone(Box::new(Phone::open(&hub.url).await?)),
        Transport::Sip => return Err(BenchError::Method("interruptions are not measured by SIP".into())),
    };
    let mut talker = talker(client, transport)?;
    talker.pause(Duration::from_millis(200)).await?;
    let after = Duration::from_millis(400 + (i as u64 * 137) % 400);
    reply(&mut talker, question, after - ASKED).await?;
    let (known, ()) = tokio::try_join!(newest_cut(http, hub), talker.pause(ASKED))?;
    let known = known.map(|turn| turn["id"].clone());
    talker.say(clip);
    let mut loud = None;
    let mut cleared = None;
    let mut truncated = None;
    let mut heard = None;
    let mut is_heard = false;
    let until = Instant::now() + FRAME_TIME * clip.frames.len() as u32 + REPLY_TIMEOUT;
    while heard.is_none() && Instant::now() < until {
        match talker.step().await? {
            Step::Said { at, n_said } if n_said > clip.loud.0 => {
                loud.get_or_insert(at);
            }
            Step::Cleared => cleared = cleared.or(Some(Instant::now())),
            Step::Event(Event::SpeechStarted { .. }) => is_heard = true,
            Step::Event(Event::Truncated { audio_end_ms, .. }) => truncated = Some(audio_end_ms as f64),
            _ => {}
        }
        if cleared.is_some_and(|cleared: Instant| Instant::now() > cleared + ON_ITS_WAY) {
            heard = Some((talker.recording.last(), talker.recording.total()));
        }
    }
    let (last, total) = heard.unwrap_or_default();
    // What is before the first loud sample may suffice for a hold.
    let since = |at: Option<Instant>| Some(at?.saturating_duration_since(loud?));
    let position = match transport {
        Transport::Phone => cut_position(http, hub, known, &mut talker).await?,
        _ => truncated,
    };
    talker.client.close().await;
    Ok(Came {
        silent: since(last),
        cleared: since(cleared),
        position: position.map(|hub| (hub, total.as_secs_f64() * 1e3)),
        is_heard,
    })
}

/// Asks, and returns when the reply has sounded for `after`.
async fn reply(talker: &mut Talker, question: &Speech, after: Duration) -> Result<(), BenchError> {
    talker.say(question);
    let until = Instant::now() + FRAME_TIME * question.frames.len() as u32 + REPLY_TIMEOUT;
    let mut is_asked = false;
    while Instant::now() < until {
        match talker.step().await? {
            Step::Said { n_said, .. } => is_asked = n_said > question.loud.1,
            Step::Cleared => talker.recording.reset(),
            _ => {}
        }
        if !is_asked {
            talker.recording.reset();
        } else if let Some(first) = talker.recording.first() {
            talker.pause((first + after).saturating_duration_since(Instant::now())).await?;
            if talker.recording.last().is_some_and(|last| last + LATE > Instant::now()) {
                return Ok(());
            }
            talker.recording.reset();
        }
    }
    Err(BenchError::Call("there was no reply to interrupt".into()))
}

/// The record of the newest turn that was interrupted.
async fn newest_cut(http: &reqwest::Client, hub: &Hub) -> Result<Option<Value>, BenchError> {
    let failed = |error: reqwest::Error| BenchError::Call(format!("turn records: {error}"));
    let response = http.get(format!("{}/api/turns?limit=20", hub.url)).send().await.map_err(failed)?;
    let mut list: Value = response.json().await.map_err(failed)?;
    let turns = list["turns"].as_array_mut().map(std::mem::take).unwrap_or_default();
    Ok(turns.into_iter().find(|turn| turn["barged_in"] == true))
}

/// What was heard of the newest interrupted turn, in milliseconds, once it is another one than `known`. The call goes on
/// meanwhile.
async fn cut_position(
    http: &reqwest::Client,
    hub: &Hub,
    known: Option<Value>,
    talker: &mut Talker,
) -> Result<Option<f64>, BenchError> {
    let until = Instant::now() + REPLY_TIMEOUT;
    while Instant::now() < until {
        talker.pause(SETTLES).await?;
        let newest = newest_cut(http, hub).await?;
        if let Some(turn) = newest.filter(|turn| known.as_ref() != Some(&turn["id"])) {
            return Ok(turn["audio"]["heard_ms"].as_f64());
        }
    }
    Ok(None)
}
