//! Server-sent events: the one reader of event streams, for answers of language models, of speech servers and of MCP servers.
//!
//! Bytes are pushed as they come, cut anywhere, and events are taken out. An event is bounded before it is complete. The reader
//! reads nothing by itself, knows no deadline and does not look into the data.

use std::collections::VecDeque;
use std::mem::take;

/// An event, with what its lines said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerEvent {
    /// `event`: its name.
    pub name: Option<String>,
    /// `data`: its lines, with a line feed between two; `None`: it has none.
    pub data: Option<String>,
    /// `id`: where a client that reconnects goes on.
    pub id: Option<String>,
    /// `retry`: the pause before a client reconnects, in milliseconds.
    pub retry_ms: Option<u64>,
}

/// Why a stream cannot be read on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EventError {
    /// An event is longer than it may be.
    #[error("an event is longer than {0} bytes")]
    TooLong(usize),
    /// The data of an event are no text.
    #[error("an event is not in UTF-8")]
    NotText,
}

/// See the module.
#[derive(Debug)]
pub struct EventReader {
    max_bytes: usize,
    /// Bytes of the event so far, its names, comments and ends of lines included.
    n_bytes: usize,
    /// The line so far.
    line: Vec<u8>,
    event: ServerEvent,
    /// The data of the event so far, before they are known to be text.
    data: Option<Vec<u8>>,
    /// The last byte was a carriage return, to which a line feed would belong.
    follows_return: bool,
    is_first_line: bool,
    has_failed: bool,
    ready: VecDeque<Result<ServerEvent, EventError>>,
}

impl EventReader {
    /// A reader of events of at most `max_bytes` each.
    pub fn new(max_bytes: usize) -> Self {
        Self {
            max_bytes,
            n_bytes: 0,
            line: Vec::new(),
            event: ServerEvent::default(),
            data: None,
            follows_return: false,
            is_first_line: true,
            has_failed: false,
            ready: VecDeque::new(),
        }
    }

    /// Takes the next bytes of the stream. What comes behind an error is ignored.
    pub fn push(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        if self.follows_return {
            rest = rest.strip_prefix(b"\n").unwrap_or(rest);
            self.follows_return &= bytes.is_empty();
        }
        while !self.has_failed && !rest.is_empty() {
            let end = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let length = end.unwrap_or(rest.len());
            self.n_bytes += length + 1;
            if self.n_bytes > self.max_bytes {
                self.fail(EventError::TooLong(self.max_bytes));
                return;
            }
            self.line.extend_from_slice(&rest[..length]);
            let Some(end) = end else {
                // The line goes on.
                self.n_bytes -= 1;
                return;
            };
            let ends_in_return = rest[end] == b'\r';
            rest = &rest[end + 1..];
            if ends_in_return {
                self.follows_return = rest.is_empty();
                rest = rest.strip_prefix(b"\n").unwrap_or(rest);
            }
            self.end_line();
        }
    }

    /// The stream has ended: some servers forget the empty line that ends the last event.
    pub fn end(&mut self) {
        self.push(b"\n\n");
    }

    /// The next complete event, or why there is none any more; `None`: more bytes are needed.
    pub fn take(&mut self) -> Option<Result<ServerEvent, EventError>> {
        self.ready.pop_front()
    }

    fn end_line(&mut self) {
        let mut line = take(&mut self.line);
        if take(&mut self.is_first_line) && line.starts_with("\u{feff}".as_bytes()) {
            line.drain(.."\u{feff}".len());
        }
        if line.is_empty() {
            self.end_event();
            return;
        }
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let (field, value) = line.split_at(colon);
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        let text = || String::from_utf8_lossy(value).into_owned();
        match field {
            b"data" => match &mut self.data {
                Some(data) => {
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
                None => self.data = Some(value.to_vec()),
            },
            b"event" => self.event.name = Some(text()),
            b"id" => self.event.id = Some(text()),
            b"retry" => self.event.retry_ms = text().parse().ok().or(self.event.retry_ms),
            // A comment, or an unknown field.
            _ => {}
        }
    }

    fn end_event(&mut self) {
        self.n_bytes = 0;
        let mut event = take(&mut self.event);
        if let Some(data) = self.data.take() {
            match String::from_utf8(data) {
                Ok(data) => event.data = Some(data),
                Err(_) => return self.fail(EventError::NotText),
            }
        }
        if event != ServerEvent::default() {
            self.ready.push_back(Ok(event));
        }
    }

    fn fail(&mut self, error: EventError) {
        self.has_failed = true;
        self.line = Vec::new();
        self.data = None;
        self.ready.push_back(Err(error));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The events of a stream that is pushed in pieces of `size` bytes.
    fn read(stream: &[u8], size: usize, max_bytes: usize) -> Vec<Result<ServerEvent, EventError>> {
        let mut reader = EventReader::new(max_bytes);
        let mut events = Vec::new();
        for piece in stream.chunks(size) {
            reader.push(piece);
            events.extend(std::iter::from_fn(|| reader.take()));
        }
        reader.end();
        events.extend(std::iter::from_fn(|| reader.take()));
        events
    }

    fn data(text: &str) -> Result<ServerEvent, EventError> {
        Ok(ServerEvent { data: Some(text.into()), ..ServerEvent::default() })
    }

    #[test]
    fn events_are_read_however_their_lines_end_and_the_stream_is_cut() {
        let expected = [
            Ok(ServerEvent { name: Some("delta".into()), id: Some("7".into()), ..data("one\n two").unwrap() }),
            Ok(ServerEvent { retry_ms: Some(1_500), id: Some("8".into()), ..ServerEvent::default() }),
            data(""),
            data("ü: three"),
        ];
        let stream = "\u{feff}: hello\n\nevent: delta\nid:7\ndata: one\ndata:  two\nother: field\n\nretry: 1500\nid: 8\n\n\
                      data\n\ndata:ü: three";
        for end in ["\n", "\r\n", "\r"] {
            let stream = stream.replace('\n', end);
            for size in [1, 2, 7, 4_096] {
                assert_eq!(read(stream.as_bytes(), size, 100), expected, "{end:?} {size}");
            }
        }
    }

    #[test]
    fn an_event_is_bounded_before_it_is_complete() {
        let too_long = Err(EventError::TooLong(16));
        assert_eq!(read(b"data: 1\ndata: 2\n\ndata: 3\n\n", 5, 17), [data("1\n2"), data("3")]);
        assert_eq!(read(b"data: 1\n\ndata: 1\ndata: 2\ndata: 3", 5, 16), [data("1"), too_long.clone()]);
        assert_eq!(read(b"data: a line without an end", 100, 16), std::slice::from_ref(&too_long));
        assert_eq!(read(&b": comment\n".repeat(3), 100, 16), [too_long]);
        assert_eq!(read(&b": ping\n\n".repeat(30), 3, 16), []);
    }

    #[test]
    fn data_that_are_no_text_end_the_stream() {
        assert_eq!(read(b"data: 1\n\ndata: \xff\n\ndata: 2\n\n", 100, 100), [data("1"), Err(EventError::NotText)]);
    }

    proptest! {
        #[test]
        fn how_a_stream_is_cut_changes_nothing(lines in prop::collection::vec(".{0,20}", 0..6), size in 1usize..20) {
            let stream = lines.iter().map(|line| format!("data: {line}\r\n")).collect::<String>() + "\n";
            prop_assert_eq!(read(stream.as_bytes(), size, 4_096), read(stream.as_bytes(), 1 << 20, 4_096));
        }
    }
}
