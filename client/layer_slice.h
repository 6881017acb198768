// What    The part of a layer that one rank of tensor or expert parallelism registers.
// Use     v1::CheckpointSource source = ...;
//         *source.mutable_slice()->mutable_rows() = RankOf(rank, ranks);      // column-parallel
//         *source.mutable_slice()->mutable_columns() = RankOf(rank, ranks);   // row-parallel
//         GEMMD_ASSIGN_OR_RETURN(Layer layer, session.RegisterCheckpoint(source));
// Threads Pure functions.
// Source  What a slice holds, and which are refused: proto/gemmd/v1/layer.proto.
#ifndef GEMMD_CLIENT_LAYER_SLICE_H_
#define GEMMD_CLIENT_LAYER_SLICE_H_

#include <cstdint>
#include <string>

#include "gemmd/v1/layer.pb.h"

namespace gemmd::client {

// Part `rank` of `size` equal parts.
v1::AxisSlice RankOf(uint32_t rank, uint32_t size);
// Elements [begin, end); an end of 0 is the end of the axis.
v1::AxisSlice RangeOf(int64_t begin, int64_t end);

// "rows 1/4, experts 0:8"; empty for the whole module.
std::string SliceText(const v1::LayerSlice& slice);

}  // namespace gemmd::client

#endif  // GEMMD_CLIENT_LAYER_SLICE_H_
