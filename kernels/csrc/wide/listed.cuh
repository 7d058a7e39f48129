// How the stages of wide/warpgroup.cu are filled where columns are listed: by all warps, each thread with its pieces of 16 bytes. So what
// comes before the first and after the last instruction of an expert's block, which has few columns, is shared among many warps.
#pragma once
#include "wide/columns.cuh"

// What a thread copies of the columns: of each unit two rows of 64 values, in 16 pieces.
struct HalfCopies {
    static constexpr int AT_A_TIME = THREADS / 16, TIMES = (C + AT_A_TIME - 1) / AT_A_TIME;
    static_assert(AT_A_TIME % 8 == 0, "a thread's columns have their pieces in one order");
    u32 from[TIMES];

    __device__ __forceinline__ static int piece() { return threadIdx.x % 16; }
    __device__ __forceinline__ static int column() { return threadIdx.x / 16; }

    // The columns' places among the rows, each piece where the row has what the column's place wants.
    __device__ __forceinline__ void set(const int *in_row) {
#pragma unroll
        for (int k = 0; k < TIMES; k++) {
            int c = min(k * AT_A_TIME + column(), C - 1), row = in_row[c];
            from[k] = (u32)row * 64 + ((piece() ^ column() ^ row) & 7) * 8;
        }
    }
    // Of the first `columns`.
    __device__ __forceinline__ void copy(const Arguments &args, u32 stage, int unit, int columns) const {
        const u16 *of_unit = args.halves + (u64)(u32)((unit * 2 + piece() / 8) * args.half_rows) * 64;
        u32 to = stage + piece() / 8 * (C * 128) + column() * 128 + piece() % 8 * 16;
#pragma unroll
        for (int k = 0; k < TIMES; k++)
            if (k * AT_A_TIME + column() < columns) copy16(to + k * (AT_A_TIME * 128), of_unit + from[k]);
    }
};

#if !TURNS
// Stages that are on their way while one is in use: one more is read by instructions that may not be over.
#define AHEAD (STAGES - 2)
static_assert(AHEAD > 0, "a stage in use, one that was, and one on its way");

// The block's stages, as all of its warps fill and use them.
struct Stages {
    u32 first;
    const Arguments &args;
    WeightCopies weights;
    HalfCopies halves;
    int columns;

    __device__ __forceinline__ u32 at(int unit) const { return first + unit % STAGES * STAGE_BYTES; }
    __device__ __forceinline__ void copy_weights(int unit) const { weights.copy(at(unit) + WEIGHTS_IN, unit); }
    // The weights of the first stages.
    __device__ __forceinline__ void begin() const {
#pragma unroll
        for (int unit = 0; unit < AHEAD; unit++)
            if (unit < W::UNITS) copy_weights(unit);
    }
    // And their columns.
    __device__ __forceinline__ void begin(const int *in_row) {
        halves.set(in_row);
#pragma unroll
        for (int unit = 0; unit < AHEAD; unit++) {
            if (unit < W::UNITS) halves.copy(args, at(unit), unit, columns);
            copies_end();
        }
    }
    // The stage of `unit`, once it is there. The one before the last is free by then: the instructions that read it are over.
    __device__ __forceinline__ u32 next(int unit) const {
        copies_wait<AHEAD - 1>();
        shared_for_matrices();
        __syncthreads();
        if (unit + AHEAD < W::UNITS) copy_weights(unit + AHEAD), halves.copy(args, at(unit + AHEAD), unit + AHEAD, columns);
        copies_end();
        return at(unit);
    }
    // Nobody waits for a stage to be free.
    __device__ __forceinline__ void free_before(int) const {}
    __device__ __forceinline__ void end() const {}
};
#endif
