//! Telnyx Media Streaming with `stream_bidirectional_mode: rtp`: JSON messages with G.711 in base64.
//!
//! Telnyx does not keep the order of media messages; their `chunk` numbers do. The coding of what it plays is
//! `stream_bidirectional_codec` of the request that started the stream, which no message names: PCMU, or what the
//! parameter `codec` says.

use super::leg::{Coding, Leg, LegError, Mark, Packet, Parameters, PeerMessage, Start, whole};
use crate::server::transport::keypad::key;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use std::borrow::Cow;

/// See the module.
pub(super) struct Telnyx {
    has_started: bool,
    /// What Telnyx plays.
    output: Coding,
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
    chunk: Option<Value>,
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

impl Telnyx {
    /// `codec`: of what Telnyx plays, where the URL says it.
    ///
    /// # Errors
    /// The hub does not speak it.
    pub(super) fn new(codec: Option<&str>) -> Result<Self, LegError> {
        Ok(Self { has_started: false, output: codec.map_or(Ok(Coding::ULAW), coding)? })
    }
}

impl Leg for Telnyx {
    fn text(&mut self, text: &str) -> Result<Option<PeerMessage>, LegError> {
        let message: Message = serde_json::from_str(text).map_err(|_| LegError::NotJson)?;
        match message.event.as_ref() {
            "start" => {
                let start = message.start.ok_or(LegError::Lacks("start"))?;
                if std::mem::replace(&mut self.has_started, true) {
                    return Err(LegError::StartedTwice);
                }
                let input = coding(start["media_format"]["encoding"].as_str().unwrap_or("PCMU"))?;
                let mut parameters = Parameters::default();
                parameters.add("from", &start["from"]);
                parameters.add("to", &start["to"]);
                parameters.add_all(start.get("custom_parameters"));
                parameters.add("call", &start["call_control_id"]);
                Ok(Some(PeerMessage::Started(Box::new(Start { input, output: self.output, parameters }))))
            }
            "media" => {
                let media = message.media.ok_or(LegError::Lacks("media"))?;
                if !self.has_started {
                    return Err(LegError::BeforeStart);
                }
                if media.track.as_deref().is_some_and(|track| !track.starts_with("inbound")) {
                    return Ok(None);
                }
                let audio = BASE64.decode(media.payload.as_ref()).map_err(|_| LegError::NotBase64)?;
                let number = media.chunk.as_ref().and_then(whole).map(|chunk| chunk as u32);
                Ok((!audio.is_empty()).then(|| PeerMessage::Audio { number, audio: Bytes::from(audio) }))
            }
            "dtmf" => Ok(key(&message.dtmf.ok_or(LegError::Lacks("dtmf"))?.digit).map(PeerMessage::Key)),
            "mark" => Ok(Mark::of(&message.mark.ok_or(LegError::Lacks("mark"))?.name).map(PeerMessage::Played)),
            "stop" => Ok(Some(PeerMessage::Ended)),
            // `connected`, `error` about one message, and what later versions add.
            _ => Ok(None),
        }
    }

    fn play(&mut self, audio: Vec<u8>) -> Packet {
        Packet::json(&json!({"event": "media", "media": {"payload": BASE64.encode(audio)}}))
    }

    fn mark(&mut self, mark: Mark) -> Option<Packet> {
        Some(Packet::json(&json!({"event": "mark", "mark": {"name": mark.to_string()}})))
    }

    fn clear(&mut self) -> Option<Packet> {
        Some(Packet::json(&json!({"event": "clear"})))
    }
}

fn coding(name: &str) -> Result<Coding, LegError> {
    match name {
        "PCMU" => Ok(Coding::ULAW),
        "PCMA" => Ok(Coding::ALAW),
        other => Err(LegError::Coding(other.chars().take(40).collect())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: &str = r#"{"event":"start","sequence_number":"1","stream_id":"32DE","start":{"user_id":"3E6F",
        "call_control_id":"v2:T02","call_session_id":"ff55","from":"+13122010094","to":"+13122123456","client_state":"aGF2",
        "custom_parameters":{"route":"desk"},"media_format":{"encoding":"PCMA","sample_rate":8000,"channels":1}}}"#;

    #[test]
    fn what_telnyx_says_is_read() {
        let mut telnyx = Telnyx::new(None).unwrap();
        assert_eq!(telnyx.text(r#"{"event":"connected","version":"1.0.0"}"#), Ok(None));
        let Ok(Some(PeerMessage::Started(start))) = telnyx.text(START) else { panic!("a start") };
        assert_eq!((start.input, start.output), (Coding::ALAW, Coding::ULAW), "each way has its own coding");
        let parameters = &start.parameters;
        assert_eq!([parameters.get("to"), parameters.get("route")], [Some("+13122123456"), Some("desk")]);
        let mut check = |text: &str, expect| assert_eq!(telnyx.text(text), Ok(expect), "{text}");
        let audio = Bytes::from_static(&[0xd5]);
        check(
            r#"{"event":"media","sequence_number":"4","media":{"track":"inbound","chunk":"2","timestamp":"5","payload":"1Q=="},"stream_id":"32DE"}"#,
            Some(PeerMessage::Audio { number: Some(2), audio: audio.clone() }),
        );
        check(r#"{"event":"media","media":{"payload":"1Q=="}}"#, Some(PeerMessage::Audio { number: None, audio }));
        check(r#"{"event":"media","media":{"track":"outbound","chunk":"2","payload":"1Q=="}}"#, None);
        check(r#"{"event":"dtmf","stream_id":"32DE","dtmf":{"digit":"1"}}"#, Some(PeerMessage::Key('1')));
        check(
            r#"{"event":"mark","stream_id":"32DE","mark":{"name":"antiphon-1"}}"#,
            Some(PeerMessage::Played(Mark(1))),
        );
        check(r#"{"event":"stop","stream_id":"32DE","stop":{"user_id":"3E6F"}}"#, Some(PeerMessage::Ended));
        check(r#"{"event":"error","payload":{"code":100002,"title":"malformed_frame"}}"#, None);
    }

    #[test]
    fn the_url_says_what_telnyx_plays() {
        assert_eq!(Telnyx::new(Some("PCMA")).unwrap().output, Coding::ALAW);
        assert_eq!(Telnyx::new(Some("OPUS")).err(), Some(LegError::Coding("OPUS".into())));
        let mut telnyx = Telnyx::new(None).unwrap();
        assert_eq!(telnyx.play(vec![0xff]), Packet::Text(r#"{"event":"media","media":{"payload":"/w=="}}"#.into()));
        assert_eq!(telnyx.clear(), Some(Packet::Text(r#"{"event":"clear"}"#.into())));
        let mark = r#"{"event":"mark","mark":{"name":"antiphon-9"}}"#;
        assert_eq!(telnyx.mark(Mark(9)), Some(Packet::Text(mark.into())));
    }

    #[test]
    fn what_violates_the_protocol_is_refused() {
        let mut telnyx = Telnyx::new(None).unwrap();
        assert_eq!(telnyx.text(r#"{"event":"media","media":{"payload":"1Q=="}}"#), Err(LegError::BeforeStart));
        let g722 = START.replace("PCMA", "G722");
        assert_eq!(telnyx.text(&g722), Err(LegError::Coding("G722".into())));
        let mut telnyx = Telnyx::new(None).unwrap();
        telnyx.text(START).unwrap();
        assert_eq!(telnyx.text(START), Err(LegError::StartedTwice));
        assert_eq!(telnyx.text("{"), Err(LegError::NotJson));
        assert_eq!(telnyx.binary(Bytes::from_static(b"x")), Err(LegError::BinaryMessage));
    }
}
