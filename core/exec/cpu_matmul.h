// What    The arithmetic of the CPU device: x * w^T in double precision on a BLAS.
// Shapes  x [PaddedRows(rows), ld], w [n, ld], out [n, PaddedRows(rows)]: transposed, so that a
//         block of weight rows is one contiguous piece. ld = PaddedColumns(k): rows start at
//         64-byte boundaries.
// Threads Pure functions; the BLAS runs in the calling thread.
// Source  Which bits depend on what: core/exec/README.md, "Batch invariance".
#ifndef GEMMD_CORE_EXEC_CPU_MATMUL_H_
#define GEMMD_CORE_EXEC_CPU_MATMUL_H_

#include <cstdint>
#include <memory>

#include "absl/types/span.h"
#include "core/quant/standard_tensor.h"

namespace gemmd {

// Doubles aligned to 64 bytes, not initialised.
class Scratch {
 public:
  explicit Scratch(int64_t count);
  double* data() { return data_.get(); }

 private:
  struct Free {
    void operator()(double* data) const;
  };
  std::unique_ptr<double, Free> data_;
};

inline int64_t PaddedColumns(int64_t k) { return (k + 7) / 8 * 8; }
// Rows of x come in tiles of 16, filled up with zeros: a multiple of every BLAS kernel's register
// tile, so that no row is computed by code for remainders.
inline int64_t PaddedRows(int64_t rows) { return (rows + 15) / 16 * 16; }

// Zeroes the rows of x between `rows` and PaddedRows(rows).
void ZeroPadding(double* x, int64_t rows, int64_t k);

// Weight rows dequantized together: about 4 MiB, at least 8, at most 256. Depends on the layer
// only.
int64_t WeightBlockRows(int64_t n, int64_t k);

// How a block is multiplied. kMatrix is fast. kRowByRow computes each row of x by a call that sees
// no other row, so its bits cannot depend on them or on their number.
enum class Order : uint8_t { kMatrix, kRowByRow };

// w[i, 0..k) = row rows[i] of `expert`, dequantized exactly.
void DequantizeRows(const StandardTensor& tensor, int64_t expert, absl::Span<const int64_t> rows,
                    double* w);

// out[i, m] = sum over k of w[i, k] * x[m, k]. The padding of x is zero.
void Multiply(Order order, const double* x, int64_t rows, const double* w, int64_t n, int64_t k,
              double* out);

// Keeps the BLAS from starting threads of its own: blocks are dealt to our pool.
void UseOneBlasThread();

}  // namespace gemmd

#endif  // GEMMD_CORE_EXEC_CPU_MATMUL_H_
