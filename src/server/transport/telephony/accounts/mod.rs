//! Calls out by accounts at providers (`[telephony.accounts]`): the provider calls, and connects who answers to the hub's
//! stream.
//!
//! [`Accounts`] holds the accounts and the calls whose streams are expected. [`super::calls_out`] dials by [`dial`];
//! [`super::conversation`] brings streams, and [`super`] statuses. [`twilio_call`] is one call.

mod expected;
mod twilio_call;
mod twilio_rest;
mod twilio_transfer;

use super::call_reports::CallReports;
use super::leg::Parameters;
use super::outgoing::DialRights;
use super::reply_progress::ReplyTracker;
use super::tools::{CallTools, ToolSettings};
use crate::config::{Config, OnVoicemail, TelephonyAccount, TelephonyConfig, TransferTargets};
use crate::server::access::keys::Keys;
use crate::server::transport::calls::CallState;
use crate::server::transport::transfers::{DialError, Transfer};
use antiphon_engines::secret;
use antiphon_telemetry::with_causes;
pub(super) use expected::ArrivedStream;
use expected::{CallStatus, ExpectedCalls};
use std::io;
use std::sync::Arc;
use tokio::sync::oneshot;
pub(super) use twilio_call::dial;
use twilio_rest::{TwilioRest, is_sid};
use twilio_transfer::TwilioTransfer;

/// The parameter of a stream that holds the secret of its call.
pub(super) const SECRET_PARAMETER: &str = "antiphon_call";
/// The pattern of the route of statuses.
pub(super) const STATUS_ROUTE: &str = "/v1/telephony/twilio/status";
/// The address of Twilio's API, where the account names no other.
const TWILIO_API: &str = "https://api.twilio.com";

/// An account by which calls are made.
struct Account {
    name: String,
    rest: Arc<TwilioRest>,
    /// Those that it calls from, at least one.
    numbers: Vec<String>,
    /// Name of the API key that may call by it; empty: any.
    key: String,
    /// Whether its auth token is that of `telephony.twilio_auth_token_env`.
    shares_token: bool,
}

/// What a call in of an account has.
pub(super) struct AccountCall {
    /// Transfers it for clients.
    pub(super) transfer: Arc<dyn Transfer>,
    /// The tools of its model, and what follows the reply for them; `None`: there are none.
    pub(super) tools: Option<(Arc<CallTools>, ReplyTracker)>,
}

/// See the module.
pub(in crate::server) struct Accounts {
    /// In the order of their names, at least one.
    accounts: Vec<Account>,
    /// Where providers reach the hub: `https://host`, without a path.
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
    /// The hub has no public address, an auth token cannot be read, or a key is none.
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
        if config.server.public_url.is_empty() {
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
            tools: ToolSettings::of_accounts(&config.sip),
            expected: Arc::default(),
        }))
    }

    /// The auth token of `telephony.twilio_auth_token_env` has changed.
    pub(super) fn replace_auth_token(&self, token: &str) {
        for account in self.accounts.iter().filter(|account| account.shares_token) {
            account.rest.replace_token(token);
        }
    }

    /// Whether Twilio has signed this request for one of the accounts. See [`super::signature`].
    pub(super) fn have_signed(&self, signature: &str, urls: &[String], form: &[(String, String)]) -> bool {
        self.accounts.iter().any(|account| account.rest.has_signed(signature, urls, form))
    }

    /// Takes the place of the stream with this secret. `None`: no such call waits for its stream.
    pub(super) fn claim(&self, secret: &str) -> Option<oneshot::Sender<ArrivedStream>> {
        self.expected.claim(secret)
    }

    /// Takes what Twilio reports of the call with this id. `false`: Twilio has not signed it for the call's account, or, where
    /// the call is over, for any.
    pub(super) fn report(&self, id: &str, signature: &str, urls: &[String], form: &[(String, String)]) -> bool {
        let Some((account, statuses)) = self.expected.statuses(id) else {
            return self.have_signed(signature, urls, form);
        };
        if !account.has_signed(signature, urls, form) {
            return false;
        }
        let status = form.iter().find(|(name, _)| name == "CallStatus").and_then(|(_, value)| status_of(value));
        // What does not fit is dropped: every wait for a status has a deadline.
        let _ = status.map(|status| statuses.try_send(status));
        true
    }

    /// What the call of a stream that Twilio has signed has; `None`: its account is not known here.
    pub(super) fn call_in(&self, stream: &Parameters) -> Option<AccountCall> {
        let account_sid = stream.get(super::twilio::ACCOUNT_PARAMETER)?;
        let call_sid = stream.get(super::twilio::CALL_PARAMETER).filter(|sid| is_sid(sid))?.to_owned();
        let account = self.accounts.iter().find(|account| account.rest.account_sid() == account_sid)?;
        let transfer = TwilioTransfer::new(account.rest.clone(), call_sid, None, self.transfer_to.clone());
        let by_model = Arc::new(transfer.to(self.tools.targets()));
        let tools = self.tools.open(by_model, None);
        Some(AccountCall { transfer: Arc::new(transfer), tools })
    }

    /// The account of this name, or the first.
    fn account(&self, name: Option<&str>) -> Result<&Account, DialError> {
        let Some(name) = name else { return self.accounts.first().ok_or(DialError::Off) };
        self.accounts.iter().find(|account| account.name == name).ok_or_else(|| {
            let known = self.accounts.iter().map(|account| account.name.as_str()).collect::<Vec<_>>().join(", ");
            DialError::Wrong("account", format!("There is no account {name:?}. There are: {known}."))
        })
    }
}

impl Account {
    fn open(name: &str, account: &TelephonyAccount, shared_token_env: &str, keys: &Keys) -> Result<Self, String> {
        let token = token_of(name, account, shared_token_env)?;
        check_key(name, account, keys)?;
        let api_url = if account.api_url.is_empty() { TWILIO_API } else { &account.api_url };
        let rest = TwilioRest::new(api_url, &account.account_sid, &token)
            .map_err(|error| format!("telephony.accounts.{name}: {error}"))?;
        Ok(Self {
            name: name.to_owned(),
            rest: Arc::new(rest),
            numbers: account.numbers.clone(),
            key: account.key.clone(),
            shares_token: account.auth_token_env.is_empty() || account.auth_token_env == shared_token_env,
        })
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
}

/// The auth tokens and keys for want of which [`Accounts::open`] would refuse these settings. Blocks for the time of
/// small files.
pub(super) fn problems(settings: &TelephonyConfig, keys: &Keys) -> Vec<String> {
    let shared = settings.twilio_auth_token_env.as_str();
    // That is one problem of the settings, not one of each account.
    let is_unreadable = secret::read(shared).is_err();
    let mut problems = Vec::new();
    for (name, account) in &settings.accounts {
        if !is_unreadable || !account.auth_token_env.is_empty() {
            problems.extend(token_of(name, account, shared).err());
        }
        problems.extend(check_key(name, account, keys).err());
    }
    problems
}

/// The auth token of an account.
///
/// # Errors
/// It is missing, or cannot be read.
fn token_of(name: &str, account: &TelephonyAccount, shared_token_env: &str) -> Result<String, String> {
    let own = account.auth_token_env.as_str();
    let variable = if own.is_empty() { shared_token_env } else { own };
    let token = secret::read(variable);
    let token = token.map_err(|error| format!("telephony.accounts.{name}: {}", with_causes(&error)))?;
    token.ok_or_else(|| {
        let what_to_do = match variable {
            "" => "name its variable in auth_token_env".to_owned(),
            _ => format!("set the environment variable {variable:?}, or, with _FILE, its file"),
        };
        format!("telephony.accounts.{name} has no auth token: {what_to_do}")
    })
}

/// Checks that the key that may call by an account is one of the hub's.
///
/// # Errors
/// It is none.
fn check_key(name: &str, account: &TelephonyAccount, keys: &Keys) -> Result<(), String> {
    if account.key.is_empty() || keys.id_by_name(&account.key).is_some() {
        return Ok(());
    }
    Err(format!("telephony.accounts.{name}.key: {:?} is no API key of this hub", account.key))
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
