//! What a Whisper model file of whisper.cpp holds: its header, its tensors and their sizes.
//!
//! `file` holds files against it before whisper.cpp reads them, `random` writes files by it. Names and order are those
//! of whisper.cpp 1.8 (`whisper-arch.h`, `whisper_model_load`).

/// The first four bytes of a file, read as little-endian: "ggml".
pub(super) const MAGIC: u32 = 0x6767_6d6c;

/// Frequency bins of the filters: a Fourier transform of 400 samples.
pub(super) const N_BINS: usize = 201;

/// Tokens of the English models, special ones included. whisper.cpp knows the special ones by their numbers, the
/// highest of which is this less one; models of several languages have one more, and one for each further language.
pub(super) const ENGLISH_TOKENS: usize = 51_864;

/// The numbers in a file's header, in its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Tokens, special ones included.
    pub n_vocab: usize,
    /// Positions of the encoder; 50 are a second.
    pub n_audio_ctx: usize,
    /// Channels of the encoder.
    pub n_audio_state: usize,
    /// Its heads.
    pub n_audio_head: usize,
    /// Its layers.
    pub n_audio_layer: usize,
    /// Positions of the decoder: tokens of a prompt and an answer.
    pub n_text_ctx: usize,
    /// Its channels.
    pub n_text_state: usize,
    /// Its heads.
    pub n_text_head: usize,
    /// Its layers.
    pub n_text_layer: usize,
    /// Mel bands.
    pub n_mels: usize,
    /// How matrices are stored, as ggml numbers it; thousands are the format's version.
    pub ftype: usize,
}

impl Sizes {
    /// Whisper base, of several languages, in 16-bit floats (OpenAI's published dimensions; 74 million weights).
    pub const BASE: Self = Self {
        n_vocab: 51_865,
        n_audio_ctx: 1_500,
        n_audio_state: 512,
        n_audio_head: 8,
        n_audio_layer: 6,
        n_text_ctx: 448,
        n_text_state: 512,
        n_text_head: 8,
        n_text_layer: 6,
        n_mels: 80,
        ftype: 1,
    };

    /// From the header's eleven numbers. `None`: one is negative.
    pub(super) fn from_header(numbers: [i32; 11]) -> Option<Self> {
        let mut sizes = [0usize; 11];
        for (size, number) in sizes.iter_mut().zip(numbers) {
            *size = usize::try_from(number).ok()?;
        }
        let [n_vocab, n_audio_ctx, n_audio_state, n_audio_head, n_audio_layer, rest @ ..] = sizes;
        let [n_text_ctx, n_text_state, n_text_head, n_text_layer, n_mels, ftype] = rest;
        Some(Self {
            n_vocab,
            n_audio_ctx,
            n_audio_state,
            n_audio_head,
            n_audio_layer,
            n_text_ctx,
            n_text_state,
            n_text_head,
            n_text_layer,
            n_mels,
            ftype,
        })
    }

    /// The header's numbers.
    pub(super) fn header(&self) -> [usize; 11] {
        let audio = [self.n_audio_ctx, self.n_audio_state, self.n_audio_head, self.n_audio_layer];
        let text = [self.n_text_ctx, self.n_text_state, self.n_text_head, self.n_text_layer];
        let [a, b, c, d] = audio;
        let [e, f, g, h] = text;
        [self.n_vocab, a, b, c, d, e, f, g, h, self.n_mels, self.ftype]
    }

    /// Whether the dimensions are a Whisper's: within bounds well beyond the largest model (large: 1280 channels, 32 layers, 20
    /// heads), so that no product overflows, and fitting one another. The error says which is not.
    pub(super) fn check(&self) -> Result<(), String> {
        let bounds = [
            ("n_vocab", self.n_vocab, ENGLISH_TOKENS..=60_000),
            ("n_audio_ctx", self.n_audio_ctx, 64..=1_500),
            ("n_audio_state", self.n_audio_state, 8..=8_192),
            ("n_audio_head", self.n_audio_head, 1..=128),
            ("n_audio_layer", self.n_audio_layer, 1..=128),
            ("n_text_ctx", self.n_text_ctx, 32..=4_096),
            ("n_text_head", self.n_text_head, 1..=128),
            ("n_text_layer", self.n_text_layer, 1..=128),
            ("n_mels", self.n_mels, 8..=512),
        ];
        for (name, value, bounds) in bounds {
            if !bounds.contains(&value) {
                let (from, to) = bounds.into_inner();
                return Err(format!("{name} is {value}, a Whisper model's is {from} to {to}"));
            }
        }
        let n = self.n_audio_state;
        if self.n_text_state != n || !n.is_multiple_of(self.n_audio_head) || !n.is_multiple_of(self.n_text_head) {
            return Err("its channels do not fit one another or its heads".into());
        }
        Ok(())
    }

    /// Whether whisper.cpp takes it for a model of several languages.
    pub fn is_multilingual(&self) -> bool {
        self.n_vocab > ENGLISH_TOKENS
    }

    /// How matrices are stored. `None`: whisper.cpp knows no such number.
    pub(super) fn matrices(&self) -> Option<NumberType> {
        // ggml_ftype_to_ggml_type: the file's number, the type's.
        const TYPES: [(usize, i32); 11] =
            [(0, 0), (1, 1), (2, 2), (3, 3), (7, 8), (8, 6), (9, 7), (10, 10), (11, 11), (12, 12), (14, 14)];
        let number = self.ftype % 1_000;
        let of_type = TYPES.iter().find(|(ftype, _)| *ftype == number).map(|(_, of_type)| *of_type);
        of_type.or((number == 13).then_some(13)).and_then(NumberType::of_type)
    }

    /// Every tensor there must be.
    pub(super) fn tensors(&self) -> Vec<Tensor> {
        let audio = self.n_audio_state;
        let text = self.n_text_state;
        let mut tensors = vec![
            Tensor::new("encoder.positional_embedding", &[audio, self.n_audio_ctx], Kind::Full),
            Tensor::new("encoder.conv1.weight", &[3, self.n_mels, audio], Kind::Convolution),
            Tensor::new("encoder.conv1.bias", &[1, audio], Kind::Full),
            Tensor::new("encoder.conv2.weight", &[3, audio, audio], Kind::Convolution),
            Tensor::new("encoder.conv2.bias", &[1, audio], Kind::Full),
            Tensor::new("decoder.positional_embedding", &[text, self.n_text_ctx], Kind::Full),
            Tensor::new("decoder.token_embedding.weight", &[text, self.n_vocab], Kind::Matrix),
        ];
        norm(&mut tensors, "encoder.ln_post", audio);
        norm(&mut tensors, "decoder.ln", text);
        for layer in 0..self.n_audio_layer {
            let block = format!("encoder.blocks.{layer}");
            attention(&mut tensors, &format!("{block}.attn"), audio);
            perceptron(&mut tensors, &block, audio);
        }
        for layer in 0..self.n_text_layer {
            let block = format!("decoder.blocks.{layer}");
            attention(&mut tensors, &format!("{block}.attn"), text);
            attention(&mut tensors, &format!("{block}.cross_attn"), text);
            perceptron(&mut tensors, &block, text);
        }
        tensors
    }
}

fn norm(tensors: &mut Vec<Tensor>, name: &str, n: usize) {
    tensors.push(Tensor::new(&format!("{name}.weight"), &[n], Kind::Full));
    tensors.push(Tensor::new(&format!("{name}.bias"), &[n], Kind::Full));
}

fn attention(tensors: &mut Vec<Tensor>, name: &str, n: usize) {
    norm(tensors, &format!("{name}_ln"), n);
    for part in ["query", "key", "value", "out"] {
        tensors.push(Tensor::new(&format!("{name}.{part}.weight"), &[n, n], Kind::Matrix));
        if part != "key" {
            tensors.push(Tensor::new(&format!("{name}.{part}.bias"), &[n], Kind::Full));
        }
    }
}

fn perceptron(tensors: &mut Vec<Tensor>, block: &str, n: usize) {
    norm(tensors, &format!("{block}.mlp_ln"), n);
    for (name, from, to) in [("mlp.0", n, 4 * n), ("mlp.2", 4 * n, n)] {
        tensors.push(Tensor::new(&format!("{block}.{name}.weight"), &[from, to], Kind::Matrix));
        tensors.push(Tensor::new(&format!("{block}.{name}.bias"), &[to], Kind::Full));
    }
}

/// A tensor as the file must hold it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tensor {
    pub(super) name: String,
    /// The innermost first; 1 where there are fewer.
    pub(super) shape: [usize; 3],
    pub(super) n_dims: usize,
    pub(super) kind: Kind,
}

/// How exactly a tensor is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// In 32-bit floats, always.
    Full,
    /// In 16-bit floats, unless the whole file is in 32.
    Convolution,
    /// As the header says.
    Matrix,
}

impl Tensor {
    fn new(name: &str, shape: &[usize], kind: Kind) -> Self {
        let mut whole = [1; 3];
        whole[..shape.len()].copy_from_slice(shape);
        Self { name: name.to_owned(), shape: whole, n_dims: shape.len(), kind }
    }

    pub(super) fn n_elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// How it is stored in a file whose matrices are stored so.
    pub(super) fn stored(&self, matrices: NumberType) -> NumberType {
        match self.kind {
            Kind::Full => NumberType::FULL,
            Kind::Convolution if matrices == NumberType::FULL => NumberType::FULL,
            Kind::Convolution => NumberType::HALF,
            Kind::Matrix => matrices,
        }
    }
}

/// One of ggml's types of numbers: the elements and the bytes of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NumberType {
    pub(super) of_type: i32,
    bytes: usize,
    elements: usize,
}

impl NumberType {
    pub(super) const FULL: Self = Self { of_type: 0, bytes: 4, elements: 1 };
    pub(super) const HALF: Self = Self { of_type: 1, bytes: 2, elements: 1 };

    /// By ggml's number (`ggml.h`, `ggml_type`; block sizes from `ggml-common.h`).
    fn of_type(of_type: i32) -> Option<Self> {
        let (bytes, elements) = match of_type {
            0 => (4, 1),
            1 => (2, 1),
            2 => (18, 32),
            3 => (20, 32),
            6 => (22, 32),
            7 => (24, 32),
            8 => (34, 32),
            10 => (84, 256),
            11 => (110, 256),
            12 => (144, 256),
            13 => (176, 256),
            14 => (210, 256),
            _ => return None,
        };
        Some(Self { of_type, bytes, elements })
    }

    /// Bytes of `n_elements` elements in rows of `row`. `None`: no whole number of blocks makes a row.
    pub(super) fn bytes(self, n_elements: usize, row: usize) -> Option<usize> {
        row.is_multiple_of(self.elements).then(|| n_elements / self.elements * self.bytes)
    }
}
