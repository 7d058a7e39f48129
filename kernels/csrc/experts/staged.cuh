// Int8 activation rows in shared memory, of which a warp takes any up to 8 at a time as the columns of a product. Codes and {d, sum} lie
// as in the rows, rows a few banks off each other.
#pragma once
#include "weights/layout.cuh"

// Rows of so many inputs.
template <int INPUTS> struct Staged {
    static constexpr int UNITS = INPUTS / 128;
    static constexpr int CODES = INPUTS * PLANES + 32, META = UNITS * PLANES * 32 + 16;
    static constexpr int STRIDE = CODES + META;
    // Pairs of blocks: 64 bytes of codes, 16 of {d, sum}.
    static constexpr int PAIRS = UNITS * PLANES * 2;

    // By all threads of the block, THREADS: asks for `rows` rows that follow one another to be copied, past L1.
    template <int THREADS> static __device__ __forceinline__ void fetch(const u8 *memory, const i8 *codes, const float2 *meta, int rows) {
        u32 to = shared_address(memory);
#pragma unroll 1
        for (int i = threadIdx.x; i < rows * PAIRS * 4; i += THREADS) copy16(to + i / (PAIRS * 4) * STRIDE + i % (PAIRS * 4) * 16, codes + i * 16);
#pragma unroll 1
        for (int i = threadIdx.x; i < rows * PAIRS; i += THREADS)
            copy16(to + i / PAIRS * STRIDE + CODES + i % PAIRS * 16, (const u8 *)meta + i * 16);
    }
};

// Which staged rows are a lane's columns: of NC columns, 1 or a multiple of 8.
//
// A unit's four blocks have sums of their own, which are added up last: (0 + 1) + (2 + 3). So where there is one column, lane (g, t) need
// only scale block t, and the bytes are the same.
template <int INPUTS, int NC> struct Picked {
    static constexpr int NT = (NC + 7) / 8;
    using S = Staged<INPUTS>;
    int codes[NT], meta[NT][2];
    float acc[NT][4][4];

    // `row_of(c)`: the staged row of column c.
    template <class F> __device__ __forceinline__ explicit Picked(F row_of) {
        int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
#pragma unroll
        for (int n = 0; n < NT; n++) {
            codes[n] = row_of(n * 8 + g) * S::STRIDE + t * 8;
#pragma unroll
            for (int i = 0; i < 2; i++) meta[n][i] = row_of(n * 8 + 2 * t + i) * S::STRIDE + S::CODES;
#pragma unroll
            for (int b = 0; b < 4; b++)
#pragma unroll
                for (int i = 0; i < 4; i++) acc[n][b][i] = 0;
        }
    }

    // What it wants of a staged unit.
    template <class W> static __device__ __forceinline__ void load(typename W::Unit &w, const u8 *from) {
        W::load_codes(w, from);
        W::load_scales(w, from);
    }
    // Adds one unit of a tile times the columns.
    template <class W> __device__ __forceinline__ void multiply(const typename W::Unit &w, const u8 *memory, int unit, const u32 *grid) {
#pragma unroll
        for (int b = 0; b < 4; b++) {
            typename W::Operand a = W::expand(w, b, grid);
            typename W::Scale s = W::scale_of(w, b);
#pragma unroll
            for (int n = 0; n < NT; n++)
#pragma unroll
                for (int p = 0; p < PLANES; p++) {
                    uint2 x = *(const uint2 *)(memory + codes[n] + (unit * 4 + b) * PLANES * 32 + p * 32);
                    float2 m[2];
#pragma unroll
                    for (int i = 0; i < 2; i++) m[i] = *(const float2 *)(memory + meta[n][i] + (unit * 4 + b) * PLANES * 8 + p * 8);
                    W::multiply(acc[n][b], a, s, x, m);
                }
        }
    }
    // Sums of a tile: `store(column, row, value)`.
    template <class F> __device__ __forceinline__ void each(F store) const {
        int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                store(n * 8 + 2 * t + i % 2, g + i / 2 * 8, (acc[n][0][i] + acc[n][1][i]) + (acc[n][2][i] + acc[n][3][i]));
    }
};
template <int INPUTS> struct Picked<INPUTS, 1> {
    using S = Staged<INPUTS>;
    int codes, meta;
    float acc[2];

    template <class F> __device__ __forceinline__ explicit Picked(F row_of) {
        int t = threadIdx.x % 4, row = row_of(0) * S::STRIDE;
        codes = row + t * 8, meta = row + S::CODES + t * PLANES * 8;
        acc[0] = acc[1] = 0;
    }
    template <class W> static __device__ __forceinline__ void load(typename W::Unit &w, const u8 *from) {
        W::load_codes(w, from);
        W::load_own_scale(w, from);
    }
    template <class W> __device__ __forceinline__ void multiply(const typename W::Unit &w, const u8 *memory, int unit, const u32 *grid) {
        int t = threadIdx.x % 4;
        typename W::Sums own[PLANES];
#pragma unroll
        for (int b = 0; b < 4; b++) {
            typename W::Operand a = W::expand(w, b, grid);
#pragma unroll
            for (int p = 0; p < PLANES; p++) {
                typename W::Sums sums = W::sums_of(a, *(const uint2 *)(memory + codes + (unit * 4 + b) * PLANES * 32 + p * 32));
#pragma unroll
                for (int r = 0; r < 4; r += 2) {
                    own[p].c[r] = b == 0 || t == b ? sums.c[r] : own[p].c[r];
                    own[p].c1[r] = b == 0 || t == b ? sums.c1[r] : own[p].c1[r];
                }
            }
        }
        typename W::Scale s = W::scale_of(w, 0);
#pragma unroll
        for (int p = 0; p < PLANES; p++) {
            float2 m = *(const float2 *)(memory + meta + unit * PLANES * 32 + p * 8);
#pragma unroll
            for (int r = 0; r < 2; r++) acc[r] = W::add(acc[r], own[p], 2 * r, s, r, m);
        }
    }
    template <class F> __device__ __forceinline__ void each(F store) const {
        int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float sum = acc[r] + __shfl_xor_sync(0xffffffffu, acc[r], 1);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2);
            if (t == 0) store(0, g + r * 8, sum);
        }
    }
};
