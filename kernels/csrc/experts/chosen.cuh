// Which experts the rows of a launch chose, and where these lie.
#pragma once
#include "experts/tiles.cuh"
#include "arguments.cuh"

// What each row chose, which experts any row did, and by which pairs.
template <int ROWS> struct Chosen {
    static constexpr int PAIRS = ROWS * USED;
    static_assert(PAIRS <= 256 && ROWS <= 16, "a pair is a byte, a row a bit");
    static constexpr int ROUNDS = (PAIRS + WARP - 1) / WARP;
    Numbers experts[PAIRS];
#if PLACED
    u64 ways[PAIRS]; // the place of the device that a slot's expert comes to, 0 if it does not
    u8 took[PAIRS];  // which reserve that is
#endif
    int picked[PAIRS];
    float gates[ROWS * ALL];
    u32 rows[COUNT]; // a bit a row
    int slots;
    u8 slot_of[COUNT];
    u8 counts[PAIRS];
    u8 pairs[PAIRS][ROWS];

    // Before `make`, with a barrier between.
    __device__ __forceinline__ void clear() {
        if constexpr (ROWS > 1)
            for (int e = threadIdx.x; e < COUNT; e += THREADS) rows[e] = 0;
    }
    static __device__ __forceinline__ Numbers number_of(const Arguments &args, int expert) {
#if PLACED
        return __ldcg(args.places + expert);
#else
        return expert;
#endif
    }
    // The layer's reserves, one a lane, 0 for none.
    static __device__ __forceinline__ u64 reserve_of(const Arguments &args) {
#if PLACED
        int lane = threadIdx.x % WARP;
        return lane < RESERVES ? __ldcg(args.reserves + lane) : 0;
#else
        return 0;
#endif
    }
    // By one warp, which sees the slots' places.
    __device__ __forceinline__ void take_reserves(const Arguments &args, u64 reserve) {
#if PLACED
        int lane = threadIdx.x % WARP;
        u32 left = __ballot_sync(~0u, reserve != 0);
#pragma unroll 1
        for (int first = 0; first < slots; first += WARP) {
            int slot = first + lane;
            bool of_host = slot < slots && experts[slot] - args.host_from < args.host_bytes;
            u32 all = __ballot_sync(~0u, of_host), before = all & ((1u << lane) - 1), mine = left;
#pragma unroll 1
            for (u32 skip = before; skip; skip &= skip - 1) mine &= mine - 1;
            int at = max(__ffs(mine) - 1, 0);
            u64 way = __shfl_sync(~0u, reserve, at);
            if (slot < slots) ways[slot] = of_host && mine ? way : 0, took[slot] = (u8)at;
#pragma unroll 1
            for (; all; all &= all - 1) left &= left - 1;
        }
#endif
    }
    // By one warp of one block, when all have read where experts lie: those that came lie where they came to.
    __device__ __forceinline__ void tell_arrivals(const Arguments &args) const {
#if PLACED
#pragma unroll 1
        for (int slot = threadIdx.x % WARP; slot < slots; slot += WARP) {
            if (!ways[slot]) continue;
            int expert = picked[pairs[slot][0]];
            args.places[expert] = ways[slot], args.reserves[took[slot]] = 0, args.came[took[slot]] = expert + 1;
        }
#endif
    }
    // By the warp that has it: puts a row's choice where `make` looks, after a barrier.
    __device__ __forceinline__ void put(const Arguments &args, const Choice<COUNT, USED> &choice, int row, u64 reserve) {
        int lane = threadIdx.x % WARP;
        if (lane < USED) picked[row * USED + lane] = choice.expert, gates[row * ALL + lane] = choice.weight;
        if (lane == 0) gates[row * ALL + USED] = choice.shared;
        if (ROWS > 1) return;
        if (lane < USED) experts[lane] = number_of(args, max(choice.expert, 0)), counts[lane] = 1, pairs[lane][0] = (u8)lane;
        if (lane == 0) slots = choice.left;
        __syncwarp();
        take_reserves(args, reserve);
    }
    // Experts of the pairs lane, lane + 32, ..: every warp has them all.
    struct Pairs {
        int expert[ROUNDS];

        __device__ __forceinline__ void read(const int *from, int pairs) {
#pragma unroll
            for (int i = 0; i < ROUNDS; i++) {
                int pair = i * WARP + threadIdx.x % WARP;
                expert[i] = pair < pairs ? from[pair] : -1;
            }
        }
    };
    // By all threads, with a barrier between `clear` and this; ends with one. The first row that chose an expert numbers it.
    __device__ __forceinline__ void make(const Arguments &args, const Pairs &of) {
        if constexpr (ROWS == 1) return;
        int tid = threadIdx.x, lane = tid % WARP, warp = tid / WARP;
        const int(&all)[ROUNDS] = of.expert;
        u64 reserve = reserve_of(args);
        static_assert(PAIRS <= THREADS, "a thread a pair");
        int mine = -1;
#pragma unroll
        for (int i = 0; i < ROUNDS; i++) mine = warp == i ? all[i] : mine;
        int row = tid / USED;
        if (mine >= 0) atomicOr(&rows[mine], 1u << row);
        __syncthreads();
        if (warp < ROUNDS) {
            u32 by = mine >= 0 ? rows[mine] : 0;
            bool leads = mine >= 0 && (by & ((1u << row) - 1)) == 0;
            int slot = __popc(__ballot_sync(~0u, leads) & ((1u << lane) - 1)), total = 0;
#pragma unroll
            for (int i = 0; i < ROUNDS; i++) {
                u32 others = all[i] >= 0 ? rows[all[i]] : 0;
                int count = __popc(__ballot_sync(~0u, all[i] >= 0 && (others & ((1u << (i * WARP + lane) / USED) - 1)) == 0));
                if (i < warp) slot += count;
                total += count;
            }
            if (leads) experts[slot] = number_of(args, mine), counts[slot] = (u8)__popc(by), slot_of[mine] = (u8)slot;
            if (tid == 0) slots = total;
        }
        __syncthreads();
        if (mine >= 0) pairs[slot_of[mine]][__popc(rows[mine] & ((1u << row) - 1))] = (u8)tid;
        if (PLACED && warp == WARPS - 1) take_reserves(args, reserve);
        __syncthreads();
    }
};
