//! Twilio's signature of requests: HMAC-SHA1 over the URL, as the world sees it, and the parameters of a form.
//!
//! [`super`] checks it for the stream's upgrade and for the webhook. The auth token is in no log and no `Debug` output.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::hmac;

/// The header that carries it.
pub(super) const HEADER: &str = "x-twilio-signature";

/// The key that Twilio signs with: an account's auth token.
pub(super) struct AuthToken(hmac::Key);

impl AuthToken {
    pub(super) fn new(token: &str) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, token.as_bytes()))
    }

    /// Whether `signature` is that of a request for one of `urls` with this form, names and values decoded. Compares in constant
    /// time.
    pub(super) fn has_signed(&self, signature: &str, urls: &[String], form: &[(String, String)]) -> bool {
        let Ok(signature) = BASE64.decode(signature) else { return false };
        let mut parameters: Vec<_> = form.iter().collect();
        // Twilio sorts by name, then value.
        parameters.sort();
        let rest: String = parameters.into_iter().flat_map(|(name, value)| [name.as_str(), value]).collect();
        urls.iter().any(|url| hmac::verify(&self.0, format!("{url}{rest}").as_bytes(), &signature).is_ok())
    }
}

/// The URLs that a request to `path` at the public address `base` (`https://host`, no path) may have been signed for. Twilio
/// signs the URL of its configuration: with or without the default port, and for streams with either scheme and slash.
pub(super) fn urls(base: &str, path: &str, is_stream: bool) -> Vec<String> {
    let base = base.trim_end_matches('/');
    let (scheme, host) = base.split_once("://").unwrap_or(("https", base));
    let (port, schemes): (&str, &[&str]) = match (scheme, is_stream) {
        ("http", false) => (":80", &["http"]),
        ("http", true) => (":80", &["ws", "http"]),
        (_, false) => (":443", &["https"]),
        (_, true) => (":443", &["wss", "https"]),
    };
    let mut urls = Vec::new();
    for scheme in schemes {
        for port in ["", port] {
            // A host with a port of its own has no other.
            if !port.is_empty() && host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) {
                continue;
            }
            urls.push(format!("{scheme}://{host}{port}{path}"));
            if is_stream {
                urls.push(format!("{scheme}://{host}{port}{path}/"));
            }
        }
    }
    urls
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of Twilio's documentation ("Security", "Validating requests").
    #[test]
    fn twilios_example_is_valid_and_no_other() {
        let token = AuthToken::new("12345");
        let form = [
            ("CallSid", "CA1234567890ABCDE"),
            ("Caller", "+14158675309"),
            ("Digits", "1234"),
            ("From", "+14158675309"),
            ("To", "+18005551212"),
        ];
        let mut form: Vec<_> =
            form.iter().rev().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let urls = ["https://mycompany.com/myapp.php?foo=1&bar=2".to_owned()];
        let signature = "RSOYDt4T1cUTdK1PDd93/VVr8B8=";
        assert!(token.has_signed(signature, &urls, &form));
        assert!(!AuthToken::new("12346").has_signed(signature, &urls, &form));
        assert!(!token.has_signed(signature, &["https://mycompany.com/myapp.php".to_owned()], &form));
        for wrong in ["", "?", "RSOYDt4T1cUTdK1PDd93/VVr8B9=", "RSOYDt4T1cUTdK1PDd93"] {
            assert!(!token.has_signed(wrong, &urls, &form), "{wrong}");
        }
        form[0].1.push('1');
        assert!(!token.has_signed(signature, &urls, &form));
    }

    #[test]
    fn a_url_has_the_forms_in_which_twilio_signs_it() {
        assert_eq!(urls("https://a.example/", "/v", false), ["https://a.example/v", "https://a.example:443/v"]);
        assert_eq!(urls("https://a.example:8443", "/v", false), ["https://a.example:8443/v"]);
        let stream = urls("https://a.example", "/v", true);
        for url in ["wss://a.example/v", "wss://a.example/v/", "wss://a.example:443/v", "https://a.example/v"] {
            assert!(stream.iter().any(|known| known == url), "{url} is not in {stream:?}");
        }
    }
}
