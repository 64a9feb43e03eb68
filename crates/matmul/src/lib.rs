//! Matrix products of stored weights and many columns, in 32-bit floats.
//!
//! Whisper's encoder in `antiphon-engines` multiplies by it in the place of ggml, which widens each weight for every three
//! columns: here weights are widened once a panel of rows. The kernel is AVX2's; [`is_available`] says whether the processor has
//! it. A crate of its own, since it needs optimization in debug builds, too. It takes no locks and starts no threads.
#![allow(unsafe_code)]
#![cfg(target_arch = "x86_64")]

use half::f16;
use std::arch::x86_64::{
    __m128i, __m256, _mm_loadl_epi64, _mm_loadu_si128, _mm256_add_ps, _mm256_broadcast_ss, _mm256_cvtepi8_epi32,
    _mm256_cvtepi32_ps, _mm256_cvtph_ps, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_mul_ps, _mm256_permute2f128_ps,
    _mm256_set1_ps, _mm256_setzero_ps, _mm256_shuffle_ps, _mm256_storeu_ps, _mm256_unpackhi_ps, _mm256_unpacklo_ps,
};
use std::cell::RefCell;

/// Columns from which packing the weights pays: a prompt and a single token stay below, the encoder's windows above.
const MIN_COLUMNS: usize = 32;

/// Rows and columns of the result that the kernel keeps in registers: 12 of the 16 that AVX2 has.
const TILE_ROWS: usize = 16;
const TILE_COLUMNS: usize = 6;

/// Numbers of a row that are packed at a time: a panel of weights takes 32 KiB. Measured: 128 are a fifth slower, 256 a tenth.
const DEPTH: usize = 512;

/// Weights of one block of `Q8_0`, and its bytes: a scale in 16 bits, then the weights (`ggml-common.h`, `block_q8_0`).
const Q8_0_WEIGHTS: usize = 32;
const Q8_0_BYTES: usize = 34;

/// Whether the processor has what [`Product::compute`] needs.
pub fn is_available() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c")
}

thread_local! {
    /// The right side, packed: 3 MiB for Whisper's full window.
    static PACKED: RefCell<Vec<f32>> = RefCell::default();
}

/// A matrix in memory.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    /// The first row.
    pub data: *const u8,
    /// Bytes between the beginnings of two rows.
    pub stride: usize,
    /// Numbers of a row.
    pub n: usize,
    /// How they are stored.
    pub storage: Storage,
}

/// How a number is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// In 32-bit floats.
    F32,
    /// In 16-bit floats.
    F16,
    /// In blocks of 32: a scale in 16 bits, then 8 bits for each number (ggml's `Q8_0`).
    Q8_0,
}

impl Storage {
    /// Numbers of a block, which is never split.
    pub const fn block_numbers(self) -> usize {
        match self {
            Self::F32 | Self::F16 => 1,
            Self::Q8_0 => Q8_0_WEIGHTS,
        }
    }

    /// Bytes of a block.
    pub const fn block_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 => 2,
            Self::Q8_0 => Q8_0_BYTES,
        }
    }
}

impl Rows {
    /// Widens eight numbers of row `i`, from number `at` on.
    ///
    /// # Safety
    /// There is a row `i`, which has them and which nobody writes to; `at` is a multiple of 8. The processor has AVX2 and F16C.
    #[target_feature(enable = "avx2,f16c")]
    unsafe fn eight(&self, i: usize, at: usize) -> __m256 {
        // SAFETY: the caller's promise; blocks of `Q8_0` are whole rows of eights.
        unsafe {
            let row = self.data.add(i * self.stride);
            match self.storage {
                Storage::F32 => _mm256_loadu_ps(row.cast::<f32>().add(at)),
                Storage::F16 => _mm256_cvtph_ps(_mm_loadu_si128(row.cast::<u16>().add(at).cast())),
                Storage::Q8_0 => {
                    let block = row.add(at / Q8_0_WEIGHTS * Q8_0_BYTES);
                    let scale = f16::from_bits(block.cast::<u16>().read_unaligned()).to_f32();
                    let weights: *const __m128i = block.add(2 + at % Q8_0_WEIGHTS).cast();
                    let weights = _mm256_cvtepi8_epi32(_mm_loadl_epi64(weights));
                    _mm256_mul_ps(_mm256_cvtepi32_ps(weights), _mm256_set1_ps(scale))
                }
            }
        }
    }

    /// Packs `depth` numbers of `N` rows, from row `from` and number `at` on: the first number of each row, then the second of
    /// each. Rows from `n_rows` on are zeros.
    ///
    /// # Safety
    /// As [`Self::eight`]; `packed` has room for `N` times `depth` numbers, `depth` is a multiple of 8.
    #[target_feature(enable = "avx2,f16c")]
    unsafe fn pack<const N: usize>(&self, from: usize, n_rows: usize, at: usize, depth: usize, packed: *mut f32) {
        for first in (0..depth).step_by(8) {
            for group in (0..N).step_by(8) {
                let mut eights = [_mm256_setzero_ps(); 8];
                let n = (N - group).min(8);
                for (i, eight) in eights.iter_mut().take(n).enumerate() {
                    let row = from + group + i;
                    if row < n_rows {
                        // SAFETY: the caller's promise.
                        *eight = unsafe { self.eight(row, at + first) };
                    }
                }
                for (i, column) in transposed(eights).into_iter().enumerate() {
                    // SAFETY: the caller's promise; a panel of fewer than eight rows takes the first numbers.
                    unsafe {
                        let to = packed.add((first + i) * N + group);
                        if n == 8 {
                            _mm256_storeu_ps(to, column);
                        } else {
                            let mut numbers = [0.0f32; 8];
                            _mm256_storeu_ps(numbers.as_mut_ptr(), column);
                            to.copy_from_nonoverlapping(numbers.as_ptr(), n);
                        }
                    }
                }
            }
        }
    }
}

/// The columns of eight rows.
#[target_feature(enable = "avx2")]
fn transposed(rows: [__m256; 8]) -> [__m256; 8] {
    let [a, b, c, d, e, f, g, h] = rows;
    let ab = _mm256_unpacklo_ps(a, b);
    let ab_high = _mm256_unpackhi_ps(a, b);
    let cd = _mm256_unpacklo_ps(c, d);
    let cd_high = _mm256_unpackhi_ps(c, d);
    let ef = _mm256_unpacklo_ps(e, f);
    let ef_high = _mm256_unpackhi_ps(e, f);
    let gh = _mm256_unpacklo_ps(g, h);
    let gh_high = _mm256_unpackhi_ps(g, h);
    const LOW: i32 = 0x44;
    const HIGH: i32 = 0xee;
    let abcd = [
        _mm256_shuffle_ps::<LOW>(ab, cd),
        _mm256_shuffle_ps::<HIGH>(ab, cd),
        _mm256_shuffle_ps::<LOW>(ab_high, cd_high),
        _mm256_shuffle_ps::<HIGH>(ab_high, cd_high),
    ];
    let efgh = [
        _mm256_shuffle_ps::<LOW>(ef, gh),
        _mm256_shuffle_ps::<HIGH>(ef, gh),
        _mm256_shuffle_ps::<LOW>(ef_high, gh_high),
        _mm256_shuffle_ps::<HIGH>(ef_high, gh_high),
    ];
    let mut columns = [_mm256_setzero_ps(); 8];
    for i in 0..4 {
        columns[i] = _mm256_permute2f128_ps::<0x20>(abcd[i], efgh[i]);
        columns[i + 4] = _mm256_permute2f128_ps::<0x31>(abcd[i], efgh[i]);
    }
    columns
}

/// A product of two matrices: `out[j][i]` is that of row `i` of `left` and row `j` of `right`.
#[derive(Clone, Copy, Debug)]
pub struct Product {
    /// Weights.
    pub left: Rows,
    /// Rows of `left`.
    pub n_left: usize,
    /// What is multiplied by them; its rows are as long as those of `left`.
    pub right: Rows,
    /// Rows of `right`.
    pub n_right: usize,
    /// The first row of the result.
    pub out: *mut f32,
    /// Numbers between the beginnings of two rows of the result.
    pub out_stride: usize,
}

impl Product {
    /// Whether packing pays, and the rows are whole eights.
    pub fn pays(&self) -> bool {
        self.n_right >= MIN_COLUMNS && self.left.n.is_multiple_of(8)
    }

    /// Computes the share of one of `n_threads` threads: some rows of `left`. Blocks for milliseconds; keeps 3 MiB a thread for
    /// 1,500 rows of `right`.
    ///
    /// # Safety
    /// The matrices are there with as many rows, nothing writes to them meanwhile, and the other threads take the other shares.
    /// [`Self::pays`] and [`is_available`] are true.
    #[target_feature(enable = "avx2,fma,f16c")]
    pub unsafe fn compute(&self, thread: usize, n_threads: usize) {
        let share = self.n_left.div_ceil(n_threads).next_multiple_of(TILE_ROWS);
        let begin = share * thread;
        let end = self.n_left.min(begin + share);
        if begin >= end {
            return;
        }
        let mut panel = [0.0f32; TILE_ROWS * DEPTH];
        PACKED.with_borrow_mut(|packed| {
            packed.resize(self.n_right.next_multiple_of(TILE_COLUMNS) * DEPTH, 0.0);
            for at in (0..self.left.n).step_by(DEPTH) {
                let depth = DEPTH.min(self.left.n - at);
                let columns = (0..self.n_right).step_by(TILE_COLUMNS);
                for (from, panel) in columns.clone().zip(packed.chunks_exact_mut(TILE_COLUMNS * DEPTH)) {
                    // SAFETY: a row of `right` is as long as one of `left`.
                    unsafe {
                        self.right.pack::<TILE_COLUMNS>(from, self.n_right, at, depth, panel.as_mut_ptr());
                    }
                }
                for row in (begin..end).step_by(TILE_ROWS) {
                    // SAFETY: rows from the end on are not read.
                    unsafe { self.left.pack::<TILE_ROWS>(row, end, at, depth, panel.as_mut_ptr()) };
                    for (column, right) in columns.clone().zip(packed.chunks_exact(TILE_COLUMNS * DEPTH)) {
                        let tile = tile(&panel, right, depth);
                        // SAFETY: the result has the rows from `column` on, and the numbers from `row` on.
                        unsafe { self.store(&tile, row, end, column, at == 0) };
                    }
                }
            }
        });
    }

    /// Adds a tile to the result, or puts it there if it `is_first`.
    ///
    /// # Safety
    /// As [`Self::compute`].
    #[target_feature(enable = "avx2,fma")]
    unsafe fn store(&self, tile: &Tile, row: usize, end: usize, column: usize, is_first: bool) {
        let n_columns = TILE_COLUMNS.min(self.n_right - column);
        let n_rows = TILE_ROWS.min(end - row);
        for (j, sums) in tile.iter().take(n_columns).enumerate() {
            // SAFETY: the caller's promise; a tile at the edge is written by numbers.
            unsafe {
                let out = self.out.add((column + j) * self.out_stride + row);
                if n_rows == TILE_ROWS {
                    for (half, sum) in sums.iter().enumerate() {
                        let out = out.add(8 * half);
                        let sum = if is_first { *sum } else { _mm256_add_ps(_mm256_loadu_ps(out), *sum) };
                        _mm256_storeu_ps(out, sum);
                    }
                } else {
                    let mut numbers = [0.0f32; TILE_ROWS];
                    _mm256_storeu_ps(numbers.as_mut_ptr(), sums[0]);
                    _mm256_storeu_ps(numbers.as_mut_ptr().add(8), sums[1]);
                    for (i, number) in numbers.iter().take(n_rows).enumerate() {
                        let before = if is_first { 0.0 } else { out.add(i).read() };
                        out.add(i).write(before + number);
                    }
                }
            }
        }
    }
}

/// Sums of 16 rows for each of six columns.
type Tile = [[__m256; 2]; TILE_COLUMNS];

/// The kernel: the products of 16 packed rows and six packed columns, each of `depth` numbers.
#[target_feature(enable = "avx2,fma")]
fn tile(left: &[f32], right: &[f32], depth: usize) -> Tile {
    let mut sums = [[_mm256_setzero_ps(); 2]; TILE_COLUMNS];
    let left = left.chunks_exact(TILE_ROWS);
    let right = right.chunks_exact(TILE_COLUMNS);
    for (left, right) in left.zip(right).take(depth) {
        // SAFETY: a chunk has 16 numbers.
        let low = unsafe { _mm256_loadu_ps(left.as_ptr()) };
        // SAFETY: as above.
        let high = unsafe { _mm256_loadu_ps(left.as_ptr().add(8)) };
        for (sums, number) in sums.iter_mut().zip(right) {
            let number = _mm256_broadcast_ss(number);
            sums[0] = _mm256_fmadd_ps(low, number, sums[0]);
            sums[1] = _mm256_fmadd_ps(high, number, sums[1]);
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers between -1 and 1 that repeat after more than a row.
    fn numbers(n: usize, seed: usize) -> Vec<f32> {
        (0..n).map(|i| ((i * 37 + seed * 101) % 211) as f32 / 105.0 - 1.0).collect()
    }

    /// As a type stores them, and what it then says.
    fn stored(storage: Storage, numbers: &[f32]) -> (Vec<u8>, Vec<f32>) {
        let halves: Vec<f16> = numbers.iter().map(|number| f16::from_f32(*number)).collect();
        match storage {
            Storage::F32 => (numbers.iter().flat_map(|number| number.to_le_bytes()).collect(), numbers.to_vec()),
            Storage::F16 => {
                let wide = halves.iter().map(|half| half.to_f32()).collect();
                (halves.iter().flat_map(|half| half.to_le_bytes()).collect(), wide)
            }
            Storage::Q8_0 => {
                let mut bytes = Vec::new();
                let mut wide = Vec::new();
                for (block, steps) in numbers.chunks(Q8_0_WEIGHTS).zip([64.0, 80.0, 100.0, 120.0].into_iter().cycle()) {
                    let scale = f16::from_f32(1.0 / steps);
                    bytes.extend(scale.to_le_bytes());
                    for number in block {
                        let weight = (number * steps) as i8;
                        bytes.push(weight as u8);
                        wide.push(f32::from(weight) * scale.to_f32());
                    }
                }
                (bytes, wide)
            }
        }
    }

    fn check(left_storage: Storage, right_storage: Storage, m: usize, n: usize, k: usize, n_threads: usize) {
        let (left, left_wide) = stored(left_storage, &numbers(m * k, 1));
        let (right, right_wide) = stored(right_storage, &numbers(n * k, 2));
        let rows = |bytes: &[u8], storage: Storage| {
            let stride = k / storage.block_numbers() * storage.block_bytes();
            Rows { data: bytes.as_ptr(), stride, n: k, storage }
        };
        let stride = m + 3;
        let mut out = vec![f32::NAN; n * stride];
        let product = Product {
            left: rows(&left, left_storage),
            n_left: m,
            right: rows(&right, right_storage),
            n_right: n,
            out: out.as_mut_ptr(),
            out_stride: stride,
        };
        assert!(product.pays());
        for thread in 0..n_threads {
            // SAFETY: the matrices live until the end of the test, which has one thread.
            unsafe { product.compute(thread, n_threads) };
        }
        for (j, row) in out.chunks(stride).enumerate() {
            for (i, number) in row[..m].iter().enumerate() {
                let pairs = left_wide[i * k..][..k].iter().zip(&right_wide[j * k..][..k]);
                let expected: f64 = pairs.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
                let error = (f64::from(*number) - expected).abs();
                assert!(error < 1e-3, "{i}, {j} of {m}x{n}x{k}, {n_threads} threads: {number} for {expected}");
            }
            assert!(row[m..].iter().all(|number| number.is_nan()), "what lies between two rows is not written");
        }
    }

    #[test]
    fn products_are_those_of_the_stored_numbers() {
        for left in [Storage::F32, Storage::F16, Storage::Q8_0] {
            for right in [Storage::F32, Storage::F16] {
                check(left, right, 70, 33, 96, 1);
                check(left, right, 70, 33, 96, 2);
                check(left, right, 5, 40, 64, 3);
                // Deeper than is packed at a time.
                check(left, right, 300, 32, 2_048, 2);
            }
        }
    }

    #[test]
    fn packing_pays_for_many_columns() {
        let rows = |n, storage| Rows { data: std::ptr::null(), stride: 0, n, storage };
        let pays = |n_right, k| {
            let product = Product {
                left: rows(k, Storage::F16),
                n_left: 512,
                right: rows(k, Storage::F32),
                n_right,
                out: std::ptr::null_mut(),
                out_stride: 512,
            };
            product.pays()
        };
        assert!(pays(384, 512));
        assert!(!pays(4, 512), "a prompt");
        assert!(!pays(384, 44), "not whole eights");
    }
}
