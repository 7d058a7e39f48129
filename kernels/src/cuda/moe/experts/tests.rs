use super::tiling::NEIGHBOUR_BYTES;
use super::*;
use crate::cuda::product::layout::Layout;
use crate::cuda::rows::quantized::Planes;
use crate::cuda::wide::Chip;

const KIND: ExpertShape = ExpertShape { width: 512, gate_up: Layout::Q4_K, down: Layout::Q4_K };
const H200: Chip = Chip { multiprocessors: 132, clusters: true, shared_bytes: 227 << 10, warpgroups: true };

#[test]
fn experts_of_every_family_member_fit_and_broken_blocks_are_refused() {
    for (hidden, count, used, width, rows) in [
        (2048, 256, 8, 512, 16),
        (2048, 512, 10, 512, 16),
        (4096, 512, 10, 1024, 8),
        (256, 16, 4, 128, 16),
        (32, 16, 4, 32, 16),
    ] {
        let kind = ExpertShape { width, ..KIND };
        let experts = Experts::new(hidden, count, used, kind, kind).unwrap();
        let tiling = tiling(experts, H200).unwrap();
        assert_eq!(tiling.rows_max(), rows, "{hidden} {count} {used} {width}");
        assert!(tiling.kernels.iter().all(|(_, _, bytes)| bytes + NEIGHBOUR_BYTES <= H200.shared_bytes), "{tiling:?}");
    }
    let error =
        |used, width| Experts::new(2048, 256, used, ExpertShape { width, ..KIND }, KIND).unwrap_err().to_string();
    assert!(error(8, 48).contains("48 values"));
    assert!(error(16, 512).contains("16 of 256"));
    let without = |width| Experts::new(2048, 256, 8, ExpertShape { width, ..KIND }, KIND).unwrap().without_gates();
    assert!(without(96).unwrap_err().to_string().contains("96 values without a gate"));
    assert!(error(0, 512).contains("0 of 256"));
}

#[test]
fn rows_of_two_planes_take_more_memory_so_that_fewer_are_done_at_a_time() {
    let experts = |hidden, count, used, width| {
        let kind = ExpertShape { width, ..KIND };
        Experts::new(hidden, count, used, kind, kind).unwrap().with_planes(Planes::Two)
    };
    let rows = |e| tiling(e, H200).map(|t| t.rows_max());
    assert_eq!(rows(experts(2048, 256, 8, 512)), Some(8));
    assert_eq!(rows(experts(256, 16, 4, 128)), Some(16));
}

#[test]
fn experts_without_gates_of_an_uneven_width_fit() {
    let kind = |width, layout| ExpertShape { width, gate_up: layout, down: layout };
    // Q8_0 and two planes are too much for one block: such models take the kernels for many rows.
    for (layout, most) in [(Layout::Q5_0, [Some(8), Some(4)]), (Layout::Q8_0, [Some(4), None])] {
        let experts = Experts::new(2688, 128, 6, kind(1856, layout), kind(3712, layout)).unwrap();
        let experts = experts.without_gates().unwrap().with_sigmoids(true);
        assert_eq!(experts.gate_up().map(|shape| shape.size()), [(1856, 2688), (3712, 2688)]);
        assert_eq!(experts.down().map(|shape| shape.size()), [(2688, 1920), (2688, 3712)]);
        let rows = Planes::ALL.map(|planes| tiling(experts.with_planes(planes), H200).map(|t| t.rows_max()));
        assert_eq!(rows, most, "{layout:?}");
    }
}

#[test]
fn a_chip_with_little_shared_memory_takes_fewer_rows_at_a_time() {
    let experts =
        Experts::new(2048, 256, 8, KIND, ExpertShape { gate_up: Layout::Q8_0, down: Layout::Q8_0, ..KIND }).unwrap();
    let small = tiling(experts, Chip { shared_bytes: 99 << 10, ..H200 }).unwrap();
    assert!(small.rows_max() < 16, "{small:?}");
    assert_eq!(tiling(experts, Chip { shared_bytes: 48 << 10, ..H200 }), None);
}

#[test]
fn activations_are_f16_too_where_rings_lose_no_unit_by_that() {
    let halved = |layout| {
        let kind = ExpertShape { gate_up: layout, down: layout, ..KIND };
        tiling(Experts::new(2048, 256, 8, kind, kind).unwrap(), H200).unwrap().halved
    };
    assert_eq!(halved(Layout::Q4_K), [0; 3], "codes are no floats");
    assert_eq!([Layout::NVFP4, Layout::FP8_BLOCKS].map(|layout| halved(layout)[0]), [2; 2], "one row's are few");
    assert_eq!([Layout::NVFP4, Layout::FP8_BLOCKS].map(|layout| halved(layout)[2]), [1; 2], "16 rows of gate and up");
}
