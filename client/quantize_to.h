// What    A target of quantization from one line of text, such as "int4,group=128,scale=f16".
// Form    WEIGHT[,WORD | ,KEY=VALUE]..., or a preset in the place of WEIGHT, whose words later ones replace:
//           WEIGHT       int1 to int8; eXmY: e2m1, e4m3 (the largest is 448), e5m2 (with infinities), ...
//           channel      one scale per row (the default); tensor: one; group=K: one per K columns of a row;
//           block=NxK    one per N rows and K columns
//           scale=TYPE   f16, bf16, f32, e4m3, e5m2, e8m0, none; default f16 for integers, f32 for floats. No preset is
//                        without scales
//           zero=KIND    none (default), int, float: zero points beside the scales; integers only
//           secondary=KIND  none (default), tensor, channel: float32 scales of the scales
//           rule=RULE    largest (default), full_range, ocp, nearest_power: core/quant/README.md, "Scale rules"
//           x=TYPE       quantize x: int8, e4m3, ...; default none, which takes a preset's x_group and x_scale away too
//           x_group=K    with x: one scale per K columns; default one per row
//           x_scale=TYPE with x_group: f32 (default), e8m0
// Presets w4a16, w8a16, w8a8, fp8, fp8-block, mxfp4, mxfp8, nvfp4: QuantizePresets() says what each stands for. They ask
// for activations that devices make of 16-bit ones (w8a8, fp8, fp8-block), or for none: mxfp4, mxfp8 and nvfp4 are
// formats of weights, and x in their blocks has to be asked for.
// Errors  InvalidArgument BAD_ARGUMENT naming the word, and what is possible; naming both of two words
//         after WEIGHT or the preset that contradict each other, such as group=32 and channel; also scale=none and
//         the place of a preset's scales.
//         The daemon knows which targets can be.
// Threads Pure functions.
#ifndef GEMMD_CLIENT_QUANTIZE_TO_H_
#define GEMMD_CLIENT_QUANTIZE_TO_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "gemmd/v1/layer.pb.h"

namespace gemmd::client {

absl::StatusOr<v1::QuantizeTo> ParseQuantizeTo(absl::string_view text);

// Names and what they stand for.
const std::vector<std::pair<std::string, std::string>>& QuantizePresets();

}  // namespace gemmd::client

#endif  // GEMMD_CLIENT_QUANTIZE_TO_H_
