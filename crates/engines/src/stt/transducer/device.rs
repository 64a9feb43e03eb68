//! The encoder's caches on a GPU: one tensor for each kind, with a row for each slot. No cache crosses to the host.
//!
//! A small graph gathers the rows of a run into a batch, the encoder is bound to it, and another one scatters the next caches
//! into their slots, in place (`gather_f32.onnx` and so on, written by `antiphon_export.slot_rows`). Behind the slots are
//! two rows more: one of zeros, which a stream that begins reads instead of what its slot holds, and one that takes the caches of
//! runs that leave no trace. The processor runs the same code in tests. Used by [`EncoderStates`](super::states::EncoderStates)
//! alone.

use super::graphs::Graphs;
use super::states::{Batch, EncoderOutputs};
use antiphon_inference::onnx::{Binding, DeviceTensor, Kind, Model, OnnxError, OutputMemory, Tensor};

/// See the module.
pub struct DeviceCaches {
    channel: Arena,
    time: Arena,
    run: Binding,
    n_slots: usize,
}

/// The caches of one kind.
struct Arena {
    slots: DeviceTensor,
    gather: Model,
    gathering: Binding,
    scatter: Model,
    scattering: Binding,
}

impl DeviceCaches {
    /// Takes the memory for all slots.
    ///
    /// # Errors
    /// [`OnnxError`] when there is not enough.
    pub fn new(graphs: &Graphs, n_slots: usize) -> Result<Self, OnnxError> {
        let arena =
            |input: usize, dims: [usize; 3]| Arena::new(graphs, &graphs.encoder.inputs()[input].kind, n_slots, dims);
        let channel = arena(2, graphs.sizes.channel)?;
        let time = arena(3, graphs.sizes.time)?;
        Ok(Self { channel, time, run: graphs.encoder.binding()?, n_slots })
    }

    /// Runs the encoder for the rows of a batch. Blocks for as long as that takes.
    ///
    /// # Errors
    /// [`OnnxError`] when a run fails.
    pub(super) fn run(&mut self, graphs: &Graphs, batch: &Batch) -> Result<EncoderOutputs, OnnxError> {
        graphs.while_timed(|| self.run_untimed(graphs, batch))
    }

    fn run_untimed(&mut self, graphs: &Graphs, batch: &Batch) -> Result<EncoderOutputs, OnnxError> {
        let sizes = &graphs.sizes;
        let encoder = &graphs.encoder;
        let n = batch.places.len();
        let zeros = self.n_slots as i64;
        let dropped = zeros + 1;
        let from = batch.places.iter().map(|place| if place.is_fresh { zeros } else { place.slot as i64 });
        let from: Vec<i64> = from.collect();
        let to: Vec<i64> =
            batch.places.iter().map(|place| if place.keeps { place.slot as i64 } else { dropped }).collect();
        let channel = self.channel.gather(&from)?;
        let time = self.time.gather(&from)?;

        let inputs = encoder.inputs();
        let run = &mut self.run;
        let audio = Tensor::f32([n, sizes.n_mels, sizes.window], &batch.audio);
        encoder.bind_host(run, &inputs[0].name, &audio)?;
        encoder.bind_host(run, &inputs[1].name, &Tensor::i64([n], &batch.windows))?;
        encoder.bind_input(run, &inputs[2].name, &channel)?;
        encoder.bind_input(run, &inputs[3].name, &time)?;
        encoder.bind_host(run, &inputs[4].name, &Tensor::i64([n], &batch.lengths))?;
        if sizes.prompts.is_some() {
            encoder.bind_host(run, &inputs[5].name, &Tensor::i64([n], &batch.prompts))?;
        }
        let places =
            [OutputMemory::Host, OutputMemory::Host, OutputMemory::Device, OutputMemory::Device, OutputMemory::Host];
        for (output, place) in encoder.outputs().iter().zip(places) {
            encoder.bind_output(run, &output.name, place)?;
        }
        let outputs = encoder.run_bound(run)?;
        let [frames, n_frames, channel, time, lengths] = &outputs[..] else {
            return Err(OnnxError::Output(format!("{} outputs of the encoder, expected 5", outputs.len())));
        };
        self.channel.scatter(&to, channel)?;
        self.time.scatter(&to, time)?;
        let mut numbers = Vec::new();
        frames.read_f32(0..frames.shape().iter().product(), &mut numbers)?;
        Ok(EncoderOutputs { frames: numbers, n_frames: whole(n_frames)?, lengths: whole(lengths)? })
    }

    /// What a slot holds.
    #[cfg(test)]
    pub(super) fn caches(&self, slot: usize) -> [Vec<f32>; 2] {
        [&self.channel, &self.time].map(|arena| {
            let each: usize = arena.slots.shape()[1..].iter().product();
            let mut numbers = Vec::new();
            arena.slots.read_f32(slot * each..(slot + 1) * each, &mut numbers).expect("it is read");
            numbers
        })
    }

    /// Writes numbers that are none into a slot.
    #[cfg(test)]
    pub(super) fn poison(&mut self, slot: usize) {
        for arena in [&mut self.channel, &mut self.time] {
            let shape = arena.slots.shape().to_vec();
            let nan = vec![f32::NAN; shape[1..].iter().product()];
            let updates = Tensor::f32([1, shape[1], shape[2], shape[3]], &nan);
            arena.scatter_host(slot, &updates).expect("it runs");
        }
    }
}

impl Arena {
    fn new(graphs: &Graphs, kind: &Kind, n_slots: usize, dims: [usize; 3]) -> Result<Self, OnnxError> {
        let of_kind = |half: &'static [u8], single: &'static [u8]| if *kind == Kind::F16 { half } else { single };
        let gather = of_kind(include_bytes!("gather_f16.onnx"), include_bytes!("gather_f32.onnx"));
        let scatter = of_kind(include_bytes!("scatter_f16.onnx"), include_bytes!("scatter_f32.onnx"));
        let gather = graphs.runtime.load_bytes("gather.onnx", gather, &graphs.encoder)?;
        let scatter = graphs.runtime.load_bytes("scatter.onnx", scatter, &graphs.encoder)?;
        let gathering = gather.binding()?;
        let scattering = scatter.binding()?;
        let slots = graphs.encoder.device_tensor(kind, &[n_slots + 2, dims[0], dims[1], dims[2]])?;
        let mut arena = Self { slots, gather, gathering, scatter, scattering };
        // The content of new memory of a device is undefined.
        let zeros = vec![0.0; dims.iter().product()];
        arena.scatter_host(n_slots, &Tensor::f32([1, dims[0], dims[1], dims[2]], &zeros))?;
        Ok(arena)
    }

    /// These rows, in a tensor of their own.
    fn gather(&mut self, rows: &[i64]) -> Result<DeviceTensor, OnnxError> {
        let binding = &mut self.gathering;
        self.gather.bind_input(binding, "slots", &self.slots)?;
        self.gather.bind_host(binding, "rows", &Tensor::i64([rows.len()], rows))?;
        self.gather.bind_output(binding, "picked", OutputMemory::Device)?;
        let picked = self.gather.run_bound(binding)?.into_iter().next();
        picked.ok_or_else(|| OnnxError::Output("no rows".into()))
    }

    /// Puts rows into these slots.
    fn scatter(&mut self, rows: &[i64], updates: &DeviceTensor) -> Result<(), OnnxError> {
        self.scatter.bind_input(&mut self.scattering, "updates", updates)?;
        self.scatter_bound(rows)
    }

    /// Puts a row of the host into a slot.
    fn scatter_host(&mut self, row: usize, updates: &Tensor<'_>) -> Result<(), OnnxError> {
        self.scatter.bind_host(&mut self.scattering, "updates", updates)?;
        self.scatter_bound(&[row as i64])
    }

    fn scatter_bound(&mut self, rows: &[i64]) -> Result<(), OnnxError> {
        let binding = &mut self.scattering;
        self.scatter.bind_host(binding, "rows", &Tensor::i64([rows.len(), 1], rows))?;
        let all = 0..self.slots.shape()[0];
        self.scatter.bind_rows_in_place(binding, "slots", "next", &mut self.slots, all)?;
        self.scatter.run_bound(binding)?;
        // What is bound is held; the slots are held by this arena.
        binding.clear();
        Ok(())
    }
}

/// Whole numbers of the host.
fn whole(tensor: &DeviceTensor) -> Result<Vec<i64>, OnnxError> {
    let wide = tensor.numbers::<i64>().map(<[i64]>::to_vec);
    let narrow = || tensor.numbers::<i32>().map(|numbers| numbers.iter().map(|n| i64::from(*n)).collect());
    wide.or_else(narrow).ok_or_else(|| OnnxError::Output(format!("lengths of the type {}", tensor.kind())))
}
