// The parts of the engine client.
#pragma once

#include <string>

namespace clients {

// memory.cpp
void every_byte_through_the_allocator();
void forward_allocates_nothing();
// threads.cpp
void threads_of_the_engine();
// model.cpp: writes a model file of more than 512 MB into the folder and deletes it.
void model_from_a_mapped_file(const std::string& folder);

}  // namespace clients
