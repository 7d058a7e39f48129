// mamba2_decode: one token for every sequence of a step.
#pragma once
#include "common/counters.cuh"
#include "mamba2/state.cuh"

#define CHANNELS_A_THREAD ((MIXED + THREADS - 1) / THREADS)

// What a thread convolves: up to so many of the block's channels.
struct Convolution {
    float4 taps[CHANNELS_A_THREAD];
    float bias[CHANNELS_A_THREAD], before[CHANNELS_A_THREAD][3], now[CHANNELS_A_THREAD];

    // All but this token's inputs.
    __device__ __forceinline__ void read_past(const Thread &me, const Arguments &args, const float *tail, int position, const Place &at) {
#pragma unroll
        for (int n = 0; n < CHANNELS_A_THREAD; n++) {
            int ch = channel(at, min(me.id + n * THREADS, MIXED - 1));
            taps[n] = __ldg((const float4 *)(args.taps + ch * 4)), bias[n] = __ldg(args.conv_bias + ch);
#pragma unroll
            for (int p = 0; p < 3; p++) before[n][p] = tail[(position + 1 + p) % 4 * CHANNELS + ch];
        }
    }
    __device__ __forceinline__ void read_now(const Thread &me, const float *x, const Place &at) {
#pragma unroll
        for (int n = 0; n < CHANNELS_A_THREAD; n++) now[n] = x[X_AT + channel(at, min(me.id + n * THREADS, MIXED - 1))];
    }
    // To shared memory, and this token's inputs to the ring: those of a group by its first block.
    __device__ __forceinline__ void put(const Thread &me, float *mixed, float *tail, int position, const Place &at) const {
        bool first = at.head % (H / G) == 0 && at.first == 0;
#pragma unroll
        for (int n = 0; n < CHANNELS_A_THREAD; n++) {
            int j = me.id + n * THREADS;
            if (j >= MIXED) break;
            mixed[j] = convolved(taps[n], bias[n], before[n][0], before[n][1], before[n][2], now[n]);
            if (first || j < PART) tail[position % 4 * CHANNELS + channel(at, j)] = now[n];
        }
    }
};

// Block (head and part, row).
extern "C" __global__ void __launch_bounds__(THREADS) mamba2_decode(const Arguments args) {
    __shared__ __align__(16) float mixed[MIXED];
    let_next_start();
    const Thread me = this_thread();
    const Place at = place_of(blockIdx.x);
    u64 row = blockIdx.y;
    int slot = args.slots[row], position = args.positions[row];
    if (slot < 0) {
        // Whoever comes after us takes our end for the end of what came before us.
        wait_for_inputs();
        return;
    }
    // All but x was last written a whole step ago, which the wait of this step's first kernel has seen the end of.
    float *kept = state_of(args, at, slot), *tail = args.tail + (u64)slot * 4 * CHANNELS;
    State state;
    state.load(me, kept);
    Convolution convolution;
    convolution.read_past(me, args, tail, position, at);
    float a_neg = __ldg(args.a_neg + at.head), bias = __ldg(args.dt_bias + at.head), d = __ldg(args.d + at.head);
    wait_for_inputs();

    const float *x = args.x + row * X_STRIDE;
    convolution.read_now(me, x, at);
    float2 step = step_of(x[DT_AT + at.head], bias, a_neg);
    convolution.put(me, mixed, tail, position, at);
    __syncthreads();
    float y = advance(me, state, mixed, step.x, exp_defined(step.y), d);
    if (stores_sum(me)) args.values[row * VALUES + at.head * P + at.first + summed_row(me)] = y;
    state.store(me, kept);
    if (last_to_finish(args.counters + row * G + at.group, H / G * PARTS)) finish_group(me, args, row, at.group);
}
