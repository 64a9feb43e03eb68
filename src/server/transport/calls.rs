//! The calls of this hub by id: for hang-ups, transfers, and clients that join a call beside its peer.
//!
//! [`super::webrtc`] and [`super::telephony`] list their calls; [`super::call_control`] ends and transfers them,
//! [`super::sideband`] joins clients. It opens and ends no session.

use super::queue::{Queue, Weight};
use super::recording::{CallRecording, RecordingState};
use super::transfers::Transfer;
use super::webrtc::connection::NewOffer;
use crate::server::transport::call::Call;
use crate::server::transport::telephony::answering::AnsweredBy;
use antiphon_protocol::{ServerEvent, SessionUpdate, encode};
use antiphon_session::OutputEvent;
use antiphon_types::KeyId;
use serde_json::{Value, json};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

/// Clients that join one call at a time.
pub(super) const MAX_JOINED: usize = 8;
/// Calls of ours that are over and whose outcome is kept.
const MAX_ENDED: usize = 1_024;
/// Bytes of events that wait for one joined client. A longer event waits alone.
const MAX_WAITING_BYTES: usize = 1024 * 1024;

/// The calls in progress. As many as there are sessions at most.
#[derive(Default)]
pub(in crate::server) struct Calls(Mutex<CallTable>);

#[derive(Default)]
struct CallTable {
    /// Calls without a session yet: a client decides about them.
    ringing: HashMap<String, RingingCall>,
    ongoing: HashMap<String, Arc<OngoingCall>>,
    /// At most [`MAX_ENDED`], the oldest first.
    ended: VecDeque<EndedCall>,
}

/// A call that begins.
pub(super) struct NewCall {
    /// Its session.
    pub(super) call: Call,
    /// The API key that it belongs to.
    pub(super) owner: Option<KeyId>,
    /// `webrtc`, or the peer of a phone call.
    pub(super) transport: &'static str,
    /// The peer's own id of the call; `None`: it names none.
    pub(super) peer_id: Option<String>,
    /// Takes further offers of its peer; `None`: it is no call by WebRTC.
    pub(super) offers: Option<mpsc::Sender<NewOffer>>,
    /// Transfers it; `None`: it cannot be transferred.
    pub(super) transfer: Option<Arc<dyn Transfer>>,
    /// Whether it is recorded.
    pub(super) recording: CallRecording,
}

/// What is known of a phone call's media, as it is shown with the call.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub(super) struct MediaFigures {
    /// Whether it is encrypted.
    pub(super) encrypted: bool,
    pub(super) packets_received: u32,
    pub(super) packets_lost: u32,
    pub(super) jitter_ms: f64,
    /// With a wrong authentication tag, or repeated.
    pub(super) packets_refused: u64,
    /// What the peer reports of our packets; `None`: nothing yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) peer_packets_lost: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) peer_jitter_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) round_trip_ms: Option<f64>,
}

pub(super) type SharedFigures = Arc<Mutex<MediaFigures>>;

/// How far a call is. Calls that come in are in progress at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CallState {
    Calling,
    Ringing,
    #[default]
    InProgress,
    /// The hub has connected it with another call, and the agent has left.
    Transferred,
    Ended,
    Busy,
    Declined,
    NoAnswer,
    Failed,
}

/// A call that rings until a client decides about it.
struct RingingCall {
    owner: Option<KeyId>,
    transport: &'static str,
    peer_id: String,
    /// `None`: a client has decided.
    decision: Option<oneshot::Sender<CallDecision>>,
}

/// What a client decides about a call that rings.
pub(super) enum CallDecision {
    /// To answer it with these settings, or with those of its route.
    Accept {
        settings: Option<Arc<SessionUpdate>>,
        /// Resolved once the call is in progress; dropped where it is over.
        accepted: oneshot::Sender<()>,
    },
    /// To refuse it with this status of SIP.
    Reject { status: u16 },
}

/// Why a client cannot decide about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DecisionError {
    /// There is no such call of its key.
    Unknown,
    /// It was answered or refused before.
    Decided,
}

/// The entry of a call that rings. Dropping it removes the call.
pub(super) struct RingingEntry {
    calls: Arc<Calls>,
    id: String,
}

/// A call of ours that is over, as it is described afterwards.
struct EndedCall {
    id: String,
    owner: Option<KeyId>,
    state: CallState,
    answered_by: Option<AnsweredBy>,
    recording: RecordingState,
}

/// A call in progress.
pub(in crate::server) struct OngoingCall {
    /// See [`NewCall::call`].
    pub(super) call: Arc<Call>,
    /// See [`NewCall::transport`].
    transport: &'static str,
    /// See [`NewCall::peer_id`].
    peer_id: Option<String>,
    /// See [`NewCall::owner`].
    pub(super) owner: Option<KeyId>,
    /// See [`NewCall::offers`].
    pub(super) offers: Option<mpsc::Sender<NewOffer>>,
    /// See [`NewCall::transfer`].
    pub(super) transfer: Option<Arc<dyn Transfer>>,
    /// See [`NewCall::recording`].
    pub(super) recording: CallRecording,
    state: Mutex<CallState>,
    /// Who has answered a call of ours; `None`: it is not known yet.
    answered_by: Mutex<Option<AnsweredBy>>,
    /// The id of the call that it is connected with; unset: it is not transferred.
    connected_to: OnceLock<String>,
    /// See [`MediaFigures`]; unset: the transport has none.
    figures: OnceLock<SharedFigures>,
    /// Whether the hub called.
    is_ours: AtomicBool,
    /// Ends it.
    pub(super) hang_up: CancellationToken,
    /// Cancelled when it has ended, or the agent has left.
    pub(super) ended: CancellationToken,
    /// The clients that have joined it.
    pub(super) joined: Arc<JoinedClients>,
}

/// The clients that have joined one call.
#[derive(Default)]
pub(super) struct JoinedClients(Mutex<CallClients>);

#[derive(Default)]
struct CallClients {
    /// The call's `session.created`.
    created: Option<Arc<str>>,
    waiting: Vec<Arc<PendingEvents>>,
}

/// Events that wait for one client.
struct PendingEvents {
    events: Queue<Arc<str>>,
    /// Cancelled when there was no room for an event.
    overflow: CancellationToken,
}

/// A client's place among those that have joined a call. Dropping it releases the place.
pub(super) struct JoinedClient {
    joined: Arc<JoinedClients>,
    waiting: Arc<PendingEvents>,
}

/// A call's entry, owned by its task. Dropping it removes the call.
pub(super) struct CallEntry {
    calls: Arc<Calls>,
    id: String,
    ongoing: Arc<OngoingCall>,
    /// How often it was found who has answered.
    n_answers: AtomicU64,
}

impl Calls {
    /// Lists a call.
    pub(super) fn list(self: &Arc<Self>, id: String, new: NewCall) -> CallEntry {
        let NewCall { call, owner, transport, peer_id, offers, transfer, recording } = new;
        let ongoing = Arc::new(OngoingCall {
            call: Arc::new(call),
            transport,
            peer_id,
            offers,
            owner,
            transfer,
            recording,
            state: Mutex::default(),
            answered_by: Mutex::default(),
            connected_to: OnceLock::new(),
            figures: OnceLock::new(),
            is_ours: AtomicBool::new(false),
            hang_up: CancellationToken::new(),
            ended: CancellationToken::new(),
            joined: Arc::default(),
        });
        self.lock().ongoing.insert(id.clone(), ongoing.clone());
        CallEntry { calls: self.clone(), id, ongoing, n_answers: AtomicU64::new(0) }
    }

    /// Lists a call that rings; what a client decides about it comes by the receiver.
    pub(super) fn ring(
        self: &Arc<Self>,
        id: String,
        owner: Option<KeyId>,
        transport: &'static str,
        peer_id: String,
    ) -> (RingingEntry, oneshot::Receiver<CallDecision>) {
        let (decision, decided) = oneshot::channel();
        let ringing = RingingCall { owner, transport, peer_id, decision: Some(decision) };
        self.lock().ringing.insert(id.clone(), ringing);
        (RingingEntry { calls: self.clone(), id }, decided)
    }

    /// Takes the decision about a call of this key that rings: one client has it, once.
    ///
    /// # Errors
    /// [`DecisionError`].
    pub(super) fn decide(
        &self,
        id: &str,
        owner: Option<KeyId>,
        is_admin: bool,
    ) -> Result<oneshot::Sender<CallDecision>, DecisionError> {
        let mut calls = self.lock();
        if calls.ongoing.get(id).is_some_and(|ongoing| ongoing.is_open_to(owner, is_admin)) {
            return Err(DecisionError::Decided);
        }
        let ringing = calls.ringing.get_mut(id).filter(|ringing| ringing.is_open_to(owner, is_admin));
        let ringing = ringing.ok_or(DecisionError::Unknown)?;
        ringing.decision.take().ok_or(DecisionError::Decided)
    }

    /// The call with this id that belongs to this key, or, for an admin key, to none.
    pub(in crate::server) fn find(&self, id: &str, owner: Option<KeyId>, is_admin: bool) -> Option<Arc<OngoingCall>> {
        let calls = self.lock();
        calls.ongoing.get(id).filter(|ongoing| ongoing.is_open_to(owner, is_admin)).cloned()
    }

    /// Those that [`Calls::find`] finds, as JSON, in no order.
    pub(in crate::server) fn described(&self, owner: Option<KeyId>, is_admin: bool) -> Vec<Value> {
        let calls = self.lock();
        let ringing = calls.ringing.iter().filter(|(id, ringing)| {
            // A call that is answered is in both tables for a moment.
            ringing.is_open_to(owner, is_admin) && !calls.ongoing.contains_key(*id)
        });
        let ongoing = calls.ongoing.iter().filter(|(_, ongoing)| ongoing.is_open_to(owner, is_admin));
        let ringing = ringing.map(|(id, ringing)| ringing.describe(id));
        ringing.chain(ongoing.map(|(id, ongoing)| ongoing.describe(id))).collect()
    }

    /// One of them, or one of ours that is over.
    pub(in crate::server) fn describe(&self, id: &str, owner: Option<KeyId>, is_admin: bool) -> Option<Value> {
        let calls = self.lock();
        if let Some(ongoing) = calls.ongoing.get(id).filter(|ongoing| ongoing.is_open_to(owner, is_admin)) {
            return Some(ongoing.describe(id));
        }
        if let Some(ringing) = calls.ringing.get(id).filter(|ringing| ringing.is_open_to(owner, is_admin)) {
            return Some(ringing.describe(id));
        }
        let is_open = |ended: &&EndedCall| ended.owner == owner || is_admin && ended.owner.is_none();
        let ended = calls.ended.iter().rev().filter(|ended| ended.id == id).find(is_open)?;
        let call = json!({"id": id, "object": "realtime.call", "state": ended.state, "recording": ended.recording});
        Some(with_answer(call, ended.answered_by))
    }

    fn lock(&self) -> MutexGuard<'_, CallTable> {
        self.0.lock().expect("no panic while locked")
    }
}

/// A described call, with who has answered it.
fn with_answer(mut call: Value, answered_by: Option<AnsweredBy>) -> Value {
    if let Some(answered_by) = answered_by {
        call["answered_by"] = json!(answered_by);
    }
    call
}

impl RingingCall {
    fn is_open_to(&self, owner: Option<KeyId>, is_admin: bool) -> bool {
        self.owner == owner || is_admin && self.owner.is_none()
    }

    fn describe(&self, id: &str) -> Value {
        json!({"id": id, "object": "realtime.call", "session_id": null, "transport": self.transport,
               "peer_call_id": self.peer_id, "state": CallState::Ringing, "recording": RecordingState::None})
    }
}

impl Drop for RingingEntry {
    fn drop(&mut self) {
        self.calls.lock().ringing.remove(&self.id);
    }
}

impl OngoingCall {
    /// A call that was hung up is no longer there, even while its task ends.
    fn is_open_to(&self, owner: Option<KeyId>, is_admin: bool) -> bool {
        !self.hang_up.is_cancelled() && (self.owner == owner || is_admin && self.owner.is_none())
    }

    fn describe(&self, id: &str) -> Value {
        let mut call = json!({"id": id, "object": "realtime.call", "session_id": self.call.session().as_str(),
                              "transport": self.transport, "peer_call_id": self.peer_id, "state": self.state(),
                              "recording": self.recording.state()});
        if let Some(figures) = self.figures.get() {
            call["media"] = json!(*figures.lock().expect("no panic while locked"));
        }
        if let Some(connected_to) = self.connected_to.get() {
            call["connected_to"] = json!(connected_to);
        }
        with_answer(call, self.answered_by())
    }

    fn answered_by(&self) -> Option<AnsweredBy> {
        *self.answered_by.lock().expect("no panic while locked")
    }

    fn state(&self) -> CallState {
        *self.state.lock().expect("no panic while locked")
    }
}

impl CallEntry {
    /// The call's id.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Its session.
    pub(super) fn call(&self) -> &Arc<Call> {
        &self.ongoing.call
    }

    /// Cancelled when it is to end.
    pub(super) fn hung_up(&self) -> &CancellationToken {
        &self.ongoing.hang_up
    }

    /// Gives an event to the clients that have joined.
    pub(super) fn publish(&self, event: &OutputEvent) {
        self.ongoing.joined.publish(event);
    }

    /// How far a call of ours is. It is kept when the call has ended.
    pub(super) fn set_state(&self, state: CallState) {
        self.ongoing.is_ours.store(true, Ordering::Relaxed);
        *self.ongoing.state.lock().expect("no panic while locked") = state;
    }

    /// It is connected with the call of this id. The clients that have joined it leave with the agent.
    pub(super) fn set_transferred(&self, connected_to: &str) {
        *self.ongoing.state.lock().expect("no panic while locked") = CallState::Transferred;
        let _ = self.ongoing.connected_to.set(connected_to.to_owned());
        self.ongoing.ended.cancel();
    }

    /// Who has answered a call of ours; `None`: it is not known yet.
    pub(super) fn answered_by(&self) -> Option<AnsweredBy> {
        self.ongoing.answered_by()
    }

    /// What is known of its media, from now on.
    pub(super) fn show_figures(&self, figures: SharedFigures) {
        let _ = self.ongoing.figures.set(figures);
    }

    /// Who has answered a call of ours. It is kept when the call has ended, and the clients that have joined learn it.
    pub(super) fn set_answered_by(&self, answered_by: AnsweredBy) {
        *self.ongoing.answered_by.lock().expect("no panic while locked") = Some(answered_by);
        let event_id = format!("event_answered_{}", self.n_answers.fetch_add(1, Ordering::Relaxed) + 1);
        let event = json!({"event_id": event_id, "type": "antiphon.call.answered_by", "answered_by": answered_by});
        self.ongoing.joined.publish_own(event.to_string().into());
    }

    /// The call has ended: only its outcome is found, if the hub called.
    pub(super) fn close(&self) {
        self.ongoing.recording.refuse_undecided();
        let mut calls = self.calls.lock();
        let is_first = calls.ongoing.remove(&self.id).is_some();
        if is_first && self.ongoing.is_ours.load(Ordering::Relaxed) {
            if calls.ended.len() >= MAX_ENDED {
                calls.ended.pop_front();
            }
            let state = match self.ongoing.state() {
                CallState::Calling | CallState::Ringing | CallState::InProgress | CallState::Transferred => {
                    CallState::Ended
                }
                over => over,
            };
            let answered_by = self.ongoing.answered_by();
            let id = self.id.clone();
            let recording = self.ongoing.recording.state();
            calls.ended.push_back(EndedCall { id, owner: self.ongoing.owner, state, answered_by, recording });
        }
        drop(calls);
        self.ongoing.ended.cancel();
    }
}

impl Drop for CallEntry {
    fn drop(&mut self) {
        self.close();
    }
}

impl JoinedClients {
    /// Adds a client, for which the call's `session.created` waits first. `None`: there are [`MAX_JOINED`].
    pub(super) fn join(self: &Arc<Self>) -> Option<JoinedClient> {
        let mut joined = self.lock();
        if joined.waiting.len() >= MAX_JOINED {
            return None;
        }
        let waiting =
            Arc::new(PendingEvents { events: Queue::new(MAX_WAITING_BYTES), overflow: CancellationToken::new() });
        joined.created.iter().for_each(|created| waiting.push(created));
        joined.waiting.push(waiting.clone());
        drop(joined);
        Some(JoinedClient { joined: self.clone(), waiting })
    }

    /// Gives an event to each client. The first one is `session.created`; what comes before it is dropped.
    fn publish(&self, event: &OutputEvent) {
        let mut joined = self.lock();
        if joined.created.is_none() && !matches!(event.event, ServerEvent::SessionCreated { .. }) {
            return;
        }
        if joined.created.is_some() && joined.waiting.is_empty() {
            return;
        }
        let event: Arc<str> = encode(&event.event, &event.event_id).into();
        joined.waiting.iter().for_each(|waiting| waiting.push(&event));
        joined.created.get_or_insert(event);
    }

    /// Gives each client an event of the call itself, JSON, which no session sends.
    fn publish_own(&self, event: Arc<str>) {
        self.lock().waiting.iter().for_each(|waiting| waiting.push(&event));
    }

    fn lock(&self) -> MutexGuard<'_, CallClients> {
        self.0.lock().expect("no panic while locked")
    }
}

impl PendingEvents {
    fn push(&self, event: &Arc<str>) {
        if !self.overflow.is_cancelled() && !self.events.push(event.clone()) {
            self.overflow.cancel();
        }
    }
}

impl JoinedClient {
    /// The next event. For one reader. Cancel safe.
    pub(super) async fn next(&self) -> Arc<str> {
        self.waiting.events.next().await
    }

    /// Resolves when the client does not keep up. Cancel safe.
    pub(super) async fn overflow(&self) {
        self.waiting.overflow.cancelled().await;
    }
}

impl Drop for JoinedClient {
    fn drop(&mut self) {
        self.joined.lock().waiting.retain(|waiting| !Arc::ptr_eq(waiting, &self.waiting));
    }
}

impl Weight for Arc<str> {
    fn n_bytes(&self) -> usize {
        (size_of::<Self>() + self.len()).min(MAX_WAITING_BYTES)
    }

    fn is_media(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use antiphon_protocol::{ServerVad, Session};
    use antiphon_types::SessionId;

    fn event(event_id: &str, event: ServerEvent) -> OutputEvent {
        OutputEvent { event_id: event_id.into(), event }
    }

    fn draft(event_id: &str, transcript: &str) -> OutputEvent {
        let transcript = transcript.to_owned();
        event(event_id, ServerEvent::TranscriptionDraft { item_id: "i".into(), content_index: 0, transcript })
    }

    async fn next_id(client: &JoinedClient) -> String {
        let event: Value = serde_json::from_str(&client.next().await).expect("an event is JSON");
        event["event_id"].as_str().expect("an event has an id").to_owned()
    }

    #[tokio::test]
    async fn joined_clients_get_events_until_they_do_not_keep_up() {
        let clients = Arc::new(JoinedClients::default());
        clients.publish(&draft("too early", ""));
        let session = Session::new(SessionId::from("sess_1"), "antiphon", "slt", ServerVad::default());
        clients.publish(&event("created", ServerEvent::SessionCreated { session: Box::new(session) }));
        clients.publish(&draft("before", ""));
        let quick = clients.join().unwrap();
        let slow = clients.join().unwrap();
        assert_eq!((next_id(&quick).await.as_str(), next_id(&slow).await.as_str()), ("created", "created"));
        let long = draft("long", &"x".repeat(4 * MAX_WAITING_BYTES));
        clients.publish(&long);
        assert_eq!(next_id(&quick).await, "long");
        clients.publish(&draft("after", ""));
        assert_eq!(next_id(&quick).await, "after");
        assert!(slow.waiting.overflow.is_cancelled(), "one long event takes all room");
        assert!(!quick.waiting.overflow.is_cancelled());
    }

    #[test]
    fn a_call_has_places_for_a_few_clients() {
        let clients = Arc::new(JoinedClients::default());
        let joined: Vec<_> = (0..MAX_JOINED).map(|_| clients.join().unwrap()).collect();
        assert!(clients.join().is_none());
        drop(joined);
        assert!(clients.join().is_some());
    }
}
