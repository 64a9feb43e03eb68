//! `session.truncation`: what happens to a conversation that exceeds the model's context.

use super::read::{Node, Read};
use super::setting::read_type;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

/// `session.truncation`
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Truncation {
    /// The oldest turns are omitted as far as needed.
    #[default]
    Auto,
    /// The response fails.
    Disabled,
    /// The oldest turns are omitted until this fraction of the limit is filled.
    RetentionRatio {
        /// 0 to 1.
        ratio: f64,
        /// `token_limits.post_instructions`: limit on the tokens of the conversation.
        post_instructions: Option<u32>,
    },
}

impl Truncation {
    pub(super) fn read(node: Node) -> Read<Self> {
        if node.is_string() {
            return node.one_of(&[("auto", Self::Auto), ("disabled", Self::Disabled)]);
        }
        let mut fields = node.object()?;
        read_type(&mut fields, &["retention_ratio"])?;
        let ratio = fields.required("retention_ratio", |node| node.decimal(0.0..=1.0))?;
        let post_instructions = fields.optional("token_limits", |node| {
            let mut limits = node.object()?;
            let limit = limits.optional("post_instructions", |node| node.integer(0..=u32::MAX))?;
            limits.finish()?;
            Ok(limit)
        })?;
        fields.finish()?;
        Ok(Self::RetentionRatio { ratio, post_instructions: post_instructions.flatten() })
    }
}

impl Serialize for Truncation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::Disabled => serializer.serialize_str("disabled"),
            Self::RetentionRatio { ratio, post_instructions } => {
                let mut map = serializer.serialize_map(None)?;
                map.serialize_entry("type", "retention_ratio")?;
                map.serialize_entry("retention_ratio", ratio)?;
                if let Some(limit) = post_instructions {
                    map.serialize_entry("token_limits", &serde_json::json!({"post_instructions": limit}))?;
                }
                map.end()
            }
        }
    }
}
