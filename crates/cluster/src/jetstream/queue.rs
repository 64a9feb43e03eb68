//! The queue of jobs: any hub takes any job, and a job whose hub is silent goes to the next one.
//!
//! A job stays in the stream until it is finished. A hub that works on it says so every few seconds ([`Task::progress`]); after
//! 10 s of silence JetStream gives it to another hub. The first one may still be alive then: what it writes must be fenced by
//! the revision of the job's record.

use super::{ApiError, JetStreamContext, RecordError, With};
use crate::subject;
use async_nats::{Request, Subject};
use bytes::Bytes;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// The stream.
pub(crate) const STREAM: &str = "ANTIPHON_JOBS";

/// Its consumer, which all hubs share.
pub(crate) const CONSUMER: &str = "hubs";

/// Silence of a hub after which its job goes to another one.
const ACK_WAIT: Duration = Duration::from_secs(10);

/// How long JetStream holds a hub's request for a job.
const PULL_FOR: Duration = Duration::from_secs(20);

/// The queue. Cheap to clone. Calls wait and fail like those of [`Bucket`](super::Bucket).
#[derive(Clone)]
pub struct Queue {
    shared: Arc<JetStreamContext>,
}

/// A job that this hub was given. Dropping it gives the job to another hub after 10 s.
pub struct Task {
    shared: Arc<JetStreamContext>,
    /// The job.
    pub id: String,
    ack: Subject,
}

impl Queue {
    /// How often a hub should call [`Task::progress`]: three times before the job goes to another hub.
    pub const PROGRESS_EVERY: Duration = Duration::from_secs(3);

    pub(super) fn new(shared: &Arc<JetStreamContext>) -> Self {
        Self { shared: shared.clone() }
    }

    /// Puts a job at the end of the queue; nothing happens if it waits or is worked on. Ids have letters, digits, `-` and `_`.
    ///
    /// # Errors
    /// See [`RecordError`].
    pub async fn push(&self, id: &str) -> Result<(), RecordError> {
        match self.shared.publish(subject::job(id), Bytes::new(), With::default()).await {
            Ok(_) => Ok(()),
            Err(ApiError::Reply(said)) if said.description.contains("per subject") => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits for a job, 20 s at most; `None` if there was none. Cancelling is safe: a job that was on its way goes to another
    /// hub after 10 s.
    ///
    /// # Errors
    /// See [`RecordError`].
    pub async fn pull(&self) -> Result<Option<Task>, RecordError> {
        self.pull_within(PULL_FOR).await
    }

    async fn pull_within(&self, wait: Duration) -> Result<Option<Task>, RecordError> {
        if !self.shared.link.state().is_connected {
            return Err(RecordError::Away("there is no connection to NATS".into()));
        }
        let asked = json!({"batch": 1, "expires": wait.as_nanos() as u64}).to_string();
        let deadline = wait + Duration::from_secs(2);
        let client = self.shared.link.client();
        // The reply has the subject of the job, by which the client finds no request: so it gets an inbox of its own.
        let request = Request::new().payload(asked.into()).timeout(Some(deadline)).inbox(client.new_inbox());
        let to = format!("$JS.API.CONSUMER.MSG.NEXT.{STREAM}.{CONSUMER}");
        let reply = timeout(deadline, client.send_request(to, request)).await;
        let message = match reply {
            Ok(Ok(message)) => message,
            // The connection was lost meanwhile.
            Err(_) => return Ok(None),
            Ok(Err(error)) => return Err(RecordError::Away(error.to_string())),
        };
        match (subject::last_token(&message.subject), message.status, message.reply) {
            (Some(id), None, Some(ack)) if ack.starts_with("$JS.ACK.") => {
                Ok(Some(Task { shared: self.shared.clone(), id: id.to_owned(), ack }))
            }
            // That the time has passed, or that the consumer's leader changes.
            _ => Ok(None),
        }
    }

    /// Makes the consumer, or gives it the settings of this version.
    pub(super) async fn make_consumer(&self, replicas: usize) -> Result<(), ApiError> {
        let config = json!({
            "stream_name": STREAM,
            "config": {
                "durable_name": CONSUMER, "name": CONSUMER, "ack_policy": "explicit", "deliver_policy": "all",
                "ack_wait": ACK_WAIT.as_nanos() as u64, "max_deliver": -1, "max_ack_pending": 20_000, "max_waiting": 4_096,
                "replay_policy": "instant", "num_replicas": replicas,
            },
        });
        self.shared.api::<Value>(&format!("CONSUMER.CREATE.{STREAM}.{CONSUMER}"), &config).await.map(drop)
    }

    /// Does once what has to be permitted.
    pub(super) async fn try_out(&self) -> Result<(), RecordError> {
        let probe = "probe";
        self.push(probe).await?;
        // A peer that receives it drops it: there is no such job.
        let to = format!("$JS.ACK.{STREAM}.probe");
        self.shared.link.client().publish(to, "".into()).await.map_err(|error| RecordError::Away(error.to_string()))?;
        if let Some(task) = self.pull_within(Duration::from_millis(100)).await? {
            if task.id == probe {
                task.done().await?;
            } else {
                task.release().await;
            }
        }
        Ok(())
    }
}

impl Task {
    /// Says that this hub works on it. Does not wait for a reply.
    pub async fn progress(&self) {
        self.say("+WPI").await;
    }

    /// Removes the job from the queue. Waits for JetStream's confirmation.
    ///
    /// # Errors
    /// See [`RecordError`]; the job may then be given to a hub once more.
    pub async fn done(&self) -> Result<(), RecordError> {
        let request = Request::new().payload("+ACK".into()).timeout(Some(super::REPLY_DEADLINE));
        let reply = self.shared.link.client().send_request(self.ack.clone(), request).await;
        reply.map(drop).map_err(|error| RecordError::Away(error.to_string()))
    }

    /// Gives the job to the next hub now. Does not wait for a reply.
    pub async fn release(&self) {
        self.say("-NAK").await;
    }

    /// Gives the job to a hub after this time: this one cannot do it. Does not wait for a reply.
    pub async fn release_after(&self, pause: Duration) {
        self.say(&format!("-NAK {}", json!({"delay": pause.as_nanos() as u64}))).await;
    }

    async fn say(&self, what: &str) {
        // Should it be lost, the time of silence begins to run.
        let said = self.shared.link.client().publish(self.ack.clone(), Bytes::copy_from_slice(what.as_bytes()));
        let _ = timeout(super::REPLY_DEADLINE, said).await;
    }
}
