//! The security headers of every response.
//!
//! [`crate::server::access::guard`] adds them to what the routes answer, [`super::starting`] to what is answered while
//! engines are loaded. Pages set a Content-Security-Policy of their own ([`super::pages`]), to which the permitted
//! embedders are added here.

use super::origin::without_port;
use super::tls::Tls;
use crate::config::ServerConfig;
use arc_swap::ArcSwap;
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::Response;
use std::net::IpAddr;
use std::sync::Arc;

/// The policy of a response that is no page: a browser that is made to show it runs and loads nothing.
const NOTHING: &str = "default-src 'none'";

const PERMISSIONS_POLICY: HeaderName = HeaderName::from_static("permissions-policy");
/// Which pages may load a response as a script, picture or sound without asking (CORP).
pub(in crate::server) const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// The headers, made once from the configuration.
pub(in crate::server) struct SecurityHeaders {
    /// The directive `frame-ancestors` with its sources.
    frame_ancestors: String,
    permissions: Option<HeaderValue>,
    transport: Option<HeaderValue>,
}

impl SecurityHeaders {
    pub(in crate::server) fn new(config: &ServerConfig) -> Self {
        let ancestors = match config.frame_ancestors.is_empty() {
            true => "'none'".to_owned(),
            false => config.frame_ancestors.join(" "),
        };
        let max_age = (config.hsts_seconds > 0).then(|| format!("max-age={}", config.hsts_seconds));
        Self {
            frame_ancestors: format!("frame-ancestors {ancestors}"),
            // The configuration was checked: it is text of a header.
            permissions: HeaderValue::from_str(&config.permissions_policy).ok().filter(|policy| !policy.is_empty()),
            transport: max_age.and_then(|value| HeaderValue::try_from(value).ok()),
        }
    }

    /// Adds the headers. `tls`: the certificate that the hub serves itself; `None`: plain HTTP, where the proxy in front of it
    /// decides about transport security. `is_local`: the request was sent to [a name of the client's own machine](is_local).
    pub(in crate::server) fn seal(
        &self,
        mut response: Response,
        tls: Option<&ArcSwap<Tls>>,
        is_local: bool,
    ) -> Response {
        let headers = response.headers_mut();
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        // Files for other pages say otherwise: [`super::pages`].
        headers.entry(RESOURCE_POLICY).or_insert(HeaderValue::from_static("same-origin"));
        // Responses that may be cached set their own Cache-Control.
        headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
        let own = headers.get(header::CONTENT_SECURITY_POLICY).and_then(|policy| policy.to_str().ok());
        let policy = format!("{}; {}", own.unwrap_or(NOTHING), self.frame_ancestors);
        if let Ok(policy) = HeaderValue::try_from(policy) {
            headers.insert(header::CONTENT_SECURITY_POLICY, policy);
        }
        if let Some(permissions) = &self.permissions {
            headers.insert(PERMISSIONS_POLICY, permissions.clone());
        }
        // A browser that has seen this header keeps to TLS, which would be a dead end with a certificate that no authority vouches for.
        let is_vouched_for = tls.is_some_and(|tls| !tls.load().is_self_signed());
        // On `localhost` it would bind all other servers on the client's machine, whose ports are no part of the promise.
        if let Some(transport) = self.transport.as_ref().filter(|_| is_vouched_for && !is_local) {
            headers.insert(header::STRICT_TRANSPORT_SECURITY, transport.clone());
        }
        response
    }
}

/// Whether a request names the client's own machine as its host: `localhost`, a name below it, or a loopback address.
pub(in crate::server) fn is_local(request: &Request) -> bool {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    let name =
        without_port(host.or(request.uri().host()).unwrap_or_default()).trim_end_matches('.').to_ascii_lowercase();
    let address = name.trim_matches(['[', ']']).parse::<IpAddr>();
    name == "localhost" || name.ends_with(".localhost") || address.is_ok_and(|it| it.to_canonical().is_loopback())
}

/// Shared by the hub and what answers before it.
pub(in crate::server) type Certificate = Option<Arc<ArcSwap<Tls>>>;

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    fn sealed(config: &ServerConfig, tls: Option<&ArcSwap<Tls>>, policy: Option<&str>) -> Response {
        let mut response = Response::new(Body::empty());
        if let Some(policy) = policy {
            let policy = HeaderValue::from_str(policy).unwrap();
            response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
        }
        SecurityHeaders::new(config).seal(response, tls, false)
    }

    fn text(response: &Response, name: HeaderName) -> Option<&str> {
        response.headers().get(name).map(|value| value.to_str().unwrap())
    }

    #[test]
    fn nothing_may_embed_a_response_unless_it_is_listed() {
        let mut config = ServerConfig::default();
        let response = sealed(&config, None, None);
        let policy = text(&response, header::CONTENT_SECURITY_POLICY);
        assert_eq!(policy, Some("default-src 'none'; frame-ancestors 'none'"));
        assert!(text(&response, PERMISSIONS_POLICY).is_some_and(|policy| policy.contains("microphone=(self)")));
        config.frame_ancestors = vec!["https://shop.example".into(), "https://blog.example".into()];
        config.permissions_policy.clear();
        let response = sealed(&config, None, Some("default-src 'self'"));
        let policy = text(&response, header::CONTENT_SECURITY_POLICY);
        let expect = "default-src 'self'; frame-ancestors https://shop.example https://blog.example";
        assert_eq!((policy, text(&response, PERMISSIONS_POLICY)), (Some(expect), None));
    }

    #[test]
    fn names_of_the_clients_own_machine_are_known() {
        let to = |host: &str| Request::builder().header(header::HOST, host).body(Body::empty()).unwrap();
        for host in [
            "localhost",
            "LocalHost:8443",
            "localhost.:8443",
            "hub.localhost",
            "127.0.0.1",
            "127.1.2.3:8443",
            "[::1]",
            "[::1]:8443",
            "[::ffff:127.0.0.1]:443",
        ] {
            assert!(is_local(&to(host)), "{host}");
        }
        for host in ["voice.example", "localhost.example:443", "notlocalhost", "10.0.0.1", "[2001:db8::1]:443", ""] {
            assert!(!is_local(&to(host)), "{host}");
        }
        assert!(is_local(&Request::builder().uri("https://localhost/").body(Body::empty()).unwrap()));
    }

    #[test]
    fn only_a_certificate_of_an_authority_binds_browsers_to_tls() {
        let config = ServerConfig::default();
        let name = header::STRICT_TRANSPORT_SECURITY;
        assert_eq!(text(&sealed(&config, None, None), name.clone()), None);
        let (own, _) = Tls::self_signed(&[]).unwrap();
        let serving = ArcSwap::from_pointee(own);
        assert_eq!(text(&sealed(&config, Some(&serving), None), name.clone()), None);
        serving.store(Arc::new(Tls::signed_for_tests()));
        assert_eq!(text(&sealed(&config, Some(&serving), None), name.clone()), Some("max-age=31536000"));
        let local = SecurityHeaders::new(&config).seal(Response::new(Body::empty()), Some(&serving), true);
        assert_eq!(text(&local, name.clone()), None);
        let off = ServerConfig { hsts_seconds: 0, ..config };
        assert_eq!(text(&sealed(&off, Some(&serving), None), name), None);
    }
}
