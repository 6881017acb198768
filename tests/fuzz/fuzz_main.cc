// What    Runs a fuzz target without libFuzzer: every seed, then random changes of the seeds for a number of
//         seconds. The same seed number gives the same inputs on every machine.
// Usage   program [--seconds N] [--seed N] [--only ITERATION] [--write-seeds DIRECTORY] [FILE...]
//         Files are run instead of the seeds. The number of the iteration is printed when one crashes.
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz_target.h"

namespace {

volatile uint64_t current_iteration = 0;

// Only async-signal-safe calls.
void ReportIteration(int signal) {
  char digits[24];
  int length = 0;
  for (uint64_t rest = current_iteration; length == 0 || rest > 0; rest /= 10) {
    digits[sizeof(digits) - ++length] = static_cast<char>('0' + rest % 10);
  }
  constexpr char kText[] = "\ncrashed; repeat with --only ";
  (void)!write(STDERR_FILENO, kText, sizeof(kText) - 1);
  (void)!write(STDERR_FILENO, digits + sizeof(digits) - length, length);
  (void)!write(STDERR_FILENO, "\n", 1);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void Run(const std::string& input) {
  // A copy of exactly this size, so that AddressSanitizer sees the first byte too many.
  std::vector<uint8_t> bytes(input.begin(), input.end());
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
}

class Mutator {
 public:
  Mutator(const std::vector<std::string>& seeds, uint64_t seed) : seeds_(seeds), random_(seed) {}

  std::string Make() {
    std::string input = Seed();
    for (uint64_t changes = 1 + Below(4); changes > 0; --changes) Change(input);
    return input;
  }

 private:
  uint64_t Below(uint64_t bound) { return bound == 0 ? 0 : random_() % bound; }
  const std::string& Seed() { return seeds_[Below(seeds_.size())]; }
  // Headers and configs are at the front: half of the changes go there.
  uint64_t Place(const std::string& input) {
    return Below(Below(2) == 0 ? input.size() : std::min<uint64_t>(input.size(), 1024));
  }

  void Change(std::string& input) {
    if (input.empty()) input.push_back('\0');
    const uint64_t place = Place(input);
    switch (Below(8)) {
      case 0:
        input[place] ^= static_cast<char>(1 << Below(8));
        break;
      case 1:
        input[place] = static_cast<char>(Below(256));
        break;
      case 2:
        input.resize(place);
        break;
      case 3:
        input.erase(place, 1 + Below(16));
        break;
      case 4:
        input.insert(place, input.substr(Place(input), 1 + Below(64)));
        break;
      case 5:
        ChangeNumber(input, place);
        break;
      case 6: {
        const std::string& other = Seed();
        input.replace(place, 1 + Below(64), other.substr(Below(other.size()), Below(64)));
        break;
      }
      default:
        for (uint64_t i = 0; i < 8 && place + i < input.size(); ++i) {
          input[place + i] = static_cast<char>(Below(2) == 0 ? 0xff : 0);
        }
    }
  }

  // The next decimal number behind `place` becomes a remarkable one.
  void ChangeNumber(std::string& input, uint64_t place) {
    static const char* const kNumbers[] = {"0",
                                           "1",
                                           "2",
                                           "3",
                                           "5",
                                           "-1",
                                           "1e99",
                                           "4294967296",
                                           "16",
                                           "9223372036854775807",
                                           "32",
                                           "128",
                                           "18446744073709551615"};
    const size_t first = input.find_first_of("0123456789", place);
    if (first == std::string::npos) return;
    const size_t last = input.find_first_not_of("0123456789", first);
    input.replace(first, (last == std::string::npos ? input.size() : last) - first,
                  kNumbers[Below(std::size(kNumbers))]);
  }

  const std::vector<std::string>& seeds_;
  std::mt19937_64 random_;
};

struct Options {
  double seconds = 5;
  uint64_t seed = 1;
  uint64_t only = 0;  // 0 = all
  std::string write_seeds;
  std::vector<std::string> files;
};

Options Parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const bool has_value = i + 1 < argc;
    if (argument == "--seconds" && has_value) {
      options.seconds = std::atof(argv[++i]);
    } else if (argument == "--seed" && has_value) {
      options.seed = std::strtoull(argv[++i], nullptr, 10);
    } else if (argument == "--only" && has_value) {
      options.only = std::strtoull(argv[++i], nullptr, 10);
    } else if (argument == "--write-seeds" && has_value) {
      options.write_seeds = argv[++i];
    } else {
      options.files.push_back(argument);
    }
  }
  return options;
}

void RunFiles(const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    std::ifstream stream(file, std::ios::binary);
    std::stringstream content;
    content << stream.rdbuf();
    Run(content.str());
    std::printf("%s: ok\n", file.c_str());
  }
}

void WriteSeeds(const std::vector<std::string>& seeds, const std::string& directory) {
  for (size_t i = 0; i < seeds.size(); ++i) {
    std::ofstream(directory + "/seed" + std::to_string(i), std::ios::binary) << seeds[i];
  }
}

// Iteration i uses a generator of its own, so that it can be repeated alone.
void Fuzz(const std::vector<std::string>& seeds, const Options& options) {
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::duration<double>(options.seconds);
  uint64_t iteration = options.only == 0 ? 1 : options.only;
  do {
    current_iteration = iteration;
    Run(Mutator(seeds, options.seed * 0x9e3779b97f4a7c15u + iteration).Make());
    ++iteration;
  } while (options.only == 0 && std::chrono::steady_clock::now() < end);
  std::printf("%zu seeds and %llu inputs, no fault\n", seeds.size(),
              static_cast<unsigned long long>(options.only == 0 ? iteration - 1 : 1));
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = Parse(argc, argv);
  if (!options.files.empty()) {
    RunFiles(options.files);
    return 0;
  }
  const std::vector<std::string> seeds = gemmd::FuzzSeeds();
  if (seeds.empty()) {
    std::fputs("no seeds: tests/data is missing\n", stderr);
    return 1;
  }
  if (!options.write_seeds.empty()) {
    WriteSeeds(seeds, options.write_seeds);
    return 0;
  }
  for (const int signal : {SIGABRT, SIGSEGV, SIGFPE, SIGBUS, SIGILL})
    std::signal(signal, ReportIteration);
  if (options.only == 0) {
    for (const std::string& seed : seeds) Run(seed);
  }
  Fuzz(seeds, options);
  return 0;
}
