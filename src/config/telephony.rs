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
        /// Accounts that make calls, by a name of yours: docs/guide/telephony.md. An example: { main = { kind =
        /// "twilio", account_sid = "AC0123", numbers = ["+15550100"] } }.
        pub accounts: BTreeMap<String, TelephonyAccount> = BTreeMap::new(), Rule::Accounts;
        /// Keys of a phone are one entry until '#' or until no further key came for this time.
        pub key_pause_ms: u32 = 2_000, Rule::Whole(200, 30_000, "milliseconds");
        /// Said word for word before anything else in recorded phone calls (session.record), also by SIP. A call in
        /// which it is not said to its end is not recorded. At most 500 characters.
        pub recording_notice: String = String::new(), Rule::Text;
        /// "none": phone calls, also by SIP, are recorded without a question. "key": where the caller presses 1 during
        /// recording_notice, which has to ask for that, or in the 5 s after it.
        pub recording_consent: ConsentMethod = ConsentMethod::None, Rule::OneOf(&["none", "key"]);
        /// What calls begin with, by the number that was called, the stream's parameter 'route' or the UUID of
        /// an AudioSocket; else 'default'. An example: { "+15550100" = { greeting = "Greet the caller.",
        /// session = {} } }.
        pub routes: BTreeMap<String, TelephonyRoute> = BTreeMap::new(), Rule::Routes;
    }
}

/// How callers agree to be recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ConsentMethod {
    /// They are not asked.
    #[default]
    None,
    /// By a key of the phone.
    Key,
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
    /// Asterisk, by its REST interface (ARI).
    Asterisk,
}

impl AccountKind {
    /// Its name in the settings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Twilio => "twilio",
            Self::Asterisk => "asterisk",
        }
    }

    /// What its accounts prove themselves by.
    pub fn secret(self) -> &'static str {
        match self {
            Self::Twilio => "auth token",
            Self::Asterisk => "password",
        }
    }
}

/// An account at a provider, by which calls are made.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct TelephonyAccount {
    /// Its provider.
    pub kind: AccountKind,
    /// Twilio: its identifier.
    pub account_sid: String,
    /// Twilio: the environment variable of its auth token; empty: that of `telephony.twilio_auth_token_env`.
    pub auth_token_env: String,
    /// Asterisk: the user of its REST interface.
    pub username: String,
    /// Asterisk: the environment variable of the user's password.
    pub password_env: String,
    /// Asterisk: the Stasis application; empty: `antiphon`. No other program and no other hub may have it.
    pub app: String,
    /// Asterisk: what it dials, with [`NUMBER_PLACEHOLDER`] for the number.
    pub endpoint: String,
    /// Asterisk: the connection of its `websocket_client.conf` that leads to the hub; empty: `antiphon`.
    pub connection: String,
    /// Asterisk: the context of its dialplan in which calls go on that are transferred blind; empty: none is.
    pub transfer_context: String,
    /// The numbers that it calls from; the first where a request names none.
    pub numbers: Vec<String>,
    /// The address of the REST API; empty: Twilio's.
    pub api_url: String,
    /// Name of the API key that may call by it; empty: any.
    pub key: String,
}

/// What stands for the number in [`TelephonyAccount::endpoint`].
pub const NUMBER_PLACEHOLDER: &str = "{number}";

/// The longest notice of a recording: some 40 s of speech.
const MAX_NOTICE_CHARS: usize = 500;

/// The name of the hub in Asterisk's configuration, where an account names no other.
const NAME_IN_ASTERISK: &str = "antiphon";

impl TelephonyConfig {
    /// Whether a provider of its accounts reaches the hub by `server.public_url`.
    pub fn needs_public_url(&self) -> bool {
        self.accounts.values().any(|account| account.kind == AccountKind::Twilio)
    }

    /// The routes whose session is invalid, the accounts that cannot be used, and what is wrong with the notice of a
    /// recording, each with the reason.
    pub fn problems(&self) -> impl Iterator<Item = String> {
        let invalid = self.routes.iter().filter_map(|(name, route)| Some((name, route.settings().err()?)));
        let routes = invalid.map(|(name, error)| format!("telephony.routes.{name:?}: {}", error.message));
        let unusable = self.accounts.iter().filter_map(|(name, account)| Some((name, account.problem()?)));
        let accounts = unusable.map(|(name, problem)| format!("telephony.accounts.{name}: {problem}"));
        let is_too_long = self.recording_notice.chars().count() > MAX_NOTICE_CHARS;
        let too_long =
            is_too_long.then(|| format!("telephony.recording_notice has more than {MAX_NOTICE_CHARS} characters"));
        let asks_nothing = self.recording_consent == ConsentMethod::Key && self.recording_notice.trim().is_empty();
        let unasked = asks_nothing.then(|| {
            "telephony.recording_consent = \"key\" needs telephony.recording_notice, which asks the caller to press 1"
                .to_owned()
        });
        routes.chain(accounts).chain(too_long).chain(unasked)
    }
}

impl TelephonyAccount {
    /// The environment variable of its secret. `shared`: that of the auth token which accounts of Twilio share.
    pub fn secret_env<'a>(&'a self, shared: &'a str) -> &'a str {
        match self.kind {
            AccountKind::Twilio if self.auth_token_env.is_empty() => shared,
            AccountKind::Twilio => &self.auth_token_env,
            AccountKind::Asterisk => &self.password_env,
        }
    }

    /// The Stasis application at Asterisk.
    pub fn app(&self) -> &str {
        if self.app.is_empty() { NAME_IN_ASTERISK } else { &self.app }
    }

    /// The connection of `websocket_client.conf` that leads to the hub.
    pub fn connection(&self) -> &str {
        if self.connection.is_empty() { NAME_IN_ASTERISK } else { &self.connection }
    }

    fn problem(&self) -> Option<String> {
        let of_twilio = [("account_sid", &self.account_sid), ("auth_token_env", &self.auth_token_env)];
        let of_asterisk = [
            ("username", &self.username),
            ("password_env", &self.password_env),
            ("app", &self.app),
            ("endpoint", &self.endpoint),
            ("connection", &self.connection),
            ("transfer_context", &self.transfer_context),
        ];
        let foreign: &[(&str, &String)] = match self.kind {
            AccountKind::Twilio => &of_asterisk,
            AccountKind::Asterisk => &of_twilio,
        };
        if let Some((key, _)) = foreign.iter().find(|(_, value)| !value.is_empty()) {
            return Some(format!("'{key}' is no key of accounts of the kind {:?}", self.kind.name()));
        }
        let problem = match self.kind {
            AccountKind::Twilio => self.problem_at_twilio(),
            AccountKind::Asterisk => self.problem_at_asterisk(),
        };
        problem.map(str::to_owned)
    }

    fn problem_at_twilio(&self) -> Option<&'static str> {
        let is_sid =
            self.account_sid.starts_with("AC") && self.account_sid.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if !is_sid {
            return Some("'account_sid' is the identifier of a Twilio account: \"AC\" and 32 letters and digits");
        }
        if !self.has_numbers(|number| number.strip_prefix('+').is_some_and(is_digits)) {
            return Some("'numbers' are those that it calls from, such as [\"+15550100\"]");
        }
        let is_usable = self.api_url.is_empty() || is_private(&self.api_url);
        (!is_usable).then_some("'api_url' begins with \"https://\": the auth token goes there")
    }

    fn problem_at_asterisk(&self) -> Option<&'static str> {
        let is_address = url::Url::parse(&self.api_url).is_ok_and(|url| {
            let is_bare = url.query().is_none() && url.fragment().is_none() && url.username().is_empty();
            matches!(url.scheme(), "http" | "https") && url.has_host() && is_bare && url.password().is_none()
        });
        if !is_address {
            return Some("'api_url' is the address of Asterisk's HTTP server, such as \"http://10.0.0.5:8088\"");
        }
        if self.username.is_empty() || self.username.contains(|c: char| c == ':' || c.is_control()) {
            return Some("'username' is a user of Asterisk's ari.conf");
        }
        if self.password_env.is_empty() {
            return Some("'password_env' is the name of the environment variable with the user's password");
        }
        let is_dialed = |c: char| c.is_ascii_graphic() && !"&,".contains(c);
        let has_parts = self.endpoint.split_once('/').is_some_and(|(technology, _)| is_name(technology));
        let n_numbers = self.endpoint.matches(NUMBER_PLACEHOLDER).count();
        if !has_parts || n_numbers != 1 || !self.endpoint.chars().all(is_dialed) {
            return Some("'endpoint' is what Asterisk dials, such as \"PJSIP/{number}@trunk\", with {number} once");
        }
        let names = [self.app(), self.connection(), &self.transfer_context];
        if !names.into_iter().all(|name| name.is_empty() || is_name(name)) {
            return Some(
                "'app', 'connection' and 'transfer_context' are names of letters, digits, \"_\", \"-\" and \".\"",
            );
        }
        let has_numbers = self.has_numbers(|number| is_digits(number.strip_prefix('+').unwrap_or(number)));
        (!has_numbers).then_some("'numbers' are those that it calls from, such as [\"+15550100\"] or [\"100\"]")
    }

    /// Whether it has numbers, and all are right.
    fn has_numbers(&self, is_right: impl Fn(&str) -> bool) -> bool {
        !self.numbers.is_empty() && self.numbers.iter().all(|number| is_right(number))
    }
}

/// Whether these are the digits of a telephone number.
fn is_digits(text: &str) -> bool {
    (1..=15).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether this is a name in Asterisk's configuration, which needs no escape in an address.
fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
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
        assert!(problem(|account| account.endpoint = "PJSIP/{number}@trunk".into()).unwrap().contains("'endpoint'"));
        let accounts = [("main".to_owned(), TelephonyAccount::default())].into();
        let config = TelephonyConfig { accounts, ..TelephonyConfig::default() };
        assert!(config.problems().next().is_some_and(|problem| problem.starts_with("telephony.accounts.main: ")));
    }

    #[test]
    fn an_account_at_asterisk_has_an_address_a_user_and_an_endpoint() {
        let problem = |change: fn(&mut TelephonyAccount)| {
            let mut account = TelephonyAccount {
                kind: AccountKind::Asterisk,
                username: "antiphon".into(),
                password_env: "ARI_PASSWORD".into(),
                endpoint: "PJSIP/{number}@trunk".into(),
                numbers: vec!["+15550100".into(), "100".into()],
                api_url: "http://10.0.0.5:8088/asterisk".into(),
                ..TelephonyAccount::default()
            };
            change(&mut account);
            account.problem()
        };
        assert_eq!(problem(|account| account.transfer_context = "from-antiphon".into()), None);
        for (change, key) in [
            ((|account| account.api_url.clear()) as fn(&mut TelephonyAccount), "'api_url'"),
            (|account| account.api_url = "http://ann:secret@10.0.0.5".into(), "'api_url'"),
            (|account| account.api_url = "http://10.0.0.5/?x=1".into(), "'api_url'"),
            (|account| account.username = "a:b".into(), "'username'"),
            (|account| account.password_env.clear(), "'password_env'"),
            (|account| account.endpoint = "PJSIP/trunk".into(), "'endpoint'"),
            (|account| account.endpoint = "{number}".into(), "'endpoint'"),
            (|account| account.endpoint = "PJSIP/{number}@a&PJSIP/1@b".into(), "'endpoint'"),
            (|account| account.app = "a&b".into(), "'app'"),
            (|account| account.transfer_context = "a/b".into(), "'transfer_context'"),
            (|account| account.numbers.clear(), "'numbers'"),
            (|account| account.numbers.push("ann".into()), "'numbers'"),
            (|account| account.account_sid = "AC0123".into(), "'account_sid'"),
        ] {
            let found = problem(change).unwrap();
            assert!(found.contains(key), "{found}");
        }
    }

    #[test]
    fn callers_who_are_asked_hear_what_to_press() {
        let problem = |recording_notice: &str, recording_consent: ConsentMethod| {
            let recording_notice = recording_notice.to_owned();
            let config = TelephonyConfig { recording_notice, recording_consent, ..TelephonyConfig::default() };
            config.problems().next().unwrap_or_default()
        };
        assert_eq!(problem("", ConsentMethod::None), "");
        assert_eq!(problem(&"ö".repeat(500), ConsentMethod::None), "");
        assert_eq!(problem("We record this call if you press 1.", ConsentMethod::Key), "");
        assert!(problem(" ", ConsentMethod::Key).contains("needs telephony.recording_notice"));
        assert!(problem(&"x".repeat(501), ConsentMethod::None).contains("more than 500 characters"));
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
