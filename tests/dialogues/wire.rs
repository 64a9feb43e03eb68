//! Renders events and turns as text: one line an event, identifiers numbered by appearance, deltas summed.
//!
//! Omitted: event ids, usage, rate limits, timelines, fields that are 0 or null, and the content of an item where an event
//! repeats it unchanged. Times are milliseconds of virtual time since the session was created, to the nearest 10.

use antiphon::config::Config;
use antiphon_types::chat::{ChatRequest, Message};
use serde_json::Value;
use std::collections::HashMap;
use std::fmt::Write;

/// The log of a dialogue.
#[derive(Default)]
pub struct Log {
    lines: Vec<Entry>,
    names: Names,
    /// The session as last received.
    session: Value,
    /// The content of each item as last rendered.
    last_content: HashMap<String, String>,
}

enum Entry {
    Line(String),
    /// Consecutive deltas of one kind and item.
    Deltas {
        from_ms: u64,
        to_ms: u64,
        kind: String,
        of: String,
        sum: Sum,
    },
}

/// The sum of a run of deltas.
enum Sum {
    Text(String),
    /// Samples at 24 kHz.
    Audio(u64),
}

impl Log {
    /// Logs an action of the client.
    pub fn did(&mut self, at_ms: u64, what: &str) {
        self.lines.push(Entry::Line(format!("{at_ms:6} > {what}")));
    }

    /// Logs the result of an action.
    pub fn note(&mut self, at_ms: u64, what: &str) {
        self.lines.push(Entry::Line(format!("{at_ms:6}   {what}")));
    }

    /// Logs an event of the hub.
    pub fn got(&mut self, at_ms: u64, event: &Value) {
        let kind = event["type"].as_str().expect("a type");
        // Their place among other events of the same instant is not defined.
        if ["rate_limits.updated", "antiphon.timeline"].contains(&kind) {
            return;
        }
        if let (Some(delta), "delta") = (event["delta"].as_str(), kind.rsplit('.').next().expect("a word")) {
            let of = self.names.of(event["item_id"].as_str().expect("an item"));
            self.last_content.entry(of.clone()).or_default().push_str(delta);
            return self.delta(at_ms, kind, of, Sum::Text(delta.to_owned()));
        }
        let about = match kind {
            "session.created" | "session.updated" => self.session_change(&event["session"]),
            "antiphon.session.resumable" => String::new(),
            _ => self.fields(event),
        };
        self.lines.push(Entry::Line(format!("{at_ms:6} < {kind}{about}")));
    }

    /// Logs `n` samples (24 kHz) of reply audio, from an event or a frame.
    pub fn got_audio(&mut self, at_ms: u64, kind: &str, item: &str, n: u64) {
        let of = self.names.of(item);
        self.delta(at_ms, kind, of, Sum::Audio(n));
    }

    /// Extends the current run of these deltas or begins one.
    fn delta(&mut self, at_ms: u64, kind: &str, of: String, more: Sum) {
        let run = self.lines.iter_mut().rev().map_while(|entry| match entry {
            Entry::Deltas { to_ms, kind, of, sum, .. } => Some((to_ms, kind, of, sum)),
            Entry::Line(_) => None,
        });
        for (to_ms, run_kind, run_of, sum) in run {
            if *run_kind == kind && *run_of == of {
                *to_ms = at_ms;
                match (sum, more) {
                    (Sum::Text(sum), Sum::Text(more)) => sum.push_str(&more),
                    (Sum::Audio(sum), Sum::Audio(more)) => *sum += more,
                    _ => unreachable!("one kind carries one thing"),
                }
                return;
            }
        }
        self.lines.push(Entry::Deltas { from_ms: at_ms, to_ms: at_ms, kind: kind.into(), of, sum: more });
    }

    /// The fields of a session that changed, with their paths.
    fn session_change(&mut self, session: &Value) -> String {
        let before = std::mem::replace(&mut self.session, session.clone());
        let mut changes = String::new();
        if !before.is_null() {
            changed("", &before, session, &mut changes);
        }
        changes
    }

    /// The fields of an event that are not omitted.
    fn fields(&mut self, event: &Value) -> String {
        let mut text = String::new();
        for name in ["response_id", "item_id"] {
            if let Some(id) = event[name].as_str() {
                let _ = write!(text, " {}", self.names.of(id));
            }
        }
        for (name, value) in event.as_object().expect("an object") {
            let _ = match name.as_str() {
                "type" | "event_id" | "response_id" | "item_id" | "usage" | "logprobs" => Ok(()),
                "response" => write!(text, " {}", self.response(value)),
                "item" => write!(text, " {}", self.item(value)),
                "part" => write!(text, " {}", self.part(&event["item_id"], value)),
                "transcript" | "text" | "arguments" if !self.is_news(&event["item_id"], text_of(value)) => Ok(()),
                "error" => write!(text, " {}", self.error(value)),
                _ if value.is_null() || *value == 0 => Ok(()),
                "previous_item_id" => write!(text, " after {}", self.names.of(value.as_str().expect("an item"))),
                _ => write!(text, " {name}={}", self.names.hide(&value.to_string())),
            };
        }
        text
    }

    fn response(&mut self, response: &Value) -> String {
        let mut text = format!("{} {}", self.names.of(text_of(&response["id"])), text_of(&response["status"]));
        let details = &response["status_details"];
        for name in ["reason", "error"] {
            match &details[name] {
                Value::Null => {}
                Value::String(reason) => text += &format!(" ({reason})"),
                error => text += &format!(" ({})", self.error(error)),
            }
        }
        if response["conversation_id"].is_null() {
            text += " out of band";
        }
        if response["metadata"].as_object().is_some_and(|metadata| !metadata.is_empty()) {
            text += &format!(" metadata={}", response["metadata"]);
        }
        for item in response["output"].as_array().into_iter().flatten() {
            text += &format!(" [{}]", self.item(item));
        }
        text
    }

    fn error(&mut self, error: &Value) -> String {
        let fields = ["type", "code", "param"].into_iter().filter_map(|name| error[name].as_str());
        let text = format!("{}: {}", fields.collect::<Vec<_>>().join(" "), text_of(&error["message"]));
        self.names.hide(&text)
    }

    /// An item in a few words.
    pub fn item(&mut self, item: &Value) -> String {
        let kind = text_of(&item["type"]);
        let mut text = self.names.of(text_of(&item["id"]));
        let status = item["status"].as_str().map(|status| format!(" {status}")).unwrap_or_default();
        match kind {
            "message" => {
                let parts = item["content"].as_array().into_iter().flatten().map(|part| self.part(&item["id"], part));
                let parts: Vec<String> = parts.collect();
                text += &format!(" {}{status}: {}", text_of(&item["role"]), parts.join(", "));
            }
            "mcp_list_tools" => {
                let tools = item["tools"].as_array().into_iter().flatten().map(|tool| text_of(&tool["name"]));
                text += &format!(" {kind}: {}", tools.collect::<Vec<_>>().join(", "));
            }
            _ => {
                text += &format!(" {kind}{status}");
                let names = ["call_id", "approval_request_id", "name", "arguments", "approve", "output", "error"];
                let known = names.iter().map(|name| (name, &item[*name]));
                let known = known.filter(|(_, value)| !value.is_null() && **value != "");
                let about: String = known.map(|(name, value)| format!(" {name}={value}")).collect();
                if self.is_news(&item["id"], &about) {
                    text += &about;
                }
            }
        }
        self.names.hide(text.trim_end_matches(": "))
    }

    /// A part of a message in a few words.
    fn part(&mut self, item: &Value, part: &Value) -> String {
        let words = part["transcript"].as_str().or(part["text"].as_str());
        let news = words.filter(|words| self.is_news(item, words)).map(|words| format!(" {words:?}"));
        format!("{}{}", text_of(&part["type"]), news.unwrap_or_default())
    }

    /// Whether this content of an item differs from what was rendered last.
    fn is_news(&mut self, item: &Value, words: &str) -> bool {
        let last = self.last_content.entry(self.names.of(text_of(item))).or_default();
        let is_news = last != words;
        words.clone_into(last);
        is_news
    }

    /// A turn of the hub's turn history: what was generated, sent and heard.
    pub fn turn(&mut self, turn: &Value) -> String {
        let mut text = format!("{} {}", text_of(&turn["kind"]), text_of(&turn["status"]));
        if turn["barged_in"] == true {
            text += ", barged in";
        }
        for (name, of) in [("said", "transcript"), ("generated", "reply"), ("heard", "heard")] {
            if let Some(words) = turn[of].as_str() {
                text += &format!("\n  {name} {words:?}");
            }
        }
        if let Some(words) = turn["filler"]["text"].as_str() {
            text += &format!("\n  filler {words:?}");
        }
        let ms = |name: &str| turn["audio"][name].as_f64().unwrap_or_default().round();
        if ms("generated_ms") > 0.0 {
            let by = text_of(&turn["heard_by"]);
            let [generated, sent, heard] = ["generated_ms", "sent_ms", "heard_ms"].map(ms);
            text += &format!("\n  {generated} ms generated, {sent} ms sent, {heard} ms heard ({by})");
        }
        for speculation in turn["speculations"].as_array().into_iter().flatten() {
            text += &format!("\n  speculative response {}", text_of(&speculation["outcome"]));
        }
        if let Some(wait_ms) = turn["endpointing"]["wait_ms"].as_f64() {
            text += &format!("\n  end of turn after {} ms", wait_ms.round());
        }
        text + "\n"
    }

    /// Content is rendered again from here on.
    pub fn forget(&mut self) {
        self.last_content.clear();
    }

    /// Replaces names such as `item_1` by the hub's identifiers.
    pub fn real(&self, text: &str) -> String {
        self.names.show(text)
    }

    pub fn render(self) -> String {
        self.lines.into_iter().map(Entry::render).collect()
    }
}

impl Entry {
    fn render(self) -> String {
        match self {
            Self::Line(line) => format!("{line}\n"),
            Self::Deltas { from_ms, to_ms, kind, of, sum } => {
                let sum = match sum {
                    Sum::Text(text) => format!("{text:?}"),
                    Sum::Audio(n) => format!("{} ms", n / 24),
                };
                let until = if to_ms > from_ms { format!(", until {to_ms}") } else { String::new() };
                format!("{from_ms:6} < {kind} {of} {sum}{until}\n")
            }
        }
    }
}

/// Names for the hub's identifiers, in order of appearance: `item_1`, `response_1`.
#[derive(Default)]
struct Names {
    /// Identifier and name.
    known: Vec<(String, String)>,
    n: HashMap<String, usize>,
}

impl Names {
    fn of(&mut self, id: &str) -> String {
        if let Some((_, name)) = self.known.iter().find(|(real, _)| real == id) {
            return name.clone();
        }
        // An identifier of the hub's is a prefix and 21 letters and digits; others are the client's or the model's.
        let prefix = id.rsplit_once('_').filter(|(_, rest)| rest.len() == 21).map(|(prefix, _)| prefix);
        let Some(prefix) = prefix else { return id.to_owned() };
        let prefix = if prefix == "resp" { "response" } else { prefix };
        let n = self.n.entry(prefix.to_owned()).or_default();
        *n += 1;
        let name = format!("{prefix}_{n}");
        self.known.push((id.to_owned(), name.clone()));
        name
    }

    fn hide(&mut self, text: &str) -> String {
        by_word(text, |word| self.of(word))
    }

    fn show(&self, text: &str) -> String {
        let real = |word: &str| self.known.iter().find(|(_, name)| name == word).map(|(real, _)| real.clone());
        by_word(text, |word| real(word).unwrap_or_else(|| word.to_owned()))
    }
}

/// The text with each word replaced, where a word is letters, digits and underscores.
fn by_word(text: &str, mut replace: impl FnMut(&str) -> String) -> String {
    let pieces = text.split_inclusive(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let replaced = pieces.map(|piece| {
        let word = piece.trim_end_matches(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        replace(word) + &piece[word.len()..]
    });
    replaced.collect()
}

fn text_of(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Writes the fields in which `after` differs from `before`, with their paths.
fn changed(path: &str, before: &Value, after: &Value, changes: &mut String) {
    match (before, after) {
        (Value::Object(old), Value::Object(new)) if old.get("type") == new.get("type") => {
            for (name, value) in new {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                changed(&path, old.get(name).unwrap_or(&Value::Null), value, changes);
            }
        }
        _ if before != after => {
            let _ = write!(changes, " {path}={after}");
        }
        _ => {}
    }
}

/// The requests to the language model.
pub fn model(requests: &[ChatRequest]) -> String {
    let standard = Config::default().llm.system_prompt;
    let mut text = String::new();
    for (n, request) in requests.iter().enumerate() {
        let names: Vec<&str> = request.tools.iter().map(|tool| tool.name.as_str()).collect();
        let tools = if names.is_empty() { String::new() } else { format!(", tools: {}", names.join(", ")) };
        let _ = writeln!(text, "request {}{tools}", n + 1);
        for message in &request.messages {
            let line = match message {
                Message::System(system) if *system == standard => continue,
                Message::System(system) => format!("system: {}", system.replace(&standard, "...").replace("\n", " ")),
                Message::User(words) => format!("user: {words}"),
                Message::UserParts(parts) => format!("user: {parts:?}"),
                Message::Assistant { text, tool_calls } => {
                    let calls = tool_calls.iter().map(|call| format!(" {}({})", call.name, call.arguments));
                    format!("assistant: {text}{}", calls.collect::<String>())
                }
                Message::Tool { output, .. } => format!("tool: {output}"),
            };
            let _ = writeln!(text, "  {line}");
        }
    }
    text
}
