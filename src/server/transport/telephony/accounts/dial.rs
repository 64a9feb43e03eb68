//! The dialing of calls by accounts: the provider calls the target and connects who answers to the hub's stream, which
//! brings the call's secret.
//!
//! [`super::call`] dials what clients ask for, [`super::warm_transfer`] the targets of transfers. The session's place is
//! taken before anything rings. What the provider reports only shortens waits: each has a deadline. How the provider
//! does it is in [`super::provider`].

use super::expected::{ArrivedStream, CallStatus, ExpectedCall};
use super::provider::{CallAtProvider, EndCause, ProviderCall};
use super::{Accounts, CallOrigin};
use crate::config::{OnVoicemail, TransferTargets};
use crate::server::access::caller::Caller;
use crate::server::access::security::Act;
use crate::server::edge::client::Client;
use crate::server::sessions::admission::{self, SessionAdmission};
use crate::server::transport::call::{Call, CallOpening, CallOutput};
use crate::server::transport::calls::{CallState, NewCall};
use crate::server::transport::parts::TransportParts;
use crate::server::transport::telephony::answerer::AnswerPlan;
use crate::server::transport::telephony::call_reports::CallReports;
use crate::server::transport::telephony::number_language::language_of_number;
use crate::server::transport::telephony::outgoing::{OutgoingEntry, RINGS, ROUTE, hold_line};
use crate::server::transport::telephony::recital::Recital;
use crate::server::transport::telephony::recording_notice::{PhoneRecording, RecordingNotice};
use crate::server::transport::telephony::reply_progress::ReplyTracker;
use crate::server::transport::telephony::tools::{CallTools, ToolSettings};
use crate::server::transport::telephony::transfer_requests::{CallTransfers, TransferRequests};
use crate::server::transport::transfers::{DialError, ProviderError};
use antiphon_protocol::{SessionKind, SessionUpdate};
use antiphon_session::AudioMode;
use axum::response::IntoResponse;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

/// From the end of the ringing to the provider's report of it.
const REPORTED_WITHIN: Duration = Duration::from_secs(10);
/// From the answer to the stream.
const STREAM_WITHIN: Duration = Duration::from_secs(15);

/// A call to a target that may be called.
pub(super) struct NewDial {
    /// A URI.
    pub(super) to: String,
    /// One of the account's numbers; `None`: the first.
    pub(super) from: Option<String>,
    /// The account by its name; `None`: the first.
    pub(super) account: Option<String>,
    /// The settings of its session.
    pub(super) settings: Option<Arc<SessionUpdate>>,
    /// What its session says in the place of a model's replies; `None`: it has a model.
    pub(super) recital: Option<String>,
}

/// A call that its provider does not know of yet.
struct PlannedCall {
    transport: Arc<TransportParts>,
    provider: Arc<dyn ProviderCall>,
    caller: Caller,
    /// The target, as the client or the model has named it.
    to: String,
    recital: Option<String>,
    origin: CallOrigin,
    admitted: SessionAdmission,
    expected: ExpectedCall,
    on_voicemail: OnVoicemail,
    voicemail_message: String,
    transfer_to: TransferTargets,
    tools: ToolSettings,
    reports: CallReports,
    /// Its place among the calls at a time.
    place: OwnedSemaphorePermit,
}

/// A call that its provider makes. Dropping it gives the call up.
pub(super) struct RingingCall {
    pub(super) entry: OutgoingEntry,
    at_provider: CallAtProvider,
    /// Follows the reply for the call's tools; `None`: it has none.
    tracker: Option<ReplyTracker>,
    /// Requests to transfer it.
    requests: TransferRequests,
    expected: ExpectedCall,
    pub(super) greeting: Option<String>,
    /// Said before that; `None`: nothing is.
    notice: Option<RecordingNotice>,
    pub(super) on_voicemail: OnVoicemail,
    pub(super) voicemail_message: String,
    origin: CallOrigin,
    place: OwnedSemaphorePermit,
}

/// What was answered of a [`RingingCall`], and the rest of it.
pub(super) struct AnsweredDial {
    pub(super) entry: OutgoingEntry,
    pub(super) at_provider: CallAtProvider,
    pub(super) stream: ArrivedStream,
    pub(super) tracker: Option<ReplyTracker>,
    pub(super) requests: TransferRequests,
    pub(super) expected: ExpectedCall,
    pub(super) greeting: Option<String>,
    /// Said before that; `None`: nothing is.
    pub(super) notice: Option<RecordingNotice>,
    /// What the call does about who has answered.
    pub(super) plan: AnswerPlan,
    pub(super) origin: CallOrigin,
    pub(super) place: OwnedSemaphorePermit,
}

/// A call that was not answered, or whose stream did not come.
struct Unanswered {
    state: CallState,
    cause: EndCause,
}

/// Begins a call to a target that the settings allow, within the limits of calls out, by an account that the caller may
/// call by. Returns once the provider has accepted it: within 10 s. Dropping the future gives the call up.
///
/// # Errors
/// [`DialError`].
pub(super) async fn begin(
    accounts: &Accounts,
    transport: &Arc<TransportParts>,
    client: Client,
    caller: Caller,
    new: NewDial,
) -> Result<RingingCall, DialError> {
    let NewDial { to, from, account, settings, recital } = new;
    accounts.rights.check_time()?;
    let account = accounts.account(account.as_deref())?;
    let target = account.target(&to)?;
    let from = account.caller(from)?;
    account.check_connected()?;
    let owner = caller.owner;
    let place = accounts.rights.take(owner)?;
    let admitted = admission::admit(&transport.sessions, client, owner, ROUTE)
        .map_err(|refused| DialError::Refused(Box::new(refused.into_response())))?;
    let expected = accounts.expected.expect(account.name.clone());
    let provider = account.new_call(&accounts.public_url, &expected, target, from.clone());
    let origin = CallOrigin { client, owner, account: account.name.clone(), from: Some(from), settings };
    let planned = PlannedCall {
        transport: transport.clone(),
        provider,
        caller,
        to,
        recital,
        origin,
        admitted,
        expected,
        on_voicemail: accounts.on_voicemail,
        voicemail_message: accounts.voicemail_message.clone(),
        transfer_to: accounts.transfer_to.clone(),
        tools: accounts.tools.clone(),
        reports: accounts.reports.clone(),
        place,
    };
    let (begun, has_begun) = oneshot::channel();
    // What the provider answers is read in any case: it may have made the call.
    transport.sessions.setup.tasks.spawn(planned.make(begun));
    has_begun.await.unwrap_or(Err(DialError::Unavailable("the hub stops")))
}

impl PlannedCall {
    /// Has the provider make the call, and gives it to `begun`. Where nobody waits there any more, it is given up.
    async fn make(self, begun: oneshot::Sender<Result<RingingCall, DialError>>) {
        let at_provider = CallAtProvider::new(self.provider.clone(), self.transport.sessions.setup.tasks.clone());
        let made = self.provider.make().await;
        let result = match made {
            Ok(peer_id) => Ok(self.begin(peer_id, at_provider).await),
            Err(error) => {
                tracing::info!(?error, transport = self.provider.transport(), "a call out is not made");
                drop(self);
                if matches!(error, ProviderError::Refused(_)) {
                    at_provider.forget();
                }
                Err(DialError::Provider(error))
            }
        };
        // Who asked for it may be gone.
        let _ = begun.send(result);
    }

    /// Opens the session and lists the call.
    async fn begin(self, peer_id: String, at_provider: CallAtProvider) -> RingingCall {
        let Self { transport, provider, caller, to, recital, origin, admitted, expected, place, .. } = self;
        // The called person speaks, not the client that requested the call.
        let caller = Caller { language: language_of_number(&to), ..caller };
        let tasks = transport.sessions.setup.tasks.clone();
        let (transfers, requests) = CallTransfers::new(provider.redirect(), Some(to), tasks);
        let PhoneRecording { recording, notice } = match recital {
            Some(_) => PhoneRecording::of_target(),
            None => transport.telephony.recording.of_call(),
        };
        let tools = match recital {
            Some(_) => None,
            None => self.tools.open(&transfers, provider.keys(), &recording),
        };
        let (tools, tracker) = tools.unzip();
        let access = &transport.sessions.access;
        let CallOrigin { client, owner, .. } = origin;
        let opening = CallOpening {
            mode: AudioMode::Pcm16,
            settings: origin.settings.clone(),
            model: None,
            intent: Some(SessionKind::Realtime),
            transport: provider.transport(),
            route: ROUTE,
            by_phone: true,
            tools: tools.as_ref().map(CallTools::server),
            llm: match recital {
                Some(text) => Some(Recital::in_place(text)),
                None => notice.as_ref().map(RecordingNotice::before_model),
            },
            recording_consent: recording.consent(),
        };
        let call = Call::begin(&transport.sessions, admitted, caller, opening);
        hold_line(&call).await;
        let id = call.session().as_str().to_owned();
        let transfer = Some(transfers.to(self.transfer_to));
        let peer_id = Some(peer_id);
        let transport_name = provider.transport();
        let new = NewCall { call, owner, transport: transport_name, peer_id, offers: None, transfer, recording };
        let entry = OutgoingEntry::new(transport.calls.list(id, new), self.reports);
        if let Some(tools) = tools {
            tools.ends_by(entry.hung_up().clone());
        }
        let name = access.keys.name_of(owner);
        access.security.done("call.start", Act { client, owner, name: name.as_deref(), target: entry.id() }, "ok");
        RingingCall {
            entry,
            at_provider,
            tracker,
            requests,
            expected,
            greeting: None,
            notice,
            on_voicemail: self.on_voicemail,
            voicemail_message: self.voicemail_message,
            origin,
            place,
        }
    }
}

impl RingingCall {
    /// Waits until the call is answered and connected with its stream. Where it is not, that is listed, reported and
    /// given.
    pub(super) async fn answered(mut self) -> Result<AnsweredDial, CallState> {
        let mut is_answered = false;
        let stream = match self.connected(&mut is_answered).await {
            Ok(stream) => stream,
            Err(Unanswered { state, cause }) => {
                self.entry.is_now(state);
                self.entry.call().conclude("not answered");
                let session = self.entry.call().session();
                let peer = self.at_provider.call().transport();
                tracing::info!(%session, peer, ?state, "a call out is not answered");
                self.at_provider.is_over(cause);
                return Err(state);
            }
        };
        if !is_answered {
            self.requests.begin();
            self.entry.is_now(CallState::InProgress);
        }
        let Self { entry, at_provider, tracker, requests, expected, greeting, notice, origin, place, .. } = self;
        let plan = entry.plan(self.on_voicemail, self.voicemail_message);
        Ok(AnsweredDial {
            entry,
            at_provider,
            stream,
            tracker,
            requests,
            expected,
            greeting,
            notice,
            plan,
            origin,
            place,
        })
    }

    /// Waits until the call is answered and connected with its stream. `is_answered`: whether the provider has said
    /// that it is answered.
    async fn connected(&mut self, is_answered: &mut bool) -> Result<ArrivedStream, Unanswered> {
        let hung_up = self.entry.hung_up().clone();
        let provider = self.at_provider.call().clone();
        let given_up = |state| Unanswered { state, cause: EndCause::Hub };
        let mut until = Instant::now() + RINGS + REPORTED_WITHIN;
        let mut is_ringing = false;
        let mut arrived = None;
        let mut connecting = None;
        let mut is_connected = false;
        loop {
            if is_connected && let Some(stream) = arrived.take() {
                return Ok(stream);
            }
            // Some providers report the answer after the stream.
            let may_connect = *is_answered || arrived.is_some();
            if may_connect && !is_connected && connecting.is_none() {
                connecting = Some(provider.connect());
            }
            let connected = async {
                match &mut connecting {
                    Some(connecting) => connecting.await,
                    None => pending().await,
                }
            };
            tokio::select! {
                biased;
                () = hung_up.cancelled() => return Err(given_up(CallState::Ended)),
                connected = connected => {
                    if let Err(error) = connected {
                        tracing::warn!(?error, peer = provider.transport(), "a call out is not connected");
                        return Err(given_up(CallState::Failed));
                    }
                    connecting = None;
                    is_connected = true;
                }
                stream = &mut self.expected.stream, if arrived.is_none() => match stream {
                    Ok(stream) => arrived = Some(stream),
                    Err(_) => return Err(given_up(CallState::Failed)),
                },
                status = self.expected.statuses.recv() => match status {
                    Some(CallStatus::Ringing) if !is_ringing && !*is_answered => {
                        is_ringing = true;
                        self.entry.is_now(CallState::Ringing);
                    }
                    Some(CallStatus::Answered) if !*is_answered => {
                        *is_answered = true;
                        // From its report on a client may ask for a transfer, which waits for the stream.
                        self.requests.begin();
                        self.entry.is_now(CallState::InProgress);
                        until = Instant::now() + STREAM_WITHIN;
                    }
                    Some(CallStatus::StreamReady) => provider.stream_ready(),
                    Some(CallStatus::StreamEnded | CallStatus::Unknown) => return Err(given_up(CallState::Failed)),
                    Some(CallStatus::Over(state)) => {
                        // One that ended in the usual way was answered, and its stream did not reach the hub.
                        let state = if state == CallState::Ended { CallState::Failed } else { state };
                        return Err(Unanswered { state, cause: EndCause::Reported });
                    }
                    Some(CallStatus::Ringing | CallStatus::Answered) | None => {}
                },
                () = sleep_until(until) => {
                    return Err(given_up(if *is_answered { CallState::Failed } else { CallState::NoAnswer }));
                }
                // A session whose output nobody takes ends after 10 s.
                output = self.entry.call().next() => match output {
                    CallOutput::Event(event) => self.entry.publish_unanswered(&event),
                    // None comes: what has sound waits for the answer.
                    CallOutput::Audio(_) => {}
                    CallOutput::Closed(_) => return Err(given_up(CallState::Ended)),
                },
            }
        }
    }
}

/// Resolves when the provider says that the call is over, or when it has left the hub by a transfer. Cancel safe.
pub(super) async fn ended(statuses: &mut mpsc::Receiver<CallStatus>, call: &dyn ProviderCall) -> EndCause {
    tokio::select! {
        biased;
        cause = reported_end(statuses) => cause,
        () = call.left() => EndCause::Reported,
    }
}

/// Resolves when the provider says that the call is over. Cancel safe.
async fn reported_end(statuses: &mut mpsc::Receiver<CallStatus>) -> EndCause {
    loop {
        match statuses.recv().await {
            Some(CallStatus::Over(_)) => return EndCause::Reported,
            // A call that is unknown because the provider was asked too early is ended, too.
            Some(CallStatus::Unknown) => return EndCause::Hub,
            Some(CallStatus::Ringing | CallStatus::Answered | CallStatus::StreamReady | CallStatus::StreamEnded) => {}
            None => pending().await,
        }
    }
}
