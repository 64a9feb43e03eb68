//! A session without a Realtime WebSocket of its own: what an adapter of another transport opens, feeds and reads.
//!
//! Each adapter authenticates its peer ([`crate::server::access::auth`]), then opens a [`Call`]. It has the limits, the
//! place, the entries in the log and the budgets that a session on a WebSocket has. It cannot be resumed and does not
//! move between hubs. This module spawns nothing and knows no wire format but the client's JSON ([`Call::send_text`]).

use crate::server::access::caller::Caller;
use crate::server::access::ephemeral_keys::read_settings;
use crate::server::edge::client::Client;
use crate::server::edge::inbound_budget::InboundBudget;
use crate::server::sessions::SessionParts;
use crate::server::sessions::admission::{self, LiveSession, SessionAdmission, SessionRefused};
use crate::server::sessions::heartbeat::HeartbeatReset;
use crate::server::sessions::parts::ConnectionCount;
use crate::server::sessions::socket::{SIGN_OF_LIFE, STUCK};
use crate::server::transport::hub_tools::HubServer;
use antiphon_engine_api::Engines;
use antiphon_engine_api::llm::Llm;
use antiphon_protocol::frame::MicrophoneFrame;
use antiphon_protocol::{Dialect, SessionKind, SessionUpdate, WireError};
use antiphon_session::{
    AudioMode, BudgetPermit, Close, Handle, Inbound, InboundPayload, Opening, Output, OutputAudio, OutputEvent,
    RecordingConsent, Setup,
};
use antiphon_types::{KeyId, Samples, SessionId};
use bytes::Bytes;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// What a call begins with.
pub(in crate::server) struct CallOpening {
    /// Binary modes only: how microphone and reply frames are coded. See [`AudioMode`].
    pub(in crate::server) mode: AudioMode,
    /// Settings over the hub's own. Where the caller's key is bound to settings, those count, and these do not.
    pub(in crate::server) settings: Option<Arc<SessionUpdate>>,
    /// The model that the peer names.
    pub(in crate::server) model: Option<String>,
    /// What the session is for; `None`: its first update or response decides.
    pub(in crate::server) intent: Option<SessionKind>,
    /// The transport, for the log and the turn records: `webrtc`.
    pub(in crate::server) transport: &'static str,
    /// The pattern of the route or the listener's name, for the security log.
    pub(in crate::server) route: &'static str,
    /// Whether the peer is a telephone.
    pub(in crate::server) by_phone: bool,
    /// Tools that the hub itself offers to the model.
    pub(in crate::server) tools: Option<HubServer>,
    /// What answers in the place of the hub's language model.
    pub(in crate::server) llm: Option<ModelChange>,
    /// What its peer decides about its recording; `None`: it is not asked.
    pub(in crate::server) recording_consent: Option<RecordingConsent>,
}

/// Makes what answers in the place of the language model that it gets.
pub(in crate::server) type ModelChange = Box<dyn FnOnce(Arc<dyn Llm>) -> Arc<dyn Llm> + Send>;

/// An open session. Dropping it ends the session.
///
/// All methods take `&self`. An adapter polls [`Call::next`] also while one of the methods that send waits: a session whose output
/// is not taken does not take input.
pub(in crate::server) struct Call {
    sessions: Arc<SessionParts>,
    handle: Handle,
    live: LiveSession,
    /// Why the session ended, for the audit log.
    outcome: OnceLock<String>,
    dialect: Dialect,
    budget: Arc<Semaphore>,
    /// The next microphone frame.
    sequence: AtomicU32,
    _connected: ConnectionCount,
}

/// Reads the settings of a call's session, JSON, and checks them as those of a `session.update` are.
///
/// # Errors
/// They are none that this hub takes.
pub(super) fn read_call_settings(
    sessions: &SessionParts,
    text: &str,
    owner: Option<KeyId>,
) -> Result<SessionUpdate, WireError> {
    let settings = read_settings(text, sessions.dialect())?;
    sessions.setup().describe(Some(&settings), owner)?;
    Ok(settings)
}

/// Reads the settings of a phone call's session, as [`read_call_settings`] does. Such a call is a conversation.
///
/// # Errors
/// They are none that this hub takes, or those of a session that only transcribes.
pub(super) fn read_phone_settings(
    sessions: &SessionParts,
    text: &str,
    owner: Option<KeyId>,
) -> Result<SessionUpdate, WireError> {
    let settings = read_call_settings(sessions, text, owner)?;
    if settings.kind == SessionKind::Transcription {
        let message = "Invalid value of 'session.type'. A phone call is a conversation: its session is 'realtime'.";
        return Err(WireError::invalid("invalid_value", message, Some("session.type")));
    }
    Ok(settings)
}

/// What a session gives.
#[derive(Debug, PartialEq)]
pub(in crate::server) enum CallOutput {
    /// A server event.
    Event(Box<OutputEvent>),
    /// One packet of reply audio.
    Audio(OutputAudio),
    /// The session has ended; the last output.
    Closed(Close),
}

/// What an event without words of the peer takes of the budget of inbound bytes.
pub(super) const EVENT_BYTES: usize = 256;

/// Why the session took no input. The call is over then: [`Call::next`] gives the rest of its output, and its close.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::server) enum InputClosed {
    /// The session has ended.
    #[error("the session has ended")]
    Ended,
    /// It took nothing for 10 s, or there was no room for the message in the budgets.
    #[error("the session cannot keep up")]
    Stuck,
}

/// Waits for work, during which the peer is not read: it is alive as far as is known, for its pongs are not read either.
pub(in crate::server) async fn alive<T>(reset: &HeartbeatReset, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return done,
            () = sleep(SIGN_OF_LIFE) => reset.renew(),
        }
    }
}

impl Call {
    /// Opens a session for an authenticated caller.
    ///
    /// # Errors
    /// A limit is reached, or there is no place.
    pub(in crate::server) fn open(
        sessions: &Arc<SessionParts>,
        client: Client,
        caller: Caller,
        opening: CallOpening,
    ) -> Result<Self, SessionRefused> {
        let admitted = admission::admit(sessions, client, caller.owner, opening.route)?;
        Ok(Self::begin(sessions, admitted, caller, opening))
    }

    /// The same for a caller that has its place.
    pub(in crate::server) fn begin(
        sessions: &Arc<SessionParts>,
        admitted: SessionAdmission,
        caller: Caller,
        opening: CallOpening,
    ) -> Self {
        let CallOpening { mode, settings, model, intent, transport, by_phone, tools, llm, recording_consent, .. } =
            opening;
        let dialect = sessions.dialect();
        let revoked = caller.lease(&sessions.access.keys);
        let opening = Opening {
            mode,
            dialect,
            model,
            intent,
            settings: caller.settings.or(settings),
            resume_key: None,
            owner: caller.owner,
            sees_causes: admitted.who.sees_causes(&sessions.access),
            snapshots: None,
            transport: Some(transport),
            by_phone,
            limits: Some(Arc::new(admitted.who.limits(&sessions.access))),
            language: caller.language,
            recording_consent,
        };
        let setup = sessions.setup_of_session();
        let setup = match tools {
            Some(tools) => tools.extend(&setup),
            None => setup,
        };
        let setup = match llm {
            Some(change) => {
                let llm = change(setup.engines.llm.clone());
                Arc::new(Setup { engines: Engines { llm, ..setup.engines.clone() }, ..Setup::clone(&setup) })
            }
            None => setup,
        };
        let handle = setup.open(opening);
        let mut live = LiveSession::new(sessions, &handle.id, transport, admitted, revoked);
        tracing::info!(session = %handle.id, ?mode, transport, "connected");
        live.started("session.start");
        let budget = InboundBudget::of_session();
        let sequence = AtomicU32::new(0);
        let _connected = sessions.connected();
        Self {
            sessions: sessions.clone(),
            handle,
            live,
            outcome: OnceLock::new(),
            dialect,
            budget,
            sequence,
            _connected,
        }
    }

    /// Says why the call ends, for the audit log; the first reason counts. Without one it is `ok`. Never words of the peer.
    pub(in crate::server) fn conclude(&self, outcome: impl Into<String>) {
        let _ = self.outcome.set(outcome.into());
    }

    /// The session's id.
    pub(in crate::server) fn session(&self) -> &SessionId {
        &self.handle.id
    }

    /// Gives the session a client's event, JSON. Waits while the session is behind, 10 s at most. One that cannot be parsed is
    /// answered with an `error` event. Cancel safe: a cancelled event was not sent.
    ///
    /// # Errors
    /// The session takes nothing any more.
    pub(in crate::server) async fn send_text(&self, json: &str) -> Result<(), InputClosed> {
        let permit = self.permit(json.len()).await?;
        self.send(self.dialect.parse(json).into(), permit).await
    }

    /// Gives the session an event of the adapter's, without words of the peer. Waits and is cancelled as [`Call::send_text`].
    ///
    /// # Errors
    /// The session takes nothing any more.
    pub(in crate::server) async fn send_event(&self, event: impl Into<InboundPayload>) -> Result<(), InputClosed> {
        self.send_read(event.into(), EVENT_BYTES).await
    }

    /// Gives the session what the adapter has read from a message of this many bytes. Waits and is cancelled as
    /// [`Call::send_text`].
    ///
    /// # Errors
    /// The session takes nothing any more.
    pub(in crate::server) async fn send_read(
        &self,
        payload: InboundPayload,
        n_bytes: usize,
    ) -> Result<(), InputClosed> {
        let permit = self.permit(n_bytes).await?;
        self.send(payload, permit).await
    }

    /// Gives the session the next frame of the microphone: `offset` of its first sample, at 24 kHz; PCM16 at 24 kHz or one Opus
    /// packet, as the mode says. Waits as [`Call::send_text`] does, and while the session's audio is ahead of a limit.
    ///
    /// # Errors
    /// The session takes nothing any more.
    pub(in crate::server) async fn push_audio(&self, offset: Samples, payload: Bytes) -> Result<(), InputClosed> {
        self.push_frame(self.sequence.fetch_add(1, Ordering::Relaxed), offset, payload).await
    }

    /// As [`Call::push_audio`], with a number of the adapter's, for transports that lose and reorder packets: the session
    /// restores the order and conceals what is lost. A call uses one of the two methods.
    ///
    /// # Errors
    /// The session takes nothing any more.
    pub(in crate::server) async fn push_frame(
        &self,
        sequence: u32,
        offset: Samples,
        payload: Bytes,
    ) -> Result<(), InputClosed> {
        // A frame holds at least one byte.
        if payload.is_empty() {
            return Ok(());
        }
        let until = *self.handle.read_from.borrow();
        if let Some(until) = until.filter(|until| *until > Instant::now()) {
            sleep_until(until).await;
        }
        let permit = self.permit(payload.len()).await?;
        self.send(InboundPayload::Audio(MicrophoneFrame { sequence, offset, payload }), permit).await
    }

    /// The session's next output, in order; calling it again says that the last one has left. Ends with
    /// [`CallOutput::Closed`]: the session ended, the key was revoked, or the server stops. For one reader. Cancel safe.
    pub(in crate::server) async fn next(&self) -> CallOutput {
        let output = tokio::select! {
            biased;
            close = self.revoked_or_stopped() => Err(close),
            output = self.handle.egress.next() => output,
        };
        match output {
            Ok(Output::Event(event)) => CallOutput::Event(event),
            Ok(Output::Audio(audio)) => CallOutput::Audio(audio),
            Err(close) => CallOutput::Closed(close),
        }
    }

    /// Resolves when the session has ended or is to end, for an adapter that cannot take its output now. What it has already said
    /// may still be taken by [`Call::next`]. Cancel safe.
    pub(in crate::server) async fn ended(&self) {
        tokio::select! {
            _ = self.revoked_or_stopped() => {}
            () = self.handle.egress.closed() => {}
        }
    }

    /// Ends the session, which nobody reads any more. The call keeps its place until it is dropped.
    pub(in crate::server) fn leave(&self) {
        self.handle.egress.close(Close { code: 1000, reason: "the call was transferred" });
        self.handle.stop();
    }

    /// Resolves when the call is to end though its session may have ended before: its key was revoked, or the server's
    /// drain time is over. Gives the close of its connection. Cancel safe.
    pub(in crate::server) async fn revoked_or_stopped(&self) -> Close {
        tokio::select! {
            biased;
            () = self.sessions.edge.kill.cancelled() => Close { code: 1001, reason: "the server is going away" },
            () = self.live.revoked().cancelled() => {
                Close { code: 1008, reason: "the API key of this session has been revoked" }
            }
        }
    }

    async fn permit(&self, n_bytes: usize) -> Result<BudgetPermit, InputClosed> {
        self.sessions.setup.metrics.bytes_in(n_bytes as u64);
        timeout(STUCK, self.sessions.edge.inbound.take(&self.budget, n_bytes)).await.map_err(|_| self.stuck())
    }

    async fn send(&self, payload: InboundPayload, permit: BudgetPermit) -> Result<(), InputClosed> {
        let inbound = Inbound { payload, budget: Some(permit) };
        match timeout(STUCK, self.handle.inbound.send(inbound)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(InputClosed::Ended),
            Err(_) => Err(self.stuck()),
        }
    }

    fn stuck(&self) -> InputClosed {
        self.handle.egress.close(Close { code: 1013, reason: "the session cannot keep up" });
        InputClosed::Stuck
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.live.ended(self.outcome.get().map_or("ok", String::as_str));
    }
}
