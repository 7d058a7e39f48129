// A few activation rows (columns of a product) in shared memory, and a warp's share of a tile times them.
//
// NC columns at a time: 1, or a multiple of 8, of which the last may be missing (nothing is read for them; what comes out is to be
// ignored). A slot is 128 inputs. In shared memory a lane finds the codes of two blocks of a column, or of a block's two planes, in 16
// bytes that lie together, {pair of blocks}[t]{quads t and t + 4 of the first, of the second}, and {d, sum} of its two columns in 16 bytes.
// Columns are 64 bytes off a multiple of 128, so that a warp's reads meet no bank twice.
#pragma once
#include "common/cluster.cuh"
#include "weights/layout.cuh"

// Codes of a slot.
#define SLOT_CODES (128 * PLANES)

template <int NC, int SLOTS> struct Columns {
    static constexpr int STRIDE = SLOTS * SLOT_CODES + (NC > 1 ? 64 : 0);
    static constexpr int META_AT = NC * STRIDE;
    // Blocks of 32 codes of a slot.
    static constexpr int BLOCKS = 4 * PLANES;
    static constexpr int BYTES = META_AT + SLOTS * BLOCKS * NC * 8;

    // A slot is filled in pieces of 16 bytes: those of codes, then those of {d, sum}.
    static constexpr int CODE_PIECES = 2 * BLOCKS, PIECES = CODE_PIECES + BLOCKS / 2;

    // Piece q of column c into a slot.
    static __device__ __forceinline__ void put(u8 *memory, int c, int slot, int q, uint4 v) {
        if (q < CODE_PIECES) {
            u8 *to = memory + c * STRIDE + slot * SLOT_CODES + q / 4 * 64 + q % 2 * 32 + q / 2 % 2 * 8;
            *(uint2 *)to = make_uint2(v.x, v.y);
            *(uint2 *)(to + 16) = make_uint2(v.z, v.w);
        } else {
            uint2 *to = (uint2 *)(memory + META_AT) + (slot * BLOCKS + (q - CODE_PIECES) * 2) * NC + c;
            to[0] = make_uint2(v.x, v.y);
            to[NC] = make_uint2(v.z, v.w);
        }
    }

    // By `threads` threads, of which this is number `thread`: columns 0..count of rows of `cols` inputs, one after another. Slot s
    // takes unit `unit_of(s)`, none if that is negative. A barrier among the threads must follow. Several pieces of a thread are under
    // way at a time.
    template <class F>
    static __device__ __forceinline__ void
    stage(u8 *memory, const i8 *codes, const float2 *meta, int cols, int count, int thread, int threads, F unit_of) {
        constexpr int BATCH = 3;
        for (int base = thread; base < count * SLOTS * PIECES; base += BATCH * threads) {
            uint4 v[BATCH];
#pragma unroll
            for (int pass = 0; pass < 2; pass++) {
#pragma unroll
                for (int b = 0; b < BATCH; b++) {
                    int i = base + b * threads, q = i % PIECES, slot = i / PIECES % SLOTS, c = NC == 1 ? 0 : i / PIECES / SLOTS;
                    int unit = i < count * SLOTS * PIECES ? unit_of(slot) : -1;
                    if (unit < 0) continue;
                    const u8 *of_codes = (const u8 *)codes + (u64)c * (cols * PLANES) + unit * SLOT_CODES + q * 16;
                    const u8 *of_meta = (const u8 *)(meta + (u64)c * (cols / 32 * PLANES) + unit * BLOCKS) + (q - CODE_PIECES) * 16;
                    if (pass == 0) v[b] = *(const uint4 *)(q < CODE_PIECES ? of_codes : of_meta);
                    else put(memory, c, slot, q, v[b]);
                }
            }
        }
    }

    // One unit times all columns.
    template <class W>
    static __device__ __forceinline__ void
    multiply(float (&acc)[(NC + 7) / 8][4], const typename W::Unit &w, const u8 *memory, int slot, const u32 *grid) {
        constexpr int NT = (NC + 7) / 8;
        int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
        const u8 *codes = memory + (NC == 1 ? 0 : g * STRIDE) + slot * SLOT_CODES + t * 16;
        const float2 *meta = (const float2 *)(memory + META_AT) + slot * BLOCKS * NC + (NC == 1 ? 0 : 2 * t);
#pragma unroll
        for (int pair = 0; pair < 2 * PLANES; pair++) {
            uint4 x[NT];
#pragma unroll
            for (int n = 0; n < NT; n++) x[n] = *(const uint4 *)(codes + n * 8 * STRIDE + pair * 64);
#pragma unroll
            for (int half = 0; half < 2; half++) {
                int b = pair * 2 + half;
                // With two planes the compiler finds that both halves want the same.
                typename W::Operand a = W::expand(w, b / PLANES, grid);
                typename W::Scale s = W::scale_of(w, b / PLANES);
#pragma unroll
                for (int n = 0; n < NT; n++) {
                    uint2 of_block = half ? make_uint2(x[n].z, x[n].w) : make_uint2(x[n].x, x[n].y);
                    if constexpr (NC == 1) {
                        float2 m[2] = {meta[b], meta[b]};
                        W::template multiply<2>(acc[n], a, s, of_block, m);
                    } else {
                        float4 both = *(const float4 *)(meta + b * NC + n * 8);
                        float2 m[2] = {make_float2(both.x, both.y), make_float2(both.z, both.w)};
                        W::multiply(acc[n], a, s, of_block, m);
                    }
                }
            }
        }
        if constexpr (W::HAS_MINIMA) {
            const typename W::Minima of = W::minima_of(w);
            const float2 *own = (const float2 *)(memory + META_AT) + (slot * BLOCKS + t * PLANES) * NC + (NC == 1 ? 0 : g);
#pragma unroll
            for (int n = 0; n < NT; n++) W::template subtract<NC == 1 ? 2 : 1>(acc[n], of, in_two(scaled_sum(own + n * 8, NC)));
        }
    }
};

// What a warp does of a tile: units begin..end in order, LEAD of them in registers ahead.
template <class W, int LEAD> struct Share {
    typename W::Unit ahead[LEAD];
    const u8 *tile;
    int begin, end;

    // Reads weights only.
    __device__ __forceinline__ void start(const u8 *of_tile, int first, int past) {
        tile = of_tile, begin = first, end = past;
#pragma unroll
        for (int d = 0; d < LEAD; d++)
            if (begin + d < end) W::load(ahead[d], tile, begin + d);
    }

    // Units base..base + TURN of the share, which lie in the slots from `slot` on. TURN is a multiple of LEAD or all that are left.
    template <int TURN, int NC, int SLOTS>
    __device__ __forceinline__ void multiply(float (&acc)[(NC + 7) / 8][4], const u8 *memory, int slot, int base, const u32 *grid) {
        for (int u = 0; u < TURN; u += LEAD) {
#pragma unroll
            for (int d = 0; d < LEAD; d++) {
                int unit = begin + base + u + d;
                if (u + d >= TURN || unit >= end) break;
                Columns<NC, SLOTS>::template multiply<W>(acc, ahead[d], memory, slot + u + d, grid);
                if (unit + LEAD < end) W::load(ahead[d], tile, unit + LEAD);
            }
        }
    }
};

// What a block of N_WARPS warps does of the tiles of a cluster: each tile is shared by SPLIT warps, of which warp i takes the units
// [i, i + 1) * UNITS / SPLIT. Columns of TURN units of each warp are in shared memory at a time; more are done in turns, in the same order.
template <class W, int NC, int SPLIT, int N_WARPS, int LEAD, int TURN> struct Part {
    static constexpr int PARTS = SPLIT < N_WARPS ? SPLIT : N_WARPS;
    static constexpr int MOST = (W::UNITS + SPLIT - 1) / SPLIT;
    static_assert(TURN == MOST || TURN % LEAD == 0 || TURN < LEAD, "units ahead are a whole turn's");
    static constexpr int AHEAD = TURN < LEAD ? TURN : LEAD;
    using C = Columns<NC, PARTS * TURN>;
    Share<W, AHEAD> share;

    // `number`: of the warp in the cluster. Reads weights only.
    __device__ __forceinline__ void start(const u8 *tile, int number) {
        int part = number % SPLIT;
        share.start(tile, part * W::UNITS / SPLIT, (part + 1) * W::UNITS / SPLIT);
    }

    // All threads of the block come here. `memory`: C::BYTES. `meanwhile` is called once, before a barrier.
    template <class F>
    __device__ __forceinline__ void
    multiply(float (&acc)[(NC + 7) / 8][4], u8 *memory, const i8 *codes, const float2 *meta, int count, int number, const u32 *grid, F meanwhile) {
        int warp = threadIdx.x / WARP, first = (number - warp) % SPLIT;
        for (int base = 0; base < MOST; base += TURN) {
            if (base > 0) __syncthreads();
            C::stage(memory, codes, meta, W::UNITS * 128, count, threadIdx.x, N_WARPS * WARP, [=](int slot) {
                int part = first + slot / TURN, unit = part * W::UNITS / SPLIT + base + slot % TURN;
                return unit < (part + 1) * W::UNITS / SPLIT ? unit : -1;
            });
            if (base == 0) meanwhile();
            __syncthreads();
            share.template multiply<TURN, NC, PARTS * TURN>(acc, memory, warp % PARTS * TURN, base, grid);
        }
    }
};

// row_factor in two steps, so that nothing waits for what is read. The sum is the same.
template <int BLOCKS> struct RowFactor {
    float squares[(BLOCKS + WARP - 1) / WARP];

    __device__ __forceinline__ void read(const float *of_row) {
#pragma unroll
        for (int i = 0; i < (BLOCKS + WARP - 1) / WARP; i++) {
            int block = i * WARP + threadIdx.x % WARP;
            squares[i] = block < BLOCKS ? of_row[block] : 0.0f;
        }
    }
    __device__ __forceinline__ float factor(float eps) const {
        float sum = 0;
#pragma unroll
        for (int i = 0; i < (BLOCKS + WARP - 1) / WARP; i++) sum += squares[i];
        return __frcp_rn(__fsqrt_rn(__fmaf_rn(warp_sum(sum), 1.0f / (32 * BLOCKS), eps)));
    }
};

// Factors of `count` rows to `norms`, by N_WARPS warps: the first of each warp read early, the others when it is their turn. Without
// BLOCKS they are 1.
template <int BLOCKS, int N_WARPS> struct Norms {
    RowFactor<BLOCKS> first;

    __device__ __forceinline__ void read(const float *squares, int count) {
        int warp = threadIdx.x / WARP;
        if (warp < count) first.read(squares + (u64)warp * BLOCKS);
    }
    __device__ __forceinline__ void put(float *norms, const float *squares, int count, float eps, float times) {
        for (int c = threadIdx.x / WARP; c < count; c += N_WARPS) {
            if (c >= N_WARPS) first.read(squares + (u64)c * BLOCKS);
            float factor = first.factor(eps);
            if (threadIdx.x % WARP == 0) norms[c] = times * factor;
        }
    }
};
template <int N_WARPS> struct Norms<0, N_WARPS> {
    __device__ __forceinline__ void read(const float *, int) {}
    __device__ __forceinline__ void put(float *norms, const float *, int count, float, float times) {
        if (threadIdx.x < count) norms[threadIdx.x] = times;
    }
};

// A warp's sums to where block 0 of the cluster has `sums`, [NC][16].
template <int NC> __device__ __forceinline__ void put_sums(float *sums, const float (&acc)[(NC + 7) / 8][4]) {
    int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    if constexpr (NC == 1) {
        if (t != 0) return;
        store_first(sums + g, acc[0][0]);
        store_first(sums + g + 8, acc[0][2]);
    } else {
#pragma unroll
        for (int n = 0; n < NC / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) store_first(sums + (n * 8 + 2 * t + i % 2) * 16 + g + i / 2 * 8, acc[n][i]);
    }
}
// Sum of output r of a tile for column c over the SPLIT warps that share it: neighbours first, then neighbouring pairs, and so on, which
// `wide` can do too, whatever part of the inputs a group or a block of it has. `sums`: of the tile's first warp.
template <int NC, int SPLIT> __device__ __forceinline__ float sum_of(const float *sums, int c, int r) {
    if constexpr (SPLIT == 1) return sums[c * 16 + r];
    else return sum_of<NC, SPLIT / 2>(sums, c, r) + sum_of<NC, SPLIT / 2>(sums + SPLIT / 2 * NC * 16, c, r);
}
