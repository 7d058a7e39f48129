// One row a sequence, and drafted ones right behind it. A work item is (row, key-value head, split): the row's pages are split at absolute places, `per_split` pages
// each, a number that depends on the row's position alone. So a row's bytes do not depend on its neighbours. The grid is fixed;
// each block takes items that follow one another, which it finds from the positions: most are of one row, whose query it has then, and whose
// counter it touches once. While it ends an item, the first pages of the next are on their way. A round is ROUND pages, copied to shared memory whole, keys
// and values apart, so that one is on its way while the other is used. First each warp takes the scores of some tokens, then each
// takes a slice of D of all values: so no sums over warps are needed, and a lane has few of them.
// What is on its way before the wait for the in-projection is of earlier steps; the row's own key and value are put in their
// place in shared memory beside being written to the cache. A drafted row does that with the keys and values of the rows of its sequence
// before it too, which other blocks are writing. Several splits of a row are added when all
// are done (splits.cuh).

#pragma once
#include "arguments.cuh"
#include "attention/copies.cuh"
#include "attention/formats.cuh"
#include "common/int8_rows.cuh"

#define THREADS (WARPS * WARP)
#define ROWS_MAX 256
static_assert(THREADS >= ROWS_MAX, "a thread knows a row");
#define SPLITS_MAX 128
// Partial sums under way together: two turns for the 64 splits of 16,384 positions and that of the row's own page, or three where two would
// spill twice as much.
#define ADD_AHEAD (__CUDA_ARCH__ == 900 ? 33 : 22)
#define ADD_WEIGHTS (SPLITS_MAX + 36)
static_assert(ADD_WEIGHTS % 4 == 0 && ADD_WEIGHTS >= (SPLITS_MAX + ADD_AHEAD - 1) / ADD_AHEAD * ADD_AHEAD, "the last turn has weights");
#define SPLIT_PAGES 8
#define UNITS (D / 16)
#define UNITS_A_WARP (UNITS > WARPS ? UNITS / WARPS : 1)
#define TILES_A_WARP (ROUND * 4 / WARPS)
#define Q_ROWS (GQ > 8 ? 16 : 8)
#define TASKS ((GQ + 2 + WARPS - 1) / WARPS)
#define GATES ((GQ * D / 32 + WARPS - 1) / WARPS)

// Pages of a split of a row that has `pages`: 8 as long as that makes at most SPLITS_MAX, then twice as many, and so on.
__device__ __forceinline__ int per_split(int pages) {
    int per = SPLIT_PAGES;
    while (per * SPLITS_MAX < pages) per *= 2;
    return per;
}

// DECODE_BYTES is what the launch gives a block.
struct __align__(128) Decode {
    u8 keys[ROUND * Keys::BYTES];
    u8 values[ROUND * Values::BYTES];
    u8 q[D / 32 * Q_ROWS * 64];
    u8 p[ROUND * Q_ROWS * 64];
    float o[GQ * (D > ADD_WEIGHTS ? D : ADD_WEIGHTS)]; // while splits are added: their weights
    float fresh[2][D];                                 // the row's own key, turned, and value
    float norms[2][D];
    double turns[ROTARY / 2 + 1];
    float tops[WARPS][16], sums[WARPS][16];
    u64 arrived[2];
    int ends[ROWS_MAX], slots[ROWS_MAX], positions[ROWS_MAX];
    int warp_ends[WARPS];
};
static_assert(sizeof(Decode) == DECODE_BYTES, "AttentionShape::decode_shared_bytes adds this up");
#include "attention/splits.cuh"

__device__ __forceinline__ void load_gates(float (&gates)[GATES], const float *x, int head) {
#pragma unroll
    for (int i = 0; i < GATES; i++) {
        int b = i * WARPS + threadIdx.x / WARP;
        if (GATED && b < GQ * D / 32) gates[i] = query_of(x, head * GQ + b / (D / 32))[D + b % (D / 32) * 32 + lane_id()];
    }
}

// o * sigmoid(gate) as int8. `o` is [GQ][D] in shared memory.
__device__ __forceinline__ void store_out(const Arguments &args, const float *o, const float (&gates)[GATES], int row, int head) {
    u64 at = (u64)row * OUT_STRIDE + head * GQ * D;
#pragma unroll
    for (int i = 0; i < GATES; i++) {
        int b = i * WARPS + threadIdx.x / WARP;
        if (b >= GQ * D / 32) continue;
        quantize_block(gated(o[b * 32 + lane_id()], gates[i]), args.codes + (at + b * 32) * PLANES, args.meta + (at / 32 + b) * PLANES);
    }
}

// What a block does at a time: a split of a row for a key-value head.
struct Item {
    int head, row, position;
    int pages, splits; // of the row
    int split, first_page, page_end;
    bool owns; // the split that the row's own position is in
    int behind; // rows of the same sequence before it
    const int *table;
};

// Pages `base` and on of an item, up to ROUND of them.
struct Round {
    int base, left, own; // own: the page of the row's position, as counted from `base`
    bool more, last;
    int page, first_tile; // this warp's tokens: tiles first_tile on of that page
};

// What a warp has of an item: of a lane's two query heads the largest score and the sum, and its slice of their outputs.
struct Partial {
    float top[2], sum[2];
    float o[UNITS_A_WARP][2][4];
};

__device__ __forceinline__ int first_unit(const Thread &me) { return me.warp * UNITS_A_WARP; }

// Weights, and for each thread's row how many splits all rows up to it have. All of it is written before the step begins. Returns how many
// rows have several. Ends with a barrier.
__device__ __forceinline__ int begin(const Thread &me, const Arguments &args, Decode &s) {
    const int tid = me.id, lane = me.lane, warp = me.warp;
    int slot = tid < args.rows ? args.slots[tid] : -1, position = tid < args.rows ? max(args.positions[tid], 0) : 0;
    if (NORMED && tid < D / 2) {
        ((float2 *)s.norms[0])[tid] = ((const float2 *)args.q_norm)[tid], ((float2 *)s.norms[1])[tid] = ((const float2 *)args.k_norm)[tid];
    }
    if (tid < ROTARY / 2) s.turns[tid] = args.turns[tid];
    if (GQ < Q_ROWS)
        for (int i = tid; i < D / 32 * Q_ROWS * 16; i += THREADS)
            if (i / 16 % Q_ROWS >= GQ) ((u32 *)s.q)[i] = 0;
#if BULK
    if (tid < 2) barrier_make(shared_address(&s.arrived[tid]), 1), barriers_made();
#endif
    int pages_of_row = position / PAGE + 1, per_of_row = per_split(pages_of_row);
    const int own = slot < 0 ? 0 : (pages_of_row + per_of_row - 1) / per_of_row;
    int end = own;
#pragma unroll
    for (int step = 1; step < WARP; step *= 2) {
        int before = __shfl_up_sync(~0u, end, step);
        if (lane >= step) end += before;
    }
    if (lane == WARP - 1) s.warp_ends[warp] = end;
    if (tid < ROWS_MAX) s.slots[tid] = slot, s.positions[tid] = position;
    __syncthreads();
    for (int w = 0; w < warp; w++) end += s.warp_ends[w];
    if (tid < ROWS_MAX) s.ends[tid] = end;
    return __syncthreads_count(own > 1);
}

// The item of that number: of each head all rows, of each row its splits. By all threads.
__device__ __forceinline__ Item find_item(const Thread &me, const Arguments &args, const Decode &s, int number) {
    Item item;
    const int of_head = s.ends[ROWS_MAX - 1], index = number % of_head;
    item.head = number / of_head;
    item.row = __syncthreads_count(me.id < ROWS_MAX && s.ends[me.id] <= index);
    item.position = s.positions[item.row];
    item.pages = item.position / PAGE + 1;
    const int per = per_split(item.pages);
    item.splits = (item.pages + per - 1) / per;
    item.split = index - (item.row ? s.ends[item.row - 1] : 0);
    item.first_page = item.split * per, item.page_end = min(item.first_page + per, item.pages);
    item.owns = item.split == item.splits - 1;
    item.behind = 0;
    while (item.behind < DRAFTS && item.row > item.behind && s.slots[item.row - item.behind - 1] == s.slots[item.row]) item.behind++;
    item.table = args.page_table + (u64)s.slots[item.row] * args.pages_max;
    return item;
}

// The item after this one, whose number is `number`; without pages if the block has none. By all threads.
__device__ __forceinline__ Item item_after(const Thread &me, const Arguments &args, const Decode &s, Item item, int number, bool there) {
    if (there && item.owns) return find_item(me, args, s, number);
    const int per = item.page_end - item.first_page;
    item.split++, item.owns = item.split == item.splits - 1;
    item.first_page = item.page_end, item.page_end = there ? min(item.first_page + per, item.pages) : item.first_page;
    return item;
}

// Asks for pages from `base` on, `which` 0 the keys, 1 the values. Each has a warp that sees to it.
__device__ __forceinline__ void read_pages(const Thread &me, const Arguments &args, Decode &s, const Item &item, int which, int base) {
    const int left = min(item.page_end - base, ROUND), bytes = which ? Values::BYTES : Keys::BYTES;
    const u8 *from = (which ? args.v_cache : args.k_cache) + (u64)item.head * bytes;
    u8 *to = which ? s.values : s.keys;
#if BULK
    const int lane = me.lane, warp = me.warp;
    if (warp == WARPS - 2 + which && left > 0) {
        const u32 arrived = shared_address(&s.arrived[which]);
        if (lane == 0) barrier_arrive_for(arrived, left * bytes);
        __syncwarp();
        if (lane < left) copy_bulk(shared_address(to + lane * bytes), from + (u64)item.table[base + lane] * HKV * bytes, bytes, arrived);
    }
#else
    for (int p = 0; p < left; p++) copy_ahead(to + p * bytes, from + (u64)item.table[base + p] * HKV * bytes, bytes, me.id, THREADS);
    // A group even where it is empty, so that their number tells which has arrived.
    copies_end();
#endif
}

// Waits for what `read_pages` asked for. `turn`: rounds of this block before, which tell the barriers' two phases apart.
//
// Ends: each round's pages are asked for once, in the round before or ahead of the first, and copies need nobody. All threads wait for every
// phase, and the pages of the next one are asked for behind a barrier of the block that all of them come to after they have waited: no thread can
// be two phases behind.
__device__ __forceinline__ void await_pages(Decode &s, int which, u32 turn) {
#if BULK
    barrier_wait<DECODE_PAGES>(shared_address(&s.arrived[which]), turn & 1);
#else
    // One group is younger than that which is waited for.
    copies_wait<1>();
    if (which == 0) __syncthreads();
#endif
}

// A head a warp at a time: whether it is one of an item's. Queries come first, with the block's first item of a row, then, with the split that
// owns the position, key and value.
__device__ __forceinline__ bool has_head(const Item &item, bool first, int task) {
    return task < GQ ? first : item.owns && task < GQ + 2;
}
__device__ __forceinline__ void load_heads(const Thread &me, Head (&heads)[TASKS], const float *x, const Item &item, bool first) {
#pragma unroll
    for (int i = 0; i < TASKS; i++) {
        int task = i * WARPS + me.warp;
        const float *from =
            task < GQ ? query_of(x, item.head * GQ + task) : task == GQ ? key_of(x, item.head) : value_of(x, item.head);
        if (has_head(item, first, task)) load_head(heads[i], from);
    }
}

// Queries to shared memory; the new key and value to the cache, and to shared memory beside it. A barrier must follow.
__device__ __forceinline__ void store_heads(const Thread &me, const Arguments &args, Decode &s, Head (&heads)[TASKS], const Item &item, bool first) {
    Turn turn = turn_of(s.turns, item.position);
#pragma unroll
    for (int i = 0; i < TASKS; i++) {
        int task = i * WARPS + me.warp;
        if (!has_head(item, first, task)) continue;
        if (task <= GQ) {
            norm_head(heads[i], s.norms[task == GQ], args.eps);
            rotate_head<IN_DECODE>(heads[i], turn);
        }
        if (task < GQ) {
            finish_query(heads[i], args.scale);
            store_query<Q_ROWS>(heads[i], s.q, task);
        } else {
#pragma unroll
            for (int j = 0; j < PAIRS; j++) *(float2 *)&s.fresh[task - GQ][64 * j + 2 * me.lane] = heads[i].v[j];
            u64 page = (u64)item.table[item.pages - 1] * HKV + item.head;
            if (task == GQ) Keys::store(heads[i], args.k_cache + page * Keys::BYTES, item.position % PAGE);
            else Values::store(heads[i], args.v_cache + page * Values::BYTES, item.position % PAGE);
        }
    }
}

// Scores of this warp's tokens.
__device__ __forceinline__ void scores(const Thread &me, float (&score)[TILES_A_WARP][4], const Decode &s, const Round &r) {
    if (r.page >= r.left) return;
    const u8 *keys = s.keys + r.page * Keys::BYTES;
#pragma unroll
    for (int j = 0; j < D / 32; j++) {
        const u8 *q = s.q + j * Q_ROWS * 64 + me.lane * 16;
        uint4 low = *(const uint4 *)q, high = GQ > 8 ? *(const uint4 *)(q + 8 * 64) : make_uint4(0, 0, 0, 0);
#pragma unroll
        for (int i = 0; i < TILES_A_WARP; i++) Keys::add_scores(score[i], low, high, keys, j, r.first_tile + i);
    }
}

// Hides scores of what is not there, and tells the other warps the largest of this one's. A barrier must follow.
__device__ __forceinline__ void put_tops(const Thread &me, Decode &s, float (&score)[TILES_A_WARP][4], const Round &r, int position) {
    const int warp = me.warp, g = me.g, t = me.t;
    const float none = __int_as_float(0xff800000);
    float most[2] = {none, none};
#pragma unroll
    for (int i = 0; i < TILES_A_WARP; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            // Within the last page, what is not written yet does not count.
            bool seen = r.page < r.left && (r.page != r.own || t * 8 + 2 * (r.first_tile + i) + j % 2 <= position % PAGE);
            if (!seen) score[i][j] = none;
            most[j / 2] = fmaxf(most[j / 2], score[i][j]);
        }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        if (h && GQ <= 8) break;
        most[h] = fmaxf(most[h], __shfl_xor_sync(~0u, most[h], 1));
        most[h] = fmaxf(most[h], __shfl_xor_sync(~0u, most[h], 2));
        if (t == 0) s.tops[warp][g + 8 * h] = most[h];
    }
}

// Weights of this warp's tokens, and their sums, for all warps; `keep`: what sums so far are multiplied by. A barrier must follow.
__device__ __forceinline__ void put_weights(const Thread &me, Decode &s, Partial &part, float (&keep)[2], const float (&score)[TILES_A_WARP][4], const Round &r) {
    const int warp = me.warp, g = me.g, t = me.t;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        if (h && GQ <= 8) break;
        float before = part.top[h];
#pragma unroll
        for (int w = 0; w < WARPS; w++) part.top[h] = fmaxf(part.top[h], s.tops[w][g + 8 * h]);
        keep[h] = exp2_fast(before - part.top[h]);
        float weights = 0;
#pragma unroll
        for (int i = 0; i < TILES_A_WARP; i++) {
            float a = exp2_fast(score[i][2 * h] - part.top[h]), b = exp2_fast(score[i][2 * h + 1] - part.top[h]);
            weights += a + b;
            *(u32 *)(s.p + (r.page * Q_ROWS + g + 8 * h) * 64 + t * 16 + (r.first_tile + i) * 4) = pack_f16(a, b);
        }
        weights += __shfl_xor_sync(~0u, weights, 1);
        weights += __shfl_xor_sync(~0u, weights, 2);
        if (t == 0) s.sums[warp][g + 8 * h] = weights;
    }
}

// Adds a round's values, times their weights, to what this warp has of the outputs.
__device__ __forceinline__ void add_values(const Thread &me, Partial &part, const Decode &s, const float (&keep)[2], const Round &r, int position) {
    const int lane = me.lane, g = me.g;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        if (h && GQ <= 8) break;
        part.sum[h] *= keep[h];
#pragma unroll
        for (int w = 0; w < WARPS; w++) part.sum[h] += s.sums[w][g + 8 * h];
    }
#pragma unroll
    for (int u = 0; u < UNITS_A_WARP; u++)
#pragma unroll
        for (int j = 0; j < 8; j++)
            if (GQ > 8 || j % 4 < 2) part.o[u][j / 4][j % 4] *= keep[j % 4 / 2];
    if (first_unit(me) >= UNITS) return;
#pragma unroll
    for (int p = 0; p < ROUND; p++) {
        if (p >= r.left) break;
        const u8 *weights = s.p + p * Q_ROWS * 64 + lane * 16, *values = s.values + p * Values::BYTES;
        uint4 low = *(const uint4 *)weights, high = GQ > 8 ? *(const uint4 *)(weights + 8 * 64) : make_uint4(0, 0, 0, 0);
        Values::take_scales(low, high, values, first_unit(me), p == r.own, position % PAGE);
#pragma unroll
        for (int u = 0; u < UNITS_A_WARP; u++) Values::add(part.o[u], low, high, values, first_unit(me) + u, p == r.own, position % PAGE);
    }
}

// Whether a round has positions of rows before the item's own.
__device__ __forceinline__ bool has_before(const Item &item, const Round &r) {
    return DRAFTS && item.behind > 0 && (item.position - item.behind) / PAGE < r.base + r.left && (item.position - 1) / PAGE >= r.base;
}

// Their keys or values, into the round's pages: by the same operations as in the rows' own blocks.
template <class Kept, bool KEYS>
__device__ __forceinline__ void put_before(const Thread &me, const Arguments &args, Decode &s, u8 *pages, const Item &item, const Round &r) {
    for (int i = 1 + me.warp; i <= item.behind; i += WARPS) {
        const int position = item.position - i, page = position / PAGE - r.base;
        if (page < 0 || page >= r.left) continue;
        const float *x = args.x + (u64)(item.row - i) * X_STRIDE;
        Head h;
        load_head(h, KEYS ? key_of(x, item.head) : value_of(x, item.head));
        if (KEYS) {
            norm_head(h, s.norms[1], args.eps);
            rotate_head<IN_DECODE>(h, turn_of(s.turns, position));
        }
        Kept::store(h, pages + page * Kept::BYTES, position % PAGE);
    }
    // Of a round that is not the last, other copies come to the same place.
    fence_copies();
}

// Asks for what the round after this one wants: of the next item, if this is an item's last.
__device__ __forceinline__ void read_after(const Thread &me, const Arguments &args, Decode &s, const Item &item, const Item &next, int which, const Round &r) {
    if (r.more) read_pages(me, args, s, item, which, r.base + ROUND);
    else read_pages(me, args, s, next, which, next.first_page);
}

// All rounds of an item. `turn` counts those of the block.
__device__ __forceinline__ void attend(const Thread &me, const Arguments &args, Decode &s, const Item &item, const Item &next, Partial &part, u32 &turn) {
    const int warp = me.warp;
    for (int base = item.first_page; base < item.page_end; base += ROUND, turn++) {
        Round r = {base, min(item.page_end - base, ROUND), item.pages - 1 - base};
        r.more = base + ROUND < item.page_end, r.last = item.owns && !r.more;
        r.page = warp * TILES_A_WARP / 4, r.first_tile = warp * TILES_A_WARP % 4;
        const bool before = has_before(item, r);
        await_pages(s, 0, turn);
        if (r.last || before) {
            if (before) put_before<Keys, true>(me, args, s, s.keys, item, r);
            if (r.last && warp == 0) {
                Head h;
                load_head(h, s.fresh[0]);
                Keys::store(h, s.keys + r.own * Keys::BYTES, item.position % PAGE);
                fence_copies();
            }
            __syncthreads();
        }
        float score[TILES_A_WARP][4] = {}, keep[2];
        scores(me, score, s, r);
        put_tops(me, s, score, r, item.position);
        __syncthreads();
        read_after(me, args, s, item, next, 0, r);
        put_weights(me, s, part, keep, score, r);
        await_pages(s, 1, turn);
        // What other threads have asked for must not land on what is put there now.
        if (!BULK && (r.last || before)) __syncthreads();
        if (before) put_before<Values, false>(me, args, s, s.values, item, r);
        if (r.last && warp == 1) {
            Head h;
            load_head(h, s.fresh[1]);
            Values::store(h, s.values + r.own * Values::BYTES, item.position % PAGE);
            fence_copies();
        }
        __syncthreads();
        add_values(me, part, s, keep, r, item.position);
        if (r.more || next.first_page < next.page_end) {
            __syncthreads();
            read_after(me, args, s, item, next, 1, r);
        }
    }
}

// Outputs to shared memory, or to where the block that is last finds them.
__device__ __forceinline__ void store_partial(const Thread &me, const Arguments &args, Decode &s, const Item &item, const Partial &part) {
    const int g = me.g, t = me.t;
    const u64 at = (((u64)item.row * HKV + item.head) * args.splits_max + item.split) * GQ;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int h = g + 8 * r;
        if (h >= GQ) continue;
        float inverse = 1.0f / part.sum[r] * (1.0f / Values::LIFT);
        if (first_unit(me) < UNITS) {
#pragma unroll
            for (int u = 0; u < UNITS_A_WARP; u++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    int d = (first_unit(me) + u) * 16 + half * 8 + 2 * t;
                    float a = part.o[u][half][2 * r] * inverse, b = part.o[u][half][2 * r + 1] * inverse;
                    if (item.splits == 1) *(float2 *)(s.o + h * D + d) = make_float2(a, b);
                    else *(u32 *)(args.partials + (at + h) * D + d) = pack_f16(a, b);
                }
        }
        if (item.splits > 1 && me.warp == 0 && t == 0) args.stats[at + h] = make_float2(part.top[r], part.sum[r]);
    }
}

// An item's outputs, and those of the row if this block is the one that adds its splits. `stored`: splits of the row that the block has stored
// and not told of; `last`: whether the next item is of another block.
__device__ __forceinline__ void finish_item(const Thread &me, const Arguments &args, Decode &s, const Item &item, const Partial &part, const float *x,
                                            float (&gates)[GATES], int &stored, bool last, bool shared_out) {
    store_partial(me, args, s, item, part);
    if (item.splits > 1) {
        stored++;
        if (!item.owns && !last) return;
        const Split of = {item.row, item.head, item.splits};
        const int count = stored;
        stored = 0;
        if (!shared_out) load_gates(gates, x, item.head);
        if (!tell_stored(me, args, of, count, shared_out)) return;
        add_heads(me, args, s.o, of);
    }
    __syncthreads();
    store_out(args, s.o, gates, item.row, item.head);
}

// The items of this block: one at most where there are no more than blocks.
struct Items {
    int begin, end;

    __device__ __forceinline__ explicit Items(const Decode &s) {
        const u32 all = (u32)s.ends[ROWS_MAX - 1] * HKV, block = blockIdx.x, blocks = gridDim.x;
        begin = (int)min(block, all), end = (int)min(block + 1, all);
        if (all > blocks) begin = (int)((u64)block * all / blocks), end = (int)((u64)(block + 1) * all / blocks);
    }
};

// All items of this block. `shared_out`: whether it leaves splits for later.
__device__ __forceinline__ void attend_items(const Thread &me, const Arguments &args, Decode &s, const Items &items, bool shared_out) {
    const float none = __int_as_float(0xff800000);
    Item item = find_item(me, args, s, items.begin);
    read_pages(me, args, s, item, 0, item.first_page);
    read_pages(me, args, s, item, 1, item.first_page);
    wait_for_inputs();
    u32 turn = 0;
    int stored = 0;
    bool first = true;
    for (int number = items.begin; number < items.end; number++) {
        const bool last = number + 1 == items.end;
        const Item next = item_after(me, args, s, item, number + 1, !last);
        const float *x = args.x + (u64)item.row * X_STRIDE;
        float gates[GATES];
        if (first || item.owns) {
            Head heads[TASKS];
            load_heads(me, heads, x, item, first);
            if (item.splits == 1) load_gates(gates, x, item.head);
            store_heads(me, args, s, heads, item, first);
            __syncthreads();
        }
        Partial part = {{none, none}, {0, 0}, {}};
        attend(me, args, s, item, next, part, turn);
        finish_item(me, args, s, item, part, x, gates, stored, last, shared_out);
        first = item.owns;
        item = next;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT) attention_decode(const Arguments args) {
    extern __shared__ __align__(128) u8 shared[];
    Decode &s = *(Decode *)shared;
    let_next_start();
    const Thread me = this_thread();
    const int several = begin(me, args, s);
    const bool shared_out = several && shares_out(several);
    const Items items(s);
    if (items.begin < items.end) attend_items(me, args, s, items, shared_out);
    // A kernel that ends before the one ahead of it would let the next one through its wait too soon.
    else wait_for_inputs();
    if (shared_out) add_share(me, args, s);
}
