// A row's experts by their scores: the best of N, ties to the lower id, and their weights. By one warp. SIGMOID: the best by sigmoid and
// bias, weighed by their sigmoids alone. REPLAY, of benchmarks alone: a row takes the experts that it is given instead, weighed by its scores.
#pragma once
#include "common/base.cuh"

// Larger floats have larger keys; the order is total.
__device__ __forceinline__ u32 key_of(float v) {
    u32 bits = __float_as_uint(v);
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ float of_key(u32 key) { return __uint_as_float(key >> 31 ? key & 0x7fffffffu : ~key); }

// ExpertCut::kept of reference::router, by one warp; lane k has the score of the k-th expert, or its sigmoid. No number is no reason to cut. Out of line:
// rows without a cut need not fetch it.
__device__ __noinline__ int kept(int limits, float mass, int used, float score, float best) {
    int most = min(limits >> 16, used), least = min(limits & 0xffff, most), kept = most;
    float weight = SIGMOID ? score : exp_defined(__fsub_rn(score, best)), all = 0, sum = 0;
#pragma unroll 1
    for (int k = 0; k < most; k++) all = __fadd_rn(all, __shfl_sync(~0u, weight, k));
    float target = __fmul_rn(mass, all);
#pragma unroll 1
    for (int k = 0; k < most; k++) {
        sum = __fadd_rn(sum, __shfl_sync(~0u, weight, k));
        if (sum >= target) {
            kept = k + 1;
            break;
        }
    }
    return max(kept, least);
}

// What is known of a row besides its scores. Lane l holds the scores of experts l, l + 32, ..., without the row's factor, as is the shared
// gate's.
struct Asked {
    int limits; // of its cut, 0 without one; below 0: no row
    float mass, factor;
};
__device__ __forceinline__ Asked asked(const int *slots, const int2 *cuts, int row) {
    int slot = slots[row];
    int2 cut = cuts ? cuts[row] : make_int2(0, 0);
    return {slot < 0 ? -1 : cut.x, __int_as_float(cut.y), 0};
}

__device__ __forceinline__ float sigmoid_of(float x) { return __fdiv_rn(1.0f, 1.0f + expf(-x)); }

// What is added to the sigmoids of N experts before they are compared, as a row's scores lie. Never written, so it may be read early.
template <int N> struct Biases {
#if SIGMOID
    float value[(N + WARP - 1) / WARP];

    __device__ __forceinline__ explicit Biases(const float *bias) {
        int lane = threadIdx.x % WARP;
#pragma unroll
        for (int i = 0; i < (N + WARP - 1) / WARP; i++) value[i] = i * WARP + lane < N ? __ldg(bias + i * WARP + lane) : 0.0f;
    }
#else
    __device__ __forceinline__ explicit Biases(const float *) {}
#endif
};

// The best BEST of N experts.
template <int N, int BEST> struct Choice {
    static constexpr int EACH_LANE = (N + WARP - 1) / WARP;
    int expert;   // the lane's: of lanes below BEST, best first; -1 where there is no row, and behind the last that a cut leaves
    float weight; // likewise, 0 then
    float shared; // of the shared expert, in all lanes
    int left;     // experts that are kept

    // `given`: with REPLAY the row's experts.
    __device__ __forceinline__ Choice(Asked asked, const float (&value)[EACH_LANE], float gate, const Biases<N> &biases, const int *given = nullptr)
        : expert(-1), weight(0), shared(0), left(0) {
        if (asked.limits < 0) return;
        int lane = threadIdx.x % WARP;
        u32 key[EACH_LANE];
#pragma unroll
        for (int i = 0; i < EACH_LANE; i++) {
            float score = value[i] * asked.factor;
#if SIGMOID
            score = sigmoid_of(score) + biases.value[i];
#endif
            key[i] = i * WARP + lane < N ? key_of(score) : 0;
        }
        u32 mine = 0;    // lane k keeps the k-th
        float alone = 0; // and its sigmoid
        // Not unrolled: this runs once a launch, and fetching its instructions would be most of it.
#pragma unroll 1
        for (int k = 0; k < BEST; k++) {
            u32 top = key[0];
#if REPLAY
            u32 lowest = (u32)__ldcg(given + k);
#pragma unroll
            for (int i = 0; i < EACH_LANE; i++) top = i * WARP + lane == lowest ? key[i] : i == 0 ? 0 : top;
            u32 best = __reduce_max_sync(~0u, top);
#else
#pragma unroll
            for (int i = 1; i < EACH_LANE; i++) top = top > key[i] ? top : key[i];
            u32 best = __reduce_max_sync(~0u, top);
            u32 lowest = N;
#pragma unroll
            for (int i = EACH_LANE - 1; i >= 0; i--)
                if (key[i] == best && i * WARP + lane < N) lowest = i * WARP + lane;
            lowest = __reduce_min_sync(~0u, lowest);
#endif
            float taken = 0;
#pragma unroll
            for (int i = 0; i < EACH_LANE; i++)
                if (i * WARP + lane == lowest) key[i] = 0, taken = value[i];
            if constexpr (SIGMOID) taken = __shfl_sync(~0u, taken, lowest % WARP);
            if (lane == k) mine = best, expert = (int)lowest, alone = SIGMOID ? sigmoid_of(taken * asked.factor) : 0.0f;
        }
        // Every lane goes through the shuffles, whether it has an expert or not.
        float best = __shfl_sync(~0u, of_key(mine), 0);
        left = asked.limits > 0 ? kept(asked.limits, asked.mass, BEST, SIGMOID ? alone : of_key(mine), best) : BEST;
        if (lane >= left) expert = -1;
        float raised = lane >= left ? 0.0f : SIGMOID ? alone : expf(of_key(mine) - best), sum = 0;
#pragma unroll 4
        for (int k = 0; k < BEST; k++) sum += __shfl_sync(~0u, raised, k);
        weight = __fdiv_rn(raised, sum);
        shared = sigmoid_of(gate * asked.factor);
    }
};
