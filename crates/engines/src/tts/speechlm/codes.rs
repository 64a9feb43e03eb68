//! The codes of one frame of sound.
//!
//! Made by [`engine`](super::engine), a frame a step, and read by [`speaking`](super::speaking). By value, since one is made
//! every 40 to 80 ms for each listener and most families have a single codebook.

use super::contract::MAX_CODEBOOKS;

/// One code of each codebook, the first codebook's first. A family with one codebook calls it a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Codes {
    ids: [u16; MAX_CODEBOOKS],
    n: u8,
}

impl Codes {
    /// A frame that begins with `first`, and `others` behind it, at most [`MAX_CODEBOOKS`] together. `None` where one is no
    /// code: below 0 or above 65,535.
    pub fn new(first: i64, others: &[i64]) -> Option<Self> {
        let mut ids = [0; MAX_CODEBOOKS];
        let codes = std::iter::once(&first).chain(others);
        for (id, code) in ids.iter_mut().zip(codes) {
            *id = u16::try_from(*code).ok()?;
        }
        Some(Self { ids, n: (1 + others.len()).min(MAX_CODEBOOKS) as u8 })
    }

    /// The codes, by codebook.
    pub fn ids(&self) -> impl Iterator<Item = i64> {
        self.ids.iter().take(usize::from(self.n)).map(|id| i64::from(*id))
    }
}
