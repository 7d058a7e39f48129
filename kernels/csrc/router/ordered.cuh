// Scores of many rows in the order of score.cuh: a block has one of the SCORE_PARTS parts of a tile of rows and experts, a thread some of
// the sums, of which it goes over some of the 32 lanes itself. So a row's choice is that of `few`, whatever stands beside it.
#pragma once
#include "router/row_a_block.cuh"

#define ORDERED_THREADS 256
// A part of a row, padded so that eight rows' vectors meet every bank once.
#define PART_FLOATS (PartOfRow<COLS>::VECTORS * WARP * 4)
#define PART_STRIDE (PART_FLOATS + 4)
// Experts of a block: as many as have room.
#define ORDERED_COLUMNS (PartOfRow<COLS>::VECTORS <= 2 ? 32 : PartOfRow<COLS>::VECTORS <= 4 ? 16 : 8)
// Of a thread: rows and experts, the latter 8 apart. What is read of shared memory serves all of one by all of the other.
#define OWN_ROWS 4
#define OWN_COLUMNS (ORDERED_COLUMNS / 8)
static_assert(PartOfRow<COLS>::VECTORS <= 8, "the launcher knows how much");

// The choice in the launch that scores, by blocks behind those that do. A chip begins the blocks of a grid in the order of their numbers, x first; so
// blocks that score, which wait for nobody, run or are done when a block begins that waits for them. CUDA does not promise this order, but
// has no other, and CUB's scans rest on it too; a chip with another one would end this wait by its bound.
//
// Counters: how many choosers have seen all they need; then of each tile of rows how many blocks have scored it.
#define CHOSEN (args.counters + 2)
#define SCORED (args.counters + 3)

// By all threads of a block that has stored sums of a tile of rows.
__device__ __forceinline__ void say_scored(const Arguments &args, int tile) {
    __syncthreads();
    if (threadIdx.x == 0) tell(SCORED + tile, 1);
}
// Ends as said above. Counters are cleared by the last block that chooses, when all have seen them.
__device__ __forceinline__ void await_scored(const Arguments &args, int tile, int blocks) { await_told<ROUTER_TILE_SCORED>(SCORED + tile, blocks); }

// What a block that chooses knows of its row before there are scores, and then the choice. `row` of the step, in tiles of `tile_rows` rows
// and `blocks` blocks each.
__device__ __forceinline__ void choose_beside(const Arguments &args, Scores &scores, int row, int tile_rows, int blocks) {
    static_assert(ORDERED_THREADS == THREADS && WARPS == SCORE_PARTS, "a warp a part");
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    PartOfRow<COLS> norm, gate, x;
    norm.read(args.norm, warp, true), gate.read(args.shared_gate, warp, true);
    wait_for_inputs();
    if (row >= args.rows) return;
    x.read(args.x + (u64)row * COLS, warp, true);
    x.multiply(norm);
    const float part = x.score(gate);
    if (lane == 0) scores.gate[warp] = part;
    if (warp == 0) {
        const Asked asked = read_ahead(args, row);
        if (lane == 0) scores.asked = asked;
    }
    // The first tile's first block empties the lists. Both at a time: each look is a trip to the cache.
    if (lane == 0 && warp < 2) await_scored(args, warp == 0 ? 0 : row / tile_rows, blocks);
    __syncthreads();
    // Not before: the experts' blocks would take the places of those of the shared expert, which need nothing of the choice.
    let_next_start();
    Segments segments;
    segments.read(args, row);
    segments.add(scores.value);
    __syncthreads();
    if (warp == 0) choose_row(scores, args, row);
    if (threadIdx.x != THREADS - 1) return;
    if (atomicAdd(CHOSEN, 1) < args.rows - 1) return;
    *CHOSEN = 0;
    for (int tile = 0; tile * tile_rows < args.rows; tile++) SCORED[tile] = 0;
}

using OwnSums = float[OWN_ROWS][OWN_COLUMNS];

__device__ __forceinline__ void add_to(OwnSums &sum, const OwnSums &other) {
#pragma unroll
    for (int r = 0; r < OWN_ROWS; r++)
#pragma unroll
        for (int c = 0; c < OWN_COLUMNS; c++) sum[r][c] = other[r][c] + sum[r][c];
}
__device__ __forceinline__ void copy_to(OwnSums &sum, const OwnSums &other) {
#pragma unroll
    for (int r = 0; r < OWN_ROWS; r++)
#pragma unroll
        for (int c = 0; c < OWN_COLUMNS; c++) sum[r][c] = other[r][c];
}

// Tiles of ROWS rows. A group of threads has all sums of the tile, and every GROUPS-th lane.
template <int ROWS> struct Ordered {
    static constexpr int SETS = ROWS / OWN_ROWS, GROUPS = ORDERED_THREADS / (8 * SETS), LANES = WARP / GROUPS;
    static_assert(GROUPS <= 8, "lanes 16 and 8 apart are one thread's");
    // Sums of a group in shared memory: [ROWS][SUMS_STRIDE].
    static constexpr int SUMS_STRIDE = ORDERED_COLUMNS + 8;
    static_assert(GROUPS * ROWS * SUMS_STRIDE <= (ROWS + ORDERED_COLUMNS) * PART_STRIDE, "they fit where rows and experts were");

    // A thread's group, first row and first expert. A vector of shared memory that lanes one apart share, or lanes two apart, is read for
    // half a warp at a time, else for a quarter: rows are the same in the former, experts in the latter.
    static __device__ __forceinline__ int group_of() { return threadIdx.x / (8 * SETS); }
    static __device__ __forceinline__ int column_of() { return (threadIdx.x & 1) | (threadIdx.x >> 1 & 6); }
    static __device__ __forceinline__ int row_of() {
        static_assert(SETS % 4 == 0, "a warp has four rows");
        return (threadIdx.x >> 1 & 1) | (threadIdx.x >> 3 & 2) | threadIdx.x / WARP % (SETS / 4) * 4;
    }

    // What lane `lane` has of the sums: its values of the part in order. `x`, `w`: of the thread's first row and expert.
    static __device__ __forceinline__ void lane_sums(OwnSums &sum, const float *x, const float *w, int lane) {
#pragma unroll
        for (int r = 0; r < OWN_ROWS; r++)
#pragma unroll
            for (int c = 0; c < OWN_COLUMNS; c++) sum[r][c] = 0;
#pragma unroll
        for (int i = 0; i < PartOfRow<COLS>::VECTORS; i++) {
            float4 a[OWN_ROWS], b[OWN_COLUMNS];
#pragma unroll
            for (int r = 0; r < OWN_ROWS; r++) a[r] = *(const float4 *)(x + r * SETS * PART_STRIDE + (i * WARP + lane) * 4);
#pragma unroll
            for (int c = 0; c < OWN_COLUMNS; c++) b[c] = *(const float4 *)(w + c * 8 * PART_STRIDE + (i * WARP + lane) * 4);
#pragma unroll
            for (int r = 0; r < OWN_ROWS; r++)
#pragma unroll
                for (int c = 0; c < OWN_COLUMNS; c++) sum[r][c] = dot(a[r], b[c], sum[r][c]);
        }
    }
    // Lanes 16 and 8 apart, from `first` on, as warp_sum adds them.
    static __device__ __forceinline__ void four_lanes(OwnSums &sum, const float *x, const float *w, int first) {
        OwnSums other, pair;
        lane_sums(pair, x, w, first + 16), lane_sums(other, x, w, first), add_to(pair, other);
        lane_sums(sum, x, w, first + 24), lane_sums(other, x, w, first + 8), add_to(sum, other), add_to(sum, pair);
    }
    // The group's lanes: those 16 apart, then 8, 4 and so on. They come with their bits turned round, so that what is added next to each
    // other has just been made.
    static __device__ __forceinline__ void part_sums(OwnSums &sum, const float *x, const float *w, int group) {
        OwnSums kept[2];
#pragma unroll 1
        for (int i = 0; i < LANES / 4; i++) {
            four_lanes(sum, x, w, (i & 1) << 2 | (i & 2) | group);
            if (LANES > 4 && i % 2 == 1) add_to(sum, kept[0]);
            if (i % 2 == 0) copy_to(kept[0], sum);
            else if (i == 1) copy_to(kept[1], sum);
        }
        if (LANES > 8) add_to(sum, kept[1]);
    }
    // A sum over the groups, by the same tree. `at`: of the first one.
    template <int COUNT> static __device__ __forceinline__ float all_groups(const float *at, int step) {
        if constexpr (COUNT == 1) return *at;
        else return all_groups<COUNT / 2>(at, step * 2) + all_groups<COUNT / 2>(at + step, step * 2);
    }
    // Sums of all groups to `scores`, by way of `memory`, which holds nothing else by then.
    static __device__ __forceinline__ void store(const Arguments &args, float *scores, const OwnSums &sum, float *memory, int first_row, int column) {
        constexpr int OF_GROUP = ROWS * SUMS_STRIDE;
        const int group = group_of(), c = column_of(), r = row_of();
        __syncthreads();
#pragma unroll
        for (int i = 0; i < OWN_ROWS; i++)
#pragma unroll
            for (int j = 0; j < OWN_COLUMNS; j++) memory[group * OF_GROUP + (i * SETS + r) * SUMS_STRIDE + j * 8 + c] = sum[i][j];
        __syncthreads();
#pragma unroll
        for (int i = threadIdx.x; i < ROWS * ORDERED_COLUMNS; i += ORDERED_THREADS) {
            int row = i / ORDERED_COLUMNS, expert = i % ORDERED_COLUMNS;
            float all = all_groups<GROUPS>(memory + row * SUMS_STRIDE + expert, OF_GROUP);
            if (first_row + row < args.rows && column + expert < E) scores[(u64)(first_row + row) * STRIDE + column + expert] = all;
        }
    }
};

// Tiles of more rows make fewer blocks, whose sums wait less for shared memory.
template <int ORDERED_ROWS> __device__ __forceinline__ void ordered(const Arguments &args) {
    using O = Ordered<ORDERED_ROWS>;
    extern __shared__ __align__(16) float parts[];
    float *xs = parts, *ws = parts + ORDERED_ROWS * PART_STRIDE;
    const int scoring = (args.rows + ORDERED_ROWS - 1) / ORDERED_ROWS * SCORE_PARTS;
    if (blockIdx.y >= scoring) {
        const int row = (blockIdx.y - scoring) * gridDim.x + blockIdx.x;
        return choose_beside(args, *(Scores *)parts, row, ORDERED_ROWS, gridDim.x * SCORE_PARTS);
    }
    let_next_start();
    int part = blockIdx.y % SCORE_PARTS, first_row = blockIdx.y / SCORE_PARTS * ORDERED_ROWS, column = blockIdx.x * ORDERED_COLUMNS;
    constexpr int EACH = PART_FLOATS / 4;
    auto at = [&](int v) { return ((v / WARP * SCORE_PARTS + part) * WARP + v % WARP) * 4; };
    for (int i = threadIdx.x; i < ORDERED_COLUMNS * EACH; i += ORDERED_THREADS) {
        int c = i / EACH, v = i % EACH;
        bool there = column + c < E && at(v) < COLS;
        const float *from = args.weights + (there ? (u64)(column + c) * COLS + at(v) : 0);
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(ws + c * PART_STRIDE + v * 4)), "l"(from), "r"(there ? 16 : 0)
                     : "memory");
    }
    copies_end();
    wait_for_inputs();
    empty_lists(args);
#pragma unroll 8
    for (int i = threadIdx.x; i < ORDERED_ROWS * EACH; i += ORDERED_THREADS) {
        int r = i / EACH, v = i % EACH;
        float4 x = make_float4(0, 0, 0, 0);
        if (first_row + r < args.rows && at(v) < COLS)
            x = times(*(const float4 *)(args.x + (u64)(first_row + r) * COLS + at(v)), __ldg((const float4 *)(args.norm + at(v))));
        *(float4 *)(xs + r * PART_STRIDE + v * 4) = x;
    }
    copies_wait<0>();
    __syncthreads();
    OwnSums sum;
    O::part_sums(sum, xs + O::row_of() * PART_STRIDE, ws + O::column_of() * PART_STRIDE, O::group_of());
    O::store(args, args.scores + (u64)part * args.rows * STRIDE, sum, parts, first_row, column);
    if (gridDim.y > scoring) say_scored(args, first_row / ORDERED_ROWS);
}

extern "C" __global__ void __launch_bounds__(ORDERED_THREADS) ordered1(const Arguments args) { ordered<16>(args); }
extern "C" __global__ void __launch_bounds__(ORDERED_THREADS) ordered2(const Arguments args) { ordered<32>(args); }
extern "C" __global__ void __launch_bounds__(ORDERED_THREADS) ordered4(const Arguments args) { ordered<64>(args); }
