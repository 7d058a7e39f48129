// Adapters of the shared expert (common/lora.cuh): what they add to its products, and who makes A x.
//
// Blocks share the rows of A out among themselves, and tell each other A x with the number of the launch. Those of gate and up lie in the first
// 2 * adapter_rank places of a row, those of down behind them.
#pragma once
#include "experts/shape.cuh"
#include "common/waits.cuh"
#include "router/score.cuh"
#include "arguments.cuh"
#if LORA
#include "common/lora_shrink.cuh"
#endif

#if LORA
__device__ __forceinline__ u64 *told_of(const Arguments &args, int row, bool down) {
    return args.told + (u64)row * (3 * args.adapter_rank) + (down ? 2 * args.adapter_rank : 0);
}
#endif
// Output `column` of row `row`, which is of a part of the group, with what an adapter adds; by all lanes of a warp, columns of one part. `norm`: of the row
// that A has read.
__device__ __forceinline__ float
adapted(const Arguments &args, const LoraParts &lora, bool down, u32 part, int row, int column, float norm, float value, u32 tag) {
#if LORA
    const int2 of_row = lora_of_row(lora, row);
    const int lane = threadIdx.x % WARP;
    if (of_row.x < 0) return value;
    const LoraGroup group = lora_group(lora, of_row.x);
    if (!group.changes(part)) return value;
    const uint4 *b = (const uint4 *)lora_memory(lora, of_row.x) + group.b + (u64)(u32)column * (group.rank / 8);
    const u64 *told = told_of(args, row, down) + part * group.rank;
    const float scale = (part == 0 ? group.scales[0] : group.scales[1]) * (norm * __int_as_float(of_row.y));
    float sum = 0;
#pragma unroll 1
    for (u32 first = 0; first < group.rank; first += WARP) {
        float h = 0;
        if (first + lane < group.rank) {
            u64 word;
            // Ends when the block that has this row of A has told it, which it does without waiting for others; all run at a time.
            wait_until<EXPERT_ADAPTERS>([&] { return (u32)((word = scored(told + first + lane)) >> 32) == tag; });
            h = __uint_as_float((u32)word) * scale;
        }
        __syncwarp();
#pragma unroll 1
        for (u32 i = 0; i < WARP / 8 && first + 8 * i < group.rank; i++) {
            float of[8];
#pragma unroll
            for (int j = 0; j < 8; j++) of[j] = __shfl_sync(~0u, h, 8 * i + j);
            sum = LoraRow::step(b[first / 8 + i], make_float4(of[0], of[1], of[2], of[3]), make_float4(of[4], of[5], of[6], of[7]), sum);
        }
    }
    return __fadd_rn(value, sum);
#else
    return value;
#endif
}

#if LORA
// Rows of A by whom they are made: of `blocks` blocks, those of each row of x from another one on.
struct ShareOfA {
    int block, blocks;

    // Blocks between the first rows of A of two rows.
    static constexpr int ROWS_APART = 32;

    __device__ __forceinline__ u32 first(int row) const { return (block + blocks - row * ROWS_APART % blocks) % blocks; }
};

__device__ __forceinline__ const u16 *row_of_a(const LoraParts &lora, int adapter, const LoraGroup &group, u32 n, int inputs) {
    return (const u16 *)(lora_memory(lora, adapter) + (u64)group.a * 16) + (u64)n * inputs;
}
__device__ __forceinline__ void bring_lines(const void *from, u32 bytes) {
    for (u32 at = threadIdx.x % WARP * 128; at < bytes; at += WARP * 128) bring_line((const u8 *)from + at);
}
// Asks for what a block reads of the adapter of a row: row `n` of A, and `outputs` rows of B from `output` on.
__device__ __forceinline__ void bring_of_row(const LoraParts &lora, int row, u32 n, int inputs, u32 output, u32 outputs) {
    const int adapter = lora_of_row(lora, row).x;
    if (adapter < 0) return;
    const LoraGroup group = lora_group(lora, adapter);
    if (group.changes(n / max(group.rank, 1u))) bring_lines(row_of_a(lora, adapter, group, n, inputs), inputs * 2);
    if (group.parts) bring_lines(lora_memory(lora, adapter) + ((u64)group.b + output * (group.rank / 8)) * 16, outputs * group.rank * 2);
}

// A of PARTS matrices times int8 rows of INPUTS values, for all blocks: a warp a row. The last warps begin: the first ones choose.
template <int INPUTS, int PARTS>
__device__ __forceinline__ void
tell_shrunk(const Arguments &args, const LoraParts &lora, bool down, ShareOfA share, const i8 *codes, const float2 *meta, u32 tag) {
#pragma unroll 1
    for (int row = WARPS - 1 - threadIdx.x / WARP; row < args.rows; row += WARPS) {
        const int adapter = lora_of_row(lora, row).x;
        if (adapter < 0) continue;
        const LoraGroup group = lora_group(lora, adapter);
        const i8 *of_row = codes + row * (INPUTS * PLANES);
        const float2 *of_blocks = meta + row * (INPUTS / 32 * PLANES);
#pragma unroll 1
        for (u32 n = share.first(row); n < PARTS * group.rank; n += share.blocks) {
            if (!group.changes(n / group.rank)) continue;
            const float sum = shrink_by_a_warp<INPUTS>(row_of_a(lora, adapter, group, n, INPUTS), of_row, of_blocks);
            if (threadIdx.x % WARP == 0) put_score(told_of(args, row, down) + n, tag, sum);
        }
    }
}
#endif
