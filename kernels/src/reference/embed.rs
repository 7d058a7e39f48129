//! A row of the token table, and what is remembered of a token.

/// How a token table stores its rows: GGUF's types that kernels read as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TableEncoding {
    /// One 32-bit float for each value.
    F32,
    /// One 16-bit float (IEEE binary16) for each value.
    F16,
    /// The upper half of a 32-bit float (bfloat16) for each value.
    Bf16,
    /// Blocks of 32 signed bytes and an f16 factor.
    Q8_0,
    /// Blocks of 32 nibbles and an f16 factor.
    Q4_0,
    /// Blocks of 256 nibbles, with a scale and a minimum for each 32.
    Q4K,
    /// Blocks of 256 codes of five bits, with a scale and a minimum for each 32.
    Q5K,
    /// Blocks of 256 codes of six bits, with a scale for each 16.
    Q6K,
}

impl TableEncoding {
    /// Every encoding that there is a kernel for.
    pub const ALL: [Self; 8] =
        [Self::F32, Self::F16, Self::Bf16, Self::Q8_0, Self::Q4_0, Self::Q4K, Self::Q5K, Self::Q6K];

    /// Values of a block, and its bytes.
    pub fn block(self) -> (usize, usize) {
        match self {
            Self::F32 => (1, 4),
            Self::F16 | Self::Bf16 => (1, 2),
            Self::Q8_0 => (32, 34),
            Self::Q4_0 => (32, 18),
            Self::Q4K => (256, 144),
            Self::Q5K => (256, 176),
            Self::Q6K => (256, 210),
        }
    }
}

/// Values of an encoded row; products and sums are rounded one by one, in the order written.
pub fn table_row(encoding: TableEncoding, bytes: &[u8]) -> Vec<f32> {
    let (elements, size) = encoding.block();
    bytes.chunks_exact(size).flat_map(|b| (0..elements).map(|e| value(encoding, b, e))).collect()
}

fn value(encoding: TableEncoding, b: &[u8], e: usize) -> f32 {
    let nibble = |byte: u8, high: bool| f32::from(if high { byte >> 4 } else { byte & 15 });
    match encoding {
        TableEncoding::F32 => f32::from_le_bytes([b[0], b[1], b[2], b[3]]),
        TableEncoding::F16 => half(b, 0),
        TableEncoding::Bf16 => f32::from_bits(u32::from(u16::from_le_bytes([b[0], b[1]])) << 16),
        TableEncoding::Q8_0 => half(b, 0) * f32::from(b[2 + e] as i8),
        TableEncoding::Q4_0 => half(b, 0) * (nibble(b[2 + e % 16], e >= 16) - 8.0),
        TableEncoding::Q4K | TableEncoding::Q5K => {
            let (g, l) = (e / 32, e % 32);
            let (scale, min) = scale_min(&b[4..16], g);
            let five = encoding == TableEncoding::Q5K;
            let codes = if five { &b[48..] } else { &b[16..] };
            let high = if five { f32::from(b[16 + l] >> g & 1) * 16.0 } else { 0.0 };
            let code = nibble(codes[32 * (g / 2) + l], g % 2 == 1) + high;
            half(b, 0) * f32::from(scale) * code - half(b, 2) * f32::from(min)
        }
        TableEncoding::Q6K => {
            let (n, r, l) = (e / 128, e % 128 / 32, e % 32);
            let low = nibble(b[64 * n + 32 * (r & 1) + l], r >= 2);
            let high = f32::from(b[128 + 32 * n + l] >> (2 * r) & 3) * 16.0;
            half(b, 208) * f32::from(b[192 + 8 * n + 2 * r + l / 16] as i8) * (low + high - 32.0)
        }
    }
}

/// Six-bit scale and minimum of group `g` of 8.
fn scale_min(s: &[u8], g: usize) -> (u8, u8) {
    if g < 4 {
        (s[g] & 63, s[g + 4] & 63)
    } else {
        (s[g + 4] & 15 | s[g - 4] >> 6 << 4, s[g + 4] >> 4 | s[g] >> 6 << 4)
    }
}

/// The 16-bit float at byte `at`.
fn half(b: &[u8], at: usize) -> f32 {
    let bits = u16::from_le_bytes([b[at], b[at + 1]]);
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f32::from(bits & 1023));
    let magnitude = match exponent {
        0 => fraction * 2f32.powi(-24),
        31 if fraction == 0.0 => f32::INFINITY,
        31 => f32::NAN,
        _ => (1024.0 + fraction) * 2f32.powi(exponent - 25),
    };
    if bits >> 15 == 1 { -magnitude } else { magnitude }
}

/// Times that a token can be counted.
const COUNT_MAX: u16 = 0x7fff;
/// Set for tokens of the prompt.
const OF_PROMPT: u16 = 0x8000;

/// What is remembered of a token, after it came once more: at `position` of a sequence whose prompt has `prompt_len`
/// tokens.
pub fn remember(before: u16, position: i32, prompt_len: i32) -> u16 {
    if position < prompt_len {
        before | OF_PROMPT
    } else {
        before & OF_PROMPT | ((before & COUNT_MAX) + 1).min(COUNT_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_read_as_their_standard_says() {
        let of = |bits: u16| half(&bits.to_le_bytes(), 0);
        assert_eq!([0x3c00, 0xc000, 0x0001, 0x7bff].map(of), [1.0, -2.0, 2f32.powi(-24), 65504.0]);
    }

    #[test]
    fn blocks_are_read_as_their_file_means_them() {
        let mut b = [0u8; 34];
        (b[1], b[2], b[33]) = (0x3c, 0xff, 5);
        let row = table_row(TableEncoding::Q8_0, &b);
        assert_eq!((row.len(), row[0], row[31]), (32, -1.0, 5.0));
        let mut b = [0u8; 144];
        (b[1], b[3], b[4], b[8], b[16]) = (0x3c, 0x3c, 2, 3, 0x75);
        let row = table_row(TableEncoding::Q4K, &b);
        assert_eq!((row[0], row[1], row[32]), (2.0 * 5.0 - 3.0, -3.0, 0.0));
        let mut b = [0u8; 210];
        (b[209], b[192], b[0], b[128]) = (0x3c, 2, 0x09, 3);
        assert_eq!(table_row(TableEncoding::Q6K, &b)[0], 2.0 * (9.0 + 48.0 - 32.0));
    }

    #[test]
    fn a_token_of_the_prompt_may_be_generated_too_and_its_count_stays_in_bounds() {
        assert_eq!(remember(0, 3, 4), 0x8000);
        assert_eq!(remember(0x8000, 4, 4), 0x8001);
        assert_eq!(remember(0xffff, 4, 4), 0xffff);
        assert_eq!(remember(0x7fff, 9, 4), 0x7fff);
    }
}
