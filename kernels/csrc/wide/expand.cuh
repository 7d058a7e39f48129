// A unit's weights, expanded to f16 in registers between the instructions that multiply them with columns in shared memory.
#pragma once
#include "weights/halves.cuh"
#include "wide/read.cuh"
#include "wide/wgmma.cuh"

// A warp's tiles: of each 64 rows of its warpgroup one.
__device__ __forceinline__ int tile_of(int i) {
    int warp = threadIdx.x / WARP;
    return warp / 4 * (4 * TW) + i * 4 + warp % 4;
}

// Fragments that are under way or being made: two where every warp also brings columns, so that registers are short.
#define FRAGMENTS (LISTED ? 2 : 4)

// One unit's weights times N columns. `free` is called once the instructions of the unit before are over.
template <int N, typename Free>
__device__ __forceinline__ void multiply_unit(float (&acc)[TW][N / 2], Fragment (&fragments)[FRAGMENTS], u32 columns_at, u32 weights, const Free &free,
                                              const u32 *grid) {
    const u64 columns = descriptor(columns_at);
    W::Unit w[TW];
#pragma unroll
    for (int i = 0; i < TW; i++) load_block(w[i], weights + tile_of(i) * UNIT_BYTES, 0);
#pragma unroll
    for (int b = 0; b < 4; b++) {
        HalfCodes codes[TW];
        HalfScales scales[TW];
#pragma unroll
        for (int i = 0; i < TW; i++) {
            codes[i].set(w[i], b, grid), scales[i].set(w[i], b);
            if (b < 3) load_block(w[i], weights + tile_of(i) * UNIT_BYTES, b + 1);
        }
#pragma unroll
        for (int step = 0; step < 2 * TW; step++) {
            const int half = step / TW, i = step % TW;
            Fragment &a = fragments[(b * 2 * TW + step) % FRAGMENTS];
            half == 0 ? a.set<0>(codes[i], scales[i]) : a.set<1>(codes[i], scales[i]);
            // Then those are done that read what is made next.
            matrices_wait<FRAGMENTS - 2>();
            if (b * 2 * TW + step == FRAGMENTS - 1) free();
            matrices_begin();
            Wgmma<N>::add(acc[i], a.a, columns + ((b / 2 * (C * 128) + b % 2 * 64 + half * 32) >> 4));
            matrices_end();
        }
    }
}
