//! A WebSocket that takes a text word by word and sends its sound, whatever the server's [`Dialect`].
//!
//! `openai` and `moshi` use it: they define the address and the messages. The connection is opened with the first words and
//! belongs to one text; dropping the speech closes it, which ends the server's work. Writing and reading are independent of
//! each other: a server may stop reading while it speaks. A failure to connect is tried once more; afterwards nothing is
//! repeated.
//!
//! The server owes sound once the text has ended, and while it does not take the words. All time spent waiting for sound it
//! owes is counted, and only sound renews it: other messages, pings among them, do not. Words that are still to be written are
//! waited for without a deadline here: the language model has its own.

use super::speech_server::{
    Deadlines, DecodeError, WAIT, WAIT_PER_SOUND, away, failed, fault_of, longest_sound_of, undecoded, unusable,
};
use crate::remote::Upstream;
use antiphon_engine_api::Fault;
use antiphon_engine_api::tts::{SpokenPart, TextSpeech, TtsError, WORDS_AHEAD};
use antiphon_types::{Pcm, Requester, SampleRate};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, Stream, StreamExt};
use std::collections::VecDeque;
use std::pin::pin;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};
use tokio_tungstenite::tungstenite::handshake::client::Request;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async_with_config};

/// The largest message: 10 s of 24 kHz in 32-bit floats and MessagePack is 1.2 MB.
const MAX_MESSAGE: usize = 4 << 20;
/// Bytes of messages without sound in a row; each counts for [`MESSAGE_BYTES`] at least.
const MAX_SILENT_BYTES: usize = 128 << 10;
const MESSAGE_BYTES: usize = 64;
/// Servers give a silent client up after 30 s: vLLM-Omni, SGLang-Omni and moshi-server alike.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// The messages of a server.
pub(super) trait Dialect: Send + 'static {
    /// Words, with a blank behind them.
    fn words(text: String) -> Message;

    /// The end of the text.
    fn end() -> Vec<Message>;

    /// What keeps the connection alive while the text goes on.
    fn keep_alive() -> Message;

    /// What a message says, in order; a closing message too, which is the end where the server has no other.
    fn read(&mut self, message: Message) -> Result<Vec<ServerMessage>, DecodeError>;
}

/// What a server says.
#[derive(Debug)]
pub(super) enum ServerMessage {
    /// The sound that follows speaks the text up to this number of letters and digits from its beginning; `None`: all
    /// that was sent.
    Text(Option<usize>),
    Sound(Pcm),
    /// All was spoken.
    End,
}

/// How many letters and digits a text has: what it is aligned by, since servers change blanks and punctuation.
pub(super) fn n_letters(text: &str) -> usize {
    text.chars().filter(|c| c.is_alphanumeric()).count()
}

/// One text's speech.
pub(super) struct Call<D> {
    pub(super) request: Request,
    /// The first message.
    pub(super) begin: Option<Message>,
    pub(super) dialect: D,
    pub(super) deadlines: Deadlines,
    /// For messages.
    pub(super) host: String,
    /// For the bound of the sound.
    pub(super) speed: f32,
    pub(super) upstream: Upstream,
    /// Who asks.
    pub(super) requester: Option<Requester>,
}

/// Speaks a text as its words come; see the module.
pub(super) fn speak<D: Dialect>(call: Call<D>) -> TextSpeech {
    let (words, mut pieces) = mpsc::channel(WORDS_AHEAD);
    let speech = async_stream::stream! {
        let Some(first) = pieces.recv().await else { return };
        // When the sound comes depends on the words, too.
        let mut attempt = match call.upstream.admit(call.requester) {
            Ok(attempt) => attempt.untimed(),
            Err(open) => {
                yield Err(away(&call.host, &open));
                return;
            }
        };
        let begun = Instant::now();
        let first_byte = call.deadlines.first_byte;
        let connected = timeout(first_byte, connect(&call.request, &call.host)).await;
        let socket = match connected.unwrap_or(Err(TtsError::Timeout(first_byte))) {
            Ok(socket) => socket,
            Err(error) => {
                attempt.failed(fault_of(&error));
                yield Err(error);
                return;
            }
        };
        let mut listener = Listener::new(call.dialect, call.deadlines, call.host, call.speed, begun.elapsed());
        let (sink, mut incoming) = socket.split();
        let mut outgoing = pin!(write::<D>(sink, call.begin, first, pieces));
        let mut writes = true;
        loop {
            let patience = listener.patience();
            let waits = Instant::now();
            // Biased: what is here is taken before a deadline is noticed.
            let next = tokio::select! {
                biased;
                wrote = outgoing.next(), if writes => Next::Wrote(wrote),
                message = read(&mut incoming) => Next::Message(message),
                () = sleep(patience.unwrap_or_default()), if patience.is_some() => Next::Late,
            };
            listener.waited(waits.elapsed());
            let step = match next {
                Next::Wrote(None) => {
                    writes = false;
                    continue;
                }
                Next::Wrote(Some(wrote)) => {
                    listener.wrote(wrote);
                    continue;
                }
                Next::Message(message) => listener.message(message),
                Next::Late => Err(listener.late()),
            };
            match step {
                Ok(step) => {
                    for part in step.parts {
                        attempt.answered();
                        yield Ok(part);
                    }
                    if step.is_last {
                        return;
                    }
                }
                Err(error) => {
                    attempt.failed(fault_of(&error));
                    yield Err(error);
                    return;
                }
            }
        }
    };
    TextSpeech { words, speech: speech.boxed() }
}

enum Next {
    Wrote(Option<Wrote>),
    Message(Option<Result<Message, tungstenite::Error>>),
    Late,
}

/// Connects, twice where that may help.
async fn connect(request: &Request, host: &str) -> Result<Socket, TtsError> {
    let attempt = || {
        let config = WebSocketConfig::default().max_message_size(Some(MAX_MESSAGE)).max_frame_size(Some(MAX_MESSAGE));
        connect_async_with_config(request.clone(), Some(config), true)
    };
    let once_more = |error: &tungstenite::Error| match error {
        tungstenite::Error::Http(answer) => answer.status().is_server_error() || answer.status().as_u16() == 429,
        tungstenite::Error::Io(_) => true,
        _ => false,
    };
    let connected = match attempt().await {
        Err(error) if once_more(&error) => {
            tracing::debug!(%error, "the connection to the speech server is tried once more");
            attempt().await
        }
        connected => connected,
    };
    match connected {
        Ok((socket, _)) => Ok(socket),
        Err(tungstenite::Error::Http(answer)) => {
            let status = answer.status();
            Err(failed(
                Fault::of_status(status.as_u16()),
                format!("the server {host} answered {status} to the WebSocket"),
            ))
        }
        Err(error) => {
            let message = format!("the server {host} cannot be reached");
            Err(TtsError::Remote { fault: Fault::Unreachable, message, source: Some(Box::new(error)) })
        }
    }
}

async fn read(incoming: &mut SplitStream<Socket>) -> Option<Result<Message, tungstenite::Error>> {
    incoming.next().await
}

/// A step of the writer.
enum Wrote {
    /// These pieces begin to be sent: the letters and the characters of each.
    Sends(Vec<(usize, usize)>),
    /// They are sent.
    Sent,
    /// The whole text was sent.
    End,
    /// The server takes nothing more; why, it may have said.
    Closed,
}

/// Sends the words as they come, those that are there together in one message, and keeps the connection alive.
fn write<D: Dialect>(
    mut sink: SplitSink<Socket, Message>,
    begin: Option<Message>,
    first: String,
    mut pieces: mpsc::Receiver<String>,
) -> impl Stream<Item = Wrote> + Send {
    async_stream::stream! {
        if let Some(begin) = begin
            && sink.send(begin).await.is_err()
        {
            yield Wrote::Closed;
            return;
        }
        let mut next = Some(first);
        while let Some(mut text) = next {
            let mut sizes = vec![(n_letters(&text), text.chars().count())];
            while sizes.len() < WORDS_AHEAD && let Ok(more) = pieces.try_recv() {
                sizes.push((n_letters(&more), more.chars().count()));
                text.push(' ');
                text.push_str(&more);
            }
            text.push(' ');
            yield Wrote::Sends(sizes);
            if sink.send(D::words(text)).await.is_err() {
                yield Wrote::Closed;
                return;
            }
            yield Wrote::Sent;
            next = loop {
                match timeout(KEEP_ALIVE, pieces.recv()).await {
                    Ok(piece) => break piece,
                    Err(_) if sink.send(D::keep_alive()).await.is_ok() => {}
                    Err(_) => {
                        yield Wrote::Closed;
                        return;
                    }
                }
            };
        }
        for message in D::end() {
            if sink.send(message).await.is_err() {
                yield Wrote::Closed;
                return;
            }
        }
        yield Wrote::End;
        // The reader's pace is the listener's: the answers to the server's pings may come late.
        loop {
            sleep(KEEP_ALIVE).await;
            if sink.send(Message::Ping(tungstenite::Bytes::new())).await.is_err() {
                return;
            }
        }
    }
}

/// What the reader knows: the text that was sent, the sound that came, the time that was spent waiting.
struct Listener<D> {
    dialect: D,
    deadlines: Deadlines,
    host: String,
    speed: f32,
    /// Letters of each piece that was sent and that no sound has spoken.
    unspoken: VecDeque<usize>,
    /// Letters before them.
    n_spoken: usize,
    n_chars: usize,
    is_sending: bool,
    all_sent: bool,
    is_named: bool,
    rate: Option<SampleRate>,
    made: Duration,
    n_silent: usize,
    /// Time spent waiting for sound that was owed: since the last sound, and in all.
    since_sound: Duration,
    in_all: Duration,
}

/// What follows from a message.
#[derive(Default)]
struct Step {
    parts: Vec<SpokenPart>,
    is_last: bool,
}

impl<D: Dialect> Listener<D> {
    /// `spent`: what connecting took.
    fn new(dialect: D, deadlines: Deadlines, host: String, speed: f32, spent: Duration) -> Self {
        Self {
            dialect,
            deadlines,
            host,
            speed,
            unspoken: VecDeque::new(),
            n_spoken: 0,
            n_chars: 0,
            is_sending: false,
            all_sent: false,
            is_named: false,
            rate: None,
            made: Duration::ZERO,
            n_silent: 0,
            since_sound: spent,
            in_all: spent,
        }
    }

    fn is_owed(&self) -> bool {
        self.is_sending || self.all_sent
    }

    /// How long the next sound may take; `None`: it is not owed yet.
    fn patience(&self) -> Option<Duration> {
        // The server starts each sentence from nothing.
        let stall = self.deadlines.first_byte.max(self.deadlines.between_bytes).saturating_sub(self.since_sound);
        self.is_owed().then(|| stall.min(self.budget().saturating_sub(self.in_all)))
    }

    fn budget(&self) -> Duration {
        WAIT.max(self.deadlines.first_byte) + self.made * WAIT_PER_SOUND
    }

    fn waited(&mut self, time: Duration) {
        if self.is_owed() {
            self.since_sound += time;
            self.in_all += time;
        }
    }

    fn late(&self) -> TtsError {
        if self.made.is_zero() {
            return TtsError::Timeout(self.since_sound);
        }
        let host = &self.host;
        let waited = self.since_sound;
        failed(
            Fault::Timeout,
            format!("the server {host} sent too little sound: {waited:.0?} without any, in mid-text"),
        )
    }

    fn wrote(&mut self, wrote: Wrote) {
        match wrote {
            Wrote::Sends(sizes) => {
                self.is_sending = true;
                for (letters, chars) in sizes {
                    self.unspoken.push_back(letters);
                    self.n_chars += chars + 1;
                }
            }
            Wrote::Sent => self.is_sending = false,
            Wrote::End => self.all_sent = true,
            // What it said before, or that it is gone, is read next.
            Wrote::Closed => self.is_sending = true,
        }
    }

    fn message(&mut self, message: Option<Result<Message, tungstenite::Error>>) -> Result<Step, TtsError> {
        let message = match message {
            Some(Ok(message)) => message,
            None => return Err(self.closed()),
            Some(Err(tungstenite::Error::Capacity(error))) => {
                return Err(unusable(format!("the server {} sent too long a message: {error}", self.host)));
            }
            Some(Err(error)) => {
                let message = format!("the server {} broke off in the middle of the text", self.host);
                return Err(TtsError::Remote { fault: Fault::BrokenOff, message, source: Some(Box::new(error)) });
            }
        };
        let closes = message.is_close();
        self.n_silent += message.len().max(MESSAGE_BYTES);
        let mut step = Step::default();
        for said in self.dialect.read(message).map_err(undecoded)? {
            match said {
                ServerMessage::Text(letters) => self.name(letters, &mut step),
                ServerMessage::Sound(pcm) if pcm.is_empty() => {}
                ServerMessage::Sound(pcm) => self.sound(pcm, &mut step)?,
                ServerMessage::End => {
                    self.end()?;
                    step.is_last = true;
                    break;
                }
            }
        }
        if closes && !step.is_last {
            return Err(self.closed());
        }
        if self.n_silent > MAX_SILENT_BYTES {
            return Err(unusable(format!("the server {} sends messages without sound", self.host)));
        }
        Ok(step)
    }

    /// Passes on which pieces the next sound speaks.
    fn name(&mut self, letters: Option<usize>, step: &mut Step) {
        self.is_named = true;
        let mut n = 0;
        while let Some(size) = self.unspoken.front()
            && letters.is_none_or(|letters| self.n_spoken < letters)
        {
            self.n_spoken += size;
            self.unspoken.pop_front();
            n += 1;
        }
        if n > 0 {
            step.parts.push(SpokenPart::Pieces(n));
        }
    }

    fn sound(&mut self, pcm: Pcm, step: &mut Step) -> Result<(), TtsError> {
        if *self.rate.get_or_insert(pcm.rate) != pcm.rate {
            return Err(unusable(format!("the server {} changed its sampling rate in mid-text", self.host)));
        }
        if !self.is_named {
            self.name(None, step);
        }
        self.made += pcm.duration();
        self.n_silent = 0;
        self.since_sound = Duration::ZERO;
        let longest = longest_sound_of(self.n_chars, self.speed);
        if self.made > longest {
            let message = format!("the server {} sent more than {longest:?} of sound for the text so far", self.host);
            return Err(unusable(message));
        }
        step.parts.push(SpokenPart::Audio(pcm));
        Ok(())
    }

    fn end(&self) -> Result<(), TtsError> {
        let host = &self.host;
        if !self.all_sent {
            return Err(unusable(format!("the server {host} ended before the text did")));
        }
        if self.made.is_zero() {
            return Err(unusable("the server answered without any sound".into()));
        }
        Ok(())
    }

    fn closed(&self) -> TtsError {
        failed(Fault::BrokenOff, format!("the server {} closed the connection in the middle of the text", self.host))
    }
}

#[cfg(test)]
pub(super) mod peer;
