// What low-rank adapters add to a product of rows: y += B h, where h = scale * A x (rows/lora_shrink.cu). `LoraParts` is the host's
// (kernels/src/cuda/lora.rs).
//
// The memory of an adapter begins with a head for each group of matrices that read the same rows. A row's adapter is that of its sequence. The sums
// of a row are its own, in the order of the rank, so that they depend on no row beside it; a row without an adapter has none.
//
// Which rows have which adapters, and the adapters, are there before a captured pass begins, and so are read before the wait of its kernels (`early`).
// Of other passes a kernel ahead may still bring them.
#pragma once
#include "common/base.cuh"

// What an adapter has for a group of matrices: units of 16 bytes from its memory's beginning to A, [parts * rank, cols], and B, [outputs, rank],
// both f16; the rank, a multiple of 8; a bit for each of the parts that it changes; their scales.
struct LoraGroup {
    u32 a, b, rank, parts;
    float scales[4];

    __device__ __forceinline__ bool changes(u32 part) const { return part < 4 && parts >> part & 1; }
};

__device__ __forceinline__ const u8 *lora_memory(const LoraParts &lora, int adapter) { return lora.memory + (u64)(u32)adapter * lora.slot_bytes; }
__device__ __forceinline__ LoraGroup lora_group(const LoraParts &lora, int adapter) {
    const uint4 *head = (const uint4 *)lora_memory(lora, adapter) + 2 * lora.group;
    const uint4 at = head[0], scales = head[1];
    return {at.x, at.y, at.z, at.w, {__uint_as_float(scales.x), __uint_as_float(scales.y), __uint_as_float(scales.z), __uint_as_float(scales.w)}};
}
// The adapter of a row, or -1, and the bits of what its sequence multiplies h with.
__device__ __forceinline__ int2 lora_of_row(const LoraParts &lora, u64 row) {
    const int slot = lora.row_slots[row];
    return slot < 0 ? make_int2(-1, 0) : lora.adapters[slot];
}

__device__ __forceinline__ void bring_line(const void *p) { asm volatile("prefetch.global.L1 [%0];" ::"l"(p)); }

// A row of the product with its adapter, if it has one.
struct LoraRow {
    const uint4 *b;
    const float *h;
    const u8 *columns;
    u32 rank, parts;

    __device__ __forceinline__ LoraRow(const LoraParts &lora, u64 row) : columns(lora.columns), rank(0), parts(0) {
        const int adapter = lora_of_row(lora, row).x;
        if (adapter < 0) return;
        const LoraGroup group = lora_group(lora, adapter);
        rank = group.rank, parts = group.parts;
        b = (const uint4 *)lora_memory(lora, adapter) + group.b + (u64)(u32)lora.first * (rank / 8);
        h = lora.reduced + row * lora.stride;
    }
    __device__ __forceinline__ bool changes(u32 part) const { return part < 4 && parts >> part & 1; }
    __device__ __forceinline__ const float4 *h_of(u32 part) const { return (const float4 *)(h + part * rank); }

    static __device__ __forceinline__ float step(uint4 w, float4 low, float4 high, float sum) {
        sum = __fmaf_rn(low.x, low_half(w.x), sum), sum = __fmaf_rn(low.y, high_half(w.x), sum);
        sum = __fmaf_rn(low.z, low_half(w.y), sum), sum = __fmaf_rn(low.w, high_half(w.y), sum);
        sum = __fmaf_rn(high.x, low_half(w.z), sum), sum = __fmaf_rn(high.y, high_half(w.z), sum);
        return __fmaf_rn(high.w, high_half(w.w), __fmaf_rn(high.z, low_half(w.w), sum));
    }
    // `value`, output `column`, with what the adapter adds.
    __device__ __forceinline__ float add(int column, float value) const {
        const u32 part = parts ? columns[column] : 4;
        if (!changes(part)) return value;
        const float4 *of = h_of(part);
        const uint4 *w = b + (u64)(u32)column * (rank / 8);
        float sum = 0;
        for (u32 i = 0; i < rank / 8; i++) sum = step(w[i], __ldcg(of + 2 * i), __ldcg(of + 2 * i + 1), sum);
        return __fadd_rn(value, sum);
    }
    // Four outputs from `column` on, of which `left` are there.
    __device__ __forceinline__ float4 add(int column, int left, float4 v) const {
        if (!parts || left <= 0) return v;
        const u32 part = columns[column];
        const bool alike = left >= 4 && columns[column + 1] == part && columns[column + 2] == part && columns[column + 3] == part;
        if (!alike) {
            v.x = add(column, v.x);
            if (left > 1) v.y = add(column + 1, v.y);
            if (left > 2) v.z = add(column + 2, v.z);
            if (left > 3) v.w = add(column + 3, v.w);
            return v;
        }
        if (!changes(part)) return v;
        const float4 *of = h_of(part);
        const uint4 *w = b + (u64)(u32)column * (rank / 8);
        const u32 each = rank / 8;
        float4 sum = make_float4(0, 0, 0, 0);
        for (u32 i = 0; i < each; i++) {
            const float4 low = __ldcg(of + 2 * i), high = __ldcg(of + 2 * i + 1);
            sum.x = step(w[i], low, high, sum.x), sum.y = step(w[each + i], low, high, sum.y);
            sum.z = step(w[2 * each + i], low, high, sum.z), sum.w = step(w[3 * each + i], low, high, sum.w);
        }
        return make_float4(__fadd_rn(v.x, sum.x), __fadd_rn(v.y, sum.y), __fadd_rn(v.z, sum.z), __fadd_rn(v.w, sum.w));
    }
    // Asks for what `add` reads of B. The kernel before makes h: a line of it that came to the L1 cache before the wait would be an old one.
    __device__ __forceinline__ void bring(int column) const {
        const u32 part = parts ? columns[column] : 4;
        if (changes(part)) bring_line(b + (u64)(u32)column * (rank / 8));
    }
};

// Before the wait: asks for what the thread's first output adds.
__device__ __forceinline__ void lora_ahead(const LoraParts &lora, u64 row, int column) {
    if (lora.early) LoraRow(lora, row).bring(column);
}
