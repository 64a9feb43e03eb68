//! One RTVI connection: a reader that passes audio and messages to the session, and a writer that sends what the session says.
//!
//! Both run in one task until the client goes, the session ends, or the heartbeat fails. A message of the client that waits for the
//! session is not followed by another; nothing is dropped.

use super::MAX_MESSAGE_BYTES;
use super::frame::{Audio, Frame, Kind};
use super::projection::{Outgoing, Projection, ended};
use crate::server::edge::EdgeParts;
use crate::server::edge::closing::{CLOSING, close, finish};
use crate::server::edge::inbound_budget::InboundBudget;
use crate::server::edge::inflow::Inflow;
use crate::server::edge::unfinished::{Next, UnfinishedMessage};
use crate::server::edge::websocket::close_for;
use crate::server::sessions::heartbeat::{Beat, Heartbeat, HeartbeatReset};
use crate::server::sessions::socket::STUCK;
use crate::server::transport::call::{Call, CallOutput, InputClosed, alive};
use crate::server::transport::parts::TransportParts;
use antiphon_audio::Resampler;
use antiphon_session::{InboundPayload, OutputAudio};
use antiphon_types::{SampleRate, Samples};
use axum::extract::ws::{Message, WebSocket};
use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use serde_json::Value;
use std::future::pending;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep_until, timeout};

/// The session's rate.
const RATE: SampleRate = SampleRate::HZ_24000;
/// Samples of a frame to the session at most: 100 ms.
const PIECE: usize = RATE.hz() as usize / 10;
/// Sampling rates of clients, in hertz.
const RATES: std::ops::RangeInclusive<u32> = 8_000..=96_000;
/// Messages and client events from the one half to the other; each is at most as long as a message of the client.
const QUEUE: usize = 4;

/// The close code of a session that ends as it was asked to: no error precedes it.
const NORMAL_CLOSE: u16 = 1000;

/// How a connection ends.
enum Over {
    /// The client ended it, or is gone.
    Gone,
    /// The hub ends it: a close code and its reason.
    Close(u16, &'static str),
}

/// Serves a session until it ends.
pub(super) async fn serve(transport: &TransportParts, socket: WebSocket, inflow: &Inflow, call: Call) {
    let edge = &transport.sessions.edge;
    let (mut sink, mut stream) = socket.split();
    let (reset, heartbeat) = Heartbeat::new(Duration::from_secs(u64::from(edge.config.ping_seconds)));
    let (replies, answers) = mpsc::channel(QUEUE);
    let (requests, events) = mpsc::channel(QUEUE);
    let projection = Mutex::new(Projection::new(transport.telephony.key_pause, transport.sessions.dialect()));
    let connection = Connection { edge, call: &call, projection, pressed: Notify::new() };
    let first = connection.projection().begin();
    let over = tokio::select! {
        over = connection.read(&mut stream, inflow, reset, replies) => over,
        over = connection.write(&mut sink, heartbeat, answers, requests) => over,
        never = connection.pass_on(first, events) => never,
    };
    let close = match over {
        Over::Gone => None,
        Over::Close(NORMAL_CLOSE, reason) => Some(close(NORMAL_CLOSE, reason)),
        Over::Close(code, reason) => {
            let goodbye = Message::Binary(Frame::message(ended(reason).to_string()));
            let _ = timeout(CLOSING, sink.send(goodbye)).await;
            Some(close(code, reason))
        }
    };
    finish(&mut sink, &mut stream, close).await;
}

struct Connection<'a> {
    edge: &'a EdgeParts,
    call: &'a Call,
    projection: Mutex<Projection>,
    /// The client has pressed keys: their entry ends later than the writer knows.
    pressed: Notify,
}

impl Connection<'_> {
    fn projection(&self) -> MutexGuard<'_, Projection> {
        self.projection.lock().expect("no panic while locked")
    }

    /// From the client to the session; answers to the client go through `replies`.
    async fn read(
        &self,
        stream: &mut SplitStream<WebSocket>,
        inflow: &Inflow,
        reset: HeartbeatReset,
        replies: mpsc::Sender<Value>,
    ) -> Over {
        // The client may still be sending.
        let refuse = |code, reason| {
            inflow.set_lingers(true);
            Over::Close(code, reason)
        };
        let budget = InboundBudget::of_session();
        let mut unfinished = UnfinishedMessage::new(self.edge, inflow, &budget);
        let mut microphone = Microphone::default();
        loop {
            let message = match unfinished.next(stream, STUCK).await {
                Next::Message(Some(message)) => message,
                Next::Message(None) => return Over::Gone,
                Next::Late => return refuse(1008, "a message took too long (server.message_seconds)"),
                Next::NoRoom => return refuse(1013, "the server cannot keep up"),
            };
            reset.renew();
            let bytes = match message {
                Ok(Message::Binary(bytes)) => bytes,
                Ok(Message::Text(_)) => return refuse(1003, "messages are protobuf frames of pipecat"),
                Ok(Message::Ping(_) | Message::Pong(_)) => continue,
                Ok(Message::Close(_)) => return Over::Gone,
                Err(error) => {
                    return match close_for(error) {
                        Some((1009, _)) => refuse(1009, "a message holds at most 1 MiB"),
                        Some((code, reason)) => refuse(code, reason),
                        None => Over::Gone,
                    };
                }
            };
            // Held until the message is taken.
            let Ok(_share) = timeout(STUCK, unfinished.share(bytes.len())).await else {
                return refuse(1013, "the server cannot keep up");
            };
            let taken = match Frame::read(bytes) {
                Ok(Frame { kind: Some(Kind::Audio(audio)) }) => match microphone.take(&audio) {
                    Some(pieces) => alive(&reset, self.push_audio(pieces)).await,
                    None => return refuse(1007, "audio is PCM16 of one rate, 8000 to 96000 Hz, and 1 or 2 channels"),
                },
                Ok(Frame { kind: Some(Kind::Message(message)) }) => {
                    let outgoing = self.projection().message_of_client(&message.data, Instant::now());
                    match alive(&reset, self.message(outgoing, message.data.len(), &replies)).await {
                        Ok(true) => return Over::Close(NORMAL_CLOSE, "the client ended the session"),
                        Ok(false) => Ok(()),
                        Err(error) => Err(error),
                    }
                }
                Ok(Frame { kind: None | Some(Kind::Interruption(_)) }) => Ok(()),
                Err(_) => return refuse(1007, "messages are protobuf frames of pipecat"),
            };
            if taken.is_err() {
                // The writer sends what the session still says, and its close.
                return pending().await;
            }
        }
    }

    async fn push_audio(&self, pieces: Vec<(Samples, Bytes)>) -> Result<(), InputClosed> {
        for (offset, payload) in pieces {
            self.call.push_audio(offset, payload).await?;
        }
        Ok(())
    }

    /// Passes on what follows from a message of `n_bytes`. `true`: the client ends the session.
    async fn message(
        &self,
        outgoing: Outgoing,
        n_bytes: usize,
        replies: &mpsc::Sender<Value>,
    ) -> Result<bool, InputClosed> {
        // No client joins a session that is no call.
        let Outgoing { to_client, to_session, to_joined, hangs_up } = outgoing;
        if !to_joined.is_empty() {
            self.pressed.notify_one();
        }
        for message in to_client {
            replies.send(message).await.map_err(|_| InputClosed::Ended)?;
        }
        for payload in to_session {
            self.call.send_read(payload, n_bytes).await?;
        }
        Ok(hangs_up)
    }

    /// From the session to the client; client events that follow go through `requests`.
    async fn write(
        &self,
        sink: &mut SplitSink<WebSocket, Message>,
        mut heartbeat: Heartbeat,
        mut answers: mpsc::Receiver<Value>,
        requests: mpsc::Sender<InboundPayload>,
    ) -> Over {
        let mut n_frames = 0;
        loop {
            let (silent_at, keys_end_at) = {
                let projection = self.projection();
                (projection.silent_at(), projection.keys_end_at())
            };
            let outgoing = tokio::select! {
                // Answers to the client come before what the session says of the same message.
                biased;
                Some(answer) = answers.recv() => Outgoing { to_client: vec![answer], ..Outgoing::default() },
                () = async { sleep_until(silent_at.expect("checked")).await }, if silent_at.is_some() => {
                    Outgoing { to_client: self.projection().silent(), ..Outgoing::default() }
                }
                () = async { sleep_until(keys_end_at.expect("checked")).await }, if keys_end_at.is_some() => {
                    self.projection().keys_end()
                }
                () = self.pressed.notified() => continue,
                beat = heartbeat.beat() => {
                    match beat {
                        Beat::Ping if send(sink, Message::Ping(Bytes::new())).await.is_ok() => continue,
                        Beat::Ping => return Over::Gone,
                        Beat::Dead => return Over::Close(1011, "no answer to two pings"),
                    }
                }
                output = self.call.next() => match output {
                    CallOutput::Event(event) => self.projection().event(&event.event),
                    CallOutput::Audio(OutputAudio { payload, .. }) => {
                        n_frames += 1;
                        let length = Samples(payload.len() as u64 / 2).duration(RATE);
                        let messages = self.projection().audio(length, Instant::now());
                        let frame = Frame::audio(n_frames, payload, RATE.hz());
                        if send_all(sink, messages).await.is_err() || send(sink, Message::Binary(frame)).await.is_err() {
                            return Over::Gone;
                        }
                        continue;
                    }
                    CallOutput::Closed(close) => return Over::Close(close.code, close.reason),
                },
            };
            let Outgoing { to_client, to_session, .. } = outgoing;
            for event in to_session {
                // Its reader waits for the session, whose output is then not taken: bounded by its own deadline.
                if timeout(STUCK, requests.send(event)).await.is_err() {
                    return Over::Close(1013, "the session cannot keep up");
                }
            }
            if send_all(sink, to_client).await.is_err() {
                return Over::Gone;
            }
        }
    }

    /// Gives the session what follows from its own events, apart from the writer, which has to take its output meanwhile.
    async fn pass_on(&self, first: InboundPayload, mut events: mpsc::Receiver<InboundPayload>) -> Over {
        let mut next = Some(first);
        while let Some(payload) = next {
            if self.call.send_event(payload).await.is_err() {
                break;
            }
            next = events.recv().await;
        }
        pending().await
    }
}

async fn send_all(sink: &mut SplitSink<WebSocket, Message>, messages: Vec<Value>) -> Result<(), ()> {
    for message in messages {
        send(sink, Message::Binary(Frame::message(message.to_string()))).await?;
    }
    Ok(())
}

/// Waits 10 s at most for a client that does not read.
async fn send(sink: &mut SplitSink<WebSocket, Message>, message: Message) -> Result<(), ()> {
    timeout(STUCK, sink.send(message)).await.map_err(|_| ())?.map_err(|_| ())
}

/// The client's audio on its way to the session.
#[derive(Default)]
pub(super) struct Microphone {
    /// With the rate of the first audio, which all has: to build another takes milliseconds.
    resampler: Option<(u32, Resampler)>,
    /// Samples that the session has.
    position: u64,
}

impl Microphone {
    /// The audio in pieces for the session, each with its first sample; `None`: it is of a format that is not served, or its rate
    /// is another than before.
    pub(super) fn take(&mut self, audio: &Audio) -> Option<Vec<(Samples, Bytes)>> {
        let n_channels = audio.num_channels as usize;
        if !RATES.contains(&audio.sample_rate)
            || !(1..=2).contains(&n_channels)
            || !audio.audio.len().is_multiple_of(2 * n_channels)
        {
            return None;
        }
        let build = || (audio.sample_rate, Resampler::new(SampleRate::new(audio.sample_rate), RATE));
        let (rate, resampler) = self.resampler.get_or_insert_with(build);
        if *rate != audio.sample_rate {
            return None;
        }
        let sample = |bytes: &[u8]| i32::from(i16::from_le_bytes([bytes[0], bytes[1]]));
        let mixed = |frame: &[u8]| (frame.chunks_exact(2).map(sample).sum::<i32>() / n_channels as i32) as i16;
        let mono: Vec<i16> = audio.audio.chunks_exact(2 * n_channels).map(mixed).collect();
        let mut samples = Vec::new();
        resampler.process(&mono, &mut samples);
        let pieces = samples.chunks(PIECE).map(|piece| {
            let offset = Samples(self.position);
            self.position += piece.len() as u64;
            (offset, piece.iter().flat_map(|sample| sample.to_le_bytes()).collect::<Vec<u8>>().into())
        });
        Some(pieces.collect())
    }
}

// The queue between the halves is small beside one message.
const _: () = assert!(QUEUE * MAX_MESSAGE_BYTES <= 4 << 20);
