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
        /// Accounts that make calls, by a name of yours, with the keys 'kind' ("twilio"), 'account_sid',
        /// 'auth_token_env', 'numbers', 'api_url' and 'key': docs/guide/telephony.md. An example: { main =
        /// { kind = "twilio", account_sid = "AC0123", numbers = ["+15550100"] } }.
        pub accounts: BTreeMap<String, TelephonyAccount> = BTreeMap::new(), Rule::Accounts;
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

/// The provider of an account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AccountKind {
    /// Twilio, or what speaks its REST API.
    #[default]
    Twilio,
}

/// An account at a provider, by which calls are made.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct TelephonyAccount {
    /// Its provider.
    pub kind: AccountKind,
    /// Its identifier at Twilio.
    pub account_sid: String,
    /// The environment variable of its auth token; empty: that of `telephony.twilio_auth_token_env`.
    pub auth_token_env: String,
    /// The numbers that it calls from; the first where a request names none.
    pub numbers: Vec<String>,
    /// The address of the REST API; empty: Twilio's.
    pub api_url: String,
    /// Name of the API key that may call by it; empty: any.
    pub key: String,
}

impl TelephonyConfig {
    /// The routes whose session is invalid, and the accounts that cannot be used, each with the reason.
    pub fn problems(&self) -> impl Iterator<Item = String> {
        let invalid = self.routes.iter().filter_map(|(name, route)| Some((name, route.settings().err()?)));
        let routes = invalid.map(|(name, error)| format!("telephony.routes.{name:?}: {}", error.message));
        let unusable = self.accounts.iter().filter_map(|(name, account)| Some((name, account.problem()?)));
        routes.chain(unusable.map(|(name, problem)| format!("telephony.accounts.{name}: {problem}")))
    }
}

impl TelephonyAccount {
    fn problem(&self) -> Option<&'static str> {
        let is_sid =
            self.account_sid.starts_with("AC") && self.account_sid.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if !is_sid {
            return Some("'account_sid' is the identifier of a Twilio account: \"AC\" and 32 letters and digits");
        }
        let is_number = |number: &String| {
            let digits = number.strip_prefix('+').unwrap_or_default();
            (1..=15).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit())
        };
        if self.numbers.is_empty() || !self.numbers.iter().all(is_number) {
            return Some("'numbers' are those that it calls from, such as [\"+15550100\"]");
        }
        let is_usable = self.api_url.is_empty() || is_private(&self.api_url);
        (!is_usable).then_some("'api_url' begins with \"https://\": the auth token goes there")
    }
}

/// Whether what is sent to this address is read there only: by TLS, or on this machine.
fn is_private(url: &str) -> bool {
    let Ok(url) = url::Url::parse(url) else { return false };
    match (url.scheme(), url.host()) {
        ("https", Some(_)) => url.query().is_none(),
        ("http", Some(url::Host::Domain(name))) => name == "localhost",
        ("http", Some(url::Host::Ipv4(address))) => address.is_loopback(),
        ("http", Some(url::Host::Ipv6(address))) => address.is_loopback(),
        _ => false,
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
    fn an_account_has_an_identifier_numbers_and_a_safe_address() {
        let problem = |change: fn(&mut TelephonyAccount)| {
            let numbers = vec!["+15550100".into()];
            let mut account = TelephonyAccount { account_sid: "AC0123".into(), numbers, ..Default::default() };
            change(&mut account);
            account.problem()
        };
        assert_eq!(problem(|_| {}), None);
        for change in [
            (|account| account.account_sid = "AC1/../x".into()) as fn(&mut TelephonyAccount),
            |account| account.account_sid = "SK0123".into(),
            |account| account.numbers.clear(),
            |account| account.numbers.push("15550100".into()),
            |account| account.api_url = "http://api.twilio.example".into(),
            |account| account.api_url = "api.twilio.com".into(),
        ] {
            assert!(problem(change).is_some());
        }
        assert_eq!(problem(|account| account.api_url = "https://api.dublin.ie1.twilio.com".into()), None);
        assert_eq!(problem(|account| account.api_url = "http://127.0.0.1:9".into()), None);
        let accounts = [("main".to_owned(), TelephonyAccount::default())].into();
        let config = TelephonyConfig { accounts, ..TelephonyConfig::default() };
        assert!(config.problems().next().is_some_and(|problem| problem.starts_with("telephony.accounts.main: ")));
    }

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
