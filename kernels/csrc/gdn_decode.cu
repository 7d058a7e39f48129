// One token of the gated delta rule for every sequence of a step: convolution, SiLU, norms, gates, state, gated norm, int8 form.
//
//   c = silu(conv of the last 4 qkv)     q = l2norm(c_q) / sqrt(K)     k = l2norm(c_k)     v = c_v
//   beta = sigmoid(b)     decay = exp(a_log_neg * softplus(a + dt_bias))
//   p = S^T k     delta = beta * (v - decay * p)     o = decay * S^T q + (k . q) * delta     S = decay * S + k delta^T
//   y = o / sqrt(mean(o^2) + eps) * w * silu(z)
//
// The form with S^T q of the old state reads S once. Block (h, row): value head h of one sequence, its state in registers: a
// thread holds STATE_ROWS rows of four columns. Bound: 8 * K * V * HV bytes a row, S read and written once.
//
// x: [rows, X_STRIDE] f32, a row is q (HK * K), k (HK * K), v (HV * V), z (HV * V), b (HV), a (HV).
// state: [slots][HV][K][V] f32. tail: [slots][4][CHANNELS] f32, a ring: entry p % 4 is position p's qkv before the convolution. A
// step writes its own entry and reads the three others, so the blocks that share a key head may not race. slots[row] < 0: no row.
//
// -D: K, V, HK, HV, X_STRIDE, GROUPED (1: key head h / (HV / HK), 0: h % HK).
#include "common.cuh"

#define THREADS 512
#define WARPS (THREADS / WARP)
#define LANES_A_ROW (V / 4)
#define ROWS_AT_ONCE (THREADS / LANES_A_ROW)
#define STATE_ROWS (K / ROWS_AT_ONCE)
#define CHANNELS (2 * HK * K + HV * V)
#define Z_AT CHANNELS
#define B_AT (Z_AT + HV * V)
#define A_AT (B_AT + HV)

__device__ __forceinline__ float softplus(float x) { return x > 20.0f ? x : log1pf(__expf(x)); }

// Shared by the threads of a block.
struct __align__(16) Head {
    float q[K], k[K], v[V];
    float read_k[WARPS][V], read_q[WARPS][V];
    float delta[V];
    float sums[3][WARPS];
};

__device__ __forceinline__ float convolved(const float *x, float *tail, const float *taps, int channel, int position, bool keep) {
    float4 w = __ldg((const float4 *)(taps + channel * 4));
    float now = x[channel];
    const float *ring = tail + channel;
    float sum = ring[(position + 1) % 4 * CHANNELS] * w.x;
    sum = __fmaf_rn(ring[(position + 2) % 4 * CHANNELS], w.y, sum);
    sum = __fmaf_rn(ring[(position + 3) % 4 * CHANNELS], w.z, sum);
    sum = __fmaf_rn(now, w.w, sum);
    if (keep) tail[position % 4 * CHANNELS + channel] = now;
    return silu(sum);
}

// Three sums over the block at once, warps in order.
__device__ __forceinline__ void block_sums(float (&v)[3], float (&shared)[3][WARPS]) {
#pragma unroll
    for (int i = 0; i < 3; i++) {
        v[i] = warp_sum(v[i]);
        if (threadIdx.x % WARP == 0) shared[i][threadIdx.x / WARP] = v[i];
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 3; i++) {
        v[i] = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++) v[i] += shared[i][w];
    }
    __syncthreads();
}

extern "C" __global__ void __launch_bounds__(THREADS)
    gdn_decode(const float *x, float *state, float *tail, const int *slots, const int *positions, const float *taps,
               const float *a_log_neg, const float *dt_bias, const float *norm, float eps, i8 *codes, float2 *meta) {
    __shared__ Head head;
    let_next_start();
    int h = blockIdx.x, tid = threadIdx.x, column = tid % LANES_A_ROW * 4, first = tid / LANES_A_ROW;
    u64 row = blockIdx.y;
    int kh = GROUPED ? h / (HV / HK) : h % HK, slot = slots[row], position = positions[row];
    if (slot < 0) return;
    // The state was last written a whole step ago, which the wait of this step's first kernel has seen the end of.
    float *s = state + ((u64)slot * HV + h) * K * V + first * V + column;
    float4 rows[STATE_ROWS];
#pragma unroll
    for (int i = 0; i < STATE_ROWS; i++) rows[i] = *(const float4 *)(s + i * ROWS_AT_ONCE * V);
    wait_for_inputs();

    x += row * X_STRIDE;
    tail += (u64)slot * 4 * CHANNELS;
    bool keeps_key = GROUPED ? h % (HV / HK) == 0 : h < HK;
    float part[3] = {0, 0, 0};
    if (tid < K) {
        float q = convolved(x, tail, taps, kh * K + tid, position, keeps_key);
        float k = convolved(x, tail, taps, HK * K + kh * K + tid, position, keeps_key);
        head.q[tid] = q, head.k[tid] = k;
        part[0] = q * q, part[1] = k * k, part[2] = q * k;
    } else if (tid < K + V) {
        head.v[tid - K] = convolved(x, tail, taps, 2 * HK * K + h * V + tid - K, position, true);
    }
    block_sums(part, head.sums);
    float q_scale = __frcp_rn(__fsqrt_rn(part[0] + 1e-6f)) * __frcp_rn(__fsqrt_rn((float)K));
    float k_scale = __frcp_rn(__fsqrt_rn(part[1] + 1e-6f)), kq = part[2] * q_scale * k_scale;
    float beta = sigmoid(x[B_AT + h]);
    float decay = __expf(a_log_neg[h] * softplus(x[A_AT + h] + dt_bias[h]));

    float4 pk = make_float4(0, 0, 0, 0), pq = pk;
#pragma unroll
    for (int i = 0; i < STATE_ROWS; i++) {
        float k = head.k[first + i * ROWS_AT_ONCE], q = head.q[first + i * ROWS_AT_ONCE];
        float4 v = rows[i];
        pk.x = __fmaf_rn(v.x, k, pk.x), pk.y = __fmaf_rn(v.y, k, pk.y), pk.z = __fmaf_rn(v.z, k, pk.z), pk.w = __fmaf_rn(v.w, k, pk.w);
        pq.x = __fmaf_rn(v.x, q, pq.x), pq.y = __fmaf_rn(v.y, q, pq.y), pq.z = __fmaf_rn(v.z, q, pq.z), pq.w = __fmaf_rn(v.w, q, pq.w);
    }
#pragma unroll
    for (int step = LANES_A_ROW; step < WARP; step *= 2) {
        pk.x += __shfl_xor_sync(~0u, pk.x, step), pk.y += __shfl_xor_sync(~0u, pk.y, step);
        pk.z += __shfl_xor_sync(~0u, pk.z, step), pk.w += __shfl_xor_sync(~0u, pk.w, step);
        pq.x += __shfl_xor_sync(~0u, pq.x, step), pq.y += __shfl_xor_sync(~0u, pq.y, step);
        pq.z += __shfl_xor_sync(~0u, pq.z, step), pq.w += __shfl_xor_sync(~0u, pq.w, step);
    }
    if (tid % WARP < LANES_A_ROW) {
        *(float4 *)&head.read_k[tid / WARP][column] = pk;
        *(float4 *)&head.read_q[tid / WARP][column] = pq;
    }
    __syncthreads();
    float out = 0, squares[3] = {0, 0, 0};
    if (tid < V) {
        float sum_k = 0, sum_q = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++) sum_k += head.read_k[w][tid], sum_q += head.read_q[w][tid];
        float delta = beta * (head.v[tid] - decay * (sum_k * k_scale));
        out = decay * (sum_q * q_scale) + kq * delta;
        head.delta[tid] = delta * k_scale; // the rows below are multiplied with the unscaled k
        squares[0] = out * out;
    }
    block_sums(squares, head.sums);
    float4 delta = *(const float4 *)&head.delta[column];
#pragma unroll
    for (int i = 0; i < STATE_ROWS; i++) {
        float k = head.k[first + i * ROWS_AT_ONCE];
        float4 v = rows[i];
        v.x = __fmaf_rn(k, delta.x, decay * v.x), v.y = __fmaf_rn(k, delta.y, decay * v.y);
        v.z = __fmaf_rn(k, delta.z, decay * v.z), v.w = __fmaf_rn(k, delta.w, decay * v.w);
        *(float4 *)(s + i * ROWS_AT_ONCE * V) = v;
    }
    if (tid < V) {
        float scale = __frcp_rn(__fsqrt_rn(squares[0] * (1.0f / V) + eps));
        float y = out * scale * __ldg(norm + tid) * silu(x[Z_AT + h * V + tid]);
        u64 at = (row * HV + h) * V + tid / 32 * 32;
        quantize_block(y, codes + at, meta + at / 32);
    }
}
