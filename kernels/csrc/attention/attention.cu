// Full attention of a step's rows over a paged cache, up to the int8 rows of the out-projection.
//
//   q, k = rope(rms_norm(x_q) * w_q), rope(rms_norm(x_k) * w_k)      v = x_v
//   o = softmax(q k^T / sqrt(D)) v over positions 0..=p of the row's sequence      out = o * sigmoid(gate)
//
// x: [rows, X_STRIDE] f32, a row is D of q, then D of gate for each query head; k of the key-value heads; v of the key-value heads.
// A page is 32 positions; page of position p of slot s: page_table[s][p / 32]. slots[row] < 0: no row.
//
// Caches, [pages][HKV] of these, so that what a lane wants of one page for a matrix instruction is 16 neighbouring bytes, a warp's
// loads are whole lines, and a page copied to shared memory as it is has no bank conflicts:
//   K f16  [D / 32][32 tokens][32 dims]
//   K q8   [D / 64][32 tokens][4 t][2 blocks of 32 dims][dims 8t to 8t + 7 of the block] codes, then [D / 32][32 tokens] f16 scales
//   V f16  [D][32 tokens]
//   V q8   [D / 16][8 g][4 t][dim g, g + 8][tokens 8t to 8t + 7] codes, then [D / 32][32 tokens] f16 scales
//   V q4   [D / 16][8 g][4 t][tokens 8t to 8t + 7] bytes, the low nibble dim g and the high one dim g + 8, then scales as q8
// A quantised K is rotated by the orthonormal Hadamard matrix first, and so is q; the products are the same, outliers are spread.
//
// Matrix instructions: the rows of A are query heads (and tokens, in prefill) of one key-value head. Inner indices are permuted so
// that lane t owns 8 neighbours, in q and k the same: step one takes 0 1 | 2 3 of them, step two 4 5 | 6 7. Column n of the i-th
// tile of scores is token 8 (n / 2) + 2i + n % 2 of the page, so that a lane's scores are tokens 8t to 8t + 7, which is what the
// second product wants of it.
//
// -D: D, GQ (query heads of a key-value head), HKV, ROTARY, X_STRIDE, OUT_STRIDE, K_TYPE (0 f16, 1 q8), V_TYPE (0 f16, 1 q8, 2 q4),
// ROUND (pages, of decode), RESIDENT (decode blocks of a multiprocessor),
// DECODE_BYTES (their shared memory), PLANES (of the outputs).
#include "common/int8_rows.cuh"
#include "arguments.cuh"

#define PAGE 32
#define HEADS (GQ * HKV)
#define PAIRS (D / 64)
#define F16 0
#define Q8 1
#define Q4 2
#define SCALE_BYTES (D / 32 * PAGE * 2)
#if K_TYPE == F16
#define K_CODES (D * PAGE * 2)
#define K_BYTES K_CODES
#else
#define K_CODES (D * PAGE)
#define K_BYTES (K_CODES + SCALE_BYTES)
#endif
#if V_TYPE == F16
#define V_CODES (D * PAGE * 2)
#define V_BYTES V_CODES
#elif V_TYPE == Q8
#define V_CODES (D * PAGE)
#define V_BYTES (V_CODES + SCALE_BYTES)
#else
#define V_CODES (D * PAGE / 2)
#define V_BYTES (V_CODES + SCALE_BYTES)
#endif
// V's scales are multiplied into the weights, in f16: this keeps small ones out of the subnormals, and the sum is divided by it.
#define V_LIFT 256.0f
#define V_LIFT_F16X2 0x5c005c00u
#define V_SCALE_MAX 240.0f

__device__ __forceinline__ int lane_id() { return threadIdx.x % WARP; }

// ---- Numbers ----

__device__ __forceinline__ u32 pack_f16(float low, float high) {
    u32 r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}
__device__ __forceinline__ u32 mul_f16x2(u32 a, u32 b) {
    u32 r;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}
__device__ __forceinline__ u32 sub_f16x2(u32 a, u32 b) {
    u32 r;
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}
// A value that is not a number stays one: it must show.
__device__ __forceinline__ float within_f16(float v) { return v > 65504.0f ? 65504.0f : v < -65504.0f ? -65504.0f : v; }
__device__ __forceinline__ float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Four bytes to four halves: 0x64xx is 1024 + xx, `offset` (twice an f16) brings it to the value. Exact.
__device__ __forceinline__ void bytes_to_f16(u32 bytes, u32 offset, u32 &first, u32 &second) {
    first = sub_f16x2(__byte_perm(bytes, 0x64646464u, 0x4140), offset);
    second = sub_f16x2(__byte_perm(bytes, 0x64646464u, 0x4342), offset);
}
__device__ __forceinline__ void q8_to_f16(u32 codes, u32 &first, u32 &second) { bytes_to_f16(codes ^ 0x80808080u, 0x64806480u, first, second); }
__device__ __forceinline__ void q4_to_f16(u32 nibbles, u32 &first, u32 &second) { bytes_to_f16(nibbles & 0x0f0f0f0fu, 0x64086408u, first, second); }

// c[16,8] += a[16,16] b[16,8]. Lane (g = lane / 4, t = lane % 4): a0, a2 row g; a1, a3 row g + 8; b column g; c0, c1 row g, columns
// 2t, 2t + 1; c2, c3 row g + 8.
__device__ __forceinline__ void mma(float (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
// The 8 inner indices that a lane owns, `low` and `high` of rows g and g + 8.
__device__ __forceinline__ void mma_eight(float (&c)[4], uint4 low, uint4 high, u32 b0, u32 b1, u32 b2, u32 b3) {
    mma(c, low.x, high.x, low.y, high.y, b0, b1);
    mma(c, low.z, high.z, low.w, high.w, b2, b3);
}

// What other blocks wrote in this launch.
__device__ __forceinline__ uint4 fresh16(const void *p) {
    uint4 v;
    asm volatile("ld.global.cg.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
    return v;
}
__device__ __forceinline__ u32 fresh2(const void *p) {
    u32 v;
    asm volatile("{.reg .b16 h; ld.global.cg.u16 h, [%1]; cvt.u32.u16 %0, h;}" : "=r"(v) : "l"(p));
    return v;
}
__device__ __forceinline__ float2 fresh8(const void *p) {
    float2 v;
    asm volatile("ld.global.cg.v2.f32 {%0,%1}, [%2];" : "=f"(v.x), "=f"(v.y) : "l"(p));
    return v;
}
__device__ __forceinline__ u32 word(uint4 v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }
__device__ __forceinline__ uint4 masked(uint4 v, uint4 m) { return make_uint4(v.x & m.x, v.y & m.y, v.z & m.z, v.w & m.w); }

// ---- A head by a warp: a lane has dims 64 i + 2 lane and the next ----

struct Head {
    float2 v[PAIRS];
};
// Cosine and sine for a lane's two dims below ROTARY.
struct Turn {
    float2 first, second;
};

__device__ __forceinline__ Turn turn_of(const double *turns, int position) {
    Turn r = {make_float2(1, 0), make_float2(1, 0)};
#if ROTARY > 0
    int i = 2 * lane_id() % (ROTARY / 2);
    // The whole turns drop out in double: a large position has an angle as exact as a small one.
    double a = position * turns[i], b = position * turns[i + 1];
    sincospif(2.0f * (float)(a - rint(a)), &r.first.y, &r.first.x);
    sincospif(2.0f * (float)(b - rint(b)), &r.second.y, &r.second.x);
#endif
    return r;
}

__device__ __forceinline__ void load_head(Head &h, const float *x) {
#pragma unroll
    for (int i = 0; i < PAIRS; i++) h.v[i] = *(const float2 *)(x + 64 * i + 2 * lane_id());
}

__device__ __forceinline__ void norm_head(Head &h, const float *weight, float eps) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < PAIRS; i++) sum += h.v[i].x * h.v[i].x + h.v[i].y * h.v[i].y;
    float scale = __frcp_rn(__fsqrt_rn(warp_sum(sum) * (1.0f / D) + eps));
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
        float2 w = *(const float2 *)(weight + 64 * i + 2 * lane_id());
        h.v[i].x *= scale * w.x, h.v[i].y *= scale * w.y;
    }
}

__device__ __forceinline__ void rotate_head(Head &h, const Turn &turn) {
#if ROTARY > 0
    int lane = lane_id(), d = 2 * lane;
    bool first = d < ROTARY / 2;
    int partner = first ? lane + ROTARY / 4 : lane - ROTARY / 4;
    float x = __shfl_sync(~0u, h.v[0].x, partner & 31), y = __shfl_sync(~0u, h.v[0].y, partner & 31);
    if (d < ROTARY) {
        float sign = first ? -1.0f : 1.0f;
        h.v[0].x = h.v[0].x * turn.first.x + sign * x * turn.first.y;
        h.v[0].y = h.v[0].y * turn.second.x + sign * y * turn.second.y;
    }
#endif
}

__device__ __forceinline__ void scale_head(Head &h, float scale) {
#pragma unroll
    for (int i = 0; i < PAIRS; i++) h.v[i].x *= scale, h.v[i].y *= scale;
}

#if K_TYPE != F16
__device__ __forceinline__ void hadamard_head(Head &h) {
#pragma unroll
    for (int i = 0; i < PAIRS; i++) h.v[i] = make_float2(h.v[i].x + h.v[i].y, h.v[i].x - h.v[i].y);
#pragma unroll
    for (int step = 1; step < WARP; step *= 2) {
        float sign = lane_id() & step ? -1.0f : 1.0f;
#pragma unroll
        for (int i = 0; i < PAIRS; i++) {
            h.v[i].x = sign * h.v[i].x + __shfl_xor_sync(~0u, h.v[i].x, step);
            h.v[i].y = sign * h.v[i].y + __shfl_xor_sync(~0u, h.v[i].y, step);
        }
    }
#pragma unroll
    for (int step = 1; step < PAIRS; step *= 2)
#pragma unroll
        for (int i = 0; i < PAIRS; i++)
            if (!(i & step)) {
                float2 a = h.v[i], b = h.v[i + step];
                h.v[i] = make_float2(a.x + b.x, a.y + b.y), h.v[i + step] = make_float2(a.x - b.x, a.y - b.y);
            }
    scale_head(h, __frcp_rn(__fsqrt_rn((float)D)));
}
#endif

// Queries carry the softmax's scale, and that of its base 2.
__device__ __forceinline__ void finish_query(Head &h) {
#if K_TYPE != F16
    hadamard_head(h);
#endif
    scale_head(h, 1.4426950408889634f / __fsqrt_rn((float)D));
}

// Row `row` of queries in shared memory, [D / 32][ROWS][32] f16.
template <int ROWS> __device__ __forceinline__ void store_query(const Head &h, u8 *q, int row) {
    int lane = lane_id();
#pragma unroll
    for (int i = 0; i < PAIRS; i++)
        *(u32 *)(q + ((2 * i + lane / 16) * ROWS + row) * 64 + lane % 16 * 4) = pack_f16(h.v[i].x, h.v[i].y);
}

// The largest over the 16 lanes that share a block of 32 dims.
__device__ __forceinline__ float half_warp_max(float v) {
#pragma unroll
    for (int step = 8; step > 0; step /= 2) v = fmaxf(v, __shfl_xor_sync(~0u, v, step));
    return v;
}
// Codes are for the scale as it is stored.
__device__ __forceinline__ int q8_code(float v, float d) { return d == 0.0f ? 0 : max(-127, min(127, __float2int_rn(__fdiv_rn(v, d)))); }

// Keys: `page` is this head's part of the page, `token` the place in it.
__device__ __forceinline__ void store_key(Head h, u8 *page, int token) {
    int lane = lane_id();
#if K_TYPE == F16
#pragma unroll
    for (int i = 0; i < PAIRS; i++)
        *(u32 *)(page + ((2 * i + lane / 16) * PAGE + token) * 64 + lane % 16 * 4) = pack_f16(within_f16(h.v[i].x), within_f16(h.v[i].y));
#else
    hadamard_head(h);
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
        float2 v = h.v[i];
        u32 scale = pack_f16(half_warp_max(fmaxf(fabsf(v.x), fabsf(v.y))) * (1.0f / 127.0f), 0);
        float d = low_half(scale);
        u32 two = (q8_code(v.x, d) & 0xff) | (q8_code(v.y, d) & 0xff) << 8;
        *(u16 *)(page + ((i * PAGE + token) * 4 + lane % 16 / 4) * 16 + lane / 16 * 8 + lane % 4 * 2) = (u16)two;
        // A key that is not a number has no largest value: its scale says so.
        bool number = v.x == v.x && v.y == v.y;
        u32 odd = __ballot_sync(~0u, !number) >> (lane & 16) & 0xffff;
        if (lane % 16 == 0) *(u16 *)(page + K_CODES + ((2 * i + lane / 16) * PAGE + token) * 2) = odd ? 0x7e00 : (u16)scale;
    }
#endif
}

__device__ __forceinline__ void store_value(const Head &h, u8 *page, int token) {
    int lane = lane_id();
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
        float2 v = h.v[i];
        int d = 64 * i + 2 * lane;
#if V_TYPE == F16
        u32 two = pack_f16(within_f16(v.x), within_f16(v.y));
        *(u16 *)(page + (d * PAGE + token) * 2) = (u16)two;
        *(u16 *)(page + ((d + 1) * PAGE + token) * 2) = (u16)(two >> 16);
#else
        bool number = v.x == v.x && v.y == v.y;
        u32 odd = __ballot_sync(~0u, !number) >> (lane & 16) & 0xffff;
#if V_TYPE == Q8
        u32 scale = pack_f16(fminf(half_warp_max(fmaxf(fabsf(v.x), fabsf(v.y))) * (1.0f / 127.0f), V_SCALE_MAX), 0);
        float s = low_half(scale);
        u8 *at = page + ((d / 16 * 8 + d % 8) * 4 + token / 8) * 16 + d / 8 % 2 * 8 + token % 8;
        at[0] = (u8)q8_code(v.x, s), at[64] = (u8)q8_code(v.y, s);
#else
        // The value of the largest magnitude is code 0, as in Q4_0.
        float top = half_warp_max(fmaxf(v.x, v.y)), bottom = half_warp_max(fmaxf(-v.x, -v.y));
        float most = bottom > top ? bottom : -top;
        u32 scale = pack_f16(fmaxf(fminf(most * 0.125f, V_SCALE_MAX), -V_SCALE_MAX), 0);
        float s = low_half(scale);
        int x = s == 0.0f ? 8 : max(0, min(15, __float2int_rn(__fdiv_rn(v.x, s)) + 8));
        int y = s == 0.0f ? 8 : max(0, min(15, __float2int_rn(__fdiv_rn(v.y, s)) + 8));
        u32 other = __shfl_xor_sync(~0u, x | y << 4, 4);
        u8 *at = page + ((d / 16 * 8 + d % 8) * 4 + token / 8) * 8 + token % 8;
        if (lane % 8 < 4) at[0] = (u8)(x | (other & 15) << 4), at[32] = (u8)(y | (other >> 4) << 4);
#endif
        if (lane % 16 == 0) *(u16 *)(page + V_CODES + ((2 * i + lane / 16) * PAGE + token) * 2) = odd ? 0x7e00 : (u16)scale;
#endif
    }
}

__device__ __forceinline__ const float *query_of(const float *x, int head) { return x + head * 2 * D; }
__device__ __forceinline__ const float *key_of(const float *x, int kv_head) { return x + HEADS * 2 * D + kv_head * D; }
__device__ __forceinline__ const float *value_of(const float *x, int kv_head) { return x + HEADS * 2 * D + (HKV + kv_head) * D; }

// All bits where token 8t + 2i (low half) and the next (high half) of the page are at most `last`.
__device__ __forceinline__ uint4 token_mask(int last) {
    int first = lane_id() % 4 * 8;
    u32 m[4];
#pragma unroll
    for (int i = 0; i < 4; i++) m[i] = (first + 2 * i <= last ? 0xffffu : 0) | (first + 2 * i + 1 <= last ? 0xffff0000u : 0);
    return make_uint4(m[0], m[1], m[2], m[3]);
}

// ---- Copies from the cache to shared memory, ahead of their use ----

// By `threads` threads, of which this is `thread`; `bytes` is a multiple of 16.
__device__ __forceinline__ void copy_ahead(u8 *to, const u8 *from, int bytes, int thread, int threads) {
    u32 address = shared_address(to);
    for (int i = thread * 16; i < bytes; i += threads * 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address + i), "l"(from + i) : "memory");
}

#if __CUDA_ARCH__ >= 900
#define BULK 1
__device__ __forceinline__ void barrier_init(u64 *barrier) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barrier)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void barrier_expect(u64 *barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void barrier_wait(u64 *barrier, u32 parity) {
    asm volatile("{\n.reg .pred p;\nL: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra L;\n}" ::"r"(shared_address(barrier)), "r"(parity)
                 : "memory");
}
__device__ __forceinline__ void copy_bulk(u8 *to, const u8 *from, u32 bytes, u64 *barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address(to)), "l"(from),
                 "r"(bytes), "r"(shared_address(barrier))
                 : "memory");
}
// Our own stores to shared memory come before the copies that follow.
__device__ __forceinline__ void fence_copies() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
#else
#define BULK 0
__device__ __forceinline__ void fence_copies() {}
#endif

// ---- Decode ----
//
// One row a sequence. A work item is (row, key-value head, split): the row's pages are split at absolute places, `per_split` pages
// each, a number that depends on the row's position alone. So a row's bytes do not depend on its neighbours. The grid is fixed;
// blocks walk the list of items, which each finds from the positions. A round is ROUND pages, copied to shared memory whole, keys
// and values apart, so that one is on its way while the other is used. First each warp takes the scores of some tokens, then each
// takes a slice of D of all values: so no sums over warps are needed, and a lane has few of them.
// What is on its way before the wait for the in-projection is of earlier steps; the row's own key and value are put in their
// place in shared memory beside being written to the cache. Of several splits of a row, the block that is done last (a counter)
// adds them in their order. Where splits are many and every block has one item at most, so that all run at a time, the blocks of the
// first splits wait for the others and add those of a query head each: one multiprocessor alone would take as long to read them all as
// all took to make them.

#define WARPS 8
#define THREADS (WARPS * WARP)
#define ROWS_MAX THREADS
#define SPLITS_MAX 128
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
    u8 keys[ROUND * K_BYTES];
    u8 values[ROUND * V_BYTES];
    u8 q[D / 32 * Q_ROWS * 64];
    u8 p[ROUND * Q_ROWS * 64];
    float o[GQ * (D > SPLITS_MAX ? D : SPLITS_MAX)]; // while splits are added: their weights
    float fresh[2][D];                               // the row's own key, turned, and value
    float norms[2][D];
    double turns[ROTARY / 2 + 1];
    float tops[WARPS][16], sums[WARPS][16];
    u64 arrived[2];
    int ends[ROWS_MAX], slots[ROWS_MAX], positions[ROWS_MAX];
    int warp_ends[WARPS];
    int last;
};
static_assert(sizeof(Decode) == DECODE_BYTES, "attention.rs adds this up");

__device__ __forceinline__ void load_gates(float (&gates)[GATES], const float *x, int head) {
#pragma unroll
    for (int i = 0; i < GATES; i++) {
        int b = i * WARPS + threadIdx.x / WARP;
        if (b < GQ * D / 32) gates[i] = query_of(x, head * GQ + b / (D / 32))[D + b % (D / 32) * 32 + lane_id()];
    }
}

// o * sigmoid(gate) as int8. `o` is [GQ][D] in shared memory.
__device__ __forceinline__ void store_out(const Arguments &args, const float *o, const float (&gates)[GATES], int row, int head) {
    u64 at = (u64)row * OUT_STRIDE + head * GQ * D;
#pragma unroll
    for (int i = 0; i < GATES; i++) {
        int b = i * WARPS + threadIdx.x / WARP;
        if (b >= GQ * D / 32) continue;
        quantize_block(o[b * 32 + lane_id()] * sigmoid(gates[i]), args.codes + (at + b * 32) * PLANES, args.meta + (at / 32 + b) * PLANES);
    }
}

// What the splits of a query head count, by one warp. `base`: the row's first split; `weights`: [SPLITS_MAX] in shared memory, 0 past the last.
__device__ __forceinline__ void weigh(const Arguments &args, float *weights, u64 base, int n, int h) {
    int lane = lane_id();
    float2 of[SPLITS_MAX / WARP];
    float top = __int_as_float(0xff800000), sum = 0;
#pragma unroll
    for (int i = 0; i < SPLITS_MAX / WARP; i++) {
        int k = i * WARP + lane;
        of[i] = k < n ? fresh8(args.stats + (base + k) * GQ + h) : make_float2(__int_as_float(0xff800000), 0);
        top = fmaxf(top, of[i].x);
    }
    top = warp_max(top);
#pragma unroll
    for (int i = 0; i < SPLITS_MAX / WARP; i++) of[i].y *= exp2_fast(of[i].x - top), sum += of[i].y;
    float inverse = 1.0f / warp_sum(sum);
#pragma unroll
    for (int i = 0; i < SPLITS_MAX / WARP; i++) weights[i * WARP + lane] = of[i].y * inverse;
}

// One query head of a row from its splits to int8. The sums are those of `combine`.
__device__ __forceinline__ void add_head(const Arguments &args, float *o, const float *x, int row, int head, int n, int h) {
    int warp = threadIdx.x / WARP, d = threadIdx.x;
    u64 base = ((u64)row * HKV + head) * args.splits_max;
    float gate = d < D ? query_of(x, head * GQ + h)[D + d] : 0.0f;
    if (warp == 0) weigh(args, o, base, n, h);
    __syncthreads();
    if (d >= D) return;
    const u16 *from = args.partials + (base * GQ + h) * D + d;
    constexpr int BATCH = 32;
    float sum = 0;
#pragma unroll 1
    for (int first = 0; first < n; first += BATCH) {
        u32 part[BATCH];
#pragma unroll
        for (int k = 0; k < BATCH; k++) part[k] = fresh2(from + (u64)min(first + k, n - 1) * GQ * D);
#pragma unroll
        for (int k = 0; k < BATCH; k++) sum = __fmaf_rn(o[first + k], low_half(part[k]), sum);
    }
    u64 at = (u64)row * OUT_STRIDE + (head * GQ + h) * D + warp * 32;
    quantize_block(sum * sigmoid(gate), args.codes + at * PLANES, args.meta + at / 32 * PLANES);
}

// The last block of a row's splits adds them.
__device__ __forceinline__ void combine(const Arguments &args, float *o, int row, int head, int n) {
    u64 base = ((u64)row * HKV + head) * args.splits_max;
    for (int h = threadIdx.x / WARP; h < GQ; h += WARPS) weigh(args, o + h * SPLITS_MAX, base, n, h);
    __syncthreads();
    const int vectors = (GQ * D / 8 + THREADS - 1) / THREADS;
    float sum[vectors][8] = {};
#pragma unroll
    for (int j = 0; j < vectors; j++) {
        int v = j * THREADS + threadIdx.x;
        if (v >= GQ * D / 8) break;
        const float *weights = o + v / (D / 8) * SPLITS_MAX;
        const u16 *from = args.partials + base * GQ * D + v * 8;
        // All of a batch are under way together; those past the last split have a weight of 0.
        constexpr int BATCH = 16;
#pragma unroll 1
        for (int first = 0; first < n; first += BATCH) {
            uint4 part[BATCH];
#pragma unroll
            for (int k = 0; k < BATCH; k++) part[k] = fresh16(from + (u64)min(first + k, n - 1) * GQ * D);
#pragma unroll
            for (int k = 0; k < BATCH; k++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    float w = weights[first + k];
                    sum[j][2 * i] = __fmaf_rn(w, low_half(word(part[k], i)), sum[j][2 * i]);
                    sum[j][2 * i + 1] = __fmaf_rn(w, high_half(word(part[k], i)), sum[j][2 * i + 1]);
                }
        }
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < vectors; j++) {
        int v = j * THREADS + threadIdx.x;
        if (v >= GQ * D / 8) break;
#pragma unroll
        for (int i = 0; i < 8; i++) o[v * 8 + i] = sum[j][i];
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT) attention_decode(const Arguments args) {
    extern __shared__ __align__(128) u8 shared[];
    Decode &s = *(Decode *)shared;
    let_next_start();
    const int tid = threadIdx.x, lane = tid % WARP, warp = tid / WARP, g = lane / 4, t = lane % 4;

    // Rows, positions and pages are written before the step begins, weights long ago.
    int slot = tid < args.rows ? args.slots[tid] : -1, position = tid < args.rows ? max(args.positions[tid], 0) : 0;
    if (tid < D / 2) {
        ((float2 *)s.norms[0])[tid] = ((const float2 *)args.q_norm)[tid], ((float2 *)s.norms[1])[tid] = ((const float2 *)args.k_norm)[tid];
    }
    if (tid < ROTARY / 2) s.turns[tid] = args.turns[tid];
    if (GQ < Q_ROWS)
        for (int i = tid; i < D / 32 * Q_ROWS * 16; i += THREADS)
            if (i / 16 % Q_ROWS >= GQ) ((u32 *)s.q)[i] = 0;
#if BULK
    if (tid < 2) barrier_init(&s.arrived[tid]);
#endif
    int pages_of_row = position / PAGE + 1, per_of_row = per_split(pages_of_row);
    int end = slot < 0 ? 0 : (pages_of_row + per_of_row - 1) / per_of_row;
#pragma unroll
    for (int step = 1; step < WARP; step *= 2) {
        int before = __shfl_up_sync(~0u, end, step);
        if (lane >= step) end += before;
    }
    if (lane == WARP - 1) s.warp_ends[warp] = end;
    s.slots[tid] = slot, s.positions[tid] = position;
    __syncthreads();
    for (int w = 0; w < warp; w++) end += s.warp_ends[w];
    s.ends[tid] = end;
    __syncthreads();
    const int items = s.ends[ROWS_MAX - 1] * HKV;
    bool waiting = true;
    u32 round = 0; // of this block, all items: which of the barriers' two phases

    for (int item = blockIdx.x; item < items; item += gridDim.x) {
        const int head = item % HKV, index = item / HKV;
        // The barrier also ends the use of shared memory by the item before.
        fence_copies();
        const int row = __syncthreads_count(s.ends[tid] <= index);
        slot = s.slots[row], position = s.positions[row];
        const int pages = position / PAGE + 1, per = per_split(pages), splits = (pages + per - 1) / per;
        const int split = index - (row ? s.ends[row - 1] : 0);
        const int first_page = split * per, page_end = min(first_page + per, pages);
        const bool owns = split == splits - 1;
        const int *table = args.page_table + (u64)slot * args.pages_max;

        // Pages from `base` on to shared memory, `which` 0 the keys, 1 the values. Each has a warp that sees to it.
        auto read = [&](int which, int base) {
            const int left = min(page_end - base, ROUND), bytes = which ? V_BYTES : K_BYTES;
            const u8 *from = (which ? args.v_cache : args.k_cache) + (u64)head * bytes;
            u8 *to = which ? s.values : s.keys;
#if BULK
            if (warp == WARPS - 2 + which && left > 0) {
                if (lane == 0) barrier_expect(&s.arrived[which], left * bytes);
                __syncwarp();
                if (lane < left) copy_bulk(to + lane * bytes, from + (u64)table[base + lane] * HKV * bytes, bytes, &s.arrived[which]);
            }
#else
            for (int p = 0; p < left; p++) copy_ahead(to + p * bytes, from + (u64)table[base + p] * HKV * bytes, bytes, tid, THREADS);
            // A group even where it is empty, so that their number tells which has arrived.
            copies_end();
#endif
        };
        auto arrive = [&](int which) {
#if BULK
            barrier_wait(&s.arrived[which], round & 1);
#else
            // One group is younger than that which is waited for.
            copies_wait<1>();
            if (which == 0) __syncthreads();
#endif
        };
        read(0, first_page);
        read(1, first_page);

        // Queries; and the new key and value.
        if (waiting) wait_for_inputs(), waiting = false;
        const float *x = args.x + (u64)row * X_STRIDE;
        Head heads[TASKS];
        float gates[GATES];
#pragma unroll
        for (int i = 0; i < TASKS; i++) {
            int task = i * WARPS + warp;
            const float *from = task < GQ ? query_of(x, head * GQ + task) : task == GQ ? key_of(x, head) : value_of(x, head);
            if (task < (owns ? GQ + 2 : GQ)) load_head(heads[i], from);
        }
        if (splits == 1) load_gates(gates, x, head);
        Turn turn = turn_of(s.turns, position);
#pragma unroll
        for (int i = 0; i < TASKS; i++) {
            int task = i * WARPS + warp;
            if (task >= (owns ? GQ + 2 : GQ)) continue;
            if (task <= GQ) {
                norm_head(heads[i], s.norms[task == GQ], args.eps);
                rotate_head(heads[i], turn);
            }
            if (task < GQ) {
                finish_query(heads[i]);
                store_query<Q_ROWS>(heads[i], s.q, task);
            } else {
#pragma unroll
                for (int j = 0; j < PAIRS; j++) *(float2 *)&s.fresh[task - GQ][64 * j + 2 * lane] = heads[i].v[j];
                u64 page = (u64)table[pages - 1] * HKV + head;
                if (task == GQ) store_key(heads[i], args.k_cache + page * K_BYTES, position % PAGE);
                else store_value(heads[i], args.v_cache + page * V_BYTES, position % PAGE);
            }
        }
        __syncthreads();

        const float none = __int_as_float(0xff800000);
        float top[2] = {none, none}, sum[2] = {0, 0};
        float o[UNITS_A_WARP][2][4] = {};
        const int first_unit = warp * UNITS_A_WARP;
        for (int base = first_page; base < page_end; base += ROUND, round++) {
            const int left = min(page_end - base, ROUND), own = pages - 1 - base;
            const bool more = base + ROUND < page_end, last = owns && !more;
            // Scores of this warp's tokens: tiles first_tile on of page `page`.
            const int page = warp * TILES_A_WARP / 4, first_tile = warp * TILES_A_WARP % 4;
            arrive(0);
            if (last) {
                if (warp == 0) {
                    Head h;
                    load_head(h, s.fresh[0]);
                    store_key(h, s.keys + own * K_BYTES, position % PAGE);
                }
                __syncthreads();
            }
            float score[TILES_A_WARP][4] = {};
            const u8 *keys = s.keys + page * K_BYTES;
            if (page < left) {
#pragma unroll
                for (int j = 0; j < D / 32; j++) {
                    const u8 *q = s.q + j * Q_ROWS * 64 + lane * 16;
                    uint4 low = *(const uint4 *)q, high = GQ > 8 ? *(const uint4 *)(q + 8 * 64) : make_uint4(0, 0, 0, 0);
#pragma unroll
                    for (int i = 0; i < TILES_A_WARP; i++) {
                        const int tile = first_tile + i, token = g / 2 * 8 + tile * 2 + g % 2;
#if K_TYPE == F16
                        uint4 k = *(const uint4 *)(keys + (j * PAGE + token) * 64 + t * 16);
                        mma_eight(score[i], low, high, k.x, k.y, k.z, k.w);
#else
                        uint2 codes = *(const uint2 *)(keys + (j / 2 * PAGE + token) * 64 + t * 16 + j % 2 * 8);
                        u32 scales = *(const u32 *)(keys + K_CODES + j * 64 + t * 16 + tile * 4), k[4];
                        q8_to_f16(codes.x, k[0], k[1]);
                        q8_to_f16(codes.y, k[2], k[3]);
                        float c[4] = {}, s0 = low_half(scales), s1 = high_half(scales);
                        mma_eight(c, low, high, k[0], k[1], k[2], k[3]);
                        score[i][0] = __fmaf_rn(c[0], s0, score[i][0]), score[i][1] = __fmaf_rn(c[1], s1, score[i][1]);
                        if (GQ > 8) score[i][2] = __fmaf_rn(c[2], s0, score[i][2]), score[i][3] = __fmaf_rn(c[3], s1, score[i][3]);
#endif
                    }
                }
            }
            float most[2] = {none, none};
#pragma unroll
            for (int i = 0; i < TILES_A_WARP; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    // Within the last page, what is not written yet does not count.
                    bool seen = page < left && (page != own || t * 8 + 2 * (first_tile + i) + j % 2 <= position % PAGE);
                    if (!seen) score[i][j] = none;
                    most[j / 2] = fmaxf(most[j / 2], score[i][j]);
                }
#pragma unroll
            for (int r = 0; r < 2; r++) {
                if (r && GQ <= 8) break;
                most[r] = fmaxf(most[r], __shfl_xor_sync(~0u, most[r], 1));
                most[r] = fmaxf(most[r], __shfl_xor_sync(~0u, most[r], 2));
                if (t == 0) s.tops[warp][g + 8 * r] = most[r];
            }
            __syncthreads();
            read(0, base + ROUND);
            float keep[2];
#pragma unroll
            for (int r = 0; r < 2; r++) {
                if (r && GQ <= 8) break;
                float before = top[r];
#pragma unroll
                for (int w = 0; w < WARPS; w++) top[r] = fmaxf(top[r], s.tops[w][g + 8 * r]);
                keep[r] = exp2_fast(before - top[r]);
                float weights = 0;
#pragma unroll
                for (int i = 0; i < TILES_A_WARP; i++) {
                    float a = exp2_fast(score[i][2 * r] - top[r]), b = exp2_fast(score[i][2 * r + 1] - top[r]);
                    weights += a + b;
                    *(u32 *)(s.p + (page * Q_ROWS + g + 8 * r) * 64 + t * 16 + (first_tile + i) * 4) = pack_f16(a, b);
                }
                weights += __shfl_xor_sync(~0u, weights, 1);
                weights += __shfl_xor_sync(~0u, weights, 2);
                if (t == 0) s.sums[warp][g + 8 * r] = weights;
            }
            arrive(1);
            if (last && warp == 1) {
                Head h;
                load_head(h, s.fresh[1]);
                store_value(h, s.values + own * V_BYTES, position % PAGE);
            }
            __syncthreads();
#pragma unroll
            for (int r = 0; r < 2; r++) {
                if (r && GQ <= 8) break;
                sum[r] *= keep[r];
#pragma unroll
                for (int w = 0; w < WARPS; w++) sum[r] += s.sums[w][g + 8 * r];
            }
#pragma unroll
            for (int u = 0; u < UNITS_A_WARP; u++)
#pragma unroll
                for (int j = 0; j < 8; j++)
                    if (GQ > 8 || j % 4 < 2) o[u][j / 4][j % 4] *= keep[j % 4 / 2];
            if (first_unit < UNITS) {
#pragma unroll
                for (int p = 0; p < ROUND; p++) {
                    if (p >= left) break;
                    const u8 *weights = s.p + p * Q_ROWS * 64 + lane * 16, *values = s.values + p * V_BYTES;
                    uint4 low = *(const uint4 *)weights, high = GQ > 8 ? *(const uint4 *)(weights + 8 * 64) : make_uint4(0, 0, 0, 0);
#if V_TYPE != F16
                    uint4 d = *(const uint4 *)(values + V_CODES + first_unit / 2 * 64 + t * 16);
                    // A weight of zero does not make up for what is no number in a place not written yet.
                    if (p == own) d = masked(d, token_mask(position % PAGE));
                    d.x = mul_f16x2(d.x, V_LIFT_F16X2), d.y = mul_f16x2(d.y, V_LIFT_F16X2);
                    d.z = mul_f16x2(d.z, V_LIFT_F16X2), d.w = mul_f16x2(d.w, V_LIFT_F16X2);
                    low = make_uint4(mul_f16x2(low.x, d.x), mul_f16x2(low.y, d.y), mul_f16x2(low.z, d.z), mul_f16x2(low.w, d.w));
                    if (GQ > 8)
                        high = make_uint4(mul_f16x2(high.x, d.x), mul_f16x2(high.y, d.y), mul_f16x2(high.z, d.z), mul_f16x2(high.w, d.w));
#endif
#pragma unroll
                    for (int u = 0; u < UNITS_A_WARP; u++) {
                        const int unit = first_unit + u;
#if V_TYPE == F16
#pragma unroll
                        for (int half = 0; half < 2; half++) {
                            uint4 v = *(const uint4 *)(values + (unit * 16 + half * 8) * 64 + lane * 16);
                            if (p == own) v = masked(v, token_mask(position % PAGE));
                            mma_eight(o[u][half], low, high, v.x, v.y, v.z, v.w);
                        }
#else
#if V_TYPE == Q8
                        uint4 v = *(const uint4 *)(values + unit * 512 + lane * 16);
#else
                        uint2 v = *(const uint2 *)(values + unit * 256 + lane * 8);
#endif
#pragma unroll
                        for (int half = 0; half < 2; half++) {
                            u32 b[4];
#if V_TYPE == Q8
                            q8_to_f16(half ? v.z : v.x, b[0], b[1]);
                            q8_to_f16(half ? v.w : v.y, b[2], b[3]);
#else
                            q4_to_f16(v.x >> 4 * half, b[0], b[1]);
                            q4_to_f16(v.y >> 4 * half, b[2], b[3]);
#endif
                            mma_eight(o[u][half], low, high, b[0], b[1], b[2], b[3]);
                        }
#endif
                    }
                }
            }
            if (more) {
                __syncthreads();
                read(1, base + ROUND);
            }
        }

        // Sums to shared memory, or to where the block that is last finds them.
        const u64 part = (((u64)row * HKV + head) * args.splits_max + split) * GQ;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int h = g + 8 * r;
            if (h >= GQ) continue;
            float inverse = 1.0f / sum[r] * (V_TYPE == F16 ? 1.0f : 1.0f / V_LIFT);
            if (first_unit < UNITS) {
#pragma unroll
                for (int u = 0; u < UNITS_A_WARP; u++)
#pragma unroll
                    for (int half = 0; half < 2; half++) {
                        int d = (first_unit + u) * 16 + half * 8 + 2 * t;
                        float a = o[u][half][2 * r] * inverse, b = o[u][half][2 * r + 1] * inverse;
                        if (splits == 1) *(float2 *)(s.o + h * D + d) = make_float2(a, b);
                        else *(u32 *)(args.partials + (part + h) * D + d) = pack_f16(a, b);
                    }
            }
            if (splits > 1 && warp == 0 && t == 0) args.stats[part + h] = make_float2(top[r], sum[r]);
        }
        if (splits > 1) {
            const bool shared_out = splits >= GQ && items <= gridDim.x;
            if (!shared_out) load_gates(gates, x, head);
            __threadfence();
            __syncthreads();
            if (tid == 0) {
                int *counter = args.counters + (row * HKV + head) * 2;
                int before = atomicAdd(counter, 1);
                s.last = shared_out ? split < GQ : before == splits - 1;
                if (shared_out && s.last) {
                    while (*(volatile int *)counter < splits) {}
                    // Whoever is the last to know clears both.
                    if (atomicAdd(counter + 1, 1) == GQ - 1) counter[0] = counter[1] = 0;
                } else if (s.last) {
                    *counter = 0;
                }
                __threadfence();
            }
            __syncthreads();
            if (!s.last) continue;
            if (shared_out) {
                add_head(args, s.o, x, row, head, splits, split);
                continue;
            }
            combine(args, s.o, row, head, splits);
        }
        __syncthreads();
        store_out(args, s.o, gates, row, head);
    }
    // A kernel that ends before the one ahead of it would let the next one through its wait too soon.
    if (waiting) wait_for_inputs();
}

// ---- Prefill ----

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
        rotate_head(h, turn_of(args.turns, position));
        store_key(h, args.k_cache + page * K_BYTES, position % PAGE);
    } else {
        load_head(h, value_of(x, head));
        store_value(h, args.v_cache + page * V_BYTES, position % PAGE);
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
#define BOTH_F16 (K_TYPE == F16 && V_TYPE == F16)

#if K_TYPE == Q8
// A page as it is stored to the page that f16 would be.
__device__ __forceinline__ void expand_keys(u8 *to, const u8 *from) {
    for (int n = threadIdx.x; n < K_CODES / 16; n += P_THREADS) {
        uint4 codes = *(const uint4 *)(from + n * 16);
        int t = n % 4, token = n / 4 % PAGE, pair = n / 4 / PAGE;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            u32 d = *(const u16 *)(from + K_CODES + ((2 * pair + half) * PAGE + token) * 2), k[4];
            d |= d << 16;
            q8_to_f16(half ? codes.z : codes.x, k[0], k[1]);
            q8_to_f16(half ? codes.w : codes.y, k[2], k[3]);
            *(uint4 *)(to + ((2 * pair + half) * PAGE + token) * 64 + t * 16) =
                make_uint4(mul_f16x2(k[0], d), mul_f16x2(k[1], d), mul_f16x2(k[2], d), mul_f16x2(k[3], d));
        }
    }
}
#endif
#if V_TYPE != F16
__device__ __forceinline__ void expand_values(u8 *to, const u8 *from) {
    for (int n = threadIdx.x; n < D / 16 * WARP; n += P_THREADS) {
        int t = n % 4, g = n / 4 % 8, unit = n / WARP;
        uint4 d = *(const uint4 *)(from + V_CODES + unit / 2 * 64 + t * 16);
#if V_TYPE == Q8
        uint4 codes = *(const uint4 *)(from + n * 16);
#else
        uint2 codes = *(const uint2 *)(from + n * 8);
#endif
#pragma unroll
        for (int half = 0; half < 2; half++) {
            u32 v[4];
#if V_TYPE == Q8
            q8_to_f16(half ? codes.z : codes.x, v[0], v[1]);
            q8_to_f16(half ? codes.w : codes.y, v[2], v[3]);
#else
            q4_to_f16(codes.x >> 4 * half, v[0], v[1]);
            q4_to_f16(codes.y >> 4 * half, v[2], v[3]);
#endif
            *(uint4 *)(to + (unit * 16 + half * 8 + g) * 64 + t * 16) =
                make_uint4(mul_f16x2(v[0], d.x), mul_f16x2(v[1], d.y), mul_f16x2(v[2], d.z), mul_f16x2(v[3], d.w));
        }
    }
}
#endif

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

extern "C" __global__ void __launch_bounds__(P_THREADS, 2) attention_prefill(const Arguments args) {
    extern __shared__ __align__(128) u8 shared[];
    u8 *q = shared, *staged = shared + Q_TILE;
    const int tid = threadIdx.x, lane = tid % WARP, warp = tid / WARP, g = lane / 4, t = lane % 4, head = blockIdx.y;
    let_next_start();
    wait_for_inputs();
    // The last tiles have the most to do.
    const int2 tile = args.tiles[gridDim.x - 1 - blockIdx.x];
    const int first = tile.x, tokens = tile.y;
    if (tokens <= 0 || args.slots[first] < 0) return;
    const int start = args.positions[first], last = start + tokens - 1, pages = last / PAGE + 1;
    const int *table = args.page_table + (u64)args.slots[first] * args.pages_max;

    auto read_page = [&](int p) {
        u64 page = (u64)table[p] * HKV + head;
#if BOTH_F16
        u8 *to = staged + p % 2 * 2 * F16_PAGE;
        copy_ahead(to, args.k_cache + page * K_BYTES, K_BYTES, tid, P_THREADS);
        copy_ahead(to + F16_PAGE, args.v_cache + page * V_BYTES, V_BYTES, tid, P_THREADS);
#else
        copy_ahead(staged + 2 * F16_PAGE, args.k_cache + page * K_BYTES, K_BYTES, tid, P_THREADS);
        copy_ahead(staged + 2 * F16_PAGE + K_BYTES, args.v_cache + page * V_BYTES, V_BYTES, tid, P_THREADS);
#endif
        copies_end();
    };
    read_page(0);
    // Four rows at a time are on their way.
    for (int at = warp * 16; at < warp * 16 + 16; at += 4) {
        Head h[4] = {};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int token = (at + i) / GQ;
            if (token < tokens && token < TOKENS) load_head(h[i], query_of(args.x + (u64)(first + token) * X_STRIDE, head * GQ + (at + i) % GQ));
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            norm_head(h[i], args.q_norm, args.eps);
            rotate_head(h[i], turn_of(args.turns, start + (at + i) / GQ));
            finish_query(h[i]);
            store_query<P_ROWS>(h[i], q, at + i);
        }
    }

    const float none = __int_as_float(0xff800000);
    float o[D / 8][4] = {}, top[2] = {none, none}, sum[2] = {0, 0};
    const int token_of[2] = {(warp * 16 + g) / GQ, (warp * 16 + g + 8) / GQ};
    for (int p = 0; p < pages; p++) {
#if BOTH_F16
        if (p + 1 < pages) {
            read_page(p + 1);
            copies_wait<1>();
        } else {
            copies_wait<0>();
        }
        __syncthreads();
        u8 *keys = staged + p % 2 * 2 * F16_PAGE, *values = keys + F16_PAGE;
#else
        copies_wait<0>();
        __syncthreads();
        u8 *keys = staged, *values = keys + F16_PAGE, *raw = staged + 2 * F16_PAGE;
#if K_TYPE == F16
        for (int i = tid; i < F16_PAGE / 16; i += P_THREADS) ((uint4 *)keys)[i] = ((const uint4 *)raw)[i];
#else
        expand_keys(keys, raw);
#endif
#if V_TYPE == F16
        for (int i = tid; i < F16_PAGE / 16; i += P_THREADS) ((uint4 *)values)[i] = ((const uint4 *)(raw + K_BYTES))[i];
#else
        expand_values(values, raw + K_BYTES);
#endif
        __syncthreads();
        if (p + 1 < pages) read_page(p + 1);
#endif
        if (p == pages - 1) {
            // A weight of zero does not make up for what is no number in a place not written yet.
            for (int i = tid; i < D * PAGE; i += P_THREADS)
                if (i % PAGE > last % PAGE) ((u16 *)values)[i] = 0;
            __syncthreads();
        }
        float score[4][4] = {};
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
        if (p * PAGE + PAGE - 1 > start) {
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    if (p * PAGE + t * 8 + 2 * i + j % 2 > start + token_of[j / 2]) score[i][j] = none;
        }
        float keep[2];
        bool moved = false;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float most = top[r];
#pragma unroll
            for (int i = 0; i < 4; i++) most = fmaxf(most, fmaxf(score[i][2 * r], score[i][2 * r + 1]));
            most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
            most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
            moved |= most != top[r];
            keep[r] = exp2_fast(top[r] - most);
            top[r] = most;
        }
        if (__any_sync(~0u, moved)) {
#pragma unroll
            for (int n = 0; n < D / 8; n++)
#pragma unroll
                for (int j = 0; j < 4; j++) o[n][j] *= keep[j / 2];
            sum[0] *= keep[0], sum[1] *= keep[1];
        }
        u32 weights[2][4];
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                float a = exp2_fast(score[i][2 * r] - top[r]), b = exp2_fast(score[i][2 * r + 1] - top[r]);
                sum[r] += a + b;
                weights[r][i] = pack_f16(a, b);
            }
        uint4 low = make_uint4(weights[0][0], weights[0][1], weights[0][2], weights[0][3]);
        uint4 high = make_uint4(weights[1][0], weights[1][1], weights[1][2], weights[1][3]);
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
            uint4 v = *(const uint4 *)(values + n * 8 * 64 + lane * 16);
            mma_eight(o[n], low, high, v.x, v.y, v.z, v.w);
        }
        __syncthreads();
    }

#pragma unroll
    for (int r = 0; r < 2; r++) {
        sum[r] += __shfl_xor_sync(~0u, sum[r], 1);
        sum[r] += __shfl_xor_sync(~0u, sum[r], 2);
        float inverse = 1.0f / sum[r];
        const int h = (warp * 16 + g + 8 * r) % GQ, token = token_of[r];
        const bool store = token < tokens && token < TOKENS;
        const u64 row = first + (store ? token : 0);
        const float *gate = query_of(args.x + row * X_STRIDE, head * GQ + h) + D;
        const u64 at = row * OUT_STRIDE + (head * GQ + h) * D;
#pragma unroll
        for (int b = 0; b < D / 32; b++) {
            float v[8];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float2 of = *(const float2 *)(gate + b * 32 + i * 8 + 2 * t);
                v[2 * i] = o[b * 4 + i][2 * r] * inverse * sigmoid(of.x);
                v[2 * i + 1] = o[b * 4 + i][2 * r + 1] * inverse * sigmoid(of.y);
            }
            quantize_quarter(v, args.codes + (at + b * 32) * PLANES, args.meta + (at / 32 + b) * PLANES, store);
        }
    }
}
