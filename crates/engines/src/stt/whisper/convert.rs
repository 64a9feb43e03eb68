//! Writes a Whisper model in CTranslate2's form (a folder of faster-whisper) as a file of whisper.cpp.
//!
//! `antiphon models import` is the caller. The result depends on the weights and the vocabulary only: the same bytes on every
//! run and machine, so that its checksum can be pinned. 16-bit weights are kept bit for bit; biases, norms and positions become
//! 32-bit floats, as whisper.cpp wants them. Nothing is loaded or executed.

use super::ctranslate2::{Container, Ct2Error};
use super::layout::{MAGIC, N_BINS, NumberType, Sizes, Tensor};
use super::random::number_to;
use antiphon_audio::mel;
use half::f16;
use std::io::{self, Write};
use std::path::Path;

/// Tokens with a text of their own, which is what whisper.cpp's own converters write: the others it names by their numbers.
const N_TEXTS: usize = 50_257;
/// The largest vocabulary that is read, in bytes: Whisper's has 0.5 MB as text, 1 MB as JSON.
const MAX_VOCABULARY_BYTES: u64 = 16 << 20;
/// The kind that CTranslate2's converter of Whisper writes.
const SPEC: &str = "WhisperSpec";
/// Dimensions of a head, in every Whisper.
const HEAD: usize = 64;

/// A Whisper model in CTranslate2's form, opened and checked.
#[derive(Debug)]
pub struct FasterWhisper {
    container: Container,
    sizes: Sizes,
    /// The texts of the first [`N_TEXTS`] tokens, as bytes.
    texts: Vec<Vec<u8>>,
}

impl FasterWhisper {
    /// Opens `model` (`model.bin`) with `vocabulary` (`vocabulary.txt`, a token a line, or `vocabulary.json`, a list). Blocks for
    /// milliseconds; weights are read by [`FasterWhisper::write`].
    pub fn open(model: &Path, vocabulary: &Path) -> Result<Self, Ct2Error> {
        let container = Container::open(model)?;
        if container.spec != SPEC {
            return Err(Ct2Error::Foreign(format!(
                "it is a {:?}",
                container.spec.chars().take(60).collect::<String>()
            )));
        }
        let sizes = sizes(&container)?;
        let tokens = tokens(vocabulary)?;
        if tokens.len() != sizes.n_vocab {
            return Err(Ct2Error::Foreign(format!(
                "the vocabulary {} has {} tokens, and the model {}",
                vocabulary.display(),
                tokens.len(),
                sizes.n_vocab
            )));
        }
        let texts = tokens.iter().take(N_TEXTS).map(|token| bytes_of(token)).collect();
        let opened = Self { container, sizes, texts };
        // Every tensor is looked up before anything is written.
        for tensor in opened.sizes.tensors() {
            opened.source(&tensor)?;
        }
        opened.check_keys()?;
        Ok(opened)
    }

    /// The model's dimensions.
    pub fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    /// Writes the file of whisper.cpp, matrices in 16-bit floats; `progress` receives the share that is written, 0 to 1. Blocks:
    /// base has 148 MB.
    pub fn write(&self, out: &mut impl Write, mut progress: impl FnMut(f32)) -> Result<(), Ct2Error> {
        out.write_all(&MAGIC.to_le_bytes())?;
        for number in self.sizes.header() {
            number_to(out, number)?;
        }
        number_to(out, self.sizes.n_mels)?;
        number_to(out, N_BINS)?;
        for value in mel::filters(self.sizes.n_mels).iter().flatten() {
            out.write_all(&value.to_le_bytes())?;
        }
        number_to(out, self.texts.len())?;
        for text in &self.texts {
            number_to(out, text.len())?;
            out.write_all(text)?;
        }
        let tensors = self.sizes.tensors();
        let total: usize = tensors.iter().map(Tensor::n_elements).sum();
        let mut written = 0;
        for tensor in &tensors {
            self.write_tensor(out, tensor)?;
            written += tensor.n_elements();
            progress(written as f32 / total as f32);
        }
        Ok(out.flush()?)
    }

    fn write_tensor(&self, out: &mut impl Write, tensor: &Tensor) -> Result<(), Ct2Error> {
        let source = self.source(tensor)?;
        let values = self.container.floats(&source.name)?;
        let values = &values[source.from..source.from + tensor.n_elements()];
        let stored = tensor.stored(NumberType::HALF);
        number_to(out, tensor.n_dims)?;
        number_to(out, tensor.name.len())?;
        out.write_all(&stored.of_type.to_le_bytes())?;
        for size in &tensor.shape[..tensor.n_dims] {
            number_to(out, *size)?;
        }
        out.write_all(tensor.name.as_bytes())?;
        let mut bytes = Vec::with_capacity(values.len() * 4);
        for value in values {
            if stored == NumberType::FULL {
                bytes.extend_from_slice(&value.to_le_bytes());
            } else {
                bytes.extend_from_slice(&f16::from_f32(*value).to_le_bytes());
            }
        }
        Ok(out.write_all(&bytes)?)
    }

    /// whisper.cpp has no place for a bias of keys, which Whisper does not have; CTranslate2 writes zeros for it.
    fn check_keys(&self) -> Result<(), Ct2Error> {
        let encoder =
            (0..self.sizes.n_audio_layer).map(|layer| format!("encoder/layer_{layer}/self_attention/linear_0/bias"));
        let decoder = (0..self.sizes.n_text_layer).flat_map(|layer| {
            let layer = format!("decoder/layer_{layer}");
            [format!("{layer}/self_attention/linear_0/bias"), format!("{layer}/attention/linear_1/bias")]
        });
        for name in encoder.chain(decoder) {
            let biases = self.container.floats(&name)?;
            // Before the keys' come the queries', in an attention to itself.
            let first = if name.contains("/self_attention/") { self.sizes.n_audio_state } else { 0 };
            let keys = biases.get(first..first + self.sizes.n_audio_state);
            if !keys.is_some_and(|keys| keys.iter().all(|bias| *bias == 0.0)) {
                return Err(Ct2Error::Foreign(format!("{name} has a bias of keys, which Whisper does not have")));
            }
        }
        Ok(())
    }

    /// Where a tensor's numbers are, checked: the variable has as many as the tensor needs.
    fn source(&self, tensor: &Tensor) -> Result<Source, Ct2Error> {
        let source = Source::of(&tensor.name, tensor.n_elements())
            .ok_or_else(|| Ct2Error::Foreign(format!("{} has no place in CTranslate2's form", tensor.name)))?;
        let dims = self.container.dims(&source.name)?;
        let has: usize = dims.iter().product();
        if has != source.parts * tensor.n_elements() {
            return Err(Ct2Error::Foreign(format!("{} has the dimensions {dims:?}", source.name)));
        }
        Ok(source)
    }
}

/// The variable that holds a tensor's numbers, and from which number on.
#[derive(Debug, PartialEq)]
struct Source {
    name: String,
    from: usize,
    /// How many tensors of this size the variable holds behind one another.
    parts: usize,
}

impl Source {
    /// CTranslate2 joins the query, key and value of an attention to itself, and the key and value of one to the encoder.
    fn of(tensor: &str, n_elements: usize) -> Option<Self> {
        let (side, rest) = tensor.split_once('.')?;
        let whole = |name: String| Some(Self { name, from: 0, parts: 1 });
        match rest {
            "positional_embedding" => return whole(format!("{side}/position_encodings/encodings")),
            "token_embedding.weight" => return whole(format!("{side}/embeddings/weight")),
            "conv1.weight" | "conv1.bias" | "conv2.weight" | "conv2.bias" => {
                return whole(format!("{side}/{}", rest.replace('.', "/")));
            }
            _ => {}
        }
        if let Some(of) = rest.strip_prefix("ln_post.").or_else(|| rest.strip_prefix("ln.")) {
            return whole(format!("{side}/layer_norm/{}", norm(of)?));
        }
        let (layer, part) = rest.strip_prefix("blocks.")?.split_once('.')?;
        let layer = format!("{side}/layer_{layer}");
        let (part, of) = part.rsplit_once('.')?;
        let one = |name: &str, place: usize, parts: usize| {
            Some(Self { name: format!("{layer}/{name}/{of}"), from: place * n_elements, parts })
        };
        match part {
            "attn_ln" => whole(format!("{layer}/self_attention/layer_norm/{}", norm(of)?)),
            "cross_attn_ln" => whole(format!("{layer}/attention/layer_norm/{}", norm(of)?)),
            "mlp_ln" => whole(format!("{layer}/ffn/layer_norm/{}", norm(of)?)),
            "attn.query" => one("self_attention/linear_0", 0, 3),
            "attn.key" => one("self_attention/linear_0", 1, 3),
            "attn.value" => one("self_attention/linear_0", 2, 3),
            "attn.out" => one("self_attention/linear_1", 0, 1),
            "cross_attn.query" => one("attention/linear_0", 0, 1),
            "cross_attn.key" => one("attention/linear_1", 0, 2),
            "cross_attn.value" => one("attention/linear_1", 1, 2),
            "cross_attn.out" => one("attention/linear_2", 0, 1),
            "mlp.0" => one("ffn/linear_0", 0, 1),
            "mlp.2" => one("ffn/linear_1", 0, 1),
            _ => None,
        }
    }
}

fn norm(of: &str) -> Option<&'static str> {
    match of {
        "weight" => Some("gamma"),
        "bias" => Some("beta"),
        _ => None,
    }
}

/// The dimensions, from the shapes of the variables.
fn sizes(container: &Container) -> Result<Sizes, Ct2Error> {
    let two = |name: &str| match container.dims(name)? {
        [outer, inner] => Ok([*outer, *inner]),
        dims => Err(Ct2Error::Foreign(format!("{name} has the dimensions {dims:?}"))),
    };
    let [n_vocab, n_text_state] = two("decoder/embeddings/weight")?;
    let [n_audio_ctx, n_audio_state] = two("encoder/position_encodings/encodings")?;
    let [n_text_ctx, _] = two("decoder/position_encodings/encodings")?;
    let n_mels = match container.dims("encoder/conv1/weight")? {
        [_, n_mels, 3] => *n_mels,
        dims => return Err(Ct2Error::Foreign(format!("encoder/conv1/weight has the dimensions {dims:?}"))),
    };
    let layers = |side: &str| {
        (0..).take_while(|layer| container.has(&format!("{side}/layer_{layer}/ffn/linear_0/weight"))).count()
    };
    let heads = |side: &str, state: usize| {
        let name = format!("{side}/num_heads");
        let heads = usize::try_from(container.scalar(&name)?).unwrap_or(0);
        // whisper.cpp takes the size of a head for granted.
        match heads * HEAD == state {
            true => Ok(heads),
            false => Err(Ct2Error::Foreign(format!(
                "{name} is {heads} with {state} channels, and Whisper's heads have {HEAD}"
            ))),
        }
    };
    let sizes = Sizes {
        n_vocab,
        n_audio_ctx,
        n_audio_state,
        n_audio_head: heads("encoder", n_audio_state)?,
        n_audio_layer: layers("encoder"),
        n_text_ctx,
        n_text_state,
        n_text_head: heads("decoder", n_text_state)?,
        n_text_layer: layers("decoder"),
        n_mels,
        ftype: 1,
    };
    sizes.check().map_err(Ct2Error::Foreign)?;
    Ok(sizes)
}

/// The tokens by their numbers.
fn tokens(path: &Path) -> Result<Vec<String>, Ct2Error> {
    let bytes = std::fs::metadata(path)?.len();
    if bytes > MAX_VOCABULARY_BYTES {
        return Err(Ct2Error::Foreign(format!("the vocabulary has {bytes} bytes")));
    }
    let text = std::fs::read_to_string(path)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
    if path.extension().is_some_and(|extension| extension == "json") {
        return serde_json::from_str(&text).map_err(|error| {
            Ct2Error::Foreign(format!("the vocabulary {} is no list of texts: {error}", path.display()))
        });
    }
    Ok(text.strip_suffix('\n').unwrap_or(&text).split('\n').map(str::to_owned).collect())
}

/// The bytes of a token, whose characters are those that GPT-2 writes for bytes: printable ones stand for themselves, the
/// others for 256 and on, in order.
fn bytes_of(token: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(token.len());
    for letter in token.chars() {
        match byte_of(letter) {
            Some(byte) => bytes.push(byte),
            // No letter of that alphabet: the text as it is.
            None => bytes.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    bytes
}

fn byte_of(letter: char) -> Option<u8> {
    let code = u32::from(letter);
    let is_itself = |code: u32| matches!(code, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    if is_itself(code) {
        return u8::try_from(code).ok();
    }
    let place = usize::try_from(code.checked_sub(256)?).ok()?;
    (0..=255u8).filter(|byte| !is_itself(u32::from(*byte))).nth(place)
}

#[cfg(test)]
#[path = "convert_tests.rs"]
mod tests;
