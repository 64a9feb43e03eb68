//! The session object in a snapshot: every setting, those that no client is shown included.
//!
//! `session` writes it into the snapshot of a session and reads it back on another hub. It is the wire's session object, which
//! a client may send back as an update, beside what the wire does not carry. It holds the keys of remote servers: the
//! code that stores it must encrypt it.

use super::client_event::{ClientEvent, parse};
use super::error::WireError;
use super::mcp::McpServer;
use super::session::{ServerVad, Session, TurnDetection};
use super::session_update::{SPEEDS, SessionKind, SessionUpdate};
use super::tool::Tool;
use antiphon_types::SessionId;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A session object as it is stored. It does not implement `Debug`: it holds keys.
#[derive(Clone, Serialize, Deserialize)]
pub struct StoredSession {
    id: SessionId,
    transcribes: bool,
    /// The hub's own may be longer than what a client may send.
    model: String,
    instructions: String,
    voice: String,
    /// The hub's own, where it is none that a client may send.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    speed: Option<f64>,
    expires_at: u64,
    /// The wire's session object.
    shown: Value,
    keys: Vec<ServerKeys>,
    /// Defaults of `server_vad`, in the wire's form.
    server_vad: Value,
}

/// Keys of a remote server.
#[derive(Clone, Serialize, Deserialize)]
struct ServerKeys {
    label: String,
    authorization: Option<String>,
    headers: BTreeMap<String, String>,
}

impl Session {
    /// Everything in it, for a snapshot.
    pub fn stored(&self) -> StoredSession {
        let mut shown = self.clone();
        shown.kind = SessionKind::Realtime;
        shown.instructions.clear();
        let mut shown = serde_json::to_value(shown).expect("a session has text for keys");
        if let Some(fields) = shown.as_object_mut() {
            fields.retain(|name, _| name != "model");
        }
        let speed = Some(self.audio.output.speed).filter(|speed| !SPEEDS.contains(speed));
        if let Some(output) = shown["audio"]["output"].as_object_mut() {
            output.retain(|name, _| name != "voice" && (name != "speed" || speed.is_none()));
        }
        let keys = servers(&self.tools).map(|server| ServerKeys {
            label: server.server_label.clone(),
            authorization: server.authorization.clone(),
            headers: server.headers.clone(),
        });
        StoredSession {
            id: self.id.clone(),
            transcribes: self.kind == SessionKind::Transcription,
            model: self.model.clone(),
            instructions: self.instructions.clone(),
            voice: self.audio.output.voice.clone(),
            speed,
            expires_at: self.expires_at,
            shown,
            keys: keys.collect(),
            server_vad: serde_json::to_value(&self.server_vad).expect("settings have text for keys"),
        }
    }

    /// Reads a stored session.
    ///
    /// # Errors
    /// A field that this build does not know, or a value that it refuses.
    pub fn from_stored(stored: StoredSession) -> Result<Self, WireError> {
        let StoredSession { id, transcribes, model, instructions, voice, speed, expires_at, shown, keys, server_vad } =
            stored;
        let mut session = Self::new(id, model, voice, ServerVad::default());
        // The defaults first: a detector that is merged into another kind begins with them.
        let mut defaults = server_vad;
        defaults["type"] = "server_vad".into();
        let input = json!({"type": "realtime", "audio": {"input": {"turn_detection": defaults}}});
        session.apply(update(&input)?);
        if let Some(TurnDetection::ServerVad(vad)) = &session.audio.input.turn_detection {
            session.server_vad = vad.clone();
        }
        session.audio.input.transcription = None;
        session.apply(update(&shown)?);
        for server in servers_mut(&mut session.tools) {
            if let Some(own) = keys.iter().find(|keys| keys.label == server.server_label) {
                server.authorization.clone_from(&own.authorization);
                server.headers.clone_from(&own.headers);
            }
        }
        if let Some(speed) = speed {
            session.audio.output.speed = speed;
        }
        session.instructions = instructions;
        session.expires_at = expires_at;
        if transcribes {
            session.kind = SessionKind::Transcription;
        }
        Ok(session)
    }
}

fn update(session: &Value) -> Result<SessionUpdate, WireError> {
    match parse(&json!({"type": "session.update", "session": session}).to_string())?.event {
        ClientEvent::SessionUpdate(update) => Ok(*update),
        _ => Err(WireError::invalid("invalid_value", "Invalid 'session'.", Some("session"))),
    }
}

fn servers(tools: &[Tool]) -> impl Iterator<Item = &McpServer> {
    tools.iter().filter_map(|tool| match tool {
        Tool::Mcp(server) => Some(server),
        Tool::Function { .. } => None,
    })
}

fn servers_mut(tools: &mut [Tool]) -> impl Iterator<Item = &mut McpServer> {
    tools.iter_mut().filter_map(|tool| match tool {
        Tool::Mcp(server) => Some(server),
        Tool::Function { .. } => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn session() -> Session {
        let vad = ServerVad { silence_duration_ms: 200, threshold: 0.45, ..ServerVad::default() };
        let mut session = Session::new(SessionId::from("sess_1"), "antiphon", "slt", vad);
        session.expires_at = 1_790_000_000;
        session
    }

    fn comes_back(session: &Session) -> Result<Session, WireError> {
        let text = serde_json::to_string(&session.stored()).expect("JSON");
        Session::from_stored(serde_json::from_str(&text).expect("what was written can be read"))
    }

    /// Updates that touch every field.
    fn updates() -> Vec<Value> {
        let input = |input: Value| json!({"type": "realtime", "audio": {"input": input}});
        let output = |output: Value| json!({"type": "realtime", "audio": {"output": output}});
        let schema = json!({"type": "object", "properties": {"x": {"type": "string"}}});
        let server = json!({"type": "mcp", "server_label": "notes", "server_url": "https://mcp.example.org/",
            "authorization": "Bearer secret", "headers": {"x-key": "other"}, "allowed_tools": ["a", "b"],
            "require_approval": {"never": {"tool_names": ["a"]}}});
        vec![
            input(json!({"format": {"type": "audio/pcmu"}})),
            input(json!({"transcription": null})),
            input(json!({"transcription": {"model": "m", "language": "de", "prompt": "p", "keywords": ["a", "b"]}})),
            input(json!({"noise_reduction": {"type": "near_field"}})),
            input(json!({"noise_reduction": null})),
            input(json!({"turn_detection": null})),
            input(json!({"turn_detection": {"type": "semantic_vad", "eagerness": "high", "create_response": false}})),
            input(json!({"turn_detection": {"type": "server_vad", "threshold": 0.1, "idle_timeout_ms": 6000}})),
            output(json!({"format": {"type": "audio/pcma"}, "voice": "rms", "speed": 0.7, "instructions": "Whisper."})),
            json!({"type": "realtime", "output_modalities": ["text"], "max_output_tokens": 40, "model": "other"}),
            json!({"type": "realtime", "instructions": "Be kind.", "tracing": "auto", "include":
                ["item.input_audio_transcription.logprobs"]}),
            json!({"type": "realtime", "truncation": {"type": "retention_ratio", "retention_ratio": 0.7,
                "token_limits": {"post_instructions": 4000}}}),
            json!({"type": "realtime", "tools": [{"type": "function", "name": "f", "description": "d", "parameters": schema},
                server], "tool_choice": {"type": "mcp", "server_label": "notes", "name": "a"}}),
            json!({"type": "realtime", "tools": [{"type": "function", "name": "g"}],
                "tool_choice": {"type": "function", "name": "g"}}),
            json!({"type": "realtime", "prompt": {"id": "p"}, "reasoning": {"effort": "low"}, "parallel_tool_calls": false}),
            json!({"type": "transcription", "audio": {"input": {"transcription": {"model": "w"}}}}),
        ]
    }

    #[test]
    fn a_session_comes_back_with_its_keys_and_what_no_client_may_send() {
        let mut changed = session();
        // More than a client may send.
        changed.instructions = "Be brief. ".repeat(100_000);
        assert!(comes_back(&changed).is_ok_and(|back| back == changed));
        for value in updates() {
            changed.apply(update(&value).expect("a valid update"));
            let back = comes_back(&changed).unwrap_or_else(|error| panic!("{value}: {error:?}"));
            assert!(back == changed, "{value}");
        }
        let mut object = serde_json::to_value(changed.stored()).expect("JSON");
        object["shown"]["gadget"] = 1.into();
        let newer: StoredSession = serde_json::from_value(object).expect("readable");
        assert_eq!(Session::from_stored(newer).err().and_then(|error| error.param), Some("session.gadget".into()));
    }

    #[test]
    fn a_session_comes_back_with_what_only_an_operator_may_configure() {
        let vad = ServerVad { prefix_padding_ms: 5_000, silence_duration_ms: 10_000, ..ServerVad::default() };
        let mut session = Session::new(SessionId::from("sess_1"), "antiphon", "slt", vad);
        for speed in [0.25, 1.5, 1.6, 4.0] {
            session.audio.output.speed = speed;
            let back = comes_back(&session).unwrap_or_else(|error| panic!("{speed}: {error:?}"));
            assert!(back == session, "{speed}");
        }
    }

    proptest! {
        #[test]
        fn any_session_comes_back(steps in prop::collection::vec(0usize..16, 0..12)) {
            let mut changed = session();
            let updates = updates();
            for step in steps {
                changed.apply(update(&updates[step]).expect("a valid update"));
                prop_assert!(comes_back(&changed).is_ok_and(|back| back == changed));
            }
        }
    }
}
