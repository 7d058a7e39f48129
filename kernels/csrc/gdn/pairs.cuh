// gdn_scan where PAIRED: the scan of gdn/scan.cuh with K split over two warps, for chips whose blocks form clusters and have 227 KB of shared memory.
//
// A pair of warps has 16 columns of S, each the sums over one half of K; so a lone sequence has twice the warps, and each half of the work
// between two chunks. What a warp has of K S and Q S is half of it: it keeps the tokens of two tiles of 16 (0 and 3, or 1 and 2: their
// triangles have five blocks each), gives its partner what it has of the others, and gets the other half of its own. R, Delta and Delta
// scaled are exchanged as the operands that they become. Blocks have two pairs, and two blocks of a cluster, which have the same head,
// bring each chunk half each, for both: by a warp that does nothing else.
#pragma once
#include "arguments.cuh"
#include "common/mbarrier.cuh"
#include "gdn/scan.cuh"

#define PAIR_WARPS 4
#define PAIR_COLS (PAIR_WARPS / 2 * 16)
#define PAIR_TILES (V / PAIR_COLS)
#define PAIR_BLOCKS 2 // of a cluster
#define HALF_K (K / 2)
#define EXCHANGE_BYTES 4096 // of a warp, twice

#if PAIRED
__device__ __forceinline__ void copy_to_all(u32 to, const void *from, u32 bytes, u32 barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], %4;" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier), "h"((u16)((1 << PAIR_BLOCKS) - 1))
                 : "memory");
}
// What went before are reads of this block's own memory, which need no fence: one for the cluster would wait for every store.
__device__ __forceinline__ void arrive_at(u32 barrier, u32 block) {
    asm volatile("{.reg .b32 there; mapa.shared::cluster.u32 there, %0, %1; mbarrier.arrive.shared::cluster.b64 _, [there];}" ::"r"(barrier), "r"(block)
                 : "memory");
}
// By all threads of both blocks, which have the same piece: they come here at the beginning and at the end. The hardware starts the blocks of a
// cluster together.
__device__ __forceinline__ void meet_cluster() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Chunks on their way: two places, of each a barrier that says that it is full and one that all warps of the cluster are done with it.
struct SharedChunks {
    Source source;
    u32 barriers, rank;

    __device__ __forceinline__ u32 full(int chunk) const { return barriers + chunk % 2 * 16; }
    __device__ __forceinline__ u32 free(int chunk) const { return full(chunk) + 8; }
    __device__ __forceinline__ void begin() const {
        if (threadIdx.x == 0) {
            for (int i = 0; i < 2; i++) barrier_make(full(i), 1), barrier_make(free(i), PAIR_BLOCKS * PAIR_WARPS);
            barriers_made();
        }
        meet_cluster();
    }
    // By one thread: this block's half, to both; both halves arrive here.
    __device__ __forceinline__ void fetch(int chunk) const {
        // Ends when all warps of both blocks that scan have released the chunk before the last. They wait for chunks to be full, which are those that
        // this thread and the other block's have brought. The chunk is not full, and so not released, without the half that follows here.
        barrier_wait<PAIR_CHUNK_FREE>(free(chunk), chunk / 2 & 1 ^ 1);
        u32 to = source.place_of(chunk), done = full(chunk);
        barrier_arrive_for(done, STAGE_BYTES);
        const u32 keys = rank * (KEYS_BYTES / PAIR_BLOCKS), mats = rank * (MATS_BYTES / PAIR_BLOCKS);
        copy_to_all(to + keys, source.keys + (u64)chunk * HK * KEYS_BYTES + keys, KEYS_BYTES / PAIR_BLOCKS, done);
        copy_to_all(to + KEYS_BYTES + mats, source.mats + (u64)chunk * HV * MATS_BYTES + mats, MATS_BYTES / PAIR_BLOCKS, done);
        if (rank == 0) copy_to_all(to + KEYS_BYTES + MATS_BYTES, source.sums + (u64)chunk * HV * C, C * 4, done);
    }
    // Ends when both blocks have brought their halves, for which each waits only until the place is free. By all warps that scan; the place is full
    // again only after each of them has released it in both blocks, behind a meeting of its lanes.
    __device__ __forceinline__ void wait_for(int chunk) const { barrier_wait<PAIR_CHUNK_FULL>(full(chunk), chunk / 2 & 1); }
    __device__ __forceinline__ void release(int chunk) const {
        __syncwarp();
        int lane = threadIdx.x % WARP;
        if (lane < PAIR_BLOCKS) arrive_at(free(chunk), lane);
    }
};

// Tiles of 16 tokens: a warp's own two, then its partner's.
struct Tokens {
    int half, tile[4];

    __device__ __forceinline__ explicit Tokens(int half) : half(half), tile{half, 3 - half, 1 - half, 2 + half} {}
};

// What two warps hand one another: each writes its own part, of two in turn, and reads its partner's after both have met. So what is
// written in one turn was read before the partner came to the meeting of the turn before.
struct Exchange {
    u32 mine, theirs, outer, inner, turn; // outer, inner: whose tiles 0 and 3, and 1 and 2 are
    int warp;

    __device__ __forceinline__ Exchange(u32 first, const Thread &me, const Tokens &tokens)
        : mine(first + me.warp * (2 * EXCHANGE_BYTES) + me.lane * 16), theirs(first + (me.warp ^ 1) * (2 * EXCHANGE_BYTES) + me.lane * 16),
          outer(tokens.half == 0 ? mine : theirs), inner(tokens.half == 0 ? theirs : mine), turn(0), warp(me.warp) {}
    __device__ __forceinline__ void put(int i, u32 a, u32 b, u32 c, u32 d) const {
        asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(mine + turn + i * 512), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
    }
    __device__ __forceinline__ void put(int i, const float (&v)[4]) const {
        put(i, __float_as_uint(v[0]), __float_as_uint(v[1]), __float_as_uint(v[2]), __float_as_uint(v[3]));
    }
    __device__ __forceinline__ void put(int i, const u32 (&v)[4]) const { put(i, v[0], v[1], v[2], v[3]); }
    __device__ __forceinline__ void put_left(int i, const Left &l) const { put(2 * i, l.high), put(2 * i + 1, l.low); }
    __device__ __forceinline__ uint4 get(u32 from, int i) const {
        uint4 v;
        asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(from + turn + i * 512) : "memory");
        return v;
    }
    __device__ __forceinline__ void add_theirs(float (&v)[4], int i) const {
        uint4 t = get(theirs, i);
        v[0] = __fadd_rn(v[0], __uint_as_float(t.x)), v[1] = __fadd_rn(v[1], __uint_as_float(t.y));
        v[2] = __fadd_rn(v[2], __uint_as_float(t.z)), v[3] = __fadd_rn(v[3], __uint_as_float(t.w));
    }
    // Of the four tiles in order, as both put them, the owner's first and second from `first` on.
    __device__ __forceinline__ void get_lefts(Left (&left)[4], int first) const {
#pragma unroll
        for (int tile = 0; tile < 4; tile++) {
            const u32 from = tile % 3 == 0 ? outer : inner;
            uint4 h = get(from, 2 * (first + tile / 2)), l = get(from, 2 * (first + tile / 2) + 1);
            left[tile] = {{h.x, h.y, h.z, h.w}, {l.x, l.y, l.z, l.w}};
        }
    }
    // Both warps of a pair come to the same meetings in the same order: what they do depends on the piece alone. No clock bounds them.
    __device__ __forceinline__ void meet() const { asm volatile("bar.sync %0, 64;" ::"r"(1 + PAIR_WARPS + warp / 2) : "memory"); }
    // A meeting in two halves, `tell` and `hear`. At most once between two meetings: a second word before the partner has heard the first
    // would be taken for it.
    __device__ __forceinline__ void tell() const { asm volatile("bar.arrive %0, 64;" ::"r"(1 + warp) : "memory"); }
    __device__ __forceinline__ void hear() const { asm volatile("bar.sync %0, 64;" ::"r"(1 + (warp ^ 1)) : "memory"); }
    __device__ __forceinline__ void end() { turn ^= EXCHANGE_BYTES; }
};

// Where a lane's parts of right operands lie, in bytes of their matrix; 16 columns further on are at ^ 32, and so on.
struct Places {
    u32 state, triangle, update;

    __device__ __forceinline__ Places(int lane, int half) {
        const int row = lane % 8 + lane / 16 * 8, col = lane / 8 % 2, turned_row = lane % 16, turned_col = lane / 16;
        state = place<K>(row, half * HALF_K + 8 * col) * 2;
        triangle = place<C>(row, 8 * col) * 2;
        update = place<K>(turned_row, half * HALF_K + 8 * turned_col) * 2;
    }
};

// What this half of K gives of (K S)^T and (Q S)^T, of two tiles of tokens.
__device__ __forceinline__ void multiply_half(float (&r)[4][4], float (&o)[4][4], const Left (&left)[HALF_K / 16], u32 q_at, const Places &places, int first,
                                              int second) {
    constexpr u32 KEYS_ON = KEYS_BYTES / 2, LOW = C * K * 2;
#pragma unroll
    for (int step = 0; step < HALF_K / 16; step++) {
        const u32 from = q_at + (places.state ^ step * 32), a = from + first * (16 * K * 2), b = from + second * (16 * K * 2);
        Right ka = right_at<LOW>(a + KEYS_ON), qa = right_at<LOW>(a), kb = right_at<LOW>(b + KEYS_ON), qb = right_at<LOW>(b);
        multiply(left[step], r[0], r[1], ka, o[0], o[1], qa, r[2], r[3], kb, o[2], o[3], qb);
    }
}

// Of two tiles of rows, sum += left * (the lower triangle at `at`)^T: all four tiles are inside. Small terms have sums of their own, so that few
// instructions wait for one another.
__device__ __forceinline__ void multiply_own(float (&sum)[4][4], const Left (&left)[4], u32 at, const Places &places, const Tokens &tokens) {
    float low_left[4][4] = {}, low_right[4][4] = {};
    auto add = [&](int step, int j) {
        Right r = right_at<C * C * 2>(at + (places.triangle ^ step * 32) + tokens.tile[j] * (16 * C * 2));
        const Left &l = left[step];
        mma(low_left[2 * j], l.low, r.high[0], r.high[1]), mma(low_left[2 * j + 1], l.low, r.high[2], r.high[3]);
        mma(low_right[2 * j], l.high, r.low[0], r.low[1]), mma(low_right[2 * j + 1], l.high, r.low[2], r.low[3]);
        mma(sum[2 * j], l.high, r.high[0], r.high[1]), mma(sum[2 * j + 1], l.high, r.high[2], r.high[3]);
    };
    add(0, 0), add(0, 1), add(1, 1), add(2, 1);
    if (tokens.half == 0) add(3, 1);
    else add(1, 0);
#pragma unroll
    for (int n = 0; n < 4; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) sum[n][i] = __fadd_rn(sum[n][i], __fadd_rn(low_left[n][i], low_right[n][i]));
}

// S^T of this half of K = e^(G_63) S^T + (Delta scaled)^T K.
__device__ __forceinline__ void add_half(float (&s)[HALF_K / 8][4], const Left (&left)[4], float decay, u32 k_at, const Places &places) {
    float added[HALF_K / 8][4] = {};
#pragma unroll
    for (int step = 0; step < 4; step++) {
        auto at = [&](int np) { return turned_right_at<C * K * 2>(k_at + step * (16 * K * 2) + (places.update ^ np * 32)); };
        if constexpr (HALF_K == 64) {
            Right a = at(0), b = at(1), c = at(2), d = at(3);
            multiply(left[step], added[0], added[1], a, added[2], added[3], b, added[4], added[5], c, added[6], added[7], d);
        } else {
            Right a = at(0), b = at(1);
            multiply(added[0], added[1], left[step], a, added[2], added[3], left[step], b);
        }
    }
#pragma unroll
    for (int n = 0; n < HALF_K / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) s[n][i] = __fmaf_rn(decay, s[n][i], added[n][i]);
}

// Values of a chunk, 16 columns of a warp's two tiles: `left` tokens from a lane's first of each on.
struct OwnValues {
    float *first, *second;
    int first_left, second_left;

    __device__ __forceinline__ OwnValues(float *of_lane, int filled, int t, const Tokens &tokens)
        : first(of_lane + (u64)(tokens.tile[0] * 16 + 2 * t) * (HV * V)), second(of_lane + (u64)(tokens.tile[1] * 16 + 2 * t) * (HV * V)),
          first_left(filled - tokens.tile[0] * 16 - 2 * t), second_left(filled - tokens.tile[1] * 16 - 2 * t) {}
    template <class Each> __device__ __forceinline__ void each(const Each &f) const {
#pragma unroll
        for (int n = 0; n < 4; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int token = n % 2 * 8 + i % 2;
                f(n, i, token < (n < 2 ? first_left : second_left), (n < 2 ? first : second) + token * (HV * V) + i / 2 * 8);
            }
    }
    __device__ __forceinline__ void read(float (&v)[4][4]) const {
        each([&](int n, int i, bool there, const float *at) { v[n][i] = there ? *at : 0.0f; });
    }
    __device__ __forceinline__ void write(const float (&o)[4][4]) const {
        each([&](int n, int i, bool there, float *at) {
            if (there) *at = o[n][i];
        });
    }
};

// One chunk, which lies in shared memory at `at`: o in place of v, and the state after it.
__device__ __forceinline__ void scan_half(float (&s)[HALF_K / 8][4], const float (&v)[4][4], const OwnValues &columns, u32 at, const float *sums, int t,
                                          const Places &places, const Tokens &tokens, Exchange &exchange) {
    const u32 k_at = at + KEYS_BYTES / 2, t_at = at + KEYS_BYTES, p_at = t_at + MATS_BYTES / 2;
    Left of_state[HALF_K / 16];
#pragma unroll
    for (int step = 0; step < HALF_K / 16; step++) of_state[step] = left_of(s[2 * step], s[2 * step + 1]);
    {
        float r[4][4] = {}, o[4][4] = {};
        multiply_half(r, o, of_state, at, places, tokens.tile[2], tokens.tile[3]);
#pragma unroll
        for (int n = 0; n < 4; n++) exchange.put(n, r[n]), exchange.put(4 + n, o[n]);
        exchange.tell();
    }
    float r[4][4] = {}, o[4][4] = {}, last = sums[C - 1];
    multiply_half(r, o, of_state, at, places, tokens.tile[0], tokens.tile[1]);
    float2 sum[4];
#pragma unroll
    for (int n = 0; n < 4; n++) sum[n] = *(const float2 *)(sums + tokens.tile[n / 2] * 16 + n % 2 * 8 + 2 * t);
    exchange.hear();
#pragma unroll
    for (int n = 0; n < 4; n++) {
        exchange.add_theirs(r[n], n), exchange.add_theirs(o[n], 4 + n);
        const float grown[2] = {__expf(sum[n].x), __expf(sum[n].y)};
#pragma unroll
        for (int i = 0; i < 4; i++) r[n][i] = __fmaf_rn(-grown[i % 2], r[n][i], v[n][i]), o[n][i] = __fmul_rn(grown[i % 2], o[n][i]);
    }
    exchange.end();
    // Delta^T = R^T T^T, of this warp's tokens.
    Left left[4];
#pragma unroll
    for (int i = 0; i < 2; i++) exchange.put_left(i, left_of(r[2 * i], r[2 * i + 1]));
    exchange.meet();
    exchange.get_lefts(left, 0);
    exchange.end();
    float delta[4][4] = {};
    multiply_own(delta, left, t_at, places, tokens);
    // O^T += Delta^T P^T.
#pragma unroll
    for (int i = 0; i < 2; i++) exchange.put_left(i, left_of(delta[2 * i], delta[2 * i + 1]));
#pragma unroll
    for (int n = 0; n < 4; n++) {
        const float kept[2] = {__expf(last - sum[n].x), __expf(last - sum[n].y)};
#pragma unroll
        for (int i = 0; i < 4; i++) delta[n][i] = __fmul_rn(delta[n][i], kept[i % 2]);
    }
#pragma unroll
    for (int i = 0; i < 2; i++) exchange.put_left(2 + i, left_of(delta[2 * i], delta[2 * i + 1]));
    exchange.meet();
    exchange.get_lefts(left, 0);
    multiply_own(o, left, p_at, places, tokens);
    columns.write(o);
    exchange.get_lefts(left, 2);
    exchange.end();
    add_half(s, left, __expf(last), k_at, places);
}

// What a lane has of S^T, to `at` of its head, columns and half.
__device__ __forceinline__ void store_half(float *at, const float (&s)[HALF_K / 8][4], int t) {
#pragma unroll
    for (int n = 0; n < HALF_K / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) at[(8 * n + 2 * t + i % 2) * V + i / 2 * 8] = s[n][i];
}

// All chunks of a pair's columns, those of head h from v0 on; `number` is that of the first chunk.
__device__ __forceinline__ void scan_pair(const Thread &me, const Arguments &args, const SharedChunks &on_way, const u8 *shared, u64 number, int4 piece,
                                          int h, int v0) {
    const int chunks = (piece.w + C - 1) / C;
    const Tokens tokens(me.warp % 2);
    const Places places(me.lane, tokens.half);
    Exchange exchange(shared_address(shared) + 2 * STAGE_BYTES, me, tokens);
    const u64 of_lane = (u64)h * K * V + (u64)tokens.half * HALF_K * V + v0 + me.g, of_slot = (u64)HV * K * V;
    float *at_state = args.state + piece.x * of_slot + of_lane;
    float s[HALF_K / 8][4];
#pragma unroll
    for (int n = 0; n < HALF_K / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) s[n][i] = at_state[(8 * n + 2 * me.t + i % 2) * V + i / 2 * 8];
    float *values = args.values + (u64)piece.z * (HV * V) + h * V + v0 + me.g;
#pragma unroll 1
    for (int chunk = 0; chunk < chunks; chunk++) {
        const OwnValues columns(values + (u64)chunk * (C * HV * V), min(C, piece.w - chunk * C), me.t, tokens);
        float v[4][4];
        columns.read(v);
        on_way.wait_for(chunk);
        const float *sum = (const float *)(shared + chunk % 2 * STAGE_BYTES + KEYS_BYTES + MATS_BYTES);
        scan_half(s, v, columns, on_way.source.place_of(chunk), sum, me.t, places, tokens, exchange);
        on_way.release(chunk);
        if (args.exports) {
            int kept_at = args.exports[number + chunk];
            if (kept_at >= 0) store_half(args.state + kept_at * of_slot + of_lane, s, me.t);
        }
    }
    store_half(at_state, s, me.t);
}

// Block (h * PAIR_TILES + tile, piece): PAIR_COLS columns of value head h.
extern "C" __global__ void __cluster_dims__(PAIR_BLOCKS, 1, 1) __launch_bounds__((PAIR_WARPS + 1) * WARP, 1) gdn_scan(const Arguments args) {
    extern __shared__ __align__(128) u8 shared[];
    __shared__ u64 barriers[4];
    let_next_start();
    wait_for_inputs();
    const int4 piece = args.pieces[blockIdx.y];
    if (piece.x < 0 || piece.w <= 0) return;
    const Thread me = this_thread();
    const int h = blockIdx.x / PAIR_TILES, kh = GROUPED ? h / SHARING : h % HK;
    const u64 number = piece.z / C + blockIdx.y;
    const SharedChunks on_way = {{(const u8 *)args.keys + (number * HK + kh) * KEYS_BYTES, (const u8 *)args.mats + (number * HV + h) * MATS_BYTES,
                                  args.sums + (number * HV + h) * C, shared_address(shared), 0, 2},
                                 shared_address(barriers),
                                 blockIdx.x % PAIR_BLOCKS};
    on_way.begin();
    if (me.warp < PAIR_WARPS) {
        scan_pair(me, args, on_way, shared, number, piece, h, blockIdx.x % PAIR_TILES * PAIR_COLS + me.warp / 2 * 16);
    } else if (me.lane == 0) {
        for (int chunk = 0; chunk < (piece.w + C - 1) / C; chunk++) on_way.fetch(chunk);
    }
    // Nobody says that he is done with a chunk to a block that has ended.
    __syncwarp();
    meet_cluster();
}
#endif
