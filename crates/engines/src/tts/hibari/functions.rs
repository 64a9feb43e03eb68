//! Exponential, tangent and rotation of rows of numbers in 32-bit floats, which compilers can do several at a time.
//!
//! [`super::synthesis`] calls them for some 50,000 numbers a second of sound. The polynomials are those of Cephes' `expf`, `sinf`
//! and `cosf`; errors are below 3e-7 of the result, and of 1 for the tangent. Nothing is allocated.

// The digits are those of the source.
#![allow(clippy::excessive_precision)]

use realfft::num_complex::Complex32;
use std::f32::consts::{FRAC_2_PI, LOG2_E};

/// Added to a number of at most 2^22, it leaves the nearest whole number in the lowest bits.
const ROUNDING: f32 = 12_582_912.0;

/// The exponents between which a result is a number, and not subnormal.
const EXPONENTS: [f32; 2] = [-87.0, 88.0];

/// The logarithm of 2 in two parts, and a quarter turn in three, the first ones with few digits: their products with small whole
/// numbers are exact.
const LN_2: [f32; 2] = [0.693_359_375, -2.121_944_4e-4];
const QUARTER: [f32; 3] = [1.570_312_5, 4.837_512_969_970_703e-4, 7.549_789_954_891_882e-8];

/// The nearest whole number, as a number and as an integer.
#[inline(always)]
fn rounded(x: f32) -> (f32, i32) {
    let shifted = x + ROUNDING;
    let bits = shifted.to_bits() as i32;
    (shifted - ROUNDING, bits.wrapping_sub(ROUNDING.to_bits() as i32))
}

/// The exponential, of exponents within [`EXPONENTS`].
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    let x = x.clamp(EXPONENTS[0], EXPONENTS[1]);
    let (n, whole) = rounded(x * LOG2_E);
    let r = x - n * LN_2[0] - n * LN_2[1];
    let p = 1.987_569_150e-4_f32;
    let p = p * r + 1.398_199_951e-3;
    let p = p * r + 8.333_451_907e-3;
    let p = p * r + 4.166_579_589e-2;
    let p = p * r + 1.666_666_546e-1;
    let p = p * r + 5.000_000_120e-1;
    let mantissa = p * r * r + r + 1.0;
    mantissa * f32::from_bits(((whole + 127) << 23) as u32)
}

/// The hyperbolic tangent.
#[inline(always)]
pub(super) fn tanh(x: f32) -> f32 {
    1.0 - 2.0 / (exp(2.0 * x) + 1.0)
}

/// The number of magnitude 1 at this angle in radians, at most 10,000.
#[inline(always)]
pub(super) fn rotation(angle: f32) -> Complex32 {
    let (n, quarters) = rounded(angle * FRAC_2_PI);
    let r = angle - n * QUARTER[0] - n * QUARTER[1] - n * QUARTER[2];
    let z = r * r;
    let sin = ((-1.951_529_589e-4 * z + 8.332_160_874e-3) * z - 1.666_665_461e-1) * z * r + r;
    let cos = ((2.443_315_712e-5 * z - 1.388_731_625e-3) * z + 4.166_664_568e-2) * z * z - 0.5 * z + 1.0;
    let is_odd = quarters & 1 != 0;
    let (re, im) = if is_odd { (sin, cos) } else { (cos, sin) };
    let negated = |value: f32, quarters: i32| f32::from_bits(value.to_bits() ^ (((quarters & 2) as u32) << 30));
    Complex32::new(negated(re, quarters.wrapping_add(1)), negated(im, quarters))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers from -`end` to `end`.
    fn numbers(end: f32) -> impl Iterator<Item = f32> {
        (-20_000..=20_000).map(move |i| end * i as f32 / 20_000.0)
    }

    #[test]
    fn exponentials_are_those_of_the_library() {
        for x in numbers(86.0) {
            let expected = f64::from(x).exp();
            let error = (f64::from(exp(x)) - expected).abs() / expected;
            assert!(error < 3e-7, "exp({x}): {error}");
        }
        assert_eq!(exp(-1e9), exp(EXPONENTS[0]));
        assert!(exp(1e9).is_finite());
    }

    #[test]
    fn tangents_and_rotations_are_those_of_the_library() {
        for x in numbers(20.0) {
            let error = (f64::from(tanh(x)) - f64::from(x).tanh()).abs();
            assert!(error < 3e-7, "tanh({x}): {error}");
        }
        for end in [4.0, 300.0, 10_000.0] {
            for angle in numbers(end) {
                let (sin, cos) = f64::from(angle).sin_cos();
                let found = rotation(angle);
                let error = (f64::from(found.re) - cos).abs().max((f64::from(found.im) - sin).abs());
                assert!(error < 1e-6, "{angle}: {error}");
            }
        }
    }
}
