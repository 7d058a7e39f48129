// s[c][r] = factor * norm(c) * sum_k w[r][k] x[c][k], and by EPILOGUE (common/epilogues.cuh):
//
// plain:    out[c][r] = s
// residual: out[c][r] += s, then the int8 form of out * next and the sums of squares of out
// gated:    the int8 form of silu(gate) * up, ROWS / 2 values: rows of s come as 8 of gate, 8 of up
// squared:  the int8 form of relu(s)^2
// rounded:  the int8 form of s
//
// (where rows have factors of their own, each times its row's) w: [ROWS, COLS] in one of weights.cuh's layouts; activations: int8 rows (common/int8_rows.cuh), up to COLUMNS: 1 or
// 8; norm(c): row_factor of NORM_BLOCKS squares a row, 1 if that is 0. ROWS are whole int8 blocks where their form is
// made; rows of `residual`'s have ROWS rounded up to 128 values, those of gated, squared and rounded `stride`.
//
// A tile is 16 outputs; WT tiles are done by a cluster of CLUSTER blocks, WK warps a tile, whose sums are added in
// order. So an output depends on WK, but not on CLUSTER, DEPTH, or how many columns stand beside it. Tiles of an int8
// block (32 values: two, gated four) stand in one cluster; `residual` has no others. Bound: the bytes of w. Weights
// are read before the kernel before has ended: DEPTH units a warp.
//
// -D: ROWS, COLS, CODES, SCALES, LEVELS0..3, ROW_FACTORS and WITH_GRID (the layout), COLUMNS, NORM_BLOCKS, EPILOGUE, WK, WT,
// CLUSTER, DEPTH, REGISTERS (at most, a thread), TURN_UNITS (of a warp, whose columns are in shared memory at a
// time), COLUMN_BYTES (of the dynamic part of it), PLANES of all rows (common/int8_rows.cuh), which stand for COLS
// values each, LORA: whether adapters add to the sums (common/lora.cuh).
#include "common/epilogues.cuh"
#include "product/columns.cuh"
#include "arguments.cuh"
#if LORA
#include "common/lora.cuh"
#endif

using W = Weights<CODES, SCALES, COLS, LEVELS0, LEVELS1, LEVELS2, LEVELS3, ROW_FACTORS>;
#define TILES ((ROWS + 15) / 16)
#define WARPS (WT * WK / CL)
#define THREADS (WARPS * WARP)
#define RESIDENT (65536 / REGISTERS / THREADS > 0 ? 65536 / REGISTERS / THREADS : 1)
#define NEXT_COLS ((ROWS + 127) / 128 * 128)
// Of an int8 block.
#define BLOCK_TILES (EPILOGUE == GATED ? 4 : EPILOGUE == PLAIN ? 1 : 2)
static_assert(WT % BLOCK_TILES == 0 && (EPILOGUE != RESIDUAL || WT == 2), "a cluster has whole int8 blocks");

// Sums of the cluster's tiles, and the columns' factors.
struct Made {
    const float *sums, *norms, *factors;

    // Output r of tile wt for column c, without the factor of the column.
    __device__ __forceinline__ float plain(int wt, int c, int r) const {
        return W::times_factor(sum_of<COLUMNS, WK>(sums + wt * WK * COLUMNS * 16, c, r), factors[W::HAS_FACTORS ? wt * 16 + r : 0]);
    }
    __device__ __forceinline__ float at(int wt, int c, int r) const { return plain(wt, c, r) * norms[c]; }
};

// Output `row` of column c, with what an adapter adds.
__device__ __forceinline__ float adapted(const Arguments &args, int c, int row, float value) {
#if LORA
    return LoraRow(args.lora, c).add(row, value);
#else
    return value;
#endif
}

// Asks for what adapters add to the thread's first output, before it is there.
__device__ __forceinline__ void adapters_ahead(const Arguments &args, int group) {
#if LORA
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, i = threadIdx.x;
    if constexpr (EPILOGUE == RESIDUAL) {
        if (warp < args.count) lora_ahead(args.lora, warp, group * 32 + lane);
    } else if constexpr (EPILOGUE == PLAIN) {
        const int row = (group * WT + i / 16 / args.count) * 16 + i % 16;
        if (i < WT * args.count * 16 && row < ROWS) lora_ahead(args.lora, i / 16 % args.count, row);
    } else if (warp < WT / BLOCK_TILES * args.count) {
        const int row = (group * WT + warp / args.count * BLOCK_TILES + lane / 8) * 16 + lane % 8;
        if (row < ROWS) lora_ahead(args.lora, warp % args.count, row), lora_ahead(args.lora, warp % args.count, row + 8);
    }
#endif
}

// A warp has an int8 block at a time, a lane a value of it.
__device__ __forceinline__ void finish_activated(const Arguments &args, const Made &made, int group) {
    const int lane = threadIdx.x % WARP;
    for (int i = threadIdx.x / WARP; i < WT / BLOCK_TILES * args.count; i += WARPS) {
        int c = i % args.count, first = i / args.count * BLOCK_TILES, block = (group * WT + first) / BLOCK_TILES;
        if (block >= TILES / BLOCK_TILES) continue;
        float value;
        if constexpr (EPILOGUE == GATED) {
            const int row = (group * WT + first + lane / 8) * 16 + lane % 8;
            float gate = adapted(args, c, row, made.at(first + lane / 8, c, lane % 8));
            float up = adapted(args, c, row + 8, made.at(first + lane / 8, c, lane % 8 + 8));
            value = silu(gate) * up;
        } else {
            value = made.at(first + lane / 16, c, lane % 16);
            if constexpr (EPILOGUE == SQUARED) value = relu2(value);
        }
        u64 at = (u64)c * (args.stride / 32) + block;
        quantize_block(value, args.next_codes + at * (32 * PLANES), args.next_meta + at * PLANES);
    }
}

__device__ __forceinline__ void finish_plain(const Arguments &args, const Made &made, int group) {
    for (int i = threadIdx.x; i < WT * args.count * 16; i += THREADS) {
        int r = i % 16, c = i / 16 % args.count, wt = i / 16 / args.count, row = (group * WT + wt) * 16 + r;
        if (row < ROWS) args.out[(u64)c * args.stride + row] = adapted(args, c, row, made.at(wt, c, r));
    }
}

// `old`: what the stream has of the warp's first column, `next`: the norm's weight.
__device__ __forceinline__ void
finish_residual(const Arguments &args, const Made &made, int group, float old, float next) {
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    for (int c = warp; c < args.count; c += WARPS) {
        float *x = args.out + (u64)c * args.stride + group * 32 + lane;
        if (c != warp) old = *x;
        float value = adapted(args, c, group * 32 + lane, __fmaf_rn(made.plain(lane / 16, c, lane % 16), made.norms[c], old));
        *x = value;
        float squares = block_squares(value);
        if (lane == 0) args.next_squares[(u64)c * (ROWS / 32) + group] = squares;
        u64 at = (u64)c * (NEXT_COLS / 32) + group;
        quantize_block(value * next, args.next_codes + at * (32 * PLANES), args.next_meta + at * PLANES);
    }
}

extern "C" __global__ void IN_CLUSTERS __launch_bounds__(THREADS, RESIDENT) product(const Arguments args) {
    constexpr int SUMS = WT * WK * COLUMNS * 16;
    using P = Part<W, COLUMNS, WK, WARPS, DEPTH, TURN_UNITS>;
    extern __shared__ __align__(16) u8 columns[];
    static_assert(P::C::BYTES <= COLUMN_BYTES, "the launcher knows how much");
    __shared__ float sums[SUMS];
    __shared__ float norms[COLUMNS];
    __shared__ float factors[W::HAS_FACTORS ? WT * 16 : 1];
    __shared__ u32 grid[WITH_GRID ? GRID_WORDS : 1];
    let_next_start();
    cluster_start();
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, rank = cluster_rank(), number = rank * WARPS + warp;
    int group = blockIdx.x / CL, tile = group * WT + number / WK;
    P part;
    // A tile past the last one repeats it; its outputs are not stored.
    part.start(args.weights + (u64)min(tile, TILES - 1) * W::TILE_BYTES, number);
    fetch_grid(grid);
    if constexpr (W::HAS_FACTORS)
        for (int i = threadIdx.x; i < WT * 16; i += THREADS)
            factors[i] = W::factor_of(args.weights + (u64)min(group * WT + i / 16, TILES - 1) * W::TILE_BYTES, i % 16);
    float next = 0, old = 0;
    if (EPILOGUE == RESIDUAL && rank == 0) next = __ldg(args.next + group * 32 + lane);
    if (rank == 0) adapters_ahead(args, group);
    wait_for_inputs();

    Norms<NORM_BLOCKS, WARPS> norm;
    if (rank == 0) {
        if (EPILOGUE == RESIDUAL && warp < args.count) old = args.out[(u64)warp * args.stride + group * 32 + lane];
        norm.read(args.squares, args.count);
    }
    float acc[(COLUMNS + 7) / 8][4] = {};
    part.multiply(acc, columns, args.codes, args.meta, args.count, number, grid, [&] {
        if (rank == 0) norm.put(norms, args.squares, args.count, args.eps, args.factor);
    });
    cluster_started();
    put_sums<COLUMNS>(sums + number * COLUMNS * 16, acc);
    if (!all_stored()) return;

    const Made made = {sums, norms, factors};
    if constexpr (EPILOGUE == RESIDUAL) finish_residual(args, made, group, old, next);
    else if constexpr (EPILOGUE == PLAIN) finish_plain(args, made, group);
    else finish_activated(args, made, group);
}
