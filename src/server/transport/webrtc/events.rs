//! What a WebRTC client of the Realtime API expects of its server's events: the output buffer is the hub's, so the hub reports when
//! it starts, stops and is cleared, and truncates what was not played.
//!
//! [`super::peer`] passes each server event through [`ReplyEvents`]. Events of the extensions go to a peer that asked for them, and
//! to no other client.

use super::speaker::{Position, Speaker};
use antiphon_types::{ItemId, ResponseId};
use serde::Deserialize;
use serde_json::json;
use std::borrow::Cow;
use std::collections::VecDeque;

/// Responses that are followed; of more, the oldest goes.
const MAX_RESPONSES: usize = 16;
/// Begins the event ids of the hub's own requests to the session, whose errors are not the client's.
const OWN: &str = "antiphon_rtc_";

/// The events of the output buffer of one call.
#[derive(Default)]
pub(super) struct ReplyEvents {
    responses: VecDeque<Response>,
    n_sent: u64,
    /// The peer takes the events of the extensions.
    pub(super) takes_extensions: bool,
}

/// What follows from a server event.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Outgoing {
    /// Events for the peer, and for the clients that have joined the call.
    pub(super) to_peer: Vec<String>,
    /// The sound of a reply's item has been sent whole.
    pub(super) is_sent: bool,
    /// An event of the extensions, for the peer alone.
    pub(super) extension: Option<String>,
    /// Client events for the session.
    pub(super) to_session: Vec<String>,
    /// Pauses or continues playback.
    pub(super) held: Option<bool>,
}

/// A response with audio.
struct Response {
    id: ResponseId,
    /// In the order of their audio.
    items: Vec<ItemId>,
    /// Items of which audio was sent, or that of a later one.
    n_sounded: usize,
    /// Content parts whose audio is not complete.
    n_open: usize,
    /// Items whose audio the session has given to its end.
    whole: Vec<ItemId>,
    has_started: bool,
    is_done: bool,
}

#[derive(Deserialize)]
struct Head<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    response_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    item_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    response: Option<Named<'a>>,
    #[serde(borrow)]
    part: Option<Part<'a>>,
    #[serde(borrow)]
    error: Option<Failed<'a>>,
}

#[derive(Deserialize)]
struct Named<'a> {
    #[serde(borrow)]
    id: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Part<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Failed<'a> {
    #[serde(borrow)]
    event_id: Option<Cow<'a, str>>,
}

impl ReplyEvents {
    /// Takes a server event. Where it clears the output buffer, `speaker` is cleared.
    pub(super) fn session(&mut self, text: String, speaker: &mut Speaker) -> Outgoing {
        let mut outgoing = Outgoing::default();
        let Ok(head) = serde_json::from_str::<Head>(&text) else {
            outgoing.to_peer.push(text);
            return outgoing;
        };
        match &*head.kind {
            kind @ ("output_audio_buffer.held" | "output_audio_buffer.resumed") => {
                outgoing.held = Some(kind.ends_with("held"));
                outgoing.extension = self.takes_extensions.then_some(text);
            }
            "error" if head.error.as_ref().is_some_and(|error| is_own(error.event_id.as_deref())) => {}
            "response.content_part.added" if head.part.as_ref().is_some_and(|part| part.kind.contains("audio")) => {
                if let (Some(id), Some(item)) = (&head.response_id, &head.item_id) {
                    let response = self.response(&ResponseId::from(&**id));
                    let item = ItemId::from(&**item);
                    response.n_open += 1;
                    if !response.items.contains(&item) {
                        response.items.push(item);
                    }
                }
                outgoing.to_peer.push(text);
            }
            "antiphon.output_audio.sent" => {
                if let Some(response) = head.response_id.as_deref().and_then(|id| self.find(id)) {
                    response.n_open = response.n_open.saturating_sub(1);
                    response.whole.extend(head.item_id.as_deref().map(ItemId::from));
                }
                outgoing.is_sent = true;
                outgoing.extension = self.takes_extensions.then_some(text);
            }
            kind if kind.starts_with("antiphon.") => outgoing.extension = self.takes_extensions.then_some(text),
            "response.done" => {
                let id = head.response.as_ref().and_then(|response| response.id.as_deref());
                if let Some(response) = id.and_then(|id| self.find(id)) {
                    response.is_done = true;
                }
                outgoing.to_peer.push(text);
            }
            "output_audio_buffer.cleared" => {
                let at = head.response_id.as_deref().and_then(|id| self.position(id));
                let response = at.and_then(|at| self.responses.remove(at));
                drop(head);
                outgoing.to_peer.push(text);
                let Some(response) = response else {
                    // Its last packet has left, while the peer still heard it; the session's hold ends with it.
                    speaker.hold(false);
                    return outgoing;
                };
                let has_left = |item: &ItemId| response.whole.contains(item) && !speaker.holds(item);
                let left: Vec<ItemId> = response.items.iter().filter(|item| has_left(item)).cloned().collect();
                let mut cuts = speaker.clear(&response.items);
                // Of the rest, no audio has come yet.
                for item in &response.items[response.n_sounded..] {
                    if !cuts.iter().any(|cut| cut.item == *item) {
                        cuts.push(Position { item: item.clone(), end_ms: 0 });
                    }
                }
                // The last frame of an item may be filled up: one that has left to its end is not truncated.
                for Position { item, end_ms } in cuts.into_iter().filter(|cut| !left.contains(&cut.item)) {
                    let played = json!({
                        "type": "output_audio_buffer.played", "event_id": self.own_id(), "item_id": item.as_str(),
                        "audio_end_ms": end_ms, "stopped": true,
                    });
                    let truncate = json!({
                        "type": "conversation.item.truncate", "event_id": self.own_id(), "item_id": item.as_str(),
                        "content_index": 0, "audio_end_ms": end_ms,
                    });
                    outgoing.to_session.extend([played.to_string(), truncate.to_string()]);
                }
            }
            _ => outgoing.to_peer.push(text),
        }
        outgoing
    }

    /// A packet has left: of this item, or silence. `is_empty`: nothing waits to leave. Gives the events that follow.
    pub(super) fn played(&mut self, item: Option<&ItemId>, is_empty: bool) -> Vec<String> {
        let mut events = Vec::new();
        let place_of = |item: &ItemId| {
            let place = |response: &Response| response.items.iter().position(|own| own == item);
            self.responses.iter().enumerate().find_map(|(at, response)| Some((at, place(response)?)))
        };
        if let Some((at, place)) = item.and_then(place_of) {
            let response = &mut self.responses[at];
            response.n_sounded = response.n_sounded.max(place + 1);
            if !std::mem::replace(&mut response.has_started, true) {
                events.push(self.buffer_event("output_audio_buffer.started", at));
            }
        }
        if item.is_none() && is_empty {
            let is_over = |response: &Response| response.is_done && response.n_open == 0;
            while let Some(at) = self.responses.iter().position(is_over) {
                if self.responses[at].has_started {
                    events.push(self.buffer_event("output_audio_buffer.stopped", at));
                }
                self.responses.remove(at);
            }
        }
        events
    }

    /// The report to the session that this was heard.
    pub(super) fn heard(&mut self, position: &Position) -> String {
        let Position { item, end_ms } = position;
        let event_id = self.own_id();
        json!({"type": "output_audio_buffer.played", "event_id": event_id, "item_id": item.as_str(), "audio_end_ms": end_ms})
            .to_string()
    }

    /// The error in the place of an event that is too long for a data channel.
    pub(super) fn too_long(&mut self, n_bytes: usize) -> String {
        let message = format!("An event of {n_bytes} bytes is too long for the data channel.");
        let error = json!({"type": "server_error", "code": "event_too_long", "message": message, "param": null, "event_id": null});
        json!({"type": "error", "event_id": self.event_id(), "error": error}).to_string()
    }

    fn buffer_event(&mut self, kind: &str, at: usize) -> String {
        let event_id = self.event_id();
        json!({"type": kind, "event_id": event_id, "response_id": self.responses[at].id.as_str()}).to_string()
    }

    fn event_id(&mut self) -> String {
        self.n_sent += 1;
        format!("event_rtc_{}", self.n_sent)
    }

    fn own_id(&mut self) -> String {
        self.n_sent += 1;
        format!("{OWN}{}", self.n_sent)
    }

    fn position(&self, id: &str) -> Option<usize> {
        self.responses.iter().position(|response| response.id.as_str() == id)
    }

    fn find(&mut self, id: &str) -> Option<&mut Response> {
        let at = self.position(id)?;
        self.responses.get_mut(at)
    }

    fn response(&mut self, id: &ResponseId) -> &mut Response {
        let at = self.position(id.as_str()).unwrap_or_else(|| {
            if self.responses.len() == MAX_RESPONSES {
                self.responses.pop_front();
            }
            let id = id.clone();
            let items = Vec::new();
            self.responses.push_back(Response {
                id,
                items,
                n_sounded: 0,
                n_open: 0,
                whole: Vec::new(),
                has_started: false,
                is_done: false,
            });
            self.responses.len() - 1
        });
        &mut self.responses[at]
    }
}

fn is_own(event_id: Option<&str>) -> bool {
    event_id.is_some_and(|id| id.starts_with(OWN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_that_has_left_to_its_end_is_not_truncated() {
        let mut events = ReplyEvents::default();
        let mut speaker = Speaker::default();
        let mut tell = |event: serde_json::Value, speaker: &mut Speaker| events.session(event.to_string(), speaker);
        for item in ["a", "b"] {
            let part = json!({"type": "response.content_part.added", "response_id": "r", "item_id": item,
                              "part": {"type": "audio"}});
            tell(part, &mut speaker);
            for n in 0..2 {
                speaker.push(item.into(), antiphon_types::Samples(n * 480), bytes::Bytes::from_static(b"x"));
            }
            tell(json!({"type": "antiphon.output_audio.sent", "response_id": "r", "item_id": item}), &mut speaker);
        }
        let now = tokio::time::Instant::now();
        for _ in 0..2 {
            speaker.tick(now);
        }
        let cleared = tell(json!({"type": "output_audio_buffer.cleared", "response_id": "r"}), &mut speaker);
        let cut: Vec<_> = cleared.to_session.iter().filter(|event| event.contains("item.truncate")).collect();
        assert_eq!(cut.len(), 1, "{cut:?}");
        assert!(cut[0].contains("\"item_id\":\"b\"") && cut[0].contains("\"audio_end_ms\":0"), "{cut:?}");
    }
    use antiphon_types::Samples;
    use bytes::Bytes;
    use tokio::time::Instant;

    fn kinds(events: &[String]) -> Vec<String> {
        let kind =
            |text: &String| serde_json::from_str::<serde_json::Value>(text).unwrap()["type"].as_str().unwrap().into();
        events.iter().map(kind).collect()
    }

    fn with_audio(events: &mut ReplyEvents, speaker: &mut Speaker) {
        let added = json!({"type": "response.content_part.added", "response_id": "r", "item_id": "i", "part": {"type": "audio"}});
        events.session(added.to_string(), speaker);
        for i in 0..5 {
            speaker.push("i".into(), Samples(i * 480), Bytes::from_static(b"x"));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_buffer_starts_and_stops_with_its_audio() {
        let mut events = ReplyEvents::default();
        let mut speaker = Speaker::default();
        with_audio(&mut events, &mut speaker);
        let done = json!({"type": "response.done", "response": {"id": "r", "output": [{"id": "i"}]}}).to_string();
        assert_eq!(kinds(&events.session(done, &mut speaker).to_peer), ["response.done"]);
        let mut seen = Vec::new();
        for _ in 0..7 {
            let (_, item) = speaker.tick(Instant::now());
            seen.extend(kinds(&events.played(item.as_ref(), speaker.is_empty())));
        }
        assert_eq!(seen, ["output_audio_buffer.started"], "its audio may go on");
        let done = json!({"type": "antiphon.output_audio.sent", "response_id": "r", "item_id": "i"}).to_string();
        events.session(done, &mut speaker);
        assert_eq!(kinds(&events.played(None, true)), ["output_audio_buffer.stopped"]);
        assert_eq!(events.played(None, true), Vec::<String>::new());
    }

    #[tokio::test(start_paused = true)]
    async fn a_clear_truncates_at_what_has_left() {
        let mut events = ReplyEvents::default();
        let mut speaker = Speaker::default();
        with_audio(&mut events, &mut speaker);
        for _ in 0..2 {
            let (_, item) = speaker.tick(Instant::now());
            events.played(item.as_ref(), false);
        }
        let cleared = json!({"type": "output_audio_buffer.cleared", "response_id": "r"}).to_string();
        let outgoing = events.session(cleared, &mut speaker);
        assert_eq!(kinds(&outgoing.to_peer), ["output_audio_buffer.cleared"]);
        assert_eq!(kinds(&outgoing.to_session), ["output_audio_buffer.played", "conversation.item.truncate"]);
        assert!(outgoing.to_session.iter().all(|event| event.contains(r#""audio_end_ms":40"#)), "{outgoing:?}");
        assert!(speaker.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_clear_of_a_response_that_has_left_ends_its_hold() {
        let mut events = ReplyEvents::default();
        let mut speaker = Speaker::default();
        with_audio(&mut events, &mut speaker);
        for event in [
            json!({"type": "antiphon.output_audio.sent", "response_id": "r", "item_id": "i"}),
            json!({"type": "response.done", "response": {"id": "r"}}),
        ] {
            events.session(event.to_string(), &mut speaker);
        }
        for _ in 0..6 {
            let (_, item) = speaker.tick(Instant::now());
            events.played(item.as_ref(), speaker.is_empty());
        }
        let held = json!({"type": "output_audio_buffer.held", "response_id": "r"}).to_string();
        assert_eq!(events.session(held, &mut speaker).held, Some(true));
        speaker.hold(true);
        let cleared = json!({"type": "output_audio_buffer.cleared", "response_id": "r"}).to_string();
        assert_eq!(events.session(cleared, &mut speaker).to_session, Vec::<String>::new(), "nothing is cut");
        speaker.push("next".into(), Samples::ZERO, Bytes::from_static(b"x"));
        assert_eq!(speaker.tick(Instant::now()).1, Some("next".into()), "the next response sounds");
    }

    #[tokio::test(start_paused = true)]
    async fn a_clear_truncates_items_without_audio_at_their_beginning() {
        let mut events = ReplyEvents::default();
        let mut speaker = Speaker::default();
        for item in ["h", "i", "j", "j"] {
            let added = json!({"type": "response.content_part.added", "response_id": "r", "item_id": item, "part": {"type": "audio"}});
            events.session(added.to_string(), &mut speaker);
        }
        for item in ["h", "i", "i"] {
            speaker.push(item.into(), Samples::ZERO, Bytes::from_static(b"x"));
        }
        for _ in 0..2 {
            let (_, item) = speaker.tick(Instant::now());
            events.played(item.as_ref(), false);
        }
        let cleared = json!({"type": "output_audio_buffer.cleared", "response_id": "r"}).to_string();
        let outgoing = events.session(cleared, &mut speaker).to_session;
        let cuts: Vec<_> = outgoing
            .iter()
            .map(|event| serde_json::from_str::<serde_json::Value>(event).unwrap())
            .filter(|event| event["type"] == "conversation.item.truncate")
            .map(|event| (event["item_id"].as_str().unwrap().to_owned(), event["audio_end_ms"].as_u64().unwrap()))
            .collect();
        assert_eq!(cuts, [("i".to_owned(), 20), ("j".to_owned(), 0)]);
    }

    #[test]
    fn extensions_go_to_a_peer_that_asked_for_them() {
        let mut events = ReplyEvents { takes_extensions: true, ..Default::default() };
        let mut speaker = Speaker::default();
        for (kind, held) in [
            ("antiphon.timeline", None),
            ("output_audio_buffer.held", Some(true)),
            ("output_audio_buffer.resumed", Some(false)),
        ] {
            let text = json!({"type": kind, "response_id": "r"}).to_string();
            let expect = Outgoing { extension: Some(text.clone()), held, ..Outgoing::default() };
            assert_eq!(events.session(text, &mut speaker), expect);
        }
    }

    #[test]
    fn extensions_and_errors_of_own_requests_stay_here() {
        let mut events = ReplyEvents::default();
        let mut speaker = Speaker::default();
        let report = events.heard(&Position { item: "i".into(), end_ms: 20 });
        let own = serde_json::from_str::<serde_json::Value>(&report).unwrap()["event_id"].clone();
        let mut passes = |event: serde_json::Value| {
            let Outgoing { to_peer, extension, .. } = events.session(event.to_string(), &mut speaker);
            !to_peer.is_empty() || extension.is_some()
        };
        assert!(!passes(json!({"type": "antiphon.timeline"})));
        assert!(!passes(json!({"type": "output_audio_buffer.held", "response_id": "r"})));
        assert!(!passes(json!({"type": "error", "error": {"event_id": own}})));
        assert!(passes(json!({"type": "error", "error": {"event_id": "theirs"}})));
        assert!(passes(json!({"type": "error", "error": {"event_id": null}})));
        assert!(passes(json!({"type": "session.updated", "session": {}})));
    }
}
