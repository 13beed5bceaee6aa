// Finds the PTX of every kernel: *.ptx in the folders of MOE_EMULATOR_PTX, else in ../ptx/sm_90a or
// ../ptx/sm_80 beside this library. Only the first has Hopper's own kernels.
#include <dlfcn.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>

#include "tests/emulator/runtime.hpp"
#include "tests/emulator/runtime_program.hpp"

namespace emulator {
namespace {

namespace fs = std::filesystem;

struct Sources {
    std::unique_ptr<Program> program;
    std::vector<fs::path> files;
    int version = 0;
    std::map<std::string, std::string> by_plain_name;  // filled when an exact name is not found
};

fs::path beside_this_library() {
    Dl_info found{};
    if (!dladdr(reinterpret_cast<void*>(&name_in_ptx), &found) || !found.dli_fname) return ".";
    return fs::absolute(found.dli_fname).parent_path().parent_path();
}

std::vector<fs::path> folders() {
    const char* given = std::getenv("MOE_EMULATOR_PTX");
    if (!given || !*given) {
        const bool is_hopper = machine().major == 9;
        return {beside_this_library() / "ptx" / (is_hopper ? "sm_90a" : "sm_80")};
    }
    std::vector<fs::path> list;
    std::istringstream words(given);
    for (std::string word; std::getline(words, word, ':');)
        if (!word.empty()) list.emplace_back(word);
    return list;
}

// Reads ".target sm_90a" as 90; the directive is at the top of a file.
int version_of(const fs::path& path) {
    std::ifstream file(path);
    std::string line;
    for (int i = 0; i < 64 && std::getline(file, line); ++i)
        if (line.rfind(".target sm_", 0) == 0) return std::atoi(line.c_str() + 11);
    return 0;
}

void add_folder(Sources& to, const fs::path& folder) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder, error))
        if (entry.path().extension() == ".ptx") to.files.push_back(entry.path());
    if (error) std::fprintf(stderr, "emulator: %s: %s\n", folder.c_str(), error.message().c_str());
}

Sources& sources() {
    static Sources& kept = []() -> Sources& {
        auto& made = *new Sources;
        made.program = std::make_unique<Program>(memory());
        for (const fs::path& folder : folders()) add_folder(made, folder);
        std::sort(made.files.begin(), made.files.end());
        for (const fs::path& file : made.files) made.program->add_file(file.string());
        if (!made.files.empty()) made.version = version_of(made.files.front());
        return made;
    }();
    return kept;
}

void index_plain_names(Sources& of) {
    static const std::regex entry("\\.entry\\s+([A-Za-z0-9_$]+)");
    for (const fs::path& path : of.files) {
        std::ifstream file(path);
        std::smatch match;
        for (std::string line; std::getline(file, line);)
            if (line.find(".entry") != std::string::npos && std::regex_search(line, match, entry))
                of.by_plain_name[without_hashes(match[1])] = match[1];
    }
    of.by_plain_name[""] = "";  // marks the map as filled
}

}  // namespace

Program& program() {
    return *sources().program;
}

int ptx_version() {
    return sources().version;
}

// Example: ..._GLOBAL__N__5b636dc0_14_early_start_cu_426119bd... has eight digits behind the first
// mark and eight behind "_cu_".
std::string without_hashes(const std::string& name) {
    static const std::regex mark("_GLOBAL__N__[0-9a-f]{8}_([0-9]+_[A-Za-z0-9_]*?_cu)_[0-9a-f]{8}");
    return std::regex_replace(name, mark, "_GLOBAL__N__$1");
}

std::string name_in_ptx(const std::string& name) {
    Sources& all = sources();
    if (all.program->has(name)) return name;
    if (all.by_plain_name.empty()) index_plain_names(all);
    const auto found = all.by_plain_name.find(without_hashes(name));
    return found == all.by_plain_name.end() ? "" : found->second;
}

}  // namespace emulator
