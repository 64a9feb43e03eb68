//! Twilio Media Streams (`<Connect><Stream>`): JSON messages with mu-law at 8 kHz in base64.
//!
//! Numbers are texts in this protocol. A mark comes back when the audio before it was played, and at once after a clear.

use super::leg::{Coding, Leg, LegError, Mark, Packet, Parameters, PeerMessage, Start};
use crate::server::transport::keypad::key;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use std::borrow::Cow;

/// Parameters of a stream that Twilio itself names: its account, and its id of the call.
pub(super) const ACCOUNT_PARAMETER: &str = "account_sid";
pub(super) const CALL_PARAMETER: &str = "call_sid";

/// See the module.
#[derive(Default)]
pub(super) struct Twilio {
    /// Known from the start on.
    stream: Option<String>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    event: Cow<'a, str>,
    #[serde(borrow)]
    media: Option<Media<'a>>,
    start: Option<Value>,
    #[serde(borrow)]
    dtmf: Option<Dtmf<'a>>,
    #[serde(borrow)]
    mark: Option<Name<'a>>,
}

#[derive(Deserialize)]
struct Media<'a> {
    #[serde(borrow)]
    track: Option<Cow<'a, str>>,
    #[serde(borrow)]
    payload: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Dtmf<'a> {
    #[serde(borrow)]
    digit: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Name<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
}

impl Leg for Twilio {
    fn text(&mut self, text: &str) -> Result<Option<PeerMessage>, LegError> {
        let message: Message = serde_json::from_str(text).map_err(|_| LegError::NotJson)?;
        match message.event.as_ref() {
            "start" => {
                let start = message.start.ok_or(LegError::Lacks("start"))?;
                if self.stream.is_some() {
                    return Err(LegError::StartedTwice);
                }
                let (stream, start) = started(&start)?;
                self.stream = Some(stream);
                Ok(Some(PeerMessage::Started(Box::new(start))))
            }
            "media" => {
                let media = message.media.ok_or(LegError::Lacks("media"))?;
                self.stream.as_ref().ok_or(LegError::BeforeStart)?;
                // What the caller hears is no input.
                if media.track.as_deref().is_some_and(|track| !track.starts_with("inbound")) {
                    return Ok(None);
                }
                let audio = BASE64.decode(media.payload.as_ref()).map_err(|_| LegError::NotBase64)?;
                Ok((!audio.is_empty()).then(|| PeerMessage::Audio { number: None, audio: Bytes::from(audio) }))
            }
            "dtmf" => Ok(key(&message.dtmf.ok_or(LegError::Lacks("dtmf"))?.digit).map(PeerMessage::Key)),
            "mark" => Ok(Mark::of(&message.mark.ok_or(LegError::Lacks("mark"))?.name).map(PeerMessage::Played)),
            "stop" => Ok(Some(PeerMessage::Ended)),
            // `connected`, and what later versions add.
            _ => Ok(None),
        }
    }

    fn play(&mut self, audio: Vec<u8>) -> Packet {
        Packet::json(&json!({"event": "media", "streamSid": self.stream, "media": {"payload": BASE64.encode(audio)}}))
    }

    fn mark(&mut self, mark: Mark) -> Option<Packet> {
        let name = mark.to_string();
        Some(Packet::json(&json!({"event": "mark", "streamSid": self.stream, "mark": {"name": name}})))
    }

    fn clear(&mut self) -> Option<Packet> {
        Some(Packet::json(&json!({"event": "clear", "streamSid": self.stream})))
    }
}

fn started(start: &Value) -> Result<(String, Start), LegError> {
    let stream = start["streamSid"].as_str().ok_or(LegError::Lacks("start.streamSid"))?.to_owned();
    let encoding = start["mediaFormat"]["encoding"].as_str().unwrap_or("audio/x-mulaw");
    if encoding != "audio/x-mulaw" {
        return Err(LegError::Coding(encoding.chars().take(40).collect()));
    }
    let mut parameters = Parameters::default();
    // The first of a name counts: those of the TwiML change none of Twilio's own.
    parameters.add(ACCOUNT_PARAMETER, &start["accountSid"]);
    parameters.add(CALL_PARAMETER, &start["callSid"]);
    parameters.add_all(start.get("customParameters"));
    parameters.add("call", &start["callSid"]);
    Ok((stream, Start { input: Coding::ULAW, output: Coding::ULAW, parameters }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: &str = r#"{"event":"start","sequenceNumber":"1","start":{"accountSid":"AC1","streamSid":"MZ1",
        "callSid":"CA1","tracks":["inbound"],"mediaFormat":{"encoding":"audio/x-mulaw","sampleRate":8000,"channels":1},
        "customParameters":{"to":"+15550100","from":"+15550199"}},"streamSid":"MZ1"}"#;

    fn begun() -> Twilio {
        let mut twilio = Twilio::default();
        assert_eq!(twilio.text(r#"{"event":"connected","protocol":"Call","version":"1.0.0"}"#), Ok(None));
        let Ok(Some(PeerMessage::Started(start))) = twilio.text(START) else { panic!("a start") };
        assert_eq!((start.input, start.output), (Coding::ULAW, Coding::ULAW));
        let parameters = &start.parameters;
        assert_eq!([parameters.get("to"), parameters.get("call")], [Some("+15550100"), Some("CA1")]);
        twilio
    }

    #[test]
    fn what_twilio_says_is_read() {
        let mut twilio = begun();
        let mut check = |text: &str, expect| assert_eq!(twilio.text(text), Ok(expect), "{text}");
        check(
            r#"{"event":"media","sequenceNumber":"3","media":{"track":"inbound","chunk":"1","timestamp":"5","payload":"/38A"},"streamSid":"MZ1"}"#,
            Some(PeerMessage::Audio { number: None, audio: Bytes::from_static(&[0xff, 0x7f, 0]) }),
        );
        check(r#"{"event":"media","media":{"track":"outbound","payload":"/38A"}}"#, None);
        check(r#"{"event":"media","media":{"track":"inbound","payload":""}}"#, None);
        check(
            r##"{"event":"dtmf","streamSid":"MZ1","dtmf":{"track":"inbound_track","digit":"#"}}"##,
            Some(PeerMessage::Key('#')),
        );
        check(r#"{"event":"dtmf","dtmf":{"digit":"x"}}"#, None);
        check(r#"{"event":"mark","streamSid":"MZ1","mark":{"name":"antiphon-4"}}"#, Some(PeerMessage::Played(Mark(4))));
        check(r#"{"event":"mark","mark":{"name":"somebody's"}}"#, None);
        check(
            r#"{"event":"stop","sequenceNumber":"5","stop":{"accountSid":"AC1","callSid":"CA1"}}"#,
            Some(PeerMessage::Ended),
        );
        check(r#"{"event":"of a later version"}"#, None);
    }

    #[test]
    fn what_is_said_to_twilio() {
        let mut twilio = begun();
        let text = |packet: Option<Packet>| match packet {
            Some(Packet::Text(text)) => serde_json::from_str::<Value>(&text).unwrap(),
            other => panic!("{other:?}"),
        };
        let played = twilio.play(vec![0xff, 0x7f, 0]);
        let media = json!({"event": "media", "streamSid": "MZ1", "media": {"payload": "/38A"}});
        assert_eq!(text(Some(played)), media);
        let mark = json!({"event": "mark", "streamSid": "MZ1", "mark": {"name": "antiphon-2"}});
        assert_eq!(text(twilio.mark(Mark(2))), mark);
        assert_eq!(text(twilio.clear()), json!({"event": "clear", "streamSid": "MZ1"}));
        assert_eq!(twilio.hang_up(), None, "closing hands the call back to the TwiML");
    }

    #[test]
    fn what_violates_the_protocol_is_refused() {
        let media = r#"{"event":"media","media":{"payload":"AAAA"}}"#;
        assert_eq!(Twilio::default().text(media), Err(LegError::BeforeStart));
        let mut twilio = begun();
        let mut check = |text: &str, expect| assert_eq!(twilio.text(text), Err(expect), "{text}");
        check(START, LegError::StartedTwice);
        check("", LegError::NotJson);
        check("[]", LegError::NotJson);
        check(r#"{"event":"media"}"#, LegError::Lacks("media"));
        check(r#"{"event":"media","media":{"payload":"%"}}"#, LegError::NotBase64);
        check(r#"{"event":"mark"}"#, LegError::Lacks("mark"));
        let opus = START.replace("audio/x-mulaw", "audio/opus");
        assert_eq!(Twilio::default().text(&opus), Err(LegError::Coding("audio/opus".into())));
        let without = START.replacen("streamSid", "sid", 1);
        assert_eq!(Twilio::default().text(&without), Err(LegError::Lacks("start.streamSid")));
    }
}
