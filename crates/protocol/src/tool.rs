//! Tools declared by a client, and the tool choice.

use super::error::WireError;
use super::limits::{MAX_TOOLS, MAX_TOOLS_BYTES};
use super::mcp::{MAX_SERVERS, McpServer};
use super::read::{Node, Read, bad};
use super::setting::{MAX_NAME_BYTES, read_type};
use antiphon_types::Json;
use serde::{Serialize, Serializer};
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};

/// A tool the model may call.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Tool {
    /// A client-side function.
    Function {
        /// Name; unique in its list.
        name: String,
        /// What the function does, for the model.
        #[serde(skip_serializing_if = "Option::is_none")]
        description: Option<String>,
        /// JSON Schema of the arguments.
        #[serde(skip_serializing_if = "Option::is_none")]
        parameters: Option<Json>,
    },
    /// The tools of a remote server.
    Mcp(McpServer),
}

impl Tool {
    pub(super) fn read(node: Node) -> Read<Self> {
        let mut fields = node.object()?;
        if read_type(&mut fields, &["function", "mcp"])? == "mcp" {
            return McpServer::read_rest(fields).map(Self::Mcp);
        }
        let name = fields.required("name", read_name)?;
        let tool = Self::Function {
            description: fields.optional("description", Node::text)?,
            parameters: fields.optional("parameters", |node| read_schema(node, &name))?,
            name,
        };
        fields.pass_over(&["strict"]);
        fields.finish()?;
        Ok(tool)
    }

    /// Reads a list of tools; function names and server labels must be unique.
    pub(super) fn read_list(node: Node) -> Read<Vec<Self>> {
        let path = node.path().to_owned();
        node.check_bytes(MAX_TOOLS_BYTES)?;
        let tools = node.list_within(MAX_TOOLS, Self::read)?;
        let mut names = HashSet::new();
        for (index, tool) in tools.iter().enumerate() {
            let (name, field, what) = match tool {
                Self::Function { name, .. } => (name, "name", "function name"),
                Self::Mcp(server) => (&server.server_label, "server_label", "server label"),
            };
            if !names.insert((field, name)) {
                let problem = format!("duplicate {what} '{name}'. The names of tools must differ");
                return Err(bad(&format!("{path}[{index}].{field}"), "invalid_value", &problem));
            }
        }
        if names.iter().filter(|(field, _)| *field == "server_label").count() > MAX_SERVERS {
            let problem = format!("too many servers. Expected at most {MAX_SERVERS}");
            return Err(bad(&path, "array_above_max_length", &problem));
        }
        Ok(tools)
    }
}

/// Reads a function name in the form that all language model servers accept.
fn read_name(node: Node) -> Read<String> {
    let path = node.path().to_owned();
    let name = node.name(MAX_NAME_BYTES)?;
    if name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-') {
        return Ok(name);
    }
    let problem = "string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'";
    Err(bad(&path, "invalid_value", problem))
}

/// Reads the schema of a function's arguments, which must describe an object. The rest of the schema is not checked.
fn read_schema(node: Node, function: &str) -> Read<Json> {
    let path = node.path().to_owned();
    let schema = node.object()?.rest();
    let wrong = |got: String| {
        let message = format!("Invalid schema for function '{function}': {got}.");
        Err(WireError::invalid("invalid_function_parameters", message, Some(&path)))
    };
    match schema.get("type") {
        None => {}
        Some(kind) if kind == "object" => {}
        Some(kind) => return wrong(format!("schema must be a JSON Schema of 'type: \"object\"', got 'type: {kind}'")),
    }
    if schema.get("properties").is_some_and(|properties| !properties.is_object()) {
        return wrong("'properties' must be an object".into());
    }
    if schema.get("required").is_some_and(|names| !is_list_of_names(names)) {
        return wrong("'required' must be an array of strings".into());
    }
    Ok(Value::Object(schema).into())
}

fn is_list_of_names(value: &Value) -> bool {
    value.as_array().is_some_and(|names| names.iter().all(Value::is_string))
}

/// How the model chooses among the tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolChoice {
    /// The model decides.
    Auto,
    /// No tool call.
    None,
    /// At least one tool call.
    Required,
    /// This function.
    Function(String),
    /// A tool of this server.
    Mcp {
        /// Label of the server.
        server_label: String,
        /// Name of the tool; `None`: any.
        name: Option<String>,
    },
}

impl Serialize for ToolChoice {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => to.serialize_str("auto"),
            Self::None => to.serialize_str("none"),
            Self::Required => to.serialize_str("required"),
            Self::Function(name) => BTreeMap::from([("type", "function"), ("name", name)]).serialize(to),
            Self::Mcp { server_label, name } => {
                let mut fields = BTreeMap::from([("type", "mcp"), ("server_label", server_label)]);
                fields.extend(name.as_deref().map(|name| ("name", name)));
                fields.serialize(to)
            }
        }
    }
}

impl ToolChoice {
    pub(super) fn read(node: Node) -> Read<Self> {
        if node.is_string() {
            return node.one_of(&[("auto", Self::Auto), ("none", Self::None), ("required", Self::Required)]);
        }
        let mut fields = node.object()?;
        if read_type(&mut fields, &["function", "mcp"])? == "mcp" {
            let choice = Self::Mcp {
                server_label: fields.required("server_label", |node| node.name(MAX_NAME_BYTES))?,
                name: fields.optional("name", |node| node.name(MAX_NAME_BYTES))?,
            };
            fields.finish()?;
            return Ok(choice);
        }
        let name = fields.required("name", |node| node.name(MAX_NAME_BYTES))?;
        fields.finish()?;
        Ok(Self::Function(name))
    }

    /// Checks that the choice refers to a tool in `tools`; `param` is the path of the choice.
    ///
    /// # Errors
    /// `invalid_value` if it refers to a tool that is not among them.
    pub fn check(&self, tools: &[Tool], param: &str) -> Result<(), WireError> {
        match self {
            Self::Auto | Self::None | Self::Required => Ok(()),
            Self::Function(wanted) => {
                if tools.iter().any(|tool| matches!(tool, Tool::Function { name, .. } if name == wanted)) {
                    return Ok(());
                }
                let message = format!("Tool choice 'function' '{wanted}' not found in 'tools' parameter.");
                Err(WireError::invalid("invalid_value", message, Some(param)))
            }
            Self::Mcp { server_label, .. } => {
                if tools.iter().any(|tool| matches!(tool, Tool::Mcp(server) if server.server_label == *server_label)) {
                    return Ok(());
                }
                let message = format!("Tool choice 'mcp' '{server_label}' not found in 'tools' parameter.");
                Err(WireError::invalid("invalid_value", message, Some(param)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::parse;
    use serde_json::{Value, json};

    fn refused(tools: Value) -> (Option<&'static str>, Option<String>) {
        let update = json!({"type": "session.update", "session": {"type": "realtime", "tools": tools}});
        match parse(&update.to_string()) {
            Ok(_) => (None, None),
            Err(error) => (error.code, error.param),
        }
    }

    #[test]
    fn bad_declarations_are_refused_where_they_are_bad() {
        let good = json!({"type": "function", "name": "f", "description": "d", "strict": true,
            "parameters": {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]}});
        assert_eq!(refused(json!([good])), (None, None));
        assert_eq!(refused(json!([{"type": "function", "name": "f"}])), (None, None));
        for (tool, code, param) in [
            (json!({"type": "function"}), "missing_required_parameter", "name"),
            (json!({"name": "f"}), "missing_required_parameter", "type"),
            (json!({"type": "gadget", "name": "f"}), "invalid_value", "type"),
            (json!({"type": "function", "name": ""}), "empty_string", "name"),
            (json!({"type": "function", "name": "a b"}), "invalid_value", "name"),
            (json!({"type": "function", "name": 7}), "invalid_type", "name"),
            (json!({"type": "function", "name": "f", "parameters": "x"}), "invalid_type", "parameters"),
            (
                json!({"type": "function", "name": "f", "parameters": {"type": "string"}}),
                "invalid_function_parameters",
                "parameters",
            ),
            (
                json!({"type": "function", "name": "f", "parameters": {"type": "object", "properties": []}}),
                "invalid_function_parameters",
                "parameters",
            ),
            (
                json!({"type": "function", "name": "f", "parameters": {"type": "object", "required": [1]}}),
                "invalid_function_parameters",
                "parameters",
            ),
        ] {
            let got = refused(json!([good, tool]));
            assert_eq!(got, (Some(code), Some(format!("session.tools[1].{param}"))), "{tool}");
        }
        let twice = refused(json!([good, good]));
        assert_eq!(twice, (Some("invalid_value"), Some("session.tools[1].name".into())));
        assert_eq!(refused(json!({})).0, Some("invalid_type"));
    }
}
