// The router's scores, shared out among the blocks.
#pragma once
#include "experts/shape.cuh"
#include "router/score.cuh"
#include "arguments.cuh"

// Scores of rows by all blocks, COLUMNS experts or the shared gate a block in turn: a part of a column a warp.
template <int ROWS> struct Scores {
    static constexpr int COLUMNS = 2, TURN = ROWS < 4 ? ROWS : 4;
    static constexpr int ITEMS = COLUMNS * SCORE_PARTS / WARPS;
    static_assert(ITEMS > 0 && ROWS * COLUMNS <= WARP, "a warp has an item, a lane a score");
    using Part = PartOfRow<HIDDEN>;
    Part weights[ITEMS], x[TURN];

    static __device__ __forceinline__ int item(int i) { return i * WARPS + threadIdx.x / WARP; }
    // Weights of the columns from `first` on, as many as there are.
    __device__ __forceinline__ void read_weights(const Arguments &args, int first) {
#pragma unroll
        for (int i = 0; i < ITEMS; i++) {
            int column = first + item(i) / SCORE_PARTS;
            const float *from = column < COUNT ? args.router + (u64)column * HIDDEN : args.shared_gate;
            weights[i].read(from, item(i) % SCORE_PARTS, column <= COUNT);
        }
    }
    __device__ __forceinline__ void read_rows(const Arguments &args, int i, int first) {
#pragma unroll
        for (int r = 0; r < TURN; r++) x[r].read(args.x + (first + r) * HIDDEN, item(i) % SCORE_PARTS, first + r < args.rows);
    }
    // `parts`: [COLUMNS * SCORE_PARTS][ROWS]. Weights of the first columns and the first rows of item 0 have been asked for.
    __device__ __forceinline__ void put(const Arguments &args, float *parts, u32 tag) {
        int lane = threadIdx.x % WARP;
#pragma unroll 1
        for (int column = blockIdx.x * COLUMNS; column <= COUNT; column += gridDim.x * COLUMNS) {
            bool again = column >= gridDim.x * COLUMNS;
            if (again) read_weights(args, column);
#pragma unroll
            for (int i = 0; i < ITEMS; i++) {
                Part norm;
                norm.read(args.router_norm, item(i) % SCORE_PARTS, true);
#pragma unroll
                for (int first = 0; first < ROWS; first += TURN) {
                    if (first >= args.rows) break;
                    if (again || i > 0 || first > 0) read_rows(args, i, first);
#pragma unroll
                    for (int r = 0; r < TURN; r++) {
                        x[r].multiply(norm);
                        float sum = x[r].score(weights[i]);
                        if (lane == 0) parts[item(i) * ROWS + first + r] = sum;
                    }
                }
            }
            __syncthreads();
            // The last warp: the first ones choose.
            int c = lane / ROWS, row = lane % ROWS;
            if (threadIdx.x >= THREADS - WARP && c < COLUMNS && row < args.rows && column + c <= COUNT) {
                float all = 0;
#pragma unroll
                for (int i = 0; i < SCORE_PARTS; i++) all += parts[(c * SCORE_PARTS + i) * ROWS + row];
                put_score(args.tagged + row * SCORES + column + c, tag, all);
            }
            if (column + gridDim.x * COLUMNS <= COUNT) __syncthreads();
        }
    }
};
