//! Which routes answer without a key, and which ones pages of other origins may call.
//!
//! [`crate::server::access::auth`], [`super::cors`] and [`super::starting`] ask it by method and path. It knows no
//! handler.

use axum::http::Method;

/// Routes that need no key: probes, static page files, and the socket, the offers of calls and telephony, which authenticate by
/// themselves.
pub(in crate::server) fn is_open(method: &Method, path: &str) -> bool {
    let is_page = || super::assets::asset(path.trim_start_matches('/')).is_some() && !is_dashboard(path);
    let reads = method == Method::GET || method == Method::HEAD;
    let is_webhook = matches!(path, "/v1/telephony/twilio/voice" | "/v1/telephony/twilio/status");
    let is_offer = method == Method::POST && (matches!(path, "/v1/realtime" | "/v1/realtime/calls") || is_webhook);
    let is_stream = reads && path.starts_with("/v1/telephony/");
    let is_rtvi = (method == Method::POST || method == Method::PATCH) && is_rtvi_call(path);
    is_offer
        || is_rtvi
        || is_stream
        || reads && (matches!(path, "/healthz" | "/readyz" | "/v1/realtime" | "/v1/rtvi") || is_page())
}

/// Whether it is a page of the dashboard, which needs a key.
pub(in crate::server) fn is_dashboard(path: &str) -> bool {
    path.starts_with("/dashboard")
}

/// Whether pages of any origin may call this where keys are on: a page cannot send a key that it was not given.
pub(in crate::server) fn is_call(path: &str) -> bool {
    path == "/v1/realtime/calls"
        || path == "/v1/realtime"
        || is_rtvi_call(path)
        || path.strip_prefix("/v1/realtime/calls/").is_some_and(|rest| rest.ends_with("/hangup"))
}

/// The paths of pipecat's small-webrtc transport.
pub(in crate::server) fn is_rtvi_call(path: &str) -> bool {
    let Some(rest) = path.strip_prefix("/v1/rtvi/") else { return false };
    matches!(rest, "start" | "api/offer") || rest.starts_with("sessions/") && rest.ends_with("/api/offer")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_page_and_the_probes_are_open() {
        let check =
            |method: Method, path: &str, open: bool| assert_eq!(is_open(&method, path), open, "{method} {path}");
        for path in ["/", "/index.html", "/healthz", "/readyz", "/v1/realtime"] {
            check(Method::GET, path, true);
        }
        for path in ["/metrics", "//metrics", "/dashboard", "/dashboard.html", "/api/turns", "/v1/audio/voices", "/no"]
        {
            check(Method::GET, path, false);
        }
        check(Method::POST, "/v1/realtime/client_secrets", false);
        check(Method::POST, "/v1/realtime/calls", true);
        check(Method::GET, "/v1/telephony/plivo/a-token", true);
        check(Method::POST, "/v1/telephony/twilio/voice", true);
        check(Method::POST, "/v1/telephony/twilio/status", true);
        check(Method::POST, "/v1/telephony/plivo", false);
        check(Method::POST, "/v1/realtime/calls/rtc_1/hangup", false);
        check(Method::POST, "/", false);
    }
}
