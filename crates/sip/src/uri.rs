//! A SIP URI: who, at which host.
//!
//! Only the parts that an endpoint reads; the text itself goes back to peers unchanged.

use crate::header::{Parameters, host_and_port};

/// A `sip` or `sips` URI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uri {
    /// Whether it asks for TLS.
    pub is_secure: bool,
    /// The user, escapes resolved; without a password.
    pub user: Option<String>,
    /// Host name or address; an IPv6 address in brackets.
    pub host: String,
    /// The port, where it names one.
    pub port: Option<u16>,
    /// Whether it carries headers, which a request URI may not.
    pub has_headers: bool,
    parameters: Parameters,
}

impl Uri {
    /// Reads a URI. `None`: it is none, or of another scheme.
    pub fn parse(text: &str) -> Option<Self> {
        let (scheme, rest) = text.split_once(':')?;
        let is_secure = scheme.eq_ignore_ascii_case("sips");
        if !is_secure && !scheme.eq_ignore_ascii_case("sip") {
            return None;
        }
        // The user part may hold `;` and `?`: it ends at the last `@`.
        let (user, rest) = rest.rsplit_once('@').map_or((None, rest), |(user, rest)| (Some(user), rest));
        let (rest, has_headers) = rest.split_once('?').map_or((rest, false), |(rest, _)| (rest, true));
        let (address, parameters) = rest.split_once(';').map_or((rest, None), |(head, rest)| (head, Some(rest)));
        let (host, port) = host_and_port(address)?;
        let parameters = parameters.map_or(Some(Parameters::default()), Parameters::parse)?;
        let user = match user {
            Some("") => return None,
            Some(user) => Some(unescape(user.split(':').next().unwrap_or_default())?),
            None => None,
        };
        Some(Self { is_secure, user, host, port, has_headers, parameters })
    }

    /// A parameter.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.get(name)
    }
}

/// A text as the value of a header in a URI: all but what stands for itself there (RFC 3261, section 25.1) as `%HH`.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.!~*'()".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

/// Resolves `%HH`. `None`: an escape is not one, or the result is not text.
fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        if first == b'%' {
            let digits = std::str::from_utf8(after.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &after[2..];
        } else {
            bytes.push(first);
            rest = after;
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_names_user_host_and_port() {
        let uri = Uri::parse("sips:user;par=u%40ex:secret@[::1]:5061;transport=tls?subject=x").unwrap();
        assert_eq!((uri.user.as_deref(), uri.host.as_str(), uri.port), (Some("user;par=u@ex"), "[::1]", Some(5061)));
        assert_eq!((uri.parameter("transport"), uri.is_secure), (Some("tls"), true));
        assert_eq!(Uri::parse("SIP:host.example").unwrap().user, None);
        for wrong in ["", "sip:", "sip:@h", "tel:1", "sip:a@h:x", "sip:%zz@h", "sip:a@", "sip:a b@h c"] {
            assert_eq!(Uri::parse(wrong), None, "{wrong:?}");
        }
    }
}
