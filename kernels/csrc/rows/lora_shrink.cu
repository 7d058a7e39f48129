// reduced[row][n] = scale * scale(row) * norm(row) * sum_k a[n][k] x[row][k] of the adapter of each row: h of common/lora.cuh
//
// a: f16, the parts of an adapter's group, `rank` rows each; x: int8 rows (common/int8_rows.cuh), or rows of f16 (rows/half_rows.cuh) that have
// their norm; scale(row): of its sequence; norm(row): of `norm_blocks` squares a row, 1 if that is 0.
//
// A block has A_ROWS rows of A, and one row of x, or TILE rows of prompts; a thread has of each 2,048 inputs eight: two quads of an int8 block. Its
// sums are added in order, then the lanes' as a tree, then the warps' in order, so that h of a row depends on no other row. Rows that have no adapter
// are left out. Bound: the bytes of A.
//
// -D PLANES.
#include "arguments.cuh"
#include "rows/half_rows.cuh"
#include "common/lora.cuh"

#define WARPS 8
#define THREADS (WARPS * WARP)
#define A_ROWS 4
#define TILE 4

// Eight values of A: quads t and t + 4 of a block.
struct Eight {
    float v[8];

    static __device__ __forceinline__ uint4 read(const u16 *a, u32 at) {
        const u16 *from = a + at / 4 * 32 + at % 4 * 4;
        const uint2 low = *(const uint2 *)from, high = *(const uint2 *)(from + 16);
        return make_uint4(low.x, low.y, high.x, high.y);
    }
    __device__ __forceinline__ explicit Eight(uint4 w) {
        const u32 words[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
        for (int i = 0; i < 4; i++) v[2 * i] = low_half(words[i]), v[2 * i + 1] = high_half(words[i]);
    }
};

// What a thread has of a row of x at `at`.
struct OfRow {
    float v[8];

    __device__ __forceinline__ OfRow(const Arguments &args, u64 row, u32 at) {
        if (args.halves) read_halves(args, row, at);
        else read_int8(args, row, at);
    }
    __device__ __forceinline__ void read_int8(const Arguments &args, u64 row, u32 at) {
        const u64 block = row * (args.cols / 32) + at / 4;
        const i8 *from = args.codes + block * (32 * PLANES) + at % 4 * 8;
#pragma unroll
        for (int plane = 0; plane < PLANES; plane++) {
            const int2 codes = *(const int2 *)(from + 32 * plane);
            const float scale = args.meta[block * PLANES + plane].x;
#pragma unroll
            for (int i = 0; i < 8; i++) {
                const float code = (float)(i8)((u32)(i < 4 ? codes.x : codes.y) >> (i % 4 * 8));
                v[i] = plane == 0 ? code * scale : __fmaf_rn(code, scale, v[i]);
            }
        }
    }
    __device__ __forceinline__ void read_halves(const Arguments &args, u64 row, u32 at) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const u32 piece = at / 4 * 4 + 2 * half;
            const u32 even = *(const u32 *)(args.halves + half_place(piece, row, args.half_rows) + at % 4 * 2);
            const u32 odd = *(const u32 *)(args.halves + half_place(piece + 1, row, args.half_rows) + at % 4 * 2);
            v[4 * half] = low_half(even), v[4 * half + 1] = low_half(odd), v[4 * half + 2] = high_half(even), v[4 * half + 3] = high_half(odd);
        }
    }
    __device__ __forceinline__ float add(const Eight &a, float sum) const {
#pragma unroll
        for (int i = 0; i < 8; i++) sum = __fmaf_rn(a.v[i], v[i], sum);
        return sum;
    }
};

__device__ __forceinline__ float row_scale(const Arguments &args, u64 row) {
    if (args.halves) return args.row_scales[row];
    if (args.norm_blocks == 0) return 1.0f;
    float sum = 0;
    for (int i = threadIdx.x % WARP; i < args.norm_blocks; i += WARP) sum += args.squares[row * args.norm_blocks + i];
    return __frcp_rn(__fsqrt_rn(__fmaf_rn(warp_sum(sum), 1.0f / (32 * args.norm_blocks), args.eps)));
}

// Rows of A of an adapter from `first` on.
struct RowsOfA {
    const u16 *rows[A_ROWS];
    float scales[A_ROWS];
    bool any;

    __device__ __forceinline__ RowsOfA(const Arguments &args, int adapter, u32 first) : any(false) {
        LoraGroup group = {};
        if (adapter >= 0) group = lora_group(args.lora, adapter);
#pragma unroll
        for (int i = 0; i < A_ROWS; i++) {
            const u32 number = first + i, part = group.rank ? number / group.rank : 4;
            const bool there = group.changes(part);
            rows[i] = there ? (const u16 *)(lora_memory(args.lora, adapter) + (u64)group.a * 16) + (u64)number * args.cols : nullptr;
            scales[i] = part == 0 ? group.scales[0] : part == 1 ? group.scales[1] : part == 2 ? group.scales[2] : group.scales[3];
            any = any || there;
        }
    }
    // What the thread has of them at `at`; zeros of rows that are not there.
    __device__ __forceinline__ void read(u32 at, uint4 (&of)[A_ROWS]) const {
#pragma unroll
        for (int i = 0; i < A_ROWS; i++) of[i] = rows[i] ? Eight::read(rows[i], at) : make_uint4(0, 0, 0, 0);
    }
};

// Products of N neighbouring rows from `row` on. `ahead`: what the thread has of A first.
template <int N> __device__ __forceinline__ void shrink(const Arguments &args, u64 row, const RowsOfA &a, uint4 (&ahead)[A_ROWS], u32 first) {
    __shared__ float of_warps[WARPS][A_ROWS * N];
    float sums[A_ROWS][N] = {};
    for (u32 at = threadIdx.x; at < args.cols / 8; at += THREADS) {
        if (at != threadIdx.x) a.read(at, ahead);
#pragma unroll
        for (int n = 0; n < N; n++) {
            const OfRow x(args, row + n, at);
#pragma unroll
            for (int i = 0; i < A_ROWS; i++) sums[i][n] = x.add(Eight(ahead[i]), sums[i][n]);
        }
    }
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
#pragma unroll
    for (int i = 0; i < A_ROWS; i++)
#pragma unroll
        for (int n = 0; n < N; n++) {
            const float sum = warp_sum(sums[i][n]);
            if (lane == 0) of_warps[warp][i * N + n] = sum;
        }
    // A warp has a row of x.
    const float scale = warp < N ? row_scale(args, row + warp) * __int_as_float(lora_of_row(args.lora, row + warp).y) : 0;
    __syncthreads();
    if (warp >= N || lane >= A_ROWS) return;
    float sum = 0, own = 0;
#pragma unroll
    for (int w = 0; w < WARPS; w++) sum += of_warps[w][lane * N + warp];
    bool there = false;
#pragma unroll
    for (int i = 0; i < A_ROWS; i++)
        if (lane == i) own = a.scales[i], there = a.rows[i] != nullptr;
    if (there) args.reduced[(row + warp) * args.lora.stride + first + lane] = sum * (own * scale);
}

// One row, whose A is read before the wait.
__device__ __forceinline__ void shrink_early(const Arguments &args, u64 row, u32 first) {
    const RowsOfA a(args, lora_of_row(args.lora, row).x, first);
    uint4 ahead[A_ROWS] = {};
    if (threadIdx.x < args.cols / 8) a.read(threadIdx.x, ahead);
    wait_for_inputs();
    if (a.any) shrink<1>(args, row, a, ahead, first);
}

// Rows of prompts, together where they have one adapter.
__device__ __forceinline__ void shrink_tile(const Arguments &args, u32 row, u32 first) {
    const int adapter = lora_of_row(args.lora, row).x;
    bool alike = row + TILE <= args.rows;
    for (int i = 1; i < TILE && alike; i++) alike = lora_of_row(args.lora, row + i).x == adapter;
    for (u32 i = 0; i < (alike ? 1 : TILE) && row + i < args.rows; i++) {
        const RowsOfA a(args, lora_of_row(args.lora, row + i).x, first);
        if (!a.any) continue;
        uint4 ahead[A_ROWS] = {};
        if (threadIdx.x < args.cols / 8) a.read(threadIdx.x, ahead);
        if (alike) shrink<TILE>(args, row, a, ahead, first);
        else shrink<1>(args, row + i, a, ahead, first);
        __syncthreads();
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) lora_shrink(const Arguments args) {
    let_next_start();
    const u32 first = blockIdx.x * A_ROWS;
    if (args.lora.early) {
        shrink_early(args, blockIdx.y, first);
    } else {
        wait_for_inputs();
        shrink_tile(args, blockIdx.y * TILE, first);
    }
}
