// Conversions of codes to halves, and how a matrix instruction takes them.
#pragma once
#include "common/base.cuh"

__device__ __forceinline__ int lane_id() { return threadIdx.x % WARP; }

// A value that is not a number stays one: it must show.
__device__ __forceinline__ float within_f16(float v) { return v > 65504.0f ? 65504.0f : v < -65504.0f ? -65504.0f : v; }
__device__ __forceinline__ float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Four bytes to four halves: 0x64xx is 1024 + xx, `offset` (twice an f16) brings it to the value. Exact.
__device__ __forceinline__ void bytes_to_f16(u32 bytes, u32 offset, u32 &first, u32 &second) {
    first = sub_f16x2(__byte_perm(bytes, 0x64646464u, 0x4140), offset);
    second = sub_f16x2(__byte_perm(bytes, 0x64646464u, 0x4342), offset);
}
__device__ __forceinline__ void q8_to_f16(u32 codes, u32 &first, u32 &second) { bytes_to_f16(codes ^ 0x80808080u, 0x64806480u, first, second); }
__device__ __forceinline__ void q4_to_f16(u32 nibbles, u32 &first, u32 &second) { bytes_to_f16(nibbles & 0x0f0f0f0fu, 0x64086408u, first, second); }

// The 8 inner indices that a lane owns, `low` and `high` of rows g and g + 8.
__device__ __forceinline__ void mma_eight(float (&c)[4], uint4 low, uint4 high, u32 b0, u32 b1, u32 b2, u32 b3) {
    mma_f16(c, low.x, high.x, low.y, high.y, b0, b1);
    mma_f16(c, low.z, high.z, low.w, high.w, b2, b3);
}

// What other blocks wrote in this launch.
__device__ __forceinline__ u32 fresh2(const void *p) {
    u32 v;
    asm volatile("{.reg .b16 h; ld.global.cg.u16 h, [%1]; cvt.u32.u16 %0, h;}" : "=r"(v) : "l"(p));
    return v;
}
__device__ __forceinline__ float2 fresh8(const void *p) {
    float2 v;
    asm volatile("ld.global.cg.v2.f32 {%0,%1}, [%2];" : "=f"(v.x), "=f"(v.y) : "l"(p));
    return v;
}
__device__ __forceinline__ uint2 fresh_words(const void *p) {
    float2 v = fresh8(p);
    return make_uint2(__float_as_uint(v.x), __float_as_uint(v.y));
}
__device__ __forceinline__ uint4 masked(uint4 v, uint4 m) { return make_uint4(v.x & m.x, v.y & m.y, v.z & m.z, v.w & m.w); }

// Threads of some warps wait for one another. Barrier 0 is that of all.
// By whole warps, COUNT threads of the block that all come here equally often. No clock bounds it.
template <int COUNT> __device__ __forceinline__ void meet(int barrier) { asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(COUNT) : "memory"); }
