#include "bench/cpu/machine.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

namespace moe::bench {
namespace {

constexpr const char* extensions[] = {
    "avx2",       "fma",         "f16c",        "avx_vnni",    "avx512f", "avx512bw", "avx512_vbmi",
    "avx512vbmi", "avx512_vnni", "avx512_bf16", "avx512_fp16", "gfni",    "amx_tile", "amx_int8",
    "amx_bf16",   "asimd",       "asimddp",     "i8mm",        "bf16",    "sve"};

std::string line_of(const std::string& path) {
    std::string line;
    std::ifstream file(path);
    std::getline(file, line);
    return line;
}

// The value of the first line "key : value" of /proc/cpuinfo.
std::string cpuinfo(const std::string& key) {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);) {
        const size_t colon = line.find(':');
        if (line.rfind(key, 0) == 0 && colon != line.npos && colon + 2 <= line.size())
            return line.substr(colon + 2);
    }
    return "";
}

// The size of the first processor's data or unified cache of a level.
int64_t cache_bytes(const std::string& level) {
    for (int i = 0; i < 8; ++i) {
        const std::string folder =
            "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(i) + "/";
        if (line_of(folder + "level") != level || line_of(folder + "type") == "Instruction")
            continue;
        const std::string size = line_of(folder + "size");
        return size.empty() ? 0 : std::stoll(size) * (size.back() == 'M' ? 1 << 20 : 1 << 10);
    }
    return 0;
}

int32_t count_cores(const cpu_set_t& allowed) {
    std::set<std::pair<std::string, std::string>> cores;
    for (int i = 0; i < CPU_SETSIZE; ++i) {
        if (!CPU_ISSET(i, &allowed)) continue;
        const std::string folder = "/sys/devices/system/cpu/cpu" + std::to_string(i) + "/topology/";
        const std::string core = line_of(folder + "core_id");
        cores.emplace(line_of(folder + "physical_package_id"),
                      core.empty() ? "cpu" + std::to_string(i) : core);
    }
    return static_cast<int32_t>(cores.size());
}

}  // namespace

Machine read_machine() {
    Machine machine{};
    machine.cpu = cpuinfo("model name");
    if (machine.cpu.empty()) machine.cpu = "unknown";
    std::string flags = cpuinfo("flags");
    if (flags.empty()) flags = cpuinfo("Features");
    std::istringstream words(flags);
    for (std::string word; words >> word;)
        if (std::find(std::begin(extensions), std::end(extensions), word) != std::end(extensions))
            machine.isa.push_back(word);
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    sched_getaffinity(0, sizeof allowed, &allowed);
    machine.n_processors = CPU_COUNT(&allowed);
    machine.n_cores = count_cores(allowed);
    machine.l2_bytes = cache_bytes("2");
    machine.l3_bytes = cache_bytes("3");
    machine.memory_bytes = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
    const std::string pages = line_of("/sys/kernel/mm/transparent_hugepage/enabled");
    const size_t begin = pages.find('['), end = pages.find(']');
    machine.huge_pages = end == pages.npos ? "never" : pages.substr(begin + 1, end - begin - 1);
    getloadavg(&machine.load, 1);
    return machine;
}

nlohmann::ordered_json machine_json(const Machine& machine) {
    return {{"cpu", machine.cpu},
            {"isa", machine.isa},
            {"n_processors", machine.n_processors},
            {"n_cores", machine.n_cores},
            {"l2_bytes", machine.l2_bytes},
            {"l3_bytes", machine.l3_bytes},
            {"memory_bytes", machine.memory_bytes},
            {"huge_pages", machine.huge_pages},
            {"load", machine.load}};
}

}  // namespace moe::bench
