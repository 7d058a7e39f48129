// What low-rank adapters add to a product of rows: y += B h, where h = scale * A x (rows/lora_shrink.cu). `LoraParts` is the host's
// (kernels/src/cuda/lora.rs).
//
// The memory of an adapter begins with a head for each group of matrices that read the same rows. A row's adapter is that of its sequence. The sums
// of a row are its own, in the order of the rank, so that they depend on no row beside it; a row without an adapter has none.
#pragma once
#include "common/base.cuh"

// What an adapter has for a group of matrices: units of 16 bytes from its memory's beginning to A, [parts * rank, cols], and B, [outputs, rank],
// both f16; the rank, a multiple of 8; a bit for each of the parts that it changes; their scales.
struct LoraGroup {
    u32 a, b, rank, parts;
    float scales[4];
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
__device__ __forceinline__ int lora_adapter(const LoraParts &lora, u64 row) { return lora_of_row(lora, row).x; }

// `value`, output `column` of the row, with what its adapter adds.
__device__ __forceinline__ float with_lora(const LoraParts &lora, u64 row, int adapter, int column, float value) {
    const LoraGroup group = lora_group(lora, adapter);
    const u32 part = lora.columns[column];
    if (part >= 4 || !(group.parts >> part & 1)) return value;
    const uint4 *b = (const uint4 *)lora_memory(lora, adapter) + group.b + (u64)(lora.first + column) * (group.rank / 8);
    const float4 *h = (const float4 *)(lora.reduced + row * lora.stride + part * group.rank);
    float sum = 0;
    for (u32 i = 0; i < group.rank / 8; i++) {
        const uint4 w = b[i];
        const float4 low = h[2 * i], high = h[2 * i + 1];
        sum = __fmaf_rn(low.x, low_half(w.x), sum), sum = __fmaf_rn(low.y, high_half(w.x), sum);
        sum = __fmaf_rn(low.z, low_half(w.y), sum), sum = __fmaf_rn(low.w, high_half(w.y), sum);
        sum = __fmaf_rn(high.x, low_half(w.z), sum), sum = __fmaf_rn(high.y, high_half(w.z), sum);
        sum = __fmaf_rn(high.z, low_half(w.w), sum), sum = __fmaf_rn(high.w, high_half(w.w), sum);
    }
    return __fadd_rn(value, sum);
}
// The same for a row of which it is not known whether it has one.
__device__ __forceinline__ float with_lora(const LoraParts &lora, u64 row, int column, float value) {
    const int adapter = lora_adapter(lora, row);
    return adapter < 0 ? value : with_lora(lora, row, adapter, column, value);
}
// Four outputs from `column` on, of which `left` are there.
__device__ __forceinline__ float4 with_lora(const LoraParts &lora, u64 row, int column, int left, float4 v) {
    const int adapter = lora_adapter(lora, row);
    if (adapter < 0) return v;
    if (left > 0) v.x = with_lora(lora, row, adapter, column, v.x);
    if (left > 1) v.y = with_lora(lora, row, adapter, column + 1, v.y);
    if (left > 2) v.z = with_lora(lora, row, adapter, column + 2, v.z);
    if (left > 3) v.w = with_lora(lora, row, adapter, column + 3, v.w);
    return v;
}
