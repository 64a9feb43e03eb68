//! How a connection's JSON is read and written: what happens to unknown fields, and whose names are used.
//!
//! `server` chooses one for each connection from the configuration and its headers; `session` reads and writes by it.

use super::beta;
use super::client_event::{Incoming, check_weight, parse_with};
use super::error::WireError;
use super::read::UnknownFields;
use super::server_event::{ServerEvent, encode};

/// How one connection speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dialect {
    /// What happens to fields nobody knows.
    pub unknown: UnknownFields,
    /// The names before GA.
    pub beta: bool,
}

impl Dialect {
    /// Reads one text message of the client.
    pub fn parse(&self, text: &str) -> Result<Incoming, WireError> {
        match self.beta {
            true => {
                check_weight(text)?;
                parse_with(&beta::incoming(text), self.unknown)
            }
            false => parse_with(text, self.unknown),
        }
    }

    /// The event as it goes out; `None` where the client has no name for it.
    pub fn encode(&self, event: &ServerEvent, event_id: &str) -> Option<String> {
        match self.beta {
            true => beta::outgoing(event, event_id),
            false => Some(encode(event, event_id)),
        }
    }
}
