//! Scripts of marks, and the records they make.

use super::*;
use crate::Viewer;
use crate::limits::NoLimits;
use crate::product::ResponseMeters;
use antiphon_dialog::{
    Memory, Modality, PlaybackControl, ResponseSettings, ResponseStatus, ResponseView, Settings, Truncation,
};
use antiphon_engine_api::{EngineNames, HopReport};
use antiphon_protocol::ServerEvent;
use antiphon_types::Format;
use antiphon_types::Samples;
use serde_json::json;

struct Rig {
    turn_history: Arc<TurnHistory>,
    timeline: Timeline,
    dialog: Dialog,
}

const TURN: TurnId = TurnId(1);

fn rig() -> Rig {
    let turn_history = Arc::new(TurnHistory::new(10, true, EngineNames::default()));
    let timeline = Timeline::new(
        Begins {
            session: "sess_1".into(),
            owner: None,
            transport: "webrtc",
            at: SystemTime::UNIX_EPOCH,
            seed: 1,
            may_report: false,
            brownout: Default::default(),
            limits: Arc::new(NoLimits),
        },
        turn_history.clone(),
        Metrics::new(),
    );
    Rig { turn_history, timeline, dialog: Dialog::new(settings(), PlaybackControl::Server, 1) }
}

fn settings() -> Settings {
    Settings {
        instructions: String::new(),
        modality: Modality::Audio,
        voice: "tone".into(),
        speed: 1.0,
        voice_instructions: String::new(),
        output_format: Format::Pcm16,
        max_output_tokens: None,
        max_answer: None,
        tools: Vec::new(),
        tool_choice: Default::default(),
        servers: Vec::new(),
        server_choice: None,
        turn_detection: None,
        transcripts: true,
        filler_after: None,
        language_voices: None,
        live_transcripts: false,
        memory: Memory {
            budget: 8_000,
            conversation: None,
            truncation: Truncation::Oldest { keep: 1.0 },
            notes_interruptions: false,
        },
    }
}

fn at(ms: u64) -> Timestamp {
    Timestamp::from_ms(10_000 + ms)
}

impl Rig {
    /// Speech that ends at 0 and is known to have ended at `confirmed`.
    fn speech(&mut self, item: &str, confirmed: u64) {
        self.timeline.speech_started(item.into(), TURN, Timestamp::from_ms(9_000));
        self.timeline.utterance_ended(&item.into(), TURN, at(0), at(confirmed));
    }

    fn transcribed(&mut self, item: &str, text: &str, ms: u64) {
        self.timeline.transcribed(&item.into(), Ok(text), at(ms));
        self.timeline.weighed();
    }

    /// The only record.
    fn record_at(&mut self, ms: u64) -> TurnRecord {
        self.timeline.report(&self.dialog, at(ms));
        let turns = self.turn_history.latest(10, None);
        assert_eq!(turns.len(), 1, "{turns:?}");
        TurnRecord::clone(&turns[0])
    }
}

fn response() -> ResponseId {
    "resp_1".into()
}

fn parts(record: &TurnRecord) -> String {
    record.parts.iter().map(|part| format!("{} {}", part.stage.as_str(), part.to_ms)).collect::<Vec<_>>().join(", ")
}

#[test]
fn a_confirmed_speculative_response_gives_its_marks_to_the_turn() {
    let mut rig = rig();
    rig.timeline.speech_started("item_1".into(), TURN, Timestamp::from_ms(9_000));
    rig.timeline.speculation_started(&"item_1".into(), at(100));
    rig.timeline.provisional_transcribed(&"item_1".into(), at(110));
    rig.timeline.speculation_responding(TURN, &response(), ResponseMeters::default(), at(111));
    rig.timeline.utterance_ended(&"item_1".into(), TURN, at(0), at(200));
    rig.transcribed("item_1", "hello", 201);
    rig.timeline.response_created(&response(), true, at(201));
    rig.timeline.speculation_ended(&response(), SpeculationOutcome::Confirmed, Duration::ZERO, at(201));
    // What waited comes out now, each with its time.
    rig.timeline.mark(&response(), Milestone::FirstToken, at(150));
    rig.timeline.mark(&response(), Milestone::FirstChunk, at(160));
    rig.timeline.audio_made(&response(), &"item_2".into(), at(230));
    rig.timeline.sent(&[("item_2".into(), Samples(480))], at(231));
    let record = rig.record_at(240);
    assert_eq!(parts(&record), "endpointing 100, stt 110, queue 111, llm 150, chunking 160, tts 230, sending 231");
    assert_eq!((record.wasted_ms, record.speculations.len()), (0.0, 1));
    assert_eq!(record.speculations[0].outcome, Some(SpeculationOutcome::Confirmed));
    assert_eq!(record.marks.stt_final, Some(110.0));
}

#[test]
fn a_dropped_speculative_response_leaves_nothing_but_its_time() {
    let mut rig = rig();
    rig.timeline.speech_started("item_1".into(), TURN, Timestamp::from_ms(9_000));
    rig.timeline.speculation_started(&"item_1".into(), Timestamp::from_ms(9_300));
    rig.timeline.speculation_responding(TURN, &response(), ResponseMeters::default(), Timestamp::from_ms(9_310));
    let wasted = Duration::from_millis(50);
    rig.timeline.speculation_ended(&response(), SpeculationOutcome::Resumed, wasted, Timestamp::from_ms(9_350));
    // Asked again at the end, and no answer begun.
    rig.timeline.speculation_started(&"item_1".into(), at(100));
    rig.timeline.utterance_ended(&"item_1".into(), TURN, at(0), at(200));
    rig.transcribed("item_1", "hello", 210);
    let record = rig.record_at(220);
    assert_eq!((record.marks.response_started, record.marks.stt_final), (None, Some(210.0)));
    assert_eq!(record.speculations.len(), 1);
    assert_eq!(
        (record.wasted_ms, record.speculations[0].from_ms, record.speculations[0].to_ms),
        (50.0, -700.0, Some(-650.0))
    );
    let speculative: Vec<_> =
        record.stages.iter().filter(|run| run.speculation == Some(0)).map(|run| run.stage).collect();
    assert_eq!(speculative, [TurnStage::Stt, TurnStage::Llm]);
}

/// Who served it, with 5 ms of network.
fn served(worker: &str, retried: u32) -> HopReport {
    HopReport { worker: worker.into(), network: Duration::from_millis(5), retried }
}

/// A spoken turn whose engines run elsewhere, up to its first audio.
fn answered_by_workers(rig: &mut Rig) -> Vec<ServerEvent> {
    rig.speech("item_1", 200);
    rig.timeline.recognized_by(&"item_1".into(), Some(served("ears", 1)), Meter::default());
    rig.transcribed("item_1", "hello", 220);
    rig.timeline.response_created(&response(), true, at(220));
    rig.timeline.response_started(&response(), ResponseMeters::default(), at(221));
    rig.timeline.mark(&response(), Milestone::FirstToken, at(240));
    rig.timeline.mark(&response(), Milestone::FirstChunk, at(250));
    rig.timeline.spoken_by(&response(), served("mouth", 0));
    rig.timeline.audio_made(&response(), &"item_2".into(), at(280));
    rig.timeline.sent(&[("item_2".into(), Samples(480))], at(281))
}

#[test]
fn workers_and_their_network_are_in_the_record_and_in_the_event() {
    let mut rig = rig();
    let events = answered_by_workers(&mut rig);
    let told = serde_json::to_value(&events[0]).expect("JSON");
    let fields = ["stt_worker", "tts_worker", "stt_network_ms", "tts_network_ms", "retried"].map(|name| &told[name]);
    assert_eq!(fields, [&json!("ears"), &json!("mouth"), &json!(5.0), &json!(5.0), &json!(1)], "{told}");
    let record = rig.record_at(290);
    assert_eq!(
        parts(&record),
        "endpointing 200, stt 215, network 220, queue 221, llm 240, chunking 250, tts 275, network 280, sending 281"
    );
    let shown = serde_json::to_value(&record).expect("JSON");
    let fields = ["stt_worker", "tts_worker", "retried"].map(|name| &shown[name]);
    assert_eq!(fields, [&json!("ears"), &json!("mouth"), &json!(1)]);
}

#[test]
fn another_worker_that_goes_on_with_a_chunk_is_named_and_the_first_sound_keeps_its_network() {
    let mut rig = rig();
    answered_by_workers(&mut rig);
    let later = HopReport { worker: "other".into(), network: Duration::from_millis(900), retried: 2 };
    rig.timeline.spoken_by(&response(), later);
    let record = rig.record_at(290);
    assert_eq!((record.tts_worker.as_deref(), record.retried), (Some("other"), 3));
    assert!(parts(&record).ends_with("tts 275, network 280, sending 281"), "{}", parts(&record));
}

#[test]
fn engines_of_this_process_leave_no_trace_of_workers() {
    let mut rig = rig();
    rig.speech("item_1", 200);
    rig.timeline.recognized_by(&"item_1".into(), None, Meter::default());
    rig.transcribed("item_1", "hello", 220);
    let shown = serde_json::to_value(rig.record_at(290)).expect("JSON");
    for name in ["stt_worker", "tts_worker", "retried"] {
        assert_eq!(shown.get(name), None, "{name}");
    }
}

#[test]
fn speech_that_goes_on_before_the_answer_is_the_same_turn() {
    let mut rig = rig();
    rig.timeline.speech_started("item_0".into(), TURN, Timestamp::from_ms(8_000));
    rig.timeline.utterance_ended(&"item_0".into(), TURN, Timestamp::from_ms(8_500), Timestamp::from_ms(8_700));
    rig.speech("item_1", 200);
    rig.transcribed("item_0", "what", 205);
    rig.transcribed("item_1", "time is it", 210);
    rig.timeline.response_created(&response(), true, at(211));
    let record = rig.record_at(220);
    assert_eq!(record.transcript.as_deref(), Some("what time is it"));
    assert_eq!((record.marks.end_confirmed, record.marks.stt_final), (Some(200.0), Some(210.0)));
    assert_eq!((record.status, record.kind), (Status::Answering, Kind::Speech));
}

#[test]
fn a_cough_is_not_what_typed_words_answer() {
    let mut rig = rig();
    rig.speech("item_1", 200);
    rig.transcribed("item_1", "", 210);
    assert_eq!(rig.record_at(220).status, Status::Unanswered);
    rig.timeline.response_created(&response(), true, at(60_000));
    rig.timeline.report(&rig.dialog, at(60_001));
    let turns = rig.turn_history.latest(10, None);
    assert_eq!(turns.iter().map(|turn| turn.kind).collect::<Vec<_>>(), [Kind::Typed, Kind::Speech]);
    assert!(turns[1].settled);
}

#[test]
fn a_failure_is_told_in_words_and_an_open_turn_ends_with_its_session() {
    let mut rig = rig();
    rig.speech("item_1", 200);
    rig.timeline.transcribed(&"item_1".into(), Err("no decoder"), at(210));
    rig.timeline.weighed();
    assert_eq!((rig.record_at(220).status, rig.record_at(220).error.as_deref()), (Status::Failed, Some("no decoder")));
    rig.timeline.response_created(&response(), true, at(300));
    rig.timeline.report(&rig.dialog, at(301));
    rig.timeline.end(&rig.dialog, at(302));
    let last = &rig.turn_history.latest(1, None)[0];
    assert_eq!((last.status, last.settled), (Status::Cancelled, true));
}

#[test]
fn a_response_without_sound_is_settled_when_it_is_done() {
    let mut rig = rig();
    rig.timeline.response_created(&response(), true, at(0));
    rig.timeline.said(&response(), "Written.");
    let view = ResponseView {
        id: response(),
        status: ResponseStatus::Completed,
        settings: ResponseSettings::resolve(&settings(), &Default::default()),
        output: Vec::new(),
        usage: None,
    };
    rig.timeline.response_done(&view, at(50));
    let record = rig.record_at(50);
    assert_eq!((record.voice_to_voice_ms, record.parts.len(), record.settled), (None, 0, true));
    assert_eq!(record.reply.as_deref(), Some("Written."));
}

/// For the load monitor: the waits of turns without sound, rounded to seconds, and the latencies of answered ones in ms.
async fn load(rig: &mut Rig, ms: u64) -> (Vec<u64>, Vec<f64>) {
    rig.timeline.report(&rig.dialog, at(ms));
    let waits = rig.turn_history.awaited().iter().map(|turn| (turn.waited_ms / 1e3).round() as u64).collect();
    (waits, rig.turn_history.take_answered().iter().map(|turn| turn.latency_ms).collect())
}

#[tokio::test(start_paused = true)]
async fn a_turn_without_sound_is_awaited_until_it_sounds_or_is_over() {
    let mut rig = rig();
    rig.speech("item_1", 200);
    assert_eq!(load(&mut rig, 200).await, (vec![], vec![]), "nothing answers by itself");
    rig.timeline.will_be_answered(&"item_1".into(), at(200));
    load(&mut rig, 200).await;
    tokio::time::advance(Duration::from_secs(7)).await;
    assert_eq!(load(&mut rig, 7_200).await, (vec![7], vec![]));
    rig.timeline.speech_started("item_3".into(), TURN, at(7_300));
    assert_eq!(load(&mut rig, 7_300).await, (vec![], vec![]), "the person goes on");
    rig.timeline.utterance_ended(&"item_3".into(), TURN, at(8_000), at(8_200));
    rig.timeline.will_be_answered(&"item_3".into(), at(8_200));
    rig.timeline.response_created(&response(), true, at(8_300));
    rig.timeline.will_sound(&response(), true, at(8_300));
    rig.timeline.response_started(&response(), ResponseMeters::default(), at(8_300));
    rig.timeline.audio_made(&response(), &"reply".into(), at(8_500));
    rig.timeline.sent(&[("reply".into(), Samples(1))], at(8_600));
    assert_eq!(load(&mut rig, 8_600).await, (vec![], vec![600.0]));
}

#[tokio::test(start_paused = true)]
async fn the_time_in_which_a_client_asks_for_no_response_is_not_the_hubs() {
    let mut rig = rig();
    rig.speech("item_1", 200);
    rig.transcribed("item_1", "hello", 210);
    tokio::time::advance(Duration::from_secs(5)).await;
    rig.timeline.response_created(&response(), true, at(5_200));
    rig.timeline.will_sound(&response(), true, at(5_200));
    assert_eq!(load(&mut rig, 5_200).await, (vec![], vec![]), "it waits for a list of tools");
    rig.timeline.response_started(&response(), ResponseMeters::default(), at(6_200));
    assert_eq!(load(&mut rig, 6_200).await, (vec![0], vec![]));
    rig.timeline.audio_made(&response(), &"reply".into(), at(6_500));
    rig.timeline.sent(&[("reply".into(), Samples(1))], at(6_500));
    assert_eq!(load(&mut rig, 6_500).await, (vec![], vec![500.0]), "200 ms and 300");
}

#[tokio::test(start_paused = true)]
async fn what_a_client_or_its_tool_delays_is_no_load() {
    for delay in [Timeline::client_left, Timeline::tool_called] {
        let mut rig = rig();
        rig.speech("item_1", 200);
        rig.timeline.will_be_answered(&"item_1".into(), at(200));
        rig.timeline.response_created(&response(), true, at(200));
        rig.timeline.response_started(&response(), ResponseMeters::default(), at(200));
        assert_eq!(load(&mut rig, 200).await, (vec![0], vec![]));
        delay(&mut rig.timeline);
        tokio::time::advance(Duration::from_secs(9)).await;
        assert_eq!(load(&mut rig, 9_200).await, (vec![], vec![]));
        rig.timeline.audio_made(&response(), &"reply".into(), at(9_500));
        rig.timeline.sent(&[("reply".into(), Samples(1))], at(9_500));
        assert_eq!(load(&mut rig, 9_500).await, (vec![], vec![]), "its latency says nothing of the hub");
    }
}

#[tokio::test(start_paused = true)]
async fn speech_that_went_on_within_one_batch_begins_the_wait_again() {
    let mut rig = rig();
    rig.speech("item_1", 200);
    rig.timeline.will_be_answered(&"item_1".into(), at(200));
    assert_eq!(load(&mut rig, 200).await.0, [0]);
    tokio::time::advance(Duration::from_secs(5)).await;
    rig.timeline.speech_started("item_2".into(), TURN, at(5_000));
    rig.timeline.utterance_ended(&"item_2".into(), TURN, at(5_000), at(5_200));
    rig.timeline.will_be_answered(&"item_2".into(), at(5_200));
    assert_eq!(load(&mut rig, 5_200).await.0, [0]);
}

#[tokio::test(start_paused = true)]
async fn a_reply_without_sound_and_a_session_that_ends_await_none() {
    let mut written = rig();
    written.speech("item_1", 200);
    written.timeline.will_be_answered(&"item_1".into(), at(200));
    assert_eq!(load(&mut written, 200).await.0, [0]);
    written.timeline.response_created(&response(), true, at(300));
    written.timeline.will_sound(&response(), false, at(300));
    assert!(load(&mut written, 300).await.0.is_empty());
    let mut left = rig();
    left.speech("item_1", 200);
    left.timeline.will_be_answered(&"item_1".into(), at(200));
    assert_eq!(load(&mut left, 200).await.0, [0]);
    left.timeline.end(&left.dialog, at(210));
    assert!(left.turn_history.awaited().is_empty());
}

#[test]
fn a_listener_who_is_behind_is_told_so() {
    let Rig { turn_history, mut timeline, dialog } = rig();
    let (since, _, mut listening) = turn_history.listen(Viewer::All, None);
    assert!(since.is_empty());
    for n in 0..300 {
        let id = ResponseId::from(format!("resp_{n}"));
        timeline.response_created(&id, false, at(n));
        timeline.report(&dialog, at(n));
    }
    let first = futures_util::FutureExt::now_or_never(listening.next()).flatten();
    assert!(matches!(first, Some(crate::News::Missed(n)) if n > 0), "{first:?}");
    assert_eq!(turn_history.latest(1_000, None).len(), 10, "the ring is bounded");
}

#[test]
fn a_turn_names_its_place_in_a_recording_from_its_first_utterance_to_its_last() {
    let mut rig = rig();
    rig.speech("item_1", 200);
    assert_eq!(rig.record_at(200).recording, None, "its audio is not complete");
    rig.timeline.recorded(&"item_1".into(), Samples(16_000)..Samples(32_000));
    rig.timeline.speech_started("item_2".into(), TURN, at(300));
    rig.timeline.recorded(&"item_2".into(), Samples(40_000)..Samples(48_000));
    assert_eq!(rig.record_at(400).recording, Some(RecordedSpan { from_ms: 1_000, to_ms: 3_000 }));
}

#[test]
fn a_turn_keeps_its_place_in_the_history_until_it_is_pushed_out() {
    let mut rig = rig();
    rig.speech("item_1", 300);
    rig.transcribed("item_1", "hello", 400);
    let record = rig.record_at(500);
    let history = TurnHistory::new(2, true, EngineNames::default());
    let of = |id: &str, text: &str| TurnRecord { id: id.into(), transcript: Some(text.into()), ..record.clone() };
    let kept = |history: &TurnHistory| -> Vec<String> {
        history.latest(9, None).iter().map(|turn| turn.transcript.clone().unwrap_or_default()).collect()
    };
    let first = history.put(of("turn_a", "a1"), None);
    let second = history.put(of("turn_b", "b1"), None);
    history.put(of("turn_a", "a2"), Some(first));
    assert_eq!(kept(&history), ["b1", "a2"]);
    history.put(of("turn_c", "c1"), None);
    history.put(of("turn_a", "a3"), Some(first));
    history.put(of("turn_b", "b2"), Some(second));
    assert_eq!(kept(&history), ["c1", "b2"], "what was pushed out does not come back");
}
