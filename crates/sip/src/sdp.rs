//! Session descriptions (RFC 8866) and offers and answers about one stream of audio (RFC 3264).
//!
//! The server's SIP adapter answers a peer's offer with [`answer`], or offers by [`offer`] and reads the answer by
//! [`read_answer`]. Only what a call needs is kept of a description: the first stream of audio.

use crate::header::host_and_port;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// The longest description, in bytes.
pub const MAX_BYTES: usize = 16 * 1024;
/// Media lines of one.
const MAX_MEDIA: usize = 16;
/// Payload types of a media line that are read.
const MAX_FORMATS: usize = 64;
/// RTCP may share the port of RTP.
const MUX: &str = "a=rtcp-mux\r\n";
/// Profiles of RTP, and of SRTP.
const PLAIN_PROFILES: [&str; 2] = ["RTP/AVP", "RTP/AVPF"];
const SECURE_PROFILES: [&str; 2] = ["RTP/SAVP", "RTP/SAVPF"];
/// The payload type of telephone events in our offers, and of Opus.
const EVENTS_TYPE: u8 = 101;
const OPUS_TYPE: u8 = 111;

/// A coding of audio over RTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// G.711 mu-law.
    Pcmu,
    /// G.711 A-law.
    Pcma,
    /// G.722 at 64 kbit/s: 16 kHz of sound, though its RTP clock says 8 kHz (RFC 3551, section 4.5.2).
    G722,
    /// Opus, mono or stereo.
    Opus,
}

impl Codec {
    /// All of them, the best for a recognizer first.
    pub const ALL: [Self; 4] = [Self::Opus, Self::G722, Self::Pcma, Self::Pcmu];

    /// Its name in settings: `opus`, `g722`, `pcma`, `pcmu`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pcmu => "pcmu",
            Self::Pcma => "pcma",
            Self::G722 => "g722",
            Self::Opus => "opus",
        }
    }

    /// The codec of a name in settings.
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|codec| codec.name() == name)
    }

    /// The rate of its RTP timestamps, in Hz.
    pub fn clock_hz(self) -> u32 {
        match self {
            Self::Opus => 48_000,
            Self::Pcmu | Self::Pcma | Self::G722 => 8_000,
        }
    }

    fn payload_type(self) -> u8 {
        match self {
            Self::Pcmu => 0,
            Self::Pcma => 8,
            Self::G722 => 9,
            Self::Opus => OPUS_TYPE,
        }
    }

    fn rtpmap(self) -> &'static str {
        match self {
            Self::Pcmu => "PCMU/8000",
            Self::Pcma => "PCMA/8000",
            Self::G722 => "G722/8000",
            Self::Opus => "opus/48000/2",
        }
    }

    /// As [`Media::formats`] has it.
    fn format(self) -> String {
        self.rtpmap().to_ascii_lowercase()
    }
}

/// Who sends, from the point of view of the side that wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Direction {
    SendReceive,
    SendOnly,
    ReceiveOnly,
    Inactive,
}

impl Direction {
    fn of(sends: bool, receives: bool) -> Self {
        match (sends, receives) {
            (true, true) => Self::SendReceive,
            (true, false) => Self::SendOnly,
            (false, true) => Self::ReceiveOnly,
            (false, false) => Self::Inactive,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::SendReceive => "sendrecv",
            Self::SendOnly => "sendonly",
            Self::ReceiveOnly => "recvonly",
            Self::Inactive => "inactive",
        }
    }

    fn sends(self) -> bool {
        matches!(self, Self::SendReceive | Self::SendOnly)
    }

    fn receives(self) -> bool {
        matches!(self, Self::SendReceive | Self::ReceiveOnly)
    }
}

/// Why a description cannot be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SdpError {
    /// It is no session description.
    #[error("the body is not a session description")]
    Malformed,
    /// It has no audio over plain RTP.
    #[error("the description has no audio over RTP")]
    NoAudio,
    /// It has no codec that both sides have.
    #[error("the description has no codec that is spoken here")]
    NoCodec,
    /// SRTP is required, by it or here, and it has no key that is understood.
    #[error("the description has no key for SRTP")]
    NoSrtp,
}

/// A transform of SRTP (RFC 4568, section 6.2): AES in counter mode with keys of 128 bits, and HMAC-SHA1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suite {
    /// With tags of 80 bits.
    AesCmHmacSha1_80,
    /// With tags of 32 bits for RTP, of 80 bits for RTCP.
    AesCmHmacSha1_32,
}

impl Suite {
    /// All of them, the preferred first. An offer numbers them from 1 in this order.
    pub const ALL: [Self; 2] = [Self::AesCmHmacSha1_80, Self::AesCmHmacSha1_32];

    fn name(self) -> &'static str {
        match self {
            Self::AesCmHmacSha1_80 => "AES_CM_128_HMAC_SHA1_80",
            Self::AesCmHmacSha1_32 => "AES_CM_128_HMAC_SHA1_32",
        }
    }

    /// The length of the tag of an RTP packet, in bytes.
    pub fn tag_bytes(self) -> usize {
        match self {
            Self::AesCmHmacSha1_80 => 10,
            Self::AesCmHmacSha1_32 => 4,
        }
    }
}

/// The master key and the master salt of one direction. `Debug` shows nothing of them.
#[derive(Clone, PartialEq, Eq)]
pub struct MasterKey([u8; MasterKey::BYTES]);

impl MasterKey {
    /// 16 bytes of the key and 14 of the salt (RFC 4568, section 6.2).
    pub const BYTES: usize = 30;

    /// These bytes, which have to be random.
    pub fn new(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// The key.
    pub fn key(&self) -> [u8; 16] {
        std::array::from_fn(|at| self.0[at])
    }

    /// The salt.
    pub fn salt(&self) -> [u8; 14] {
        std::array::from_fn(|at| self.0[16 + at])
    }
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MasterKey")
    }
}

/// Whether media is protected by SRTP, with our key. Descriptions carry keys in the clear: they may travel by TLS only.
#[derive(Clone, Copy, Debug)]
pub enum Protection<'a> {
    /// Never.
    Off,
    /// Where the peer does it, too. An offer then has keys beside the profile of plain RTP.
    Optional(&'a MasterKey),
    /// Always.
    Required(&'a MasterKey),
}

impl<'a> Protection<'a> {
    fn key(self) -> Option<&'a MasterKey> {
        match self {
            Self::Off => None,
            Self::Optional(key) | Self::Required(key) => Some(key),
        }
    }

    fn is_required(self) -> bool {
        matches!(self, Self::Required(_))
    }
}

/// The keys that both sides agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Srtp {
    /// The transform of both directions.
    pub suite: Suite,
    /// Of what we send.
    pub ours: MasterKey,
    /// Of what the peer sends.
    pub peers: MasterKey,
}

/// One `a=crypto` of a description.
struct Crypto {
    tag: u32,
    suite: Suite,
    key: MasterKey,
}

impl Crypto {
    /// Reads the value behind `crypto:`. `None`: another transform, more than one key, a master key identifier or a session
    /// parameter that changes the transform.
    fn parse(value: &str) -> Option<Self> {
        let mut words = value.split_ascii_whitespace();
        let tag = words.next()?.parse().ok()?;
        let name = words.next()?;
        let suite = Suite::ALL.into_iter().find(|suite| suite.name().eq_ignore_ascii_case(name))?;
        let key = words.next()?;
        // A hint about the size of the replay window changes nothing.
        if words.any(|word| !word.get(..4).is_some_and(|name| name.eq_ignore_ascii_case("WSH="))) {
            return None;
        }
        let (method, text) = key.split_once(':')?;
        let mut parts = text.split('|');
        let bytes = STANDARD.decode(parts.next()?).ok()?;
        // What follows is a lifetime, or an identifier, which has a colon.
        if !method.eq_ignore_ascii_case("inline") || parts.any(|part| part.contains(':')) {
            return None;
        }
        Some(Self { tag, suite, key: MasterKey(bytes.try_into().ok()?) })
    }

    /// The line that names this key.
    fn line(tag: u32, suite: Suite, key: &MasterKey) -> String {
        format!("a=crypto:{tag} {} inline:{}\r\n", suite.name(), STANDARD.encode(key.0))
    }
}

/// What the two sides agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// The coding of both directions.
    pub codec: Codec,
    /// Its payload type in packets to the peer, and, of a peer that keeps to RFC 3264, in those from it.
    pub payload_type: u8,
    /// The payload type of telephone events (RFC 4733) in both directions, with their clock in Hz.
    pub events: Option<(u8, u32)>,
    /// Where the peer says that it receives; `None`: nowhere yet, or by a host name.
    pub remote: Option<SocketAddr>,
    /// Whether the peer takes audio; if not, it has put the call on hold.
    pub peer_receives: bool,
    /// Whether the peer sends the caller's audio. `false` while it has put the call on hold: what it sends then is
    /// music.
    pub peer_sends: bool,
    /// The keys of SRTP; `None`: plain RTP.
    pub srtp: Option<Srtp>,
    /// The payload type of comfort noise (RFC 3389) in the place of silence, where the peer offers it.
    pub noise: Option<u8>,
    /// Whether RTCP shares the port of RTP (RFC 5761).
    pub has_mux: bool,
    /// Where the peer receives RTCP; `None`: nowhere yet.
    pub rtcp: Option<SocketAddr>,
    /// The profile of the media line, such as `RTP/AVP`.
    pub profile: String,
    /// The media lines before that of the audio and after it, refused by port 0. Later offers repeat them.
    pub refused_before: Vec<String>,
    /// See `refused_before`.
    pub refused_after: Vec<String>,
}

/// Our side.
#[derive(Clone, Copy, Debug)]
pub struct Local<'a> {
    /// Where we receive.
    pub address: SocketAddr,
    /// The codecs we take, the preferred first.
    pub codecs: &'a [Codec],
    /// The number of the session, and of this version of it.
    pub session: u64,
    /// Counts the descriptions of a session.
    pub version: u64,
    /// Whether SRTP is spoken.
    pub protection: Protection<'a>,
}

/// A description as it was read.
struct Description {
    media: Vec<Media>,
}

struct Media {
    /// The media line, to refuse it by.
    line: String,
    is_audio: bool,
    /// As the media line has it.
    profile: String,
    /// The first key that is understood.
    crypto: Option<Crypto>,
    /// Whether RTCP may share the port of RTP.
    has_mux: bool,
    /// Another port of RTCP than the one after that of RTP (RFC 3605), and another address.
    rtcp: Option<(u16, Option<IpAddr>)>,
    port: u16,
    address: Option<IpAddr>,
    direction: Direction,
    /// Payload types in the order of preference, with name, clock and channels in lower case, such as `opus/48000/2`.
    formats: Vec<(u8, String)>,
}

fn parse(text: &[u8]) -> Result<Description, SdpError> {
    if text.len() > MAX_BYTES {
        return Err(SdpError::Malformed);
    }
    let text = std::str::from_utf8(text).map_err(|_| SdpError::Malformed)?;
    let mut lines = text.lines().map(str::trim_end).filter(|line| !line.is_empty());
    if lines.next() != Some("v=0") {
        return Err(SdpError::Malformed);
    }
    let mut media: Vec<Media> = Vec::new();
    let mut address = None;
    let mut direction = Direction::SendReceive;
    for line in lines {
        let (kind, value) = line.split_once('=').ok_or(SdpError::Malformed)?;
        match kind {
            "m" if media.len() == MAX_MEDIA => return Err(SdpError::Malformed),
            "m" => media.push(media_of(value, address, direction)?),
            "c" => {
                let connection = connection_of(value)?;
                match media.last_mut() {
                    Some(current) => current.address = connection,
                    None => address = connection,
                }
            }
            "a" => {
                let named = direction_of(value);
                match (media.last_mut(), named) {
                    (Some(current), Some(named)) => current.direction = named,
                    (None, Some(named)) => direction = named,
                    (Some(current), None) => current.attribute(value),
                    (None, None) => {}
                }
            }
            _ => {}
        }
    }
    Ok(Description { media })
}

fn media_of(value: &str, address: Option<IpAddr>, direction: Direction) -> Result<Media, SdpError> {
    let mut words = value.split_whitespace();
    let kind = words.next().ok_or(SdpError::Malformed)?;
    let port = words.next().and_then(|port| port.split('/').next()?.parse::<u16>().ok());
    let port = port.ok_or(SdpError::Malformed)?;
    let profile = words.next().ok_or(SdpError::Malformed)?;
    let is_rtp = PLAIN_PROFILES.contains(&profile) || SECURE_PROFILES.contains(&profile);
    let is_audio = kind == "audio" && port != 0 && is_rtp;
    let known = |number: u8| match number {
        0 => "pcmu/8000",
        8 => "pcma/8000",
        9 => "g722/8000",
        13 => "cn/8000",
        _ => "",
    };
    let types = words.clone().filter_map(|word| word.parse::<u8>().ok()).filter(|number| *number < 128);
    let formats = types.take(MAX_FORMATS).map(|number| (number, known(number).to_owned())).collect();
    let rest = words.collect::<Vec<_>>().join(" ");
    let line = format!("m={kind} 0 {profile} {rest}");
    let profile = profile.to_owned();
    Ok(Media { line, is_audio, profile, crypto: None, has_mux: false, rtcp: None, port, address, direction, formats })
}

/// `None`: by a host name.
fn connection_of(value: &str) -> Result<Option<IpAddr>, SdpError> {
    let mut words = value.split_whitespace();
    if words.next() != Some("IN") || !matches!(words.next(), Some("IP4" | "IP6")) {
        return Err(SdpError::Malformed);
    }
    let host = words.next().and_then(|host| host.split('/').next()).ok_or(SdpError::Malformed)?;
    Ok(host.parse().ok())
}

fn direction_of(value: &str) -> Option<Direction> {
    Some(match value {
        "sendrecv" => Direction::SendReceive,
        "sendonly" => Direction::SendOnly,
        "recvonly" => Direction::ReceiveOnly,
        "inactive" => Direction::Inactive,
        _ => return None,
    })
}

/// Whether the format of a media line is the coding `name`, such as `pcmu/8000`: one channel may be named.
fn is_coding(format: &str, name: &str) -> bool {
    format == name || format.strip_suffix("/1") == Some(name)
}

impl Media {
    fn attribute(&mut self, value: &str) {
        let (name, value) = value.split_once(':').unwrap_or((value, ""));
        if name == "crypto" {
            self.crypto = self.crypto.take().or_else(|| Crypto::parse(value));
            return;
        }
        if name == "rtcp-mux" {
            self.has_mux = true;
        }
        if name == "rtcp" {
            let (port, address) = value.split_once(' ').map_or((value, None), |(port, rest)| (port, Some(rest)));
            let address = address.and_then(|address| connection_of(address).ok().flatten());
            self.rtcp = port.parse().ok().filter(|port| *port != 0).map(|port| (port, address));
        }
        if name != "rtpmap" {
            return;
        }
        let Some((number, map)) = value.trim().split_once(' ') else { return };
        let Ok(number) = number.parse::<u8>() else { return };
        if let Some((_, known)) = self.formats.iter_mut().find(|(known, _)| *known == number) {
            *known = map.trim().to_ascii_lowercase();
        }
    }

    /// The payload type of a coding.
    fn format_of(&self, name: &str) -> Option<u8> {
        self.formats.iter().find(|(_, known)| is_coding(known, name)).map(|(n, _)| *n)
    }

    /// Of an offer: the first of our codecs that the peer has, with its payload type.
    fn preferred_here(&self, codecs: &[Codec]) -> Option<(Codec, u8)> {
        codecs.iter().find_map(|codec| Some((*codec, self.format_of(&codec.format())?)))
    }

    /// Of an answer: the first codec of the peer that is one of ours, with its payload type. The peer's order is what it
    /// prefers (RFC 3264, section 6.1), and sends.
    fn preferred_by_peer(&self, codecs: &[Codec]) -> Option<(Codec, u8)> {
        self.formats.iter().find_map(|(number, known)| {
            let codec = codecs.iter().find(|codec| is_coding(known, &codec.format()))?;
            Some((*codec, *number))
        })
    }

    /// Whether only SRTP will do, by its profile.
    fn is_secure(&self) -> bool {
        SECURE_PROFILES.contains(&self.profile.as_str())
    }

    /// What is agreed on with this codec and its payload type, without the other media lines; `None`: there is none
    /// that both sides have.
    fn agreed(&self, codec: Option<(Codec, u8)>, protection: Protection<'_>) -> Result<Agreed, SdpError> {
        let srtp = protection.key().zip(self.crypto.as_ref()).map(|(ours, crypto)| Srtp {
            suite: crypto.suite,
            ours: ours.clone(),
            peers: crypto.key.clone(),
        });
        if srtp.is_none() && (self.is_secure() || protection.is_required()) {
            return Err(SdpError::NoSrtp);
        }
        let (codec, payload_type) = codec.ok_or(SdpError::NoCodec)?;
        let clock = codec.clock_hz();
        let events = [clock, 8_000].into_iter().find_map(|clock| {
            let number = self.format_of(&format!("telephone-event/{clock}"))?;
            Some((number, clock))
        });
        // That of the codec's clock.
        let noise = self.format_of("cn/8000").filter(|_| clock == 8_000);
        let address = self.address.filter(|address| !address.is_unspecified());
        // The address 0.0.0.0 is how RFC 2543 put a call on hold.
        let is_old_hold = self.address.is_some_and(|address| address.is_unspecified());
        let remote = address.map(|address| SocketAddr::new(address, self.port));
        let rtcp = remote.and_then(|remote| match self.rtcp {
            _ if self.has_mux => Some(remote),
            Some((port, other)) => Some(SocketAddr::new(other.unwrap_or(remote.ip()), port)),
            None => Some(SocketAddr::new(remote.ip(), remote.port().checked_add(1)?)),
        });
        Ok(Agreed {
            codec,
            payload_type,
            events,
            remote,
            peer_receives: self.direction.receives() && !is_old_hold,
            peer_sends: self.direction == Direction::SendReceive && !is_old_hold,
            srtp,
            noise,
            has_mux: self.has_mux,
            rtcp,
            profile: self.profile.clone(),
            refused_before: Vec::new(),
            refused_after: Vec::new(),
        })
    }
}

impl Description {
    /// The stream of audio that is taken: one with keys, where there is one and SRTP is spoken; else the first.
    fn audio(&self, protection: Protection<'_>) -> Result<usize, SdpError> {
        let speaks_srtp = protection.key().is_some();
        let is_audio = |media: &Media| media.is_audio && (speaks_srtp || !media.is_secure());
        let with_keys = self.media.iter().position(|media| speaks_srtp && is_audio(media) && media.crypto.is_some());
        let first = || self.media.iter().position(is_audio);
        with_keys.or_else(first).ok_or(SdpError::NoAudio)
    }

    /// As [`Media::agreed`] of the media line at `chosen`, with the other ones refused.
    fn agreed(
        &self,
        chosen: usize,
        codec: Option<(Codec, u8)>,
        protection: Protection<'_>,
    ) -> Result<Agreed, SdpError> {
        let lines = |media: &[Media]| media.iter().map(|media| media.line.clone()).collect::<Vec<_>>();
        let agreed = self.media[chosen].agreed(codec, protection)?;
        let refused_before = lines(&self.media[..chosen]);
        let refused_after = lines(&self.media[chosen + 1..]);
        Ok(Agreed { refused_before, refused_after, ..agreed })
    }
}

/// Answers an offer: the description, and what both sides then have agreed on.
///
/// # Errors
/// The offer cannot be read, or has nothing that both sides have.
pub fn answer(offer: &[u8], local: Local<'_>) -> Result<(String, Agreed), SdpError> {
    let offer = parse(offer)?;
    let chosen = offer.audio(local.protection)?;
    let media = &offer.media[chosen];
    let agreed = offer.agreed(chosen, media.preferred_here(local.codecs), local.protection)?;
    let keys = agreed.srtp.as_ref().zip(media.crypto.as_ref());
    let keys = keys.map(|(srtp, crypto)| Crypto::line(crypto.tag, crypto.suite, &srtp.ours)).unwrap_or_default();
    let direction = Direction::of(media.direction.receives(), media.direction.sends());
    let mut text = head(local);
    for (index, media) in offer.media.iter().enumerate() {
        if index == chosen {
            let formats = [(agreed.codec, agreed.payload_type)];
            text.push_str(&media_lines(local, &media.profile, &formats, agreed.events, agreed.noise, direction));
            text.push_str(if agreed.has_mux { MUX } else { "" });
            text.push_str(&keys);
        } else {
            text.push_str(&media.line);
            text.push_str("\r\n");
        }
    }
    Ok((text, agreed))
}

/// An offer of our codecs.
pub fn offer(local: Local<'_>) -> String {
    let formats: Vec<_> = local.codecs.iter().map(|codec| (*codec, codec.payload_type())).collect();
    let profile = if local.protection.is_required() { SECURE_PROFILES[0] } else { PLAIN_PROFILES[0] };
    let mut text = head(local);
    text.push_str(&media_lines(local, profile, &formats, Some((EVENTS_TYPE, 8_000)), None, Direction::SendReceive));
    text.push_str(MUX);
    if let Some(key) = local.protection.key() {
        for (tag, suite) in (1..).zip(Suite::ALL) {
            text.push_str(&Crypto::line(tag, suite, key));
        }
    }
    text
}

/// An offer of what was agreed on before, for a change of the call: the codec keeps its payload type (RFC 3264, section
/// 8.3.2), SRTP its suite, and each media line its place and its profile (section 8). Of `local`, the codecs and the
/// protection do not count.
pub fn offer_again(local: Local<'_>, agreed: &Agreed) -> String {
    let Agreed { codec, payload_type, events, noise, .. } = *agreed;
    let formats = [(codec, payload_type)];
    let mut text = head(local);
    text.extend(agreed.refused_before.iter().map(|line| format!("{line}\r\n")));
    text.push_str(&media_lines(local, &agreed.profile, &formats, events, noise, Direction::SendReceive));
    text.push_str(if agreed.has_mux { MUX } else { "" });
    if let Some(srtp) = &agreed.srtp {
        let offered = (1..).zip(Suite::ALL).filter(|(_, suite)| *suite == srtp.suite);
        text.extend(offered.map(|(tag, suite)| Crypto::line(tag, suite, &srtp.ours)));
    }
    text.extend(agreed.refused_after.iter().map(|line| format!("{line}\r\n")));
    text
}

/// What the answer to our [`offer`] of `local` agrees on: of our codecs, the one that the answer names first.
///
/// # Errors
/// As [`answer`].
pub fn read_answer(answer: &[u8], local: Local<'_>) -> Result<Agreed, SdpError> {
    read(answer, local, |crypto| (1..).zip(Suite::ALL).any(|offered| offered == (crypto.tag, crypto.suite)))
}

/// What the answer to a later offer of ours agrees on: an [`offer_again`], or the description of a call that a refresh
/// repeats. `agreed`: what was agreed on before. The suite of SRTP stays. Its tag is not compared: a description that
/// answered the peer has the peer's tag.
///
/// # Errors
/// As [`answer`].
pub fn read_answer_again(answer: &[u8], local: Local<'_>, agreed: &Agreed) -> Result<Agreed, SdpError> {
    let suite = agreed.srtp.as_ref().map(|srtp| srtp.suite);
    read(answer, local, |crypto| Some(crypto.suite) == suite)
}

/// Reads an answer. `is_offered`: whether we offered this transform.
fn read(answer: &[u8], local: Local<'_>, is_offered: impl Fn(&Crypto) -> bool) -> Result<Agreed, SdpError> {
    let answer = parse(answer)?;
    let chosen = answer.audio(local.protection)?;
    let media = &answer.media[chosen];
    if local.protection.key().is_some() && media.crypto.as_ref().is_some_and(|crypto| !is_offered(crypto)) {
        return Err(SdpError::NoSrtp);
    }
    answer.agreed(chosen, media.preferred_by_peer(local.codecs), local.protection)
}

fn head(local: Local<'_>) -> String {
    let Local { address, session, version, .. } = local;
    let family = if address.is_ipv4() { "IP4" } else { "IP6" };
    let ip = address.ip();
    format!("v=0\r\no=antiphon {session} {version} IN {family} {ip}\r\ns=-\r\nc=IN {family} {ip}\r\nt=0 0\r\n")
}

fn media_lines(
    local: Local<'_>,
    profile: &str,
    formats: &[(Codec, u8)],
    events: Option<(u8, u32)>,
    noise: Option<u8>,
    direction: Direction,
) -> String {
    let numbers = formats.iter().map(|(_, number)| *number).chain(noise).chain(events.map(|(number, _)| number));
    let numbers: String = numbers.map(|number| format!(" {number}")).collect();
    let mut text = format!("m=audio {} {profile}{numbers}\r\n", local.address.port());
    for (codec, number) in formats {
        text.push_str(&format!("a=rtpmap:{number} {}\r\n", codec.rtpmap()));
        if *codec == Codec::Opus {
            text.push_str(&format!("a=fmtp:{number} useinbandfec=1;stereo=0;sprop-stereo=0\r\n"));
        }
    }
    if let Some(number) = noise {
        text.push_str(&format!("a=rtpmap:{number} CN/8000\r\n"));
    }
    if let Some((number, clock)) = events {
        text.push_str(&format!("a=rtpmap:{number} telephone-event/{clock}\r\na=fmtp:{number} 0-15\r\n"));
    }
    text.push_str(&format!("a=ptime:20\r\na={}\r\n", direction.name()));
    text
}

/// The host of a URI as an address; `None`: it is a name.
pub fn ip_of(host: &str) -> Option<IpAddr> {
    let (host, _) = host_and_port(host)?;
    host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: Local<'static> = Local {
        address: SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)), 20_000),
        codecs: &Codec::ALL,
        session: 7,
        version: 1,
        protection: Protection::Off,
    };

    fn offer_of(lines: &str) -> String {
        format!("v=0\r\no=- 1 1 IN IP4 192.0.2.9\r\ns=-\r\nc=IN IP4 192.0.2.9\r\nt=0 0\r\n{lines}")
    }

    #[test]
    fn the_preferred_codec_of_both_sides_is_agreed_on() {
        let offer = offer_of(
            "m=audio 4000 RTP/AVP 0 8 96 101\r\na=rtpmap:96 opus/48000/2\r\na=rtpmap:101 telephone-event/8000\r\n",
        );
        let (text, agreed) = answer(offer.as_bytes(), LOCAL).unwrap();
        assert_eq!((agreed.codec, agreed.payload_type, agreed.events), (Codec::Opus, 96, Some((101, 8_000))));
        assert_eq!(agreed.remote, Some("192.0.2.9:4000".parse().unwrap()));
        assert!(agreed.peer_sends && agreed.peer_receives);
        assert!(text.contains("m=audio 20000 RTP/AVP 96 101\r\n") && text.contains("a=sendrecv"), "{text}");
        let narrow = Local { codecs: &[Codec::Pcma], ..LOCAL };
        let (_, agreed) = answer(offer.as_bytes(), narrow).unwrap();
        assert_eq!((agreed.codec, agreed.payload_type), (Codec::Pcma, 8), "a static type needs no rtpmap");
    }

    #[test]
    fn a_hold_is_seen_in_each_of_its_forms() {
        for (line, receives, answered) in [
            ("a=sendonly", false, "a=recvonly"),
            ("a=inactive", false, "a=inactive"),
            ("a=recvonly", true, "a=sendonly"),
        ] {
            let offer = offer_of(&format!("m=audio 4000 RTP/AVP 0\r\n{line}\r\n"));
            let (text, agreed) = answer(offer.as_bytes(), LOCAL).unwrap();
            assert_eq!((agreed.peer_receives, agreed.peer_sends), (receives, false), "{line}");
            assert!(text.contains(answered), "{line}: {text}");
        }
        let old = offer_of("m=audio 4000 RTP/AVP 0\r\nc=IN IP4 0.0.0.0\r\n");
        let (_, agreed) = answer(old.as_bytes(), LOCAL).unwrap();
        assert_eq!((agreed.remote, agreed.peer_receives), (None, false));
    }

    #[test]
    fn other_media_is_refused_line_by_line() {
        let offer = offer_of("m=video 5000 RTP/AVP 31\r\nm=audio 4000 RTP/AVP 8\r\nm=image 0 udptl t38\r\n");
        let (text, _) = answer(offer.as_bytes(), LOCAL).unwrap();
        let lines: Vec<_> = text.lines().filter(|line| line.starts_with("m=")).collect();
        assert_eq!(lines, ["m=video 0 RTP/AVP 31", "m=audio 20000 RTP/AVP 8", "m=image 0 udptl t38"]);
    }

    #[test]
    fn what_cannot_be_answered_is_an_error() {
        let check = |text: &str, expect| assert_eq!(answer(text.as_bytes(), LOCAL).unwrap_err(), expect, "{text:?}");
        check("", SdpError::Malformed);
        check("hello", SdpError::Malformed);
        check(&offer_of("m=audio x RTP/AVP 0\r\n"), SdpError::Malformed);
        check(&offer_of("m=video 4000 RTP/AVP 31\r\n"), SdpError::NoAudio);
        check(&offer_of("m=audio 0 RTP/AVP 0\r\n"), SdpError::NoAudio);
        check(&offer_of("m=audio 4000 RTP/SAVP 0\r\n"), SdpError::NoAudio);
        check(&offer_of("m=audio 4000 RTP/AVP 18\r\n"), SdpError::NoCodec);
        check(&offer_of(&"m=audio 4000 RTP/AVP 0\r\n".repeat(17)), SdpError::Malformed);
    }

    #[test]
    fn our_offer_is_answered_and_the_answer_is_read() {
        let ours = offer(LOCAL);
        let peer = Local { address: "192.0.2.9:4000".parse().unwrap(), codecs: &[Codec::G722], ..LOCAL };
        let (text, _) = answer(ours.as_bytes(), peer).unwrap();
        let agreed = read_answer(text.as_bytes(), LOCAL).unwrap();
        assert_eq!((agreed.codec, agreed.payload_type, agreed.events), (Codec::G722, 9, Some((101, 8_000))));
        assert_eq!(agreed.remote, Some(peer.address));
    }

    #[test]
    fn what_was_agreed_on_is_offered_again_by_its_numbers() {
        let opus = "a=rtpmap:96 opus/48000/2\r\na=rtpmap:97 telephone-event/48000\r\n";
        let offer = offer_of(&format!("m=audio 4000 RTP/AVP 96 97\r\n{opus}"));
        let (_, agreed) = answer(offer.as_bytes(), LOCAL).unwrap();
        let again = offer_again(LOCAL, &agreed);
        assert!(again.contains("m=audio 20000 RTP/AVP 96 97\r\n") && again.contains(opus.lines().next().unwrap()));
        assert!(again.contains("a=rtpmap:97 telephone-event/48000\r\n") && again.contains("a=sendrecv"), "{again}");
        assert!(!again.contains("rtcp-mux"), "{again}");
        let noisy = offer_of("m=audio 4000 RTP/AVP 8 13\r\na=rtcp-mux\r\n");
        let (_, agreed) = answer(noisy.as_bytes(), LOCAL).unwrap();
        let again = offer_again(LOCAL, &agreed);
        assert!(again.contains("m=audio 20000 RTP/AVP 8 13\r\n") && again.contains(MUX), "{again}");
    }

    #[test]
    fn each_media_line_keeps_its_place_and_its_profile_in_a_later_offer() {
        let offer = offer_of("m=video 5000 RTP/AVP 31\r\nm=audio 4000 RTP/AVPF 8\r\nm=image 5002 udptl t38\r\n");
        let (_, agreed) = answer(offer.as_bytes(), LOCAL).unwrap();
        let again = offer_again(LOCAL, &agreed);
        let lines = ["m=video 0 RTP/AVP 31", "m=audio 20000 RTP/AVPF 8", "m=image 0 udptl t38"];
        assert_eq!(again.lines().filter(|line| line.starts_with("m=")).collect::<Vec<_>>(), lines);
        let peer = Local { address: "192.0.2.9:4000".parse().unwrap(), ..LOCAL };
        let (text, _) = answer(again.as_bytes(), peer).unwrap();
        let agreed = read_answer_again(text.as_bytes(), LOCAL, &agreed).unwrap();
        assert_eq!(offer_again(LOCAL, &agreed), again, "once more");
    }

    #[test]
    fn the_codec_that_an_answer_names_first_is_agreed_on() {
        let read = |formats: &str| {
            let answer = offer_of(&format!("m=audio 4000 RTP/AVP {formats}\r\na=rtpmap:101 telephone-event/8000\r\n"));
            read_answer(answer.as_bytes(), LOCAL).map(|agreed| (agreed.codec, agreed.payload_type, agreed.events))
        };
        let events = Some((101, 8_000));
        assert_eq!(read("0 8 101"), Ok((Codec::Pcmu, 0, events)));
        assert_eq!(read("8 0 101"), Ok((Codec::Pcma, 8, events)));
        assert_eq!(read("18 9 0"), Ok((Codec::G722, 9, None)), "one that is unknown here is passed over");
        assert_eq!(read("18 101"), Err(SdpError::NoCodec));
    }

    #[test]
    fn comfort_noise_is_agreed_on_where_it_is_offered() {
        let check = |lines: &str, codecs: &[Codec]| {
            let (text, agreed) = answer(offer_of(lines).as_bytes(), Local { codecs, ..LOCAL }).unwrap();
            assert_eq!(text.contains("CN/8000"), agreed.noise.is_some(), "{text}");
            agreed.noise
        };
        assert_eq!(check("m=audio 4000 RTP/AVP 8 13\r\n", &Codec::ALL), Some(13));
        assert_eq!(check("m=audio 4000 RTP/AVP 8 98\r\na=rtpmap:98 CN/8000\r\n", &Codec::ALL), Some(98));
        assert_eq!(check("m=audio 4000 RTP/AVP 8\r\n", &Codec::ALL), None);
        assert_eq!(
            check("m=audio 4000 RTP/AVP 96 13\r\na=rtpmap:96 opus/48000/2\r\n", &Codec::ALL),
            None,
            "another clock"
        );
        assert!(!offer(LOCAL).contains("CN/8000"), "pauses of a peer's detector cost words");
    }

    #[test]
    fn reports_go_to_the_port_that_the_peer_names() {
        let check = |lines: &str| {
            let (text, agreed) = answer(secured("RTP/AVP", lines).as_bytes(), LOCAL).unwrap();
            assert_eq!(text.contains("a=rtcp-mux"), agreed.has_mux, "{lines}");
            agreed.rtcp.map(|address| address.to_string()).unwrap_or_default()
        };
        assert_eq!(check(""), "192.0.2.9:4001");
        assert_eq!(check("a=rtcp:5000\r\n"), "192.0.2.9:5000");
        assert_eq!(check("a=rtcp:5000 IN IP4 192.0.2.7\r\n"), "192.0.2.7:5000");
        assert_eq!(check("a=rtcp:0 IN\r\n"), "192.0.2.9:4001");
        assert_eq!(check("a=rtcp-mux\r\na=rtcp:5000\r\n"), "192.0.2.9:4000");
        assert_eq!(check("c=IN IP4 0.0.0.0\r\n"), "");
        assert!(offer(LOCAL).contains("a=rtcp-mux"));
    }

    const OURS: MasterKey = MasterKey([7; 30]);
    const OPTIONAL: Local<'static> = Local { protection: Protection::Optional(&OURS), ..LOCAL };
    const REQUIRED: Local<'static> = Local { protection: Protection::Required(&OURS), ..LOCAL };
    /// The key of RFC 4568, section 9.1, with a lifetime.
    const KEY: &str = "inline:d0RmdmcmVCspeEc3QGZiNWpVLFJhQX1cfHAwJSoj|2^20";

    fn secured(profile: &str, lines: &str) -> String {
        offer_of(&format!("m=audio 4000 {profile} 0\r\n{lines}"))
    }

    #[test]
    fn the_first_key_that_is_understood_is_agreed_on() {
        let lines = format!(
            "a=crypto:1 AEAD_AES_256_GCM {KEY}\r\na=crypto:2 AES_CM_128_HMAC_SHA1_80 {KEY}|1:4\r\n\
             a=crypto:3 AES_CM_128_HMAC_SHA1_80 {KEY} UNENCRYPTED_SRTP\r\n\
             a=crypto:4 AES_CM_128_HMAC_SHA1_32 {KEY} WSH=64\r\na=crypto:5 AES_CM_128_HMAC_SHA1_80 {KEY}\r\n"
        );
        for (profile, local) in [("RTP/SAVP", OPTIONAL), ("RTP/SAVPF", REQUIRED), ("RTP/AVP", OPTIONAL)] {
            let (text, agreed) = answer(secured(profile, &lines).as_bytes(), local).unwrap();
            let srtp = agreed.srtp.expect("keys");
            assert_eq!((srtp.suite, &srtp.ours), (Suite::AesCmHmacSha1_32, &OURS));
            assert_eq!(&srtp.peers.key()[..5], b"wDfvg");
            assert!(text.contains(&format!("m=audio 20000 {profile} 0\r\n")), "{text}");
            let crypto: Vec<_> = text.lines().filter(|line| line.starts_with("a=crypto")).collect();
            assert_eq!(crypto, [format!("a=crypto:4 AES_CM_128_HMAC_SHA1_32 inline:{}", STANDARD.encode([7; 30]))]);
        }
    }

    #[test]
    fn srtp_is_spoken_where_both_sides_say_so() {
        let keys = format!("a=crypto:1 AES_CM_128_HMAC_SHA1_80 {KEY}\r\n");
        let check = |profile: &str, lines: &str, local: Local<'_>| {
            answer(secured(profile, lines).as_bytes(), local).map(|(text, agreed)| {
                assert_eq!(text.contains("a=crypto"), agreed.srtp.is_some());
                agreed.srtp.is_some()
            })
        };
        assert_eq!(check("RTP/AVP", &keys, LOCAL), Ok(false), "keys without TLS are ignored");
        assert_eq!(check("RTP/SAVP", &keys, LOCAL), Err(SdpError::NoAudio));
        assert_eq!(check("RTP/AVP", "", OPTIONAL), Ok(false));
        assert_eq!(check("RTP/AVP", "", REQUIRED), Err(SdpError::NoSrtp));
        assert_eq!(check("RTP/SAVP", "", OPTIONAL), Err(SdpError::NoSrtp));
        assert_eq!(check("RTP/SAVP", &keys.replace("d0Rm", "d0R"), OPTIONAL), Err(SdpError::NoSrtp), "a short key");
        let both = format!("m=audio 4000 RTP/AVP 0\r\nm=audio 4002 RTP/SAVP 0\r\n{keys}");
        let (text, agreed) = answer(offer_of(&both).as_bytes(), OPTIONAL).unwrap();
        assert_eq!(agreed.remote, Some("192.0.2.9:4002".parse().unwrap()));
        assert!(text.contains("m=audio 0 RTP/AVP 0\r\nm=audio 20000 RTP/SAVP 0\r\n"), "{text}");
    }

    #[test]
    fn the_suite_of_a_call_is_offered_again_alone() {
        let lines = format!("a=crypto:1 AES_CM_128_HMAC_SHA1_32 {KEY}\r\n");
        let (_, agreed) = answer(secured("RTP/SAVP", &lines).as_bytes(), OPTIONAL).unwrap();
        let again = offer_again(OPTIONAL, &agreed);
        let crypto: Vec<_> = again.lines().filter(|line| line.starts_with("a=crypto")).collect();
        assert_eq!(crypto, [format!("a=crypto:2 AES_CM_128_HMAC_SHA1_32 inline:{}", STANDARD.encode([7; 30]))]);
        assert!(again.contains("m=audio 20000 RTP/SAVP 0\r\n"), "{again}");
        let theirs = MasterKey::new([9; 30]);
        let (text, _) = answer(again.as_bytes(), Local { protection: Protection::Required(&theirs), ..LOCAL }).unwrap();
        let srtp = read_answer_again(text.as_bytes(), REQUIRED, &agreed).unwrap().srtp.expect("keys");
        assert_eq!(srtp, Srtp { suite: Suite::AesCmHmacSha1_32, ours: OURS, peers: theirs });
    }

    #[test]
    fn our_keys_are_offered_and_the_peers_are_read() {
        for (local, profile) in [(OPTIONAL, "RTP/AVP"), (REQUIRED, "RTP/SAVP")] {
            let ours = offer(local);
            assert!(ours.contains(&format!("m=audio 20000 {profile} ")), "{ours}");
            let theirs = MasterKey::new([9; 30]);
            let peer = Local { protection: Protection::Optional(&theirs), ..LOCAL };
            let (text, _) = answer(ours.as_bytes(), peer).unwrap();
            let srtp = read_answer(text.as_bytes(), local).unwrap().srtp.expect("keys");
            assert_eq!(srtp, Srtp { suite: Suite::AesCmHmacSha1_80, ours: OURS, peers: theirs });
            let other = text.replace("crypto:1", "crypto:2");
            assert_eq!(
                read_answer(other.as_bytes(), local).unwrap_err(),
                SdpError::NoSrtp,
                "not the one with this number"
            );
            let shown = format!("{srtp:?}");
            assert!(!shown.contains("7, 7") && shown.contains("MasterKey"), "{shown}");
        }
        let plain = answer(offer(OPTIONAL).as_bytes(), LOCAL).unwrap().0;
        assert_eq!(read_answer(plain.as_bytes(), OPTIONAL).unwrap().srtp, None);
        let plain = plain.replace("RTP/AVP", "RTP/SAVP");
        assert_eq!(read_answer(plain.as_bytes(), REQUIRED).unwrap_err(), SdpError::NoSrtp);
    }
}
