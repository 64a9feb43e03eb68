//! A client's way back to its session after the connection broke. This hub only: other servers know no such thing.

use super::connection::{ConnectOptions, Connection, connect_to};
use super::error::ClientError;
use super::event::{Event, Received};
use std::time::Duration;
use tokio::time::timeout;

/// What it takes to go on with a session. It has no `Debug`: the key is a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Ticket {
    pub(super) key: String,
    /// How long after the break the session waits.
    pub within: Duration,
    /// The messages of the session received so far.
    pub received: u64,
}

impl Connection {
    /// Connects anew and goes on with the session where it broke off: the next thing received is the one that followed
    /// the last. Says how many messages of this client's the server has got; what was sent after those is lost. The
    /// connection must have been opened with [`ConnectOptions::resume`], and for this to work the server must have said
    /// how. Does not try again by itself.
    pub async fn resume(&mut self, options: &ConnectOptions) -> Result<u64, ClientError> {
        let ticket = self.receiver.ticket().ok_or_else(|| ClientError::Protocol("no way back was given".into()))?;
        let socket = connect_to(options, Some(&ticket)).await?;
        self.replace(socket);
        let late = ClientError::TimedOut { what: "taking the session up", after: options.deadline };
        let greeting = timeout(options.deadline, self.receiver.greeting()).await.unwrap_or(Err(late))?;
        match greeting {
            Received::Event(Event::SessionResumed { received }) => Ok(received),
            Received::Event(Event::Error { error }) => {
                Err(ClientError::Server { code: error.code, message: error.message.unwrap_or_default() })
            }
            _ => Err(ClientError::Protocol("no word of the session that was to be taken up".into())),
        }
    }
}
