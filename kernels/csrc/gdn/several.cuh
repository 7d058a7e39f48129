// Blocks of gdn_decode that stay: a head of several sequences each, one after another. All that the next one brings is on its way to shared
// memory while a block is busy with one: what it does between a state's arrival and the last output would else be time in which nothing of it
// is on its way, and each thing that is asked for late a latency more of that.
#pragma once
#include "common/mbarrier.cuh"

// Four rows of a state, which lanes read together, and 64 bytes: so eight lanes that read 16 bytes each of two such groups meet every bank once.
#define STAGED_ROWS 4
#define STAGED_STRIDE (STAGED_ROWS * V + 16)

// A state on its way.
struct Staged {
    float *place;
    u32 barrier, parity;

    // By all threads; a barrier of the block must follow.
    __device__ __forceinline__ Staged(const Thread &me, float *place, u64 *arrived) : place(place), barrier(shared_address(arrived)), parity(0) {
        if (me.id == 0) barrier_make(barrier, 1), barriers_made();
    }
    // Asks for a head's, each warp for some of its rows, for it does so one after another. All threads are done with the one before.
    __device__ __forceinline__ void ask(const Thread &me, const float *state) const {
        constexpr int EACH = (K / STAGED_ROWS + WARPS - 1) / WARPS;
        // Bytes may be there before the barrier is told of them: its phase does not end without this arrival.
        if (me.id == 0) barrier_arrive_for(barrier, K * V * 4);
        const int group = me.warp * EACH + me.lane;
        if (me.lane < EACH && group < K / STAGED_ROWS)
            copy_bulk(shared_address(place + group * STAGED_STRIDE), state + group * STAGED_ROWS * V, STAGED_ROWS * V * 4, barrier);
    }
    // The lane's part, once it is there.
    __device__ __forceinline__ void read(const Thread &me, State &rows) {
        // Ends when the copies are there, which `ask` asked for once for each row. By all threads, for every row; the next row's are asked for behind
        // a barrier of the block that follows.
        barrier_wait<DELTA_STATE>(barrier, parity);
        parity ^= 1;
        const float *from = place + me.warp * COLS_A_WARP + 4 * me.t;
#pragma unroll
        for (int i = 0; i < GROUPS; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) rows[i][j] = *(const float4 *)(from + (8 * i + me.g) * STAGED_STRIDE + j * V);
    }
};
static_assert(K / STAGED_ROWS <= WARPS * WARP, "a lane asks for four rows");

__device__ __forceinline__ void copy4(const float *to, const float *from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(to)), "l"(from) : "memory");
}
// Arrives on the barrier once what the thread has asked for by `copy4` is there.
__device__ __forceinline__ void barrier_arrive_behind(u32 barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

// What a row brings beside the state: inputs of the convolution's three positions before and of its own, z, and gates.
struct __align__(16) Rest {
    float before[3][MIXED], now[MIXED], z[V], gates[4];
};

// Where the block's q, k and v begin among all channels.
__device__ __forceinline__ int part_of(int part, const Weights &weights) {
    return part == 0 ? weights.kh * K : part == 1 ? HK * K + weights.kh * K : 2 * HK * K + weights.h * V;
}

// The rest on its way. Two warps ask for whole pieces: threads that ask for their own values each spend more on addresses than on the rule.
struct Coming {
    Rest &rest;
    Head &head;
    u32 barrier, parity;
    static constexpr int ASKS_OLD = 0, ASKS_INPUTS = 1;
    static_assert(WARPS > ASKS_INPUTS && 9 + PENDING <= WARP, "a lane a piece");

    // By all threads; a barrier of the block must follow.
    __device__ __forceinline__ Coming(const Thread &me, Rest &rest, Head &head, u64 *arrived)
        : rest(rest), head(head), barrier(shared_address(arrived)), parity(0) {
        if (me.id == 0) barrier_make(barrier, 2), barriers_made();
    }
    __device__ __forceinline__ void ask_part(float *to, const float *from, int part, const Weights &weights) const {
        copy_bulk(shared_address(to + part * K), from + part_of(part, weights), 4 * (part == 2 ? V : K), barrier);
    }
    // What no launch of this step has written. All threads are done with the row before.
    __device__ __forceinline__ void ask_old(const Thread &me, const Memory &memory, const Weights &weights, int position, int pending) const {
        if (me.warp != ASKS_OLD) return;
        const int lane = me.lane;
        if (lane == 0) barrier_arrive_for(barrier, 4 * (4 * MIXED + V + pending * UPDATE));
        if (lane < 9) {
            ask_part(rest.before[lane / 3], memory.tail + (position + 1 + lane / 3) % 4 * CHANNELS, lane % 3, weights);
        } else if (lane < 9 + pending) {
            const int e = lane - 9;
            copy_bulk(shared_address(head.updates[e]), memory.updates + (position - pending + e) % UPDATES * UPDATE, 4 * UPDATE, barrier);
        }
    }
    // The row's inputs, `x`.
    __device__ __forceinline__ void ask_inputs(const Thread &me, const float *x, const Weights &weights) const {
        if (me.warp != ASKS_INPUTS) return;
        const int lane = me.lane;
        if (lane < 3) ask_part(rest.now, x, lane, weights);
        if (lane == 3) copy_bulk(shared_address(rest.z), x + Z_AT + weights.h * V, 4 * V, barrier);
        if (lane == 4) {
#pragma unroll
            for (int n = 0; n < 4; n++) copy4(&rest.gates[n], x + GATES_AT + n * HV + weights.h);
            barrier_arrive_behind(barrier);
        }
    }
    __device__ __forceinline__ void wait() {
        // Ends when both warps that ask have arrived, which they do once for each row before they come here, and their copies are there. By all
        // threads, for every row; the next row's are asked for behind a barrier of the block that follows.
        barrier_wait<DELTA_ROW>(barrier, parity);
        parity ^= 1;
    }
};

// The block's channels, as the thread that convolves one finds it.
struct Channels {
    float4 taps[MIXED];

    // Each thread's own, so nobody waits.
    __device__ __forceinline__ void read(const Thread &me, const Arguments &args, const Weights &weights) {
        for (int j = me.id; j < MIXED; j += THREADS) taps[j] = __ldg((const float4 *)(args.taps + channel(j, weights.kh, weights.h) * 4));
    }
};

// What a row needs of its inputs alone, for all threads, and its inputs to the ring. A barrier must follow.
__device__ __forceinline__ void prepare(const Thread &me, Row &row, const Rest &rest, const Channels &channels, float *ring, const Weights &weights,
                                        const int (&own)[CHANNELS_A_THREAD]) {
    const bool keeps_key = GROUPED ? weights.h % (HV / HK) == 0 : weights.h < HK;
#pragma unroll
    for (int n = 0; n < CHANNELS_A_THREAD; n++) {
        const int j = me.id + n * THREADS;
        if (j >= MIXED) break;
        const float now = rest.now[j];
        const float before[3] = {rest.before[0][j], rest.before[1][j], rest.before[2][j]};
        row.mixed[j] = silu(convolved(channels.taps[j], before, now));
        if (keeps_key || j >= 2 * K) ring[own[n]] = now;
    }
    // By the threads that have fewest channels.
    const int late = THREADS - 1 - me.id;
    if (late < V) row.gate[V - 1 - late] = silu(rest.z[V - 1 - late]);
    if (late == WARP) put_gates(row, rest.gates, weights);
}

// A row of the block, which has those up to `end`.
struct Next {
    u32 row, end;
    int slot, position, pending;
    bool writes;

    // The first one from `row` on that is one; a slot below 0 if there is none.
    __device__ __forceinline__ void find(const Arguments &args) {
        for (slot = -1; row < end && (slot = args.slots[row]) < 0;) row++;
        if (slot < 0) return;
        const int word = args.pending[row];
        position = args.positions[row], pending = word % WRITES, writes = word >= WRITES;
    }
};

// Block (h, y) has neighbouring rows: those of sequences that began one after another write their states in different steps.
extern "C" __global__ void __launch_bounds__(THREADS, 2) gdn_decode_several(const Arguments args) {
    extern __shared__ __align__(128) float place[];
    __shared__ Head head;
    __shared__ Rest rest;
    __shared__ Channels channels;
    __shared__ u64 arrived[2];
    let_next_start();
    const Thread me = this_thread();
    const Weights weights(me, args);
    const float *state = args.state + (u64)weights.h * K * V;
    Next next = {blockIdx.y * args.rows / gridDim.y, (blockIdx.y + 1) * args.rows / gridDim.y};
    next.find(args);
    Staged staged(me, place, &arrived[0]);
    Coming coming(me, rest, head, &arrived[1]);
    __syncthreads();
    // All but x was last written a whole step ago, which the wait of this step's first kernel has seen the end of.
    if (next.slot >= 0) {
        staged.ask(me, state + (u64)next.slot * HV * K * V);
        coming.ask_old(me, Memory(me, args, next.slot, weights.h), weights, next.position, next.pending);
    }
    channels.read(me, args, weights);
    int own[CHANNELS_A_THREAD];
#pragma unroll
    for (int n = 0; n < CHANNELS_A_THREAD; n++) own[n] = channel(me.id + n * THREADS, weights.kh, weights.h);
    wait_for_inputs();
    if (next.slot >= 0) coming.ask_inputs(me, args.x + (u64)next.row * X_STRIDE, weights);
    Row &row = head.row[0];
    while (next.slot >= 0) {
        const u32 at = next.row;
        const int position = next.position, pending = next.pending;
        const bool writes = next.writes;
        const Memory memory(me, args, next.slot, weights.h);
        next.row++;
        next.find(args);
        State rows;
        staged.read(me, rows);
        coming.wait();
        __syncthreads();
        if (next.slot >= 0) staged.ask(me, state + (u64)next.slot * HV * K * V);
        apply_updates(me, rows, head, pending);
        prepare(me, row, rest, channels, memory.tail + position % 4 * CHANNELS, weights, own);
        __syncthreads();
        if (next.slot >= 0) {
            coming.ask_old(me, Memory(me, args, next.slot, weights.h), weights, next.position, next.pending);
            coming.ask_inputs(me, args.x + (u64)next.row * X_STRIDE, weights);
        }
        // One warp does for all what stands beside the sums: instructions are what bounds a block.
        if (me.warp == WARPS - 1) {
            const Scales scales = scales_of(me, row);
            if (me.lane == 0) row.scales = scales;
        }
        const Sums sums = sums_of(me, row, rows);
        __syncthreads();
        float d[4];
        put_output(me, row, sums, row.scales, d);
        __syncthreads();
        if (me.id < V) store_output(args, row, at, weights.h, me.id, weights.norm);
        if (writes) {
            advance(me, rows, row.mixed + K, row.decay, d);
            store_state(memory.state, rows);
        } else {
            store_update(me, memory.updates + position % UPDATES * UPDATE, row, d);
        }
    }
}
