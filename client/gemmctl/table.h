// What    Text tables for people: columns as wide as their widest cell, two spaces between.
// Threads One thread.
#ifndef GEMMD_CLIENT_GEMMCTL_TABLE_H_
#define GEMMD_CLIENT_GEMMCTL_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace gemmd::gemmctl {

class Table {
 public:
  explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}
  // Cells are made printable (printable.h) and shortened: no client's name draws on the terminal.
  void Add(std::vector<std::string> row);
  // Cells that look like numbers are aligned to the right.
  std::string Text() const;

  static constexpr size_t kMostColumns = 96;
  static constexpr size_t kMostInLastColumn = 1000;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// "1.5 GiB".
std::string BytesText(uint64_t bytes);
// "12.3 us", "4.56 ms".
std::string MicrosecondsText(double microseconds);

}  // namespace gemmd::gemmctl

#endif  // GEMMD_CLIENT_GEMMCTL_TABLE_H_
