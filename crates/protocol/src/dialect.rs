//! The JSON dialect of a connection: the policy for unknown fields, and GA or beta names.
//!
//! `server` chooses a dialect per connection from the configuration and the request headers; `session` parses and
//! encodes with it.

use super::beta;
use super::client_event::{Incoming, check_weight, parse_with};
use super::error::WireError;
use super::read::UnknownFields;
use super::server_event::{ServerEvent, encode};

/// The dialect of one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dialect {
    /// Policy for unknown fields.
    pub unknown: UnknownFields,
    /// Whether the client uses the beta protocol.
    pub beta: bool,
}

impl Dialect {
    /// Parses one text message of the client.
    pub fn parse(&self, text: &str) -> Result<Incoming, WireError> {
        match self.beta {
            true => {
                check_weight(text)?;
                parse_with(&beta::incoming(text), self.unknown)
            }
            false => parse_with(text, self.unknown),
        }
    }

    /// Whether the client's protocol has the event.
    pub fn has(&self, event: &ServerEvent) -> bool {
        !self.beta || beta::has(event)
    }

    /// Encodes an event that the client's protocol has.
    pub fn encode(&self, event: &ServerEvent, event_id: &str) -> String {
        match self.beta {
            true => beta::outgoing(event, event_id),
            false => encode(event, event_id),
        }
    }
}
