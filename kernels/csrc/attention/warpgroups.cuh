// Tiles of prompts' rows on Hopper's matrix instructions of warpgroups.
//
// A block has P_GROUPS warpgroups of 64 rows each, which go through the keys and values in steps of two pages, and one more that
// feeds them: two of its warps with keys, two with values, which they bring from the cache, expand to f16 and lay out as the instruction
// wants them (128 bytes a row, swizzled), once for all rows. There is room for two steps; barriers say what is full and what is free again.
// A warpgroup asks for the next step's scores before it multiplies values, so that its softmax runs beside an instruction, and so does
// the other warpgroup's.
//
// Bounds: 2 * 64 * 64 * D multiply-adds a step and warpgroup at 990 T/s of operations, 2 * 512 cycles for D = 256; scores want 128 bytes a
// cycle of shared memory, which is all that there are.
#pragma once
#include "common/mbarrier.cuh"
#include "wide/wgmma.cuh"

#define P_GROUPS 2
#define P_ROWS (P_GROUPS * 64)
#define TOKENS (P_ROWS / GQ)
#define STEP_PAGES 2
#define STEP (STEP_PAGES * PAGE)
#define FEEDERS 64 // threads for keys, and as many for values
#define P_THREADS (P_GROUPS * 128 + 2 * FEEDERS)
#define Q_BYTES (P_ROWS * D * 2)
#define STAGE_BYTES (STEP * D * 2)
#define KEYS_AT Q_BYTES
#define VALUES_AT (KEYS_AT + 2 * STAGE_BYTES)
#define RAW_AT (VALUES_AT + 2 * STAGE_BYTES)
#define RAW_BYTES(FORMAT) (FORMAT::F16 ? 0 : STEP_PAGES * FORMAT::BYTES)
#define BARRIERS_AT (RAW_AT + RAW_BYTES(Keys) + RAW_BYTES(Values))
#include "attention/tile.cuh"

// Two steps of keys, or of values, in shared memory, and the barriers that say of each whether it is there and whether it is free.
struct Steps {
    u32 at, barriers;

    __device__ __forceinline__ u32 place(int step) const { return at + step % 2 * STAGE_BYTES; }
    __device__ __forceinline__ u32 full(int step) const { return barriers + step % 2 * 8; }
    __device__ __forceinline__ u32 free(int step) const { return barriers + 16 + step % 2 * 8; }
    __device__ __forceinline__ u32 raw() const { return barriers + 32; }
    // By one thread; `users` warps use them.
    __device__ __forceinline__ void make(int users) const {
        for (int i = 0; i < 2; i++) barrier_make(full(i), FEEDERS), barrier_make(free(i), users);
        barrier_make(raw(), 1);
    }
    // Ends when all FEEDERS threads of the side have arrived, which they do for each step of the tile: they wait for the place to be free, and for
    // copies. By all warps that use steps; the place is full again only after each of them has released it, behind instructions that keep its
    // lanes together.
    __device__ __forceinline__ void wait_full(int step) const { barrier_wait<PREFILL_STEP_FULL>(full(step), step / 2 & 1); }
    // Ends when all `users` warps have released what the place held two steps before; they wait for steps to be full, which those up to that one
    // are. By the FEEDERS threads of the side; the place is released again only after each of them has filled it.
    __device__ __forceinline__ void wait_free(int step) const { barrier_wait<PREFILL_STEP_FREE>(free(step), step / 2 & 1 ^ 1); }
    __device__ __forceinline__ void release(int step) const {
        if (threadIdx.x % WARP == 0) barrier_arrive(free(step));
    }
};

__device__ __forceinline__ void put_shared(u32 to, uint4 v) {
    asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
// All bits of the first `count` of eight halves.
__device__ __forceinline__ uint4 first_halves(int count) {
    u32 m[4];
#pragma unroll
    for (int i = 0; i < 4; i++) m[i] = (count > 2 * i ? 0xffffu : 0) | (count > 2 * i + 1 ? 0xffff0000u : 0);
    return make_uint4(m[0], m[1], m[2], m[3]);
}

// Keys: rows are tokens, 64 dims each, [D / 64][STEP]. Those of places not written yet may be anything: their scores are hidden.
struct KeySide {
    using Format = Keys;
    static __device__ __forceinline__ const u8 *cache(const Arguments &args) { return args.k_cache; }

    // Eight threads bring a row: of each of two blocks of 32 dims four pieces.
    static __device__ __forceinline__ void copy(const u8 *const (&pages)[STEP_PAGES], u32 to, int feeder, int) {
        const int row = feeder / 8, piece = feeder % 8;
        to += row * 128 + (piece ^ row) * 16;
#pragma unroll
        for (int p = 0; p < STEP_PAGES; p++) {
            if (!pages[p]) continue;
            const u8 *from = pages[p] + (piece / 4 * PAGE + row) * 64 + piece % 4 * 16;
#pragma unroll
            for (int i = 0; i < D / 64 * (PAGE / 8); i++) {
                const int pair = i / (PAGE / 8), eight = i % (PAGE / 8);
                copy16(to + pair * (STEP * 128) + (p * PAGE + eight * 8) * 128, from + (pair * 2 * PAGE + eight * 8) * 64);
            }
        }
    }
    static __device__ __forceinline__ void expand(const u8 *raw, u32 to, int feeder, int) {
#pragma unroll
        for (int p = 0; p < STEP_PAGES; p++)
            expand_page<Keys, FEEDERS>(raw + p * Keys::BYTES, feeder, [&](int block, int token, int t, uint4 v) {
                put_shared(to + block / 2 * (STEP * 128) + (p * PAGE + token) * 128 + ((block % 2 * 4 + t ^ token % 8) * 16), v);
            });
    }
};

// Values: rows are dims, the step's 64 tokens each. A weight of zero does not make up for what is no number in a place not written yet,
// so what is behind the first `left` tokens is zero.
struct ValueSide {
    using Format = Values;
    static __device__ __forceinline__ const u8 *cache(const Arguments &args) { return args.v_cache; }

    static __device__ __forceinline__ void copy(const u8 *const (&pages)[STEP_PAGES], u32 to, int feeder, int left) {
        const int row = feeder / 8, piece = feeder % 8, count = left - piece * 8;
        to += row * 128 + (piece ^ row) * 16;
        const u8 *from = (piece < 4 ? pages[0] : pages[1]) + row * 64 + piece % 4 * 16;
        if (count >= 8) {
#pragma unroll
            for (int i = 0; i < D / 8; i++) copy16(to + i * 8 * 128, from + i * 8 * 64);
        } else {
            const uint4 mask = first_halves(count);
            for (int i = 0; i < D / 8; i++) {
                uint4 v = make_uint4(0, 0, 0, 0);
                if (count > 0) v = masked(*(const uint4 *)(from + i * 8 * 64), mask);
                put_shared(to + i * 8 * 128, v);
            }
        }
    }
    static __device__ __forceinline__ void expand(const u8 *raw, u32 to, int feeder, int left) {
#pragma unroll
        for (int p = 0; p < STEP_PAGES; p++) {
            const u8 *from = raw + p * Values::BYTES;
            auto at = [&](int dim, int t) { return to + dim * 128 + ((p * 4 + t ^ dim % 8) * 16); };
            if (left >= (p + 1) * PAGE) {
                expand_page<Values, FEEDERS>(from, feeder, [&](int dim, int t, uint4 v) { put_shared(at(dim, t), v); });
            } else {
                const uint4 mask = first_halves(left - p * PAGE - feeder % 4 * 8);
                expand_page<Values, FEEDERS>(from, feeder, [&](int dim, int t, uint4 v) { put_shared(at(dim, t), masked(v, mask)); });
            }
        }
    }
};

// This key-value head's part of the pages of a step; null where the tile has none.
template <class SIDE> __device__ __forceinline__ void find_pages(const u8 *(&pages)[STEP_PAGES], const Arguments &args, const Tile &tile, int step) {
#pragma unroll
    for (int p = 0; p < STEP_PAGES; p++) {
        const int page = step * STEP_PAGES + p;
        pages[p] = page < tile.pages ? SIDE::cache(args) + ((u64)tile.table[page] * HKV + tile.head) * SIDE::Format::BYTES : nullptr;
    }
}

// By FEEDERS threads: the pages of all steps.
template <class SIDE> __device__ __forceinline__ void feed(const Arguments &args, const Tile &tile, const Steps &to, u8 *raw, int feeder, int barrier) {
    const int steps = (tile.pages + STEP_PAGES - 1) / STEP_PAGES;
    const u8 *pages[STEP_PAGES];
    find_pages<SIDE>(pages, args, tile, 0);
    auto request = [&] {
        if (feeder != 0) return;
        barrier_arrive_for(to.raw(), (pages[1] ? 2 : 1) * SIDE::Format::BYTES);
        for (int p = 0; p < STEP_PAGES; p++)
            if (pages[p]) copy_bulk(shared_address(raw + p * SIDE::Format::BYTES), pages[p], SIDE::Format::BYTES, to.raw());
    };
    if constexpr (!SIDE::Format::F16) request();
    for (int step = 0; step < steps; step++) {
        const int left = tile.last + 1 - step * STEP;
        if constexpr (SIDE::Format::F16) {
            const u8 *now[STEP_PAGES] = {pages[0], pages[1]};
            if (step + 1 < steps) find_pages<SIDE>(pages, args, tile, step + 1);
            to.wait_free(step);
            SIDE::copy(now, to.place(step), feeder, left);
            copies_end();
            copies_wait<0>();
            shared_for_matrices();
            barrier_arrive(to.full(step));
        } else {
            if (step + 1 < steps) find_pages<SIDE>(pages, args, tile, step + 1);
            to.wait_free(step);
            // Ends when the copies that were asked for are there, those of each step once. The next step's are asked for behind a barrier of all who
            // wait here.
            barrier_wait<PREFILL_RAW_PAGES>(to.raw(), step & 1);
            SIDE::expand(raw, to.place(step), feeder, left);
            shared_for_matrices();
            barrier_arrive(to.full(step));
            meet<FEEDERS>(barrier);
            if (step + 1 < steps) request();
        }
    }
}

// What a lane has of two rows, g and g + 8 of its warp's: their places among the tile's tokens, the largest score yet, and its part of the
// sum of weights.
struct Rows {
    int token_of[2];
    float top[2], sum[2];
};

// Queries times a step's keys.
__device__ __forceinline__ void ask_scores(float (&score)[STEP / 2], u32 queries, u32 keys) {
    const u64 a = descriptor(queries), b = descriptor(keys);
    add_shared<true>(score, a, b);
#pragma unroll
    for (int i = 1; i < D / 16; i++) add_shared<false>(score, a + (i / 4 * (64 * 128) + i % 4 * 32 >> 4), b + (i / 4 * (STEP * 128) + i % 4 * 32 >> 4));
}

// Scores become weights; those that a row does not see are nothing. `keep`: what was summed so far is brought to the largest score yet.
// Returns whether that changes anything in this warp.
__device__ __forceinline__ bool weigh(Rows &rows, float (&score)[STEP / 2], float (&keep)[2], const Tile &tile, int step) {
    const int t = lane_id() % 4;
    if (step * STEP + STEP - 1 > tile.start) {
#pragma unroll
        for (int i = 0; i < STEP / 2; i++)
            if (step * STEP + i / 4 * 8 + 2 * t + i % 2 > tile.start + rows.token_of[i / 2 % 2]) score[i] = __int_as_float(0xff800000);
    }
    bool moved = false;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float most = rows.top[r];
#pragma unroll
        for (int i = 0; i < STEP / 8; i++) most = fmaxf(most, fmaxf(score[4 * i + 2 * r], score[4 * i + 2 * r + 1]));
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
        moved |= most != rows.top[r];
        keep[r] = exp2_fast(rows.top[r] - most);
        rows.top[r] = most;
        rows.sum[r] = __fmul_rn(rows.sum[r], keep[r]);
#pragma unroll
        for (int i = 0; i < STEP / 8; i++) {
            float &a = score[4 * i + 2 * r], &b = score[4 * i + 2 * r + 1];
            a = exp2_fast(a - most), b = exp2_fast(b - most);
            rows.sum[r] = __fadd_rn(rows.sum[r], __fadd_rn(a, b));
        }
    }
    return __any_sync(~0u, moved);
}

// Weights as the left operand of a product, 16 tokens each.
__device__ __forceinline__ void pack_weights(u32 (&weights)[STEP / 16][4], const float (&score)[STEP / 2]) {
#pragma unroll
    for (int i = 0; i < STEP / 4; i++) weights[i / 4][i % 4] = pack_f16(score[2 * i], score[2 * i + 1]);
}

// Adds a step's values, times their weights.
__device__ __forceinline__ void add_values(float (&o)[D / 2], const u32 (&weights)[STEP / 16][4], u32 values) {
    const u64 b = descriptor(values);
#pragma unroll
    for (int i = 0; i < STEP / 16; i++) Wgmma<D>::add(o, weights[i], b + (i * 32 >> 4));
}

__device__ __forceinline__ void scale_outputs(float (&o)[D / 2], const float (&keep)[2]) {
#pragma unroll
    for (int i = 0; i < D / 2; i++) o[i] *= keep[i / 2 % 2];
}

// A warpgroup's 64 rows.
__device__ __forceinline__ void attend(const Arguments &args, const Tile &tile, const Steps &keys, const Steps &values, u32 queries) {
    const int warp = threadIdx.x / WARP, lane = lane_id(), group = warp / 4, first = warp * 16;
    queries += group * (64 * D * 2);
    load_queries<8>(args, tile, first, [&](const Head &h, int row) {
        u32 to = queries + row % 64 * 128 + (lane / 4 ^ row % 8) * 16 + lane % 4 * 4;
#pragma unroll
        for (int i = 0; i < PAIRS; i++) {
            asm volatile("st.shared.u32 [%0], %1;" ::"r"(to + i * (64 * 128)), "r"(pack_f16(h.v[i].x, h.v[i].y)) : "memory");
        }
    });
    shared_for_matrices();
    meet<128>(1 + group);

    const float none = __int_as_float(0xff800000);
    Rows rows = {{(first + lane / 4) / GQ, (first + lane / 4 + 8) / GQ}, {none, none}, {0, 0}};
    float o[D / 2], score[STEP / 2], keep[2];
    u32 weights[STEP / 16][4];
#pragma unroll
    for (int i = 0; i < D / 2; i++) o[i] = 0;
#pragma unroll
    for (int i = 0; i < STEP / 2; i++) score[i] = 0;
    const int steps = (tile.pages + STEP_PAGES - 1) / STEP_PAGES;
    keys.wait_full(0);
    matrices_begin();
    ask_scores(score, queries, keys.place(0));
    matrices_end();
    matrices_wait<0>();
    keys.release(0);
    weigh(rows, score, keep, tile, 0);
    pack_weights(weights, score);
    int step = 0;
#pragma unroll 1
    for (; step + 1 < steps; step++) {
        keys.wait_full(step + 1);
        matrices_begin();
        ask_scores(score, queries, keys.place(step + 1));
        matrices_end();
        values.wait_full(step);
        matrices_begin();
        add_values(o, weights, values.place(step));
        matrices_end();
        matrices_wait<1>();
        keys.release(step + 1);
        // The wait stands behind a branch, in each of its arms: the compiler would move it ahead of the weights.
        if (weigh(rows, score, keep, tile, step + 1)) {
            matrices_wait_at<0, 0>();
            scale_outputs(o, keep);
        } else {
            matrices_wait_at<0, 1>();
        }
        values.release(step);
        pack_weights(weights, score);
    }
    values.wait_full(step);
    matrices_begin();
    add_values(o, weights, values.place(step));
    matrices_end();
    matrices_wait<0>();
#pragma unroll
    for (int r = 0; r < 2; r++)
        store_row(args, tile, first + lane / 4 + 8 * r, rows.sum[r], [&](int n, int c) { return o[4 * n + 2 * r + c]; });
}

extern "C" __global__ void __launch_bounds__(P_THREADS, 1) attention_prefill(const Arguments args) {
    extern __shared__ __align__(1024) u8 tile_memory[];
    u8 *shared = tile_memory;
    let_next_start();
    wait_for_inputs();
    const Tile tile = tile_of_block(args);
    if (tile.tokens == 0) return;
    const int warp = threadIdx.x / WARP, group = warp / 4;
    const Steps keys = {shared_address(shared + KEYS_AT), shared_address(shared + BARRIERS_AT)};
    const Steps values = {shared_address(shared + VALUES_AT), keys.barriers + 40};
    // A short tile leaves the last warpgroups nothing to do.
    const int groups = min(P_GROUPS, (tile.tokens * GQ + 63) / 64);
    if (threadIdx.x == 0) {
        keys.make(groups * 4), values.make(groups * 4);
        barriers_made();
    }
    __syncthreads();
    if (group == P_GROUPS) {
        registers_down<40>();
        const int feeder = threadIdx.x % FEEDERS;
        u8 *raw = shared + RAW_AT;
        if (warp % 4 < 2) feed<KeySide>(args, tile, keys, raw, feeder, 1 + P_GROUPS);
        else feed<ValueSide>(args, tile, values, raw + RAW_BYTES(Keys), feeder, 2 + P_GROUPS);
    } else {
        registers_up<232>();
        if (group < groups) attend(args, tile, keys, values, shared_address(shared));
    }
}
