//! The requests of one account to Asterisk's REST interface (ARI): calls are made, connected, moved and ended.
//!
//! [`super::asterisk_call`] and [`super::ari_events`] call it. A call has a channel by the name that the hub chose,
//! and, once it is answered, the channel of its stream and a bridge, which are named after it. The password is in no
//! error, log or `Debug` output.

use super::expected::SECRET_PARAMETER;
use super::provider::EndError;
use super::rest::{RestClient, words_of};
use crate::config::{NUMBER_PLACEHOLDER, TelephonyAccount};
use crate::server::transport::transfers::ProviderError;
use arc_swap::ArcSwap;
use axum::http::HeaderValue;
use axum::http::header::AUTHORIZATION;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use reqwest::{Method, StatusCode, Url};
use serde::Deserialize;
use serde_json::{Value, json};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// What the names of the channel of a stream, and of a bridge, have behind that of the call.
const STREAM_SUFFIX: &str = "-stream";
const BRIDGE_SUFFIX: &str = "-bridge";
/// The audio of a stream: L16 at 16 kHz.
const STREAM_FORMAT: &str = "slin16";

/// See the module.
pub(super) struct Ari {
    rest: RestClient,
    /// `http://10.0.0.5:8088/ari`
    base: String,
    username: String,
    credentials: ArcSwap<AriCredentials>,
    /// What Asterisk dials; [`NUMBER_PLACEHOLDER`] stands for the number.
    endpoint: String,
    app: String,
    /// The connection of `websocket_client.conf` that leads to the hub.
    connection: String,
    /// Where calls go on in the dialplan that are transferred blind; empty: none is.
    transfer_context: String,
    events: Mutex<EventFeed>,
}

/// Whether the events of an account arrive. Without them no call is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventFeed {
    /// They arrive.
    Connected,
    /// There is no connection.
    Disconnected,
    /// Another program has taken the Stasis application, and with it the events.
    Taken,
}

/// What the hub proves itself by.
struct AriCredentials {
    /// The value of the header `Authorization`; marked sensitive.
    authorization: HeaderValue,
    password: String,
}

/// An answer of Asterisk's.
struct AriAnswer {
    status: StatusCode,
    body: Vec<u8>,
    /// Those of the request.
    credentials: Arc<AriCredentials>,
}

/// What Asterisk answers where it refuses.
#[derive(Default, Deserialize)]
#[serde(default)]
struct AriError {
    message: Option<String>,
}

/// A channel, as far as the hub reads it.
#[derive(Deserialize)]
pub(super) struct Channel {
    pub(super) id: String,
    /// `Down`, `Ringing`, `Up`, and others.
    #[serde(default)]
    pub(super) state: String,
}

impl Ari {
    /// The requests of this account, whose settings were checked. Connects to nothing.
    ///
    /// # Errors
    /// There is no TLS.
    pub(super) fn new(account: &TelephonyAccount, password: &str) -> io::Result<Self> {
        // In its usual form: scheme and host in small letters.
        let address = Url::parse(&account.api_url).map_or_else(|_| account.api_url.clone(), String::from);
        Ok(Self {
            rest: RestClient::new("Asterisk")?,
            base: format!("{}/ari", address.trim_end_matches('/')),
            username: account.username.clone(),
            credentials: ArcSwap::from_pointee(AriCredentials::new(&account.username, password)),
            endpoint: account.endpoint.clone(),
            app: account.app().to_owned(),
            connection: account.connection().to_owned(),
            transfer_context: account.transfer_context.clone(),
            events: Mutex::new(EventFeed::Disconnected),
        })
    }

    /// The value of the header `Authorization`.
    pub(super) fn authorization(&self) -> HeaderValue {
        self.credentials.load().authorization.clone()
    }

    /// Requests and connections that begin from now on prove this password.
    pub(super) fn replace_password(&self, password: &str) {
        self.credentials.store(Arc::new(AriCredentials::new(&self.username, password)));
    }

    /// The address of the WebSocket of events.
    pub(super) fn events_url(&self) -> String {
        format!("{}/events?app={}", self.base.replacen("http", "ws", 1), self.app)
    }

    /// The Stasis application.
    pub(super) fn app(&self) -> &str {
        &self.app
    }

    /// Whether events arrive.
    pub(super) fn events(&self) -> EventFeed {
        *self.lock_events()
    }

    /// Notes whether events arrive from now on.
    pub(super) fn set_events(&self, events: EventFeed) {
        *self.lock_events() = events;
    }

    fn lock_events(&self) -> MutexGuard<'_, EventFeed> {
        self.events.lock().expect("no panic while locked")
    }

    /// Whether calls can be transferred blind.
    pub(super) fn transfers(&self) -> bool {
        !self.transfer_context.is_empty()
    }

    /// Has Asterisk call a number, with the name of the call as its channel's.
    ///
    /// # Errors
    /// [`ProviderError`].
    pub(super) async fn call(&self, id: &str, to: &str, from: &str, rings: Duration) -> Result<(), ProviderError> {
        let body = json!({
            "endpoint": self.endpoint.replace(NUMBER_PLACEHOLDER, to),
            "app": self.app,
            "callerId": from,
            "timeout": rings.as_secs(),
            "channelId": id,
        });
        self.post("channels", &body).await
    }

    /// Has Asterisk open the stream of a call to the hub, with the call's secret in its address. An event says when its
    /// channel can be connected.
    ///
    /// # Errors
    /// [`ProviderError`].
    pub(super) async fn open_stream(&self, id: &str, secret: &str) -> Result<(), ProviderError> {
        let body = json!({
            "channelId": stream_of(id),
            "app": self.app,
            "external_host": self.connection,
            "transport": "websocket",
            "encapsulation": "none",
            "connection_type": "client",
            "format": STREAM_FORMAT,
            "transport_data": format!("v({SECRET_PARAMETER}={secret})"),
        });
        self.post("channels/externalMedia", &body).await
    }

    /// Connects a call with its stream.
    ///
    /// # Errors
    /// [`ProviderError`].
    pub(super) async fn connect(&self, id: &str) -> Result<(), ProviderError> {
        let bridge = bridge_of(id);
        self.post("bridges", &json!({"type": "mixing", "bridgeId": bridge})).await?;
        let channels = json!({"channel": [id, stream_of(id)]});
        self.post(&format!("bridges/{bridge}/addChannel"), &channels).await
    }

    /// Has a call go on in the dialplan, at this extension of the context of transfers.
    ///
    /// # Errors
    /// [`ProviderError`].
    pub(super) async fn move_to(&self, id: &str, extension: &str) -> Result<(), ProviderError> {
        let place = json!({"context": self.transfer_context, "extension": extension, "priority": 1});
        self.post(&format!("channels/{id}/continue"), &place).await
    }

    /// Presses keys in a call.
    ///
    /// # Errors
    /// [`ProviderError`].
    pub(super) async fn press(&self, id: &str, keys: &str) -> Result<(), ProviderError> {
        self.post(&format!("channels/{id}/dtmf"), &json!({"dtmf": keys})).await
    }

    /// The state of a call's channel; `None`: ARI says that there is no such channel. A 404 without its words is that of
    /// an Asterisk whose ARI is not loaded, or of a proxy.
    ///
    /// # Errors
    /// [`ProviderError`].
    pub(super) async fn state(&self, id: &str) -> Result<Option<String>, ProviderError> {
        let answer = self.request(Method::GET, &format!("channels/{id}"), None).await?;
        if answer.status == StatusCode::NOT_FOUND {
            return match answer.error().message {
                Some(_) => Ok(None),
                None => Err(ProviderError::Unreachable("it has no ARI at this address now")),
            };
        }
        answer.accepted()?;
        let channel = serde_json::from_slice::<Channel>(&answer.body);
        channel.map(|channel| Some(channel.state)).map_err(|_| ProviderError::Unreachable("its answer is no channel"))
    }

    /// Ends a call, or gives it up while it rings.
    ///
    /// # Errors
    /// [`EndError`]. So for the other two.
    pub(super) async fn end(&self, id: &str) -> Result<(), EndError> {
        self.delete(&format!("channels/{id}")).await
    }

    /// Ends the channel of a call's stream.
    pub(super) async fn end_stream(&self, id: &str) -> Result<(), EndError> {
        self.delete(&format!("channels/{}", stream_of(id))).await
    }

    /// Removes the bridge of a call.
    pub(super) async fn end_bridge(&self, id: &str) -> Result<(), EndError> {
        self.delete(&format!("bridges/{}", bridge_of(id))).await
    }

    async fn post(&self, path: &str, body: &Value) -> Result<(), ProviderError> {
        self.request(Method::POST, path, Some(body)).await?.accepted()
    }

    async fn delete(&self, path: &str) -> Result<(), EndError> {
        let answer = self.request(Method::DELETE, path, None).await?;
        if answer.status.is_success() {
            return Ok(());
        }
        // Without ARI's words it is the answer of another server at this address.
        let is_over = answer.error().message.is_some() && matches!(answer.status.as_u16(), 404 | 409 | 410);
        Err(EndError::of(answer.status, is_over, answer.words()))
    }

    async fn request(&self, method: Method, path: &str, body: Option<&Value>) -> Result<AriAnswer, ProviderError> {
        let credentials = self.credentials.load_full();
        let request = self.rest.request(method, &format!("{}/{path}", self.base));
        let request = request.header(AUTHORIZATION, credentials.authorization.clone());
        let request = match body {
            Some(body) => request.json(body),
            None => request,
        };
        let (status, body) = self.rest.send(request).await?;
        Ok(AriAnswer { status, body, credentials })
    }
}

impl AriCredentials {
    fn new(username: &str, password: &str) -> Self {
        let credentials = BASE64.encode(format!("{username}:{password}"));
        let mut authorization =
            HeaderValue::try_from(format!("Basic {credentials}")).expect("base64 is the value of a header");
        authorization.set_sensitive(true);
        Self { authorization, password: password.to_owned() }
    }
}

impl AriAnswer {
    /// Whether Asterisk has done what was asked for; an error has its words.
    fn accepted(&self) -> Result<(), ProviderError> {
        if self.status.is_success() {
            return Ok(());
        }
        Err(ProviderError::Refused(self.words()))
    }

    /// What it says, for clients and the log.
    fn words(&self) -> String {
        words_of(self.error().message.as_deref(), self.status, &self.credentials.password)
    }

    /// What it says where Asterisk refuses; empty: it is no answer of ARI.
    fn error(&self) -> AriError {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// The name of the channel of a call's stream.
fn stream_of(id: &str) -> String {
    format!("{id}{STREAM_SUFFIX}")
}

fn bridge_of(id: &str) -> String {
    format!("{id}{BRIDGE_SUFFIX}")
}

/// The call of the channel of a stream; `None`: the channel is of no stream.
pub(super) fn call_of_stream(channel: &str) -> Option<&str> {
    channel.strip_suffix(STREAM_SUFFIX)
}
