//! Identifiers. Wire identifiers are strings with the prefixes of the Realtime protocol; a client may choose item ids.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

macro_rules! wire_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The identifier as sent on the wire.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.into())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text.into())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

wire_id!(
    /// Identifier of a session: `sess_...`.
    SessionId
);
wire_id!(
    /// Identifier of a conversation item: `item_...`, or a string chosen by the client.
    ItemId
);
wire_id!(
    /// Identifier of a response: `resp_...`.
    ResponseId
);

/// Number of a user turn, counted from 1 in each session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TurnId(pub u64);

impl fmt::Display for TurnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "turn_{}", self.0)
    }
}

/// Tenant identifier: 128 bits derived from the hash of an API key. The same key gives the same tenant in every
/// process. Neither the key nor its hash can be derived from it, so it may be stored in a database and written to a
/// log.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct KeyId([u8; 16]);

impl KeyId {
    /// A tenant with these bytes.
    pub const fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The tenant that is displayed as this text: 32 hexadecimal digits. `None`: it is no tenant's.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 32 {
            return None;
        }
        let mut bytes = [0; 16];
        for (at, byte) in bytes.iter_mut().enumerate() {
            let high = char::from(digits[2 * at]).to_digit(16)?;
            let low = char::from(digits[2 * at + 1]).to_digit(16)?;
            *byte = u8::try_from(16 * high + low).ok()?;
        }
        Some(Self(bytes))
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyId({self})")
    }
}

/// Number of a WebSocket connection, counted from 1 in each process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub u64);

/// Generates identifiers from a seed and a counter. The same seed gives the same sequence, so a replay is exact.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct IdMint {
    seed: u64,
    counter: u64,
}

impl IdMint {
    /// A generator for one session. Two sessions of one process must not share a seed.
    pub const fn new(seed: u64) -> Self {
        Self { seed, counter: 0 }
    }

    /// Continues with other identifiers than a copy of this generator would: for a session that goes back to an earlier state,
    /// whose client has seen identifiers that were generated since.
    pub const fn fork(&mut self, with: u64) {
        self.seed = mix(self.seed ^ mix(with));
    }

    /// The next identifier: `prefix`, an underscore and 21 letters and digits.
    pub fn next(&mut self, prefix: &str) -> String {
        self.counter += 1;
        let mut id = String::with_capacity(prefix.len() + 22);
        id.push_str(prefix);
        id.push('_');
        let mut high = mix(self.seed ^ mix(self.counter));
        let mut low = mix(self.counter ^ mix(!self.seed));
        for i in 0..21 {
            let word = if i < 10 { &mut high } else { &mut low };
            id.push(char::from(ALPHABET[(*word % 62) as usize]));
            *word /= 62;
        }
        id
    }
}

const ALPHABET: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/// The finalizer of splitmix64 (Steele, Lea and Flood, 2014): a bijection, so two counters of one seed never collide.
const fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn a_tenant_is_read_as_it_is_displayed() {
        let key = KeyId::new(std::array::from_fn(|at| 17 * at as u8));
        let text = key.to_string();
        assert_eq!(KeyId::parse(&text), Some(key));
        let not_hexadecimal = text.replace('f', "g");
        for other in ["", &text[1..], &format!("{text}0"), not_hexadecimal.as_str()] {
            assert_eq!(KeyId::parse(other), None, "{other}");
        }
    }

    #[test]
    fn the_same_seed_mints_the_same_and_none_twice() {
        let mut a = IdMint::new(7);
        let mut b = IdMint::new(7);
        let ids: HashSet<_> = (0..10_000).map(|_| a.next("item")).collect();
        assert_eq!(ids.len(), 10_000);
        assert!((0..10_000).all(|_| ids.contains(&b.next("item"))));
        assert!(!ids.contains(&IdMint::new(8).next("item")));
    }
}
