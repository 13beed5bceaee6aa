// A serving engine's use of libmoe: its own routing, dispatch and batching around the experts,
// slices of the layer on several ranks, and what a captured graph needs. The judge is the clients'
// own layer in double precision.
#include "serving/serving.hpp"

int main() {
    using namespace clients;
    forward_with_own_routing();
    stages_equal_forward();
    expert_parallel();
    tensor_parallel();
    tokens_counted_on_the_device();
    faults_are_reported();
    expert_map_overrides_membership();
    weight_on_input();
    identity_experts();
    std::puts("serving client: good");
    return 0;
}
