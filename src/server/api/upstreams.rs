//! The engines behind each stage as the state, the readiness and the metrics show them. It decides nothing.

use antiphon_engine_api::{BreakerState, Engines, Upstreams};
use antiphon_telemetry::{Exposition, Family};
use std::collections::BTreeMap;

/// The engines of each stage that has a circuit breaker or a fallback.
pub(in crate::server) fn reports(engines: &Engines) -> BTreeMap<&'static str, Upstreams> {
    let stages = [("stt", engines.stt.upstreams()), ("llm", engines.llm.upstreams()), ("tts", engines.tts.upstreams())];
    stages.into_iter().filter_map(|(stage, report)| Some((stage, report?))).collect()
}

/// Why the server is not ready: a stage none of whose engines takes requests.
pub(in crate::server) fn lacks(engines: &Engines) -> Option<String> {
    let (stage, report) = reports(engines).into_iter().find(|(_, report)| report.is_down())?;
    let names: Vec<_> = report.engines.iter().map(|engine| engine.engine.as_str()).collect();
    let wait = report.engines.iter().filter_map(|engine| engine.retry_ms).min().unwrap_or(0).div_ceil(1_000);
    let names = names.join(" and ");
    Some(format!("no engine of the stage {stage} takes requests: {names} failed and will be tried in {wait} s"))
}

static BREAKER_STATE: Family =
    Family::gauge("antiphon_breaker_state", "Circuit breaker of an engine: 0 closed, 1 half-open, 2 open.")
        .by(&["stage", "engine", "role"]);
static FALLBACKS: Family =
    Family::counter("antiphon_fallback_total", "Requests that a stage's fallback engine served.")
        .by(&["stage", "reason"]);
static HEDGED: Family =
    Family::counter("antiphon_hedged_total", "Requests that were sent twice because their first output was late.")
        .by(&["stage"]);

/// The metrics.
pub(in crate::server) fn metrics(engines: &Engines) -> String {
    let reports = reports(engines);
    let mut text = Exposition::default();
    if reports.is_empty() {
        return text.into_text();
    }
    let breakers = reports.iter().flat_map(|(stage, report)| {
        report.engines.iter().map(|engine| {
            let state = match engine.state {
                BreakerState::Closed => 0,
                BreakerState::HalfOpen => 1,
                BreakerState::Open => 2,
            };
            ([*stage, engine.engine.as_str(), engine.role.as_str()], state)
        })
    });
    text.values(&BREAKER_STATE, breakers);
    let fallbacks = reports
        .iter()
        .flat_map(|(stage, report)| report.fallbacks.by_reason().map(|(reason, n)| ([*stage, reason], n)));
    text.values(&FALLBACKS, fallbacks);
    text.values(&HEDGED, reports.iter().map(|(stage, report)| ([*stage], report.n_hedges)));
    text.into_text()
}
