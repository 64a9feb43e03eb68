//! What an API key may do: scopes, and the scope that each route needs.
//!
//! [`super::auth`] checks every request against [`needed`]. A route that has no line there needs an admin key, so that a new route
//! is closed until its line is written. Keys without a list of scopes, as in an environment variable, have [`Scopes::USUAL`].

use axum::http::Method;
use std::fmt;

/// One scope. The names are those of the keys' file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Scope {
    /// Sessions, short-lived keys for them, and their turns.
    Realtime,
    /// The speech API: speech, jobs, voices.
    Speech,
    /// Transcriptions and translations of files.
    Transcription,
    /// Pulling and removing models.
    Models,
    /// Everything, and what all keys do.
    Admin,
    /// Metrics, the hub's state, and the usage of all keys.
    Metrics,
}

/// The scopes of a key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::server) struct Scopes(u8);

/// What a route needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum AccessRequirement {
    /// Any valid key.
    Key,
    /// A key with this scope.
    Scope(Scope),
    /// The same; or a usual key, which sees less of it, or which the handler checks further.
    OrUsual(Scope),
}

impl Scope {
    pub(in crate::server) const ALL: [Self; 6] =
        [Self::Realtime, Self::Speech, Self::Transcription, Self::Models, Self::Admin, Self::Metrics];

    pub(in crate::server) fn name(self) -> &'static str {
        match self {
            Self::Realtime => "realtime",
            Self::Speech => "speech",
            Self::Transcription => "transcription",
            Self::Models => "models",
            Self::Admin => "admin",
            Self::Metrics => "metrics",
        }
    }

    pub(in crate::server) fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.name() == name)
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl Scopes {
    /// The mark of a key without a list of scopes.
    const UNLISTED: u8 = 1 << 7;
    /// None.
    pub(in crate::server) const NONE: Self = Self(0);
    /// Of a key without a list: sessions, speech and transcription; also metrics and state without what other keys do.
    pub(in crate::server) const USUAL: Self =
        Self(Self::UNLISTED | 1 << Scope::Realtime as u8 | 1 << Scope::Speech as u8 | 1 << Scope::Transcription as u8);
    /// Of an admin key, and of everybody where the hub has no keys.
    pub(in crate::server) const ALL: Self = Self(Self::UNLISTED | ((1 << Scope::ALL.len()) - 1));

    pub(in crate::server) fn with(self, scope: Scope) -> Self {
        Self(self.0 | scope.bit())
    }

    pub(in crate::server) fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// An admin key has every scope.
    pub(in crate::server) fn has(self, scope: Scope) -> bool {
        self.0 & (scope.bit() | Scope::Admin.bit()) != 0
    }

    /// Whether it has all that `other` has.
    pub(in crate::server) fn covers(self, other: Self) -> bool {
        Scope::ALL.into_iter().all(|scope| self.has(scope) || !other.has(scope))
    }

    /// Whether the key has no list of scopes.
    pub(in crate::server) fn are_usual(self) -> bool {
        self.0 & Self::UNLISTED != 0
    }

    /// Whether they suffice.
    ///
    /// # Errors
    /// The scope that is missing.
    pub(in crate::server) fn allow(self, needed: AccessRequirement) -> Result<(), Scope> {
        match needed {
            AccessRequirement::Key => Ok(()),
            AccessRequirement::OrUsual(_) if self.are_usual() => Ok(()),
            AccessRequirement::Scope(scope) | AccessRequirement::OrUsual(scope) => {
                if self.has(scope) {
                    Ok(())
                } else {
                    Err(scope)
                }
            }
        }
    }
}

impl fmt::Debug for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(Scope::ALL.into_iter().filter(|scope| self.has(*scope)).map(Scope::name)).finish()
    }
}

/// What a request needs; `route` is the pattern of its route. `None`: no route, so a static file or 404.
pub(in crate::server) fn needed(method: &Method, route: Option<&str>) -> AccessRequirement {
    let Some(route) = route else { return AccessRequirement::Key };
    match route {
        "/v1/realtime"
        | "/v1/rtvi"
        | "/v1/rtvi/start"
        | "/v1/rtvi/api/offer"
        | "/v1/rtvi/sessions/{id}/api/offer"
        | "/v1/realtime/client_secrets"
        | "/v1/realtime/sessions"
        | "/v1/telephony/{provider}"
        | "/v1/telephony/{provider}/{token}"
        | "/v1/telephony/twilio/voice"
        | "/v1/telephony/twilio/status"
        | "/v1/realtime/calls"
        | "/v1/realtime/calls/{id}"
        | "/v1/realtime/calls/{id}/accept"
        | "/v1/realtime/calls/{id}/hangup"
        | "/v1/realtime/calls/{id}/recording"
        | "/v1/realtime/calls/{id}/refer"
        | "/v1/realtime/calls/{id}/reject"
        | "/api/turns"
        | "/api/turns/live"
        | "/api/turns/{id}" => AccessRequirement::Scope(Scope::Realtime),
        "/v1/audio/speech"
        | "/v1/audio/speech/jobs"
        | "/v1/audio/speech/jobs/{id}"
        | "/v1/audio/speech/jobs/{id}/audio"
        | "/v1/audio/voices"
        | "/v1/audio/voices/{id}" => AccessRequirement::Scope(Scope::Speech),
        "/v1/audio/transcriptions" | "/v1/audio/translations" => AccessRequirement::Scope(Scope::Transcription),
        "/v1/models" | "/v1/models/{id}" | "/api/usage" | "/healthz" | "/readyz" => AccessRequirement::Key,
        "/api/models" | "/api/models/{name}/pull" if method == Method::GET || method == Method::HEAD => {
            AccessRequirement::Key
        }
        "/api/models/{name}" | "/api/models/{name}/pull" | "/api/llm/servers" => {
            AccessRequirement::OrUsual(Scope::Models)
        }
        "/metrics" | "/api/state" => AccessRequirement::OrUsual(Scope::Metrics),
        // What people said, in their own voices.
        "/api/turns/{id}/audio" => AccessRequirement::Scope(Scope::Admin),
        _ => AccessRequirement::Scope(Scope::Admin),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_admin_has_every_scope_and_others_what_is_listed() {
        let speech = Scopes::NONE.with(Scope::Speech);
        assert!(speech.has(Scope::Speech) && !speech.has(Scope::Realtime));
        assert!(Scope::ALL.into_iter().all(|scope| Scopes::NONE.with(Scope::Admin).has(scope)));
        assert!(!Scopes::USUAL.has(Scope::Metrics) && !Scopes::USUAL.has(Scope::Models));
        assert_eq!(speech.allow(AccessRequirement::Scope(Scope::Metrics)), Err(Scope::Metrics));
        assert_eq!(speech.allow(AccessRequirement::OrUsual(Scope::Metrics)), Err(Scope::Metrics), "it has a list");
        assert_eq!(Scopes::USUAL.allow(AccessRequirement::OrUsual(Scope::Metrics)), Ok(()));
        assert!(Scopes::ALL.covers(Scopes::USUAL) && !speech.covers(Scopes::USUAL));
        assert_eq!(format!("{speech:?}"), "[\"speech\"]");
    }

    /// The patterns of all routes, from the source.
    fn routes() -> Vec<String> {
        let mut routes = Vec::new();
        let mut folders = vec![std::path::PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src/server"))];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                // Pages are behind the router's fallback, which no route of theirs reaches; the other serves while engines load.
                let name = path.file_name().unwrap().to_string_lossy().into_owned();
                let is_other = ["pages.rs", "starting.rs"].contains(&name.as_str()) || name.ends_with("tests.rs");
                if path.is_dir() {
                    folders.push(path);
                } else if !is_other {
                    let text = std::fs::read_to_string(&path).unwrap();
                    let after = text.split("#[cfg(test)]").next().unwrap().split(".route(").skip(1);
                    let pattern =
                        |rest: &str| rest.trim_start().strip_prefix('"')?.split('"').next().map(str::to_owned);
                    routes.extend(after.filter_map(pattern));
                }
            }
        }
        routes
    }

    #[test]
    fn every_route_has_its_line() {
        let routes = routes();
        assert!(routes.len() > 25, "{routes:?}");
        for route in routes {
            for method in [Method::GET, Method::POST, Method::DELETE] {
                // `/api/models` has no other method than GET; recordings are for an admin.
                let is_admins = ["/api/models", "/api/turns/{id}/audio"].contains(&route.as_str());
                let is_known = needed(&method, Some(&route)) != AccessRequirement::Scope(Scope::Admin) || is_admins;
                assert!(is_known, "{method} {route} has no line in needed()");
            }
        }
        assert_eq!(needed(&Method::GET, Some("/api/new")), AccessRequirement::Scope(Scope::Admin));
    }
}
