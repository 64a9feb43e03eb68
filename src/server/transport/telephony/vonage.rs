//! Vonage Voice API (`connect` to an endpoint of type `websocket`): binary L16, JSON for the rest.
//!
//! The first message names the rate and carries the headers of the NCCO. Vonage keeps 3,072 messages of audio, a minute at
//! 20 ms; what a session sends ahead is far less.

use super::leg::{Coding, Leg, LegError, Mark, Packet, Parameters, PeerMessage, Start};
use crate::server::transport::keypad::key;
use bytes::Bytes;
use serde_json::{Value, json};

/// See the module.
#[derive(Default)]
pub(super) struct Vonage {
    has_started: bool,
}

impl Leg for Vonage {
    fn text(&mut self, text: &str) -> Result<Option<PeerMessage>, LegError> {
        let message: Value = serde_json::from_str(text).map_err(|_| LegError::NotJson)?;
        match message["event"].as_str().ok_or(LegError::Lacks("event"))? {
            "websocket:connected" => {
                if std::mem::replace(&mut self.has_started, true) {
                    return Err(LegError::StartedTwice);
                }
                let coding = coding(message["content-type"].as_str().ok_or(LegError::Lacks("content-type"))?)?;
                let mut parameters = Parameters::default();
                parameters.add_all(Some(&message));
                parameters.add_all(message.get("headers"));
                Ok(Some(PeerMessage::Started(Box::new(Start { input: coding, output: coding, parameters }))))
            }
            "websocket:dtmf" => Ok(message["digit"].as_str().and_then(key).map(PeerMessage::Key)),
            "websocket:notify" => {
                let name = message["payload"]["mark"].as_str();
                Ok(name.and_then(Mark::of).map(PeerMessage::Played))
            }
            // `websocket:cleared`, `websocket:media:update`, and what later versions add.
            _ => Ok(None),
        }
    }

    fn binary(&mut self, bytes: Bytes) -> Result<Option<PeerMessage>, LegError> {
        if !self.has_started {
            return Err(LegError::BeforeStart);
        }
        Ok((!bytes.is_empty()).then_some(PeerMessage::Audio { number: None, audio: bytes }))
    }

    fn play(&mut self, audio: Vec<u8>) -> Packet {
        Packet::Binary(audio.into())
    }

    fn mark(&mut self, mark: Mark) -> Option<Packet> {
        Some(Packet::json(&json!({"action": "notify", "payload": {"mark": mark.to_string()}})))
    }

    fn clear(&mut self) -> Option<Packet> {
        Some(Packet::json(&json!({"action": "clear"})))
    }
}

/// `audio/l16;rate=16000`
fn coding(content_type: &str) -> Result<Coding, LegError> {
    let wrong = || LegError::Coding(content_type.chars().take(40).collect());
    let (kind, rate) = content_type.split_once(';').ok_or_else(wrong)?;
    let hz = rate.trim().strip_prefix("rate=").and_then(|hz| hz.parse().ok()).ok_or_else(wrong)?;
    if kind.trim().eq_ignore_ascii_case("audio/l16") { Coding::l16(hz) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: &str =
        r#"{"event":"websocket:connected","content-type":"audio/l16;rate=16000","to":"+1555","route":"desk"}"#;

    #[test]
    fn what_vonage_says_is_read() {
        let mut vonage = Vonage::default();
        let Ok(Some(PeerMessage::Started(start))) = vonage.text(START) else { panic!("a start") };
        assert_eq!(start.output, Coding::l16(16_000).unwrap());
        assert_eq!(["to", "route"].map(|name| start.parameters.get(name).unwrap()), ["+1555", "desk"]);
        let audio = Bytes::from_static(&[1, 0]);
        assert_eq!(vonage.binary(audio.clone()), Ok(Some(PeerMessage::Audio { number: None, audio })));
        assert_eq!(vonage.binary(Bytes::new()), Ok(None));
        let mut check = |text: &str, expect| assert_eq!(vonage.text(text), Ok(expect), "{text}");
        check(r#"{"event":"websocket:dtmf","digit":"5","duration":260}"#, Some(PeerMessage::Key('5')));
        check(r#"{"event":"websocket:notify","payload":{"mark":"antiphon-7"}}"#, Some(PeerMessage::Played(Mark(7))));
        check(r#"{"event":"websocket:notify","payload":{"x":1}}"#, None);
        check(r#"{"event":"websocket:cleared"}"#, None);
    }

    #[test]
    fn what_is_said_to_vonage() {
        let mut vonage = Vonage::default();
        assert_eq!(vonage.play(vec![1, 2]), Packet::Binary(Bytes::from_static(&[1, 2])));
        let mark = r#"{"action":"notify","payload":{"mark":"antiphon-1"}}"#;
        assert_eq!(vonage.mark(Mark(1)), Some(Packet::Text(mark.into())));
        assert_eq!(vonage.clear(), Some(Packet::Text(r#"{"action":"clear"}"#.into())));
    }

    #[test]
    fn what_violates_the_protocol_is_refused() {
        let mut vonage = Vonage::default();
        assert_eq!(vonage.binary(Bytes::from_static(&[0, 0])), Err(LegError::BeforeStart));
        for (text, expect) in
            [("{}", LegError::Lacks("event")), (r#"{"event":"websocket:connected"}"#, LegError::Lacks("content-type"))]
        {
            assert_eq!(Vonage::default().text(text), Err(expect));
        }
        for content_type in ["audio/l16", "audio/l16;rate=11025", "audio/l16;rate=x", "audio/opus;rate=16000"] {
            let text = START.replace("audio/l16;rate=16000", content_type);
            assert!(matches!(Vonage::default().text(&text), Err(LegError::Coding(_))), "{content_type}");
        }
        vonage.text(START).unwrap();
        assert_eq!(vonage.text(START), Err(LegError::StartedTwice));
    }
}
