//! Which tools of a server the model may use, and which calls need the client's approval.

use super::{RemoteTool, Server};
use serde::{Deserialize, Serialize};

/// A declared server and the policy for its tools.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeclaredServer {
    /// How to reach the server.
    pub server: Server,
    /// Tools offered to the model; `None`: all of them.
    pub allowed: Option<Filter>,
    /// Calls that need approval.
    pub consent: Consent,
}

/// Selects tools by name and by annotation. A tool must match both conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filter {
    /// Accepted names; `None`: any name.
    pub names: Option<Vec<String>>,
    /// Required value of [`RemoteTool::is_read_only`]; `None`: either value.
    pub read_only: Option<bool>,
}

/// Which calls need the client's approval.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Consent {
    /// All calls.
    #[default]
    Always,
    /// No call.
    Never,
    /// Calls that match `always`, and calls that do not match `never`.
    ByTool {
        /// Calls that need approval.
        always: Option<Filter>,
        /// Calls that do not.
        never: Option<Filter>,
    },
}

impl DeclaredServer {
    /// Whether the tool is offered to the model.
    pub fn admits(&self, tool: &RemoteTool) -> bool {
        self.allowed.as_ref().is_none_or(|filter| filter.admits(tool))
    }

    /// Whether a call of the tool needs approval.
    pub fn asks_before(&self, tool: &RemoteTool) -> bool {
        self.consent.asks_before(tool)
    }
}

impl Consent {
    /// Whether a call of the tool needs approval.
    pub fn asks_before(&self, tool: &RemoteTool) -> bool {
        let named = |filter: &Option<Filter>| filter.as_ref().is_some_and(|filter| filter.admits(tool));
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::ByTool { always, never } => named(always) || !named(never),
        }
    }
}

impl Filter {
    /// Whether the tool matches the filter.
    pub fn admits(&self, tool: &RemoteTool) -> bool {
        self.names.as_ref().is_none_or(|names| names.contains(&tool.name))
            && self.read_only.is_none_or(|wanted| wanted == tool.is_read_only())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn consent_is_asked_unless_it_was_given() {
        let tool = |name: &str, read_only: bool| RemoteTool {
            name: name.into(),
            description: String::new(),
            input_schema: json!({}).into(),
            annotations: Some(json!({"readOnlyHint": read_only})),
        };
        let server =
            Server { label: "s".into(), url: "http://h/".into(), authorization: None, headers: Default::default() };
        let named = |name: &str| Some(Filter { names: Some(vec![name.into()]), read_only: None });
        let with = |consent| DeclaredServer { server: server.clone(), allowed: None, consent };
        let read = Some(Filter { names: None, read_only: Some(true) });
        for (consent, asks) in [
            (Consent::Always, [true, true]),
            (Consent::Never, [false, false]),
            (Consent::ByTool { always: None, never: named("a") }, [false, true]),
            (Consent::ByTool { always: named("a"), never: named("a") }, [true, true]),
            (Consent::ByTool { always: None, never: read.clone() }, [false, true]),
            (Consent::ByTool { always: None, never: None }, [true, true]),
        ] {
            let declared = with(consent.clone());
            assert_eq!([tool("a", true), tool("b", false)].map(|t| declared.asks_before(&t)), asks, "{consent:?}");
        }
        let declared = DeclaredServer { allowed: read, ..with(Consent::Never) };
        assert_eq!([tool("a", true), tool("b", false)].map(|t| declared.admits(&t)), [true, false]);
    }
}
