// Sums of the products of a row's inputs with rows of A (common/lora.cuh), in an order of their own: a thread of 256 has of each 2,048 inputs eight, two
// quads of an int8 block, and adds them in order; then the lanes of a warp are added as a tree, then the eight warps in order from 0. Where fewer
// threads do it, a warp stands for several of those in turn.
#pragma once
#include "common/lora.cuh"

#define SHRINK_WARPS 8

// Eight values of A: quads t and t + 4 of a block.
struct Eight {
    float v[8];

    static __device__ __forceinline__ uint4 read(const u16 *a, u32 at) {
        const u16 *from = a + at / 4 * 32 + at % 4 * 4;
        const uint2 low = *(const uint2 *)from, high = *(const uint2 *)(from + 16);
        return make_uint4(low.x, low.y, high.x, high.y);
    }
    __device__ __forceinline__ explicit Eight(uint4 w) {
        const u32 words[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
        for (int i = 0; i < 4; i++) v[2 * i] = low_half(words[i]), v[2 * i + 1] = high_half(words[i]);
    }
};

// The eight values of a row that go with them.
struct EightInputs {
    float v[8];

    // `codes`, `meta`: of the row's first block.
    __device__ __forceinline__ void read_int8(const i8 *codes, const float2 *meta, u32 at) {
        const u64 block = at / 4;
        const i8 *from = codes + block * (32 * PLANES) + at % 4 * 8;
#pragma unroll
        for (int plane = 0; plane < PLANES; plane++) {
            const int2 of_plane = __ldcg((const int2 *)(from + 32 * plane));
            const float scale = __ldcg(meta + block * PLANES + plane).x;
#pragma unroll
            for (int i = 0; i < 8; i++) {
                const float code = (float)(i8)((u32)(i < 4 ? of_plane.x : of_plane.y) >> (i % 4 * 8));
                v[i] = plane == 0 ? code * scale : __fmaf_rn(code, scale, v[i]);
            }
        }
    }
    __device__ __forceinline__ float add(const Eight &a, float sum) const {
#pragma unroll
        for (int i = 0; i < 8; i++) sum = __fmaf_rn(a.v[i], v[i], sum);
        return sum;
    }
};

// An int8 row of INPUTS values times row `a` of A, by one warp, which stands for all of those.
template <int INPUTS> __device__ __forceinline__ float shrink_by_a_warp(const u16 *a, const i8 *codes, const float2 *meta) {
    float sum = 0;
#pragma unroll 4
    for (u32 w = 0; w < SHRINK_WARPS && w * WARP < INPUTS / 8; w++) {
        float own = 0;
#pragma unroll
        for (u32 first = w * WARP; first < INPUTS / 8; first += SHRINK_WARPS * WARP) {
            const u32 at = first + threadIdx.x % WARP;
            if (at >= INPUTS / 8) continue;
            EightInputs x;
            x.read_int8(codes, meta, at);
            own = x.add(Eight(Eight::read(a, at)), own);
        }
        sum += warp_sum(own);
    }
    return sum;
}
