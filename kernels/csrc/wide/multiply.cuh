// Tiles of a stage times its columns, by a warp.
#pragma once
#include "wide/activations.cuh"
#include "wide/read.cuh"

// One block of 32 inputs: 16 rows times 8 columns. `d`: of columns 2t and 2t + 1.
__device__ __forceinline__ void multiply(float (&acc)[4], const W::Operand &o, const W::Scale &s, const float (&ms)[2], uint2 x, float2 d) {
    if constexpr (W::IN_FLOATS) {
        float sums[4];
        W::float_sums(sums, o, W::halves_of(x));
#pragma unroll
        for (int i = 0; i < 4; i++) acc[i] = __fmaf_rn(W::SCALED ? sums[i] : __fmul_rn(sums[i], s.s[i / 2]), i % 2 ? d.y : d.x, acc[i]);
        return;
    }
    int c[4], c1[4];
    if constexpr (W::OF_HALVES) {
        mma_k16(c, o.a[0][0], o.a[0][1], x.x);
        mma_k16(c1, o.a[0][2], o.a[0][3], x.y);
    } else {
        mma_k32(c, o.a[0], x);
        if constexpr (CODES == WORD) mma_k32(c1, o.a[1], x);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int r = i / 2;
        float t;
        if constexpr (CODES == WORD) t = __fmul_rn(__fmaf_rn(exact(c[i]), 256.0f, exact(c1[i])), s.s[r]);
        else t = __fmaf_rn(__int_as_float(c[i]), s.s[r], ms[r]);
        if constexpr (W::OF_HALVES) t = __fmaf_rn(exact(c1[i]), s.s1[r], t);
        acc[i] = __fmaf_rn(t, i % 2 ? d.y : d.x, acc[i]);
    }
}

// A unit's minima (layout.cuh), for all of the warp's tiles and columns.
template <int OCTETS> __device__ __forceinline__ void subtract_minima(float (&acc)[TW][NW][4], u32 weights, u32 d_of, u32 sum_of) {
    int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    W::Minima of[TW];
#pragma unroll
    for (int i = 0; i < TW; i++) {
        u32 at = weights + i * UNIT_BYTES;
        of[i] = W::minima_of(read4(at + SCALES_IN + g * 16 + t * 4), read8(at + GROUP_IN + g * 8));
    }
#pragma unroll
    for (int n = 0; n < OCTETS; n++) {
        float2 of_planes[PLANES];
#pragma unroll
        for (int p = 0; p < PLANES; p++) {
            u32 at = (p * C + n * 8) * 4;
            of_planes[p] = make_float2(__uint_as_float(read4(d_of + at)), __uint_as_float(read4(sum_of + at)));
        }
        const float2 x = in_two(scaled_sum(of_planes, 1));
#pragma unroll
        for (int i = 0; i < TW; i++) W::subtract(acc[i][n], of[i], x);
    }
}

// Sums under way, PARTS an output.
using Accumulators = float[PARTS][TW][NW][4];

// One unit: TW tiles times the first OCTETS of NW tiles of columns.
template <int OCTETS> __device__ __forceinline__ void multiply_unit(Accumulators &acc, u32 weights, u32 codes, u32 meta, const u32 *grid) {
    int g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;
    u32 d_of = meta + t * 8;
    W::Unit w[TW];
#pragma unroll
    for (int b = 0; b < 4; b++) {
        W::Operand a[TW];
        W::Scale s[TW];
        float ms[TW][2];
#pragma unroll
        for (int i = 0; i < TW; i++) {
            load_block(w[i], weights + i * UNIT_BYTES, b);
            a[i] = W::expand(w[i], b, grid);
            s[i] = W::scale_of(w[i], b);
            ms[i][0] = -MAGIC * s[i].s[0], ms[i][1] = -MAGIC * s[i].s[1];
        }
#pragma unroll
        for (int n = 0; n < OCTETS; n++)
#pragma unroll
            for (int p = 0; p < PLANES; p++) {
                uint2 x = read8(codes + n * 8 * COLUMN_BYTES + (b * PLANES + p) * 32);
                uint2 two = read8(d_of + ((b * PLANES + p) * C + n * 8) * 4);
                float2 d = make_float2(__uint_as_float(two.x), __uint_as_float(two.y));
#pragma unroll
                for (int i = 0; i < TW; i++) multiply(acc[BY_HALVES ? b / 2 : 0][i][n], a[i], s[i], ms[i], x, d);
            }
    }
    u32 mine = meta + (t * PLANES * C + g) * 4;
    if constexpr (SCALES == S_MIN) subtract_minima<OCTETS>(acc[0], weights, mine, mine + SU * C * BLOCKS * 4);
}

// What follows is done where a segment ends. Without it the compiler selects each sum anew behind every unit. NUMBER: the arm's, so that no two
// are alike.
template <int NUMBER> __device__ __forceinline__ void stays_a_branch() { asm volatile("// %0" ::"n"(NUMBER)); }

#if BY_HALVES
// Sums of a group's segments, one after another from 0.
struct Segments {
    float total[TW][NW][4] = {};

    // As below.
    __device__ __forceinline__ void end(Accumulators &acc, int i) {
        stays_a_branch<0>();
#pragma unroll
        for (int j = 0; j < TW * NW * 4; j++) {
            float &first = acc[0][j / (NW * 4)][j / 4 % NW][j % 4], &last = acc[1][j / (NW * 4)][j / 4 % NW][j % 4];
            float &all = total[j / (NW * 4)][j / 4 % NW][j % 4];
            all += first + last;
            first = i == GROUP_SEGMENTS - 1 ? all : 0, last = 0;
        }
    }
};
#elif SEGMENTS
// Sums of a group's segments: neighbours first, so that one that waits for its neighbour is all that is kept of each size.
struct Segments {
    static constexpr int KEPT = GROUP_SEGMENTS <= 2 ? 1 : GROUP_SEGMENTS <= 4 ? 2 : 3;
    static_assert(GROUP_SEGMENTS <= 8, "of three sizes");
    float kept[KEPT][TW][NW][4];

    // Segment `i` is done: `acc` has the sum of all that are done when the last one is, else zeros.
    __device__ __forceinline__ void end(Accumulators &acc, int i) { end_of<0>(acc[0], i); }

    // The sum of 2^SIZE segments meets that of those before it, or waits.
    template <int SIZE> __device__ __forceinline__ void end_of(float (&acc)[TW][NW][4], int i) {
        if constexpr (1 << SIZE < GROUP_SEGMENTS) {
            auto each = [&](auto what) {
#pragma unroll
                for (int j = 0; j < TW * NW * 4; j++) what(acc[j / (NW * 4)][j / 4 % NW][j % 4], kept[SIZE][j / (NW * 4)][j / 4 % NW][j % 4]);
            };
            if (i >> SIZE & 1) {
                stays_a_branch<2 * SIZE>();
                each([](float &sum, float &before) { sum = before + sum; });
                end_of<SIZE + 1>(acc, i);
            } else {
                stays_a_branch<2 * SIZE + 1>();
                each([](float &sum, float &waits) { waits = sum, sum = 0; });
            }
        }
    }
};
#endif
