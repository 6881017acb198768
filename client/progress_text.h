// What    What the daemon was doing with a layer and how far it was, for the error of a call that was not answered in
//         time: "quantizing: 512 of 4096 bytes of the weights were done".
// Threads Pure functions.
#ifndef GEMMD_CLIENT_PROGRESS_TEXT_H_
#define GEMMD_CLIENT_PROGRESS_TEXT_H_

#include <string>

#include "gemmd/v1/layer.pb.h"
#include "gemmd/v1/model.pb.h"

namespace gemmd::client {

// Of the last message of RegisterLayer; of an empty one where none came.
std::string ProgressText(const v1::RegisterLayerProgress& progress);

// The same of RegisterModel: modules, and of the module that changed last what was done with it.
std::string ProgressText(const v1::RegisterModelProgress& progress);

}  // namespace gemmd::client

#endif  // GEMMD_CLIENT_PROGRESS_TEXT_H_
