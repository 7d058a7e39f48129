// Rows that a projection left for what mixes tokens: f32, or of prompts f16, which is eight times as exact as the int8 that the projection
// read.
#pragma once
#include "common/base.cuh"

__device__ __forceinline__ float number_of(float v) { return v; }
__device__ __forceinline__ float number_of(u16 v) { return f16_to_f32(v); }
__device__ __forceinline__ float2 two_of(const float *p) { return *(const float2 *)p; }
__device__ __forceinline__ float2 two_of(const u16 *p) {
    const u32 two = *(const u32 *)p;
    return make_float2(low_half(two), high_half(two));
}
__device__ __forceinline__ float4 four_of(const float *p) { return *(const float4 *)p; }
__device__ __forceinline__ float4 four_of(const u16 *p) {
    const uint2 two = *(const uint2 *)p;
    return make_float4(low_half(two.x), high_half(two.x), low_half(two.y), high_half(two.y));
}
