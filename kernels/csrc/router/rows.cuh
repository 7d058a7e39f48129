// What is known of a row before its scores, and what becomes of them: sums of segments, the choice.
#pragma once
#include "arguments.cuh"
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

// Whether this block is the last of `blocks` to come here. What the others wrote before is then visible to all its threads, past
// L1. One thread fences for its block: the barrier before it orders the others' writes ahead.
__device__ __forceinline__ bool last_to_finish(int *counter, int blocks) {
    __shared__ bool last;
    __syncthreads();
    if (threadIdx.x == 0) {
        int before;
        asm volatile("atom.acq_rel.gpu.global.add.s32 %0, [%1], 1;" : "=r"(before) : "l"(counter) : "memory");
        last = before == blocks - 1;
        if (last) *counter = 0;
    }
    __syncthreads();
    return last;
}

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
