//! Digests that replace a server's secrets in a replay log: two can be compared, but no secret can be recovered.

use serde::Serializer;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// Prefix of a digest. A string that already has it is left unchanged, so a replay writes what was recorded.
const MARK: &str = "sha256:";
/// Bytes of the digest that are kept.
const KEPT: usize = 8;

/// Serializes the digest of a secret.
pub(super) fn stand_in<S: Serializer>(key: &Option<String>, to: S) -> Result<S::Ok, S::Error> {
    match key {
        Some(key) => to.serialize_some(&of(key)),
        None => to.serialize_none(),
    }
}

/// Serializes headers with the digests of their values.
pub(super) fn stand_ins<S: Serializer>(headers: &BTreeMap<String, String>, to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(headers.iter().map(|(name, value)| (name, of(value))))
}

fn of(key: &str) -> String {
    let is_one = |rest: &str| rest.len() == 2 * KEPT && rest.bytes().all(|c| c.is_ascii_hexdigit());
    if key.strip_prefix(MARK).is_some_and(is_one) {
        return key.to_owned();
    }
    let digest = Sha256::digest(key.as_bytes());
    digest[..KEPT].iter().fold(MARK.to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use crate::mcp::Server;
    use std::collections::BTreeMap;

    #[test]
    fn no_key_is_written_and_a_stand_in_stays_what_it_is() {
        let server = Server {
            label: "notes".into(),
            url: "https://mcp.example.org/".into(),
            authorization: Some("Bearer very-secret".into()),
            headers: BTreeMap::from([("x-key".into(), "as-secret".into())]),
        };
        let written = serde_json::to_string(&server).expect("written");
        assert!(!written.contains("secret") && written.contains("x-key"), "{written}");
        let read: Server = serde_json::from_str(&written).expect("read");
        assert_ne!(read.authorization.as_deref(), read.headers.get("x-key").map(String::as_str));
        assert_eq!(serde_json::to_string(&read).expect("written again"), written);
    }
}
