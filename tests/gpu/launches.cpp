// The hook of test builds, and what a kernel's name must agree with.
#include "launches.hpp"

#include <cxxabi.h>
#include <dlfcn.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "libmoe/packed/layout.hpp"

namespace moe_gpu {
namespace {

using Hook = void (*)(const char* kernel, const void* function, void* user_data);
using SetHook = void (*)(Hook hook, void* user_data);

struct Record {
    std::mutex mutex;
    std::vector<Launch> launches;
};

// Never destroyed: a launch may come at the end of the process.
Record& record() {
    static auto& kept = *new Record;
    return kept;
}

void add_launch(const char* kernel, const void* function, void*) {
    std::lock_guard lock(record().mutex);
    record().launches.push_back({kernel, function});
}

bool set_hook() {
    auto* set = reinterpret_cast<SetHook>(dlsym(RTLD_DEFAULT, "moe_test_set_launch_hook"));
    if (set) set(add_launch, nullptr);
    return set != nullptr;
}

}  // namespace

bool are_launches_recorded() {
    static const bool recorded = set_hook();
    return recorded;
}

void need_launches() {
    if (!are_launches_recorded()) throw Skip("the library is built without MOE_LAUNCH_HOOK");
}

size_t launch_mark() {
    std::lock_guard lock(record().mutex);
    return record().launches.size();
}

std::vector<Launch> launches_since(size_t mark) {
    std::lock_guard lock(record().mutex);
    const auto& all = record().launches;
    return {all.begin() + static_cast<ptrdiff_t>(std::min(mark, all.size())), all.end()};
}

void forget_launches() {
    std::lock_guard lock(record().mutex);
    record().launches.clear();
}

std::set<std::string> names_of(const std::vector<Launch>& launches) {
    std::set<std::string> names;
    for (const Launch& launch : launches) names.insert(launch.kernel);
    return names;
}

bool stands_for(const std::string& named, const std::string& launched) {
    return launched.rfind(named, 0) == 0 &&
           (launched.size() == named.size() || launched[named.size()] == '_');
}

// ---- names

namespace {

struct Family {
    const char* name;
    std::vector<const char*> functions;
    std::vector<const char*> sm80_functions;  // of names that begin with sm80; empty: the same
    std::vector<const char*> fp8_functions;   // of names with activations of fp8; likewise
    bool has_packed_type;  // among the template arguments; the other kernels ask at run time
};

const std::vector<Family>& families() {
    static const std::vector<Family> all = {
        {"gemv", {"gemv_gate_up", "gemv_down"}, {}, {}, true},
        {"grouped_gemm", {"grouped_kernel"}, {"sm80_grouped_kernel"}, {"fp8_grouped_kernel"}, true},
        {"exact", {"exact_gemm"}, {}, {}, false},
    };
    return all;
}

const Family* family_in(const std::string& name) {
    for (const Family& family : families())
        if (name.find(std::string("_") + family.name) != std::string::npos) return &family;
    return nullptr;
}

std::string squeezed(const std::string& text) {
    std::string result;
    for (const char c : text)
        if (c != '_') result += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return result;
}

// Types that share a template: their number is its argument. Grids have names of what they hold.
std::optional<moe::PackedType> type_named(const std::string& name) {
    using enum moe::PackedType;
    static const std::map<std::string, moe::PackedType> grids = {
        {"fp8", grid_e4m3}, {"int1", grid_1},
        {"int2", grid_2},   {"int3", grid_3},
        {"int4", grid_4},   {"int5", grid_5},
        {"int6", grid_6},   {"int7", grid_7},
        {"int8", grid_8},   {"codebook4", grid_codebook}};
    if (const auto found = grids.find(name); found != grids.end()) return found->second;
    for (const moe::PackedTraits& row : moe::packed_traits)
        if (name == row.name) return row.type;
    return std::nullopt;
}

// At the beginning of a word, as Bf16 is one in GroupedBf16 and F16 is none.
bool has_word(const std::string& text, const std::string& word) {
    for (size_t i = 1; i < text.size(); ++i) {
        const auto here = static_cast<unsigned char>(text[i]);
        const auto before = static_cast<unsigned char>(text[i - 1]);
        const bool begins = std::isupper(here) || (std::isalnum(here) && !std::isalnum(before));
        if (begins && squeezed(text.substr(i)).rfind(squeezed(word), 0) == 0) return true;
    }
    return false;
}

bool has_type(const std::string& demangled, const std::string& weight) {
    const size_t begin = demangled.find('<');
    if (begin == std::string::npos) return false;
    const std::string arguments = demangled.substr(begin), number = "PackedType)";
    const std::optional<moe::PackedType> type = type_named(weight);
    if (!type || arguments.find(number) == std::string::npos) return has_word(arguments, weight);
    const std::string wanted = number + text("%d", static_cast<int>(*type));
    return arguments.find(wanted + ",") != std::string::npos ||
           arguments.find(wanted + ">") != std::string::npos;
}

// Gate and up of two types are both named, with a plus between them.
bool has_one_of_types(const std::string& demangled, const std::string& weights) {
    for (size_t begin = 0; begin <= weights.size();) {
        const size_t end = std::min(weights.find('+', begin), weights.size());
        if (has_type(demangled, weights.substr(begin, end - begin))) return true;
        begin = end + 1;
    }
    return false;
}

const std::vector<const char*>& functions_of(const Family& family, const KernelName& name) {
    if (name.arch == "sm80" && !family.sm80_functions.empty()) return family.sm80_functions;
    if (name.activation == "fp8" && !family.fp8_functions.empty()) return family.fp8_functions;
    return family.functions;
}

bool has_function(const std::string& demangled, const Family& family, const KernelName& kernel) {
    const auto& functions = functions_of(family, kernel);
    return std::any_of(functions.begin(), functions.end(), [&](const char* function) {
        const std::string name = function;
        return demangled.find("::" + name + "<") != std::string::npos ||
               demangled.find("::" + name + "(") != std::string::npos;
    });
}

std::string demangled(const char* name) {
    int status = 0;
    const std::unique_ptr<char, void (*)(void*)> text(
        abi::__cxa_demangle(name, nullptr, nullptr, &status), std::free);
    return text ? text.get() : name;
}

}  // namespace

KernelName::KernelName(const std::string& name) : arch(name.substr(0, name.find('_'))) {
    const Family* found = family_in(name);
    if (!found) return;
    family = found->name;
    const std::string head = name.substr(0, name.find(std::string("_") + found->name)) + "_";
    size_t last = 0;
    for (const char* type : {"bf16", "f16", "f32", "fp8", "int8"}) {
        const size_t at = head.rfind(std::string("_") + type + "_");
        if (at == std::string::npos || at < last) continue;
        last = at;
        activation = type;
    }
    if (last > arch.size()) weight = head.substr(arch.size() + 1, last - arch.size() - 1);
}

bool is_function_of(const std::string& kernel, const std::string& demangled) {
    const Family* family = family_in(kernel);
    if (!family) return true;
    const KernelName name(kernel);
    const std::string& weight = name.weight;
    const bool names_type = family->has_packed_type && !weight.empty() && weight != "any";
    return has_function(demangled, *family, name) &&
           (!names_type || has_one_of_types(demangled, weight));
}

void check_functions(Context& context, const std::vector<Launch>& launches) {
    std::map<std::string, std::set<const void*>> functions;
    for (const Launch& launch : launches)
        if (launch.function && family_in(launch.kernel))
            functions[launch.kernel].insert(launch.function);
    for (const auto& [kernel, all] : functions)
        for (const void* function : all) {
            const std::string mangled = context.device.kernel_function_name(function);
            if (mangled.empty()) continue;
            const std::string name = demangled(mangled.c_str());
            context.expect(is_function_of(kernel, name), kernel + " was launched as " + name);
            ++context.n_functions_checked;
        }
}

}  // namespace moe_gpu
