// A scale and a minimum of a group of 32 values by 37 trials with least squares after each: Q4_K, Q5_K and Q5_1.
#pragma once
#include "encode/values.cuh"

#define TRIALS 37

// x = scale q + min, q from 0 to q_max.
struct ScaleMin {
    f32 scale, min;

    __device__ __forceinline__ f32 code(f32 x, f32 inverse, f32 q_max) const { return nearest_whole(within((x - min) * inverse, 0.0f, q_max)); }
    // With the nearest codes.
    __device__ __forceinline__ f32 error(Group group, f32 q_max) const {
        f32 inverse = inverse_of(scale), sum = 0.0f;
        for (int i = 0; i < group.count; i++) {
            f32 x = group.x[i], w = group.w[i], off = x - (scale * code(x, inverse, q_max) + min);
            sum += w * off * off;
        }
        return sum;
    }
};

// A trial's fit and its error; of a trial without a fit the error is infinite.
struct Tried {
    f32 error;
    ScaleMin fit;
};

// What the trials of a group begin with.
struct Range {
    f32 low, high;

    __device__ __forceinline__ Range(Group group, f32 min_max) : low(INFINITE), high(-INFINITE) {
        for (int i = 0; i < group.count; i++) {
            low = fminf(low.v, group.x[i]);
            high = fmaxf(high.v, group.x[i]);
        }
        if (min_max < low) low = min_max;
    }
    // The codes that trial `i` gives, and the scale and minimum, of at most `min_max`, that are best for them.
    __device__ __forceinline__ Tried tried(Group group, f32 q_max, f32 min_max, int i) const {
        ScaleMin trial = {(high - low) / (q_max - 0.9f + f32(0.05f) * float(i)), low};
        f32 inverse = inverse_of(trial.scale), w_sum = 0.0f, x_sum = 0.0f, q_sum = 0.0f, qq = 0.0f, qx = 0.0f;
        for (int k = 0; k < group.count; k++) {
            f32 x = group.x[k], w = group.w[k], q = trial.code(x, inverse, q_max);
            w_sum += w;
            x_sum += w * x;
            q_sum += w * q;
            qq += w * q * q;
            qx += w * q * x;
        }
        f32 det = w_sum * qq - q_sum * q_sum;
        if (det <= 0.0f) return {INFINITE, {0.0f, 0.0f}};
        ScaleMin fit = {(w_sum * qx - x_sum * q_sum) / det, (qq * x_sum - q_sum * qx) / det};
        if (!(fit.min <= min_max)) {
            if (!(qq > 0.0f)) return {INFINITE, {0.0f, 0.0f}};
            fit = {(qx - min_max * q_sum) / qq, min_max};
        }
        if (!(fit.scale > 0.0f)) return {INFINITE, {0.0f, 0.0f}};
        f32 sum = 0.0f;
        for (int k = 0; k < group.count; k++) {
            f32 x = group.x[k], w = group.w[k], off = x - (fit.scale * trial.code(x, inverse, q_max) + fit.min);
            sum += w * off * off;
        }
        return {sum, fit};
    }
    // The first of the best, once all were tried.
    __device__ __forceinline__ ScaleMin best(Group group, f32 q_max, const Tried *tried) const {
        if (high <= low) return {0.0f, low};
        ScaleMin first = {(high - low) / q_max, low};
        Tried best = {first.error(group, q_max), first};
        for (int i = 0; i < TRIALS; i++)
            if (tried[i].error < best.error) best = tried[i];
        return best.fit;
    }
};

// Of GROUPS groups, by a warp; `tried`: [GROUPS][TRIALS].
template <int GROUPS, int COUNT>
__device__ __forceinline__ void fit_all(const Block<COUNT> &block, f32 q_max, f32 min_max, Tried *tried, ScaleMin *fits) {
    int lane = threadIdx.x % WARP;
    for (int i = lane; i < GROUPS * TRIALS; i += WARP) {
        Group group = block.group(i / TRIALS, COUNT / GROUPS);
        tried[i] = Range(group, min_max).tried(group, q_max, min_max, i % TRIALS);
    }
    __syncwarp();
    if (lane < GROUPS) {
        Group group = block.group(lane, COUNT / GROUPS);
        fits[lane] = Range(group, min_max).best(group, q_max, tried + lane * TRIALS);
    }
    __syncwarp();
}
