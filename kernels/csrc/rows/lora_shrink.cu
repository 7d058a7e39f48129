// reduced[row][n] = scale * scale(row) * norm(row) * sum_k a[n][k] x[row][k] of the adapter of each row: h of common/lora.cuh
//
// a: f16, the parts of an adapter's group, `rank` rows each; x: int8 rows (common/int8_rows.cuh), or rows of f16 (rows/half_rows.cuh) that have
// their norm; scale(row): of its sequence; norm(row): of `norm_blocks` squares a row, 1 if that is 0.
//
// A warp has one row of A, and one row of x, or TILE rows of prompts. A lane has of each 256 inputs eight: two quads of an int8 block. Its sums are
// added in order, then the lanes' as a tree, so that h of a row depends on no other row. Rows that have no adapter are left out. Bound: the bytes of A.
//
// -D PLANES.
#include "arguments.cuh"
#include "rows/half_rows.cuh"
#include "common/lora.cuh"

#define WARPS 8
#define TILE 4
// Eights of A that a lane reads before the wait.
#define AHEAD 8

// Eight values of A: quads t and t + 4 of a block.
struct Eight {
    float v[8];

    static __device__ __forceinline__ uint4 read(const u16 *a, u32 at) {
        const u16 *from = a + at / 4 * 32 + at % 4 * 4;
        const uint2 low = *(const uint2 *)from, high = *(const uint2 *)(from + 16);
        return make_uint4(low.x, low.y, high.x, high.y);
    }
    __device__ __forceinline__ Eight(const u16 *a, u32 at) : Eight(read(a, at)) {}
    __device__ __forceinline__ explicit Eight(uint4 w) {
        const u32 words[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
        for (int i = 0; i < 4; i++) v[2 * i] = low_half(words[i]), v[2 * i + 1] = high_half(words[i]);
    }
    __device__ __forceinline__ float dot(const float (&x)[8]) const {
        float sum = 0;
#pragma unroll
        for (int i = 0; i < 8; i++) sum = __fmaf_rn(v[i], x[i], sum);
        return sum;
    }
    // With codes of a plane.
    __device__ __forceinline__ float dot(int2 codes) const {
        float x[8];
#pragma unroll
        for (int i = 0; i < 8; i++) x[i] = (float)(i8)((u32)(i < 4 ? codes.x : codes.y) >> (i % 4 * 8));
        return dot(x);
    }
};

// Product of the eight with those of a row at the same place, behind `sum`.
__device__ __forceinline__ float add_int8(const Arguments &args, u64 row, u32 at, const Eight &a, float sum) {
    const u64 block = row * (args.cols / 32) + at / 4;
    const i8 *codes = args.codes + block * (32 * PLANES) + at % 4 * 8;
#pragma unroll
    for (int plane = 0; plane < PLANES; plane++)
        sum = __fmaf_rn(a.dot(*(const int2 *)(codes + 32 * plane)), args.meta[block * PLANES + plane].x, sum);
    return sum;
}
__device__ __forceinline__ float add_halves(const Arguments &args, u64 row, u32 at, const Eight &a, float sum) {
    float x[8];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const u32 piece = at / 4 * 4 + 2 * half;
        const u32 even = *(const u32 *)(args.halves + half_place(piece, row, args.half_rows) + at % 4 * 2);
        const u32 odd = *(const u32 *)(args.halves + half_place(piece + 1, row, args.half_rows) + at % 4 * 2);
        x[4 * half] = low_half(even), x[4 * half + 1] = low_half(odd), x[4 * half + 2] = high_half(even), x[4 * half + 3] = high_half(odd);
    }
    return __fadd_rn(sum, a.dot(x));
}

__device__ __forceinline__ float row_scale(const Arguments &args, u64 row) {
    if (args.halves) return args.row_scales[row];
    if (args.norm_blocks == 0) return 1.0f;
    float sum = 0;
    for (int i = threadIdx.x % WARP; i < args.norm_blocks; i += WARP) sum += args.squares[row * args.norm_blocks + i];
    return __frcp_rn(__fsqrt_rn(__fmaf_rn(warp_sum(sum), 1.0f / (32 * args.norm_blocks), args.eps)));
}

// Row `number` of A of an adapter, if it has one.
struct RowOfA {
    const u16 *a;
    float scale;

    __device__ __forceinline__ RowOfA(const Arguments &args, int adapter, u32 number) : a(nullptr), scale(0) {
        if (adapter < 0) return;
        const LoraGroup group = lora_group(args.lora, adapter);
        const u32 part = number / max(group.rank, 1u);
        if (!group.changes(part)) return;
        a = (const u16 *)(lora_memory(args.lora, adapter) + (u64)group.a * 16) + (u64)number * args.cols;
        scale = part == 0 ? group.scales[0] : part == 1 ? group.scales[1] : part == 2 ? group.scales[2] : group.scales[3];
    }
};

__device__ __forceinline__ float add(const Arguments &args, u64 row, u32 at, const Eight &a, float sum) {
    return args.halves ? add_halves(args, row, at, a, sum) : add_int8(args, row, at, a, sum);
}
__device__ __forceinline__ void put(const Arguments &args, u64 row, u32 number, float scale, float sum) {
    sum = warp_sum(sum), scale *= __int_as_float(lora_of_row(args.lora, row).y) * row_scale(args, row);
    if (threadIdx.x % WARP == 0) args.reduced[row * args.lora.stride + number] = sum * scale;
}

// N neighbouring rows of one adapter times row `number` of its A.
template <int N> __device__ __forceinline__ void shrink(const Arguments &args, u64 row, int adapter, u32 number) {
    const RowOfA of(args, adapter, number);
    if (!of.a) return;
    float sums[N] = {};
    for (u32 at = threadIdx.x % WARP; at < args.cols / 8; at += WARP) {
        const Eight of_a(of.a, at);
#pragma unroll
        for (int n = 0; n < N; n++) sums[n] = add(args, row + n, at, of_a, sums[n]);
    }
#pragma unroll
    for (int n = 0; n < N; n++) put(args, row + n, number, of.scale, sums[n]);
}

// One row, whose A is read before the wait: of as many inputs as a lane has registers for.
__device__ __forceinline__ void shrink_early(const Arguments &args, u64 row, u32 number) {
    const RowOfA of(args, lora_of_row(args.lora, row).x, number);
    const u32 lane = threadIdx.x % WARP, all = args.cols / 8;
    uint4 ahead[AHEAD];
#pragma unroll
    for (int i = 0; i < AHEAD; i++)
        if (of.a && lane + i * WARP < all) ahead[i] = Eight::read(of.a, lane + i * WARP);
    wait_for_inputs();
    if (!of.a) return;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < AHEAD; i++)
        if (lane + i * WARP < all) sum = add(args, row, lane + i * WARP, Eight(ahead[i]), sum);
#pragma unroll 4
    for (u32 at = lane + AHEAD * WARP; at < all; at += WARP) sum = add(args, row, at, Eight(of.a, at), sum);
    put(args, row, number, of.scale, sum);
}

extern "C" __global__ void __launch_bounds__(WARPS *WARP) lora_shrink(const Arguments args) {
    let_next_start();
    const u32 number = blockIdx.x * WARPS + threadIdx.x / WARP;
    if (args.lora.early) {
        shrink_early(args, blockIdx.y, number);
        return;
    }
    wait_for_inputs();
    const u32 first = blockIdx.y * TILE;
    int adapters[TILE];
    bool alike = first + TILE <= args.rows;
#pragma unroll
    for (int i = 0; i < TILE; i++) {
        adapters[i] = first + i < args.rows ? lora_of_row(args.lora, first + i).x : -1;
        alike = alike && adapters[i] == adapters[0];
    }
    if (alike) {
        if (adapters[0] >= 0) shrink<TILE>(args, first, adapters[0], number);
        return;
    }
#pragma unroll
    for (int i = 0; i < TILE; i++)
        if (adapters[i] >= 0) shrink<1>(args, first + i, adapters[i], number);
}
