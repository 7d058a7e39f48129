// Pieces of prompts, before the scan and behind it: mamba2_conv, mamba2_finish.
#pragma once
#include "gdn/pieces.cuh"
#include "mamba2/state.cuh"

// Parts of a chunk's tokens that blocks of the convolution and of the norm have.
#define CONV_PARTS 4
#define CONV_TOKENS (C / CONV_PARTS)
#define FINISH_PARTS 64
#define FINISH_TOKENS (C / FINISH_PARTS)

// Block (CONV_PARTS * chunk + part, strip of channels and, behind them, heads).
extern "C" __global__ void __launch_bounds__(THREADS) mamba2_conv(const Arguments args) {
    let_next_start();
    wait_for_inputs();
    const Chunk chunk = find_chunk(args.pieces, args.count, blockIdx.x / CONV_PARTS);
    int ch = blockIdx.y * THREADS + threadIdx.x, first = blockIdx.x % CONV_PARTS * CONV_TOKENS, end = min(first + CONV_TOKENS, chunk.filled);
    if (ch >= CHANNELS) {
        int head = ch - CHANNELS;
        if (head >= H) return;
        float bias = __ldg(args.dt_bias + head), a_neg = __ldg(args.a_neg + head);
#pragma unroll 4
        for (int t = first; t < end; t++) {
            u64 row = chunk.row(t);
            args.steps[row * H + head] = step_of(args.x[row * X_STRIDE + DT_AT + head], bias, a_neg);
        }
        return;
    }
    if (first >= end) return;
    const float *tail = args.tail + (u64)chunk.slot * 4 * CHANNELS + ch, *x = args.x + X_AT + ch;
    float4 taps = __ldg((const float4 *)(args.taps + ch * 4));
    float bias = __ldg(args.conv_bias + ch), past[3];
#pragma unroll
    for (int p = 0; p < 3; p++) {
        int t = chunk.index * C + first - 3 + p;
        past[p] = t >= 0 ? x[((u64)chunk.first_row + t) * X_STRIDE] : tail[((chunk.start + t) & 3) * CHANNELS];
    }
#pragma unroll 8
    for (int t = first; t < end; t++) {
        u64 row = chunk.row(t);
        float now = x[row * X_STRIDE];
        args.convolved[row * CHANNELS + ch] = convolved(taps, bias, past[0], past[1], past[2], now);
        past[0] = past[1], past[1] = past[2], past[2] = now;
    }
}

// Block (FINISH_PARTS * chunk + part, group).
extern "C" __global__ void __launch_bounds__(THREADS) mamba2_finish(const Arguments args) {
    let_next_start();
    wait_for_inputs();
    const Chunk chunk = find_chunk(args.pieces, args.count, blockIdx.x / FINISH_PARTS);
    const Thread me = this_thread();
    const int first = blockIdx.x % FINISH_PARTS * FINISH_TOKENS;
    for (int t = first; t < min(first + FINISH_TOKENS, chunk.filled); t++) finish_group(me, args, chunk.row(t), blockIdx.y);
}
