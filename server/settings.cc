#include "server/settings.h"

#include <cstdint>
#include <iterator>
#include <limits>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "kernels/base/status.h"
#include "server/text.h"

namespace gemmd {
namespace {

using Items = std::vector<std::string>;

absl::Status Bad(absl::string_view value, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("'", Shortened(value), "' ", what));
}

template <typename Integer>
absl::Status SetInteger(const std::string& text, Integer minimum, Integer maximum, Integer& field) {
  Integer value = 0;
  if (!absl::SimpleAtoi(text, &value)) {
    return Bad(text, absl::StrCat("is not an integer in [", minimum, ", ", maximum, "]"));
  }
  if (value < minimum || value > maximum) {
    return Bad(text, absl::StrCat("is out of range [", minimum, ", ", maximum, "]"));
  }
  field = value;
  return absl::OkStatus();
}

absl::Status SetDuration(const std::string& text, absl::Duration minimum, absl::Duration maximum,
                         absl::Duration& field) {
  absl::Duration value;
  if (!absl::ParseDuration(text, &value))
    return Bad(text, "is not a duration such as 30s or 500ms");
  if (value < minimum || value > maximum) {
    return Bad(text, absl::StrCat("is out of range [", absl::FormatDuration(minimum), ", ",
                                  absl::FormatDuration(maximum), "]"));
  }
  field = value;
  return absl::OkStatus();
}

template <typename Enum, size_t kCount>
absl::Status SetChoice(const std::string& text, const char* const (&names)[kCount], Enum& field) {
  for (size_t i = 0; i < kCount; ++i) {
    if (text != names[i]) continue;
    field = static_cast<Enum>(i);
    return absl::OkStatus();
  }
  return Bad(text, absl::StrCat("is none of ", absl::StrJoin(names, ", ")));
}

constexpr const char* kDeviceNames[] = {"auto", "cpu", "cuda"};
constexpr const char* kLogFormatNames[] = {"auto", "json", "text"};
constexpr const char* kLogLevelNames[] = {"trace", "debug", "info", "warn", "error"};

absl::Status SetAbsolutePath(const std::string& text, std::filesystem::path& field) {
  if (text.empty() || text[0] != '/') return Bad(text, "is not an absolute path");
  if (HasControlCharacter(text)) return Bad(text, "has a control character");
  field = std::filesystem::path(text).lexically_normal();
  return absl::OkStatus();
}

absl::Status SetSocketPath(const std::string& text, std::string& field) {
  constexpr size_t kMaxPath = 107;  // sun_path holds 108 bytes with the final zero
  std::filesystem::path path;
  GEMMD_RETURN_IF_ERROR(SetAbsolutePath(text, path));
  if (path.native().size() > kMaxPath) {
    return Bad(
        text, absl::StrCat("has ", path.native().size(), " bytes; a Unix socket takes ", kMaxPath));
  }
  field = path.string();
  return absl::OkStatus();
}

absl::Status SetRoots(const Items& items, std::vector<std::filesystem::path>& field) {
  std::vector<std::filesystem::path> roots(items.size());
  for (size_t i = 0; i < items.size(); ++i)
    GEMMD_RETURN_IF_ERROR(SetAbsolutePath(items[i], roots[i]));
  field = std::move(roots);
  return absl::OkStatus();
}

absl::Status SetUids(const Items& items, std::vector<uid_t>& field) {
  constexpr uid_t kMaxUid = std::numeric_limits<uid_t>::max() - 1;
  std::vector<uid_t> uids(items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    GEMMD_RETURN_IF_ERROR(SetInteger<uid_t>(items[i], 0, kMaxUid, uids[i]));
  }
  field = std::move(uids);
  return absl::OkStatus();
}

// host:port with a numeric port; the host may be empty for nothing but a disabled endpoint.
absl::Status SetAddress(const std::string& text, std::string& field) {
  if (text.empty()) {
    field.clear();
    return absl::OkStatus();
  }
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return Bad(text, "is not host:port");
  int port = 0;
  GEMMD_RETURN_IF_ERROR(SetInteger(text.substr(colon + 1), 0, 65535, port));
  field = text;
  return absl::OkStatus();
}

// Settings of one scalar, by field.
template <auto kField, int kMinimum, int kMaximum>
absl::Status SetLimit(Config& config, const Items& items) {
  return SetInteger<int>(items[0], kMinimum, kMaximum, config.node.*kField);
}
template <auto kField>
std::string GetLimit(const Config& config) {
  return absl::StrCat(config.node.*kField);
}
template <auto kField>
constexpr Setting Scalar(const char* name, absl::Status (*set)(Config&, const Items&)) {
  return {name, false, set, [](const Config& config) -> std::string { return config.*kField; }};
}

constexpr uint64_t kMaxRegionBytes = uint64_t{1} << 50;
constexpr uint64_t kMaxCacheBytes = uint64_t{1} << 50;

const Setting kSettings[] = {
    Scalar<&Config::socket>(
        "socket", [](Config& c, const Items& i) { return SetSocketPath(i[0], c.socket); }),
    Scalar<&Config::session_socket>(
        "session_socket",
        [](Config& c, const Items& i) { return SetSocketPath(i[0], c.session_socket); }),
    {"device", false,
     [](Config& c, const Items& i) { return SetChoice(i[0], kDeviceNames, c.device); },
     [](const Config& c) { return std::string(kDeviceNames[static_cast<int>(c.device)]); }},
    {"checkpoint_roots", true,
     [](Config& c, const Items& i) { return SetRoots(i, c.node.checkpoint_roots); },
     [](const Config& c) {
       return absl::StrJoin(c.node.checkpoint_roots, ",",
                            [](std::string* out, const auto& path) { *out += path.string(); });
     }},
    {"gptq_zero_points", false,
     [](Config& c, const Items& i) { return SetChoice(i[0], kGptqZeroPointsNames, c.node.reading.gptq_zero_points); },
     [](const Config& c) { return c.node.reading.Text(); }},
    {"cache_dir", false,
     [](Config& c, const Items& i) { return SetAbsolutePath(i[0], c.cache_dir); },
     [](const Config& c) { return c.cache_dir.string(); }},
    {"cache_max_bytes", false,
     [](Config& c, const Items& i) {
       return SetInteger<uint64_t>(i[0], 0, kMaxCacheBytes, c.cache_max_bytes);
     },
     [](const Config& c) { return absl::StrCat(c.cache_max_bytes); }},
    Scalar<&Config::metrics_address>(
        "metrics_address",
        [](Config& c, const Items& i) { return SetAddress(i[0], c.metrics_address); }),
    {"log_format", false,
     [](Config& c, const Items& i) { return SetChoice(i[0], kLogFormatNames, c.log_format); },
     [](const Config& c) { return std::string(kLogFormatNames[static_cast<int>(c.log_format)]); }},
    {"log_level", false,
     [](Config& c, const Items& i) { return SetChoice(i[0], kLogLevelNames, c.log_level); },
     [](const Config& c) { return std::string(kLogLevelNames[static_cast<int>(c.log_level)]); }},
    {"drain_deadline", false,
     [](Config& c, const Items& i) {
       return SetDuration(i[0], absl::ZeroDuration(), absl::Hours(1), c.drain_deadline);
     },
     [](const Config& c) { return absl::FormatDuration(c.drain_deadline); }},
    {"cpu_threads", false,
     [](Config& c, const Items& i) { return SetInteger(i[0], 0, 1024, c.cpu_threads); },
     [](const Config& c) { return absl::StrCat(c.cpu_threads); }},
    {"compile_workers", false,
     [](Config& c, const Items& i) { return SetInteger(i[0], 0, 1024, c.compile_workers); },
     [](const Config& c) { return absl::StrCat(c.compile_workers); }},
    {"admin_uids", true, [](Config& c, const Items& i) { return SetUids(i, c.admin_uids); },
     [](const Config& c) { return absl::StrJoin(c.admin_uids, ","); }},
    {"max_sessions", false, SetLimit<&NodeOptions::max_sessions, 1, 65536>,
     GetLimit<&NodeOptions::max_sessions>},
    {"max_regions_per_session", false, SetLimit<&NodeOptions::max_regions_per_session, 1, 1 << 20>,
     GetLimit<&NodeOptions::max_regions_per_session>},
    {"max_region_bytes_per_session", false,
     [](Config& c, const Items& i) {
       return SetInteger<uint64_t>(i[0], 1, kMaxRegionBytes, c.node.max_region_bytes_per_session);
     },
     GetLimit<&NodeOptions::max_region_bytes_per_session>},
    {"max_layers_per_session", false, SetLimit<&NodeOptions::max_layers_per_session, 1, 1 << 24>,
     GetLimit<&NodeOptions::max_layers_per_session>},
    {"max_queued_per_session", false, SetLimit<&NodeOptions::max_queued_per_session, 1, 1 << 16>,
     GetLimit<&NodeOptions::max_queued_per_session>},
    {"loader_threads", false, SetLimit<&NodeOptions::loader_threads, 0, 64>,
     GetLimit<&NodeOptions::loader_threads>},
    {"stream_grace", false,
     [](Config& c, const Items& i) {
       return SetDuration(i[0], absl::Milliseconds(10), absl::Minutes(10), c.node.stream_grace);
     },
     [](const Config& c) { return absl::FormatDuration(c.node.stream_grace); }},
};

}  // namespace

absl::Span<const Setting> Settings() { return kSettings; }

const Setting* FindSetting(const std::string& name) {
  for (const Setting& setting : kSettings) {
    if (name == setting.name) return &setting;
  }
  return nullptr;
}

}  // namespace gemmd
