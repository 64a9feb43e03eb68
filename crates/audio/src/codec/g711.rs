//! ITU-T G.711 (11/88): u-law (table 2) and A-law (table 1), as tables built at compile time.
//!
//! The standard defines levels of 14 bits (u-law) and 13 bits (A-law); here they are scaled to 16 bits. Decoding reads
//! a table of 256 levels; encoding finds the segment from the leading bit.

/// Added to a u-law magnitude so that segment edges are powers of two (33 in 14 bits).
const ULAW_BIAS: i32 = 33 << 2;
/// The largest u-law magnitude that does not overflow after the bias (8158 in 14 bits).
const ULAW_CLIP: i32 = 8158 << 2;
/// A-law inverts every other bit, so that silence is not a run of equal bits on the line.
const ALAW_TOGGLE: u8 = 0x55;

static ULAW: [i16; 256] = ulaw_table();
static ALAW: [i16; 256] = alaw_table();

/// The 16-bit level of a u-law code.
pub(crate) fn ulaw_to_linear(code: u8) -> i16 {
    ULAW[usize::from(code)]
}

/// The 16-bit level of an A-law code.
pub(crate) fn alaw_to_linear(code: u8) -> i16 {
    ALAW[usize::from(code)]
}

/// The u-law code nearest to a 16-bit level; codes are transmitted inverted.
pub(crate) fn linear_to_ulaw(sample: i16) -> u8 {
    let sign = if sample < 0 { 0x80 } else { 0 };
    let magnitude = i32::from(sample).abs().min(ULAW_CLIP) + ULAW_BIAS;
    let segment = 31 - magnitude.leading_zeros() as i32 - 7;
    let step = (magnitude >> (segment + 3)) & 0x0f;
    !(sign | ((segment as u8) << 4) | step as u8)
}

/// The A-law code nearest to a 16-bit level.
pub(crate) fn linear_to_alaw(sample: i16) -> u8 {
    // In A-law the sign bit is set for positive levels, and -1 mirrors 0 so that both halves have the same steps.
    let (sign, magnitude) = if sample < 0 { (0, !i32::from(sample)) } else { (0x80, i32::from(sample)) };
    let code = if magnitude < 256 {
        (magnitude >> 4) as u8
    } else {
        let segment = 31 - magnitude.leading_zeros() as i32 - 7;
        ((segment as u8) << 4) | ((magnitude >> (segment + 3)) & 0x0f) as u8
    };
    (sign | code) ^ ALAW_TOGGLE
}

const fn ulaw_table() -> [i16; 256] {
    let mut levels = [0; 256];
    let mut i = 0;
    while i < 256 {
        let code = !(i as u8);
        let segment = ((code >> 4) & 7) as i32;
        let step = (code & 0x0f) as i32;
        let magnitude = (((step << 3) + ULAW_BIAS) << segment) - ULAW_BIAS;
        levels[i] = if code & 0x80 != 0 { -magnitude } else { magnitude } as i16;
        i += 1;
    }
    levels
}

const fn alaw_table() -> [i16; 256] {
    let mut levels = [0; 256];
    let mut i = 0;
    while i < 256 {
        let code = i as u8 ^ ALAW_TOGGLE;
        let segment = ((code >> 4) & 7) as i32;
        // The middle of the step: the first two segments have the same width.
        let inside = (((code & 0x0f) as i32) << 4) + 8;
        let magnitude = if segment == 0 { inside } else { (inside + 256) << (segment - 1) };
        levels[i] = if code & 0x80 != 0 { magnitude } else { -magnitude } as i16;
        i += 1;
    }
    levels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_codes_of_the_standard() {
        // Table 2a/2b, decoder output values: the outermost and innermost levels, in 14 bits times four.
        assert_eq!(ulaw_to_linear(0x80), 8031 << 2);
        assert_eq!(ulaw_to_linear(0x00), -(8031 << 2));
        assert_eq!((ulaw_to_linear(0xff), ulaw_to_linear(0x7f)), (0, 0));
        assert_eq!(ulaw_to_linear(0xfe), 2 << 2);
        // Table 1a/1b in 13 bits times eight: 4032 outermost, 1 innermost.
        assert_eq!(alaw_to_linear(0xff ^ ALAW_TOGGLE), 4032 << 3);
        assert_eq!(alaw_to_linear(0x7f ^ ALAW_TOGGLE), -(4032 << 3));
        assert_eq!(alaw_to_linear(0xd5), 1 << 3);
        assert_eq!(alaw_to_linear(0x55), -(1 << 3));
    }

    #[test]
    fn silence_has_its_idle_codes() {
        assert_eq!(linear_to_ulaw(0), 0xff);
        assert_eq!(linear_to_alaw(0), 0xd5);
    }

    #[test]
    fn every_level_encodes_to_its_own_code() {
        for code in 0..=255 {
            let ulaw = linear_to_ulaw(ulaw_to_linear(code));
            // 0x7f is negative zero, which decodes to the same level as 0xff.
            assert_eq!(ulaw, if code == 0x7f { 0xff } else { code });
            assert_eq!(linear_to_alaw(alaw_to_linear(code)), code);
        }
    }

    #[test]
    fn every_sample_lands_in_its_own_step() {
        for sample in i16::MIN..=i16::MAX {
            let wrong = |level: i16| (i32::from(level) - i32::from(sample)).abs();
            // u-law steps are 8 wide in segment 0 and double with each segment; A-law steps are 16 wide in segments 0
            // and 1.
            let ulaw = linear_to_ulaw(sample);
            let half = 4 << ((!ulaw >> 4) & 7);
            let clipped = i32::from(sample).abs() > ULAW_CLIP;
            assert!(wrong(ulaw_to_linear(ulaw)) <= half || clipped, "{sample} became u-law {ulaw:#x}");
            let alaw = linear_to_alaw(sample);
            let half = 8 << (((alaw ^ ALAW_TOGGLE) >> 4) & 7).saturating_sub(1);
            assert!(wrong(alaw_to_linear(alaw)) <= half, "{sample} became A-law {alaw:#x}");
        }
    }
}
