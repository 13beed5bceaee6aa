// verify.hpp - `moe inspect --verify`: a file of packed weights against its checksums.
#pragma once

#include "commands.hpp"

namespace moe::cli {

// Prints what the file holds. Fails with the first chunk whose checksum does not fit.
void verify_packed_file(const InspectOptions& options);

}  // namespace moe::cli
