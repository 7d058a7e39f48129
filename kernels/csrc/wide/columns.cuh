// A block's tiles and columns, and what becomes of its sums.
#pragma once
#include "wide/epilogue.cuh"

#if HALVES
// Calls `each` with the fewest columns that are no fewer than `left`, N at most, in steps of STEP.
template <int N> struct Columns {
    static constexpr int COUNT = N;
};
template <int N, typename Each> __device__ __forceinline__ void with_columns(int left, const Each &each) {
    if constexpr (N > STEP) {
        if (left <= N - STEP) return with_columns<N - STEP>(left, each);
    }
    each(Columns<N>());
}
#endif

// A warp's place among those of the block, and the block's tiles.
struct Place {
    int group, wr, wn;
    int rank;        // of the block in its cluster
    int begin, end;  // units of the block
    int tile0, skip; // its first tile, and rows that the block before has done
};

// The last rows' block goes back to have whole tiles, and leaves alone what the one before it does.
__device__ __forceinline__ Place place_of(const Thread &me) {
    Place p;
    p.group = me.warp / (WR * WN), p.wr = me.warp % (WR * WN) / WN, p.wn = me.warp % WN;
    const int row_block = ROW_BLOCK / SPLIT;
    p.rank = ROW_BLOCK % SPLIT, p.begin = p.rank * W::UNITS / SPLIT, p.end = (p.rank + 1) * W::UNITS / SPLIT;
#if SEGMENTS && KG > 1
    p.begin = 0, p.end = (W::UNITS + KG * SPLIT - 1) / (KG * SPLIT);
#endif
    p.tile0 = TILES >= BT ? min(row_block * BT, TILES - BT) : 0, p.skip = (row_block * BT - p.tile0) * 16;
    return p;
}

// What a block knows of its columns, in shared memory.
struct Lists {
    int *in_row, *out_row;
    float *factor;

    __device__ __forceinline__ explicit Lists(u8 *shared) {
        in_row = (int *)(shared + LISTS_AT), out_row = in_row + C;
        factor = (float *)(out_row + C);
    }
    // Rows of the columns from `base` on. Those past the last one repeat it; their outputs are not stored. A barrier must follow.
    __device__ __forceinline__ void put_rows(const Arguments &args, const Work &work, int base) {
        static_assert(C <= THREADS, "a column's row is read by its own thread");
        int from = min((int)threadIdx.x, min(work.end - base, C) - 1);
        if (C <= WARP && args.pitch && base == 0) {
            if (threadIdx.x >= WARP) return;
            int in = __shfl_sync(~0u, work.in_row, from), out = __shfl_sync(~0u, work.out_row, from);
            if (threadIdx.x < C) in_row[threadIdx.x] = in, out_row[threadIdx.x] = out;
        } else if (threadIdx.x < C) {
            int column = work.first + base + from;
            in_row[threadIdx.x] = args.slots ? __ldcg(args.in_rows + column) : column;
            out_row[threadIdx.x] = args.slots ? __ldcg(args.out_rows + column) : column;
        }
    }
    __device__ __forceinline__ void put_factors(const Thread &me, const Arguments &args) {
#if HALVES
        if (threadIdx.x < C) factor[threadIdx.x] = args.factor * (args.row_scales[in_row[threadIdx.x]] * (1 / WEIGHT_FACTOR));
#else
        for (int c = me.warp; c < C; c += WARPS) {
            float f = args.factor;
            if constexpr (NORM_BLOCKS > 0) f *= row_factor<NORM_BLOCKS>(args.squares + (u64)(u32)in_row[c] * NORM_BLOCKS, args.eps);
            if (me.lane == 0) factor[c] = f;
        }
#endif
    }
};

// Outputs of `left` columns of a matrix: a lane has column g of eight; the blocks of a cluster share the work.
__device__ __forceinline__ void finish(const Thread &me, const Arguments &args, const float *sums, const Lists &lists, const Place &p, const u8 *matrix,
                                       int left) {
    constexpr int PIECES = (R / (EPILOGUE == GATED ? 2 : 1) + 31) / 32;
    for (int i = me.warp * SPLIT + p.rank; i < (left + 7) / 8 * PIECES; i += WARPS * SPLIT) {
        int c = i / PIECES * 8 + me.g, piece = i % PIECES;
        Target to = {(u64)(u32)lists.out_row[c], c < left, p.tile0, p.skip, me.t};
        Epilogue<EPILOGUE>::finish(args, {sums + c * SUM_STRIDE, lists.factor[c], matrix, p.tile0 * 16}, to, piece);
    }
}
