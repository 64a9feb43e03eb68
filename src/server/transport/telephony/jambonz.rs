//! jambonz `listen` with `bidirectionalAudio.streaming`: a JSON preamble, binary L16, JSON for the rest.
//!
//! The preamble names the rate of what jambonz sends; `bidirectionalAudio.sampleRate` of the verb has to be the same, because
//! nothing names it.

use super::leg::{Coding, Leg, LegError, Mark, Packet, Parameters, PeerMessage, Start, whole};
use crate::server::transport::keypad::key;
use bytes::Bytes;
use serde_json::{Value, json};

/// The subprotocol that jambonz offers and requires.
pub(super) const SUBPROTOCOL: &str = "audio.jambonz.org";

/// See the module.
#[derive(Default)]
pub(super) struct Jambonz {
    has_started: bool,
}

impl Leg for Jambonz {
    fn text(&mut self, text: &str) -> Result<Option<PeerMessage>, LegError> {
        let message: Value = serde_json::from_str(text).map_err(|_| LegError::NotJson)?;
        if !message.is_object() {
            return Err(LegError::NotJson);
        }
        let kind = message["event"].as_str().or_else(|| message["type"].as_str());
        match kind {
            Some("dtmf") => {
                let digit = message["dtmf"].as_str().or_else(|| message["digit"].as_str());
                Ok(digit.and_then(key).map(PeerMessage::Key))
            }
            Some("mark") => {
                let name = message["data"]["name"].as_str().or_else(|| message["name"].as_str());
                Ok(name.and_then(Mark::of).map(PeerMessage::Played))
            }
            // The preamble has no type.
            None if !self.has_started => {
                self.has_started = true;
                if message["mixType"].as_str().is_some_and(|mix| mix == "stereo") {
                    return Err(LegError::Coding("mixType stereo".into()));
                }
                let coding = Coding::l16(message.get("sampleRate").map_or(Some(8_000), whole).unwrap_or(0))?;
                let mut parameters = Parameters::default();
                parameters.add_all(Some(&message));
                parameters.add_all(message.get("metadata"));
                Ok(Some(PeerMessage::Started(Box::new(Start { input: coding, output: coding, parameters }))))
            }
            None => Err(LegError::StartedTwice),
            Some(_) => Ok(None),
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
        Some(Packet::json(&json!({"type": "mark", "data": {"name": mark.to_string()}})))
    }

    fn clear(&mut self) -> Option<Packet> {
        Some(Packet::json(&json!({"type": "killAudio"})))
    }

    fn hang_up(&mut self) -> Option<Packet> {
        Some(Packet::json(&json!({"type": "disconnect"})))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREAMBLE: &str = r#"{"sampleRate":16000,"mixType":"mono","callSid":"c1","direction":"inbound","from":"+1555",
        "to":"+1666","callId":"x","sipStatus":200,"metadata":{"route":"desk"}}"#;

    #[test]
    fn what_jambonz_says_is_read() {
        let mut jambonz = Jambonz::default();
        let Ok(Some(PeerMessage::Started(start))) = jambonz.text(PREAMBLE) else { panic!("a start") };
        assert_eq!(start.input, Coding::l16(16_000).unwrap());
        assert_eq!(["to", "route"].map(|name| start.parameters.get(name).unwrap()), ["+1666", "desk"]);
        let audio = Bytes::from_static(&[1, 0]);
        assert_eq!(jambonz.binary(audio.clone()), Ok(Some(PeerMessage::Audio { number: None, audio })));
        let mut check = |text: &str, expect| assert_eq!(jambonz.text(text), Ok(expect), "{text}");
        check(r#"{"event":"dtmf","dtmf":"2","duration":"1600"}"#, Some(PeerMessage::Key('2')));
        check(r#"{"type":"mark","data":{"name":"antiphon-5","event":"playout"}}"#, Some(PeerMessage::Played(Mark(5))));
        check(r#"{"type":"mark","data":{"name":"antiphon-6","event":"cleared"}}"#, Some(PeerMessage::Played(Mark(6))));
        check(r#"{"type":"later"}"#, None);
    }

    #[test]
    fn what_is_said_to_jambonz() {
        let mut jambonz = Jambonz::default();
        assert_eq!(jambonz.play(vec![1, 2]), Packet::Binary(Bytes::from_static(&[1, 2])));
        let mark = r#"{"data":{"name":"antiphon-1"},"type":"mark"}"#;
        assert_eq!(jambonz.mark(Mark(1)), Some(Packet::Text(mark.into())));
        assert_eq!(jambonz.clear(), Some(Packet::Text(r#"{"type":"killAudio"}"#.into())));
        assert_eq!(jambonz.hang_up(), Some(Packet::Text(r#"{"type":"disconnect"}"#.into())));
    }

    #[test]
    fn what_violates_the_protocol_is_refused() {
        assert_eq!(Jambonz::default().binary(Bytes::from_static(&[0, 0])), Err(LegError::BeforeStart));
        assert_eq!(Jambonz::default().text("[]"), Err(LegError::NotJson));
        for (from, to) in [("mono", "stereo"), ("16000", "\"x\""), ("16000", "11025")] {
            let text = PREAMBLE.replace(from, to);
            assert!(matches!(Jambonz::default().text(&text), Err(LegError::Coding(_))), "{to}");
        }
        let mut jambonz = Jambonz::default();
        jambonz.text(PREAMBLE).unwrap();
        assert_eq!(jambonz.text(PREAMBLE), Err(LegError::StartedTwice));
    }
}
