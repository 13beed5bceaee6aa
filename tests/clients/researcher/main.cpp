// Somebody who studies kernels: which candidates there are and why, each forced and held against
// the fp64 reference, every stage alone, and plans that explain themselves to programs. usage:
// researcher_client [folder for explain-<n>.json]
#include <cstdio>

#include "researcher/researcher.hpp"

int main(int argc, char** argv) {
    using namespace clients;
    every_candidate_against_the_reference();
    a_glob_forces_a_stage();
    refused_candidates_say_why();
    every_stage_against_own_loops();
    explanations(argc > 1 ? argv[1] : ".");
    std::puts("researcher client: good");
    return 0;
}
