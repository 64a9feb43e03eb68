//! Digest authentication (RFC 3261, section 22; RFC 8760): challenges for callers, and responses to those of a
//! registrar.
//!
//! A nonce is a time and a keyed hash of it and the peer's address, so that a challenge leaves no state. It serves its
//! address for [`NONCE_LIFETIME`].

use crate::header::split;
use md5::Md5;
use sha2::{Digest, Sha256};
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

/// How long a nonce serves.
pub(crate) const NONCE_LIFETIME: Duration = Duration::from_secs(60);
/// The realm of challenges.
pub(crate) const REALM: &str = "antiphon";

/// A user name and its password.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user name.
    pub username: String,
    /// The password.
    pub password: String,
}

impl Credentials {
    /// The value of `Authorization` that answers this challenge. `None`: it is none, or asks for what is not known
    /// here.
    pub fn answer(&self, challenge: &str, method: &str, uri: &str, client_nonce: &str) -> Option<String> {
        Fields::parse(challenge)?.answer(self, method, uri, client_nonce)
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("username", &self.username).finish_non_exhaustive()
    }
}

/// Issues and checks nonces.
pub(crate) struct Nonces {
    secret: [u8; 32],
}

/// What a nonce is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NonceState {
    Valid,
    /// It was valid: a new one is to be used.
    Stale,
    Foreign,
}

impl Nonces {
    pub(crate) fn new(secret: [u8; 32]) -> Self {
        Self { secret }
    }

    /// A nonce for this address; `age`: of the endpoint.
    pub(crate) fn issue(&self, age: Duration, address: IpAddr) -> String {
        self.at(age.as_secs(), address)
    }

    pub(crate) fn check(&self, nonce: &str, age: Duration, address: IpAddr) -> NonceState {
        let issued = nonce.split_once('-').and_then(|(seconds, _)| u64::from_str_radix(seconds, 16).ok());
        let Some(issued) = issued.filter(|issued| self.at(*issued, address) == nonce) else {
            return NonceState::Foreign;
        };
        let is_valid = issued <= age.as_secs() && age.as_secs() - issued <= NONCE_LIFETIME.as_secs();
        if is_valid { NonceState::Valid } else { NonceState::Stale }
    }

    fn at(&self, seconds: u64, address: IpAddr) -> String {
        let mut hash = Sha256::new();
        hash.update(self.secret);
        hash.update(seconds.to_be_bytes());
        hash.update(address.to_string());
        format!("{seconds:x}-{}", hex(&hash.finalize()[..12]))
    }
}

/// The value of `WWW-Authenticate` with this nonce.
pub(crate) fn challenge(nonce: &str, is_stale: bool) -> String {
    let stale = if is_stale { ", stale=true" } else { "" };
    format!("Digest realm=\"{REALM}\", nonce=\"{nonce}\", qop=\"auth\", algorithm=MD5{stale}")
}

/// The fields of a `Digest` header.
pub(crate) struct Fields(Vec<(String, String)>);

impl Fields {
    /// Reads the value of a header. `None`: it is of another scheme, or longer than any that is meant.
    pub(crate) fn parse(value: &str) -> Option<Self> {
        let (scheme, rest) = value.trim().split_once([' ', '\t'])?;
        if !scheme.eq_ignore_ascii_case("digest") || value.len() > 2_048 {
            return None;
        }
        let fields = split(rest, ',').filter_map(|field| {
            let (name, value) = field.split_once('=')?;
            Some((name.trim().to_ascii_lowercase(), value.trim().trim_matches('"').to_owned()))
        });
        Some(Self(fields.collect()))
    }

    pub(crate) fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str()).unwrap_or_default()
    }

    /// Whether these fields of an `Authorization` prove the password. The nonce is checked apart.
    pub(crate) fn prove(&self, credentials: &Credentials, method: &str) -> bool {
        let is_for_us = self.get("realm") == REALM && self.get("username") == credentials.username;
        let algorithm = self.get("algorithm");
        let is_known = algorithm.is_empty() || algorithm.eq_ignore_ascii_case("md5");
        if !is_for_us || !is_known {
            return false;
        }
        let request = Request { method, uri: self.get("uri"), realm: REALM, nonce: self.get("nonce") };
        let protection = match self.get("qop") {
            "" => None,
            "auth" => Some((self.get("nc"), self.get("cnonce"))),
            _ => return false,
        };
        let expected = request.response(credentials, Algorithm::Md5, protection);
        is_equal(expected.as_bytes(), self.get("response").to_ascii_lowercase().as_bytes())
    }

    /// The value of `Authorization` that answers these fields of a challenge. `None`: it asks for what is not known
    /// here.
    pub(crate) fn answer(&self, credentials: &Credentials, method: &str, uri: &str, cnonce: &str) -> Option<String> {
        let algorithm = match self.get("algorithm").to_ascii_lowercase().as_str() {
            "" | "md5" => Algorithm::Md5,
            "sha-256" => Algorithm::Sha256,
            _ => return None,
        };
        let qop = self.get("qop");
        let has_auth = qop.split(',').any(|word| word.trim() == "auth");
        if !qop.is_empty() && !has_auth {
            return None;
        }
        let request = Request { method, uri, realm: self.get("realm"), nonce: self.get("nonce") };
        let response = request.response(credentials, algorithm, has_auth.then_some(("00000001", cnonce)));
        let mut value = format!(
            "Digest username=\"{}\", realm=\"{}\", nonce=\"{}\", uri=\"{uri}\", response=\"{response}\", algorithm={}",
            credentials.username,
            request.realm,
            request.nonce,
            algorithm.name(),
        );
        if has_auth {
            value.push_str(&format!(", qop=auth, nc=00000001, cnonce=\"{cnonce}\""));
        }
        if !self.get("opaque").is_empty() {
            value.push_str(&format!(", opaque=\"{}\"", self.get("opaque")));
        }
        Some(value)
    }
}

#[derive(Clone, Copy)]
enum Algorithm {
    Md5,
    Sha256,
}

impl Algorithm {
    fn name(self) -> &'static str {
        match self {
            Self::Md5 => "MD5",
            Self::Sha256 => "SHA-256",
        }
    }

    fn hash(self, text: &str) -> String {
        match self {
            Self::Md5 => hex(&<Md5 as md5::Digest>::digest(text)),
            Self::Sha256 => hex(&Sha256::digest(text)),
        }
    }
}

struct Request<'a> {
    method: &'a str,
    uri: &'a str,
    realm: &'a str,
    nonce: &'a str,
}

impl Request<'_> {
    /// RFC 2617, section 3.2.2; `protection`: nonce count and client nonce of `qop=auth`.
    fn response(&self, credentials: &Credentials, algorithm: Algorithm, protection: Option<(&str, &str)>) -> String {
        let Self { method, uri, realm, nonce } = self;
        let who = algorithm.hash(&format!("{}:{realm}:{}", credentials.username, credentials.password));
        let what = algorithm.hash(&format!("{method}:{uri}"));
        let text = match protection {
            Some((count, client_nonce)) => format!("{who}:{nonce}:{count}:{client_nonce}:auth:{what}"),
            None => format!("{who}:{nonce}:{what}"),
        };
        algorithm.hash(&text)
    }
}

/// Compares in a time that depends on the lengths only.
fn is_equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credentials() -> Credentials {
        Credentials { username: "Mufasa".into(), password: "Circle Of Life".into() }
    }

    /// The example of RFC 2617, section 3.5.
    #[test]
    fn the_published_example_is_computed() {
        let request = Request {
            method: "GET",
            uri: "/dir/index.html",
            realm: "testrealm@host.com",
            nonce: "dcd98b7102dd2f0e8b11d0f600bfb0c093",
        };
        let response = request.response(&credentials(), Algorithm::Md5, Some(("00000001", "0a4f113b")));
        assert_eq!(response, "6629fae49393a05397450978507c4ef1");
    }

    #[test]
    fn an_answer_to_a_challenge_proves_the_password_and_no_other_does() {
        let address = "192.0.2.1".parse().unwrap();
        let nonces = Nonces::new([7; 32]);
        let nonce = nonces.issue(Duration::from_secs(5), address);
        let fields = Fields::parse(&challenge(&nonce, false)).unwrap();
        let answer = fields.answer(&credentials(), "INVITE", "sip:1@h", "abc").unwrap();
        let proof = Fields::parse(&answer).unwrap();
        assert!(proof.prove(&credentials(), "INVITE"));
        assert!(!proof.prove(&credentials(), "BYE"));
        let wrong = Credentials { password: "Circle of life".into(), ..credentials() };
        assert!(!proof.prove(&wrong, "INVITE"));
        assert!(!format!("{wrong:?}").contains("ircle"));
    }

    #[test]
    fn a_nonce_serves_its_address_for_a_minute() {
        let address = "192.0.2.1".parse().unwrap();
        let nonces = Nonces::new([7; 32]);
        let nonce = nonces.issue(Duration::from_secs(5), address);
        assert_eq!(nonces.check(&nonce, Duration::from_secs(65), address), NonceState::Valid);
        assert_eq!(nonces.check(&nonce, Duration::from_secs(66), address), NonceState::Stale);
        assert_eq!(nonces.check(&nonce, Duration::from_secs(6), "192.0.2.2".parse().unwrap()), NonceState::Foreign);
        for other in ["", "5-", "zz-00", "5-000000000000000000000000"] {
            assert_eq!(nonces.check(other, Duration::from_secs(6), address), NonceState::Foreign, "{other:?}");
        }
    }
}
