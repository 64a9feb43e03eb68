//! Transfers of calls, and why a transfer or a call is not made.
//!
//! [`super::call_control`] and the tools of a call ask for transfers; [`super::telephony`] makes them. Nothing runs
//! here.

use axum::response::Response;
use futures_util::future::BoxFuture;
use std::time::Duration;

/// The longest summary for the target of a warm transfer: a minute of speech.
pub(super) const MAX_SUMMARY_BYTES: usize = 1_000;

/// Transfers a call.
pub(super) trait Transfer: Send + Sync {
    /// Asks the peer to call `target`, a URI, in the place of this hub. Resolves once the peer does that; the call ends when the
    /// target has answered, and goes on otherwise. Dropping the future withdraws nothing.
    fn transfer(&self, target: String) -> BoxFuture<'static, Result<(), TransferError>>;

    /// Has the hub call `target`, say `summary` to it, and connect it with the caller, who waits meanwhile. Resolves once
    /// they are connected and the agent has left, or the agent goes on with the caller: within some minutes. Dropping the
    /// future withdraws nothing.
    fn transfer_warm(&self, target: String, summary: String) -> BoxFuture<'static, Result<(), TransferError>>;
}

/// Why a call is not transferred.
#[derive(Debug)]
pub(super) enum TransferError {
    /// The target is no URI of SIP or of a telephone number.
    NoUri,
    /// The settings do not allow the target.
    NotAllowed,
    /// The target is the caller.
    ToCaller,
    /// The summary is empty, or has more than [`MAX_SUMMARY_BYTES`].
    Summary,
    /// Another transfer of the call is under way, or was made; or it is to be transferred warm before its answer.
    Underway,
    /// The peer refused with this status of SIP.
    Refused(u16),
    /// The provider of the call does not transfer it.
    Provider(ProviderError),
    /// Calls of this account are transferred warm only.
    NotBlind,
    /// The target is not called.
    NotDialed(DialError),
    /// The target was called and is not there.
    NotConnected(NotConnected),
    /// The call has ended.
    Ended,
}

/// What became of the target of a warm transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotConnected {
    Busy,
    Declined,
    NoAnswer,
    /// An answering machine, a menu, a screening or a fax machine answered.
    Machine,
    /// It answered, and hung up before it was connected.
    HungUp,
    Failed,
}

impl NotConnected {
    /// The code of the error.
    pub(super) fn code(self) -> &'static str {
        match self {
            Self::Busy => "target_busy",
            Self::Declined => "target_declined",
            Self::NoAnswer => "target_no_answer",
            Self::Machine => "target_machine",
            Self::HungUp => "target_hung_up",
            Self::Failed => "target_failed",
        }
    }

    /// For a client and for the model, as the end of a sentence.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Busy => "the target is busy",
            Self::Declined => "the target declined the call",
            Self::NoAnswer => "the target did not answer",
            Self::Machine => "a machine answered in the target's place",
            Self::HungUp => "the target answered and hung up",
            Self::Failed => "the call to the target failed",
        }
    }
}

/// Why a provider does not do what the hub asks for.
#[derive(Debug)]
pub(super) enum ProviderError {
    /// It refuses: for the client, in its words.
    Refused(String),
    /// It does not answer, or not as it should: the end of a sentence.
    Unreachable(&'static str),
}

/// Why a call is not made.
#[derive(Debug)]
pub(super) enum DialError {
    /// There is no account, and SIP is off, or no trunk has a host.
    Off,
    /// The settings do not allow the target.
    NotAllowed,
    /// It is the time in which nobody is called.
    QuietHours,
    /// The key has made as many calls in the last minute as it may; the time until the next one.
    TooManyPerMinute(Duration),
    /// A client secret, which a browser has, or a key that the trunk or the account does not belong to.
    NoRight,
    /// Something of the request is wrong: the field, and why.
    Wrong(&'static str, String),
    /// As many calls are being made as may be.
    TooMany,
    /// SIP has no room for another call, or too many wait to be dialed.
    NoRoom,
    /// The trunk's host is not known, or no port is free.
    Unavailable(&'static str),
    /// The provider of the account does not make the call.
    Provider(ProviderError),
    /// There is no place for the session.
    Refused(Box<Response>),
}
