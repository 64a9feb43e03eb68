//! The headers whose structure an endpoint reads: `Via`, addresses with parameters, lists.
//!
//! Quoted strings keep their quotes; nothing is unescaped, since no value is shown to people.

use crate::message::is_token;
use crate::uri::Uri;

/// Splits at the commas that are outside quotes and angle brackets.
pub(crate) fn split_list(value: &str) -> impl Iterator<Item = &str> {
    split(value, ',').map(str::trim).filter(|item| !item.is_empty())
}

/// Splits at a character that is outside quotes and angle brackets.
pub(crate) fn split(value: &str, at: char) -> impl Iterator<Item = &str> {
    let mut rest = Some(value);
    std::iter::from_fn(move || {
        let text = rest?;
        let mut is_quoted = false;
        let mut is_escaped = false;
        let mut is_inside = false;
        for (index, c) in text.char_indices() {
            match c {
                _ if is_escaped => is_escaped = false,
                '\\' if is_quoted => is_escaped = true,
                '"' => is_quoted = !is_quoted,
                '<' if !is_quoted => is_inside = true,
                '>' if !is_quoted => is_inside = false,
                c if c == at && !is_quoted && !is_inside => {
                    rest = Some(&text[index + c.len_utf8()..]);
                    return Some(&text[..index]);
                }
                _ => {}
            }
        }
        rest = None;
        Some(text)
    })
}

/// Parameters of a header or URI: names in lower case, values without quotes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parameters(Vec<(String, Option<String>)>);

impl Parameters {
    /// Reads what stands behind the first `;`. `None`: a name is no token.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parameters = Vec::new();
        for part in split(text, ';').map(str::trim) {
            if part.is_empty() {
                return None;
            }
            let (name, value) = match part.split_once('=') {
                Some((name, value)) => (name.trim(), Some(value.trim().trim_matches('"').to_owned())),
                None => (part, None),
            };
            if name.is_empty() || !name.bytes().all(is_parameter) {
                return None;
            }
            parameters.push((name.to_ascii_lowercase(), value));
        }
        Some(Self(parameters))
    }

    /// The value of a parameter; `Some("")`: it has none.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_deref().unwrap_or_default())
    }
}

/// Names of URI parameters may hold a few more characters than tokens.
fn is_parameter(byte: u8) -> bool {
    is_token(byte) || b"[]/:&$%".contains(&byte)
}

/// One hop of a `Via`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Via {
    /// `UDP`, `TCP` and so on, upper case.
    pub transport: String,
    /// Host of the sender by its own words.
    pub host: String,
    /// Its port, where it names one.
    pub port: Option<u16>,
    parameters: Parameters,
}

impl Via {
    /// Reads one element of a `Via` header.
    pub fn parse(text: &str) -> Option<Self> {
        let (head, parameters) = text.split_once(';').map_or((text, None), |(head, rest)| (head, Some(rest)));
        let mut parts = head.splitn(3, '/').map(str::trim);
        if !parts.next()?.eq_ignore_ascii_case("SIP") || parts.next()? != "2.0" {
            return None;
        }
        let (transport, sent_by) = parts.next()?.split_once([' ', '\t'])?;
        let (host, port) = host_and_port(sent_by.trim())?;
        let parameters = parameters.map_or(Some(Parameters::default()), Parameters::parse)?;
        if transport.is_empty() || !transport.bytes().all(is_token) {
            return None;
        }
        Some(Self { transport: transport.to_ascii_uppercase(), host, port, parameters })
    }

    /// The branch of a sender after RFC 3261; `None`: an older one, or an empty branch.
    pub fn branch(&self) -> Option<&str> {
        self.parameters.get("branch").filter(|branch| branch.len() > "z9hG4bK".len() && branch.starts_with("z9hG4bK"))
    }

    /// Whether the sender wants its response at the port that it sends from (RFC 3581).
    pub fn wants_source_port(&self) -> bool {
        self.parameters.get("rport").is_some()
    }
}

/// `host`, `host:port`, `[v6]:port`, with space around the colon.
pub(crate) fn host_and_port(text: &str) -> Option<(String, Option<u16>)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (inner, rest) = rest.split_once(']')?;
            inner.parse::<std::net::Ipv6Addr>().ok()?;
            let rest = rest.trim();
            let port = if rest.is_empty() { None } else { Some(rest.strip_prefix(':')?) };
            (format!("[{inner}]"), port)
        }
        None => {
            let (host, port) = text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)));
            (host.trim().to_owned(), port)
        }
    };
    let is_host = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    if host.is_empty() || !host.starts_with('[') && !host.chars().all(is_host) {
        return None;
    }
    let port = port.map(|port| port.trim().parse::<u16>()).transpose().ok()?;
    Some((host, port))
}

/// An address with a name and parameters: `From`, `To`, `Contact`, `Route`, `Refer-To`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameAddr {
    /// The URI as it was sent.
    pub uri: String,
    parameters: Parameters,
}

impl NameAddr {
    /// Reads one element.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let (name, uri, rest) = match find_bracket(text)? {
            Some(open) => {
                let close = open + text[open..].find('>')?;
                (text[..open].trim(), &text[open + 1..close], text[close + 1..].trim())
            }
            // Without brackets, parameters are those of the header (RFC 3261, section 20.10).
            None => {
                let (uri, rest) = text.split_at(text.find(';').unwrap_or(text.len()));
                ("", uri.trim(), rest)
            }
        };
        let is_quoted = name.len() >= 2 && name.starts_with('"') && name.ends_with('"');
        if !is_quoted && name.contains([',', ';', '"', '@', ':']) {
            return None;
        }
        let scheme = uri.split_once(':')?.0;
        let is_scheme = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
        if scheme.is_empty() || !scheme.chars().all(is_scheme) || uri.contains(['<', '"', ' ']) {
            return None;
        }
        if scheme.eq_ignore_ascii_case("sip") || scheme.eq_ignore_ascii_case("sips") {
            Uri::parse(uri)?;
        }
        let parameters = match rest.strip_prefix(';') {
            Some(rest) => Parameters::parse(rest)?,
            None if rest.is_empty() => Parameters::default(),
            None => return None,
        };
        Some(Self { uri: uri.to_owned(), parameters })
    }

    /// The tag of a side of a dialog.
    pub fn tag(&self) -> Option<&str> {
        self.parameters.get("tag").filter(|tag| !tag.is_empty())
    }

    /// A parameter of the header.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.get(name)
    }

    /// The URI, where it is `sip` or `sips`.
    pub fn sip_uri(&self) -> Option<Uri> {
        Uri::parse(&self.uri)
    }

    /// The user: the number that was called or calls. Also of a `tel` URI.
    pub fn user(&self) -> Option<String> {
        if let Some(number) = self.uri.get(..4).filter(|scheme| scheme.eq_ignore_ascii_case("tel:")) {
            return Some(self.uri[number.len()..].split(';').next().unwrap_or_default().to_owned());
        }
        self.sip_uri()?.user
    }
}

/// Where the angle bracket opens; `Some(None)`: there is none; `None`: quotes do not match.
#[allow(clippy::option_option)]
fn find_bracket(text: &str) -> Option<Option<usize>> {
    let mut is_quoted = false;
    let mut is_escaped = false;
    for (index, c) in text.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' if is_quoted => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            '<' if !is_quoted => return Some(Some(index)),
            _ => {}
        }
    }
    (!is_quoted).then_some(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_split_outside_quotes_and_brackets() {
        let items: Vec<_> = split_list("\"a, b\" <sip:x,y@h>;q=1, <sip:z@h> ,, c").collect();
        assert_eq!(items, ["\"a, b\" <sip:x,y@h>;q=1", "<sip:z@h>", "c"]);
    }

    #[test]
    fn a_via_names_transport_sender_and_branch() {
        let via = Via::parse("SIP / 2.0 / udp  192.0.2.1 : 5062 ;branch=z9hG4bKx; rport").unwrap();
        assert_eq!((via.transport.as_str(), via.host.as_str(), via.port), ("UDP", "192.0.2.1", Some(5062)));
        assert_eq!((via.branch(), via.wants_source_port()), (Some("z9hG4bKx"), true));
        assert_eq!(Via::parse("SIP/2.0/TCP [2001:db8::1]:5060").unwrap().host, "[2001:db8::1]");
        assert_eq!(Via::parse("SIP/2.0/UDP h;branch=z9hG4bK").unwrap().branch(), None);
        for wrong in ["", "SIP/2.0/UDP", "SIP/3.0/UDP h", "SIP/2.0/UDP ;;,;,,", "HTTP/2.0/UDP h", "SIP/2.0/UDP h:99999"]
        {
            assert_eq!(Via::parse(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn addresses_are_read_with_and_without_brackets() {
        let named = NameAddr::parse("\"A <b>, \\\"c\" <sip:ann@h;user=phone>;tag=1").unwrap();
        assert_eq!((named.uri.as_str(), named.tag()), ("sip:ann@h;user=phone", Some("1")));
        let bare = NameAddr::parse("sip:+15550100@h;tag=2").unwrap();
        assert_eq!((bare.user().as_deref(), bare.tag()), (Some("+15550100"), Some("2")));
        assert_eq!(NameAddr::parse("<tel:+1555;ext=2>").unwrap().user().as_deref(), Some("+1555"));
        for wrong in
            ["", "\"open <sip:a@h>", "<sip:a@h", "Bell, Al <sip:a@h>", "<sip:a@h>x", "<sip:a@h>;;;;", "<nothing>"]
        {
            assert_eq!(NameAddr::parse(wrong), None, "{wrong:?}");
        }
    }
}
