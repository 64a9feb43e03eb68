//! Answers to offers, by SDP: what is taken of them, and what is wrong with one.
//!
//! [`super::signaling`] answers a first offer and one of a new connection, [`super::peer`] a further one on its own. It
//! knows no call and no key.

use super::Webrtc;
use super::connection::PinnedMedia;
use std::time::Duration;
use str0m::change::SdpOffer;
use str0m::ice::IceCreds;
use str0m::{Candidate, Rtc, RtcConfig};
use tokio::time::Instant;

/// The words of the parser in a refusal.
const MAX_REASON_BYTES: usize = 200;
/// Media lines of an offer.
const MAX_MEDIA: usize = 8;
/// The attributes of a direction.
const DIRECTIONS: [&str; 4] = ["a=sendrecv", "a=sendonly", "a=recvonly", "a=inactive"];
/// Interval of receiver reports: a sender's FEC follows them.
const REPORTS: Duration = Duration::from_secs(1);
/// Interval of measurements of the round trip.
const STATISTICS: Duration = Duration::from_secs(2);
/// What the data channel buffers for a peer.
const MAX_UNACKNOWLEDGED_BYTES: usize = 1024 * 1024;
/// What a message of the data channel may hold, in both directions: the limit of browsers.
const MAX_MESSAGE_BYTES: u32 = 256 * 1024;
/// What a message to a peer may hold whose offer says nothing (RFC 8841, section 6.1), and the smallest limit that leaves room
/// for events.
const USUAL_MESSAGE_BYTES: usize = 64 * 1024;
const LEAST_MESSAGE_BYTES: usize = 1024;

/// An answered offer.
pub(super) struct AnsweredOffer {
    pub(super) rtc: Rtc,
    pub(super) sdp: String,
    pub(super) fragment: String,
    /// What a message to the peer may hold; `None`: the offer has no data channel.
    pub(super) max_message_bytes: Option<usize>,
    pub(super) kept: PinnedMedia,
}

/// Answers an offer; `Err`: what is wrong with it.
pub(super) fn answer(webrtc: &Webrtc, sdp: &str) -> Result<AnsweredOffer, String> {
    answer_to(webrtc, read_offer(sdp)?, sdp)
}

/// Answers an offer that was read from `sdp`.
pub(super) fn answer_to(webrtc: &Webrtc, offer: SdpOffer, sdp: &str) -> Result<AnsweredOffer, String> {
    let max_message_bytes = max_message_bytes(sdp);
    if max_message_bytes.is_some_and(|limit| limit < LEAST_MESSAGE_BYTES) {
        return Err(format!("The offer's max-message-size is less than {LEAST_MESSAGE_BYTES}."));
    }
    let credentials = IceCreds::new();
    let fragment = credentials.ufrag.clone();
    let mut rtc = RtcConfig::new()
        .set_crypto_provider(webrtc.crypto.clone())
        .set_dtls_cert(webrtc.certificate.clone())
        .set_ice_lite(true)
        .set_local_ice_credentials(credentials)
        .clear_codecs()
        .enable_opus(true, false)
        .set_rtp_mode(true)
        .set_rtcp_report_interval_audio(REPORTS)
        .set_stats_interval(Some(STATISTICS))
        .set_sctp_max_message_size(MAX_MESSAGE_BYTES)
        .set_sctp_max_buffered_amount(MAX_UNACKNOWLEDGED_BYTES)
        .build(Instant::now().into_std());
    for address in webrtc.endpoint.advertised() {
        let tcp = Candidate::builder().tcp().host(*address).tcptype(str0m::net::TcpType::Passive).build();
        for candidate in [Candidate::host(*address, "udp"), tcp] {
            let candidate = candidate.map_err(|error| format!("This server advertises {address}: {error}."))?;
            rtc.add_local_candidate(candidate);
        }
    }
    let answer = accept(&mut rtc, offer, sdp)?;
    Ok(AnsweredOffer { rtc, sdp: answer, fragment, max_message_bytes, kept: PinnedMedia::of(sdp) })
}

/// Answers a further offer on the same connection, whose media go on; `Err`: what is wrong with it. One that is refused for what it
/// changes has changed nothing.
pub(super) fn accept_again(rtc: &mut Rtc, kept: &mut PinnedMedia, sdp: &str) -> Result<String, String> {
    let offer = read_offer(sdp)?;
    let further = PinnedMedia::of(sdp);
    if further.fingerprints != kept.fingerprints {
        return Err("The offer is of another connection, because its certificate is another one.".into());
    }
    if !further.media.starts_with(&kept.media) {
        return Err("The offer lacks a media line of this connection, or has another one in its place.".into());
    }
    let answer = accept(rtc, offer, sdp)?;
    *kept = further;
    Ok(answer)
}

pub(super) fn read_offer(sdp: &str) -> Result<SdpOffer, String> {
    if media_of(sdp).count() > MAX_MEDIA {
        return Err(format!("The offer has more than {MAX_MEDIA} media lines."));
    }
    if !media_of(sdp).any(|line| line.starts_with("audio ")) {
        return Err("The offer has no audio.".into());
    }
    let offer = SdpOffer::from_sdp_string(&with_directions(sdp));
    offer.map_err(|error| format!("The offer cannot be read: {}.", brief(&error)))
}

/// The offer with a direction in each section of RTP, which the parser requires: where a section has none, that of the
/// session, else `sendrecv` (RFC 8866, section 6.7).
fn with_directions(sdp: &str) -> String {
    let direction_of = |line: &str| DIRECTIONS.into_iter().find(|direction| *direction == line.trim_end());
    let of_session = sdp.lines().take_while(|line| !line.starts_with("m=")).find_map(direction_of);
    let added = of_session.unwrap_or("a=sendrecv");
    let line_end = if sdp.contains("\r\n") { "\r\n" } else { "\n" };
    let mut complete = String::with_capacity(sdp.len() + MAX_MEDIA * (added.len() + line_end.len()));
    let mut lacks_direction = false;
    let end_section = |complete: &mut String| {
        if !complete.ends_with('\n') {
            complete.push_str(line_end);
        }
        complete.push_str(added);
        complete.push_str(line_end);
    };
    for line in sdp.split_inclusive('\n') {
        if line.starts_with("m=") {
            if lacks_direction {
                end_section(&mut complete);
            }
            lacks_direction = !line.starts_with("m=application ");
        }
        lacks_direction &= direction_of(line).is_none();
        complete.push_str(line);
    }
    if lacks_direction {
        end_section(&mut complete);
    }
    complete
}

fn accept(rtc: &mut Rtc, offer: SdpOffer, sdp: &str) -> Result<String, String> {
    let answer = rtc.sdp_api().accept_offer(offer);
    let answer = answer.map_err(|error| format!("The offer cannot be answered: {}.", brief(&error)))?.to_sdp_string();
    if media_of(&answer).count() != media_of(sdp).count() {
        return Err("The offer cannot be read: one of its media lines is wrong.".into());
    }
    if !answer.to_ascii_lowercase().contains("opus/48000") {
        return Err("The offer has no audio with Opus.".into());
    }
    Ok(answer)
}

pub(super) fn media_of(sdp: &str) -> impl Iterator<Item = &str> {
    sdp.lines().filter_map(|line| line.strip_prefix("m="))
}

/// What a message of the data channel may hold for the peer of this offer; `None`: the offer has no data channel.
fn max_message_bytes(sdp: &str) -> Option<usize> {
    let mut lines = sdp.lines().skip_while(|line| !line.starts_with("m=application "));
    lines.next()?;
    let limit = lines
        .take_while(|line| !line.starts_with("m="))
        .find_map(|line| line.strip_prefix("a=max-message-size:")?.trim().parse().ok());
    Some(match limit {
        None => USUAL_MESSAGE_BYTES,
        // Any length.
        Some(0) => MAX_MESSAGE_BYTES as usize,
        Some(limit) => limit.min(MAX_MESSAGE_BYTES as usize),
    })
}

/// An error of the parser, which may quote the whole offer, on one line. Where the parser stopped is an address of this
/// process and is left out.
pub(super) fn brief(error: &impl ToString) -> String {
    const POSITION: &str = " at PointerOffset(";
    let mut text = error.to_string();
    if let Some(start) = text.find(POSITION) {
        let end = text[start..].find(')').map_or(text.len(), |length| start + length + 1);
        text.replace_range(start..end, "");
    }
    let lines: Vec<_> = text.split(char::is_control).map(str::trim).filter(|line| !line.is_empty()).collect();
    let line = lines.join("; ");
    line[..line.floor_char_boundary(MAX_REASON_BYTES)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An offer of one section of audio with these lines at the end of the session, and at the end of the section.
    fn audio_offer(of_session: &str, of_section: &str) -> String {
        let fingerprint = ["AB"; 32].join(":");
        format!(
            "v=0\r\no=- 1 2 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\na=group:BUNDLE 0\r\n{of_session}\
             m=audio 9 UDP/TLS/RTP/SAVPF 111\r\nc=IN IP4 0.0.0.0\r\na=ice-ufrag:abcd\r\n\
             a=ice-pwd:abcdabcdabcdabcdabcdabcd\r\na=fingerprint:sha-256 {fingerprint}\r\na=setup:actpass\r\n\
             a=mid:0\r\na=rtcp-mux\r\na=rtpmap:111 opus/48000/2\r\n{of_section}"
        )
    }

    #[test]
    fn a_section_without_a_direction_has_that_of_the_session_or_both() {
        let check = |sdp: &str, expect: &str| assert_eq!(with_directions(sdp), expect, "{sdp:?}");
        check("v=0\r\nm=audio 9\r\na=mid:0\r\n", "v=0\r\nm=audio 9\r\na=mid:0\r\na=sendrecv\r\n");
        check("v=0\nm=audio 9\na=mid:0", "v=0\nm=audio 9\na=mid:0\na=sendrecv\n");
        check(
            "v=0\r\na=recvonly\r\nm=audio 9\r\nm=video 9\r\na=inactive\r\nm=application 9\r\n",
            "v=0\r\na=recvonly\r\nm=audio 9\r\na=recvonly\r\nm=video 9\r\na=inactive\r\nm=application 9\r\n",
        );
        let complete = audio_offer("", "a=sendonly\r\n");
        check(&complete, &complete);
        assert!(read_offer(&audio_offer("", "")).is_ok());
    }

    #[test]
    fn a_refusal_is_one_line_without_addresses_of_this_process() {
        let refusal = read_offer(&audio_offer("", "a=sendrecv\r\na=recvonly\r\n")).expect_err("two directions");
        assert!(refusal.contains("exactly one of a=sendrecv"), "{refusal}");
        assert!(!refusal.contains("0x") && !refusal.contains(char::is_control), "{refusal}");
        let error = "Parse error at PointerOffset(0x7f3adc040e3f)\nUnexpected `m`\r\nExpected `a`\n";
        assert_eq!(brief(&error), "Parse error; Unexpected `m`; Expected `a`");
        assert_eq!(brief(&"x".repeat(300)).len(), MAX_REASON_BYTES);
    }

    #[test]
    fn messages_have_the_length_that_the_offer_allows() {
        let check = |application: &str, expect: Option<usize>| {
            let sdp = format!(
                "v=0\r\nm=audio 9\r\na=max-message-size:7\r\n{application}m=video 9\r\na=max-message-size:7\r\n"
            );
            assert_eq!(max_message_bytes(&sdp), expect, "{application}");
        };
        check("", None);
        check("m=application 9\r\na=sctp-port:5000\r\n", Some(65_536));
        check("m=application 9\r\na=max-message-size:0\r\n", Some(262_144));
        check("m=application 9\r\na=max-message-size:65535\r\n", Some(65_535));
        check("m=application 9\r\na=max-message-size:1073741823\r\n", Some(262_144));
    }
}
