//! The effective session, and how updates change it.

use super::*;
use crate::{ClientEvent, parse};
use serde_json::json;

fn session() -> Session {
    let vad = ServerVad { silence_duration_ms: 200, ..ServerVad::default() };
    let mut session = Session::new(SessionId::from("sess_1"), "antiphon", "slt", vad);
    session.expires_at = 1_790_000_000;
    session
}

/// Applies `update` and shows the audio part.
fn updated(session: &mut Session, update: Value) -> Value {
    let text = json!({"type": "session.update", "session": update}).to_string();
    let ClientEvent::SessionUpdate(update) = parse(&text).unwrap().event else { panic!("another event") };
    session.apply(*update);
    serde_json::to_value(&*session).unwrap()
}

fn input(session: &mut Session, input: Value) -> Value {
    let mut all = updated(session, json!({"type": "realtime", "audio": {"input": input}}));
    all["audio"]["input"].take()
}

#[test]
fn the_whole_effective_session_is_shown() {
    let expect = json!({
        "type": "realtime", "object": "realtime.session", "id": "sess_1", "model": "antiphon",
        "output_modalities": ["audio"], "instructions": "", "tools": [], "tool_choice": "auto",
        "max_output_tokens": "inf", "expires_at": 1_790_000_000, "include": null, "tracing": null,
        "truncation": "auto", "prompt": null,
        "audio": {
            "input": {
                "format": {"type": "audio/pcm", "rate": 24000},
                "transcription": {}, "noise_reduction": null,
                "turn_detection": {"type": "server_vad", "threshold": 0.5, "prefix_padding_ms": 300,
                    "silence_duration_ms": 200, "create_response": true, "interrupt_response": true,
                    "idle_timeout_ms": null}
            },
            "output": {"format": {"type": "audio/pcm", "rate": 24000}, "voice": "slt", "speed": 1.0}
        }
    });
    assert_eq!(serde_json::to_value(session()).unwrap(), expect);
}

#[test]
fn an_update_changes_what_it_names_and_nothing_else() {
    let mut changed = session();
    updated(&mut changed, json!({"type": "realtime"}));
    assert_eq!(changed, session());
    let all = updated(
        &mut changed,
        json!({"type": "realtime", "instructions": "Be kind.", "max_output_tokens": 20, "tracing": "auto",
            "parallel_tool_calls": false, "tool_choice": {"type": "function", "name": "f"},
            "audio": {"output": {"voice": {"id": "rms"}, "format": {"type": "audio/pcma"}}}}),
    );
    assert_eq!(all["audio"]["output"], json!({"format": {"type": "audio/pcma"}, "voice": "rms", "speed": 1.0}));
    let acting = updated(&mut changed, json!({"type": "realtime", "audio": {"output": {"instructions": "Whisper."}}}));
    assert_eq!(acting["audio"]["output"]["instructions"], "Whisper.");
    let plain = updated(&mut changed, json!({"type": "realtime", "audio": {"output": {"instructions": ""}}}));
    assert_eq!(plain["audio"]["output"], all["audio"]["output"], "clients that know no such field get none");
    let mut expect = session();
    expect.instructions = "Be kind.".into();
    expect.max_output_tokens = MaxTokens::Limit(20);
    expect.tracing = Some(serde_json::json!("auto").into());
    expect.parallel_tool_calls = Some(false);
    expect.tool_choice = ToolChoice::Function("f".into());
    expect.audio.output.voice = "rms".into();
    expect.audio.output.format = AudioFormat::Pcma;
    assert_eq!(changed, expect);
    updated(&mut changed, json!({"type": "realtime", "tracing": null, "instructions": null}));
    assert_eq!((changed.tracing, changed.instructions.as_str()), (None, "Be kind."));
}

#[test]
fn turn_detection_merges_within_its_type_and_restarts_between_types() {
    let mut session = session();
    let vad = json!({"turn_detection": {"type": "server_vad", "threshold": 0.7, "create_response": false}});
    let shown = input(&mut session, vad)["turn_detection"].take();
    assert_eq!((&shown["threshold"], &shown["silence_duration_ms"]), (&json!(0.7), &json!(200)));
    assert_eq!(shown["create_response"], json!(false));
    let again = json!({"turn_detection": {"type": "server_vad", "silence_duration_ms": 300}});
    let shown = input(&mut session, again)["turn_detection"].take();
    assert_eq!((&shown["threshold"], &shown["silence_duration_ms"]), (&json!(0.7), &json!(300)));
    let semantic = json!({"turn_detection": {"type": "semantic_vad", "eagerness": "low"}});
    let expect =
        json!({"type": "semantic_vad", "eagerness": "low", "create_response": true, "interrupt_response": true});
    assert_eq!(input(&mut session, semantic)["turn_detection"], expect);
    let own = json!({"turn_detection": {"type": "semantic_vad", "ignore_backchannels": true}});
    assert_eq!(input(&mut session, own)["turn_detection"]["ignore_backchannels"], true);
    let back = json!({"turn_detection": {"type": "semantic_vad", "ignore_backchannels": null}});
    assert_eq!(input(&mut session, back)["turn_detection"], expect, "clients that know no such field get none");
    assert_eq!(input(&mut session, json!({"turn_detection": null}))["turn_detection"], Value::Null);
    let shown = input(&mut session, json!({"turn_detection": {"type": "server_vad"}}))["turn_detection"].take();
    assert_eq!((&shown["threshold"], &shown["silence_duration_ms"]), (&json!(0.5), &json!(200)));
}

#[test]
fn both_detectors_begin_with_whether_the_operator_wants_responses_and_interruptions() {
    let vad = ServerVad { create_response: false, interrupt_response: false, ..ServerVad::default() };
    let mut session = Session::new(SessionId::from("sess_1"), "antiphon", "slt", vad);
    for kind in ["server_vad", "semantic_vad", "server_vad"] {
        let shown = input(&mut session, json!({"turn_detection": {"type": kind}}))["turn_detection"].take();
        assert_eq!((&shown["create_response"], &shown["interrupt_response"]), (&json!(false), &json!(false)), "{kind}");
    }
    let own = json!({"turn_detection": {"type": "semantic_vad", "create_response": true}});
    let shown = input(&mut session, own)["turn_detection"].take();
    assert_eq!((&shown["create_response"], &shown["interrupt_response"]), (&json!(true), &json!(false)));
}

#[test]
fn null_switches_transcription_and_noise_reduction_off() {
    let mut session = session();
    let on =
        json!({"noise_reduction": {"type": "near_field"}, "transcription": {"model": "whisper-1", "language": "en"}});
    let shown = input(&mut session, on);
    assert_eq!(shown["noise_reduction"], json!({"type": "near_field"}));
    let shown = input(&mut session, json!({"transcription": {"language": "de"}}));
    assert_eq!(shown["transcription"], json!({"model": "whisper-1", "language": "de"}));
    assert_eq!(shown["noise_reduction"], json!({"type": "near_field"}));
    let shown = input(&mut session, json!({"noise_reduction": null, "transcription": null}));
    assert_eq!((&shown["noise_reduction"], &shown["transcription"]), (&Value::Null, &Value::Null));
}

#[test]
fn truncation_is_read_checked_and_shown() {
    let mut session = session();
    for shape in [
        json!("disabled"),
        json!({"type": "retention_ratio", "retention_ratio": 0.8}),
        json!({"type": "retention_ratio", "retention_ratio": 0.5, "token_limits": {"post_instructions": 2000}}),
        json!("auto"),
    ] {
        let shown = updated(&mut session, json!({"type": "realtime", "truncation": shape}));
        assert_eq!(shown["truncation"], shape);
    }
    for (shape, code) in [
        (json!("never"), "invalid_value"),
        (json!({"type": "retention_ratio"}), "missing_required_parameter"),
        (json!({"type": "retention_ratio", "retention_ratio": 1.5}), "decimal_above_max_value"),
    ] {
        let text = json!({"type": "session.update", "session": {"type": "realtime", "truncation": shape}}).to_string();
        assert_eq!(parse(&text).unwrap_err().code, Some(code), "{text}");
    }
}

#[test]
fn what_to_expect_is_one_text_for_the_engine() {
    let words = |words: &[&str]| Some(words.iter().map(|word| (*word).to_owned()).collect());
    let of = |prompt: Option<&str>, keywords| Transcription {
        prompt: prompt.map(str::to_owned),
        keywords,
        ..Default::default()
    };
    assert_eq!(of(None, None).expected(), None);
    assert_eq!(of(None, words(&[])).expected(), None);
    assert_eq!(of(Some("A talk on ships."), None).expected().as_deref(), Some("A talk on ships."));
    assert_eq!(of(None, words(&["bow", "aft"])).expected().as_deref(), Some("bow, aft"));
    assert_eq!(of(Some("Ships."), words(&["bow"])).expected().as_deref(), Some("Ships.\nbow"));
}
