//! Which encodings are chosen from, and which one takes the place of another where a row is no whole number of its
//! blocks.

use crate::format::BlockType;

/// What an allocation chooses from, smallest first.
pub const MENU: [BlockType; 12] = [
    BlockType::Iq3Xxs,
    BlockType::Iq3S,
    BlockType::Q3K,
    BlockType::Mxfp4,
    BlockType::Iq4Xs,
    BlockType::Iq4Nl,
    BlockType::Q4K,
    BlockType::Q5_0,
    BlockType::Q5K,
    BlockType::Q5_1,
    BlockType::Q6K,
    BlockType::Q8_0,
];

/// The type that fits a width of `cols` values: [`BlockType::fitting`].
pub fn fitting(ty: BlockType, cols: usize) -> Option<BlockType> {
    ty.fitting(cols)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::blocks::can_quantize;

    #[test]
    fn what_does_not_fit_becomes_the_next_larger_one_with_blocks_of_32() {
        for ty in MENU {
            assert!(can_quantize(ty) && fitting(ty, 512) == Some(ty), "{ty:?}");
            let small = fitting(ty, 96).unwrap();
            assert!(small == ty && ty.elements() == 32 || small.bits() > ty.bits(), "{ty:?} to {small:?}");
            assert_eq!(fitting(ty, 33), None);
        }
    }
}
