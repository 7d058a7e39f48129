// Many rows of a sequence: first all their keys and values are written (attention_write), then tiles of them attend.
#pragma once
#include "arguments.cuh"
#include "attention/copies.cuh"
#include "attention/formats.cuh"
#include "common/int8_rows.cuh"

// Keys and values of a step's rows: block (row, key-value head), one warp each.
extern "C" __global__ void __launch_bounds__(2 * WARP) attention_write(const Arguments args) {
    let_next_start();
    wait_for_inputs();
    int row = blockIdx.x, head = blockIdx.y, slot = args.slots[row];
    if (slot < 0) return;
    int position = args.positions[row];
    u64 page = (u64)args.page_table[(u64)slot * args.pages_max + position / PAGE] * HKV + head;
    const float *x = args.x + (u64)row * X_STRIDE;
    Head h;
    if (threadIdx.x < WARP) {
        load_head(h, key_of(x, head));
        norm_head(h, args.k_norm, args.eps);
        rotate_head<IN_WRITE>(h, turn_of(args.turns, position));
        Keys::store(h, args.k_cache + page * Keys::BYTES, position % PAGE);
    } else {
        load_head(h, value_of(x, head));
        Values::store(h, args.v_cache + page * Values::BYTES, position % PAGE);
    }
}

// A tile is up to TOKENS neighbouring rows of one sequence, times the GQ query heads of a key-value head: 64 rows of matrices, 16 a
// warp. Pages pass through shared memory, one ahead; softmax goes along them from position 0 on, in the same steps for every row, and
// a page that a row does not see changes nothing of it, so a row's bytes depend on its own sequence alone.
#define P_WARPS 4
#define P_THREADS (P_WARPS * WARP)
#define P_ROWS (P_WARPS * 16)
#define TOKENS (P_ROWS / GQ)
#define Q_TILE (P_ROWS * D * 2)
#define F16_PAGE (D * PAGE * 2)

// The int8 form of 32 dims that 4 lanes hold: lane t has dims 8 i + 2 t and the next in v[2i], v[2i + 1]. As quantize_block.
__device__ __forceinline__ void quantize_quarter(const float (&v)[8], i8 *codes, float2 *meta, bool store) {
    int t = lane_id() % 4;
    float top = 0;
    bool finite = true;
#pragma unroll
    for (int i = 0; i < 8; i++) top = fmaxf(top, fabsf(v[i])), finite = finite && fabsf(v[i]) <= 3.402823466e38f;
    int odd = !finite;
#pragma unroll
    for (int step = 1; step < 4; step *= 2) {
        top = fmaxf(top, __shfl_xor_sync(~0u, top, step));
        odd |= __shfl_xor_sync(~0u, odd, step);
    }
    finite = !odd;
    float inverse = top < 1e-30f || !finite ? 0.0f : __fdiv_rn(127.0f, top);
    int2 sum = make_int2(0, 0);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int2 a = codes_of(v[2 * i], inverse), b = codes_of(v[2 * i + 1], inverse);
        sum.x += a.x + b.x, sum.y += a.y + b.y;
        int quad = 2 * i + t / 2, at = (quad % 4 * 2 + quad / 4) * 4 + t % 2 * 2;
        if (store) *(u16 *)(codes + at) = (u16)((a.x & 0xff) | (b.x & 0xff) << 8);
        if (PLANES > 1 && store) *(u16 *)(codes + 32 + at) = (u16)((a.y & 0xff) | (b.y & 0xff) << 8);
    }
    sum = quad_sum(sum);
    if (store && t == 0) put_meta(meta, top, finite, sum);
}

// Neighbouring rows of a sequence, for a key-value head.
struct Tile {
    int head, first, tokens;
    int start, last; // positions of its first and its last row
    int pages;
    const int *table;
};

// The page that is used, as f16, in shared memory, and the one after it on its way there.
struct Page {
    u8 *keys, *values;
};

// Pages that are f16 in the cache are used where they arrive; there is room for two.
template <bool F16> struct Pages {
    static __device__ __forceinline__ void read(const Thread &me, const Arguments &args, u8 *staged, const Tile &tile, int p) {
        u64 page = (u64)tile.table[p] * HKV + tile.head;
        u8 *to = staged + p % 2 * 2 * F16_PAGE;
        copy_ahead(to, args.k_cache + page * Keys::BYTES, Keys::BYTES, me.id, P_THREADS);
        copy_ahead(to + F16_PAGE, args.v_cache + page * Values::BYTES, Values::BYTES, me.id, P_THREADS);
        copies_end();
    }
    static __device__ __forceinline__ Page take(const Thread &me, const Arguments &args, u8 *staged, const Tile &tile, int p) {
        if (p + 1 < tile.pages) {
            read(me, args, staged, tile, p + 1);
            copies_wait<1>();
        } else {
            copies_wait<0>();
        }
        __syncthreads();
        u8 *keys = staged + p % 2 * 2 * F16_PAGE;
        return {keys, keys + F16_PAGE};
    }
};
// Others arrive behind the one f16 page that they are expanded to.
template <> struct Pages<false> {
    static __device__ __forceinline__ void read(const Thread &me, const Arguments &args, u8 *staged, const Tile &tile, int p) {
        u64 page = (u64)tile.table[p] * HKV + tile.head;
        copy_ahead(staged + 2 * F16_PAGE, args.k_cache + page * Keys::BYTES, Keys::BYTES, me.id, P_THREADS);
        copy_ahead(staged + 2 * F16_PAGE + Keys::BYTES, args.v_cache + page * Values::BYTES, Values::BYTES, me.id, P_THREADS);
        copies_end();
    }
    static __device__ __forceinline__ Page take(const Thread &me, const Arguments &args, u8 *staged, const Tile &tile, int p) {
        copies_wait<0>();
        __syncthreads();
        u8 *keys = staged, *values = keys + F16_PAGE, *raw = staged + 2 * F16_PAGE;
        Keys::expand<P_THREADS>(keys, raw);
        Values::expand<P_THREADS>(values, raw + Keys::BYTES);
        __syncthreads();
        if (p + 1 < tile.pages) read(me, args, staged, tile, p + 1);
        return {keys, values};
    }
};
using TilePages = Pages<Keys::F16 && Values::F16>;

// Queries of this warp's 16 rows to shared memory, four at a time on their way.
__device__ __forceinline__ void load_queries(const Thread &me, const Arguments &args, u8 *q, const Tile &tile) {
    const int warp = me.warp;
    for (int at = warp * 16; at < warp * 16 + 16; at += 4) {
        Head h[4] = {};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int token = (at + i) / GQ;
            if (token < tile.tokens && token < TOKENS)
                load_head(h[i], query_of(args.x + (u64)(tile.first + token) * X_STRIDE, tile.head * GQ + (at + i) % GQ));
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            norm_head(h[i], args.q_norm, args.eps);
            rotate_head<IN_PREFILL>(h[i], turn_of(args.turns, tile.start + (at + i) / GQ));
            finish_query(h[i], args.scale);
            store_query<P_ROWS>(h[i], q, at + i);
        }
    }
}

// What a warp has of its 16 rows: a lane of two of them, which are of these tokens of the tile.
struct Softmax {
    float o[D / 8][4], top[2], sum[2];
    int token_of[2];
};

// Scores of this warp's rows for the tokens of page `p`; those that a row does not see are hidden.
__device__ __forceinline__ void page_scores(const Thread &me, float (&score)[4][4], const Softmax &s, const u8 *q, const u8 *keys, const Tile &tile, int p) {
    const int lane = me.lane, warp = me.warp, g = me.g, t = me.t;
#pragma unroll
    for (int j = 0; j < D / 32; j++) {
        const u8 *from = q + (j * P_ROWS + warp * 16) * 64 + lane * 16;
        uint4 low = *(const uint4 *)from, high = *(const uint4 *)(from + 8 * 64);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint4 k = *(const uint4 *)(keys + (j * PAGE + g / 2 * 8 + 2 * i + g % 2) * 64 + t * 16);
            mma_eight(score[i], low, high, k.x, k.y, k.z, k.w);
        }
    }
    if (p * PAGE + PAGE - 1 > tile.start) {
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                if (p * PAGE + t * 8 + 2 * i + j % 2 > tile.start + s.token_of[j / 2]) score[i][j] = __int_as_float(0xff800000);
    }
}

// Brings what was summed so far to the largest score yet.
__device__ __forceinline__ void raise_tops(Softmax &s, const float (&score)[4][4]) {
    float keep[2];
    bool moved = false;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float most = s.top[r];
#pragma unroll
        for (int i = 0; i < 4; i++) most = fmaxf(most, fmaxf(score[i][2 * r], score[i][2 * r + 1]));
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
        moved |= most != s.top[r];
        keep[r] = exp2_fast(s.top[r] - most);
        s.top[r] = most;
    }
    if (__any_sync(~0u, moved)) {
#pragma unroll
        for (int n = 0; n < D / 8; n++)
#pragma unroll
            for (int j = 0; j < 4; j++) s.o[n][j] *= keep[j / 2];
        s.sum[0] *= keep[0], s.sum[1] *= keep[1];
    }
}

// Adds a page's values, times their weights.
__device__ __forceinline__ void add_page(const Thread &me, Softmax &s, const float (&score)[4][4], const u8 *values) {
    u32 weights[2][4];
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float a = exp2_fast(score[i][2 * r] - s.top[r]), b = exp2_fast(score[i][2 * r + 1] - s.top[r]);
            s.sum[r] += a + b;
            weights[r][i] = pack_f16(a, b);
        }
    uint4 low = make_uint4(weights[0][0], weights[0][1], weights[0][2], weights[0][3]);
    uint4 high = make_uint4(weights[1][0], weights[1][1], weights[1][2], weights[1][3]);
#pragma unroll
    for (int n = 0; n < D / 8; n++) {
        uint4 v = *(const uint4 *)(values + n * 8 * 64 + me.lane * 16);
        mma_eight(s.o[n], low, high, v.x, v.y, v.z, v.w);
    }
}

// The gate, and the int8 form.
__device__ __forceinline__ void store_tile(const Thread &me, const Arguments &args, Softmax &s, const Tile &tile) {
    const int t = me.t;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        s.sum[r] += __shfl_xor_sync(~0u, s.sum[r], 1);
        s.sum[r] += __shfl_xor_sync(~0u, s.sum[r], 2);
        float inverse = 1.0f / s.sum[r];
        const int h = (me.warp * 16 + me.g + 8 * r) % GQ, token = s.token_of[r];
        const bool store = token < tile.tokens && token < TOKENS;
        const u64 row = tile.first + (store ? token : 0);
        const float *gate = query_of(args.x + row * X_STRIDE, tile.head * GQ + h) + (GATED ? D : 0);
        const u64 at = row * OUT_STRIDE + (tile.head * GQ + h) * D;
#pragma unroll
        for (int b = 0; b < D / 32; b++) {
            float v[8];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float2 of = GATED ? *(const float2 *)(gate + b * 32 + i * 8 + 2 * t) : make_float2(0, 0);
                v[2 * i] = gated(s.o[b * 4 + i][2 * r] * inverse, of.x);
                v[2 * i + 1] = gated(s.o[b * 4 + i][2 * r + 1] * inverse, of.y);
            }
            quantize_quarter(v, args.codes + (at + b * 32) * PLANES, args.meta + (at / 32 + b) * PLANES, store);
        }
    }
}

extern "C" __global__ void __launch_bounds__(P_THREADS, 2) attention_prefill(const Arguments args) {
    extern __shared__ __align__(128) u8 shared[];
    u8 *q = shared, *staged = shared + Q_TILE;
    const Thread me = this_thread();
    let_next_start();
    wait_for_inputs();
    // The last tiles have the most to do.
    const int2 rows = args.tiles[gridDim.x - 1 - blockIdx.x];
    Tile tile = {(int)blockIdx.y, rows.x, rows.y};
    if (tile.tokens <= 0 || args.slots[tile.first] < 0) return;
    tile.start = args.positions[tile.first], tile.last = tile.start + tile.tokens - 1, tile.pages = tile.last / PAGE + 1;
    tile.table = args.page_table + (u64)args.slots[tile.first] * args.pages_max;
    TilePages::read(me, args, staged, tile, 0);
    load_queries(me, args, q, tile);

    const float none = __int_as_float(0xff800000);
    Softmax s = {{}, {none, none}, {0, 0}, {(me.warp * 16 + me.g) / GQ, (me.warp * 16 + me.g + 8) / GQ}};
    for (int p = 0; p < tile.pages; p++) {
        Page page = TilePages::take(me, args, staged, tile, p);
        if (p == tile.pages - 1) {
            // A weight of zero does not make up for what is no number in a place not written yet.
            for (int i = me.id; i < D * PAGE; i += P_THREADS)
                if (i % PAGE > tile.last % PAGE) ((u16 *)page.values)[i] = 0;
            __syncthreads();
        }
        float score[4][4] = {};
        page_scores(me, score, s, q, page.keys, tile, p);
        raise_tops(s, score);
        add_page(me, s, score, page.values);
        __syncthreads();
    }
    store_tile(me, args, s, tile);
}
