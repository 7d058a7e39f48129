// Tiles of a stage times its columns, by a warp.
#pragma once
#include "wide/activations.cuh"
#include "wide/read.cuh"

// One block of 32 inputs: 16 rows times 8 columns. `d`: of columns 2t and 2t + 1.
__device__ __forceinline__ void multiply(float (&acc)[4], const W::Operand &o, const W::Scale &s, const float (&ms)[2], uint2 x, float2 d) {
    int c[4], c1[4];
    if constexpr (SCALES == S_HALVES) {
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
        if constexpr (SCALES == S_HALVES) t = __fmaf_rn(exact(c1[i]), s.s1[r], t);
        acc[i] = __fmaf_rn(t, i % 2 ? d.y : d.x, acc[i]);
    }
}

// As of weights.cuh, without minima where a unit's are done at once.
__device__ __forceinline__ W::Scale scale_of(const W::Unit &w, int b) {
    if constexpr (SCALES != S_MIN || SEGMENTS) return W::scale_of(w, b);
    W::Scale s;
    u32 x = word(w.scales, b);
    s.s[0] = low_half(w.group.x) * plain_byte_at(x, 0), s.s[1] = low_half(w.group.y) * plain_byte_at(x, 2);
    return s;
}

// D[16,8] += A[16,4] B[4,8]. Lane (g, t): a0 row g, a1 row g + 8, b column g, of k = t; D as of mma_k32.
__device__ __forceinline__ void mma_tf32(float (&d)[4], u32 a0, u32 a1, u32 b) {
    asm("mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(b));
}
// A unit's minima are themselves a product, of the four blocks' factors and d * sum over the planes: a factor has six bits, and d * sum
// is, to f32's own precision, the sum of two numbers of eleven.
template <int OCTETS> __device__ __forceinline__ void subtract_minima(float (&acc)[TW][NW][4], u32 weights, u32 d_of, u32 sum_of) {
    int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    u32 m[TW][2];
    float group[TW][2];
#pragma unroll
    for (int i = 0; i < TW; i++) {
        u32 x = read4(weights + i * UNIT_BYTES + SCALES_IN + g * 16 + t * 4);
        uint2 halves = read8(weights + i * UNIT_BYTES + GROUP_IN + g * 8);
        m[i][0] = __float_as_uint(plain_byte_at(x, 1)), m[i][1] = __float_as_uint(plain_byte_at(x, 3));
        group[i][0] = -high_half(halves.x), group[i][1] = -high_half(halves.y);
    }
#pragma unroll
    for (int n = 0; n < OCTETS; n++) {
        float x = __uint_as_float(read4(d_of + n * 32)) * __uint_as_float(read4(sum_of + n * 32));
        if constexpr (PLANES > 1)
            x = __fmaf_rn(__uint_as_float(read4(d_of + C * 4 + n * 32)), __uint_as_float(read4(sum_of + C * 4 + n * 32)), x);
        // To the nearest of eleven bits; of what is left the instruction ignores what exceeds eleven.
        u32 high = __float_as_uint(x) + 0x1000 & 0xffffe000, low = __float_as_uint(x - __uint_as_float(high));
#pragma unroll
        for (int i = 0; i < TW; i++) {
            float sum[4] = {};
            mma_tf32(sum, m[i][0], m[i][1], high);
            mma_tf32(sum, m[i][0], m[i][1], low);
#pragma unroll
            for (int k = 0; k < 4; k++) acc[i][n][k] = __fmaf_rn(group[i][k / 2], sum[k], acc[i][n][k]);
        }
    }
}

// Sums under way.
using Accumulators = float[LANES][TW][NW][4];

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
            s[i] = scale_of(w[i], b);
            ms[i][0] = -MAGIC * s[i].s[0], ms[i][1] = -MAGIC * s[i].s[1];
        }
#pragma unroll
        for (int n = 0; n < OCTETS; n++)
#pragma unroll
            for (int p = 0; p < PLANES; p++) {
                uint2 x = read8(codes + n * 8 * COLUMN_BYTES + (b * PLANES + p) * 32);
                uint2 two = read8(d_of + ((b * PLANES + p) * C + n * 8) * 4);
                float2 d = make_float2(__uint_as_float(two.x), __uint_as_float(two.y));
                auto &sums = acc[BY_BLOCK ? b : 0];
                if constexpr (SEGMENTS && SCALES == S_MIN) {
                    two = read8(d_of + ((SU * BLOCKS + b * PLANES + p) * C + n * 8) * 4);
                    float2 of_column[2] = {make_float2(d.x, __uint_as_float(two.x)), make_float2(d.y, __uint_as_float(two.y))};
#pragma unroll
                    for (int i = 0; i < TW; i++) W::multiply(sums[i][n], a[i], s[i], x, of_column);
                } else {
#pragma unroll
                    for (int i = 0; i < TW; i++) multiply(sums[i][n], a[i], s[i], ms[i], x, d);
                }
            }
    }
#if !SEGMENTS
    u32 mine = meta + (t * PLANES * C + g) * 4;
    if constexpr (SCALES == S_MIN) subtract_minima<OCTETS>(acc[0], weights, mine, mine + SU * C * BLOCKS * 4);
#endif
}

#if SEGMENTS
// Sums of a group's segments: neighbours first, so that one that waits for its neighbour is all that is kept of each size.
struct Segments {
    static constexpr int KEPT = GROUP_SEGMENTS <= 2 ? 1 : GROUP_SEGMENTS <= 4 ? 2 : 3;
    static_assert(GROUP_SEGMENTS <= 8, "of three sizes");
    float kept[KEPT][TW][NW][4];

    // Segment `i` is done: `acc` has the sum of all that are done when the last one is, else zeros.
    __device__ __forceinline__ void end(Accumulators &acc, int i) {
#pragma unroll
        for (int j = 0; j < TW * NW * 4; j++) {
            float &first = acc[0][j / (NW * 4)][j / 4 % NW][j % 4];
            if constexpr (BY_BLOCK) {
                auto of = [&](int b) -> float & { return acc[b][j / (NW * 4)][j / 4 % NW][j % 4]; };
                first = (of(0) + of(1)) + (of(2) + of(3));
                of(1) = of(2) = of(3) = 0;
            }
            if constexpr (GROUP_SEGMENTS > 1) {
                bool waits = false;
#pragma unroll
                for (int size = 0; size < KEPT; size++) {
                    float &other = kept[size][j / (NW * 4)][j / 4 % NW][j % 4];
                    if (waits || 1 << size >= GROUP_SEGMENTS) continue;
                    if (i >> size & 1) first = other + first;
                    else other = first, first = 0, waits = true;
                }
            }
        }
    }
};
#endif
