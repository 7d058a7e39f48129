// Int8 activation rows in shared memory, of which a warp takes any up to 8 at a time as the columns of a product. Codes and {d, sum} lie
// as in the rows, rows a few banks off each other. Where matrices have minima (WITH_MINIMA), d * sum of each block is there too, in two.
//
// HALVED: each code is there as f16 too, for matrices whose codes are floats: where few rows are multiplied, they would be made f16 beside
// every tile.
#pragma once
#include "weights/layout.cuh"

// Rows of so many inputs.
template <int INPUTS, bool HALVED = false> struct Staged {
    static constexpr int UNITS = INPUTS / 128;
    static constexpr int CODES = INPUTS * PLANES + 32, META = UNITS * PLANES * 32 + 16;
    static constexpr int MINIMA_AT = CODES + META, HALVES_AT = MINIMA_AT + (WITH_MINIMA ? UNITS * 32 : 0);
    static constexpr int STRIDE = HALVES_AT + (HALVED ? INPUTS * PLANES * 2 + 16 : 0);
    // Pairs of blocks: 64 bytes of codes, 16 of {d, sum}.
    static constexpr int PAIRS = UNITS * PLANES * 2;

    // Quads t and t + 4 of a block as f16. `codes`: where the lane has them of the row's first block.
    static __device__ __forceinline__ uint4 halves_at(const u8 *memory, int codes, int block) {
        return *(const uint4 *)(memory + codes + threadIdx.x % 4 * 8 + HALVES_AT + block * 64);
    }
    // By all BY threads of the block: asks for `rows` rows that follow one another to be copied, past L1.
    template <int BY> static __device__ __forceinline__ void fetch(const u8 *memory, const i8 *codes, const float2 *meta, int rows) {
        u32 to = shared_address(memory);
#pragma unroll 1
        for (int i = threadIdx.x; i < rows * PAIRS * 4; i += BY) copy16(to + i / (PAIRS * 4) * STRIDE + i % (PAIRS * 4) * 16, codes + i * 16);
#pragma unroll 1
        for (int i = threadIdx.x; i < rows * PAIRS; i += BY)
            copy16(to + i / PAIRS * STRIDE + CODES + i % PAIRS * 16, (const u8 *)meta + i * 16);
    }
    // For matrices that have minima or floats, by the same threads, behind their own copies and ahead of the barrier: a thread has what it copied.
    template <int BY> static __device__ __forceinline__ void prepare(u8 *memory, int rows) {
        if constexpr (HALVED) {
#pragma unroll 1
            for (int i = threadIdx.x; i < rows * PAIRS * 4; i += BY) {
                u8 *row = memory + i / (PAIRS * 4) * STRIDE;
                const int piece = i % (PAIRS * 4);
                const uint4 codes = *(const uint4 *)(row + piece * 16);
                uint2 *to = (uint2 *)(row + HALVES_AT + piece * 32);
#pragma unroll
                for (int q = 0; q < 4; q++) to[q] = halves_of_bytes(word(codes, q));
            }
        }
        if constexpr (!WITH_MINIMA) return;
#pragma unroll 1
        for (int i = threadIdx.x; i < rows * PAIRS; i += BY) {
            u8 *row = memory + i / PAIRS * STRIDE;
            const float2 *meta = (const float2 *)(row + CODES + i % PAIRS * 16);
            float2 *to = (float2 *)(row + MINIMA_AT) + i % PAIRS * (2 / PLANES);
#pragma unroll
            for (int b = 0; b < 2 / PLANES; b++) to[b] = in_two(scaled_sum(meta + b, 1));
        }
    }
};

// Which staged rows are a lane's columns: of NC columns, 1 or a multiple of 8.
//
// A unit's first two blocks have sums of their own, which have the minima too, and its last two: they are added up last. So where there is
// one column, a lane need only scale two blocks of a row, and the bytes are the same.
template <int INPUTS, int NC, bool HALVED = false> struct Picked {
    static constexpr int NT = (NC + 7) / 8;
    using S = Staged<INPUTS, HALVED>;
    int codes[NT], meta[NT][2];
    float acc[NT][2][4];

    // `row_of(c)`: the staged row of column c.
    template <class F> __device__ __forceinline__ explicit Picked(F row_of) {
        int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
#pragma unroll
        for (int n = 0; n < NT; n++) {
            codes[n] = row_of(n * 8 + g) * S::STRIDE + t * 8;
#pragma unroll
            for (int i = 0; i < 2; i++) meta[n][i] = row_of(n * 8 + 2 * t + i) * S::STRIDE + S::CODES;
#pragma unroll
            for (int i = 0; i < 8; i++) acc[n][i / 4][i % 4] = 0;
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
                    float2 m[2];
#pragma unroll
                    for (int i = 0; i < 2; i++) m[i] = *(const float2 *)(memory + meta[n][i] + (unit * 4 + b) * PLANES * 8 + p * 8);
                    const int block = (unit * 4 + b) * PLANES + p;
                    if constexpr (HALVED && W::IN_FLOATS) W::multiply(acc[n][b / 2], a, s, S::halves_at(memory, codes[n], block), m);
                    else W::multiply(acc[n][b / 2], a, s, *(const uint2 *)(memory + codes[n] + block * 32), m);
                }
        }
        if constexpr (W::HAS_MINIMA) {
            const int t = threadIdx.x % 4;
            const typename W::Minima of = W::minima_of(w);
            const u8 *own = memory + S::MINIMA_AT - t * 8 + (unit * 4 + t) * 8;
#pragma unroll
            for (int n = 0; n < NT; n++) W::subtract(acc[n][0], of, *(const float2 *)(own + codes[n]));
        }
    }
    // Sums of a tile: `store(column, row, value)`.
    template <class F> __device__ __forceinline__ void each(F store) const {
        int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) store(n * 8 + 2 * t + i % 2, g + i / 2 * 8, acc[n][0][i] + acc[n][1][i]);
    }
};
// One column. What the instruction leaves is the same for all t, so lane (g, t) has row g, or g + 8 where t is odd, and of its blocks the first
// two, or the last two where t is 2 or 3. Sums start at 0, which is one register instead of four.
template <int INPUTS, bool HALVED> struct Picked<INPUTS, 1, HALVED> {
    using S = Staged<INPUTS, HALVED>;
    int codes, meta;
    float acc = 0;
    // The minima of the unit before, of rows g and g + 8, which are taken away when they are there: nobody waits for them.
    float minima[2] = {0, 0}, factor = 0;

    template <class F> __device__ __forceinline__ explicit Picked(F row_of) {
        int t = threadIdx.x % 4, row = row_of(0) * S::STRIDE;
        codes = row + t * 8, meta = row + S::CODES + t / 2 * PLANES * 16;
    }
    template <class W> static __device__ __forceinline__ void load(typename W::Unit &w, const u8 *from) {
        W::load_codes(w, from);
        W::load_half_of_scales(w, from);
    }
    template <class W> __device__ __forceinline__ void multiply(const typename W::Unit &w, const u8 *memory, int unit, const u32 *grid) {
        const int t = threadIdx.x % 4;
        const bool lower = t % 2 == 1, last = t >= 2;
        float2 m[2 * PLANES];
#pragma unroll
        for (int i = 0; i < PLANES; i++) {
            float4 two = *(const float4 *)(memory + meta + unit * PLANES * 32 + i * 16);
            m[2 * i] = make_float2(two.x, two.y), m[2 * i + 1] = make_float2(two.z, two.w);
        }
        if constexpr (W::HAS_MINIMA) {
            take_away();
            float sum[4];
            const typename W::Minima of = W::minima_of(lower ? w.scales.y : w.scales.x, w.group);
            W::minima_sums(sum, of, *(const float2 *)(memory + codes + S::MINIMA_AT + unit * 32));
            minima[0] = sum[0], minima[1] = sum[2];
        }
        const typename W::Unit row = W::row_of(w, lower);
        if constexpr (W::HAS_MINIMA) factor = high_half(row.group.x);
        typename W::Sums own[2 * PLANES];
#pragma unroll
        for (int b = 0; b < 4; b++) {
            typename W::Operand a = W::expand(w, b, grid);
#pragma unroll
            for (int p = 0; p < PLANES; p++) {
                const int block = (unit * 4 + b) * PLANES + p;
                typename W::Sums sums;
                if constexpr (HALVED && W::IN_FLOATS) sums = W::template sums_of<0>(a, S::halves_at(memory, codes, block));
                else sums = W::template sums_of<0>(a, *(const uint2 *)(memory + codes + block * 32));
                typename W::Sums &to = own[b % 2 * PLANES + p];
                const int c = lower ? sums.c[2] : sums.c[0], c1 = lower ? sums.c1[2] : sums.c1[0];
                to.c[0] = b < 2 || last ? c : to.c[0], to.c1[0] = b < 2 || last ? c1 : to.c1[0];
            }
        }
#pragma unroll
        for (int i = 0; i < 2 * PLANES; i++) acc = W::template add<0>(acc, own[i], 0, W::scale_of(row, i / PLANES), 0, m[i]);
    }
    __device__ __forceinline__ void take_away() {
        const int t = threadIdx.x % 4;
        acc = t >= 2 ? acc : __fmaf_rn(-factor, t % 2 == 1 ? minima[1] : minima[0], acc);
    }
    template <class F> __device__ __forceinline__ void each(F store) {
        const int lane = threadIdx.x % WARP;
        take_away();
        const float sum = acc + __shfl_xor_sync(0xffffffffu, acc, 2);
        if (lane % 4 < 2) store(0, lane / 4 + lane % 2 * 8, sum);
    }
};
