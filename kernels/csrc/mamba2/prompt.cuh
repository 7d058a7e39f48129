// Pieces of prompts: mamba2_conv, mamba2_scan, mamba2_finish.
#pragma once
#include "gdn/pieces.cuh"
#include "mamba2/state.cuh"

// Parts of a chunk's tokens that blocks of the convolution and of the norm have.
#define CONV_PARTS 4
#define CONV_TOKENS (C / CONV_PARTS)
#define FINISH_PARTS 16
#define FINISH_TOKENS (C / FINISH_PARTS)
// Tokens that are in shared memory at a time; two such lots are, one on its way.
#define LOT (N > 128 ? 8 : 16)
static_assert(C % LOT == 0, "a chunk ends with a lot");

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

// What the tokens after a piece's first `rows` want of them, to the ring of `slot`. All blocks of the piece share the channels.
__device__ __forceinline__ void keep_inputs(const Thread &me, const Arguments &args, int4 piece, int slot, int rows) {
    float *ring = args.tail + (u64)slot * 4 * CHANNELS;
    for (int n = max(0, rows - 4); n < rows; n++)
        for (int ch = blockIdx.x * THREADS + me.id; ch < CHANNELS; ch += gridDim.x * THREADS)
            ring[((piece.y + n) & 3) * CHANNELS + ch] = args.x[((u64)piece.z + n) * X_STRIDE + X_AT + ch];
}

// Some tokens in shared memory.
struct Lot {
    float mixed[LOT][MIXED];
    float2 steps[LOT];

    // Asks for `tokens` from row `row` on.
    __device__ __forceinline__ void read(const Thread &me, const Arguments &args, const Place &at, u64 row, int tokens) {
        for (int i = me.id; i < tokens * (MIXED / 4); i += THREADS) {
            int t = i / (MIXED / 4), j = i % (MIXED / 4) * 4;
            copy16(shared_address(&mixed[t][j]), args.convolved + (row + t) * CHANNELS + channel(at, j));
        }
        if (me.id < tokens)
            asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(shared_address(&steps[me.id])), "l"(args.steps + (row + me.id) * H + at.head)
                         : "memory");
        copies_end();
    }
};

// Block (head and part, piece).
extern "C" __global__ void __launch_bounds__(THREADS) mamba2_scan(const Arguments args) {
    __shared__ __align__(16) Lot lots[2];
    let_next_start();
    wait_for_inputs();
    const int4 piece = args.pieces[blockIdx.y];
    const int slot = piece.x, rows = piece.w;
    if (slot < 0 || rows <= 0) return;
    const Thread me = this_thread();
    const Place at = place_of(blockIdx.x);
    const int *exports = args.exports ? args.exports + piece.z / C + blockIdx.y : nullptr;
    const float d = __ldg(args.d + at.head);
    float *out = args.values + (u64)piece.z * VALUES + at.head * P + at.first + summed_row(me);
    lots[0].read(me, args, at, piece.z, min(LOT, rows));
    State state;
    state.load(me, state_of(args, at, slot));
    for (int base = 0, turn = 0; base < rows; base += LOT, turn ^= 1) {
        copies_wait<0>();
        __syncthreads();
        // Everybody is done with the other lot.
        if (base + LOT < rows) lots[turn ^ 1].read(me, args, at, (u64)piece.z + base + LOT, min(LOT, rows - base - LOT));
        const Lot &lot = lots[turn];
        const int tokens = min(LOT, rows - base);
#pragma unroll 2
        for (int t = 0; t < tokens; t++) {
            float2 step = lot.steps[t];
            float y = advance(me, state, lot.mixed[t], step.x, step.y, d);
            if (stores_sum(me)) out[(u64)(base + t) * VALUES] = y;
        }
        const int end = base + LOT;
        int kept_at = exports && end % C == 0 && end <= rows ? exports[end / C - 1] : -1;
        if (kept_at >= 0) {
            state.store(me, state_of(args, at, kept_at));
            keep_inputs(me, args, piece, kept_at, end);
        }
    }
    state.store(me, state_of(args, at, slot));
    keep_inputs(me, args, piece, slot, rows);
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
