// A head of a row by a warp: a lane has dims 64 i + 2 lane and the next. Its norm, its turn by position, its Hadamard transform.
#pragma once
#include "attention/numbers.cuh"
#include "rows/inputs.cuh"

struct Head {
    float2 v[PAIRS];
};
// Cosine and sine for a lane's two dims below ROTARY.
struct Turn {
    float2 first, second;
};

// a * b + c * d, of which a * b is fused with the sum. Left to the compiler, which product is fused depends on the code around it, and a query's
// last bits change when that code moves.
__device__ __forceinline__ float sum_of_products(float a, float b, float c, float d) { return __fmaf_rn(a, b, __fmul_rn(c, d)); }

// Which product of a turned dim is fused: its own or its partner's. Only last bits hang on it; these are the ones that outputs have always had.
enum class Fused { own, partner };
constexpr Fused IN_PREFILL = ROTARY == 64 ? Fused::own : Fused::partner;
constexpr Fused IN_WRITE = D == 64 ? Fused::own : IN_PREFILL;
constexpr Fused IN_DECODE = GQ <= 6 ? IN_WRITE : IN_PREFILL;

__device__ __forceinline__ Turn turn_of(const double *turns, int position) {
    Turn r = {make_float2(1, 0), make_float2(1, 0)};
#if ROTARY > 0
    int i = 2 * lane_id() % (ROTARY / 2);
    // The whole turns drop out in double: a large position has an angle as exact as a small one.
    double a = position * turns[i], b = position * turns[i + 1];
    sincospif(2.0f * (float)(a - rint(a)), &r.first.y, &r.first.x);
    sincospif(2.0f * (float)(b - rint(b)), &r.second.y, &r.second.x);
#endif
    return r;
}

template <typename T> __device__ __forceinline__ void load_head(Head &h, const T *x) {
#pragma unroll
    for (int i = 0; i < PAIRS; i++) h.v[i] = two_of(x + 64 * i + 2 * lane_id());
}

__device__ __forceinline__ void norm_head(Head &h, const float *weight, float eps) {
    if constexpr (!NORMED) return;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < PAIRS; i++) sum = __fadd_rn(sum, sum_of_products(h.v[i].x, h.v[i].x, h.v[i].y, h.v[i].y));
    float scale = __frcp_rn(__fsqrt_rn(warp_sum(sum) * (1.0f / D) + eps));
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
        float2 w = *(const float2 *)(weight + 64 * i + 2 * lane_id());
        // Fused with the first sum of a transform, where nothing turns between, they would be others than where they are stored first.
        h.v[i] = make_float2(__fmul_rn(h.v[i].x, __fmul_rn(scale, w.x)), __fmul_rn(h.v[i].y, __fmul_rn(scale, w.y)));
    }
}

template <Fused FUSED> __device__ __forceinline__ float turned(float own, float cos, float partner, float sin) {
    if (FUSED == Fused::own) return sum_of_products(own, cos, partner, sin);
    return sum_of_products(partner, sin, own, cos);
}

template <Fused FUSED> __device__ __forceinline__ void rotate_head(Head &h, const Turn &turn) {
#if ROTARY == 128
    // A dim's partner is 64 further on: the same lane has both.
    float2 a = h.v[0], b = h.v[1];
    h.v[0].x = turned<FUSED>(a.x, turn.first.x, -b.x, turn.first.y), h.v[0].y = turned<FUSED>(a.y, turn.second.x, -b.y, turn.second.y);
    h.v[1].x = turned<FUSED>(b.x, turn.first.x, a.x, turn.first.y), h.v[1].y = turned<FUSED>(b.y, turn.second.x, a.y, turn.second.y);
#elif ROTARY > 0
    int lane = lane_id(), d = 2 * lane;
    bool first = d < ROTARY / 2;
    int partner = first ? lane + ROTARY / 4 : lane - ROTARY / 4;
    float x = __shfl_sync(~0u, h.v[0].x, partner & 31), y = __shfl_sync(~0u, h.v[0].y, partner & 31);
    if (d < ROTARY) {
        float sign = first ? -1.0f : 1.0f;
        h.v[0].x = turned<FUSED>(h.v[0].x, turn.first.x, sign * x, turn.first.y);
        h.v[0].y = turned<FUSED>(h.v[0].y, turn.second.x, sign * y, turn.second.y);
    }
#endif
}

__device__ __forceinline__ void scale_head(Head &h, float scale) {
#pragma unroll
    for (int i = 0; i < PAIRS; i++) h.v[i].x *= scale, h.v[i].y *= scale;
}

__device__ __forceinline__ void hadamard_head(Head &h) {
#pragma unroll
    for (int i = 0; i < PAIRS; i++) h.v[i] = make_float2(h.v[i].x + h.v[i].y, h.v[i].x - h.v[i].y);
#pragma unroll
    for (int step = 1; step < WARP; step *= 2) {
        float sign = lane_id() & step ? -1.0f : 1.0f;
#pragma unroll
        for (int i = 0; i < PAIRS; i++) {
            h.v[i].x = sign * h.v[i].x + __shfl_xor_sync(~0u, h.v[i].x, step);
            h.v[i].y = sign * h.v[i].y + __shfl_xor_sync(~0u, h.v[i].y, step);
        }
    }
#pragma unroll
    for (int step = 1; step < PAIRS; step *= 2)
#pragma unroll
        for (int i = 0; i < PAIRS; i++)
            if (!(i & step)) {
                float2 a = h.v[i], b = h.v[i + step];
                h.v[i] = make_float2(a.x + b.x, a.y + b.y), h.v[i + step] = make_float2(a.x - b.x, a.y - b.y);
            }
    scale_head(h, __frcp_rn(__fsqrt_rn((float)D)));
}

// Row `row` of queries in shared memory, [D / 32][ROWS][32] f16.
template <int ROWS> __device__ __forceinline__ void store_query(const Head &h, u8 *q, int row) {
    int lane = lane_id();
#pragma unroll
    for (int i = 0; i < PAIRS; i++)
        *(u32 *)(q + ((2 * i + lane / 16) * ROWS + row) * 64 + lane % 16 * 4) = pack_f16(h.v[i].x, h.v[i].y);
}

// Of a query head: D, and as many of its gate if it has one.
#define QUERY_STRIDE ((GATED ? 2 : 1) * D)
template <typename T> __device__ __forceinline__ const T *query_of(const T *x, int head) { return x + head * QUERY_STRIDE; }
template <typename T> __device__ __forceinline__ const T *key_of(const T *x, int kv_head) { return x + HEADS * QUERY_STRIDE + kv_head * D; }
template <typename T> __device__ __forceinline__ const T *value_of(const T *x, int kv_head) { return x + HEADS * QUERY_STRIDE + (HKV + kv_head) * D; }

// What an output is multiplied by. `gate` is not read where there are none.
__device__ __forceinline__ float gated(float out, float gate) {
    if constexpr (GATED) return out * sigmoid(gate);
    return out;
}
