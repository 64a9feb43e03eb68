//! Words recognized over a network that loses, delays and reorders datagrams, against the same without loss and delay.
//!
//! Each clip goes through the whole path: Opus with FEC in the client, RTP, a relay that impairs both directions, the hub's
//! jitter buffer and decoder, and the best recognizer that is installed. The client commits each clip by the data channel, so that no detector decides
//! what is recognized. Word error: the least number of words substituted, deleted and inserted, of all words said.

use super::client::Transport;
use super::relay::Impairment;
use super::*;
use crate::Engines;
use crate::load::Sign;
use crate::real::recognizer;
use crate::words::{n_errors as n_word_errors, words};
use antiphon_client::Event;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Calls at the same time, which share the clips.
const N_CALLS: usize = 3;
/// flite's questions where there are no clips.
const QUESTIONS: usize = 48;
/// From the last frame of a clip to its commit: the network delays frames and the message differently.
const SETTLES: Duration = Duration::from_millis(600);
const TRANSCRIPT_TIMEOUT: Duration = Duration::from_secs(30);
const JITTER: Duration = Duration::from_millis(40);
/// Fractions lost, with jitter; the first one is that of a quick run.
const LOSSES: [f64; 3] = [0.05, 0.0, 0.1];
/// The loss at which the gate counts, and the gate in points of word error.
const GATED_LOSS: f64 = 0.05;
const MORE_ERRORS: f64 = 3.0;

/// A clip and its words.
#[derive(Clone)]
struct LabelledClip {
    speech: Speech,
    words: Vec<String>,
}

pub(super) async fn measure(plan: &TransportsPlan, progress: Progress<'_>) -> Result<Measurement, BenchError> {
    let said = said(plan).await?;
    let n_words: usize = said.iter().map(|said| said.words.len()).sum();
    let source = if plan.clips.is_some() { "clips of the folder" } else { "questions spoken by flite" };
    let hub = Hub::start(&plan.hub, Engines::Shipped).await?;
    let model = recognizer(&hub.url).await?;
    let how = format!("{} {source}, {n_words} words, {model}; jitter of 0 to 40 ms, which reorders", said.len());
    let mut section = Section::new(Part::Loss.section(), how);
    let clean = Impairment { loss: 0.0, jitter: Duration::ZERO };
    let none = word_error(&hub, &said, clean, "no impairment", progress).await?;
    section.figures.push(Figure::new("word error without impairment", Unit::Of("%"), none, n_words));
    for loss in LOSSES.into_iter().take(plan.of(LOSSES.len(), 1)) {
        let name = format!("{:.0} % loss", loss * 100.0);
        let error = word_error(&hub, &said, Impairment { loss, jitter: JITTER }, &name, progress).await?;
        section.figures.push(Figure::new(format!("word error with jitter, {name}"), Unit::Of("%"), error, n_words));
        let more = Figure::new(format!("above none, {name}"), Unit::Of("points"), error - none, n_words);
        section.figures.push(if loss == GATED_LOSS { more.at_most(MORE_ERRORS) } else { more });
    }
    let hub_cpu_s = hub.process.cpu_s()?;
    hub.stop().await;
    Ok(Measurement { section, hub_cpu_s })
}

async fn said(plan: &TransportsPlan) -> Result<Vec<LabelledClip>, BenchError> {
    let clips = match plan.clips.clone() {
        Some(folder) => tokio::task::spawn_blocking(move || Clips::read(&folder)).await??,
        None => Clips::spoken(plan.of(QUESTIONS, N_CALLS)).await?,
    };
    let mut said = Vec::new();
    for i in 0..clips.len().min(plan.of(usize::MAX, N_CALLS)) {
        let Sign::Words { said: text, .. } = &clips[i].sign else {
            return Err(BenchError::Clips(format!("{}: its text is missing", clips[i].name)));
        };
        said.push(LabelledClip { speech: Speech::new(Transport::Webrtc, &clips[i].samples)?, words: words(text) });
    }
    Ok(said)
}

/// Percent of the words that were not recognized, in calls over this network.
async fn word_error(
    hub: &Hub,
    said: &[LabelledClip],
    impairment: Impairment,
    name: &str,
    progress: Progress<'_>,
) -> Result<f64, BenchError> {
    progress(&format!("loss: {} clips, {name}", said.len()));
    let mut calls = JoinSet::new();
    for i in 0..N_CALLS {
        let own: Vec<_> = said.iter().skip(i).step_by(N_CALLS).cloned().collect();
        let http = http()?;
        let url = hub.url.clone();
        calls.spawn(async move { n_errors(&http, &url, &own, (impairment, i as u64)).await });
    }
    let mut n = 0;
    while let Some(errors) = calls.join_next().await {
        n += errors??;
    }
    let n_words: usize = said.iter().map(|said| said.words.len()).sum();
    Ok(100.0 * n as f64 / n_words.max(1) as f64)
}

async fn n_errors(
    http: &reqwest::Client,
    url: &str,
    said: &[LabelledClip],
    network: (Impairment, u64),
) -> Result<usize, BenchError> {
    let session: Value = json!({"session": {"type": "realtime", "audio": {"input": {
        "turn_detection": null, "transcription": {"model": "whisper-1"}}}}});
    let webrtc = Webrtc::open(http, url, &session, Some(network)).await?;
    let mut talker = talker(Client::Webrtc(Box::new(webrtc)), Transport::Webrtc)?;
    let mut n = 0;
    for LabelledClip { speech, words: expect } in said {
        talker.say(speech);
        talker.pause(FRAME_TIME * speech.frames.len() as u32 + SETTLES).await?;
        if let Client::Webrtc(webrtc) = &mut talker.client {
            webrtc.event(&json!({"type": "input_audio_buffer.commit"}))?;
        }
        let transcript = timeout(TRANSCRIPT_TIMEOUT, transcript(&mut talker)).await;
        let transcript =
            transcript.map_err(|_| BenchError::Call("a clip was not transcribed within 30 s".into()))??;
        n += n_word_errors(expect, &words(&transcript));
    }
    talker.client.close().await;
    Ok(n)
}

async fn transcript(talker: &mut Talker) -> Result<String, BenchError> {
    loop {
        match talker.step().await? {
            caller::Step::Event(Event::TranscriptionCompleted { transcript, .. }) => return Ok(transcript),
            caller::Step::Event(Event::TranscriptionFailed { error, .. }) => {
                return Err(BenchError::Call(error.message.unwrap_or_default()));
            }
            _ => {}
        }
    }
}
