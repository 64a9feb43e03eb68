//! The keys of all sections, and whether a value is valid for one. Pure; the readers of files and variables call it.

use super::SECTIONS;
use super::suggest::nearest;
use antiphon_engine_api::stt::DETECT_LANGUAGE;
use antiphon_engines::table::EngineStage;
use antiphon_types::language_code;
use antiphon_types::setting::{Key, Rule};
use std::net::SocketAddr;
use toml::Value;

/// Every key, in the order of `configs/default.toml`.
pub fn keys() -> impl Iterator<Item = &'static Key> {
    SECTIONS.iter().flat_map(|section| section.keys)
}

/// The key with this name; `None` if there is none.
pub(super) fn find(section: &str, name: &str) -> Option<&'static Key> {
    keys().find(|key| key.section == section && key.name == name)
}

/// The key of a fallback engine in `section`: all of the section's but those that say when it serves.
pub(super) fn fallback_key(section: &str, name: &str) -> Option<&'static Key> {
    find(section, name).filter(|key| !matches!(key.rule, Rule::Fallback) && key.name != "hedge_after_ms")
}

/// The sections, in order.
pub(super) fn sections() -> Vec<&'static str> {
    SECTIONS.iter().map(|section| section.name).collect()
}

/// The names of a section's keys, in order.
pub(super) fn names(section: &str) -> impl Iterator<Item = &'static str> {
    keys().filter(move |key| key.section == section).map(|key| key.name)
}

/// The words that are valid for a key; empty where more than a few are.
pub fn words(key: &Key) -> Vec<&'static str> {
    match key.rule {
        Rule::OneOf(words) => words.to_vec(),
        Rule::Engine => EngineStage::of_section(key.section).map(EngineStage::setting_values).unwrap_or_default(),
        _ => Vec::new(),
    }
}

/// Whether `value` is valid for `key`.
pub(super) fn allows(key: &Key, value: &Value) -> bool {
    match &key.rule {
        Rule::Switch => value.is_bool(),
        Rule::Whole(min, max, _) => value.as_integer().is_some_and(|n| (*min..=*max).contains(&n)),
        Rule::Number(min, max) => number(value).is_some_and(|n| (*min..=*max).contains(&n)),
        Rule::Origins => list(value, origin),
        Rule::Urls => list(value, |url| after_scheme(url).is_some_and(url_rest)),
        Rule::Hosts => list(value, host),
        Rule::Networks => list(value, |text| super::server::network(text).is_some()),
        Rule::Addresses => list(value, |text| text.parse::<std::net::IpAddr>().is_ok()),
        Rule::Names => list(value, |name| !name.trim().is_empty()),
        Rule::Texts(most, chars) => {
            let is_text = |text: &str| !text.trim().is_empty() && text.chars().count() <= *chars;
            value.as_array().is_some_and(|all| all.len() <= *most) && list(value, is_text)
        }
        Rule::NatsServers => list(value, nats_server),
        Rule::Words(words) => value.as_array().is_some_and(|items| {
            !items.is_empty() && items.iter().all(|item| item.as_str().is_some_and(|item| words.contains(&item)))
        }),
        Rule::Wholes(min, max, _) => value
            .as_array()
            .is_some_and(|all| all.iter().all(|n| n.as_integer().is_some_and(|n| (*min..=*max).contains(&n)))),
        Rule::Fields => value.is_table(),
        Rule::ByLanguage(max, _) => value.as_table().is_some_and(|texts| {
            let is_right = |text: &str| !text.trim().is_empty() && text.chars().count() <= *max;
            let is_text =
                |(language, text): (&String, &Value)| is_code(language) && text.as_str().is_some_and(is_right);
            texts.iter().all(is_text)
        }),
        Rule::TextsByName(most, chars, _) => value.as_table().is_some_and(|texts| {
            let is_right = |text: &str| !text.trim().is_empty() && text.chars().count() <= *chars;
            texts.len() <= *most && texts.values().all(|text| text.as_str().is_some_and(is_right))
        }),
        Rule::Routes | Rule::Accounts | Rule::Trunks => value.as_table().is_some_and(|entries| {
            let is_right = |(name, entry): (&String, &Value)| entry_problems(key, name, entry).is_empty();
            entries.iter().all(is_right)
        }),
        Rule::Fallback => value.as_table().is_some_and(|table| {
            let is_key = |name: &str, value| fallback_key(key.section, name).is_some_and(|key| allows(key, value));
            table.is_empty() || table.contains_key("engine") && table.iter().all(|(name, value)| is_key(name, value))
        }),
        _ => value.as_str().is_some_and(|text| allows_text(key, text)),
    }
}

/// A key of the entries of a table of tables.
pub(super) struct EntryKey {
    pub(super) name: &'static str,
    /// The valid values, as a continuation of "write".
    expects: &'static str,
    allows: fn(&Value) -> bool,
}

/// The keys of a route.
static ROUTE_KEYS: [EntryKey; 2] = [
    EntryKey { name: "greeting", expects: TEXT, allows: Value::is_str },
    EntryKey { name: "session", expects: "a table, as in session.update", allows: Value::is_table },
];

/// The keys of an account.
static ACCOUNT_KEYS: [EntryKey; 12] = [
    EntryKey { name: "kind", expects: KINDS, allows: |value| is_one_of(value, &["twilio", "asterisk"]) },
    EntryKey { name: "account_sid", expects: TEXT, allows: Value::is_str },
    EntryKey { name: "auth_token_env", expects: VARIABLE, allows: is_variable },
    EntryKey { name: "username", expects: TEXT, allows: Value::is_str },
    EntryKey { name: "password_env", expects: VARIABLE, allows: is_variable },
    EntryKey { name: "app", expects: TEXT, allows: Value::is_str },
    EntryKey { name: "endpoint", expects: TEXT, allows: Value::is_str },
    EntryKey { name: "connection", expects: TEXT, allows: Value::is_str },
    EntryKey { name: "transfer_context", expects: TEXT, allows: Value::is_str },
    EntryKey {
        name: "numbers",
        expects: "a list of numbers, such as [\"+15550100\"]",
        allows: |value| list(value, |text| !text.is_empty()),
    },
    EntryKey { name: "api_url", expects: TEXT, allows: Value::is_str },
    EntryKey { name: "key", expects: TEXT, allows: Value::is_str },
];

/// The keys of a trunk.
static TRUNK_KEYS: [EntryKey; 12] = [
    EntryKey {
        name: "allow",
        expects: NETWORKS,
        allows: |value| list(value, |text| super::server::network(text).is_some()),
    },
    EntryKey { name: "username", expects: TEXT, allows: Value::is_str },
    EntryKey { name: "password_env", expects: VARIABLE, allows: is_variable },
    EntryKey { name: "register", expects: TEXT, allows: Value::is_str },
    EntryKey { name: "register_as", expects: TEXT, allows: Value::is_str },
    EntryKey { name: "host", expects: TEXT, allows: Value::is_str },
    EntryKey {
        name: "transport",
        expects: "\"udp\" or \"tcp\" or \"tls\"",
        allows: |value| is_one_of(value, &["udp", "tcp", "tls"]),
    },
    EntryKey {
        name: "srtp",
        expects: "\"optional\" or \"required\"",
        allows: |value| is_one_of(value, &["optional", "required"]),
    },
    EntryKey { name: "refer_replaces", expects: "true or false", allows: Value::is_bool },
    EntryKey { name: "caller", expects: TEXT, allows: Value::is_str },
    EntryKey { name: "key", expects: TEXT, allows: Value::is_str },
    EntryKey { name: "route", expects: TEXT, allows: Value::is_str },
];

const TEXT: &str = "text in quotes";
const KINDS: &str = "\"twilio\" or \"asterisk\"";
const NETWORKS: &str = "a list of addresses and networks, such as [\"10.0.0.5\", \"192.168.0.0/16\"]";
const VARIABLE: &str = "the name of an environment variable, such as \"OFFICE_PASSWORD\"";

/// The keys that an entry of this key's table may have; empty: it is no table of tables.
pub(super) fn entry_keys(key: &Key) -> &'static [EntryKey] {
    match key.rule {
        Rule::Routes => &ROUTE_KEYS,
        Rule::Accounts => &ACCOUNT_KEYS,
        Rule::Trunks => &TRUNK_KEYS,
        _ => &[],
    }
}

/// The message for an entry that is no table. What it is instead is not shown: it may be a password.
pub(super) fn no_entry(key: &Key, entry: &str) -> String {
    let table = format!("{}.{}", key.section, key.name);
    format!("{table}.{} is no table of keys: write {table} as {}", quoted_if_needed(entry), expects(key))
}

/// What an entry with these keys lacks.
pub(super) fn entry_lacks<'a>(key: &Key, entry: &str, mut names: impl Iterator<Item = &'a str>) -> Option<String> {
    let needs_kind = matches!(key.rule, Rule::Accounts) && !names.any(|name| name == "kind");
    let entry = quoted_if_needed(entry);
    needs_kind.then(|| format!("{}.{}.{entry}: its kind is missing: set kind = {KINDS}", key.section, key.name))
}

/// What is wrong with the key `name` of an entry. `value`: `None` for a type that no key accepts. `written`: the value as
/// it is shown.
pub(super) fn entry_key_problem(
    key: &Key,
    entry: &str,
    name: &str,
    value: Option<&Value>,
    written: &str,
) -> Option<String> {
    let known = entry_keys(key);
    let entry = format!("{}.{}.{}", key.section, key.name, quoted_if_needed(entry));
    let Some(found) = known.iter().find(|known| known.name == name) else {
        let advice = match nearest(name, known.iter().map(|known| known.name)) {
            Some(near) => format!("did you mean {near}?"),
            None => format!("its keys are {}", known.iter().map(|known| known.name).collect::<Vec<_>>().join(", ")),
        };
        return Some(format!("{entry}: there is no key {name}; {advice}"));
    };
    if value.is_some_and(found.allows) {
        return None;
    }
    // A common mistake is a secret in place of its variable's name: it is not repeated.
    let written = if name.ends_with("_env") { "(not shown)" } else { written };
    Some(format!("{entry}.{name} = {written}: write {}", found.expects))
}

/// Everything that is wrong with an entry of a table of tables.
pub(super) fn entry_problems(key: &Key, entry: &str, value: &Value) -> Vec<String> {
    let Some(table) = value.as_table() else { return vec![no_entry(key, entry)] };
    let of_keys = table.iter().filter_map(|(name, value)| {
        let written = value.to_string();
        entry_key_problem(key, entry, name, Some(value), &written)
    });
    of_keys.chain(entry_lacks(key, entry, table.keys().map(String::as_str))).collect()
}

/// A key as TOML has it: in quotes where it needs them.
fn quoted_if_needed(name: &str) -> String {
    let is_bare = !name.is_empty() && name.chars().all(|c| word(c) || c == '-');
    if is_bare { name.to_owned() } else { format!("{name:?}") }
}

fn is_one_of(value: &Value, words: &[&str]) -> bool {
    value.as_str().is_some_and(|text| words.contains(&text))
}

fn is_variable(value: &Value) -> bool {
    value.as_str().is_some_and(names_variable)
}

fn names_variable(text: &str) -> bool {
    !text.starts_with(|c: char| c.is_ascii_digit()) && text.chars().all(word)
}

fn allows_text(key: &Key, text: &str) -> bool {
    match key.rule {
        Rule::OneOf(_) | Rule::Engine => words(key).contains(&text),
        Rule::Text => true,
        Rule::Name => !text.trim().is_empty(),
        Rule::Header => text.bytes().all(|byte| (b' '..=b'~').contains(&byte)),
        Rule::Variable => names_variable(text),
        Rule::Language => text.is_empty() || text == DETECT_LANGUAGE || is_language(text),
        Rule::Url => after_scheme(text).is_some_and(url_rest),
        Rule::UrlOrNone => text.is_empty() || after_scheme(text).is_some_and(url_rest),
        Rule::OriginOrNone => text.is_empty() || origin(text),
        Rule::Listen => listen(text),
        Rule::ListenOrNone => text.is_empty() || listen(text),
        Rule::AddressOrNone => text.is_empty() || text.parse::<std::net::IpAddr>().is_ok(),
        _ => false,
    }
}

/// Whether the value is a list of texts.
pub(super) fn is_list(rule: &Rule) -> bool {
    matches!(
        rule,
        Rule::Networks
            | Rule::Addresses
            | Rule::Origins
            | Rule::Urls
            | Rule::Hosts
            | Rule::Names
            | Rule::Texts(..)
            | Rule::Words(_)
            | Rule::NatsServers
    )
}

/// The valid values, as a continuation of "write".
pub(super) fn expects(key: &Key) -> String {
    match &key.rule {
        Rule::Switch => "true or false".into(),
        Rule::Whole(min, max, unit) => format!("a whole number from {min} to {max} ({unit})"),
        Rule::Number(min, max) => format!("a number from {min} to {max}"),
        Rule::OneOf(_) | Rule::Engine => {
            words(key).iter().map(|word| format!("{word:?}")).collect::<Vec<_>>().join(" or ")
        }
        Rule::Text => TEXT.into(),
        Rule::Name => "text in quotes, not empty".into(),
        Rule::Header => "the value of an HTTP header: ASCII characters in one line".into(),
        Rule::Variable => {
            "the name of the environment variable that holds the key, such as \"OPENAI_API_KEY\", or \"\" for no key"
                .into()
        }
        Rule::Language => {
            "a language's two letters, such as \"en\", \"auto\" for the one that is heard, or \"\" for the engine's own choice"
                .into()
        }
        Rule::Url => "an address such as \"http://127.0.0.1:11434/v1\"".into(),
        Rule::UrlOrNone => "an address such as \"http://127.0.0.1:4318\", or \"\" for none".into(),
        Rule::Listen => "an address and a port, such as \"127.0.0.1:8080\"".into(),
        Rule::ListenOrNone => "an address and a port, such as \"0.0.0.0:8081\", or \"\" for none".into(),
        Rule::AddressOrNone => "an address, such as \"203.0.113.5\", or \"\" for none".into(),
        Rule::Accounts => {
            "a table of accounts, such as { main = { kind = \"twilio\", account_sid = \"AC0123\", numbers = [\"+15550100\"] } }"
                .into()
        }
        Rule::Trunks => "a table of peers, such as { office = { allow = [\"10.0.0.5\"] } }".into(),
        Rule::Addresses => "a list of addresses, such as [\"192.168.0.10\", \"203.0.113.5\"]".into(),
        Rule::Networks => NETWORKS.into(),
        Rule::Origins => "a list of web origins, such as [\"https://voice.example.org\"]".into(),
        Rule::OriginOrNone => "a web origin, such as \"https://voice.example.org\", or \"\" for none".into(),
        Rule::Routes => {
            "a table of calls, such as { \"+15550100\" = { greeting = \"Greet the caller.\", session = {} } }".into()
        }
        Rule::Urls => "a list of addresses, such as [\"https://mcp.example.org/mcp\"]".into(),
        Rule::Hosts => "a list of host names without port, such as [\"voice.example.org\"]".into(),
        Rule::Wholes(min, max, what) => format!("a list of {what} from {min} to {max}, such as [0, 1]"),
        Rule::Fallback => format!("a table of keys of [{}], its engine among them, or {{}} for none", key.section),
        Rule::Fields => "a table, such as { language = \"English\" }".into(),
        Rule::ByLanguage(max, example) => {
            format!("a table of texts of at most {max} characters by language, such as {{ en = {example:?} }}")
        }
        Rule::TextsByName(most, chars, example) => {
            format!("a table of at most {most} texts of at most {chars} characters, such as {{ office = {example:?} }}")
        }
        Rule::Texts(most, chars) => format!("a list of at most {most} texts of at most {chars} characters each"),
        Rule::Words(words) => format!("a list of {}", words.join(", ")),
        Rule::NatsServers => "a list of addresses, such as [\"tls://nats.example.org:4222\"]".into(),
        Rule::Names => "a list of models, such as [\"kokoro\", \"whisper-base:q5_1\"]".into(),
    }
}

/// Whether the text is the code of a language, a tag that begins with one, or its English name.
fn is_language(text: &str) -> bool {
    language_code(text).is_some() || is_code(text)
}

fn is_code(text: &str) -> bool {
    text.len() == 2 && text.chars().all(|c| c.is_ascii_lowercase())
}

fn number(value: &Value) -> Option<f64> {
    value.as_float().or_else(|| value.as_integer().map(|n| n as f64))
}

fn list(value: &Value, right: impl Fn(&str) -> bool) -> bool {
    value.as_array().is_some_and(|items| items.iter().all(|item| item.as_str().is_some_and(&right)))
}

fn word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn after_scheme(url: &str) -> Option<&str> {
    url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"))
}

fn url_rest(rest: &str) -> bool {
    let authority = rest.split('/').next().unwrap_or_default();
    authority_is_right(authority) && !rest.contains(['?', '#', ' '])
}

fn origin(text: &str) -> bool {
    after_scheme(text).is_some_and(authority_is_right)
}

/// `host` or `host:port`. `@` is rejected, because a password in a URL would end up in logs.
fn authority_is_right(authority: &str) -> bool {
    match authority.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => host(name) && port.parse::<u16>().is_ok_and(|port| port > 0),
        _ => host(authority),
    }
}

/// As in [`authority_is_right`], without credentials: those are in the file of `cluster.credentials`.
fn nats_server(text: &str) -> bool {
    text.strip_prefix("nats://").or_else(|| text.strip_prefix("tls://")).is_some_and(authority_is_right)
}

fn host(text: &str) -> bool {
    if let Some(inner) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return inner.parse::<std::net::Ipv6Addr>().is_ok();
    }
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '.' || c == '_')
}

fn listen(text: &str) -> bool {
    text.parse::<SocketAddr>().is_ok() || named_listen(text)
}

/// `localhost:8080`. Other host names would require a lookup.
fn named_listen(text: &str) -> bool {
    text.strip_prefix("localhost:").is_some_and(|port| port.parse::<u16>().is_ok())
}
