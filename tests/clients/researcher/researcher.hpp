// The parts of the researcher client.
#pragma once

#include <string>

namespace clients {

// kernels.cpp
void every_candidate_against_the_reference();
void a_glob_forces_a_stage();
void refused_candidates_say_why();
// stages.cpp
void every_stage_against_own_loops();
// explain.cpp: writes the explanations of several plans as <folder>/explain-<n>.json.
void explanations(const std::string& folder);

}  // namespace clients
