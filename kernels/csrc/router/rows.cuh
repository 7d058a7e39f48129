// What is known of a row before its scores, and what becomes of them: sums of segments, the choice.
#pragma once
#include "arguments.cuh"
#include "common/counters.cuh"
#include "common/int8_rows.cuh"
#include "router/choose.cuh"
#include "router/score.cuh"

#define THREADS 256
#define WARPS (THREADS / WARP)
// The shared gate is column E of the scores.
#define STRIDE ((E + 1 + 7) / 8 * 8)
#define BLOCKS (COLS / 32)
#define EACH_LANE ((E + WARP - 1) / WARP)
#define CHUNK 2048

// Read ahead of the scores where there is time to hide it.
__device__ __forceinline__ Asked read_ahead(const Arguments &args, int row) {
    Asked row_asked = asked(args.slots, args.cuts, row);
    row_asked.factor = row_factor<BLOCKS>(args.squares + (u64)row * BLOCKS, args.eps);
    return row_asked;
}

// By one warp. Lane k gets the row's k-th expert.
__device__ __forceinline__ int select_row(const Arguments &args, int row, Asked asked, const float (&value)[EACH_LANE], float gate,
                                           const Biases<E> &biases) {
    int lane = threadIdx.x % WARP;
    Choice<E, USED> choice(asked, value, gate, biases);
    if (lane < USED) {
        args.experts[(u64)row * USED + lane] = choice.expert;
        args.gates[(u64)row * (USED + 1) + lane] = choice.weight;
    }
    if (lane == 0) {
        args.gates[(u64)row * (USED + 1) + USED] = choice.shared;
        if (asked.limits > 0) atomicAdd(args.tally, choice.left);
    }
    return choice.expert;
}
