//! What all calls by SIP need of the settings, and where their states are reported.
//!
//! [`super::Sip`] makes it; calls read it. Nothing blocks.

use super::ports::RtpPorts;
use crate::config::{OnVoicemail, SrtpUse, TransferTargets, UndecidedCall};
use crate::server::access::keys::Keys;
use crate::server::transport::telephony::call_reports::CallReports;
use crate::server::transport::telephony::tools::ToolSettings;
use crate::server::transport::webhooks::Webhooks;
use antiphon_sip::Transport;
use antiphon_sip::sdp::{Codec, MasterKey, Protection};
use antiphon_types::KeyId;
use std::time::Duration;

/// What calls of one trunk begin with.
#[derive(Clone, Debug)]
pub(super) struct TrunkSettings {
    /// The API key that its calls belong to, by name; empty: none.
    pub(super) key: String,
    /// The route of its calls; empty: by the number that was called.
    pub(super) route: String,
    /// Whether its calls are encrypted.
    pub(super) srtp: SrtpUse,
    /// Whether it is asked to connect two of its calls itself.
    pub(super) refer_replaces: bool,
}

/// How a call by this transport is protected, with our key. Keys travel by TLS only: without it, there is no SRTP.
pub(super) fn protection(transport: Transport, srtp: SrtpUse, key: &MasterKey) -> Protection<'_> {
    match (transport, srtp) {
        (Transport::Udp | Transport::Tcp, _) => Protection::Off,
        (Transport::Tls, SrtpUse::Optional) => Protection::Optional(key),
        (Transport::Tls, SrtpUse::Required) => Protection::Required(key),
    }
}

/// What all calls need.
pub(super) struct CallSettings {
    pub(super) trunks: Vec<TrunkSettings>,
    pub(super) codecs: Vec<Codec>,
    pub(super) ports: RtpPorts,
    pub(super) transfer_to: TransferTargets,
    pub(super) tools: ToolSettings,
    /// `None`: every call is answered.
    pub(super) webhook: Option<CallWebhook>,
    /// Where the states of calls are reported.
    pub(super) reports: CallReports,
    /// What calls of ours do when an answering machine answers, and what they say to it.
    pub(super) on_voicemail: OnVoicemail,
    pub(super) voicemail_message: String,
}

/// Who decides whether a call is answered.
pub(super) struct CallWebhook {
    pub(super) webhooks: Webhooks,
    pub(super) decides_within: Duration,
    pub(super) undecided: UndecidedCall,
}

/// The key that a trunk's calls belong to.
///
/// # Errors
/// The name is of no key, or the key has expired: a session of it would end at once.
pub(super) fn owner(keys: &Keys, name: &str) -> Result<Option<KeyId>, &'static str> {
    if name.is_empty() {
        return Ok(None);
    }
    let id = keys.id_by_name(name).ok_or("the key of the trunk is no API key of this hub")?;
    keys.contain(id).then_some(Some(id)).ok_or("the API key of the trunk has expired")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::access::keys::{digest, hex};

    #[test]
    fn a_trunk_has_no_calls_of_a_key_that_has_expired() {
        let owner_until = |expires: &str| {
            let digest = hex(&digest("desk"));
            let entry = format!("[[key]]\nname = \"desk\"\nsha256 = \"{digest}\"\nexpires = {expires}\n");
            owner(&Keys::of_text(&entry).expect("a key"), "desk")
        };
        assert!(owner_until("2999-01-01T00:00:00Z").is_ok_and(|owner| owner.is_some()));
        assert_eq!(owner_until("2020-01-01T00:00:00Z"), Err("the API key of the trunk has expired"));
        assert_eq!(owner(&Keys::default(), ""), Ok(None));
    }
}
