//! The `[telephony]` section.

use antiphon_protocol::{ClientEvent, SessionUpdate, WireError};
use antiphon_types::setting::Rule;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

antiphon_types::settings! {
    /// Phone calls: the streams of Twilio, Telnyx, Plivo, Vonage, jambonz and Asterisk (/v1/telephony/...), and
    /// Asterisk AudioSocket. See docs/guide/telephony.md.
    pub struct TelephonyConfig in "telephony" {
        /// Whether calls are accepted without a signature of Twilio, a token, or a UUID of [telephony.routes].
        pub unauthenticated: bool = false, Rule::Switch;
        /// Environment variable that holds the auth token of the Twilio account, or, with _FILE, its file.
        /// Twilio's requests then need a valid signature.
        pub twilio_auth_token_env: String = "TWILIO_AUTH_TOKEN".into(), Rule::Variable;
        /// Address and port that Asterisk connects to by AudioSocket (plain TCP: keep it in your own network).
        pub audiosocket_listen: String = String::new(), Rule::ListenOrNone;
        /// Keys of a phone are one entry until '#' or until no further key came for this time.
        pub key_pause_ms: u32 = 2_000, Rule::Whole(200, 30_000, "milliseconds");
        /// What calls begin with, by the number that was called, the stream's parameter 'route' or the UUID of
        /// an AudioSocket; else 'default'. An example: { "+15550100" = { greeting = "Greet the caller.",
        /// session = {} } }.
        pub routes: BTreeMap<String, TelephonyRoute> = BTreeMap::new(), Rule::Routes;
    }
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
