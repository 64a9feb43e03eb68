//! Resumes a session after its connection was lost. Only this hub supports it.
//!
//! The receiving half of a connection runs [`come_back`] until the session is resumed or over; meanwhile the sending
//! half keeps its messages.

use super::connection::{ConnectOptions, Reader, connect_to, next_message};
use super::error::ClientError;
use super::link::{Link, Phase, Writer};
use antiphon_types::RetryPolicy;
use futures_util::{SinkExt, StreamExt};
use serde::Deserialize;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_tungstenite::tungstenite::{Error as WsError, Message};

/// Pauses between attempts; the first attempt is made at once.
const RETRY: RetryPolicy = RetryPolicy::unbounded(Duration::from_millis(100), Duration::from_secs(2));
/// Timeout for one attempt, so that an address that does not answer does not use up the time of the session.
const ATTEMPT_DEADLINE: Duration = Duration::from_secs(5);

/// What is needed to resume a session. It does not implement `Debug`, because the key is a secret.
pub(super) struct Ticket {
    pub(super) key: String,
    /// How long after the loss the session is kept.
    pub(super) within: Duration,
    /// Number of messages of the session received so far.
    pub(super) received: u64,
}

/// How a session was resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resumption {
    /// `None`: nothing was lost in either direction. Otherwise the hub that held the session failed, and the session
    /// continues as it was at the checkpoint whose message had this number: what was received after it is void.
    pub back_to: Option<u64>,
    /// Time from noticing the loss to the server's confirmation.
    pub gap: Duration,
    /// Number of attempts to connect, 1 or more.
    pub n_attempts: u32,
    /// Number of this client's messages that were lost, because more than 8 MiB had to be kept.
    pub n_dropped: u64,
}

/// The states of a caller at the last two checkpoints, which it returns to when the session goes back
/// ([`Resumption::back_to`]).
#[derive(Clone, Debug)]
pub struct Checkpoints<S>(VecDeque<(u64, S)>);

impl<S> Default for Checkpoints<S> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<S: Clone> Checkpoints<S> {
    /// Stores the state at [`super::Event::SessionCheckpoint`], whose number is [`super::Receiver::n_received`].
    pub fn mark(&mut self, number: u64, state: S) {
        self.0.push_back((number, state));
        if self.0.len() > 2 {
            self.0.pop_front();
        }
    }

    /// The state at the checkpoint with this number; later states are forgotten. `None` if it was not stored.
    pub fn back_to(&mut self, number: u64) -> Option<S> {
        self.0.retain(|(checkpoint, _)| *checkpoint <= number);
        self.0.back().filter(|(checkpoint, _)| *checkpoint == number).map(|(_, state)| state.clone())
    }
}

/// A resumed session; the sending half already writes to its socket.
pub(super) struct Back {
    pub(super) reader: Reader,
    /// Messages that arrived while this client's were sent again.
    pub(super) arrived: VecDeque<Result<Message, WsError>>,
    pub(super) resumed: Resumption,
    /// The expected sequence number of reply frames, if the session went back.
    pub(super) next_frame: Option<u32>,
}

/// Whether the session may be resumed after the connection ended with `error`.
pub(super) fn is_resumable(error: &ClientError) -> bool {
    match error {
        ClientError::Broken(_) | ClientError::TimedOut { .. } => true,
        // 1011: the server missed this client's pongs. 1012: another hub continues the session.
        ClientError::Closed { code, .. } => matches!(code, None | Some(1006 | 1011 | 1012)),
        _ => false,
    }
}

/// Connects again and resumes the session, at once and then with pauses, while the server keeps it. `lost` is why the
/// connection ended, and the cause of [`ClientError::NotResumed`]. Dropping the future ends the attempt.
pub(super) async fn come_back(
    link: Arc<Link>,
    options: ConnectOptions,
    lost: ClientError,
) -> Result<Back, ClientError> {
    let since = Instant::now();
    let Some(ticket) = link.ticket() else { return Err(lost) };
    let mut until = since + ticket.within;
    let mut pauses = RETRY.pauses();
    let mut resumed = Resumption { back_to: None, gap: Duration::ZERO, n_attempts: 0, n_dropped: 0 };
    let mut next_frame = None;
    loop {
        let mut is_reached = false;
        resumed.n_attempts += 1;
        match attempt(&link, &options, until).await {
            Ok((confirmed, socket)) => {
                resumed.gap = since.elapsed();
                // The server's wait restarts here.
                until = Instant::now() + ticket.within;
                let continuation = link
                    .resume(confirmed.after, confirmed.received)
                    .map_err(|error| ClientError::Protocol(error.to_string()))?;
                if let Some((number, frame)) = continuation.back_to {
                    resumed.back_to = Some(number);
                    next_frame = frame;
                }
                resumed.n_dropped += continuation.n_dropped;
                let (writer, reader) = socket;
                if let Some((reader, arrived)) = send_again(&link, writer, reader).await {
                    return Ok(Back { reader, arrived, resumed, next_frame });
                }
                pauses.restart();
            }
            Err(error) if is_final(&error) => return Err(error),
            Err(error) => is_reached = answered(&error),
        }
        match pauses.next().map(|pause| Instant::now() + pause).filter(|next| *next < until) {
            Some(next) => sleep_until(next).await,
            None => {
                let within = ticket.within;
                let source = Box::new(lost);
                return Err(ClientError::NotResumed { is_reached, within, source });
            }
        }
        if link.phase() == Phase::Over {
            return Err(lost);
        }
    }
}

/// The server's confirmation: `antiphon.session.resumed`.
#[derive(Deserialize)]
struct Confirmation {
    after: u64,
    received: u64,
}

async fn attempt(
    link: &Link,
    options: &ConnectOptions,
    until: Instant,
) -> Result<(Confirmation, (Writer, Reader)), ClientError> {
    let ticket = link.ticket().ok_or_else(|| ClientError::Protocol("the server sent no resume key".into()))?;
    let left = until.saturating_duration_since(Instant::now());
    let deadline = options.deadline.min(ATTEMPT_DEADLINE).min(left);
    let resuming = async {
        let (writer, reader) = connect_to(options, Some(&ticket)).await?.split();
        let mut reader = reader.boxed();
        let confirmed = confirmation(&next_message(&mut reader).await?)?;
        Ok((confirmed, (Box::pin(writer) as Writer, reader)))
    };
    let late = ClientError::TimedOut { what: "resuming the session", after: deadline };
    timeout(deadline, resuming).await.unwrap_or(Err(late))
}

fn confirmation(greeting: &Message) -> Result<Confirmation, ClientError> {
    #[derive(Deserialize)]
    #[serde(tag = "type")]
    enum Greeting {
        #[serde(rename = "antiphon.session.resumed")]
        Resumed(Confirmation),
        #[serde(rename = "error")]
        Error { error: super::Problem },
        #[serde(other)]
        Other,
    }
    let greeting = greeting.to_text().ok().and_then(|text| serde_json::from_str(text).ok());
    match greeting {
        Some(Greeting::Resumed(confirmed)) => Ok(confirmed),
        Some(Greeting::Error { error }) => {
            Err(ClientError::Server { code: error.code, message: error.message.unwrap_or_default() })
        }
        _ => Err(ClientError::Protocol("the session was not resumed".into())),
    }
}

/// Whether a hub answered the attempt that failed so.
fn answered(error: &ClientError) -> bool {
    matches!(
        error,
        ClientError::Unavailable { .. }
            | ClientError::Refused { .. }
            | ClientError::Server { .. }
            | ClientError::Closed { .. }
    )
}

/// Whether further attempts are pointless.
fn is_final(error: &ClientError) -> bool {
    match error {
        ClientError::BadUrl { .. } | ClientError::BadCertificates { .. } | ClientError::Protocol(_) => true,
        ClientError::Refused { status, .. } => matches!(status, 400 | 401 | 403),
        ClientError::Server { code, .. } => {
            matches!(code.as_deref(), Some("session_not_found" | "invalid_api_key"))
        }
        ClientError::Closed { code, .. } => matches!(code, Some(1000 | 1001 | 1008 | 3000 | 4000)),
        _ => false,
    }
}

/// Sends what the session does not include and meanwhile takes what arrives, so that neither side waits for the other.
/// `None` if the connection was lost again.
async fn send_again(
    link: &Link,
    writer: Writer,
    mut reader: Reader,
) -> Option<(Reader, VecDeque<Result<Message, WsError>>)> {
    let mut arrived = VecDeque::new();
    let mut writer = Some(writer);
    while let Some(message) = link.next_to_write(&mut writer) {
        let mut sending = writer.as_mut()?.send(message);
        loop {
            tokio::select! {
                sent = &mut sending => {
                    sent.ok()?;
                    break;
                }
                message = reader.next() => {
                    let message = message.filter(|message| message.is_ok())?;
                    arrived.push_back(message);
                }
            }
        }
    }
    Some((reader, arrived))
}

#[cfg(test)]
#[path = "resume_tests.rs"]
mod tests;
