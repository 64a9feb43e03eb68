//! The ports of the graphs that embed and decode, checked against the contract.

use super::super::contract::{CacheKind, CacheOrder, Contract};
use super::LmError;
use antiphon_inference::onnx::{Kind, Model, OutputMemory, Slot};

/// Names, types and sizes that runs need.
#[derive(Clone, Debug)]
pub struct Ports {
    /// Inputs of the cache: keys and values of each layer.
    pub past: Vec<String>,
    /// Outputs of the cache, in the same order.
    pub present: Vec<String>,
    /// The type of the cache's numbers.
    pub cache_kind: Kind,
    heads: usize,
    head_size: usize,
    order: CacheOrder,
    /// Numbers of one embedding.
    pub hidden: usize,
    /// Numbers of one hidden state, where it is read.
    pub n_hidden: usize,
    /// Ids that the logits are for.
    pub vocabulary: usize,
    /// Where the embedding graph puts what the decoding graph takes: to the host where it has to be converted.
    pub embeds_go_to: OutputMemory,
    /// Whether the logits and the hidden state are outputs that are read.
    pub has_logits: bool,
    /// See `has_logits`.
    pub has_hidden: bool,
}

impl Ports {
    /// Checks that each port of the contract is there, has the type and the fixed sizes it should, and that no input is left
    /// over.
    pub fn check(contract: &Contract, embed: Option<&Model>, decode: &Model) -> Result<Self, LmError> {
        let lm = &contract.decode;
        let floats: &[Kind] = &[Kind::F32, Kind::F16];
        let embeds = match (contract.embed(), embed) {
            (Some(ids), Some(embed)) => {
                let mut wants = vec![(ids.ids.clone(), vec![Kind::I64], vec![None, None])];
                wants.extend(ids.positions.iter().map(|name| (name.clone(), vec![Kind::I64], vec![None, None])));
                wants.extend(ids.constants.keys().map(|name| (name.clone(), floats.to_vec(), vec![None])));
                inputs(contract, embed, &wants)?;
                Some(output(contract, embed, &ids.embeds, floats, &[None, None, None])?)
            }
            _ => None,
        };
        let embeds_size = embeds.as_ref().and_then(|embeds| embeds.shape[2]);

        let hidden = input(contract, decode, &lm.embeds, floats, &[None, None, None])?;
        let size = hidden.shape[2].or(embeds_size);
        let wrong = |model: &Model, wrong: String| LmError::Port {
            contract: contract.name.clone(),
            file: model.path().into(),
            wrong,
        };
        let Some(size) = size else {
            return Err(wrong(
                decode,
                format!("takes {hidden}, whose last size must be fixed, there or in the embedding graph"),
            ));
        };
        if let Some(embeds) = embeds.as_ref().filter(|_| embeds_size.is_some_and(|n| n != size)) {
            return Err(wrong(decode, format!("takes {hidden}, and the embedding graph gives {embeds}")));
        }
        let mut wants = vec![(lm.embeds.clone(), vec![hidden.kind.clone()], vec![None, None, None])];
        for (name, kind, rank) in [
            (&lm.mask, Kind::I64, 2),
            (&lm.positions, Kind::I64, 2),
            (&lm.lengths, Kind::I32, 1),
            (&lm.total, Kind::I32, 0),
        ] {
            wants.extend(name.iter().map(|name| (name.clone(), vec![kind.clone()], vec![None; rank])));
        }
        let layers = 0..lm.layers;
        let names = |patterns: &[String; 2]| -> Vec<String> {
            layers
                .clone()
                .flat_map(|layer| patterns.iter().map(move |pattern| Contract::port(pattern, layer)))
                .collect()
        };
        let past = names(&lm.past);
        let present = names(&lm.present);
        let order = match contract.cache {
            CacheKind::Growing(order) => order,
            CacheKind::InPlace { .. } => CacheOrder::HeadsFirst,
        };
        let shape = match order {
            CacheOrder::HeadsFirst => vec![None, Some(lm.heads), None, Some(lm.head_size)],
            CacheOrder::ColumnsFirst => vec![None, None, Some(lm.heads), Some(lm.head_size)],
        };
        let cache_kind = input(contract, decode, &past[0], floats, &shape)?.kind;
        wants.extend(past.iter().map(|name| (name.clone(), vec![cache_kind.clone()], shape.clone())));
        inputs(contract, decode, &wants)?;
        for name in &present {
            output(contract, decode, name, std::slice::from_ref(&cache_kind), &shape)?;
        }
        let vocabulary = contract.tokens.vocabulary;
        let embeds_go_to = if embeds.is_some_and(|embeds| embeds.kind == hidden.kind) {
            OutputMemory::Device
        } else {
            OutputMemory::Host
        };
        if let Some(drawing) = contract.drawing() {
            output(contract, decode, &drawing.logits, floats, &[None, None, Some(vocabulary)])?;
        }
        let n_hidden = match contract.frame() {
            None => size,
            Some(frame) => {
                let state = output(contract, decode, &frame.hidden, floats, &[None, None, None])?;
                let unfixed = || wrong(decode, format!("gives {state}, whose last size must be fixed"));
                state.shape[2].ok_or_else(unfixed)?
            }
        };
        Ok(Self {
            past,
            present,
            cache_kind,
            heads: lm.heads,
            head_size: lm.head_size,
            hidden: size,
            vocabulary,
            embeds_go_to,
            n_hidden,
            order,
            has_logits: contract.drawing().is_some(),
            has_hidden: contract.frame().is_some(),
        })
    }

    /// The shape of a tensor of the cache.
    pub fn cache_shape(&self, n_rows: usize, n_columns: usize) -> [usize; 4] {
        match self.order {
            CacheOrder::HeadsFirst => [n_rows, self.heads, n_columns, self.head_size],
            CacheOrder::ColumnsFirst => [n_rows, n_columns, self.heads, self.head_size],
        }
    }
}

/// A port that should be there: its name, the types it may have, its sizes where they are fixed.
pub type PortSpec = (String, Vec<Kind>, Vec<Option<usize>>);

/// Checks that a graph takes these inputs and no others.
pub fn inputs(contract: &Contract, model: &Model, wants: &[PortSpec]) -> Result<(), LmError> {
    for (name, kinds, shape) in wants {
        input(contract, model, name, kinds, shape)?;
    }
    let stray = model.inputs().iter().find(|slot| !wants.iter().any(|(name, ..)| *name == slot.name));
    stray.map_or(Ok(()), |slot| {
        let wrong = format!("also takes {slot}, which the contract does not name");
        Err(LmError::Port { contract: contract.name.clone(), file: model.path().into(), wrong })
    })
}

fn input(
    contract: &Contract,
    model: &Model,
    name: &str,
    kinds: &[Kind],
    shape: &[Option<usize>],
) -> Result<Slot, LmError> {
    let side = Side { verb: "takes", slots: model.inputs() };
    check(contract, model, &side, name, kinds, shape)
}

/// Checks that a graph has this output.
pub fn output(
    contract: &Contract,
    model: &Model,
    name: &str,
    kinds: &[Kind],
    shape: &[Option<usize>],
) -> Result<Slot, LmError> {
    let side = Side { verb: "gives", slots: model.outputs() };
    check(contract, model, &side, name, kinds, shape)
}

/// The inputs of a graph, or its outputs.
struct Side<'a> {
    /// What the graph does with them, in errors.
    verb: &'static str,
    slots: &'a [Slot],
}

fn check(
    contract: &Contract,
    model: &Model,
    side: &Side<'_>,
    name: &str,
    kinds: &[Kind],
    shape: &[Option<usize>],
) -> Result<Slot, LmError> {
    /// What an error names of a graph with very many.
    const MAX_NAMED: usize = 6;
    let kinds_text: Vec<_> = kinds.iter().map(ToString::to_string).collect();
    let sizes: Vec<_> = shape.iter().map(|n| n.map_or("?".into(), |n| n.to_string())).collect();
    let wanted = format!("{name}: {}[{}]", kinds_text.join(" or "), sizes.join(", "));
    let verb = side.verb;
    let wrong = match side.slots.iter().find(|slot| slot.name == name) {
        None => {
            let mut names: Vec<_> = side.slots.iter().take(MAX_NAMED).map(ToString::to_string).collect();
            if side.slots.len() > MAX_NAMED {
                names.push(format!("{} more", side.slots.len() - MAX_NAMED));
            }
            format!("{verb} {}, and no {wanted}", names.join(", "))
        }
        Some(slot) => {
            let sizes_fit = slot.shape.len() == shape.len()
                && slot.shape.iter().zip(shape).all(|(there, wanted)| match (there, wanted) {
                    (Some(there), Some(wanted)) => there == wanted,
                    _ => true,
                });
            if kinds.contains(&slot.kind) && sizes_fit {
                return Ok(slot.clone());
            }
            format!("{verb} {slot}, not {wanted}")
        }
    };
    Err(LmError::Port { contract: contract.name.clone(), file: model.path().into(), wrong })
}
