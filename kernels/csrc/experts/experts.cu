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
#include "product/columns.cuh"
#include "experts/barrier.cuh"
#include "experts/hidden.cuh"
#include "experts/memory.cuh"
#include "experts/scores.cuh"
#include "experts/stream.cuh"
#include "arguments.cuh"

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
    // Of gate and up from the last block back: the first ones have the shared expert.
    __device__ __forceinline__ ShareOfA share_of_inputs() const { return {(int)(gridDim.x - 1 - blockIdx.x), (int)gridDim.x}; }
    __device__ __forceinline__ ShareOfA share_of_shared() const { return {(int)blockIdx.x, staying()}; }
#endif
    // Before the wait, where adapters are there: a warp a row.
    __device__ __forceinline__ void bring_adapters() const {
#if LORA
        if (!args.down_lora.early) return;
#pragma unroll 1
        for (int row = WARPS - 1 - warp; row < args.rows; row += WARPS) {
            const int group = blockIdx.x, of_down = blockIdx.x / M::CLUSTER_OF;
            bring_of_row(args.gate_up_lora, row, share_of_inputs().first(row), COLS, group * 64, group < SHARED_GROUPS ? 64 : 0);
            bring_of_row(args.down_lora, row, share_of_shared().first(row), SHARED_PADDED, of_down * 32, of_down < HIDDEN / 32 ? 32 : 0);
        }
#endif
    }
    // Rows of A times the rows that gate and up read.
    __device__ __forceinline__ void shrink_inputs(u32 tag) const {
#if LORA
        tell_shrunk<COLS, 2>(args, args.gate_up_lora, false, share_of_inputs(), args.codes, args.meta, tag);
#endif
    }
    // Rows of A times the shared expert's h of each row.
    __device__ __forceinline__ void shrink_shared(u32 tag) const {
#if LORA
        tell_shrunk<SHARED_PADDED, 1>(args, args.down_lora, true, share_of_shared(), args.shared_hidden, args.shared_meta, tag);
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
