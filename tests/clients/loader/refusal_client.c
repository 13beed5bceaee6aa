/*
 * What moe_dl_open refuses, and in which words. No real libmoe takes part.
 * usage: refusal_client <library of ABI version 77> <library of this version without the other
 * symbols> <library of ABI version 0, an old one>
 */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A name that no system has, so that an installed libmoe changes nothing here. */
#define MOE_DL_LIBRARY "libmoe-absent.so.0.0"
#include "moe/moe_dl.h"

static int refuse(const char* path, moe_status want, const char* first, const char* second) {
    moe_api api;
    char error[1024];
    moe_status status = moe_dl_open(&api, path, error, sizeof error);
    printf("%s: status %d, \"%s\"\n", path ? path : "(no path)", (int)status, error);
    if (status == want && strstr(error, first) && strstr(error, second) && !api.handle) return 1;
    fprintf(stderr, "wanted status %d and a sentence with \"%s\" and \"%s\"\n", (int)want, first,
            second);
    return 0;
}

static int refuse_in_a_small_buffer(void) {
    moe_api api;
    char error[24];
    memset(error, 'x', sizeof error);
    if (moe_dl_open(&api, "/nonexistent/libmoe.so", error, 16) != MOE_ERROR_NOT_FOUND) return 0;
    return strlen(error) < 16 && error[16] == 'x';
}

int main(int argc, char** argv) {
    int good;
    if (argc != 4) return 2;
    unsetenv("MOE_LIBRARY");
    good = refuse(argv[1], MOE_ERROR_ABI, "found ABI version 77", "wanted 1");
    good = refuse(argv[3], MOE_ERROR_ABI, "found ABI version 0", "wanted 1") && good;
    good = refuse(argv[2], MOE_ERROR_NOT_FOUND, "symbol", "moe_version") && good;
    good = refuse("/nonexistent/libmoe.so", MOE_ERROR_NOT_FOUND, "/nonexistent/libmoe.so",
                  MOE_DL_LIBRARY) &&
           good;
    good = refuse_in_a_small_buffer() && good;
    setenv("MOE_LIBRARY", argv[1], 1); /* comes before the path */
    good = refuse(argv[2], MOE_ERROR_ABI, "found ABI version 77", "wanted 1") && good;
    return good ? 0 : 1;
}
