//! The encoder's caches of all streams, and its run for some of them.
//!
//! A stream has a slot from its admission to its end, keyed by the slot's number and its generation: a key of a stream that has
//! ended finds nothing. A run gathers the rows of its streams into one batch and puts what the graph gives back into their slots.
//! Where the encoder runs on the processor the caches are in the host's memory, and a slot that is free has none; on a GPU they
//! stay there ([`DeviceCaches`]). Used by the [engine](super::engine) alone, on its thread.

use super::device::DeviceCaches;
use super::graphs::{Graphs, sized};
use antiphon_inference::onnx::{OnnxError, Tensor};

/// A stream's slot. It is worth nothing once the stream has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamKey {
    slot: usize,
    generation: u64,
}

/// What a run reads of a stream.
pub struct EncoderRow<'a> {
    /// The stream.
    pub key: StreamKey,
    /// Mel frames, [frames, bands].
    pub frames: &'a [f32],
    /// The language's number, where the encoder takes one.
    pub prompt: i64,
    /// Whether the caches move on; otherwise the run leaves no trace.
    pub keeps: bool,
}

/// What a run gives of a stream.
pub struct EncodedChunk {
    /// Encoder frames, [frames, width].
    pub frames: Vec<f32>,
}

/// See the module.
pub struct EncoderStates {
    slots: Vec<Slot>,
    caches: Caches,
}

#[derive(Clone, Default)]
struct Slot {
    generation: u64,
    is_taken: bool,
    /// Whether no chunk has moved its caches on.
    is_fresh: bool,
    /// Of the attention's cache, in encoder frames.
    length: i64,
}

enum Caches {
    Host(HostCaches),
    Device(Box<DeviceCaches>),
}

/// The rows of a run.
pub(super) struct Batch {
    /// Mel frames, [rows, bands, frames].
    pub(super) audio: Vec<f32>,
    /// Numbers of mel frames.
    pub(super) windows: Vec<i64>,
    /// Lengths of the attention's caches.
    pub(super) lengths: Vec<i64>,
    /// Numbers of prompts.
    pub(super) prompts: Vec<i64>,
    /// Where the caches are.
    pub(super) places: Vec<Place>,
}

/// A row's slot.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) slot: usize,
    /// Its caches are zeros, whatever the slot holds.
    pub(super) is_fresh: bool,
    /// The next caches are put there.
    pub(super) keeps: bool,
}

/// What a run gives beside caches.
pub(super) struct EncoderOutputs {
    /// Encoder frames, [rows, width, frames].
    pub(super) frames: Vec<f32>,
    /// Those that count.
    pub(super) n_frames: Vec<i64>,
    /// Next lengths of the attention's caches.
    pub(super) lengths: Vec<i64>,
}

impl EncoderStates {
    /// So many free slots, in the memory where the encoder runs.
    ///
    /// # Errors
    /// [`OnnxError`] where the device has no memory for them.
    pub fn new(graphs: &Graphs, n_slots: usize) -> Result<Self, OnnxError> {
        let caches = match graphs.is_on_host() {
            true => Caches::Host(HostCaches::new(n_slots)),
            false => Caches::Device(Box::new(DeviceCaches::new(graphs, n_slots)?)),
        };
        Ok(Self { slots: vec![Slot::default(); n_slots], caches })
    }

    /// The same with tensors that are bound, wherever the encoder runs.
    ///
    /// # Errors
    /// [`OnnxError`] where the device has no memory for them.
    #[cfg(test)]
    pub fn bound(graphs: &Graphs, n_slots: usize) -> Result<Self, OnnxError> {
        let caches = Caches::Device(Box::new(DeviceCaches::new(graphs, n_slots)?));
        Ok(Self { slots: vec![Slot::default(); n_slots], caches })
    }

    /// Slots in all.
    pub fn n_slots(&self) -> usize {
        self.slots.len()
    }

    /// A free slot with empty caches; `None`: all are taken.
    pub fn begin(&mut self, graphs: &Graphs) -> Option<StreamKey> {
        let slot = self.slots.iter().position(|slot| !slot.is_taken)?;
        let generation = self.slots[slot].generation;
        self.slots[slot] = Slot { generation, is_taken: true, is_fresh: true, length: 0 };
        if let Caches::Host(host) = &mut self.caches {
            host.slots[slot] = Some(RowCaches::empty(graphs));
        }
        Some(StreamKey { slot, generation })
    }

    /// Frees a stream's slot.
    pub fn end(&mut self, key: StreamKey) {
        if self.is_running(key) {
            let generation = key.generation + 1;
            self.slots[key.slot] = Slot { generation, ..Slot::default() };
            if let Caches::Host(host) = &mut self.caches {
                host.slots[key.slot] = None;
            }
        }
    }

    /// Runs the encoder for a chunk of each of these streams, in one run where the graph takes batches. Blocks for as long as
    /// that takes.
    ///
    /// # Errors
    /// [`OnnxError`] when the run fails, or a key's stream has ended.
    pub fn run(&mut self, graphs: &Graphs, rows: &[EncoderRow<'_>]) -> Result<Vec<EncodedChunk>, OnnxError> {
        let at_once = if graphs.encodes_batches { rows.len() } else { 1 };
        let mut chunks = Vec::with_capacity(rows.len());
        for rows in rows.chunks(at_once.max(1)) {
            self.run_together(graphs, rows, &mut chunks)?;
        }
        Ok(chunks)
    }

    fn run_together(
        &mut self,
        graphs: &Graphs,
        rows: &[EncoderRow<'_>],
        chunks: &mut Vec<EncodedChunk>,
    ) -> Result<(), OnnxError> {
        if !rows.iter().all(|row| self.is_running(row.key)) {
            return Err(OnnxError::Output("a chunk for a stream that has ended".into()));
        }
        let n = rows.len();
        let n_new = graphs.sizes.n_new();
        let batch = self.batch(graphs, rows);
        let outputs = match &mut self.caches {
            Caches::Host(host) => host.run(graphs, &batch)?,
            Caches::Device(device) => device.run(graphs, &batch)?,
        };
        let frames = sized(&outputs.frames, n * graphs.width * n_new, "the encoder")?;
        if outputs.n_frames.len() != n || outputs.lengths.len() != n {
            let message = format!("{} and {} lengths for {n} rows", outputs.n_frames.len(), outputs.lengths.len());
            return Err(OnnxError::Output(message));
        }
        for (i, row) in rows.iter().enumerate() {
            let n_frames = usize::try_from(outputs.n_frames[i]).unwrap_or_default().min(n_new);
            let of_row = &frames[i * graphs.width * n_new..(i + 1) * graphs.width * n_new];
            let frame = |frame: usize| of_row.iter().skip(frame).step_by(n_new).copied();
            chunks.push(EncodedChunk { frames: (0..n_frames).flat_map(frame).collect() });
            if row.keeps {
                let slot = &mut self.slots[row.key.slot];
                slot.length = outputs.lengths[i];
                slot.is_fresh = false;
            }
        }
        Ok(())
    }

    fn batch(&self, graphs: &Graphs, rows: &[EncoderRow<'_>]) -> Batch {
        let sizes = &graphs.sizes;
        let mut audio = Vec::with_capacity(rows.len() * sizes.n_mels * sizes.window);
        for row in rows {
            for band in 0..sizes.n_mels {
                audio.extend(row.frames.iter().skip(band).step_by(sizes.n_mels));
            }
        }
        let slot = |row: &EncoderRow<'_>| &self.slots[row.key.slot];
        let place = |row: &EncoderRow<'_>| Place { slot: row.key.slot, is_fresh: slot(row).is_fresh, keeps: row.keeps };
        Batch {
            audio,
            windows: vec![sizes.window as i64; rows.len()],
            lengths: rows.iter().map(|row| slot(row).length).collect(),
            prompts: rows.iter().map(|row| row.prompt).collect(),
            places: rows.iter().map(place).collect(),
        }
    }

    fn is_running(&self, key: StreamKey) -> bool {
        let slot = &self.slots[key.slot];
        slot.is_taken && slot.generation == key.generation
    }

    /// The attention's cache, the convolutions' and the length of the former.
    #[cfg(test)]
    pub fn caches(&self, key: StreamKey) -> (Vec<f32>, Vec<f32>, i64) {
        let length = self.slots[key.slot].length;
        match &self.caches {
            Caches::Host(host) => {
                let row = host.slots[key.slot].as_ref().expect("the stream runs");
                (row.channel.clone(), row.time.clone(), length)
            }
            Caches::Device(device) => {
                let [channel, time] = device.caches(key.slot);
                (channel, time, length)
            }
        }
    }

    /// Writes numbers that are none into a stream's caches, as a graph that fails for it might.
    #[cfg(test)]
    pub fn poison(&mut self, key: StreamKey) {
        match &mut self.caches {
            Caches::Host(host) => {
                let row = host.slots[key.slot].as_mut().expect("the stream runs");
                row.channel.fill(f32::NAN);
                row.time.fill(f32::NAN);
            }
            Caches::Device(device) => device.poison(key.slot),
        }
    }
}

/// Caches in the host's memory, those of each slot that is taken. A run of one row reads and replaces its slot's; a run of
/// several copies them into a batch, whose memory is kept for the next one.
struct HostCaches {
    slots: Vec<Option<RowCaches>>,
    /// The batch.
    gathered: RowCaches,
}

#[derive(Default)]
struct RowCaches {
    channel: Vec<f32>,
    time: Vec<f32>,
}

impl RowCaches {
    fn empty(graphs: &Graphs) -> Self {
        let zeros = |dims: [usize; 3]| vec![0.0; dims.iter().product()];
        Self { channel: zeros(graphs.sizes.channel), time: zeros(graphs.sizes.time) }
    }
}

impl HostCaches {
    fn new(n_slots: usize) -> Self {
        Self { slots: (0..n_slots).map(|_| None).collect(), gathered: RowCaches::default() }
    }

    /// The caches of a run's rows, one behind the other.
    fn gather(&mut self, places: &[Place]) -> &RowCaches {
        if let [only] = places
            && let Some(row) = &self.slots[only.slot]
        {
            return row;
        }
        self.gathered.channel.clear();
        self.gathered.time.clear();
        for row in places.iter().filter_map(|place| self.slots[place.slot].as_ref()) {
            self.gathered.channel.extend_from_slice(&row.channel);
            self.gathered.time.extend_from_slice(&row.time);
        }
        &self.gathered
    }

    /// Puts the next caches of a run's rows into their slots.
    fn scatter(&mut self, places: &[Place], next: RowCaches) {
        if let [only] = places {
            if only.keeps {
                self.slots[only.slot] = Some(next);
            }
            return;
        }
        for (i, place) in places.iter().enumerate().filter(|(_, place)| place.keeps) {
            if let Some(row) = &mut self.slots[place.slot] {
                let size = row.channel.len();
                row.channel.copy_from_slice(&next.channel[i * size..(i + 1) * size]);
                let size = row.time.len();
                row.time.copy_from_slice(&next.time[i * size..(i + 1) * size]);
            }
        }
    }

    fn run(&mut self, graphs: &Graphs, batch: &Batch) -> Result<EncoderOutputs, OnnxError> {
        let sizes = &graphs.sizes;
        let n = batch.places.len();
        let RowCaches { channel, time } = self.gather(&batch.places);
        let n_channel = channel.len();
        let n_time = time.len();
        let with_batch = |dims: [usize; 3]| [n, dims[0], dims[1], dims[2]];
        let ports = graphs.encoder.inputs();
        let mut inputs = vec![
            (ports[0].name.as_str(), Tensor::f32([n, sizes.n_mels, sizes.window], &batch.audio)),
            (ports[1].name.as_str(), Tensor::i64([n], &batch.windows)),
            (ports[2].name.as_str(), Tensor::f32(with_batch(sizes.channel), channel)),
            (ports[3].name.as_str(), Tensor::f32(with_batch(sizes.time), time)),
            (ports[4].name.as_str(), Tensor::i64([n], &batch.lengths)),
        ];
        if sizes.prompts.is_some() {
            inputs.push((ports[5].name.as_str(), Tensor::i64([n], &batch.prompts)));
        }
        let mut outputs = graphs.encode(&inputs)?;
        let next = RowCaches { channel: outputs.take_f32(2)?, time: outputs.take_f32(3)? };
        sized(&next.channel, n_channel, "the encoder")?;
        sized(&next.time, n_time, "the encoder")?;
        self.scatter(&batch.places, next);
        Ok(EncoderOutputs {
            frames: outputs.take_f32(0)?,
            n_frames: outputs.at(1)?.i64()?.to_vec(),
            lengths: outputs.at(4)?.i64()?.to_vec(),
        })
    }
}
