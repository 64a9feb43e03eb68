//! Whether a long call drifts: one call by WebRTC whose microphone's clock is 100 ppm fast, a question every few seconds.
//!
//! Turn time is compared with what was sent: where the hub hears the end of a question (`audio_end_ms`), less the duration of
//! all frames sent by then. The median of the last third against that of the first; the same for voice-to-voice latency.

use super::client::Transport;
use super::*;
use tokio::time::Instant;

const DRIFT_MS: f64 = 20.0;
/// 20 ms by a clock that is 100 ppm fast, the tolerance of common crystals.
const FAST: Duration = Duration::from_micros(19_998);

pub(super) async fn measure(plan: &TransportsPlan, progress: Progress<'_>) -> Result<Measurement, BenchError> {
    let length = if plan.quick { Duration::from_secs(6) } else { plan.drift_for };
    let how = format!("one call of {:.1} min, the microphone's clock 100 ppm fast", length.as_secs_f64() / 60.0);
    let mut section = Section::new(Part::Drift.section(), how);
    let pair = plan.pair(SOUND, &[], None).await?;
    let speech = questions(Transport::Webrtc, 1).await?.remove(0);
    let mut talker = Talker::new(call(&http()?, &pair.hub).await?, Transport::Webrtc.room()?, FAST);
    let began = Instant::now();
    let mut turns = Vec::new();
    while began.elapsed() < length {
        progress(&format!("drift: {} of {} s", began.elapsed().as_secs(), length.as_secs()));
        turns.extend(converse(&mut talker, &speech, 1, turns.len() as u64).await?.into_iter().map(|turn| (0, turn)));
    }
    talker.client.close().await;
    let third = turns.len().div_ceil(3);
    let drift = |of: &dyn Fn(&Turn) -> Option<f64>| {
        let median = |turns: &[(usize, Turn)]| at(&turns.iter().filter_map(|(_, turn)| of(turn)).collect(), 50.0);
        median(&turns[turns.len() - third..]) - median(&turns[..third])
    };
    let turn_time = drift(&|turn| turn.skew_ms);
    let latency = drift(&|turn| turn.wait.map(|wait| wait.as_secs_f64() * 1e3));
    for (name, value) in [("drift of turn time", turn_time), ("drift of voice-to-voice p50", latency)] {
        section.figures.push(Figure::new(name, Unit::Ms, value.abs(), turns.len()).at_most(DRIFT_MS));
    }
    add_failed(&mut section, &turns);
    Ok(Measurement { section, hub_cpu_s: pair.stop().await? })
}
