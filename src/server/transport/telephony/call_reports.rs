//! Where the states of phone calls are reported: webhooks of the operator's (`sip.webhook_url`).
//!
//! Calls by SIP and by accounts report to it. It posts nothing itself and never waits.

use super::answering::AnsweredBy;
use crate::config::Config;
use crate::server::transport::calls::CallState;
use crate::server::transport::webhooks::{Deliveries, Webhooks};
use antiphon_types::small_file;
use serde_json::json;
use std::io;
use std::path::Path;

/// The longest file of the secret of webhooks.
const MAX_SECRET_FILE_BYTES: u64 = 4 << 10;

/// The webhooks of calls. Cheap to clone.
#[derive(Clone, Default)]
pub(in crate::server) struct CallWebhooks {
    /// Where calls are decided about; `None`: nowhere.
    pub(super) incoming: Option<Webhooks>,
    pub(super) reports: CallReports,
}

impl CallWebhooks {
    /// Those of the settings, with what delivers them; `None`: there are none, or no calls that they tell of.
    ///
    /// # Errors
    /// The file of the secret cannot be read or holds none.
    pub(in crate::server) fn open(config: &Config) -> io::Result<(Self, Option<Deliveries>)> {
        let has_calls = !config.sip.listen.is_empty() || !config.telephony.accounts.is_empty();
        let config = &config.sip;
        if config.webhook_url.is_empty() || !has_calls {
            return Ok((Self::default(), None));
        }
        let path = &config.webhook_secret_file;
        let unusable = |error: io::Error| io::Error::other(format!("sip.webhook_secret_file {path:?}: {error}"));
        let secret = small_file::read_text(Path::new(path), MAX_SECRET_FILE_BYTES).map_err(unusable)?;
        let (webhooks, deliveries) = Webhooks::new(&config.webhook_url, secret.trim()).map_err(unusable)?;
        let posts = |kind: &str| config.webhook_events.iter().any(|event| event == kind).then(|| webhooks.clone());
        Ok((Self { incoming: posts("incoming"), reports: CallReports(posts("states")) }, Some(deliveries)))
    }
}

/// Where the states of calls are reported; `None`: nowhere. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct CallReports(Option<Webhooks>);

impl CallReports {
    /// Reports how far a call is. `direction`: `in` or `out`.
    pub(super) fn report(&self, id: &str, direction: &'static str, state: CallState) {
        let kind = match state {
            // The former is not reported, the latter by [`Self::report_transfer`].
            CallState::Calling | CallState::Transferred => return,
            CallState::Ringing => "call.ringing",
            CallState::InProgress => "call.answered",
            CallState::Ended => "call.ended",
            CallState::Busy => "call.busy",
            CallState::Declined => "call.declined",
            CallState::NoAnswer => "call.no_answer",
            CallState::Failed => "call.failed",
        };
        if let Some(states) = &self.0 {
            states.send(kind, &json!({"call_id": id, "direction": direction}));
        }
    }

    /// Reports that a call is connected with another one. `direction`: `in` or `out`.
    pub(super) fn report_transfer(&self, id: &str, direction: &'static str, connected_to: &str) {
        if let Some(states) = &self.0 {
            let data = json!({"call_id": id, "direction": direction, "connected_to": connected_to});
            states.send("call.transferred", &data);
        }
    }

    /// Reports who has answered a call of ours.
    pub(super) fn report_answer(&self, id: &str, answered_by: AnsweredBy) {
        if let Some(states) = &self.0 {
            let data = json!({"call_id": id, "direction": "out", "answered_by": answered_by});
            states.send("call.answered_by", &data);
        }
    }
}
