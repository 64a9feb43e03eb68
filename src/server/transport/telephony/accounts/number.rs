//! The number in a `tel:` URI, as providers take it.
//!
//! [`super::Accounts`], [`super::twilio_call`] and [`super::asterisk_call`] call it.

/// The number of a `tel:` URI without its separators; `None`: it is no such URI.
pub(super) fn number_of(uri: &str) -> Option<String> {
    let (scheme, rest) = uri.split_once(':')?;
    if !scheme.eq_ignore_ascii_case("tel") {
        return None;
    }
    let number: String = rest.split(';').next()?.chars().filter(|c| !"-.()".contains(*c)).collect();
    let digits = number.strip_prefix('+').unwrap_or(&number);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_digits_only() {
        let check = |uri: &str, expect: Option<&str>| assert_eq!(number_of(uri).as_deref(), expect, "{uri}");
        check("tel:+1-555.(01)23;phone-context=x", Some("+15550123"));
        check("TEL:110", Some("110"));
        for other in ["tel:*31#", "tel:+", "tel:1&2", "sip:110@b", "client:ann", "+15550123"] {
            check(other, None);
        }
    }
}
