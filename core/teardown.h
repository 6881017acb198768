// What    Where failures to give a driver object back are told. They have no caller to return to.
// Threads `report` is called by any thread that releases something.
#ifndef GEMMD_CORE_TEARDOWN_H_
#define GEMMD_CORE_TEARDOWN_H_

#include <string>

namespace gemmd {

// Null: standard error, as before the first call.
void ReportTeardownTo(void (*report)(const std::string& message));

}  // namespace gemmd

#endif  // GEMMD_CORE_TEARDOWN_H_
