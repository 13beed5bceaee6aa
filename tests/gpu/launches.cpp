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

#include "libmoe/weights/packed.hpp"

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
    const char* in_name;
    const char* family;
    std::vector<const char*> functions;
    bool has_packed_type;  // among the template arguments; the other kernels ask at run time
};

const std::vector<Family>& families() {
    static const std::vector<Family> all = {
        {"gemv", "gemv", {"gemv_gate_up", "gemv_down"}, true},
        // As the names are today.
        {"one_token", "gemv", {"gemv_gate_up", "gemv_down"}, true},
        {"grouped", "grouped_gemm", {"grouped_gemm_kernel", "grouped_kernel"}, true},
        {"generic", "generic", {"generic_gemm"}, false},
        {"exact", "exact", {"exact_gemm"}, false},
    };
    return all;
}

const Family* family_in(const std::string& name) {
    for (const Family& family : families())
        if (name.find(std::string("_") + family.in_name) != std::string::npos) return &family;
    return nullptr;
}

std::string squeezed(const std::string& text) {
    std::string result;
    for (const char c : text)
        if (c != '_') result += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return result;
}

// Types that one template has for several: their number is the argument.
const std::map<std::string, moe::PackedType> numbered_types = {
    {"kbit2", moe::PackedType::kbit2},         {"kbit3", moe::PackedType::kbit3},
    {"kbit4", moe::PackedType::kbit4},         {"kbit5", moe::PackedType::kbit5},
    {"kbit2_f32", moe::PackedType::kbit2_f32}, {"kbit3_f32", moe::PackedType::kbit3_f32},
    {"kbit4_f32", moe::PackedType::kbit4_f32}, {"kbit5_f32", moe::PackedType::kbit5_f32},
};

bool has_type(const std::string& demangled, const std::string& weight) {
    const size_t begin = demangled.find('<');
    if (begin == std::string::npos) return false;
    const std::string arguments = demangled.substr(begin);
    if (const auto found = numbered_types.find(weight); found != numbered_types.end())
        return arguments.find(text("PackedType)%d", static_cast<int>(found->second))) !=
               std::string::npos;
    return squeezed(arguments).find(squeezed(weight)) != std::string::npos;
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

bool has_function(const std::string& demangled, const Family& family) {
    return std::any_of(family.functions.begin(), family.functions.end(), [&](const char* function) {
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

// Today's names have the stage before the family: <arch>_<weight>_<activation>_<stage>_<family>.
KernelName::KernelName(const std::string& name) : arch(name.substr(0, name.find('_'))) {
    const Family* found = family_in(name);
    if (!found) return;
    family = found->family;
    const std::string head = name.substr(0, name.find(std::string("_") + found->in_name)) + "_";
    size_t last = 0;
    for (const char* type : {"bf16", "f16", "f32", "fp8", "int8"}) {
        const size_t at = head.rfind(std::string("_") + type + "_");
        if (at == std::string::npos || at < last) continue;
        last = at;
        activation = type;
    }
    if (last > arch.size()) weight = head.substr(arch.size() + 1, last - arch.size() - 1);
}

void check_functions(Context& context, const std::vector<Launch>& launches) {
    std::map<std::string, const void*> functions;
    for (const Launch& launch : launches) functions.emplace(launch.kernel, launch.function);
    for (const auto& [kernel, function] : functions) {
        const Family* family = family_in(kernel);
        if (!family || !function) continue;
        const std::string mangled = context.device.kernel_function_name(function);
        if (mangled.empty()) continue;
        const std::string name = demangled(mangled.c_str());
        const std::string weight = KernelName(kernel).weight;
        context.expect(has_function(name, *family),
                       kernel + " was launched as the function " + name);
        if (family->has_packed_type && !weight.empty() && weight != "any")
            context.expect(has_one_of_types(name, weight),
                           kernel + " was launched as a function of another type: " + name);
        ++context.n_functions_checked;
    }
}

}  // namespace moe_gpu
