// Blocks of gdn_decode that stay: a head of several sequences each, one after another. The state of the next one is on its way to shared memory
// while a block is busy with one: what it does between a state's arrival and the last output would else be time in which nothing of it is on
// its way.
//
// A state's rows are V + 4 values apart in shared memory, so that eight lanes that read 16 bytes each of two rows meet every bank once.
#pragma once
#include "common/mbarrier.cuh"

#define STAGED_STRIDE (V + 4)

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
#pragma unroll
        for (int i = 0; i < GROUPS; i++) {
            int row = 32 * i + me.lane;
            copy_bulk(shared_address(place + row * STAGED_STRIDE), state + row * V, V * 4, barrier);
        }
    }
    // The lane's part, once it is there.
    __device__ __forceinline__ void read(const Thread &me, State &rows) {
        barrier_wait(barrier, parity);
        parity ^= 1;
        const float *from = place + 4 * me.g * STAGED_STRIDE + me.warp * COLS_A_WARP + 4 * me.t;
#pragma unroll
        for (int i = 0; i < GROUPS; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) rows[i][j] = *(const float4 *)(from + (32 * i + j) * STAGED_STRIDE);
    }
};

// As `read_updates`, without waiting: `copies_wait` does.
__device__ __forceinline__ void ask_updates(const Thread &me, Head &head, const float *updates, int position, int pending) {
    constexpr int PIECES = UPDATE / 4;
    for (int j = me.id; j < pending * PIECES; j += THREADS) {
        int e = j / PIECES, at = j % PIECES * 4;
        copy16(shared_address(&head.updates[e][at]), updates + (position - pending + e) % UPDATES * UPDATE + at);
    }
    copies_end();
}

// Block (h, y) has the rows y, y + gridDim.y and so on.
extern "C" __global__ void __launch_bounds__(THREADS, 2) gdn_decode_several(const Arguments args) {
    extern __shared__ __align__(128) float place[];
    __shared__ Head head;
    __shared__ u64 arrived;
    let_next_start();
    const Thread me = this_thread();
    const Weights weights(me, args);
    const float *state = args.state + (u64)weights.h * K * V;
    // The next row that is one, from `row` on, and its slot.
    auto find = [&](u32 &row, int &slot) {
        for (slot = -1; row < args.rows && (slot = args.slots[row]) < 0;) row += gridDim.y;
    };
    u32 row = blockIdx.y;
    int slot;
    find(row, slot);
    Staged staged(me, place, &arrived);
    __syncthreads();
    // All but x was last written a whole step ago, which the wait of this step's first kernel has seen the end of.
    if (slot >= 0) staged.ask(me, state + (u64)slot * HV * K * V);
    bool waited = false;
    while (slot >= 0) {
        const int position = args.positions[row], pending = args.pending[row];
        const Memory memory(me, args, slot, weights.h);
        ask_updates(me, head, memory.updates, position, pending);
        u32 next = row + gridDim.y;
        find(next, slot);
        State rows;
        staged.read(me, rows);
        copies_wait<0>();
        __syncthreads();
        // More than its first state a block asks for when the kernel ahead has what it wants of the memory.
        if (!waited) wait_for_inputs(), waited = true;
        if (slot >= 0) staged.ask(me, state + (u64)slot * HV * K * V);
        apply_updates(me, rows, head, pending);
        Convolution convolution;
        convolution.read_past(me, args.taps, memory.tail, memory.inputs, position, 0, weights.kh, weights.h);
        do_rows(me, args, head, rows, convolution, {row, position, pending, 0, 1}, memory, weights);
        row = next;
        // What the row has left in shared memory has been read.
        __syncthreads();
    }
    // Whoever comes after us takes our end for the end of what came before us.
    if (!waited) wait_for_inputs();
}
