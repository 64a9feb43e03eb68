//! Matrix products of the encoder, in the place of ggml's own.
//!
//! ggml calls `llamafile_sgemm` for each product, on every thread of a decoding; on Linux `build.rs` has the linker put
//! [`__wrap_llamafile_sgemm`] in its place. Products of many columns, which are the encoder's, are `antiphon-matmul`'s; all
//! others, which are the decoder's, go to ggml's function.
#![allow(unsafe_code)]

use antiphon_matmul::{Product, Rows, Storage};
use std::ffi::{c_int, c_void};
use std::sync::LazyLock;

/// ggml's numbers of types (`ggml.h`, `ggml_type`).
const F32: c_int = 0;
const F16: c_int = 1;
const Q8_0: c_int = 8;

/// Whether `antiphon-matmul` is the faster one: it is where ggml's kernel has AVX2, too. One for AVX-512, which ggml has where it
/// is built for the machine it runs on, was not measured.
static IS_FASTER: LazyLock<bool> = LazyLock::new(|| {
    let is_ggml_wider = option_env!("GGML_NATIVE") != Some("OFF") && is_x86_feature_detected!("avx512f");
    antiphon_matmul::is_available() && !is_ggml_wider
});

/// The beginning of ggml's `ggml_compute_params`.
#[repr(C)]
struct ComputeParams {
    /// The number of the thread.
    ith: c_int,
    /// How many threads share the product.
    nth: c_int,
}

fn storage(number: c_int) -> Option<Storage> {
    match number {
        F32 => Some(Storage::F32),
        F16 => Some(Storage::F16),
        Q8_0 => Some(Storage::Q8_0),
        _ => None,
    }
}

unsafe extern "C" {
    fn __real_llamafile_sgemm(
        params: *const c_void,
        m: i64,
        n_columns: i64,
        k: i64,
        a: *const c_void,
        lda: i64,
        b: *const c_void,
        ldb: i64,
        c: *mut c_void,
        ldc: i64,
        a_type: c_int,
        b_type: c_int,
        c_type: c_int,
    ) -> bool;
}

/// ggml's `llamafile_sgemm` (`llamafile/sgemm.h`): computes this thread's share of a product, or returns false where ggml is
/// to compute it otherwise.
///
/// # Safety
/// As ggml's.
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_llamafile_sgemm(
    params: *const c_void,
    m: i64,
    n_columns: i64,
    k: i64,
    a: *const c_void,
    lda: i64,
    b: *const c_void,
    ldb: i64,
    c: *mut c_void,
    ldc: i64,
    a_type: c_int,
    b_type: c_int,
    c_type: c_int,
) -> bool {
    let product = || {
        let size = |number: i64| usize::try_from(number).ok();
        let left_storage = storage(a_type)?;
        let right_storage = storage(b_type)?;
        // ggml counts the length of both sides in blocks of the left one, and distances in blocks of each.
        let n = size(k)? * left_storage.block_numbers();
        let product = Product {
            left: Rows { data: a.cast(), stride: size(lda)? * left_storage.block_bytes(), n, storage: left_storage },
            n_left: size(m)?,
            right: Rows { data: b.cast(), stride: size(ldb)? * right_storage.block_bytes(), n, storage: right_storage },
            n_right: size(n_columns)?,
            out: c.cast(),
            out_stride: size(ldc)?,
        };
        (c_type == F32 && product.pays()).then_some(product)
    };
    if *IS_FASTER && let Some(product) = product() {
        // SAFETY: ggml gives its parameters, and all threads call this with the same matrices.
        unsafe {
            let ComputeParams { ith, nth } = params.cast::<ComputeParams>().read();
            product.compute(ith as usize, nth as usize);
        }
        return true;
    }
    // SAFETY: the caller's promise is that function's.
    unsafe { __real_llamafile_sgemm(params, m, n_columns, k, a, lda, b, ldb, c, ldc, a_type, b_type, c_type) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_linker_has_put_it_in_the_place_of_ggmls() {
        unsafe extern "C" {
            fn llamafile_sgemm();
        }
        assert_eq!(llamafile_sgemm as *const (), __wrap_llamafile_sgemm as *const ());
    }
}
