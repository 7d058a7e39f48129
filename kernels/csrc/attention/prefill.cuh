// Tiles of prompts' rows by matrix instructions of a warp each; on Hopper warpgroups.cuh has them. Pages pass through shared memory, one
// ahead.
#pragma once
#include "attention/copies.cuh"

#define P_WARPS 4
#define P_THREADS (P_WARPS * WARP)
#define P_ROWS (P_WARPS * 16)
#define TOKENS (P_ROWS / GQ)
#define Q_TILE (P_ROWS * D * 2)
#define F16_PAGE (D * PAGE * 2)
#include "attention/tile.cuh"

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
        expand_page<Keys, P_THREADS>(raw, me.id, [&](int block, int token, int t, uint4 v) { *(uint4 *)(keys + (block * PAGE + token) * 64 + t * 16) = v; });
        expand_page<Values, P_THREADS>(raw + Keys::BYTES, me.id, [&](int dim, int t, uint4 v) { *(uint4 *)(values + dim * 64 + t * 16) = v; });
        __syncthreads();
        if (p + 1 < tile.pages) read(me, args, staged, tile, p + 1);
        return {keys, values};
    }
};
using TilePages = Pages<Keys::F16 && Values::F16>;

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

extern "C" __global__ void __launch_bounds__(P_THREADS, 2) attention_prefill(const Arguments args) {
    extern __shared__ __align__(128) u8 shared[];
    u8 *q = shared, *staged = shared + Q_TILE;
    const Thread me = this_thread();
    let_next_start();
    wait_for_inputs();
    const Tile tile = tile_of_block(args);
    if (tile.tokens == 0) return;
    TilePages::read(me, args, staged, tile, 0);
    load_queries<4>(args, tile, me.warp * 16, [&](const Head &h, int row) { store_query<P_ROWS>(h, q, row); });

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
#pragma unroll
    for (int r = 0; r < 2; r++)
        store_row(args, tile, me.warp * 16 + me.g + 8 * r, s.sum[r], [&](int n, int c) { return s.o[n][2 * r + c]; });
}
