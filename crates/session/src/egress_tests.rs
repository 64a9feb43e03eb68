//! Order, holds, and what a new connection gets of the log.

use super::super::output::{OutputAudio, OutputEvent};
use super::*;
use antiphon_protocol::ServerEvent;
use bytes::Bytes;
use futures_util::FutureExt;

/// An event with this id.
fn event(id: &str) -> Output {
    Output::Event(Box::new(OutputEvent { event_id: id.into(), event: ServerEvent::InputAudioCleared {} }))
}

fn new(resumable: bool) -> Egress {
    Egress::new(resumable, Dialect::default())
}

/// The ids of the events that the writer gets without waiting.
fn drain(egress: &Egress) -> Vec<String> {
    let mut taken = Vec::new();
    while let Some(Ok(Message::Text(text))) = egress.next_message().now_or_never() {
        let event: serde_json::Value = serde_json::from_str(&text).expect("an event is JSON");
        taken.push(event["event_id"].as_str().expect("an event has an id").to_owned());
    }
    taken
}

fn filled() -> Egress {
    let egress = new(false);
    egress.push(event("created"), About::Response("r1".into()));
    egress.push_audio(event("audio 1"), "r1".into(), ("i1".into(), Samples(480)));
    egress.push_audio(event("audio 2"), "r1".into(), ("i1".into(), Samples(480)));
    egress.push(event("done"), About::Response("r1".into()));
    egress.push(event("error"), About::Session);
    egress
}

#[tokio::test]
async fn order_is_kept_and_what_left_is_told() {
    let egress = filled();
    assert_eq!(drain(&egress), ["created", "audio 1", "audio 2", "done", "error"]);
    assert_eq!(egress.take_sent(), [("i1".into(), Samples(480)), ("i1".into(), Samples(480))]);
    assert!(egress.stuck_since().is_none());
}

#[tokio::test]
async fn an_adapter_gets_outputs_and_a_writer_the_same_as_messages() {
    let audio =
        OutputAudio { item: "i1".into(), sequence: 7, offset: Samples(480), payload: Bytes::from_static(b"ab") };
    let outputs = [event("created"), Output::Audio(audio)];
    let mut messages = Vec::new();
    for output in outputs {
        let egress = new(false);
        let n_bytes = egress.push(output.clone(), About::Session);
        let message = output.message(Dialect::default());
        assert_eq!(message.n_bytes(), n_bytes);
        assert_eq!(egress.next().now_or_never(), Some(Ok(output.clone())));
        egress.push(output, About::Session);
        assert_eq!(egress.next_message().now_or_never(), Some(Ok(message.clone())));
        messages.push(message);
    }
    let text = r#"{"event_id":"created","type":"input_audio_buffer.cleared"}"#;
    let frame = Bytes::from_static(b"\x02\x02\0\0\x07\0\0\0\xe0\x01\0\0\0\0\0\0i1ab");
    assert_eq!(messages, [Message::Text(text.into()), Message::Binary(frame)]);
}

#[tokio::test]
async fn a_hold_lets_other_events_pass_and_keeps_the_responses_order() {
    let egress = filled();
    egress.hold();
    assert_eq!(drain(&egress), ["error"]);
    egress.drop_audio(&"r1".into());
    egress.release();
    assert_eq!(drain(&egress), ["created", "done"]);
    assert_eq!(egress.take_sent(), []);
}

#[tokio::test]
async fn an_event_about_an_item_overtakes_no_event_of_a_response_that_is_held() {
    let egress = new(false);
    egress.hold();
    egress.push(event("typed"), About::Items);
    egress.push(event("item done"), About::Response("r1".into()));
    egress.push(event("deleted"), About::Items);
    egress.push(event("speech started"), About::Session);
    assert_eq!(drain(&egress), ["typed", "speech started"]);
    assert!(egress.stuck_since().is_none(), "what is held is not stuck");
    egress.release();
    assert_eq!(drain(&egress), ["item done", "deleted"]);
}

#[tokio::test]
async fn a_message_counts_as_sent_only_when_the_next_is_asked_for() {
    let egress = new(false);
    egress.push_audio(event("audio"), "r1".into(), ("i1".into(), Samples(480)));
    assert!(egress.next_message().now_or_never().is_some());
    assert_eq!(egress.take_sent(), []);
    assert!(egress.stuck_since().is_some());
    assert!(egress.next_message().now_or_never().is_none());
    assert_eq!(egress.take_sent(), [("i1".into(), Samples(480))]);
}

#[tokio::test]
async fn a_new_connection_gets_what_the_old_one_lost_and_then_the_rest() {
    let egress = new(true);
    for number in ["1", "2", "3"] {
        egress.push(event(number), About::Session);
    }
    assert_eq!(drain(&egress), ["1", "2", "3"]);
    egress.answered(1);
    egress.push(event("4"), About::Session);
    egress.detach();
    assert!(egress.stuck_since().is_none(), "nobody is there to be slow");
    egress.push(event("5"), About::Session);
    assert_eq!(egress.attach(0), Err(ResumeError::LetGo { after: 0, answered: 1 }));
    assert_eq!(egress.attach(2), Ok(()));
    assert_eq!(drain(&egress), ["3", "4", "5"]);
    assert_eq!((egress.n_sent(), new(false).attach(0)), (5, Err(ResumeError::NotKept)));
}

#[tokio::test]
async fn audio_given_twice_counts_as_sent_once() {
    let egress = new(true);
    egress.push_audio(event("audio"), "r1".into(), ("i1".into(), Samples(480)));
    assert!(egress.next_message().now_or_never().is_some());
    egress.detach();
    assert_eq!(egress.take_sent(), [("i1".into(), Samples(480))]);
    egress.attach(0).expect("nothing was answered for");
    assert_eq!(drain(&egress), ["audio"]);
    assert_eq!(egress.take_sent(), []);
}

#[tokio::test]
async fn the_close_comes_after_what_was_there() {
    let egress = filled();
    egress.hold();
    egress.close(Close { code: 1001, reason: "going away" });
    assert_eq!(drain(&egress).len(), 5);
    assert_eq!(egress.next_message().now_or_never(), Some(Err(Close { code: 1001, reason: "going away" })));
}

#[tokio::test]
async fn a_connection_is_not_given_up_for_the_one_before_it() {
    let egress = new(true);
    assert!(egress.lose(), "it may come back");
    egress.detach();
    egress.attach(0).unwrap();
    let mut lost = std::pin::pin!(egress.lost());
    assert!(futures_util::poll!(lost.as_mut()).is_pending(), "this one takes what it is sent");
    egress.lose();
    assert!(futures_util::poll!(lost).is_ready());
}
