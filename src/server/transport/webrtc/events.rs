//! What a WebRTC client of the Realtime API expects of its server's events: the output buffer is the hub's, so the hub reports when
//! it starts, stops and is cleared, and truncates what was not played.
//!
//! [`super::peer`] passes each server event through [`ReplyEvents`]. Events of the extensions go to a peer that asked for them, and
//! to no other client.

use super::speaker::{Position, Speaker};
use antiphon_protocol::{ClientEvent, Incoming, PlayedReport, ResponsePart, ServerEvent, WireError};
use antiphon_session::OutputEvent;
use antiphon_types::{ItemId, ResponseId};
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
#[derive(Debug, Default, PartialEq)]
pub(super) struct Outgoing {
    /// An event for the peer, and for the clients that have joined the call.
    pub(super) to_peer: Option<OutputEvent>,
    /// The sound of a reply's item has been sent whole.
    pub(super) is_sent: bool,
    /// An event of the extensions, for the peer alone.
    pub(super) extension: Option<OutputEvent>,
    /// Client events for the session.
    pub(super) to_session: Vec<Incoming>,
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

impl ReplyEvents {
    /// Takes a server event. Where it clears the output buffer, `speaker` is cleared.
    pub(super) fn session(&mut self, event: OutputEvent, speaker: &mut Speaker) -> Outgoing {
        let mut outgoing = Outgoing::default();
        match &event.event {
            ServerEvent::Error { error } if is_own(error.event_id.as_deref()) => return outgoing,
            ServerEvent::OutputHeld { .. } => outgoing.held = Some(true),
            ServerEvent::OutputResumed { .. } => outgoing.held = Some(false),
            ServerEvent::ContentPartAdded { at, part: ResponsePart::Audio { .. } } => {
                let response = self.response(&at.item.response_id);
                response.n_open += 1;
                if !response.items.contains(&at.item.item_id) {
                    response.items.push(at.item.item_id.clone());
                }
            }
            ServerEvent::OutputAudioSent { response_id, item_id } => {
                if let Some(response) = self.find(response_id) {
                    response.n_open = response.n_open.saturating_sub(1);
                    response.whole.push(item_id.clone());
                }
                outgoing.is_sent = true;
            }
            ServerEvent::ResponseDone { response } => {
                if let Some(response) = self.find(&response.id) {
                    response.is_done = true;
                }
            }
            ServerEvent::OutputCleared { response_id } => outgoing.to_session = self.cleared(response_id, speaker),
            _ => {}
        }
        match event.event.is_extension() {
            true => outgoing.extension = self.takes_extensions.then_some(event),
            false => outgoing.to_peer = Some(event),
        }
        outgoing
    }

    /// Clears `speaker` of a response; gives the reports of what its peer did not hear.
    fn cleared(&mut self, response: &ResponseId, speaker: &mut Speaker) -> Vec<Incoming> {
        let Some(response) = self.position(response).and_then(|at| self.responses.remove(at)) else {
            // Its last packet has left, while the peer still heard it; the session's hold ends with it.
            speaker.hold(false);
            return Vec::new();
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
        let mut events = Vec::new();
        // The last frame of an item may be filled up: one that has left to its end is not truncated.
        for Position { item, end_ms } in cuts.into_iter().filter(|cut| !left.contains(&cut.item)) {
            let played = PlayedReport { stopped: true, ..PlayedReport::new(item.clone(), end_ms) };
            events.push(self.own(ClientEvent::OutputAudioPlayed(Box::new(played))));
            events.push(self.own(ClientEvent::ItemTruncate { item_id: item, content_index: 0, audio_end_ms: end_ms }));
        }
        events
    }

    /// A packet has left: of this item, or silence. `is_empty`: nothing waits to leave. Gives the events that follow.
    pub(super) fn played(&mut self, item: Option<&ItemId>, is_empty: bool) -> Vec<OutputEvent> {
        let mut events = Vec::new();
        let place_of = |item: &ItemId| {
            let place = |response: &Response| response.items.iter().position(|own| own == item);
            self.responses.iter().enumerate().find_map(|(at, response)| Some((at, place(response)?)))
        };
        if let Some((at, place)) = item.and_then(place_of) {
            let response = &mut self.responses[at];
            response.n_sounded = response.n_sounded.max(place + 1);
            if !std::mem::replace(&mut response.has_started, true) {
                let response_id = response.id.clone();
                events.push(self.event(ServerEvent::OutputStarted { response_id }));
            }
        }
        if item.is_none() && is_empty {
            let is_over = |response: &Response| response.is_done && response.n_open == 0;
            while let Some(at) = self.responses.iter().position(is_over) {
                let ended = self.responses.remove(at);
                if let Some(Response { id, has_started: true, .. }) = ended {
                    events.push(self.event(ServerEvent::OutputStopped { response_id: id }));
                }
            }
        }
        events
    }

    /// The report to the session that this was heard.
    pub(super) fn heard(&mut self, position: Position) -> Incoming {
        let report = PlayedReport::new(position.item, position.end_ms);
        self.own(ClientEvent::OutputAudioPlayed(Box::new(report)))
    }

    /// The error in the place of an event that is too long for a data channel.
    pub(super) fn too_long(&mut self, n_bytes: usize) -> OutputEvent {
        let message = format!("An event of {n_bytes} bytes is too long for the data channel.");
        self.event(ServerEvent::Error { error: WireError::server("event_too_long", message) })
    }

    fn event(&mut self, event: ServerEvent) -> OutputEvent {
        self.n_sent += 1;
        OutputEvent { event_id: format!("event_rtc_{}", self.n_sent), event }
    }

    /// A request of the hub's own.
    fn own(&mut self, event: ClientEvent) -> Incoming {
        self.n_sent += 1;
        Incoming { event_id: Some(format!("{OWN}{}", self.n_sent)), event }
    }

    fn position(&self, id: &ResponseId) -> Option<usize> {
        self.responses.iter().position(|response| response.id == *id)
    }

    fn find(&mut self, id: &ResponseId) -> Option<&mut Response> {
        let at = self.position(id)?;
        self.responses.get_mut(at)
    }

    fn response(&mut self, id: &ResponseId) -> &mut Response {
        let at = self.position(id).unwrap_or_else(|| {
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
    use antiphon_protocol::{PartAt, Response as WireResponse};
    use antiphon_types::Samples;
    use bytes::Bytes;
    use tokio::time::Instant;

    fn output(event: ServerEvent) -> OutputEvent {
        OutputEvent { event_id: "event_1".into(), event }
    }

    fn added(item: &str) -> OutputEvent {
        let at = PartAt::new("r".into(), item.into(), 0, 0);
        output(ServerEvent::ContentPartAdded { at, part: ResponsePart::Audio { transcript: String::new() } })
    }

    fn sent(item: &str) -> OutputEvent {
        output(ServerEvent::OutputAudioSent { response_id: "r".into(), item_id: item.into() })
    }

    fn done() -> OutputEvent {
        output(ServerEvent::ResponseDone { response: Box::new(WireResponse::new("r".into(), None)) })
    }

    fn cleared() -> OutputEvent {
        output(ServerEvent::OutputCleared { response_id: "r".into() })
    }

    fn started() -> ServerEvent {
        ServerEvent::OutputStarted { response_id: "r".into() }
    }

    /// The truncations among these requests.
    fn cuts(requests: &[Incoming]) -> Vec<(&str, u32)> {
        requests
            .iter()
            .filter_map(|request| match &request.event {
                ClientEvent::ItemTruncate { item_id, audio_end_ms, .. } => Some((item_id.as_str(), *audio_end_ms)),
                _ => None,
            })
            .collect()
    }

    fn with_audio(events: &mut ReplyEvents, speaker: &mut Speaker) {
        events.session(added("i"), speaker);
        for i in 0..5 {
            speaker.push("i".into(), Samples(i * 480), Bytes::from_static(b"x"));
        }
    }

    /// The events of the packets that leave, this many.
    fn tick(events: &mut ReplyEvents, speaker: &mut Speaker, n: usize) -> Vec<ServerEvent> {
        let mut seen = Vec::new();
        for _ in 0..n {
            let (_, item) = speaker.tick(Instant::now());
            seen.extend(events.played(item.as_ref(), speaker.is_empty()).into_iter().map(|event| event.event));
        }
        seen
    }

    #[tokio::test(start_paused = true)]
    async fn an_item_that_has_left_to_its_end_is_not_truncated() {
        let mut events = ReplyEvents::default();
        let mut speaker = Speaker::default();
        for item in ["a", "b"] {
            events.session(added(item), &mut speaker);
            for n in 0..2 {
                speaker.push(item.into(), Samples(n * 480), Bytes::from_static(b"x"));
            }
            events.session(sent(item), &mut speaker);
        }
        let now = Instant::now();
        for _ in 0..2 {
            speaker.tick(now);
        }
        assert_eq!(cuts(&events.session(cleared(), &mut speaker).to_session), [("b", 0)]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_buffer_starts_and_stops_with_its_audio() {
        let mut events = ReplyEvents::default();
        let mut speaker = Speaker::default();
        with_audio(&mut events, &mut speaker);
        assert_eq!(events.session(done(), &mut speaker).to_peer, Some(done()));
        assert_eq!(tick(&mut events, &mut speaker, 7), [started()], "its audio may go on");
        events.session(sent("i"), &mut speaker);
        let stopped = OutputEvent {
            event_id: "event_rtc_2".into(),
            event: ServerEvent::OutputStopped { response_id: "r".into() },
        };
        assert_eq!(events.played(None, true), [stopped]);
        assert_eq!(events.played(None, true), []);
    }

    #[tokio::test(start_paused = true)]
    async fn a_clear_truncates_at_what_has_left() {
        let mut events = ReplyEvents::default();
        let mut speaker = Speaker::default();
        with_audio(&mut events, &mut speaker);
        tick(&mut events, &mut speaker, 2);
        let outgoing = events.session(cleared(), &mut speaker);
        assert_eq!(outgoing.to_peer, Some(cleared()));
        let report = PlayedReport { stopped: true, ..PlayedReport::new("i".into(), 40) };
        let expect = [
            ClientEvent::OutputAudioPlayed(Box::new(report)),
            ClientEvent::ItemTruncate { item_id: "i".into(), content_index: 0, audio_end_ms: 40 },
        ];
        assert_eq!(outgoing.to_session.iter().map(|request| &request.event).collect::<Vec<_>>(), expect.each_ref());
        assert!(outgoing.to_session.iter().all(|request| is_own(request.event_id.as_deref())));
        assert!(speaker.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_clear_of_a_response_that_has_left_ends_its_hold() {
        let mut events = ReplyEvents::default();
        let mut speaker = Speaker::default();
        with_audio(&mut events, &mut speaker);
        events.session(sent("i"), &mut speaker);
        events.session(done(), &mut speaker);
        tick(&mut events, &mut speaker, 6);
        let held = output(ServerEvent::OutputHeld { response_id: "r".into(), item_id: "i".into() });
        assert_eq!(events.session(held, &mut speaker).held, Some(true));
        speaker.hold(true);
        assert_eq!(events.session(cleared(), &mut speaker).to_session, [], "nothing is cut");
        speaker.push("next".into(), Samples::ZERO, Bytes::from_static(b"x"));
        assert_eq!(speaker.tick(Instant::now()).1, Some("next".into()), "the next response sounds");
    }

    #[tokio::test(start_paused = true)]
    async fn a_clear_truncates_items_without_audio_at_their_beginning() {
        let mut events = ReplyEvents::default();
        let mut speaker = Speaker::default();
        for item in ["h", "i", "j", "j"] {
            events.session(added(item), &mut speaker);
        }
        for item in ["h", "i", "i"] {
            speaker.push(item.into(), Samples::ZERO, Bytes::from_static(b"x"));
        }
        tick(&mut events, &mut speaker, 2);
        assert_eq!(cuts(&events.session(cleared(), &mut speaker).to_session), [("i", 20), ("j", 0)]);
    }

    fn extensions() -> [(ServerEvent, Option<bool>); 3] {
        let response_id = || ResponseId::from("r");
        [
            (ServerEvent::TranscriptionDraft { item_id: "i".into(), content_index: 0, transcript: "so".into() }, None),
            (ServerEvent::OutputHeld { response_id: response_id(), item_id: "i".into() }, Some(true)),
            (ServerEvent::OutputResumed { response_id: response_id(), item_id: "i".into() }, Some(false)),
        ]
    }

    #[test]
    fn extensions_go_to_a_peer_that_asked_for_them() {
        let mut events = ReplyEvents { takes_extensions: true, ..Default::default() };
        let mut speaker = Speaker::default();
        for (event, held) in extensions() {
            let event = output(event);
            let expect = Outgoing { extension: Some(event.clone()), held, ..Outgoing::default() };
            assert_eq!(events.session(event, &mut speaker), expect);
        }
    }

    #[test]
    fn extensions_and_errors_of_own_requests_stay_here() {
        let mut events = ReplyEvents::default();
        let mut speaker = Speaker::default();
        let own = events.heard(Position { item: "i".into(), end_ms: 20 }).event_id;
        let mut passes = |event: ServerEvent| {
            let Outgoing { to_peer, extension, .. } = events.session(output(event), &mut speaker);
            to_peer.is_some() || extension.is_some()
        };
        for (event, _) in extensions() {
            assert!(!passes(event));
        }
        let error =
            |event_id: Option<&str>| ServerEvent::Error { error: WireError::nothing_to_cancel().answering(event_id) };
        assert!(!passes(error(own.as_deref())));
        assert!(passes(error(Some("theirs"))));
        assert!(passes(error(None)));
        assert!(passes(ServerEvent::InputAudioCleared {}));
    }
}
