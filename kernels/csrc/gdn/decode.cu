// One token of the gated delta rule for every sequence of a step: convolution, SiLU, norms, gates, state, gated norm, int8 form.
//
//   c = silu(conv of the last 4 qkv)     q = l2norm(c_q) / sqrt(K)     k = l2norm(c_k)     v = c_v
//   beta = sigmoid(b + b2)     decay = exp(a_log_neg * softplus(a + a2 + dt_bias))
//   p = S^T k     delta = beta * (v - decay * p)     o = decay * S^T q + (k . q) * delta     S = decay * S + k delta^T
//   y = o / sqrt(mean(o^2) + eps) * w * silu(z)
//
// The form with S^T q of the old state reads S once. Block (h, row): value head h of one sequence. A warp owns 16 columns of its
// state, in registers: lane (r = lane / 4, c = lane % 4) has columns 4c..4c+3 of rows 4r..4r+3 of every 32, so both sums over K end
// within the warp.
// S is written at every STORE_EVERY-th position only. Between, a position leaves k, delta and decay, and the next ones bring S up to date in
// registers with the same operations, so that how often it is written changes no bit.
// Bound: (4 + 4 / STORE_EVERY) * K * V * HV bytes a row, and what the positions between leave, a part in 100 of that.
//
// x: [rows, X_STRIDE] f32, a row is q (HK * K), k (HK * K), v (HV * V), z (HV * V), b, a, b2, a2 (HV each).
// state: [slots][HV][K][V] f32. tail: [slots][4][CHANNELS] f32, a ring: entry p % 4 is position p's qkv before the convolution. A
// step writes its own entry and reads the three others, so the blocks that share a key head may not race. slots[row] < 0: no row.
// updates: [slots][HV][STORE_EVERY - 1][UPDATE] f32, entry p % STORE_EVERY is what position p left: k, delta, decay. pending[row]: how many
// of the positions before this one S lacks.
//
// -D: K, V, HK, HV, STORE_EVERY, X_STRIDE, GROUPED (1: key head h / (HV / HK), 0: h % HK), PLANES.
#include "common/int8_rows.cuh"
#include "arguments.cuh"
#include "gdn/gates.cuh"

#define COLS_A_WARP 16
#define WARPS (V / COLS_A_WARP)
#define THREADS (WARPS * WARP)
#define GROUPS (K / 32)
#define CHANNELS (2 * HK * K + HV * V)
#define Z_AT CHANNELS
#define GATES_AT (Z_AT + HV * V)
// Channels that a block convolves: q and k of its key head, v of its own.
#define MIXED (2 * K + V)
#define CHANNELS_A_THREAD ((MIXED + THREADS - 1) / THREADS)
// What a position leaves of a head: k before its norm, what each column gets of it, the decay, and room to the next 16 bytes.
#define UPDATE (K + V + 4)
#define UPDATES (STORE_EVERY - 1)

// Shared by the threads of a block.
struct __align__(16) Head {
    float mixed[MIXED]; // q, k, v after the convolution
    float out[V];
    float squares[WARPS]; // of each warp's outputs
    float updates[UPDATES][UPDATE];
};

// Where channel `j` of a block's own lies among all.
__device__ __forceinline__ int channel(int j, int kh, int h) {
    return j < K ? kh * K + j : j < 2 * K ? HK * K + kh * K + j - K : 2 * HK * K + h * V + j - 2 * K;
}

// A lane's part of a state: rows 4r.. of every 32, four columns each.
using State = float4[GROUPS][4];

// What a thread convolves: up to so many of the block's channels.
struct Convolution {
    float4 weights[CHANNELS_A_THREAD];
    float before[CHANNELS_A_THREAD][3], now[CHANNELS_A_THREAD];

    // All but this token's inputs.
    __device__ __forceinline__ void read_past(const Thread &me, const float *taps, const float *tail, int position, int kh, int h) {
#pragma unroll
        for (int n = 0; n < CHANNELS_A_THREAD; n++) {
            int ch = channel(min(me.id + n * THREADS, MIXED - 1), kh, h);
            weights[n] = __ldg((const float4 *)(taps + ch * 4));
#pragma unroll
            for (int p = 0; p < 3; p++) before[n][p] = tail[(position + 1 + p) % 4 * CHANNELS + ch];
        }
    }
    __device__ __forceinline__ void read_now(const Thread &me, const float *x, int kh, int h) {
#pragma unroll
        for (int n = 0; n < CHANNELS_A_THREAD; n++) now[n] = x[channel(min(me.id + n * THREADS, MIXED - 1), kh, h)];
    }
    // To shared memory, and this token's inputs to the ring.
    __device__ __forceinline__ void put(const Thread &me, Head &head, float *tail, int position, int kh, int h) const {
        bool keeps_key = GROUPED ? h % (HV / HK) == 0 : h < HK;
#pragma unroll
        for (int n = 0; n < CHANNELS_A_THREAD; n++) {
            int j = me.id + n * THREADS;
            float sum = __fmul_rn(before[n][0], weights[n].x);
            sum = __fmaf_rn(before[n][1], weights[n].y, sum);
            sum = __fmaf_rn(before[n][2], weights[n].z, sum);
            sum = __fmaf_rn(now[n], weights[n].w, sum);
            if (j < MIXED) {
                head.mixed[j] = silu(sum);
                if (keeps_key || j >= 2 * K) tail[position % 4 * CHANNELS + channel(j, kh, h)] = now[n];
            }
        }
    }
};

// Sums over K: of the old state times k and q for a lane's column, which is column r % 4 of its four, and of q and k by themselves.
struct Sums {
    float k, q;
    float qq, kk, kq;
};

// Eight sums over the eight lanes of a column group: each step halves what a lane keeps. Lane r ends with S^T k (r < 4) or S^T q of column
// r % 4, and gets the other from its partner.
__device__ __forceinline__ void add_lanes(const Thread &me, Sums &sums, float (&pk)[4], const float (&pq)[4]) {
    int lane = me.lane;
    bool upper = lane & 16;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        float other = __shfl_xor_sync(~0u, upper ? pk[j] : pq[j], 16);
        pk[j] = __fadd_rn(upper ? pq[j] : pk[j], other);
    }
#pragma unroll
    for (int j = 0; j < 2; j++) {
        float other = __shfl_xor_sync(~0u, lane & 8 ? pk[j] : pk[j + 2], 8);
        pk[j] = __fadd_rn(lane & 8 ? pk[j + 2] : pk[j], other);
    }
    float mine = __fadd_rn(lane & 4 ? pk[1] : pk[0], __shfl_xor_sync(~0u, lane & 4 ? pk[0] : pk[1], 4));
    float other = __shfl_xor_sync(~0u, mine, 16);
    sums.k = upper ? other : mine, sums.q = upper ? mine : other;
}

__device__ __forceinline__ Sums sums_of(const Thread &me, const Head &head, const State &rows) {
    int r = me.g, c = me.t;
    // Of the four lanes that see the same q and k, one sums q . q, one k . k, the others q . k.
    float pk[4] = {0, 0, 0, 0}, pq[4] = {0, 0, 0, 0}, length = 0;
#pragma unroll
    for (int i = 0; i < GROUPS; i++) {
        float4 q4 = *(const float4 *)&head.mixed[32 * i + 4 * r], k4 = *(const float4 *)&head.mixed[K + 32 * i + 4 * r];
        float q[4] = {q4.x, q4.y, q4.z, q4.w}, k[4] = {k4.x, k4.y, k4.z, k4.w};
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float4 v = rows[i][j];
            pk[0] = __fmaf_rn(v.x, k[j], pk[0]), pk[1] = __fmaf_rn(v.y, k[j], pk[1]);
            pk[2] = __fmaf_rn(v.z, k[j], pk[2]), pk[3] = __fmaf_rn(v.w, k[j], pk[3]);
            pq[0] = __fmaf_rn(v.x, q[j], pq[0]), pq[1] = __fmaf_rn(v.y, q[j], pq[1]);
            pq[2] = __fmaf_rn(v.z, q[j], pq[2]), pq[3] = __fmaf_rn(v.w, q[j], pq[3]);
            length = __fmaf_rn(c == 1 ? k[j] : q[j], c == 0 ? q[j] : k[j], length);
        }
    }
    Sums sums;
    add_lanes(me, sums, pk, pq);
#pragma unroll
    for (int step = 4; step < WARP; step *= 2) length = __fadd_rn(length, __shfl_xor_sync(~0u, length, step));
    sums.qq = __shfl_sync(~0u, length, 0), sums.kk = __shfl_sync(~0u, length, 1), sums.kq = __shfl_sync(~0u, length, 2);
    return sums;
}

// A column's output to shared memory, and the sum of squares of the warp's columns. `d`: what a lane's four columns of the state get of the
// unscaled k.
__device__ __forceinline__ void put_output(const Thread &me, Head &head, const Sums &sums, float beta, float decay, float (&d)[4]) {
    int warp = me.warp, lane = me.lane, r = me.g, c = me.t;
    float q_scale = __fmul_rn(__frcp_rn(__fsqrt_rn(__fadd_rn(sums.qq, 1e-6f))), __frcp_rn(__fsqrt_rn((float)K)));
    float k_scale = __frcp_rn(__fsqrt_rn(__fadd_rn(sums.kk, 1e-6f)));
    float kq = __fmul_rn(sums.kq, __fmul_rn(q_scale, k_scale));
    int column = warp * COLS_A_WARP + 4 * c + r % 4;
    float delta = __fmul_rn(beta, __fmaf_rn(-decay, __fmul_rn(sums.k, k_scale), head.mixed[2 * K + column]));
    float out = __fmaf_rn(decay, __fmul_rn(sums.q, q_scale), __fmul_rn(kq, delta));
    if (lane < 16) head.out[column] = out;
    float squares = __fmul_rn(out, out);
#pragma unroll
    for (int step = 1; step < 16; step *= 2) squares = __fadd_rn(squares, __shfl_xor_sync(~0u, squares, step));
    if (lane == 0) head.squares[warp] = squares;
    delta = __fmul_rn(delta, k_scale);
#pragma unroll
    for (int j = 0; j < 4; j++) d[j] = __shfl_sync(~0u, delta, 4 * j + c);
}

// The gated norm of a head's outputs, and their int8 form.
__device__ __forceinline__ void store_outputs(const Thread &me, const Arguments &args, const Head &head, u64 row, int h, float w, float z) {
    int tid = me.id;
    if (tid >= V) return;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < WARPS; i++) sum = __fadd_rn(sum, head.squares[i]);
    float scale = __frcp_rn(__fsqrt_rn(__fmaf_rn(sum, 1.0f / V, args.eps)));
    float y = head.out[tid] * scale * w * silu(z);
    u64 at = (row * HV + h) * V + tid / 32 * 32;
    quantize_block(y, args.codes + at * PLANES, args.meta + at / 32 * PLANES);
}

// S = decay * S + k delta^T.
__device__ __forceinline__ void advance(const Thread &me, State &rows, const float *keys, float decay, const float (&d)[4]) {
#pragma unroll
    for (int i = 0; i < GROUPS; i++) {
        float4 k4 = *(const float4 *)&keys[32 * i + 4 * me.g];
        float k[4] = {k4.x, k4.y, k4.z, k4.w};
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float4 &v = rows[i][j];
            v.x = __fmaf_rn(k[j], d[0], __fmul_rn(decay, v.x)), v.y = __fmaf_rn(k[j], d[1], __fmul_rn(decay, v.y));
            v.z = __fmaf_rn(k[j], d[2], __fmul_rn(decay, v.z)), v.w = __fmaf_rn(k[j], d[3], __fmul_rn(decay, v.w));
        }
    }
}

// What the state lacks of entries `first` to `last`, to shared memory.
__device__ __forceinline__ void read_updates(const Thread &me, Head &head, const float *updates, int first, int last) {
    for (int j = first * UPDATE + me.id; j < last * UPDATE; j += THREADS) head.updates[0][j] = updates[j];
}

__device__ __forceinline__ void apply_updates(const Thread &me, State &rows, const Head &head, int first, int last) {
    for (int e = first; e < last; e++) {
        const float *update = head.updates[e];
        float4 d4 = *(const float4 *)&update[K + me.warp * COLS_A_WARP + 4 * me.t];
        float d[4] = {d4.x, d4.y, d4.z, d4.w};
        advance(me, rows, update, update[K + V], d);
    }
}

// Instead of the state: what it lacks of this position.
__device__ __forceinline__ void store_update(const Thread &me, float *update, const Head &head, float decay, const float (&d)[4]) {
    for (int j = me.id; j < K; j += THREADS) update[j] = head.mixed[K + j];
    if (me.g == 0) *(float4 *)&update[K + me.warp * COLS_A_WARP + 4 * me.t] = make_float4(d[0], d[1], d[2], d[3]);
    if (me.id == 0) update[K + V] = decay;
}

__device__ __forceinline__ void store_state(float *s, const State &rows) {
#pragma unroll
    for (int i = 0; i < GROUPS; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) *(float4 *)(s + (32 * i + j) * V) = rows[i][j];
}

extern "C" __global__ void __launch_bounds__(THREADS) gdn_decode(const Arguments args) {
    __shared__ Head head;
    let_next_start();
    const Thread me = this_thread();
    int h = blockIdx.x, tid = me.id;
    u64 row = blockIdx.y;
    int kh = GROUPED ? h / (HV / HK) : h % HK, slot = args.slots[row], position = args.positions[row];
    if (slot < 0) {
        // Whoever comes after us takes our end for the end of what came before us.
        wait_for_inputs();
        return;
    }
    // All but x was last written a whole step ago, which the wait of this step's first kernel has seen the end of.
    float *s = args.state + ((u64)slot * HV + h) * K * V + 4 * me.g * V + me.warp * COLS_A_WARP + 4 * me.t;
    State rows;
#pragma unroll
    for (int i = 0; i < GROUPS; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) rows[i][j] = *(const float4 *)(s + (32 * i + j) * V);
    float *updates = args.updates + ((u64)slot * HV + h) * UPDATES * UPDATE;
    int entry = position % STORE_EVERY, pending = args.pending[row];
    read_updates(me, head, updates, entry - pending, entry);
    float *tail = args.tail + (u64)slot * 4 * CHANNELS;
    Convolution convolution;
    convolution.read_past(me, args.taps, tail, position, kh, h);
    float log_decay = __ldg(args.a_log_neg + h), bias = __ldg(args.dt_bias + h), w = tid < V ? __ldg(args.norm + tid) : 0;
    if (pending > 0) {
        __syncthreads();
        apply_updates(me, rows, head, entry - pending, entry);
    }
    wait_for_inputs();

    const float *x = args.x + row * X_STRIDE, *gates = x + GATES_AT + h;
    convolution.read_now(me, x, kh, h);
    float b = gates[0] + gates[2 * HV], a = gates[HV] + gates[3 * HV];
    float z = tid < V ? x[Z_AT + h * V + tid] : 0;
    convolution.put(me, head, tail, position, kh, h);
    float beta = sigmoid(b), decay = __expf(log_decay * softplus(a + bias));
    __syncthreads();
    float d[4];
    put_output(me, head, sums_of(me, head, rows), beta, decay, d);
    __syncthreads();
    store_outputs(me, args, head, row, h, w, z);
    if (entry < UPDATES) return store_update(me, updates + entry * UPDATE, head, decay, d);
    advance(me, rows, head.mixed + K, decay, d);
    store_state(s, rows);
}
