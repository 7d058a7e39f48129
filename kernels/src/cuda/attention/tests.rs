use super::shape::SHARED_BYTES_MAX;
use super::splits::{SPLIT_PAGES, SPLITS_MAX};
use super::*;
use crate::cuda::Arch;

const RELEASED: AttentionShape = AttentionShape {
    dim: 256,
    heads: 16,
    kv_heads: 2,
    rotary: 64,
    theta: 1e7,
    yarn: None,
    eps: 1e-6,
    gated: true,
    normed: true,
    scale: 1.0 / 16.0,
    stride: 9216,
    planes: Planes::One,
    drafts: 0,
};

#[test]
fn the_released_model_s_cache_takes_what_the_specification_says() {
    let token = |kv| {
        let (k, v) = RELEASED.page_bytes(kv);
        10 * (k + v) / PAGE
    };
    assert_eq!([KvType::F16, KvType::Q8, KvType::Q8Q4].map(token), [20480, 10880, 8320]);
    assert_eq!((RELEASED.inputs(), RELEASED.out_stride()), (9216, 4096));
    assert_eq!(DecodeScratch::bytes(RELEASED, 1, 256), 16 * 520 + 2 * 8);
}

#[test]
fn a_row_has_at_most_as_many_splits_as_scratch_has_room_for() {
    // The device's rule.
    let of_row = |position: usize| {
        let (pages, mut per) = (position / PAGE + 1, SPLIT_PAGES);
        while per * SPLITS_MAX < pages {
            per *= 2;
        }
        pages.div_ceil(per)
    };
    let mut most = 0;
    for context in 1..=262_144 {
        most = most.max(of_row(context - 1));
        assert!(most <= splits(context), "{context}");
    }
    assert_eq!([1, 256, 257, 32768, 262_144].map(splits), [1, 1, 2, 128, 128]);
}

#[test]
fn tiles_do_not_reach_from_one_sequence_to_the_next() {
    let of = |arch: &str, multiprocessors| TileChip { arch: arch.parse().unwrap(), multiprocessors };
    let (ada, hopper) = (of("sm_89", 4), of("sm_90a", 4));
    assert_eq!(tiles(RELEASED, ada, &[3, 0, 17]), [[0, 3], [3, 8], [11, 8], [19, 1]]);
    assert_eq!(tiles(RELEASED, hopper, &[3, 0, 17]), [[0, 3], [3, 16], [19, 1]]);
    // Two tiles of two key-value heads are as many as there are multiprocessors.
    assert_eq!(tiles(RELEASED, hopper, &[16]), [[0, 8], [8, 8]]);
    let six = AttentionShape { heads: 12, ..RELEASED };
    assert_eq!(tiles(six, hopper, &[25]), [[0, 21], [21, 4]]);
}

#[test]
fn there_is_room_for_the_tiles_of_every_step() {
    for (arch, multiprocessors) in [("sm_89", 128), ("sm_90a", 132)] {
        let chip = TileChip { arch: arch.parse().unwrap(), multiprocessors };
        for pieces in [vec![1; 256], vec![33; 16], vec![8192], vec![528], vec![0, 529], vec![7, 2000, 1]] {
            let (tiles, rows) = (tiles(RELEASED, chip, &pieces), pieces.iter().sum());
            assert!(tiles.len() <= tiles_max(RELEASED, chip, rows, pieces.len()), "{arch}: {pieces:?}");
        }
    }
}

#[test]
fn every_legal_shape_fits_a_small_chip_and_others_are_refused_by_name() {
    let [small, hopper]: [Arch; 2] = ["sm_89", "sm_90a"].map(|arch| arch.parse().unwrap());
    for kv in [KvType::F16, KvType::Q8, KvType::Q8Q4] {
        for (dim, heads) in [64, 128, 256].into_iter().flat_map(|dim| (1..=16).map(move |group| (dim, 2 * group))) {
            let shape = AttentionShape { dim, heads, stride: 20000, ..RELEASED };
            assert!(shape.prefill_shared_bytes(kv) <= SHARED_BYTES_MAX);
            assert!(shape.wide_prefill_shared_bytes(kv) <= hopper.shared_bytes_max());
            for arch in [small, hopper] {
                let tiling = tiling(shape, kv, arch);
                assert!(program(shape, kv, tiling).is_ok());
                let bytes = shape.decode_shared_bytes(kv, tiling);
                assert!(bytes <= arch.shared_bytes_max(), "{shape:?} {kv:?} {arch}");
            }
        }
    }
    let rounds = |arch| [KvType::F16, KvType::Q8, KvType::Q8Q4].map(|kv| tiling(RELEASED, kv, arch).round);
    assert_eq!([rounds(small), rounds(hopper)], [[2, 4, 4], [4, 4, 4]]);
    let refused = |s: AttentionShape| {
        program(s, KvType::F16, DecodeTiling { round: 2, resident: 2, warps: 8 }).unwrap_err().to_string()
    };
    assert!(refused(AttentionShape { dim: 96, ..RELEASED }).contains("heads of 96"));
    assert!(refused(AttentionShape { heads: 34, ..RELEASED }).contains("34 query heads for 2"));
    assert!(refused(AttentionShape { rotary: 128, ..RELEASED }).contains("128 rotated dims"));
    let falcon = AttentionShape { dim: 128, rotary: 128, gated: false, normed: false, ..RELEASED };
    assert!(falcon.check().is_ok() && falcon.inputs() == 20 * 128);
    assert!(refused(AttentionShape { stride: 9000, ..RELEASED }).contains("9000 apart"));
}
