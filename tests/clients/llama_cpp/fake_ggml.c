/* A libggml-base that has a version and nothing else: what a plug-in sees of a ggml that it does
 * not know. */
const char* ggml_version(void) {
    return FAKE_VERSION;
}
