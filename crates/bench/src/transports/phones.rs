//! Many phone calls: processor time of the hub, the greeting, and the answer after it.
//!
//! Each call begins with a greeting of the hub, listens to its end, and then asks as in [`super::calls`]. The hub runs on one
//! core, clients and mock engines on the other. A phone's 8 kHz do not carry the marks of the calls' questions.

use super::calls::together;
use super::client::{Client, Phone, Transport};
use super::*;
use std::sync::Mutex;

/// The default of `server_vad`. At 8 kHz, 200 ms ended a turn at a question's comma.
const SILENCE_MS: u64 = 500;
const PERCENT_A_CALL: f64 = 1.0;
/// From the start of the stream to the greeting, and from the end of a question to its answer.
const FIRST_SOUND_MS: f64 = 1_000.0;

pub(super) async fn measure(plan: &TransportsPlan, progress: Progress<'_>) -> Result<Measurement, BenchError> {
    let n = plan.n_calls.1;
    let how = format!("{n} calls of Twilio (mu-law), greeted, mock engines that take no time; the hub on one core");
    let mut section = Section::new(Part::Phones.section(), how);
    let pinned = LoadAffinity::load();
    let settings = settings("Greet the caller.");
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let pair = plan.pair(SOUND, &settings, pinned.as_ref().ok()).await?;
    let speech = vec![questions(Transport::Phone, 1).await?.remove(0); n];
    let url = pair.hub.url.clone();
    let room = Transport::Phone.room()?;
    let greetings: Arc<Mutex<Waits>> = Arc::default();
    let greeted = greetings.clone();
    let open = move |_| {
        let url = url.clone();
        let room = room.clone();
        let greeted = greeted.clone();
        async move {
            let phone = Phone::open(&url).await?;
            let started = phone.started;
            let mut talker = Talker::new(Client::Phone(Box::new(phone)), room, FRAME_TIME);
            let first = talker.listen().await?;
            let wait = first.map(|first| first.saturating_duration_since(started));
            greeted.lock().expect("no panic while locked").push_option(wait);
            Ok(talker)
        }
    };
    let outcome = together(plan, open, speech, pair.hub.process, progress).await?;
    let greetings = std::mem::take(&mut *greetings.lock().expect("no panic while locked"));
    section.percentile("start to the greeting", &greetings, 50.0, None);
    section.percentile("start to the greeting", &greetings, 95.0, Some(FIRST_SOUND_MS));
    outcome.add_to(&mut section, PERCENT_A_CALL, Some(FIRST_SOUND_MS));
    section.notes.extend(pinned.as_ref().err().map(|why| format!("nothing was pinned to a core: {why}")));
    Ok(Measurement { section, hub_cpu_s: pair.stop().await? })
}

/// Settings of a hub that accepts phone calls without a token and greets them, in which 500 ms of silence end a turn.
pub(super) fn settings(greeting: &str) -> [String; 2] {
    let detection = format!("{{ type = \"server_vad\", silence_duration_ms = {SILENCE_MS} }}");
    let session = format!("{{ audio = {{ input = {{ turn_detection = {detection} }} }} }}");
    let route = format!("{{ greeting = {greeting:?}, session = {session} }}");
    ["telephony.unauthenticated=true".into(), format!("telephony.routes={{ default = {route} }}")]
}
