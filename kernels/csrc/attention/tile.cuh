// What tiles of prompts' rows have in common, whatever multiplies: where they are, their queries, their outputs.
//
// A tile is up to TOKENS neighbouring rows of one sequence, times the GQ query heads of a key-value head: P_ROWS rows of matrices, 16 a
// warp. Softmax goes along the pages from position 0 on, in the same steps for every row, and what a row does not see changes nothing of
// it, so a row's bytes depend on its own sequence alone.
#pragma once
#include "arguments.cuh"
#include "attention/formats.cuh"
#include "common/int8_rows.cuh"
#include "rows/half_rows.cuh"

__device__ __forceinline__ float gated_fast(float out, float gate) {
    if constexpr (GATED) return out * sigmoid_fast(gate);
    return out;
}

// The int8 form of 32 dims that 4 lanes hold: lane t has dims 8 i + 2 t and the next in v[2i], v[2i + 1]. As quantize_block, but for the last
// bit of the scale.
__device__ __forceinline__ void quantize_quarter(const float (&v)[8], i8 *codes, float2 *meta, bool store) {
    int t = lane_id() % 4;
    // As integers, magnitudes keep their order, and what is no number comes after infinity.
    u32 most = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) most = max(most, __float_as_uint(fabsf(v[i])));
#pragma unroll
    for (int step = 1; step < 4; step *= 2) most = max(most, __shfl_xor_sync(~0u, most, step));
    const float top = __uint_as_float(most);
    const bool finite = top <= 3.402823466e38f;
    const float inverse = top < 1e-30f || !finite ? 0.0f : 127.0f * reciprocal(top);
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
    if (store && t == 0) {
        const float d = !finite ? __int_as_float(0x7fc00000) : top < 1e-30f ? 0.0f : __fmul_rn(top, 1.0f / 127.0f);
        meta[0] = make_float2(d, (float)sum.x);
        if constexpr (PLANES > 1) meta[1] = make_float2(__fmul_rn(d, 1.0f / 254.0f), (float)sum.y);
    }
}

// Neighbouring rows of a sequence, for a key-value head.
struct Tile {
    int head, first, tokens;
    int start, last; // positions of its first and its last row
    int pages;
    const int *table;
};

// The block's tile; none has no tokens. The last tiles have the most to do.
__device__ __forceinline__ Tile tile_of_block(const Arguments &args) {
    const int2 rows = args.tiles[gridDim.x - 1 - blockIdx.x];
    Tile tile = {(int)blockIdx.y, rows.x, rows.y};
    if (tile.tokens <= 0 || args.slots[tile.first] < 0) return {};
    tile.start = args.positions[tile.first], tile.last = tile.start + tile.tokens - 1, tile.pages = tile.last / PAGE + 1;
    tile.table = args.page_table + (u64)args.slots[tile.first] * args.pages_max;
    return tile;
}

// Queries of a warp's 16 rows from `row` on, AT_A_TIME of them on their way, each handed to `put`.
template <int AT_A_TIME, class Put> __device__ __forceinline__ void load_queries(const Arguments &args, const Tile &tile, int row, const Put &put) {
    for (int at = row; at < row + 16; at += AT_A_TIME) {
        Head h[AT_A_TIME] = {};
#pragma unroll
        for (int i = 0; i < AT_A_TIME; i++) {
            int token = (at + i) / GQ;
            if (token >= tile.tokens || token >= TOKENS) continue;
            const u64 of_row = (u64)(tile.first + token) * X_STRIDE;
            const int of_tile = tile.head * GQ + (at + i) % GQ;
            if (args.half_x) load_head(h[i], query_of((const u16 *)args.x + of_row, of_tile));
            else load_head(h[i], query_of(args.x + of_row, of_tile));
        }
        // Heads of one token turn alike.
        Turn turn = turn_of(args.turns, tile.start + at / GQ);
#pragma unroll
        for (int i = 0; i < AT_A_TIME; i++) {
            if (i > 0 && (at + i) % GQ == 0) turn = turn_of(args.turns, tile.start + (at + i) / GQ);
            norm_head(h[i], args.q_norm, args.eps);
            rotate_head<IN_PREFILL>(h[i], turn);
            finish_query(h[i], args.scale);
            put(h[i], at + i);
        }
    }
}

// Row `row` of the tile, of which four lanes have outputs `o(n, c)` (dims 8 n + 2 t + c) that are to be divided by `sum`, a lane's part of
// what they were weighted with: the gate, and the int8 form, or f16 where the product behind it reads such.
template <class Outputs> __device__ __forceinline__ void store_row(const Arguments &args, const Tile &tile, int row, float sum, const Outputs &o) {
    const int t = lane_id() % 4, h = row % GQ, token = row / GQ;
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    float inverse = 1.0f / sum;
    const bool store = token < tile.tokens && token < TOKENS;
    const u64 of_step = tile.first + (store ? token : 0);
    const int of_tile = tile.head * GQ + h;
    const float *gate = query_of(args.x + of_step * X_STRIDE, of_tile) + (GATED ? D : 0);
    const u16 *half_gate = query_of((const u16 *)args.x + of_step * X_STRIDE, of_tile) + (GATED ? D : 0);
    const u64 at = of_step * OUT_STRIDE + of_tile * D;
    constexpr int AHEAD = D / 32 < 4 ? D / 32 : 4;
#pragma unroll
    for (int first = 0; first < D / 32; first += AHEAD) {
        float2 gates[AHEAD * 4];
#pragma unroll
        for (int i = 0; i < AHEAD * 4; i++) {
            const int dim = first * 32 + i * 8 + 2 * t;
            gates[i] = !GATED ? make_float2(0, 0) : args.half_x ? two_of(half_gate + dim) : two_of(gate + dim);
        }
#pragma unroll
        for (int b = 0; b < AHEAD; b++) {
            float v[8];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                v[2 * i] = gated_fast(o((first + b) * 4 + i, 0) * inverse, gates[b * 4 + i].x);
                v[2 * i + 1] = gated_fast(o((first + b) * 4 + i, 1) * inverse, gates[b * 4 + i].y);
            }
            if (PLANES == 1 && args.halves) {
                const u32 dim = of_tile * D + (first + b) * 32;
#pragma unroll
                for (int i = 0; i < 4; i++)
                    put_hidden_octet(args.halves, of_step, args.rows, dim + i * 8, hidden_pair(v[2 * i], v[2 * i + 1]), store);
                continue;
            }
            const u64 block = at / 32 + first + b;
            quantize_quarter(v, args.codes + block * 32 * PLANES, args.meta + block * PLANES, store);
        }
    }
}
