//! Asterisk `chan_websocket` (20.16, 21.11, 22.6, 23.0 and later): binary media, control messages as plain text or JSON.
//!
//! The first message decides which of the two; the answers have its form. Asterisk plays media in real time and pads what is
//! no whole frame with silence; [`super::conversation`] sends whole frames. Control messages hold 128 bytes at most. A flush
//! discards marks, too, without an answer.

use super::leg::{Coding, Leg, LegError, Mark, Packet, Parameters, PeerMessage, Start};
use crate::server::transport::keypad::key;
use bytes::Bytes;
use serde_json::{Value, json};

/// The subprotocol that Asterisk's WebSocket client offers.
pub(super) const SUBPROTOCOL: &str = "media";

/// See the module.
#[derive(Default)]
pub(super) struct Asterisk {
    /// Whether control messages are JSON; known from the start on.
    is_json: Option<bool>,
}

impl Leg for Asterisk {
    fn text(&mut self, text: &str) -> Result<Option<PeerMessage>, LegError> {
        let event = Event::read(text)?;
        match event.name() {
            "MEDIA_START" => {
                if self.is_json.replace(matches!(event, Event::Json(_))).is_some() {
                    return Err(LegError::StartedTwice);
                }
                let coding = coding(event.get("format").ok_or(LegError::Lacks("format"))?)?;
                Ok(Some(PeerMessage::Started(Box::new(Start {
                    input: coding,
                    output: coding,
                    parameters: event.parameters(),
                }))))
            }
            "DTMF_END" => Ok(event.get("digit").and_then(key).map(PeerMessage::Key)),
            "MEDIA_MARK_PROCESSED" => Ok(event.mark().and_then(Mark::of).map(PeerMessage::Played)),
            // `MEDIA_XOFF` and `MEDIA_XON` come at 18 s of waiting media, which a session's lead never reaches.
            _ => Ok(None),
        }
    }

    fn binary(&mut self, bytes: Bytes) -> Result<Option<PeerMessage>, LegError> {
        self.is_json.ok_or(LegError::BeforeStart)?;
        Ok((!bytes.is_empty()).then_some(PeerMessage::Audio { number: None, audio: bytes }))
    }

    fn play(&mut self, audio: Vec<u8>) -> Packet {
        Packet::Binary(audio.into())
    }

    fn mark(&mut self, mark: Mark) -> Option<Packet> {
        Some(if self.is_json == Some(true) {
            Packet::json(&json!({"command": "MARK_MEDIA", "correlation_id": mark.to_string()}))
        } else {
            Packet::Text(format!("MARK_MEDIA {mark}"))
        })
    }

    fn clear(&mut self) -> Option<Packet> {
        Some(self.command("FLUSH_MEDIA"))
    }

    fn hold(&mut self, is_held: bool) -> Option<Packet> {
        Some(self.command(if is_held { "PAUSE_MEDIA" } else { "CONTINUE_MEDIA" }))
    }

    fn hang_up(&mut self) -> Option<Packet> {
        Some(self.command("HANGUP"))
    }
}

impl Asterisk {
    fn command(&self, name: &'static str) -> Packet {
        match self.is_json {
            Some(true) => Packet::json(&json!({"command": name})),
            _ => Packet::Text(name.into()),
        }
    }
}

/// A control message of Asterisk in one of its two forms.
enum Event<'a> {
    /// `NAME key:value key:value`, `MEDIA_MARK_PROCESSED ID`
    Plain(&'a str),
    Json(Value),
}

impl<'a> Event<'a> {
    fn read(text: &'a str) -> Result<Self, LegError> {
        let text = text.trim();
        if !text.starts_with('{') {
            let name = text.split(' ').next().unwrap_or_default();
            let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
            return if is_name { Ok(Self::Plain(text)) } else { Err(LegError::NotJson) };
        }
        let value: Value = serde_json::from_str(text).map_err(|_| LegError::NotJson)?;
        value["event"].as_str().ok_or(LegError::Lacks("event"))?;
        Ok(Self::Json(value))
    }

    fn name(&self) -> &str {
        match self {
            Self::Plain(text) => text.split(' ').next().unwrap_or_default(),
            Self::Json(value) => value["event"].as_str().unwrap_or_default(),
        }
    }

    fn get(&self, name: &str) -> Option<&str> {
        match self {
            Self::Plain(text) => {
                let pairs = text.split(' ').skip(1).filter_map(|pair| pair.split_once(':'));
                pairs.filter(|(key, _)| *key == name).map(|(_, value)| value).next()
            }
            Self::Json(value) => value[name].as_str(),
        }
    }

    /// The name of a processed mark. Documentation and releases differ in whether the plain form has a key.
    fn mark(&self) -> Option<&str> {
        match self {
            Self::Plain(text) => {
                let word = text.split(' ').nth(1)?;
                Some(word.strip_prefix("correlation_id:").unwrap_or(word))
            }
            Self::Json(value) => value["correlation_id"].as_str(),
        }
    }

    fn parameters(&self) -> Parameters {
        let mut parameters = Parameters::default();
        match self {
            Self::Plain(text) => {
                for (name, value) in text.split(' ').skip(1).filter_map(|pair| pair.split_once(':')) {
                    parameters.add_text(name, value);
                }
            }
            Self::Json(value) => {
                parameters.add_all(value.get("channel_variables"));
                parameters.add_all(Some(value));
            }
        }
        parameters
    }
}

/// Asterisk's names of formats.
fn coding(name: &str) -> Result<Coding, LegError> {
    match name {
        "ulaw" => Ok(Coding::ULAW),
        "alaw" => Ok(Coding::ALAW),
        "slin" => Coding::l16(8_000),
        "slin16" => Coding::l16(16_000),
        "slin24" => Coding::l16(24_000),
        "slin32" => Coding::l16(32_000),
        "slin44" => Coding::l16(44_100),
        "slin48" => Coding::l16(48_000),
        other => Err(LegError::Coding(other.chars().take(40).collect())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &str = "MEDIA_START connection_id:media1 channel:WebSocket/media1/0x5140001a0040 channel_id:1761245643.1 \
                         format:ulaw optimal_frame_size:160 ptime:20";
    const JSON: &str = r#"{"event":"MEDIA_START","connection_id":"media1","channel":"WebSocket/media1/0x5","channel_id":"1.1",
        "format":"slin16","optimal_frame_size":640,"ptime":20,"channel_variables":{"route":"desk","to":"100"}}"#;

    #[test]
    fn both_forms_are_read_and_answered_in_kind() {
        let mut plain = Asterisk::default();
        let Ok(Some(PeerMessage::Started(start))) = plain.text(PLAIN) else { panic!("a start") };
        assert_eq!((start.input, start.parameters.get("connection_id")), (Coding::ULAW, Some("media1")));
        let text = |text: &str| Some(Packet::Text(text.into()));
        assert_eq!(plain.mark(Mark(3)), text("MARK_MEDIA antiphon-3"));
        assert_eq!(plain.clear(), text("FLUSH_MEDIA"));
        assert_eq!([plain.hold(true), plain.hold(false)], [text("PAUSE_MEDIA"), text("CONTINUE_MEDIA")]);
        assert_eq!(plain.hang_up(), text("HANGUP"));
        assert_eq!(plain.text("MEDIA_MARK_PROCESSED antiphon-3"), Ok(Some(PeerMessage::Played(Mark(3)))));
        assert_eq!(
            plain.text("MEDIA_MARK_PROCESSED correlation_id:antiphon-3"),
            Ok(Some(PeerMessage::Played(Mark(3))))
        );
        assert_eq!(plain.text("DTMF_END digit:5 channel_id:1.1"), Ok(Some(PeerMessage::Key('5'))));
        assert_eq!(plain.text("MEDIA_XOFF"), Ok(None));

        let mut json = Asterisk::default();
        let Ok(Some(PeerMessage::Started(start))) = json.text(JSON) else { panic!("a start") };
        assert_eq!((start.output, start.parameters.get("route")), (Coding::l16(16_000).unwrap(), Some("desk")));
        assert_eq!(json.mark(Mark(3)), text(r#"{"command":"MARK_MEDIA","correlation_id":"antiphon-3"}"#));
        assert_eq!(json.clear(), text(r#"{"command":"FLUSH_MEDIA"}"#));
        assert_eq!(json.hang_up(), text(r#"{"command":"HANGUP"}"#));
        let processed = r#"{"event":"MEDIA_MARK_PROCESSED","channel_id":"1.1","correlation_id":"antiphon-3"}"#;
        assert_eq!(json.text(processed), Ok(Some(PeerMessage::Played(Mark(3)))));
        assert_eq!(
            json.text(r##"{"event":"DTMF_END","channel_id":"1.1","digit":"#"}"##),
            Ok(Some(PeerMessage::Key('#')))
        );
        assert_eq!(json.text(r#"{"event":"MEDIA_XON","channel_id":"1.1"}"#), Ok(None));
        for packet in [json.mark(Mark(u64::MAX)), json.clear(), json.hold(true), json.hang_up()] {
            assert!(matches!(packet, Some(Packet::Text(text)) if text.len() <= 128));
        }
    }

    #[test]
    fn media_is_binary() {
        let mut asterisk = Asterisk::default();
        assert_eq!(asterisk.binary(Bytes::from_static(&[0xff])), Err(LegError::BeforeStart));
        asterisk.text(PLAIN).unwrap();
        let audio = Bytes::from_static(&[0xff]);
        assert_eq!(asterisk.binary(audio.clone()), Ok(Some(PeerMessage::Audio { number: None, audio: audio.clone() })));
        assert_eq!(asterisk.play(vec![0xff]), Packet::Binary(audio));
    }

    #[test]
    fn what_violates_the_protocol_is_refused() {
        let mut asterisk = Asterisk::default();
        let opus = PLAIN.replace("ulaw", "opus");
        assert_eq!(asterisk.text(&opus), Err(LegError::Coding("opus".into())));
        assert_eq!(Asterisk::default().text("MEDIA_START channel:x"), Err(LegError::Lacks("format")));
        for text in ["", "hello", "{", "é"] {
            assert_eq!(Asterisk::default().text(text), Err(LegError::NotJson), "{text:?}");
        }
        assert_eq!(Asterisk::default().text("{}"), Err(LegError::Lacks("event")));
        let mut asterisk = Asterisk::default();
        asterisk.text(PLAIN).unwrap();
        assert_eq!(asterisk.text(PLAIN), Err(LegError::StartedTwice));
    }
}
