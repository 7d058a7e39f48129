// A router's scores, without the row's factor: sum over k of (x * norm)[k] * weights[k], in one order wherever they are taken: SCORE_PARTS
// parts a row, a warp each; a lane adds its k of a part in order, then come the lanes, then the parts.
#pragma once
#include "common/waits.cuh"

#define SCORE_PARTS 8

__device__ __forceinline__ float dot(float4 a, float4 b, float sum) {
    sum = __fmaf_rn(a.x, b.x, sum), sum = __fmaf_rn(a.y, b.y, sum), sum = __fmaf_rn(a.z, b.z, sum);
    return __fmaf_rn(a.w, b.w, sum);
}
__device__ __forceinline__ float4 times(float4 a, float4 b) { return make_float4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w); }

// What a lane has of a part of a row of N values.
template <int N> struct PartOfRow {
    static constexpr int VECTORS = (N / 4 + SCORE_PARTS * WARP - 1) / (SCORE_PARTS * WARP);
    float4 v[VECTORS];

    __device__ __forceinline__ static int at(int part, int i) { return ((i * SCORE_PARTS + part) * WARP + (int)threadIdx.x % WARP) * 4; }
    // Zeros where there is no row. Whoever reads what a kernel before has written waits first.
    __device__ __forceinline__ void read(const float *row, int part, bool there) {
#pragma unroll
        for (int i = 0; i < VECTORS; i++) v[i] = there && at(part, i) < N ? *(const float4 *)(row + at(part, i)) : make_float4(0, 0, 0, 0);
    }
    __device__ __forceinline__ void multiply(const PartOfRow &by) {
#pragma unroll
        for (int i = 0; i < VECTORS; i++) v[i] = times(v[i], by.v[i]);
    }
    // All lanes get it.
    __device__ __forceinline__ float score(const PartOfRow &weights) const {
        float sum = 0;
#pragma unroll
        for (int i = 0; i < VECTORS; i++) sum = dot(v[i], weights.v[i], sum);
        return warp_sum(sum);
    }
};

// A score and the count of launches that it belongs to go in one word, so that nothing but the word need be waited for: no fence, no
// counter, one way through the cache.
__device__ __forceinline__ void put_score(u64 *to, u32 tag, float score) {
    u64 word = (u64)tag << 32 | __float_as_uint(score);
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(word) : "memory");
}
__device__ __forceinline__ u64 scored(const u64 *from) {
    u64 word;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(from) : "memory");
    return word;
}
// By one warp: the scores of a row, lane l those of experts l, l + 32, ... of N; all lanes the gate's, which is behind them. They stay until the
// next launch, which stores none before this one has ended: so a tag that has come is not missed.
template <Wait WAIT, int N> __device__ __forceinline__ void await_scores(const u64 *row, u32 tag, float (&value)[(N + WARP - 1) / WARP], float &gate) {
    constexpr int EACH_LANE = (N + WARP - 1) / WARP;
    int lane = threadIdx.x % WARP;
    wait_until<WAIT>([&] {
        u64 word[EACH_LANE], last = scored(row + N);
#pragma unroll
        for (int i = 0; i < EACH_LANE; i++) word[i] = scored(row + (i * WARP + lane < N ? i * WARP + lane : N));
        bool all = (u32)(last >> 32) == tag;
        gate = __uint_as_float((u32)last);
#pragma unroll
        for (int i = 0; i < EACH_LANE; i++) all = all && (u32)(word[i] >> 32) == tag, value[i] = __uint_as_float((u32)word[i]);
        return all;
    });
    __syncwarp();
}
