//! The `[sip]` section.

use super::server::network;
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

/// Settings of phone calls by SIP. Each key is documented in `configs/default.toml`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct SipConfig {
    /// Address and port to listen on, by UDP and TCP; empty: no SIP.
    pub listen: String,
    /// Address and port to listen on by TLS; empty: no TLS.
    pub tls_listen: String,
    /// The files of the certificate and its key; empty: those of the hub's pages.
    pub tls_cert: String,
    /// See [`SipConfig::tls_cert`].
    pub tls_key: String,
    /// The file of the authorities that vouch for trunks; empty: those of the machine.
    pub tls_ca: String,
    /// The address under which peers reach it; empty: that of `listen`, or the machine's.
    pub advertise: String,
    /// The first and the last UDP port of calls, two of each: an even one and the next.
    pub rtp_port_min: u16,
    /// See [`SipConfig::rtp_port_min`].
    pub rtp_port_max: u16,
    /// The codecs that are spoken, the preferred first.
    pub codecs: Vec<String>,
    /// Where calls may be transferred to; see [`TransferTargets`].
    pub transfer_to: Vec<String>,
    /// Who may be called; see [`TransferTargets`].
    pub call_to: Vec<String>,
    /// Calls that the hub makes at a time.
    pub max_calls_out: usize,
    /// Calls that the hub makes for one key in a minute; 0: no limit.
    pub max_calls_out_per_minute: u32,
    /// When nobody is called, in the machine's local time; empty: never. See [`QuietHours`].
    pub quiet_hours: String,
    /// Where the hub asks whether to answer a call; empty: it answers all calls.
    pub webhook_url: String,
    /// What is posted there: `incoming`, the question whether to answer a call; `states`, how far calls are.
    pub webhook_events: Vec<String>,
    /// The file of the secret that webhooks are signed with.
    pub webhook_secret_file: String,
    /// Whether the model may end a call.
    pub tool_hang_up: bool,
    /// Whether the model may press keys.
    pub tool_send_dtmf: bool,
    /// Where the model may transfer calls to: URIs by a name that it is told.
    pub tool_transfer_call: BTreeMap<String, String>,
    /// What a call of the hub does when an answering machine answers.
    pub on_voicemail: OnVoicemail,
    /// Instructions of the message that is left on an answering machine.
    pub voicemail_message: String,
    /// How long a call rings until a client accepts or rejects it, in seconds.
    pub webhook_decision_seconds: u32,
    /// What becomes of a call that no client has decided about.
    pub webhook_undecided: UndecidedCall,
    /// Who may call, by a name of the operator's.
    pub trunks: BTreeMap<String, SipTrunk>,
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
    /// The caller that its calls show; empty: `register_as` or `username`.
    pub caller: String,
    /// Name of the API key that its calls belong to; empty: none.
    pub key: String,
    /// The route of its calls; empty: by the number that was called.
    pub route: String,
}

impl Default for SipConfig {
    fn default() -> Self {
        Self {
            listen: String::new(),
            tls_listen: String::new(),
            tls_cert: String::new(),
            tls_key: String::new(),
            tls_ca: String::new(),
            advertise: String::new(),
            rtp_port_min: 20_000,
            rtp_port_max: 20_999,
            codecs: ["opus", "g722", "pcma", "pcmu"].map(str::to_owned).into(),
            transfer_to: Vec::new(),
            call_to: Vec::new(),
            max_calls_out: 10,
            max_calls_out_per_minute: 60,
            quiet_hours: String::new(),
            tool_hang_up: false,
            tool_send_dtmf: false,
            tool_transfer_call: BTreeMap::new(),
            on_voicemail: OnVoicemail::GoOn,
            voicemail_message: "Leave a short message on this answering machine: who calls, and why. Then say goodbye."
                .into(),
            webhook_url: String::new(),
            webhook_events: vec!["incoming".into()],
            webhook_secret_file: String::new(),
            webhook_decision_seconds: 20,
            webhook_undecided: UndecidedCall::Refuse,
            trunks: BTreeMap::new(),
        }
    }
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
