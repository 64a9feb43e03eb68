//! Splits a client's large WebSocket frames into fragments of the same message, below the WebSocket library.
//!
//! The library keeps a buffer as large as the largest frame it has read for the lifetime of the connection: 16 MiB,
//! even after the message was freed. If the frame is split into fragments (RFC 6455, section 5.4), the library
//! assembles the message in a separate buffer and releases it with the message. [`super::inflow`] reads every upgraded
//! connection through this module. Anything that is not a valid large frame passes unchanged; the library validates
//! frames.

use super::websocket::MAX_MESSAGE_BYTES;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, ReadBuf};

/// Maximum frame size that is not split, and the fragment size. It is a multiple of the mask's 4 bytes, so that the
/// same mask applies to each fragment, and greater than 65 535, so that the first fragment's header is as long as the
/// frame's.
const FRAGMENT: u64 = 128 * 1024;
/// Maximum header size: 2 bytes, 8 bytes of length, 4 bytes of mask.
const MOST_HEAD: usize = 14;

/// Parser state within the client's stream.
#[derive(Clone, Copy, Debug)]
enum At {
    Head,
    /// In a payload that passes unchanged; the value is the number of bytes left.
    Payload(u64),
    /// In a large frame: bytes left of this fragment, bytes after it, and whether the frame is the last of its message.
    Fragment {
        left: u64,
        behind: u64,
        is_final: bool,
        mask: [u8; 4],
    },
}

/// The fragmenter of one connection.
pub(in crate::server) struct Fragments {
    at: At,
    /// An incomplete header, or the part of a fragment's header that has not been returned yet.
    held: Vec<u8>,
}

/// A parsed frame header.
struct Head {
    n_bytes: usize,
    length: u64,
    is_masked: bool,
}

impl Head {
    /// `None` if `data` does not hold a complete header.
    fn of(data: &[u8]) -> Option<Self> {
        let second = *data.get(1)?;
        let is_masked = second & 0x80 != 0;
        let (length, n_bytes) = match second & 0x7f {
            126 => (u64::from(u16::from_be_bytes(data.get(2..4)?.try_into().ok()?)), 4),
            127 => (u64::from_be_bytes(data.get(2..10)?.try_into().ok()?), 10),
            short => (u64::from(short), 2),
        };
        let n_bytes = n_bytes + if is_masked { 4 } else { 0 };
        (data.len() >= n_bytes).then_some(Self { n_bytes, length, is_masked })
    }

    /// Whether the frame is split; `first` is the header's first byte. Only data frames without extension bits are.
    fn is_large(&self, first: u8) -> bool {
        let is_data = first & 0x70 == 0 && first & 0x0f <= 2;
        is_data && self.is_masked && self.length > FRAGMENT && self.length <= MAX_MESSAGE_BYTES as u64
    }
}

impl Fragments {
    pub(in crate::server) fn new() -> Self {
        Self { at: At::Head, held: Vec::new() }
    }

    /// Like the stream's own `poll_read`; `n_taken` is called with the number of bytes read from the stream. At the
    /// start of a frame, `to` must have room for a header, 14 bytes.
    pub(in crate::server) fn poll_read<S: AsyncRead + ?Sized>(
        &mut self,
        cx: &mut Context<'_>,
        mut stream: Pin<&mut S>,
        to: &mut ReadBuf<'_>,
        mut n_taken: impl FnMut(u64),
    ) -> Poll<io::Result<()>> {
        let before = to.filled().len();
        loop {
            self.begin_fragment();
            if !matches!(self.at, At::Head) {
                let n = self.held.len().min(to.remaining());
                to.put_slice(&self.held[..n]);
                self.held.drain(..n);
            }
            let most = match self.at {
                At::Head if to.remaining() < MOST_HEAD => {
                    let message = "a frame header needs a buffer of at least 14 bytes";
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidInput, message)));
                }
                At::Head => FRAGMENT as usize - self.held.len(),
                At::Payload(_) => FRAGMENT as usize,
                At::Fragment { left, .. } => left as usize,
            };
            let start = to.filled().len();
            if matches!(self.at, At::Head) {
                to.put_slice(&self.held);
            }
            let n = match poll_up_to(cx, stream.as_mut(), to, most) {
                Poll::Ready(Ok(n)) => n,
                // Bytes already copied are returned; an incomplete header stays in `held`.
                Poll::Pending if start > before => {
                    to.set_filled(start);
                    return Poll::Ready(Ok(()));
                }
                other => {
                    to.set_filled(start);
                    return other.map_ok(|_| ());
                }
            };
            n_taken(n as u64);
            if matches!(self.at, At::Head) {
                self.held.clear();
            }
            if n == 0 {
                return Poll::Ready(Ok(()));
            }
            let data = &mut to.filled_mut()[start..];
            let whole = self.pass(data);
            self.held.extend_from_slice(&data[whole..]);
            to.set_filled(start + whole);
            if to.filled().len() > before {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// After a complete fragment, puts the header of the next one into `held`.
    fn begin_fragment(&mut self) {
        let At::Fragment { left: 0, behind, is_final, mask } = self.at else { return };
        if behind == 0 {
            self.at = At::Head;
            return;
        }
        let left = behind.min(FRAGMENT);
        let behind = behind - left;
        self.held.push(if is_final && behind == 0 { 0x80 } else { 0 });
        match left {
            0..126 => self.held.push(0x80 | left as u8),
            126..65_536 => {
                self.held.push(0x80 | 126);
                self.held.extend_from_slice(&(left as u16).to_be_bytes());
            }
            _ => {
                self.held.push(0x80 | 127);
                self.held.extend_from_slice(&left.to_be_bytes());
            }
        }
        self.held.extend_from_slice(&mask);
        self.at = At::Fragment { left, behind, is_final, mask };
    }

    /// Parses the frames in `data` and rewrites the headers of large ones into headers of first fragments. Returns the
    /// number of bytes to pass on; the remainder is an incomplete header.
    fn pass(&mut self, data: &mut [u8]) -> usize {
        let mut at = 0;
        while at < data.len() {
            let rest = (data.len() - at) as u64;
            match &mut self.at {
                At::Payload(left) | At::Fragment { left, .. } => {
                    // A single read never extends beyond the current fragment.
                    let n = rest.min(*left);
                    *left -= n;
                    at += n as usize;
                    if matches!(self.at, At::Payload(0)) {
                        self.at = At::Head;
                    }
                    if n == 0 {
                        break;
                    }
                }
                At::Head => {
                    let Some(head) = Head::of(&data[at..]) else { return at };
                    let begin = at;
                    let first = data[at];
                    at += head.n_bytes;
                    if !head.is_large(first) {
                        self.at = if head.length == 0 { At::Head } else { At::Payload(head.length) };
                        continue;
                    }
                    data[begin] = first & 0x7f;
                    data[begin + 2..begin + 10].copy_from_slice(&FRAGMENT.to_be_bytes());
                    let mask = data[begin + 10..begin + 14].try_into().expect("4 bytes");
                    let is_final = first & 0x80 != 0;
                    let behind = head.length - FRAGMENT;
                    self.at = At::Fragment { left: FRAGMENT, behind, is_final, mask };
                }
            }
        }
        data.len()
    }
}

/// Reads at most `most` bytes.
fn poll_up_to<S: AsyncRead + ?Sized>(
    cx: &mut Context<'_>,
    stream: Pin<&mut S>,
    to: &mut ReadBuf<'_>,
    most: usize,
) -> Poll<io::Result<usize>> {
    let most = most.min(to.remaining());
    let mut part = ReadBuf::new(to.initialize_unfilled_to(most));
    ready!(stream.poll_read(cx, &mut part))?;
    let n = part.filled().len();
    to.advance(n);
    Poll::Ready(Ok(n))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::future::poll_fn;
    use tokio_tungstenite::tungstenite::Message;
    use tokio_tungstenite::tungstenite::protocol::{Role, WebSocket, WebSocketConfig};

    /// A client's stream that yields pieces of these lengths, repeated.
    struct Pieces<'a> {
        data: &'a [u8],
        lengths: std::iter::Cycle<std::iter::Copied<std::slice::Iter<'a, usize>>>,
    }

    impl AsyncRead for Pieces<'_> {
        fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            let n = self.lengths.next().unwrap_or(1).min(self.data.len()).min(to.remaining());
            let (piece, rest) = self.data.split_at(n);
            to.put_slice(piece);
            self.data = rest;
            Poll::Ready(Ok(()))
        }
    }

    /// The output for `data`, read in pieces of `lengths` into a buffer of `room` bytes.
    fn through(data: &[u8], lengths: &[usize], room: usize) -> Vec<u8> {
        let mut fragments = Fragments::new();
        let mut out = Vec::new();
        let mut n_read = 0;
        let mut pieces = Pieces { data, lengths: lengths.iter().copied().cycle() };
        futures_executor::block_on(async {
            loop {
                let mut buffer = vec![0; room];
                let mut to = ReadBuf::new(&mut buffer);
                let read = poll_fn(|cx| fragments.poll_read(cx, Pin::new(&mut pieces), &mut to, |n| n_read += n));
                read.await.expect("it reads");
                if to.filled().is_empty() {
                    break;
                }
                out.extend_from_slice(to.filled());
            }
        });
        assert_eq!(n_read, data.len() as u64);
        out
    }

    /// Builds a masked frame.
    fn frame(first: u8, length: usize, mask: [u8; 4], seed: u8) -> Vec<u8> {
        let mut frame = vec![first];
        match length {
            0..126 => frame.push(0x80 | length as u8),
            126..65_536 => {
                frame.push(0x80 | 126);
                frame.extend_from_slice(&(length as u16).to_be_bytes());
            }
            _ => {
                frame.push(0x80 | 127);
                frame.extend_from_slice(&(length as u64).to_be_bytes());
            }
        }
        frame.extend_from_slice(&mask);
        frame.extend((0..length).map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed) ^ mask[i % 4]));
        frame
    }

    /// The messages that the library reads from a client's stream.
    fn messages(stream: Vec<u8>) -> Vec<Message> {
        struct ReadOnly(io::Cursor<Vec<u8>>);
        impl io::Read for ReadOnly {
            fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
                self.0.read(to)
            }
        }
        impl io::Write for ReadOnly {
            fn write(&mut self, from: &[u8]) -> io::Result<usize> {
                Ok(from.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let config = WebSocketConfig::default().max_frame_size(None).max_message_size(None);
        let stream = ReadOnly(io::Cursor::new(stream));
        let mut socket = WebSocket::from_raw_socket(stream, Role::Server, Some(config));
        std::iter::from_fn(|| socket.read().ok()).collect()
    }

    #[test]
    fn no_frame_is_longer_than_a_fragment() {
        let out = through(&frame(0x82, 1_000_000, [1, 2, 3, 4], 0), &[4_096], 4_096);
        let mut at = 0;
        let mut kinds = Vec::new();
        while at < out.len() {
            let head = Head::of(&out[at..]).expect("whole heads");
            assert!(head.length <= FRAGMENT);
            kinds.push(out[at]);
            at += head.n_bytes + head.length as usize;
        }
        assert_eq!(kinds, [0x02, 0, 0, 0, 0, 0, 0, 0x80]);
    }

    #[test]
    fn what_is_no_valid_large_frame_passes_as_it_is() {
        let too_long = [&[0x82, 0xff][..], &(MAX_MESSAGE_BYTES as u64 + 1).to_be_bytes(), &[0; 64]].concat();
        let unmasked = [&[0x82, 0x7f][..], &(FRAGMENT + 1).to_be_bytes(), &[0; 64]].concat();
        let of_an_extension = [&[0xc2, 0xff][..], &(FRAGMENT + 1).to_be_bytes(), &[0; 64]].concat();
        for data in [too_long, unmasked, of_an_extension, vec![0x82], frame(0x89, 5, [9; 4], 1)] {
            assert_eq!(through(&data, &[7], 64), data);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        /// The library reads the same messages, however the frames are split into reads.
        #[test]
        fn the_messages_are_the_same(
            frames in prop::collection::vec((prop::sample::select(vec![0usize, 1, 125, 126, 65_535, 65_536, 131_072, 131_073, 400_001]), any::<[u8; 4]>(), any::<u8>(), any::<bool>()), 1..5),
            lengths in prop::collection::vec(1usize..9_000, 1..6),
            room in 14usize..6_000,
        ) {
            let mut stream = Vec::new();
            for (length, mask, seed, in_two) in frames {
                if in_two {
                    // A message of two frames with a ping between them.
                    stream.extend(frame(0x02, length, mask, seed));
                    stream.extend(frame(0x89, 4, mask, seed));
                    stream.extend(frame(0x80, length, mask, seed));
                } else {
                    stream.extend(frame(0x82, length, mask, seed));
                }
            }
            let out = through(&stream, &lengths, room);
            prop_assert_eq!(messages(out), messages(stream));
        }
    }
}
