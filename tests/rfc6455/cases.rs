//! The table: what a client sends, and the server's required reply.

use super::raw::{BINARY, CLOSE, CONTINUATION, FIN, PING, PONG, Reply, TEXT, close, frame, text};
use antiphon::server::websocket::MAX_MESSAGE_BYTES;

/// A row of the table.
pub struct Case {
    pub name: String,
    pub sent: Vec<u8>,
    /// The replies in order. A close ends the connection; without one it stays open.
    pub said: Vec<Reply>,
}

fn case(name: impl Into<String>, sent: &[Vec<u8>], said: impl Into<Vec<Reply>>) -> Case {
    Case { name: name.into(), sent: sent.concat(), said: said.into() }
}

fn breaks(name: impl Into<String>, sent: &[Vec<u8>]) -> Case {
    case(name, sent, [Reply::Close(Some(1002))])
}

fn said(text: &str) -> Reply {
    Reply::Text(text.into())
}

fn binary(n: usize) -> Vec<u8> {
    [b"0123456789".repeat(n / 10), b"0123456789"[..n % 10].to_vec()].concat()
}

/// Section 5.2: masks, reserved bits and opcodes.
pub fn framing() -> Vec<Case> {
    let mut cases = vec![
        case("an empty text", &[text("")], [said("")]),
        case("an empty binary", &[frame(FIN | BINARY, &[])], [Reply::Binary(Vec::new())]),
        breaks("a frame without a mask", &[vec![FIN | TEXT, 2, b'h', b'i']]),
        breaks("a ping without a mask", &[vec![FIN | PING, 0]]),
    ];
    for bit in [0x40, 0x20, 0x10, 0x70] {
        cases.push(breaks(format!("text with reserved bits {bit:#x}"), &[frame(FIN | bit | TEXT, b"hi")]));
        cases.push(breaks(format!("ping with reserved bits {bit:#x}"), &[frame(FIN | bit | PING, b"hi")]));
        cases.push(breaks(format!("close with reserved bits {bit:#x}"), &[frame(FIN | bit | CLOSE, &[3, 232])]));
        let sent = [text("before"), frame(FIN | bit | BINARY, b"hi")];
        cases.push(case(
            format!("reserved bits {bit:#x} after a text"),
            &sent,
            [said("before"), Reply::Close(Some(1002))],
        ));
    }
    for opcode in [3, 4, 5, 6, 7, 11, 12, 13, 14, 15] {
        cases.push(breaks(format!("opcode {opcode}"), &[frame(FIN | opcode, &[])]));
        let sent = [text("before"), frame(FIN | opcode, b"payload")];
        cases.push(case(format!("opcode {opcode} after a text"), &sent, [said("before"), Reply::Close(Some(1002))]));
    }
    cases
}

/// Lengths of 7, 16 and 64 bits, and the limit.
pub fn lengths() -> Vec<Case> {
    let mut cases = Vec::new();
    for n in [1, 125, 126, 127, 128, 65_535, 65_536, MAX_MESSAGE_BYTES] {
        cases.push(case(format!("{n} bytes"), &[frame(FIN | BINARY, &binary(n))], [Reply::Binary(binary(n))]));
    }
    for n in [125, 126, 65_535, 65_536] {
        let long = "*".repeat(n);
        cases.push(case(format!("{n} characters"), &[text(&long)], [said(&long)]));
    }
    let too_big = [Reply::Close(Some(1009))];
    let head = |n: u64| [&[FIN | BINARY, 0xff][..], &n.to_be_bytes(), &[0; 4]].concat();
    cases.push(case("one byte over the limit", &[head(MAX_MESSAGE_BYTES as u64 + 1)], too_big.clone()));
    cases.push(case("the longest length", &[head(i64::MAX as u64)], too_big.clone()));
    cases.push(case("a length with the highest bit set", &[head(u64::MAX)], too_big.clone()));
    let half = binary(MAX_MESSAGE_BYTES / 2 + 1);
    let parts = [frame(BINARY, &half), frame(FIN | CONTINUATION, &half)];
    cases.push(case("fragments over the limit", &parts, too_big));
    cases
}

/// Section 5.5: pings, pongs, and invalid control frames.
pub fn control() -> Vec<Case> {
    let pings: Vec<_> = (0..10).map(|i| frame(FIN | PING, format!("payload {i}").as_bytes())).collect();
    let pongs: Vec<_> = (0..10).map(|i| Reply::Pong(format!("payload {i}").into_bytes())).collect();
    vec![
        case("an empty ping", &[frame(FIN | PING, &[])], [Reply::Pong(Vec::new())]),
        case("a ping of 125 bytes", &[frame(FIN | PING, &binary(125))], [Reply::Pong(binary(125))]),
        case("a ping of no text", &[frame(FIN | PING, &[0, 255, 254])], [Reply::Pong(vec![0, 255, 254])]),
        case("ten pings", &pings, pongs),
        case("a pong nobody asked for", &[frame(FIN | PONG, b"hm"), text("on")], [said("on")]),
        case("a pong, then a ping", &[frame(FIN | PONG, b"a"), frame(FIN | PING, b"b")], [Reply::Pong(b"b".to_vec())]),
        breaks("a ping of 126 bytes", &[frame(FIN | PING, &binary(126))]),
        breaks("a pong of 126 bytes", &[frame(FIN | PONG, &binary(126))]),
        breaks("a close of 126 bytes", &[close(1000, &[b'*'; 124])]),
        breaks("a fragmented ping", &[frame(PING, b"a"), frame(FIN | CONTINUATION, b"b")]),
        breaks("a fragmented pong", &[frame(PONG, b"a"), frame(FIN | CONTINUATION, b"b")]),
        breaks("a fragmented close", &[frame(CLOSE, &[3, 232]), frame(FIN | CONTINUATION, b"b")]),
    ]
}

/// Section 5.4.
pub fn fragments() -> Vec<Case> {
    let start = || frame(TEXT, b"one ");
    let end = || frame(FIN | CONTINUATION, b"two");
    let pong = || Reply::Pong(b"now".to_vec());
    vec![
        case("two fragments", &[start(), end()], [said("one two")]),
        case("empty fragments", &[frame(TEXT, b""), frame(CONTINUATION, b""), end()], [said("two")]),
        case("a ping between", &[start(), frame(FIN | PING, b"now"), end()], [pong(), said("one two")]),
        case("a pong between", &[start(), frame(FIN | PONG, b"now"), end()], [said("one two")]),
        case(
            "two messages in fragments, pings between",
            &[start(), frame(FIN | PING, b"now"), end(), frame(BINARY, &[1]), frame(FIN | PING, b"now"), end()],
            [pong(), said("one two"), pong(), Reply::Binary(b"\x01two".to_vec())],
        ),
        case("a close between", &[start(), close(1000, b"")], [Reply::Close(Some(1000))]),
        breaks("a continuation of nothing", &[end()]),
        breaks("an unfinished continuation of nothing", &[frame(CONTINUATION, b"one"), text("two")]),
        breaks("a text within a text", &[start(), text("new")]),
        breaks("an unfinished text within a text", &[start(), frame(TEXT, b"new")]),
        breaks("a binary within a text", &[start(), frame(FIN | BINARY, b"new")]),
        case("a continuation after the end", &[start(), end(), end()], [said("one two"), Reply::Close(Some(1002))]),
    ]
}

/// Section 8.1.
pub fn utf8() -> Vec<Case> {
    let mut cases = Vec::new();
    for good in ["κόσμε", "\u{0}\u{7f}\u{80}\u{7ff}\u{800}\u{d7ff}\u{e000}\u{ffff}", "\u{10000}\u{10ffff}\u{fffd}"]
    {
        cases.push(case(format!("{good:?}"), &[text(good)], [said(good)]));
        let bytes: Vec<_> = good.bytes().collect();
        let mut parts: Vec<_> = bytes.iter().map(|&byte| frame(CONTINUATION, &[byte])).collect();
        parts[0] = frame(TEXT, &bytes[..1]);
        parts.push(frame(FIN | CONTINUATION, &[]));
        cases.push(case(format!("{good:?}, one byte a fragment"), &parts, [said(good)]));
    }
    let bad: [(&str, &[u8]); 9] = [
        ("a surrogate", b"\xed\xa0\x80"),
        ("over U+10FFFF", b"\xf4\x90\x80\x80"),
        ("a byte that never stands in UTF-8", b"ok \xff"),
        ("a continuation byte alone", b"\x80"),
        ("an overlong slash", b"\xc0\xaf"),
        ("an overlong NUL", b"\xe0\x80\x80"),
        ("a sequence of five", b"\xf8\x88\x80\x80\x80"),
        ("a sequence cut by a letter", b"\xce\xbaab\xe1\xbd "),
        ("an unfinished sequence at the end", b"\xce\xba\xe1\xbd"),
    ];
    for (name, bytes) in bad {
        cases.push(case(name, &[frame(FIN | TEXT, bytes)], [Reply::Close(Some(1007))]));
        let (a, b) = bytes.split_at(bytes.len() / 2);
        let parts = [frame(TEXT, a), frame(CONTINUATION, b), frame(FIN | CONTINUATION, b"")];
        cases.push(case(format!("{name}, in fragments"), &parts, [Reply::Close(Some(1007))]));
    }
    // Text that cannot become valid UTF-8 is rejected before the message has ended.
    cases.push(case("an early end", &[frame(TEXT, b"\xce\xba\xff")], [Reply::Close(Some(1007))]));
    cases
}

/// Sections 5.5.1 and 7.4.
pub fn close_codes() -> Vec<Case> {
    let mut cases = vec![
        case("a close without a code", &[frame(FIN | CLOSE, &[])], [Reply::Close(None)]),
        case("a close with a long reason", &[close(1000, &[b'*'; 123])], [Reply::Close(Some(1000))]),
        case("a reason of no text", &[close(1000, b"\xce\xba\xff")], [Reply::Close(Some(1007))]),
        breaks("half a code", &[frame(FIN | CLOSE, &[3])]),
        case("text after a close", &[close(1000, b""), text("more")], [Reply::Close(Some(1000))]),
        case("a ping after a close", &[close(1000, b""), frame(FIN | PING, b"x")], [Reply::Close(Some(1000))]),
        case("a close after a close", &[close(1000, b""), close(1001, b"")], [Reply::Close(Some(1000))]),
        case("a text, then a close", &[text("last"), close(1000, b"")], [said("last"), Reply::Close(Some(1000))]),
    ];
    for code in [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 3000, 3999, 4000, 4999] {
        cases.push(case(format!("close {code}"), &[close(code, b"bye")], [Reply::Close(Some(code))]));
    }
    // RFC 6455 reserves 1014; a later registration (bad gateway) is for servers only, and the library rejects it.
    for code in [0, 1, 999, 1004, 1005, 1006, 1014, 1015, 1016, 1100, 2000, 2999, 5000, 65_535] {
        cases.push(breaks(format!("close {code}"), &[close(code, b"bye")]));
    }
    cases
}
