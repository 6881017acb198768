// What    What became of the compile matrix, over any number of runs:
//           {"matrix": {"digest", "cases"}, "device_sources", "compiler", "commit",
//            "complete": bool, "passed": bool,
//            "architectures": {"sm_80": {"cases", "compiled", "failed", "missing", "largest_frame",
//             "largest_registers", "longest_seconds"}, ...},
//            "faults": [{"case", "kernel", "architecture", "what": "failed" | "spills" | "warns" |
//             "serialises", "text"}],
//            "stacks": [...],    as faults: a frame where none was promised
//            "compiled": "0-41,43", "failed": "42",
//            "runs": [{"date", "cpu", "cores", "workers", "shard", "seconds", "cases"}]}
// Keys    Records merge when matrix, device sources and compiler are the same.
// Errors  InvalidArgument: not of that form. FailedPrecondition: of another matrix.
// Threads One thread.
#ifndef GEMMD_TESTS_KERNELS_SELECT_MATRIX_RECORD_H_
#define GEMMD_TESTS_KERNELS_SELECT_MATRIX_RECORD_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/kernels/select/matrix/case_set.h"
#include "tests/kernels/select/matrix/matrix_cases.h"

namespace gemmd::matrix {

struct Fault {
  size_t number = 0;  // of the case
  std::string kernel;
  std::string architecture;
  std::string what;  // "failed", "spills", "warns", "serialises"; in Record::stacks "stack"
  std::string text;  // the compiler's
  friend bool operator==(const Fault&, const Fault&) = default;
};

struct Run {
  std::string date;
  std::string cpu;
  int cores = 0;
  int workers = 0;
  std::string shard;  // "1/4"
  double seconds = 0;
  size_t cases = 0;
  friend bool operator==(const Run&, const Run&) = default;
};

// Of the kernels of one architecture.
struct Extremes {
  int largest_frame = 0;  // bytes a thread
  int largest_registers = 0;
  double longest_seconds = 0;  // of a compilation, beside whatever else the machine did
};

struct Record {
  explicit Record(size_t cases) : size(cases), compiled(cases), failed(cases) {}

  std::string matrix_digest;
  size_t size;
  std::string sources_digest;
  std::string compiler;
  std::string commit;
  CaseSet compiled;
  CaseSet failed;
  std::vector<Fault> faults;
  std::vector<Fault> stacks;
  std::map<std::string, Extremes> extremes;  // by architecture
  std::vector<Run> runs;

  bool Done(size_t index) const { return compiled.Has(index) || failed.Has(index); }
  size_t done() const { return compiled.count() + failed.count(); }
  bool complete() const { return done() == size; }
};

// An empty record of this program's matrix.
Record RecordOf(const std::vector<MatrixCase>& cases, const std::string& compiler,
                const std::string& commit);

// `cases`: the record's own, for the counts by architecture.
std::string Render(const Record& record, const std::vector<MatrixCase>& cases);
absl::StatusOr<Record> Parse(const std::string& text);

// Whether both tell of the same matrix.
absl::Status SameMatrix(const Record& a, const Record& b);
// What only `from` knows goes to `into`.
absl::Status Merge(const Record& from, Record& into);

// One line an architecture, and one in all.
std::string Describe(const Record& record, const std::vector<MatrixCase>& cases);

}  // namespace gemmd::matrix

#endif  // GEMMD_TESTS_KERNELS_SELECT_MATRIX_RECORD_H_
