//! Calls of accounts at providers (`[telephony.accounts]`): out, the provider calls, and connects who answers to the
//! hub's stream; in, those of a known account can be transferred.
//!
//! [`Accounts`] holds the accounts and the calls whose streams are expected. [`super::calls_out`] begins calls;
//! [`super::arrival`] brings streams, [`super`] Twilio's statuses, and [`Accounts::follow`] Asterisk's events. [`call`] is
//! a call out; [`answered`] serves it, and calls in, from the stream on; [`warm_transfer`] calls targets. They make no
//! difference between the providers.

mod answered;
mod ari;
mod ari_events;
mod asterisk_call;
mod call;
mod dial;
mod expected;
mod number;
mod provider;
mod rest;
mod twilio_call;
mod twilio_rest;
mod warm_transfer;

use super::call_reports::CallReports;
use super::leg::Parameters;
use super::outgoing::DialRights;
use super::reply_progress::ReplyTracker;
use super::tools::{CallTools, ToolSettings};
use super::transfer_requests::{CallTransfers, TransferRequests};
use crate::config::{AccountKind, Config, OnVoicemail, TelephonyAccount, TelephonyConfig, TransferTargets};
use crate::server::access::keys::Keys;
use crate::server::edge::client::Client;
use crate::server::transport::calls::CallState;
use crate::server::transport::recording::CallRecording;
use crate::server::transport::transfers::{DialError, ProviderError, Transfer};
pub(super) use answered::{AnsweredCall, serve_call_in};
use antiphon_engines::secret;
use antiphon_protocol::SessionUpdate;
use antiphon_telemetry::with_causes;
use antiphon_types::KeyId;
use ari::{Ari, EventFeed};
use asterisk_call::AsteriskCall;
pub(super) use call::dial;
pub(super) use expected::{ArrivedStream, SECRET_PARAMETER};
use expected::{CallStatus, ExpectedCall, ExpectedCalls};
use futures_util::future::join_all;
use number::number_of;
use provider::ProviderCall;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use tokio::sync::oneshot;
use tokio_util::task::TaskTracker;
pub(super) use twilio_call::STATUS_ROUTE;
use twilio_call::{TwilioCall, TwilioRedirect, twilio_target};
use twilio_rest::{TwilioRest, is_sid};

/// The address of Twilio's API, where the account names no other.
const TWILIO_API: &str = "https://api.twilio.com";

/// An account by which calls are made.
struct Account {
    name: Arc<str>,
    provider: Provider,
    /// Those that it calls from, at least one.
    numbers: Vec<String>,
    /// Name of the API key that may call by it; empty: any.
    key: String,
}

/// What makes the calls of an account.
enum Provider {
    Twilio {
        rest: Arc<TwilioRest>,
        /// Whether its auth token is that of `telephony.twilio_auth_token_env`.
        shares_token: bool,
    },
    Asterisk(Arc<Ari>),
}

/// What a call in of an account has.
pub(super) struct AccountCall {
    /// Transfers it for clients.
    pub(super) transfer: Arc<dyn Transfer>,
    /// Requests to transfer it warm.
    pub(super) requests: TransferRequests,
    /// The tools of its model, and what follows the reply for them; `None`: there are none.
    pub(super) tools: Option<(Arc<CallTools>, ReplyTracker)>,
    /// The account's name.
    pub(super) account: Arc<str>,
}

/// What a call began with, as far as the call to a target begins with it, too.
pub(super) struct CallOrigin {
    pub(super) client: Client,
    pub(super) owner: Option<KeyId>,
    /// The account's name.
    pub(super) account: Arc<str>,
    /// The number that it showed; `None`: the account's first is shown.
    pub(super) from: Option<String>,
    /// The settings of its session.
    pub(super) settings: Option<Arc<SessionUpdate>>,
}

/// See the module.
pub(in crate::server) struct Accounts {
    /// In the order of their names, at least one.
    accounts: Vec<Account>,
    /// Where Twilio reaches the hub: `https://host`, without a path.
    public_url: String,
    rights: Arc<DialRights>,
    reports: CallReports,
    on_voicemail: OnVoicemail,
    voicemail_message: String,
    transfer_to: TransferTargets,
    /// The tools of the model in their calls.
    tools: ToolSettings,
    expected: Arc<ExpectedCalls>,
}

impl Accounts {
    /// The accounts of the settings; `None`: there are none. Blocks for the time of small files.
    ///
    /// # Errors
    /// The hub has no public address, which Twilio needs, a secret cannot be read, or a key is none.
    pub(super) fn open(
        config: &Config,
        keys: &Keys,
        rights: Arc<DialRights>,
        reports: CallReports,
    ) -> io::Result<Option<Self>> {
        let settings = &config.telephony;
        if settings.accounts.is_empty() {
            return Ok(None);
        }
        if settings.needs_public_url() && config.server.public_url.is_empty() {
            return Err(io::Error::other(
                "telephony.accounts needs server.public_url: the address under which the provider reaches the hub",
            ));
        }
        let accounts = settings.accounts.iter().map(|(name, account)| {
            Account::open(name, account, &settings.twilio_auth_token_env, keys).map_err(io::Error::other)
        });
        Ok(Some(Self {
            accounts: accounts.collect::<Result<_, _>>()?,
            public_url: config.server.public_url.trim_end_matches('/').to_owned(),
            rights,
            reports,
            on_voicemail: config.sip.on_voicemail,
            voicemail_message: config.sip.voicemail_message.clone(),
            transfer_to: config.sip.transfer_targets(),
            tools: ToolSettings::of(&config.sip),
            expected: Arc::default(),
        }))
    }

    /// Follows the events of the accounts at Asterisk until it is dropped; resolves at once where there are none.
    pub(super) async fn follow(&self) {
        let followed = self.accounts.iter().filter_map(|account| match &account.provider {
            Provider::Twilio { .. } => None,
            Provider::Asterisk(ari) => Some(ari_events::follow(ari, &account.name, &self.expected)),
        });
        join_all(followed).await;
    }

    /// The auth token of `telephony.twilio_auth_token_env` has changed.
    pub(super) fn replace_auth_token(&self, token: &str) {
        for account in &self.accounts {
            if let Provider::Twilio { rest, shares_token: true } = &account.provider {
                rest.replace_token(token);
            }
        }
    }

    /// Replaces the auth tokens and passwords of the accounts of these names; the others keep theirs.
    pub(super) fn replace_secrets(&self, secrets: &BTreeMap<String, String>) {
        for account in &self.accounts {
            let Some(secret) = secrets.get(&*account.name) else { continue };
            match &account.provider {
                Provider::Twilio { rest, .. } => rest.replace_token(secret),
                Provider::Asterisk(ari) => ari.replace_password(secret),
            }
        }
    }

    /// Whether Twilio has signed this request for one of the accounts. See [`super::signature`].
    pub(super) fn have_signed(&self, signature: &str, urls: &[String], form: &[(String, String)]) -> bool {
        self.at_twilio().any(|(_, rest)| rest.has_signed(signature, urls, form))
    }

    /// Takes the place of the stream with this secret. `None`: no such call waits for its stream.
    pub(super) fn claim(&self, secret: &str) -> Option<oneshot::Sender<ArrivedStream>> {
        self.expected.claim(secret)
    }

    /// Takes what Twilio reports of the call with this id. `false`: Twilio has not signed it for the call's account,
    /// or, where the call is over, for any.
    pub(super) fn report(&self, id: &str, signature: &str, urls: &[String], form: &[(String, String)]) -> bool {
        let Some(name) = self.expected.account_of(id) else {
            return self.have_signed(signature, urls, form);
        };
        let account = self.at_twilio().find(|(account, _)| account.name == name);
        if !account.is_some_and(|(_, rest)| rest.has_signed(signature, urls, form)) {
            return false;
        }
        let status = form.iter().find(|(name, _)| name == "CallStatus").and_then(|(_, value)| status_of(value));
        if let Some(status) = status {
            self.expected.report(&name, id, status);
        }
        true
    }

    /// What the call of a stream that Twilio has signed has; `None`: its account is not known here. `tasks`: those of
    /// the server.
    pub(super) fn call_in(
        &self,
        stream: &Parameters,
        recording: &CallRecording,
        tasks: &TaskTracker,
    ) -> Option<AccountCall> {
        let account_sid = stream.get(super::twilio::ACCOUNT_PARAMETER)?;
        let call_sid = stream.get(super::twilio::CALL_PARAMETER).filter(|sid| is_sid(sid))?.to_owned();
        let (account, rest) = self.at_twilio().find(|(_, rest)| rest.account_sid() == account_sid)?;
        let redirect = Arc::new(TwilioRedirect::new(rest.clone(), call_sid, None));
        let caller = stream.get("from").map(str::to_owned);
        let (transfers, requests) = CallTransfers::new(Some(redirect), caller, tasks.clone());
        let tools = self.tools.open(&transfers, None, recording);
        let transfer = transfers.to(self.transfer_to.clone());
        Some(AccountCall { transfer, requests, tools, account: account.name.clone() })
    }

    /// The accounts at Twilio.
    fn at_twilio(&self) -> impl Iterator<Item = (&Account, &Arc<TwilioRest>)> {
        self.accounts.iter().filter_map(|account| match &account.provider {
            Provider::Twilio { rest, .. } => Some((account, rest)),
            Provider::Asterisk(_) => None,
        })
    }

    /// The account of this name, or the first.
    fn account(&self, name: Option<&str>) -> Result<&Account, DialError> {
        let Some(name) = name else { return self.accounts.first().ok_or(DialError::Off) };
        self.accounts.iter().find(|account| &*account.name == name).ok_or_else(|| {
            let known = self.accounts.iter().map(|account| &*account.name).collect::<Vec<_>>().join(", ");
            DialError::Wrong("account", format!("There is no account {name:?}. There are: {known}."))
        })
    }
}

impl Account {
    fn open(name: &str, account: &TelephonyAccount, shared_token_env: &str, keys: &Keys) -> Result<Self, String> {
        let secret = secret_of(name, account, shared_token_env)?;
        keys.check_name(&format!("telephony.accounts.{name}.key"), &account.key)?;
        let no_tls = |error: io::Error| format!("telephony.accounts.{name}: {error}");
        let provider = match account.kind {
            AccountKind::Twilio => {
                let api_url = if account.api_url.is_empty() { TWILIO_API } else { &account.api_url };
                let rest = TwilioRest::new(api_url, &account.account_sid, &secret).map_err(no_tls)?;
                let shares_token = account.secret_env(shared_token_env) == shared_token_env;
                Provider::Twilio { rest: Arc::new(rest), shares_token }
            }
            AccountKind::Asterisk => Provider::Asterisk(Arc::new(Ari::new(account, &secret).map_err(no_tls)?)),
        };
        Ok(Self { name: name.into(), provider, numbers: account.numbers.clone(), key: account.key.clone() })
    }

    /// The number that a call shows.
    fn caller(&self, from: Option<String>) -> Result<String, DialError> {
        match from {
            Some(from) if self.numbers.contains(&from) => Ok(from),
            Some(_) => {
                let numbers = self.numbers.join(", ");
                Err(DialError::Wrong("from", format!("The account {:?} calls from: {numbers}.", self.name)))
            }
            None => self.numbers.first().cloned().ok_or(DialError::Off),
        }
    }

    /// The target of a call as the provider takes it.
    fn target(&self, uri: &str) -> Result<String, DialError> {
        let (target, takes) = match &self.provider {
            Provider::Twilio { .. } => (twilio_target(uri), "Twilio calls \"tel:\" with a number, and \"sip:\"."),
            Provider::Asterisk(_) => (number_of(uri), "Asterisk calls \"tel:\" with a number."),
        };
        target.ok_or_else(|| DialError::Wrong("to", takes.into()))
    }

    /// Whether the provider can report what becomes of a call.
    fn check_connected(&self) -> Result<(), DialError> {
        let Provider::Asterisk(ari) = &self.provider else { return Ok(()) };
        let why = match ari.events() {
            EventFeed::Connected => return Ok(()),
            EventFeed::Disconnected => "the hub has no connection to Asterisk's events (ARI)",
            EventFeed::Taken => "another program has taken the account's Stasis application (ARI)",
        };
        Err(DialError::Provider(ProviderError::Unreachable(why)))
    }

    /// A call to such a target, which the provider does not know of yet. `public_url`: where Twilio reaches the hub.
    fn new_call(&self, public_url: &str, expected: &ExpectedCall, to: String, from: String) -> Arc<dyn ProviderCall> {
        match &self.provider {
            Provider::Twilio { rest, .. } => Arc::new(TwilioCall::new(rest.clone(), public_url, expected, to, from)),
            Provider::Asterisk(ari) => Arc::new(AsteriskCall::new(ari.clone(), expected, to, from)),
        }
    }
}

/// The secrets and keys for want of which [`Accounts::open`] would refuse these settings. Blocks for the time of small
/// files.
pub(super) fn problems(settings: &TelephonyConfig, keys: &Keys) -> Vec<String> {
    let shared = settings.twilio_auth_token_env.as_str();
    // That is one problem of the settings, not one of each account.
    let is_unreadable = secret::read(shared).is_err();
    let mut problems = Vec::new();
    for (name, account) in &settings.accounts {
        if !is_unreadable || account.secret_env(shared) != shared {
            problems.extend(secret_of(name, account, shared).err());
        }
        problems.extend(keys.check_name(&format!("telephony.accounts.{name}.key"), &account.key).err());
    }
    problems
}

/// The auth token or password of an account.
///
/// # Errors
/// It is missing, or cannot be read.
fn secret_of(name: &str, account: &TelephonyAccount, shared_token_env: &str) -> Result<String, String> {
    let variable = account.secret_env(shared_token_env);
    let secret = secret::read(variable);
    let secret = secret.map_err(|error| format!("telephony.accounts.{name}: {}", with_causes(&error)))?;
    secret.ok_or_else(|| {
        let what = account.kind.secret();
        let what_to_do = match (variable, account.kind) {
            ("", AccountKind::Twilio) => "name its variable in auth_token_env".to_owned(),
            ("", AccountKind::Asterisk) => "name its variable in password_env".to_owned(),
            _ => format!("set the environment variable {variable:?}, or, with _FILE, its file"),
        };
        format!("telephony.accounts.{name} has no {what}: {what_to_do}")
    })
}

/// Twilio's status of a call; `None`: it says nothing new.
fn status_of(name: &str) -> Option<CallStatus> {
    match name {
        "ringing" => Some(CallStatus::Ringing),
        "in-progress" => Some(CallStatus::Answered),
        "completed" | "canceled" => Some(CallStatus::Over(CallState::Ended)),
        "busy" => Some(CallStatus::Over(CallState::Busy)),
        "no-answer" => Some(CallStatus::Over(CallState::NoAnswer)),
        "failed" => Some(CallStatus::Over(CallState::Failed)),
        // "queued", "initiated"
        _ => None,
    }
}
