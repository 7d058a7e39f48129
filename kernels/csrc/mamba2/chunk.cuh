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
#define CHUNK_HEADS 4
#define SLICES ((SHARING + CHUNK_HEADS - 1) / CHUNK_HEADS)

// Rows of a group's B, or of its C: `tokens` of them, zeros behind.
struct GroupRows {
    const float *first;
    int tokens;

    __device__ __forceinline__ float4 four(int token, int column) const {
        return token < tokens ? *(const float4 *)(first + (u64)token * CHANNELS + column) : make_float4(0, 0, 0, 0);
    }
    __device__ __forceinline__ Split two(int token, int column) const {
        const float2 v = token < tokens ? *(const float2 *)(first + (u64)token * CHANNELS + column) : make_float2(0, 0);
        return split(v.x, v.y);
    }
    // 16 columns of rows `token` and `token` + 8 as left operand.
    __device__ __forceinline__ Left left(int token, int column) const {
        const Split a = two(token, column), b = two(token + 8, column), c = two(token, column + 8), d = two(token + 8, column + 8);
        return {{a.high, b.high, c.high, d.high}, {a.low, b.low, c.low, d.low}};
    }
};

// B as two bf16 each, to shared memory, and to `to` by the blocks of a group that share it.
__device__ __forceinline__ void put_right(const Thread &me, const GroupRows &rows, u16 *here, u16 *to, int slice) {
#pragma unroll 4
    for (int item = me.id; item < C * N / 8; item += CHUNK_THREADS) {
        const int token = item / (N / 8), column = item % (N / 8) * 8, at = place<WIDE>(token, column);
        const float4 a = rows.four(token, column), b = rows.four(token, column + 4);
        const Split s0 = split(a.x, a.y), s1 = split(a.z, a.w), s2 = split(b.x, b.y), s3 = split(b.z, b.w);
        const uint4 high = make_uint4(s0.high, s1.high, s2.high, s3.high), low = make_uint4(s0.low, s1.low, s2.low, s3.low);
        *(uint4 *)(here + at) = high, *(uint4 *)(here + C * WIDE + at) = low;
        if (item / CHUNK_THREADS % SLICES == slice) *(uint4 *)(to + at) = high, *(uint4 *)(to + C * WIDE + at) = low;
    }
}

// A left operand of 16 tokens from `token` - g on, as rows of C.
__device__ __forceinline__ void put_left(const Left &l, u16 *to, int token, int column) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int at = place<WIDE>(token + i % 2 * 8, column + i / 2 * 8);
        *(u32 *)(to + at) = l.high[i], *(u32 *)(to + C * WIDE + at) = l.low[i];
    }
}

// What the tokens after a piece's first `rows` want of them, to the ring of `slot`. All blocks of a chunk share the channels.
__device__ __forceinline__ void keep_inputs(const Thread &me, const Arguments &args, const Chunk &chunk, int slot, int rows) {
    float *ring = args.tail + (u64)slot * 4 * CHANNELS;
    for (int n = max(0, rows - 4); n < rows; n++)
        for (int ch = blockIdx.y * CHUNK_THREADS + me.id; ch < CHANNELS; ch += gridDim.y * CHUNK_THREADS)
            ring[((chunk.start + n) & 3) * CHANNELS + ch] = args.x[((u64)chunk.first_row + n) * X_STRIDE + X_AT + ch];
}

// By one warp: {G, dt} of each token of a chunk, G the sum of log decays up to and with its own; to `kept` {e^G, dt e^(G_63 - G)}, what it
// takes of the state before and gives to the state behind. Tokens that are not there add nothing.
__device__ __forceinline__ void running_sums(const Thread &me, const Arguments &args, const Chunk &chunk, int head, float2 *sums, float2 *kept) {
    float2 step[C / WARP];
#pragma unroll
    for (int half = 0; half < C / WARP; half++) {
        const int token = half * WARP + me.lane;
        step[half] = token < chunk.filled ? args.steps[chunk.row(token) * H + head] : make_float2(0, 0);
    }
    float before = 0, sum[C / WARP];
#pragma unroll
    for (int half = 0; half < C / WARP; half++) {
        sum[half] = step[half].y;
#pragma unroll
        for (int away = 1; away < WARP; away *= 2) {
            const float other = __shfl_up_sync(~0u, sum[half], away);
            if (me.lane >= away) sum[half] = __fadd_rn(sum[half], other);
        }
        sum[half] = __fadd_rn(before, sum[half]);
        before = __shfl_sync(~0u, sum[half], WARP - 1);
    }
#pragma unroll
    for (int half = 0; half < C / WARP; half++) {
        const int token = half * WARP + me.lane;
        sums[token] = make_float2(sum[half], step[half].x);
        kept[token] = make_float2(__expf(sum[half]), __fmul_rn(step[half].x, __expf(before - sum[half])));
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
    extern __shared__ __align__(128) u16 right[];
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
    u16 *keys = args.keys + ((u64)blockIdx.x * G + group) * (2 * KEYS_ELEMENTS);
    put_right(me, b, right, keys + KEYS_ELEMENTS, slice);
    for (int e = me.warp; e < heads; e += CHUNK_THREADS / WARP) running_sums(me, args, chunk, (int)head + e, sums[e], args.sums + (of_heads + e) * C);
    __syncthreads();
    float cb[8][4] = {};
    const u32 right_first = shared_address(right), of_lane = place<WIDE>(me.lane % 8 + me.lane / 16 * 8, me.lane / 8 % 2 * 8) * 2;
#pragma unroll 4
    for (int step = 0; step < N / 16; step++) {
        const int token = 16 * me.warp + me.g, column = 16 * step + 2 * me.t;
        const Left l = c.left(token, column);
        if (step % SLICES == slice) put_left(l, keys, token, column);
#pragma unroll
        for (int np = 0; np < 4; np++) {
            if (np > me.warp) break;
            multiply(cb[2 * np], cb[2 * np + 1], l, right_at<C * WIDE * 2>(right_first + (of_lane ^ step * 32) + np * (16 * WIDE * 2)));
        }
    }
#pragma unroll 1
    for (int e = 0; e < heads; e++) put_triangle(me, sums[e], cb, args.mats + (of_heads + e) * MATS_ELEMENTS);
}
