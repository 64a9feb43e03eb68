//! Traces to a real HTTP collector: its input is decoded and compared with the turn's record.

use crate::hub::{Hub, engines, loud, quiet};
use crate::turns::{ms, turn};
use antiphon::config::Config;
use antiphon_engine_api::fakes::llm::FakeLlm;
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use antiphon_test_server::{Answer, TestServer, unused_address};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use std::time::Duration;
use tokio::time::timeout;

/// The first request of a collector.
async fn collected(collector: &TestServer) -> ExportTraceServiceRequest {
    let request = timeout(Duration::from_secs(20), collector.request(0)).await.expect("sent");
    assert_eq!((request.path(), request.header("content-type")), ("/v1/traces", Some("application/x-protobuf")));
    ExportTraceServiceRequest::decode(&request.body[..]).expect("protobuf of a trace request")
}

fn text<'a>(span: &'a Span, name: &str) -> Option<&'a str> {
    let attribute = span.attributes.iter().find(|attribute| attribute.key == name)?;
    match attribute.value.as_ref()?.value.as_ref()? {
        Any::StringValue(text) => Some(text),
        _ => None,
    }
}

fn number(span: &Span, name: &str) -> Option<f64> {
    let attribute = span.attributes.iter().find(|attribute| attribute.key == name)?;
    match attribute.value.as_ref()?.value.as_ref()? {
        Any::DoubleValue(number) => Some(*number),
        _ => None,
    }
}

#[tokio::test(start_paused = true)]
async fn a_settled_turn_is_sent_as_a_trace_without_its_words() {
    let collector = TestServer::start(|_| Answer::status(200));
    let mut config = Config::default();
    config.telemetry.otlp_endpoint = collector.url("");
    config.cluster.name = "hub 7".into();
    let stt = FakeStt::hears(["open sesame"]).delayed(Duration::from_millis(20));
    let tts = FakeTts::default().delayed(Duration::from_millis(20)).served_by("south", Duration::from_millis(4));
    // Without speculation, so that the voice is waited for.
    config.speculation.after_ms = 0;
    let hub = Hub::start(engines(stt, FakeLlm::says(["Abracadabra."]), tts), config).await;
    let mut socket = hub.connect("").await;
    socket.append(&loud(500)).await;
    socket.append(&quiet(600)).await;
    socket.until("response.done").await;
    let turn = turn(&hub, |turn| turn["settled"] == true).await;
    let request = collected(&collector).await;
    let resource = &request.resource_spans[0];
    let named = format!("{:?}", resource.resource);
    assert!(named.contains("antiphon"), "{named}");
    assert!(named.contains("service.instance.id") && named.contains("hub 7"), "{named}");
    let spans = &resource.scope_spans[0].spans;
    let whole = spans.iter().find(|span| span.name == "turn").expect("the turn's span");
    assert!(whole.parent_span_id.is_empty());
    assert_eq!(text(whole, "antiphon.turn"), turn["id"].as_str());
    assert_eq!(text(whole, "antiphon.status"), Some("completed"));
    assert_eq!((text(whole, "antiphon.worker.tts"), text(whole, "antiphon.worker.stt")), (Some("south"), None));
    let voice = spans.iter().find(|span| span.name == "tts").expect("the voice's span");
    let network = number(voice, "antiphon.network_ms").expect("the network's share");
    assert!((network - 4.0).abs() < 0.01, "{network}");
    let stages = turn["stages"].as_array().expect("stages");
    let below: Vec<&Span> = spans.iter().filter(|span| span.parent_span_id == whole.span_id).collect();
    assert_eq!(below.len(), stages.len(), "one span a stage");
    for (span, stage) in below.iter().zip(stages) {
        assert_eq!((Some(span.name.as_str()), &span.trace_id), (stage["stage"].as_str(), &whole.trace_id));
        assert!(whole.start_time_unix_nano <= span.start_time_unix_nano);
        assert!(span.end_time_unix_nano <= whole.end_time_unix_nano);
        let took = (span.end_time_unix_nano - span.start_time_unix_nano) as f64 / 1e6;
        assert!((took - (ms(&stage["to_ms"]) - ms(&stage["from_ms"]))).abs() < 0.01, "{took} {stage}");
    }
    let all = format!("{request:?}");
    assert!(!all.contains("sesame") && !all.contains("Abracadabra"), "no words leave by a trace");
}

#[tokio::test(start_paused = true)]
async fn a_collector_that_is_gone_disturbs_nobody() {
    let mut config = Config::default();
    config.telemetry.otlp_endpoint = format!("http://{}", unused_address());
    let hub = Hub::start(engines(FakeStt::default(), FakeLlm::says(["Hi."]), FakeTts::default()), config).await;
    let mut socket = hub.connect("").await;
    let events = socket.ask("hello").await;
    assert_eq!(events.last().expect("done")["response"]["status"], "completed");
    drop(socket);
    hub.stop().await;
}
