// Few rows: weights in registers, a row after another; the choice and the lists in the same launch.
#pragma once
#include "router/group.cuh"

#define COLUMNS 2

// Blocks that choose, at most: the last ones, which wait for the others. So few that a small device has room for others beside them.
#define CHOOSERS 16

// By the last blocks: waits for the scores of some rows each, and chooses.
__device__ __forceinline__ void choose_few(const Arguments &args, u32 tag) {
    __shared__ Members<GROUPED_ROWS, THREADS> members;
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    int choosers = gridDim.x < CHOOSERS ? gridDim.x : CHOOSERS, chooser = gridDim.x - 1 - blockIdx.x;
    if (chooser >= choosers || chooser >= args.rows) return;
    Biases<E> biases(args.bias);
    // Not warp 0 first: it is the one that still stores scores.
    for (int row = chooser + choosers * ((warp + WARPS - 1) % WARPS); row < args.rows; row += choosers * WARPS) {
        Asked ahead = read_ahead(args, row);
        float value[EACH_LANE], gate;
        // Ends when all blocks have stored their scores. This block has, and blocks that do not choose wait for nothing: they find room, since of
        // those that choose there are CHOOSERS at most, and no more than rows, while any chip holds more blocks than that. A later kernel's
        // blocks do not come before all of these run (common/base.cuh).
        await_scores<ROUTER_SCORES, E>(args.tagged + (u64)row * STRIDE, tag, value, gate);
        // Every block has read the count by now, or its scores were not here.
        if (row == 0 && lane == 0) args.counters[1] = (int)tag;
        select_row(args, row, ahead, value, gate, biases);
    }
    if (!args.groups || !last_to_finish(args.counters, choosers < args.rows ? choosers : args.rows)) return;
    group_all(members, args);
}

// ROWS rows at a time.
template <int ROWS> __device__ __forceinline__ void few(const Arguments &args) {
    static_assert(WARPS == SCORE_PARTS, "a warp a part");
    __shared__ float parts[WARPS][ROWS * COLUMNS];
    let_next_start();
    int tid = threadIdx.x, warp = tid / WARP, lane = tid % WARP, column = blockIdx.x * COLUMNS;
    PartOfRow<COLS> weights[COLUMNS], norm;
    norm.read(args.norm, warp, true);
#pragma unroll
    for (int c = 0; c < COLUMNS; c++)
        weights[c].read(column + c < E ? args.weights + (u64)(column + c) * COLS : args.shared_gate, warp, column + c <= E);
    wait_for_inputs();
    u32 tag = __ldcg((const u32 *)args.counters + 1) + 1;
    for (int row = 0; row < args.rows; row += ROWS) {
        PartOfRow<COLS> x[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; r++) x[r].read(args.x + (u64)(row + r) * COLS, warp, row + r < args.rows);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            x[r].multiply(norm);
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) {
                float sum = x[r].score(weights[c]);
                if (lane == 0) parts[warp][r * COLUMNS + c] = sum;
            }
        }
        __syncthreads();
        int r = tid / COLUMNS, c = column + tid % COLUMNS;
        if (tid < ROWS * COLUMNS && row + r < args.rows && c <= E) {
            float all = 0;
#pragma unroll
            for (int i = 0; i < WARPS; i++) all += parts[i][tid];
            put_score(args.tagged + (u64)(row + r) * STRIDE + c, tag, all);
        }
        if (row + ROWS < args.rows) __syncthreads();
    }
    choose_few(args, tag);
}

extern "C" __global__ void __launch_bounds__(THREADS) few1(const Arguments args) { few<1>(args); }
// As many registers as leave room beside the next kernel, which waits on the same multiprocessor.
extern "C" __global__ void __launch_bounds__(THREADS, 4) few4(const Arguments args) { few<4>(args); }
