//! Plivo audio streaming (`<Stream bidirectional="true" keepCallAlive="true">`): JSON messages with mu-law at 8 kHz or L16 at
//! 8 or 16 kHz in base64.
//!
//! A checkpoint answers `playedStream` only where its audio was played: after `clearAudio` those that wait are gone.

use super::leg::{Coding, Leg, LegError, Mark, Packet, Parameters, PeerMessage, Start, whole};
use crate::server::transport::keypad::key;
use antiphon_types::Format;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use std::borrow::Cow;

/// See the module.
#[derive(Default)]
pub(super) struct Plivo {
    /// Known from the start on.
    stream: Option<String>,
    coding: Coding,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    event: Cow<'a, str>,
    #[serde(borrow)]
    media: Option<Media<'a>>,
    start: Option<Value>,
    extra_headers: Option<Value>,
    dtmf: Option<Value>,
    #[serde(borrow)]
    name: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Media<'a> {
    #[serde(borrow)]
    track: Option<Cow<'a, str>>,
    #[serde(borrow)]
    payload: Cow<'a, str>,
}

impl Leg for Plivo {
    fn text(&mut self, text: &str) -> Result<Option<PeerMessage>, LegError> {
        let message: Message = serde_json::from_str(text).map_err(|_| LegError::NotJson)?;
        match message.event.as_ref() {
            "start" => {
                let start = message.start.ok_or(LegError::Lacks("start"))?;
                if self.stream.is_some() {
                    return Err(LegError::StartedTwice);
                }
                let stream = start["streamId"].as_str().ok_or(LegError::Lacks("start.streamId"))?;
                self.coding = coding(&start["mediaFormat"])?;
                self.stream = Some(stream.to_owned());
                let mut parameters = extra_headers(message.extra_headers.as_ref());
                parameters.add("from", &start["from"]);
                parameters.add("to", &start["to"]);
                parameters.add("call", &start["callId"]);
                Ok(Some(PeerMessage::Started(Box::new(Start { input: self.coding, output: self.coding, parameters }))))
            }
            "media" => {
                let media = message.media.ok_or(LegError::Lacks("media"))?;
                self.stream.as_ref().ok_or(LegError::BeforeStart)?;
                if media.track.as_deref().is_some_and(|track| !track.starts_with("inbound")) {
                    return Ok(None);
                }
                let audio = BASE64.decode(media.payload.as_ref()).map_err(|_| LegError::NotBase64)?;
                Ok((!audio.is_empty()).then(|| PeerMessage::Audio { number: None, audio: Bytes::from(audio) }))
            }
            "dtmf" => {
                let dtmf = message.dtmf.ok_or(LegError::Lacks("dtmf"))?;
                Ok(dtmf["digit"].as_str().and_then(key).map(PeerMessage::Key))
            }
            "playedStream" => Ok(Mark::of(&message.name.ok_or(LegError::Lacks("name"))?).map(PeerMessage::Played)),
            "stop" => Ok(Some(PeerMessage::Ended)),
            // `clearedAudio`, and what later versions add.
            _ => Ok(None),
        }
    }

    fn play(&mut self, audio: Vec<u8>) -> Packet {
        let kind = content_type(self.coding);
        let hz = self.coding.rate.hz();
        let media = json!({"contentType": kind, "sampleRate": hz, "payload": BASE64.encode(audio)});
        Packet::json(&json!({"event": "playAudio", "streamId": self.stream, "media": media}))
    }

    fn mark(&mut self, mark: Mark) -> Option<Packet> {
        let name = mark.to_string();
        Some(Packet::json(&json!({"event": "checkpoint", "streamId": self.stream, "name": name})))
    }

    fn clear(&mut self) -> Option<Packet> {
        Some(Packet::json(&json!({"event": "clearAudio", "streamId": self.stream})))
    }
}

fn content_type(coding: Coding) -> &'static str {
    if coding.format == Format::Pcm16 { "audio/x-l16" } else { "audio/x-mulaw" }
}

fn coding(format: &Value) -> Result<Coding, LegError> {
    let hz = whole(&format["sampleRate"]).unwrap_or(8_000);
    match (format["encoding"].as_str().unwrap_or("audio/x-mulaw"), hz) {
        ("audio/x-mulaw", 8_000) => Ok(Coding::ULAW),
        ("audio/x-l16", 8_000 | 16_000) => Coding::l16(hz),
        (other, hz) => Err(LegError::Coding(format!("{} at {hz} Hz", other.chars().take(40).collect::<String>()))),
    }
}

/// The headers that the XML adds, `a=1;b=2`. Names may have the prefix that Plivo gives SIP headers.
fn extra_headers(headers: Option<&Value>) -> Parameters {
    let mut parameters = Parameters::default();
    parameters.add_all(headers);
    let text = headers.and_then(Value::as_str).unwrap_or_default().trim_matches(['{', '}']);
    for (name, value) in text.split([';', ',']).filter_map(|pair| pair.split_once(['=', ':'])) {
        let name = name.trim().trim_matches('"');
        parameters.add_text(name.strip_prefix("X-PH-").unwrap_or(name), value.trim().trim_matches('"'));
    }
    parameters
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: &str = r#"{"event":"start","sequenceNumber":1,"start":{"callId":"1234","streamId":"8765","accountId":"MA1",
        "tracks":["inbound"],"mediaFormat":{"encoding":"audio/x-l16","sampleRate":16000}},"extra_headers":"to=+1555;route=desk"}"#;

    #[test]
    fn what_plivo_says_is_read() {
        let mut plivo = Plivo::default();
        let Ok(Some(PeerMessage::Started(start))) = plivo.text(START) else { panic!("a start") };
        assert_eq!(start.input, Coding::l16(16_000).unwrap());
        assert_eq!(["to", "route", "call"].map(|name| start.parameters.get(name).unwrap()), ["+1555", "desk", "1234"]);
        let mut check = |text: &str, expect| assert_eq!(plivo.text(text), Ok(expect), "{text}");
        check(
            r#"{"event":"media","sequenceNumber":2,"streamId":"8765","media":{"track":"inbound","timestamp":"1","chunk":1,"payload":"AQI="}}"#,
            Some(PeerMessage::Audio { number: None, audio: Bytes::from_static(&[1, 2]) }),
        );
        check(
            r#"{"event":"dtmf","streamId":"8765","dtmf":{"track":"inbound","digit":"*"}}"#,
            Some(PeerMessage::Key('*')),
        );
        check(r#"{"event":"playedStream","streamId":"8765","name":"antiphon-3"}"#, Some(PeerMessage::Played(Mark(3))));
        check(r#"{"event":"clearedAudio","streamId":"8765"}"#, None);
        check(r#"{"event":"stop","streamId":"8765"}"#, Some(PeerMessage::Ended));
    }

    #[test]
    fn what_is_said_to_plivo() {
        let mut plivo = Plivo::default();
        plivo.text(START).unwrap();
        let text = |packet: Option<Packet>| match packet {
            Some(Packet::Text(text)) => serde_json::from_str::<Value>(&text).unwrap(),
            other => panic!("{other:?}"),
        };
        let played = plivo.play(vec![1, 2]);
        let media = json!({"contentType": "audio/x-l16", "sampleRate": 16_000, "payload": "AQI="});
        assert_eq!(text(Some(played)), json!({"event": "playAudio", "streamId": "8765", "media": media}));
        let mark = json!({"event": "checkpoint", "streamId": "8765", "name": "antiphon-1"});
        assert_eq!(text(plivo.mark(Mark(1))), mark);
        assert_eq!(text(plivo.clear()), json!({"event": "clearAudio", "streamId": "8765"}));
    }

    #[test]
    fn headers_of_the_xml_are_parameters_in_each_form() {
        for headers in
            [json!("X-PH-to=+1;route=desk"), json!("{to: +1, route: desk}"), json!({"to": "+1", "route": "desk"})]
        {
            let parameters = extra_headers(Some(&headers));
            assert_eq!(["to", "route"].map(|name| parameters.get(name)), [Some("+1"), Some("desk")], "{headers}");
        }
        assert_eq!(extra_headers(None), Parameters::default());
    }

    #[test]
    fn what_violates_the_protocol_is_refused() {
        let mut plivo = Plivo::default();
        assert_eq!(plivo.text(r#"{"event":"media","media":{"payload":"AQI="}}"#), Err(LegError::BeforeStart));
        let wrong = START.replace("16000", "44100");
        assert_eq!(plivo.text(&wrong), Err(LegError::Coding("audio/x-l16 at 44100 Hz".into())));
        plivo.text(START).unwrap();
        assert_eq!(plivo.text(START), Err(LegError::StartedTwice));
        assert_eq!(plivo.text(r#"{"event":"playedStream"}"#), Err(LegError::Lacks("name")));
    }
}
