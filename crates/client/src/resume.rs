//! Resumes a session after its connection broke. Only this hub supports it.

use super::connection::{ConnectOptions, Connection, connect_to};
use super::error::ClientError;
use super::event::{Event, Received};
use std::time::Duration;
use tokio::time::timeout;

/// What is needed to resume a session. It does not implement `Debug`, because the key is a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Ticket {
    pub(super) key: String,
    /// How long after the break the session is kept.
    pub within: Duration,
    /// Number of messages of the session received so far.
    pub received: u64,
}

impl Connection {
    /// Reconnects and resumes the session: the next message is the one that follows the last message received. Returns
    /// how many messages of this client the server has received; messages sent after those are lost. The connection
    /// must have been opened with [`ConnectOptions::resume`], and the server must have sent a ticket. Makes a single
    /// attempt.
    pub async fn resume(&mut self, options: &ConnectOptions) -> Result<u64, ClientError> {
        let ticket =
            self.receiver.ticket().ok_or_else(|| ClientError::Protocol("the server sent no resume key".into()))?;
        let socket = connect_to(options, Some(&ticket)).await?;
        self.replace(socket);
        let late = ClientError::TimedOut { what: "resuming the session", after: options.deadline };
        let greeting = timeout(options.deadline, self.receiver.greeting()).await.unwrap_or(Err(late))?;
        match greeting {
            Received::Event(Event::SessionResumed { received }) => Ok(received),
            Received::Event(Event::Error { error }) => {
                Err(ClientError::Server { code: error.code, message: error.message.unwrap_or_default() })
            }
            _ => Err(ClientError::Protocol("the session was not resumed".into())),
        }
    }
}
