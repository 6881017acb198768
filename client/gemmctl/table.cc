#include "client/gemmctl/table.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/gemmctl/printable.h"

namespace gemmd::gemmctl {
namespace {

bool LooksNumeric(const std::string& cell) {
  return !cell.empty() &&
         (std::isdigit(static_cast<unsigned char>(cell[0])) != 0 || cell[0] == '-') &&
         cell.size() < 16;
}

}  // namespace

void Table::Add(std::vector<std::string> row) {
  for (size_t i = 0; i < row.size(); ++i) {
    const bool last = i + 1 == row.size();
    row[i] = Shortened(Printable(row[i]), last ? kMostInLastColumn : kMostColumns);
  }
  rows_.push_back(std::move(row));
}

std::string Table::Text() const {
  std::vector<size_t> widths;
  std::vector<bool> numeric;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()), 0);
    numeric.resize(widths.size(), true);
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], Columns(row[i]));
      if (&row != &rows_.front() && !row[i].empty() && !LooksNumeric(row[i])) numeric[i] = false;
    }
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - Columns(row[i]), ' ');
      absl::StrAppend(&line, i == 0 ? "" : "  ", numeric[i] ? padding + row[i] : row[i] + padding);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    absl::StrAppend(&text, line, "\n");
  }
  return text;
}

std::string BytesText(uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit < 4; ++unit) value /= 1024;
  return unit == 0 ? absl::StrCat(bytes, " B") : absl::StrFormat("%.1f %s", value, kUnits[unit]);
}

std::string MicrosecondsText(double microseconds) {
  if (microseconds < 1000) return absl::StrFormat("%.1f us", microseconds);
  if (microseconds < 1e6) return absl::StrFormat("%.2f ms", microseconds / 1e3);
  return absl::StrFormat("%.2f s", microseconds / 1e6);
}

}  // namespace gemmd::gemmctl
