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
// S is written where the step says so, at every STORE_EVERY-th position at least. Between, a position leaves k, delta and decay, and the next
// ones bring S up to date in registers with the same operations, so that how often it is written changes no bit.
// Up to DRAFTS drafted rows of the same sequence may stand behind a row, whose block does them one after another, with S in registers. They
// never write S nor the ring, for they may turn out not to count: those that do are among the next row's pending and drafted positions.
// What a row needs of its inputs alone (convolution, gates, lengths of q and k) is done for all of them before the first, what follows from
// outputs alone (norm, int8 form) behind the last: between, a warp needs nothing of another one, so no row waits for a barrier.
// Bound: (4 + 4 / n) * K * V * HV bytes a row where every n-th writes, and what the positions between leave, a part in 100 of that.
//
// x: [rows, X_STRIDE] f32, a row is q (HK * K), k (HK * K), v (HV * V), z (HV * V), b, a, b2, a2 (HV each).
// state: [slots][HV][K][V] f32. tail: [slots][4][CHANNELS] f32, a ring: entry p % 4 is position p's qkv before the convolution. A
// step writes its own entry and reads the three others, so the blocks that share a key head may not race. slots[row] < 0: no row. Rows of a
// slot stand next to one another in the order of their positions; the first has a position that counts, the others are drafted.
// updates, by slot: [HV][UPDATES][UPDATE] f32, entry p % UPDATES is what position p left: k, delta, decay; then [INPUTS][CHANNELS], entry
// p % INPUTS is what a drafted position p would have put into the ring. pending[row]: how many of the positions before this one S lacks, and
// WRITES beside it if the row writes S.
// drafted[row]: how many the ring lacks. Of a slot's first row alone.
//
// Where rows are more than run at a time, `gdn_decode_several` (several.cuh) does them with blocks that stay.
//
// BEHIND 0 is for steps in which no row is drafted, and none lacks drafted ones or STORE_EVERY positions: with little shared memory and few
// registers more of its blocks run at a time.
//
// -D: K, V, HK, HV, STORE_EVERY, DRAFTS, BEHIND, X_STRIDE, GROUPED (1: key head h / (HV / HK), 0: h % HK), PLANES.
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
// A row that does not write S lacks STORE_EVERY - 2 of those before it at most, so the next one these, that row and the drafts behind it.
#define UPDATES (STORE_EVERY - 1 + DRAFTS)
// Of drafted positions: those that a convolution sees, and the new ones, with the row's own between them.
#define INPUTS (DRAFTS ? 3 + 1 + DRAFTS : 0)
#define UPDATES_OF_SLOT ((u64)HV * UPDATES * UPDATE + INPUTS * CHANNELS)
#define WRITES 0x10000
// What a row applies at most.
#define PENDING (BEHIND ? UPDATES : STORE_EVERY - 1)

// Rows of a sequence in a step.
#define ROWS (BEHIND ? 1 + DRAFTS : 1)
// Of which so many are read at once, and how often a thread has an output of one.
#define READ_ROWS (ROWS < 4 ? ROWS : 4)
#define OUT_TURNS ((ROWS * V + THREADS - 1) / THREADS)

// What q and k are multiplied with, and q . k times that.
struct Scales {
    float q, k, kq;
};

// A row in shared memory.
struct __align__(16) Row {
    float mixed[MIXED]; // q, k, v after the convolution
    float out[V], gate[V]; // and what the gated norm multiplies it with
    float squares[WARPS];  // of each warp's outputs
    float beta, decay;
    Scales scales; // where one warp works them out for all
};

// Shared by the threads of a block.
struct __align__(16) Head {
    Row row[ROWS];
    float updates[PENDING][UPDATE];
};

// Where channel `j` of a block's own lies among all.
__device__ __forceinline__ int channel(int j, int kh, int h) {
    return j < K ? kh * K + j : j < 2 * K ? HK * K + kh * K + j - K : 2 * HK * K + h * V + j - 2 * K;
}

// A lane's part of a state: rows 4r.. of every 32, four columns each.
using State = float4[GROUPS][4];

// A thread's channels of some rows, or of the last one where there are no more.
__device__ __forceinline__ void read_rows(const Thread &me, float (&now)[READ_ROWS][CHANNELS_A_THREAD], const float *x, int first, int count,
                                          int kh, int h) {
#pragma unroll
    for (int i = 0; i < READ_ROWS; i++)
#pragma unroll
        for (int n = 0; n < CHANNELS_A_THREAD; n++)
            now[i][n] = x[min(first + i, count - 1) * X_STRIDE + channel(min(me.id + n * THREADS, MIXED - 1), kh, h)];
}

__device__ __forceinline__ float convolved(float4 taps, const float (&before)[3], float now) {
    float sum = __fmul_rn(before[0], taps.x);
    sum = __fmaf_rn(before[1], taps.y, sum);
    sum = __fmaf_rn(before[2], taps.z, sum);
    return __fmaf_rn(now, taps.w, sum);
}

// What a thread convolves: up to so many of the block's channels.
struct Convolution {
    float4 weights[CHANNELS_A_THREAD];
    float before[CHANNELS_A_THREAD][3];

    // The inputs of the three positions before; the last `drafted` of them stood behind another row of an earlier step.
    __device__ __forceinline__ void read_past(const Thread &me, const float *taps, const float *tail, const float *inputs, int position,
                                              int drafted, int kh, int h) {
#pragma unroll
        for (int n = 0; n < CHANNELS_A_THREAD; n++) {
            int ch = channel(min(me.id + n * THREADS, MIXED - 1), kh, h);
            weights[n] = __ldg((const float4 *)(taps + ch * 4));
#pragma unroll
            for (int p = 0; p < 3; p++) {
                const float *from = tail + (position + 1 + p) % 4 * CHANNELS;
                if (BEHIND && p >= 3 - drafted) from = inputs + (position - 3 + p) % (BEHIND ? INPUTS : 1) * CHANNELS;
                before[n][p] = from[ch];
            }
        }
    }
    // A row to shared memory; the window moves on over it.
    __device__ __forceinline__ void put(const Thread &me, Row &row, const float (&now)[CHANNELS_A_THREAD]) {
#pragma unroll
        for (int n = 0; n < CHANNELS_A_THREAD; n++) {
            int j = me.id + n * THREADS;
            float sum = convolved(weights[n], before[n], now[n]);
            if (j < MIXED) row.mixed[j] = silu(sum);
            before[n][0] = before[n][1], before[n][1] = before[n][2], before[n][2] = now[n];
        }
    }
};

// A position's inputs to its place in a ring; of those that blocks share, one of them sees to it.
template <class Value> __device__ __forceinline__ void keep_inputs(const Thread &me, float *place, int kh, int h, Value value) {
    bool keeps_key = GROUPED ? h % (HV / HK) == 0 : h < HK;
#pragma unroll
    for (int n = 0; n < CHANNELS_A_THREAD; n++) {
        int j = me.id + n * THREADS;
        if (j < MIXED && (keeps_key || j >= 2 * K)) place[channel(j, kh, h)] = value(n);
    }
}

// Sums over K of the old state times k and q, for a lane's column, which is column r % 4 of its four.
struct Sums {
    float k, q;
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

__device__ __forceinline__ Sums sums_of(const Thread &me, const Row &row, const State &rows) {
    float pk[4] = {0, 0, 0, 0}, pq[4] = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < GROUPS; i++) {
        float4 q4 = *(const float4 *)&row.mixed[32 * i + 4 * me.g], k4 = *(const float4 *)&row.mixed[K + 32 * i + 4 * me.g];
        float q[4] = {q4.x, q4.y, q4.z, q4.w}, k[4] = {k4.x, k4.y, k4.z, k4.w};
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float4 v = rows[i][j];
            pk[0] = __fmaf_rn(v.x, k[j], pk[0]), pk[1] = __fmaf_rn(v.y, k[j], pk[1]);
            pk[2] = __fmaf_rn(v.z, k[j], pk[2]), pk[3] = __fmaf_rn(v.w, k[j], pk[3]);
            pq[0] = __fmaf_rn(v.x, q[j], pq[0]), pq[1] = __fmaf_rn(v.y, q[j], pq[1]);
            pq[2] = __fmaf_rn(v.z, q[j], pq[2]), pq[3] = __fmaf_rn(v.w, q[j], pq[3]);
        }
    }
    Sums sums;
    add_lanes(me, sums, pk, pq);
    return sums;
}

// Of a warp. Of the four lanes that see the same q and k, one sums q . q, one k . k, the others q . k.
__device__ __forceinline__ Scales scales_of(const Thread &me, const Row &row) {
    float length = 0;
#pragma unroll
    for (int i = 0; i < GROUPS; i++) {
        float4 q4 = *(const float4 *)&row.mixed[32 * i + 4 * me.g], k4 = *(const float4 *)&row.mixed[K + 32 * i + 4 * me.g];
        float q[4] = {q4.x, q4.y, q4.z, q4.w}, k[4] = {k4.x, k4.y, k4.z, k4.w};
#pragma unroll
        for (int j = 0; j < 4; j++) length = __fmaf_rn(me.t == 1 ? k[j] : q[j], me.t == 0 ? q[j] : k[j], length);
    }
#pragma unroll
    for (int step = 4; step < WARP; step *= 2) length = __fadd_rn(length, __shfl_xor_sync(~0u, length, step));
    float qq = __shfl_sync(~0u, length, 0), kk = __shfl_sync(~0u, length, 1), kq = __shfl_sync(~0u, length, 2);
    Scales scales;
    scales.q = __fmul_rn(__frcp_rn(__fsqrt_rn(__fadd_rn(qq, 1e-6f))), __frcp_rn(__fsqrt_rn((float)K)));
    scales.k = __frcp_rn(__fsqrt_rn(__fadd_rn(kk, 1e-6f)));
    scales.kq = __fmul_rn(kq, __fmul_rn(scales.q, scales.k));
    return scales;
}

// A column's output to shared memory, and the sum of squares of the warp's columns. `d`: what a lane's four columns of the state get of the
// unscaled k.
__device__ __forceinline__ void put_output(const Thread &me, Row &row, const Sums &sums, const Scales &scales, float (&d)[4]) {
    int warp = me.warp, lane = me.lane, r = me.g, c = me.t;
    float beta = row.beta, decay = row.decay;
    int column = warp * COLS_A_WARP + 4 * c + r % 4;
    float delta = __fmul_rn(beta, __fmaf_rn(-decay, __fmul_rn(sums.k, scales.k), row.mixed[2 * K + column]));
    float out = __fmaf_rn(decay, __fmul_rn(sums.q, scales.q), __fmul_rn(scales.kq, delta));
    if (lane < 16) row.out[column] = out;
    delta = __fmul_rn(delta, scales.k);
#pragma unroll
    for (int j = 0; j < 4; j++) d[j] = __shfl_sync(~0u, delta, 4 * j + c);
    float squares = __fmul_rn(out, out);
#pragma unroll
    for (int step = 1; step < 16; step *= 2) squares = __fadd_rn(squares, __shfl_xor_sync(~0u, squares, step));
    if (lane == 0) row.squares[warp] = squares;
}

// The gated norm of an output, and the int8 form of its block of 32. `column`: the thread's.
__device__ __forceinline__ void store_output(const Arguments &args, const Row &from, u64 row, int h, int column, float w) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < WARPS; i++) sum = __fadd_rn(sum, from.squares[i]);
    float scale = __frcp_rn(__fsqrt_rn(__fmaf_rn(sum, 1.0f / V, args.eps)));
    float y = from.out[column] * scale * w * from.gate[column];
    u64 at = (row * HV + h) * V + column / 32 * 32;
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

// What the state lacks of the `pending` positions before `position`, to shared memory.
__device__ __forceinline__ void read_updates(const Thread &me, Head &head, const float *updates, int position, int pending) {
    for (int j = me.id; j < pending * UPDATE; j += THREADS) head.updates[0][j] = updates[(position - pending + j / UPDATE) % UPDATES * UPDATE + j % UPDATE];
}

__device__ __forceinline__ void apply_updates(const Thread &me, State &rows, const Head &head, int pending) {
    for (int e = 0; e < pending; e++) {
        const float *update = head.updates[e];
        float4 d4 = *(const float4 *)&update[K + me.warp * COLS_A_WARP + 4 * me.t];
        float d[4] = {d4.x, d4.y, d4.z, d4.w};
        advance(me, rows, update, update[K + V], d);
    }
}

// Instead of the state: what it lacks of this position.
__device__ __forceinline__ void store_update(const Thread &me, float *update, const Row &row, const float (&d)[4]) {
    for (int j = me.id; j < K; j += THREADS) update[j] = row.mixed[K + j];
    if (me.g == 0) *(float4 *)&update[K + me.warp * COLS_A_WARP + 4 * me.t] = make_float4(d[0], d[1], d[2], d[3]);
    if (me.id == 0) update[K + V] = row.decay;
}

__device__ __forceinline__ void store_state(float *s, const State &rows) {
#pragma unroll
    for (int i = 0; i < GROUPS; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) *(float4 *)(s + (32 * i + j) * V) = rows[i][j];
}

// Whether a row is drafted, and so done by the block of a row before it.
__device__ __forceinline__ bool is_drafted(const Arguments &args, u64 row, int slot) { return BEHIND && row > 0 && args.slots[row - 1] == slot; }

// What blocks of a head have in common.
struct Weights {
    int h, kh; // value head and key head
    float log_decay, bias, norm;

    __device__ __forceinline__ Weights(const Thread &me, const Arguments &args)
        : h(blockIdx.x), kh(GROUPED ? h / (HV / HK) : h % HK), log_decay(__ldg(args.a_log_neg + h)), bias(__ldg(args.dt_bias + h)),
          norm(__ldg(args.norm + me.id % V)) {}
};

// Where a sequence's memory is, of this head: the lane's part of the state, and what all heads share.
struct Memory {
    float *state, *updates, *inputs, *tail;

    __device__ __forceinline__ Memory(const Thread &me, const Arguments &args, int slot, int h) {
        float *of_slot = args.updates + slot * UPDATES_OF_SLOT;
        state = args.state + ((u64)slot * HV + h) * K * V + 4 * me.g * V + me.warp * COLS_A_WARP + 4 * me.t;
        updates = of_slot + (u64)h * UPDATES * UPDATE, inputs = of_slot + (u64)HV * UPDATES * UPDATE;
        tail = args.tail + (u64)slot * 4 * CHANNELS;
    }
};

// A sequence's rows of the step: the first one, its position and whether it writes S, what the ring lacks, and how many rows.
struct Now {
    u64 row;
    int position;
    bool writes;
    int drafted, count;
};

// What a thread takes of the first rows' inputs.
struct Inputs {
    float rows[READ_ROWS][CHANNELS_A_THREAD], z[OUT_TURNS], gates[4];

    // All of it is on its way before any of it is waited for.
    __device__ __forceinline__ void read(const Thread &me, const float *x, int count, const Weights &weights) {
        const int h = weights.h;
        read_rows(me, rows, x, 0, count, weights.kh, h);
#pragma unroll
        for (int n = 0; n < 4; n++) gates[n] = x[min(me.id, count - 1) * X_STRIDE + GATES_AT + n * HV + h];
#pragma unroll
        for (int n = 0; n < OUT_TURNS; n++) z[n] = x[min((me.id + n * THREADS) / V, count - 1) * X_STRIDE + Z_AT + h * V + me.id % V];
    }
};

// Of a row, from b, a, b2 and a2 of its inputs.
__device__ __forceinline__ void put_gates(Row &row, const float (&gates)[4], const Weights &weights) {
    float b = gates[0] + gates[2], a = gates[1] + gates[3];
    row.beta = sigmoid(b), row.decay = __expf(weights.log_decay * softplus(a + weights.bias));
}

// From the inputs to the outputs, with S up to date in `rows`.
__device__ __forceinline__ void do_rows(const Thread &me, const Arguments &args, Head &head, State &rows, Convolution &convolution, Inputs &in,
                                        const Now &now, const Memory &memory, const Weights &weights) {
    const int h = weights.h, kh = weights.kh, tid = me.id, position = now.position, count = now.count;
#pragma unroll
    for (int p = 0; p < 3; p++)
        if (p >= 3 - now.drafted)
            keep_inputs(me, memory.tail + (position + 1 + p) % 4 * CHANNELS, kh, h, [&](int n) { return convolution.before[n][p]; });
    for (int first = 0;;) {
#pragma unroll
        for (int i = 0; i < READ_ROWS; i++) {
            int at = first + i;
            if (at >= count) break;
            float *place = at == 0 ? memory.tail + position % 4 * CHANNELS : memory.inputs + (position + at) % (BEHIND ? INPUTS : 1) * CHANNELS;
            keep_inputs(me, place, kh, h, [&](int n) { return in.rows[i][n]; });
            convolution.put(me, head.row[at], in.rows[i]);
        }
        first += READ_ROWS;
        if (first >= count) break;
        read_rows(me, in.rows, args.x + now.row * X_STRIDE, first, count, kh, h);
    }
    if (tid < count) put_gates(head.row[tid], in.gates, weights);
#pragma unroll
    for (int n = 0; n < OUT_TURNS; n++) {
        int i = (tid + n * THREADS) / V;
        if (i < count) head.row[i].gate[tid % V] = silu(in.z[n]);
    }
    __syncthreads();
    if (BEHIND) {
        for (int i = me.warp; i < count; i += WARPS) {
            Scales scales = scales_of(me, head.row[i]);
            if (me.lane == 0) head.row[i].scales = scales;
        }
        __syncthreads();
    }

#pragma unroll 1
    for (int i = 0; i < count; i++) {
        Row &own = head.row[i];
        float d[4];
        Sums sums = sums_of(me, own, rows);
        put_output(me, own, sums, BEHIND ? own.scales : scales_of(me, own), d);
        bool last = i + 1 == count;
        if (last) {
            __syncthreads();
#pragma unroll
            for (int n = 0; n < OUT_TURNS; n++) {
                int at = (tid + n * THREADS) / V;
                if (at < count) store_output(args, head.row[at], now.row + at, h, tid % V, weights.norm);
            }
        }
        bool writes = i == 0 && now.writes;
        if (!writes) store_update(me, memory.updates + (position + i) % UPDATES * UPDATE, own, d);
        if (writes || !last) advance(me, rows, own.mixed + K, own.decay, d);
        if (writes) store_state(memory.state, rows);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) gdn_decode(const Arguments args) {
    __shared__ Head head;
    let_next_start();
    const Thread me = this_thread();
    const Weights weights(me, args);
    u64 row = blockIdx.y;
    int slot = args.slots[row], position = args.positions[row];
    if (slot < 0 || is_drafted(args, row, slot)) {
        // Whoever comes after us takes our end for the end of what came before us.
        wait_for_inputs();
        return;
    }
    // All but x was last written a whole step ago, which the wait of this step's first kernel has seen the end of.
    const Memory memory(me, args, slot, weights.h);
    State rows;
#pragma unroll
    for (int i = 0; i < GROUPS; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) rows[i][j] = *(const float4 *)(memory.state + (32 * i + j) * V);
    int word = args.pending[row], pending = word % WRITES, drafted = BEHIND ? args.drafted[row] : 0;
    read_updates(me, head, memory.updates, position, pending);
    Convolution convolution;
    convolution.read_past(me, args.taps, memory.tail, memory.inputs, position, drafted, weights.kh, weights.h);
    if (pending > 0) {
        __syncthreads();
        apply_updates(me, rows, head, pending);
    }
    int count = 1;
    while (BEHIND && count < ROWS && row + count < args.rows && args.slots[row + count] == slot) count++;
    wait_for_inputs();
    const Now now = {row, position, word >= WRITES, drafted, count};
    Inputs in;
    in.read(me, args.x + row * X_STRIDE, count, weights);
    do_rows(me, args, head, rows, convolution, in, now, memory, weights);
}

// Where two blocks of a multiprocessor have the shared memory for it.
#if !BEHIND && (__CUDA_ARCH__ == 900 || __CUDA_ARCH__ == 1000)
#include "gdn/several.cuh"
#endif
