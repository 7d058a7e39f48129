// The int8 form of activations: 32 values share d = max|x| / 127; beside it stands the sum of the codes. Within a block of 32
// the quads (4 codes, one word) lie in the order 0 4 1 5 2 6 3 7, so that the 8 bytes of lane t are what a matrix instruction
// wants of it.
//
// -D PLANES: 1, or 2 for values of nearly 16 bits: a block's second plane has codes of what the first one leaves, in steps of d / 254,
// so that x is about d * (code + second code / 254). It follows the first plane, 32 codes and a pair {d / 254, sum} further on; so a
// block has 32 * PLANES codes and PLANES pairs, and whoever multiplies does a second block of activations with the same weights.
// Programs that neither read nor write activations leave it out.
#pragma once
#include "common/base.cuh"

#ifndef PLANES
#define PLANES 1
#endif

// Codes of a value in the two planes. `inverse`: 127 / max|x|, or 0 for codes of 0.
__device__ __forceinline__ int2 codes_of(float x, float inverse) {
    int q = inverse == 0.0f ? 0 : __float2int_rn(x * inverse), rest = 0;
    // Contracted, the difference would be another number than the definition's. As it is it is exact, and at most a half.
    if constexpr (PLANES > 1) rest = inverse == 0.0f ? 0 : __float2int_rn(__fmul_rn(__fsub_rn(__fmul_rn(x, inverse), (float)q), 254.0f));
    return make_int2(q, rest);
}
// A block's d. `top`: max|x|.
__device__ __forceinline__ float scale_of(float top, bool finite) {
    return !finite ? __int_as_float(0x7fc00000) : top < 1e-30f ? 0.0f : __fdiv_rn(top, 127.0f);
}
// {d, sum of codes} of a block's planes.
__device__ __forceinline__ void put_meta(float2 *meta, float top, bool finite, int2 sum) {
    float d = scale_of(top, finite);
    meta[0] = make_float2(d, (float)sum.x);
    if constexpr (PLANES > 1) meta[1] = make_float2(__fmul_rn(d, 1.0f / 254.0f), (float)sum.y);
}

// By one warp for 32 consecutive values, one a lane. `codes` and `meta` are the block's, here and below.
__device__ __forceinline__ void quantize_block(float x, i8 *codes, float2 *meta) {
    int lane = threadIdx.x % WARP;
    // As integers, magnitudes keep their order, and what is no number comes after infinity: one instruction finds the largest, and
    // it is finite if all are. What is not must poison the outputs, not vanish in a comparison.
    float top = __uint_as_float(__reduce_max_sync(0xffffffffu, __float_as_uint(fabsf(x))));
    bool finite = top <= 3.402823466e38f;
    float inverse = top < 1e-30f || !finite ? 0.0f : __fdiv_rn(127.0f, top);
    int2 q = codes_of(x, inverse), sum = make_int2(__reduce_add_sync(0xffffffffu, q.x), 0);
    int quad = lane / 4, at = (quad % 4 * 2 + quad / 4) * 4 + lane % 4;
    codes[at] = (i8)q.x;
    if constexpr (PLANES > 1) {
        sum.y = __reduce_add_sync(0xffffffffu, q.y);
        codes[32 + at] = (i8)q.y;
    }
    if (lane == 0) put_meta(meta, top, finite, sum);
}

// Sums of the codes of four lanes, which all get them.
__device__ __forceinline__ int2 quad_sum(int2 sum) {
#pragma unroll
    for (int step = 1; step < 4; step *= 2) {
        sum.x += __shfl_xor_sync(0xffffffffu, sum.x, step);
        if constexpr (PLANES > 1) sum.y += __shfl_xor_sync(0xffffffffu, sum.y, step);
    }
    return sum;
}

// Quantises a block by four lanes, so that a warp does eight blocks: lane t of its four holds values 4t.. (`a`) and 16 + 4t.. (`b`), which
// are quads t and t + 4, neighbours in memory. Every lane of the warp calls it; only those with `store` write. The bits are those of
// `quantize_block`.
struct Quads {
    int words[2]; // codes of the first plane
    float top;    // the block's max|x|
    bool finite;
};
__device__ __forceinline__ Quads quantize_quads(float4 a, float4 b, i8 *codes, float2 *meta, bool store) {
    int lane = threadIdx.x % WARP;
    float v[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
    float top = 0;
    bool finite = true;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        top = fmaxf(top, fabsf(v[i]));
        finite = finite && fabsf(v[i]) <= 3.402823466e38f;
    }
    top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
    top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
    finite = (__ballot_sync(0xffffffffu, finite) >> (lane & ~3) & 15) == 15;
    float inverse = top < 1e-30f || !finite ? 0.0f : __fdiv_rn(127.0f, top);
    int words[2] = {0, 0}, rest[2] = {0, 0};
    int2 sum = make_int2(0, 0);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        int2 q = codes_of(v[i], inverse);
        sum.x += q.x, sum.y += q.y;
        words[i / 4] |= (q.x & 255) << (i % 4 * 8), rest[i / 4] |= (q.y & 255) << (i % 4 * 8);
    }
    sum = quad_sum(sum);
    const Quads made = {{words[0], words[1]}, top, finite};
    if (!store) return made;
    *(int2 *)(codes + lane % 4 * 8) = make_int2(words[0], words[1]);
    if constexpr (PLANES > 1) *(int2 *)(codes + 32 + lane % 4 * 8) = make_int2(rest[0], rest[1]);
    if (lane % 4 == 0) put_meta(meta, top, finite, sum);
    return made;
}

// Sum of the squares of a block of which each lane has one; all get it. Squares are rounded before they are added: contracted, lanes
// would get different sums.
__device__ __forceinline__ float block_squares(float x) { return warp_sum(__fmul_rn(x, x)); }

// Sum of the squares of a block that four lanes hold, with the bits of `block_squares`; all four get it. What `warp_sum` adds first, 16
// lanes off, a lane has itself.
__device__ __forceinline__ float quads_squares(float4 a, float4 b) {
    float v[4] = {__fmul_rn(a.x, a.x) + __fmul_rn(b.x, b.x), __fmul_rn(a.y, a.y) + __fmul_rn(b.y, b.y),
                  __fmul_rn(a.z, a.z) + __fmul_rn(b.z, b.z), __fmul_rn(a.w, a.w) + __fmul_rn(b.w, b.w)};
#pragma unroll
    for (int step = 2; step > 0; step /= 2)
#pragma unroll
        for (int i = 0; i < 4; i++) v[i] += __shfl_xor_sync(0xffffffffu, v[i], step);
    return (v[0] + v[2]) + (v[1] + v[3]);
}

// What the readers of a row of x * w multiply by: rsqrt(mean(x^2) + eps), from the sums of squares of its BLOCKS blocks of 32. By one
// warp, every lane gets it. Lane l adds the blocks l, l + 32, ..., then come the lanes: one order wherever it is called, so that all
// readers of a row get the same bits.
template <int BLOCKS> __device__ __forceinline__ float row_factor(const float *squares, float eps) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < (BLOCKS + WARP - 1) / WARP; i++) {
        int block = i * WARP + threadIdx.x % WARP;
        if (block < BLOCKS) sum += squares[block];
    }
    return __frcp_rn(__fsqrt_rn(__fmaf_rn(warp_sum(sum), 1.0f / (32 * BLOCKS), eps)));
}
