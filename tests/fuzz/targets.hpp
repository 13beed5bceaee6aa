// The functions of every target; each pair lies in <name>_target.cpp.
#pragma once

#include "tests/fuzz/target.hpp"

namespace moe_fuzz {

// A safetensors file: header, tiling, index.
void run_safetensors(std::string_view input);
std::string mutate_safetensors(std::string_view input, Random& random);
// model.safetensors.index.json.
void run_index(std::string_view input);
std::string mutate_index(std::string_view input, Random& random);
// config.json beside tensors of every family: settings, family, layer descriptions.
void run_config(std::string_view input);
std::string mutate_config(std::string_view input, Random& random);
// A GGUF file through moe.h: open, describe, plan, load, one token.
void run_gguf(std::string_view input);
std::string mutate_gguf(std::string_view input, Random& random);
// A folder through moe.h: u32 length of config.json, config.json, model.safetensors.
void run_model(std::string_view input);
std::string mutate_model(std::string_view input, Random& random);
// A quant_state of bitsandbytes: the JSON of a tensor, in a checkpoint through moe.h.
void run_quant_state(std::string_view input);
std::string mutate_quant_state(std::string_view input, Random& random);
// moe_plan_create and what takes the same description: structs of any struct_size.
void run_plan(std::string_view input);
std::string mutate_plan(std::string_view input, Random& random);
// A file of packed weights, with host memory in the place of a device's.
void run_packed(std::string_view input);
std::string mutate_packed(std::string_view input, Random& random);

}  // namespace moe_fuzz
