//! What the device's lanes read of a tile, as numbers: the inverse of [`super`], for its tests.

use crate::format::blocks::decode::e4m3;
use chimere_kernels::cuda::product::layout::{
    Codes, E2M1_FACTOR, E2M1_LEVELS, Layout, Scales, UNIT, e2m1_quads, e4m3_word, iq3_s_grid,
};
use chimere_kernels::cuda::quantized::BLOCK;
use half::f16;

/// The weights of row `r` of a tile of rows of `cols`.
pub(crate) fn row(layout: Layout, factor: f32, cols: usize, tile: &[u8], r: usize) -> Vec<f32> {
    let grid = if layout.codes == Codes::Grid { iq3_s_grid() } else { Vec::new() };
    let lanes = Lanes { layout, tile, units: cols / UNIT, g: r % 8, high: r / 8, grid };
    let own = if layout.row_factors {
        let at = layout.offsets(cols / UNIT)[3] + 4 * r;
        f32::from_le_bytes(*tile[at..].first_chunk().unwrap())
    } else {
        1.0
    };
    (0..cols / BLOCK).flat_map(|b| lanes.block(b)).map(|x| x * factor * own).collect()
}

struct Lanes<'a> {
    layout: Layout,
    tile: &'a [u8],
    units: usize,
    g: usize,
    high: usize,
    grid: Vec<[u8; 4]>,
}

impl Lanes<'_> {
    fn word(&self, byte: usize) -> u32 {
        u32::from_le_bytes(*self.tile[byte..].first_chunk().unwrap())
    }

    fn half(&self, byte: usize) -> u16 {
        u16::from_le_bytes(*self.tile[byte..].first_chunk().unwrap())
    }

    fn block(&self, b: usize) -> [f32; BLOCK] {
        let (scale, min) = self.scales(b);
        let mut out = [0.0; BLOCK];
        for quad in 0..8 {
            for (i, level) in self.levels(b, quad % 4, quad / 4).into_iter().enumerate() {
                let level = match self.layout.codes {
                    Codes::E4m3 => e4m3(level as u8),
                    Codes::E2m1 => level as f32 * 0.5 / E2M1_FACTOR,
                    _ => level as f32,
                };
                out[4 * quad + i] = scale[quad / 4] * level - min;
            }
        }
        out
    }

    /// Quad `t + 4 * q` of block `b`.
    fn levels(&self, b: usize, t: usize, q: usize) -> [i32; 4] {
        let (unit, at, lane, i) = (b / 4, b % 4, 4 * self.g + t, 2 * q + self.high);
        let (codes_bytes, plane_bytes, ..) = self.layout.parts();
        let codes = unit * codes_bytes;
        let plane = self.layout.offsets(self.units)[0] + unit * plane_bytes;
        let signed = |byte: usize| self.word(byte).to_le_bytes().map(|c| i32::from(c as i8));
        let two = || self.word(codes + at / 2 * 512 + lane * 16 + (at % 2 * 2 + self.high) * 4);
        let nibbles = || (two() >> (4 * q) & 0x0f0f_0f0f).to_le_bytes().map(i32::from);
        match self.layout.codes {
            Codes::Byte => signed(codes + at * 512 + lane * 16 + i * 4),
            Codes::E4m3 => {
                let quad = e4m3_word(self.word(codes + at * 512 + lane * 16 + i * 4));
                quad.to_le_bytes().map(|c| i32::from(c as i8))
            }
            Codes::Word => {
                let [high, low] = [0, 2048].map(|from| signed(codes + from + at * 512 + lane * 16 + i * 4));
                std::array::from_fn(|k| 256 * high[k] + low[k])
            }
            Codes::Table(levels) => [0, 1, 2, 3].map(|k| i32::from(levels[(two() >> (16 * q + 4 * k) & 15) as usize])),
            Codes::E2m1 => e2m1_quads(two())[q].to_le_bytes().map(|c| i32::from(E2M1_LEVELS[usize::from(c)])),
            Codes::Nibble | Codes::Zeroed => nibbles(),
            Codes::Five => {
                let bits = (self.word(plane + lane * 8 + at / 2 * 4) >> (at % 2 * 4 + i) & 0x0101_0101).to_le_bytes();
                std::array::from_fn(|k| nibbles()[k] | i32::from(bits[k]) << 4)
            }
            Codes::SignedFive => {
                let bits = (self.word(plane + lane * 8 + at / 2 * 4) >> (at % 2 * 4 + i) & 0x0101_0101).to_le_bytes();
                std::array::from_fn(|k| nibbles()[k] - 16 * i32::from(bits[k]))
            }
            Codes::Six => {
                let bits = (self.word(plane + lane * 16 + at * 4) >> (2 * i) & 0x0303_0303).to_le_bytes();
                std::array::from_fn(|k| (nibbles()[k] | i32::from(bits[k]) << 4) << 26 >> 26)
            }
            Codes::Grid => {
                let low = self.word(codes + lane * 16 + at * 4) >> (8 * i) & 255;
                let ninth = self.half(plane + 256 + lane * 2) >> (at * 4 + i) & 1;
                let minus = (self.word(plane + lane * 8 + at / 2 * 4) >> (at % 2 * 4 + i) & 0x0101_0101).to_le_bytes();
                let magnitudes = self.grid[low as usize + 256 * usize::from(ninth)];
                std::array::from_fn(|k| i32::from(magnitudes[k]) * (1 - 2 * i32::from(minus[k])))
            }
        }
    }

    /// Scale of each half of block `b`, and what is subtracted.
    fn scales(&self, b: usize) -> ([f32; 2], f32) {
        let (unit, at, g, high) = (b / 4, b % 4, self.g, self.high);
        let [_, scales_at, groups_at, _] = self.layout.offsets(self.units);
        let (.., scale_bytes, group_bytes) = self.layout.parts();
        let (of_block, of_group) = (scales_at + unit * scale_bytes, groups_at + unit / 2 * group_bytes);
        let f16_at = |byte: usize| f16::from_bits(self.half(byte)).to_f32();
        let byte = |at: usize| f32::from(self.tile[at] as i8);
        let two = of_block + g * 16 + at * 4 + 2 * high;
        match self.layout.scales {
            Scales::F16 => ([f16_at(two); 2], 0.0),
            Scales::Bf16 => ([f32::from_bits(u32::from(self.half(two)) << 16); 2], 0.0),
            Scales::Min => {
                let group = of_group + g * 8 + high * 4;
                ([f16_at(group) * byte(two); 2], f16_at(group + 2) * byte(two + 1))
            }
            Scales::Byte => ([f16_at(of_group + g * 4 + high * 2) * byte(of_block + g * 8 + at * 2 + high); 2], 0.0),
            Scales::Nibble => {
                let n = self.tile[of_block + g * 4 + at] >> (4 * high) & 15;
                ([f16_at(of_group + g * 4 + high * 2) * f32::from(1 + 2 * n); 2], 0.0)
            }
            Scales::Halves => {
                let d = f16_at(of_group + g * 4 + high * 2);
                ([d * byte(two), d * byte(two + 1)], 0.0)
            }
            Scales::E4m3 => ([e4m3(self.tile[two]), e4m3(self.tile[two + 1])], 0.0),
            Scales::Eights => ([f32::from_bits(self.word(of_block + 4 * high)); 2], 0.0),
            Scales::Zero => {
                let at = of_block + g * 8 + 4 * high;
                ([f16_at(at); 2], f16_at(at) * f32::from(self.tile[at + 2]))
            }
        }
    }
}
