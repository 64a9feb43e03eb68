//! The requests of one Twilio account to Twilio's REST API: a call is made, ended, or told what to do next.
//!
//! [`super::twilio_call`] calls it. The auth token is in no error, log or `Debug` output.

use super::provider::EndError;
use super::rest::{RestClient, words_of};
use crate::server::transport::telephony::signature::AuthToken;
use crate::server::transport::transfers::ProviderError;
use arc_swap::ArcSwap;
use reqwest::{Method, StatusCode};
use serde::Deserialize;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use url::form_urlencoded;

/// Characters of an identifier of Twilio's: it has 34.
const MAX_SID_CHARS: usize = 64;

/// A call that is to be made.
pub(super) struct NewTwilioCall<'a> {
    pub(super) to: &'a str,
    pub(super) from: &'a str,
    /// What becomes of it once it is answered.
    pub(super) twiml: &'a str,
    /// Where Twilio reports how far it is.
    pub(super) status_callback: &'a str,
    /// How long it rings.
    pub(super) rings: Duration,
}

/// See the module.
pub(super) struct TwilioRest {
    rest: RestClient,
    /// `https://api.twilio.com/2010-04-01/Accounts/AC.../Calls`
    calls: String,
    account_sid: String,
    token: ArcSwap<Token>,
}

struct Token {
    text: String,
    /// What Twilio signs its requests with.
    key: AuthToken,
}

/// What Twilio answers; an error has `code` and `message`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct TwilioAnswer {
    sid: Option<String>,
    code: Option<u64>,
    message: Option<String>,
}

/// A response of Twilio's.
struct TwilioResponse {
    status: StatusCode,
    body: Vec<u8>,
    /// That of the request.
    token: Arc<Token>,
}

impl TwilioRest {
    /// The requests of this account at this address of the API.
    ///
    /// # Errors
    /// There is no TLS.
    pub(super) fn new(api_url: &str, account_sid: &str, token: &str) -> io::Result<Self> {
        let rest = RestClient::new("Twilio")?;
        let calls = format!("{}/2010-04-01/Accounts/{account_sid}/Calls", api_url.trim_end_matches('/'));
        let token = ArcSwap::from_pointee(Token::new(token));
        Ok(Self { rest, calls, account_sid: account_sid.to_owned(), token })
    }

    /// The account's identifier.
    pub(super) fn account_sid(&self) -> &str {
        &self.account_sid
    }

    /// This auth token counts from now on.
    pub(super) fn replace_token(&self, token: &str) {
        self.token.store(Arc::new(Token::new(token)));
    }

    /// Whether Twilio has signed this request for the account. See [`AuthToken::has_signed`].
    pub(super) fn has_signed(&self, signature: &str, urls: &[String], form: &[(String, String)]) -> bool {
        self.token.load().key.has_signed(signature, urls, form)
    }

    /// Has Twilio make a call, and gives Twilio's identifier of it once Twilio has accepted that.
    ///
    /// # Errors
    /// [`ProviderError`].
    pub(super) async fn call(&self, new: NewTwilioCall<'_>) -> Result<String, ProviderError> {
        let NewTwilioCall { to, from, twiml, status_callback, rings } = new;
        let rings = rings.as_secs().to_string();
        let fields =
            [("To", to), ("From", from), ("Twiml", twiml), ("StatusCallback", status_callback), ("Timeout", &rings)];
        let events = ["initiated", "ringing", "answered", "completed"].map(|event| ("StatusCallbackEvent", event));
        let form: Vec<_> = fields.into_iter().chain(events).collect();
        let answer = self.post(format!("{}.json", self.calls), &form).await?;
        let sid = answer.sid.filter(|sid| is_sid(sid));
        sid.ok_or(ProviderError::Unreachable("its answer names no call"))
    }

    /// Ends a call, or gives it up.
    ///
    /// # Errors
    /// [`EndError`].
    pub(super) async fn end(&self, call_sid: &str) -> Result<(), EndError> {
        let answer = self.send(self.call_url(call_sid), &[("Status", "completed")]).await?;
        if answer.status.is_success() {
            return Ok(());
        }
        // Without a code it is the answer of another server at this address. An ended call gets 400.
        let is_over = answer.error().code.is_some() && matches!(answer.status.as_u16(), 400 | 404 | 409 | 410);
        Err(EndError::of(answer.status, is_over, answer.words()))
    }

    /// Has a call go on with other TwiML: its stream ends.
    ///
    /// # Errors
    /// [`ProviderError`].
    pub(super) async fn go_on(&self, call_sid: &str, twiml: &str) -> Result<(), ProviderError> {
        self.post(self.call_url(call_sid), &[("Twiml", twiml)]).await.map(drop)
    }

    fn call_url(&self, call_sid: &str) -> String {
        format!("{}/{call_sid}.json", self.calls)
    }

    async fn post(&self, url: String, form: &[(&str, &str)]) -> Result<TwilioAnswer, ProviderError> {
        let response = self.send(url, form).await?;
        if response.status.is_success() {
            return serde_json::from_slice(&response.body)
                .map_err(|_| ProviderError::Unreachable("its answer is no JSON"));
        }
        Err(ProviderError::Refused(response.words()))
    }

    async fn send(&self, url: String, form: &[(&str, &str)]) -> Result<TwilioResponse, ProviderError> {
        let token = self.token.load_full();
        let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
        let request = self
            .rest
            .request(Method::POST, &url)
            .basic_auth(&self.account_sid, Some(&token.text))
            .header("content-type", "application/x-www-form-urlencoded")
            .body(body);
        let (status, body) = self.rest.send(request).await?;
        Ok(TwilioResponse { status, body, token })
    }
}

impl TwilioResponse {
    /// What it says where Twilio refuses; empty: it is no answer of Twilio's.
    fn error(&self) -> TwilioAnswer {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The same in words, for clients and the log.
    fn words(&self) -> String {
        let TwilioAnswer { code, message, .. } = self.error();
        let words = words_of(message.as_deref(), self.status, &self.token.text);
        match code {
            Some(code) => format!("{words} (Twilio's error {code})"),
            None => words,
        }
    }
}

impl Token {
    fn new(token: &str) -> Self {
        Self { text: token.to_owned(), key: AuthToken::new(token) }
    }
}

/// Whether this is an identifier as Twilio makes them: it may stand in a path.
pub(super) fn is_sid(text: &str) -> bool {
    !text.is_empty() && text.len() <= MAX_SID_CHARS && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}
