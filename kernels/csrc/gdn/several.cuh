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
    // Asks for a head's. All threads are done with the one before.
    __device__ __forceinline__ void ask(const Thread &me, const float *state) const {
        if (me.warp != 0) return;
        if (me.lane == 0) barrier_arrive_for(barrier, K * V * 4);
        __syncwarp();
        if (me.lane < K / STAGED_ROWS)
            copy_bulk(shared_address(place + me.lane * STAGED_STRIDE), state + me.lane * STAGED_ROWS * V, STAGED_ROWS * V * 4, barrier);
    }
    // The lane's part, once it is there.
    __device__ __forceinline__ void read(const Thread &me, State &rows) {
        barrier_wait(barrier, parity);
        parity ^= 1;
        const float *from = place + me.warp * COLS_A_WARP + 4 * me.t;
#pragma unroll
        for (int i = 0; i < GROUPS; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) rows[i][j] = *(const float4 *)(from + (8 * i + me.g) * STAGED_STRIDE + j * V);
    }
};
static_assert(K / STAGED_ROWS <= WARP, "a lane asks for four rows");

__device__ __forceinline__ void copy4(const float *to, const float *from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(to)), "l"(from) : "memory");
}

// What a row brings beside the state: each thread's own values, which it alone reads. Gates are thread 0's.
struct Rest {
    float before[CHANNELS_A_THREAD][3][THREADS], now[CHANNELS_A_THREAD][THREADS], z[THREADS], gates[4];

    // What no launch of this step has written.
    __device__ __forceinline__ void ask_old(const Thread &me, Head &head, const Memory &memory, const Weights &weights, int position, int pending) {
        constexpr int PIECES = UPDATE / 4;
        for (int j = me.id; j < pending * PIECES; j += THREADS) {
            int e = j / PIECES, at = j % PIECES * 4;
            copy16(shared_address(&head.updates[e][at]), memory.updates + (position - pending + e) % UPDATES * UPDATE + at);
        }
#pragma unroll
        for (int n = 0; n < CHANNELS_A_THREAD; n++)
#pragma unroll
            for (int p = 0; p < 3; p++) copy4(&before[n][p][me.id], memory.tail + (position + 1 + p) % 4 * CHANNELS + own_channel(me, n, weights));
    }
    // The row's inputs.
    __device__ __forceinline__ void ask_inputs(const Thread &me, const float *x, const Weights &weights) {
#pragma unroll
        for (int n = 0; n < CHANNELS_A_THREAD; n++) copy4(&now[n][me.id], x + own_channel(me, n, weights));
        copy4(&z[me.id], x + Z_AT + weights.h * V + me.id % V);
        if (me.id == 0)
#pragma unroll
            for (int n = 0; n < 4; n++) copy4(&gates[n], x + GATES_AT + n * HV + weights.h);
    }
    __device__ __forceinline__ void read(const Thread &me, const Arguments &args, Convolution &convolution, Inputs &in, const Weights &weights) const {
#pragma unroll
        for (int n = 0; n < CHANNELS_A_THREAD; n++) {
            convolution.weights[n] = __ldg((const float4 *)(args.taps + own_channel(me, n, weights) * 4));
#pragma unroll
            for (int p = 0; p < 3; p++) convolution.before[n][p] = before[n][p][me.id];
            in.rows[0][n] = now[n][me.id];
        }
        in.z[0] = z[me.id];
#pragma unroll
        for (int n = 0; n < 4; n++) in.gates[n] = gates[n];
    }
    static __device__ __forceinline__ int own_channel(const Thread &me, int n, const Weights &weights) {
        return channel(min(me.id + n * THREADS, MIXED - 1), weights.kh, weights.h);
    }
};
static_assert(OUT_TURNS == 1, "a thread has an output at most");

// A row of the block, which has those up to `end`.
struct Next {
    u32 row, end;
    int slot, position, pending;

    // The first one from `row` on that is one; a slot below 0 if there is none.
    __device__ __forceinline__ void find(const Arguments &args) {
        for (slot = -1; row < end && (slot = args.slots[row]) < 0;) row++;
        if (slot >= 0) position = args.positions[row], pending = args.pending[row];
    }
};

// Block (h, y) has neighbouring rows: those of sequences that began one after another write their states in different steps.
extern "C" __global__ void __launch_bounds__(THREADS, 2) gdn_decode_several(const Arguments args) {
    extern __shared__ __align__(128) float place[];
    __shared__ Head head;
    __shared__ Rest rest;
    __shared__ u64 arrived;
    let_next_start();
    const Thread me = this_thread();
    const Weights weights(me, args);
    const float *state = args.state + (u64)weights.h * K * V;
    Next next = {blockIdx.y * args.rows / gridDim.y, (blockIdx.y + 1) * args.rows / gridDim.y};
    next.find(args);
    Staged staged(me, place, &arrived);
    __syncthreads();
    // All but x was last written a whole step ago, which the wait of this step's first kernel has seen the end of.
    if (next.slot >= 0) {
        staged.ask(me, state + (u64)next.slot * HV * K * V);
        rest.ask_old(me, head, Memory(me, args, next.slot, weights.h), weights, next.position, next.pending);
    }
    wait_for_inputs();
    if (next.slot >= 0) rest.ask_inputs(me, args.x + (u64)next.row * X_STRIDE, weights);
    while (next.slot >= 0) {
        const Now now = {next.row, next.position, next.pending, 0, 1};
        const Memory memory(me, args, next.slot, weights.h);
        next.row++;
        next.find(args);
        State rows;
        staged.read(me, rows);
        copies_end();
        copies_wait<0>();
        __syncthreads();
        if (next.slot >= 0) staged.ask(me, state + (u64)next.slot * HV * K * V);
        apply_updates(me, rows, head, now.pending);
        Convolution convolution;
        Inputs in;
        rest.read(me, args, convolution, in, weights);
        do_rows(me, args, head, rows, convolution, in, now, memory, weights, [&] {
            if (next.slot < 0) return;
            rest.ask_old(me, head, Memory(me, args, next.slot, weights.h), weights, next.position, next.pending);
            rest.ask_inputs(me, args.x + (u64)next.row * X_STRIDE, weights);
        });
    }
}
