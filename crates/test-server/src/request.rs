//! What a client asked for.

use serde_json::Value;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// A request.
#[derive(Clone, Debug)]
pub struct Request {
    /// Its place among the server's requests, from 0.
    pub number: usize,
    /// `GET`, `POST` and so on.
    pub method: String,
    /// Path and query, or the whole address where a proxy is asked.
    pub target: String,
    /// The client's address.
    pub peer: SocketAddr,
    /// The body, without the chunks that it came in.
    pub body: Vec<u8>,
    head: String,
}

/// A field of a form.
#[derive(Clone, Debug)]
pub struct FormField {
    /// The media type, empty where none is named.
    pub content_type: String,
    /// The value.
    pub bytes: Vec<u8>,
}

impl FormField {
    /// The value as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

impl Request {
    /// The request of a head that ends with an empty line.
    pub(crate) fn new(head: String, peer: SocketAddr) -> Option<Self> {
        let mut words = head.split(' ').map(str::to_owned);
        let method = words.next()?;
        let target = words.next()?;
        Some(Self { number: 0, method, target, peer, body: Vec::new(), head })
    }

    /// The target without its query.
    pub fn path(&self) -> &str {
        self.target.split_once('?').map_or(self.target.as_str(), |(path, _)| path)
    }

    /// The target's query.
    pub fn query(&self) -> Option<&str> {
        self.target.split_once('?').map(|(_, query)| query)
    }

    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        field(&self.head, name)
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    ///
    /// # Panics
    /// It is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// The fields of a `multipart/form-data` body.
    ///
    /// # Panics
    /// It is none.
    pub fn form(&self) -> BTreeMap<String, FormField> {
        let content_type = self.header("content-type").expect("a media type");
        let (_, boundary) = content_type.split_once("boundary=").expect("a boundary");
        let mut rest = &self.body[..];
        let mut fields = BTreeMap::new();
        let delimiter = format!("\r\n--{boundary}");
        while let Some(end) = find(rest, b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&rest[..end]).into_owned() + "\r\n";
            rest = &rest[end + 4..];
            let length = find(rest, delimiter.as_bytes()).expect("a field ends");
            let (_, name) = head.split_once(" name=\"").expect("a field has a name");
            let (name, _) = name.split_once('"').expect("the name ends");
            let content_type = field(&head, "content-type").unwrap_or_default().to_owned();
            fields.insert(name.to_owned(), FormField { content_type, bytes: rest[..length].to_vec() });
            rest = &rest[length + delimiter.len()..];
        }
        fields
    }

    /// Where the range begins that is asked for, if it goes to the end of the file.
    pub fn range_start(&self) -> Option<usize> {
        self.header("range")?.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()
    }
}

fn field<'a>(head: &'a str, wanted: &str) -> Option<&'a str> {
    let mut fields = head.lines().filter_map(|line| line.split_once(':'));
    fields.find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value.trim())
}

/// Where `wanted` begins.
pub(crate) fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}
