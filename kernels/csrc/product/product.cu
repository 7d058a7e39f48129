// product:  out[c][r] = factor * norm(c) * sum_k w[r][k] x[c][k]
// residual: x[c][r] += factor * norm(c) * sum_k w[r][k] y[c][k], then the int8 form of x * next and the sums of squares of x
//
// w: [ROWS, COLS] in one of weights.cuh's layouts; activations: int8 rows (common/int8_rows.cuh), up to COLUMNS: 1 or 8; norm(c): row_factor of NORM_BLOCKS
// squares a row, 1 if that is 0. ROWS of `residual` are a multiple of 32, rows of its int8 form ROWS rounded up to 128.
//
// A tile is 16 outputs; WT tiles are done by a cluster of CLUSTER blocks, WK warps a tile, whose sums are added in order. So an output
// depends on WK, but not on CLUSTER, DEPTH, or how many columns stand beside it. `residual` has two tiles: 32 outputs are a block of
// the int8 form. Bound: the bytes of w. Weights are read before the kernel before has ended: DEPTH units a warp.
//
// -D: ROWS, COLS, CODES, SCALES, LEVELS0..3 and WITH_GRID (the layout), COLUMNS, NORM_BLOCKS, RESIDUAL (which of the two), WK, WT, CLUSTER,
// DEPTH, REGISTERS (at most, a thread), TURN_UNITS (of a warp, whose columns are in shared memory at a time), COLUMN_BYTES (of the dynamic
// part of it), PLANES of all rows (common/int8_rows.cuh), which stand for COLS values each.
#include "product/columns.cuh"
#include "arguments.cuh"

using W = Weights<CODES, SCALES, COLS, LEVELS0, LEVELS1, LEVELS2, LEVELS3>;
#define TILES ((ROWS + 15) / 16)
#define WARPS (WT * WK / CL)
#define THREADS (WARPS * WARP)
#define RESIDENT (65536 / REGISTERS / THREADS > 0 ? 65536 / REGISTERS / THREADS : 1)
#define NEXT_COLS ((ROWS + 127) / 128 * 128)

extern "C" __global__ void IN_CLUSTERS __launch_bounds__(THREADS, RESIDENT) product(const Arguments args) {
    constexpr int SUMS = WT * WK * COLUMNS * 16;
    using P = Part<W, COLUMNS, WK, WARPS, DEPTH, TURN_UNITS>;
    extern __shared__ __align__(16) u8 columns[];
    static_assert(P::C::BYTES <= COLUMN_BYTES, "the launcher knows how much");
    __shared__ float sums[SUMS];
    __shared__ float norms[COLUMNS];
    __shared__ u32 grid[WITH_GRID ? GRID_WORDS : 1];
    let_next_start();
    cluster_start();
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, rank = cluster_rank(), number = rank * WARPS + warp;
    int group = blockIdx.x / CL, tile = group * WT + number / WK;
    P part;
    // A tile past the last one repeats it; its outputs are not stored.
    part.start(args.weights + (u64)min(tile, TILES - 1) * W::TILE_BYTES, number);
    fetch_grid(grid);
    float next = 0, old = 0;
    if (RESIDUAL && rank == 0) next = __ldg(args.next + group * 32 + lane);
    wait_for_inputs();

    Norms<NORM_BLOCKS, WARPS> norm;
    if (rank == 0) {
        if (RESIDUAL && warp < args.count) old = args.out[(u64)warp * args.stride + group * 32 + lane];
        norm.read(args.squares, args.count);
    }
    float acc[(COLUMNS + 7) / 8][4] = {};
    part.multiply(acc, columns, args.codes, args.meta, args.count, number, grid, [&] {
        if (rank == 0) norm.put(norms, args.squares, args.count, args.eps, args.factor);
    });
    cluster_started();
    put_sums<COLUMNS>(sums + number * COLUMNS * 16, acc);
    if (!all_stored()) return;

    if constexpr (RESIDUAL) {
        for (int c = warp; c < args.count; c += WARPS) {
            float *x = args.out + (u64)c * args.stride + group * 32 + lane;
            if (c != warp) old = *x;
            float value = __fmaf_rn(sum_of<COLUMNS, WK>(sums + lane / 16 * WK * COLUMNS * 16, c, lane % 16), norms[c], old);
            *x = value;
            float squares = block_squares(value);
            if (lane == 0) args.next_squares[(u64)c * (ROWS / 32) + group] = squares;
            u64 at = (u64)c * (NEXT_COLS / 32) + group;
            quantize_block(value * next, args.next_codes + at * (32 * PLANES), args.next_meta + at * PLANES);
        }
    } else {
        for (int i = threadIdx.x; i < WT * args.count * 16; i += THREADS) {
            int r = i % 16, c = i / 16 % args.count, wt = i / 16 / args.count, row = (group * WT + wt) * 16 + r;
            if (row < ROWS) args.out[(u64)c * args.stride + row] = sum_of<COLUMNS, WK>(sums + wt * WK * COLUMNS * 16, c, r) * norms[c];
        }
    }
}
