// What    The codes of one slab (contract/packed_weights.h) as one thread of a warpgroup holds
//         them.
// Sync    Load reads shared memory; the stage is complete. The rest touches registers only.
#ifndef GEMMD_KERNELS_DEVICE_SLAB_CODES_SM90_CUH_
#define GEMMD_KERNELS_DEVICE_SLAB_CODES_SM90_CUH_

#include "kernels/contract/packed_weights.h"
#include "kernels/device/portable.cuh"
#include "kernels/device/ptx/select_or.cuh"

namespace gemmd::device {

// `word` moved up by `bits`, or down when negative.
__host__ __device__ constexpr uint32_t ShiftUp(uint32_t word, int bits) {
  return bits >= 0 ? word << bits : word >> -bits;
}

// `bits` repeated in every lane of a word.
__host__ __device__ constexpr uint32_t InLanes(uint32_t bits, int lane_bits) {
  uint32_t word = 0;
  for (int at = 0; at < 32; at += lane_bits) word |= bits << at;
  return word;
}

// `LayoutOf::Layout()` is the PackedLayout. Load: of codes that need decoding; tiles of others are
// WeightUnitSm90's.
template <class LayoutOf>
struct SlabCodesSm90 {
  static constexpr PackedLayout Layout() { return LayoutOf::Layout(); }
  static constexpr int kCodeBits = Layout().code_bits;
  static constexpr int kWords = Layout().WordsOfThread(kCodeBits);
  static constexpr bool kOnePlane = Layout().PlaneAt(0).bits == kCodeBits;

  uint32_t words[kWords];

  __device__ void Load(const char* slab, int thread) { LoadFromBit<0>(slab, thread); }

  // The lanes of `group` with the codes moved up by `up` bits. Bits that no code moves to are
  // undefined.
  __host__ __device__ uint32_t Lanes(int group, int up) const {
    if constexpr (kOnePlane) {
      const PackedLayout::LanePlace place = Layout().LanesIn(Layout().PlaneAt(0), group);
      return ShiftUp(words[place.word], up - place.shift);
    } else if constexpr (Layout().has_whole_threes()) {
      if (group == kLastThree) return LastThrees(up, 0);
      const PackedLayout::LanePlace place = PackedLayout::BitOfThree(group, 0);
      return ShiftUp(words[place.word], up - place.shift);
    } else {
      return LanesFromBit<0>(group, up, 0);
    }
  }

  // kBits | code in every lane, moved up by kUp bits.
  template <uint32_t kBits, int kUp = 0>
  __host__ __device__ uint32_t Raised(int group) const {
    constexpr uint32_t kMask = InLanes(LowBits(kCodeBits) << kUp, Layout().lane_bits);
    if constexpr (kOnePlane) {
      return ptx::SelectOr<kMask, kBits>(Lanes(group, kUp));
    } else if constexpr (Layout().has_whole_threes()) {
      if (group == kLastThree) return LastThrees(kUp, kBits);
      return ptx::SelectOr<kMask, kBits>(Lanes(group, kUp));
    } else {
      return LanesFromBit<0>(group, kUp, kBits);
    }
  }

  // Whether the group's lanes come out of the same shift as those of the group before it when they stay one code
  // further up.
  __host__ __device__ static constexpr bool IsBesideAnother(int group) {
    if constexpr (Layout().has_whole_threes()) {
      return group != kLastThree && PackedLayout::BitOfThree(group, 0).shift / kCodeBits % 2 == 1;
    } else {
      return kOnePlane && Layout().LanesIn(Layout().PlaneAt(0), group).shift / kCodeBits % 2 == 1;
    }
  }

  // Of e2m1, spread: sign and magnitude of every lane where bfloat16 has them, magnitudes moved up by kUp bits.
  template <int kUp>
  __host__ __device__ uint32_t Spread(int group) const {
    constexpr uint32_t kSign = 0x80008000u;
    constexpr uint32_t kMagnitude = 0x01c001c0u << kUp;
    const uint32_t word = words[group / 4];
    switch (group % 4) {
      case 0:
        return (Turned(word, kUp) & kMagnitude) | (word & kSign);
      case 1:
        return (Turned(word, kUp - 6) & kMagnitude) | (Turned(word, -6) & kSign);
      case 2:
        return (Turned(word, kUp + 6) & kMagnitude) | (Turned(word, 6) & kSign);
      default:
        return (Turned(word, kUp + 4) & (0x01800180u << kUp)) |
               (Turned(word, kUp - 4) & (0x00400040u << kUp)) | (Turned(word, 4) & kSign);
    }
  }

 private:
  __host__ __device__ static constexpr uint32_t Turned(uint32_t word, int up) {
    const int bits = (up + 32) % 32;
    return bits == 0 ? word : word << bits | word >> (32 - bits);
  }

  static constexpr int kLastThree = PackedLayout::kRegisters - 1;

  // The register whose codes' bits lie apart.
  __host__ __device__ uint32_t LastThrees(int up, uint32_t others) const {
    GEMMD_UNROLL
    for (int bit = 0; bit < 3; ++bit) {
      const PackedLayout::LanePlace place = PackedLayout::BitOfThree(kLastThree, bit);
      others |= ShiftUp(words[place.word], bit + up - place.shift) &
                InLanes((1u << (bit + up)) & LowBits(16), 16);
    }
    return others;
  }

  template <int kBit>
  __device__ void LoadFromBit(const char* slab, int thread) {
    constexpr PackedLayout::Plane kPlane = Layout().PlaneAt(kBit);
    constexpr int kFirst = Layout().WordsOfThread(kBit);
    constexpr int kCount = Layout().WordsOfThread(kPlane.bits);
    const char* const plane = slab + kPlane.offset * 4;
    if constexpr (kCount >= 4) {
      GEMMD_UNROLL
      for (int i = 0; i < kCount; i += 4) {
        const uint4 v =
            reinterpret_cast<const uint4*>(plane)[i / 4 * PackedLayout::kThreads + thread];
        words[kFirst + i] = v.x;
        words[kFirst + i + 1] = v.y;
        words[kFirst + i + 2] = v.z;
        words[kFirst + i + 3] = v.w;
      }
    } else if constexpr (kCount == 2) {
      const uint2 v = reinterpret_cast<const uint2*>(plane)[thread];
      words[kFirst] = v.x;
      words[kFirst + 1] = v.y;
    } else {
      words[kFirst] = reinterpret_cast<const uint32_t*>(plane)[thread];
    }
    if constexpr (kBit + kPlane.bits < kCodeBits) LoadFromBit<kBit + kPlane.bits>(slab, thread);
  }

  template <int kBit>
  __host__ __device__ uint32_t LanesFromBit(int group, int up, uint32_t others) const {
    constexpr PackedLayout::Plane kPlane = Layout().PlaneAt(kBit);
    constexpr int kLaneBits = Layout().lane_bits;
    const PackedLayout::LanePlace place = Layout().LanesIn(kPlane, group);
    const uint32_t word = words[Layout().WordsOfThread(kBit) + place.word];
    const uint32_t codes =
        ShiftUp(word, kBit + up - place.shift) &
        InLanes(LowBits(kPlane.bits) << (kBit + up) & LowBits(kLaneBits), kLaneBits);
    if constexpr (kBit + kPlane.bits < kCodeBits) {
      return LanesFromBit<kBit + kPlane.bits>(group, up, others | codes);
    } else {
      return others | codes;
    }
  }
};

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_SLAB_CODES_SM90_CUH_
