//! Many calls by SIP and G.711: processor time of the hub, its answers, turns that are lost, and what it adds to the way of
//! sound.
//!
//! The hub runs on one core, phones and mock engines on the other. Between a caller's last word and the first sound of the
//! reply stand the silence that ends a turn and what the hub adds: its jitter buffer, its detector, its pacing and its work.
//! The second is the first figure less that silence; it is below zero where the detector ends speech before the last loud
//! sample. A call is answered at once; its INVITE takes the way of a call.

use super::calls::together;
use super::client::{Client, SipPhone, Transport};
use super::*;
use crate::hub_process::free_address;
use std::sync::Mutex;

/// As in [`super::phones`].
const SILENCE_MS: f64 = 500.0;
const PERCENT_A_CALL: f64 = 0.4;
/// From the INVITE to its answer.
const ANSWER_MS: f64 = 50.0;
/// Beside the silence that ends a turn.
const ADDED_MS: f64 = 60.0;

pub(super) async fn measure(plan: &TransportsPlan, progress: Progress<'_>) -> Result<Measurement, BenchError> {
    let n = plan.n_calls.1;
    let how = format!("{n} calls by SIP (mu-law over RTP), mock engines that take no time; the hub on one core");
    let mut section = Section::new(Part::Sip.section(), how);
    let pinned = LoadAffinity::load();
    let hub = free_address()?;
    let [_, route] = phones::settings("");
    let route = route.replace("greeting = \"\", ", "");
    let listen = format!("sip.listen={hub}");
    let trunks = "sip.trunks={ phones = { allow = [\"127.0.0.1\"] } }";
    let pair = plan.pair(SOUND, &[&listen, trunks, &route], pinned.as_ref().ok()).await?;
    let speech = vec![questions(Transport::Sip, 1).await?.remove(0); n];
    let room = Transport::Sip.room()?;
    if !plan.quick {
        // One-time initialization is not part of the load.
        let mut first = Talker::new(Client::Sip(Box::new(SipPhone::open(hub).await?)), room.clone(), FRAME_TIME);
        converse(&mut first, &speech[0], 1, 0).await?;
        first.client.close().await;
    }
    let answers: Arc<Mutex<Waits>> = Arc::default();
    let answered = answers.clone();
    let open = move |_| {
        let room = room.clone();
        let answered = answered.clone();
        async move {
            let phone = SipPhone::open(hub).await?;
            answered.lock().expect("no panic while locked").push(phone.answered_after);
            Ok(Talker::new(Client::Sip(Box::new(phone)), room, FRAME_TIME))
        }
    };
    let outcome = together(plan, open, speech, pair.hub.process, progress).await?;
    let answers = std::mem::take(&mut *answers.lock().expect("no panic while locked"));
    section.percentile("INVITE to the answer", &answers, 50.0, None);
    section.percentile("INVITE to the answer", &answers, 95.0, Some(ANSWER_MS));
    outcome.add_to(&mut section, PERCENT_A_CALL, None);
    let waits = waits(outcome.turns.iter().map(|(_, turn)| turn));
    let added = at(&waits, 50.0) - SILENCE_MS;
    section.figures.push(Figure::new("added to the way of sound", Unit::Ms, added, waits.len()).at_most(ADDED_MS));
    section.notes.extend(pinned.as_ref().err().map(|why| format!("nothing was pinned to a core: {why}")));
    Ok(Measurement { section, hub_cpu_s: pair.stop().await? })
}
