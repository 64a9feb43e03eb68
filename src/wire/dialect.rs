//! How a connection's JSON is read: what happens to unknown fields.
//!
//! `server` chooses one for each connection from the configuration and its headers; `session` reads and writes by it.

use super::client_event::{Incoming, parse_with};
use super::error::WireError;
use super::read::UnknownFields;

/// How one connection speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dialect {
    /// What happens to fields nobody knows.
    pub unknown: UnknownFields,
}

impl Dialect {
    /// Reads one text message of the client.
    pub fn parse(&self, text: &str) -> Result<Incoming, WireError> {
        parse_with(text, self.unknown)
    }
}
