//! Writes model files of the real format with random weights, for what does not depend on words: speed and refusals.

use super::layout::{MAGIC, NumberType, Sizes, Tensor};
use antiphon_audio::mel;
use std::io::{self, Write};

/// Tokens with a text of their own; whisper.cpp names the others. As many as GPT-2 has.
const N_TEXTS: usize = 50_257;

/// Writes a file that loads as any model does and decodes nonsense. Matrices must be stored in 16-bit floats
/// (`ftype` 1). Blocks while it writes: base is 148 MB. Weights are the same each time.
pub fn write(out: &mut impl Write, sizes: &Sizes) -> io::Result<()> {
    out.write_all(&MAGIC.to_le_bytes())?;
    for number in sizes.header() {
        number_to(out, number)?;
    }
    let filters = mel::filters(sizes.n_mels);
    number_to(out, sizes.n_mels)?;
    number_to(out, super::layout::N_BINS)?;
    for value in filters.iter().flatten() {
        out.write_all(&value.to_le_bytes())?;
    }
    number_to(out, N_TEXTS)?;
    for token in 0..N_TEXTS {
        let text = if token == 0 { " ".to_owned() } else { format!(" {token}") };
        number_to(out, text.len())?;
        out.write_all(text.as_bytes())?;
    }
    let mut noise = Noise(1);
    for tensor in sizes.tensors() {
        write_tensor(out, &tensor, &mut noise)?;
    }
    out.flush()
}

fn write_tensor(out: &mut impl Write, tensor: &Tensor, noise: &mut Noise) -> io::Result<()> {
    let stored = tensor.stored(NumberType::HALF);
    number_to(out, tensor.n_dims)?;
    number_to(out, tensor.name.len())?;
    out.write_all(&stored.of_type.to_le_bytes())?;
    for size in &tensor.shape[..tensor.n_dims] {
        number_to(out, *size)?;
    }
    out.write_all(tensor.name.as_bytes())?;
    // Norms pass their input on; the others keep its size (Xavier).
    let is_norm_weight = tensor.name.ends_with("ln.weight") || tensor.name.ends_with("ln_post.weight");
    let inputs = (tensor.n_elements() / tensor.shape[tensor.n_dims - 1]).max(1);
    let scale = if tensor.n_dims == 1 { 0.01 } else { (inputs as f32).sqrt().recip() };
    let mut bytes = Vec::with_capacity(tensor.n_elements() * 4);
    for _ in 0..tensor.n_elements() {
        let value = if is_norm_weight { 1.0 } else { noise.next() * scale };
        if stored == NumberType::FULL {
            bytes.extend_from_slice(&value.to_le_bytes());
        } else {
            bytes.extend_from_slice(&half(value).to_le_bytes());
        }
    }
    out.write_all(&bytes)
}

pub(super) fn number_to(out: &mut impl Write, number: usize) -> io::Result<()> {
    out.write_all(&i32::try_from(number).map_err(io::Error::other)?.to_le_bytes())
}

/// Uniform in [-1.7, 1.7], of variance one.
struct Noise(u32);

impl Noise {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.0 >> 8) as f32 / (1u32 << 23) as f32 * 1.732 - 1.732
    }
}

/// The nearest 16-bit float towards zero, of a value within its normal range; what is smaller is zero.
fn half(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = bits >> 16 & 0x8000;
    let exponent = (bits >> 23 & 0xff) as i32 - 112;
    let fraction = bits >> 13 & 0x3ff;
    if exponent <= 0 { sign as u16 } else { (sign | (exponent as u32) << 10 | fraction) as u16 }
}
