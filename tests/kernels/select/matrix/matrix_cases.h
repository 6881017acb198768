// What    Every kernel that gemmd can ask the compiler for, each once: what the programs of a layer
//         (kernels/layer_programs.h) are over all formats, options, shapes and architectures.
//           generic      formats x scales x zero points x secondary scales x group index, dense and
//                        indexed, on every architecture that is legal
//           specialised  every other kernel of a layer, over groups, activations and shapes too; the
//                        shapes stand for the tiles that they lead to
//           around       routing, activation and combination of mixtures of experts
// Order   Fixed, and mixed: neighbours are of different families, formats and architectures.
// Threads Pure functions.
#ifndef GEMMD_TESTS_KERNELS_SELECT_MATRIX_MATRIX_CASES_H_
#define GEMMD_TESTS_KERNELS_SELECT_MATRIX_MATRIX_CASES_H_

#include <cstddef>
#include <string>
#include <vector>

#include "kernels/jit/compiler.h"

namespace gemmd::matrix {

enum class Family { kGeneric, kSpecialised, kAround };

struct MatrixCase {
  Family family;
  jit::KernelSource source;
  // Registers never go to memory. Of Blackwell's generic kernels a few have a stack.
  bool promises_no_spills() const;  // beyond allowed_frame_bytes
  int allowed_frame_bytes() const;
};

// All of one architecture, or of every one; none where `architecture` is no name of one with kernels.
std::vector<MatrixCase> WholeMatrix(const std::string& architecture = "");
// A part that has every format, scale type, option and architecture.
std::vector<MatrixCase> Sample();

// SHA-256 over all programs, names and architectures in order.
std::string DigestOf(const std::vector<MatrixCase>& cases);

}  // namespace gemmd::matrix

#endif  // GEMMD_TESTS_KERNELS_SELECT_MATRIX_MATRIX_CASES_H_
