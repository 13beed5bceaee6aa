// Runs a target over files, and over changes of them that are the same every time, without
// libFuzzer:
//     moe-fuzz-replay TARGET [--mutations N] [--verbose] [--accepted] FILE_OR_FOLDER ...
// --accepted: a refusal is a failure, as where a new version of a format comes without new seeds.
// It also picks a corpus, of the files given the smallest for each sentence by which the library
// refuses:
//     moe-fuzz-replay TARGET --pick FOLDER FILE_OR_FOLDER ...
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <vector>

#include "tests/fuzz/target.hpp"

namespace moe_fuzz {

void mutate_bytes(std::string& bytes, Random& random) {
    const size_t at = random.below(bytes.size() + 1);
    switch (random.below(4)) {
        case 0:
            bytes.insert(at, 1 + random.below(8), static_cast<char>(random.next()));
            return;
        case 1:
            if (at < bytes.size()) bytes.erase(at, 1 + random.below(8));
            return;
        case 2:
            if (at < bytes.size()) bytes[at] = static_cast<char>(random.next());
            return;
        default:
            if (at < bytes.size()) bytes[at] = static_cast<char>(bytes[at] ^ 1 << random.below(8));
            return;
    }
}

}  // namespace moe_fuzz

namespace {

namespace fs = std::filesystem;
using namespace moe_fuzz;

constexpr size_t largest_input = 1 << 16;

std::vector<fs::path> files_of(const fs::path& path) {
    if (!fs::is_directory(path)) return {path};
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(path))
        if (entry.is_regular_file() && entry.path().filename().string()[0] != '.')
            files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    return files;
}

std::string content(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    if (!in) throw std::runtime_error(path.string() + ": cannot be read");
    return {std::istreambuf_iterator<char>(in), {}};
}

struct Arguments {
    const Target* target = nullptr;
    size_t n_mutations = 0;
    bool verbose = false, accepted = false;
    fs::path pick;
    std::vector<fs::path> files;
};

Arguments parse(int argc, char** argv) {
    Arguments out;
    if (argc > 1) out.target = find_target(argv[1]);
    for (int i = 2; i < argc; ++i) {
        const std::string_view arg = argv[i];
        if (arg == "--mutations" && i + 1 < argc) {
            out.n_mutations = std::strtoull(argv[++i], nullptr, 10);
        } else if (arg == "--pick" && i + 1 < argc) {
            out.pick = argv[++i];
        } else if (arg == "--verbose") {
            out.verbose = true;
        } else if (arg == "--accepted") {
            out.accepted = true;
        } else {
            for (const fs::path& file : files_of(argv[i])) out.files.push_back(file);
        }
    }
    return out;
}

// Each change is made to the one before; one that has grown too far begins anew.
void run_mutations(const Arguments& arguments, const std::string& seed, uint64_t number) {
    Random random(number);
    std::string input = seed;
    for (size_t i = 0; i < arguments.n_mutations; ++i) {
        if (arguments.verbose) std::fprintf(stderr, "  change %zu\n", i);
        input = arguments.target->mutate(input, random);
        if (input.size() > largest_input || random.one_in(16)) input = seed;
        arguments.target->run(input);
    }
}

// The kind of a sentence: without numbers and what is quoted.
std::string kind_of(std::string_view sentence) {
    std::string out;
    bool quoted = false;
    sentence = sentence.substr(0, sentence.find("not valid JSON"));
    for (const char c : sentence) {
        if (c == '\'') quoted = !quoted;
        if (!quoted && !(c >= '0' && c <= '9') && c != ',' && c != ' ') out += c;
    }
    return out;
}

struct Smallest {
    fs::path file;
    uint64_t bytes;
};
std::map<std::string, Smallest> picked;
Smallest current;

void take(std::string_view sentence) {
    const auto [place, is_new] = picked.emplace(kind_of(sentence), current);
    if (!is_new && current.bytes < place->second.bytes) place->second = current;
}

void print(std::string_view sentence) {
    std::fprintf(stderr, "    %.*s\n", static_cast<int>(sentence.size()), sentence.data());
}

void fail(std::string_view sentence) {
    print(sentence);
    std::exit(1);
}

void pick(const Arguments& arguments) {
    on_refusal = take;
    for (const fs::path& file : arguments.files) {
        const std::string input = content(file);
        current = {file, input.size()};
        arguments.target->run(input);
    }
    for (const auto& [kind, smallest] : picked) {
        fs::copy_file(smallest.file, arguments.pick / smallest.file.filename(),
                      fs::copy_options::skip_existing);
    }
    std::printf("%s: %zu kinds of refusals\n", arguments.target->name, picked.size());
}

}  // namespace

int main(int argc, char** argv) {
    const Arguments arguments = parse(argc, argv);
    if (!arguments.target || arguments.files.empty()) {
        std::fprintf(stderr,
                     "moe-fuzz-replay TARGET [--mutations N] [--verbose] FILE_OR_FOLDER ...\n");
        return 2;
    }
    if (!arguments.pick.empty()) {
        pick(arguments);
        return 0;
    }
    if (arguments.verbose) on_refusal = print;
    if (arguments.accepted) on_refusal = fail;
    for (size_t i = 0; i < arguments.files.size(); ++i) {
        if (arguments.verbose) std::fprintf(stderr, "%s\n", arguments.files[i].c_str());
        const std::string input = content(arguments.files[i]);
        arguments.target->run(input);
        run_mutations(arguments, input, i);
    }
    std::printf("%s: %zu files, %zu changes of each\n", arguments.target->name,
                arguments.files.size(), arguments.n_mutations);
    return 0;
}
