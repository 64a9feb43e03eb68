//! Messages as they are on the wire: start line, headers, body.
//!
//! [`Message::parse`] reads a datagram, [`stream_message`] finds a message in a TCP stream. What cannot be read as a
//! message at all is an `Err` and is dropped; what can be read and is wrong is found by [`Message::fault`], so that it
//! can be answered.

use crate::header::{self, NameAddr, Via};
use bytes::Bytes;
use std::fmt;

/// The longest message, in bytes.
pub const MAX_MESSAGE_BYTES: usize = 64 * 1024;
/// The longest start line and headers, in bytes.
pub const MAX_HEAD_BYTES: usize = 16 * 1024;
/// Headers of a message at most.
pub const MAX_HEADERS: usize = 128;
/// The version that requests and responses name.
const VERSION: &str = "SIP/2.0";
/// Sequence numbers are below 2^31 (RFC 3261, section 8.1.1.5).
const MAX_SEQUENCE: u32 = (1 << 31) - 1;

/// A request or response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// What it is.
    pub start: StartLine,
    /// Names in their long form and lower case, values without folding, in order.
    headers: Vec<(String, String)>,
    /// The body, of `Content-Length` bytes.
    pub body: Bytes,
    fault: Option<Fault>,
}

/// The first line of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartLine {
    /// A request.
    Request {
        /// What is asked for.
        method: Method,
        /// The request URI as it was sent.
        uri: String,
    },
    /// A response.
    Response {
        /// From 100 to 699.
        status: u16,
        /// The phrase for people.
        reason: String,
    },
}

/// What a request asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Method {
    Invite,
    Ack,
    Bye,
    Cancel,
    Options,
    Register,
    Info,
    Update,
    Refer,
    Notify,
    /// Acknowledges a provisional response (RFC 3262).
    Prack,
    /// Another one; names are case-sensitive.
    Other(String),
}

impl Method {
    fn of(name: &str) -> Self {
        match name {
            "INVITE" => Self::Invite,
            "ACK" => Self::Ack,
            "BYE" => Self::Bye,
            "CANCEL" => Self::Cancel,
            "OPTIONS" => Self::Options,
            "REGISTER" => Self::Register,
            "INFO" => Self::Info,
            "UPDATE" => Self::Update,
            "REFER" => Self::Refer,
            "NOTIFY" => Self::Notify,
            "PRACK" => Self::Prack,
            other => Self::Other(other.to_owned()),
        }
    }

    /// Its name on the wire.
    pub fn name(&self) -> &str {
        match self {
            Self::Invite => "INVITE",
            Self::Ack => "ACK",
            Self::Bye => "BYE",
            Self::Cancel => "CANCEL",
            Self::Options => "OPTIONS",
            Self::Register => "REGISTER",
            Self::Info => "INFO",
            Self::Update => "UPDATE",
            Self::Refer => "REFER",
            Self::Notify => "NOTIFY",
            Self::Prack => "PRACK",
            Self::Other(name) => name,
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAMessage {
    /// Longer than a bound.
    #[error("the message is longer than a limit")]
    TooLong,
    /// The head does not end.
    #[error("the head does not end with an empty line")]
    NoEnd,
    /// The head holds other bytes than UTF-8 text.
    #[error("the head is not text")]
    NotText,
    /// The first line is no start line of SIP.
    #[error("the first line is not one of SIP")]
    StartLine,
    /// A line of the head is no header.
    #[error("a line is not a header")]
    Header,
}

/// What is wrong with a request that can be read: the response's status, and the phrase that says what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The status of the response.
    pub status: u16,
    /// Its reason phrase.
    pub reason: &'static str,
}

const fn bad(reason: &'static str) -> Fault {
    Fault { status: 400, reason }
}

impl Message {
    /// Reads a message that is all of `bytes`. A longer datagram than its `Content-Length` says is cut.
    ///
    /// # Errors
    /// The bytes are no message.
    pub fn parse(bytes: &[u8]) -> Result<Self, NotAMessage> {
        if bytes.len() > MAX_MESSAGE_BYTES {
            return Err(NotAMessage::TooLong);
        }
        let bytes = skip_empty_lines(bytes);
        let end = find_end(bytes).ok_or(NotAMessage::NoEnd)?;
        if end > MAX_HEAD_BYTES {
            return Err(NotAMessage::TooLong);
        }
        let head = std::str::from_utf8(&bytes[..end]).map_err(|_| NotAMessage::NotText)?;
        let mut message = Self::read_head(head)?;
        let body = &bytes[end + 4..];
        match message.content_length() {
            Ok(None) => message.body = Bytes::copy_from_slice(body),
            Ok(Some(n)) if n <= body.len() => message.body = Bytes::copy_from_slice(&body[..n]),
            Ok(Some(_)) => message.fault = Some(bad("Content-Length Exceeds The Message")),
            Err(fault) => message.fault = Some(fault),
        }
        Ok(message)
    }

    fn read_head(head: &str) -> Result<Self, NotAMessage> {
        let mut lines = head.split("\r\n");
        let first = lines.next().ok_or(NotAMessage::StartLine)?;
        let (start, mut fault) = read_start(first)?;
        let mut headers: Vec<(String, String)> = Vec::new();
        for line in lines {
            if line.contains(['\r', '\n']) {
                return Err(NotAMessage::Header);
            }
            if line.starts_with([' ', '\t']) {
                let (_, value) = headers.last_mut().ok_or(NotAMessage::Header)?;
                value.push(' ');
                value.push_str(line.trim());
                continue;
            }
            let (name, value) = line.split_once(':').ok_or(NotAMessage::Header)?;
            let name = name.trim_end();
            if name.is_empty() || !name.bytes().all(is_token) {
                return Err(NotAMessage::Header);
            }
            if headers.len() == MAX_HEADERS {
                return Err(NotAMessage::TooLong);
            }
            headers.push((long_name(name), value.trim().to_owned()));
        }
        for (_, value) in &mut headers {
            *value = value.trim().to_owned();
        }
        let mut message = Self { start, headers, body: Bytes::new(), fault: None };
        if fault.is_none() {
            fault = message.find_fault();
        }
        message.fault = fault;
        Ok(message)
    }

    /// A request with this method and request URI, without headers.
    pub fn request(method: Method, uri: String) -> Self {
        Self { start: StartLine::Request { method, uri }, headers: Vec::new(), body: Bytes::new(), fault: None }
    }

    /// A response, without headers.
    pub fn response(status: u16, reason: &str) -> Self {
        let start = StartLine::Response { status, reason: reason.to_owned() };
        Self { start, headers: Vec::new(), body: Bytes::new(), fault: None }
    }

    /// The response to this request (RFC 3261, section 8.2.6.2). `tag`: for `To`, where it has none.
    pub fn answer(&self, status: u16, reason: &str, tag: Option<&str>) -> Self {
        let mut response = Self::response(status, reason);
        for (name, value) in &self.headers {
            match name.as_str() {
                "via" | "from" | "call-id" | "cseq" => response.headers.push((name.clone(), value.clone())),
                "record-route" if (180..300).contains(&status) => {
                    response.headers.push((name.clone(), value.clone()));
                }
                "to" => {
                    let has_tag = NameAddr::parse(value).is_some_and(|to| to.tag().is_some());
                    let tag = tag.filter(|_| !has_tag).map(|tag| format!(";tag={tag}")).unwrap_or_default();
                    response.headers.push((name.clone(), format!("{value}{tag}")));
                }
                _ => {}
            }
        }
        response
    }

    /// Adds a header behind the others. The name is in its long form, lower case.
    pub fn add(&mut self, name: &str, value: impl Into<String>) {
        self.headers.push((name.to_owned(), value.into()));
    }

    /// Sets the first header of this name, or adds one.
    pub fn set(&mut self, name: &str, value: impl Into<String>) {
        match self.headers.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => *old = value.into(),
            None => self.add(name, value),
        }
    }

    /// Removes the headers of this name.
    pub fn remove(&mut self, name: &str) {
        self.headers.retain(|(known, _)| known != name);
    }

    /// All headers in order, each with the usual spelling of its name.
    pub fn headers(&self) -> impl Iterator<Item = (String, &str)> {
        self.headers.iter().map(|(name, value)| (shown_name(name), value.as_str()))
    }

    /// The first header of this name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// The headers of this name, in order.
    pub fn all<'a, 'n>(&'a self, name: &'n str) -> impl Iterator<Item = &'a str> + use<'a, 'n> {
        self.headers.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The elements of all headers of this name, which are lists with commas.
    pub fn list<'a, 'n>(&'a self, name: &'n str) -> impl Iterator<Item = &'a str> + use<'a, 'n> {
        self.all(name).flat_map(header::split_list)
    }

    /// Whether a list holds this word, whatever its case.
    pub fn lists(&self, name: &str, word: &str) -> bool {
        self.list(name).any(|item| item.eq_ignore_ascii_case(word))
    }

    /// The method of a request; of a response, that of its `CSeq`.
    pub fn method(&self) -> Option<Method> {
        match &self.start {
            StartLine::Request { method, .. } => Some(method.clone()),
            StartLine::Response { .. } => self.sequence().map(|(_, method)| method),
        }
    }

    /// The status of a response.
    pub fn status(&self) -> Option<u16> {
        match self.start {
            StartLine::Response { status, .. } => Some(status),
            StartLine::Request { .. } => None,
        }
    }

    /// The number and method of `CSeq`.
    pub fn sequence(&self) -> Option<(u32, Method)> {
        let (number, method) = self.get("cseq")?.split_once([' ', '\t'])?;
        let number = number.parse::<u32>().ok().filter(|number| *number <= MAX_SEQUENCE)?;
        let method = method.trim();
        method.bytes().all(is_token).then(|| (number, Method::of(method)))
    }

    /// The topmost `Via`.
    pub fn via(&self) -> Option<Via> {
        Via::parse(self.list("via").next()?)
    }

    /// `From`.
    pub fn from(&self) -> Option<NameAddr> {
        NameAddr::parse(self.get("from")?)
    }

    /// `To`.
    pub fn to(&self) -> Option<NameAddr> {
        NameAddr::parse(self.get("to")?)
    }

    /// The first `Contact`.
    pub fn contact(&self) -> Option<NameAddr> {
        NameAddr::parse(self.list("contact").next()?)
    }

    /// What is wrong with it; `None`: nothing that an endpoint has to refuse.
    pub fn fault(&self) -> Option<Fault> {
        self.fault
    }

    /// Bytes of the body by `Content-Length`.
    fn content_length(&self) -> Result<Option<usize>, Fault> {
        const FAULT: Fault = bad("Bad Content-Length");
        let mut values = self.all("content-length");
        let Some(first) = values.next() else { return Ok(None) };
        if values.any(|other| other != first) || first.is_empty() || !first.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(FAULT);
        }
        first.parse().map(Some).map_err(|_| FAULT)
    }

    fn find_fault(&self) -> Option<Fault> {
        for name in ["from", "to", "call-id", "cseq"] {
            if self.all(name).count() > 1 {
                return Some(bad("Header Field Repeated"));
            }
        }
        if self.via().is_none() {
            return Some(bad("Bad Via"));
        }
        if self.from().is_none() || self.to().is_none() {
            return Some(bad("Bad From Or To"));
        }
        if self.get("call-id").is_none_or(str::is_empty) {
            return Some(bad("Missing Call-ID"));
        }
        let Some((_, named)) = self.sequence() else { return Some(bad("Bad CSeq")) };
        if let StartLine::Request { method, uri } = &self.start {
            if *method != named {
                return Some(bad("CSeq Names Another Method"));
            }
            if uri.contains(['<', '>', '"']) {
                return Some(bad("Bad Request-URI"));
            }
            let forwards = self.get("max-forwards").map(str::parse::<u32>);
            if forwards.is_some_and(|hops| hops.is_err() || hops.is_ok_and(|hops| hops > 255)) {
                return Some(bad("Bad Max-Forwards"));
            }
        }
        if self
            .all("contact")
            .any(|value| value != "*" && header::split_list(value).any(|it| NameAddr::parse(it).is_none()))
        {
            return Some(bad("Bad Contact"));
        }
        None
    }

    /// The bytes that go to the peer, with a `Content-Length`.
    pub fn write(&self) -> Bytes {
        let mut text = String::with_capacity(512 + self.body.len());
        match &self.start {
            StartLine::Request { method, uri } => text.push_str(&format!("{method} {uri} {VERSION}\r\n")),
            StartLine::Response { status, reason } => text.push_str(&format!("{VERSION} {status} {reason}\r\n")),
        }
        for (name, value) in &self.headers {
            if name != "content-length" {
                text.push_str(&format!("{}: {value}\r\n", shown_name(name)));
            }
        }
        text.push_str(&format!("Content-Length: {}\r\n\r\n", self.body.len()));
        let mut bytes = text.into_bytes();
        bytes.extend_from_slice(&self.body);
        bytes.into()
    }
}

/// The length of the first message of a TCP stream; `Ok(None)`: it is not complete yet. Empty lines before it, which
/// keep connections open, are part of it. A message without `Content-Length` has no body.
///
/// # Errors No message can come of this any more: the connection is closed.
pub fn stream_message(bytes: &[u8]) -> Result<Option<usize>, NotAMessage> {
    let rest = skip_empty_lines(bytes);
    let skipped = bytes.len() - rest.len();
    let Some(end) = find_end(rest) else {
        return if rest.len() > MAX_HEAD_BYTES { Err(NotAMessage::TooLong) } else { Ok(None) };
    };
    if end > MAX_HEAD_BYTES {
        return Err(NotAMessage::TooLong);
    }
    let head = std::str::from_utf8(&rest[..end]).map_err(|_| NotAMessage::NotText)?;
    let message = Message::read_head(head)?;
    let length = message.content_length().map_err(|_| NotAMessage::Header)?.unwrap_or(0);
    let total = end.saturating_add(4).saturating_add(length);
    if total > MAX_MESSAGE_BYTES {
        return Err(NotAMessage::TooLong);
    }
    Ok((rest.len() >= total).then_some(skipped + total))
}

fn skip_empty_lines(mut bytes: &[u8]) -> &[u8] {
    while let Some(rest) = bytes.strip_prefix(b"\r\n") {
        bytes = rest;
    }
    bytes
}

fn find_end(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|four| four == b"\r\n\r\n")
}

fn read_start(line: &str) -> Result<(StartLine, Option<Fault>), NotAMessage> {
    if line.get(..4).is_some_and(|start| start.eq_ignore_ascii_case("SIP/")) {
        let (version, rest) = line.split_once(' ').ok_or(NotAMessage::StartLine)?;
        let (status, reason) = rest.split_once(' ').unwrap_or((rest, ""));
        let is_number = status.len() == 3 && status.bytes().all(|byte| byte.is_ascii_digit());
        let status = status.parse::<u16>().ok().filter(|status| is_number && (100..700).contains(status));
        let status = status.filter(|_| version.eq_ignore_ascii_case(VERSION)).ok_or(NotAMessage::StartLine)?;
        return Ok((StartLine::Response { status, reason: reason.to_owned() }, None));
    }
    let (method, rest) = line.split_once(' ').ok_or(NotAMessage::StartLine)?;
    let (uri, version) = rest.rsplit_once("SIP/").ok_or(NotAMessage::StartLine)?;
    if method.is_empty() || !method.bytes().all(is_token) {
        return Err(NotAMessage::StartLine);
    }
    let is_version =
        !version.is_empty() && version.trim_end().bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if !is_version {
        return Err(NotAMessage::StartLine);
    }
    let start = |uri: &str| StartLine::Request { method: Method::of(method), uri: uri.trim().to_owned() };
    if version.trim_end() != "2.0" {
        return Ok((start(uri), Some(Fault { status: 505, reason: "Version Not Supported" })));
    }
    let exact = uri.strip_suffix(' ').filter(|uri| !uri.is_empty() && !uri.contains([' ', '\t']));
    match exact {
        Some(uri) if version == "2.0" => Ok((start(uri), None)),
        _ => Ok((start(uri), Some(bad("Bad Request-Line")))),
    }
}

/// Whether a byte may be in a token (RFC 3261, section 25.1).
pub(crate) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-.!%*_+`'~".contains(&byte)
}

/// The long name of a header, lower case (RFC 3261, section 7.3.3, and the headers' own documents).
fn long_name(name: &str) -> String {
    let lower = name.to_ascii_lowercase();
    let long = match lower.as_str() {
        "i" => "call-id",
        "m" => "contact",
        "e" => "content-encoding",
        "l" => "content-length",
        "c" => "content-type",
        "f" => "from",
        "s" => "subject",
        "k" => "supported",
        "t" => "to",
        "v" => "via",
        "o" => "event",
        "r" => "refer-to",
        "b" => "referred-by",
        "x" => "session-expires",
        "u" => "allow-events",
        _ => return lower,
    };
    long.to_owned()
}

/// A name as it is usually written: `Call-ID`, `CSeq`, `Max-Forwards`. Some peers compare names exactly.
fn shown_name(name: &str) -> String {
    match name {
        "call-id" => return "Call-ID".to_owned(),
        "cseq" => return "CSeq".to_owned(),
        "www-authenticate" => return "WWW-Authenticate".to_owned(),
        "min-se" => return "Min-SE".to_owned(),
        _ => {}
    }
    let mut shown = String::with_capacity(name.len());
    let mut is_first = true;
    for c in name.chars() {
        shown.push(if is_first { c.to_ascii_uppercase() } else { c });
        is_first = c == '-';
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const INVITE: &str = "INVITE sip:100@192.0.2.1 SIP/2.0\r\nv: SIP/2.0/UDP 192.0.2.9;branch=z9hG4bK1\r\n\
                          f: \"Ann\" <sip:ann@192.0.2.9>;tag=1\r\nt: <sip:100@192.0.2.1>\r\ni: a@b\r\n\
                          CSeq: 1 INVITE\r\n\
                          Subject: folded\r\n  value\r\nl: 3\r\n\r\nabcd";

    #[test]
    fn a_datagram_is_read_with_compact_names_folding_and_its_length() {
        let message = Message::parse(INVITE.as_bytes()).unwrap();
        assert_eq!(message.fault(), None);
        assert_eq!(message.get("subject"), Some("folded value"));
        assert_eq!(&message.body[..], b"abc");
        assert_eq!(message.from().unwrap().tag(), Some("1"));
        let written = message.write();
        let again = Message::parse(&written).unwrap();
        assert_eq!(again.headers.len(), message.headers.len());
        assert_eq!(again.body, message.body);
    }

    #[test]
    fn a_response_repeats_what_the_request_names_and_adds_a_tag() {
        let request = Message::parse(INVITE.as_bytes()).unwrap();
        let response = request.answer(486, "Busy Here", Some("x"));
        assert_eq!(response.get("to"), Some("<sip:100@192.0.2.1>;tag=x"));
        assert_eq!((response.get("via"), response.get("cseq")), (request.get("via"), Some("1 INVITE")));
        assert!(response.write().starts_with(b"SIP/2.0 486 Busy Here\r\n"));
    }

    #[test]
    fn messages_of_a_stream_are_found_wherever_it_is_cut() {
        let stream = format!("\r\n\r\n{}{INVITE}", &INVITE[..INVITE.len() - 1]);
        for cut in 0..stream.len() {
            let found = stream_message(&stream.as_bytes()[..cut]).unwrap();
            let first = INVITE.len() - 1 + 4;
            assert_eq!(found, (cut >= first).then_some(first), "{cut}");
        }
        assert_eq!(stream_message(&vec![b'x'; MAX_HEAD_BYTES + 1]), Err(NotAMessage::TooLong));
        let endless = INVITE.replace("l: 3", "l: 99999999");
        assert_eq!(stream_message(endless.as_bytes()), Err(NotAMessage::TooLong));
        assert!(stream_message(INVITE.replace("l: 3", "l: x").as_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Message::parse(&bytes);
            let _ = stream_message(&bytes);
        }

        #[test]
        fn no_text_in_a_header_panics(value in "[ -~\t]{0,60}", at in 0usize..8) {
            let names = ["Via", "From", "To", "Contact", "CSeq", "Content-Length", "Call-ID", "Authorization"];
            let text = INVITE.replace("Subject: folded", &format!("{}: {value}", names[at]));
            if let Ok(message) = Message::parse(text.as_bytes()) {
                let _ = (message.fault(), message.via(), message.contact(), message.write());
            }
        }
    }
}
