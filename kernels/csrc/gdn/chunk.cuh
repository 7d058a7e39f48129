// gdn_chunk: the convolution, and what a chunk needs of itself: T, P and the running sums.
#pragma once
#include "arguments.cuh"
#include "gdn/conv.cuh"
#include "gdn/gates.cuh"
#include "gdn/pieces.cuh"
#include "gdn/products.cuh"

// Rows of the triangle are 4 banks apart from what they would share.
#define PITCH (C + 4)

struct Gates {
    float beta, g;
};
__device__ __forceinline__ Gates gates(const Chunk &chunk, int token, int h, const Input *x, const float *a_log_neg, const float *dt_bias) {
    if (token >= chunk.filled) return {0, 0};
    const Input *at = x + chunk.row(token) * X_STRIDE + GATES_AT + h;
    auto value = [&](int n) { return number_of(at[n * HV]); };
    return {sigmoid(value(0) + value(2)), __ldg(a_log_neg + h) * softplus(value(1) + value(3) + __ldg(dt_bias + h))};
}

// Column j of (I + A)^-1. `tri` has A^T strictly above its diagonal and gets the inverse on and below it, so that threads of a
// triangle write what no other reads.
__device__ __forceinline__ void invert_column(float *tri, int j) {
#pragma unroll 1
    for (int block = j / WARP * 2; block < C / 16; block++) {
        int base = block * 16;
        float r[16];
#pragma unroll
        for (int i = 0; i < 16; i++) r[i] = base + i == j ? 1.0f : 0.0f;
#pragma unroll 4
        for (int k = j / WARP * WARP; k < base; k++) {
            float x = k >= j ? tri[k * PITCH + j] : 0.0f;
#pragma unroll
            for (int i = 0; i < 16; i += 4) {
                float4 a = *(const float4 *)&tri[k * PITCH + base + i];
                r[i] = __fmaf_rn(-a.x, x, r[i]), r[i + 1] = __fmaf_rn(-a.y, x, r[i + 1]);
                r[i + 2] = __fmaf_rn(-a.z, x, r[i + 2]), r[i + 3] = __fmaf_rn(-a.w, x, r[i + 3]);
            }
        }
#pragma unroll
        for (int k = 0; k < 15; k++)
#pragma unroll
            for (int i = k + 1; i < 16; i++) r[i] = __fmaf_rn(-tri[(base + k) * PITCH + base + i], r[k], r[i]);
#pragma unroll
        for (int i = 0; i < 16; i++)
            if (base + i >= j) tri[(base + i) * PITCH + j] = r[i];
    }
}

// Shared by the threads of a block.
struct Triangles {
    union {
        __align__(16) u16 k[2][C * K];
        __align__(16) float tri[2][C * PITCH];
    };
    float sum[2][C], beta[2][C], half[2];
};

// K K^T and Q K^T for this warp's 16 tokens and those up to them. K in shared memory, Q where it is.
__device__ __forceinline__ void multiply_keys(const Thread &me, float (&kk)[8][4], float (&qk)[8][4], u32 k_at, const u16 *q_from) {
    int warp = me.warp, lane = me.lane, g = me.g, t = me.t;
    auto read_queries = [&](int step) {
        Left q;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int from = place<K>(16 * warp + g + i % 2 * 8, 16 * step + 2 * t + i / 2 * 8);
            q.high[i] = *(const u32 *)(q_from + from), q.low[i] = *(const u32 *)(q_from + C * K + from);
        }
        return q;
    };
    Left next = read_queries(0);
#pragma unroll
    for (int step = 0; step < K / 16; step++) {
        Left k, q = next;
        if (step + 1 < K / 16) next = read_queries(step + 1);
        int row = 16 * warp + lane % 16;
        u32 at = k_at + place<K>(row, 16 * step + lane / 16 * 8) * 2;
        ldmatrix(k.high, at), ldmatrix(k.low, at + C * K * 2);
#pragma unroll
        for (int np = 0; np < 4; np++) {
            if (np > warp) break;
            Right r = right_at<C * K * 2>(k_at + place<K>(16 * np + lane % 8 + lane / 16 * 8, 16 * step + lane / 8 % 2 * 8) * 2);
            multiply(kk[2 * np], kk[2 * np + 1], k, r, qk[2 * np], qk[2 * np + 1], q, r);
        }
    }
}

// The running sum over 64 tokens: two warps, 32 each. Its barrier says too that the keys, or the triangles of the heads before, have been read.
__device__ __forceinline__ float running_sum(const Thread &me, Triangles &s, float g) {
    int lane = me.lane, token = me.id % C, which = me.id / C;
    float running = g;
#pragma unroll
    for (int step = 1; step < WARP; step *= 2) {
        float before = __shfl_up_sync(~0u, running, step);
        if (lane >= step) running += before;
    }
    if (token == WARP - 1) s.half[which] = running;
    __syncthreads();
    if (token >= WARP) running += s.half[which];
    return running;
}

// Of head `e` of the two: A^T to shared memory, P to `p`.
__device__ __forceinline__ void decay_products(const Thread &me, Triangles &s, int e, u16 *p, const float (&kk)[8][4], const float (&qk)[8][4]) {
    int warp = me.warp, lane = me.lane, g = me.g, t = me.t;
#pragma unroll
    for (int n = 0; n < 8; n++) {
        if (n / 2 > warp) break;
#pragma unroll
        for (int low = 0; low < 2; low++) {
            int i = 16 * warp + g + 8 * low, j = 8 * n + 2 * t;
            float d[2];
#pragma unroll
            for (int c = 0; c < 2; c++) {
                d[c] = j + c <= i ? __expf(s.sum[e][i] - s.sum[e][j + c]) : 0;
                if (j + c < i) s.tri[e][(j + c) * PITCH + i] = s.beta[e][i] * kk[n][2 * low + c] * d[c];
            }
            Split two = split(qk[n][2 * low] * d[0], qk[n][2 * low + 1] * d[1]);
            int to = place<C>(i, j);
            *(u32 *)(p + to) = two.high, *(u32 *)(p + C * C + to) = two.low;
        }
    }
}

// T of head `e` to `inverse`, from (I + A)^-1 in shared memory.
__device__ __forceinline__ void store_inverse(const Thread &me, const Triangles &s, int e, u16 *inverse) {
    int tid = me.id;
#pragma unroll
    for (int item = tid; item < C * C / 8; item += THREADS) {
        int i = item / 8, j = item % 8 * 8;
        if (j / 16 > i / 16) continue;
        u32 high[4], low[4];
#pragma unroll
        for (int c = 0; c < 8; c += 2) {
            float first = j + c <= i ? s.tri[e][i * PITCH + j + c] * s.beta[e][j + c] : 0;
            float second = j + c + 1 <= i ? s.tri[e][i * PITCH + j + c + 1] * s.beta[e][j + c + 1] : 0;
            Split two = split(first, second);
            high[c / 2] = two.high, low[c / 2] = two.low;
        }
        int to = place<C>(i, j);
        *(uint4 *)(inverse + to) = make_uint4(high[0], high[1], high[2], high[3]);
        *(uint4 *)(inverse + C * C + to) = make_uint4(low[0], low[1], low[2], low[3]);
    }
}

// Block (chunk, key head): the value heads of a key head two at a time. Warp w has tokens 16w.. as rows of both products. Behind each key
// head come SHARING value heads, of which there is the convolution alone: blocks that wait for memory beside those that compute.
extern "C" __global__ void __launch_bounds__(THREADS, 4) gdn_chunk(const Arguments args) {
    __shared__ Triangles s;
    let_next_start();
    wait_for_inputs();
    Chunk chunk = find_chunk(args.pieces, args.count, blockIdx.x);
    if (chunk.filled == 0) return;
    const Thread me = this_thread();
    int kh = blockIdx.y / (1 + SHARING), behind = blockIdx.y % (1 + SHARING), tid = me.id, token = tid % C, which = tid / C;
    if (behind > 0) return convolve_values(args, chunk, kh * SHARING + behind - 1);
    u16 *keys = args.keys + ((u64)blockIdx.x * HK + kh) * KEYS_ELEMENTS;
    convolve_keys(args, chunk, kh, keys);
    // Copies that pass by the first-level cache read what other threads of the block have written.
    __threadfence();
    __syncthreads();
    const u16 *q_from = keys, *k_from = keys + 2 * C * K;
    u32 k_at = shared_address(s.k);
#pragma unroll
    for (int i = 0; i < 2 * C * K / 8 / THREADS; i++) copy16(k_at + (tid + i * THREADS) * 16, k_from + (tid + i * THREADS) * 8);
    copies_end();
    auto head = [&](int n) { return GROUPED ? kh * SHARING + n : kh + n * HK; };
    auto mats_of = [&](int n) { return args.mats + ((u64)blockIdx.x * HV + head(n)) * MATS_ELEMENTS; };
    Gates mine = {0, 0};
    if (which < SHARING) mine = gates(chunk, token, head(which), inputs(args), args.a_log_neg, args.dt_bias);
    copies_wait<0>();
    __syncthreads();
    float kk[8][4] = {}, qk[8][4] = {};
    multiply_keys(me, kk, qk, k_at, q_from);

#pragma unroll 1
    for (int base = 0; base < SHARING; base += 2) {
        bool there = base + which < SHARING;
        float running = running_sum(me, s, mine.g);
        s.sum[which][token] = running, s.beta[which][token] = mine.beta;
        if (there) args.sums[((u64)blockIdx.x * HV + head(base + which)) * C + token] = running;
        __syncthreads();
        if (base + 2 + which < SHARING) mine = gates(chunk, token, head(base + 2 + which), inputs(args), args.a_log_neg, args.dt_bias);
#pragma unroll
        for (int e = 0; e < 2; e++) {
            if (base + e >= SHARING) break;
            decay_products(me, s, e, mats_of(base + e) + 2 * C * C, kk, qk);
        }
        __syncthreads();
        if (there) invert_column(s.tri[which], token);
        __syncthreads();
#pragma unroll
        for (int e = 0; e < 2; e++) {
            if (base + e >= SHARING) break;
            store_inverse(me, s, e, mats_of(base + e));
        }
    }
}
