// Int8 activation rows in shared memory, of which a warp takes any up to 8 at a time as the columns of a product. Codes and {d, sum} lie
// as in the rows, rows a few banks off each other.
#pragma once
#include "weights.cuh"

// Rows of so many inputs.
template <int INPUTS> struct Staged {
    static constexpr int UNITS = INPUTS / 128;
    static constexpr int CODES = INPUTS + 32, META = UNITS * 32 + 16;
    static constexpr int STRIDE = CODES + META;

    // By all threads of the block, THREADS: asks for `rows` rows that follow one another to be copied, past L1.
    template <int THREADS> static __device__ __forceinline__ void fetch(const u8 *memory, const i8 *codes, const float2 *meta, int rows) {
        u32 to = shared_address(memory);
#pragma unroll 1
        for (int i = threadIdx.x; i < rows * UNITS * 8; i += THREADS) copy16(to + i / (UNITS * 8) * STRIDE + i % (UNITS * 8) * 16, codes + i * 16);
#pragma unroll 1
        for (int i = threadIdx.x; i < rows * UNITS * 2; i += THREADS)
            copy16(to + i / (UNITS * 2) * STRIDE + CODES + i % (UNITS * 2) * 16, (const u8 *)meta + i * 16);
    }
};

// Which staged rows are a lane's columns: of NC columns: 1, 2 or a multiple of 8.
//
// A unit's four blocks have sums of their own, which are added up last: (0 + 1) + (2 + 3).
template <int INPUTS, int NC> struct Picked {
    static constexpr int NT = NC / 8, UNROLL = 1;
    static_assert(NC % 8 == 0, "fewer columns have a form of their own");
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
    template <class W>
    static __device__ __forceinline__ void load(typename W::Unit &w, const u8 *codes, const u8 *plane, const u8 *scales, const u8 *group) {
        W::load_codes(w, codes, plane);
        W::load_scales(w, scales, group);
    }
    // Adds unit `first + at` of a tile times the columns.
    template <class W> __device__ __forceinline__ void multiply(const typename W::Unit &w, const u8 *memory, int first, int at, const u32 *grid) {
        int unit = first + at;
#pragma unroll
        for (int b = 0; b < 4; b++) {
            typename W::Operand a = W::expand(w, b, grid);
            typename W::Scale s = W::scale_of(w, b);
#pragma unroll
            for (int n = 0; n < NT; n++) {
                uint2 x = *(const uint2 *)(memory + codes[n] + unit * 128 + b * 32);
                float2 m[2];
#pragma unroll
                for (int i = 0; i < 2; i++) m[i] = *(const float2 *)(memory + meta[n][i] + unit * 32 + b * 8);
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

// One or two columns. A matrix instruction has room for 8: column 2b + c of it is block b of column c, and zero while the other blocks are
// multiplied, so that lane (g, t) has the sums of block t, and scales that one alone. Two instructions in a row share their sums. The same
// bytes come out as above.
template <int INPUTS, int NC> struct PickedFew {
    static_assert(NC == 1 || NC == 2, "");
    static constexpr int UNROLL = 2;
    using S = Staged<INPUTS>;
    int codes, block, meta[NC];
    uint2 x[4];
    float acc[NC][2];

    template <class F> __device__ __forceinline__ explicit PickedFew(F row_of) {
        int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
        block = g % 2 < NC ? g / 2 : -1;
        codes = row_of(g % 2 < NC ? g % 2 : 0) * S::STRIDE + g / 2 * 32 + t * 8;
#pragma unroll
        for (int c = 0; c < NC; c++) meta[c] = row_of(c) * S::STRIDE + S::CODES + t * 8, acc[c][0] = acc[c][1] = 0;
#pragma unroll
        for (int b = 0; b < 4; b++) x[b] = make_uint2(0, 0);
    }
    template <class W>
    static __device__ __forceinline__ void load(typename W::Unit &w, const u8 *codes, const u8 *plane, const u8 *scales, const u8 *group) {
        W::load_codes(w, codes, plane);
        W::load_own_scale(w, scales, group);
    }
    template <class W> __device__ __forceinline__ void multiply(const typename W::Unit &w, const u8 *memory, int first, int at, const u32 *grid) {
#pragma unroll
        for (int b = 0; b < 4; b++)
            if (block == b) x[b] = *(const uint2 *)(memory + codes + first * 128 + at * 128);
        typename W::Sums sums[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            sums[half] = W::sums_of(W::expand(w, 2 * half, grid), x[2 * half]);
            W::sum_on(sums[half], W::expand(w, 2 * half + 1, grid), x[2 * half + 1]);
        }
        bool late = threadIdx.x % 4 / 2;
        typename W::Scale s = W::scale_of(w, 0);
#pragma unroll
        for (int c = 0; c < NC; c++) {
            float2 m = *(const float2 *)(memory + meta[c] + first * 32 + at * 32);
#pragma unroll
            for (int r = 0; r < 2; r++) {
                int i = 2 * r + c;
                sums[0].c[i] = late ? sums[1].c[i] : sums[0].c[i], sums[0].c1[i] = late ? sums[1].c1[i] : sums[0].c1[i];
                acc[c][r] = W::add(acc[c][r], sums[0], i, s, r, m);
            }
        }
    }
    template <class F> __device__ __forceinline__ void each(F store) const {
        int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
#pragma unroll
        for (int c = 0; c < NC; c++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                float sum = acc[c][r] + __shfl_xor_sync(0xffffffffu, acc[c][r], 1);
                sum += __shfl_xor_sync(0xffffffffu, sum, 2);
                if (t == 0) store(c, g + r * 8, sum);
            }
    }
};
template <int INPUTS> struct Picked<INPUTS, 1> : PickedFew<INPUTS, 1> {
    using PickedFew<INPUTS, 1>::PickedFew;
};
template <int INPUTS> struct Picked<INPUTS, 2> : PickedFew<INPUTS, 2> {
    using PickedFew<INPUTS, 2>::PickedFew;
};
