// The definition's arithmetic (reference::sampler), bit for bit.
#pragma once
#include "sampler/shared.cuh"

#define LOWEST __int_as_float(0xff800000)
#define FINITE 3.402823466e38f

__device__ __forceinline__ float numbers(float l) { return l != l ? LOWEST : l; }

// reference::ln of a normal positive number.
__device__ __forceinline__ float ln(float x) {
    const u32 sqrt_half = 0x3f3504f3u;
    u32 bits = __float_as_uint(x) + (0x3f800000u - sqrt_half);
    float n = (float)((int)(bits >> 23) - 127), f = __fsub_rn(__uint_as_float((bits & 0x7fffffu) + sqrt_half), 1.0f);
    float z = __fmul_rn(f, f), p = 7.0376836e-2f;
    p = __fmaf_rn(p, f, -1.151461e-1f);
    p = __fmaf_rn(p, f, 1.16769987e-1f);
    p = __fmaf_rn(p, f, -1.2420141e-1f);
    p = __fmaf_rn(p, f, 1.4249323e-1f);
    p = __fmaf_rn(p, f, -1.6668057e-1f);
    p = __fmaf_rn(p, f, 2.0000714e-1f);
    p = __fmaf_rn(p, f, -2.4999994e-1f);
    p = __fmaf_rn(p, f, 3.333333e-1f);
    float y = __fmaf_rn(n, -2.1219444e-4f, __fmul_rn(p, __fmul_rn(f, z)));
    y = __fmaf_rn(z, -0.5f, y);
    return __fmaf_rn(n, 0.6933594f, __fadd_rn(f, y));
}

// Mixture::mixed of reference::sampler; `sum` is e^(LSE - best).
__device__ __forceinline__ float mixed(float l, float best, float sum, float weight) {
    float table = __fmul_rn(weight, sum);
    // Also where it is no number.
    if (l == LOWEST || !(table >= 1.17549435e-38f)) return l;
    return __fadd_rn(best, ln(__fadd_rn(exp_defined(__fsub_rn(l, best)), fminf(table, 1.70141173e38f))));
}

__device__ __forceinline__ float scaled_distance(float l, float best, float inverse) {
    return __fmul_rn(__fsub_rn(l, best), inverse);
}

// Below -21.49 a weight rounds to 0.
__device__ __forceinline__ u32 weight(float l, float best, float inverse) {
    float x = scaled_distance(l, best, inverse);
    u32 w = __float2uint_rn(exp_scaled(fmaxf(x, -22.0f), 30));
    return x < -22.0f ? 0 : w;
}

// Smaller for larger logits, the same for both zeros.
__device__ __forceinline__ u32 rank_of(float l) {
    u32 bits = __float_as_uint(__fadd_rn(l, 0.0f));
    return bits & 0x80000000u ? bits : ~(bits | 0x80000000u);
}
__device__ __forceinline__ float of_rank(u32 r) { return __uint_as_float(r & 0x80000000u ? r : ~(r | 0x80000000u)); }
__device__ __forceinline__ u64 element(float l, u32 id) { return (u64)rank_of(l) << 32 | id; }

// Orders as `rank_of` does. The first bits are the scaled distance in steps of 21.5 / 2^20: both roundings keep the order.
__device__ __forceinline__ u64 code_of(float l, float best, float inverse) {
    float steps = __fmul_rn(-scaled_distance(l, best, inverse), 1048576.0f / 21.5f);
    return (u64)min(__float2uint_rz(steps), 0xfffffu) << 32 | rank_of(l);
}

__device__ __forceinline__ u64 draw(u64 seed, u32 index, u32 choice) {
    u32 k0 = (u32)seed, k1 = (u32)(seed >> 32), c0 = index, c1 = choice, c2 = 0, c3 = 0;
#pragma unroll
    for (int round = 0; round < 10; round++) {
        u64 a = (u64)c0 * 0xD2511F53u, b = (u64)c2 * 0xCD9E8D57u;
        c0 = (u32)(b >> 32) ^ c1 ^ k0, c1 = (u32)b, c2 = (u32)(a >> 32) ^ c3 ^ k1, c3 = (u32)a;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    return (u64)c1 << 32 | c0;
}

__device__ __forceinline__ u64 top_p_target(float top_p, u64 total) {
    return max(__double2ull_ru(__dmul_rn((double)top_p, (double)total)), 1ull);
}

__device__ __forceinline__ float penalised(float l, const SampleParams &p, bool in_prompt, u32 count) {
    if (in_prompt || count > 0) l = l > 0.0f ? __fdiv_rn(l, p.repetition_penalty) : __fmul_rn(l, p.repetition_penalty);
    if (count > 0) l = __fsub_rn(l, __fadd_rn(__fmul_rn((float)count, p.frequency_penalty), p.presence_penalty));
    return l;
}
