//! The inputs and outputs of a model, and those that a family of models requires.

use ort::value::{Outlet, TensorElementType, ValueType};
use std::fmt;

/// The type of a tensor's elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// 32-bit floats.
    F32,
    /// 16-bit floats; passed as `f32`.
    F16,
    /// 64-bit integers.
    I64,
    /// 32-bit integers.
    I32,
    /// Booleans.
    Bool,
    /// Anything else, by the runtime's name.
    Other(String),
}

/// One input or output that a model has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Its name.
    pub name: String,
    /// Its element type.
    pub kind: Kind,
    /// Its size in each dimension; `None` where that may differ from run to run.
    pub shape: Vec<Option<usize>>,
}

/// One input or output that a family has.
#[derive(Clone, Copy, Debug)]
pub struct Port {
    name: &'static str,
    kinds: &'static [Kind],
    rank: usize,
    optional: bool,
}

/// The inputs and outputs of all models of a family.
#[derive(Clone, Copy, Debug)]
pub struct Signature {
    /// What such a model is called, to follow "is no".
    pub family: &'static str,
    /// Its inputs; a model must not require others.
    pub inputs: &'static [Port],
    /// Its outputs; a model may have more.
    pub outputs: &'static [Port],
}

impl Port {
    /// A port of that name, with one of these element types and that many dimensions.
    pub const fn new(name: &'static str, kinds: &'static [Kind], rank: usize) -> Self {
        Self { name, kinds, rank, optional: false }
    }

    /// The same, optional.
    pub const fn optional(self) -> Self {
        Self { optional: true, ..self }
    }

    fn fits(&self, slot: &Slot) -> bool {
        self.kinds.contains(&slot.kind) && self.rank == slot.shape.len()
    }
}

impl Signature {
    /// What differs, in words; `None` when the model is of the family.
    pub(super) fn difference(&self, inputs: &[Slot], outputs: &[Slot]) -> Option<String> {
        differing("takes", self.inputs, inputs).or_else(|| differing("gives", self.outputs, outputs)).or_else(|| {
            let known = |slot: &&Slot| self.inputs.iter().any(|port| port.name == slot.name);
            let stray = inputs.iter().find(|slot| !known(slot))?;
            Some(format!("it also wants {stray}, which is unknown here"))
        })
    }
}

fn differing(verb: &str, ports: &[Port], slots: &[Slot]) -> Option<String> {
    ports.iter().find_map(|port| match slots.iter().find(|slot| slot.name == port.name) {
        Some(slot) if port.fits(slot) => None,
        None if port.optional => None,
        Some(slot) => Some(format!("it {verb} {slot}, not {port}")),
        None => Some(format!("it {verb} {}, and no {port}", list(slots))),
    })
}

fn list(slots: &[Slot]) -> String {
    /// What an error names of a model with very many.
    const MAX_NAMED: usize = 8;
    if slots.is_empty() {
        return "nothing".into();
    }
    let mut names: Vec<_> = slots.iter().take(MAX_NAMED).map(ToString::to_string).collect();
    if slots.len() > MAX_NAMED {
        names.push(format!("{} more", slots.len() - MAX_NAMED));
    }
    names.join(", ")
}

impl Slot {
    pub(super) fn of(outlet: &Outlet) -> Self {
        let (kind, shape) = match outlet.dtype() {
            ValueType::Tensor { ty, shape, .. } => {
                (Kind::of(*ty), shape.iter().map(|n| usize::try_from(*n).ok()).collect())
            }
            other => (Kind::Other(other.to_string()), Vec::new()),
        };
        Self { name: outlet.name().into(), kind, shape }
    }
}

impl Kind {
    pub(super) fn of(kind: TensorElementType) -> Self {
        match kind {
            TensorElementType::Float32 => Self::F32,
            TensorElementType::Float16 => Self::F16,
            TensorElementType::Int64 => Self::I64,
            TensorElementType::Int32 => Self::I32,
            TensorElementType::Bool => Self::Bool,
            other => Self::Other(other.to_string()),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::F32 => f.write_str("f32"),
            Self::F16 => f.write_str("f16"),
            Self::I64 => f.write_str("i64"),
            Self::I32 => f.write_str("i32"),
            Self::Bool => f.write_str("bool"),
            Self::Other(name) => f.write_str(name),
        }
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shape: Vec<_> = self.shape.iter().map(|n| n.map_or("?".into(), |n| n.to_string())).collect();
        write!(f, "{}: {}[{}]", self.name, self.kind, shape.join(", "))
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds: Vec<_> = self.kinds.iter().map(ToString::to_string).collect();
        write!(f, "{}: {}[{}]", self.name, kinds.join(" or "), vec!["?"; self.rank].join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static VOICE: Signature = Signature {
        family: "voice",
        inputs: &[Port::new("ids", &[Kind::I64], 2), Port::new("sid", &[Kind::I64], 1).optional()],
        outputs: &[Port::new("audio", &[Kind::F32, Kind::F16], 2)],
    };

    fn slot(name: &str, kind: Kind, shape: &[Option<usize>]) -> Slot {
        Slot { name: name.into(), kind, shape: shape.into() }
    }

    #[test]
    fn a_difference_is_said_in_plain_words() {
        let ids = || slot("ids", Kind::I64, &[Some(1), None]);
        let sid = || slot("sid", Kind::I64, &[Some(1)]);
        let audio = || slot("audio", Kind::F16, &[None, None]);
        let check = |inputs: &[Slot], outputs: &[Slot], expect: Option<&str>| {
            assert_eq!(VOICE.difference(inputs, outputs).as_deref(), expect);
        };
        check(&[ids()], &[audio()], None);
        check(&[sid(), ids()], &[audio(), ids()], None);
        check(&[sid()], &[audio()], Some("it takes sid: i64[1], and no ids: i64[?, ?]"));
        check(&[], &[audio()], Some("it takes nothing, and no ids: i64[?, ?]"));
        let three = slot("ids", Kind::I64, &[None, None, None]);
        check(&[three], &[audio()], Some("it takes ids: i64[?, ?, ?], not ids: i64[?, ?]"));
        let real = slot("ids", Kind::F32, &[Some(1), None]);
        check(&[real], &[audio()], Some("it takes ids: f32[1, ?], not ids: i64[?, ?]"));
        check(&[ids()], &[ids()], Some("it gives ids: i64[1, ?], and no audio: f32 or f16[?, ?]"));
        let mel = slot("mel", Kind::F32, &[None]);
        check(&[ids(), mel], &[audio()], Some("it also wants mel: f32[?], which is unknown here"));
    }
}
