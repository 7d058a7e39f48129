// mamba2_chunk: what a chunk of a piece needs of itself; and the ring behind a piece.
#pragma once
#include "gdn/pieces.cuh"
#include "gdn/products.cuh"
#include "mamba2/state.cuh"

// Rows of B and C as operands: those of less than 64 values have zeros behind them, so that their groups of 8 can change places.
#define WIDE (N < 64 ? 64 : N)
#define KEYS_ELEMENTS (2 * C * WIDE) // of C or of B: high, low
#define MATS_ELEMENTS (2 * C * C)    // of M: high, low
#define CHUNK_THREADS 128
// Heads of a group that a block has, and blocks of a group.
#define SHARING (H / G)
#define CHUNK_HEADS 8
#define SLICES ((SHARING + CHUNK_HEADS - 1) / CHUNK_HEADS)

// Rows of a group's B, or of its C: `tokens` of them, zeros behind.
struct GroupRows {
    const float *first;
    int tokens;

    __device__ __forceinline__ float2 two(int token, int column) const {
        return token < tokens ? *(const float2 *)(first + (u64)token * CHANNELS + column) : make_float2(0, 0);
    }
    // 16 columns of rows `token` and `token` + 8 as left operand.
    __device__ __forceinline__ Left left(int token, int column) const {
        float2 a = two(token, column), b = two(token, column + 8), below_a = two(token + 8, column), below_b = two(token + 8, column + 8);
        return left_of({a.x, a.y, below_a.x, below_a.y}, {b.x, b.y, below_b.x, below_b.y});
    }
    // Of two tiles of tokens as right operand.
    __device__ __forceinline__ Right right(int token, int column) const {
        const Left l = left(token, column);
        return {{l.high[0], l.high[2], l.high[1], l.high[3]}, {l.low[0], l.low[2], l.low[1], l.low[3]}};
    }
    // All of them as two bf16 each, to `to`.
    __device__ __forceinline__ void put(const Thread &me, u16 *to) const {
        for (int item = me.id; item < C * WIDE / 8; item += CHUNK_THREADS) {
            const int token = item / (WIDE / 8), column = item % (WIDE / 8) * 8;
            u32 high[4], low[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float2 v = column < N ? two(token, column + 2 * i) : make_float2(0, 0);
                const Split s = split(v.x, v.y);
                high[i] = s.high, low[i] = s.low;
            }
            const int at = place<WIDE>(token, column);
            *(uint4 *)(to + at) = make_uint4(high[0], high[1], high[2], high[3]);
            *(uint4 *)(to + C * WIDE + at) = make_uint4(low[0], low[1], low[2], low[3]);
        }
    }
};

// What the tokens after a piece's first `rows` want of them, to the ring of `slot`. All blocks of a chunk share the channels.
__device__ __forceinline__ void keep_inputs(const Thread &me, const Arguments &args, const Chunk &chunk, int slot, int rows) {
    float *ring = args.tail + (u64)slot * 4 * CHANNELS;
    for (int n = max(0, rows - 4); n < rows; n++)
        for (int ch = blockIdx.y * CHUNK_THREADS + me.id; ch < CHANNELS; ch += gridDim.y * CHUNK_THREADS)
            ring[((chunk.start + n) & 3) * CHANNELS + ch] = args.x[((u64)chunk.first_row + n) * X_STRIDE + X_AT + ch];
}

// By one warp: {sum of the log decays up to and with it, step size} of each token of a chunk; zeros are added for those that are not there.
__device__ __forceinline__ void running_sums(const Thread &me, const Arguments &args, const Chunk &chunk, int head, float2 *sums, float2 *kept) {
    float before = 0;
#pragma unroll
    for (int half = 0; half < C; half += WARP) {
        const int token = half + me.lane;
        const float2 step = token < chunk.filled ? args.steps[chunk.row(token) * H + head] : make_float2(0, 0);
        float sum = step.y;
#pragma unroll
        for (int away = 1; away < WARP; away *= 2) {
            const float other = __shfl_up_sync(~0u, sum, away);
            if (me.lane >= away) sum = __fadd_rn(sum, other);
        }
        sum = __fadd_rn(before, sum);
        before = __shfl_sync(~0u, sum, WARP - 1);
        sums[token] = kept[token] = make_float2(sum, step.x);
    }
}

// M of a head, M_ts = C_t B_s dt_s e^(G_t - G_s), of this warp's 16 rows; `cb` has the products.
__device__ __forceinline__ void put_triangle(const Thread &me, const float2 *sums, const float (&cb)[8][4], u16 *to) {
    const int row = 16 * me.warp + me.g;
    const float of_row[2] = {sums[row].x, sums[row + 8].x};
#pragma unroll
    for (int n = 0; n < 8; n++) {
        if (n / 2 > me.warp) break;
        const int column = 8 * n + 2 * me.t;
        const float2 s0 = sums[column], s1 = sums[column + 1];
#pragma unroll
        for (int low = 0; low < 2; low++) {
            const int i = row + 8 * low;
            const float first = column <= i ? __fmul_rn(__fmul_rn(cb[n][2 * low], s0.y), __expf(of_row[low] - s0.x)) : 0.0f;
            const float second = column + 1 <= i ? __fmul_rn(__fmul_rn(cb[n][2 * low + 1], s1.y), __expf(of_row[low] - s1.x)) : 0.0f;
            const Split two = split(first, second);
            const int at = place<C>(i, column);
            *(u32 *)(to + at) = two.high, *(u32 *)(to + C * C + at) = two.low;
        }
    }
}

// Block (chunk, some heads of a group). Warp w has tokens 16w.. as rows of C B^T.
extern "C" __global__ void __launch_bounds__(CHUNK_THREADS) mamba2_chunk(const Arguments args) {
    __shared__ float2 sums[CHUNK_HEADS][C];
    let_next_start();
    wait_for_inputs();
    const Chunk chunk = find_chunk(args.pieces, args.count, blockIdx.x);
    if (chunk.filled == 0) return;
    const Thread me = this_thread();
    const int group = blockIdx.y / SLICES, slice = blockIdx.y % SLICES, heads = min(CHUNK_HEADS, SHARING - slice * CHUNK_HEADS);
    const u64 head = (u64)group * SHARING + slice * CHUNK_HEADS, of_heads = (u64)blockIdx.x * H + head;
    if (chunk.index * C + C >= chunk.rows) keep_inputs(me, args, chunk, chunk.slot, chunk.rows);
    const int kept_at = args.exports ? args.exports[blockIdx.x] : -1;
    if (kept_at >= 0) keep_inputs(me, args, chunk, kept_at, chunk.index * C + C);

    const float *first = args.convolved + chunk.row(0) * CHANNELS + VALUES + group * N;
    const GroupRows b = {first, chunk.filled}, c = {first + G * N, chunk.filled};
    if (slice == 0) {
        u16 *keys = args.keys + ((u64)blockIdx.x * G + group) * (2 * KEYS_ELEMENTS);
        c.put(me, keys), b.put(me, keys + KEYS_ELEMENTS);
    }
    for (int e = me.warp; e < heads; e += CHUNK_THREADS / WARP) running_sums(me, args, chunk, (int)head + e, sums[e], args.sums + (of_heads + e) * C);
    float cb[8][4] = {};
#pragma unroll 2
    for (int step = 0; step < N / 16; step++) {
        const int column = 16 * step + 2 * me.t;
        const Left l = c.left(16 * me.warp + me.g, column);
#pragma unroll
        for (int np = 0; np < 4; np++) {
            if (np > me.warp) break;
            multiply(cb[2 * np], cb[2 * np + 1], l, b.right(16 * np + me.g, column));
        }
    }
    __syncthreads();
#pragma unroll 1
    for (int e = 0; e < heads; e++) put_triangle(me, sums[e], cb, args.mats + (of_heads + e) * MATS_ELEMENTS);
}
