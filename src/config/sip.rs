//! The `[sip]` section.

use super::server::network;
use antiphon_types::setting::Rule;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::sync::Arc;

/// SIP's ports (RFC 3261, section 19.1.2).
const PORT: u16 = 5_060;
const TLS_PORT: u16 = 5_061;
/// The longest instructions of a message: some two minutes of speech.
pub const MAX_VOICEMAIL_MESSAGE_BYTES: usize = 2_000;

antiphon_types::settings! {
    /// Phone calls by SIP: a trunk, a PBX or a phone calls the hub itself. What a call begins with is in
    /// [telephony.routes]. See docs/guide/sip.md.
    pub struct SipConfig in "sip" {
        /// Address and port, by UDP and TCP, such as "0.0.0.0:5060".
        pub listen: String = String::new(), Rule::ListenOrNone;
        /// Address and port by TLS, such as "0.0.0.0:5061". Calls by TLS may be encrypted (SRTP).
        pub tls_listen: String = String::new(), Rule::ListenOrNone;
        /// The file of its certificate, as server.tls_cert, read again on SIGHUP. "": the certificate of the hub's
        /// pages.
        pub tls_cert: String = String::new(), Rule::Text;
        /// The file of the certificate's private key.
        pub tls_key: String = String::new(), Rule::Text;
        /// The file of the authorities that vouch for trunks with transport = "tls". "": those that this machine
        /// trusts.
        pub tls_ca: String = String::new(), Rule::Text;
        /// The address under which peers reach the hub, behind a NAT the public one. "": that of listen, or of
        /// this machine.
        pub advertise: String = String::new(), Rule::AddressOrNone;
        /// The UDP ports of calls, two each: an even one for RTP, the next for RTCP; without a free pair a call is
        /// answered 503.
        pub rtp_port_min: u16 = 20_000, Rule::Whole(1_024, 65_535, "UDP port");
        /// The last of them.
        pub rtp_port_max: u16 = 20_999, Rule::Whole(1_024, 65_535, "UDP port");
        /// The codecs that are spoken, the preferred first: "opus", "g722", "pcma", "pcmu".
        pub codecs: Vec<String> =
            ["opus", "g722", "pcma", "pcmu"].map(str::to_owned).into(),
            Rule::Words(&["opus", "g722", "pcma", "pcmu"]);
        /// Where POST /v1/realtime/calls/ID/refer may transfer calls to: URIs, or beginnings of URIs that end
        /// in "*", such as ["tel:+49*", "sip:office@pbx.example.com"]. At most 1000, of at most 256 characters
        /// each.
        pub transfer_to: Vec<String> = Vec::new(), Rule::Texts(1_000, 256);
        /// Whom POST /v1/realtime/calls may call, written in the same way.
        pub call_to: Vec<String> = Vec::new(), Rule::Texts(1_000, 256);
        /// Calls out at a time; a further one is answered 429.
        pub max_calls_out: usize = 10, Rule::Whole(0, 4_096, "calls");
        /// Calls out for one API key in a minute; a further one is answered 429. 0: no limit.
        pub max_calls_out_per_minute: u32 = 60, Rule::Whole(0, 1_000, "calls; 0: no limit");
        /// When no call is made, in this machine's local time, such as "21:00-08:00"; a request is answered
        /// 403. "": never.
        pub quiet_hours: String = String::new(), Rule::Text;
        /// Whether the model may end a call, by the tool hang_up.
        pub tool_hang_up: bool = false, Rule::Switch;
        /// Whether the model may record a call or stop that, by the tool set_recording_consent, where
        /// telephony.recording_consent is "key".
        pub tool_recording_consent: bool = false, Rule::Switch;
        /// Whether the model may press keys by SIP and Asterisk, by the tool send_dtmf.
        pub tool_send_dtmf: bool = false, Rule::Switch;
        /// Whom the model may transfer a call to, by the tool transfer_call, by a name that it is told, such as
        /// { front_desk = "tel:+4930123" }; these need no entry in transfer_to. At most 64.
        pub tool_transfer_call: BTreeMap<String, String> = BTreeMap::new(), Rule::TextsByName(64, 256, "tel:+4930123");
        /// "blind": the other side calls the target in the hub's place. "warm": the hub calls it, says the model's
        /// summary and connects the caller; that is one of max_calls_out.
        pub tool_transfer_kind: TransferKind = TransferKind::Blind, Rule::OneOf(&["blind", "warm"]);
        /// What a call out does when an answering machine answers: "go_on", as with a person; "hang_up";
        /// "leave_message" after its beep, and then hang up; "ask_model": the model is told after the beep.
        pub on_voicemail: OnVoicemail =
            OnVoicemail::GoOn,
            Rule::OneOf(&["go_on", "hang_up", "leave_message", "ask_model"]);
        /// Instructions of the message that "leave_message" leaves. At most 2000 bytes.
        pub voicemail_message: String =
            "Leave a short message on this answering machine: who calls, and why. Then say goodbye."
                .into(),
            Rule::Text;
        /// Where signed webhooks of calls go, such as "https://calls.example.com/incoming", without '?'. "": all
        /// calls are answered.
        pub webhook_url: String = String::new(), Rule::UrlOrNone;
        /// What is posted there: "incoming", the question whether a call is answered; "states", how far calls
        /// are. Without "incoming" all calls are answered.
        pub webhook_events: Vec<String> = vec!["incoming".into()], Rule::Words(&["incoming", "states"]);
        /// The file of the secret that webhooks are signed with: whsec_ and 24 to 64 bytes in base64.
        pub webhook_secret_file: String = String::new(), Rule::Text;
        /// How long a call rings until a client accepts or rejects it.
        pub webhook_decision_seconds: u32 = 20, Rule::Whole(1, 120, "seconds");
        /// What becomes of a call without a decision: "refuse" (480), or "answer", as without a webhook.
        pub webhook_undecided: UndecidedCall = UndecidedCall::Refuse, Rule::OneOf(&["refuse", "answer"]);
        /// Who may call, by a name of yours: docs/guide/sip.md. An example: { office = { allow = ["10.0.0.5"] } }.
        pub trunks: BTreeMap<String, SipTrunk> = BTreeMap::new(), Rule::Trunks;
    }
}

/// What becomes of a call that no client accepts or rejects in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum UndecidedCall {
    /// It is refused with 480.
    #[default]
    Refuse,
    /// It is answered as without a webhook.
    Answer,
}

/// What a call of the hub does when an answering machine answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OnVoicemail {
    /// It goes on as with a person.
    #[default]
    GoOn,
    /// It ends.
    HangUp,
    /// It leaves a message after the beep and ends.
    LeaveMessage,
    /// The model is told after the beep, and decides.
    AskModel,
}

/// How the model's tool transfers a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TransferKind {
    /// The peer calls the target in the hub's place.
    #[default]
    Blind,
    /// The hub calls the target, tells it a summary and connects it with the caller.
    Warm,
}

/// How a trunk is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum SipTransport {
    #[default]
    Udp,
    Tcp,
    Tls,
}

/// Whether calls by TLS are encrypted by SRTP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SrtpUse {
    /// Where the peer does it, too.
    #[default]
    Optional,
    /// Always: other calls are refused, and those that do not come by TLS.
    Required,
}

/// A peer that may call.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct SipTrunk {
    /// Addresses and networks that it calls from.
    pub allow: Vec<String>,
    /// The user name of digest authentication: its, or, where the hub registers, the hub's.
    pub username: String,
    /// The environment variable of the password.
    pub password_env: String,
    /// Host, or host and port, of the registrar; empty: the hub does not register.
    pub register: String,
    /// The user that is registered, where that is not `username`.
    pub register_as: String,
    /// Host, or host and port, by which the hub calls; empty: that of `register`, else none.
    pub host: String,
    /// How the hub reaches `host` and `register`.
    pub transport: SipTransport,
    /// Whether its calls are encrypted.
    pub srtp: SrtpUse,
    /// Whether a warm transfer between two of its calls leaves them to it (REFER with Replaces).
    pub refer_replaces: bool,
    /// The caller that its calls show; empty: `register_as` or `username`.
    pub caller: String,
    /// Name of the API key that its calls belong to; empty: none.
    pub key: String,
    /// The route of its calls; empty: by the number that was called.
    pub route: String,
}

/// URIs that calls may be made or transferred to: whole ones, and beginnings, which end in `*`.
#[derive(Clone, Debug, Default)]
pub struct TransferTargets(Arc<[String]>);

/// Hours of each day, over midnight too: minutes since midnight, the first of them, and the first after them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuietHours {
    from: u16,
    until: u16,
}

impl QuietHours {
    /// Reads `21:00-08:00`. `None`: these are none.
    pub fn parse(text: &str) -> Option<Self> {
        let minute = |text: &str| {
            let (hour, minute) = text.trim().split_once(':')?;
            let hour: u16 = hour.parse().ok().filter(|hour| *hour < 24)?;
            let minute: u16 = minute.parse().ok().filter(|minute| *minute < 60)?;
            Some(60 * hour + minute)
        };
        let (from, until) = text.split_once('-')?;
        let hours = Self { from: minute(from)?, until: minute(until)? };
        (hours.from != hours.until).then_some(hours)
    }

    /// Whether they hold at this minute since midnight.
    pub fn contain(self, minute: u16) -> bool {
        if self.from < self.until {
            (self.from..self.until).contains(&minute)
        } else {
            minute >= self.from || minute < self.until
        }
    }
}

impl TransferTargets {
    /// These URIs and no others.
    pub fn exactly<'a>(uris: impl IntoIterator<Item = &'a String>) -> Self {
        Self(uris.into_iter().map(|uri| uri.to_ascii_lowercase()).collect())
    }

    /// Whether `target` is one of them, in any case.
    pub fn allow(&self, target: &str) -> bool {
        let target = target.to_ascii_lowercase();
        self.0.iter().any(|entry| match entry.strip_suffix('*') {
            Some(beginning) => target.starts_with(beginning),
            None => target == *entry,
        })
    }
}

impl SipConfig {
    /// `transfer_to`, to compare with.
    pub fn transfer_targets(&self) -> TransferTargets {
        TransferTargets(self.transfer_to.iter().map(|entry| entry.to_ascii_lowercase()).collect())
    }

    /// `call_to`, to compare with.
    pub fn call_targets(&self) -> TransferTargets {
        TransferTargets(self.call_to.iter().map(|entry| entry.to_ascii_lowercase()).collect())
    }

    /// What is wrong with the settings together.
    pub fn problems(&self) -> impl Iterator<Item = String> {
        let first = u32::from(self.rtp_port_min).next_multiple_of(2);
        let is_reversed = first + 1 > u32::from(self.rtp_port_max);
        let range = is_reversed
            .then(|| "sip.rtp_port_max: sip.rtp_port_min to it has no even port with the next one".to_owned());
        let of_trunks = self.trunks.iter().filter_map(|(name, trunk)| {
            let problem = trunk.problem()?;
            Some(format!("sip.trunks.{name}: {problem}"))
        });
        let is_target =
            |entry: &str| ["sip:", "sips:", "tel:"].iter().any(|scheme| entry.to_ascii_lowercase().starts_with(scheme));
        let lists = [("transfer_to", &self.transfer_to), ("call_to", &self.call_to)];
        let no_target = lists.into_iter().filter_map(move |(key, list)| {
            let entry = list.iter().find(|entry| !is_target(entry))?;
            Some(format!(
                "sip.{key}: {entry:?} does not begin with \"tel:\", \"sip:\" or \"sips:\", such as \"tel:+49*\""
            ))
        });
        let is_unsigned = !self.webhook_url.is_empty() && self.webhook_secret_file.is_empty();
        let unsigned = is_unsigned
            .then(|| "sip.webhook_url needs sip.webhook_secret_file, which webhooks are signed with".to_owned());
        let too_long = (self.voicemail_message.len() > MAX_VOICEMAIL_MESSAGE_BYTES)
            .then(|| format!("sip.voicemail_message has more than {MAX_VOICEMAIL_MESSAGE_BYTES} bytes"));
        let is_wrong = !self.quiet_hours.is_empty() && QuietHours::parse(&self.quiet_hours).is_none();
        let wrong_hours =
            is_wrong.then(|| format!("sip.quiet_hours: {:?} are no hours such as \"21:00-08:00\"", self.quiet_hours));
        let wrong_tool = self.tool_transfer_call.iter().find(|(name, uri)| {
            // A URI that ends in "*" would be a beginning, which nobody can be called by.
            name.trim().is_empty() || !is_target(uri) || uri.ends_with('*')
        });
        let wrong_tool = wrong_tool
            .map(|(name, uri)| format!("sip.tool_transfer_call.{name}: {uri:?} is no URI such as \"tel:+4930123\""));
        let has_tls = !self.tls_listen.is_empty();
        let alone = (has_tls && self.listen.is_empty())
            .then(|| "sip.tls_listen needs sip.listen, which turns SIP on".to_owned());
        let half = (self.tls_cert.is_empty() != self.tls_key.is_empty())
            .then(|| "sip.tls_cert and sip.tls_key belong together: set both, or none".to_owned());
        let needs_tls = |trunk: &&SipTrunk| trunk.transport == SipTransport::Tls || trunk.srtp == SrtpUse::Required;
        let insecure = self.trunks.iter().find(|(_, trunk)| !has_tls && needs_tls(trunk)).map(|(name, _)| {
            format!("sip.trunks.{name}: transport = \"tls\" and srtp = \"required\" need sip.tls_listen")
        });
        range
            .into_iter()
            .chain(alone)
            .chain(half)
            .chain(insecure)
            .chain(no_target)
            .chain(wrong_hours)
            .chain(too_long)
            .chain(wrong_tool)
            .chain(unsigned)
            .chain(of_trunks)
    }
}

impl SipTrunk {
    fn problem(&self) -> Option<&'static str> {
        if self.allow.iter().any(|text| network(text).is_none()) {
            return Some("'allow' is a list of addresses and networks, such as [\"203.0.113.0/24\"]");
        }
        if !self.register.is_empty() && self.registrar().is_none() {
            return Some("'register' is a host, or a host and a port, such as \"sip.example.com:5060\"");
        }
        if !self.register.is_empty() && self.username.is_empty() && self.register_as.is_empty() {
            return Some("'register' needs a 'username' or 'register_as'");
        }
        if self.username.contains(['"', '\\', '<', '>', '@', ' '])
            || self.register_as.contains(['"', '<', '>', '@', ' '])
        {
            return Some("a user name holds none of the characters \" \\ < > @ and no space");
        }
        if !self.host.is_empty() && host_and_port(&self.host, PORT).is_none() {
            return Some("'host' is a host, or a host and a port, such as \"sip.example.com:5060\"");
        }
        if self.caller.contains(['"', '<', '>', '@', ' ']) {
            return Some("'caller' is a number or a name, such as \"+15550100\"");
        }
        if self.srtp == SrtpUse::Required && self.outbound().is_some() && self.transport != SipTransport::Tls {
            return Some("srtp = \"required\" needs transport = \"tls\": keys travel by TLS only");
        }
        if !self.username.is_empty() && self.password_env.is_empty() {
            return Some("'username' needs 'password_env', the name of the environment variable with the password");
        }
        let is_open = self.allow.is_empty() && self.username.is_empty() && self.register.is_empty();
        is_open.then_some("it needs 'allow', or 'username' and 'password_env', or 'register': else anyone could call")
    }

    /// `allow` as networks. Invalid entries were rejected when the configuration was loaded.
    pub fn networks(&self) -> Vec<IpNet> {
        self.allow.iter().filter_map(|text| network(text)).collect()
    }

    /// Host and port of `register`.
    pub fn registrar(&self) -> Option<(String, u16)> {
        host_and_port(&self.register, self.port())
    }

    /// Host and port by which the hub calls.
    pub fn outbound(&self) -> Option<(String, u16)> {
        host_and_port(&self.host, self.port()).or_else(|| self.registrar())
    }

    /// The port of its transport.
    fn port(&self) -> u16 {
        if self.transport == SipTransport::Tls { TLS_PORT } else { PORT }
    }
}

/// A host, an IPv6 address in brackets, and the port: `standard` where there is none.
fn host_and_port(text: &str, standard: u16) -> Option<(String, u16)> {
    if let Some((address, rest)) = text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        let _: Ipv6Addr = address.parse().ok()?;
        let port = match rest.strip_prefix(':') {
            Some(port) => port.parse().ok().filter(|port| *port > 0)?,
            None => Some(standard).filter(|_| rest.is_empty())?,
        };
        return Some((format!("[{address}]"), port));
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => (host, port.parse().ok().filter(|port| *port > 0)?),
        None => (text, standard),
    };
    let is_host = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    (!host.is_empty() && host.chars().all(is_host)).then(|| (host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trunk_that_anyone_could_use_is_refused() {
        let trunk = |change: fn(&mut SipTrunk)| {
            let mut trunk = SipTrunk::default();
            change(&mut trunk);
            trunk.problem()
        };
        assert!(trunk(|_| {}).unwrap().contains("anyone"));
        assert_eq!(trunk(|trunk| trunk.allow = vec!["203.0.113.0/24".into()]), None);
        assert!(trunk(|trunk| trunk.allow = vec!["everyone".into()]).is_some());
        assert!(trunk(|trunk| trunk.username = "ann".into()).unwrap().contains("password_env"));
        let registered = |host: &str| {
            let trunk = SipTrunk { register: host.into(), register_as: "100".into(), ..SipTrunk::default() };
            (trunk.problem().is_none(), trunk.registrar())
        };
        assert_eq!(registered("sip.example.com"), (true, Some(("sip.example.com".into(), 5_060))));
        assert_eq!(registered("10.0.0.1:5080"), (true, Some(("10.0.0.1".into(), 5_080))));
        assert_eq!(registered("[2001:db8::1]:5080"), (true, Some(("[2001:db8::1]".into(), 5_080))));
        assert_eq!(registered("[::1]"), (true, Some(("[::1]".into(), 5_060))));
        for wrong in ["sip:example.com", "::1", "[::1", "[example.com]", "[::1]5060", "[::1]:0"] {
            assert_eq!(registered(wrong), (false, None), "{wrong}");
        }
        let config = SipConfig { webhook_url: "http://127.0.0.1:9".into(), ..SipConfig::default() };
        assert!(config.problems().next().is_some_and(|problem| problem.contains("webhook_secret_file")));
        for (rtp_port_min, rtp_port_max, n) in [(20_001, 20_002, 1), (20_001, 20_003, 0), (65_535, 65_535, 1)] {
            let config = SipConfig { rtp_port_min, rtp_port_max, ..SipConfig::default() };
            assert_eq!(config.problems().count(), n, "{rtp_port_min} to {rtp_port_max}");
        }
    }

    #[test]
    fn keys_for_srtp_travel_by_tls_only() {
        let problem = |tls_listen: &str, transport: SipTransport, srtp: SrtpUse| {
            let host = "sip.example.com".into();
            let trunk = SipTrunk { allow: vec!["::1".into()], host, transport, srtp, ..SipTrunk::default() };
            let listen = "0.0.0.0:5060".into();
            let trunks = [("office".to_owned(), trunk)].into();
            let config = SipConfig { listen, tls_listen: tls_listen.into(), trunks, ..SipConfig::default() };
            config.problems().next().unwrap_or_default()
        };
        assert_eq!(problem("0.0.0.0:5061", SipTransport::Tls, SrtpUse::Required), "");
        assert_eq!(problem("", SipTransport::Tcp, SrtpUse::Optional), "");
        assert!(problem("", SipTransport::Tls, SrtpUse::Optional).contains("sip.tls_listen"));
        assert!(problem("0.0.0.0:5061", SipTransport::Udp, SrtpUse::Required).contains("by TLS only"));
        let secure = SipTrunk { host: "[::1]".into(), transport: SipTransport::Tls, ..SipTrunk::default() };
        assert_eq!(secure.outbound(), Some(("[::1]".into(), 5_061)));
        for config in [
            SipConfig { tls_listen: "0.0.0.0:5061".into(), ..SipConfig::default() },
            SipConfig { tls_cert: "a".into(), ..SipConfig::default() },
        ] {
            assert!(config.problems().next().is_some_and(|problem| problem.starts_with("sip.tls_")));
        }
    }

    #[test]
    fn quiet_hours_go_over_midnight() {
        let quiet = |text: &str| {
            let hours = QuietHours::parse(text).unwrap();
            [0, 8 * 60 - 1, 8 * 60, 12 * 60, 21 * 60, 24 * 60 - 1].map(|minute| hours.contain(minute))
        };
        assert_eq!(quiet("21:00-08:00"), [true, true, false, false, true, true]);
        assert_eq!(quiet("08:00 - 12:00"), [false, false, true, false, false, false]);
        for wrong in ["", "21-8", "24:00-08:00", "21:60-08:00", "08:00-08:00", "-1:00-08:00"] {
            assert_eq!(QuietHours::parse(wrong), None, "{wrong:?}");
        }
        let config = SipConfig { voicemail_message: "x".repeat(2_001), ..SipConfig::default() };
        assert!(config.problems().next().is_some_and(|problem| problem.starts_with("sip.voicemail_message")));
        let config = SipConfig { quiet_hours: "at night".into(), ..SipConfig::default() };
        assert!(config.problems().next().is_some_and(|problem| problem.contains("21:00-08:00")));
    }

    #[test]
    fn calls_are_transferred_to_what_is_listed_only() {
        let transfer_to = ["tel:+49*", "sip:Office@pbx.example.com"].map(str::to_owned).into();
        let config = SipConfig { transfer_to, ..SipConfig::default() };
        assert_eq!(config.problems().count(), 0);
        let targets = config.transfer_targets();
        for (target, is_allowed) in [
            ("tel:+4930123", true),
            ("TEL:+4930123", true),
            ("tel:+33123", false),
            ("sip:office@PBX.example.com", true),
            ("sip:office@pbx.example.com.example.net", false),
        ] {
            assert_eq!(targets.allow(target), is_allowed, "{target}");
        }
        assert!(!SipConfig::default().transfer_targets().allow("tel:+4930123"));
        let config = SipConfig { transfer_to: vec!["*".into()], ..SipConfig::default() };
        assert!(config.problems().next().is_some_and(|problem| problem.contains("tel:+49*")));
    }
}
