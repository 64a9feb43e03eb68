//! One call out by Twilio: Twilio calls the target and connects who answers to the hub's stream, which brings the call's secret.
//!
//! [`dial`] begins it; its task waits for the stream, has the conversation and ends the call. The session's place is taken
//! before anything rings. Twilio's statuses only shorten waits: each has a deadline.

use super::expected::{ArrivedStream, CallStatus, ExpectedCall};
use super::twilio_rest::{NewTwilioCall, TwilioRest};
use super::twilio_transfer::{TwilioTransfer, twilio_target};
use super::{Accounts, SECRET_PARAMETER, STATUS_ROUTE};
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
use crate::server::transport::telephony::outgoing::{DialRequest, OutgoingEntry, RINGS, ROUTE, check_key, hold_line};
use crate::server::transport::telephony::reply_progress::ReplyTracker;
use crate::server::transport::telephony::tools::{CallTools, ToolSettings};
use crate::server::transport::telephony::{link, twiml};
use crate::server::transport::transfers::{DialError, ProviderError};
use antiphon_protocol::{SessionKind, SessionUpdate};
use antiphon_session::AudioMode;
use axum::response::IntoResponse;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until};

/// The transport's name, for logs and turn records: that of its stream.
const TRANSPORT: &str = "twilio";
/// From the end of the ringing to Twilio's report of it.
const REPORTED_WITHIN: Duration = Duration::from_secs(10);
/// From the answer to the stream.
const STREAM_WITHIN: Duration = Duration::from_secs(15);
/// Attempts to end a call, and the pause between two. One that stays unended has no stream any more, at which its TwiML ends.
const ENDING_ATTEMPTS: u32 = 3;
const ENDING_PAUSE: Duration = Duration::from_secs(1);

/// A call that Twilio does not know of yet.
struct PlannedCall {
    transport: Arc<TransportParts>,
    rest: Arc<TwilioRest>,
    client: Client,
    caller: Caller,
    settings: Option<Arc<SessionUpdate>>,
    admitted: SessionAdmission,
    expected: ExpectedCall,
    to: String,
    from: String,
    twiml: String,
    status_callback: String,
    greeting: Option<String>,
    on_voicemail: OnVoicemail,
    voicemail_message: String,
    transfer_to: TransferTargets,
    tools: ToolSettings,
    reports: CallReports,
    /// Its place among the calls at a time.
    place: OwnedSemaphorePermit,
}

/// A call that Twilio makes.
struct RingingCall {
    transport: Arc<TransportParts>,
    rest: Arc<TwilioRest>,
    call_sid: String,
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
    /// Whether Twilio has said that it is over.
    is_over: bool,
}

/// Begins a call, a task of the server's, and returns its id once Twilio has accepted it: within 10 s. The call's state is in
/// the list.
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
    let to = twilio_target(&to)
        .ok_or_else(|| DialError::Wrong("to", "Twilio calls \"tel:\" with a number, and \"sip:\".".into()))?;
    let from = account.caller(from)?;
    let place = accounts.rights.take(caller.owner)?;
    let admitted = admission::admit(&transport.sessions, client, caller.owner, ROUTE)
        .map_err(|refused| DialError::Refused(Box::new(refused.into_response())))?;
    let expected = accounts.expected.expect(account.rest.clone());
    let public = &accounts.public_url;
    let stream = format!("{}/v1/telephony/twilio", public.replacen("http", "ws", 1));
    let connect = twiml::stream(&stream, [(SECRET_PARAMETER, expected.secret.as_str())]);
    let planned = PlannedCall {
        transport: transport.clone(),
        rest: account.rest.clone(),
        client,
        caller,
        settings,
        admitted,
        to,
        from,
        twiml: twiml::document(&connect),
        status_callback: format!("{public}{}?call={}", STATUS_ROUTE, expected.id),
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
    /// Has Twilio make the call, says so by `begun`, and serves it until it ends.
    async fn serve(self, begun: oneshot::Sender<Result<String, DialError>>) {
        let rest = self.rest.clone();
        let new = NewTwilioCall {
            to: &self.to,
            from: &self.from,
            twiml: &self.twiml,
            status_callback: &self.status_callback,
            rings: RINGS,
        };
        let call_sid = match rest.call(new).await {
            Ok(call_sid) => call_sid,
            Err(error) => {
                tracing::info!(?error, "Twilio does not make a call");
                // Who asked for it may be gone.
                let _ = begun.send(Err(DialError::Provider(error)));
                return;
            }
        };
        let (ringing, _place) = self.begin(call_sid.clone()).await;
        let id = ringing.entry.id().to_owned();
        let is_over = match begun.send(Ok(id)) {
            Ok(()) => ringing.serve().await,
            // Who asked for it is gone.
            Err(_) => {
                drop(ringing);
                false
            }
        };
        if !is_over {
            end(&rest, &call_sid).await;
        }
    }

    /// Opens the session and lists the call.
    async fn begin(self, call_sid: String) -> (RingingCall, OwnedSemaphorePermit) {
        let Self { transport, rest, client, caller, settings, admitted, expected, from, transfer_to, tools, .. } = self;
        let transfer = TwilioTransfer::new(rest.clone(), call_sid.clone(), Some(from), transfer_to);
        let by_model = Arc::new(transfer.to(tools.targets()));
        let (tools, tracker) = tools.open(by_model, None).unzip();
        let access = &transport.sessions.access;
        let owner = caller.owner;
        let opening = CallOpening {
            mode: AudioMode::Pcm16,
            settings,
            model: None,
            intent: Some(SessionKind::Realtime),
            transport: TRANSPORT,
            route: ROUTE,
            tools: tools.as_ref().map(CallTools::server),
            llm: None,
        };
        let call = Call::begin(&transport.sessions, admitted, caller, opening);
        hold_line(&call).await;
        let id = call.session().as_str().to_owned();
        let new = NewCall {
            call,
            owner,
            transport: TRANSPORT,
            peer_id: Some(call_sid.clone()),
            offers: None,
            transfer: Some(Arc::new(transfer)),
        };
        let entry = OutgoingEntry::new(transport.calls.list(id, new), self.reports);
        if let Some(tools) = tools {
            tools.ends_by(entry.hung_up().clone());
        }
        let name = access.keys.name_of(owner);
        access.security.done("call.start", Act { client, owner, name: name.as_deref(), target: entry.id() }, "ok");
        let ringing = RingingCall {
            transport: transport.clone(),
            rest,
            call_sid,
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
    /// Waits for the stream and has the conversation. Gives whether the call is over at Twilio, as far as is known.
    async fn serve(mut self) -> bool {
        let mut is_answered = false;
        let stream = match self.answered(&mut is_answered).await {
            Ok(stream) => stream,
            Err(Unanswered { state, is_over }) => {
                self.entry.is_now(state);
                self.entry.call().conclude("not answered");
                tracing::info!(session = %self.entry.call().session(), ?state, "a call out by Twilio is not answered");
                return is_over;
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
        let over = tokio::select! {
            biased;
            over = conversation::converse(&self.transport, &self.entry, leg, &start, beginning, &mut link) => over,
            () = ended(statuses) => Over::Gone,
        };
        let session = self.entry.call().session().clone();
        self.entry.call().conclude(over.outcome());
        self.entry.is_now(CallState::Ended);
        drop(self.entry);
        tracing::info!(%session, peer = TRANSPORT, ?over, "the call is over");
        let (mut source, mut sink) = link;
        match over {
            Over::Gone => {
                link::end(&mut source, &mut sink, 1000, "the call has ended").await;
                true
            }
            Over::Close(code, reason) => {
                // The call ends at once, not when its stream has.
                tokio::join!(end(&self.rest, &self.call_sid), link::end(&mut source, &mut sink, code, &reason));
                true
            }
        }
    }

    /// Waits for the stream. `is_answered`: whether Twilio has said that it comes.
    async fn answered(&mut self, is_answered: &mut bool) -> Result<ArrivedStream, Unanswered> {
        let hung_up = self.entry.hung_up().clone();
        let given_up = |state| Unanswered { state, is_over: false };
        let mut until = Instant::now() + RINGS + REPORTED_WITHIN;
        let mut is_ringing = false;
        loop {
            tokio::select! {
                biased;
                () = hung_up.cancelled() => return Err(given_up(CallState::Ended)),
                stream = &mut self.expected.stream => return stream.map_err(|_| given_up(CallState::Failed)),
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
                    // It was answered, and its stream did not reach the hub.
                    Some(CallStatus::Over(CallState::Ended)) => {
                        return Err(Unanswered { state: CallState::Failed, is_over: true });
                    }
                    Some(CallStatus::Over(state)) => return Err(Unanswered { state, is_over: true }),
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

/// Resolves when Twilio says that the call is over. Cancel safe.
async fn ended(statuses: &mut mpsc::Receiver<CallStatus>) {
    loop {
        match statuses.recv().await {
            Some(CallStatus::Over(_)) => return,
            Some(CallStatus::Ringing | CallStatus::Answered) => {}
            None => std::future::pending().await,
        }
    }
}

/// Ends a call at Twilio, or gives it up while it rings.
async fn end(rest: &TwilioRest, call_sid: &str) {
    for attempt in 1..=ENDING_ATTEMPTS {
        match rest.end(call_sid).await {
            Ok(()) => return,
            Err(ProviderError::Refused(why)) => {
                // It has ended before.
                tracing::debug!(why, "Twilio does not end a call");
                return;
            }
            Err(ProviderError::Unreachable(why)) => {
                tracing::warn!(attempt, why, "Twilio did not end a call");
                sleep(ENDING_PAUSE).await;
            }
        }
    }
}
