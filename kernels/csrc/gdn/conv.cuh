// The convolution of a chunk, SiLU, norms of q and k.
#pragma once
#include "arguments.cuh"
#include "gdn/pieces.cuh"
#include "gdn/products.cuh"

// Four or two neighbours.
template <int VEC, typename T> __device__ __forceinline__ void load(float (&v)[VEC], const T *p) {
    if constexpr (VEC == 4) {
        const float4 f = four_of(p);
        v[0] = f.x, v[1] = f.y, v[2] = f.z, v[3] = f.w;
    } else {
        const float2 f = two_of(p);
        v[0] = f.x, v[1] = f.y;
    }
}

#define ROWS_A_WARP (C / (THREADS / WARP))
#define ROWS_AHEAD 8

// One head's channels of a chunk: a warp takes 16 tokens, a lane DIM / 32 channels. WHAT: 0 q, 1 k, 2 v.
template <int DIM, int WHAT>
__device__ __forceinline__ void convolve(const Chunk &chunk, int ch, const Input *x, const float *tail, const float *taps, u16 *high,
                                         u16 *low, float *values) {
    constexpr int VEC = DIM / WARP;
    int lane = threadIdx.x % WARP, first = threadIdx.x / WARP * ROWS_A_WARP, at = lane * VEC;
    ch += at;
    float4 w[VEC];
    float past[3][VEC], in[ROWS_AHEAD][VEC];
#pragma unroll
    for (int i = 0; i < VEC; i++) w[i] = __ldg((const float4 *)(taps + (ch + i) * 4));
#pragma unroll
    for (int p = 0; p < 3; p++) {
        int t = chunk.index * C + first - 3 + p;
        if (first - 3 + p >= chunk.filled) continue;
        if (t >= 0) load<VEC>(past[p], x + ((u64)chunk.first_row + t) * X_STRIDE + ch);
        else load<VEC>(past[p], tail + ((chunk.start + t) & 3) * CHANNELS + ch);
    }
    for (int begin = first; begin < first + ROWS_A_WARP; begin += ROWS_AHEAD) {
#pragma unroll
        for (int n = 0; n < ROWS_AHEAD; n++)
            if (begin + n < chunk.filled) load<VEC>(in[n], x + chunk.row(begin + n) * X_STRIDE + ch);
#pragma unroll
        for (int n = 0; n < ROWS_AHEAD; n++) {
            int t = begin + n;
            float y[VEC], sum = 0;
#pragma unroll
            for (int i = 0; i < VEC; i++) {
                float c = __fmul_rn(past[0][i], w[i].x);
                c = __fmaf_rn(past[1][i], w[i].y, c);
                c = __fmaf_rn(past[2][i], w[i].z, c);
                c = __fmaf_rn(in[n][i], w[i].w, c);
                past[0][i] = past[1][i], past[1][i] = past[2][i], past[2][i] = in[n][i];
                y[i] = t < chunk.filled ? silu_fast(c) : 0;
                sum = __fmaf_rn(y[i], y[i], sum);
            }
            if (WHAT == 2) {
                float *to = values + chunk.row(t) * (HV * V) + at;
                if (t >= chunk.filled) continue;
                if (VEC == 4) *(float4 *)to = make_float4(y[0], y[1], y[2 % VEC], y[3 % VEC]);
                else *(float2 *)to = make_float2(y[0], y[1]);
            } else {
                float scale = __frcp_rn(__fsqrt_rn(warp_sum(sum) + 1e-6f)) * (WHAT == 0 ? __frcp_rn(__fsqrt_rn((float)DIM)) : 1.0f);
                int to = place<DIM>(t, at);
                Split a = split(y[0] * scale, y[1] * scale), b = split(y[2 % VEC] * scale, y[3 % VEC] * scale);
                if (VEC == 4) *(uint2 *)(high + to) = make_uint2(a.high, b.high), *(uint2 *)(low + to) = make_uint2(a.low, b.low);
                else *(u32 *)(high + to) = a.high, *(u32 *)(low + to) = a.low;
            }
        }
    }
}

// A chunk's queries and keys of key head `kh`, to `to`.
__device__ __forceinline__ void convolve_keys(const Arguments &args, const Chunk &chunk, int kh, u16 *to) {
    const float *tail = args.tail + (u64)chunk.slot * 4 * CHANNELS;
    convolve<K, 0>(chunk, kh * K, inputs(args), tail, args.taps, to, to + C * K, nullptr);
    to += 2 * C * K;
    convolve<K, 1>(chunk, (HK + kh) * K, inputs(args), tail, args.taps, to, to + C * K, nullptr);
}
// Its values of value head `h`.
__device__ __forceinline__ void convolve_values(const Arguments &args, const Chunk &chunk, int h) {
    const float *tail = args.tail + (u64)chunk.slot * 4 * CHANNELS;
    convolve<V, 2>(chunk, 2 * HK * K + h * V, inputs(args), tail, args.taps, nullptr, nullptr, args.values + h * V);
}
