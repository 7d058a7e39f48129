// h of prompts (rows/lora_shrink.cu), whose rows are many: by instructions of 16 rows of A and eight of x, all of a row's inputs by one warp.
//
// Codes are multiplied as they are, and the sums of a block of 32 inputs by its scale, so that products are exact; blocks are added in order. A column of an
// instruction knows nothing of those beside it: h of a row is its own. Where rows of several adapters meet in an instruction, each adapter has one of its
// own, of which only its rows are kept.
#pragma once
#include "rows/half_rows.cuh"
#include "common/lora.cuh"

#define PROMPT_WARPS 4
#define PROMPT_A 16
#define PROMPT_ROWS 8

// 16 rows of A of an adapter: a lane's are number g and number g + 8.
struct TileOfA {
    const u16 *rows[2];
    float scales[2];

    __device__ __forceinline__ TileOfA(const Arguments &args, int adapter, u32 first) {
        const LoraGroup group = lora_group(args.lora, adapter);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const u32 number = first + 8 * i + threadIdx.x % WARP / 4, part = group.rank ? number / group.rank : 4;
            const u16 *a = (const u16 *)(lora_memory(args.lora, adapter) + (u64)group.a * 16);
            rows[i] = group.changes(part) ? a + (u64)number * args.cols : nullptr;
            scales[i] = part == 0 ? group.scales[0] : part == 1 ? group.scales[1] : part == 2 ? group.scales[2] : group.scales[3];
        }
    }
    __device__ __forceinline__ bool any() const { return __any_sync(~0u, rows[0] || rows[1]); }
    // Quad `at` of four values of both rows, the first and third value in a word, the second and fourth in another.
    __device__ __forceinline__ void read(u32 at, u32 (&a)[4]) const {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const uint2 quad = rows[i] ? *(const uint2 *)(rows[i] + at * 4) : make_uint2(0, 0);
            a[i] = __byte_perm(quad.x, quad.y, 0x5410), a[i + 2] = __byte_perm(quad.x, quad.y, 0x7632);
        }
    }
};

// Eight rows of x from `first` on; where there are fewer, the last one again.
struct TileOfRows {
    const Arguments &args;
    u32 own, columns[2]; // the row whose values the lane reads, and those whose sums it has

    __device__ __forceinline__ TileOfRows(const Arguments &args, u32 first) : args(args) {
        const u32 lane = threadIdx.x % WARP, last = args.rows - 1;
        own = min(first + lane / 4, last), columns[0] = min(first + lane % 4 * 2, last), columns[1] = min(first + lane % 4 * 2 + 1, last);
    }
    // Adds the products of block `block` with A.
    __device__ __forceinline__ void add(const TileOfA &tile, u32 block, float (&sum)[4]) const {
        const u32 t = threadIdx.x % 4;
        u32 low[4], high[4];
        tile.read(block * 8 + t, low), tile.read(block * 8 + t + 4, high);
        if (args.halves) {
            auto word = [&](u32 piece) { return *(const u32 *)(args.halves + half_place(block * 4 + piece, own, args.half_rows) + 2 * t); };
            mma_f16(sum, low[0], low[1], low[2], low[3], word(0), word(1));
            mma_f16(sum, high[0], high[1], high[2], high[3], word(2), word(3));
            return;
        }
#pragma unroll
        for (u32 plane = 0; plane < PLANES; plane++) {
            const u64 blocks = args.cols / 32, at = block * PLANES + plane;
            const int2 codes = *(const int2 *)(args.codes + (own * blocks * PLANES + at) * 32 + t * 8);
            const float scales[2] = {args.meta[columns[0] * blocks * PLANES + at].x, args.meta[columns[1] * blocks * PLANES + at].x};
            float part[4] = {};
            mma_f16(part, low[0], low[1], low[2], low[3], half_pair(codes.x, 0, 1.0f), half_pair(codes.x, 1, 1.0f));
            mma_f16(part, high[0], high[1], high[2], high[3], half_pair(codes.y, 0, 1.0f), half_pair(codes.y, 1, 1.0f));
#pragma unroll
            for (int i = 0; i < 4; i++) sum[i] = __fmaf_rn(part[i], scales[i % 2], sum[i]);
        }
    }
};

// Rows of x from `first` on with 16 rows of A from `first_of_a` on, by one warp. `row_scale(row)`: by all its lanes.
template <class F> __device__ __forceinline__ void shrink_prompt(const Arguments &args, u32 first, u32 first_of_a, F row_scale) {
    const u32 lane = threadIdx.x % WARP;
    const int2 of_row = lane < PROMPT_ROWS && first + lane < args.rows ? lora_of_row(args.lora, first + lane) : make_int2(-1, 0);
    u32 left = __ballot_sync(~0u, of_row.x >= 0);
    if (!left) return;
    float scale = 0;
    for (int i = 0; i < PROMPT_ROWS && first + i < args.rows; i++) {
        const float of = row_scale(first + i);
        if (lane == i) scale = of * __int_as_float(of_row.y);
    }
    const TileOfRows x(args, first);
    for (u32 own = 0; left != 0; left &= ~own) {
        const int adapter = __shfl_sync(~0u, of_row.x, __ffs(left) - 1);
        own = __ballot_sync(~0u, of_row.x == adapter);
        const TileOfA a(args, adapter, first_of_a);
        if (!a.any()) continue;
        float sum[4] = {};
#pragma unroll 4
        for (u32 block = 0; block < args.cols / 32; block++) x.add(a, block, sum);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const u32 column = lane % 4 * 2 + i % 2, number = first_of_a + i / 2 * 8 + lane / 4;
            const float by = a.scales[i / 2] * __shfl_sync(~0u, scale, column);
            if (own >> column & 1 && a.rows[i / 2]) args.reduced[(u64)(first + column) * args.lora.stride + number] = sum[i] * by;
        }
    }
}
