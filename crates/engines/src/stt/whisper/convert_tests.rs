//! A small model in CTranslate2's form, whose every number names its place, and what becomes of it. The real ones are converted
//! in `tests/real_models.rs` of the root package.

use super::super::file;
use super::*;
use std::path::PathBuf;

const SIZES: Sizes = Sizes {
    n_vocab: 51_864,
    n_audio_ctx: 64,
    n_audio_state: 64,
    n_audio_head: 1,
    n_audio_layer: 1,
    n_text_ctx: 32,
    n_text_state: 64,
    n_text_head: 1,
    n_text_layer: 1,
    n_mels: 80,
    ftype: 1,
};
const FLOAT32: u8 = 0;
const INT8: u8 = 1;
const INT16: u8 = 2;
const FLOAT16: u8 = 4;

/// A model file under construction.
struct Model {
    version: u32,
    spec: &'static str,
    variables: Vec<(String, Vec<u32>, u8, Vec<u8>)>,
}

impl Model {
    /// As CTranslate2's converter writes a Whisper of [`SIZES`], in numbers of type `number`.
    fn whisper(number: u8) -> Self {
        let mut model = Self { version: 6, spec: SPEC, variables: Vec::new() };
        model.tensor("decoder/embeddings/weight", &[51_864, 64], number);
        for (side, n_ctx) in [("decoder", 32), ("encoder", 64)] {
            model.tensor(&format!("{side}/position_encodings/encodings"), &[n_ctx, 64], number);
            model.variables.push((format!("{side}/num_heads"), vec![], INT16, 1i16.to_le_bytes().to_vec()));
            let layer = format!("{side}/layer_0");
            for norm in [
                format!("{side}/layer_norm"),
                format!("{layer}/ffn/layer_norm"),
                format!("{layer}/self_attention/layer_norm"),
            ] {
                model.norm(&norm, number);
            }
            model.linear(&format!("{layer}/ffn/linear_0"), 256, 64, number);
            model.linear(&format!("{layer}/ffn/linear_1"), 64, 256, number);
            model.linear(&format!("{layer}/self_attention/linear_0"), 192, 64, number);
            model.zero(&format!("{layer}/self_attention/linear_0/bias"), 64..128);
            model.linear(&format!("{layer}/self_attention/linear_1"), 64, 64, number);
        }
        model.norm("decoder/layer_0/attention/layer_norm", number);
        model.linear("decoder/layer_0/attention/linear_0", 64, 64, number);
        model.linear("decoder/layer_0/attention/linear_1", 128, 64, number);
        model.zero("decoder/layer_0/attention/linear_1/bias", 0..64);
        model.linear("decoder/layer_0/attention/linear_2", 64, 64, number);
        model.tensor("encoder/conv1/weight", &[64, 80, 3], number);
        model.tensor("encoder/conv1/bias", &[64], number);
        model.tensor("encoder/conv2/weight", &[64, 64, 3], number);
        model.tensor("encoder/conv2/bias", &[64], number);
        model
    }

    fn norm(&mut self, name: &str, number: u8) {
        self.tensor(&format!("{name}/gamma"), &[64], number);
        self.tensor(&format!("{name}/beta"), &[64], number);
    }

    fn linear(&mut self, name: &str, outputs: u32, inputs: u32, number: u8) {
        self.tensor(&format!("{name}/weight"), &[outputs, inputs], number);
        self.tensor(&format!("{name}/bias"), &[outputs], number);
    }

    /// Numbers that say where they stand: a hash of the name's length and the place, exact in 16 bits.
    fn tensor(&mut self, name: &str, dims: &[u32], number: u8) {
        let n: u32 = dims.iter().product();
        let value = |place: u32| ((place.wrapping_mul(2_654_435_761) >> 22) as f32 + name.len() as f32) / 1_024.0;
        let bytes = match number {
            FLOAT32 => (0..n).flat_map(|place| value(place).to_le_bytes()).collect(),
            FLOAT16 => (0..n).flat_map(|place| f16::from_f32(value(place)).to_le_bytes()).collect(),
            _ => vec![1; n as usize],
        };
        self.variables.push((name.to_owned(), dims.to_vec(), number, bytes));
    }

    fn zero(&mut self, name: &str, places: std::ops::Range<usize>) {
        let (_, _, number, bytes) = self.variables.iter_mut().find(|(known, ..)| known == name).unwrap();
        let width = if *number == FLOAT32 { 4 } else { 2 };
        if *number != INT8 {
            bytes[places.start * width..places.end * width].fill(0);
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let text = |text: &str| [&(text.len() as u16 + 1).to_le_bytes()[..], text.as_bytes(), &[0]].concat();
        let mut bytes = self.version.to_le_bytes().to_vec();
        bytes.extend(text(self.spec));
        bytes.extend(3u32.to_le_bytes());
        bytes.extend((self.variables.len() as u32).to_le_bytes());
        for (name, dims, number, data) in &self.variables {
            bytes.extend(text(name));
            bytes.push(dims.len() as u8);
            dims.iter().for_each(|size| bytes.extend(size.to_le_bytes()));
            bytes.push(*number);
            bytes.extend((data.len() as u32).to_le_bytes());
            bytes.extend(data);
        }
        bytes.extend(1u32.to_le_bytes());
        bytes.extend(text("decoder/projection/weight"));
        bytes.extend(text("decoder/embeddings/weight"));
        bytes
    }

    fn opened(&self) -> Result<FasterWhisper, Ct2Error> {
        let folder = tempfile::tempdir().unwrap();
        let model = folder.path().join("model.bin");
        std::fs::write(&model, self.bytes()).unwrap();
        FasterWhisper::open(&model, &vocabulary(folder.path(), "vocabulary.txt"))
    }
}

/// 51,864 tokens: a blank, which GPT-2 writes as `Ġ`, two bytes of one letter, and words.
fn vocabulary(folder: &Path, name: &str) -> PathBuf {
    let tokens: Vec<String> = (0..51_864)
        .map(|token| match token {
            0 => "Ġ".to_owned(),
            1 => "Ã¼".to_owned(),
            2 => "Ċ".to_owned(),
            _ => format!("Ġ{token}"),
        })
        .collect();
    let path = folder.join(name);
    let text = if name.ends_with("json") { serde_json::to_string(&tokens).unwrap() } else { tokens.join("\n") + "\n" };
    std::fs::write(&path, text).unwrap();
    path
}

/// The numbers of a tensor in a file of whisper.cpp.
fn tensor(ggml: &[u8], name: &str) -> Vec<f32> {
    let at = ggml.windows(name.len()).rposition(|window| window == name.as_bytes()).expect(name) + name.len();
    let tensor = SIZES.tensors().into_iter().find(|tensor| tensor.name == name).unwrap();
    let n = tensor.n_elements();
    if tensor.stored(NumberType::HALF) == NumberType::FULL {
        ggml[at..at + n * 4].as_chunks::<4>().0.iter().map(|four| f32::from_le_bytes(*four)).collect()
    } else {
        ggml[at..at + n * 2].as_chunks::<2>().0.iter().map(|two| f16::from_le_bytes(*two).to_f32()).collect()
    }
}

#[test]
fn every_tensor_finds_its_place_in_both_widths_and_the_bytes_are_the_same_each_time() {
    let mut written = Vec::new();
    for number in [FLOAT16, FLOAT32, FLOAT16] {
        let opened = Model::whisper(number).opened().unwrap();
        let mut ggml = Vec::new();
        let mut shares = Vec::new();
        opened.write(&mut ggml, |share| shares.push(share)).unwrap();
        assert!(shares.is_sorted() && shares.last() == Some(&1.0));
        written.push(ggml);
    }
    assert!(written.windows(2).all(|pair| pair[0] == pair[1]));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ggml.bin");
    std::fs::write(&path, &written[0]).unwrap();
    assert_eq!(file::check(&path).unwrap(), SIZES);

    let opened = Model::whisper(FLOAT32).opened().unwrap();
    let joined = opened.container.floats("decoder/layer_0/self_attention/linear_0/weight").unwrap();
    for (place, part) in ["query", "key", "value"].into_iter().enumerate() {
        let expected = &joined[place * 64 * 64..(place + 1) * 64 * 64];
        assert_eq!(tensor(&written[0], &format!("decoder.blocks.0.attn.{part}.weight")), expected);
    }
    let joined = opened.container.floats("decoder/layer_0/attention/linear_1/bias").unwrap();
    assert_eq!(tensor(&written[0], "decoder.blocks.0.cross_attn.value.bias"), joined[64..]);
    let norm = opened.container.floats("encoder/layer_norm/beta").unwrap();
    assert_eq!(tensor(&written[0], "encoder.ln_post.bias"), norm);
    // The bytes of "ü", and a line feed.
    assert_eq!(opened.texts[..3], [b" ".to_vec(), vec![0xc3, 0xbc], vec![b'\n']]);
}

#[test]
fn a_vocabulary_may_be_a_list_in_json() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model.bin");
    std::fs::write(&model, Model::whisper(FLOAT16).bytes()).unwrap();
    let opened = FasterWhisper::open(&model, &vocabulary(folder.path(), "vocabulary.json")).unwrap();
    assert_eq!(opened.texts.len(), N_TEXTS);
    let short = folder.path().join("vocabulary.txt");
    std::fs::write(&short, "a\nb\n").unwrap();
    let error = FasterWhisper::open(&model, &short).unwrap_err().to_string();
    assert!(error.contains("has 2 tokens, and the model 51864"), "{error}");
}

#[test]
fn foreign_newer_and_quantized_models_are_refused_with_what_to_do() {
    let refused = |change: &dyn Fn(&mut Model), expected: &str| {
        let mut model = Model::whisper(FLOAT16);
        change(&mut model);
        let error = model.opened().map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    refused(&|model| model.version = 7, "version 7");
    refused(&|model| model.version = 0x4655_4747, "no version");
    refused(&|model| model.spec = "TransformerSpec", "it is a \"TransformerSpec\"");
    refused(
        &|model| model.variables.retain(|(name, ..)| !name.ends_with("conv2/bias")),
        "encoder/conv2/bias is missing",
    );
    refused(&|model| model.variables[0].1[1] = 63, "decoder/embeddings/weight has");
    let heads = |model: &mut Model| {
        model.variables.iter_mut().filter(|(name, ..)| name.ends_with("num_heads")).for_each(|(.., data)| data[0] = 2);
    };
    refused(&heads, "num_heads is 2 with 64 channels");
    let biased = |model: &mut Model| {
        let (.., data) =
            model.variables.iter_mut().find(|(name, ..)| name.ends_with("/attention/linear_1/bias")).unwrap();
        data.fill(1);
    };
    refused(&biased, "a bias of keys");
    let error = Model::whisper(INT8).opened().map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("stored as int8") && error.contains("--quantization"), "{error}");
}

#[test]
fn a_truncated_file_is_refused_wherever_it_ends() {
    let whole = Model::whisper(FLOAT16).bytes();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.bin");
    let vocabulary = vocabulary(folder.path(), "vocabulary.txt");
    // Behind the last variable only the alias is missing, which nothing needs.
    let end_of_variables = whole.len() - 4 - 2 * (2 + 26);
    for length in (0..2_000).chain((2_000..end_of_variables).step_by(99_991)) {
        std::fs::write(&path, &whole[..length]).unwrap();
        let error = FasterWhisper::open(&path, &vocabulary).map(|_| ()).unwrap_err();
        assert!(matches!(error, Ct2Error::Truncated(_)), "{length}: {error}");
    }
}
