//! Wyoming's frames: a line of JSON, then further JSON of `data_length` bytes, then `payload_length` bytes.
//!
//! [`Reader`] and [`Writer`] are the two directions of one connection, and [`super`] their only user. They know no event. A
//! peer's frame is in memory as a whole, and bounded; an incomplete one has a deadline that further bytes do not extend.

use bytes::{Buf, Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, timeout_at};

/// The version of the protocol that is spoken: that of PyPI's `wyoming`.
pub(super) const VERSION: &str = "1.10.2";
/// Maximum length of a line, and of the further JSON, in bytes.
pub(super) const MAX_JSON: usize = 64 * 1024;
/// Maximum length of a payload, in bytes: 1.3 s of the largest format there is, 48 kHz stereo with 16 bits. Clients send 20 to 100 ms.
pub(super) const MAX_PAYLOAD: usize = 256 * 1024;
/// Maximum time for a peer to read an event, from its first byte to its last.
const STALL: Duration = Duration::from_secs(30);

/// One event.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Event {
    /// Its type.
    pub(super) kind: String,
    /// Its data, from the line and behind it.
    pub(super) data: Map<String, Value>,
    /// Its payload; empty if it has none.
    pub(super) payload: Bytes,
}

/// Why the next event cannot be read. The connection cannot go on.
#[derive(Debug, thiserror::Error)]
pub(super) enum FrameError {
    /// The line or the further JSON is something else than a JSON object with a type.
    #[error("an event is a line with a JSON object that has a 'type'")]
    Json,
    /// A part is longer than it may be.
    #[error("the {part} is longer than {most} bytes")]
    TooLong {
        /// Which part.
        part: &'static str,
        /// Its bound, in bytes.
        most: usize,
    },
    /// The connection ended within an event, or broke.
    #[error("the connection broke: {0}")]
    Broken(#[from] std::io::Error),
    /// The event did not arrive in time.
    #[error("an event took longer than {0:?} (server.message_seconds)")]
    Late(Duration),
}

/// The line.
#[derive(Deserialize)]
struct Header {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    data: Option<Map<String, Value>>,
    #[serde(default)]
    data_length: Option<usize>,
    #[serde(default)]
    payload_length: Option<usize>,
}

/// Reads events.
pub(super) struct Reader<R> {
    stream: R,
    buffer: BytesMut,
    header: Option<Header>,
    /// When the first byte of the incomplete event came.
    since: Option<Instant>,
    /// Maximum time for an event.
    most: Duration,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    /// `most`: the longest time from an event's first byte to its last.
    pub(super) fn new(stream: R, most: Duration) -> Self {
        Self { stream, buffer: BytesMut::new(), header: None, since: None, most }
    }

    /// Waits for the next event; `None`: the peer has ended the connection. Cancel safe.
    ///
    /// # Errors
    /// The connection cannot go on.
    pub(super) async fn next(&mut self) -> Result<Option<Event>, FrameError> {
        loop {
            if let Some(event) = self.complete()? {
                self.since = (!self.buffer.is_empty()).then(Instant::now);
                return Ok(Some(event));
            }
            let read = match self.since {
                None => self.stream.read_buf(&mut self.buffer).await?,
                Some(since) => timeout_at(since + self.most, self.stream.read_buf(&mut self.buffer))
                    .await
                    .map_err(|_| FrameError::Late(self.most))??,
            };
            if read == 0 {
                return match self.since {
                    None => Ok(None),
                    Some(_) => Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into()),
                };
            }
            self.since.get_or_insert_with(Instant::now);
        }
    }

    /// The event at the beginning of the buffer, if all of it is there.
    fn complete(&mut self) -> Result<Option<Event>, FrameError> {
        if self.header.is_none() {
            let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') else {
                return if self.buffer.len() > MAX_JSON { Err(too_long("line", MAX_JSON)) } else { Ok(None) };
            };
            if end > MAX_JSON {
                return Err(too_long("line", MAX_JSON));
            }
            let line = self.buffer.split_to(end + 1);
            let header: Header = serde_json::from_slice(&line).map_err(|_| FrameError::Json)?;
            for (part, length, most) in
                [("data", header.data_length, MAX_JSON), ("payload", header.payload_length, MAX_PAYLOAD)]
            {
                if length.is_some_and(|length| length > most) {
                    return Err(too_long(part, most));
                }
            }
            self.header = Some(header);
        }
        let lengths = |header: &Header| (header.data_length.unwrap_or(0), header.payload_length.unwrap_or(0));
        let Some(header) = self.header.take_if(|header| {
            let (data, payload) = lengths(header);
            self.buffer.len() >= data + payload
        }) else {
            return Ok(None);
        };
        let (n_data, n_payload) = lengths(&header);
        let mut data = header.data.unwrap_or_default();
        if n_data > 0 {
            let more: Map<String, Value> =
                serde_json::from_slice(&self.buffer[..n_data]).map_err(|_| FrameError::Json)?;
            self.buffer.advance(n_data);
            data.extend(more);
        }
        let payload = Bytes::copy_from_slice(&self.buffer[..n_payload]);
        self.buffer.advance(n_payload);
        if self.buffer.is_empty() {
            // A long event does not occupy its memory afterwards.
            self.buffer = BytesMut::new();
        }
        Ok(Some(Event { kind: header.kind, data, payload }))
    }
}

impl Reader<tokio::net::tcp::OwnedReadHalf> {
    /// Resolves when the peer has closed the connection without sending more. Cancel safe.
    pub(super) async fn closed(&mut self) {
        if self.buffer.is_empty() && matches!(self.stream.peek(&mut [0]).await, Ok(0) | Err(_)) {
            return;
        }
        std::future::pending().await
    }

    /// Reads and discards what still comes, so that the peer receives what was written last: a connection that is closed with
    /// unread data is reset. Ends with the peer's end, or at `deadline`.
    pub(super) async fn discard(mut self, deadline: Instant) {
        let ended = async {
            loop {
                self.buffer.clear();
                if matches!(self.stream.read_buf(&mut self.buffer).await, Ok(0) | Err(_)) {
                    return;
                }
            }
        };
        let _ = timeout_at(deadline, ended).await;
    }
}

/// Writes events.
pub(super) struct Writer<W> {
    stream: W,
    deadline: Option<Instant>,
}

#[derive(Serialize)]
struct Line<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    version: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    data_length: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_length: Option<usize>,
}

impl<W: AsyncWrite + Unpin> Writer<W> {
    pub(super) fn new(stream: W) -> Self {
        Self { stream, deadline: None }
    }

    /// Events wait for the peer no longer than until then, all together; `None`: each has its own time only.
    pub(super) fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.deadline = deadline;
    }

    /// Sends an event with data, which is an object or null, and without a payload. Waits while the peer does not read, 30 s at
    /// most and until the deadline. Not cancel safe.
    ///
    /// # Errors
    /// The connection broke, or the peer does not read.
    pub(super) async fn send(&mut self, kind: &str, data: Value) -> Result<(), std::io::Error> {
        self.send_with(kind, data, &[]).await
    }

    /// The same with a payload.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub(super) async fn send_with(&mut self, kind: &str, data: Value, payload: &[u8]) -> Result<(), std::io::Error> {
        let data = if data.is_null() { String::new() } else { data.to_string() };
        let length = |n: usize| (n > 0).then_some(n);
        let line =
            Line { kind, version: VERSION, data_length: length(data.len()), payload_length: length(payload.len()) };
        let mut frame = serde_json::to_vec(&line)?;
        frame.push(b'\n');
        frame.extend_from_slice(data.as_bytes());
        frame.extend_from_slice(payload);
        let stalled = Instant::now() + STALL;
        let deadline = self.deadline.map_or(stalled, |deadline| deadline.min(stalled));
        timeout_at(deadline, self.stream.write_all(&frame)).await?
    }

    /// Ends this direction: the peer sees the end behind the last event.
    pub(super) async fn end(&mut self) {
        let _ = timeout_at(Instant::now() + STALL, self.stream.shutdown()).await;
    }
}

fn too_long(part: &'static str, most: usize) -> FrameError {
    FrameError::TooLong { part, most }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const MOST: Duration = Duration::from_secs(60);

    async fn read(bytes: &[u8]) -> Result<Option<Event>, FrameError> {
        Reader::new(bytes, MOST).next().await
    }

    #[tokio::test]
    async fn data_of_the_line_and_behind_it_are_one() {
        let bytes = b"{\"type\":\"audio-chunk\",\"version\":\"9\",\"data\":{\"a\":1,\"b\":1},\"data_length\":7,\"payload_length\":3}\n{\"b\":2}abc{\"type\":\"ping\"}\n";
        let mut reader = Reader::new(&bytes[..], MOST);
        let event = reader.next().await.unwrap().unwrap();
        assert_eq!((event.kind.as_str(), Value::Object(event.data)), ("audio-chunk", json!({"a": 1, "b": 2})));
        assert_eq!(event.payload, "abc");
        let ping = reader.next().await.unwrap().unwrap();
        assert_eq!((ping.kind.as_str(), ping.data.len(), ping.payload.len()), ("ping", 0, 0));
        assert_eq!(reader.next().await.unwrap(), None);
    }

    #[tokio::test]
    async fn what_is_written_is_read() {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes);
        writer.send("describe", Value::Null).await.unwrap();
        writer.send_with("audio-chunk", json!({"rate": 24_000}), &[1, 2]).await.unwrap();
        let mut reader = Reader::new(&bytes[..], MOST);
        assert_eq!(reader.next().await.unwrap().unwrap().kind, "describe");
        let chunk = reader.next().await.unwrap().unwrap();
        assert_eq!((&chunk.data["rate"], &chunk.payload[..]), (&json!(24_000), &[1, 2][..]));
    }

    #[tokio::test]
    async fn frames_that_are_no_events_end_the_connection() {
        for wrong in
            ["\n", "[]\n", "{}\n", "{\"type\":7}\n", "{\"type\":\"x\",\"data_length\":2}\n[]", "GET / HTTP/1.1\r\n"]
        {
            assert!(matches!(read(wrong.as_bytes()).await, Err(FrameError::Json)), "{wrong:?}");
        }
        for (wrong, of) in [
            ("{\"type\":\"x\",\"data_length\":65537}\n".to_owned(), "data"),
            ("{\"type\":\"x\",\"payload_length\":262145}\n".into(), "payload"),
            ("x".repeat(MAX_JSON + 1), "line"),
        ] {
            assert!(
                matches!(read(wrong.as_bytes()).await, Err(FrameError::TooLong { part, .. }) if part == of),
                "{of}"
            );
        }
        for negative in ["{\"type\":\"x\",\"data_length\":-1}\n", "{\"type\":\"x\",\"payload_length\":1e30}\n"] {
            assert!(matches!(read(negative.as_bytes()).await, Err(FrameError::Json)), "{negative}");
        }
        assert!(matches!(read(b"{\"type\":\"x\",\"payload_length\":5}\nab").await, Err(FrameError::Broken(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_reads_slowly_does_not_extend_the_deadline() {
        let (ours, mut theirs) = tokio::io::duplex(64);
        let mut writer = Writer::new(ours);
        let begun = Instant::now();
        writer.set_deadline(Some(begun + Duration::from_secs(95)));
        let write = async { while writer.send("ping", Value::Null).await.is_ok() {} };
        let trickle = async {
            loop {
                tokio::time::sleep(Duration::from_secs(10)).await;
                theirs.read_exact(&mut [0; 64]).await.unwrap();
            }
        };
        tokio::select! {
            () = write => {}
            () = trickle => unreachable!(),
        }
        assert_eq!(begun.elapsed(), Duration::from_secs(95));
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_do_not_extend_the_time_of_an_event() {
        let (mut ours, theirs) = tokio::io::duplex(64);
        let mut reader = Reader::new(theirs, Duration::from_secs(5));
        let trickle = async {
            loop {
                ours.write_all(b"x").await.unwrap();
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        let begun = Instant::now();
        tokio::select! {
            read = reader.next() => assert!(matches!(read, Err(FrameError::Late(_)))),
            () = trickle => unreachable!(),
        }
        assert_eq!(begun.elapsed(), Duration::from_secs(5));
    }
}
