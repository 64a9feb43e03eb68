//! Exports traces: one span per settled turn with a child span per stage, sent to an OTLP collector
//! (`telemetry.otlp_endpoint`, HTTP with protobuf).
//!
//! This is the only place that creates spans. It subscribes to the turn history like any other listener, so that a slow
//! or missing collector does not affect conversations: turns that overflow the subscription's queue are counted and
//! logged. Spans contain no transcripts.

use antiphon_session::{News, Part, Status, TurnHistory, TurnRecord, TurnStage, Viewer};
use async_trait::async_trait;
use bytes::Bytes;
use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status as SpanStatus, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_http::{HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanExporter as _, SpanLinks};
use std::time::{Duration, SystemTime};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Timeout of one request to the collector, including its connection.
const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum turns per request.
const BATCH: usize = 32;
/// How long a turn waits for others to be sent with it.
const GATHER: Duration = Duration::from_secs(1);
/// Maximum size of a collector's response.
const MAX_ANSWER_BYTES: usize = 64 * 1024;

/// Why no traces can be sent.
#[derive(Debug, thiserror::Error)]
#[error("telemetry.otlp_endpoint {endpoint:?} cannot be used: {why}")]
pub(in crate::server) struct TracesError {
    endpoint: String,
    why: String,
}

/// An exporter to one collector.
pub(in crate::server) struct Traces(SpanExporter);

impl Traces {
    /// An exporter to the collector at this base URL, such as `http://127.0.0.1:4318`. Does not connect yet. Headers,
    /// including any key, come from `OTEL_EXPORTER_OTLP_HEADERS`. `hub`: its name, which distinguishes the
    /// spans of several hubs.
    pub(in crate::server) fn to(endpoint: &str, hub: &str) -> Result<Self, TracesError> {
        let wrong = |why: String| TracesError { endpoint: endpoint.into(), why };
        let url = format!("{}/v1/traces", endpoint.trim_end_matches('/'));
        let client = Client::to(&url).map_err(|error| wrong(error.to_string()))?;
        let built = SpanExporter::builder()
            .with_http()
            .with_http_client(client)
            .with_endpoint(url)
            .with_protocol(Protocol::HttpBinary)
            .with_timeout(PATIENCE)
            .build();
        let mut exporter = built.map_err(|error| wrong(error.to_string()))?;
        let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
        let instance = KeyValue::new("service.instance.id", hub.to_owned());
        let resource = Resource::builder().with_service_name("antiphon").with_attributes([version, instance]);
        exporter.set_resource(&resource.build());
        Ok(Self(exporter))
    }

    /// Sends turns as they settle, until `done` is cancelled; turns settled by then are still sent.
    pub(in crate::server) async fn run(self, turn_history: &TurnHistory, done: CancellationToken) {
        let (_, _, mut listening) = turn_history.listen(Viewer::All, None);
        loop {
            let mut spans = Vec::new();
            let is_last = tokio::select! {
                biased;
                news = listening.next() => { take(news, &mut spans); false }
                () = done.cancelled() => true,
            };
            if spans.is_empty() && !is_last {
                continue;
            }
            let mut n_turns = usize::from(!spans.is_empty());
            let wait = if is_last { Duration::ZERO } else { GATHER };
            let _ = timeout(wait, async {
                while n_turns < BATCH {
                    let before = spans.len();
                    take(listening.next().await, &mut spans);
                    n_turns += usize::from(spans.len() > before);
                }
            })
            .await;
            if !spans.is_empty() {
                self.send(spans).await;
            }
            if is_last {
                return;
            }
        }
    }

    async fn send(&self, spans: Vec<SpanData>) {
        let n = spans.len();
        match timeout(2 * PATIENCE, self.0.export(spans)).await {
            Ok(Ok(())) => tracing::debug!(spans = n, "sent traces"),
            Ok(Err(error)) => tracing::warn!(%error, spans = n, "the export of traces failed; they are dropped"),
            Err(_) => tracing::warn!(spans = n, "the export of traces timed out; they are dropped"),
        }
    }
}

fn take(news: Option<News>, spans: &mut Vec<SpanData>) {
    match news {
        Some(News::Changed(entry)) if entry.record.settled => spans.extend(spans_of(&entry.record)),
        Some(News::Missed(n)) => {
            tracing::warn!(changes = n, "the export of traces is behind; some turns are not exported")
        }
        _ => {}
    }
}

/// The turn's span, and one for each stage that ran.
fn spans_of(record: &TurnRecord) -> Vec<SpanData> {
    let trace = TraceId::from_bytes(rand::random());
    let at = |ms: f64| {
        let by = Duration::from_micros((ms.abs() * 1e3) as u64);
        if ms < 0.0 { record.origin.checked_sub(by) } else { record.origin.checked_add(by) }.unwrap_or(record.origin)
    };
    let first = record.stages.iter().map(|run| run.from_ms).fold(0.0, f64::min);
    let last = record.stages.iter().map(|run| run.to_ms).fold(record.voice_to_voice_ms.unwrap_or(0.0), f64::max);
    let mut turn = span(trace, SpanId::INVALID, "turn", (at(first), at(last)));
    turn.attributes = attributes(record);
    if record.status == Status::Failed {
        turn.status = SpanStatus::error(record.error.clone().unwrap_or_default());
    }
    let parent = turn.span_context.span_id();
    let mut spans = vec![turn];
    spans.extend(record.stages.iter().map(|run| {
        let mut stage = span(trace, parent, run.stage.as_str(), (at(run.from_ms), at(run.to_ms)));
        let own = run.speculation.is_none();
        let critical = record.parts.iter().find(|part| part.stage == run.stage && own);
        stage.attributes.extend(critical.map(|part| KeyValue::new("antiphon.critical_ms", part.to_ms - part.from_ms)));
        let network = network_of(record, run.stage).filter(|_| own);
        stage.attributes.extend(network.map(|part| KeyValue::new("antiphon.network_ms", part.to_ms - part.from_ms)));
        stage.attributes.extend(run.speculation.map(|n| KeyValue::new("antiphon.speculative_response", n as i64)));
        stage
    }));
    spans
}

/// The part of the critical path that the way to this stage's worker and back took: it ends where the stage's result came.
fn network_of(record: &TurnRecord, stage: TurnStage) -> Option<&Part> {
    let result = match stage {
        TurnStage::Stt => record.marks.stt_final,
        TurnStage::Tts => record.marks.tts_first_audio,
        _ => None,
    }?;
    record.parts.iter().find(|part| part.stage == TurnStage::Network && part.to_ms == result)
}

fn attributes(record: &TurnRecord) -> Vec<KeyValue> {
    let word =
        |value: serde_json::Result<serde_json::Value>| value.ok().and_then(|word| word.as_str().map(str::to_owned));
    let mut attributes = vec![
        KeyValue::new("antiphon.turn", record.id.clone()),
        KeyValue::new("antiphon.session", record.session_id.to_string()),
        KeyValue::new("antiphon.transport", record.transport),
        KeyValue::new("antiphon.kind", word(serde_json::to_value(record.kind)).unwrap_or_default()),
        KeyValue::new("antiphon.status", word(serde_json::to_value(record.status)).unwrap_or_default()),
        KeyValue::new("antiphon.barged_in", record.barged_in),
        KeyValue::new("antiphon.speculative_responses", record.speculations.len() as i64),
        KeyValue::new("antiphon.wasted_ms", record.wasted_ms),
        KeyValue::new("antiphon.engine.stt", record.engines.stt.clone()),
        KeyValue::new("antiphon.engine.llm", record.engines.llm.clone()),
        KeyValue::new("antiphon.engine.tts", record.engines.tts.clone()),
    ];
    attributes.extend(record.response_id.iter().map(|id| KeyValue::new("antiphon.response", id.to_string())));
    attributes.extend(record.stt_worker.iter().map(|worker| KeyValue::new("antiphon.worker.stt", worker.clone())));
    attributes.extend(record.tts_worker.iter().map(|worker| KeyValue::new("antiphon.worker.tts", worker.clone())));
    attributes.extend((record.retried > 0).then(|| KeyValue::new("antiphon.retried", i64::from(record.retried))));
    attributes.extend(record.voice_to_voice_ms.map(|ms| KeyValue::new("antiphon.voice_to_voice_ms", ms)));
    attributes.extend(record.mouth_to_ear_ms.map(|ms| KeyValue::new("antiphon.mouth_to_ear_ms", ms)));
    attributes
}

fn span(trace: TraceId, parent: SpanId, name: &'static str, (start, end): (SystemTime, SystemTime)) -> SpanData {
    let id = SpanId::from_bytes(rand::random());
    SpanData {
        span_context: SpanContext::new(trace, id, TraceFlags::SAMPLED, false, TraceState::default()),
        parent_span_id: parent,
        parent_span_is_remote: false,
        span_kind: SpanKind::Internal,
        name: name.into(),
        start_time: start,
        end_time: end,
        attributes: Vec::new(),
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status: SpanStatus::Unset,
        instrumentation_scope: InstrumentationScope::builder("antiphon").build(),
    }
}

/// The HTTP client of the exporter.
#[derive(Debug)]
struct Client(reqwest::Client);

impl Client {
    fn to(url: &str) -> Result<Self, Box<dyn std::error::Error>> {
        let url = reqwest::Url::parse(url)?;
        // Only the first installation succeeds; a second one is not an error.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = reqwest::Client::builder()
            .connect_timeout(PATIENCE)
            .timeout(PATIENCE)
            // Headers may contain a key: they must reach only the configured collector.
            .redirect(reqwest::redirect::Policy::none());
        let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        if host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback()) {
            // A proxy cannot reach this machine's loopback.
            builder = builder.no_proxy();
        }
        Ok(Self(builder.build()?))
    }
}

#[async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let mut answer = self.0.execute(reqwest::Request::try_from(request)?).await?;
        let mut response = Response::builder().status(answer.status());
        if let Some(headers) = response.headers_mut() {
            headers.clone_from(answer.headers());
        }
        let mut body = Vec::new();
        while let Some(bytes) = answer.chunk().await? {
            if body.len() + bytes.len() > MAX_ANSWER_BYTES {
                return Err("the collector's response is too long".into());
            }
            body.extend_from_slice(&bytes);
        }
        Ok(response.body(body.into())?)
    }
}
