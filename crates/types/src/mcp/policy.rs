//! Which of a server's tools a client lets the model use, and which calls wait for its consent.

use super::{RemoteTool, Server};
use serde::{Deserialize, Serialize};

/// A server and what may be done there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Declared {
    /// How it is reached.
    pub server: Server,
    /// The tools the model is shown; `None`: all.
    pub allowed: Option<Filter>,
    /// The calls that wait.
    pub consent: Consent,
}

/// Tools by name, or by what their server says of them. Both must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filter {
    /// These; `None`: any.
    pub names: Option<Vec<String>>,
    /// Those marked as changing nothing, or those not.
    pub read_only: Option<bool>,
}

/// Which calls wait for the client's consent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Consent {
    /// All.
    #[default]
    Always,
    /// None.
    Never,
    /// Those of `always`, and those that `never` does not name.
    ByTool {
        /// These wait.
        always: Option<Filter>,
        /// These do not.
        never: Option<Filter>,
    },
}

impl Declared {
    /// Whether the model is shown this tool.
    pub fn admits(&self, tool: &RemoteTool) -> bool {
        self.allowed.as_ref().is_none_or(|filter| filter.admits(tool))
    }

    /// Whether a call of it waits.
    pub fn asks_before(&self, tool: &RemoteTool) -> bool {
        self.consent.asks_before(tool)
    }
}

impl Consent {
    /// Whether a call of it waits.
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
    /// Whether it lets this tool through.
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
        let with = |consent| Declared { server: server.clone(), allowed: None, consent };
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
        let declared = Declared { allowed: read, ..with(Consent::Never) };
        assert_eq!([tool("a", true), tool("b", false)].map(|t| declared.admits(&t)), [true, false]);
    }
}
