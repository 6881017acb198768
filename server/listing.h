// What    Lists in replies: cut where one more element could make the message larger than clients
//         take (4 MiB by default).
#ifndef GEMMD_SERVER_LISTING_H_
#define GEMMD_SERVER_LISTING_H_

#include "server/convert.h"

namespace gemmd {

// Elements of a list, by what one takes at most.
inline constexpr int kMaxListedLayers = 2048;    // about 1500 bytes each
inline constexpr int kMaxListedRegions = 4096;   // about 400 bytes each
inline constexpr int kMaxListedSessions = 8192;  // about 350 bytes each

// Adds the first `most` of `infos` to a repeated field; whether some were left out.
template <typename Infos, typename Field>
bool FillList(const Infos& infos, int most, Field& field) {
  for (const auto& info : infos) {
    if (field.size() == most) return true;
    *field.Add() = ToProto(info);
  }
  return false;
}

}  // namespace gemmd

#endif  // GEMMD_SERVER_LISTING_H_
