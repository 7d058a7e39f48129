// y[c][r] = sum_k w[r][k] x[c][k] for very many columns c, in f16 on Hopper's matrix instructions   w: [ROWS, COLS] as in weights.cuh,
// x: rows of f16 that rows/halves.cu made of int8 ones
//
// A block owns R = 64 GROUPS TW rows by up to C columns. A warpgroup has 64 TW rows and all of the block's columns: it expands its weights
// to f16 in registers (weights/halves.cuh), once for all columns, and the instruction reads activations from shared memory. Weights and
// activations of a unit of 128 inputs are one stage, which a warpgroup of its own fills (feed.cuh) as soon as the others are done with what
// it held; or, of listed columns, all warps do (listed.cuh), because blocks of few columns would else spend half of their time before and
// after.
//
// An output is the sum over its inputs in order, 16 at a time as the instruction adds them, in f32. It depends on nothing but its row
// and column: not on how many columns there are, nor on R, C or STAGES. product/halves.cu has the same for few columns.
//
// Bounds: 2 ROWS COLS columns operations at 990 T/s; the weights' bytes once for every C columns and 2 COLS bytes a column for every R
// rows, from the cache at some 5.5 TB/s; 35 issue slots a warp for each 16 rows by 32 inputs that are expanded; shared memory, 128 bytes
// a cycle, of which the instruction takes 64.
//
// Epilogues and lists as of wide.cu. A norm's factor is in the rows' scales (NORM_BLOCKS is not read).
// -D: ROWS, COLS, the layout's (weights.cuh), LISTED: whether columns are, GROUPS, TW: tiles of 16 rows of a warp, C8 (C / 8), STAGES,
// EPILOGUE, NORM_BLOCKS, PLACED; where columns are not listed HALF_SEGMENTS: parts of the inputs that have sums of their own, added one after
// another, as product/halves.cu takes those of few columns.
#include "wide/warpgroups.cuh"
// Blocks of a multiprocessor: one where it has most of the registers.
#define BLOCKS_AT_A_TIME (TW * C8 > 8 || GROUPS > 2 ? 1 : LISTED && TW * C8 <= 4 ? 3 : 2)
// Registers of a thread that multiplies and of one that feeds, of which a multiprocessor has 65,536 for all.
#define REGISTERS (BLOCKS_AT_A_TIME > 1 ? 104 : GROUPS > 2 ? 160 : 232)
#define FEEDER_REGISTERS (BLOCKS_AT_A_TIME > 1 || GROUPS > 2 ? 32 : 40)
// Fewer columns are done by as many instructions for as few as this.
#define STEP (LISTED ? C / 4 : 32)
#include "wide/wgmma.cuh"
#include "wide/columns.cuh"
#if LISTED
#include "wide/listed.cuh"
#else
#include "wide/feed.cuh"
#endif
#include "wide/expand.cuh"

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

// The block's rows times its first N columns, unit by unit.
template <int N, typename Units> __device__ __forceinline__ void multiply_columns(const Thread &me, Units &units, float *sums, const u32 *grid) {
    float acc[TW][N / 2], total[HALF_SEGMENTS > 1 ? TW : 1][N / 2] = {};
    Fragment fragments[FRAGMENTS];
    int unit = 0;
#pragma unroll 1
    for (int segment = 1; segment <= HALF_SEGMENTS; segment++) {
#pragma unroll
        for (int i = 0; i < TW * N / 2; i++) acc[i / (N / 2)][i % (N / 2)] = 0;
#pragma unroll 1
        for (; unit < segment * W::UNITS / HALF_SEGMENTS; unit++) {
            const u32 stage = units.next(unit);
            multiply_unit<N>(acc, fragments, stage, stage + WEIGHTS_IN, [&] { units.free_before(unit); }, grid);
        }
        matrices_wait<0>();
        if constexpr (HALF_SEGMENTS > 1) {
#pragma unroll
            for (int i = 0; i < TW * N / 2; i++) total[i / (N / 2)][i % (N / 2)] += acc[i / (N / 2)][i % (N / 2)];
        }
    }
    units.end();
    if constexpr (HALF_SEGMENTS > 1) put_columns<N>(me, sums, total);
    else put_columns<N>(me, sums, acc);
}

// Multiplies as few columns as there are, by `multiply_columns` of the smallest number that has room for them.
template <typename Units> __device__ __forceinline__ void multiply_left(int left, const Thread &me, Units &units, float *sums, const u32 *grid) {
    with_columns<C>(left, [&](auto columns) { multiply_columns<decltype(columns)::COUNT>(me, units, sums, grid); });
}

#if LISTED
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_AT_A_TIME) warpgroup(const Arguments args) {
    extern __shared__ __align__(1024) u8 shared[];
    u32 *grid = (u32 *)(shared + GRID_AT);
    Lists lists(shared);
    fetch_grid(grid);
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const Thread me = {(int)threadIdx.x, warp, lane, lane / 4, lane % 4};
    const Place p = place_of(me);
    const Work work = find_work(args, lists.in_row);
    // As in wide.cu.
    let_next_start();
    Stages stages = {shared_address(shared), args};
    stages.weights.set(matrix_of(args, work.matrix), p.tile0);
    for (int base = work.base; base < work.end; base += C) {
        const int left = min(work.end - base, C);
        stages.columns = (left + STEP - 1) / STEP * STEP;
        stages.begin();
        if (args.early) wait_for_inputs();
        lists.put_rows(args, work, base);
        __syncthreads();
        stages.begin(lists.in_row);
        lists.put_factors(me, args);
        multiply_left(left, me, stages, (float *)shared, grid);
        finish(me, args, (float *)shared, lists, p, matrix_of(args, work.matrix), left);
        // The next columns overwrite what was just read.
        __syncthreads();
    }
    ends_behind_inputs(args);
}
#else
// All columns of the block, by the warpgroup that feeds the others. Barriers are those of `multiply_all`.
__device__ __forceinline__ void feed_all(const Arguments &args, const Work &work, const Block &block) {
    registers_down<FEEDER_REGISTERS>();
    __syncthreads();
    feed_parts<FedCodes, FedScales, FedColumns>({args, block, work.base, (min(work.end - work.base, C) + STEP - 1) / STEP * STEP});
#pragma unroll
    for (int i = 0; i < 2; i++) __syncthreads();
}

// Multiplies all columns of a block, by the warpgroups that do not feed.
__device__ __forceinline__ void multiply_all(const Thread &me, const Arguments &args, const Work &work, const Block &block, const Place &p,
                                             float *sums, Lists &lists, const u32 *grid) {
    registers_up<REGISTERS>();
    const int left = min(work.end - work.base, C);
    lists.put_rows(args, work, work.base);
    __syncthreads();
    wait_for_inputs();
    lists.put_factors(me, args);
    FedUnits units = {block};
    multiply_left(left, me, units, sums, grid);
    finish(me, args, sums, lists, p, block.matrix, left);
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
    const Block block = {matrix_of(args, work.matrix), p.tile0, shared_address(shared), shared_address(shared + BARRIERS_AT)};
    if (threadIdx.x == 0) block.make_barriers();
    __syncthreads();
    if (warp >= WARPS) feed_all(args, work, block);
    else multiply_all(me, args, work, block, p, (float *)shared, lists, grid);
}
#endif
