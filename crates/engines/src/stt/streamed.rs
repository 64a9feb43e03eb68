//! A recognizer elsewhere that takes an utterance over a WebSocket while it is spoken, whatever the server's [`Dialect`].
//!
//! `realtime` and `moshi` use it: they define the address and the messages. Each utterance has a connection of its own, opened
//! with it; dropping the utterance closes it, which ends the server's work. There is no task: the connection is written and read
//! while the utterance is pushed to or asked. Writing and reading do not wait for each other; a server that takes no audio makes
//! the caller of `push` wait, up to the deadline. A connection that breaks is made once more, and the audio is sent again, where
//! no other engine would take over. Words, messages and audio that is kept are bounded, whatever the server sends, and only a
//! final transcript ends the wait for one. What was said is never logged.

use super::SttConfig;
use super::speech_server::{Deadline, failed, fault_of};
use crate::remote::{Attempt, Server, Upstream};
use antiphon_engine_api::stt::{SttError, SttOptions, SttUtterance, Transcript};
use antiphon_engine_api::{Fault, Upstreams};
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_tungstenite::tungstenite::handshake::client::Request;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async_with_config};

/// The longest audio that is kept for another connection: 10 minutes, 19 MB. Sessions end their utterances below it.
const MAX_KEPT_SAMPLES: usize = 600 * 16_000;

/// The largest message: a session object with its instructions has some 300 KB.
const MAX_MESSAGE: usize = 1 << 20;

/// Bytes of a connection's messages: so many, and so many more for each second of audio; each message counts for
/// [`MESSAGE_BYTES`] at least.
const MAX_BYTES: usize = 2 << 20;
const MAX_BYTES_PER_SECOND: usize = 64 << 10;
const MESSAGE_BYTES: usize = 64;

/// The longest transcript: more than twice what anybody says in 10 minutes, in scripts of three bytes a character.
const MAX_TEXT_BYTES: usize = 64 << 10;

/// Pieces that a server divides an utterance into.
const MAX_ITEMS: usize = 1_000;

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// The messages of a server, of one connection.
pub(super) trait Dialect: Send + 'static {
    /// Whether the server speaks first, and audio waits for that.
    fn waits_to_begin(&self) -> bool;

    /// What goes first.
    fn begin(&mut self) -> Vec<Message>;

    /// Mono PCM at 16 kHz.
    fn audio(&mut self, pcm: &[i16]) -> Vec<Message>;

    /// Asks for the final words of all audio so far. The answer has a [`ServerReport::Final`].
    fn flush(&mut self) -> Vec<Message>;

    /// Whether the connection takes no audio after a flush.
    fn ends_with_flush(&self) -> bool;

    /// What a message says, in order.
    ///
    /// # Errors
    /// It is no message of this dialect; the text says what is wrong with it.
    fn read(&mut self, message: Message) -> Result<Vec<ServerReport>, String>;
}

/// What a server says.
#[derive(Debug, PartialEq)]
pub(super) enum ServerReport {
    /// It is ready for audio.
    Ready,
    /// More words of an item, whose name is empty where the server names none.
    Words { item: String, delta: String },
    /// An item is final: its text where the message has it, else the words so far.
    Final {
        item: String,
        text: Option<String>,
        /// Whether it answers a flush; otherwise the server has divided the audio itself.
        answers: bool,
    },
    /// These messages go to the server.
    Send(Vec<Message>),
    /// It failed, and says how.
    Failed { fault: Fault, message: String },
}

/// A server of a stage. Cheap to clone.
#[derive(Clone)]
pub(super) struct StreamingServer {
    pub(super) server: Server,
    upstream: Upstream,
    /// From the end of the utterance to its transcript. Also of a connection, and of audio that the server does not
    /// take.
    deadline: Deadline,
}

impl StreamingServer {
    /// Checks the settings and reads the key; connects to nothing. [`SttError::Unavailable`] says which setting is wrong
    /// and what would be right.
    pub(super) fn new(config: &SttConfig) -> Result<Self, SttError> {
        let deadline = Deadline::new(config);
        let server = Server::new("stt", &config.base_url, &config.api_key_env, deadline.usual);
        let server = server.map_err(SttError::Unavailable)?;
        let upstream = Upstream::new(config.hedge_after_ms, deadline.usual, config.fallback.is_some());
        Ok(Self { server, upstream, deadline })
    }

    pub(super) async fn warm(&self) -> Result<(), SttError> {
        let warmed = timeout(self.deadline.usual, self.server.warm()).await;
        let unreachable = |error: reqwest::Error| SttError::Remote {
            fault: Fault::Unreachable,
            message: format!("the server {} cannot be reached", self.server.host()),
            source: Some(Box::new(error.without_url())),
        };
        warmed.map_err(|_| SttError::Timeout(self.deadline.usual))?.map_err(unreachable)
    }

    pub(super) fn report(&self, engine: &str) -> Upstreams {
        self.upstream.report(engine)
    }

    pub(super) fn hedge_delay(&self) -> Option<Duration> {
        self.upstream.hedge_delay()
    }

    /// An utterance with its connection. `is_queued`: it may wait. `dialect` makes the messages of a connection.
    pub(super) async fn open<D: Dialect>(
        self,
        request: Request,
        options: &SttOptions,
        is_queued: bool,
        dialect: impl Fn() -> D + Send + Sync + 'static,
    ) -> Result<Box<dyn SttUtterance>, SttError> {
        let away = |reason: String| SttError::Away(format!("{}: {reason}", self.server.host()));
        // When the first words come depends on when they are spoken: transcripts are measured from their request on.
        let attempt = self.upstream.admit(options.meter.requester()).map_err(|open| away(open.to_string()))?.untimed();
        let call = Call {
            server: self,
            request,
            is_queued,
            dialect: Arc::new(dialect),
            link: None,
            words: Words::default(),
            kept: Vec::new(),
            n_given: 0,
            keeps_all: true,
            may_reconnect: true,
        };
        let mut utterance = Utterance { call, attempt: Some(attempt) };
        let connected = utterance.call.within_deadline(Step::Connect).await;
        utterance.reported(connected)?;
        Ok(Box::new(utterance))
    }
}

/// An utterance, and what the server's breaker has to know of it.
struct Utterance<D> {
    call: Call<D>,
    /// `None` once the breaker knows that it failed.
    attempt: Option<Attempt>,
}

/// An utterance and its connection.
struct Call<D> {
    server: StreamingServer,
    request: Request,
    /// It may wait.
    is_queued: bool,
    dialect: Arc<dyn Fn() -> D + Send + Sync>,
    /// `None` after the answer to a flush that ends a connection, until more audio comes.
    link: Option<Link<D>>,
    words: Words,
    /// The audio that is not settled, for another connection.
    kept: Vec<i16>,
    /// Samples of it that the connection was given.
    n_given: usize,
    /// Whether `kept` is all of it: there is a bound.
    keeps_all: bool,
    may_reconnect: bool,
}

/// What is done within the deadline.
enum Step<'a> {
    Connect,
    Push(&'a [i16]),
    Settle,
}

/// A connection.
struct Link<D> {
    sink: SplitSink<Socket, Message>,
    stream: SplitStream<Socket>,
    dialect: D,
    host: String,
    /// What is not sent yet. It is emptied before the next audio is taken.
    outgoing: VecDeque<Message>,
    is_ready: bool,
    /// Samples since the last flush.
    n_unflushed: usize,
    /// Flushes without an answer.
    n_waiting: usize,
    is_flushed: bool,
    /// What it failed with while a partial transcript read it.
    failure: Option<SttError>,
    n_bytes: usize,
    max_bytes: usize,
}

/// What was understood.
#[derive(Default)]
struct Words {
    items: Vec<Item>,
    /// The number of the first items whose audio is no longer kept: another connection does not hear it.
    n_settled: usize,
}

struct Item {
    name: String,
    text: String,
    is_final: bool,
}

impl<D: Dialect> Call<D> {
    /// A step, and one more connection where that may help.
    async fn within_deadline(&mut self, step: Step<'_>) -> Result<(), SttError> {
        let deadline = self.server.deadline.of(self.kept.len(), self.is_queued);
        timeout(deadline, self.persistent(step)).await.unwrap_or(Err(SttError::Timeout(deadline)))
    }

    async fn persistent(&mut self, step: Step<'_>) -> Result<(), SttError> {
        match self.perform(&step).await {
            Err(error) if self.may_try_again(&error) => {
                tracing::debug!(%error, "the connection to the recognizer is made once more");
                self.may_reconnect = false;
                self.link = None;
                self.perform(&step).await
            }
            done => done,
        }
    }

    fn may_try_again(&self, error: &SttError) -> bool {
        let broke = matches!(error, SttError::Remote { fault, .. }
            if matches!(fault, Fault::BrokenOff | Fault::Unreachable | Fault::Overloaded | Fault::Failed));
        broke && self.may_reconnect && self.keeps_all && !self.server.upstream.has_fallback()
    }

    async fn perform(&mut self, step: &Step<'_>) -> Result<(), SttError> {
        let has_more = self.n_given < self.kept.len();
        if has_more && self.link.as_ref().is_some_and(Link::has_ended) {
            // A provisional transcript was given up: the audio before it is settled. What is kept afterwards may also be of
            // pushes that were given up.
            self.settle().await?;
        }
        // What is kept is sent with the connection, what is pushed now included.
        let is_new = self.link.is_none();
        if is_new {
            self.connect().await?;
        }
        let Some(link) = &mut self.link else { return Ok(()) };
        match step {
            Step::Connect => {}
            Step::Push(_) if is_new => {}
            Step::Push(pcm) => {
                link.check()?;
                link.audio(pcm);
                self.n_given = self.kept.len();
                link.send(&mut self.words).await?;
                link.read_what_is_here(&mut self.words)?;
            }
            Step::Settle => self.settle().await?,
        }
        Ok(())
    }

    /// Waits for the final words of all audio that the connection has, after which that is not kept.
    async fn settle(&mut self) -> Result<(), SttError> {
        let Some(link) = &mut self.link else { return Ok(()) };
        // A server may have closed a connection that has ended.
        if link.owes_words() {
            link.check()?;
            link.flush();
            link.send(&mut self.words).await?;
            link.read_to_final(&mut self.words).await?;
        }
        self.words.settle_all();
        self.kept.drain(..self.n_given);
        self.n_given = 0;
        self.keeps_all = true;
        if link.dialect.ends_with_flush() {
            self.link = None;
        }
        Ok(())
    }

    /// Reads what is here. What a connection failed with is the next step's failure, which may make it once more, unless the
    /// server's answers are bad.
    fn read_ahead(&mut self) -> Result<(), SttError> {
        let Some(link) = &mut self.link else { return Ok(()) };
        if link.failure.is_some() {
            return Ok(());
        }
        match link.read_what_is_here(&mut self.words) {
            Err(error) if fault_of(&error) != Fault::BadAnswer => {
                link.failure = Some(error);
                Ok(())
            }
            read => read,
        }
    }

    /// A connection that has what is kept.
    async fn connect(&mut self) -> Result<(), SttError> {
        let host = self.server.server.host().to_owned();
        let socket = connect(&self.request, &host).await?;
        let mut link = Link::new(socket, (self.dialect)(), host);
        self.words.forget_unsettled();
        link.begin(&mut self.words).await?;
        if !self.kept.is_empty() {
            link.audio(&self.kept);
            link.send(&mut self.words).await?;
        }
        self.link = Some(link);
        self.n_given = self.kept.len();
        Ok(())
    }

    /// Keeps audio; beyond the bound only what the connection was not given.
    fn keep(&mut self, pcm: &[i16]) {
        self.keeps_all &= self.kept.len() + pcm.len() <= MAX_KEPT_SAMPLES;
        if !self.keeps_all {
            self.kept = self.kept.split_off(self.n_given);
            self.n_given = 0;
        }
        if self.kept.len() <= MAX_KEPT_SAMPLES {
            self.kept.extend_from_slice(pcm);
        }
    }

    /// Whether there is audio whose words are not final.
    fn is_unsettled(&self) -> bool {
        self.link.as_ref().is_some_and(Link::owes_words) || !self.kept.is_empty()
    }
}

impl<D: Dialect> Utterance<D> {
    /// All words, once those of the audio so far are final.
    async fn settled(&mut self) -> Result<Transcript, SttError> {
        if self.call.is_unsettled() {
            let host = self.call.server.server.host().to_owned();
            let asked = Instant::now();
            let settling = self.call.within_deadline(Step::Settle);
            let settled = match &self.attempt {
                Some(attempt) => attempt.first(settling).await,
                None => Some(settling.await),
            };
            let late = || Err(SttError::Away(format!("{host}: it is late, as other requests are")));
            self.reported(settled.unwrap_or_else(late))?;
            // What a long segment of a file takes is no measure of how late an answer to a speaker is.
            if !self.call.is_queued {
                self.call.server.upstream.measured(asked.elapsed());
            }
        }
        if let Some(attempt) = &mut self.attempt {
            attempt.answered();
        }
        Ok(Transcript { text: self.call.words.text(), ..Transcript::default() })
    }

    /// Tells the server's breaker of a failure.
    fn reported(&mut self, done: Result<(), SttError>) -> Result<(), SttError> {
        if let Err(error) = &done
            && let Some(attempt) = self.attempt.take()
        {
            attempt.failed(fault_of(error));
        }
        done
    }
}

impl<D: Dialect> SttUtterance for Utterance<D> {
    fn push(&mut self, pcm: Vec<i16>) -> BoxFuture<'_, Result<(), SttError>> {
        async move {
            if pcm.is_empty() {
                return Ok(());
            }
            self.call.keep(&pcm);
            let pushed = self.call.within_deadline(Step::Push(&pcm)).await;
            self.reported(pushed)
        }
        .boxed()
    }

    /// What the server said until now; it is not asked.
    fn partial(&mut self) -> BoxFuture<'_, Result<Option<Transcript>, SttError>> {
        let read = self.call.read_ahead();
        let text = self.call.words.text();
        let n_words = text.split_whitespace().count() as u32;
        let partial = Transcript { text, n_settled_words: n_words.saturating_sub(1), ..Transcript::default() };
        let result = self.reported(read).map(|()| Some(partial));
        std::future::ready(result).boxed()
    }

    fn provisional(&mut self) -> BoxFuture<'_, Result<Transcript, SttError>> {
        self.settled().boxed()
    }

    fn finish(mut self: Box<Self>) -> BoxFuture<'static, Result<Transcript, SttError>> {
        async move { self.settled().await }.boxed()
    }
}

impl<D: Dialect> Link<D> {
    fn new(socket: Socket, dialect: D, host: String) -> Self {
        let (sink, stream) = socket.split();
        Self {
            sink,
            stream,
            dialect,
            host,
            outgoing: VecDeque::new(),
            is_ready: false,
            n_unflushed: 0,
            n_waiting: 0,
            is_flushed: false,
            failure: None,
            n_bytes: 0,
            max_bytes: MAX_BYTES,
        }
    }

    /// Waits for the server where it speaks first, and sends what goes first.
    async fn begin(&mut self, words: &mut Words) -> Result<(), SttError> {
        while self.dialect.waits_to_begin() && !self.is_ready {
            self.read_one(words).await?;
        }
        self.outgoing.extend(self.dialect.begin());
        self.send(words).await
    }

    fn audio(&mut self, pcm: &[i16]) {
        self.n_unflushed += pcm.len();
        self.max_bytes += MAX_BYTES_PER_SECOND * pcm.len() / 16_000;
        self.outgoing.extend(self.dialect.audio(pcm));
    }

    fn flush(&mut self) {
        if self.n_unflushed > 0 {
            self.n_unflushed = 0;
            self.n_waiting += 1;
            self.is_flushed = true;
            self.outgoing.extend(self.dialect.flush());
        }
    }

    /// The failure that a partial transcript has read, once.
    fn check(&mut self) -> Result<(), SttError> {
        self.failure.take().map_or(Ok(()), Err)
    }

    /// Whether it takes no more audio.
    fn has_ended(&self) -> bool {
        self.is_flushed && self.dialect.ends_with_flush()
    }

    /// Whether it has audio whose final words have not come.
    fn owes_words(&self) -> bool {
        self.n_unflushed > 0 || self.n_waiting > 0
    }

    /// Sends what is waiting, and reads meanwhile: a server may take nothing before it has said something. What is cancelled goes
    /// on with the next call.
    async fn send(&mut self, words: &mut Words) -> Result<(), SttError> {
        loop {
            let sink = &mut self.sink;
            let has_more = !self.outgoing.is_empty();
            let free = poll_fn(|cx| if has_more { sink.poll_ready_unpin(cx) } else { sink.poll_flush_unpin(cx) });
            tokio::select! {
                biased;
                sent = free => {
                    if let Err(error) = sent {
                        // Why it takes no more, it may have said.
                        self.read_what_is_here(words)?;
                        return Err(self.broke_off(error));
                    }
                    let Some(message) = self.outgoing.pop_front() else { return Ok(()) };
                    self.sink.start_send_unpin(message).map_err(|error| self.broke_off(error))?;
                }
                message = self.stream.next() => self.heard(message, words)?,
            }
        }
    }

    async fn read_one(&mut self, words: &mut Words) -> Result<(), SttError> {
        let message = self.stream.next().await;
        self.heard(message, words)
    }

    fn read_what_is_here(&mut self, words: &mut Words) -> Result<(), SttError> {
        while let Some(message) = self.stream.next().now_or_never() {
            self.heard(message, words)?;
        }
        Ok(())
    }

    async fn read_to_final(&mut self, words: &mut Words) -> Result<(), SttError> {
        while self.n_waiting > 0 {
            self.read_one(words).await?;
            self.send(words).await?;
        }
        Ok(())
    }

    fn heard(
        &mut self,
        message: Option<Result<Message, tungstenite::Error>>,
        words: &mut Words,
    ) -> Result<(), SttError> {
        let message = match message {
            Some(Ok(Message::Close(_))) | None => return Err(self.closed()),
            Some(Ok(message)) => message,
            Some(Err(tungstenite::Error::Capacity(error))) => {
                return Err(self.unusable(format!("too long a message: {error}")));
            }
            Some(Err(error)) => return Err(self.broke_off(error)),
        };
        self.n_bytes += message.len().max(MESSAGE_BYTES);
        if self.n_bytes > self.max_bytes {
            return Err(self.unusable("more messages than the audio has words".into()));
        }
        for heard in self.dialect.read(message).map_err(|why| self.unusable(why))? {
            match heard {
                ServerReport::Ready => self.is_ready = true,
                ServerReport::Words { item, delta } => words.add(item, &delta),
                ServerReport::Final { item, text, answers } => {
                    words.settle(item, text);
                    self.n_waiting = self.n_waiting.saturating_sub(usize::from(answers));
                }
                ServerReport::Send(messages) => self.outgoing.extend(messages),
                ServerReport::Failed { fault, message } => {
                    let said = crate::secret::conceal(&message).chars().take(300).collect::<String>();
                    return Err(failed(fault, format!("the server {} reported: {said}", self.host)));
                }
            }
        }
        if words.n_bytes() > MAX_TEXT_BYTES || words.items.len() > MAX_ITEMS {
            return Err(self.unusable("a transcript that is longer than anybody speaks".into()));
        }
        Ok(())
    }

    fn unusable(&self, what: String) -> SttError {
        failed(Fault::BadAnswer, format!("the server {} sent what is no transcription: {what}", self.host))
    }

    fn closed(&self) -> SttError {
        failed(Fault::BrokenOff, format!("the server {} closed the connection in the middle of the speech", self.host))
    }

    fn broke_off(&self, error: tungstenite::Error) -> SttError {
        let message = format!("the server {} broke off in the middle of the speech", self.host);
        SttError::Remote { fault: Fault::BrokenOff, message, source: Some(Box::new(error)) }
    }
}

impl Words {
    fn add(&mut self, name: String, delta: &str) {
        self.item(name).text.push_str(delta);
    }

    fn settle(&mut self, name: String, text: Option<String>) {
        let item = self.item(name);
        item.text = text.unwrap_or_else(|| std::mem::take(&mut item.text));
        item.is_final = true;
    }

    /// The item of that name that is not final, or a new one.
    fn item(&mut self, name: String) -> &mut Item {
        let known = self.items.iter().position(|item| !item.is_final && item.name == name);
        let place = known.unwrap_or_else(|| {
            self.items.push(Item { name, text: String::new(), is_final: false });
            self.items.len() - 1
        });
        &mut self.items[place]
    }

    /// All items are those of audio that is no longer kept.
    fn settle_all(&mut self) {
        self.n_settled = self.items.len();
    }

    /// A new connection hears again all audio that is kept, also that of final items.
    fn forget_unsettled(&mut self) {
        self.items.truncate(self.n_settled);
    }

    fn text(&self) -> String {
        let texts = self.items.iter().map(|item| item.text.trim()).filter(|text| !text.is_empty());
        texts.collect::<Vec<_>>().join(" ")
    }

    fn n_bytes(&self) -> usize {
        self.items.iter().map(|item| item.text.len()).sum()
    }
}

async fn connect(request: &Request, host: &str) -> Result<Socket, SttError> {
    let config = WebSocketConfig::default().max_message_size(Some(MAX_MESSAGE)).max_frame_size(Some(MAX_MESSAGE));
    match connect_async_with_config(request.clone(), Some(config), true).await {
        Ok((socket, _)) => Ok(socket),
        Err(tungstenite::Error::Http(answer)) => {
            let status = answer.status();
            let message = format!("the server {host} answered {status} to the WebSocket");
            Err(failed(Fault::of_status(status.as_u16()), message))
        }
        Err(error) => {
            let message = format!("the server {host} cannot be reached");
            Err(SttError::Remote { fault: Fault::Unreachable, message, source: Some(Box::new(error)) })
        }
    }
}
