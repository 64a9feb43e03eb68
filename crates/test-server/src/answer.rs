//! How a request is answered, well or badly.

use crate::connection::WebSocket;
use crate::request::Request;
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::Value;
use std::time::Duration;
use tokio::sync::mpsc;

/// An answer: a status, headers, and steps that send the body, wait, or end the connection.
pub struct Answer {
    pub(crate) form: Form,
    /// Before the head.
    pub(crate) delay: Duration,
    pub(crate) steps: Vec<Step>,
}

pub(crate) enum Form {
    Http(Head),
    /// The steps send all that is sent.
    Raw,
    WebSocket(Box<dyn FnOnce(WebSocket) -> BoxFuture<'static, ()> + Send>),
}

pub(crate) struct Head {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) length: Length,
}

/// What the head says about the body's length.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Length {
    Right,
    Announced(u64),
    /// The body comes in chunks.
    Unknown,
}

pub(crate) enum Step {
    Send(Bytes),
    Wait(BoxFuture<'static, ()>),
    Repeat(Bytes, Duration),
    Feed(mpsc::Receiver<Vec<u8>>),
    Close,
    Reset,
}

impl Answer {
    fn new(form: Form, steps: Vec<Step>) -> Self {
        Self { form, delay: Duration::ZERO, steps }
    }

    fn http(status: u16, steps: Vec<Step>) -> Self {
        Self::new(Form::Http(Head { status, headers: Vec::new(), length: Length::Right }), steps)
    }

    /// 200 with a body of this media type.
    pub fn of(content_type: &str, body: impl Into<Bytes>) -> Self {
        Self::http(200, vec![Step::Send(body.into())]).header("content-type", content_type)
    }

    /// 200 with text.
    pub fn text(body: impl Into<Bytes>) -> Self {
        Self::of("text/plain", body)
    }

    /// 200 with JSON.
    pub fn json(body: &Value) -> Self {
        Self::of("application/json", body.to_string())
    }

    /// 200 with a body of server-sent events.
    pub fn events(body: impl Into<Bytes>) -> Self {
        Self::of("text/event-stream", body)
    }

    /// 200 with a part of a chat completion for each of these texts, then its end.
    pub fn completion<'a>(texts: impl IntoIterator<Item = &'a str>) -> Self {
        let chunk = |delta: Value, finish: Option<&str>| {
            let choice = serde_json::json!({"index": 0, "delta": delta, "finish_reason": finish});
            format!("data: {}\n\n", serde_json::json!({"object": "chat.completion.chunk", "choices": [choice]}))
        };
        let mut body: String =
            texts.into_iter().map(|text| chunk(serde_json::json!({"content": text}), None)).collect();
        body += &chunk(serde_json::json!({}), Some("stop"));
        Self::events(body + "data: [DONE]\n\n")
    }

    /// This status without a body.
    pub fn status(status: u16) -> Self {
        Self::http(status, Vec::new())
    }

    /// This status with a text.
    pub fn refusal(status: u16, body: impl Into<Bytes>) -> Self {
        Self::http(status, vec![Step::Send(body.into())])
    }

    /// A file from where `request` asks for it.
    pub fn file(request: &Request, bytes: &[u8]) -> Self {
        Self::file_from(request.range_start(), bytes)
    }

    /// A file, from this byte where there is one.
    pub fn file_from(start: Option<usize>, bytes: &[u8]) -> Self {
        let total = bytes.len();
        let content_type = "application/octet-stream";
        match start {
            None => Self::of(content_type, bytes.to_vec()),
            Some(start) if start >= total => Self::status(416).header("content-range", &format!("bytes */{total}")),
            Some(start) => Self::of(content_type, bytes[start..].to_vec())
                .with_status(206)
                .header("content-range", &format!("bytes {start}-{}/{total}", total - 1)),
        }
    }

    /// Bytes in place of an answer, then the end of the connection.
    pub fn raw(bytes: impl Into<Bytes>) -> Self {
        Self::new(Form::Raw, vec![Step::Send(bytes.into())])
    }

    /// No answer: the connection stays as it is.
    pub fn none() -> Self {
        Self::new(Form::Raw, Vec::new()).hang()
    }

    /// A WebSocket, which `script` uses.
    pub fn websocket<F: Future<Output = ()> + Send + 'static>(
        script: impl FnOnce(WebSocket) -> F + Send + 'static,
    ) -> Self {
        Self::new(Form::WebSocket(Box::new(|socket| script(socket).boxed())), Vec::new())
    }

    fn head(&mut self, change: impl FnOnce(&mut Head)) {
        if let Form::Http(head) = &mut self.form {
            change(head);
        }
    }

    /// The same, this time after the request.
    pub fn delayed(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }

    /// The same with another status.
    pub fn with_status(mut self, status: u16) -> Self {
        self.head(|head| head.status = status);
        self
    }

    /// The same with one more header. After `connection: close` the server closes the connection.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.head(|head| head.headers.push((name.to_owned(), value.to_owned())));
        self
    }

    /// The same, which announces a body of this many bytes.
    pub fn announcing(mut self, n_bytes: u64) -> Self {
        self.head(|head| head.length = Length::Announced(n_bytes));
        self
    }

    /// The same, which announces no length: the body comes in chunks.
    pub fn unannounced(mut self) -> Self {
        self.head(|head| {
            if head.length == Length::Right {
                head.length = Length::Unknown;
            }
        });
        self
    }

    fn step(mut self, step: Step) -> Self {
        self.steps.push(step);
        self.unannounced()
    }

    /// The same, of whose body only the first bytes are sent.
    pub fn first(mut self, n_bytes: usize) -> Self {
        let mut total = 0;
        for step in &mut self.steps {
            if let Step::Send(bytes) = step {
                let n_left = n_bytes.saturating_sub(total);
                total += bytes.len();
                bytes.truncate(n_left);
            }
        }
        self.head(|head| {
            if head.length == Length::Right {
                head.length = Length::Announced(total as u64);
            }
        });
        self
    }

    /// The same body in pieces of this many bytes, each sent by itself.
    pub fn in_pieces(mut self, n_bytes: usize) -> Self {
        let steps = std::mem::take(&mut self.steps);
        for step in steps {
            match step {
                Step::Send(bytes) => {
                    self.steps.extend(bytes.chunks(n_bytes).map(|piece| Step::Send(Bytes::copy_from_slice(piece))));
                }
                other => self.steps.push(other),
            }
        }
        self
    }

    /// The same, with this pause after each piece sent so far.
    pub fn with_pauses(mut self, pause: Duration) -> Self {
        let steps = std::mem::take(&mut self.steps);
        for step in steps {
            self.steps.push(step);
            self.steps.push(Step::Wait(async move { tokio::time::sleep(pause).await }.boxed()));
        }
        self
    }

    /// Then more of the body.
    pub fn then(self, bytes: impl Into<Bytes>) -> Self {
        self.step(Step::Send(bytes.into()))
    }

    /// Then the pieces of this channel, until it ends. The receiver is dropped with the connection.
    pub fn fed(self, pieces: mpsc::Receiver<Vec<u8>>) -> Self {
        self.step(Step::Feed(pieces))
    }

    /// Then a wait.
    pub fn wait(self, until: impl Future<Output = ()> + Send + 'static) -> Self {
        self.step(Step::Wait(until.boxed()))
    }

    /// Then a pause.
    pub fn pause(self, time: Duration) -> Self {
        self.wait(async move { tokio::time::sleep(time).await })
    }

    /// Then nothing, with the connection open.
    pub fn hang(self) -> Self {
        self.wait(std::future::pending())
    }

    /// Then these bytes again and again, at this interval.
    pub fn repeat(self, bytes: impl Into<Bytes>, interval: Duration) -> Self {
        self.step(Step::Repeat(bytes.into(), interval))
    }

    /// Then the end of the connection, whatever is left of the body.
    pub fn close(self) -> Self {
        self.step(Step::Close)
    }

    /// Then a reset of the connection, which may discard what the client has not read.
    pub fn reset(self) -> Self {
        self.step(Step::Reset)
    }
}
