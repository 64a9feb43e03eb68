//! Converts addresses, file names, versions and tags to words. Used only by `figures`.

use super::figures::number;
use super::sentences::is_degree;

/// "C#", "C++", "#topic".
pub(super) fn tagged(core: &str) -> Option<String> {
    if let Some(name) = core.strip_suffix("++").filter(|name| name.chars().all(char::is_alphabetic) && !name.is_empty())
    {
        return Some(format!("{name} plus plus"));
    }
    if let Some(name) = core.strip_suffix('#').filter(|name| name.len() == 1) {
        return Some(format!("{name} sharp"));
    }
    let topic = core.strip_prefix('#')?;
    topic.starts_with(char::is_alphabetic).then(|| format!("hashtag {topic}"))
}

/// Web and mail addresses.
pub(super) fn address(core: &str) -> Option<String> {
    let web = ["https://", "http://", "www."].iter().find_map(|scheme| core.strip_prefix(scheme));
    if let Some(web) = web {
        let host = web.strip_prefix("www.").unwrap_or(web).split(['/', '?', '#', ':']).next().unwrap_or_default();
        return Some(host.replace('.', " dot "));
    }
    if let Some(said) = path(core) {
        return Some(said);
    }
    let (name, host) = core.split_once('@')?;
    let is_plain = |part: &str| part.chars().all(|c| c.is_alphanumeric() || "._-+:%'".contains(c));
    let mail = !name.is_empty() && host.contains('.') && is_plain(name) && is_plain(host);
    let said = |part: &str| {
        [(".", " dot "), ("_", " underscore "), ("-", " dash "), ("+", " plus ")]
            .iter()
            .fold(part.to_owned(), |part, (sign, word)| part.replace(sign, word))
    };
    mail.then(|| format!("{} at {}", said(name.strip_prefix("mailto:").unwrap_or(name)), said(host)))
}

/// Domains that are known without "www.": behind them a path may stand.
const DOMAINS: [&str; 16] =
    ["ai", "app", "at", "ch", "co", "com", "de", "dev", "edu", "eu", "fr", "gov", "io", "net", "org", "uk"];

/// "example.com/docs/start".
fn path(core: &str) -> Option<String> {
    let (host, path) = core.split_once('/')?;
    let (name, domain) = host.rsplit_once('.')?;
    let is_word = |part: &str| part.chars().all(|c| c.is_alphanumeric() || c == '-');
    let is_address = DOMAINS.contains(&domain) && name.split('.').all(|part| !part.is_empty() && is_word(part));
    let steps: Vec<&str> = path.split('/').filter(|step| !step.is_empty()).collect();
    let steps = if steps.iter().all(|step| is_word(step)) { steps } else { Vec::new() };
    is_address.then(|| {
        format!(
            "{}{}",
            host.replace('.', " dot "),
            steps.iter().map(|step| format!(" slash {step}")).collect::<String>()
        )
    })
}

/// Keys that are pressed together: "Ctrl+C", "Cmd+Shift+4".
pub(super) fn keys(core: &str) -> Option<String> {
    const KEYS: [(&str, &str); 12] = [
        ("alt", "alt"),
        ("cmd", "command"),
        ("command", "command"),
        ("control", "control"),
        ("ctrl", "control"),
        ("del", "delete"),
        ("esc", "escape"),
        ("fn", "function"),
        ("meta", "meta"),
        ("option", "option"),
        ("shift", "shift"),
        ("win", "windows"),
    ];
    let name = |key: &str| KEYS.iter().find(|(short, _)| key.eq_ignore_ascii_case(short)).map(|(_, name)| *name);
    let parts: Vec<&str> = core.split(['+', '-']).collect();
    let (_, pressed) = parts.split_first()?;
    let is_combination = !pressed.is_empty() && name(parts[0]).is_some();
    let is_key =
        |key: &&str| name(key).is_some() || (1..=9).contains(&key.len()) && key.chars().all(char::is_alphanumeric);
    // "control-freak": behind a hyphen stands a single key. "win-win": none is pressed twice.
    let is_plain = core.contains('+') || pressed.iter().all(|key| key.len() == 1 || name(key).is_some());
    let is_repeated = pressed.iter().any(|key| key.eq_ignore_ascii_case(parts[0]));
    (is_combination && is_plain && !is_repeated && pressed.iter().all(is_key))
        .then(|| parts.iter().map(|key| name(key).unwrap_or(key)).collect::<Vec<_>>().join(" "))
}

/// "main.rs", "v1.2.3", "end.Next".
pub(super) fn dotted(core: &str) -> Option<String> {
    let parts: Vec<&str> = core.split('.').collect();
    let n = parts.len();
    let whole = parts.iter().all(|part| !part.is_empty() && part.chars().all(|c| c.is_alphanumeric() || c == '-'));
    // "U.S.-based": the dot of an abbreviation.
    if n < 2 || !whole || core.contains(['/', '@']) || core.contains(".-") || number(core).is_some() {
        return None;
    }
    let is_digit = |c: char| c.is_ascii_digit();
    let digits = |part: &&str| part.chars().all(is_digit);
    let (version, first) = match parts[0].strip_prefix('v').filter(|rest| !rest.is_empty() && digits(rest)) {
        Some(first) => ("version ", first),
        None => ("", parts[0]),
    };
    if digits(&first) && parts[1..].iter().all(digits) {
        return Some(format!("{version}{first} point {}", parts[1..].join(" point ")));
    }
    if parts.iter().all(|part| part.chars().count() == 1) || is_degree(core) {
        return None;
    }
    let sentence = n == 2 && parts[0].len() > 1 && parts[1].starts_with(char::is_uppercase) && parts[1].len() > 1;
    // "a 6.7-inch display", "GPT-3.5".
    let is_point = |pair: &[&str]| pair[0].ends_with(is_digit) && pair[1].starts_with(is_digit);
    let point = if parts.windows(2).filter(|pair| is_point(pair)).count() > 1 { " point " } else { "." };
    let mut out = parts[0].to_owned();
    for pair in parts.windows(2) {
        out.push_str(match is_point(pair) {
            true => point,
            false if sentence => ". ",
            false => " dot ",
        });
        out.push_str(pair[1]);
    }
    Some(out)
}
