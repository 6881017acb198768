// What    A set of case numbers as text: "0-41,43,50-99".
// Errors  InvalidArgument: not of that form, or not ascending.
// Threads One thread.
#ifndef GEMMD_TESTS_KERNELS_SELECT_MATRIX_CASE_SET_H_
#define GEMMD_TESTS_KERNELS_SELECT_MATRIX_CASE_SET_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace gemmd::matrix {

class CaseSet {
 public:
  // Of cases 0 to size - 1.
  explicit CaseSet(size_t size) : has_(size, false) {}
  static absl::StatusOr<CaseSet> Parse(const std::string& text, size_t size);
  std::string ToText() const;

  void Add(size_t index) { has_[index] = true; }
  bool Has(size_t index) const { return has_[index]; }
  size_t count() const;
  CaseSet& operator|=(const CaseSet& other);  // of the same size

 private:
  std::vector<bool> has_;
};

}  // namespace gemmd::matrix

#endif  // GEMMD_TESTS_KERNELS_SELECT_MATRIX_CASE_SET_H_
