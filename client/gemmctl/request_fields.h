// What    What the daemon says of a field of a request, said of the option that filled it: nobody at a command line
//         knows the fields.
// Threads Pure functions.
#ifndef GEMMD_CLIENT_GEMMCTL_REQUEST_FIELDS_H_
#define GEMMD_CLIENT_GEMMCTL_REQUEST_FIELDS_H_

#include <string>

#include "absl/status/status.h"

namespace gemmd::gemmctl {

// "slice.rows.rank.rank is 5, must be below size 4" -> "the rank of --rows is 5, must be below size 4";
// "checkpoint.quantize: ..." -> "--quantize: ...". The message as it is where the status is not about a field, or about
// one that no option fills.
std::string MessageForOptions(const absl::Status& status);

}  // namespace gemmd::gemmctl

#endif  // GEMMD_CLIENT_GEMMCTL_REQUEST_FIELDS_H_
