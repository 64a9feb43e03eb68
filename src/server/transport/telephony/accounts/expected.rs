//! Calls out whose stream is expected: a secret, known once, brings the stream to its call, and an id the statuses.
//!
//! [`super::dial`] expects a call before the provider learns of it; the connection of a stream, the route of Twilio's
//! statuses and Asterisk's events look here. An entry is gone with its [`ExpectedCall`]: at most `sip.max_calls_out`.

use crate::server::access::keys;
use crate::server::transport::calls::CallState;
use crate::server::transport::telephony::leg::{Leg, Start};
use crate::server::transport::telephony::link::{Sink, Source};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::{mpsc, oneshot};

/// The parameter of a stream, or of its address, that holds the secret of its call.
pub(in crate::server::transport::telephony) const SECRET_PARAMETER: &str = "antiphon_call";
/// Statuses of one call that wait for its task; providers send four, and each may be repeated. Further ones are
/// dropped.
const MAX_STATUSES: usize = 16;

/// A stream that has begun with the secret of a call.
pub(in crate::server::transport::telephony) struct ArrivedStream {
    pub(in crate::server::transport::telephony) link: (Source, Sink),
    pub(in crate::server::transport::telephony) leg: Box<dyn Leg>,
    pub(in crate::server::transport::telephony) start: Start,
    /// Dropped once the call no longer needs the connection.
    pub(in crate::server::transport::telephony) over: oneshot::Sender<()>,
}

/// What a provider reports of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallStatus {
    Ringing,
    Answered,
    /// The provider's end of the stream can be connected.
    StreamReady,
    /// The provider cannot connect the stream, or its end of it has ended.
    StreamEnded,
    /// The provider has no such call.
    Unknown,
    /// It is over, and became this; one that was answered has [`CallState::Ended`].
    Over(CallState),
}

/// The calls whose streams are expected.
#[derive(Default)]
pub(super) struct ExpectedCalls(Mutex<ExpectedTable>);

#[derive(Default)]
struct ExpectedTable {
    /// By their secrets.
    streams: HashMap<String, oneshot::Sender<ArrivedStream>>,
    /// By their ids: the account's name, and where statuses go.
    statuses: HashMap<String, (Arc<str>, mpsc::Sender<CallStatus>)>,
}

/// A call whose stream is expected. Dropping it forgets the call.
pub(super) struct ExpectedCall {
    table: Arc<ExpectedCalls>,
    /// Brings the stream, once.
    pub(super) secret: String,
    /// Names the call in statuses. It proves nothing: Twilio's are signed, and Asterisk's come by a connection of the
    /// hub's.
    pub(super) id: String,
    pub(super) stream: oneshot::Receiver<ArrivedStream>,
    pub(super) statuses: mpsc::Receiver<CallStatus>,
}

impl ExpectedCalls {
    /// Expects a call of the account of this name.
    pub(super) fn expect(self: &Arc<Self>, account: Arc<str>) -> ExpectedCall {
        let secret = keys::make("call_");
        let id = keys::make("antiphon-");
        let (arrived, stream) = oneshot::channel();
        let (reported, statuses) = mpsc::channel(MAX_STATUSES);
        let mut table = self.lock();
        table.streams.insert(secret.clone(), arrived);
        table.statuses.insert(id.clone(), (account, reported));
        drop(table);
        ExpectedCall { table: self.clone(), secret, id, stream, statuses }
    }

    /// Takes the place of the stream with this secret: the first one has it.
    pub(super) fn claim(&self, secret: &str) -> Option<oneshot::Sender<ArrivedStream>> {
        self.lock().streams.remove(secret)
    }

    /// The account of the call with this id.
    pub(super) fn account_of(&self, id: &str) -> Option<Arc<str>> {
        self.lock().statuses.get(id).map(|(account, _)| account.clone())
    }

    /// The ids of an account's calls.
    pub(super) fn of_account(&self, name: &str) -> Vec<String> {
        let table = self.lock();
        let calls = table.statuses.iter().filter(|(_, (account, _))| **account == *name);
        calls.map(|(id, _)| id.clone()).collect()
    }

    /// Takes what the account of this name reports of its call with this id.
    pub(super) fn report(&self, account: &str, id: &str, status: CallStatus) {
        if let Some((owner, statuses)) = self.lock().statuses.get(id)
            && **owner == *account
        {
            // What does not fit is dropped: every wait for a status has a deadline.
            let _ = statuses.try_send(status);
        }
    }

    fn lock(&self) -> MutexGuard<'_, ExpectedTable> {
        self.0.lock().expect("no panic while locked")
    }
}

impl Drop for ExpectedCall {
    fn drop(&mut self) {
        let mut table = self.table.lock();
        table.streams.remove(&self.secret);
        table.statuses.remove(&self.id);
    }
}
