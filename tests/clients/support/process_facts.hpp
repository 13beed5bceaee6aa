// What Linux says of this process: threads, resident memory by kind, resident bytes of one mapped
// file, bytes in malloc.
#pragma once

#include <dirent.h>
#include <malloc.h>

#include <fstream>
#include <sstream>
#include <string>

#include "support/check.hpp"

namespace clients {

inline int count_threads() {
    DIR* folder = opendir("/proc/self/task");
    CHECK(folder, "/proc/self/task");
    int count = 0;
    while (const dirent* entry = readdir(folder)) count += entry->d_name[0] != '.';
    closedir(folder);
    return count;
}

// "RssAnon", "RssFile": bytes.
inline int64_t status_bytes(const char* key) {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);)
        if (line.rfind(std::string(key) + ":", 0) == 0)
            return std::atoll(line.c_str() + std::strlen(key) + 1) * 1024;
    CHECK(false, "/proc/self/status has no %s", key);
}

// Resident bytes of every mapping of the file.
inline int64_t resident_bytes_of(const std::string& path) {
    std::ifstream maps("/proc/self/smaps");
    bool inside = false;
    int64_t bytes = 0, mappings = 0;
    for (std::string line; std::getline(maps, line);) {
        const size_t word = line.find_first_of(" :");
        if (line.find('-') < word) {
            inside = line.size() >= path.size() &&
                     line.compare(line.size() - path.size(), path.size(), path) == 0;
            mappings += inside;
        } else if (inside && line.rfind("Rss:", 0) == 0) {
            bytes += std::atoll(line.c_str() + 4) * 1024;
        }
    }
    CHECK(mappings > 0, "%s is not mapped", path.c_str());
    return bytes;
}

inline int64_t malloc_bytes() {
    return int64_t(mallinfo2().uordblks);
}

}  // namespace clients
