use super::*;
use crate::reference::ExpertCut;

const RELEASED: RouterShape = RouterShape { cols: 2048, experts: 256, used: 8, sigmoid: false };

#[test]
fn every_family_member_has_a_kernel_and_others_are_refused_by_name() {
    let ok = |cols, experts, used| program(RouterShape { cols, experts, used, sigmoid: false });
    assert!(program(RELEASED).is_ok());
    for (cols, experts, used) in [(256, 16, 4), (32, 16, 4), (256, 4, 2), (4096, 512, 22), (5120, 128, 8)] {
        assert!(ok(cols, experts, used).is_ok());
    }
    assert!(ok(2048, 1024, 8).unwrap_err().to_string().contains("8 of 1024 experts"));
    assert!(ok(2048, 4, 5).is_err() && ok(2048, 4, 0).is_err() && ok(100, 4, 2).is_err());
}

#[test]
fn a_cut_goes_in_two_words_and_no_cut_is_zeros() {
    let cut = |min, max, mass| cut_words(Some(&ExpertCut { min, max, mass }));
    assert_eq!(cut_words(None), [0, 0]);
    assert_eq!(cut(1, 8, 0.5), [8 << 16 | 1, 0x3f00_0000]);
    assert_eq!(cut(1, 16, 0.0)[1], 0);
    assert_eq!(cut(33, u32::MAX, 1.0)[0], 32 << 16 | 32);
}

#[test]
fn sums_come_in_whole_segments_and_are_stored_while_rows_are_few() {
    let segments = |cols| RouterShape { cols, ..RELEASED }.segments();
    assert_eq!([32, 96, 256, 2048, 2560, 2080].map(segments), [1, 3, 8, 16, 16, 13]);
    assert_eq!(RELEASED.stored(Variant::Tiled, 256), 16);
    assert_eq!((RELEASED.stored(Variant::Tiled, 4096), RELEASED.stored(Variant::Few, 256)), (1, 1));
    assert_eq!(RELEASED.stored(Variant::Prompts, 2559), 16);
}
