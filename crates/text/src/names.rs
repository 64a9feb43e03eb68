//! Converts addresses, file names, versions and tags to words. Used only by `figures`.

use super::figures::number;

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
    let (name, host) = core.split_once('@')?;
    let mail = !name.is_empty() && host.contains('.') && !host.contains('@');
    mail.then(|| format!("{} at {}", name, host).replace('.', " dot ").replace('_', " underscore "))
}

/// "main.rs", "v1.2.3", "end.Next".
pub(super) fn dotted(core: &str) -> Option<String> {
    let parts: Vec<&str> = core.split('.').collect();
    let n = parts.len();
    let whole = parts.iter().all(|part| !part.is_empty() && part.chars().all(|c| c.is_alphanumeric() || c == '-'));
    if n < 2 || !whole || core.contains(['/', '@']) || number(core).is_some() {
        return None;
    }
    let digits = |part: &&str| part.bytes().all(|b| b.is_ascii_digit());
    let (version, first) = match parts[0].strip_prefix('v').filter(|rest| !rest.is_empty() && digits(rest)) {
        Some(first) => ("version ", first),
        None => ("", parts[0]),
    };
    if digits(&first) && parts[1..].iter().all(digits) {
        return Some(format!("{version}{first} point {}", parts[1..].join(" point ")));
    }
    if parts.iter().all(|part| part.chars().count() == 1) {
        return None;
    }
    let sentence = n == 2 && parts[0].len() > 1 && parts[1].starts_with(char::is_uppercase) && parts[1].len() > 1;
    Some(parts.join(if sentence { ". " } else { " dot " }))
}
