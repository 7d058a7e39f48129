//! The levels of 4-bit types whose codes are places in a table, and where the extreme value of a group may lie.

use crate::format::blocks::decode::IQ4_LEVELS;

/// Levels of IQ4_NL and IQ4_XS as numbers.
pub(super) const IQ4: [f32; 16] = {
    let (mut out, mut i) = ([0.0; 16], 0);
    while i < 16 {
        out[i] = IQ4_LEVELS[i] as f32;
        i += 1;
    }
    out
};

/// E2M1 in ascending order. Its two zeros are one level.
pub(super) const E2M1_LEVELS: [f32; 16] =
    [-6.0, -4.0, -3.0, -2.0, -1.5, -1.0, -0.5, 0.0, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];

/// Where the extreme value may lie beside the outermost level `end`, on both sides: the same 19 distances for 4 bits,
/// finer for more.
pub(super) fn ends(end: f32) -> impl Iterator<Item = f32> {
    (-9..=9).flat_map(move |i| [-end - 0.1 * i as f32, end + 0.1 * i as f32])
}

/// Where the extreme value may lie around both ends of IQ4's levels.
pub(super) fn iq4_ends() -> impl Iterator<Item = f32> {
    (-14..=14).flat_map(|i| [IQ4[0] + i as f32, IQ4[15] + i as f32])
}

/// The 4-bit code of a level: its place in the table of a type.
pub(super) fn code_in(table: &[f32; 16], level: f32) -> u8 {
    table.iter().position(|l| *l == level).expect("a nearest level is one of the table") as u8
}
