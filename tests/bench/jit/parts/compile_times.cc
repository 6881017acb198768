#include "tests/bench/jit/parts/compile_times.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/jit/compile_backend.h"
#include "kernels/jit/compiler.h"
#include "tests/bench/jit/parts/subjects.h"

namespace gemmd::jit_bench {
namespace {

constexpr double kBar = 1000;
constexpr absl::Duration kLimit = absl::Seconds(120);

// Milliseconds of one compilation.
absl::StatusOr<double> Once(jit::CompileBackend& backend, const jit::KernelSource& source,
                            const std::string& compiler, std::string& note) {
  const Stopwatch watch;
  GEMMD_ASSIGN_OR_RETURN(const jit::CompiledKernel kernel,
                         backend.Compile(source, compiler, nullptr));
  const double milliseconds = watch.milliseconds();
  note = absl::StrCat(kernel.cubin.size(), " bytes");
  return milliseconds;
}

// With a backend that has compiled before.
absl::StatusOr<bench::Summary> Running(
    const std::function<std::unique_ptr<jit::CompileBackend>()>& make,
    const jit::KernelSource& source, int samples, std::string& note) {
  const auto backend = make();
  GEMMD_ASSIGN_OR_RETURN(const std::string compiler, backend->Identity());
  GEMMD_RETURN_IF_ERROR(Once(*backend, source, compiler, note).status());
  return Sample(samples, [&] { return Once(*backend, source, compiler, note); });
}

absl::StatusOr<bench::Summary> Started(const Setup& setup, const jit::KernelSource& source,
                                       std::string& note) {
  GEMMD_ASSIGN_OR_RETURN(const std::string compiler,
                         jit::HelperBackend(setup.helper, kLimit)->Identity());
  return Sample(setup.samples, [&] {
    const auto backend = jit::HelperBackend(setup.helper, kLimit);
    return Once(*backend, source, compiler, note);
  });
}

void MeasureSubject(const Setup& setup, const Subject& subject, Log& log) {
  const auto row = [&](const char* what) {
    return Measurement{.part = "a",
                       .what = what,
                       .subject = NameOf(subject),
                       .unit = "ms",
                       .value = {},
                       .bar = kBar};
  };
  const auto add = [&](const char* what, const auto& measure) {
    Measurement measured = row(what);
    const absl::StatusOr<jit::KernelSource> source = SourceOf(subject, setup.architecture);
    const absl::StatusOr<bench::Summary> value =
        source.ok() ? measure(*source, measured.note) : source.status();
    log.Add(std::move(measured), value);
  };
  add("compile, in the process", [&](const auto& source, std::string& note) {
    return Running([] { return jit::InProcessBackend(nullptr); }, source, setup.samples, note);
  });
  add("compile, running helper", [&](const auto& source, std::string& note) {
    return Running([&] { return jit::HelperBackend(setup.helper, kLimit); }, source, setup.samples,
                   note);
  });
  add("compile, helper started for it",
      [&](const auto& source, std::string& note) { return Started(setup, source, note); });
}

}  // namespace

void MeasureCompiles(const Setup& setup, Log& log) {
  for (const Subject& subject : Subjects()) MeasureSubject(setup, subject, log);
}

}  // namespace gemmd::jit_bench
