// Values of h from the sums of gate and up.
#pragma once
#include "experts/adapters.cuh"

// Sum of output r of a tile for column c over the warps that share it, one after another from 0.
template <int NC> __device__ __forceinline__ float in_order(const float *sums, int c, int r) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < WK; i++) sum += sums[(i * NC + c) * 16 + r];
    return sum;
}
// A group's values of h for each of `count` columns, from `first` on a warp for 32, from the sums of four tiles. `pairs`: of the columns; null: of the
// shared expert.
// `factors`: of the rows whose sums the lane has, where rows have some.
template <int NC, class W>
__device__ __noinline__ void
put_hidden(const Arguments &args, u32 tag, const float *sums, const float *norms, int count, int group, int first, const u8 *pairs, float2 factors, i8 *h, float2 *h_meta) {
    constexpr int EACH = GROUP_VALUES / 32;
    int lane = threadIdx.x % WARP;
#pragma unroll 1
    for (int i = first; i < count * EACH; i += WARPS) {
        int c = i / EACH;
        float norm = norms[pairs ? pairs[c] / USED : c], value;
        if constexpr (SQUARED) {
            const float *tile = sums + (i % EACH * 2 + lane / 16) * WK * NC * 16;
            value = W::times_factor(in_order<NC>(tile, c, lane % 16), i % EACH == 0 ? factors.x : factors.y) * norm;
            const int row = group * 64 + (i % EACH * 2 + lane / 16) * 16 + lane % 16;
            if (!pairs) value = adapted(args, args.gate_up_lora, false, 0, c, row, norm, value, tag);
            value = relu2(value);
        } else {
            const float *tile = sums + lane / 8 * WK * NC * 16;
            float gate = W::times_factor(in_order<NC>(tile, c, lane % 8), factors.x) * norm;
            float up = W::times_factor(in_order<NC>(tile, c, lane % 8 + 8), factors.y) * norm;
            if (!pairs) {
                const int row = (group * 4 + lane / 8) * 16 + lane % 8;
                gate = adapted(args, args.gate_up_lora, false, 0, c, row, norm, gate, tag);
                up = adapted(args, args.gate_up_lora, false, 1, c, row + 8, norm, up, tag);
            }
            value = silu(gate) * up;
        }
        int at = (pairs ? pairs[c] * (PADDED / 32) : c * (SHARED_PADDED / 32)) + group * EACH + i % EACH;
        quantize_block(value, h + at * (32 * PLANES), h_meta + at * PLANES);
    }
}

// Factors of the rows that a lane has in `put_hidden`, of the four tiles of a group: row lane % 8 of gate and of up of tile lane / 8, or row
// lane % 16 of tile lane / 16 and of the second tile behind it.
template <class W> __device__ __forceinline__ float2 group_factors(const u8 *tiles) {
    const int lane = threadIdx.x % WARP;
    if constexpr (!W::HAS_FACTORS) return make_float2(1, 1);
    if constexpr (SQUARED) {
        const u8 *tile = tiles + lane / 16 * W::TILE_BYTES;
        return make_float2(W::factor_of(tile, lane % 16), W::factor_of(tile + 2 * W::TILE_BYTES, lane % 16));
    } else {
        const u8 *tile = tiles + lane / 8 * W::TILE_BYTES;
        return make_float2(W::factor_of(tile, lane % 8), W::factor_of(tile, lane % 8 + 8));
    }
}
