// The experts of up to 16 rows in one launch:
//
//   scores of each row (score.cuh), its USED best experts by them, and their weights (choose.cuh)
//   h[p] = silu(gate * f) * (up * f)     for each pair p of a row and one of its experts, and each row with the shared one; int8.
//                                        SQUARED: relu(up * f)^2, where there are no gates
//   x[row] += sum_k gates[row][k] * (down_k h[row, k] * factor), the experts in order, the shared one last
//
// then the int8 form of x * next and the sums of squares of x. The blocks share the scores out among themselves, and every
// block chooses for itself, which takes less than to be told. gate, up: products of the row's activations; f: row_factor of its
// squares. Gate and up lie in one matrix of 2 * width rows: tiles of 8 rows of gate and the same 8 of up (SQUARED: up alone). Every matrix has a layout of its
// own. A row whose first expert is below 0 is none: nothing is written for it. Below 0 are also the last experts of a row that does with
// fewer, with gates 0.
//
// Bound: the bytes of the experts that any row chose, each read once. So that they are always under way, as many blocks as the device
// runs at a time stay for the whole launch: they take groups of four tiles of gate and up (32 values of h; SQUARED: 64) in turn, a warp a tile and
// part of its inputs, and every warp has a ring of units in shared memory that are on their way, of this group and those to come. Then
// all wait for all (`h` is read by everybody), with the first units of down under way. Down: a cluster of CLUSTER blocks has 32 outputs, a
// warp takes a tile of an expert at a time, with all rows that chose it.
//
// An output depends on WK alone, not on the blocks, nor on what stands beside its row. Which experts are chosen is an input, so their
// weights cannot be read ahead of the wait; those of the shared one are.
//
// All blocks must run at a time: one a multiprocessor, or as many as the driver says the chip holds, and whoever launches asks for no more.
//
// The experts' matrices lie one after another, or (PLACED) each expert's in a place that a table names, which is read once it is chosen.
// A place is of the device's memory or of the host's. What is read of the host's is written to a place of the device on its way, as long as
// the layer has any in reserve: then the table names that one, and the expert has crossed the bus once. Slots take reserves in their order.
//
// LORA: adapters add to the shared expert's sums (common/lora.cuh). Blocks share the rows of A out among themselves and tell each other A x with the number
// of the launch, while products go on: for gate and up when scores are told, for down behind the wait for all.
//
// -D: COLS, HIDDEN, WIDTH, SHARED_WIDTH (multiples of 32; SQUARED: of 64), USED, WITH_GRID, WITH_MINIMA, PLACED (and RESERVES, at most 32), SQUARED, LORA, SIGMOID and REPLAY (choose.cuh); A_, B_, C_, D_ each with CODES, SCALES, LEVELS0..3, ROW_FACTORS: gate and up
// of a routed and of the shared expert, down of both; COUNT; WK, CLUSTER; ROWS_FEW, ROWS_MOST: of two kernels, beside that for one row;
// RING_1, RING_FEW, RING_MOST: bytes of a warp's ring, HALVED_..: 1 where rows are there as f16 too, 2 where rows of h are as well, and BYTES_.. of a block's dynamic shared memory; PLANES of all rows.
#include "router/choose.cuh"
#include "common/cluster.cuh"
#include "product/columns.cuh"
#include "router/score.cuh"
#include "experts/staged.cuh"
#include "arguments.cuh"
#if LORA
#include "common/lora_shrink.cuh"
#endif

#define PADDED ((WIDTH + 127) / 128 * 128)
#define SHARED_PADDED ((SHARED_WIDTH + 127) / 128 * 128)
#define NEXT_COLS ((HIDDEN + 127) / 128 * 128)
#define NORM_BLOCKS (HIDDEN / 32)
using GateUp = Weights<A_CODES, A_SCALES, COLS, A_LEVELS0, A_LEVELS1, A_LEVELS2, A_LEVELS3, A_ROW_FACTORS>;
using SharedGateUp = Weights<B_CODES, B_SCALES, COLS, B_LEVELS0, B_LEVELS1, B_LEVELS2, B_LEVELS3, B_ROW_FACTORS>;
using Down = Weights<C_CODES, C_SCALES, PADDED, C_LEVELS0, C_LEVELS1, C_LEVELS2, C_LEVELS3, C_ROW_FACTORS>;
using SharedDown = Weights<D_CODES, D_SCALES, SHARED_PADDED, D_LEVELS0, D_LEVELS1, D_LEVELS2, D_LEVELS3, D_ROW_FACTORS>;

#define WARPS (4 * WK)
#define THREADS (WARPS * WARP)
// Values of h of a group of four tiles.
#define GROUP_VALUES (SQUARED ? 64 : 32)
#define GROUPS (WIDTH / GROUP_VALUES)
#define SHARED_GROUPS (SHARED_WIDTH / GROUP_VALUES)
#define ALL (USED + 1)
#define SCORES ((COUNT + 1 + 7) / 8 * 8)

// Every block says that it has come, and waits for all. The highest bit flips when the last one comes, and nothing else is left over.
__device__ __forceinline__ u32 come(u32 *barrier) {
    u32 old, add = blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;" : "=r"(old) : "l"(barrier), "r"(add) : "memory");
    return old;
}
// Ends when all blocks of the launch have come, which each does without waiting for another but for scores (`choose`). All run at a time: the grid has
// no more than the chip holds (`resident_clusters` of the launcher), blocks of the kernels before leave, and a later kernel's do not come before all of
// these run (common/base.cuh). The bit flips again in the next launch, which does not come here before this one has ended.
__device__ __forceinline__ void wait_for_all(u32 *barrier, u32 old) {
    wait_until<EXPERT_BLOCKS>([&] {
        u32 now;
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(barrier) : "memory");
        return ((old ^ now) & 0x80000000u) != 0;
    });
}

// By all threads of a cluster: its blocks have the same groups of outputs, and so come here equally often. No clock bounds it.
__device__ __forceinline__ void cluster_sync() {
#if CL > 1
    __syncwarp();
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
#else
    __syncthreads();
#endif
}

// Which items somebody takes: `at`, then `step` on, then `stride` on each time, below `past`.
struct Items {
    int at, step, stride, past;

    __device__ __forceinline__ bool any() const { return at < past; }
    __device__ __forceinline__ void advance() { at += step, step = stride; }
};

// What a warp takes of tiles, one after another: units `begin` to `end` of `tile_of` each item. They pass through its ring in shared
// memory; when one has been read, its place takes what comes next.
//
// Loops are not unrolled where they need not be, here and below: a launch runs most of its instructions once or twice, and fetching them
// would be most of its time.
template <class W, int BYTES, class F> struct Stream {
    static constexpr int STAGES = BYTES / W::STAGED_BYTES < 8 ? BYTES / W::STAGED_BYTES : 8;
    static_assert(STAGES > 0, "a unit has to fit");
    const u8 *ring;
    F tile_of;
    Items items;
    int begin, end, unit, to = 0, from = 0;
    // Whether anything is left to be asked for, and of which tile.
    int asks = 0;
    const u8 *tile = nullptr;
    typename W::Rest rest;

    __device__ __forceinline__ Stream(const u8 *ring, Items items, int begin, int end, F tile_of)
        : ring(ring), tile_of(tile_of), items(items), begin(begin), end(end), unit(begin) {
        asks = items.any() && begin < end;
        // Without items nothing is asked for: what another stream waits for is counted among all that this warp asked for.
        if (asks) {
            tile = tile_of(items.at);
#pragma unroll 1
            for (int i = 0; i < STAGES; i++) ask();
        }
    }
    __device__ __forceinline__ void ask() {
        if (asks) {
            W::fetch(shared_address(ring) + to * W::STAGED_BYTES, tile, unit, rest);
            if (++unit == end) {
                unit = begin, items.advance();
                if (asks = items.any()) tile = tile_of(items.at);
            }
        }
        copies_end();
        to = to + 1 == STAGES ? 0 : to + 1;
    }
    // `way`: where the unit's tile is to lie too, or null.
    template <class P> __device__ __forceinline__ void take(typename W::Unit &w, u8 *way, int of_tile) {
        copies_wait<STAGES - 1>();
        __syncwarp();
        P::template load<W>(w, ring + from * W::STAGED_BYTES);
        if (PLACED && way) W::put(way, of_tile, ring + from * W::STAGED_BYTES, rest);
        from = from + 1 == STAGES ? 0 : from + 1;
        // All lanes have read before the place is filled again.
        __syncwarp();
        ask();
    }

    // Adds the units of the next item, times the columns. `way`: where its tile is to lie too, or null.
    template <class P> __device__ __forceinline__ void multiply(P &columns, const u8 *memory, const u32 *grid, u8 *way) {
#pragma unroll 1
        for (int u = begin; u < end; u++) {
            typename W::Unit w;
            take<P>(w, way, u);
            columns.template multiply<W>(w, memory, u, grid);
        }
    }
};
// What finds a chosen expert's matrix: its number, or where its place begins.
#if PLACED
using Numbers = u64;
#else
using Numbers = int;
#endif
// Tile `tile` of a slot's matrix, of those that have EACH tiles; of a single matrix where there are no experts. `tiles`: that of the first
// matrix, or where it would lie in a place that began at 0.
template <int EACH>
__device__ __forceinline__ const u8 *first_of(const u8 *tiles, const Numbers *experts, int slot, int tile, u32 tile_bytes) {
#if PLACED
    return tiles + (experts ? experts[slot] : 0) + (u64)tile * tile_bytes;
#else
    int expert = experts ? experts[slot] : 0;
    return tiles + (u64)(expert * EACH + tile) * tile_bytes;
#endif
}
// Tiles of gate and up: four a group, of the expert that the group belongs to.
struct GroupTiles {
    const u8 *tiles; // the warp's of the first group
    const Numbers *experts;
    u32 tile_bytes;

    __device__ __forceinline__ const u8 *operator()(int group) const {
        int of_expert = experts ? group % GROUPS : group;
        return first_of<GROUPS * 4>(tiles, experts, group / GROUPS, of_expert * 4, tile_bytes);
    }
};
// Tiles of down of one group of outputs: by expert, and where a block has both of a group's tiles, first all of one.
template <int TILES> struct DownTiles {
    const u8 *tiles; // the block's first of the group
    const Numbers *experts;
    int slots;
    u32 tile_bytes;

    __device__ __forceinline__ const u8 *operator()(int item) const {
        int slot = TILES > 1 ? item % slots : item;
        return first_of<HIDDEN / 16>(tiles, experts, slot, TILES > 1 ? item / slots : 0, tile_bytes);
    }
};

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

// Where things lie in dynamic shared memory: the rings; then, first for gate and up, then for down in the same place, the rest.
template <int ROWS> struct Memory {
    static constexpr int PAIRS = ROWS * USED;
    static constexpr int NC = ROWS == 1 ? 1 : (ROWS + 7) / 8 * 8;
    // Whether rows, and rows of h, are there as f16 too.
    static constexpr int HALVED_PARTS = ROWS == 1 ? HALVED_1 : ROWS == ROWS_FEW ? HALVED_FEW : HALVED_MOST;
    static constexpr bool HALVED = HALVED_PARTS > 0, HALVED_H = HALVED_PARTS > 1;
    // Blocks that share 32 outputs of down, and tiles that each has of their two. One row's weights are few: half of the blocks, which
    // then need no exchange, are enough, and the next kernel's may start on the others' multiprocessors.
    static constexpr int CLUSTER_OF = CL;
    static constexpr int TILES = 2 / CLUSTER_OF, DOWN_WARPS = WARPS - TILES;
    static constexpr int RING = ROWS == 1 ? RING_1 : ROWS == ROWS_FEW ? RING_FEW : RING_MOST;
    static constexpr int CHOSEN_AT = WARPS * RING;
    static constexpr int GRID_AT = CHOSEN_AT + (sizeof(Chosen<ROWS>) + 15) / 16 * 16;
    static constexpr int NORMS_AT = GRID_AT + (WITH_GRID ? GRID_WORDS * 4 : 0);
    static constexpr int BEGIN = NORMS_AT + 64;
    // [2][WARPS][columns][16], then rows of activations.
    static constexpr int SUMS = WARPS * NC * 16;
    static constexpr int ROWS_AT = BEGIN + 2 * SUMS * 4;
    static constexpr int GATE_UP_END = ROWS_AT + ROWS * Staged<COLS, HALVED>::STRIDE;
    // [2][pairs, rows][16], then rows of h, of routed and of shared experts.
    static constexpr int PARTS = PAIRS + ROWS;
    static constexpr int H_AT = BEGIN + 2 * PARTS * 16 * 4;
    static constexpr int SHARED_H_AT = H_AT + PAIRS * Staged<PADDED, HALVED_H>::STRIDE;
    static constexpr int DOWN_END = SHARED_H_AT + ROWS * Staged<SHARED_PADDED, HALVED_H>::STRIDE;
    static constexpr int BYTES = GATE_UP_END > DOWN_END ? GATE_UP_END : DOWN_END;
    static_assert(BYTES <= (ROWS == 1 ? BYTES_1 : ROWS == ROWS_FEW ? BYTES_FEW : BYTES_MOST), "the launcher knows how much");
    static_assert(RING % STAGED_AT == 0, "a ring begins where a unit may");
    static_assert(H_AT % 16 == 0 && ROWS_AT % 16 == 0, "copies are of 16 bytes");
};

// Sum of output r of a tile for column c over the warps that share it, one after another from 0.
template <int NC> __device__ __forceinline__ float in_order(const float *sums, int c, int r) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < WK; i++) sum += sums[(i * NC + c) * 16 + r];
    return sum;
}
// What adapters add to the shared expert's products: blocks share the rows of A out among themselves, and tell each other A x with the number of the
// launch. Those of gate and up lie in the first 2 * adapter_rank places of a row, those of down behind them.
#if LORA
__device__ __forceinline__ u64 *told_of(const Arguments &args, int row, bool down) {
    return args.told + (u64)row * (3 * args.adapter_rank) + (down ? 2 * args.adapter_rank : 0);
}
#endif
// Output `column` of row `row`, which is of a part of the group, with what an adapter adds; by all lanes of a warp, columns of one part. `norm`: of the row
// that A has read.
__device__ __forceinline__ float
adapted(const Arguments &args, const LoraParts &lora, bool down, u32 part, int row, int column, float norm, float value, u32 tag) {
#if LORA
    const int2 of_row = lora_of_row(lora, row);
    const int lane = threadIdx.x % WARP;
    if (of_row.x < 0) return value;
    const LoraGroup group = lora_group(lora, of_row.x);
    if (!group.changes(part)) return value;
    const uint4 *b = (const uint4 *)lora_memory(lora, of_row.x) + group.b + (u64)(u32)column * (group.rank / 8);
    const u64 *told = told_of(args, row, down) + part * group.rank;
    const float scale = (part == 0 ? group.scales[0] : group.scales[1]) * (norm * __int_as_float(of_row.y));
    float sum = 0;
#pragma unroll 1
    for (u32 first = 0; first < group.rank; first += WARP) {
        float h = 0;
        if (first + lane < group.rank) {
            u64 word;
            // Ends when the block that has this row of A has told it, which it does without waiting for others; all run at a time.
            wait_until<EXPERT_ADAPTERS>([&] { return (u32)((word = scored(told + first + lane)) >> 32) == tag; });
            h = __uint_as_float((u32)word) * scale;
        }
        __syncwarp();
#pragma unroll 1
        for (u32 i = 0; i < WARP / 8 && first + 8 * i < group.rank; i++) {
            float of[8];
#pragma unroll
            for (int j = 0; j < 8; j++) of[j] = __shfl_sync(~0u, h, 8 * i + j);
            sum = LoraRow::step(b[first / 8 + i], make_float4(of[0], of[1], of[2], of[3]), make_float4(of[4], of[5], of[6], of[7]), sum);
        }
    }
    return __fadd_rn(value, sum);
#else
    return value;
#endif
}
// Blocks between the first rows of A of two rows.
#define ROWS_OF_A_APART 32
// A group's values of h for each of `count` columns, from `first` on a warp for 32, from the sums of four tiles. `pairs`: of the columns; null: of the
// shared expert.
// `factors`: of the rows whose sums the lane has, where rows have some.
template <int NC, class W>
__device__ __noinline__ void
put_hidden(const Arguments &args, u32 tag, const float *sums, const float *norms, int count, int group, int first, const u8 *pairs, float2 factors, i8 *h, float2 *h_meta) {
    constexpr int EACH = GROUP_VALUES / 32;
    int lane = threadIdx.x % WARP;
#pragma unroll 1
    for (int i = first; i < count * EACH; i += WARPS) {
        int c = i / EACH;
        float norm = norms[pairs ? pairs[c] / USED : c], value;
        if constexpr (SQUARED) {
            const float *tile = sums + (i % EACH * 2 + lane / 16) * WK * NC * 16;
            value = W::times_factor(in_order<NC>(tile, c, lane % 16), i % EACH == 0 ? factors.x : factors.y) * norm;
            const int row = group * 64 + (i % EACH * 2 + lane / 16) * 16 + lane % 16;
            if (!pairs) value = adapted(args, args.gate_up_lora, false, 0, c, row, norm, value, tag);
            value = relu2(value);
        } else {
            const float *tile = sums + lane / 8 * WK * NC * 16;
            float gate = W::times_factor(in_order<NC>(tile, c, lane % 8), factors.x) * norm;
            float up = W::times_factor(in_order<NC>(tile, c, lane % 8 + 8), factors.y) * norm;
            if (!pairs) {
                const int row = (group * 4 + lane / 8) * 16 + lane % 8;
                gate = adapted(args, args.gate_up_lora, false, 0, c, row, norm, gate, tag);
                up = adapted(args, args.gate_up_lora, false, 1, c, row + 8, norm, up, tag);
            }
            value = silu(gate) * up;
        }
        int at = (pairs ? pairs[c] * (PADDED / 32) : c * (SHARED_PADDED / 32)) + group * EACH + i % EACH;
        quantize_block(value, h + at * (32 * PLANES), h_meta + at * PLANES);
    }
}

// Factors of the rows that a lane has in `put_hidden`, of the four tiles of a group: row lane % 8 of gate and of up of tile lane / 8, or row
// lane % 16 of tile lane / 16 and of the second tile behind it.
template <class W> __device__ __forceinline__ float2 group_factors(const u8 *tiles) {
    const int lane = threadIdx.x % WARP;
    if constexpr (!W::HAS_FACTORS) return make_float2(1, 1);
    if constexpr (SQUARED) {
        const u8 *tile = tiles + lane / 16 * W::TILE_BYTES;
        return make_float2(W::factor_of(tile, lane % 16), W::factor_of(tile + 2 * W::TILE_BYTES, lane % 16));
    } else {
        const u8 *tile = tiles + lane / 8 * W::TILE_BYTES;
        return make_float2(W::factor_of(tile, lane % 8), W::factor_of(tile, lane % 8 + 8));
    }
}

// Scores of rows by all blocks, COLUMNS experts or the shared gate a block in turn: a part of a column a warp.
template <int ROWS> struct Scores {
    static constexpr int COLUMNS = 2, TURN = ROWS < 4 ? ROWS : 4;
    static constexpr int ITEMS = COLUMNS * SCORE_PARTS / WARPS;
    static_assert(ITEMS > 0 && ROWS * COLUMNS <= WARP, "a warp has an item, a lane a score");
    using Part = PartOfRow<HIDDEN>;
    Part weights[ITEMS], x[TURN];

    static __device__ __forceinline__ int item(int i) { return i * WARPS + threadIdx.x / WARP; }
    // Weights of the columns from `first` on, as many as there are.
    __device__ __forceinline__ void read_weights(const Arguments &args, int first) {
#pragma unroll
        for (int i = 0; i < ITEMS; i++) {
            int column = first + item(i) / SCORE_PARTS;
            const float *from = column < COUNT ? args.router + (u64)column * HIDDEN : args.shared_gate;
            weights[i].read(from, item(i) % SCORE_PARTS, column <= COUNT);
        }
    }
    __device__ __forceinline__ void read_rows(const Arguments &args, int i, int first) {
#pragma unroll
        for (int r = 0; r < TURN; r++) x[r].read(args.x + (first + r) * HIDDEN, item(i) % SCORE_PARTS, first + r < args.rows);
    }
    // `parts`: [COLUMNS * SCORE_PARTS][ROWS]. Weights of the first columns and the first rows of item 0 have been asked for.
    __device__ __forceinline__ void put(const Arguments &args, float *parts, u32 tag) {
        int lane = threadIdx.x % WARP;
#pragma unroll 1
        for (int column = blockIdx.x * COLUMNS; column <= COUNT; column += gridDim.x * COLUMNS) {
            bool again = column >= gridDim.x * COLUMNS;
            if (again) read_weights(args, column);
#pragma unroll
            for (int i = 0; i < ITEMS; i++) {
                Part norm;
                norm.read(args.router_norm, item(i) % SCORE_PARTS, true);
#pragma unroll
                for (int first = 0; first < ROWS; first += TURN) {
                    if (first >= args.rows) break;
                    if (again || i > 0 || first > 0) read_rows(args, i, first);
#pragma unroll
                    for (int r = 0; r < TURN; r++) {
                        x[r].multiply(norm);
                        float sum = x[r].score(weights[i]);
                        if (lane == 0) parts[item(i) * ROWS + first + r] = sum;
                    }
                }
            }
            __syncthreads();
            // The last warp: the first ones choose.
            int c = lane / ROWS, row = lane % ROWS;
            if (threadIdx.x >= THREADS - WARP && c < COLUMNS && row < args.rows && column + c <= COUNT) {
                float all = 0;
#pragma unroll
                for (int i = 0; i < SCORE_PARTS; i++) all += parts[(c * SCORE_PARTS + i) * ROWS + row];
                put_score(args.tagged + row * SCORES + column + c, tag, all);
            }
            if (column + gridDim.x * COLUMNS <= COUNT) __syncthreads();
        }
    }
};

template <int ROWS> struct Experts {
    using M = Memory<ROWS>;
    static constexpr int UNITS = COLS / 128, TILES = M::TILES, DOWN_WARPS = M::DOWN_WARPS;
    const Arguments &args;
    u8 *memory;
    Chosen<ROWS> &chosen;
    const u32 *grid;
    float *norms, *sums;
    const u8 *ring;
    int warp, rank;
    int begin, end; // units of gate and up

    __device__ __forceinline__ Experts(const Arguments &args, u8 *memory)
        : args(args), memory(memory), chosen(*(Chosen<ROWS> *)(memory + M::CHOSEN_AT)), grid((const u32 *)(memory + M::GRID_AT)),
          norms((float *)(memory + M::NORMS_AT)), sums((float *)(memory + M::BEGIN)), ring(memory + threadIdx.x / WARP * M::RING),
          warp(threadIdx.x / WARP), rank(M::CLUSTER_OF > 1 ? cluster_rank() : 0), begin(warp % WK * UNITS / WK), end((warp % WK + 1) * UNITS / WK) {}

    // A row a warp: its norm's factor, and, when its scores are there, its experts and their weights. A barrier must follow.
    __device__ __forceinline__ void choose(Norms<NORM_BLOCKS, WARPS> &norm, u32 tag) {
        using C = Choice<COUNT, USED>;
        int lane = threadIdx.x % WARP;
        Biases<COUNT> biases(args.bias);
        u64 reserve = ROWS == 1 ? Chosen<ROWS>::reserve_of(args) : 0;
#pragma unroll 1
        for (int row = warp; row < args.rows; row += WARPS) {
            Asked row_asked = asked(args.slots, args.cuts, row);
            if (row >= WARPS) norm.first.read(args.squares + (u64)row * NORM_BLOCKS);
            row_asked.factor = norm.first.factor(args.eps);
            if (lane == 0) norms[row] = row_asked.factor;
            float value[C::EACH_LANE], gate;
            // Ends when all blocks have stored their scores, which each does before it comes here; all run at a time, as `wait_for_all` says.
            await_scores<EXPERT_SCORES, COUNT>(args.tagged + row * SCORES, tag, value, gate);
            C choice(row_asked, value, gate, biases, args.given + row * USED);
            chosen.put(args, choice, row, reserve);
            if (blockIdx.x > 0) continue;
            if (lane < USED) args.experts[row * USED + lane] = choice.expert;
            if (lane == 0 && row_asked.limits > 0) atomicAdd(args.tally, choice.left);
        }
    }

    // Of the first routed expert, or where in a place.
    __device__ __forceinline__ const u8 *gate_up() const { return PLACED ? (const u8 *)args.gate_up_in : args.gate_up; }
    __device__ __forceinline__ const u8 *down() const { return PLACED ? (const u8 *)args.down_in : args.down; }

    // ---- gate and up ----

    __device__ __forceinline__ Stream<SharedGateUp, M::RING, GroupTiles> shared_gate_up_stream() const {
        GroupTiles tiles = {args.shared_gate_up + (u64)(warp / WK) * SharedGateUp::TILE_BYTES, nullptr, SharedGateUp::TILE_BYTES};
        return {ring, shared_groups(), begin, end, tiles};
    }
    __device__ __forceinline__ Items shared_groups() const { return {(int)blockIdx.x, (int)gridDim.x, (int)gridDim.x, SHARED_GROUPS}; }
    // In turn among all blocks; those that have a group of the shared expert last join two rounds late, because its codes are longer.
    __device__ __forceinline__ Items groups() const {
        int busy = SHARED_GROUPS % gridDim.x, grid = gridDim.x, block = blockIdx.x, past = chosen.slots * GROUPS;
        if (block < busy) return {2 * (grid - busy) + block, grid, grid, past};
        return {block - busy, grid - busy, grid, past};
    }
    __device__ __forceinline__ Stream<GateUp, M::RING, GroupTiles> gate_up_stream() const {
        GroupTiles tiles = {gate_up() + (u64)(warp / WK) * GateUp::TILE_BYTES, chosen.experts, GateUp::TILE_BYTES};
        return {ring, groups(), begin, end, tiles};
    }

    // Where the tile of an item is to lie too: in the place that its slot's expert comes to; null if it does not.
    template <class S> __device__ __forceinline__ u8 *way_of(const S &stream, int item, int slot) const {
#if PLACED
        u64 way = chosen.ways[slot];
        return way ? (u8 *)(stream.tile_of(item) - chosen.experts[slot] + way) : nullptr;
#else
        return nullptr;
#endif
    }
    // Four tiles for NC columns, then the 32 values of h of each. `pairs`: of the columns; null where they are the rows.
    template <int NC, class W, class S>
    __device__ __forceinline__ void group(S &stream, int count, int item, int group, int turn, u32 tag, const u8 *pairs, u8 *way = nullptr) {
        const u8 *own = W::HAS_FACTORS ? stream.tile_of(item) : nullptr;
        const float2 factors = group_factors<W>(own - (u64)(warp / WK) * W::TILE_BYTES);
        if (PLACED && way && warp % WK == 0) W::put_factors(way, own);
        Picked<COLS, NC, M::HALVED> columns([&](int c) {
            int column = c < count ? c : 0;
            return ROWS == 1 ? 0 : pairs ? pairs[column] / USED : column;
        });
        stream.multiply(columns, memory + M::ROWS_AT, grid, way);
        float *of_turn = sums + turn % 2 * M::SUMS, *mine = of_turn + warp * NC * 16;
        columns.each([&](int c, int r, float v) { mine[c * 16 + r] = v; });
        // Sums of the turn before last are read before that turn's warps come here, so nothing is written over too early.
        __syncthreads();
        put_hidden<NC, W>(args, tag, of_turn, norms, count, group, (warp + turn) % WARPS, pairs, factors, pairs ? args.hidden : args.shared_hidden,
                          pairs ? args.hidden_meta : args.shared_meta);
    }

    // All groups of this block: of the shared expert, then of the chosen ones.
    template <class S> __device__ __forceinline__ void gate_up(S &of_shared, u32 tag) {
        int turn = 0;
#pragma unroll 1
        for (Items g = shared_groups(); g.any(); g.advance(), turn++) group<M::NC, SharedGateUp>(of_shared, args.rows, g.at, g.at, turn, tag, nullptr);
        copies_wait<0>();
        auto stream = gate_up_stream();
#pragma unroll 1
        for (Items g = groups(); g.any(); g.advance(), turn++) {
            int slot = g.at / GROUPS, of_expert = g.at % GROUPS, count = chosen.counts[slot];
            const u8 *pairs = chosen.pairs[slot];
            u8 *way = way_of(stream, g.at, slot);
            if (ROWS == 1 || count == 1) group<1, GateUp>(stream, count, g.at, of_expert, turn, tag, pairs, way);
            else if (M::NC <= 8 || count <= 8) group<M::NC < 8 ? M::NC : 8, GateUp>(stream, count, g.at, of_expert, turn, tag, pairs, way);
            else group<M::NC, GateUp>(stream, count, g.at, of_expert, turn, tag, pairs, way);
        }
        copies_wait<0>();
    }

    // ---- down ----

    // Items of a block and group of outputs: a tile of an expert each. The first warps have the shared expert's tiles, the others these.
    __device__ __forceinline__ Items items() const {
        int past = TILES * chosen.slots;
        return {warp < TILES ? past : warp - TILES, DOWN_WARPS, DOWN_WARPS, past};
    }
    // Of the group's two tiles and the slots, as DownTiles has them.
    __device__ __forceinline__ int tile_of(int item) const { return TILES > 1 ? item / chosen.slots : rank; }
    __device__ __forceinline__ int slot_of(int item) const { return TILES > 1 ? item % chosen.slots : item; }

    __device__ __forceinline__ Stream<SharedDown, M::RING, DownTiles<TILES>> shared_down_stream(int group) const {
        DownTiles<TILES> tiles = {args.shared_down + (u64)(group * 2 + rank) * SharedDown::TILE_BYTES, nullptr, 1, SharedDown::TILE_BYTES};
        return {ring, {warp, WARPS, WARPS, TILES}, 0, SharedDown::UNITS, tiles};
    }
    __device__ __forceinline__ Stream<Down, M::RING, DownTiles<TILES>> down_stream(int group) const {
        DownTiles<TILES> tiles = {down() + (u64)(group * 2 + rank) * Down::TILE_BYTES, chosen.experts, chosen.slots, Down::TILE_BYTES};
        return {ring, items(), 0, Down::UNITS, tiles};
    }
    __device__ __forceinline__ float *parts_of(int tile) const { return sums + tile * M::PARTS * 16; }

    // A tile for NC columns. `part_of(c)`: where a column's outputs go, below 0 if there is no such column.
    template <class W, int INPUTS, int NC, class S, class R, class P>
    __device__ __forceinline__ void tile(S &stream, const u8 *h, int item, int tile, R row_of, P part_of, u8 *way = nullptr) {
        Picked<INPUTS, NC, M::HALVED_H> columns(row_of);
        const u8 *own = W::HAS_FACTORS ? stream.tile_of(item) : nullptr;
        const float factors[2] = {W::factor_of(own, threadIdx.x % WARP / 4), W::factor_of(own, threadIdx.x % WARP / 4 + 8)};
        if (PLACED && way) W::put_factors(way, own);
        stream.multiply(columns, h, grid, way);
        float *to = parts_of(tile);
        columns.each([&](int c, int r, float v) {
            int part = part_of(c);
            if (part < 0) return;
            v = W::times_factor(v, factors[r / 8]);
            if (M::CLUSTER_OF > 1) store_first(to + part * 16 + r, v);
            else to[part * 16 + r] = v;
        });
    }
    template <class S> __device__ __forceinline__ void shared_down(S &stream) {
        if (warp >= TILES) return;
        auto row_of = [&](int c) { return c < args.rows ? c : 0; };
        auto part_of = [&](int c) { return c < args.rows ? M::PAIRS + c : -1; };
        tile<SharedDown, SHARED_PADDED, M::NC>(stream, memory + M::SHARED_H_AT, warp, TILES > 1 ? warp : rank, row_of, part_of);
    }
    template <class S> __device__ __forceinline__ void down(S &stream) {
#pragma unroll 1
        for (Items i = items(); i.any(); i.advance()) {
            int item = i.at, slot = slot_of(item), count = chosen.counts[slot];
            const u8 *pairs = chosen.pairs[slot], *h = memory + M::H_AT;
            auto row_of = [&](int c) { return ROWS == 1 ? slot : (int)pairs[c < count ? c : 0]; };
            auto part_of = [&](int c) { return c < count ? ROWS == 1 ? slot : (int)pairs[c] : -1; };
            u8 *way = way_of(stream, item, slot);
            if (ROWS == 1 || count == 1) tile<Down, PADDED, 1>(stream, h, item, tile_of(item), row_of, part_of, way);
            else if (M::NC <= 8 || count <= 8) tile<Down, PADDED, M::NC < 8 ? M::NC : 8>(stream, h, item, tile_of(item), row_of, part_of, way);
            else tile<Down, PADDED, M::NC>(stream, h, item, tile_of(item), row_of, part_of, way);
        }
        copies_wait<0>();
        // Nothing else is on its way from here until the next launch has begun.
        if (threadIdx.x % WARP == 0) bring(args.soon, args.soon_bytes, blockIdx.x * WARPS + warp, gridDim.x * WARPS);
    }

    // Blocks that stay for down.
    __device__ __forceinline__ int staying() const { return min((int)gridDim.x, HIDDEN / 32 * M::CLUSTER_OF); }
#if LORA
    // Rows of A are shared out among blocks in turn, those of each row of x from another block on, those of gate and up from the last block back: the
    // first ones have the shared expert.
    static __device__ __forceinline__ u32 first_of_a(int block, int row, int blocks) { return (block + blocks - row * ROWS_OF_A_APART % blocks) % blocks; }
    __device__ __forceinline__ u32 first_of_inputs(int row) const { return first_of_a((int)(gridDim.x - 1 - blockIdx.x), row, gridDim.x); }
    __device__ __forceinline__ u32 first_of_shared(int row) const { return first_of_a(blockIdx.x, row, staying()); }
    __device__ __forceinline__ const u16 *row_of_a(const LoraParts &lora, int adapter, const LoraGroup &group, u32 n, int inputs) const {
        return (const u16 *)(lora_memory(lora, adapter) + (u64)group.a * 16) + (u64)n * inputs;
    }
    static __device__ __forceinline__ void bring_lines(const void *from, u32 bytes) {
        for (u32 at = threadIdx.x % WARP * 128; at < bytes; at += WARP * 128) bring_line((const u8 *)from + at);
    }
    // Asks for what this block reads of the adapter of a row: rows of A, and rows of B of its first outputs.
    __device__ __forceinline__ void bring_of_row(const LoraParts &lora, int row, u32 n, int inputs, u32 output, u32 outputs) const {
        const int adapter = lora_of_row(lora, row).x;
        if (adapter < 0) return;
        const LoraGroup group = lora_group(lora, adapter);
        if (group.changes(n / max(group.rank, 1u))) bring_lines(row_of_a(lora, adapter, group, n, inputs), inputs * 2);
        if (group.parts) bring_lines(lora_memory(lora, adapter) + ((u64)group.b + output * (group.rank / 8)) * 16, outputs * group.rank * 2);
    }
#endif
    // Before the wait, where adapters are there: a warp a row.
    __device__ __forceinline__ void bring_adapters() const {
#if LORA
        if (!args.down_lora.early) return;
#pragma unroll 1
        for (int row = WARPS - 1 - warp; row < args.rows; row += WARPS) {
            const int group = blockIdx.x, of_down = blockIdx.x / M::CLUSTER_OF;
            bring_of_row(args.gate_up_lora, row, first_of_inputs(row), COLS, group * 64, group < SHARED_GROUPS ? 64 : 0);
            bring_of_row(args.down_lora, row, first_of_shared(row), SHARED_PADDED, of_down * 32, of_down < HIDDEN / 32 ? 32 : 0);
        }
#endif
    }
    // Rows of A times the rows that gate and up read, for all blocks. The last warps begin: the first ones choose.
    __device__ __forceinline__ void shrink_inputs(u32 tag) const {
#if LORA
        const LoraParts &lora = args.gate_up_lora;
#pragma unroll 1
        for (int row = WARPS - 1 - warp; row < args.rows; row += WARPS) {
            const int adapter = lora_of_row(lora, row).x;
            if (adapter < 0) continue;
            const LoraGroup group = lora_group(lora, adapter);
            const i8 *codes = args.codes + row * (COLS * PLANES);
            const float2 *meta = args.meta + row * (COLS / 32 * PLANES);
#pragma unroll 1
            for (u32 n = first_of_inputs(row); n < 2 * group.rank; n += gridDim.x) {
                if (!group.changes(n / group.rank)) continue;
                const float sum = shrink_by_a_warp<COLS>(row_of_a(lora, adapter, group, n, COLS), codes, meta);
                if (threadIdx.x % WARP == 0) put_score(told_of(args, row, false) + n, tag, sum);
            }
        }
#endif
    }
    // Rows of A times the shared expert's h of each row, for all blocks.
    __device__ __forceinline__ void shrink_shared(u32 tag) const {
#if LORA
        const LoraParts &lora = args.down_lora;
#pragma unroll 1
        for (int row = WARPS - 1 - warp; row < args.rows; row += WARPS) {
            const int adapter = lora_of_row(lora, row).x;
            if (adapter < 0) continue;
            const LoraGroup group = lora_group(lora, adapter);
            if (!group.changes(0)) continue;
            const i8 *codes = args.shared_hidden + row * (SHARED_PADDED * PLANES);
            const float2 *meta = args.shared_meta + row * (SHARED_PADDED / 32 * PLANES);
#pragma unroll 1
            for (u32 n = first_of_shared(row); n < group.rank; n += staying()) {
                const float sum = shrink_by_a_warp<SHARED_PADDED>(row_of_a(lora, adapter, group, n, SHARED_PADDED), codes, meta);
                if (threadIdx.x % WARP == 0) put_score(told_of(args, row, true) + n, tag, sum);
            }
        }
#endif
    }

    // What `add_up` reads that has been there since before the launch: of one row.
    struct Old {
        int expert;
        float x, gate, next;
    };
    __device__ __forceinline__ Old old_of(int row, int group) const {
        int lane = threadIdx.x % WARP;
        if (rank != 0 || row >= args.rows) return {-1, 0, 0, 0};
        float gate = lane < ALL ? chosen.gates[row * ALL + lane] : 0.0f;
        return {chosen.picked[row * USED], __ldcg(args.x + row * HIDDEN + group * 32 + lane), gate, __ldg(args.next + group * 32 + lane)};
    }
    // The experts added up in order, the residual stream, and what its next reader wants, by the first block of a cluster. `old`: of the
    // warp's first row.
    __device__ __forceinline__ void add_up(int group, Old old, u32 tag) {
        int lane = threadIdx.x % WARP;
        const float *parts = parts_of(lane / 16) + lane % 16;
#pragma unroll 1
        for (int row = warp; row < args.rows; row += WARPS) {
            if (row != warp) old = old_of(row, group);
            if (old.expert < 0) continue;
            float total = 0;
#pragma unroll
            for (int k = 0; k < USED; k++) {
                // Nobody wrote the part of an expert that the row does without.
                float gate = __shfl_sync(~0u, old.gate, k);
                float part = __fmul_rn(parts[(row * USED + k) * 16], args.down_factor);
                total = __fmaf_rn(gate, gate != 0.0f ? part : 0.0f, total);
            }
            float shared = __fmul_rn(parts[(M::PAIRS + row) * 16], args.shared_down_factor);
            shared = adapted(args, args.down_lora, true, 0, row, group * 32 + lane, 1.0f, shared, tag);
            total = __fmaf_rn(__shfl_sync(~0u, old.gate, USED), shared, total);
            float value = old.x + total;
            args.x[row * HIDDEN + group * 32 + lane] = value;
            float squares = block_squares(value);
            if (lane == 0) args.next_squares[row * NORM_BLOCKS + group] = squares;
            int at = row * (NEXT_COLS / 32) + group;
            quantize_block(value * old.next, args.next_codes + at * (32 * PLANES), args.next_meta + at * PLANES);
        }
    }
};

template <int ROWS> __device__ __forceinline__ void run(const Arguments &args) {
    extern __shared__ __align__(128) u8 memory[];
    using M = Memory<ROWS>;
    Experts<ROWS> experts(args, memory);
    cluster_start();
    auto of_shared = experts.shared_gate_up_stream();
    Scores<ROWS> scores;
    scores.read_weights(args, blockIdx.x * scores.COLUMNS);
    fetch_grid((u32 *)experts.grid);
    experts.chosen.clear();
    experts.bring_adapters();
    wait_for_inputs();

    // All that is read here is under way at the same time.
    scores.read_rows(args, 0, 0);
    u32 tag = __ldcg(args.launches) + 1;
    Norms<NORM_BLOCKS, WARPS> norm;
    norm.read(args.squares, args.rows);
    Staged<COLS, M::HALVED>::template fetch<THREADS>(memory + M::ROWS_AT, args.codes, args.meta, args.rows);
    copies_end();
    scores.put(args, experts.sums, tag);
    experts.choose(norm, tag);
    experts.shrink_inputs(tag);
    copies_wait<0>();
    if constexpr (M::HALVED || GateUp::HAS_MINIMA || SharedGateUp::HAS_MINIMA) Staged<COLS, M::HALVED>::template prepare<THREADS>(memory + M::ROWS_AT, args.rows);
    __syncthreads();
    typename Chosen<ROWS>::Pairs pairs;
    pairs.read(experts.chosen.picked, args.rows * USED);
    experts.chosen.make(args, pairs);
    experts.gate_up(of_shared, tag);

    __syncthreads();
    cluster_started();
    u32 ticket = 0;
    if (threadIdx.x == 0) ticket = come(args.barrier);
    int clusters = gridDim.x / M::CLUSTER_OF, group = blockIdx.x / M::CLUSTER_OF;
    if (group >= HIDDEN / 32) return;
    // Down's weights do not depend on h: they come while the others are waited for.
    auto of_shared_down = experts.shared_down_stream(group);
    auto of_down = experts.down_stream(group);
    auto old = experts.old_of(experts.warp, group);
    if (threadIdx.x == 0) wait_for_all(args.barrier, ticket);
    // All have read the count by now.
    if (blockIdx.x == 0 && threadIdx.x == 0) *args.launches = tag;
    __syncthreads();
    if (PLACED && blockIdx.x == 0 && experts.warp == WARPS - 1) experts.chosen.tell_arrivals(args);
    let_next_start();
    experts.shrink_shared(tag);
    if (experts.chosen.slots > 0) Staged<PADDED, M::HALVED_H>::template fetch<THREADS>(memory + M::H_AT, args.hidden, args.hidden_meta, args.rows * USED);
    Staged<SHARED_PADDED, M::HALVED_H>::template fetch<THREADS>(memory + M::SHARED_H_AT, args.shared_hidden, args.shared_meta, args.rows);
    copies_end();
    copies_wait<0>();
    if constexpr (M::HALVED_H || Down::HAS_MINIMA)
        if (experts.chosen.slots > 0) Staged<PADDED, M::HALVED_H>::template prepare<THREADS>(memory + M::H_AT, args.rows * USED);
    if constexpr (M::HALVED_H || SharedDown::HAS_MINIMA) Staged<SHARED_PADDED, M::HALVED_H>::template prepare<THREADS>(memory + M::SHARED_H_AT, args.rows);
    __syncthreads();
    for (;;) {
        experts.shared_down(of_shared_down);
        experts.down(of_down);
        if (M::CLUSTER_OF > 1) cluster_sync();
        else __syncthreads();
        if (experts.rank == 0) experts.add_up(group, old, tag);
        if ((group += clusters) >= HIDDEN / 32) break;
        of_shared_down = experts.shared_down_stream(group);
        of_down = experts.down_stream(group);
        old = experts.old_of(experts.warp, group);
        // The sums were read before these are stored.
        if (M::CLUSTER_OF > 1) cluster_sync();
        else __syncthreads();
    }
}

// The arguments are read where they lie, by functions too (__grid_constant__).
//
// Registers: as many as leave room for a block of the kernel before and of the next one; with more rows all, since spills cost more than
// that room brings.
extern "C" __global__ void IN_CLUSTERS __maxnreg__(88) experts_1(const __grid_constant__ Arguments args) { run<1>(args); }
extern "C" __global__ void IN_CLUSTERS __maxnreg__(128) experts_few(const __grid_constant__ Arguments args) { run<ROWS_FEW>(args); }
extern "C" __global__ void IN_CLUSTERS __maxnreg__(128) experts_most(const __grid_constant__ Arguments args) { run<ROWS_MOST>(args); }
