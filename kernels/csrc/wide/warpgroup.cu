// y[c][r] = sum_k w[r][k] x[c][k] for very many columns c, in f16 on Hopper's matrix instructions   w: [ROWS, COLS] as in weights.cuh,
// x: rows of f16 that rows/halves.cu made of int8 ones
//
// A block owns R = 64 GROUPS TW rows by up to C columns. A warpgroup has 64 TW rows and all of the block's columns: it expands its weights
// to f16 in registers (halves.cuh), once for all columns, and the instruction reads activations from shared memory. Weights and activations
// of a unit of 128 inputs are one stage, which a warpgroup of its own fills (feed.cuh) as soon as the others are done with what it held.
//
// An output is the sum over its inputs in order, 16 at a time as the instruction adds them, in f32. It depends on nothing but its row
// and column: not on how many columns there are, nor on R, C or STAGES.
//
// Bounds: 2 ROWS COLS columns operations at 990 T/s; the weights' bytes once for every C columns and 2 COLS bytes a column for every R
// rows, from the cache at some 5.5 TB/s; 35 issue slots a warp for each 16 rows by 32 inputs that are expanded; shared memory, 128 bytes
// a cycle, of which the instruction takes 64.
//
// Epilogues, NORM_BLOCKS and lists as of wide.cu.
// -D: ROWS, COLS, the layout's (weights.cuh), LISTED: whether columns are, GROUPS, TW: tiles of 16 rows of a warp, C8 (C / 8), STAGES,
// EPILOGUE, NORM_BLOCKS.
#define HALVES 1
#define WR (4 * GROUPS)
#define NW C8
#define WN 1
#define KG 1
#define KU 1
#define SPLIT 1
#define SEGMENTS 0
#define BY_BLOCK 0
#define PLANES 1
// Blocks of a multiprocessor: one where sums take most of the registers.
#define BLOCKS_AT_A_TIME (TW * C8 > 8 ? 1 : 2)
#include "wide/columns.cuh"
#include "wide/feed.cuh"
#include "wide/halves.cuh"
#include "wide/read.cuh"
#include "wide/wgmma.cuh"

// A warp's tiles: of each 64 rows of its warpgroup one.
__device__ __forceinline__ int tile_of(int i) {
    int warp = threadIdx.x / WARP;
    return warp / 4 * (4 * TW) + i * 4 + warp % 4;
}

// Fragments that are under way or being made.
#define FRAGMENTS 4

// One unit's weights times N columns. `before`: the stage of the unit before it, done with in the course of it, or -1.
template <int N>
__device__ __forceinline__ void multiply_unit(float (&acc)[TW][N / 2], Fragment (&fragments)[FRAGMENTS], const Block &block, int stage,
                                              int before, const u32 *grid) {
    const u64 columns = descriptor(block.stage(stage));
    const u32 weights = block.stage(stage) + WEIGHTS_IN;
    W::Unit w[TW];
#pragma unroll
    for (int i = 0; i < TW; i++) load_block(w[i], weights + tile_of(i) * UNIT_BYTES, 0);
#pragma unroll
    for (int b = 0; b < 4; b++) {
        HalfCodes codes[TW];
        HalfScales scales[TW];
#pragma unroll
        for (int i = 0; i < TW; i++) {
            codes[i].set(w[i], b, grid), scales[i].set(w[i], b);
            if (b < 3) load_block(w[i], weights + tile_of(i) * UNIT_BYTES, b + 1);
        }
#pragma unroll
        for (int step = 0; step < 2 * TW; step++) {
            const int half = step / TW, i = step % TW;
            Fragment &a = fragments[(b * 2 * TW + step) % FRAGMENTS];
            half == 0 ? a.set<0>(codes[i], scales[i]) : a.set<1>(codes[i], scales[i]);
            // Then those are done that read what is made next.
            matrices_wait<FRAGMENTS - 2>();
            if (b * 2 * TW + step == FRAGMENTS - 1 && before >= 0 && threadIdx.x % WARP == 0) barrier_arrive(block.empty(before));
            matrices_begin();
            Wgmma<N>::add(acc[i], a.a, columns + ((b / 2 * (C * 128) + b % 2 * 64 + half * 32) >> 4));
            matrices_end();
        }
    }
}

// Sums to shared memory, where the stages were. Ends with a barrier.
template <int N> __device__ __forceinline__ void put_columns(const Thread &me, float *sums, const float (&acc)[TW][N / 2]) {
    __syncthreads();
#pragma unroll
    for (int j = 0; j < TW; j++)
#pragma unroll
        for (int i = 0; i < N / 2; i++)
            sums[(i / 4 * 8 + 2 * me.t + i % 2) * SUM_STRIDE + tile_of(j) * 16 + me.g + i % 4 / 2 * 8] = acc[j][i];
    __syncthreads();
}

// The block's rows times its first N columns.
template <int N> __device__ __forceinline__ void multiply_columns(const Thread &me, const Block &block, Turn &turn, float *sums, const u32 *grid) {
    float acc[TW][N / 2];
#pragma unroll
    for (int i = 0; i < TW * N / 2; i++) acc[i / (N / 2)][i % (N / 2)] = 0;
    Fragment fragments[FRAGMENTS];
#pragma unroll 1
    for (int unit = 0; unit < W::UNITS; unit++, turn.next()) {
        barrier_wait(block.full(turn.stage), turn.parity);
        // Of pieces of 16 bytes, which other threads copied.
        if (LISTED) shared_for_matrices();
        multiply_unit<N>(acc, fragments, block, turn.stage, unit > 0 ? turn.stage_before() : -1, grid);
    }
    matrices_wait<0>();
    if (me.lane == 0) barrier_arrive(block.empty(turn.stage_before()));
    put_columns<N>(me, sums, acc);
}

// The same for as few columns as there are, in steps of 32.
template <int N>
__device__ __forceinline__ void multiply_left(int left, const Thread &me, const Block &block, Turn &turn, float *sums, const u32 *grid) {
    if constexpr (N > 32) {
        if (left <= N - 32) return multiply_left<N - 32>(left, me, block, turn, sums, grid);
    }
    multiply_columns<N>(me, block, turn, sums, grid);
}

// All columns of the block, by the warpgroup that feeds the others. Barriers are those of `multiply_all`.
__device__ __forceinline__ void feed_all(const Arguments &args, const Work &work, const Block &block, const Lists &lists) {
    registers_down<BLOCKS_AT_A_TIME == 1 ? 40 : 32>();
    Turn turn;
    for (int base = work.base; base < work.end; base += C) {
        __syncthreads();
        feed(args, block, lists, turn, base, (min(work.end - base, C) + 31) / 32 * 32);
#pragma unroll
        for (int i = 0; i < 3; i++) __syncthreads();
    }
}

// The same by those that multiply.
__device__ __forceinline__ void multiply_all(const Thread &me, const Arguments &args, const Work &work, const Block &block, const Place &p,
                                             float *sums, Lists &lists, const u32 *grid) {
    registers_up<BLOCKS_AT_A_TIME == 1 ? 232 : 104>();
    Turn turn;
    for (int base = work.base; base < work.end; base += C) {
        const int left = min(work.end - base, C);
        lists.put_rows(args, work, base);
        __syncthreads();
        if (!LISTED) wait_for_inputs();
        lists.put_factors(me, args);
        multiply_left<C>(left, me, block, turn, sums, grid);
        finish(me, args, sums, lists, p, left);
        // The next columns overwrite what was just read.
        __syncthreads();
    }
}

extern "C" __global__ void __launch_bounds__(THREADS + FEEDERS *WARP, BLOCKS_AT_A_TIME) warpgroup(const Arguments args) {
    extern __shared__ __align__(1024) u8 shared[];
    u32 *grid = (u32 *)(shared + GRID_AT);
    Lists lists(shared);
    let_next_start();
    fetch_grid(grid);
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const Thread me = {(int)threadIdx.x, warp, lane, lane / 4, lane % 4};
    const Place p = place_of(me);
    const Work work = find_work(args, lists.in_row);
    const Block block = {args.weights + work.matrix * args.matrix_bytes, p.tile0, shared_address(shared), shared_address(shared + BARRIERS_AT)};
    if (threadIdx.x == 0) block.make_barriers();
    __syncthreads();
    if (warp >= WARPS) feed_all(args, work, block, lists);
    else multiply_all(me, args, work, block, p, (float *)shared, lists, grid);
}
