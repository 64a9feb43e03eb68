//! One call out by an account: its provider calls the target and connects who answers to the hub's stream, which brings
//! the call's secret.
//!
//! [`dial`] begins it; its task waits for the stream, has the conversation and ends the call. The session's place is
//! taken before anything rings. What the provider reports only shortens waits: each has a deadline. How the provider
//! does it is in [`super::provider`].

use super::Accounts;
use super::expected::{ArrivedStream, CallStatus, ExpectedCall};
use super::provider::{EndCause, ProviderCall};
use super::transfer::AccountTransfer;
use crate::config::{OnVoicemail, TransferTargets};
use crate::server::access::caller::Caller;
use crate::server::access::security::Act;
use crate::server::edge::client::Client;
use crate::server::sessions::admission::{self, SessionAdmission};
use crate::server::transport::call::{Call, CallOpening, CallOutput};
use crate::server::transport::calls::{CallState, NewCall};
use crate::server::transport::parts::TransportParts;
use crate::server::transport::telephony::call_reports::CallReports;
use crate::server::transport::telephony::conversation::{self, Beginning, Over};
use crate::server::transport::telephony::link;
use crate::server::transport::telephony::outgoing::{DialRequest, OutgoingEntry, RINGS, ROUTE, check_key, hold_line};
use crate::server::transport::telephony::reply_progress::ReplyTracker;
use crate::server::transport::telephony::tools::{CallTools, ToolSettings};
use crate::server::transport::transfers::{DialError, ProviderError, Transfer};
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

/// A call that its provider does not know of yet.
struct PlannedCall {
    transport: Arc<TransportParts>,
    provider: Arc<dyn ProviderCall>,
    client: Client,
    caller: Caller,
    settings: Option<Arc<SessionUpdate>>,
    admitted: SessionAdmission,
    expected: ExpectedCall,
    greeting: Option<String>,
    on_voicemail: OnVoicemail,
    voicemail_message: String,
    transfer_to: TransferTargets,
    tools: ToolSettings,
    reports: CallReports,
    /// Its place among the calls at a time.
    place: OwnedSemaphorePermit,
}

/// A call that its provider makes.
struct RingingCall {
    transport: Arc<TransportParts>,
    provider: Arc<dyn ProviderCall>,
    entry: OutgoingEntry,
    /// Follows the reply for the call's tools; `None`: it has none.
    tracker: Option<ReplyTracker>,
    expected: ExpectedCall,
    greeting: Option<String>,
    on_voicemail: OnVoicemail,
    voicemail_message: String,
}

/// A call that was not answered, or whose stream did not come.
struct Unanswered {
    state: CallState,
    cause: EndCause,
}

/// Begins a call, a task of the server's, and returns its id once the provider has accepted it: within 10 s. The call's
/// state is in the list.
///
/// # Errors
/// [`DialError`].
pub(in crate::server::transport::telephony) async fn dial(
    accounts: &Accounts,
    transport: &Arc<TransportParts>,
    (client, caller): (Client, Caller),
    request: DialRequest,
    settings: Option<Arc<SessionUpdate>>,
) -> Result<String, DialError> {
    request.check()?;
    let DialRequest { to, from, trunk: _, account, greeting, on_voicemail, voicemail_message } = request;
    accounts.rights.allow(&to)?;
    accounts.rights.check_time()?;
    let account = accounts.account(account.as_deref())?;
    check_key(&transport.sessions.access, &caller, &account.key)?;
    let to = account.target(&to)?;
    let from = account.caller(from)?;
    account.check_connected()?;
    let place = accounts.rights.take(caller.owner)?;
    let admitted = admission::admit(&transport.sessions, client, caller.owner, ROUTE)
        .map_err(|refused| DialError::Refused(Box::new(refused.into_response())))?;
    let expected = accounts.expected.expect(account.name.clone());
    let planned = PlannedCall {
        transport: transport.clone(),
        provider: account.new_call(&accounts.public_url, &expected, to, from),
        client,
        caller,
        settings,
        admitted,
        expected,
        greeting,
        on_voicemail: on_voicemail.unwrap_or(accounts.on_voicemail),
        voicemail_message: voicemail_message.unwrap_or_else(|| accounts.voicemail_message.clone()),
        transfer_to: accounts.transfer_to.clone(),
        tools: accounts.tools.clone(),
        reports: accounts.reports.clone(),
        place,
    };
    let (begun, has_begun) = oneshot::channel();
    transport.sessions.setup.tasks.spawn(planned.serve(begun));
    has_begun.await.unwrap_or(Err(DialError::Unavailable("the hub stops")))
}

impl PlannedCall {
    /// Has the provider make the call, says so by `begun`, and serves it until it ends.
    async fn serve(self, begun: oneshot::Sender<Result<String, DialError>>) {
        let provider = self.provider.clone();
        let peer_id = match provider.make().await {
            Ok(peer_id) => peer_id,
            Err(error) => {
                drop(self);
                tracing::info!(?error, transport = provider.transport(), "a call out is not made");
                let may_be_made = matches!(error, ProviderError::Unreachable(_));
                // Who asked for it may be gone.
                let _ = begun.send(Err(DialError::Provider(error)));
                if may_be_made {
                    provider.end(EndCause::Hub).await;
                }
                return;
            }
        };
        let (ringing, _place) = self.begin(peer_id).await;
        let id = ringing.entry.id().to_owned();
        match begun.send(Ok(id)) {
            Ok(()) => ringing.serve().await,
            // Who asked for it is gone.
            Err(_) => {
                drop(ringing);
                provider.end(EndCause::Hub).await;
            }
        }
    }

    /// Opens the session and lists the call.
    async fn begin(self, peer_id: String) -> (RingingCall, OwnedSemaphorePermit) {
        let Self { transport, provider, client, caller, settings, admitted, expected, transfer_to, tools, .. } = self;
        let transfer = provider.redirect().map(|call| AccountTransfer::new(call, transfer_to));
        let by_model = transfer.as_ref().map(|transfer| Arc::new(transfer.to(tools.targets())) as Arc<dyn Transfer>);
        let (tools, tracker) = tools.open(by_model, provider.keys()).unzip();
        let access = &transport.sessions.access;
        let owner = caller.owner;
        let opening = CallOpening {
            mode: AudioMode::Pcm16,
            settings,
            model: None,
            intent: Some(SessionKind::Realtime),
            transport: provider.transport(),
            route: ROUTE,
            by_phone: true,
            tools: tools.as_ref().map(CallTools::server),
            llm: None,
        };
        let call = Call::begin(&transport.sessions, admitted, caller, opening);
        hold_line(&call).await;
        let id = call.session().as_str().to_owned();
        let new = NewCall {
            call,
            owner,
            transport: provider.transport(),
            peer_id: Some(peer_id),
            offers: None,
            transfer: transfer.map(|transfer| Arc::new(transfer) as Arc<dyn Transfer>),
        };
        let entry = OutgoingEntry::new(transport.calls.list(id, new), self.reports);
        if let Some(tools) = tools {
            tools.ends_by(entry.hung_up().clone());
        }
        let name = access.keys.name_of(owner);
        access.security.done("call.start", Act { client, owner, name: name.as_deref(), target: entry.id() }, "ok");
        let ringing = RingingCall {
            transport: transport.clone(),
            provider,
            entry,
            tracker,
            expected,
            greeting: self.greeting,
            on_voicemail: self.on_voicemail,
            voicemail_message: self.voicemail_message,
        };
        (ringing, self.place)
    }
}

impl RingingCall {
    /// Waits for the stream, has the conversation and ends the call.
    async fn serve(mut self) {
        let provider = self.provider.clone();
        let mut is_answered = false;
        let stream = match self.connected(&mut is_answered).await {
            Ok(stream) => stream,
            Err(Unanswered { state, cause }) => {
                self.entry.is_now(state);
                self.entry.call().conclude("not answered");
                let session = self.entry.call().session();
                tracing::info!(%session, peer = provider.transport(), ?state, "a call out is not answered");
                drop(self);
                provider.end(cause).await;
                return;
            }
        };
        if !is_answered {
            self.entry.is_now(CallState::InProgress);
        }
        let ArrivedStream { mut link, leg, start, over: _connection } = stream;
        let plan = self.entry.plan(self.on_voicemail, self.voicemail_message);
        let beginning =
            Beginning { greeting: self.greeting, tracker: self.tracker, answer: Some(plan), ..Beginning::default() };
        let statuses = &mut self.expected.statuses;
        let mut cause = EndCause::Reported;
        let over = tokio::select! {
            biased;
            over = conversation::converse(&self.transport, &self.entry, leg, &start, beginning, &mut link) => {
                cause = if matches!(over, Over::Gone) { EndCause::StreamEnded } else { EndCause::Hub };
                over
            }
            reported = ended(statuses) => {
                cause = reported;
                Over::Gone
            }
            () = provider.left() => Over::Gone,
        };
        let session = self.entry.call().session().clone();
        self.entry.call().conclude(over.outcome());
        self.entry.is_now(CallState::Ended);
        drop(self.entry);
        tracing::info!(%session, peer = provider.transport(), ?over, "the call is over");
        let (mut source, mut sink) = link;
        let (code, reason) = match over {
            Over::Gone => (1000, "the call has ended".into()),
            Over::Close(code, reason) => (code, reason),
        };
        // The call ends at once, not when its stream has.
        tokio::join!(provider.end(cause), link::end(&mut source, &mut sink, code, &reason));
    }

    /// Waits until the call is answered and connected with its stream. `is_answered`: whether the provider has said
    /// that it is answered.
    async fn connected(&mut self, is_answered: &mut bool) -> Result<ArrivedStream, Unanswered> {
        let hung_up = self.entry.hung_up().clone();
        let provider = self.provider.clone();
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

/// Resolves when the provider says that the call is over. Cancel safe.
async fn ended(statuses: &mut mpsc::Receiver<CallStatus>) -> EndCause {
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
