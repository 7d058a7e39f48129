// Where the tiles of the chosen experts' matrices lie.
#pragma once
#include "experts/shape.cuh"

// What finds a chosen expert's matrix: its number, or where its place begins.
#if PLACED
using Numbers = u64;
#else
using Numbers = int;
#endif
// Tile `tile` of a slot's matrix, of those that have EACH tiles; of a single matrix where there are no experts. `tiles`: that of the first
// matrix, or where it would lie in a place that began at 0.
template <int EACH>
__device__ __forceinline__ const u8 *first_of(const u8 *tiles, const Numbers *experts, int slot, int tile, u32 tile_bytes) {
#if PLACED
    return tiles + (experts ? experts[slot] : 0) + (u64)tile * tile_bytes;
#else
    int expert = experts ? experts[slot] : 0;
    return tiles + (u64)(expert * EACH + tile) * tile_bytes;
#endif
}
// Tiles of gate and up: four a group, of the expert that the group belongs to.
struct GroupTiles {
    const u8 *tiles; // the warp's of the first group
    const Numbers *experts;
    u32 tile_bytes;

    __device__ __forceinline__ const u8 *operator()(int group) const {
        int of_expert = experts ? group % GROUPS : group;
        return first_of<GROUPS * 4>(tiles, experts, group / GROUPS, of_expert * 4, tile_bytes);
    }
};
// Tiles of down of one group of outputs: by expert, and where a block has both of a group's tiles, first all of one.
template <int TILES> struct DownTiles {
    const u8 *tiles; // the block's first of the group
    const Numbers *experts;
    int slots;
    u32 tile_bytes;

    __device__ __forceinline__ const u8 *operator()(int item) const {
        int slot = TILES > 1 ? item % slots : item;
        return first_of<HIDDEN / 16>(tiles, experts, slot, TILES > 1 ? item / slots : 0, tile_bytes);
    }
};
