//! What the server knows of phone calls that arrive: their routes, whether they are recorded, Twilio's auth token, and
//! places for calls that have not started.
//!
//! [`super`] asks it for each connection, [`super::arrival`] for the route of a call. It opens no session.

use super::accounts::{self, Accounts};
use super::audiosocket;
use super::call_reports::CallWebhooks;
use super::leg::Parameters;
use super::outgoing::DialRights;
use super::recording_notice::RecordingSettings;
use super::signature::AuthToken;
use crate::config::{Config, TelephonyConfig};
use crate::server::access::holder_counts::{HolderCount, HolderCounts};
use crate::server::access::keys::Keys;
use crate::server::edge::client::Client;
use crate::server::edge::connection_slots::ConnectionSlot;
use antiphon_engines::secret;
use antiphon_protocol::SessionUpdate;
use antiphon_telemetry::with_causes;
use arc_swap::ArcSwapOption;
use std::collections::{BTreeMap, HashMap};
use std::future::pending;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// Connections whose call has not started yet, on WebSockets and, counted apart, by AudioSocket; further ones are refused.
pub(super) const MAX_STARTING: usize = 256;
/// WebSockets of one address among them.
const MAX_STARTING_PER_ADDRESS: usize = MAX_STARTING / 2;

/// What the server knows of phone calls.
pub(in crate::server) struct Telephony {
    pub(super) unauthenticated: bool,
    /// What Twilio signs with; `None`: its signatures are not checked, and it needs a token as the others do.
    pub(super) auth_token: ArcSwapOption<AuthToken>,
    /// Those that calls are made by; `None`: there are none.
    pub(super) accounts: Option<Accounts>,
    routes: HashMap<String, Route>,
    pub(in crate::server::transport) key_pause: Duration,
    /// Whether calls are recorded, also those by SIP.
    pub(super) recording: RecordingSettings,
    /// WebSockets whose call has not started yet, in all and by address.
    starting: Arc<Semaphore>,
    starting_by_address: HolderCounts<IpAddr>,
}

/// The place of a connection whose call has not started yet.
pub(super) enum StartingCall {
    WebSocket { _permit: OwnedSemaphorePermit, _share: Option<HolderCount<IpAddr>> },
    AudioSocket(ConnectionSlot),
}

impl StartingCall {
    /// Resolves when the place is needed for another connection. Cancel safe.
    pub(super) async fn evicted(&self) {
        match self {
            Self::WebSocket { .. } => pending().await,
            Self::AudioSocket(slot) => slot.evicted().await,
        }
    }
}

/// What calls of a route begin with.
#[derive(Clone)]
pub(super) struct Route {
    pub(super) settings: Option<Arc<SessionUpdate>>,
    pub(super) greeting: Option<String>,
}

impl Telephony {
    /// Without Twilio's auth token, accounts and recordings. Invalid routes were rejected when the configuration was loaded.
    fn new(config: &TelephonyConfig) -> Self {
        let routes = config.routes.iter().filter_map(|(name, route)| {
            let greeting = Some(route.greeting.clone()).filter(|greeting| !greeting.is_empty());
            Some((canonical(name), Route { settings: route.settings().ok()?.map(Arc::new), greeting }))
        });
        Self {
            unauthenticated: config.unauthenticated,
            auth_token: ArcSwapOption::empty(),
            accounts: None,
            routes: routes.collect(),
            key_pause: Duration::from_millis(u64::from(config.key_pause_ms)),
            recording: RecordingSettings::default(),
            starting: Arc::new(Semaphore::new(MAX_STARTING)),
            starting_by_address: HolderCounts::default(),
        }
    }

    /// The same with Twilio's auth token, from the environment or the file that it names, the accounts, and the listener for
    /// AudioSocket. Blocks for the time of small files.
    ///
    /// # Errors
    /// The token cannot be read, an account cannot be used, or the address cannot be listened on.
    pub(in crate::server) async fn open(
        config: &Config,
        keys: &Keys,
        rights: Arc<DialRights>,
        webhooks: &CallWebhooks,
    ) -> std::io::Result<(Self, Option<TcpListener>)> {
        let accounts = Accounts::open(config, keys, rights, webhooks.reports.clone())?;
        let recording = RecordingSettings::of(config);
        let config = &config.telephony;
        let token = secret::read(&config.twilio_auth_token_env).map_err(std::io::Error::other)?;
        let address = config.audiosocket_listen.as_str();
        let audiosocket = if address.is_empty() { None } else { Some(listen(address).await?) };
        if audiosocket.is_some() {
            tracing::info!("listening for AudioSocket on {address}");
        }
        let telephony = Self { accounts, recording, ..Self::new(config) };
        if let Some(token) = token {
            telephony.replace_auth_token(&token);
        }
        Ok((telephony, audiosocket))
    }

    /// The auth tokens and keys for want of which [`Telephony::open`] would refuse these settings. Blocks for the time
    /// of small files.
    pub(in crate::server) fn problems(config: &TelephonyConfig, keys: &Keys) -> Vec<String> {
        let mut problems = Vec::new();
        if let Err(error) = secret::read(&config.twilio_auth_token_env) {
            problems.push(with_causes(&error));
        }
        problems.extend(accounts::problems(config, keys));
        problems
    }

    /// Requests of Twilio are checked with this auth token from now on.
    pub(in crate::server) fn replace_auth_token(&self, token: &str) {
        self.auth_token.store(Some(Arc::new(AuthToken::new(token))));
        if let Some(accounts) = &self.accounts {
            accounts.replace_auth_token(token);
        }
    }

    /// The accounts of these names have these auth tokens and passwords from now on.
    pub(in crate::server) fn replace_account_secrets(&self, secrets: &BTreeMap<String, String>) {
        if let Some(accounts) = &self.accounts {
            accounts.replace_secrets(secrets);
        }
    }

    /// Follows what accounts report by connections of the hub's, until `stop` is cancelled.
    pub(in crate::server) async fn follow_accounts(&self, stop: CancellationToken) {
        let Some(accounts) = &self.accounts else { return };
        tokio::select! {
            () = accounts.follow() => {}
            () = stop.cancelled() => {}
        }
    }

    /// The route of a call: by the parameter `route`, the UUID or the number called; then `default`.
    pub(super) fn route(&self, parameters: &Parameters) -> Option<Route> {
        let names = ["route", audiosocket::UUID_PARAMETER, "to"];
        let named = names.iter().filter_map(|name| self.routes.get(&canonical(parameters.get(name)?)));
        named.chain(self.routes.get("default")).next().cloned()
    }

    /// Whether calls with this UUID have a route of their own.
    pub(super) fn knows(&self, uuid: &str) -> bool {
        self.routes.contains_key(&canonical(uuid))
    }

    /// A place for a WebSocket whose call has not started yet; `None`: all are taken, or all of this client's address.
    pub(super) fn begin(&self, client: Client) -> Option<StartingCall> {
        // An address that stands for many clients has no limit of its own.
        let address = (!client.is_shared).then(|| client.network());
        let share = address.map(|address| self.starting_by_address.take(address, MAX_STARTING_PER_ADDRESS).ok_or(()));
        let share = share.transpose().ok()?;
        let permit = self.starting.clone().try_acquire_owned().ok()?;
        Some(StartingCall::WebSocket { _permit: permit, _share: share })
    }
}

/// The listener for AudioSocket.
async fn listen(address: &str) -> std::io::Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|error| {
        let message = format!("AudioSocket cannot listen on {address} (telephony.audiosocket_listen): {error}");
        std::io::Error::new(error.kind(), message)
    })
}

/// A name of a route as it is compared: providers write numbers with and without `+`, UUIDs in either case.
fn canonical(name: &str) -> String {
    name.trim().trim_start_matches('+').to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::TelephonyRoute;

    #[test]
    fn a_call_gets_the_route_of_its_parameter_its_uuid_its_number_or_the_default() {
        let route = |greeting: &str| TelephonyRoute { greeting: greeting.into(), ..TelephonyRoute::default() };
        let names = ["desk", "+15550100", "40325EC2-5EFD-4BD3-805F-53576E581D13"];
        let routes = names.iter().map(|name| ((*name).to_owned(), route(name))).collect();
        let mut config = TelephonyConfig { routes, ..TelephonyConfig::default() };
        let greeting = |config: &TelephonyConfig, pairs: &[(&str, &str)]| {
            let mut parameters = Parameters::default();
            pairs.iter().for_each(|(name, value)| parameters.add_text(name, value));
            Telephony::new(config).route(&parameters).and_then(|route| route.greeting)
        };
        let check =
            |pairs: &[(&str, &str)], expect: &str| assert_eq!(greeting(&config, pairs).as_deref(), Some(expect));
        check(&[("route", "desk"), ("to", "+15550100")], "desk");
        check(&[("route", "of nobody"), ("to", "15550100")], "+15550100");
        check(&[("uuid", "40325ec2-5efd-4bd3-805f-53576e581d13")], names[2]);
        assert_eq!(greeting(&config, &[("to", "+1")]), None);
        config.routes.insert("default".into(), route("others"));
        assert_eq!(greeting(&config, &[("to", "+1")]).as_deref(), Some("others"));
        assert!(Telephony::new(&config).knows(names[2]) && !Telephony::new(&config).knows("default2"));
    }

    #[test]
    fn calls_that_begin_are_limited_by_address_and_in_all() {
        let telephony = Telephony::new(&TelephonyConfig::default());
        let client = |address: &str| Client::direct(address.parse().unwrap(), true);
        let begin = |client| (0..=MAX_STARTING).map_while(|_| telephony.begin(client)).collect::<Vec<_>>();
        let one = begin(client("192.0.2.1"));
        let two = begin(client("192.0.2.2"));
        assert_eq!((one.len(), two.len()), (MAX_STARTING_PER_ADDRESS, MAX_STARTING_PER_ADDRESS));
        assert!(telephony.begin(client("192.0.2.3")).is_none(), "all places are taken");
        drop((one, two));
        assert_eq!(begin(Client { is_shared: true, ..client("192.0.2.1") }).len(), MAX_STARTING);
    }
}
