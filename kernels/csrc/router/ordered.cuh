// Scores of many rows in the order of score.cuh: a block has one of the SCORE_PARTS parts of a tile of rows and experts, a thread some of
// the sums, whose 32 lanes it goes over itself. So a row's choice is that of `few`, whatever stands beside it.
#pragma once
#include "router/row_a_block.cuh"

#define ORDERED_THREADS 128
// A part of a row, padded so that eight rows' vectors meet every bank once.
#define PART_FLOATS (PartOfRow<COLS>::VECTORS * WARP * 4)
#define PART_STRIDE (PART_FLOATS + 4)
// Experts of a block: as many as have room.
#define ORDERED_COLUMNS (PartOfRow<COLS>::VECTORS <= 2 ? 32 : PartOfRow<COLS>::VECTORS <= 4 ? 16 : 8)
// Of a thread: rows 16 apart, experts 8 apart.
#define OWN_COLUMNS (ORDERED_COLUMNS / 8)
static_assert(PartOfRow<COLS>::VECTORS <= 8, "the launcher knows how much");

template <int OWN_ROWS> using OwnSums = float[OWN_ROWS][OWN_COLUMNS];

template <int OWN_ROWS> __device__ __forceinline__ void add_to(OwnSums<OWN_ROWS> &sum, const OwnSums<OWN_ROWS> &other) {
#pragma unroll
    for (int r = 0; r < OWN_ROWS; r++)
#pragma unroll
        for (int c = 0; c < OWN_COLUMNS; c++) sum[r][c] = other[r][c] + sum[r][c];
}
template <int OWN_ROWS> __device__ __forceinline__ void copy_to(OwnSums<OWN_ROWS> &sum, const OwnSums<OWN_ROWS> &other) {
#pragma unroll
    for (int r = 0; r < OWN_ROWS; r++)
#pragma unroll
        for (int c = 0; c < OWN_COLUMNS; c++) sum[r][c] = other[r][c];
}

// What lane `lane` has of the sums: its values of the part in order. `x`, `w`: of the thread's first row and expert.
template <int OWN_ROWS> __device__ __forceinline__ void lane_sums(OwnSums<OWN_ROWS> &sum, const float *x, const float *w, int lane) {
#pragma unroll
    for (int r = 0; r < OWN_ROWS; r++)
#pragma unroll
        for (int c = 0; c < OWN_COLUMNS; c++) sum[r][c] = 0;
#pragma unroll
    for (int i = 0; i < PartOfRow<COLS>::VECTORS; i++) {
        float4 a[OWN_ROWS], b[OWN_COLUMNS];
#pragma unroll
        for (int r = 0; r < OWN_ROWS; r++) a[r] = *(const float4 *)(x + r * 16 * PART_STRIDE + (i * WARP + lane) * 4);
#pragma unroll
        for (int c = 0; c < OWN_COLUMNS; c++) b[c] = *(const float4 *)(w + c * 8 * PART_STRIDE + (i * WARP + lane) * 4);
#pragma unroll
        for (int r = 0; r < OWN_ROWS; r++)
#pragma unroll
            for (int c = 0; c < OWN_COLUMNS; c++) sum[r][c] = dot(a[r], b[c], sum[r][c]);
    }
}

// All lanes as warp_sum adds them: those 16 apart, then 8, 4, 2 and 1. Lanes come with their bits turned round, so that what is added next
// to each other has just been made.
template <int OWN_ROWS> __device__ __forceinline__ void part_sums(OwnSums<OWN_ROWS> &sum, const float *x, const float *w) {
    OwnSums<OWN_ROWS> kept[3];
#pragma unroll 1
    for (int group = 0; group < 8; group++) {
        int first = (group & 1) << 2 | (group & 2) | group >> 2;
        OwnSums<OWN_ROWS> other;
        lane_sums<OWN_ROWS>(sum, x, w, first + 16), lane_sums<OWN_ROWS>(other, x, w, first), add_to<OWN_ROWS>(sum, other);
        OwnSums<OWN_ROWS> pair;
        copy_to<OWN_ROWS>(pair, sum);
        lane_sums<OWN_ROWS>(sum, x, w, first + 24), lane_sums<OWN_ROWS>(other, x, w, first + 8), add_to<OWN_ROWS>(sum, other), add_to<OWN_ROWS>(sum, pair);
        if (!(group & 1)) {
            copy_to<OWN_ROWS>(kept[0], sum);
            continue;
        }
        add_to<OWN_ROWS>(sum, kept[0]);
        if (!(group & 2)) {
            copy_to<OWN_ROWS>(kept[1], sum);
            continue;
        }
        add_to<OWN_ROWS>(sum, kept[1]);
        if (group == 3) copy_to<OWN_ROWS>(kept[2], sum);
    }
    add_to<OWN_ROWS>(sum, kept[2]);
}

// OWN_ROWS rows a thread: more make fewer blocks, whose sums wait less for shared memory.
template <int OWN_ROWS> __device__ __forceinline__ void ordered(const Arguments &args) {
    constexpr int ORDERED_ROWS = 16 * OWN_ROWS;
    extern __shared__ __align__(16) float parts[];
    float *xs = parts, *ws = parts + ORDERED_ROWS * PART_STRIDE;
    let_next_start();
    // As in tiled.cuh.
    const int scoring = (args.rows + ORDERED_ROWS - 1) / ORDERED_ROWS * SCORE_PARTS;
    if (blockIdx.y >= scoring) {
        Chooser<ORDERED_THREADS>::run(args, *(Scores *)parts, (blockIdx.y - scoring) * gridDim.x + blockIdx.x, ORDERED_ROWS, gridDim.x * SCORE_PARTS);
        return;
    }
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
    int c = threadIdx.x % 8, r = threadIdx.x / 8;
    OwnSums<OWN_ROWS> sum;
    part_sums<OWN_ROWS>(sum, xs + r * PART_STRIDE, ws + c * PART_STRIDE);
    float *scores = args.scores + (u64)part * args.rows * STRIDE;
#pragma unroll
    for (int i = 0; i < OWN_ROWS; i++)
#pragma unroll
        for (int j = 0; j < OWN_COLUMNS; j++) {
            int row = first_row + r + i * 16, expert = column + c + j * 8;
            if (row < args.rows && expert < E) scores[(u64)row * STRIDE + expert] = sum[i][j];
        }
    if (gridDim.y > scoring) say_scored(args, first_row / ORDERED_ROWS);
}

extern "C" __global__ void __launch_bounds__(ORDERED_THREADS) ordered1(const Arguments args) { ordered<1>(args); }
extern "C" __global__ void __launch_bounds__(ORDERED_THREADS) ordered2(const Arguments args) { ordered<2>(args); }
extern "C" __global__ void __launch_bounds__(ORDERED_THREADS) ordered4(const Arguments args) { ordered<4>(args); }
