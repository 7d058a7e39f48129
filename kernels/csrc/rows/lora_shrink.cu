// reduced[row][n] = scale * scale(row) * norm(row) * sum_k a[n][k] x[row][k] of the adapter of each row: h of common/lora.cuh
//
// a: f16, the parts of an adapter's group, `rank` rows each; x: int8 rows (common/int8_rows.cuh), or rows of f16 (rows/half_rows.cuh) that have
// their norm; scale(row): of its sequence; norm(row): of `norm_blocks` squares a row, 1 if that is 0.
//
// A block has A_ROWS rows of A, and one row of x, or up to DECODED of one adapter (`by_adapter`). Sums are added in the order of
// common/lora_shrink.cuh, so that h of a row depends on no other row. Rows of prompts: rows/lora_prompts.cuh. Rows that have no adapter are left out. Bound: the bytes of A.
//
// -D PLANES.
#include "arguments.cuh"
#include "rows/half_rows.cuh"
#include "common/lora_shrink.cuh"
#include "rows/lora_prompts.cuh"

#define WARPS SHRINK_WARPS
#define THREADS (WARPS * WARP)
#define A_ROWS 4
#define DECODED 8

// What a thread has of a row of x at `at`.
struct OfRow : EightInputs {
    __device__ __forceinline__ OfRow(const Arguments &args, u64 row, u32 at) {
        if (args.halves) read_halves(args, row, at);
        else read_int8(args.codes + row * (args.cols * PLANES), args.meta + row * (args.cols / 32 * PLANES), at);
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

// One row.
struct Single {
    u32 row;

    __device__ __forceinline__ u32 operator[](int) const { return row; }
    __device__ __forceinline__ bool has(int n) const { return n == 0; }
};
// Some rows: `count`, and behind them the first again, so that what is read of all is asked for at once.
struct Listed {
    const u32 *rows;
    int count;

    __device__ __forceinline__ u32 operator[](int n) const { return rows[n]; }
    __device__ __forceinline__ bool has(int n) const { return n < count; }
};

// Products of up to N rows of one adapter. `ahead`: what the thread has of A first.
template <int N, class R>
__device__ __forceinline__ void shrink(const Arguments &args, const R &rows, const RowsOfA &a, const uint4 (&ahead)[A_ROWS], u32 first) {
    __shared__ float of_warps[WARPS][A_ROWS * N];
    float sums[A_ROWS][N] = {};
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    // A warp has a row of x.
    const bool own_row = warp < N && rows.has(warp);
    const float scale = own_row ? row_scale(args, rows[warp]) * __int_as_float(lora_of_row(args.lora, rows[warp]).y) : 0;
    for (u32 at = threadIdx.x; at < args.cols / 8; at += THREADS) {
        uint4 of[A_ROWS];
#pragma unroll
        for (int i = 0; i < A_ROWS; i++) of[i] = ahead[i];
        if (at != threadIdx.x) a.read(at, of);
#pragma unroll
        for (int n = 0; n < N; n++) {
            const OfRow x(args, rows[n], at);
#pragma unroll
            for (int i = 0; i < A_ROWS; i++) sums[i][n] = x.add(Eight(of[i]), sums[i][n]);
        }
    }
#pragma unroll
    for (int i = 0; i < A_ROWS; i++)
#pragma unroll
        for (int n = 0; n < N; n++) {
            const float sum = warp_sum(sums[i][n]);
            if (lane == 0) of_warps[warp][i * N + n] = sum;
        }
    __syncthreads();
    if (!own_row || lane >= A_ROWS) return;
    float sum = 0, own = 0;
#pragma unroll
    for (int w = 0; w < WARPS; w++) sum += of_warps[w][lane * N + warp];
    bool there = false;
#pragma unroll
    for (int i = 0; i < A_ROWS; i++)
        if (lane == i) own = a.scales[i], there = a.rows[i] != nullptr;
    if (there) args.reduced[(u64)rows[warp] * args.lora.stride + first + lane] = sum * (own * scale);
}

// Rows number DECODED * chunk to DECODED * chunk + DECODED of those that have an adapter, as `Listed` has them, by one warp; how many there are.
__device__ __forceinline__ int list_rows(const Arguments &args, int adapter, u32 chunk, u32 *rows) {
    const u32 lane = threadIdx.x % WARP;
    u32 before = 0;
#pragma unroll 1
    for (u32 base = 0; base < args.rows; base += WARP) {
        const u32 row = base + lane;
        const bool own = row < args.rows && lora_of_row(args.lora, row).x == adapter;
        const u32 all = __ballot_sync(~0u, own), number = before + __popc(all & ((1u << lane) - 1));
        if (own && number / DECODED == chunk) rows[number % DECODED] = row;
        before += __popc(all);
    }
    const int count = min(max((int)(before - chunk * DECODED), 0), DECODED);
    __syncwarp();
    if (count > 0 && lane >= count && lane < DECODED) rows[lane] = rows[0];
    return count;
}

// Rows that are decoded: one, or some of those of one adapter, whose A so is read once. Which they are, and A, is known before the wait.
__device__ __forceinline__ void shrink_decoded(const Arguments &args, u32 number, u32 first) {
    __shared__ u32 listed[DECODED];
    __shared__ int count;
    const int adapter = args.by_adapter ? (int)(number % args.slots) : lora_of_row(args.lora, number).x;
    const RowsOfA a(args, adapter, first);
    uint4 ahead[A_ROWS] = {};
    if (a.any && threadIdx.x < args.cols / 8) a.read(threadIdx.x, ahead);
    if (args.by_adapter && threadIdx.x < WARP) {
        const int found = list_rows(args, adapter, number / args.slots, listed);
        if (threadIdx.x == 0) count = found;
    }
    __syncthreads();
    wait_for_inputs();
    if (!a.any) return;
    if (!args.by_adapter) shrink<1>(args, Single{number}, a, ahead, first);
    else if (count > 0) shrink<DECODED>(args, Listed{listed, count}, a, ahead, first);
}

// Two blocks a multiprocessor at least: each waits for memory most of its time.
extern "C" __global__ void __launch_bounds__(THREADS, 2) lora_shrink(const Arguments args) {
    let_next_start();
    shrink_decoded(args, blockIdx.y, blockIdx.x * A_ROWS);
}

extern "C" __global__ void __launch_bounds__(PROMPT_WARPS *WARP) lora_shrink_prompts(const Arguments args) {
    let_next_start();
    wait_for_inputs();
    const u32 first = (blockIdx.y * PROMPT_WARPS + threadIdx.x / WARP) * PROMPT_ROWS;
    if (first < args.rows) shrink_prompt(args, first, blockIdx.x * PROMPT_A, [&](u32 row) { return row_scale(args, row); });
}
