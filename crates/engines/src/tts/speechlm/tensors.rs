//! Tensors of the host with names: what graphs of a family hand to each other between runs, a voice's or a stream's.
//!
//! Used by [`condition`](super::condition), which keeps a voice's, and by [`vocode`](super::vocode), which keeps a stream's
//! state. They hold no memory of a device.

use antiphon_inference::onnx::{OnnxError, Output, Tensor};

/// A tensor that belongs to one voice or one stream, so that its first size, the batch, is 1.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedTensor {
    /// The name of the port that takes it.
    pub name: String,
    /// Its sizes.
    pub shape: Vec<usize>,
    /// Its numbers, row-major.
    pub numbers: Numbers,
}

/// Numbers of a tensor.
#[derive(Clone, Debug, PartialEq)]
pub enum Numbers {
    /// Floats.
    F32(Vec<f32>),
    /// Integers and flags.
    I64(Vec<i64>),
}

impl NamedTensor {
    /// A run's output under the name of the port that takes it.
    pub fn of(name: &str, output: &Output) -> Self {
        let numbers = match output.f32() {
            Ok(numbers) => Numbers::F32(numbers.to_vec()),
            Err(_) => Numbers::I64(output.i64().unwrap_or_default().to_vec()),
        };
        Self { name: name.into(), shape: output.shape().to_vec(), numbers }
    }

    /// As a graph takes it.
    pub fn tensor(&self) -> Tensor<'_> {
        match &self.numbers {
            Numbers::F32(numbers) => Tensor::f32(self.shape.clone(), numbers),
            Numbers::I64(numbers) => Tensor::i64(self.shape.clone(), numbers),
        }
    }

    /// Its size in bytes.
    pub fn n_bytes(&self) -> usize {
        match &self.numbers {
            Numbers::F32(numbers) => 4 * numbers.len(),
            Numbers::I64(numbers) => 8 * numbers.len(),
        }
    }

    /// Whether all its numbers are finite.
    pub fn is_finite(&self) -> bool {
        match &self.numbers {
            Numbers::F32(numbers) => numbers.iter().all(|number| number.is_finite()),
            Numbers::I64(_) => true,
        }
    }

    /// One tensor of several rows, each a tensor of one row; all have one name and one shape.
    pub fn stacked(rows: &[&Self]) -> Self {
        let mut all = rows[0].clone();
        if let Some(batch) = all.shape.first_mut() {
            *batch = rows.len();
        }
        for row in &rows[1..] {
            match (&mut all.numbers, &row.numbers) {
                (Numbers::F32(all), Numbers::F32(row)) => all.extend_from_slice(row),
                (Numbers::I64(all), Numbers::I64(row)) => all.extend_from_slice(row),
                _ => unreachable!("rows of one tensor have one type"),
            }
        }
        all
    }

    /// Its rows, each a tensor of its own.
    ///
    /// # Errors
    /// [`OnnxError::Output`] where it has another number of rows.
    pub fn rows(self, n_rows: usize) -> Result<Vec<Self>, OnnxError> {
        if self.shape.first() != Some(&n_rows) {
            return Err(OnnxError::Output(format!("{} of the shape {:?} for {n_rows} rows", self.name, self.shape)));
        }
        if n_rows == 1 {
            return Ok(vec![self]);
        }
        let shape = [&[1], &self.shape[1..]].concat();
        let n = shape.iter().product::<usize>();
        let row = |i: usize| {
            let numbers = match &self.numbers {
                Numbers::F32(numbers) => Numbers::F32(numbers[i * n..(i + 1) * n].to_vec()),
                Numbers::I64(numbers) => Numbers::I64(numbers[i * n..(i + 1) * n].to_vec()),
            };
            Self { name: self.name.clone(), shape: shape.clone(), numbers }
        };
        Ok((0..n_rows).map(row).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_are_stacked_come_apart_again() {
        let row = |first: f32| NamedTensor {
            name: "state.a".into(),
            shape: vec![1, 2, 2],
            numbers: Numbers::F32(vec![first, 1.0, 2.0, 3.0]),
        };
        let rows = [row(5.0), row(6.0), row(7.0)];
        let all = NamedTensor::stacked(&rows.iter().collect::<Vec<_>>());
        assert_eq!(all.shape, [3, 2, 2]);
        assert_eq!(all.clone().rows(3).expect("three"), rows);
        assert!(matches!(all.rows(2), Err(OnnxError::Output(_))));
    }
}
