// Int8 activations on their way to shared memory.
#pragma once
#include "wide/stages.cuh"

// What a thread copies of the activations, by place within their arrays, which are below 2^32 elements.
struct ActivationCopies {
    // Pieces of 16 bytes of a unit's codes.
    static constexpr int PIECES = UNIT_CODES / 16;
    static constexpr int TIMES = (C * PIECES + THREADS - 1) / THREADS, META_TIMES = (C * BLOCKS + THREADS - 1) / THREADS;
    u32 codes[TIMES], meta[META_TIMES];

    __device__ __forceinline__ void set(const int *in_row) {
#pragma unroll
        for (int k = 0; k < TIMES; k++) {
            int i = k * THREADS + threadIdx.x;
            codes[k] = i < C * PIECES ? (u32)in_row[i / PIECES] * (COLS * PLANES) + i % PIECES * 16 : 0;
        }
#pragma unroll
        for (int k = 0; k < META_TIMES; k++) {
            int i = k * THREADS + threadIdx.x;
            meta[k] = i < C * BLOCKS ? (u32)in_row[i / BLOCKS] * (COLS / 32 * PLANES) + i % BLOCKS : 0;
        }
    }
    __device__ __forceinline__ void copy(u32 stage, const Arguments &args, int unit) const {
        u32 to = stage + CODES_IN + threadIdx.x / PIECES * COLUMN_BYTES + threadIdx.x % PIECES * 16;
        u32 meta_to = stage + META_IN + (threadIdx.x % BLOCKS * C + threadIdx.x / BLOCKS) * 4;
#pragma unroll
        for (int j = 0; j < SU; j++) {
            int u = copied_unit(unit, j);
#pragma unroll
            for (int k = 0; k < TIMES; k++) {
                if ((k + 1) * THREADS > C * PIECES && k * THREADS + threadIdx.x >= C * PIECES) break;
                copy16_of_line(to + (j * C + k * (THREADS / PIECES)) * COLUMN_BYTES, args.codes + (codes[k] + u * UNIT_CODES));
            }
#pragma unroll
            for (int k = 0; k < META_TIMES; k++) {
                if ((k + 1) * THREADS > C * BLOCKS && k * THREADS + threadIdx.x >= C * BLOCKS) break;
                const float2 *from = args.meta + (meta[k] + u * BLOCKS);
                u32 to = meta_to + (j * BLOCKS * C + k * (THREADS / BLOCKS)) * 4;
                copy4(to, &from->x);
                if constexpr (SCALES == S_MIN) copy4(to + SU * C * BLOCKS * 4, &from->y);
            }
        }
    }
};
