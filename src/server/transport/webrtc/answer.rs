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
    SdpOffer::from_sdp_string(sdp).map_err(|error| format!("The offer cannot be read: {}.", brief(&error)))
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

/// An error of the parser, which may quote the whole offer.
pub(super) fn brief(error: &impl ToString) -> String {
    let text = error.to_string();
    text[..text.floor_char_boundary(MAX_REASON_BYTES)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

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
