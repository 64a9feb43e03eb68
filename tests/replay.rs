//! A session recorded over a real socket replays to the same decisions; a modified replay log does not.

use crate::hub::{Hub, Socket, engines, loud, quiet};
use antiphon::config::Config;
use antiphon::replay::{Layer, ReplayError, ReplayLog, ReplayedDecision, Report, replay};
use antiphon_engine_api::Engines;
use antiphon_engine_api::fakes::llm::{FakeLlm, words};
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use antiphon_engine_api::fakes::turn::FakeTurnModel;
use antiphon_engine_api::llm::LlmDelta;
use antiphon_engine_api::turn::TurnModel;
use antiphon_types::chat::Finish;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// A hub that writes replay logs to the folder.
async fn hub(folder: &TempDir) -> Hub {
    let llm = FakeLlm::says([&"long ".repeat(60)[..], "Stopped."]);
    llm.then(vec![
        Ok(LlmDelta::ToolCall {
            index: 0,
            call_id: "call_a".into(),
            name: "weather".into(),
            arguments: "{\"city\":\"Rome\"}".into(),
        }),
        Ok(LlmDelta::Done { finish: Finish::ToolCalls, usage: None }),
    ]);
    llm.then(words("Sun in Rome."));
    let mut config = Config::default();
    config.session.record = folder.path().to_str().expect("text").to_owned();
    config.session.record_audio = true;
    let stt = FakeStt::hears(["what is twelve times seven", "stop that"]).with_partials();
    let turn: Arc<dyn TurnModel> = Arc::new(FakeTurnModel::says(0.7));
    Hub::start(Engines { turn: Some(turn), ..engines(stt, llm, FakeTts::default()) }, config).await
}

/// Sends audio in pieces of 100 ms and yields between them, so that they are not processed together.
async fn speak(socket: &mut Socket, pcm: &[i16]) {
    for piece in pcm.chunks(2_400) {
        socket.append(piece).await;
        tokio::task::yield_now().await;
    }
}

/// Sends audio at the pace of a microphone.
async fn live(socket: &mut Socket, pcm: &[i16]) {
    for piece in pcm.chunks(480) {
        socket.append(piece).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn turn(socket: &mut Socket) -> Vec<Value> {
    speak(socket, &loud(700)).await;
    speak(socket, &quiet(4_500)).await;
    socket.until("response.done").await
}

/// A conversation with an adaptive wait, speech, a truncation, an interruption, a tool call and a broken connection.
async fn conversation(socket: &mut Socket) {
    let parameters = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    let tool = json!({"type": "function", "name": "weather", "description": "Tells it.", "parameters": parameters});
    let input = json!({"turn_detection": {"type": "semantic_vad", "eagerness": "high"}});
    let session = json!({"type": "realtime", "tools": [tool], "audio": {"input": input}});
    socket.send(json!({"type": "session.update", "session": session})).await;
    socket.until("session.updated").await;
    let events = turn(socket).await;
    let done = events.last().expect("done");
    let item = done["response"]["output"][0]["id"].as_str().expect("an item").to_owned();
    // The long reply plays for seconds; this speech interrupts it.
    turn(socket).await;
    let truncate =
        json!({"type": "conversation.item.truncate", "item_id": item, "content_index": 0, "audio_end_ms": 300});
    socket.send(truncate).await;
    socket.until("conversation.item.truncated").await;
    let events = socket.ask("Rome?").await;
    assert_eq!(events.last().expect("done")["response"]["output"][0]["type"], "function_call", "{events:?}");
    let output = json!({"type": "function_call_output", "call_id": "call_a", "output": "sun"});
    socket.send(json!({"type": "conversation.item.create", "item": output})).await;
    socket.send(json!({"type": "response.create", "response": {"max_output_tokens": "inf"}})).await;
    socket.until("response.done").await;
    speak(socket, &loud(300)).await;
}

/// The only replay log in the folder.
fn recording(folder: &TempDir) -> PathBuf {
    let files = std::fs::read_dir(folder).expect("the folder").map(|entry| entry.expect("an entry").path());
    let files: Vec<_> = files.filter(|path| path.extension().is_some_and(|ext| ext == "jsonl")).collect();
    let [file] = &files[..] else { panic!("{files:?}") };
    file.clone()
}

async fn recorded() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = hub(&folder).await;
    let mut socket = hub.connect("").await;
    conversation(&mut socket).await;
    drop(socket);
    hub.stop().await;
    let file = recording(&folder);
    (folder, file)
}

fn run(path: &Path) -> (Report, Vec<ReplayedDecision>) {
    let mut decisions = Vec::new();
    let recording = ReplayLog::open(path).expect("a recording");
    let report = replay(recording, &mut |decided, _| decisions.push(decided.clone())).expect("it runs");
    (report, decisions)
}

/// The replay log with a change in the first line that contains `mark`, and that line's number.
fn tampered(path: &Path, mark: &str, from: &str, to: &str) -> (PathBuf, usize) {
    let text = std::fs::read_to_string(path).expect("text");
    let lines: Vec<&str> = text.lines().collect();
    let at = lines.iter().position(|line| line.contains(mark) && line.contains(from)).expect("such a line");
    let changed = lines[at].replacen(from, to, 1);
    let lines: Vec<&str> = lines.iter().enumerate().map(|(i, line)| if i == at { &changed } else { *line }).collect();
    let other = path.with_file_name("tampered.jsonl");
    std::fs::write(&other, format!("{}\n", lines.join("\n"))).expect("written");
    (other, at + 1)
}

#[tokio::test(start_paused = true)]
async fn a_recorded_session_runs_again_to_the_same_decisions() {
    let (_folder, file) = recorded().await;
    let (report, decisions) = run(&file);
    assert!(report.is_same(), "{:#?}", report.differences);
    assert!(report.end.expect("an end").complete);
    let text = std::fs::read_to_string(&file).expect("text");
    assert!(text.contains("{\"turn_probability\":{\"probability\":0.7,"), "the turn model's answers are on the record");
    let told = |what: &str| {
        let is = |decided: &&ReplayedDecision| decided.input.as_ref().is_some_and(|told| told.get().contains(what));
        decisions.iter().filter(is).count()
    };
    assert!(
        told("SpeechStarted") >= 3 && told("SpeechStopped") >= 2 && told("ProvisionalTranscript") >= 1,
        "{decisions:#?}"
    );
    assert!(told("Truncate") == 1 && told("ToolCall") >= 1 && told("FunctionOutput") == 1, "{decisions:#?}");
    let gave = |layer: Layer, what: &str| {
        decisions.iter().any(|it| it.layer == layer && it.outputs.iter().any(|gave| gave.get().contains(what)))
    };
    assert!(gave(Layer::Dialog, "StartResponse") && gave(Layer::Dialog, "\"Flush\""));
    assert!(gave(Layer::Turn, "\"Stopped\"") && gave(Layer::Turn, "\"wording\":\"Question\""));

    let mode = |path: &Path| std::fs::metadata(path).expect("a file").permissions().mode() & 0o777;
    let audio = file.with_extension("wav");
    assert_eq!((mode(&file), mode(&audio)), (0o600, 0o600));
    let wav = hound::WavReader::open(&audio).expect("a WAV file");
    assert_eq!((wav.spec().sample_rate, wav.spec().channels), (16_000, 2));
    assert!(u64::from(wav.duration()) >= report.n_windows * 256, "{} {}", wav.duration(), report.n_windows);
    let samples: Vec<i16> = wav.into_samples().map(|sample| sample.expect("a sample")).collect();
    let n_loud =
        |side: usize| samples.iter().skip(side).step_by(2).filter(|sample| sample.unsigned_abs() > 500).count();
    assert!(n_loud(0) > 16 * 1_000, "the user, who speaks for more than a second: {}", n_loud(0));
    assert!(n_loud(1) > 16 * 1_000, "the replies: {}", n_loud(1));
    let left = std::fs::read_dir(file.parent().expect("a folder")).expect("the folder").count();
    assert_eq!(left, 2, "nothing half-written is left");
}

/// Whether a side is loud anywhere in these milliseconds.
fn is_loud(samples: &[i16], side: usize, ms: std::ops::Range<usize>) -> bool {
    let frames = samples.chunks_exact(2).skip(16 * ms.start).take(16 * ms.len());
    frames.into_iter().any(|frame| frame[side].unsigned_abs() > 500)
}

#[tokio::test(start_paused = true)]
async fn a_reply_is_recorded_where_it_sounds_and_as_far_as_it_is_not_interrupted() {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = hub(&folder).await;
    let mut socket = hub.connect("").await;
    live(&mut socket, &quiet(1_000)).await;
    // 15 s of speech, which are sent at once.
    socket.ask("Tell me.").await;
    live(&mut socket, &quiet(2_000)).await;
    live(&mut socket, &loud(600)).await;
    live(&mut socket, &quiet(1_000)).await;
    drop(socket);
    hub.stop().await;
    let wav = hound::WavReader::open(recording(&folder).with_extension("wav")).expect("a WAV file");
    let samples: Vec<i16> = wav.into_samples().map(|sample| sample.expect("a sample")).collect();
    // The resampler and the windows take some time.
    let user = |ms| is_loud(&samples, 0, ms);
    assert!(!user(0..2_950) && user(3_050..3_100) && user(3_500..3_550) && !user(3_700..4_500));
    // The detector takes the beginning of the speech, and the answer follows it.
    let reply = |ms| is_loud(&samples, 1, ms);
    assert!(!reply(0..950) && reply(1_200..1_300), "it begins");
    assert!(reply(2_900..3_000) && !reply(3_500..3_650), "it is interrupted");
    assert!(reply(3_650..4_600), "the answer");
}

#[tokio::test(start_paused = true)]
async fn what_is_not_as_recorded_is_found_where_it_is() {
    let (_folder, file) = recorded().await;
    let (other, line) = tampered(&file, "\"Transcribed\"", "what is twelve times seven", "what is twelve times six");
    let (report, _) = run(&other);
    let first = &report.differences[0];
    assert_eq!((first.replayed.line, first.replayed.layer), (line, Layer::Dialog));
    assert!(first.recorded.iter().any(|action| action.contains("times seven")), "{first:?}");

    // Changes a transcript that turn detection receives.
    let text = std::fs::read_to_string(&file).expect("text");
    let open = |line: &str| if line.starts_with("{\"partial\"") { line.replace(" seven", "") } else { line.to_owned() };
    std::fs::write(&other, text.lines().map(|line| open(line) + "\n").collect::<String>()).expect("written");
    let line = text.lines().position(|line| line.starts_with("{\"partial\"")).expect("partials");
    let first = &run(&other).0.differences[0];
    assert!(first.replayed.layer == Layer::Turn && first.replayed.line > line + 1, "{first:?}");

    let (other, line) = tampered(&file, "\"StartResponse\"", "StartResponse", "StopResponse");
    assert_eq!(run(&other).0.differences[0].replayed.line, line);
}

#[tokio::test(start_paused = true)]
async fn other_versions_and_other_files_are_refused_in_plain_words() {
    let (folder, file) = recorded().await;
    let refused = |path: &Path| match ReplayLog::open(path) {
        Err(error) => error,
        Ok(recording) => replay(recording, &mut |_, _| {}).expect_err("refused"),
    };
    let (other, _) = tampered(&file, "antiphon_replay_log", "\"antiphon_replay_log\":2", "\"antiphon_replay_log\":999");
    assert!(matches!(refused(&other), ReplayError::Newer { found: 999 }));
    let (other, _) = tampered(&file, "antiphon_replay_log", "\"antiphon_replay_log\":2", "\"antiphon_recording\":1");
    let error = refused(&other);
    assert!(matches!(error, ReplayError::Older { found: 1 }));
    assert!(error.to_string().starts_with("was written by an older version of antiphon"), "{error}");
    let (other, line) = tampered(&file, "\"SpeechStarted\"", "SpeechStarted", "SpeechInvented");
    assert!(matches!(refused(&other), ReplayError::Line { line: at, .. } if at == line));
    let other = folder.path().join("other.jsonl");
    for text in ["", "{}\n", "not JSON\n", "[1]\n"] {
        std::fs::write(&other, text).expect("written");
        assert!(matches!(refused(&other), ReplayError::NoRecording(_)), "{text:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_not_to_be_recorded_leaves_no_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = crate::hub::hub("hello", "Hello.").await;
    let mut socket = hub.connect("").await;
    socket.ask("Hi").await;
    hub.stop().await;
    assert_eq!(std::fs::read_dir(&folder).expect("the folder").count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_fails_ends_the_recording_and_not_the_session() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut config = Config::default();
    config.session.record = folder.path().join("is/not/there").to_str().expect("text").to_owned();
    let llm = FakeLlm::says(["Fine."]);
    let stt = FakeStt::default();
    let hub = Hub::start(engines(stt, llm, FakeTts::default()), config).await;
    let mut socket = hub.connect("").await;
    let events = socket.ask("How are you?").await;
    assert_eq!(events.last().expect("done")["response"]["status"], "completed");
    hub.stop().await;
}
