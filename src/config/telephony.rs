//! The `[telephony]` section.

use antiphon_protocol::{ClientEvent, SessionUpdate, WireError};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Settings of phone calls. Each key is documented in `configs/default.toml`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct TelephonyConfig {
    /// Whether calls are accepted without a key or signature.
    pub unauthenticated: bool,
    /// Name of the environment variable that holds Twilio's auth token; empty: none.
    pub twilio_auth_token_env: String,
    /// Address and port of the listener for Asterisk AudioSocket; empty: none.
    pub audiosocket_listen: String,
    /// Pause after the last key that ends an entry by keys, in milliseconds.
    pub key_pause_ms: u32,
    /// Settings of calls, by the number called, the parameter `route` or the UUID of an AudioSocket; `default`: of all others.
    pub routes: BTreeMap<String, TelephonyRoute>,
}

/// What calls of a route begin with.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct TelephonyRoute {
    /// Instructions for a response that begins the call; empty: the caller speaks first.
    pub greeting: String,
    /// The session, as in `session.update`.
    pub session: Map<String, Value>,
}

impl Default for TelephonyConfig {
    fn default() -> Self {
        Self {
            unauthenticated: false,
            twilio_auth_token_env: "TWILIO_AUTH_TOKEN".into(),
            audiosocket_listen: String::new(),
            key_pause_ms: 2_000,
            routes: BTreeMap::new(),
        }
    }
}

impl TelephonyConfig {
    /// The routes whose session is invalid, each with the reason.
    pub fn problems(&self) -> impl Iterator<Item = String> {
        let invalid = self.routes.iter().filter_map(|(name, route)| Some((name, route.settings().err()?)));
        invalid.map(|(name, error)| format!("telephony.routes.{name:?}: {}", error.message))
    }
}

impl TelephonyRoute {
    /// The settings of its session; `None`: the hub's own.
    ///
    /// # Errors
    /// `session` is not what a `session.update` may hold.
    pub fn settings(&self) -> Result<Option<SessionUpdate>, WireError> {
        if self.session.is_empty() {
            return Ok(None);
        }
        let mut session = self.session.clone();
        session.entry("type").or_insert_with(|| "realtime".into());
        let event = json!({"type": "session.update", "session": session}).to_string();
        match antiphon_protocol::parse(&event)?.event {
            ClientEvent::SessionUpdate(update) => Ok(Some(*update)),
            _ => unreachable!("the type says what it is"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_holds_what_a_session_update_may_hold() {
        let route =
            |session: Value| TelephonyRoute { session: session.as_object().unwrap().clone(), ..Default::default() };
        assert!(
            route(json!({"instructions": "Be brief.", "audio": {"output": {"voice": "x"}}}))
                .settings()
                .unwrap()
                .is_some()
        );
        assert!(route(json!({})).settings().unwrap().is_none());
        let wrong = route(json!({"instruction": "Be brief."}));
        let config = TelephonyConfig { routes: [("+1".to_owned(), wrong)].into(), ..TelephonyConfig::default() };
        let problems: Vec<_> = config.problems().collect();
        assert!(problems[0].contains("+1") && problems[0].contains("session.instruction"), "{problems:?}");
    }
}
