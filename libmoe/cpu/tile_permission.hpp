// Whether this process may use the tiles of AMX: tests that emulate them answer otherwise.
#pragma once

namespace moe::cpu {

// The processor has tiles with products of bytes and of bfloat16, and the system keeps them with a
// thread's registers.
bool has_tiles();
// The system lets this process use them. The first call requests permission, for all threads.
bool may_use_tiles();

}  // namespace moe::cpu
